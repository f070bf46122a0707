//! How far each log of a data directory is surely on disk: the line between damage and a torn tail.
//!
//! One file, `flushed-ends`, of 64-byte records, each with its own CRC; the last valid record of a log counts. A
//! record is written only after what it says is durable, so it is a safe *lower* bound: bytes below it that are gone
//! or wrong are damage, bytes above it are a tail that a crash may tear. The ends of one flush round are written at
//! the start of the next and synced now and then; lowering an end (truncation, deletion) is synced before the log is cut.
//! If the file was ever lost, or one of the records that it began with is damaged, its successor says so for good: a log
//! that it does not know may then not be new. It also says whether those who count on the logs have yet to hear of it. Only
//! records that were added later may be torn.
//!
//! The file holds room for as many records again, so that on a full disk logs can still be cut and deleted; where there is none
//! for a new file, at a start or when the file has grown, the old one serves on.
//!
//! It also tells how often the file of what compaction has dropped was written (`compact::cleaned_ends`), so that an older
//! version of that is not taken for the last. This too is a lower bound, written with the next round.
//!
//! ```text
//! header  "WEIRENDS" | version u16 = 1 | lost u8 | untold u8 | records that follow u32 | zeros | crc u32     64 bytes
//! record  topic id 16 | partition i32 | kind u8 | snapshot u8 | zeros 2 | start i64 | flushed end i64 | active base i64 |
//!         index entries u32 | time index entries u32 | zeros 4 | crc u32                     64 bytes, big-endian
//!         of kind 3 (what was dropped): zeros 20 | kind u8 | zeros 3 | generation u64 | zeros 28 | crc u32
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::LogName;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::FileError;
use crate::log::is_disk_full;

pub(crate) const FILE_NAME: &str = "flushed-ends";
const RECORD_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"WEIRENDS";
const VERSION: u16 = 1;
/// The file is written anew when it has this many records and four times as many as there are logs.
const RECORDS_BEFORE_REWRITE: u64 = 16_384;
/// Records after which that is tried again if there was no room for it.
const RECORDS_BETWEEN_TRIES: u64 = 1_024;

/// What is durable of one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlushedEnd {
    /// First offset that clients may read.
    pub(crate) start: i64,
    /// Every batch below it is durable.
    pub(crate) end: i64,
    /// Base offset of the segment that was active then; older segments are durable with their indexes.
    pub(crate) active_base: i64,
    /// Entries of the active segment's indexes that are durable.
    pub(crate) index_entries: u32,
    pub(crate) time_index_entries: u32,
    /// A producer snapshot as of `end` is durable too.
    pub(crate) snapshot_at_end: bool,
}

/// What the directory knows of a log when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownEnd {
    Known(FlushedEnd),
    /// Nothing of it was ever reported durable.
    New,
    /// The file is gone or unreadable, so nothing is known of any log.
    Lost,
}

pub(crate) struct FlushedEnds {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    state: Mutex<State>,
    /// Held while the file is synced, so that at most one sync of it is in flight.
    syncing: Mutex<()>,
}

struct State {
    ends: BTreeMap<LogName, FlushedEnd>,
    dirty: BTreeSet<LogName>,
    /// Of the file of what was dropped; 0 if it was never written.
    dropped_generation: u64,
    is_generation_dirty: bool,
    file: Arc<dyn DiskFile>,
    records: u64,
    /// There was no room for a new file: the next one is not tried before the file has so many records.
    put_off_to: u64,
    unsynced: bool,
    /// A write or sync of the file failed: the next thing to do is to write it anew.
    broken: bool,
    loss: Loss,
}

/// Whether an earlier file, or a part of it, was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Never,
    /// Whoever counts on the logs has yet to hear of it.
    Untold,
    Told,
}

