//! The disk as the quorum's files see it: the system's, or one in memory that forgets what was not synced.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Any disk. Cheap to clone.
pub(crate) type SharedDisk = Arc<dyn Disk>;

/// What a file is opened for, always to read and write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// It must exist.
    Existing,
    /// It must not exist.
    New,
    /// It is empty afterwards, whether it existed or not.
    Empty,
}

/// Directories and names.
pub(crate) trait Disk: Debug + Send + Sync {
    fn open(&self, path: &Path, open: Open) -> io::Result<Box<dyn DiskFile>>;
    /// The whole content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    fn exists(&self, path: &Path) -> bool;
    /// The directory and those above it; existing ones are fine.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// What is in a directory.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// An open file.
pub(crate) trait DiskFile: Debug + Send + Sync {
    /// Reads what there is, at most as much as `bytes` holds; 0 at the end.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Waits until content and length are on the device.
    fn sync(&self) -> io::Result<()>;
}

/// The system's.
#[derive(Debug)]
pub(crate) struct SystemDisk;

/// The system's disk.
pub(crate) fn system_disk() -> SharedDisk {
    Arc::new(SystemDisk)
}

impl Disk for SystemDisk {
    fn open(&self, path: &Path, open: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match open {
            Open::Existing => {}
            Open::New => {
                options.create_new(true);
            }
            Open::Empty => {
                options.create(true).truncate(true);
            }
        }
        Ok(Box::new(options.open(path)?))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, at)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        File::set_len(self, length)
    }

    /// The length is part of what is needed to read the content back, so the system writes it as well.
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Fills `bytes` from `at` on; a file that ends before is an error.
pub(crate) fn read_exact_at(file: &dyn DiskFile, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.read_at(bytes, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = &mut bytes[read..];
                at += read as u64;
            }
        }
    }
    Ok(())
}
