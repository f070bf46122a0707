//! When a follower last had everything that its leader had.
//!
//! A follower at the leader's end has everything *now*; an idle partition's follower is therefore never behind. Of one
//! that is not, one probe is kept: an end of the leader, and when the leader had it. An ack that reaches the probe proves
//! that the follower had everything of that moment, and the next probe is taken. All times are of the leader's monotonic
//! clock, so neither a jump of a wall clock nor a follower's clock matters.

use proto_types::ids::{Millis, Offset};

/// The clock of one follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LagClock {
    /// It had everything at this time, or later.
    caught_up: Millis,
    probe: Option<(Offset, Millis)>,
}

impl LagClock {
    /// Nothing is known: the follower is given the benefit of the doubt from `now` on.
    pub(crate) fn new(now: Millis) -> Self {
        Self { caught_up: now, probe: None }
    }

    /// The leader's end is `end` from now on; before, the follower was at it, or was not.
    pub(crate) fn on_leader_end(&mut self, was_at_end: bool, end: Offset, now: Millis) {
        if was_at_end {
            self.caught_up = now;
            self.probe = None;
        }
        self.probe.get_or_insert((end, now));
    }

    /// The follower is at `position`, the leader at `end`.
    pub(crate) fn on_ack(&mut self, position: Offset, end: Offset, now: Millis) {
        if position >= end {
            self.caught_up = now;
            self.probe = None;
            return;
        }
        if let Some((probed, at)) = self.probe
            && position >= probed
        {
            self.caught_up = self.caught_up.max(at);
            self.probe = None;
        }
        self.probe.get_or_insert((end, now));
    }

    /// The follower was at the leader's end until now, and may not be any more.
    pub(crate) fn on_lost_sight(&mut self, now: Millis) {
        self.caught_up = now;
    }

    /// Since when the follower lacks something, if it does.
    pub(crate) fn caught_up(&self) -> Millis {
        self.caught_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caught_up(clock: &LagClock) -> i64 {
        clock.caught_up().0
    }

    #[test]
    fn it_advances_by_what_the_leader_had_when_it_looked() {
        let mut clock = LagClock::new(Millis(0));
        clock.on_leader_end(true, Offset(10), Millis(100));
        clock.on_leader_end(false, Offset(20), Millis(200));
        clock.on_ack(Offset(9), Offset(20), Millis(300));
        assert_eq!(caught_up(&clock), 100, "at 100 it had everything");
        clock.on_ack(Offset(10), Offset(20), Millis(400));
        assert_eq!(caught_up(&clock), 100);
        clock.on_leader_end(false, Offset(30), Millis(500));
        clock.on_ack(Offset(20), Offset(30), Millis(600));
        assert_eq!(caught_up(&clock), 400, "20 was the end at 400");
        clock.on_ack(Offset(30), Offset(30), Millis(700));
        assert_eq!(caught_up(&clock), 700);
    }

    #[test]
    fn a_follower_that_never_reaches_the_end_but_keeps_pace_does_not_fall_behind() {
        let mut clock = LagClock::new(Millis(0));
        for tick in 1..1_000 {
            clock.on_leader_end(false, Offset(tick * 10), Millis(tick));
            clock.on_ack(Offset((tick - 1) * 10), Offset(tick * 10), Millis(tick));
            assert!(tick - caught_up(&clock) <= 3, "{tick}: {clock:?}");
        }
    }
}
