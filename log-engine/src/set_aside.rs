//! Logs that are damaged are put aside, under another name in the same directory, before their copy begins anew: what they
//! hold may still turn out to be the best that anybody has, so it goes only when a new copy has taken its place.

use std::io;

use crate::LogName;
use crate::data_dir::{DELETED_SUFFIX, DataDir, remove_dir_and_files};
use crate::delete::DetachedLog;
use crate::error::FileError;

const ASIDE_SUFFIX: &str = ".damaged";

impl DataDir {
    /// Puts a log that is not open aside, so that its name is free; one that does not exist is fine. Where one of that name
    /// is aside already, that one stays, and this one, which began after it, is the answer, to be removed.
    pub fn set_aside(&self, name: LogName) -> Result<Option<DetachedLog>, FileError> {
        let disk = self.disk();
        self.cleaned().lower_durably(name, None)?;
        self.dropped().lower_durably(name, None)?;
        self.ends().remove_durably(name)?;
        let taken = self.logs_aside()?.contains(&name);
        let suffix = if taken { DELETED_SUFFIX } else { ASIDE_SUFFIX };
        let (dir, away) = (self.path().join(name.to_string()), self.path().join(format!("{name}{suffix}")));
        if taken {
            remove_dir_and_files(&**disk, &away)?;
        }
        match disk.rename(&dir, &away) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(FileError::new("rename", &dir, e)),
            Ok(()) | Err(_) => {}
        }
        disk.sync_dir(self.path()).map_err(|e| FileError::new("sync", self.path(), e))?;
        Ok(taken.then(|| DetachedLog::new(self.clone(), away)))
    }

    /// The logs that are aside.
    pub fn logs_aside(&self) -> Result<Vec<LogName>, FileError> {
        let entries = self.disk().list(self.path()).map_err(|e| FileError::new("list", self.path(), e))?;
        let aside = entries.iter().filter(|entry| entry.is_dir);
        Ok(aside.filter_map(|entry| LogName::parse(entry.name.strip_suffix(ASIDE_SUFFIX)?)).collect())
    }

    /// Removes a log that is aside. Waits for the device.
    pub fn remove_aside(&self, name: LogName) -> Result<(), FileError> {
        remove_dir_and_files(&**self.disk(), &self.path().join(format!("{name}{ASIDE_SUFFIX}")))
    }
}
