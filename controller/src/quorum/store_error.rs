//! What can be wrong with a controller's files.

use super::disk::SharedDisk;
use std::io;
use std::path::{Path, PathBuf};

/// A controller's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused to read or write.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not hold what was written to it.
    #[error(
        "{} is damaged: {what}. This controller cannot be trusted any more and does not start. With other controllers \
         alive, replace it by a new one with a new id and an empty directory; otherwise restore the directory from a \
         copy.",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

impl StoreError {
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        io::Error::other(error)
    }
}

/// Says which file an I/O error was about.
pub(crate) trait AtPath<T> {
    fn at(self, verb: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, verb: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Io { verb, path: path.to_owned(), source })
    }
}

/// Makes the names inside a directory durable.
pub(crate) fn sync_directory(disk: &SharedDisk, path: &Path) -> Result<(), StoreError> {
    disk.sync_directory(path).at("sync the directory", path)
}

/// CRC-32C.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}
