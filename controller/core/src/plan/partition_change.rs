//! What a change of one partition brings with it: the one place in which partitions change.
//!
//! A plan says what it wants (another ISR, other replicas, another leader); settling it completes a reassignment whose
//! target is in sync (KIP-455), keeps the ELR (KIP-966), finds a leader where the old one cannot stay, and counts epochs.
//!
//! The ELR holds replicas that are out of the ISR but known to have every committed record. That is known as long as
//! nothing can be committed without them: records are committed only while the ISR has its minimum size, so whoever leaves
//! an ISR that is then below it stays eligible, and all eligibility ends when the ISR reaches it. The last member of an ISR
//! stays in it though it is gone: it, or one of the ELR, is who may lead again.
//!
//! Every new leadership, and every loss of one, gets a new leader epoch; so does a partition that a replica leaves.

use crate::observe::is_reassigned;
use crate::state::ClusterState;
use proto_types::config_schema::{boolean, integer};
use proto_types::ids::{LeaderEpoch, NodeId, PartitionEpoch, TopicId, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};

/// Whether a replica may lead that is neither in the ISR nor in the ELR, where nobody else is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unclean {
    /// If `unclean.leader.election.enable` of the topic says so.
    ByConfig,
    /// Somebody has asked for it.
    Requested,
}

/// Settles changes of partitions against a state.
pub(super) struct Settler<'a> {
    state: &'a ClusterState,
    /// The node that goes, or comes, in the same batch; and whether it is alive then.
    moving: Option<(NodeId, bool)>,
}

impl<'a> Settler<'a> {
    pub(super) fn new(state: &'a ClusterState) -> Self {
        Self { state, moving: None }
    }

    /// With `node` being alive or not, whatever the state says.
    pub(super) fn with(state: &'a ClusterState, node: NodeId, alive: bool) -> Self {
        Self { state, moving: Some((node, alive)) }
    }

    /// Whether a node can lead.
    pub(super) fn alive(&self, node: NodeId) -> bool {
        match self.moving {
            Some((moving, alive)) if moving == node => alive,
            _ => self.state.nodes().is_active(node),
        }
    }

    /// Whether the topic's config lets any live replica lead when no eligible one is alive.
    pub(super) fn unclean_enabled(&self, topic: TopicId) -> bool {
        let value = self.state.configs().topic_value(topic, "unclean.leader.election.enable");
        value.and_then(boolean).unwrap_or(false)
    }

    /// What becomes of `before` when somebody wants `wanted`; `None` if nothing does. `wanted` must have an ISR within its
    /// replicas, and its ELR and epochs are not looked at.
    pub(super) fn settle(
        &self,
        at: TopicPartition,
        before: &PartitionState,
        wanted: PartitionState,
        unclean: Unclean,
    ) -> Option<PartitionState> {
        let mut next = wanted;
        self.fill(at, before, &mut next, unclean);
        if is_reassigned(&next) {
            // Who has just been elected may be all that the target asks for.
            self.fill(at, before, &mut next, unclean);
        }
        next.partition_epoch = before.partition_epoch;
        next.leader_epoch = before.leader_epoch;
        if next == *before {
            return None;
        }
        next.partition_epoch = PartitionEpoch(before.partition_epoch.0 + 1);
        // A replica that goes has yet to hear of it. In a new epoch its leader serves it no more, so that it cannot join
        // again, should it be wanted again soon, with the log that it is going to delete when it hears.
        let goes = |node: &NodeId| !next.replicas.contains(node);
        if next.leader != before.leader || before.replicas.iter().any(goes) {
            next.leader_epoch = LeaderEpoch(before.leader_epoch.0 + 1);
        }
        Some(next)
    }

    fn fill(&self, at: TopicPartition, before: &PartitionState, next: &mut PartitionState, unclean: Unclean) {
        complete_reassignment(next);
        let min = min_insync(self.state, at.topic, next.replicas.len());
        next.isr = in_order(&next.replicas, |node| next.isr.contains(&node));
        let known = |node| before.isr.contains(&node) || before.elr.contains(&node);
        next.elr = if next.isr.len() >= min || !next.isr.iter().copied().any(known) {
            // Enough are in sync to commit without the others; or an unclean leader's log is the truth from now on.
            Vec::new()
        } else {
            in_order(&next.replicas, |node| known(node) && !next.isr.contains(&node))
        };
        if next.leader.is_none_or(|leader| !next.isr.contains(&leader) || !self.alive(leader)) {
            self.elect(at, next, unclean);
        }
    }

    /// The same as a change for the log.
    pub(super) fn change(
        &self,
        at: TopicPartition,
        before: &PartitionState,
        wanted: PartitionState,
        unclean: Unclean,
    ) -> Option<MetadataChange> {
        let state = self.settle(at, before, wanted, unclean)?;
        Some(MetadataChange::PartitionSet { partition: at, state })
    }

