//! Partitions move to other nodes (KIP-455): begin, change or cancel a reassignment.
//!
//! While one is under way the replicas are the target, in its order, and behind it those that are to go; it is done once
//! all of the target are in sync. A new target replaces an unfinished one, and cancelling goes back: in both cases the
//! replicas that were only being added are dropped at once, as long as somebody who is in sync is left.

use super::create_topics::check_replicas;
use super::delete_topics::unknown_topic;
use super::partition_change::{Settler, Unclean, in_order};
use super::{Decision, Inputs, check_partition_count, reject};
use crate::observe::is_reassigned;
use crate::state::ClusterState;
use proto_types::controller_api::{AlterReassignments, Reassignment};
use proto_types::error::{Reason, Rejection};
use proto_types::ids::{NodeId, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};
use std::collections::BTreeSet;

/// One result per partition, in the request's order.
pub type Results = Vec<Result<(), Rejection>>;

/// Plans the beginning, the change or the end of reassignments.
pub fn alter_reassignments(
    state: &ClusterState,
    request: &AlterReassignments,
    inputs: &Inputs,
) -> Result<Decision<Results>, Rejection> {
    check_partition_count(&inputs.limits, request.partitions.len())?;
    let mut changes = Vec::new();
    let mut seen = BTreeSet::new();
    let reply = request
        .partitions
        .iter()
        .map(|wanted| {
            let (at, before) = find(state, wanted)?;
            if !seen.insert(at) {
                let message = format!("Partition {}-{} is named twice.", wanted.topic, wanted.partition);
                return reject(Reason::InvalidRequest, message);
            }
            let change = match &wanted.replicas {
                Some(target) => begin(state, at, before, target, request.allow_factor_change)?,
                None => cancel(state, wanted, at, before)?,
            };
            changes.extend(change);
            Ok(())
        })
        .collect();
    Ok(Decision { changes, reply })
}

fn find<'a>(
    state: &'a ClusterState,
    wanted: &Reassignment,
) -> Result<(TopicPartition, &'a PartitionState), Rejection> {
    let (name, partition) = (&wanted.topic, wanted.partition);
    let Some(topic) = state.topics().id(name) else {
        return reject(Reason::UnknownTopic, unknown_topic(name));
    };
    let at = TopicPartition { topic, partition };
    match state.partitions().get(at) {
        Some(before) => Ok((at, before)),
        None => reject(Reason::UnknownPartition, format!("Unable to find partition {name}:{partition}.")),
    }
}

/// The replicas that the partition had before the reassignment that is under way, if there is one.
fn original(partition: &PartitionState) -> Vec<NodeId> {
    in_order(&partition.replicas, |node| !partition.adding.contains(&node))
}

fn begin(
    state: &ClusterState,
    at: TopicPartition,
    before: &PartitionState,
    target: &[NodeId],
    allow_factor_change: bool,
) -> Result<Option<MetadataChange>, Rejection> {
    check_replicas(state, at.partition.0, target, None)?;
    let fenced = |node: &&NodeId| !before.replicas.contains(node) && !state.nodes().is_active(**node);
    if let Some(node) = target.iter().find(fenced) {
        let message = format!(
            "The manual partition assignment includes broker {node}, which is fenced and cannot take over a replica \
             now. Start it, or choose another one."
        );
        return reject(Reason::InvalidReplicaAssignment, message);
    }
    // Those that are being removed by a reassignment under way do not count any more.
    let factor = before.replicas.len() - before.removing.len();
    if !allow_factor_change && factor != target.len() {
        let message = format!("The replication factor is changed from {factor} to {}", target.len());
        return reject(Reason::InvalidReplicationFactor, message);
    }
    Ok(retarget(state, at, before, target))
}

/// Sets a new target, which has been checked.
pub(super) fn retarget(
    state: &ClusterState,
    at: TopicPartition,
    before: &PartitionState,
    target: &[NodeId],
) -> Option<MetadataChange> {
    let settler = Settler::new(state);
    let original = original(before);
    let keeps = |node: NodeId| target.contains(&node) || original.contains(&node);
    // Unwanted newcomers go at once, unless that would leave nobody to lead.
    let drops = before.isr.iter().any(|node| keeps(*node) && settler.alive(*node));
    let removing = in_order(&before.replicas, |node| {
        !target.contains(&node) && (original.contains(&node) || (!drops && before.isr.contains(&node)))
    });
    let replicas: Vec<NodeId> = target.iter().chain(&removing).copied().collect();
    let wanted = PartitionState {
        isr: in_order(&replicas, |node| before.isr.contains(&node)),
        adding: in_order(target, |node| !original.contains(&node)),
        removing,
        replicas,
        ..before.clone()
    };
    settler.change(at, before, wanted, Unclean::ByConfig)
}

fn cancel(
    state: &ClusterState,
    wanted: &Reassignment,
    at: TopicPartition,
    before: &PartitionState,
) -> Result<Option<MetadataChange>, Rejection> {
    if !is_reassigned(before) {
        return reject(Reason::NoReassignmentInProgress, "No partition reassignment is in progress.");
    }
    let settler = Settler::new(state);
    let replicas = original(before);
    let of = |members: &[NodeId]| in_order(&replicas, |node| members.contains(&node));
    let alive = |members: &[NodeId]| in_order(members, |node| settler.alive(node));
    let mut isr = of(&before.isr);
    if isr.is_empty() {
        // Only newcomers are in sync: another one must lead, and must have what was committed.
        let heir = alive(&of(&before.elr)).first().copied();
        let any = || alive(&replicas).first().copied().filter(|_| settler.unclean_enabled(at.topic));
        let Some(heir) = heir.or_else(any) else {
            let message = format!(
                "Unable to revert partition assignment for {}:{} because it would require an unclean leader election.",
                wanted.topic, wanted.partition
            );
            return reject(Reason::InvalidReplicaAssignment, message);
        };
        isr.push(heir);
    }
    let next = PartitionState { isr, adding: Vec::new(), removing: Vec::new(), replicas, ..before.clone() };
    Ok(settler.change(at, before, next, Unclean::ByConfig))
}
