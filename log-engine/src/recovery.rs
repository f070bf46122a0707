//! Opening a log: what is on disk becomes segments, producers and epochs.
//!
//! The record of flushed ends divides the log. Below it everything must be there: what is not is *damage*, and the log
//! is not opened. Above it a crash may have torn anything: batches are checked by CRC up to the first that is not
//! whole, and the rest is cut. Segments older than the one that was active at the last flush are taken as they are, so
//! a start costs what was not flushed plus a walk over the headers since the last producer snapshot.
//!
//! Tail batches that are kept are written again in place: after a failed write-back the cache may show bytes that the
//! device never got, and only a new write makes a new sync mean something. If the log was *poisoned*, whole files are
//! copied instead.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use log_engine_core::{EpochHistory, ProducerBatch, ProducerStates};
use records::BatchHeader;

use crate::config::LogConfig;
use crate::data_dir::{DataDir, TMP_SUFFIX, write_file};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{FileError, OpenError};
use crate::flushed_ends::{FlushedEnd, KnownEnd};
use crate::index::{Entry, IndexEntry, TimeEntry, last_on_disk_where};
use crate::scan::{Fault, Found, HeaderScan};
use crate::segment::{Segment, SegmentState, file_name, parse_file_name};
use crate::{LogName, epoch_file, poison, snapshots};

/// What opening a log found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// First offset that may be read.
    pub start: i64,
    /// End of the log after recovery; everything below is durable.
    pub end: i64,
    /// End up to which the log was known to be durable before.
    pub flushed_end_known: i64,
    /// The record of flushed ends was lost, so the whole log was read.
    pub flushed_end_lost: bool,
    /// The log had been poisoned by a failed write or sync, and was copied into new files.
    pub was_poisoned: bool,
    /// Bytes cut from the torn tail, removed segments included.
    pub bytes_cut: u64,
    /// Bytes whose checksums were verified.
    pub bytes_verified: u64,
    /// Batch headers that were walked.
    pub batches_walked: u64,
    /// Segments whose indexes were built anew.
    pub indexes_rebuilt: usize,
}

/// An opened log's parts.
pub(crate) struct Recovered {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) producers: ProducerStates,
    pub(crate) epochs: EpochHistory,
    pub(crate) snapshots: BTreeSet<i64>,
    /// Offset of the newest snapshot that was used, −1 if none was.
    pub(crate) snapshot_offset: i64,
    pub(crate) dir_is_new: bool,
    pub(crate) report: RecoveryReport,
}

/// The names in a log's directory, sorted out.
#[derive(Default)]
struct Files {
    /// Base offset → bytes.
    logs: BTreeMap<i64, u64>,
    indexes: BTreeMap<i64, u64>,
    time_indexes: BTreeMap<i64, u64>,
    snapshots: BTreeSet<i64>,
    poisoned: bool,
    dir_is_new: bool,
}

struct Recovery<'a> {
    data: &'a DataDir,
    disk: &'a dyn Disk,
    name: LogName,
    dir: &'a Path,
    config: &'a LogConfig,
    now_ms: i64,
    known: Option<FlushedEnd>,
    /// Every batch below must be there and whole.
    floor: i64,
    poisoned: bool,
    dir_changed: bool,
    report: RecoveryReport,
}

pub(crate) fn recover(
    data: &DataDir,
    name: LogName,
    dir: &Path,
    config: &LogConfig,
    now_ms: i64,
) -> Result<Recovered, OpenError> {
    let disk = data.disk().clone();
    let known_end = data.ends().get(name);
    let files = list_files(&*disk, dir)?;
    let known = match known_end {
        KnownEnd::Known(end) => Some(end),
        KnownEnd::New | KnownEnd::Lost => None,
    };
    let report = RecoveryReport {
        start: known.map_or(0, |k| k.start),
        flushed_end_known: known.map_or(0, |k| k.end),
        flushed_end_lost: known_end == KnownEnd::Lost,
        was_poisoned: files.poisoned,
        ..RecoveryReport::default()
    };
    let recovery = Recovery {
        data,
        disk: &*disk,
        name,
        dir,
        config,
        now_ms,
        known,
        floor: known.map_or(0, |k| k.end),
        poisoned: files.poisoned,
        dir_changed: false,
        report,
    };
    recovery.run(files)
}

