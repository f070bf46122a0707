//! Opening a log: what is on disk becomes segments, producers and epochs.
//!
//! The record of flushed ends divides the log. Below it everything must be there: what is not is *damage*, and the log
//! is not opened. Above it a crash may have torn anything: batches are checked by CRC up to the first that is not
//! whole, and the rest is cut. Segments older than the one that was active at the last flush are taken as their seals
//! describe them, so a start costs what was not flushed plus a walk over the headers since the last producer snapshot.
//!
//! A segment that ends before the next one begins has lost its end, unless it was settled before, or somebody else has written
//! the log (`taken_over`).
//!
//! Tail batches that are kept are written again in place: after a failed write-back the cache may show bytes that the
//! device never got, and only a new write makes a new sync mean something. If the log was *poisoned*, whole files are
//! copied instead.

mod epochs;
mod files;
mod producers;
mod progress;
mod replacements;
mod sealed;
mod segments;
mod taken_over;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use log_engine_core::{EpochHistory, ProducerStates};
use records::BatchHeader;

use crate::config::LogConfig;
use crate::data_dir::{DataDir, write_file};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{FileError, OpenError};
use crate::flushed_ends::{FlushedEnd, KnownEnd};
use crate::log::is_disk_full;
use crate::scan::Fault;
use crate::segment::{Segment, file_name};
use crate::{LogName, epoch_file, poison, snapshots};

use files::{Files, list_files};
pub(crate) use files::{PARTS, remove_if_there, remove_segment_files};
use progress::Watched;
pub use progress::{RecoveryProgress, RecoveryWatch};
pub(crate) use replacements::{Replacement, judge_replacement};
pub(crate) use taken_over::KAFKA_FILE;

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
    /// Kafka has written the log, so the whole of it was read; from now on it is ours.
    pub taken_over: bool,
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
    /// Segments that were taken as their seals describe them.
    pub seals_read: usize,
    /// Seals that could not be believed. The scrub writes others.
    pub seals_dropped: usize,
    /// The leader epoch checkpoint did not fit the batches and was built anew.
    pub epochs_rebuilt: bool,
}

/// An opened log's parts.
pub(crate) struct Recovered {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) producers: ProducerStates,
    pub(crate) epochs: EpochHistory,
    /// What the epoch file says, if there is one, and whether that is all: there may have been no room.
    pub(crate) epochs_in_file: Option<EpochHistory>,
    pub(crate) epochs_written: bool,
    pub(crate) snapshots: BTreeSet<i64>,
    /// Offset of the newest snapshot that was used, −1 if none was.
    pub(crate) snapshot_offset: i64,
    pub(crate) dir_is_new: bool,
    /// There was no room for it.
    pub(crate) dir_is_missing: bool,
    pub(crate) report: RecoveryReport,
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
    watched: Watched<'a>,
    report: RecoveryReport,
}

pub(crate) fn recover(
    data: &DataDir,
    name: LogName,
    dir: &Path,
    config: &LogConfig,
    now_ms: i64,
    watch: RecoveryWatch<'_>,
) -> Result<Recovered, OpenError> {
    let mut watched = Watched::begin(watch);
    watched.check(dir)?;
    let disk = data.disk().clone();
    let known_end = data.ends().get(name);
    let flushed_end = match known_end {
        KnownEnd::Known(end) => end.end,
        KnownEnd::New | KnownEnd::Lost => 0,
    };
    replacements::settle_replacements(&*disk, dir, (name, flushed_end), &mut watched)?;
    let files = list_files(data, name, dir)?;
    let known = match known_end {
        KnownEnd::Known(end) if !files.of_kafka => Some(end),
        KnownEnd::Known(_) | KnownEnd::New | KnownEnd::Lost => None,
    };
    let report = RecoveryReport {
        start: known.map_or(0, |k| k.start),
        flushed_end_known: known.map_or(0, |k| k.end),
        flushed_end_lost: known_end == KnownEnd::Lost,
        taken_over: files.of_kafka,
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
        // Planted: a bad batch ends the log wherever it is.
        floor: known.filter(|_| !cfg!(weir_planted_bug = "B13")).map_or(0, |k| k.end),
        poisoned: files.poisoned,
        dir_changed: false,
        watched,
        report,
    };
    recovery.run(files)
}

