//! Which data are of aborted transactions, and what a control batch says.

use std::collections::HashMap;

use records::{BatchHeader, BatchView, EndMarker};

use crate::AbortedTransaction;

/// Aborted transactions by producer.
#[derive(Debug, Clone, Default)]
pub struct AbortedRanges {
    /// First offset and marker, in order.
    by_producer: HashMap<i64, Vec<(i64, i64)>>,
}

impl AbortedRanges {
    pub fn new(aborted: impl IntoIterator<Item = AbortedTransaction>) -> AbortedRanges {
        let mut by_producer: HashMap<i64, Vec<(i64, i64)>> = HashMap::new();
        for entry in aborted {
            by_producer.entry(entry.producer_id).or_default().push((entry.first_offset, entry.last_offset));
        }
        by_producer.values_mut().for_each(|ranges| ranges.sort_unstable());
        AbortedRanges { by_producer }
    }

    /// Whether a batch is void.
    pub fn holds(&self, batch: &BatchHeader) -> bool {
        if !batch.is_transactional() || batch.is_control() {
            return false;
        }
        let Some(ranges) = self.by_producer.get(&batch.producer_id) else { return false };
        // Transactions of one producer follow each other.
        let after = ranges.partition_point(|&(first, _)| first <= batch.base_offset);
        after.checked_sub(1).is_some_and(|at| batch.last_offset() <= ranges[at].1)
    }
}

/// What a control batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// It ends a transaction.
    Marker,
    /// It did so before an earlier pass emptied it.
    Emptied,
    /// Of another kind, or nothing that can be read: compaction leaves it alone.
    Other,
}

/// Looks at a control batch.
pub fn control_of(batch: &BatchView<'_>) -> Control {
    match EndMarker::decode(batch) {
        Some(_) => Control::Marker,
        None if batch.header().record_count == 0 => Control::Emptied,
        None => Control::Other,
    }
}