impl Recovery<'_> {
    fn run(mut self, mut files: Files) -> Result<Recovered, OpenError> {
        self.check_presence(&mut files)?;
        // A snapshot above the known end may be ahead of what the log turns out to hold.
        let floor = self.floor;
        if snapshots::remove_where(self.disk, self.dir, &mut files.snapshots, |o| o > floor)? {
            self.dir_changed = true;
        }
        self.settle_snapshot_at_floor(&mut files)?;
        self.drop_below_start(&mut files)?;
        let mut segments = self.open_segments(&files)?;
        if let Some(last) = segments.last_mut() {
            let mut state = last.state().write();
            state.created_ms = self.now_ms;
            self.report.end = state.next_offset;
        }
        if let (Some(first), true) = (segments.first(), self.report.flushed_end_lost) {
            self.report.start = first.base_offset();
        }
        if self.report.end < self.floor {
            let reason = format!("the log ends at {} already", self.report.end);
            return Err(self.damaged(reason, self.dir, 0));
        }
        let stored_epochs = epoch_file::read(self.disk, self.dir)?;
        let (producers, epochs, snapshot_offset) =
            self.replay(&segments, &files.snapshots, stored_epochs.clone())?;
        // The end is about to be recorded as flushed, and then only the file tells of the epochs below it.
        if epochs != stored_epochs.unwrap_or_default() {
            write_file(self.disk, self.dir, epoch_file::FILE_NAME, epochs.encode().as_bytes())?;
        }
        let above = self.dir.parent().filter(|_| self.known.is_none() && !segments.is_empty());
        if let Some(above) = above {
            self.disk.sync_dir(above).map_err(|e| FileError::new("sync", above, e))?;
        }
        if self.poisoned {
            poison::remove_marker(self.disk, self.dir)?;
        } else if self.dir_changed {
            self.disk.sync_dir(self.dir).map_err(|e| FileError::new("sync", self.dir, e))?;
        }
        Ok(Recovered {
            segments,
            producers,
            epochs,
            snapshots: files.snapshots,
            snapshot_offset,
            dir_is_new: files.dir_is_new || self.known.is_none(),
            report: self.report,
        })
    }

    /// A snapshot below the known end was flushed with it, but one *at* it may have been written after that flush.
    fn settle_snapshot_at_floor(&self, files: &mut Files) -> Result<(), OpenError> {
        if self.data.was_clean() || !files.snapshots.contains(&self.floor) {
            return Ok(());
        }
        let at_floor = BTreeSet::from([self.floor]);
        let producers_max = self.config.producers_max;
        let whole = snapshots::load_newest(self.disk, self.dir, &at_floor, self.floor, producers_max)?;
        match whole {
            Some((offset, states)) => {
                let bytes = log_engine_core::producer_snapshot::encode(&states);
                write_file(self.disk, self.dir, &file_name(offset, "snapshot"), &bytes)?;
            }
            None => {
                _ = snapshots::remove_where(self.disk, self.dir, &mut files.snapshots, |o| o == self.floor)?
            }
        }
        Ok(())
    }

    fn damaged(&self, reason: impl Into<String>, path: impl AsRef<Path>, position: u64) -> OpenError {
        let path = path.as_ref().to_owned();
        OpenError::Damaged { log: self.name, flushed_end: self.floor, reason: reason.into(), path, position }
    }

    /// Segments that were durable must still have their files.
    fn check_presence(&mut self, files: &mut Files) -> Result<(), OpenError> {
        if self.report.flushed_end_lost {
            return Ok(());
        }
        let Some(&first) = files.logs.keys().next() else {
            return match self.floor > 0 {
                true => Err(self.damaged("all segment files are missing", self.dir, 0)),
                false => Ok(()),
            };
        };
        let start = self.known.map_or(0, |k| k.start);
        if first > start && self.floor > start {
            let reason = format!("the log starts at {start} but the first segment at {first}");
            return Err(self.damaged(reason, self.dir.join(file_name(first, "log")), 0));
        }
        if first > start {
            // The name of the first segment did not survive, so what did survive continues nothing.
            for (base, size) in std::mem::take(&mut files.logs) {
                self.report.bytes_cut += size;
                self.remove_segment(base)?;
            }
        }
        if let Some(known) = self.known
            && known.end > known.active_base
            && !files.logs.contains_key(&known.active_base)
        {
            let path = self.dir.join(file_name(known.active_base, "log"));
            return Err(self.damaged("the segment file that was written last is missing", path, 0));
        }
        Ok(())
    }

    /// Finishes a deletion of old segments that a crash interrupted; but what the producers wrote in them must be in a
    /// snapshot.
    fn drop_below_start(&mut self, files: &mut Files) -> Result<(), OpenError> {
        let Some(known) = self.known else { return Ok(()) };
        let limit = known.start.min(known.active_base);
        let mut kept = None;
        for &base in files.logs.range(..=limit).map(|(base, _)| base).rev() {
            let at_base: BTreeSet<i64> = files.snapshots.range(base..=base).copied().collect();
            let producers_max = self.config.producers_max;
            if snapshots::load_newest(self.disk, self.dir, &at_base, base, producers_max)?.is_some() {
                kept = Some(base);
                break;
            }
        }
        let doomed: Vec<i64> = files.logs.range(..kept.unwrap_or(i64::MIN)).map(|(base, _)| *base).collect();
        for base in doomed {
            self.remove_segment(base)?;
            files.logs.remove(&base);
        }
        Ok(())
    }

    fn remove_segment(&mut self, base: i64) -> Result<(), FileError> {
        self.dir_changed = true;
        remove_segment_files(self.disk, self.dir, base)
    }

    fn open_segments(&mut self, files: &Files) -> Result<Vec<Arc<Segment>>, OpenError> {
        let bases: Vec<i64> = files.logs.keys().copied().collect();
        let mut segments = Vec::with_capacity(bases.len());
        for (i, &base) in bases.iter().enumerate() {
            let next_base = bases.get(i + 1).copied();
            // If the segment after it did not survive, neither may the end of this one have.
            let settled = next_base.filter(|&next| self.known.is_some_and(|k| next <= k.active_base));
            let size = files.logs[&base];
            if let Some(next_base) = settled {
                segments.push(self.open_settled(files, base, size, next_base)?);
                continue;
            }
            let (segment, whole) = self.open_unsettled(files, base, size)?;
            // A segment that ends cleanly but too early has lost its end, and the next one does not continue it.
            let joined = next_base.is_none_or(|next| segment.state().read().next_offset >= next);
            if whole && joined {
                if let Some(next_base) = next_base {
                    self.settle_between(&segment, next_base)?;
                }
                segments.push(Arc::new(segment));
                continue;
            }
            segments.push(Arc::new(segment));
            // The tail is torn here; nothing after it can be a continuation.
            for &later in &bases[i + 1..] {
                if later < self.floor || self.report.flushed_end_lost {
                    let path = self.dir.join(file_name(base, "log"));
                    let position = segments.last().map_or(0, |s| s.state().read().size);
                    return Err(self.damaged("a segment in the middle is torn", path, position));
                }
                self.report.bytes_cut += files.logs[&later];
                self.remove_segment(later)?;
            }
            break;
        }
        Ok(segments)
    }

    /// A segment that is durable with its indexes: only its sizes are looked at.
    fn open_settled(
        &mut self,
        files: &Files,
        base: i64,
        size: u64,
        next_base: i64,
    ) -> Result<Arc<Segment>, OpenError> {
        let entries = |lens: &BTreeMap<i64, u64>, bytes: usize| {
            let len = lens.get(&base).copied().filter(|len| len % bytes as u64 == 0)?;
            u32::try_from(len / bytes as u64).ok()
        };
        let index_entries = entries(&files.indexes, IndexEntry::BYTES);
        let time_entries = entries(&files.time_indexes, TimeEntry::BYTES);
        let descriptors = self.data.descriptors();
        if let (Some(index_entries), Some(time_entries)) = (index_entries, time_entries) {
            let mut state =
                Segment::state_on_disk(descriptors, self.dir, base, size, index_entries, time_entries);
            state.next_offset = next_base;
            return Ok(Arc::new(Segment::new(descriptors, self.dir, base, state)));
        }
        let state = Segment::state_on_disk(descriptors, self.dir, base, 0, 0, 0);
        let segment = Segment::new(descriptors, self.dir, base, state);
        let file = self.open_log(base)?;
        let mut scan = HeaderScan::new(file, segment.log().path(), 0, size, base, false);
        loop {
            match scan.next() {
                Ok(None) => break,
                Ok(Some(found)) => self.take(&segment, &found),
                Err(fault) => return Err(self.fault(fault, segment.log().path())),
            }
        }
        self.report.indexes_rebuilt += 1;
        self.write_indexes(&segment)?;
        segment.state().write().next_offset = next_base;
        Ok(Arc::new(segment))
    }

    /// A segment that was being written: its indexes are trusted as far as they were flushed, its batches below the
    /// flushed end too, and the rest is verified. The answer says whether it is whole.
    fn open_unsettled(&mut self, files: &Files, base: i64, size: u64) -> Result<(Segment, bool), OpenError> {
        let file = self.open_log(base)?;
        let path: Arc<Path> = self.dir.join(file_name(base, "log")).into();
        let (state, resume) = self.trusted_indexes(files, base)?;
        let segment = Segment::new(self.data.descriptors(), self.dir, base, state);
        let mut scan = HeaderScan::new(file.clone(), &path, resume, size, base, false);
        if resume > 0 {
            self.read_first_timestamp(&segment, &file, size)?;
        }
        loop {
            match scan.next() {
                Ok(Some(found)) if found.header.last_offset() < self.floor => self.take(&segment, &found),
                Ok(Some(found)) => {
                    if !self.verify(&file, &path, &found)? {
                        break;
                    }
                    self.take(&segment, &found);
                }
                Ok(None) => break,
                Err(Fault::Damaged { position, reason }) => {
                    if segment.state().read().next_offset < self.floor {
                        return Err(self.damaged(reason, path, position));
                    }
                    break;
                }
                Err(fault) => return Err(self.fault(fault, &path)),
            }
        }
        let (end, next_offset) = {
            let state = segment.state().read();
            (state.size, state.next_offset)
        };
        let whole = end == size;
        if next_offset < self.floor && self.known.is_some_and(|k| base == k.active_base) {
            return Err(self.damaged("the segment file is shorter than what was flushed", path, size));
        }
        self.report.bytes_cut += size - end;
        self.make_durable(&segment, &file, size, end)?;
        Ok((segment, whole))
    }

    /// The state of a segment as its flushed index entries give it, and the position to walk on from.
    fn trusted_indexes(&mut self, files: &Files, base: i64) -> Result<(SegmentState, u64), OpenError> {
        let descriptors = self.data.descriptors();
        let entries_in = |lens: &BTreeMap<i64, u64>, bytes: usize| {
            lens.get(&base).map_or(0, |len| len / bytes as u64) as u32
        };
        let counts = self.known.filter(|k| k.active_base == base && !self.poisoned).map(|k| {
            let on_disk = (
                entries_in(&files.indexes, IndexEntry::BYTES),
                entries_in(&files.time_indexes, TimeEntry::BYTES),
            );
            (k.index_entries, k.time_index_entries, on_disk)
        });
        let nothing = |recovery: &mut Self| {
            recovery.report.indexes_rebuilt += 1;
            Ok((Segment::state_on_disk(descriptors, recovery.dir, base, 0, 0, 0), 0))
        };
        let Some((index_entries, time_entries, on_disk)) = counts else { return nothing(self) };
        if index_entries == 0 {
            return Ok((Segment::state_on_disk(descriptors, self.dir, base, 0, 0, 0), 0));
        }
        if index_entries > on_disk.0 || time_entries > on_disk.1 {
            return nothing(self);
        }
        let index = self.last_entry::<IndexEntry>(base, "index", index_entries)?;
        let time_index = match time_entries {
            0 => None,
            n => self.last_entry::<TimeEntry>(base, "timeindex", n)?,
        };
        let (Some(index), true) = (index, time_entries == 0 || time_index.is_some()) else {
            return nothing(self);
        };
        // The entry must point at its batch, or the index is not what was flushed.
        let file = self.open_log(base)?;
        let size = files.logs[&base];
        let path: Arc<Path> = self.dir.join(file_name(base, "log")).into();
        let first = HeaderScan::new(file, &path, u64::from(index.position), size, base, false).next();
        if !matches!(first, Ok(Some(found)) if found.header.last_offset() == index.offset) {
            return nothing(self);
        }
        let mut state = Segment::state_on_disk(
            descriptors,
            self.dir,
            base,
            u64::from(index.position),
            index_entries,
            time_entries,
        );
        state.index.set_last(index);
        if let Some(time_index) = time_index {
            state.time_index.set_last(time_index);
        }
        state.max_timestamp = time_index;
        Ok((state, u64::from(index.position)))
    }

    fn last_entry<E: Entry>(&self, base: i64, suffix: &str, count: u32) -> Result<Option<E>, OpenError> {
        let path = self.dir.join(file_name(base, suffix));
        let file = self.disk.open(&path, OpenMode::Read).map_err(|e| FileError::new("open", &path, e))?;
        last_on_disk_where(&*file, &path, base, count, false, |_: &E| true).map_err(|f| self.fault(f, &path))
    }

    fn read_first_timestamp(
        &self,
        segment: &Segment,
        file: &Arc<dyn DiskFile>,
        size: u64,
    ) -> Result<(), OpenError> {
        let path = segment.log().path();
        let mut scan = HeaderScan::new(file.clone(), path, 0, size, segment.base_offset(), false);
        match scan.next() {
            Ok(first) => {
                let first = first.map(|f| f.header.max_timestamp).filter(|&t| t >= 0);
                segment.state().write().first_timestamp = first;
                Ok(())
            }
            Err(fault) => Err(self.fault(fault, path)),
        }
    }

    fn take(&mut self, segment: &Segment, found: &Found) {
        self.report.batches_walked += 1;
        segment.state().write().add_batch(&found.header, self.config.index_interval_bytes);
    }

    /// Checks a batch of the tail and writes it again in place.
    fn verify(&mut self, file: &Arc<dyn DiskFile>, path: &Path, found: &Found) -> Result<bool, OpenError> {
        let mut bytes = vec![0; found.header.size()];
        file.read_at(&mut bytes, found.position).map_err(|e| FileError::new("read", path, e))?;
        if records::check_crc(&bytes).is_err() {
            return Ok(false);
        }
        self.report.bytes_verified += bytes.len() as u64;
        // If nothing is known of the flushed end this would rewrite everything; then the sync alone must do.
        if !self.report.flushed_end_lost && !self.poisoned {
            file.write_at(&bytes, found.position).map_err(|e| FileError::new("write", path, e))?;
        }
        Ok(true)
    }

    /// After this the segment is on disk exactly as it is in memory, but for index entries that are in memory only.
    fn make_durable(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn DiskFile>,
        size: u64,
        end: u64,
    ) -> Result<(), OpenError> {
        let path = segment.log().path();
        let next_offset = segment.state().read().next_offset;
        if self.poisoned {
            self.copy_verified(segment, file, end)?;
        } else if end < size || next_offset > self.floor {
            let settle = || -> io::Result<()> {
                if end < size {
                    file.set_len(end)?;
                }
                file.sync()
            };
            settle().map_err(|e| FileError::new("sync", path, e))?;
            self.dir_changed = true;
        }
        let interval_full =
            segment.state().read().index.in_memory() > self.config.index_entries_in_memory_max;
        if interval_full { self.write_indexes(segment) } else { self.cut_indexes(segment) }
    }

    /// Copies what is whole into a new file, which takes the old one's place: after a failed write or sync neither the
    /// cache nor the blocks of the old file prove anything.
    fn copy_verified(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn DiskFile>,
        end: u64,
    ) -> Result<(), OpenError> {
        let path = segment.log().path().clone();
        let tmp = path.with_extension(format!("log{TMP_SUFFIX}"));
        let failed = |e| FileError::new("copy", &path, e);
        let copy = self.disk.open(&tmp, OpenMode::CreateOrEmpty).map_err(failed)?;
        let mut scan = HeaderScan::new(file.clone(), &path, 0, end, segment.base_offset(), false);
        loop {
            let found = match scan.next() {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(fault) => return Err(self.fault(fault, &path)),
            };
            let mut bytes = vec![0; found.header.size()];
            file.read_at(&mut bytes, found.position).map_err(failed)?;
            if let Err(e) = records::check_crc(&bytes) {
                return Err(self.damaged(e.to_string(), path, found.position));
            }
            copy.write_at(&bytes, found.position).map_err(failed)?;
        }
        copy.sync().map_err(failed)?;
        self.data.descriptors().forget(segment.log());
        self.disk.rename(&tmp, &path).map_err(failed)?;
        self.dir_changed = true;
        Ok(())
    }

    /// Writes all index entries and makes them durable.
    fn write_indexes(&mut self, segment: &Segment) -> Result<(), OpenError> {
        let mut state = segment.state().write();
        state.push_time_entry();
        let (index, time_index) = (state.index.in_memory(), state.time_index.in_memory());
        write_index(self.disk, &state.index, index)?;
        write_index(self.disk, &state.time_index, time_index)?;
        state.index.spilled(index);
        state.time_index.spilled(time_index);
        self.dir_changed = true;
        Ok(())
    }

    /// Cuts index files to the entries that are trusted. A file that is missing and not needed is left so.
    fn cut_indexes(&mut self, segment: &Segment) -> Result<(), OpenError> {
        let state = segment.state().read();
        let files = [
            (state.index.file(), u64::from(state.index.on_disk()) * IndexEntry::BYTES as u64),
            (state.time_index.file(), u64::from(state.time_index.on_disk()) * TimeEntry::BYTES as u64),
        ];
        for (file, len) in files {
            let path = file.path();
            let cut = || -> io::Result<()> {
                let file = match self.disk.open(path, OpenMode::ReadWrite) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound && len == 0 => return Ok(()),
                    opened => opened?,
                };
                if file.len()? != len {
                    file.set_len(len)?;
                    file.sync()?;
                }
                Ok(())
            };
            cut().map_err(|e| FileError::new("cut", path, e))?;
        }
        Ok(())
    }

    /// A segment that another follows gets its indexes into their files.
    fn settle_between(&mut self, segment: &Segment, next_base: i64) -> Result<(), OpenError> {
        if segment.state().read().next_offset > next_base {
            let path = segment.log().path();
            return Err(self.damaged(
                format!("the segment reaches into the next one at {next_base}"),
                path,
                0,
            ));
        }
        self.write_indexes(segment)?;
        segment.state().write().next_offset = next_base;
        Ok(())
    }

    /// Producers and epochs from what is stored of them and the batches since.
    fn replay(
        &mut self,
        segments: &[Arc<Segment>],
        snapshots: &BTreeSet<i64>,
        stored_epochs: Option<EpochHistory>,
    ) -> Result<(ProducerStates, EpochHistory, i64), OpenError> {
        let producers_max = self.config.producers_max;
        let newest = match self.known {
            Some(_) => snapshots::load_newest(self.disk, self.dir, snapshots, self.floor, producers_max)?,
            None => None,
        };
        let snapshot_offset = newest.as_ref().map_or(-1, |(offset, _)| *offset);
        let (from, mut producers) = newest.unwrap_or_else(|| (i64::MIN, ProducerStates::new(producers_max)));
        // Epochs that began above the known end may be ahead of the log; the batches tell them again.
        let (mut epochs, epochs_from) = match stored_epochs.filter(|_| self.known.is_some()) {
            Some(mut stored) => {
                stored.truncate_from_end(self.floor);
                (stored, self.floor)
            }
            None => (EpochHistory::new(), i64::MIN),
        };
        for segment in segments {
            if segment.state().read().next_offset <= from.min(epochs_from) {
                continue;
            }
            let result = replay_segment(segment, from.min(epochs_from), |header| {
                self.report.batches_walked += 1;
                if header.base_offset >= from {
                    producers.append(&producer_batch(header));
                }
                note_epoch(&mut epochs, header);
            });
            result.map_err(|fault| self.fault(fault, segment.log().path()))?;
        }
        epochs.truncate_from_end(self.report.end);
        epochs.truncate_from_start(self.report.start);
        Ok((producers, epochs, snapshot_offset))
    }

    fn open_log(&self, base: i64) -> Result<Arc<dyn DiskFile>, FileError> {
        let path = self.dir.join(file_name(base, "log"));
        self.disk.open(&path, OpenMode::ReadWrite).map_err(|e| FileError::new("open", path, e))
    }

    fn fault(&self, fault: Fault, path: &Path) -> OpenError {
        match fault {
            Fault::Cold => OpenError::Io(FileError::new("read", path, io::ErrorKind::WouldBlock.into())),
            Fault::Io(e) => OpenError::Io(e),
            Fault::Damaged { position, reason } => self.damaged(reason, path, position),
        }
    }
}

