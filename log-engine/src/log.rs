//! One partition's log, as its owner thread sees it: append, roll, flush, close.
//!
//! ```text
//! start ───────────────── flushed ─────────── end
//!   │ durable               │ written, may be    │ next offset
//!   ▼                       ▼ lost in a crash    ▼
//! [segment][segment][ active segment ............]
//! ```
//!
//! Exactly one thread owns a `Log`; readers have [`LogReader`]s, flusher threads execute
//! [`FlushHandle`]s. A failed write or sync poisons the log: it can be read but not changed until it is opened anew.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use log_engine_core::append_times::AppendTimes;
use log_engine_core::roll::{SegmentFill, roll_reason};
use log_engine_core::{AbortedDigest, EpochHistory, ProducerStates};
use parking_lot::Mutex;
use records::BatchHeader;

use crate::config::LogConfig;
use crate::data_dir::DataDir;
use crate::descriptors::{CachedFile, Pin};
use crate::disk::{DiskFile, OpenMode};
use crate::error::{AppendError, FileError, LogError};
use crate::flush::EpochsWritten;
use crate::flushed_ends::FlushedEnd;
use crate::log_flush::{Dirty, InFlight};
use crate::reader::{LogReader, Shared};
use crate::recovery::note_epoch;
use crate::segment::{Segment, SegmentState};
use crate::{LogName, snapshots};

/// The log of one partition copy.
pub struct Log {
    pub(crate) data: DataDir,
    pub(crate) name: LogName,
    pub(crate) dir: PathBuf,
    pub(crate) config: LogConfig,
    pub(crate) shared: Arc<Shared>,
    /// The segment that takes appends; `None` before the first append and after a roll.
    pub(crate) active: Option<Arc<Segment>>,
    pub(crate) producers: ProducerStates,
    pub(crate) epochs: EpochHistory,
    pub(crate) snapshots: BTreeSet<i64>,
    pub(crate) bytes_since_snapshot: u64,
    pub(crate) dirty: Dirty,
    pub(crate) in_flight: Option<InFlight>,
    pub(crate) poisoned: Option<String>,
    /// It was the device that failed, and not for lack of space.
    pub(crate) device_failed: bool,
    /// It was closed for writing for lack of space.
    pub(crate) space_failed: bool,
    pub(crate) epoch_version: u64,
    pub(crate) epochs_written: Arc<Mutex<EpochsWritten>>,
    /// Space reserved in the active segment's file, as a position.
    pub(crate) reserved: u64,
    /// When the active segment was appended to.
    pub(crate) append_times: AppendTimes,
    /// Space that may be reserved ahead, whatever the configuration says.
    pub(crate) ahead_bytes_max: u64,
    /// Broker time when the log was opened.
    pub(crate) opened_ms: i64,
    /// No append is noted for earlier than this.
    pub(crate) append_floor_ms: i64,
    /// Base offsets of segments that were dropped and whose files wait, under other names, to be removed.
    pub(crate) detached: Vec<i64>,
    /// See [`Self::dropped_to`].
    pub(crate) dropped_to: i64,
}

/// What an append did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub first_offset: i64,
    pub last_offset: i64,
    /// End of the log now.
    pub end: i64,
    /// A new segment was begun.
    pub rolled: bool,
}

impl Log {
    pub fn name(&self) -> LogName {
        self.name
    }

    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Takes new settings; they hold from the next append on.
    pub fn update_config(&mut self, config: LogConfig) {
        self.shared.unpacked_bytes_max.store(config.unpacked_batch_bytes_max, Ordering::Relaxed);
        self.shared.producers_max.store(config.producers_max, Ordering::Relaxed);
        self.config = config;
    }

    /// First offset that may be read.
    pub fn start(&self) -> i64 {
        self.shared.start.load(Ordering::Relaxed)
    }

    /// Offset that the next record gets.
    pub fn end(&self) -> i64 {
        self.shared.end.load(Ordering::Relaxed)
    }

    /// Every record below is durable.
    pub fn flushed(&self) -> i64 {
        self.shared.flushed.load(Ordering::Relaxed)
    }

    /// Why the log takes no more appends, if so.
    pub fn poisoned(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }

    pub fn producers(&self) -> &ProducerStates {
        &self.producers
    }

