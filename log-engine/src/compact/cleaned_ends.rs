//! How far the logs of a data directory are compacted: Kafka's file `cleaner-offset-checkpoint`, by topic id, with a checksum
//! as its last line.
//!
//! An end that is too low costs work; one that is too high could bring deleted keys back. So a file that is damaged in any way
//! counts as empty, and an end is lowered durably before a log is cut below it; where there is no room for that the file goes.
//! Of what was dropped the opposite is true: one that is too high costs work, so on a full disk the file stays as it is.
//!
//! ```text
//! 0                       version
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
use crate::data_dir::{read_file, write_file};
use crate::disk::Disk;
use crate::error::FileError;
use crate::log::is_disk_full;
use crate::recovery::remove_if_there;

const FILE_NAME: &str = "cleaner-offset-checkpoint";
/// A million partitions.
const BYTES_MAX: u64 = 128 << 20;

/// Up to where compaction has dropped tombstones and markers, by the same format (`super::dropped`).
const DROPPED_FILE_NAME: &str = "cleaner-dropped-checkpoint";
/// Stands for a log of which that is not known.
pub(crate) const UNKNOWN: i64 = i64::MAX;

pub(crate) struct CleanedEnds {
    file_name: &'static str,
    /// Of an end that is too high.
    too_high_is_safe: bool,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    ends: Mutex<BTreeMap<LogName, i64>>,
    /// Held while the file is written; what was written last.
    written: Mutex<BTreeMap<LogName, i64>>,
}

impl CleanedEnds {
    /// Reads the file; ends of logs that are not in the directory (any more) are forgotten, durably.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        present: &[LogName],
    ) -> Result<CleanedEnds, FileError> {
        Self::open_file(disk, dir, (FILE_NAME, None), present)
    }

    /// Reads the file of what was dropped. If it is damaged, it says [`UNKNOWN`] of each log.
    pub(crate) fn open_dropped(
        disk: Arc<dyn Disk>,
        dir: &Path,
        present: &[LogName],
    ) -> Result<CleanedEnds, FileError> {
        Self::open_file(disk, dir, (DROPPED_FILE_NAME, Some(UNKNOWN)), present)
    }

    fn open_file(
        disk: Arc<dyn Disk>,
        dir: &Path,
        (file_name, if_damaged): (&'static str, Option<i64>),
        present: &[LogName],
    ) -> Result<CleanedEnds, FileError> {
        let path = dir.join(file_name);
        let bytes = match read_file(&*disk, &path, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%error, "the file is not to be used: what it says of compaction is found anew");
                Some(Vec::new())
            }
        };
        let stored = bytes.as_deref().map(|bytes| decode(bytes).ok_or(()));
        let mut damaged = false;
        let found = match stored {
            None => BTreeMap::new(),
            Some(Ok(ends)) => ends,
            Some(Err(())) => {
                tracing::warn!(path = %path.display(), "the file is damaged: what it says of compaction is found anew");
                damaged = true;
                BTreeMap::new()
            }
        };
        let mut ends = found.clone();
        if let (Some(end), true) = (if_damaged, damaged) {
            ends.extend(present.iter().map(|&log| (log, end)));
        }
        ends.retain(|name, _| present.contains(name));
        let opened = CleanedEnds {
            file_name,
            too_high_is_safe: if_damaged.is_some(),
            disk,
            dir: dir.to_owned(),
            ends: Mutex::new(ends),
            written: Mutex::new(found),
        };
        if bytes.is_some() {
            opened.write_lower()?;
        }
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
        let written = self.written.lock().get(&log).copied();
        match written.is_some_and(|written| end.is_none_or(|end| written > end)) {
            true => self.write_lower(),
            false => Ok(()),
        }
    }

    /// [`write`](Self::write) where ends are lower than in the file. Also done on a full disk.
    fn write_lower(&self) -> Result<(), FileError> {
        match self.write() {
            Err(error) if is_disk_full(&error.source) && self.too_high_is_safe => {
                tracing::warn!(%error, "the file stays as it is until there is room");
                Ok(())
            }
            Err(error) if is_disk_full(&error.source) => {
                tracing::warn!(%error, "the file goes until there is room");
                let mut written = self.written.lock();
                remove_if_there(&*self.disk, &self.dir.join(self.file_name))?;
                self.disk.sync_dir(&self.dir).map_err(|e| FileError::new("sync", &self.dir, e))?;
                written.clear();
                Ok(())
            }
            done => done,
        }
    }

    /// Writes the file if something has changed.
    pub(crate) fn write(&self) -> Result<(), FileError> {
        let mut written = self.written.lock();
        let ends = self.ends.lock().clone();
        if *written == ends {
            return Ok(());
        }
        write_file(&*self.disk, &self.dir, self.file_name, encode(&ends).as_bytes())?;
        *written = ends;
        Ok(())
    }
}

fn encode(ends: &BTreeMap<LogName, i64>) -> String {
    let mut text = format!("0\n{}\n", ends.len());
    for (name, end) in ends {
        writeln!(text, "{} {} {end}", name.topic_id, name.partition)
            .expect("writing to a string cannot fail");
    }
    let crc = checksum(text.as_bytes());
    writeln!(text, "crc32c {crc:08x}").expect("writing to a string cannot fail");
    text
}

fn decode(bytes: &[u8]) -> Option<BTreeMap<LogName, i64>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (lines, crc) = text.strip_suffix('\n')?.rsplit_once("crc32c ")?;
    if u32::from_str_radix(crc, 16).ok()? != checksum(lines.as_bytes()) {
        return None;
    }
    let mut lines = lines.lines();
    let (version, count) = (lines.next()?, lines.next()?.parse::<usize>().ok()?);
    let mut ends = BTreeMap::new();
    for line in lines {
        let mut words = line.split(' ');
        let topic_id = Uuid::parse_str(words.next()?).ok()?;
        let name = LogName::new(topic_id, words.next()?.parse().ok()?);
        ends.insert(name, words.next()?.parse().ok()?);
    }
    (version == "0" && ends.len() == count).then_some(ends)
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    fn name(i: u128) -> LogName {
        LogName::new(Uuid::from_u128(i), i as i32)
    }

    fn open(disk: &Arc<SimDisk>, present: &[LogName]) -> CleanedEnds {
        CleanedEnds::open(disk.clone(), Path::new("d"), present).unwrap()
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
            let dropped = CleanedEnds::open_dropped(disk.clone(), Path::new("d"), present).unwrap();
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
        let open =
            |present: &[LogName]| CleanedEnds::open_dropped(disk.clone(), Path::new("d"), present).unwrap();
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

    #[test]
    fn a_damaged_file_is_no_file() {
        let ends = BTreeMap::from([(name(7), 1234), (name(8), 5)]);
        let text = encode(&ends);
        assert_eq!(decode(text.as_bytes()), Some(ends));
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                // The case of the checksum's digits is all that may differ.
                let same = decode(&bytes).is_none() || bytes.eq_ignore_ascii_case(text.as_bytes());
                assert!(same, "byte {at} bit {bit}");
            }
            assert_eq!(decode(&text.as_bytes()[..at]), None);
        }
    }
}
