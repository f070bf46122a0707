//! The disk of a data directory is lost, and an empty directory takes its place.
//!
//! An operator says so by a file in the empty directory. It may name the ids of directories that are given up: where no other
//! directory of the node remembers them, nobody else knows. What was on the lost disk is missed from then on, as a log is whose
//! folder has gone.

use std::io;
use std::path::Path;

use uuid::Uuid;

use crate::LogName;
use crate::data_dir::{DataDir, META_FILE, read_file};
use crate::disk::Disk;
use crate::error::{DataDirError, FileError};
use crate::flushed_ends::FlushedEnd;

/// A file of this name in an empty data directory says that it takes the place of one whose disk is lost.
pub const REPLACES_LOST_DISK: &str = "replaces-lost-disk";

/// A few ids.
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// Whether there is no data directory there yet: opening it would make one.
pub fn is_unused(disk: &dyn Disk, path: &Path) -> bool {
    match disk.list(path) {
        Ok(entries) => entries.iter().all(|entry| entry.name != META_FILE),
        // What else is wrong, whoever opens it finds out.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// The ids of lost directories that an operator has written into the note, which may be none; `None` without a note.
pub fn lost_disk_note(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<Uuid>>, DataDirError> {
    let note = path.join(REPLACES_LOST_DISK);
    let Some(bytes) = read_file(disk, &note, NOTE_BYTES_MAX)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    let id = |word: &str| {
        Uuid::parse_str(word)
            .map_err(|_| DataDirError::BadNote { path: note.clone(), word: word.chars().take(40).collect() })
    };
    words.map(id).collect::<Result<_, _>>().map(Some)
}

impl DataDir {
    /// Notes that these logs were here and are gone: whoever opens one finds it damaged, until it is deleted or put aside.
    /// None of them may be here. Durable after the next [`checkpoint`](DataDir::checkpoint).
    pub fn note_lost(&self, logs: &[LogName]) {
        // How much there was nobody knows; that there was something is all that counts.
        let end = FlushedEnd {
            start: 0,
            end: 1,
            active_base: 0,
            index_entries: 0,
            time_index_entries: 0,
            snapshot_at_end: false,
        };
        logs.iter().for_each(|log| self.ends().note(*log, end));
    }

    /// Removes the operator's note: everybody who must know knows.
    pub fn remove_lost_disk_note(&self) -> Result<(), FileError> {
        let note = self.path().join(REPLACES_LOST_DISK);
        match self.disk().remove_file(&note) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.map_err(|e| FileError::new("remove", &note, e))?,
        }
        self.disk().sync_dir(self.path()).map_err(|e| FileError::new("sync", self.path(), e))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::{OpenMode, SimDisk};
    use crate::{DataDirOptions, Log, LogConfig, OpenError};

    fn open(disk: &Arc<SimDisk>) -> DataDir {
        let options = DataDirOptions {
            cluster_id: "c".into(),
            node_id: 1,
            new_directory_id: Uuid::from_u128(1),
            descriptors_max: 10,
        };
        DataDir::open(Arc::clone(disk) as Arc<dyn Disk>, Path::new("data"), &options).expect("opened")
    }

    #[test]
    fn a_note_may_name_directories_and_nothing_else() {
        let disk = SimDisk::new(1);
        let path = Path::new("data");
        assert!(is_unused(&*disk, path));
        assert_eq!(lost_disk_note(&*disk, path).expect("there is nothing"), None);
        disk.create_dir_all(path).expect("made");
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        for (text, ids) in [
            (String::new(), vec![]),
            (format!("{one}\n"), vec![one]),
            (format!(" {one},{two}\r\n"), vec![one, two]),
        ] {
            let note = disk.open(&path.join(REPLACES_LOST_DISK), OpenMode::CreateOrEmpty).expect("made");
            note.write_at(text.as_bytes(), 0).expect("written");
            assert_eq!(lost_disk_note(&*disk, path).expect("readable"), Some(ids));
            assert!(is_unused(&*disk, path));
        }
        let note = disk.open(&path.join(REPLACES_LOST_DISK), OpenMode::CreateOrEmpty).expect("made");
        note.write_at(b"yes", 0).expect("written");
        let error = lost_disk_note(&*disk, path).expect_err("no id").to_string();
        assert!(error.contains("yes") && error.contains(REPLACES_LOST_DISK), "{error}");

        let data = open(&disk);
        assert!(!is_unused(&*disk, path));
        data.remove_lost_disk_note().expect("removed");
        data.remove_lost_disk_note().expect("it was removed already");
        assert_eq!(lost_disk_note(&*disk, path).expect("there is nothing"), None);
    }

    #[test]
    fn a_log_that_was_lost_is_damaged_over_restarts_until_it_is_put_aside() {
        let disk = SimDisk::new(1);
        let name = LogName::new(Uuid::from_u128(7), 3);
        let data = open(&disk);
        data.note_lost(&[name]);
        data.checkpoint().expect("noted");
        drop(data);
        for _ in 0..2 {
            disk.crash_at(disk.ops() + 1);
            disk.restart();
            let data = open(&disk);
            assert_eq!(data.known_logs(), [name]);
            let opened = Log::open(&data, name, LogConfig::default(), 0);
            assert!(matches!(opened, Err(OpenError::Damaged { .. })), "not a new, empty one");
        }
        let data = open(&disk);
        assert!(data.set_aside(name).expect("put aside").is_none());
        let (log, _) = Log::open(&data, name, LogConfig::default(), 0).expect("it begins anew");
        assert_eq!(log.end(), 0);
    }
}