/// What a file says.
pub(crate) struct Stored {
    pub(crate) ends: BTreeMap<LogName, FlushedEnd>,
    pub(crate) dropped_generation: u64,
    /// Others may have been known once.
    loss: Loss,
    /// Records that were written together with the header.
    durable: usize,
    /// The records that were added later, whole or torn.
    added: Vec<u8>,
    /// Fewer records are left than there were from the first.
    cut_short: bool,
    /// Records that were there from the first are damaged.
    rotten: bool,
    /// Records that were added later and are neither whole nor empty.
    pub(crate) torn: usize,
}

/// What is to be in a new file.
struct Known<'a> {
    ends: &'a BTreeMap<LogName, FlushedEnd>,
    dropped_generation: u64,
    loss: Loss,
}

impl Stored {
    /// Whether something of it is gone that was synced before the file got its name.
    pub(crate) fn has_lost_records(&self) -> bool {
        self.cut_short || self.rotten
    }
}

/// Why there is no new file, or none that is sure to stay.
struct NotWritten {
    error: FileError,
    /// The new file, if it has the name all the same: perhaps not after a power cut. The old one has none any more.
    in_place: Option<Arc<dyn DiskFile>>,
}

/// Room for the records that will be added to a new file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// No file without it: there is one that serves.
    Needed,
    /// As far as there is any.
    Wished,
}