    pub fn epochs(&self) -> &EpochHistory {
        &self.epochs
    }

    /// Notes that a leader epoch begins at the end of the log, though nothing was written under it yet.
    pub fn begin_epoch(&mut self, epoch: i32) {
        if self.epochs.latest().is_none_or(|latest| latest.epoch < epoch) {
            self.epochs.assign(epoch, self.end());
            self.dirty.epochs = true;
        }
    }

    /// A handle for reading, on any thread.
    pub fn reader(&self) -> LogReader {
        LogReader::new(self.shared.clone())
    }

    /// Appends whole batches, which `headers` describe in order. Offsets and leader epochs must be in the bytes
    /// already; the first offset is the end of the log or, on a copy of a compacted log, lies above it. The first batch of
    /// a log that was begun anew ([`restart_at`](Self::restart_at)) may reach back before its start. After an error
    /// [`end`](Self::end) says how far it came. `now_ms` is broker time.
    pub fn append(
        &mut self,
        batches: &[u8],
        headers: &[BatchHeader],
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        if let Some(reason) = &self.poisoned {
            return Err(AppendError::Poisoned { reason: reason.clone() });
        }
        let straddles = headers.first().is_some_and(|first| self.straddles_start(first));
        let end = if straddles { headers[0].base_offset } else { self.end() };
        check_batches(batches, headers, end)?;
        self.make_room_before_start(headers, now_ms)?;
        let first_offset = headers.first().map_or_else(|| self.end(), |h| h.base_offset);
        let (mut bytes, mut rest, mut rolled) = (batches, headers, false);
        while !rest.is_empty() {
            let count = self.fitting(rest)?;
            let (group, later) = rest.split_at(count);
            let (group_bytes, later_bytes) = bytes.split_at(group.iter().map(BatchHeader::size).sum());
            rolled |= self.append_group(group_bytes, group, now_ms)?;
            (bytes, rest) = (later_bytes, later);
        }
        let end = self.end();
        Ok(Appended { first_offset, last_offset: end - 1, end, rolled })
    }

    /// How many batches one segment can take at once. A batch larger than `segment.bytes` gets a segment of its own: the leader
    /// took it while that was higher, so its followers must be able to.
    fn fitting(&self, headers: &[BatchHeader]) -> Result<usize, AppendError> {
        let size_max = self.config.segment_bytes.min(i32::MAX as u64);
        let first = headers[0].base_offset;
        let mut bytes = 0u64;
        let fits = |h: &&BatchHeader| {
            bytes += h.size() as u64;
            bytes <= size_max && h.last_offset() - first <= i64::from(i32::MAX)
        };
        match headers.iter().take_while(fits).count() {
            0 if headers[0].size() > i32::MAX as usize => {
                Err(AppendError::TooLarge { bytes: headers[0].size() })
            }
            count => Ok(count.max(1)),
        }
    }

    fn append_group(
        &mut self,
        bytes: &[u8],
        headers: &[BatchHeader],
        now_ms: i64,
    ) -> Result<bool, AppendError> {
        let last_offset = headers[headers.len() - 1].last_offset();
        let max_timestamp = headers.iter().map(|h| h.max_timestamp).max().unwrap_or(-1);
        let mut rolled = false;
        if let Some(active) = &self.active {
            let fill = segment_fill(active);
            let limits = self.roll_limits(active.base_offset());
            let reason = roll_reason(&limits, &fill, bytes.len() as u64, last_offset, max_timestamp, now_ms);
            if reason.is_some() {
                self.seal_active().map_err(|e| self.write_failed(e))?;
                rolled = true;
            }
        }
        let segment = match &self.active {
            Some(active) => active.clone(),
            None => {
                let base = self.next_base(headers[0].base_offset, last_offset)?;
                self.create_segment(base, now_ms).map_err(|e| self.write_failed(e))?
            }
        };
        self.write(&segment, bytes)?;
        {
            let mut state = segment.state().write();
            for header in headers {
                state.add_batch(header, self.config.index_interval_bytes);
            }
        }
        for header in headers {
            self.dirty.epochs |= note_epoch(&mut self.epochs, header);
        }
        self.note_producers(&segment, bytes, headers, now_ms);
        // Planted: a snapshot holds batches that its name says to be not in it.
        if cfg!(weir_planted_bug = "B19")
            && self.bytes_since_snapshot > self.config.producer_snapshot_interval_bytes / 2
        {
            self.take_snapshot();
        }
        self.note_append_time(last_offset, now_ms);
        self.shared.end.store(last_offset + 1, Ordering::Release);
        self.bytes_since_snapshot += bytes.len() as u64;
        self.spill_if_full(&segment);
        self.spill_aborted_if_full(&segment);
        if self.bytes_since_snapshot > self.config.producer_snapshot_interval_bytes {
            self.take_snapshot();
        }
        Ok(rolled)
    }