/// Walks the headers of the batches from `from` on.
pub(crate) fn replay_segment(
    segment: &Segment,
    from: i64,
    mut each: impl FnMut(&BatchHeader),
) -> Result<(), Fault> {
    let Some((first, mut scan)) = segment.locate(from.max(segment.base_offset()), false)? else {
        return Ok(());
    };
    each(&first.header);
    while let Some(found) = scan.next()? {
        each(&found.header);
    }
    Ok(())
}

/// Within a log the epochs of batches never go down, so only a new one says something.
pub(crate) fn note_epoch(epochs: &mut EpochHistory, header: &BatchHeader) -> bool {
    let latest = epochs.latest().map_or(-1, |e| e.epoch);
    header.partition_leader_epoch > latest && epochs.assign(header.partition_leader_epoch, header.base_offset)
}

/// The facts of a batch that idempotence needs.
pub fn producer_batch(header: &BatchHeader) -> ProducerBatch {
    ProducerBatch {
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        first_sequence: header.base_sequence,
        offset_delta: header.last_offset_delta,
        last_offset: header.last_offset(),
        timestamp: header.max_timestamp,
        is_transactional: header.is_transactional(),
        is_control: header.is_control(),
    }
}

pub(crate) fn remove_segment_files(disk: &dyn Disk, dir: &Path, base: i64) -> Result<(), FileError> {
    for suffix in ["timeindex", "index", "txnindex", "log"] {
        let path = dir.join(file_name(base, suffix));
        match disk.remove_file(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(FileError::new("remove", path, e)),
        }
    }
    Ok(())
}

