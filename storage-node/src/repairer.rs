//! Has copies that are damaged begin anew from the leader.
//!
//! First the controllers are told that the copy is lost: from then on nobody counts on it, and what it has ever acknowledged
//! does not either. Only then is it dropped, by the task that opens and drops copies, and it follows the leader like a new
//! replica. A leader whose copy is damaged resigns first (`crate::resigner`). Where nobody else can lead, the copy stays
//! as it is, offline: what it has left may be the best there is. For the same reason the damaged log is put aside and goes only
//! when the new copy is in sync: that somebody leads does not prove that he can.

use crate::clock::Clock;
use crate::controller_port::ControllerPort;
use crate::partition::registry::Partitions;
use crate::published_image::PublishedImage;
use proto_types::controller_api::{ControllerReply, ControllerRequest, LoseCopies};
use proto_types::ids::{BrokerEpoch, NodeId, TopicPartition};
use proto_types::metadata::PartitionState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::ClusterImage;
use tokio::sync::{mpsc, watch};

/// Pause between two looks at the copies.
const PAUSE: Duration = Duration::from_secs(1);
/// A copy that was restarted and is damaged again waits so long, and twice as long each further time.
const RETRY_MS_MIN: i64 = 10_000;
/// Longest such wait.
const RETRY_MS_MAX: i64 = 600_000;

/// The task.
pub(crate) struct Repairer {
    pub(crate) me: NodeId,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) published: Arc<PublishedImage>,
    pub(crate) controller: Arc<dyn ControllerPort>,
    /// This node's registration, once there is one.
    pub(crate) broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
    /// Copies on which nobody counts any more, for the task that opens and drops copies.
    pub(crate) lost: mpsc::Sender<TopicPartition>,
    /// Copies in one request.
    pub(crate) batch_max: usize,
    /// Longest that one question to the controllers may take.
    pub(crate) call_max: Duration,
    pub(crate) clock: Clock,
}

/// A damaged copy that nobody else leads is named after so long: others may be about to.
const ALONE_MS: i64 = 30_000;

/// When a copy may be given up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retry {
    not_before: i64,
    wait_ms: i64,
}

