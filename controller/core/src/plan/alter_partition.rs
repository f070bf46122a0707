//! Leaders propose new in-sync sets (KIP-497, KIP-841, KIP-903).
//!
//! A proposal is about one state of the partition, by one registration of one leader in one epoch, and names the
//! registration of each member that the leader has heard from: a request that was held up on its way admits nobody who has
//! restarted since, and nothing that rests on an older state.
//!
//! A leader whose log has failed leaves itself out: it resigns in favour of the others. A follower whose log has failed may
//! leave too, so that nobody waits for it until it lags for too long.

use super::partition_change::{Settler, Unclean, in_order};
use super::{Decision, Inputs, check_partition_count, check_registration, reject};
use crate::state::ClusterState;
use proto_types::controller_api::{AlterPartition, ProposedIsr};
use proto_types::error::{Reason, Rejection};
use proto_types::ids::{BrokerEpoch, NodeId, PartitionEpoch, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};
use std::collections::BTreeSet;

/// One result per partition, in the request's order: the state that is in force from now on.
pub type Results = Vec<Result<PartitionState, Rejection>>;

/// Plans the proposals of one node. Asked again about a set that is in force already (the first answer was lost), it
/// answers with the state and changes nothing. Asked for the very set of the state that the proposal is about, it makes a
/// newer state of it, with which no earlier proposal can succeed any more: a leader that does not know what became of one
/// takes it back so.
pub fn alter_partition(
    state: &ClusterState,
    request: &AlterPartition,
    inputs: &Inputs,
) -> Result<Decision<Results>, Rejection> {
    check_registration(state, request.node, request.broker_epoch)?;
    check_partition_count(&inputs.limits, request.partitions.len())?;
    let settler = Settler::new(state);
    let mut changes = Vec::new();
    let mut seen = BTreeSet::new();
    let mut plan_one = |proposed: &ProposedIsr| {
        if !seen.insert(proposed.partition) {
            let message = format!("Partition {} is named twice.", proposed.partition);
            return reject(Reason::InvalidRequest, message);
        }
        let leaving = leaving(state, request.node, proposed);
        let before = leaving.map_or_else(|| check_leadership(state, request.node, proposed), Ok)?;
        if is_in_force(before, proposed) {
            if proposed.partition_epoch != before.partition_epoch {
                return Ok(before.clone());
            }
            let next = withdrawn(before);
            changes.push(MetadataChange::PartitionSet { partition: proposed.partition, state: next.clone() });
            return Ok(next);
        }
        check_proposal(state, before, proposed)?;
        let stays = leaving.is_some() || proposed.isr.iter().any(|(node, _)| *node == request.node);
        let (before, isr) = if stays {
            let member = |node: NodeId| proposed.isr.iter().any(|(member, _)| *member == node);
            (before.clone(), in_order(&before.replicas, member))
        } else {
            resigned(&settler, request.node, before, proposed)?
        };
        let wanted = PartitionState { isr, ..before.clone() };
        let Some(next) = settler.settle(proposed.partition, &before, wanted, Unclean::ByConfig) else {
            return Ok(before);
        };
        let change = MetadataChange::PartitionSet { partition: proposed.partition, state: next.clone() };
        changes.push(change);
        Ok(next)
    };
    let reply = request.partitions.iter().map(&mut plan_one).collect();
    Ok(Decision { changes, reply })
}

/// The partition, if another node leads it and the proposal is its in-sync set without the asking follower.
fn leaving<'a>(
    state: &'a ClusterState,
    follower: NodeId,
    proposed: &ProposedIsr,
) -> Option<&'a PartitionState> {
    let before = state.partitions().get(proposed.partition)?;
    let is_follower = before.leader.is_some_and(|leader| leader != follower);
    let named = |node: &NodeId| proposed.isr.iter().any(|(member, _)| member == node);
    let leaves_itself_out = before.isr.contains(&follower)
        && proposed.isr.len() + 1 == before.isr.len()
        && before.isr.iter().all(|node| named(node) != (*node == follower));
    (is_follower && proposed.leader_epoch == before.leader_epoch && leaves_itself_out).then_some(before)
}

/// Whether the asking node leads the partition in the epoch that it believes.
fn check_leadership<'a>(
    state: &'a ClusterState,
    node: NodeId,
    proposed: &ProposedIsr,
) -> Result<&'a PartitionState, Rejection> {
    let at = proposed.partition;
    if state.topics().name(at.topic).is_none() {
        return reject(Reason::UnknownTopicId, format!("There is no topic with id {}.", at.topic));
    }
    let Some(before) = state.partitions().get(at) else {
        return reject(Reason::UnknownPartition, format!("There is no partition {at}."));
    };
    let (theirs, ours) = (proposed.leader_epoch, before.leader_epoch);
    if theirs < ours {
        let message =
            format!("Node {node} proposes an ISR of {at} in leader epoch {theirs}; it is {ours} now.");
        return reject(Reason::FencedLeaderEpoch, message);
    }
    if theirs > ours || before.leader != Some(node) {
        let leader = leader_text(before);
        let message =
            format!("Node {node} does not lead {at} in epoch {theirs}: {leader} does, in epoch {ours}.");
        return reject(Reason::NotLeader, message);
    }
    Ok(before)
}