    /// Base offset of a new segment: the end of the log, so that a lost tail of the segment before shows as a gap.
    /// Only a batch out of reach of that (on a copy of a compacted log) leaves one, and that is recorded first.
    fn next_base(&mut self, first_offset: i64, last_offset: i64) -> Result<i64, AppendError> {
        if last_offset - self.end() <= i64::from(i32::MAX) {
            return Ok(self.end());
        }
        if let Err(error) = self.sync_now() {
            return Err(match self.poisoned.clone() {
                Some(reason) => AppendError::Poisoned { reason },
                None => AppendError::DiskFull(error),
            });
        }
        if self.shared.segments().is_empty() {
            self.shared.start.store(first_offset, Ordering::Release);
            self.shared.end.store(first_offset, Ordering::Release);
            self.shared.flushed.store(first_offset, Ordering::Release);
        }
        let record = FlushedEnd {
            active_base: first_offset,
            index_entries: 0,
            time_index_entries: 0,
            ..self.record(self.end())
        };
        self.data.ends().set_durably(self.name, record).map_err(|e| self.write_failed(e))?;
        Ok(first_offset)
    }

    fn write(&mut self, segment: &Segment, bytes: &[u8]) -> Result<(), AppendError> {
        let position = segment.state().read().size;
        let pin = self.dirty_file(segment.log(), OpenMode::ReadWrite).map_err(|e| self.write_failed(e))?;
        let file = pin.file();
        let end = position + bytes.len() as u64;
        let ahead = self.config.reserve_bytes.min(self.ahead_bytes_max);
        if ahead > 0 && end > self.reserved && position >= ahead {
            self.reserved = (end + ahead).min(self.config.segment_bytes.max(end));
            file.reserve(position, self.reserved - position);
        }
        let Err(error) = file.write_at(bytes, position) else { return Ok(()) };
        // What was written of it is cut off again, so that the next append stands where this one should.
        let restored = is_disk_full(&error) && file.set_len(position).is_ok();
        self.reserved = 0;
        let error = FileError::new("append to", segment.log().path(), error);
        match restored {
            true => Err(AppendError::DiskFull(error)),
            false => Err(self.poison_by(&error)),
        }
    }

    /// An error of a write that leaves the log as it was, if it was for lack of space; any other poisons.
    fn write_failed(&mut self, error: FileError) -> AppendError {
        match is_disk_full(&error.source) {
            true => AppendError::DiskFull(error),
            false => self.poison_by(&error),
        }
    }

