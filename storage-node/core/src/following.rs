//! What only a follower does: find a session with the leader, cut what the leader does not have, append what it sends, and
//! take over its marks.
//!
//! A session belongs to one leader epoch, and is numbered. Whatever comes of another session, or in another state than it
//! belongs to, is dropped: it may be an answer that was on its way for long. Marks are taken over only in a session that has
//! begun, when nothing is left in the log that the leader does not have.

use log_engine_core::EpochHistory;
use proto_types::ids::{LeaderEpoch, Millis, NodeId, Offset};
use proto_types::replication_api::{Marks, SessionAnswer};

use crate::action::Action;
use crate::backoff::Backoff;
use crate::divergence::{self, Cut};
use crate::input::{LeaderBatches, LogFacts, SessionKey};
use crate::replica::Positions;

/// A leader that does not answer for so long is asked again: the connection tells sooner when it is broken.
const OPEN_MS_MAX: i64 = 10_000;
/// After so long a start that found no room is tried again, also if the leader has nothing new to say.
const START_RETRY_MS: i64 = 1_000;

/// The state of a follower.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) leader: NodeId,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) stage: Stage,
    backoff: Backoff,
    /// What this leader had dropped when the log, empty then, began to be copied from it. Only with this leader's own offset of
    /// the same epoch can it be compared: in that time its log is one log, and whatever it drops raises the offset. Another
    /// leader's copy drops at its own pace, so that its lower offset may stand for a tombstone that the first one still had.
    told_dropped: Option<Offset>,
}

/// How far a follower is with its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The leader will be asked for a session then.
    Waiting { until: Millis },
    /// The leader was asked.
    Opening { session: SessionKey, since: Millis },
    /// The log is being cut, or begun anew.
    Cutting,
    /// The leader sends what it has.
    Begun(Begun),
}

/// A session that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) session: SessionKey,
    /// What the leader was told of this log: appended and flushed end.
    told: Option<(Offset, Offset)>,
    /// What it was told of this log's start.
    told_start: Offset,
    /// The newest marks of the leader. Batches that were sent before may come to be appended after them.
    marks: Marks,
    /// The log's start was to move and could not; when that is tried again.
    start_again: Option<Millis>,
    /// Batches that are being appended: where they end, and the marks that came with them.
    pub(crate) appending: Option<(Offset, Marks)>,
}

impl Following {
    pub(crate) fn new(leader: NodeId, epoch: LeaderEpoch, now: Millis) -> Self {
        let (stage, backoff) = (Stage::Waiting { until: now }, Backoff::default());
        Self { leader, epoch, stage, backoff, told_dropped: None }
    }

    /// The session that the leader knows of, or will.
    pub(crate) fn session(&self) -> Option<SessionKey> {
        match self.stage {
            Stage::Opening { session, .. } => Some(session),
            Stage::Begun(begun) => Some(begun.session),
            Stage::Waiting { .. } | Stage::Cutting => None,
        }
    }

    /// Asks the leader for a session if it is the time; tells it where this log stands if it does not know. `next_session`
    /// is the number of the next session.
    pub(crate) fn settle(
        &mut self,
        now: Millis,
        positions: &Positions,
        epochs: &EpochHistory,
        next_session: &mut u64,
        actions: &mut Vec<Action>,
    ) {
        match &mut self.stage {
            Stage::Opening { since, .. } if now.0.saturating_sub(since.0) >= OPEN_MS_MAX => {
                self.give_up(now, actions);
            }
            Stage::Waiting { until } if *until <= now => {
                *next_session += 1;
                let session = SessionKey(*next_session);
                self.stage = Stage::Opening { session, since: now };
                actions.push(Action::OpenSession {
                    leader: self.leader,
                    session,
                    leader_epoch: self.epoch,
                    log_start: positions.start,
                    log_end: positions.end,
                    last_epoch: divergence::last_epoch(positions, epochs),
                });
            }
            Stage::Begun(begun) => {
                begun.retry_start(now, positions, actions);
                if positions.start > begun.told_start {
                    begun.told_start = positions.start;
                    let (session, log_start) = (begun.session, positions.start);
                    actions.push(Action::TellStart { session, log_start });
                }
                let facts = (positions.end, positions.flushed);
                if begun.told != Some(facts) {
                    begun.told = Some(facts);
                    let (appended, flushed) = facts;
                    actions.push(Action::Ack { session: begun.session, appended, flushed });
                }
            }
            Stage::Waiting { .. } | Stage::Opening { .. } | Stage::Cutting => {}
        }
    }