    /// The partition with nobody eligible outside its ISR any more.
    pub(super) fn without_elr(&self, at: TopicPartition, before: &PartitionState) -> MetadataChange {
        // Settled as if nobody had been eligible, by which a partition without leader gets none, or an unclean one.
        let mut stripped = PartitionState { elr: Vec::new(), ..before.clone() };
        let epoch = before.partition_epoch;
        if let Some(next) = self.settle(at, &stripped, stripped.clone(), Unclean::ByConfig) {
            stripped = next;
        }
        stripped.partition_epoch = PartitionEpoch(epoch.0 + 1);
        MetadataChange::PartitionSet { partition: at, state: stripped }
    }

    /// Whether acknowledgements have always said that the record is on disk (`weir.flush=ack`), not only with the operating
    /// system.
    pub(super) fn flushed_when_acknowledged(&self, topic: TopicId) -> bool {
        self.state.configs().flushed_when_acknowledged(topic)
    }

    /// The partition with `node` neither in its ISR nor in its ELR, unless nobody else is: then what it has is still the
    /// most that anybody has (the last known leader of KIP-966), and this gives `None`.
    pub(super) fn without_eligible(
        &self,
        at: TopicPartition,
        before: &PartitionState,
        node: NodeId,
    ) -> Option<MetadataChange> {
        let others = |members: &[NodeId]| in_order(members, |member| member != node);
        let (mut isr, mut elr) = (others(&before.isr), others(&before.elr));
        if isr.is_empty() {
            // One of those that are eligible stands for the ISR; whichever of them is alive first may still be elected.
            let stands =
                elr.iter().copied().find(|member| self.alive(*member)).or_else(|| elr.first().copied())?;
            elr.retain(|member| *member != stands);
            isr.push(stands);
        }
        let mut next = PartitionState { isr, elr, ..before.clone() };
        if let Some(settled) = self.settle(at, &next, next.clone(), Unclean::ByConfig) {
            next = settled;
        }
        next.partition_epoch = PartitionEpoch(before.partition_epoch.0 + 1);
        Some(MetadataChange::PartitionSet { partition: at, state: next })
    }

    /// The first replica, in the order of preference, that is alive and in the ISR; else in the ELR; else, where that is
    /// allowed, any.
    fn elect(&self, at: TopicPartition, partition: &mut PartitionState, unclean: Unclean) {
        let first = |may: &dyn Fn(NodeId) -> bool| {
            partition.replicas.iter().copied().find(|node| self.alive(*node) && may(*node))
        };
        if let Some(leader) = first(&|node| partition.isr.contains(&node)) {
            partition.leader = Some(leader);
        } else if let Some(leader) = first(&|node| partition.elr.contains(&node)) {
            // The ISR starts anew with the leader; its former members hold every committed record too.
            let eligible = |node| partition.isr.contains(&node) || partition.elr.contains(&node);
            partition.elr = in_order(&partition.replicas, |node| node != leader && eligible(node));
            partition.isr = vec![leader];
            partition.leader = Some(leader);
        } else {
            let allowed = unclean == Unclean::Requested || self.unclean_enabled(at.topic);
            // A replica that is only being added may have nothing yet.
            let any = || first(&|node| !partition.adding.contains(&node)).or_else(|| first(&|_| true));
            partition.leader = allowed.then(any).flatten();
            if let Some(leader) = partition.leader {
                // From now on its log is the truth: nobody is known to have all of it.
                partition.isr = vec![leader];
                partition.elr.clear();
            }
        }
    }
}

/// Ends a reassignment of which all target replicas are in sync: the replicas that are to go, go.
fn complete_reassignment(next: &mut PartitionState) {
    if !is_reassigned(next) {
        return;
    }
    let removing = std::mem::take(&mut next.removing);
    if !next.replicas.iter().all(|node| removing.contains(node) || next.isr.contains(node)) {
        next.removing = removing;
        return;
    }
    next.adding.clear();
    next.replicas.retain(|node| !removing.contains(node));
    next.isr.retain(|node| !removing.contains(node));
}

/// The replicas for which `wanted` holds, in the order of preference.
pub(super) fn in_order(replicas: &[NodeId], wanted: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
    replicas.iter().copied().filter(|node| wanted(*node)).collect()
}

/// The number of replicas that must be in sync for records to be committed: the topic's `min.insync.replicas`, but never
/// more than there are replicas (those being added or removed included).
pub fn min_insync(state: &ClusterState, topic: TopicId, replicas: usize) -> usize {
    let configured = state.configs().topic_value(topic, "min.insync.replicas").and_then(integer).unwrap_or(1);
    usize::try_from(configured).unwrap_or(1).min(replicas)
}
