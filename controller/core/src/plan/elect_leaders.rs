//! Who leads a partition after nodes came or went.
//!
//! A leader is the first replica, in the order of preference, that is in the ISR and alive; else one of the ELR (KIP-966:
//! out of the ISR but known to hold every committed record). Every new leadership, and every loss of one, gets a new
//! leader epoch. The last member of an ISR stays in it though it is gone: it, or an ELR member, is who may lead again.

use crate::state::ClusterState;
use proto_types::config_schema::integer;
use proto_types::ids::{LeaderEpoch, NodeId, PartitionEpoch, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};

/// The changes of all partitions for which it matters that `node` is not available any more.
pub(super) fn after_loss(state: &ClusterState, node: NodeId) -> Vec<MetadataChange> {
    let alive = |other: NodeId| other != node && state.nodes().is_active(other);
    changed(state, |at, partition| {
        if !partition.isr.contains(&node) {
            return None;
        }
        let mut next = partition.clone();
        shrink_isr(&mut next, node, min_insync(state, at, partition));
        if next.leader == Some(node) {
            elect(&mut next, alive);
        }
        Some(next)
    })
}

/// The changes of all partitions without leader that `node`, now available, can lead.
pub(super) fn after_return(state: &ClusterState, node: NodeId) -> Vec<MetadataChange> {
    let alive = |other: NodeId| other == node || state.nodes().is_active(other);
    changed(state, |_, partition| {
        let eligible = partition.isr.contains(&node) || partition.elr.contains(&node);
        if partition.leader.is_some() || !eligible {
            return None;
        }
        let mut next = partition.clone();
        elect(&mut next, alive);
        Some(next)
    })
}

fn changed(
    state: &ClusterState,
    decide: impl Fn(TopicPartition, &PartitionState) -> Option<PartitionState>,
) -> Vec<MetadataChange> {
    let mut changes = Vec::new();
    for (at, partition) in state.partitions().iter() {
        if let Some(mut next) = decide(at, partition)
            && next != *partition
        {
            next.partition_epoch = PartitionEpoch(partition.partition_epoch.0 + 1);
            if next.leader != partition.leader {
                next.leader_epoch = LeaderEpoch(partition.leader_epoch.0 + 1);
            }
            changes.push(MetadataChange::PartitionSet { partition: at, state: next });
        }
    }
    changes
}

/// Takes `node` out of the ISR, unless it is the last; while the ISR is below its minimum it stays eligible.
fn shrink_isr(partition: &mut PartitionState, node: NodeId, min_insync: usize) {
    if partition.isr.len() == 1 {
        return;
    }
    partition.isr.retain(|member| *member != node);
    if partition.isr.len() < min_insync {
        partition.elr.push(node);
    } else {
        partition.elr.clear();
    }
}

fn elect(partition: &mut PartitionState, alive: impl Fn(NodeId) -> bool) {
    let first_of = |members: &[NodeId]| {
        partition.replicas.iter().copied().find(|node| members.contains(node) && alive(*node))
    };
    if let Some(leader) = first_of(&partition.isr) {
        partition.leader = Some(leader);
    } else if let Some(leader) = first_of(&partition.elr) {
        // The ISR starts anew with the leader; its former members hold every committed record too.
        let former = std::mem::replace(&mut partition.isr, vec![leader]);
        partition.elr.retain(|node| *node != leader);
        partition.elr.extend(former);
        partition.leader = Some(leader);
    } else {
        partition.leader = None;
    }
}

/// The number of replicas that must be in sync: the topic's config, but never more than there are replicas.
fn min_insync(state: &ClusterState, at: TopicPartition, partition: &PartitionState) -> usize {
    let configured =
        state.configs().topic_value(at.topic, "min.insync.replicas").and_then(integer).unwrap_or(1);
    usize::try_from(configured).unwrap_or(1).min(partition.replicas.len())
}
