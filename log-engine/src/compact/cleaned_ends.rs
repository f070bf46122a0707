//! How far the logs of a data directory are compacted: Kafka's file `cleaner-offset-checkpoint`, by topic id, with a checksum
//! as its last line.
//!
//! An end that is too low costs work; one that is too high could bring deleted keys back. So a file that is damaged in any way
//! counts as empty, and an end is lowered durably before a log is cut below it; where there is no room for that the file goes.
//! Of what was dropped the opposite is true: one that is too high costs work, so on a full disk the file stays as it is. That
//! file is there from the first start on, and counts how often it was written; the record of flushed ends tells that count too.
//! So one that is missing, or is an older version, is noticed as one that is damaged.
//!
//! ```text
//! 0                       version; 1 of the file of what was dropped
//! 7                       how often it was written; not in version 0
//! 1                       lines that follow
//! <topic id> <partition> <first offset that is not compacted>
//! crc32c <of the lines above, hexadecimal>
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::LogName;
use crate::checked_text::{checked_lines, with_checksum};
use crate::data_dir::{read_file, write_file};
use crate::disk::Disk;
use crate::error::FileError;
use crate::flushed_ends::FlushedEnds;
use crate::log::is_disk_full;
use crate::recovery::remove_if_there;

pub(crate) const FILE_NAME: &str = "cleaner-offset-checkpoint";
/// A million partitions.
const BYTES_MAX: u64 = 128 << 20;

/// Up to where compaction has dropped tombstones and markers, by the same format (`super::dropped`).
pub(crate) const DROPPED_FILE_NAME: &str = "cleaner-dropped-checkpoint";
/// Stands for a log of which that is not known.
pub(crate) const UNKNOWN: i64 = i64::MAX;

pub(crate) struct CleanedEnds {
    file_name: &'static str,
    /// Of the file of what was dropped: where its generations are told. An end in it that is too high is safe.
    told: Option<Arc<FlushedEnds>>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    ends: Mutex<BTreeMap<LogName, i64>>,
    /// Held while the file is written.
    written: Mutex<Written>,
}

/// What the file says.
struct Written {
    /// `None` if that is not known, or nothing that can be read.
    ends: Option<BTreeMap<LogName, i64>>,
    /// How often it was written, or may have been.
    generation: u64,
}

/// A file that can be read.
struct Stored {
    generation: u64,
    ends: BTreeMap<LogName, i64>,
}

