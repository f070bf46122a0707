//! Which data are of aborted transactions, and what a control batch says.

use std::collections::HashMap;

use records::{BatchError, BatchView};

/// A control record is a few bytes, and no codec makes many of a few.
const CONTROL_BYTES_MAX: usize = 64 << 10;

/// One aborted transaction: the transactional batches of the producer from the first offset to the last, its marker's, are
/// void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedRange {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
}

/// Aborted transactions by producer.
#[derive(Debug, Clone, Default)]
pub struct AbortedRanges {
    by_producer: HashMap<i64, Vec<(i64, i64)>>,
}

impl AbortedRanges {
    pub fn new(ranges: impl IntoIterator<Item = AbortedRange>) -> AbortedRanges {
        let mut by_producer: HashMap<i64, Vec<(i64, i64)>> = HashMap::new();
        for range in ranges {
            by_producer.entry(range.producer_id).or_default().push((range.first_offset, range.last_offset));
        }
        by_producer.values_mut().for_each(|ranges| ranges.sort_unstable());
        AbortedRanges { by_producer }
    }

    /// Whether a batch is void.
    pub fn holds(&self, batch: &records::BatchHeader) -> bool {
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
pub enum Marker {
    Abort,
    Commit,
    /// Of another kind, or nothing that can be read: compaction leaves it alone.
    Other,
    /// Emptied by an earlier pass.
    Emptied,
}

/// Reads a control batch.
pub fn marker_of(batch: &BatchView<'_>) -> Result<Marker, BatchError> {
    let records = batch.records(CONTROL_BYTES_MAX)?;
    let Some(record) = records.iter().next() else { return Ok(Marker::Emptied) };
    let key = record?.key.unwrap_or_default();
    Ok(match key.get(2..4) {
        Some([0, 0]) if batch.header().is_transactional() => Marker::Abort,
        Some([0, 1]) if batch.header().is_transactional() => Marker::Commit,
        Some(_) | None => Marker::Other,
    })
}

/// Finds aborted transactions in the batches of a log themselves, shown in order.
#[derive(Debug, Default)]
pub struct MarkerScan {
    open: HashMap<i64, i64>,
    aborted: Vec<AbortedRange>,
}

impl MarkerScan {
    /// A data batch.
    pub fn on_data(&mut self, header: &records::BatchHeader) {
        if header.is_transactional() {
            self.open.entry(header.producer_id).or_insert(header.base_offset);
        }
    }

    /// A control batch.
    pub fn on_marker(&mut self, header: &records::BatchHeader, marker: Marker) {
        match marker {
            Marker::Other => {}
            Marker::Commit | Marker::Emptied => _ = self.open.remove(&header.producer_id),
            Marker::Abort => {
                if let Some(first_offset) = self.open.remove(&header.producer_id) {
                    let last_offset = header.last_offset();
                    self.aborted.push(AbortedRange {
                        producer_id: header.producer_id,
                        first_offset,
                        last_offset,
                    });
                }
            }
        }
    }

    /// Whether the marker of a transaction is still to come.
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub fn into_ranges(self) -> AbortedRanges {
        AbortedRanges::new(self.aborted)
    }
}
