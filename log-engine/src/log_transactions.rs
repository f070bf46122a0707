//! The owner's half of producers and transactions: what an append means for them, and their index beside the active segment.

use log_engine_core::AbortedIndex;
use records::{BatchHeader, BatchView};

use crate::error::FileError;
use crate::log::Log;
use crate::replay::{ProducerEvent, producer_batch};
use crate::segment::Segment;

/// Aborted transactions of the active segment that stay in memory; 32 bytes each.
const ABORTED_IN_MEMORY_MAX: usize = 256;

impl Log {
    /// Forgets producers that wrote nothing for so long (`producer.id.expiration.ms`). Answers how many.
    pub fn expire_producers(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        self.producers.expire(now_ms, expiration_ms)
    }

    /// The topic is compacted: see [`log_engine_core::ProducerStates::doubt_unknown`].
    pub fn doubt_unknown_producers(&mut self) {
        self.producers.doubt_unknown();
    }

    /// Everything below the high watermark stays, so that what markers there have decided is decided for good. It makes
    /// [`log_engine_core::ProducerStates::last_stable`] cheap and keeps its memory small.
    pub fn on_high_watermark(&mut self, high_watermark: i64) {
        self.producers.on_high_watermark(high_watermark);
    }

    /// Batches were written into the active segment.
    pub(crate) fn note_producers(
        &mut self,
        segment: &Segment,
        bytes: &[u8],
        headers: &[BatchHeader],
        now_ms: i64,
    ) {
        let mut at = 0;
        for header in headers {
            let event = match BatchView::parse(&bytes[at..]) {
                Ok(batch) if header.is_control() => ProducerEvent::of(&batch),
                Ok(_) | Err(_) => ProducerEvent::Data(producer_batch(header)),
            };
            at += header.size();
            let completed = event.replay(&mut self.producers);
            self.producers.note_seen(header.producer_id, header.max_timestamp, now_ms);
            if let Some(aborted) = completed.and_then(|completed| completed.aborted()) {
                segment.aborted().push(aborted);
            }
        }
    }

    /// Writes what memory holds of a segment's transaction index behind what is in the file.
    pub(crate) fn spill_aborted(&mut self, segment: &Segment) -> Result<(), FileError> {
        let index = segment.aborted();
        let Some((bytes, at)) = index.to_spill() else { return Ok(()) };
        let file = self.index_file(index.file())?;
        file.write_at(&bytes, at).map_err(|e| FileError::new("write", index.file().path(), e))?;
        index.spilled();
        Ok(())
    }

    /// The same when there is much of it. A failure leaves it in memory.
    pub(crate) fn spill_aborted_if_full(&mut self, segment: &Segment) {
        if segment.aborted().in_memory() > ABORTED_IN_MEMORY_MAX
            && let Err(error) = self.spill_aborted(segment)
        {
            tracing::warn!(log = %self.name, %error, "transaction index stays in memory");
        }
    }

    /// What a snapshot at the end of the log says of the transaction index of the segment that ends there. Brings it up
    /// to date first.
    pub(crate) fn settled_aborted(&mut self) -> Result<AbortedIndex, FileError> {
        let (segments, end) = (self.shared.segments(), self.end());
        // An empty segment may stand behind it.
        let last = segments.iter().rev().find(|segment| segment.base_offset() < end).cloned();
        let Some(last) = last else { return Ok(AbortedIndex::Empty) };
        self.spill_aborted(&last)?;
        Ok(last.aborted().describe(last.base_offset()))
    }
}