impl CleanedEnds {
    /// Reads the file; ends of logs that are not in the directory (any more) are forgotten, durably.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        present: &[LogName],
    ) -> Result<CleanedEnds, FileError> {
        let (ends, is_readable) = match read(&*disk, &dir.join(FILE_NAME)) {
            Ok(Some(stored)) => (stored.ends, true),
            Ok(None) => (BTreeMap::new(), true),
            Err(Unreadable) => (BTreeMap::new(), false),
        };
        let written = Written { ends: is_readable.then(|| ends.clone()), generation: 0 };
        Self::with(disk, dir, (FILE_NAME, None), (ends, written), present)
    }

    /// Reads the file of what was dropped. If it is damaged or an older version by what the record of flushed ends tells, or
    /// missing though the directory is not new, it says [`UNKNOWN`] of each log.
    pub(crate) fn open_dropped(
        disk: Arc<dyn Disk>,
        dir: &Path,
        present: &[LogName],
        (told, is_new): (&Arc<FlushedEnds>, bool),
    ) -> Result<CleanedEnds, FileError> {
        let path = dir.join(DROPPED_FILE_NAME);
        let least = told.dropped_generation();
        let stored = match read(&*disk, &path) {
            Ok(Some(stored)) if stored.generation >= least => Some(stored),
            Ok(Some(stored)) => {
                tracing::warn!(path = %path.display(), generation = stored.generation, least,
                    "the file is an older version: everything counts as dropped");
                None
            }
            Ok(None) => {
                if !is_new {
                    tracing::warn!(path = %path.display(), "the file is missing: everything counts as dropped");
                }
                None
            }
            Err(Unreadable) => None,
        };
        let (ends, written) = match stored {
            Some(Stored { generation, ends }) => {
                (ends.clone(), Written { ends: Some(ends), generation: generation.max(least) })
            }
            None if is_new => (BTreeMap::new(), Written { ends: None, generation: least }),
            None => {
                let unknown = present.iter().map(|&log| (log, UNKNOWN)).collect();
                (unknown, Written { ends: None, generation: least })
            }
        };
        Self::with(disk, dir, (DROPPED_FILE_NAME, Some(told.clone())), (ends, written), present)
    }

    fn with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        (file_name, told): (&'static str, Option<Arc<FlushedEnds>>),
        (mut ends, written): (BTreeMap<LogName, i64>, Written),
        present: &[LogName],
    ) -> Result<CleanedEnds, FileError> {
        ends.retain(|name, _| present.contains(name));
        let (ends, written) = (Mutex::new(ends), Mutex::new(written));
        let opened = CleanedEnds { file_name, told, disk, dir: dir.to_owned(), ends, written };
        opened.write_lower()?;
        Ok(opened)
    }

    /// Where the last pass over a log ended.
    pub(crate) fn get(&self, log: LogName) -> Option<i64> {
        self.ends.lock().get(&log).copied()
    }

    /// Notes the end of a pass; [`write`](Self::write) makes it last.
    pub(crate) fn raise(&self, log: LogName, end: i64) {
        self.ends.lock().insert(log, end);
    }

    /// Notes at least `end`, if `still` holds then: whoever changes what it asks lowers the end after that.
    pub(crate) fn raise_if(&self, log: LogName, end: i64, still: impl FnOnce() -> bool) -> bool {
        let mut ends = self.ends.lock();
        let still = still();
        if still {
            let known = ends.entry(log).or_insert(end);
            *known = (*known).max(end);
        }
        still
    }

    /// Makes sure, durably, that a log does not count as clean beyond `end`; `None` forgets the log.
    pub(crate) fn lower_durably(&self, log: LogName, end: Option<i64>) -> Result<(), FileError> {
        {
            let mut ends = self.ends.lock();
            match (ends.get(&log).copied(), end) {
                (None, _) => {}
                (Some(now), Some(end)) if now <= end => {}
                (Some(_), Some(end)) => _ = ends.insert(log, end),
                (Some(_), None) => _ = ends.remove(&log),
            }
        }
        let must_write = match &self.written.lock().ends {
            Some(written) => written.get(&log).is_some_and(|&written| end.is_none_or(|end| written > end)),
            None => true,
        };
        if must_write { self.write_lower() } else { Ok(()) }
    }

    /// [`write`](Self::write) where ends are lower than in the file. Also done on a full disk.
    fn write_lower(&self) -> Result<(), FileError> {
        match self.write() {
            Err(error) if is_disk_full(&error.source) && self.told.is_some() => {
                tracing::warn!(%error, "the file stays as it is until there is room");
                Ok(())
            }
            Err(error) if is_disk_full(&error.source) => {
                tracing::warn!(%error, "the file goes until there is room");
                let mut written = self.written.lock();
                remove_if_there(&*self.disk, &self.dir.join(self.file_name))?;
                self.disk.sync_dir(&self.dir).map_err(|e| FileError::new("sync", &self.dir, e))?;
                written.ends = Some(BTreeMap::new());
                Ok(())
            }
            done => done,
        }
    }

    /// Writes the file if something has changed.
    pub(crate) fn write(&self) -> Result<(), FileError> {
        let mut written = self.written.lock();
        let ends = self.ends.lock().clone();
        if written.ends.as_ref() == Some(&ends) {
            return Ok(());
        }
        // Also if this fails: what may have got to the disk must not be taken for the next one.
        written.generation += 1;
        let generation = self.told.is_some().then_some(written.generation);
        let text = encode(&ends, generation);
        if let Err(error) = write_file(&*self.disk, &self.dir, self.file_name, text.as_bytes()) {
            if !is_disk_full(&error.source) {
                // It may have its name already.
                written.ends = None;
            }
            return Err(error);
        }
        written.ends = Some(ends);
        if let (Some(told), Some(generation)) = (&self.told, generation) {
            told.note_dropped_generation(generation);
        }
        Ok(())
    }
}

/// The file does not say what was written to it.
struct Unreadable;

/// Reads one of the two files; `None` if it does not exist.
fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Stored>, Unreadable> {
    let bytes = read_file(disk, path, BYTES_MAX).map_err(|error| {
        tracing::warn!(%error, "the file is not to be used: what it says of compaction is found anew");
        Unreadable
    })?;
    let Some(bytes) = bytes else { return Ok(None) };
    decode(&bytes).map(Some).ok_or_else(|| {
        tracing::warn!(path = %path.display(), "the file is damaged: what it says of compaction is found anew");
        Unreadable
    })
}

