//! Deleting a log, in two steps: at once it does not exist any more; its files, which may be many, go when there is time.

use std::path::PathBuf;

use crate::LogName;
use crate::data_dir::{DELETED_SUFFIX, DataDir, remove_dir_and_files};
use crate::error::FileError;
use crate::log::{Log, is_disk_full};

impl Log {
    /// Removes the log and its files. Readers that hold a slice may finish with it.
    pub fn delete(self) -> Result<(), FileError> {
        self.detach()?.remove_files()
    }

    /// The quick part of [`delete`](Self::delete): afterwards the log does not exist any more, whenever the power goes,
    /// and another of its name may be made. Its files, which may take long to remove, still take their space.
    pub fn detach(self) -> Result<DetachedLog, FileError> {
        let disk = self.data.disk();
        let _no_seals = self.shared.hold_seals();
        // On a full disk the files must go first, to make room for the note that they are gone.
        let noted = self.data.ends().remove_durably(self.name);
        if let Err(error) = noted
            && !is_disk_full(&error.source)
        {
            return Err(error);
        }
        let doomed = self.data.path().join(format!("{}{DELETED_SUFFIX}", self.name));
        remove_dir_and_files(&**disk, &doomed)?;
        disk.rename(&self.dir, &doomed).map_err(|e| FileError::new("rename", &self.dir, e))?;
        let above = self.data.path();
        disk.sync_dir(above).map_err(|e| FileError::new("sync", above, e))?;
        for segment in self.shared.segments().iter() {
            self.forget_segment(segment);
        }
        Ok(DetachedLog::new(self.data.clone(), doomed))
    }
}

impl DataDir {
    /// Removes a log that is not open, as [`Log::detach`] does one that is. One that does not exist is fine.
    pub fn discard(&self, name: LogName) -> Result<DetachedLog, FileError> {
        let disk = self.disk();
        self.ends().remove_durably(name)?;
        let (dir, doomed) =
            (self.path().join(name.to_string()), self.path().join(format!("{name}{DELETED_SUFFIX}")));
        remove_dir_and_files(&**disk, &doomed)?;
        match disk.rename(&dir, &doomed) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(FileError::new("rename", &dir, e));
            }
            Ok(()) | Err(_) => {}
        }
        disk.sync_dir(self.path()).map_err(|e| FileError::new("sync", self.path(), e))?;
        Ok(DetachedLog::new(self.clone(), doomed))
    }
}

/// What is left of a deleted log: files under another name. If they are not removed now, the next
/// [`DataDir::open`] does it.
pub struct DetachedLog {
    data: DataDir,
    doomed: PathBuf,
}

impl DetachedLog {
    pub(crate) fn new(data: DataDir, doomed: PathBuf) -> DetachedLog {
        DetachedLog { data, doomed }
    }

    /// Removes the files. Waits for the device.
    pub fn remove_files(self) -> Result<(), FileError> {
        remove_dir_and_files(&**self.data.disk(), &self.doomed)?;
        self.data.ends().write()?;
        self.data.ends().sync()
    }
}
