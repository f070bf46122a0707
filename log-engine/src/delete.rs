//! Deleting a log, or its oldest segments, in two steps: at once they do not exist any more; their files, which may be
//! many, go when there is time.

use std::io;
use std::path::PathBuf;

use crate::LogName;
use crate::data_dir::{DELETED_SUFFIX, DataDir, remove_dir_and_files};
use crate::error::FileError;
use crate::log::{Log, is_disk_full};
use crate::recovery::{PARTS, remove_segment_files};
use crate::relocate::moved_away_log;
use crate::segment::{Segment, file_name};

impl Log {
    /// Removes the log and its files. Readers that hold a slice may finish with it.
    pub fn delete(self) -> Result<(), FileError> {
        self.detach()?.remove_files()
    }

    /// The quick part of [`delete`](Self::delete): afterwards the log does not exist any more, whenever the power goes,
    /// and another of its name may be made. Its files, which may take long to remove, still take their space.
    pub fn detach(self) -> Result<DetachedLog, FileError> {
        let _no_seals = self.shared.hold_seals();
        self.shared.note_cut();
        let detached = self.data.detach(self.name)?;
        // Neither a look at its segments nor a flush that is still under way may take a log that is made in its place for it.
        self.let_all_go();
        self.epochs_written.lock().version = u64::MAX;
        Ok(detached)
    }

    /// The files of segments that were dropped since this was last asked for. They may be removed at any time; what is
    /// left of them when the log is opened the next time goes then.
    pub fn take_detached(&mut self) -> Option<DetachedSegments> {
        let bases = std::mem::take(&mut self.detached);
        let dir = self.dir.clone();
        (!bases.is_empty()).then(|| DetachedSegments { data: self.data.clone(), dir, bases })
    }

    /// Gives the files of a segment other names, under which no start takes them for part of the log. A directory may be
    /// too full for that: then they are removed at once.
    pub(crate) fn detach_segment(&mut self, segment: &Segment) -> Result<(), FileError> {
        let _index_stays = segment.aborted().hold();
        self.let_go(segment);
        self.detach_files(segment.base_offset())?;
        // A late reader may have opened one again; the cache would keep its space for long.
        self.forget_segment(segment);
        Ok(())
    }

    /// The same for files that nobody holds any more.
    pub(crate) fn detach_files(&mut self, base: i64) -> Result<(), FileError> {
        let disk = self.data.disk().clone();
        for part in PARTS {
            let path = self.dir.join(file_name(base, part));
            match disk.rename(&path, &self.dir.join(detached_name(base, part))) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) if is_disk_full(&e) => {
                    // What was put aside before stays so: of what leaves no name the order must be told.
                    disk.sync_dir(&self.dir).map_err(|e| FileError::new("sync", &self.dir, e))?;
                    remove_segment_files(&*disk, &self.dir, base)?;
                }
                Err(e) => return Err(FileError::new("rename", path, e)),
            }
        }
        self.detached.push(base);
        Ok(())
    }
}

impl DataDir {
    /// As [`Log::detach`], for a log that is not open, for whatever reason, also one that was moved away and has files here still.
    /// One that does not exist is fine.
    pub fn detach(&self, name: LogName) -> Result<DetachedLog, FileError> {
        self.forget_records(name)?;
        let disk = self.disk();
        let (dir, above) = (self.path().join(name.to_string()), self.path());
        let doomed = above.join(format!("{name}{DELETED_SUFFIX}"));
        remove_dir_and_files(&**disk, &doomed)?;
        match disk.rename(&dir, &doomed) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if let Some(away) = moved_away_log(&**disk, above, name)? {
                    let away = away.path_in(above);
                    disk.rename(&away, &doomed).map_err(|e| FileError::new("rename", &away, e))?;
                }
            }
            Err(e) => return Err(FileError::new("rename", &dir, e)),
        }
        disk.sync_dir(above).map_err(|e| FileError::new("sync", above, e))?;
        Ok(DetachedLog::new(self.clone(), doomed))
    }

    /// Forgets what is noted of a log, durably if the disk has room.
    pub(crate) fn forget_records(&self, name: LogName) -> Result<(), FileError> {
        // On a full disk the files must go first, to make room for the note that they are gone.
        let noted = [
            self.cleaned().lower_durably(name, None),
            self.dropped().lower_durably(name, None),
            self.ends().remove_durably(name),
        ];
        match noted.into_iter().collect::<Result<(), _>>() {
            Err(error) if !is_disk_full(&error.source) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn detached_name(base_offset: i64, part: &str) -> String {
    format!("{}{DELETED_SUFFIX}", file_name(base_offset, part))
}

/// Files of segments that their log does not have any more.
pub struct DetachedSegments {
    data: DataDir,
    dir: PathBuf,
    bases: Vec<i64>,
}

impl DetachedSegments {
    /// Removes the files; those that are gone already (with the whole log) are fine. Waits for the device.
    pub fn remove_files(self) -> Result<(), FileError> {
        for (base, part) in self.bases.iter().flat_map(|base| PARTS.map(|part| (*base, part))) {
            let path = self.dir.join(detached_name(base, part));
            match self.data.disk().remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(FileError::new("remove", path, e));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// What is left of a deleted log: files under another name. If they are not removed now, the next
/// [`DataDir::open`] does it.
pub struct DetachedLog {
    data: DataDir,
    doomed: PathBuf,
    /// The log was moved to another directory: until its files go it could come back, with what is noted of it here.
    moved: Option<LogName>,
}

impl DetachedLog {
    pub(crate) fn new(data: DataDir, doomed: PathBuf) -> DetachedLog {
        DetachedLog { data, doomed, moved: None }
    }

    /// The files in its old place of a log that was moved away.
    pub(crate) fn moved(data: DataDir, name: LogName, doomed: PathBuf) -> DetachedLog {
        DetachedLog { data, doomed, moved: Some(name) }
    }

    /// Removes the files. Waits for the device.
    pub fn remove_files(mut self) -> Result<(), FileError> {
        if let Some(name) = self.moved {
            self.give_up(name)?;
        }
        remove_dir_and_files(&**self.data.disk(), &self.doomed)?;
        self.data.ends().write()?;
        self.data.ends().sync()
    }

    /// From here on no start takes the files of a log that was moved away for the log again, not even half of them. What is noted
    /// goes first: as long as they have their name no log is made here that something could be noted of.
    fn give_up(&mut self, name: LogName) -> Result<(), FileError> {
        let (disk, above) = (self.data.disk(), self.data.path());
        // It may have come back since.
        if !self.data.list()?.contains(&name) {
            self.data.forget_records(name)?;
        }
        let doomed = above.join(format!("{name}{DELETED_SUFFIX}"));
        remove_dir_and_files(&**disk, &doomed)?;
        disk.rename(&self.doomed, &doomed).map_err(|e| FileError::new("rename", &self.doomed, e))?;
        disk.sync_dir(above).map_err(|e| FileError::new("sync", above, e))?;
        self.doomed = doomed;
        Ok(())
    }
}
