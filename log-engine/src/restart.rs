//! Dropping everything that a log holds and beginning it anew at another offset: a follower whose records the leader does
//! not have any more (KIP-107, KAFKA-9491), or has never had.
//!
//! The record of flushed ends is forgotten durably before a file is touched, and written again when the new first segment
//! is on disk. A crash in between leaves an empty log that starts at 0, which such a follower begins from as well.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use log_engine_core::{EpochHistory, ProducerStates};
use records::BatchHeader;

use crate::data_dir::{DELETED_SUFFIX, remove_dir_and_files};
use crate::delete::DetachedLog;
use crate::error::{AppendError, FileError, LogError};
use crate::log::Log;
use crate::log_flush::Dirty;

impl Log {
    /// Drops all records, producers and epochs; the log is empty and begins at `start`. Readers that hold a slice may
    /// finish with it. The old files go when the answer's are removed. An error in the middle poisons the log. Waits for
    /// the device. `now_ms` is broker time.
    pub fn restart_at(&mut self, start: i64, now_ms: i64) -> Result<DetachedLog, LogError> {
        self.check_writable()?;
        let restarted = self.begin_anew(start, now_ms);
        restarted.map_err(|e| {
            self.poison_by(&e);
            LogError::Io(e)
        })
    }

    /// An empty log may begin inside a batch of its leader: then its first segment must begin where that batch does.
    pub(crate) fn make_room_before_start(
        &mut self,
        headers: &[BatchHeader],
        now_ms: i64,
    ) -> Result<(), AppendError> {
        let Some(first) = headers.first().filter(|first| self.straddles_start(first)) else { return Ok(()) };
        if self.active.as_ref().is_some_and(|active| active.base_offset() == first.base_offset) {
            return Ok(());
        }
        let (start, dropped_to) = (self.start(), self.dropped_to);
        let emptied = self.begin_anew(first.base_offset, now_ms).and_then(DetachedLog::remove_files);
        let emptied = emptied.and_then(|()| self.note_dropped(dropped_to));
        self.stand_at(start);
        emptied.map_err(|e| self.poison_by(&e))
    }

    /// Whether the log is empty and a batch begins before its start and reaches it.
    pub(crate) fn straddles_start(&self, batch: &BatchHeader) -> bool {
        let start = self.start();
        start == self.end() && (0..start).contains(&batch.base_offset) && batch.last_offset() >= start
    }

    /// An empty log that starts there.
    fn stand_at(&self, start: i64) {
        for position in [&self.shared.start, &self.shared.end, &self.shared.flushed] {
            position.store(start, Ordering::Release);
        }
    }

    /// An empty log whose first segment begins at `base`. What is recorded says that it starts there too.
    fn begin_anew(&mut self, base: i64, now_ms: i64) -> Result<DetachedLog, FileError> {
        let shared = self.shared.clone();
        let _no_seals = shared.hold_seals();
        // Whatever a flush that is under way brings to the disk is none of the new log's.
        self.in_flight = None;
        self.shared.note_cut();
        let disk = self.data.disk().clone();
        self.data.cleaned().lower_durably(self.name, None)?;
        self.forget_dropped()?;
        self.data.ends().remove_durably(self.name)?;
        let doomed = self.data.path().join(format!("{}{DELETED_SUFFIX}", self.name));
        remove_dir_and_files(&*disk, &doomed)?;
        disk.rename(&self.dir, &doomed).map_err(|e| FileError::new("rename", &self.dir, e))?;
        let segments = std::mem::take(&mut *self.shared.segments.write());
        for segment in segments.iter() {
            self.forget_segment(segment);
        }
        disk.create_dir_all(&self.dir).map_err(|e| FileError::new("create directory", &self.dir, e))?;
        let above = self.data.path();
        disk.sync_dir(above).map_err(|e| FileError::new("sync", above, e))?;
        self.active = None;
        self.producers = ProducerStates::new(self.config.producers_max);
        self.epochs = EpochHistory::new();
        self.learn_snapshots();
        self.snapshots = BTreeSet::new();
        self.bytes_since_snapshot = 0;
        self.dirty = Dirty { dir_is_new: true, ..Dirty::default() };
        // No flush of the old log may write its epochs into the new one.
        self.epoch_file().write(&*disk, &self.dir)?;
        self.stand_at(base);
        self.create_segment(base, now_ms)?;
        self.sync_now()?;
        self.data.ends().set_durably(self.name, self.record(base))?;
        Ok(DetachedLog::new(self.data.clone(), doomed))
    }
}
