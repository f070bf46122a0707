//! What can happen to a replica because it follows another: what the leader says, and what became of the cuts that it led
//! to. Of a copy that does not follow they change nothing.

use proto_types::ids::{Millis, Offset};
use proto_types::replication_api::{Marks, SessionAnswer};

use super::{AWAITED, Positions, Replica, Role};
use crate::action::Action;
use crate::input::{FromLeader, LogFacts, SessionKey};

impl Replica {
    pub(super) fn on_from_leader(
        &mut self,
        now: Millis,
        log: LogFacts<'_>,
        session: SessionKey,
        said: FromLeader,
        actions: &mut Vec<Action>,
    ) {
        let Role::Follower(following) = &mut self.role else { return };
        match said {
            FromLeader::Answer(answer) => {
                // Planted: what the leader says of its log is believed before ours is cut.
                if cfg!(weir_planted_bug = "B10")
                    && let SessionAnswer::Diverged { end, .. } = answer
                {
                    let believed = end.min(self.positions.end);
                    self.positions.high_watermark = self.positions.high_watermark.max(believed);
                }
                let at = self.positions;
                if let Some(marks) = following.on_answer(session, answer, &at, log, now, actions) {
                    self.take_over(marks, actions);
                }
            }
            FromLeader::Batches(batches) => {
                following.on_batches(session, &batches, &self.positions, log.epochs, now, actions);
            }
            FromLeader::Marks(marks) => {
                if following.begun(session).is_some() {
                    following.on_progress();
                    let marks = following.on_marks(marks);
                    self.take_over(marks, actions);
                }
            }
        }
    }

    /// Takes over the leader's marks, as far as this log reaches.
    pub(super) fn take_over(&mut self, marks: Marks, actions: &mut Vec<Action>) {
        let at = &mut self.positions;
        at.high_watermark = at.high_watermark.max(marks.high_watermark.min(at.end));
        let start = marks.log_start.min(at.high_watermark);
        if start > at.start {
            actions.push(Action::MoveStart { start });
        }
    }

    pub(super) fn on_session_lost(&mut self, now: Millis, session: SessionKey) {
        if let Role::Follower(following) = &mut self.role {
            following.on_session_lost(session, now);
        }
    }

    pub(super) fn on_truncated(&mut self, now: Millis, end: Offset) {
        let at = &mut self.positions;
        assert!(end <= at.end, "a cut log is no longer than it was");
        *at = Positions {
            start: at.start.min(end),
            high_watermark: at.high_watermark.min(end),
            flushed: at.flushed.min(end),
            end,
        };
        self.on_cut(now, end);
    }

    pub(super) fn on_restarted(&mut self, now: Millis, start: Offset) {
        self.positions = Positions { start, high_watermark: start, flushed: start, end: start };
        // A flush that is under way is of what was dropped.
        self.on_cut(now, Offset(0));
    }

    fn on_cut(&mut self, now: Millis, flush_limit: Offset) {
        if self.flushing {
            self.flush_limit = Some(self.flush_limit.map_or(flush_limit, |limit| limit.min(flush_limit)));
        }
        self.counters.truncations += 1;
        match &mut self.role {
            Role::Follower(following) => following.on_cut(now),
            Role::Leader(_) | Role::Offline(_) => panic!("{AWAITED}"),
        }
    }
}
