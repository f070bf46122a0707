//! The owner's half of a flush: what is dirty, what is under way, and what an outcome means.
//!
//! Bytes, names and the epoch file become dirty; [`Log::begin_flush`] takes all of it as one unit of work, and
//! [`Log::on_flushed`] moves the flushed end, puts the work back, or poisons. What was cut away while a flush was under
//! way is never claimed by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::descriptors::Pin;
use crate::error::{FileError, FlushError};
use crate::flush::{EpochFile, FlushDone, FlushHandle, FlushWork};
use crate::flushed_ends::FlushedEnd;
use crate::log::{Log, is_disk_full};
use crate::snapshots;

/// No two flushes of a process have the same number: an outcome that comes late is not taken for one of another log of the
/// same name.
static NEXT_TICKET: AtomicU64 = AtomicU64::new(1);

/// What has changed since the last flush began.
#[derive(Default)]
pub(crate) struct Dirty {
    pub(crate) files: BTreeMap<u64, Arc<Pin>>,
    pub(crate) dir: bool,
    pub(crate) dir_is_new: bool,
    /// There was no room for the log's directory yet.
    pub(crate) dir_is_missing: bool,
    pub(crate) epochs: bool,
}

impl Dirty {
    /// Whether there is nothing to flush. That the directory is new matters only together with something in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.dir && !self.epochs
    }
}

/// The flush that some thread is executing.
pub(crate) struct InFlight {
    ticket: u64,
    pub(crate) end: i64,
    record: FlushedEnd,
    /// The log was cut or otherwise recorded meanwhile, so the record above is out of date.
    pub(crate) superseded: bool,
    work: Arc<FlushWork>,
}

impl Log {
    /// Takes what must be flushed for [`flushed`](Self::flushed) to reach the end, unless there is nothing, or a flush
    /// is under way, or the log is poisoned. Execute it on a flusher thread and hand the outcome to
    /// [`on_flushed`](Self::on_flushed).
    pub fn begin_flush(&mut self) -> Option<FlushHandle> {
        if self.in_flight.is_some() || self.poisoned.is_some() || self.dirty.is_empty() {
            return None;
        }
        match self.make_dir() {
            Ok(()) => {}
            // There are no records either.
            Err(error) if is_disk_full(&error.source) => return None,
            Err(error) => {
                self.poison_by(&error);
                return None;
            }
        }
        let work = Arc::new(self.take_work());
        let ticket = NEXT_TICKET.fetch_add(1, Ordering::Relaxed);
        let end = self.end();
        let record = self.record(end);
        self.in_flight = Some(InFlight { ticket, end, record, superseded: false, work: work.clone() });
        Some(FlushHandle { log: self.name, ticket, end, work })
    }

    /// Makes the log's directory if there was no room for it before.
    pub(crate) fn make_dir(&mut self) -> Result<(), FileError> {
        if self.dirty.dir_is_missing {
            let made = self.data.disk().create_dir_all(&self.dir);
            made.map_err(|e| FileError::new("create directory", &self.dir, e))?;
            self.dirty.dir_is_missing = false;
        }
        Ok(())
    }

    fn take_work(&mut self) -> FlushWork {
        let dirty = std::mem::take(&mut self.dirty);
        // There may have been no room for them.
        let epochs_unwritten = self.epochs_written.lock().version < self.epoch_version;
        FlushWork {
            disk: self.data.disk().clone(),
            dir: self.dir.clone(),
            files: dirty.files.into_values().collect(),
            dir_changed: dirty.dir,
            dir_is_new: dirty.dir_is_new,
            epochs: (dirty.epochs || epochs_unwritten).then(|| self.epoch_file()),
            files_synced: parking_lot::Mutex::new(None),
        }
    }

    pub(crate) fn epoch_file(&mut self) -> EpochFile {
        self.epoch_version += 1;
        EpochFile {
            version: self.epoch_version,
            history: self.epochs.clone(),
            records: self.start()..self.end(),
            written: self.epochs_written.clone(),
        }
    }