impl FlushedEnds {
    /// Opens the file, which is written anew so that all of it is whole; on a full disk the old one serves on.
    /// `new_directory` says that the directory has just been made and the file cannot exist.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        new_directory: bool,
    ) -> Result<FlushedEnds, FileError> {
        let found = match new_directory {
            true => None,
            false => read(disk.as_ref(), &dir.join(FILE_NAME))?,
        };
        let (ends, dropped_generation, loss) = match &found {
            Some(found) => (found.ends.clone(), found.dropped_generation, found.loss),
            None => (BTreeMap::new(), 0, if new_directory { Loss::Never } else { Loss::Untold }),
        };
        let known = Known { ends: &ends, dropped_generation, loss };
        // To one that is cut short nothing can be added: it would look whole.
        let serves = found.filter(|found| !found.cut_short);
        let room = if serves.is_some() { Room::Needed } else { Room::Wished };
        let ((file, records), broken) = match (write_anew(disk.as_ref(), dir, &known, room), serves) {
            (Err(NotWritten { error, in_place: None }), Some(found)) if is_disk_full(&error.source) => {
                tracing::warn!(%error, "no room to write the record of flushed ends anew: the old one serves on");
                let (file, whole) = go_on_with(disk.as_ref(), dir, &found)?;
                let records = found.durable + found.added.len() / RECORD_BYTES;
                ((file, records as u64), !whole)
            }
            (written, _) => (written.map_err(|not| not.error)?, false),
        };
        let state = State {
            ends,
            dirty: BTreeSet::new(),
            dropped_generation,
            is_generation_dirty: false,
            file,
            records,
            put_off_to: 0,
            unsynced: false,
            broken,
            loss,
        };
        Ok(FlushedEnds { disk, dir: dir.to_owned(), state: Mutex::new(state), syncing: Mutex::new(()) })
    }

    pub(crate) fn get(&self, log: LogName) -> KnownEnd {
        let state = self.state.lock();
        match state.ends.get(&log) {
            Some(end) => KnownEnd::Known(*end),
            None if state.loss != Loss::Never => KnownEnd::Lost,
            None => KnownEnd::New,
        }
    }

    /// The logs that are known here.
    pub(crate) fn logs(&self) -> Vec<LogName> {
        self.state.lock().ends.keys().copied().collect()
    }

    /// Notes what has become durable; written with the next round.
    pub(crate) fn note(&self, log: LogName, end: FlushedEnd) {
        let mut state = self.state.lock();
        if state.ends.insert(log, end) != Some(end) {
            state.dirty.insert(log);
        }
    }

    /// How often the file of what was dropped had been written at least.
    pub(crate) fn dropped_generation(&self) -> u64 {
        self.state.lock().dropped_generation
    }

    /// Notes that the file of what was dropped is durable in this generation; written with the next round.
    pub(crate) fn note_dropped_generation(&self, generation: u64) {
        let mut state = self.state.lock();
        if generation > state.dropped_generation {
            state.dropped_generation = generation;
            state.is_generation_dirty = true;
        }
    }

    /// Writes what was noted. Call [`sync`](Self::sync) for it to last. After an error nothing counts as written.
    pub(crate) fn write(&self) -> Result<(), FileError> {
        let mut state = self.state.lock();
        if state.broken {
            return self.rewrite(&mut state, Room::Wished);
        }
        let records_max = RECORDS_BEFORE_REWRITE.max(4 * state.ends.len() as u64);
        if state.records > records_max.max(state.put_off_to) {
            match self.rewrite(&mut state, Room::Needed) {
                Err(error) if is_disk_full(&error.source) && !state.broken => {
                    tracing::warn!(%error, "no room to write the record of flushed ends anew: it grows on");
                    state.put_off_to = state.records + RECORDS_BETWEEN_TRIES;
                }
                done => return done,
            }
        }
        let count = state.dirty.len() + usize::from(state.is_generation_dirty);
        if count == 0 {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(count * RECORD_BYTES);
        for log in &state.dirty {
            bytes.extend_from_slice(&encode(*log, state.ends.get(log)));
        }
        if state.is_generation_dirty {
            bytes.extend_from_slice(&encode_generation(state.dropped_generation));
        }
        let at = (state.records + 1) * RECORD_BYTES as u64;
        if let Err(e) = state.file.write_at(&bytes, at) {
            if is_disk_full(&e) {
                // What there is of it is torn, and written over the next time. A shorter file may find room.
                return self.rewrite(&mut state, Room::Wished);
            }
            state.broken = true;
            return Err(self.error("write", e));
        }
        state.records += count as u64;
        state.dirty.clear();
        state.is_generation_dirty = false;
        state.unsynced = true;
        Ok(())
    }

    /// Makes durable what was written. At most one caller syncs at a time; a second waits for the first.
    pub(crate) fn sync(&self) -> Result<(), FileError> {
        let _one = self.syncing.lock();
        let file = {
            let mut state = self.state.lock();
            // What we wrote may have been in the sync of somebody else, which failed.
            if state.broken {
                return self.rewrite(&mut state, Room::Wished);
            }
            if !state.unsynced {
                return Ok(());
            }
            state.unsynced = false;
            state.file.clone()
        };
        if let Err(e) = file.sync() {
            self.state.lock().broken = true;
            return Err(self.error("sync", e));
        }
        Ok(())
    }

    /// Like [`sync`](Self::sync), but leaves it to the one who is at it already.
    pub(crate) fn sync_unless_busy(&self) -> Result<(), FileError> {
        match self.syncing.try_lock() {
            None => Ok(()),
            Some(guard) => {
                drop(guard);
                self.sync()
            }
        }
    }

    /// Replaces a log's record durably, before the log is cut or moved. After an error the one before counts again.
    pub(crate) fn set_durably(&self, log: LogName, end: FlushedEnd) -> Result<(), FileError> {
        let before = self.state.lock().ends.get(&log).copied();
        self.note(log, end);
        let written = self.write().and_then(|()| self.sync());
        if written.is_err() {
            let mut state = self.state.lock();
            match before {
                Some(before) => _ = state.ends.insert(log, before),
                None => _ = state.ends.remove(&log),
            }
            state.dirty.insert(log);
        }
        written
    }

    /// Forgets a log durably, before its files are removed.
    pub(crate) fn remove_durably(&self, log: LogName) -> Result<(), FileError> {
        {
            let mut state = self.state.lock();
            if state.ends.remove(&log).is_none() {
                return Ok(());
            }
            state.dirty.insert(log);
        }
        self.write()?;
        self.sync()
    }

    /// Whether the record of any log was lost, and nobody heard of it yet.
    pub(crate) fn is_loss_untold(&self) -> bool {
        self.state.lock().loss == Loss::Untold
    }

    /// Notes durably that whoever counts on the logs knows of the loss.
    pub(crate) fn loss_told(&self) -> Result<(), FileError> {
        let _one = self.syncing.lock();
        let mut state = self.state.lock();
        if state.loss != Loss::Untold {
            return Ok(());
        }
        state.loss = Loss::Told;
        // If that fails a later file may say it.
        self.rewrite(&mut state, Room::Wished)
    }

    fn rewrite(&self, state: &mut State, room: Room) -> Result<(), FileError> {
        let known =
            Known { ends: &state.ends, dropped_generation: state.dropped_generation, loss: state.loss };
        let written = write_anew(self.disk.as_ref(), &self.dir, &known, room);
        let (file, records) = written.map_err(|NotWritten { error, in_place }| {
            if let Some(file) = in_place {
                // Nothing that is added to it counts before another one is in place for good.
                (state.file, state.records, state.broken) = (file, state.ends.len() as u64, true);
            }
            error
        })?;
        state.file = file;
        state.records = records;
        state.put_off_to = 0;
        state.dirty.clear();
        state.is_generation_dirty = false;
        state.unsynced = false;
        state.broken = false;
        Ok(())
    }

    fn error(&self, action: &'static str, source: std::io::Error) -> FileError {
        FileError::new(action, self.dir.join(FILE_NAME), source)
    }
}

