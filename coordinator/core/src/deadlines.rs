//! [`Deadlines`]: time-outs as data. Setting a deadline replaces the earlier one of the same name.

use std::collections::{BTreeSet, HashMap};

use kafka_wire_core::Str;

/// What a deadline is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Deadline {
    /// Members of the group must have joined.
    Join(Str),
    /// Members of the group must have asked for their part.
    Sync(Str),
    /// The member of the group must have been heard; for one without membership yet, it must have come back.
    Session(Str, Str),
    /// Expired offsets are due to be looked for.
    Expiry,
}

/// All deadlines of a shard, on the monotonic clock in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    queue: BTreeSet<(i64, Deadline)>,
    // Never iterated, so its order reaches no output.
    by_name: HashMap<Deadline, i64>,
}

impl Deadlines {
    pub(crate) fn set(&mut self, deadline: Deadline, at: i64) {
        if let Some(before) = self.by_name.insert(deadline.clone(), at) {
            if before == at {
                return;
            }
            self.queue.remove(&(before, deadline.clone()));
        }
        self.queue.insert((at, deadline));
    }

    pub(crate) fn cancel(&mut self, deadline: Deadline) {
        if let Some(at) = self.by_name.remove(&deadline) {
            self.queue.remove(&(at, deadline));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<i64> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes out the earliest deadline if it has come.
    pub(crate) fn pop_due(&mut self, now: i64) -> Option<Deadline> {
        if self.next()? > now {
            return None;
        }
        let (_, deadline) = self.queue.pop_first()?;
        self.by_name.remove(&deadline);
        Some(deadline)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_moved_not_doubled() {
        let mut deadlines = Deadlines::default();
        let session = Deadline::Session("g".into(), "m".into());
        deadlines.set(session.clone(), 10);
        deadlines.set(Deadline::Join("g".into()), 15);
        deadlines.set(session.clone(), 20);
        assert_eq!((deadlines.len(), deadlines.next()), (2, Some(15)));
        assert_eq!(deadlines.pop_due(14), None);
        assert_eq!(deadlines.pop_due(20), Some(Deadline::Join("g".into())));
        assert_eq!(deadlines.pop_due(20), Some(session.clone()));
        deadlines.set(session.clone(), 30);
        deadlines.cancel(session);
        assert_eq!(deadlines.next(), None);
    }
}
