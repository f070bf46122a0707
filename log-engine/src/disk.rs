//! The few things that the log asks of a file system, as a trait.
//!
//! [`RealDisk`] is the operating system; [`SimDisk`] is memory that forgets what was not synced, tears writes, and
//! fails on order. Both pass the one contract suite in `tests/disk_contract.rs`. Data written through one handle is
//! visible through every other at once; it is *durable* only after `sync` on the handle that wrote it, and a created,
//! renamed or removed name only after `sync_dir` on its directory.

mod real;
mod sim;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use real::RealDisk;
pub use sim::{CrashChoices, SimDisk, SimFault};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    ReadWrite,
    /// A file that must not exist yet.
    CreateNew,
    /// A new file, or an old one emptied.
    CreateOrEmpty,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    /// Length in bytes, 0 for a directory.
    pub len: u64,
}

/// Room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    pub total_bytes: u64,
    /// What we may still use.
    pub available_bytes: u64,
}

/// A file system. Paths are absolute or relative to the process, as the caller likes.
pub trait Disk: Send + Sync + 'static {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates the directory and those above it; an existing one is fine.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted. A directory that does not exist is an error of kind `NotFound`.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// When a file was last written to, in milliseconds since the Unix epoch; `None` on a file system that does not know.
    fn modified_ms(&self, _path: &Path) -> io::Result<Option<i64>> {
        Ok(None)
    }
    /// Room of the file system that holds `dir`; `None` on one that does not know.
    fn space(&self, _dir: &Path) -> io::Result<Option<DiskSpace>> {
        Ok(None)
    }
    /// Renames within one directory, replacing what had the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in the directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// A handle to the file system that holds `dir`; errors of write-back are reported once per handle.
    fn file_system(&self, dir: &Path) -> io::Result<Box<dyn FileSystem>>;
    /// Takes the exclusive lock on a file (created if absent) until the guard is dropped; `None` if another has it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>>;
}

/// Holds a lock while it lives.
pub trait LockGuard: Send + Sync {}

/// A mounted file system.
pub trait FileSystem: Send + Sync {
    /// Makes everything on it durable. An error names no file.
    fn sync(&self) -> io::Result<()>;
    /// Whether the directory is the root of a mount of its own, so that a sync flushes nobody else's data.
    fn is_own_mount(&self) -> bool;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Fills `buf` from `offset`; a file that ends before is an error of kind `UnexpectedEof`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Like [`read_at`](Self::read_at) without waiting for the device: `WouldBlock` if the bytes are not in memory.
    fn read_at_warm(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Whether a range seems to be in memory: looks at a page here and there, and does not wait. A range of which
    /// nothing can be said counts as warm.
    fn is_warm(&self, offset: u64, len: u64) -> bool;
    /// Brings a range into memory, waiting for the device. Only a hint, never an error.
    fn warm_up(&self, offset: u64, len: u64);
    /// Says whether reads are one after another, so that it pays to read ahead of them, as it is said of a new handle; else the
    /// device reads no page but those that are asked for. Only a hint.
    fn read_ahead(&self, _pays: bool) {}
    /// Says that a range that was read will not be needed again soon. Only a hint.
    fn let_go(&self, _offset: u64, _len: u64) {}
    /// Writes all of `bytes`. After an error any part of them may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space beyond the end without changing the length; only a hint, never an error. Answers `false` if there is
    /// not so much room.
    fn reserve(&self, offset: u64, len: u64) -> bool;
    /// Makes data and length durable. Reports write-back errors since this handle was opened or last synced.
    fn sync(&self) -> io::Result<()>;
    /// The operating system's file, for `sendfile`; `None` on a simulated disk.
    fn os_file(&self) -> Option<Arc<std::fs::File>>;
}
