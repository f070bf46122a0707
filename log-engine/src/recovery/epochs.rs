//! Whether the leader epoch checkpoint tells the truth.
//!
//! The file is Kafka's and has no checksum, and followers cut their logs by what it says. So what it says of the offsets
//! around each beginning of an epoch is compared with the batches there; one lie, and all of it comes from the batches.

use std::collections::BTreeSet;
use std::sync::Arc;

use log_engine_core::EpochHistory;
use records::BatchHeader;

use super::Recovery;
use crate::error::OpenError;
use crate::reader::floor;
use crate::segment::Segment;

/// Of a longer history only the newest entries are looked at.
const ENTRIES_CHECKED_MAX: usize = 256;

impl Recovery<'_> {
    /// The stored history, if the batches below the flushed end agree with it.
    pub(super) fn believed_epochs(
        &mut self,
        segments: &[Arc<Segment>],
        stored: Option<EpochHistory>,
    ) -> Result<Option<EpochHistory>, OpenError> {
        let (Some(history), Some(known)) = (&stored, self.known) else { return Ok(stored) };
        let (start, end) = (known.start, self.floor);
        let begins = history.entries().iter().rev().take(ENTRIES_CHECKED_MAX);
        let around = begins.flat_map(|entry| [entry.start_offset - 1, entry.start_offset]);
        let offsets: BTreeSet<i64> = around.chain([start, end - 1]).collect();
        for &offset in offsets.range(start..end.max(start)) {
            // The batch there may have begun before; then the next one tells.
            let mut at = offset;
            for _ in 0..2 {
                if at >= end {
                    break;
                }
                let found = self.batch_at(segments, at)?;
                self.on_look()?;
                let Some(header) = found else { break };
                let said = history.epoch_of(header.base_offset.max(start));
                let found = header.partition_leader_epoch;
                if header.base_offset < end && said != Some(found) {
                    tracing::warn!(
                        log = %self.name, offset, ?said, found,
                        "leader epoch checkpoint does not fit the log, read the epochs from the log"
                    );
                    self.report.epochs_rebuilt = true;
                    return Ok(None);
                }
                if header.base_offset >= offset {
                    break;
                }
                at = header.last_offset() + 1;
            }
        }
        Ok(stored)
    }

    /// The batch that holds the offset, or the next one in its segment; none in a gap, as compaction leaves them.
    fn batch_at(&self, segments: &[Arc<Segment>], offset: i64) -> Result<Option<BatchHeader>, OpenError> {
        let segment = &segments[floor(segments, offset)];
        // Of a log with much data this is one page here and one there.
        segment.read_ahead(false).map_err(|fault| self.fault(fault, segment.log().path()))?;
        let found = segment.locate(offset, false);
        segment.read_ahead(true).map_err(|fault| self.fault(fault, segment.log().path()))?;
        let found = found.map_err(|fault| self.fault(fault, segment.log().path()))?;
        Ok(found.map(|(found, _)| found.header))
    }
}