/// The old file, to add to, and whether everything in it is durable. What a process before us has added may be in the cache
/// alone, where a failed write-back has left it: only a new write makes a sync of it mean something.
fn go_on_with(disk: &dyn Disk, dir: &Path, found: &Stored) -> Result<(Arc<dyn DiskFile>, bool), FileError> {
    let path = dir.join(FILE_NAME);
    let failed = |e| FileError::new("open", &path, e);
    let file = disk.open(&path, OpenMode::ReadWrite).map_err(failed)?;
    let at = ((found.durable + 1) * RECORD_BYTES) as u64;
    let settled = match found.added.is_empty() {
        true => Ok(()),
        false => file.write_at(&found.added, at).and_then(|()| file.sync()),
    };
    match settled {
        Ok(()) => Ok((file, true)),
        // Of a file system that puts every write in a new place. Nothing is recorded until there is room.
        Err(e) if is_disk_full(&e) => Ok((file, false)),
        Err(e) => Err(failed(e)),
    }
}

/// Writes all records into a new file and puts it in place, durably. Answers how many they are.
fn write_anew(
    disk: &dyn Disk,
    dir: &Path,
    known: &Known<'_>,
    room: Room,
) -> Result<(Arc<dyn DiskFile>, u64), NotWritten> {
    let path = dir.join(FILE_NAME);
    let new_path = dir.join("flushed-ends.tmp");
    let generation = (known.dropped_generation > 0).then(|| encode_generation(known.dropped_generation));
    let records: Vec<_> =
        known.ends.iter().map(|(log, end)| encode(*log, Some(end))).chain(generation).collect();
    let mut bytes = header(known.loss, records.len() as u32).to_vec();
    bytes.extend_from_slice(records.as_flattened());
    let write = || -> std::io::Result<Arc<dyn DiskFile>> {
        let file = disk.open(&new_path, OpenMode::CreateOrEmpty)?;
        // Room for what will be appended, so that a full disk does not keep logs from being deleted.
        let reserved = (2 * RECORDS_BEFORE_REWRITE).max(8 * records.len() as u64);
        if !file.reserve(0, reserved * RECORD_BYTES as u64) && room == Room::Needed {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        file.write_at(&bytes, 0)?;
        file.sync()?;
        disk.rename(&new_path, &path)?;
        Ok(file)
    };
    let file = write().map_err(|e| {
        // It would keep the room that it got. If it cannot be removed, the next start does it.
        let _ = disk.remove_file(&new_path);
        NotWritten { error: FileError::new("write", &path, e), in_place: None }
    })?;
    match disk.sync_dir(dir) {
        Ok(()) => Ok((file, records.len() as u64)),
        Err(e) => Err(NotWritten { error: FileError::new("sync", dir, e), in_place: Some(file) }),
    }
}

/// What the file says. `None` if there is no such file or its header is not ours.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Stored>, FileError> {
    let read = || -> std::io::Result<Vec<u8>> {
        let file = disk.open(path, OpenMode::Read)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    let bytes = match read() {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(FileError::new("read", path, e)),
    };
    let (blocks, _torn) = bytes.as_chunks::<RECORD_BYTES>();
    let Some((first, records)) = blocks.split_first() else { return Ok(None) };
    let Some((mut loss, durable)) = parse_header(first) else { return Ok(None) };
    let cut_short = records.len() < durable;
    if cut_short {
        tracing::error!(path = %path.display(), "the record of flushed ends is cut short");
        loss = Loss::Untold;
    }
    let (mut ends, mut dropped_generation) = (BTreeMap::new(), 0);
    let (mut rotten, mut torn) = (false, 0);
    for (at, record) in records.iter().enumerate() {
        match decode(record) {
            Some(Record::End(log, end)) => _ = ends.insert(log, end),
            Some(Record::Removed(log)) => _ = ends.remove(&log),
            Some(Record::DroppedGeneration(generation)) => {
                dropped_generation = generation.max(dropped_generation);
            }
            // It was synced before the file got its name: this is rot, and what it knew of its log is gone.
            None if at < durable => {
                tracing::error!(path = %path.display(), record = at, "a record of flushed ends is damaged");
                (loss, rotten) = (Loss::Untold, true);
            }
            // Torn by a crash before it was synced: what it said is unknown, and the record before it still holds.
            None => torn += usize::from(record.iter().any(|byte| *byte != 0)),
        }
    }
    let added = records.get(durable..).unwrap_or_default().concat();
    Ok(Some(Stored { ends, dropped_generation, loss, durable, added, cut_short, rotten, torn }))
}

fn header(loss: Loss, durable: u32) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
    bytes[10] = u8::from(loss != Loss::Never);
    bytes[11] = u8::from(loss == Loss::Untold);
    bytes[12..16].copy_from_slice(&durable.to_be_bytes());
    seal(bytes)
}

