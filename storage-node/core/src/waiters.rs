//! Those who wait for a mark of the log to come, as plain data: by the offset that they wait for, and by deadline. Producers
//! wait for the high watermark; who deletes records waits for the low watermark, the least log start of the replicas.

use std::collections::{BTreeMap, BTreeSet};

use proto_types::ids::{Millis, Offset};

use crate::input::Ticket;

/// One that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter<A> {
    pub(crate) ticket: Ticket,
    /// What is known already of the answer once the mark has come.
    pub(crate) answer: A,
    pub(crate) deadline: Millis,
}

/// All of a kind that wait at one partition. A waiter is keyed by the offset that the mark must reach.
#[derive(Debug)]
pub(crate) struct Waiters<A> {
    by_offset: BTreeMap<(Offset, Ticket), Waiter<A>>,
    by_deadline: BTreeSet<(Millis, Offset, Ticket)>,
}

impl<A> Default for Waiters<A> {
    fn default() -> Self {
        Self { by_offset: BTreeMap::new(), by_deadline: BTreeSet::new() }
    }
}

impl<A> Waiters<A> {
    pub(crate) fn len(&self) -> usize {
        self.by_offset.len()
    }

    /// Adds one that waits until the mark reaches `needed`.
    pub(crate) fn add(&mut self, needed: Offset, waiter: Waiter<A>) {
        self.by_deadline.insert((waiter.deadline, needed, waiter.ticket));
        let before = self.by_offset.insert((needed, waiter.ticket), waiter);
        assert!(before.is_none(), "a ticket waits once");
    }

    /// Takes out those that the mark has reached, in the order of their offsets.
    pub(crate) fn take_reached(&mut self, mark: Offset) -> Vec<Waiter<A>> {
        let mut reached = Vec::new();
        while let Some(entry) = self.by_offset.first_entry() {
            let (needed, ticket) = *entry.key();
            if needed > mark {
                break;
            }
            let waiter = entry.remove();
            self.by_deadline.remove(&(waiter.deadline, needed, ticket));
            reached.push(waiter);
        }
        reached
    }

    /// Takes out those who wait for an offset above `above`.
    pub(crate) fn take_above(&mut self, above: Offset) -> Vec<Waiter<A>> {
        let above = self.by_offset.split_off(&(Offset(above.0.saturating_add(1)), Ticket(0)));
        for (&(needed, ticket), waiter) in &above {
            self.by_deadline.remove(&(waiter.deadline, needed, ticket));
        }
        above.into_values().collect()
    }

    /// Takes out those whose deadline has come.
    pub(crate) fn take_expired(&mut self, now: Millis) -> Vec<Waiter<A>> {
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
    pub(crate) fn take_all(&mut self) -> Vec<Waiter<A>> {
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

    /// The largest offset up to `mark` that somebody waits for.
    pub(crate) fn last_needed_to(&self, mark: Offset) -> Option<Offset> {
        let last = self.by_offset.range(..=(mark, Ticket(u64::MAX))).next_back();
        last.map(|(&(needed, _), _)| needed)
    }

    /// Both orders hold the same waiters.
    pub(crate) fn is_consistent(&self) -> bool {
        self.by_offset.len() == self.by_deadline.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(ticket: u64, deadline: i64) -> Waiter<()> {
        Waiter { ticket: Ticket(ticket), answer: (), deadline: Millis(deadline) }
    }

    fn tickets(waiters: Vec<Waiter<()>>) -> Vec<u64> {
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
        let last_needed_to = |mark| waiters.last_needed_to(Offset(mark));
        assert_eq!(
            (last_needed_to(4), last_needed_to(5), last_needed_to(9)),
            (None, Some(Offset(5)), Some(Offset(5)))
        );
        assert_eq!((last_needed_to(19), last_needed_to(99)), (Some(Offset(10)), Some(Offset(20))));
        assert_eq!(tickets(waiters.take_expired(Millis(99))), [] as [u64; 0]);
        assert_eq!(tickets(waiters.take_expired(Millis(100))), [3]);
        assert_eq!(tickets(waiters.take_reached(Offset(10))), [2, 1]);
        assert_eq!((waiters.first_needed(), waiters.len()), (Some(Offset(20)), 1));
        assert_eq!(tickets(waiters.take_above(Offset(20))), [] as [u64; 0]);
        waiters.add(Offset(21), waiter(5, 100));
        assert_eq!(tickets(waiters.take_above(Offset(20))), [5]);
        assert_eq!(waiters.next_deadline(), Some(Millis(200)));
        assert_eq!(tickets(waiters.take_all()), [4]);
        assert_eq!(waiters.next_deadline(), None);
        assert!(waiters.is_consistent());
    }
}
