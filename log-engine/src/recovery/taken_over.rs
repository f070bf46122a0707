//! Taking over a log that Apache Kafka wrote.
//!
//! Kafka's cleaner drops the last records of a segment like any others, so its segments may end before the next one begins.
//! In a log of ours that means a loss: a segment begins where the one before it ended, so that a lost tail shows, and what
//! compaction makes of it is recorded as flushed first. A power cut can leave such an end exactly behind a batch, so nothing
//! in the files tells the two apart. Who wrote them does: Kafka keeps a `partition.metadata` in the directory of each
//! partition, and we never write one. Where it lies everything in the directory is Kafka's. Then
//!
//! - what was recorded of an earlier log of that name counts for nothing;
//! - every batch is checked; where one is not whole the last segment is cut, and any other is damage;
//! - a segment may end before the next one begins. One that is missing in the middle looks the same, as it does to Kafka.
//!
//! Before the log is handed out it is recorded as flushed, and then the file goes, both durably: from there on the log is ours,
//! its segments are settled as they are, and a gap behind them is a lost tail.

use std::sync::Arc;

use super::{Recovery, remove_if_there};
use crate::compact::cleaned_ends::UNKNOWN;
use crate::error::{FileError, OpenError};
use crate::flushed_ends::FlushedEnd;
use crate::segment::Segment;

/// What Kafka leaves in the directory of each partition.
pub(crate) const KAFKA_FILE: &str = "partition.metadata";

impl Recovery<'_> {
    /// Makes it ours. Everything else that recovery has to do is done.
    pub(super) fn finish_taking_over(&self, segments: &[Arc<Segment>]) -> Result<(), OpenError> {
        if !self.report.taken_over {
            return Ok(());
        }
        let Some(last) = segments.last() else {
            self.data.ends().remove_durably(self.name)?;
            return self.remove_kafka_file();
        };
        // What Kafka's cleaner has dropped only Kafka knows.
        self.data.cleaned().lower_durably(self.name, None)?;
        self.data.dropped().raise(self.name, UNKNOWN);
        self.data.dropped().write()?;
        self.disk.sync_dir(self.dir).map_err(|e| FileError::new("sync", self.dir, e))?;
        let record = {
            let state = last.state().read();
            FlushedEnd {
                start: self.report.start,
                end: self.report.end,
                active_base: last.base_offset(),
                index_entries: state.index.on_disk(),
                time_index_entries: state.time_index.on_disk(),
                snapshot_at_end: false,
            }
        };
        self.data.ends().set_durably(self.name, record)?;
        self.remove_kafka_file()?;
        let (segments, start, end) = (segments.len(), record.start, record.end);
        tracing::info!(log = %self.name, segments, start, end, "took over a log that Kafka wrote");
        Ok(())
    }

    fn remove_kafka_file(&self) -> Result<(), OpenError> {
        remove_if_there(self.disk, &self.dir.join(KAFKA_FILE))?;
        Ok(self.disk.sync_dir(self.dir).map_err(|e| FileError::new("sync", self.dir, e))?)
    }
}