/// Whether an earlier file was lost, and how many records were written together with this header.
fn parse_header(bytes: &[u8; RECORD_BYTES]) -> Option<(Loss, usize)> {
    let loss = match (bytes[10], bytes[11]) {
        (0, _) => Loss::Never,
        (_, 1) => Loss::Untold,
        (_, _) => Loss::Told,
    };
    let durable = u32::from_be_bytes(std::array::from_fn(|i| bytes[12 + i]));
    (*bytes == header(loss, durable)).then_some((loss, durable as usize))
}

fn seal(mut bytes: [u8; RECORD_BYTES]) -> [u8; RECORD_BYTES] {
    let crc = crc(&bytes);
    bytes[60..].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn crc(bytes: &[u8; RECORD_BYTES]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..60]) as u32
}

fn encode(log: LogName, end: Option<&FlushedEnd>) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..16].copy_from_slice(log.topic_id.as_bytes());
    bytes[16..20].copy_from_slice(&log.partition.to_be_bytes());
    // Kinds are persisted and never reused: 1 = end of a log, 2 = log removed, 3 = generation of the file of what was dropped.
    bytes[20] = if end.is_some() { 1 } else { 2 };
    if let Some(end) = end {
        bytes[21] = u8::from(end.snapshot_at_end);
        bytes[24..32].copy_from_slice(&end.start.to_be_bytes());
        bytes[32..40].copy_from_slice(&end.end.to_be_bytes());
        bytes[40..48].copy_from_slice(&end.active_base.to_be_bytes());
        bytes[48..52].copy_from_slice(&end.index_entries.to_be_bytes());
        bytes[52..56].copy_from_slice(&end.time_index_entries.to_be_bytes());
    }
    seal(bytes)
}