impl Repairer {
    /// Looks until it is dropped.
    pub(crate) async fn run(self) {
        let (mut retries, mut alone) = (BTreeMap::new(), BTreeMap::new());
        loop {
            tokio::time::sleep(PAUSE).await;
            let now = self.clock.monotonic().0;
            retries.retain(|_, retry: &mut Retry| now < retry.not_before + RETRY_MS_MAX);
            let image = self.published.load();
            self.tidy_up(&image).await;
            let damaged = self.partitions.damaged();
            let is_alone = |id| image.partition(id).is_some_and(|state| !is_repairable(self.me, state));
            for id in newly_alone(&mut alone, &damaged, now, is_alone) {
                tracing::error!(
                    partition = %id,
                    "the copy is damaged and no other replica can lead with all records: it stays offline; to go on \
                     without them stop this node, have another replica lead (weir partition elect --unclean), and start \
                     it again"
                );
            }
            let wanted: Vec<TopicPartition> = damaged
                .into_iter()
                .filter(|id| image.partition(*id).is_some_and(|state| is_repairable(self.me, state)))
                .filter(|id| retries.get(id).is_none_or(|retry| retry.not_before <= now))
                .take(self.batch_max)
                .collect();
            let registered = *self.broker_epoch.borrow();
            let (false, Some(broker_epoch)) = (wanted.is_empty(), registered) else { continue };
            // Whatever becomes of it: each time that a copy is given up its partition gets a new leader epoch.
            for id in &wanted {
                let wait_ms =
                    retries.get(id).map_or(RETRY_MS_MIN, |retry| (2 * retry.wait_ms).min(RETRY_MS_MAX));
                retries.insert(*id, Retry { not_before: now + wait_ms, wait_ms });
            }
            for id in self.give_up(broker_epoch, wanted).await {
                if self.lost.send(id).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Removes damaged logs that new copies have replaced.
    async fn tidy_up(&self, image: &ClusterImage) {
        // An image without us may be one that knows nothing yet.
        let complete = image.node(self.me).is_some();
        for id in self.partitions.aside() {
            if complete && image.partition(id).is_none_or(|state| is_replaced(self.me, state)) {
                self.partitions.remove_aside(id).await;
            }
        }
    }

    /// Those on which nobody counts any more.
    async fn give_up(
        &self,
        broker_epoch: BrokerEpoch,
        partitions: Vec<TopicPartition>,
    ) -> Vec<TopicPartition> {
        let request = LoseCopies { node: self.me, broker_epoch, partitions: partitions.clone() };
        match self.controller.ask(ControllerRequest::LoseCopies(request), self.call_max).await {
            Ok(ControllerReply::CopiesLost(results)) => {
                let lost = partitions.into_iter().zip(results).filter_map(|(id, result)| match result {
                    Ok(state) => {
                        let leader = state.leader.map(|node| node.0);
                        tracing::warn!(partition = %id, leader, "the damaged copy begins anew from the leader");
                        Some(id)
                    }
                    Err(rejection) => {
                        tracing::warn!(partition = %id, %rejection, "a damaged copy stays offline");
                        None
                    }
                });
                lost.collect()
            }
            Ok(other) => {
                tracing::error!(?other, "give up a copy: unexpected answer");
                Vec::new()
            }
            Err(failure) => {
                tracing::warn!(?failure, "give up a copy");
                Vec::new()
            }
        }
    }
}

/// The damaged copies that have stayed as they are for a while because nobody else leads, each once. `since` says of each since
/// when, or that it was named.
fn newly_alone(
    since: &mut BTreeMap<TopicPartition, Option<i64>>,
    damaged: &[TopicPartition],
    now: i64,
    is_alone: impl Fn(TopicPartition) -> bool,
) -> Vec<TopicPartition> {
    let alone: BTreeSet<TopicPartition> = damaged.iter().copied().filter(|id| is_alone(*id)).collect();
    since.retain(|id, _| alone.contains(id));
    let for_a_while = |id: &TopicPartition| {
        let first = since.entry(*id).or_insert(Some(now));
        first.take_if(|first| now - *first >= ALONE_MS).is_some()
    };
    alone.into_iter().filter(for_a_while).collect()
}

/// Whether another node leads, which has everything that is committed.
fn is_repairable(me: NodeId, state: &PartitionState) -> bool {
    state.replicas.contains(&me) && state.leader.is_some_and(|leader| leader != me)
}

/// Whether nobody needs what the node's damaged log holds: its new copy has everything that is committed, by the word of
/// another leader; or it is to have none.
fn is_replaced(me: NodeId, state: &PartitionState) -> bool {
    let led_by_another = state.leader.is_some_and(|leader| leader != me);
    led_by_another && (state.isr.contains(&me) || !state.replicas.contains(&me))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::{LeaderEpoch, PartitionEpoch, TopicId};
    use proto_types::metadata::topic_partition;

    #[test]
    fn what_nobody_else_leads_is_named_once_and_not_at_once() {
        let [one, two] = [0, 1].map(|index| topic_partition(TopicId(uuid::Uuid::from_u128(1)), index));
        let mut since = BTreeMap::new();
        let mut look = |now, damaged: &[TopicPartition]| {
            newly_alone(&mut since, damaged, now, |id| id == one || now == ALONE_MS)
        };
        assert_eq!(look(0, &[one, two]), []);
        assert_eq!(look(ALONE_MS - 1, &[one, two]), []);
        assert_eq!(look(ALONE_MS, &[one, two]), [one], "the other one was not alone for long");
        assert_eq!(look(3 * ALONE_MS, &[one, two]), []);
        // Mended, and damaged once more.
        assert_eq!(look(4 * ALONE_MS, &[]), []);
        assert_eq!(look(5 * ALONE_MS, &[one]), []);
        assert_eq!(look(6 * ALONE_MS, &[one]), [one]);
    }

    #[test]
    fn only_under_another_leader() {
        let nodes = |ids: &[i32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
        let state = PartitionState {
            replicas: nodes(&[1, 2]),
            adding: vec![],
            removing: vec![],
            isr: nodes(&[1, 2]),
            elr: vec![],
            leader: Some(NodeId(1)),
            leader_epoch: LeaderEpoch(4),
            partition_epoch: PartitionEpoch(9),
        };
        assert!(is_repairable(NodeId(2), &state));
        assert!(!is_repairable(NodeId(1), &state), "it leads");
        assert!(!is_repairable(NodeId(3), &state), "it has no copy");
        assert!(is_replaced(NodeId(2), &state) && !is_replaced(NodeId(1), &state));
        assert!(is_replaced(NodeId(3), &state), "it is to have no copy");
        let alone = PartitionState { isr: nodes(&[1]), ..state };
        assert!(!is_replaced(NodeId(2), &alone), "the new copy is not in sync yet");
        assert!(!is_repairable(NodeId(2), &PartitionState { leader: None, ..alone }), "nobody leads");
    }
}
