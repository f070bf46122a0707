//! The marker of a log that a failed write or sync has made untrustworthy.
//!
//! After such a failure the cache may show bytes that the device does not have, and a second sync may report success
//! for nothing. The log takes no more appends, and the next start copies what can be verified into new files before
//! it removes the marker.

use std::io;
use std::path::Path;

use crate::data_dir::write_file;
use crate::disk::Disk;
use crate::error::{AppendError, FileError, LogError};
use crate::log::{Log, is_disk_full};

pub(crate) const FILE_NAME: &str = "write-failed";
/// What the system says of a device, or of a file system that has given up: EIO, ENXIO, ENODEV, EROFS, ESTALE, EUCLEAN.
/// A process that is short of descriptors or memory says nothing about it.
const OF_THE_DEVICE: [i32; 6] = [5, 6, 19, 30, 116, 117];

impl Log {
    /// Takes no more appends because of an error, and notes whether it is the device's.
    pub(crate) fn poison_by(&mut self, error: &FileError) -> AppendError {
        self.device_failed |= error.source.raw_os_error().is_some_and(|code| OF_THE_DEVICE.contains(&code));
        self.space_failed |= self.poisoned.is_none() && is_disk_full(&error.source);
        self.poison(error.to_string())
    }

    /// Why the log takes no more appends, if what failed found no space: what it was to bring to the disk may be gone, so only
    /// opening the log anew, when there is space, tells what is left.
    pub fn closed_for_space(&self) -> Option<&str> {
        self.poisoned.as_deref().filter(|_| self.space_failed && !self.device_failed)
    }

    /// Takes no more appends from now on, and sees to it that the next start knows.
    pub(crate) fn poison(&mut self, reason: String) -> AppendError {
        tracing::error!(log = %self.name, reason, "log is closed for writing");
        self.data.set_unclean();
        leave_marker(&**self.data.disk(), &self.dir, &reason);
        self.poisoned = Some(reason.clone());
        AppendError::Poisoned { reason }
    }

    pub(crate) fn check_writable(&self) -> Result<(), LogError> {
        match &self.poisoned {
            Some(reason) => Err(LogError::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

/// Leaves the marker. On a disk that fails this may fail too: recovery also writes every unflushed batch again.
pub(crate) fn leave_marker(disk: &dyn Disk, dir: &Path, reason: &str) {
    if let Err(error) = write_file(disk, dir, FILE_NAME, reason.as_bytes()) {
        tracing::error!(dir = %dir.display(), %error, "cannot mark the log as untrustworthy");
    }
}

/// Removes the marker and makes that, and all names before it, durable.
pub(crate) fn remove_marker(disk: &dyn Disk, dir: &Path) -> Result<(), FileError> {
    disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?;
    let path = dir.join(FILE_NAME);
    match disk.remove_file(&path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(FileError::new("remove", path, e)),
    }
    disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))
}
