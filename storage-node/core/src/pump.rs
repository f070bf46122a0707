//! What a leader sends next in one session: a cursor into its log, the follower's credit, and the marks that it knows.
//!
//! One pump belongs to one session of one leader epoch. Never are more bytes on their way than the follower has granted, but
//! one batch always fits. Whoever writes the lane asks [`Pump::next`] when the partition's view
//! has changed, or credit came, or the last push is written; nothing is sent that was not asked for then, so marks that move
//! while a lane is busy are sent once. Data goes up to the leader's end, committed or not.

use proto_types::ids::{LeaderEpoch, Offset};
use proto_types::replication_api::Marks;

use crate::view::{Standing, View};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pump {
    leader_epoch: LeaderEpoch,
    next: Offset,
    /// Bytes that may be sent. Below zero after a batch that is larger than the whole window.
    credit: i64,
    /// The credit while nothing is on its way.
    window: i64,
    /// The next batch is larger than the credit.
    starved: bool,
    /// Credit came since the last push was asked for: reading for it may have taken long.
    granted: bool,
    /// What the follower knows, if anything was pushed.
    marks: Option<Marks>,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PumpStep {
    /// Nothing, until the view changes or credit comes.
    Idle,
    /// Send the marks alone. They count as sent.
    Marks(Marks),
    /// Send batches, and tell [`Pump::pushed`] or [`Pump::on_nothing_fits`].
    Push(Push),
    /// The session is over: the leadership is, or the log begins after what the follower needs next.
    Over,
}

/// Whole batches to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Push {
    pub from: Offset,
    /// The leader's end.
    pub to: Offset,
    pub bytes_max: u64,
    /// One batch goes whatever its size: nothing is on its way.
    pub at_least_one: bool,
    /// To go with them.
    pub marks: Marks,
}

impl Pump {
    /// For a session that has begun with a follower whose log ends at `next`.
    pub fn new(leader_epoch: LeaderEpoch, next: Offset, credit_bytes: u64) -> Self {
        let credit = as_credit(credit_bytes).max(1);
        Self { leader_epoch, next, credit, window: credit, starved: false, granted: false, marks: None }
    }

    /// What to send now, at most `bytes_max` at once.
    pub fn next(&mut self, view: &View, bytes_max: u64) -> PumpStep {
        // Planted: sessions are not bound to an epoch.
        let same_epoch = view.leader_epoch == self.leader_epoch || cfg!(weir_planted_bug = "B2");
        if view.standing != Standing::Leader || !same_epoch || view.start > self.next {
            return PumpStep::Over;
        }
        let marks = Marks { log_start: view.start, high_watermark: view.high_watermark };
        if self.next < view.end && self.credit > 0 && !self.starved {
            self.granted = false;
            return PumpStep::Push(Push {
                from: self.next,
                to: view.end,
                bytes_max: u64::try_from(self.credit).unwrap_or(0).min(bytes_max),
                at_least_one: self.credit >= self.window,
                marks,
            });
        }
        if self.marks == Some(marks) {
            return PumpStep::Idle;
        }
        self.marks = Some(marks);
        PumpStep::Marks(marks)
    }

    /// Batches of `bytes` bytes were sent, with `marks`; `next` is the first offset after them.
    pub fn pushed(&mut self, next: Offset, bytes: u64, marks: Marks) {
        debug_assert!(next > self.next, "a push brings something");
        self.next = next;
        self.credit = self.credit.saturating_sub(as_credit(bytes));
        self.marks = Some(marks);
    }

    /// Not even the first batch fits into what the last push allowed: more credit has to come. If it has come since that push
    /// was asked for, perhaps nothing is on its way any more that could bring more, and the next push allows it. In any case ask
    /// [`Pump::next`] again: the marks may have moved.
    pub fn on_nothing_fits(&mut self) {
        self.starved = !self.granted;
    }

    /// The follower grants more.
    pub fn add_credit(&mut self, bytes: u64) {
        if bytes > 0 {
            self.credit = self.credit.saturating_add(as_credit(bytes));
            self.starved = false;
            self.granted = true;
        }
    }

    /// First offset that was not sent.
    pub fn position(&self) -> Offset {
        self.next
    }
}

