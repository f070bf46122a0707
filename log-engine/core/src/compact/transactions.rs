//! Which data are of aborted transactions, and what a control batch says.

use std::collections::BinaryHeap;

use records::{BatchHeader, BatchView, EndMarker};

use crate::AbortedTransaction;

/// Aborted transactions of a stretch of a log.
#[derive(Debug, Clone)]
pub struct AbortedRanges {
    /// In order.
    ranges: Vec<AbortedRange>,
    known_to: i64,
}

/// From the first record to the marker. Ordered by its first offset among those of one producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AbortedRange {
    producer_id: i64,
    first_offset: i64,
    last_offset: i64,
}

impl Default for AbortedRanges {
    /// Of a log without aborted transactions.
    fn default() -> AbortedRanges {
        AbortedRanges { ranges: Vec::new(), known_to: i64::MAX }
    }
}

impl AbortedRanges {
    /// These are all that there are.
    pub fn new(aborted: impl IntoIterator<Item = AbortedTransaction>) -> AbortedRanges {
        let range = |entry: AbortedTransaction| AbortedRange {
            producer_id: entry.producer_id,
            first_offset: entry.first_offset,
            last_offset: entry.last_offset,
        };
        let mut ranges: Vec<AbortedRange> = aborted.into_iter().map(range).collect();
        ranges.sort_unstable();
        AbortedRanges { ranges, known_to: i64::MAX }
    }

    /// Of batches that begin below this offset it is known whether they are void.
    pub fn known_to(&self) -> i64 {
        self.known_to
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<AbortedRange>()
    }

    /// Whether a batch is void.
    pub fn holds(&self, batch: &BatchHeader) -> bool {
        if !batch.is_transactional() || batch.is_control() {
            return false;
        }
        // Transactions of one producer follow each other.
        let begun = (batch.producer_id, batch.base_offset);
        let after = self.ranges.partition_point(|range| (range.producer_id, range.first_offset) <= begun);
        let last_begun = after.checked_sub(1).map(|at| &self.ranges[at]);
        last_begun
            .is_some_and(|range| range.producer_id == begun.0 && batch.last_offset() <= range.last_offset)
    }
}

/// Collects the aborted transactions of a stretch of a log within fixed memory. If there are more, the stretch ends earlier:
/// it always reaches beyond where it begins, so that passes get to the end of the log.
#[derive(Debug)]
pub struct AbortedCollector {
    from: i64,
    known_to: i64,
    entries_max: usize,
    /// Those that begin below `known_to`, the one that begins last on top: first offset, producer, marker.
    found: BinaryHeap<(i64, i64, i64)>,
}

impl AbortedCollector {
    /// For what begins in `from..until`. Those that were open at `from`, of a producer one at most, have their place in any
    /// case.
    pub fn new(from: i64, until: i64, bytes_max: usize) -> AbortedCollector {
        // A vector that grows has room for twice as many as are in it.
        let entries_max = (bytes_max / size_of::<AbortedRange>() / 2).max(1);
        AbortedCollector { from, known_to: until.max(from), entries_max, found: BinaryHeap::new() }
    }

    /// Takes the next aborted transaction in the order of their markers. Answers up to where those matter that are still to
    /// come: if none that begins below is open any more, there are no others.
    pub fn take(&mut self, entry: &AbortedTransaction) -> i64 {
        if entry.last_offset < self.from || entry.first_offset >= self.known_to {
            return self.known_to;
        }
        self.found.push((entry.first_offset, entry.producer_id, entry.last_offset));
        if self.found.len() > self.entries_max
            && let Some(last) = self.found.peek().map(|&(first_offset, ..)| first_offset)
            && last > self.from
        {
            self.found.pop();
            self.known_to = last;
        }
        self.known_to
    }

    /// Up to where those matter that are still to come.
    pub fn known_to(&self) -> i64 {
        self.known_to
    }

    /// All have been taken.
    pub fn finish(self) -> AbortedRanges {
        let range = |(first_offset, producer_id, last_offset)| AbortedRange {
            producer_id,
            first_offset,
            last_offset,
        };
        // In the memory of the heap.
        let mut ranges: Vec<AbortedRange> = self.found.into_vec().into_iter().map(range).collect();
        ranges.sort_unstable();
        AbortedRanges { ranges, known_to: self.known_to }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Transactions of a few producers that each begin and are aborted one after the other, in the order of their markers.
    fn transactions(steps: &[(i64, bool)]) -> Vec<AbortedTransaction> {
        let (mut open, mut aborted) = (Vec::<(i64, i64)>::new(), Vec::new());
        for (offset, &(producer_id, waits)) in (0i64..).zip(steps) {
            match open.iter().position(|&(id, _)| id == producer_id) {
                None => open.push((producer_id, offset)),
                Some(_) if waits => {}
                Some(at) => {
                    let (_, first_offset) = open.remove(at);
                    let last_stable_offset = open.iter().map(|&(_, first)| first).min().unwrap_or(offset + 1);
                    aborted.push(AbortedTransaction {
                        producer_id,
                        first_offset,
                        last_offset: offset,
                        last_stable_offset,
                    });
                }
            }
        }
        aborted
    }

    proptest! {
        #[test]
        fn all_that_begin_below_the_end_are_known_within_the_budget(
            steps in prop::collection::vec((0i64..12, prop::bool::weighted(0.3)), 0..300),
            (from, length) in (0i64..300, 1i64..300),
            entries_max in 1usize..20,
        ) {
            let (all, until) = (transactions(&steps), from + length);
            let bytes_max = 2 * entries_max * size_of::<AbortedRange>();
            let mut collector = AbortedCollector::new(from, until, bytes_max);
            for entry in all.iter().filter(|entry| entry.last_offset >= from) {
                if entry.last_stable_offset >= collector.take(entry) {
                    break;
                }
            }
            let found = collector.finish();
            prop_assert!(found.known_to() > from && found.known_to() <= until);
            let expected = |to: i64| {
                let within = |e: &&AbortedTransaction| e.last_offset >= from && e.first_offset < to;
                AbortedRanges::new(all.iter().filter(within).copied()).ranges
            };
            prop_assert_eq!(&found.ranges, &expected(found.known_to()));
            let open_at_from = expected(from + 1).len();
            prop_assert!(found.ranges.len() <= entries_max.max(open_at_from));
            prop_assert!(found.bytes() <= bytes_max.max(4 * (open_at_from + 1) * size_of::<AbortedRange>()));
            // It ends no earlier than it must.
            if found.known_to() < until {
                prop_assert!(expected(found.known_to() + 1).len() > entries_max);
            }
        }
    }
}