fn encode_generation(generation: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[20] = 3;
    bytes[24..32].copy_from_slice(&generation.to_be_bytes());
    seal(bytes)
}

/// What a record says.
#[derive(Debug, PartialEq, Eq)]
enum Record {
    End(LogName, FlushedEnd),
    Removed(LogName),
    DroppedGeneration(u64),
}

fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
    let i64_at = |at: usize| i64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
    let u32_at = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
    if u32_at(60) != crc(bytes) {
        return None;
    }
    let topic_id = Uuid::from_bytes(std::array::from_fn(|i| bytes[i]));
    let log = LogName::new(topic_id, u32_at(16) as i32);
    match bytes[20] {
        1 => Some(Record::End(
            log,
            FlushedEnd {
                start: i64_at(24),
                end: i64_at(32),
                active_base: i64_at(40),
                index_entries: u32_at(48),
                time_index_entries: u32_at(52),
                snapshot_at_end: bytes[21] == 1,
            },
        )),
        2 => Some(Record::Removed(log)),
        3 => Some(Record::DroppedGeneration(i64_at(24).cast_unsigned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{SimDisk, SimFault};

    fn log(n: i32) -> LogName {
        LogName::new(Uuid::from_u128(7), n)
    }

    fn end(n: i64) -> FlushedEnd {
        FlushedEnd {
            start: 0,
            end: n,
            active_base: 0,
            index_entries: 3,
            time_index_entries: 2,
            snapshot_at_end: true,
        }
    }

    fn new_dir() -> (Arc<SimDisk>, FlushedEnds) {
        let disk = SimDisk::new(3);
        disk.create_dir_all(Path::new("data")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let ends = FlushedEnds::open(disk.clone(), Path::new("data"), true).unwrap();
        (disk, ends)
    }

    fn reopen(disk: &Arc<SimDisk>) -> FlushedEnds {
        disk.restart();
        FlushedEnds::open(disk.clone(), Path::new("data"), false).unwrap()
    }

    #[test]
    fn the_bytes_are_frozen() {
        let hex: String = encode(log(5), Some(&end(258))).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            &hex[..112],
            "00000000000000000000000000000007000000050101000000000000000000000000000000000102\
             00000000000000000000000300000002"
        );
        assert_eq!(decode(&encode(log(5), Some(&end(258)))), Some(Record::End(log(5), end(258))));
        assert_eq!(decode(&encode(log(5), None)), Some(Record::Removed(log(5))));
        assert_eq!(decode(&encode_generation(1 << 40)), Some(Record::DroppedGeneration(1 << 40)));
        assert_eq!(decode(&[0; RECORD_BYTES]), None);
    }

    #[test]
    fn what_was_synced_survives_a_power_cut_and_the_newest_counts() {
        let (disk, ends) = new_dir();
        for n in 1..50 {
            ends.note(log(1), end(n));
            ends.note(log(2), end(n * 10));
            ends.write().unwrap();
            ends.sync().unwrap();
        }
        ends.remove_durably(log(2)).unwrap();
        ends.note(log(1), end(99));
        let ends = reopen(&disk);
        assert_eq!(ends.get(log(1)), KnownEnd::Known(end(49)));
        assert_eq!(ends.get(log(2)), KnownEnd::New);
        assert_eq!(ends.logs(), [log(1)]);
    }

    #[test]
    fn a_missing_or_foreign_file_is_told_from_a_new_log() {
        let (disk, _) = new_dir();
        disk.remove_file(Path::new("data/flushed-ends")).unwrap();
        disk.sync_dir(Path::new("data")).unwrap();
        assert_eq!(reopen(&disk).get(log(1)), KnownEnd::Lost);
        assert_eq!(reopen(&disk).get(log(1)), KnownEnd::Lost);
        let (disk, _) = new_dir();
        disk.flip_bit(Path::new("data/flushed-ends"), 3, 1);
        assert_eq!(reopen(&disk).get(log(1)), KnownEnd::Lost);
    }

    #[test]
    fn a_log_whose_record_has_rotted_is_not_taken_for_a_new_one() {
        let (disk, ends) = new_dir();
        ends.set_durably(log(1), end(5)).unwrap();
        ends.set_durably(log(2), end(6)).unwrap();
        // From now on the two records stand in the file that was made by the restart.
        reopen(&disk);
        disk.flip_bit(Path::new("data/flushed-ends"), RECORD_BYTES as u64 + 33, 1);
        let ends = reopen(&disk);
        assert_eq!(ends.get(log(1)), KnownEnd::Lost);
        assert_eq!(ends.get(log(2)), KnownEnd::Known(end(6)));
        assert_eq!(reopen(&disk).get(log(1)), KnownEnd::Lost, "for good");
        reopen(&disk).loss_told().unwrap();
        let ends = reopen(&disk);
        assert_eq!((ends.get(log(1)), ends.is_loss_untold()), (KnownEnd::Lost, false));
        disk.flip_bit(Path::new("data/flushed-ends"), RECORD_BYTES as u64 + 33, 1);
        assert!(reopen(&disk).is_loss_untold(), "that of another one is news");
    }

    #[test]
    fn a_sync_that_failed_for_another_is_not_taken_for_ones_own() {
        let (disk, ends) = new_dir();
        ends.note(log(1), end(5));
        ends.note(log(2), end(6));
        ends.write().unwrap();
        disk.inject(SimFault::Sync("flushed-ends.tmp".into()));
        assert!(ends.sync().is_err(), "the first who syncs what both have written");
        ends.sync().unwrap();
        let ends = reopen(&disk);
        assert_eq!(ends.get(log(2)), KnownEnd::Known(end(6)));
    }

    #[test]
    fn a_failed_sync_is_repaired_by_a_new_file() {
        let (disk, ends) = new_dir();
        ends.note(log(1), end(5));
        ends.write().unwrap();
        // The descriptor was opened under the name that the file had while it was written.
        disk.inject(SimFault::Sync("flushed-ends.tmp".into()));
        assert!(ends.sync().is_err());
        ends.write().unwrap();
        ends.sync().unwrap();
        assert_eq!(reopen(&disk).get(log(1)), KnownEnd::Known(end(5)));
    }

    /// The old file has no name any more then: what is added to it would be lost.
    #[test]
    fn a_new_file_whose_name_may_not_last_is_followed_by_another() {
        for power_cut in [false, true] {
            let (disk, ends) = new_dir();
            ends.set_durably(log(2), end(5)).unwrap();
            ends.note(log(1), end(5));
            ends.write().unwrap();
            disk.inject(SimFault::Sync("flushed-ends.tmp".into()));
            ends.sync().unwrap_err();
            disk.inject(SimFault::SyncDir("data".into()));
            ends.write().unwrap_err();
            ends.set_durably(log(1), end(6)).unwrap();
            ends.remove_durably(log(2)).unwrap();
            let ends = match power_cut {
                true => reopen(&disk),
                false => {
                    disk.restart_process();
                    FlushedEnds::open(disk.clone(), Path::new("data"), false).unwrap()
                }
            };
            assert_eq!([1, 2].map(|n| ends.get(log(n))), [KnownEnd::Known(end(6)), KnownEnd::New]);
        }
    }

    #[test]
    fn on_a_full_disk_the_old_file_serves_on() {
        let (disk, ends) = new_dir();
        (1..4).for_each(|n| ends.set_durably(log(n), end(5)).unwrap());
        ends.note(log(1), end(6));
        ends.write().unwrap();
        disk.set_capacity(Some(disk.used_bytes()));
        for n in 7..9 {
            disk.restart_process();
            let ends = FlushedEnds::open(disk.clone(), Path::new("data"), false).unwrap();
            assert_eq!(ends.get(log(1)), KnownEnd::Known(end(n - 1)));
            ends.set_durably(log(1), end(n)).unwrap();
        }
        let ends = reopen(&disk);
        ends.remove_durably(log(2)).unwrap();
        for _ in 0..2 {
            let ends = reopen(&disk);
            assert_eq!(
                [1, 2, 3].map(|n| ends.get(log(n))),
                [KnownEnd::Known(end(8)), KnownEnd::New, KnownEnd::Known(end(5))]
            );
            disk.set_capacity(None);
        }
        // What cannot be read cannot serve on.
        disk.flip_bit(Path::new("data/flushed-ends"), 3, 1);
        disk.set_capacity(Some(0));
        assert!(FlushedEnds::open(disk, Path::new("data"), false).is_err());
    }

    /// What a process before has added may be in the cache alone, though its sync has failed.
    #[test]
    fn what_serves_on_is_written_again_before_it_is_believed() {
        let (disk, ends) = new_dir();
        ends.set_durably(log(1), end(9)).unwrap();
        ends.note(log(1), end(4));
        ends.write().unwrap();
        disk.lose_dirty_pages(Path::new("data/flushed-ends"));
        disk.restart_process();
        disk.set_capacity(Some(disk.used_bytes()));
        let ends = FlushedEnds::open(disk.clone(), Path::new("data"), false).unwrap();
        assert_eq!(ends.get(log(1)), KnownEnd::Known(end(4)));
        assert_eq!(reopen(&disk).get(log(1)), KnownEnd::Known(end(4)));
    }

    #[test]
    fn a_file_that_has_grown_on_a_full_disk_grows_on_and_then_says_so() {
        let (disk, ends) = new_dir();
        ends.set_durably(log(2), end(5)).unwrap();
        disk.set_capacity(Some(disk.used_bytes()));
        let room = 2 * RECORDS_BEFORE_REWRITE as i64 - 2;
        for n in 0..room {
            ends.note(log(1), end(n));
            ends.write().unwrap();
        }
        ends.sync().unwrap();
        // The room is used up: what was asked last did not happen, and counts when there is room.
        ends.set_durably(log(1), end(3)).unwrap_err();
        assert_eq!(ends.get(log(1)), KnownEnd::Known(end(room - 1)));
        ends.remove_durably(log(2)).unwrap_err();
        disk.set_capacity(None);
        for n in room..=room + RECORDS_BETWEEN_TRIES as i64 {
            ends.note(log(1), end(n));
            ends.write().unwrap();
        }
        ends.sync().unwrap();
        let len = disk.list(Path::new("data")).unwrap()[0].len;
        assert!(len < RECORDS_BETWEEN_TRIES * RECORD_BYTES as u64, "{len}");
        let ends = reopen(&disk);
        assert_eq!(ends.get(log(1)), KnownEnd::Known(end(room + RECORDS_BETWEEN_TRIES as i64)));
        assert_eq!(ends.get(log(2)), KnownEnd::New);
    }

    #[test]
    fn the_file_is_written_anew_before_it_grows_without_bound() {
        let (disk, ends) = new_dir();
        for n in 0..40_000 {
            ends.note(log(1), end(n));
            ends.write().unwrap();
        }
        ends.sync().unwrap();
        let len = disk.list(Path::new("data")).unwrap()[0].len;
        assert!(len <= (RECORDS_BEFORE_REWRITE + 3) * RECORD_BYTES as u64, "{len}");
        assert_eq!(reopen(&disk).get(log(1)), KnownEnd::Known(end(39_999)));
    }
}
