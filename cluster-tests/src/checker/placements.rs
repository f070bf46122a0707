//! What stands where, as acknowledgements and reads tell it.

use super::{Report, Violation};
use crate::history::{EventKind, History};

/// Offsets and values of every partition.
#[derive(Debug, Default)]
pub(super) struct Placements {
    partitions: Vec<Partition>,
}

#[derive(Debug, Default)]
struct Partition {
    /// Each (offset, value) that anybody was told of, sorted, once.
    known: Vec<(i64, u64)>,
    /// Each (value, offset), sorted, once.
    by_value: Vec<(u64, i64)>,
    /// Each offset at which somebody read something, sorted, once.
    read: Vec<i64>,
}

impl Placements {
    pub(super) fn of(history: &History) -> Placements {
        let mut partitions: Vec<Partition> = Vec::new();
        for event in &history.events {
            let index = usize::from(event.partition);
            if partitions.len() <= index {
                partitions.resize_with(index + 1, Partition::default);
            }
            let partition = &mut partitions[index];
            match event.kind {
                EventKind::Acknowledged { value, offset } => partition.known.push((offset, value)),
                EventKind::Polled { offset, value, .. } => {
                    partition.known.push((offset, value));
                    partition.read.push(offset);
                }
                EventKind::Malformed { offset } => partition.read.push(offset),
                EventKind::Send { .. }
                | EventKind::AcknowledgedSomewhere { .. }
                | EventKind::Refused { .. }
                | EventKind::Unknown { .. }
                | EventKind::Assigned { .. }
                | EventKind::End { .. }
                | EventKind::Closed => {}
            }
        }
        for partition in &mut partitions {
            partition.known.sort_unstable();
            partition.known.dedup();
            partition.by_value = partition.known.iter().map(|(offset, value)| (*value, *offset)).collect();
            partition.by_value.sort_unstable();
            partition.read.sort_unstable();
            partition.read.dedup();
        }
        Placements { partitions }
    }

    /// One value at each offset, one offset for each value.
    pub(super) fn check(&self, report: &mut Report) {
        for (partition, placed) in (0_u16..).zip(&self.partitions) {
            for pair in placed.known.windows(2) {
                if let [(offset, one), (other_offset, other)] = *pair
                    && offset == other_offset
                {
                    report.add(Violation::InconsistentOffset { partition, offset, values: (one, other) });
                }
            }
            for pair in placed.by_value.windows(2) {
                if let [(value, one), (other_value, other)] = *pair
                    && value == other_value
                {
                    report.add(Violation::Duplicate { partition, value, offsets: (one, other) });
                }
            }
        }
    }

    fn partition(&self, partition: u16) -> Option<&Partition> {
        self.partitions.get(usize::from(partition))
    }

    /// The offset of a value, the lowest if there are several.
    pub(super) fn offset_of(&self, partition: u16, value: u64) -> Option<i64> {
        let by_value = &self.partition(partition)?.by_value;
        let at = by_value.partition_point(|(other, _)| *other < value);
        by_value.get(at).filter(|(found, _)| *found == value).map(|(_, offset)| *offset)
    }

    /// The lowest offset from `from` on at which something is known to stand.
    pub(super) fn next_known(&self, partition: u16, from: i64) -> Option<i64> {
        let known = &self.partition(partition)?.known;
        let at = known.partition_point(|(offset, _)| *offset < from);
        known.get(at).map(|(offset, _)| *offset)
    }

    /// Whether somebody read something at this offset.
    pub(super) fn was_read(&self, partition: u16, offset: i64) -> bool {
        self.partition(partition).is_some_and(|placed| placed.read.binary_search(&offset).is_ok())
    }

    /// The highest offset at which somebody read something.
    pub(super) fn highest_read(&self, partition: u16) -> Option<i64> {
        self.partition(partition)?.read.last().copied()
    }
}