    pub(crate) fn create_segment(
        &mut self,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<Arc<Segment>, FileError> {
        let descriptors = self.data.descriptors();
        let mut state: SegmentState = Segment::state_on_disk(descriptors, &self.dir, base_offset, 0, 0, 0);
        state.created_ms = now_ms;
        let segment = Arc::new(Segment::new(descriptors, &self.dir, base_offset, state));
        segment.aborted().set(AbortedDigest::default(), Vec::new());
        self.make_dir()?;
        self.dirty_file(segment.log(), OpenMode::CreateOrEmpty)?;
        self.dirty.dir = true;
        self.reserved = 0;
        self.append_times = AppendTimes::default();
        let mut segments = self.shared.segments().to_vec();
        assert!(segments.last().is_none_or(|s| s.base_offset() < base_offset), "segments begin in order");
        segments.push(segment.clone());
        *self.shared.segments.write() = Arc::new(segments);
        self.active = Some(segment.clone());
        Ok(segment)
    }

    /// The open file, pinned until it was flushed.
    pub(crate) fn dirty_file(&mut self, file: &CachedFile, mode: OpenMode) -> Result<Arc<Pin>, FileError> {
        if let Some(pin) = self.dirty.files.get(&file.id()) {
            return Ok(pin.clone());
        }
        let pin = self.data.descriptors().pin(file, mode);
        let pin = Arc::new(pin.map_err(|e| FileError::new("open", file.path(), e))?);
        self.dirty.files.insert(file.id(), pin.clone());
        Ok(pin)
    }

    /// Moves the older half of the index to its file when memory holds enough. A failure leaves it in memory.
    fn spill_if_full(&mut self, segment: &Segment) {
        let count = segment.state().read().index.in_memory();
        if count <= self.config.index_entries_in_memory_max {
            return;
        }
        if let Err(error) = self.spill(segment, count / 2) {
            tracing::warn!(log = %self.name, %error, "index stays in memory");
        }
    }

    /// Writes the oldest `count` offset entries, and the time entries that belong to them, to the files.
    pub(crate) fn spill(&mut self, segment: &Segment, count: usize) -> Result<(), FileError> {
        let (time_count, files) = {
            let state = segment.state().read();
            let time_count = match count.checked_sub(1).and_then(|last| state.index.tail_entry(last)) {
                Some(last) if count < state.index.in_memory() => {
                    state.time_index.tail_count(|e| e.offset <= last.offset)
                }
                Some(_) | None => state.time_index.in_memory(),
            };
            (time_count, (state.index.file().clone(), state.time_index.file().clone()))
        };
        let index_file = self.index_file(&files.0)?;
        let time_file = self.index_file(&files.1)?;
        // Readers must not wait for a write: the lock is held for the bytes alone. Nobody but the owner changes the tails.
        let (index, time_index) = {
            let state = segment.state().read();
            (state.index.to_spill(count), state.time_index.to_spill(time_count))
        };
        for (file, cached, (bytes, at)) in
            [(&index_file, &files.0, index), (&time_file, &files.1, time_index)]
        {
            file.write_at(&bytes, at).map_err(|e| FileError::new("write", cached.path(), e))?;
        }
        let mut state = segment.state().write();
        state.index.spilled(count);
        state.time_index.spilled(time_count);
        Ok(())
    }

    pub(crate) fn index_file(&mut self, file: &CachedFile) -> Result<Arc<dyn DiskFile>, FileError> {
        match self.dirty_file(file, OpenMode::ReadWrite) {
            Err(e) if e.source.kind() == io::ErrorKind::NotFound => {
                self.dirty.dir = true;
                Ok(self.dirty_file(file, OpenMode::CreateNew)?.file().clone())
            }
            pin => Ok(pin?.file().clone()),
        }
    }

    /// Closes the active segment for appends: all of its index goes to the files, and the producers are saved beside
    /// the segment that will follow.
    pub(crate) fn seal_active(&mut self) -> Result<(), FileError> {
        let Some(active) = self.active.clone() else { return Ok(()) };
        self.complete_indexes(&active)?;
        active.aborted().finish(self.producers.first_ongoing());
        self.save_append_times(&active);
        self.active = None;
        self.take_snapshot();
        Ok(())
    }

    pub(crate) fn complete_indexes(&mut self, segment: &Segment) -> Result<(), FileError> {
        let (count, size) = {
            let mut state = segment.state().write();
            state.push_time_entry();
            (state.index.in_memory(), state.size)
        };
        // First, since it makes room.
        if self.reserved > size {
            let pin = self.dirty_file(segment.log(), OpenMode::ReadWrite)?;
            pin.file().set_len(size).map_err(|e| FileError::new("trim", segment.log().path(), e))?;
            self.reserved = 0;
        }
        self.spill(segment, count)?;
        self.spill_aborted(segment)
    }

    /// Ends the active segment, if it holds anything; the next append begins a new one.
    pub fn roll(&mut self) -> Result<(), LogError> {
        self.check_writable()?;
        if self.active.as_ref().is_some_and(|a| a.state().read().size > 0) {
            self.seal_active().map_err(|e| self.changing_failed(e))?;
        }
        Ok(())
    }

    pub(crate) fn changing_failed(&mut self, error: FileError) -> LogError {
        if !is_disk_full(&error.source) {
            self.poison_by(&error);
        }
        LogError::Io(error)
    }

    /// Saves the producers as of the end of the log. It only saves time later, so a failure is not one of the log.
    pub(crate) fn take_snapshot(&mut self) {
        let offset = self.end();
        self.bytes_since_snapshot = 0;
        if self.snapshots.contains(&offset) {
            return;
        }
        let written = self.settled_aborted().and_then(|aborted| {
            let bytes = log_engine_core::producer_snapshot::encode(&self.producers, aborted);
            self.write_snapshot(offset, &bytes)
        });
        if let Err(error) = written {
            tracing::warn!(log = %self.name, %error, "go on without a producer snapshot");
        }
    }

    fn write_snapshot(&mut self, offset: i64, bytes: &[u8]) -> Result<(), FileError> {
        let file = self.data.descriptors().name(snapshots::path(&self.dir, offset));
        let written = self.dirty_file(&file, OpenMode::CreateOrEmpty).and_then(|pin| {
            pin.file().write_at(bytes, 0).map_err(|e| FileError::new("write", file.path(), e))
        });
        self.dirty.dir = true;
        match &written {
            Ok(()) => _ = self.snapshots.insert(offset),
            Err(_) => {
                self.dirty.files.remove(&file.id());
                self.data.descriptors().forget(&file);
                // A torn one is recognised by its checksum, should even this fail.
                let _ = self.data.disk().remove_file(file.path());
            }
        }
        written
    }

    /// Writes out what [`close`](Self::close) would, without waiting for the device. A caller with many logs prepares
    /// all of them, lets the flusher threads flush them side by side, and finds little left to do in `close`.
    pub fn prepare_close(&mut self) -> Result<(), LogError> {
        self.check_writable()?;
        if self.bytes_since_snapshot == 0 && self.dirty.is_empty() && self.in_flight.is_none() {
            return Ok(());
        }
        if let Some(last) = self.shared.segments().last().cloned() {
            match self.complete_indexes(&last) {
                Err(error) if is_disk_full(&error.source) => {
                    tracing::warn!(log = %self.name, %error, "the next start builds the indexes anew");
                }
                done => done.map_err(|e| self.changing_failed(e))?,
            }
            if self.active.is_some() {
                self.save_append_times(&last);
            }
        }
        if self.bytes_since_snapshot > 0 {
            self.take_snapshot();
        }
        Ok(())
    }

    /// Writes out and flushes everything, so that the next open has nothing to recover. Whoever still reads finds nothing, also
    /// where that fails: neither a look at its segments nor a seal may take a log that is opened in its place for it.
    pub fn close(mut self) -> Result<(), LogError> {
        let closed = self.close_files();
        let _no_seals = self.shared.hold_seals();
        self.shared.note_cut();
        self.let_all_go();
        closed
    }

    fn close_files(&mut self) -> Result<(), LogError> {
        self.prepare_close()?;
        self.sync_now()?;
        if self.end() > 0 {
            self.note_record();
        }
        Ok(())
    }

    /// Readers find no segments any more.
    pub(crate) fn let_all_go(&self) {
        let segments = std::mem::take(&mut *self.shared.segments.write());
        for segment in segments.iter() {
            self.forget_segment(segment);
        }
    }

    pub(crate) fn forget_segment(&self, segment: &Segment) {
        let state = segment.state().read();
        for file in [segment.log(), state.index.file(), state.time_index.file(), segment.aborted().file()] {
            self.data.descriptors().forget(file);
        }
    }
}

pub(crate) fn segment_fill(segment: &Segment) -> SegmentFill {
    let state = segment.state().read();
    SegmentFill {
        base_offset: segment.base_offset(),
        bytes: state.size,
        first_timestamp: state.first_timestamp,
        created_ms: state.created_ms,
        index_entries: state.index.len(),
        time_index_entries: state.time_index.len(),
    }
}

pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn check_batches(batches: &[u8], headers: &[BatchHeader], end: i64) -> Result<(), AppendError> {
    let described: usize = headers.iter().map(BatchHeader::size).sum();
    if described != batches.len() || headers.is_empty() {
        return Err(AppendError::Mismatch { described, given: batches.len() });
    }
    let mut end = end;
    for header in headers {
        let next = header.base_offset.checked_add(i64::from(header.last_offset_delta) + 1);
        match next {
            Some(next) if header.base_offset >= end && header.last_offset_delta >= 0 => end = next,
            Some(_) | None => return Err(AppendError::OutOfOrder { found: header.base_offset, end }),
        }
    }
    Ok(())
}
