//! A leader's proposal of a new in-sync set: at most one is with the controller, and it is repeated until its outcome is
//! known.
//!
//! Only a newer state of the partition, or a refusal of the only copy that was sent, tells that a proposal was not and will
//! not be accepted. Until then whoever it names counts for the high watermark. A leader that wants nothing any more, but
//! has a proposal out of which it does not know, proposes the present set: the controller answers with a newer state.

use proto_types::ids::{BrokerEpoch, Millis, NodeId};

use crate::backoff::Backoff;
use crate::followers::{Followers, JoinFrom, LeaderEnd};
use crate::input::IsrOutcome;
use crate::replica::ReplicaConfig;

/// The proposals about one state of the partition.
#[derive(Debug, Default)]
pub(crate) struct IsrProposal {
    in_flight: bool,
    /// Proposals of which it is not known that they were not and will not be accepted, the one in flight included.
    open: u32,
    backoff: Backoff,
    /// Nothing is proposed before.
    not_before: Option<Millis>,
    /// Something would be proposed, if it were the time.
    waiting: bool,
}

impl IsrProposal {
    /// Whether a proposal about the present state may have been accepted, or may still be.
    pub(crate) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// The partition has a newer state: no proposal about the old one is of any account.
    pub(crate) fn on_newer_state(&mut self) {
        *self = Self::default();
    }

    /// What came of the proposal in flight; the partition's state is still the same.
    pub(crate) fn on_answer(&mut self, outcome: &IsrOutcome, followers: &mut Followers, now: Millis) {
        if !self.in_flight {
            return;
        }
        self.in_flight = false;
        self.not_before = Some(self.backoff.on_failure(now));
        match outcome {
            IsrOutcome::Refused if self.open == 1 => {
                self.open = 0;
                followers.on_refused();
            }
            IsrOutcome::Refused | IsrOutcome::Unknown | IsrOutcome::Accepted(_) => {}
        }
    }

    /// Proposes what is wanted, if anything is and it is the time.
    pub(crate) fn propose(
        &mut self,
        followers: &mut Followers,
        config: &ReplicaConfig,
        leader: LeaderEnd,
        from: JoinFrom,
        now: Millis,
    ) -> Option<Vec<(NodeId, BrokerEpoch)>> {
        self.waiting = false;
        if self.in_flight {
            return None;
        }
        let wanted = followers.wanted(config, leader, from, now);
        let set = match (wanted, self.open) {
            (Some(set), _) => set,
            (None, 0) => return None,
            (None, _) => followers.present(),
        };
        if self.not_before.is_some_and(|time| now < time) {
            self.waiting = true;
            return None;
        }
        followers.on_proposed(&set);
        self.in_flight = true;
        self.open = self.open.saturating_add(1);
        Some(set)
    }

    /// When time alone can make a difference.
    pub(crate) fn next_deadline(
        &self,
        followers: &Followers,
        config: &ReplicaConfig,
        leader: LeaderEnd,
    ) -> Option<Millis> {
        match (self.in_flight, self.waiting) {
            (true, _) => None,
            (false, true) => self.not_before,
            (false, false) => followers.next_lag(config, leader),
        }
    }
}