fn leader_text(partition: &PartitionState) -> String {
    partition.leader.map_or_else(|| "nobody".to_owned(), |leader| format!("node {leader}"))
}

fn is_in_force(before: &PartitionState, proposed: &ProposedIsr) -> bool {
    let members: BTreeSet<NodeId> = proposed.isr.iter().map(|(node, _)| *node).collect();
    members.len() == proposed.isr.len()
        && members.len() == before.isr.len()
        && before.isr.iter().all(|node| members.contains(node))
}

/// The same under a newer epoch.
fn withdrawn(before: &PartitionState) -> PartitionState {
    PartitionState { partition_epoch: PartitionEpoch(before.partition_epoch.0 + 1), ..before.clone() }
}

/// The state as if `leader`, which has no log to lead with, had been eligible for nothing; and the ISR without it: the others
/// that are in it, or else one who is eligible beside it.
fn resigned(
    settler: &Settler<'_>,
    leader: NodeId,
    before: &PartitionState,
    proposed: &ProposedIsr,
) -> Result<(PartitionState, Vec<NodeId>), Rejection> {
    let mut others = before.clone();
    others.isr.retain(|node| *node != leader);
    let named = |node: NodeId| proposed.isr.iter().any(|(other, _)| *other == node);
    let mut heirs = in_order(&others.isr, named);
    if heirs.len() != proposed.isr.len() {
        let message = format!(
            "Node {leader} leads {} and leaves itself out of the proposed ISR; then nobody can join it.",
            proposed.partition
        );
        return reject(Reason::InvalidRequest, message);
    }
    if heirs.is_empty() {
        heirs = in_order(&before.elr, |node| settler.alive(node));
        heirs.truncate(1);
    }
    if heirs.is_empty() {
        let message =
            format!("Nobody but node {leader} is known to have everything of {}.", proposed.partition);
        return reject(Reason::EligibleLeadersNotAvailable, message);
    }
    Ok((others, heirs))
}

fn check_proposal(
    state: &ClusterState,
    before: &PartitionState,
    proposed: &ProposedIsr,
) -> Result<(), Rejection> {
    let at: TopicPartition = proposed.partition;
    let (theirs, ours) = (proposed.partition_epoch, before.partition_epoch);
    if theirs != ours {
        let message = format!("The proposal is about state {theirs} of {at}; its state is {ours} now.");
        return reject(Reason::StalePartitionEpoch, message);
    }
    let mut seen = BTreeSet::new();
    for (node, broker_epoch) in &proposed.isr {
        if !seen.insert(*node) {
            return reject(
                Reason::InvalidRequest,
                format!("The ISR proposed for {at} names node {node} twice."),
            );
        }
        if !before.replicas.contains(node) {
            let message = format!("The ISR proposed for {at} names node {node}, which is no replica of it.");
            return reject(Reason::InvalidRequest, message);
        }
        // A present member of which the leader has heard nothing stays; only joining takes the leader's word.
        let vouched = *broker_epoch != ProposedIsr::NOT_HEARD_FROM || !before.isr.contains(node);
        if vouched {
            check_member(state, at, *node, *broker_epoch)?;
        }
    }
    Ok(())
}

/// A member must be alive, in the very registration that the leader has heard from.
fn check_member(
    state: &ClusterState,
    at: TopicPartition,
    node: NodeId,
    broker_epoch: BrokerEpoch,
) -> Result<(), Rejection> {
    let problem = match state.nodes().get(node) {
        None => "is not registered".to_owned(),
        Some(known) if known.fenced => "is fenced".to_owned(),
        Some(known) if is_other(known.registration.broker_epoch, broker_epoch) => {
            format!(
                "has registered as {} since it was heard from as {broker_epoch}",
                known.registration.broker_epoch
            )
        }
        Some(_) => return Ok(()),
    };
    reject(Reason::IneligibleReplica, format!("Node {node} cannot join the ISR of {at}: it {problem}."))
}

fn is_other(current: BrokerEpoch, heard: BrokerEpoch) -> bool {
    // Planted: a member that has restarted since, and may have lost its tail, is taken for the one that was heard from.
    if cfg!(weir_planted_bug = "B6") {
        return false;
    }
    current != heard
}