impl Recovery<'_> {
    fn run(mut self, mut files: Files) -> Result<Recovered, OpenError> {
        self.check_presence(&mut files)?;
        if files.damaged {
            self.check_marked(&files)?;
        }
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
        if let (Some(first), true) = (segments.first(), self.is_unknown()) {
            self.report.start = first.base_offset();
        }
        if self.report.end < self.floor {
            let reason = format!("the log ends at {} already", self.report.end);
            return Err(self.damaged(reason, self.dir, 0));
        }
        // Of older segments the scrub knows which have no seal yet.
        for segment in segments.iter().rev().skip(1) {
            segment.begin_sealing();
        }
        let mut stored_epochs = epoch_file::read(self.disk, self.dir)?;
        let believed = self.believed_epochs(&segments, stored_epochs.clone())?;
        let (producers, epochs, snapshot_offset) = self.replay(&segments, &files, believed)?;
        let snapshot_offset = self.replace_passed_over(&segments, &mut files, &producers, snapshot_offset)?;
        // The end is about to be recorded as flushed, and then only the file tells of the epochs below it.
        let records = self.report.start..self.report.end;
        let epochs_written = epochs == stored_epochs.clone().unwrap_or_default()
            || epoch_file::write(self.disk, self.dir, &epochs, records, &mut stored_epochs)?;
        let above = self.dir.parent().filter(|_| self.known.is_none() && !segments.is_empty());
        if let Some(above) = above {
            self.disk.sync_dir(above).map_err(|e| FileError::new("sync", above, e))?;
        }
        if self.poisoned {
            poison::remove_marker(self.disk, self.dir)?;
        } else if self.dir_changed {
            self.disk.sync_dir(self.dir).map_err(|e| FileError::new("sync", self.dir, e))?;
        }
        self.finish_taking_over(&segments)?;
        Ok(Recovered {
            segments,
            producers,
            epochs,
            epochs_in_file: stored_epochs,
            epochs_written,
            snapshots: files.snapshots,
            snapshot_offset,
            dir_is_new: files.dir_is_new || self.known.is_none(),
            dir_is_missing: files.dir_is_missing,
            report: self.report,
        })
    }

    /// A snapshot below the known end was flushed with it, but one *at* it may have been written after that flush, if
    /// the record does not say otherwise.
    fn settle_snapshot_at_floor(&self, files: &mut Files) -> Result<(), OpenError> {
        let durable = self.known.is_some_and(|k| k.snapshot_at_end);
        if durable || !files.snapshots.contains(&self.floor) {
            return Ok(());
        }
        let at_floor = BTreeSet::from([self.floor]);
        let producers_max = self.config.producers_max;
        let whole = snapshots::load_newest(self.disk, self.dir, &at_floor, self.floor, producers_max)?;
        if let Some(saved) = whole {
            let bytes = log_engine_core::producer_snapshot::encode(&saved.producers, saved.aborted);
            match write_file(self.disk, self.dir, &file_name(saved.offset, "snapshot"), &bytes) {
                // It only saves time.
                Err(error) if is_disk_full(&error.source) => {
                    tracing::warn!(log = %self.name, %error, "go on without a producer snapshot");
                }
                written => return Ok(written?),
            }
        }
        snapshots::remove_where(self.disk, self.dir, &mut files.snapshots, |o| o == self.floor)?;
        Ok(())
    }

    /// Whether nothing is recorded of a log that need not be new: then nothing of it may be taken for a torn tail but the end
    /// of the last segment.
    fn is_unknown(&self) -> bool {
        self.report.flushed_end_lost || self.report.taken_over
    }

    /// So many bytes were gone through, beside those that were expected.
    fn on_work(&mut self, bytes: u64) -> Result<(), OpenError> {
        self.watched.on_work(bytes);
        self.watched.check(self.dir)
    }

    /// A piece of work is done that reads little, but waits for the device.
    fn on_look(&mut self) -> Result<(), OpenError> {
        self.watched.tell();
        self.watched.check(self.dir)
    }

    fn damaged(&self, reason: impl Into<String>, path: impl AsRef<Path>, position: u64) -> OpenError {
        let path = path.as_ref().to_owned();
        OpenError::Damaged { log: self.name, flushed_end: self.floor, reason: reason.into(), path, position }
    }

    /// Segments that were durable must still have their files.
    fn check_presence(&mut self, files: &mut Files) -> Result<(), OpenError> {
        if self.is_unknown() {
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
            self.on_look()?;
            files.logs.remove(&base);
        }
        Ok(())
    }

    fn remove_segment(&mut self, base: i64) -> Result<(), FileError> {
        self.dir_changed = true;
        remove_segment_files(self.disk, self.dir, base)
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

/// The history says of a batch what the batch itself says. It says otherwise before a new epoch, and where a leadership of
/// this copy began of which no record came to be: that entry goes.
pub(crate) fn note_epoch(epochs: &mut EpochHistory, header: &BatchHeader) -> bool {
    let epoch = header.partition_leader_epoch;
    epochs.epoch_of(header.base_offset) != Some(epoch) && epochs.assign(epoch, header.base_offset)
}
