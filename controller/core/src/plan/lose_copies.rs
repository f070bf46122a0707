//! A node says that its copies of some partitions have lost records, and that it is going to begin them anew.
//!
//! From then on it counts as a replica that has nothing: neither in sync nor eligible. The leader gets a new epoch, so that
//! nothing that the lost copy has acknowledged counts any more, wherever it still is on its way. Only where another node
//! leads: it has everything that is committed. Where nobody else leads, the damaged copy may be the best there is, and
//! stays.

use super::partition_change::{Settler, Unclean};
use super::{Decision, Inputs, check_partition_count, check_registration, reject};
use crate::state::ClusterState;
use proto_types::controller_api::LoseCopies;
use proto_types::error::{Reason, Rejection};
use proto_types::ids::{LeaderEpoch, NodeId, PartitionEpoch, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};
use std::collections::BTreeSet;

/// One result per partition, in the request's order: the state in which nobody counts on the copy.
pub type Results = Vec<Result<PartitionState, Rejection>>;

/// Plans the loss of copies of one node.
pub fn lose_copies(
    state: &ClusterState,
    request: &LoseCopies,
    inputs: &Inputs,
) -> Result<Decision<Results>, Rejection> {
    check_registration(state, request.node, request.broker_epoch)?;
    check_partition_count(&inputs.limits, request.partitions.len())?;
    let settler = Settler::new(state);
    let mut changes = Vec::new();
    let mut seen = BTreeSet::new();
    let mut plan_one = |&at: &TopicPartition| {
        if !seen.insert(at) {
            return reject(Reason::InvalidRequest, format!("Partition {at} is named twice."));
        }
        let next = without(state, &settler, at, request.node)?;
        changes.push(MetadataChange::PartitionSet { partition: at, state: next.clone() });
        Ok(next)
    };
    let reply = request.partitions.iter().map(&mut plan_one).collect();
    Ok(Decision { changes, reply })
}

/// The partition as if `node` held nothing of it.
fn without(
    state: &ClusterState,
    settler: &Settler<'_>,
    at: TopicPartition,
    node: NodeId,
) -> Result<PartitionState, Rejection> {
    let Some(before) = state.partitions().get(at) else {
        return reject(Reason::UnknownPartition, format!("There is no partition {at}."));
    };
    if !before.replicas.contains(&node) {
        return reject(Reason::InvalidRequest, format!("Node {node} is no replica of {at}."));
    }
    if before.leader.is_none_or(|leader| leader == node || !settler.alive(leader)) {
        let message =
            format!("Nobody but node {node} leads {at}: what it has left may be the best there is.");
        return reject(Reason::EligibleLeadersNotAvailable, message);
    }
    let mut others = before.clone();
    others.isr.retain(|member| *member != node);
    others.elr.retain(|member| *member != node);
    let settled = settler.settle(at, &others, others.clone(), Unclean::ByConfig);
    Ok(PartitionState {
        partition_epoch: PartitionEpoch(before.partition_epoch.0 + 1),
        leader_epoch: LeaderEpoch(before.leader_epoch.0 + 1),
        ..settled.unwrap_or(others)
    })
}