    /// The leader's answer to the session that was asked for. The marks, if it has begun.
    pub(crate) fn on_answer(
        &mut self,
        session: SessionKey,
        answer: SessionAnswer,
        positions: &Positions,
        log: LogFacts<'_>,
        now: Millis,
        actions: &mut Vec<Action>,
    ) -> Option<Marks> {
        match self.stage {
            Stage::Opening { session: asked, .. } if asked == session => {}
            Stage::Opening { .. } | Stage::Waiting { .. } | Stage::Cutting | Stage::Begun(_) => return None,
        }
        match answer {
            SessionAnswer::Begins { marks } => return Some(self.begin(session, marks, positions)),
            // It was told of as much, by this very log, before it copied the first record; and that is on its disk.
            SessionAnswer::BeginsCompacted { marks, dropped_to }
                if self.told_dropped.is_some_and(|told| dropped_to <= told.min(log.dropped_to)) =>
            {
                return Some(self.begin(session, marks, positions));
            }
            // It has nothing that should be gone, and copies from here on what compaction has left. But it may lead before
            // it has compacted anything itself, and then it must know.
            SessionAnswer::BeginsCompacted { marks, dropped_to } if positions.start == positions.end => {
                actions.push(Action::NoteDropped { session, to: dropped_to });
                self.told_dropped = Some(dropped_to);
                return Some(self.begin(session, marks, positions));
            }
            SessionAnswer::BeginsCompacted { marks, .. } => {
                actions.push(Action::CloseSession { session });
                actions.push(Action::StartOver { start: marks.log_start });
                self.stage = Stage::Cutting;
            }
            SessionAnswer::Diverged { epoch, end } => {
                let cut = divergence::cut(positions, log.epochs, epoch, end);
                self.cut(cut, positions, now, actions);
            }
            SessionAnswer::StartsLater { start } => {
                self.cut(Cut::Restart(start), positions, now, actions);
            }
            SessionAnswer::WrongEpoch { .. } | SessionAnswer::NotServed => self.wait(now),
        }
        None
    }

    fn begin(&mut self, session: SessionKey, marks: Marks, positions: &Positions) -> Marks {
        // The start was told when the session was asked for, and nothing but a session moves it.
        let told_start = positions.start;
        let begun = Begun { session, told: None, told_start, marks, start_again: None, appending: None };
        self.stage = Stage::Begun(begun);
        marks
    }

    /// The leader's marks: the newest that are known of this session, since they never move back in it.
    pub(crate) fn on_marks(&mut self, marks: Marks) -> Marks {
        match &mut self.stage {
            Stage::Begun(begun) => begun.newest(marks),
            Stage::Waiting { .. } | Stage::Opening { .. } | Stage::Cutting => marks,
        }
    }

    /// The start could not be moved.
    pub(crate) fn on_start_refused(&mut self, now: Millis) {
        if let Stage::Begun(begun) = &mut self.stage {
            begun.start_again = Some(Millis(now.0.saturating_add(START_RETRY_MS)));
        }
    }

    /// Gives records up. Asks for a session again when that has happened.
    fn cut(&mut self, cut: Cut, positions: &Positions, now: Millis, actions: &mut Vec<Action>) {
        let below = |offset: Offset| Some(positions.high_watermark).filter(|&known| offset < known);
        let action = match cut {
            Cut::Truncate(to) if to >= positions.end => return self.wait(now),
            Cut::Truncate(to) => Action::Truncate { to, below_high_watermark: below(to) },
            Cut::Restart(start) if start < Offset(0) => return self.wait(now),
            Cut::Restart(start) => Action::RestartAt { start, below_high_watermark: below(start) },
        };
        self.stage = Stage::Cutting;
        actions.push(action);
    }