fn write_index<E: Entry>(
    disk: &dyn Disk,
    index: &crate::index::SparseIndex<E>,
    count: usize,
) -> Result<(), FileError> {
    let path = index.file().path();
    let open = || match disk.open(path, OpenMode::ReadWrite) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => disk.open(path, OpenMode::CreateNew),
        opened => opened,
    };
    let file = open().map_err(|e| FileError::new("open", path, e))?;
    index.spill(&*file, count)?;
    let len = (u64::from(index.on_disk()) + count as u64) * E::BYTES as u64;
    file.set_len(len).and_then(|()| file.sync()).map_err(|e| FileError::new("sync", path, e))
}

fn list_files(disk: &dyn Disk, dir: &Path) -> Result<Files, FileError> {
    let mut files = Files::default();
    let entries = match disk.list(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            files.dir_is_new = true;
            disk.create_dir_all(dir).map_err(|e| FileError::new("create directory", dir, e))?;
            return Ok(files);
        }
        Err(e) => return Err(FileError::new("list", dir, e)),
    };
    for entry in entries {
        if entry.name.ends_with(TMP_SUFFIX) {
            let path = dir.join(&entry.name);
            disk.remove_file(&path).map_err(|e| FileError::new("remove", path, e))?;
            continue;
        }
        files.poisoned |= entry.name == poison::FILE_NAME;
        match parse_file_name(&entry.name) {
            Some((base, "log")) => _ = files.logs.insert(base, entry.len),
            Some((base, "index")) => _ = files.indexes.insert(base, entry.len),
            Some((base, "timeindex")) => _ = files.time_indexes.insert(base, entry.len),
            Some((offset, "snapshot")) => _ = files.snapshots.insert(offset),
            Some(_) | None => {}
        }
    }
    let orphans: Vec<i64> = files.indexes.keys().chain(files.time_indexes.keys()).copied().collect();
    for base in orphans {
        if !files.logs.contains_key(&base) {
            remove_segment_files(disk, dir, base)?;
        }
    }
    Ok(files)
}