fn as_credit(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 1 << 20;

    fn view(start: i64, high_watermark: i64, end: i64) -> View {
        View {
            standing: Standing::Leader,
            leader_epoch: LeaderEpoch(3),
            start: Offset(start),
            high_watermark: Offset(high_watermark),
            last_stable: Offset(high_watermark),
            end: Offset(end),
            committed_to_epoch_start: true,
        }
    }

    fn marks(log_start: i64, high_watermark: i64) -> Marks {
        Marks { log_start: Offset(log_start), high_watermark: Offset(high_watermark) }
    }

    fn pump(next: i64, credit: u64) -> Pump {
        Pump::new(LeaderEpoch(3), Offset(next), credit)
    }

    fn push(pump: &mut Pump, view: &View) -> Push {
        match pump.next(view, MAX) {
            PumpStep::Push(push) => push,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn data_goes_up_to_the_end_and_marks_follow_alone_once() {
        let mut pump = pump(5, 1_000);
        assert_eq!(pump.next(&view(0, 5, 5), MAX), PumpStep::Marks(marks(0, 5)));
        assert_eq!(pump.next(&view(0, 5, 5), MAX), PumpStep::Idle);
        let (from, to, at_least_one) = (Offset(5), Offset(9), true);
        let expected = Push { from, to, bytes_max: 1_000, at_least_one, marks: marks(0, 5) };
        assert_eq!(push(&mut pump, &view(0, 5, 9)), expected);
        assert_eq!(push(&mut pump, &view(0, 5, 9)), expected, "nothing was sent yet");
        pump.pushed(Offset(9), 400, marks(0, 5));
        assert_eq!(pump.position(), Offset(9));
        assert_eq!(pump.next(&view(0, 5, 9), MAX), PumpStep::Idle);
        assert_eq!(pump.next(&view(0, 9, 9), MAX), PumpStep::Marks(marks(0, 9)));
        assert_eq!(pump.next(&view(0, 9, 9), MAX), PumpStep::Idle);
        assert_eq!(pump.next(&view(2, 9, 9), MAX), PumpStep::Marks(marks(2, 9)));
    }

    #[test]
    fn no_more_is_on_its_way_than_was_granted_but_one_batch_always_fits() {
        let mut pump = pump(5, 1_000);
        pump.pushed(Offset(7), 700, marks(0, 5));
        let second = push(&mut pump, &view(0, 5, 9));
        assert_eq!((second.bytes_max, second.at_least_one), (300, false));
        pump.on_nothing_fits();
        assert_eq!(pump.next(&view(0, 5, 9), MAX), PumpStep::Idle);
        assert_eq!(pump.next(&view(0, 7, 9), MAX), PumpStep::Marks(marks(0, 7)), "marks need no credit");
        pump.add_credit(700);
        let alone = push(&mut pump, &view(0, 7, 9));
        assert_eq!((alone.bytes_max, alone.at_least_one), (1_000, true));
        pump.pushed(Offset(8), 5_000, marks(0, 7));
        assert_eq!(pump.next(&view(0, 7, 9), MAX), PumpStep::Idle);
        pump.add_credit(4_000);
        assert_eq!(pump.next(&view(0, 7, 9), MAX), PumpStep::Idle);
        pump.add_credit(1_000);
        assert_eq!(push(&mut pump, &view(0, 7, 9)).bytes_max, 1_000);
    }

    #[test]
    fn credit_that_comes_while_a_push_is_read_counts_for_the_next_one() {
        let mut pump = pump(5, 1_000);
        pump.pushed(Offset(7), 700, marks(0, 5));
        assert_eq!(push(&mut pump, &view(0, 5, 9)).bytes_max, 300);
        // All that was on its way is acknowledged while the next batch, of more than 300 bytes, comes from a disk.
        pump.add_credit(700);
        pump.on_nothing_fits();
        let alone = push(&mut pump, &view(0, 5, 9));
        assert_eq!((alone.bytes_max, alone.at_least_one), (1_000, true), "no other credit would ever come");
        pump.on_nothing_fits();
        assert_eq!(pump.next(&view(0, 5, 9), MAX), PumpStep::Idle, "that credit has counted");
    }

    #[test]
    #[cfg(not(weir_planted_bug = "B2"))]
    fn a_session_ends_with_the_leadership_or_where_the_log_begins_later() {
        let mut pump = pump(5, 10);
        let mut over = |view: View| pump.next(&view, MAX) == PumpStep::Over;
        assert!(over(View { leader_epoch: LeaderEpoch(4), ..view(0, 5, 9) }));
        for standing in [Standing::Follower, Standing::NotLeader, Standing::Failed] {
            assert!(over(View { standing, ..view(0, 5, 9) }));
        }
        assert!(over(view(6, 6, 9)));
        assert!(!over(view(5, 5, 9)));
    }
}
