//! The operating system's file system (Linux).

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};

use super::{DirEntry, Disk, DiskFile, DiskSpace, FileSystem, LockGuard, OpenMode};

/// The kernel reads ahead 128 KiB at a time unless it is told otherwise; half of it finds most holes.
const PROBE_STEP: usize = 64 << 10;

/// Real files.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

struct RealFile(Arc<File>);

struct RealFileSystem {
    dir: File,
    own_mount: bool,
}

struct RealLock(#[expect(dead_code, reason = "the lock is released when the file is closed")] File);

impl LockGuard for RealLock {}

/// Positions at which a range is looked at: its ends and one page of each read-ahead window.
fn probes(offset: u64, len: u64) -> impl Iterator<Item = u64> {
    let last = (offset + len).saturating_sub(1).max(offset);
    (offset..last).step_by(PROBE_STEP).chain([last])
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::ReadWrite => options.write(true),
            OpenMode::CreateNew => options.write(true).create_new(true),
            OpenMode::CreateOrEmpty => options.write(true).create(true).truncate(true),
        };
        Ok(Arc::new(RealFile(Arc::new(options.open(path)?))))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // A name that is not UTF-8 was not made by us; nobody asks for it.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            let is_dir = metadata.is_dir();
            entries.push(DirEntry { name, is_dir, len: if is_dir { 0 } else { metadata.len() } });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<Option<i64>> {
        let metadata = fs::metadata(path)?;
        Ok(Some(metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000)))
    }

    fn space(&self, dir: &Path) -> io::Result<Option<DiskSpace>> {
        let stat = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Some(DiskSpace { total_bytes: bytes(stat.f_blocks), available_bytes: bytes(stat.f_bavail) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn file_system(&self, dir: &Path) -> io::Result<Box<dyn FileSystem>> {
        let above = dir.canonicalize()?.parent().map(fs::metadata).transpose()?;
        let own_mount =
            above.is_some_and(|above| fs::metadata(dir).is_ok_and(|own| own.dev() != above.dev()));
        Ok(Box::new(RealFileSystem { dir: File::open(dir)?, own_mount }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(RealLock(file)))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

impl FileSystem for RealFileSystem {
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.dir)?)
    }

    fn is_own_mount(&self) -> bool {
        self.own_mount
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn read_at_warm(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let slice = &mut [IoSliceMut::new(&mut buf[done..])];
            match rustix::io::preadv2(&self.0, slice, offset + done as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                // A file system that cannot answer without waiting is treated as cold.
                Err(Errno::AGAIN | Errno::OPNOTSUPP) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn is_warm(&self, offset: u64, len: u64) -> bool {
        let mut byte = [0];
        probes(offset, len).all(|at| match self.read_at_warm(&mut byte, at) {
            Ok(()) => true,
            Err(e) => e.kind() != io::ErrorKind::WouldBlock,
        })
    }

    fn warm_up(&self, offset: u64, len: u64) {
        let _ = rustix::fs::fadvise(&self.0, offset, NonZeroU64::new(len), Advice::WillNeed);
        let mut byte = [0];
        for at in probes(offset, len) {
            // The read that follows reports what matters.
            let _ = self.0.read_at(&mut byte, at);
        }
    }

    fn read_ahead(&self, pays: bool) {
        let advice = if pays { Advice::Normal } else { Advice::Random };
        let _ = rustix::fs::fadvise(&self.0, 0, None, advice);
    }

    fn let_go(&self, offset: u64, len: u64) {
        let _ = rustix::fs::fadvise(&self.0, offset, NonZeroU64::new(len), Advice::DontNeed);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn reserve(&self, offset: u64, len: u64) -> bool {
        // Not every file system can, and none must: the write that follows reports what matters.
        let reserved = rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, offset, len);
        !matches!(reserved, Err(Errno::NOSPC | Errno::DQUOT))
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn os_file(&self) -> Option<Arc<File>> {
        Some(self.0.clone())
    }
}
