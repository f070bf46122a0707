//! What can happen to a replica because others follow it: sessions, acks, and the controller's word on who is in sync. Of a
//! copy that does not lead they change nothing.

use log_engine_core::EpochHistory;
use proto_types::ids::{Millis, Offset};
use proto_types::replication_api::SessionAnswer;

use super::{OfflineReason, Replica, Role};
use crate::action::Action;
use crate::input::{FollowerAck, IsrAnswered, IsrOutcome, LogFacts, NewEpoch, OpenSession, SessionKey};
use crate::leader::leader_end;

impl Replica {
    pub(super) fn on_open_session(
        &mut self,
        now: Millis,
        log: LogFacts<'_>,
        open: &OpenSession,
        actions: &mut Vec<Action>,
    ) {
        match &mut self.role {
            Role::Leader(leader) => {
                leader.open_session(&self.positions, &self.config, log, open, now, actions);
            }
            Role::Follower(_) | Role::Offline(OfflineReason::NoLeader) => {
                let answer = SessionAnswer::WrongEpoch { current: self.leader_epoch };
                actions.push(Action::AnswerSession { session: open.session, answer });
            }
            Role::Offline(OfflineReason::LogFailed) => {
                let answer = SessionAnswer::NotServed;
                actions.push(Action::AnswerSession { session: open.session, answer });
            }
        }
    }

    pub(super) fn on_session_ended(&mut self, now: Millis, session: SessionKey) {
        if let Role::Leader(leader) = &mut self.role {
            leader.on_session_ended(&self.positions, &self.config, session, now);
        }
    }

    pub(super) fn on_follower_ack(&mut self, now: Millis, ack: FollowerAck) {
        if let Role::Leader(leader) = &mut self.role {
            leader.followers.on_ack(ack, leader_end(&self.positions, &self.config), now);
        }
    }

    pub(super) fn on_follower_start(&mut self, session: SessionKey, log_start: Offset) {
        if let Role::Leader(leader) = &mut self.role {
            leader.followers.on_start(session, log_start);
        }
    }

    pub(super) fn on_isr_answered(
        &mut self,
        now: Millis,
        epochs: &EpochHistory,
        answered: IsrAnswered,
        actions: &mut Vec<Action>,
    ) {
        if let IsrOutcome::Accepted(new) = &answered.outcome
            && self.drops_a_member(new)
        {
            // The answer may have overtaken the configs that the controller decided by: it may need more replicas in sync
            // than are needed here, and keep who is dropped as eligible. The metadata tells both, in their order; until then
            // the member counts.
            return;
        }
        if let Role::Leader(leader) = &mut self.role
            && (leader.epoch, self.partition_epoch) == (answered.leader_epoch, answered.partition_epoch)
        {
            leader.proposal.on_answer(&answered.outcome, &mut leader.followers, now);
        }
        match answered.outcome {
            IsrOutcome::Accepted(new) => self.on_new_epoch(now, epochs, new, actions),
            IsrOutcome::Refused | IsrOutcome::Unknown => {}
        }
    }

    /// Whether a newer state of this leadership lacks somebody who counts for the high watermark now.
    fn drops_a_member(&self, new: &NewEpoch) -> bool {
        match &self.role {
            Role::Leader(leader) => {
                new.leader_epoch == leader.epoch
                    && new.partition_epoch > self.partition_epoch
                    && leader.followers.lacks_a_member(&new.isr)
            }
            Role::Follower(_) | Role::Offline(_) => false,
        }
    }
}