    /// What may be recorded once everything written so far is durable.
    pub(crate) fn record(&self, end: i64) -> FlushedEnd {
        let segments = self.shared.segments();
        let mut record = FlushedEnd {
            start: self.start(),
            end,
            active_base: 0,
            index_entries: 0,
            time_index_entries: 0,
            snapshot_at_end: self.snapshots.contains(&end),
        };
        if let Some(last) = segments.last() {
            let state = last.state().read();
            record.active_base = last.base_offset();
            record.index_entries = state.index.on_disk();
            record.time_index_entries = state.time_index.on_disk();
            // An empty log that made room for a batch that reaches back before its start holds nothing up to there yet.
            if state.size == 0 && segments.len() == 1 && end > record.active_base {
                record.start = record.active_base;
                record.end = record.active_base;
            }
        }
        record
    }

    pub(crate) fn note_record(&self) {
        self.data.ends().note(self.name, self.record(self.flushed()));
    }

    /// Takes the outcome of a flush. Answers the flushed end, which did not move if it failed: then the log is
    /// poisoned, unless it was for lack of space.
    pub fn on_flushed(&mut self, done: FlushDone) -> i64 {
        let Some(in_flight) = self.in_flight.take_if(|f| f.ticket == done.ticket) else {
            return self.flushed();
        };
        match done.result {
            // Planted: a failed sync is tried again.
            Err(FlushError::Failed(_)) if cfg!(weir_planted_bug = "B14") => self.put_back(&in_flight.work),
            Err(FlushError::Failed(error)) => _ = self.poison_by(&error),
            // Whatever it is that failed meanwhile, a sync that succeeds afterwards proves nothing.
            Err(FlushError::DiskFull(_)) | Ok(()) if self.poisoned.is_some() => {}
            Err(FlushError::DiskFull(error)) => {
                tracing::warn!(log = %self.name, %error, "flush must be repeated");
                self.put_back(&in_flight.work);
            }
            Ok(()) if done.again => self.put_back(&in_flight.work),
            Ok(()) => {
                let flushed = self.flushed().max(in_flight.end);
                self.shared.flushed.store(flushed, Ordering::Release);
                if !in_flight.superseded {
                    self.data.ends().note(self.name, in_flight.record);
                }
                self.data.queue_finished(&self.shared, in_flight.end);
                self.remove_old_snapshots(in_flight.end);
            }
        }
        self.flushed()
    }

    /// Takes back a flush that could not be queued.
    pub fn return_flush(&mut self, handle: FlushHandle) {
        if let Some(in_flight) = self.in_flight.take_if(|f| f.ticket == handle.ticket) {
            self.put_back(&in_flight.work);
        }
    }

    fn put_back(&mut self, work: &FlushWork) {
        for pin in &work.files {
            self.dirty.files.entry(pin.id()).or_insert_with(|| pin.clone());
        }
        self.dirty.dir |= work.dir_changed;
        self.dirty.dir_is_new |= work.dir_is_new;
        self.dirty.epochs |= work.epochs.is_some();
    }

    fn remove_old_snapshots(&mut self, flushed: i64) {
        self.learn_snapshots();
        let bases: BTreeSet<i64> = self.shared.segments().iter().map(|s| s.base_offset()).collect();
        let durable: BTreeSet<i64> = self.snapshots.range(..=flushed).copied().collect();
        let old = snapshots::superfluous(&durable, &bases);
        let removed = snapshots::remove_where(&**self.data.disk(), &self.dir, &mut self.snapshots, |o| {
            old.contains(&o)
        });
        if let Err(error) = removed {
            tracing::warn!(log = %self.name, %error, "old producer snapshot stays");
        }
    }

    /// Flushes here and now; for the rare changes that must not wait for a flusher thread. A failure poisons, unless
    /// it is for lack of space for a small file: of a file that could not be synced, for whatever reason, the pages may
    /// be gone, and another sync of it would report success.
    pub(crate) fn sync_now(&mut self) -> Result<(), FileError> {
        self.make_dir()?;
        let earlier = self.in_flight.as_ref().map(|f| f.work.clone());
        let work = self.take_work();
        for part in earlier.as_deref().into_iter().chain([&work]) {
            let files = part.sync_files();
            let harmless = files.is_ok();
            let Err(error) = files.and_then(|()| part.sync_names(false)) else { continue };
            self.put_back(&work);
            if !(harmless && is_disk_full(&error.source)) {
                self.poison_by(&error);
            }
            return Err(error);
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.superseded = true;
        }
        self.shared.flushed.store(self.end(), Ordering::Release);
        Ok(())
    }
}
