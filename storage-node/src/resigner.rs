//! Gives up the place in the in-sync set of partitions whose logs have failed here: a copy that cannot be read or written
//! serves nobody, and others may have all of it.
//!
//! The metadata still says that this node leads or is in sync, so the controllers are asked: an in-sync set without its leader
//! is a resignation, one without a follower spares producers the wait for it. Asked again until the metadata says otherwise,
//! also where nobody else is known to have everything: that can change.

use crate::controller_port::{ControllerFailure, ControllerPort};
use crate::partition::registry::Partitions;
use crate::published_image::PublishedImage;
use proto_types::controller_api::{AlterPartition, ControllerReply, ControllerRequest, ProposedIsr};
use proto_types::ids::{BrokerEpoch, NodeId, TopicPartition};
use proto_types::metadata::PartitionState;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Pause between two looks at the copies.
const PAUSE: Duration = Duration::from_secs(1);

/// The task.
pub(crate) struct Resigner {
    pub(crate) me: NodeId,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) published: Arc<PublishedImage>,
    pub(crate) controller: Arc<dyn ControllerPort>,
    /// This node's registration, once there is one.
    pub(crate) broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
    /// Resignations in one request.
    pub(crate) batch_max: usize,
    /// Longest that one question to the controllers may take.
    pub(crate) call_max: Duration,
}

impl Resigner {
    /// Looks until it is dropped.
    pub(crate) async fn run(self) {
        let mut asked_last = None;
        loop {
            tokio::time::sleep(PAUSE).await;
            let image = self.published.load();
            // Before and after the others are asked for: one may come up meanwhile, another become late.
            let late_before = self.partitions.late();
            let mut failed = self.partitions.failed();
            let late_after = self.partitions.late();
            let is_late = |id: &TopicPartition| late_before.contains(id) || late_after.contains(id);
            // Some are refused each time, so each look goes on behind the last one.
            failed.sort_unstable_by_key(|id| (Some(*id) <= asked_last, *id));
            let resignations = failed
                .into_iter()
                .filter_map(|id| resignation(self.me, id, image.partition(id)?))
                .filter(|proposal| may_ask(proposal, is_late(&proposal.partition)))
                .take(self.batch_max)
                .collect::<Vec<_>>();
            asked_last = resignations.last().map(|proposal| proposal.partition);
            let registered = *self.broker_epoch.borrow();
            if let (false, Some(broker_epoch)) = (resignations.is_empty(), registered) {
                self.resign(broker_epoch, resignations).await;
            }
        }
    }

    async fn resign(&self, broker_epoch: BrokerEpoch, partitions: Vec<ProposedIsr>) {
        let ids: Vec<TopicPartition> = partitions.iter().map(|proposal| proposal.partition).collect();
        let request = AlterPartition { node: self.me, broker_epoch, partitions };
        let answer = self.controller.ask(ControllerRequest::AlterPartition(request), self.call_max).await;
        match answer {
            Ok(ControllerReply::IsrAltered(results)) => {
                for (id, result) in ids.iter().zip(results) {
                    match result {
                        Ok(state) => {
                            let leader = state.leader.map(|node| node.0);
                            tracing::warn!(partition = %id, leader, "the log has failed here: others go on without it");
                        }
                        Err(rejection) => {
                            tracing::debug!(partition = %id, %rejection, "nobody can lead instead of a failed log");
                        }
                    }
                }
            }
            Ok(other) => tracing::error!(?other, "resign: unexpected answer"),
            Err(ControllerFailure::Rejected(rejection)) => tracing::warn!(%rejection, "resign"),
            Err(failure @ (ControllerFailure::Unavailable(_) | ControllerFailure::OutcomeUnknown(_))) => {
                tracing::debug!(%failure, "resign")
            }
        }
    }
}

/// A copy that only takes long to open steps back for those that are in sync, but gives up no claim to be the one that has
/// everything.
fn may_ask(proposal: &ProposedIsr, is_late: bool) -> bool {
    !is_late || !proposal.isr.is_empty()
}

/// What to ask for, if `me` leads or follows in sync.
pub(crate) fn resignation(me: NodeId, id: TopicPartition, state: &PartitionState) -> Option<ProposedIsr> {
    let counts = state.leader.is_some_and(|leader| leader == me || state.isr.contains(&me));
    counts.then(|| ProposedIsr {
        partition: id,
        leader_epoch: state.leader_epoch,
        partition_epoch: state.partition_epoch,
        // They stay where they are; nobody vouches for them.
        isr: state
            .isr
            .iter()
            .filter(|node| **node != me)
            .map(|node| (*node, ProposedIsr::NOT_HEARD_FROM))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::{LeaderEpoch, PartitionEpoch, TopicId};
    use proto_types::metadata::topic_partition;
    use uuid::Uuid;

    #[test]
    fn who_leads_or_is_in_sync_leaves_itself_out() {
        let id = topic_partition(TopicId(Uuid::from_u128(1)), 0);
        let nodes = |ids: &[i32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
        let state = PartitionState {
            replicas: nodes(&[1, 2, 3]),
            adding: vec![],
            removing: vec![],
            isr: nodes(&[1, 3]),
            elr: vec![],
            leader: Some(NodeId(1)),
            leader_epoch: LeaderEpoch(4),
            partition_epoch: PartitionEpoch(9),
        };
        assert_eq!(resignation(NodeId(2), id, &state), None, "nobody waits for it");
        let nobody = PartitionState { leader: None, ..state.clone() };
        assert_eq!(resignation(NodeId(3), id, &nobody), None, "it may be the best there is");
        let proposal = resignation(NodeId(3), id, &state).expect("it is in sync");
        assert_eq!(proposal.isr, [(NodeId(1), ProposedIsr::NOT_HEARD_FROM)]);
        let proposal = resignation(NodeId(1), id, &state).expect("it leads");
        assert_eq!((proposal.leader_epoch, proposal.partition_epoch), (LeaderEpoch(4), PartitionEpoch(9)));
        assert_eq!(proposal.isr, [(NodeId(3), ProposedIsr::NOT_HEARD_FROM)]);
        assert!(may_ask(&proposal, true));
        let alone = PartitionState { isr: nodes(&[1]), ..state };
        let proposal = resignation(NodeId(1), id, &alone).expect("it leads");
        assert_eq!(proposal.isr, [], "perhaps somebody is eligible");
        assert!(may_ask(&proposal, false) && !may_ask(&proposal, true), "its log is as good as ever");
    }
}
