//! What holds after every step of a replica, in production too. A broken one ends the process: whatever comes after it
//! could lose or duplicate records.

use crate::following::Stage;
use crate::replica::{FlushMode, OfflineReason, Replica, Role};

impl Replica {
    pub(crate) fn check_invariants(&self) {
        let at = &self.positions;
        assert!(at.start <= at.high_watermark, "nothing uncommitted is deleted: {at:?}");
        assert!(at.high_watermark <= at.end, "nothing is committed that is not here: {at:?}");
        assert!(
            at.start <= self.last_stable && self.last_stable <= at.high_watermark,
            "nothing is decided that is not committed: {} {at:?}",
            self.last_stable
        );
        assert!(at.flushed <= at.end, "nothing is on disk that was not appended: {at:?}");
        match &self.role {
            Role::Leader(leader) => {
                assert!(
                    leader.epoch == self.leader_epoch,
                    "a leader leads in the newest epoch that it knows"
                );
                assert!(leader.epoch_start <= at.end, "a leader's epoch begins within its log: {at:?}");
                assert!(leader.waiters.is_consistent(), "a waiter has an offset and a deadline");
                assert!(leader.waiters.len() <= self.config.waiters_max.max(1), "waiters are bounded");
                assert!(leader.deletions.is_consistent(), "who deletes has an offset and a deadline");
                assert!(leader.deletions.len() <= self.config.waiters_max.max(1), "who deletes is bounded");
                let first_needed = leader.waiters.first_needed();
                assert!(
                    first_needed.is_none_or(|needed| needed > at.high_watermark),
                    "nobody waits for the past"
                );
                for follower in leader.followers.iter() {
                    assert!(follower.node != self.me, "a leader does not follow itself");
                    assert!(follower.acked.is_none() || follower.session.is_some(), "acks come in a session");
                    if let Some(acked) = follower.acked {
                        assert!(
                            acked.flushed <= acked.appended && acked.appended <= at.end,
                            "{acked:?} {at:?}"
                        );
                    }
                    assert!(
                        !follower.proposed || leader.proposal.is_open(),
                        "a proposal names who is proposed"
                    );
                }
                if let Some(appending) = &leader.appending {
                    assert!(appending.end > at.end, "an append under way is not counted yet");
                }
            }
            Role::Follower(following) => {
                assert!(following.epoch == self.leader_epoch, "a follower follows in the newest epoch");
                assert!(following.leader != self.me, "nobody follows itself");
                if let Stage::Begun(begun) = &following.stage
                    && let Some((end, _)) = begun.appending
                {
                    assert!(end > at.end, "an append under way is not counted yet");
                }
            }
            Role::Offline(OfflineReason::NoLeader | OfflineReason::LogFailed) => {}
        }
        let online = matches!(self.role, Role::Leader(_) | Role::Follower(_));
        if self.config.flush == FlushMode::Ack && online {
            assert!(self.flushing || at.flushed == at.end, "unflushed bytes have a flush on its way");
        }
    }
}
