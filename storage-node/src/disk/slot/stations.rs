//! Where the batches of producers with `acks=all` have been: a few looks at the clock for each, none for a record.

use std::collections::VecDeque;
use std::time::Instant;

use proto_types::ids::Offset;
use storage_node_core::{FlushMode, Ticket};

use super::{Slot, Waiting};
use crate::partition::BatchTimes;

/// A batch on its way to be committed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stations {
    offered: Instant,
    taken: Instant,
    appended: Option<Instant>,
    flushed: Option<Instant>,
}

impl Stations {
    pub(super) fn new(offered: Instant, taken: Instant) -> Self {
        Self { offered, taken, appended: None, flushed: None }
    }

    /// All of its times, if it came here by all stations: a repetition does not.
    pub(super) fn committed_at(self, committed: Instant) -> Option<BatchTimes> {
        let Self { offered, taken, appended, flushed } = self;
        Some(BatchTimes { offered, taken, appended: appended?, flushed: flushed?, committed })
    }
}

/// Batches that are in the log and not on this disk, in the order of the log; of them those whose producers wait. As many as
/// may wait at a partition.
#[derive(Debug, Default)]
pub(super) struct AwaitedFlushes(VecDeque<(Offset, Ticket)>);

impl AwaitedFlushes {
    /// The batch of `ticket` ends at `end`, where the log ends. Not noted if as many are that were answered already.
    fn push(&mut self, end: Offset, ticket: Ticket, max: usize) {
        // The log was cut since, and who waited for what was cut away was refused.
        while self.0.pop_back_if(|(other, _)| *other >= end).is_some() {}
        if self.0.len() < max {
            self.0.push_back((end, ticket));
        }
    }

    /// The next that is on the disk once everything below `flushed` is.
    fn pop_below(&mut self, flushed: Offset) -> Option<Ticket> {
        self.0.pop_front_if(|(end, _)| *end <= flushed).map(|(_, ticket)| ticket)
    }
}

impl Slot {
    /// The batch of `ticket` is in the log, up to `end`.
    pub(super) fn note_appended(&mut self, ticket: Ticket, end: Offset) {
        let Some(Waiting::Produce(waiting)) = self.waiting.get_mut(&ticket) else { return };
        let Some(stations) = &mut waiting.stations else { return };
        let now = self.clock.now();
        stations.appended = Some(now);
        match self.settings.replica.flush {
            FlushMode::Ack => self.awaited_flushes.push(end, ticket, self.settings.replica.waiters_max),
            FlushMode::Os => stations.flushed = Some(now),
        }
    }

    /// Everything below `flushed` is on the disk.
    pub(super) fn note_flushed(&mut self, flushed: Offset) {
        let mut now = None;
        while let Some(ticket) = self.awaited_flushes.pop_below(flushed) {
            if let Some(Waiting::Produce(waiting)) = self.waiting.get_mut(&ticket)
                && let Some(stations) = &mut waiting.stations
            {
                stations.flushed = Some(*now.get_or_insert_with(|| self.clock.now()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop_all(awaited: &mut AwaitedFlushes, flushed: i64) -> Vec<u64> {
        std::iter::from_fn(|| awaited.pop_below(Offset(flushed))).map(|ticket| ticket.0).collect()
    }

    #[test]
    fn a_flush_takes_what_it_covers_and_a_cut_what_it_cut() {
        let mut awaited = AwaitedFlushes::default();
        for (end, ticket) in [(5, 1), (9, 2), (12, 3)] {
            awaited.push(Offset(end), Ticket(ticket), 4);
        }
        assert_eq!(pop_all(&mut awaited, 8), [1]);
        // The log was cut at 7 or before, then it grew again.
        awaited.push(Offset(8), Ticket(4), 4);
        assert_eq!(pop_all(&mut awaited, 7), [] as [u64; 0]);
        assert_eq!(pop_all(&mut awaited, 8), [4]);
        assert_eq!(pop_all(&mut awaited, 99), [] as [u64; 0]);
    }

    #[test]
    fn there_is_an_end_to_what_is_noted() {
        let mut awaited = AwaitedFlushes::default();
        (0..10).for_each(|n| awaited.push(Offset(n), Ticket(n.unsigned_abs()), 3));
        assert_eq!(pop_all(&mut awaited, 99), [0, 1, 2]);
    }
}
