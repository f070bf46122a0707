//! Carries the leaders' proposals of in-sync sets to the controllers: those of all partitions together, one request in
//! flight at a time.
//!
//! A newer proposal of a partition takes the place of one that was not sent yet. An answer that is lost leaves the outcome
//! unknown, and the replica is told so: the metadata says what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto_types::controller_api::{AlterPartition, ControllerReply, ControllerRequest, ProposedIsr};
use proto_types::ids::{BrokerEpoch, NodeId, TopicPartition};
use storage_node_core::{IsrAnswered, IsrOutcome};
use tokio::sync::{Notify, watch};

use super::ReplicationMetrics;
use crate::controller_port::{ControllerFailure, ControllerPort};
use crate::disk::event::Event;
use crate::disk::event_queue::EventQueue;
use crate::partition::registry::new_epoch;

/// Where proposals wait. Shared behind an `Arc`.
#[derive(Debug, Default)]
pub(crate) struct IsrProposals {
    /// At most one of each partition.
    waiting: Mutex<BTreeMap<TopicPartition, Waiting>>,
    wake: Notify,
}

#[derive(Debug)]
struct Waiting {
    proposal: ProposedIsr,
    queue: Arc<EventQueue<Event>>,
}

impl IsrProposals {
    /// Has a proposal sent. What comes of it comes through `queue`.
    pub(crate) fn propose(&self, proposal: ProposedIsr, queue: &Arc<EventQueue<Event>>) {
        let waiting = Waiting { queue: Arc::clone(queue), proposal };
        let before = self.waiting.lock().insert(waiting.proposal.partition, waiting);
        if let Some(before) = before {
            before.answer(IsrOutcome::Unknown);
        }
        self.wake.notify_one();
    }

    fn take(&self, max: usize) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some((_, next)) = waiting.pop_first()
        {
            taken.push(next);
        }
        taken
    }
}

impl Waiting {
    /// A queue that is closed belongs to a node that is stopping.
    fn answer(self, outcome: IsrOutcome) {
        let ProposedIsr { partition, leader_epoch, partition_epoch, .. } = self.proposal;
        let answered = IsrAnswered { leader_epoch, partition_epoch, outcome };
        drop(self.queue.push(Event::IsrAnswered { id: partition, answered }));
    }
}

/// The task.
pub(crate) struct IsrProposer {
    pub(crate) me: NodeId,
    pub(crate) proposals: Arc<IsrProposals>,
    pub(crate) controller: Arc<dyn ControllerPort>,
    /// This node's registration, once there is one.
    pub(crate) broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
    /// Proposals in one request.
    pub(crate) batch_max: usize,
    /// Longest that one question to the controllers may take.
    pub(crate) call_max: Duration,
    pub(crate) metrics: ReplicationMetrics,
}

impl IsrProposer {
    /// Carries proposals until it is dropped.
    pub(crate) async fn run(mut self) {
        let proposals = Arc::clone(&self.proposals);
        loop {
            let woken = proposals.wake.notified();
            let taken = proposals.take(self.batch_max);
            if taken.is_empty() {
                woken.await;
                continue;
            }
            let Some(broker_epoch) = self.registered().await else { return };
            self.propose(broker_epoch, taken).await;
        }
    }

    /// This node's registration; none if the node is being torn down.
    async fn registered(&mut self) -> Option<BrokerEpoch> {
        *self.broker_epoch.wait_for(Option::is_some).await.ok()?
    }

    async fn propose(&self, broker_epoch: BrokerEpoch, taken: Vec<Waiting>) {
        let mut partitions: Vec<_> = taken.iter().map(|waiting| waiting.proposal.clone()).collect();
        for (_, epoch) in
            partitions.iter_mut().flat_map(|proposal| &mut proposal.isr).filter(|(node, _)| *node == self.me)
        {
            *epoch = broker_epoch;
        }
        let count = partitions.len();
        let request = AlterPartition { node: self.me, broker_epoch, partitions };
        let answer = self.controller.ask(ControllerRequest::AlterPartition(request), self.call_max).await;
        let results = match answer {
            Ok(ControllerReply::IsrAltered(results)) if results.len() == count => results,
            Ok(other) => {
                tracing::error!(?other, "propose in-sync sets: unexpected answer");
                return unknown(taken);
            }
            Err(failure) => {
                self.metrics.on_proposal_failed();
                match failure {
                    ControllerFailure::Rejected(rejection) => {
                        tracing::warn!(%rejection, "the controller takes no proposals of in-sync sets");
                    }
                    ControllerFailure::Unavailable(_) | ControllerFailure::OutcomeUnknown(_) => {
                        tracing::debug!(%failure, "propose in-sync sets");
                    }
                }
                return unknown(taken);
            }
        };
        for (waiting, result) in taken.into_iter().zip(results) {
            let id = waiting.proposal.partition;
            match result {
                Ok(state) => {
                    tracing::info!(partition = %id, isr = ?state.isr, "the in-sync set has changed");
                    waiting.answer(IsrOutcome::Accepted(new_epoch(&state)));
                }
                Err(rejection) => {
                    tracing::info!(partition = %id, %rejection, "a proposal of an in-sync set is refused");
                    waiting.answer(IsrOutcome::Refused);
                }
            }
        }
    }
}

fn unknown(taken: Vec<Waiting>) {
    taken.into_iter().for_each(|waiting| waiting.answer(IsrOutcome::Unknown));
}
