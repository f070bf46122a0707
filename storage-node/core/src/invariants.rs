//! What holds after every step of a replica, in production too. A broken one ends the process: whatever comes after it
//! could lose or duplicate records.

use crate::replica::{FlushMode, OfflineReason, Replica, Role};

impl Replica {
    pub(crate) fn check_invariants(&self) {
        let at = &self.positions;
        assert!(at.start <= at.high_watermark, "nothing uncommitted is deleted: {at:?}");
        assert!(at.high_watermark <= at.end, "nothing is committed that is not here: {at:?}");
        assert!(at.flushed <= at.end, "nothing is on disk that was not appended: {at:?}");
        match &self.role {
            Role::Leader(leader) => {
                assert!(
                    leader.epoch == self.leader_epoch,
                    "a leader leads in the newest epoch that it knows"
                );
                assert!(leader.waiters.is_consistent(), "a waiter has an offset and a deadline");
                assert!(leader.waiters.len() <= self.config.waiters_max.max(1), "waiters are bounded");
                let first_needed = leader.waiters.first_needed();
                assert!(
                    first_needed.is_none_or(|needed| needed > at.high_watermark),
                    "nobody waits for the past"
                );
                if let Some(appending) = &leader.appending {
                    assert!(appending.end > at.end, "an append under way is not counted yet");
                }
                if self.config.flush == FlushMode::Ack {
                    assert!(self.flushing || at.flushed == at.end, "unflushed bytes have a flush on its way");
                }
            }
            Role::Offline(OfflineReason::NotLeader | OfflineReason::LogFailed) => {}
        }
    }
}