/// What one of the two files looks like to who only looks.
pub(crate) enum FileState {
    Missing,
    Damaged,
    Whole { generation: u64 },
}

/// How one of the two files is.
pub(crate) fn state(disk: &dyn Disk, path: &Path) -> FileState {
    match read(disk, path) {
        Ok(Some(stored)) => FileState::Whole { generation: stored.generation },
        Ok(None) => FileState::Missing,
        Err(Unreadable) => FileState::Damaged,
    }
}

fn encode(ends: &BTreeMap<LogName, i64>, generation: Option<u64>) -> String {
    let head = generation.map_or_else(|| "0\n".to_owned(), |generation| format!("1\n{generation}\n"));
    let mut text = format!("{head}{}\n", ends.len());
    for (name, end) in ends {
        writeln!(text, "{} {} {end}", name.topic_id, name.partition)
            .expect("writing to a string cannot fail");
    }
    with_checksum(text)
}

fn decode(bytes: &[u8]) -> Option<Stored> {
    let mut lines = checked_lines(bytes)?.lines();
    let generation = match lines.next()? {
        "0" => 0,
        "1" => lines.next()?.parse().ok()?,
        _ => return None,
    };
    let count = lines.next()?.parse::<usize>().ok()?;
    let mut ends = BTreeMap::new();
    for line in lines {
        let mut words = line.split(' ');
        let topic_id = Uuid::parse_str(words.next()?).ok()?;
        let name = LogName::new(topic_id, words.next()?.parse().ok()?);
        ends.insert(name, words.next()?.parse().ok()?);
    }
    (ends.len() == count).then_some(Stored { generation, ends })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{OpenMode, SimDisk};

    fn name(i: u128) -> LogName {
        LogName::new(Uuid::from_u128(i), i as i32)
    }

    fn open(disk: &Arc<SimDisk>, present: &[LogName]) -> CleanedEnds {
        CleanedEnds::open(disk.clone(), Path::new("d"), present).unwrap()
    }

    /// With the record of flushed ends, which is written as a flush round does.
    fn open_dropped(disk: &Arc<SimDisk>, present: &[LogName]) -> (CleanedEnds, Arc<FlushedEnds>) {
        let is_new = disk.list(Path::new("d")).unwrap().is_empty();
        let told = Arc::new(FlushedEnds::open(disk.clone(), Path::new("d"), is_new).unwrap());
        let dropped =
            CleanedEnds::open_dropped(disk.clone(), Path::new("d"), present, (&told, is_new)).unwrap();
        (dropped, told)
    }

    #[test]
    fn ends_survive_and_those_of_logs_that_are_gone_do_not() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("d")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let ends = open(&disk, &[]);
        ends.raise(name(1), 10);
        ends.raise(name(2), 20);
        ends.raise(name(3), 30);
        ends.write().unwrap();
        ends.lower_durably(name(1), Some(15)).unwrap();
        ends.lower_durably(name(2), Some(15)).unwrap();
        ends.lower_durably(name(3), None).unwrap();
        disk.restart();
        let ends = open(&disk, &[name(1), name(2), name(3)]);
        assert_eq!([1, 2, 3].map(|i| ends.get(name(i))), [Some(10), Some(15), None]);
        open(&disk, &[name(2)]);
        let ends = open(&disk, &[name(1), name(2)]);
        assert_eq!(
            [1, 2].map(|i| ends.get(name(i))),
            [None, Some(15)],
            "a log that went and came back is not clean"
        );
    }

    #[test]
    fn lowering_what_is_not_written_writes_nothing() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("d")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let ends = open(&disk, &[]);
        ends.raise(name(1), 10);
        ends.write().unwrap();
        // Another's end is not written yet, and cannot be.
        ends.raise(name(2), 20);
        disk.set_capacity(Some(0));
        ends.lower_durably(name(1), Some(10)).unwrap();
        ends.lower_durably(name(2), Some(5)).unwrap();
        ends.lower_durably(name(3), None).unwrap();
        assert_eq!([1, 2].map(|i| ends.get(name(i))), [Some(10), Some(5)]);
    }

    #[test]
    fn a_full_disk_keeps_no_end_that_brings_keys_back_and_every_one_of_what_was_dropped() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("d")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let all = [1, 2, 3].map(name);
        let open = |present: &[LogName]| {
            let (dropped, _) = open_dropped(&disk, present);
            [open(&disk, present), dropped]
        };
        for ends in open(&all) {
            all.iter().for_each(|&log| ends.raise(log, 10));
            ends.write().unwrap();
        }
        // Not even what goes makes room.
        disk.set_capacity(Some(0));
        let pair = open(&all);
        for ends in &pair {
            ends.lower_durably(name(1), Some(5)).unwrap();
            ends.lower_durably(name(2), None).unwrap();
            assert_eq!(all.map(|log| ends.get(log)), [Some(5), None, Some(10)]);
        }
        disk.restart();
        let [cleaned, dropped] = open(&all);
        assert_eq!(all.map(|log| cleaned.get(log)), [None; 3], "they are found anew");
        assert_eq!(all.map(|log| dropped.get(log)), [Some(10); 3]);
        // A log that is gone at a start.
        let [_, dropped] = open(&all[1..]);
        assert_eq!(dropped.get(name(1)), None);
        disk.set_capacity(None);
        dropped.write().unwrap();
        let [_, dropped] = open(&all);
        assert_eq!(all.map(|log| dropped.get(log)), [None, Some(10), Some(10)]);
    }

    #[test]
    fn what_was_dropped_only_rises_and_is_unknown_where_the_file_is_damaged() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("d")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let open = |present: &[LogName]| open_dropped(&disk, present).0;
        let dropped = open(&[]);
        assert!(dropped.raise_if(name(1), 10, || true));
        assert!(dropped.raise_if(name(1), 5, || true));
        assert!(!dropped.raise_if(name(1), 20, || false), "it is another log by now");
        dropped.write().unwrap();
        let both = [name(1), name(2)];
        let dropped = open(&both);
        assert_eq!(both.map(|log| dropped.get(log)), [Some(10), None]);
        disk.flip_bit(&Path::new("d").join(DROPPED_FILE_NAME), 3, 1);
        for _ in 0..2 {
            let dropped = open(&both);
            assert_eq!(both.map(|log| dropped.get(log)), [Some(UNKNOWN); 2]);
        }
    }

    /// What was restored, or was not written though the device has said so.
    #[test]
    fn a_file_of_what_was_dropped_that_is_missing_or_older_is_unknown() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("d")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let path = Path::new("d").join(DROPPED_FILE_NAME);
        let both = [name(1), name(2)];
        let (dropped, told) = open_dropped(&disk, &[]);
        assert_eq!(both.map(|log| dropped.get(log)), [None; 2], "a new directory");
        let mut versions = Vec::new();
        for end in [10, 20] {
            dropped.raise(name(1), end);
            dropped.write().unwrap();
            versions.push(read_file(&*disk, &path, BYTES_MAX).unwrap().unwrap());
        }
        // The round comes later than the file: a crash before it is none of the file's.
        drop((dropped, told));
        let (dropped, told) = open_dropped(&disk, &both);
        assert_eq!(both.map(|log| dropped.get(log)), [Some(20), None]);
        dropped.raise(name(1), 30);
        dropped.write().unwrap();
        told.write().unwrap();
        told.sync().unwrap();
        drop((dropped, told));
        assert_eq!(both.map(|log| open_dropped(&disk, &both).0.get(log)), [Some(30), None]);
        for version in versions.iter().map(Some).chain([None]) {
            disk.remove_file(&path).unwrap();
            if let Some(version) = version {
                disk.open(&path, OpenMode::CreateNew).unwrap().write_at(version, 0).unwrap();
            }
            for _ in 0..2 {
                let (dropped, told) = open_dropped(&disk, &both);
                assert_eq!(both.map(|log| dropped.get(log)), [Some(UNKNOWN); 2]);
                told.write().unwrap();
            }
        }
    }

    #[test]
    fn what_an_older_version_has_written_is_read() {
        let ends = BTreeMap::from([(name(7), 1234)]);
        let stored = decode(encode(&ends, None).as_bytes()).unwrap();
        assert_eq!((stored.generation, stored.ends), (0, ends));
    }

    #[test]
    fn a_damaged_file_is_no_file() {
        let ends = BTreeMap::from([(name(7), 1234), (name(8), 5)]);
        let text = encode(&ends, Some(3));
        let stored = decode(text.as_bytes()).unwrap();
        assert_eq!((stored.generation, stored.ends), (3, ends));
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                // The case of the checksum's digits is all that may differ.
                let same = decode(&bytes).is_none() || bytes.eq_ignore_ascii_case(text.as_bytes());
                assert!(same, "byte {at} bit {bit}");
            }
            assert!(decode(&text.as_bytes()[..at]).is_none());
        }
    }
}