    /// The log was cut.
    pub(crate) fn on_cut(&mut self, now: Millis) {
        assert_eq!(self.stage, Stage::Cutting, "a cut was asked for");
        self.stage = Stage::Waiting { until: now };
    }

    /// Batches of the leader. They are appended if they continue this log.
    pub(crate) fn on_batches(
        &mut self,
        session: SessionKey,
        batches: &LeaderBatches,
        positions: &Positions,
        epochs: &EpochHistory,
        now: Millis,
        actions: &mut Vec<Action>,
    ) {
        let Some(begun) = self.begun(session) else { return };
        assert!(begun.appending.is_none(), "the caller finishes one append before the next batches");
        let continues = batches.from == positions.end && batches.end > positions.end;
        let of_this_epoch = divergence::last_epoch(positions, epochs) <= batches.first_epoch
            && batches.first_epoch <= batches.last_epoch
            && batches.last_epoch <= self.epoch;
        // Planted: batches are not bound to a session and its epoch.
        let of_this_epoch = of_this_epoch || cfg!(weir_planted_bug = "B2");
        if !continues || !of_this_epoch {
            self.give_up(now, actions);
            return;
        }
        if let Stage::Begun(begun) = &mut self.stage {
            begun.appending = Some((batches.end, batches.marks));
        }
        actions.push(Action::AppendBatches { ticket: batches.ticket });
    }

    /// The session, if it has begun and is the one that is meant.
    pub(crate) fn begun(&mut self, session: SessionKey) -> Option<&mut Begun> {
        match &mut self.stage {
            // Planted: batches are not bound to a session and its epoch.
            Stage::Begun(begun) if begun.session == session || cfg!(weir_planted_bug = "B2") => Some(begun),
            Stage::Begun(_) | Stage::Waiting { .. } | Stage::Opening { .. } | Stage::Cutting => None,
        }
    }

    /// The append is in the log. The marks that came with it.
    pub(crate) fn on_appended(&mut self, end: Offset) -> Marks {
        let Stage::Begun(begun) = &mut self.stage else { panic!("only a session that has begun appends") };
        let (asked, marks) = begun.appending.take().expect("an append was asked for");
        assert_eq!(asked, end, "the log appended what it was asked to");
        begun.newest(marks)
    }

    /// The session works.
    pub(crate) fn on_progress(&mut self) {
        self.backoff.on_success();
    }

    /// The session is over, by the leader's will or a broken lane.
    pub(crate) fn on_session_lost(&mut self, session: SessionKey, now: Millis) {
        if self.session() == Some(session) {
            self.wait(now);
        }
    }

    /// The session is of no use: it is closed, and another one asked for after a pause.
    pub(crate) fn give_up(&mut self, now: Millis, actions: &mut Vec<Action>) {
        actions.extend(self.session().map(|session| Action::CloseSession { session }));
        self.wait(now);
    }

    fn wait(&mut self, now: Millis) {
        self.stage = Stage::Waiting { until: self.backoff.on_failure(now) };
    }

    /// When time alone makes a difference.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        match self.stage {
            Stage::Waiting { until } => Some(until),
            Stage::Opening { since, .. } => Some(Millis(since.0.saturating_add(OPEN_MS_MAX))),
            Stage::Begun(begun) => begun.start_again,
            Stage::Cutting => None,
        }
    }
}

impl Begun {
    fn newest(&mut self, marks: Marks) -> Marks {
        self.marks = Marks {
            log_start: self.marks.log_start.max(marks.log_start),
            high_watermark: self.marks.high_watermark.max(marks.high_watermark),
        };
        self.marks
    }

    /// Tries once more to move the start, if it is the time.
    fn retry_start(&mut self, now: Millis, positions: &Positions, actions: &mut Vec<Action>) {
        let due = self.start_again.is_some_and(|at| at <= now);
        if !due || actions.iter().any(Action::is_awaited) {
            return;
        }
        self.start_again = None;
        let start = self.marks.log_start.min(positions.high_watermark);
        if start > positions.start {
            actions.push(Action::MoveStart { start });
        }
    }
}
