//! Producers that wait for the high watermark, as plain data: by the offset that they wait for, and by deadline.

use std::collections::{BTreeMap, BTreeSet};

use proto_types::ids::{Millis, Offset};

use crate::action::Produced;
use crate::input::Ticket;

/// One producer that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    /// The answer once the high watermark has come.
    pub(crate) produced: Produced,
    pub(crate) deadline: Millis,
}

/// All producers that wait at one partition. A waiter is keyed by the offset that the high watermark must reach.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_offset: BTreeMap<(Offset, Ticket), Waiter>,
    by_deadline: BTreeSet<(Millis, Offset, Ticket)>,
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.by_offset.len()
    }

    /// Adds one that waits until the high watermark reaches `needed`.
    pub(crate) fn add(&mut self, needed: Offset, waiter: Waiter) {
        self.by_deadline.insert((waiter.deadline, needed, waiter.ticket));
        let before = self.by_offset.insert((needed, waiter.ticket), waiter);
        assert!(before.is_none(), "a ticket waits once");
    }

    /// Takes out those that the high watermark has reached, in the order of their offsets.
    pub(crate) fn take_reached(&mut self, high_watermark: Offset) -> Vec<Waiter> {
        let mut reached = Vec::new();
        while let Some(entry) = self.by_offset.first_entry() {
            let (needed, ticket) = *entry.key();
            if needed > high_watermark {
                break;
            }
            let waiter = entry.remove();
            self.by_deadline.remove(&(waiter.deadline, needed, ticket));
            reached.push(waiter);
        }
        reached
    }

    /// Takes out those whose deadline has come.
    pub(crate) fn take_expired(&mut self, now: Millis) -> Vec<Waiter> {
        let mut expired = Vec::new();
        while let Some(&(deadline, needed, ticket)) = self.by_deadline.first() {
            if deadline > now {
                break;
            }
            self.by_deadline.pop_first();
            expired.extend(self.by_offset.remove(&(needed, ticket)));
        }
        expired
    }

    /// Takes out all.
    pub(crate) fn take_all(&mut self) -> Vec<Waiter> {
        self.by_deadline.clear();
        std::mem::take(&mut self.by_offset).into_values().collect()
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        self.by_deadline.first().map(|&(deadline, _, _)| deadline)
    }

    /// The smallest offset that somebody waits for.
    pub(crate) fn first_needed(&self) -> Option<Offset> {
        self.by_offset.first_key_value().map(|(&(needed, _), _)| needed)
    }

    /// Both orders hold the same waiters.
    pub(crate) fn is_consistent(&self) -> bool {
        self.by_offset.len() == self.by_deadline.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(ticket: u64, deadline: i64) -> Waiter {
        let produced = Produced { base_offset: Offset(0), duplicate_of: None, log_start: Offset(0) };
        Waiter { ticket: Ticket(ticket), produced, deadline: Millis(deadline) }
    }

    fn tickets(waiters: Vec<Waiter>) -> Vec<u64> {
        waiters.into_iter().map(|waiter| waiter.ticket.0).collect()
    }

    #[test]
    fn taken_by_offset_or_by_deadline_but_once() {
        let mut waiters = Waiters::default();
        waiters.add(Offset(10), waiter(1, 500));
        waiters.add(Offset(5), waiter(2, 900));
        waiters.add(Offset(10), waiter(3, 100));
        waiters.add(Offset(20), waiter(4, 200));
        assert_eq!(waiters.next_deadline(), Some(Millis(100)));
        assert_eq!(tickets(waiters.take_expired(Millis(99))), [] as [u64; 0]);
        assert_eq!(tickets(waiters.take_expired(Millis(100))), [3]);
        assert_eq!(tickets(waiters.take_reached(Offset(10))), [2, 1]);
        assert_eq!((waiters.first_needed(), waiters.len()), (Some(Offset(20)), 1));
        assert_eq!(tickets(waiters.take_all()), [4]);
        assert_eq!(waiters.next_deadline(), None);
        assert!(waiters.is_consistent());
    }
}
