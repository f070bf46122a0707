//! Who leads a partition: after nodes came or went, by request (KIP-460), and back to the preferred leaders.

use super::partition_change::{Settler, Unclean};
use super::{Decision, Inputs, check_partition_count, reject};
use crate::state::ClusterState;
use proto_types::controller_api::{ElectLeaders, ElectedLeader, ElectionKind, MayLack};
use proto_types::error::{Reason, Rejection};
use proto_types::ids::{NodeId, PartitionIndex, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};
use std::collections::BTreeSet;

/// The changes of all partitions for which it matters that `node` is not available any more, and what its disks may have
/// lost.
pub(super) fn after_loss(state: &ClusterState, node: NodeId, may_lack: MayLack) -> Vec<MetadataChange> {
    let settler = Settler::with(state, node, false);
    let eligible =
        |partition: &PartitionState| partition.isr.contains(&node) || partition.elr.contains(&node);
    let lost = state.partitions().iter().filter(|(_, partition)| eligible(partition));
    lost.filter_map(|(at, before)| {
        let keeps = match may_lack {
            MayLack::Nothing => true,
            // What waited for the operating system to write it: of topics that have or had `weir.flush=os`.
            MayLack::Unflushed => settler.flushed_when_acknowledged(at.topic),
            MayLack::Anything => false,
        };
        if !keeps && let Some(change) = settler.without_eligible(at, before, node) {
            return Some(change);
        }
        if !before.isr.contains(&node) {
            return None;
        }
        let mut wanted = before.clone();
        if wanted.isr.len() > 1 {
            wanted.isr.retain(|member| *member != node);
        }
        settler.change(at, before, wanted, Unclean::ByConfig)
    })
    .collect()
}

/// The changes of all partitions without leader that `node`, now available, can lead.
pub(super) fn after_return(state: &ClusterState, node: NodeId) -> Vec<MetadataChange> {
    let settler = Settler::with(state, node, true);
    let waiting =
        |partition: &PartitionState| partition.leader.is_none() && partition.replicas.contains(&node);
    let leaderless = state.partitions().iter().filter(|(_, partition)| waiting(partition));
    leaderless
        .filter_map(|(at, before)| settler.change(at, before, before.clone(), Unclean::ByConfig))
        .collect()
}

/// Plans elections by request. Of all partitions, where none are named, the answer leaves out those that need nothing.
pub fn elect_leaders(
    state: &ClusterState,
    request: &ElectLeaders,
    inputs: &Inputs,
) -> Result<Decision<Vec<ElectedLeader>>, Rejection> {
    let mut changes = Vec::new();
    let mut reply = Vec::new();
    if let Some(named) = &request.partitions {
        check_partition_count(&inputs.limits, named.len())?;
        let mut seen = BTreeSet::new();
        for (topic, partition) in named {
            let result = if seen.insert((topic, partition)) {
                elect_named(state, topic, *partition, request.kind).map(|change| changes.extend(change))
            } else {
                reject(Reason::InvalidRequest, format!("Partition {topic}-{partition} is named twice."))
            };
            reply.push(ElectedLeader { topic: topic.clone(), partition: *partition, result });
        }
    } else {
        for (topic, id) in state.topics().iter() {
            for (partition, before) in state.partitions().of_topic(id) {
                let at = TopicPartition { topic: id, partition };
                let result = match elect_one(state, at, before, request.kind) {
                    Err(rejection) if rejection.reason == Reason::ElectionNotNeeded => continue,
                    result => result.map(|change| changes.extend(change)),
                };
                reply.push(ElectedLeader { topic: topic.to_owned(), partition, result });
            }
        }
    }
    Ok(Decision { changes, reply })
}

fn elect_named(
    state: &ClusterState,
    topic: &str,
    partition: PartitionIndex,
    kind: ElectionKind,
) -> Result<Option<MetadataChange>, Rejection> {
    let Some(id) = state.topics().id(topic) else {
        let shown: String = topic.chars().take(crate::topic_name::LENGTH_MAX).collect();
        return reject(Reason::UnknownTopic, format!("No such topic as {}", shown.escape_debug()));
    };
    let at = TopicPartition { topic: id, partition };
    let Some(before) = state.partitions().get(at) else {
        return reject(Reason::UnknownPartition, format!("No such partition as {topic}-{partition}"));
    };
    elect_one(state, at, before, kind)
}

fn elect_one(
    state: &ClusterState,
    at: TopicPartition,
    before: &PartitionState,
    kind: ElectionKind,
) -> Result<Option<MetadataChange>, Rejection> {
    let settler = Settler::new(state);
    match kind {
        ElectionKind::Preferred => {
            let preferred = before.replicas.first().copied();
            if before.leader.is_some() && before.leader == preferred {
                let message = "Leader election not needed for topic partition.";
                return reject(Reason::ElectionNotNeeded, message);
            }
            let may = |node: &NodeId| before.isr.contains(node) && settler.alive(*node);
            let Some(preferred) = preferred.filter(may) else {
                let message = preferred_not_available(before, &settler);
                return reject(Reason::PreferredLeaderNotAvailable, message);
            };
            let wanted = PartitionState { leader: Some(preferred), ..before.clone() };
            Ok(settler.change(at, before, wanted, Unclean::ByConfig))
        }
        ElectionKind::Unclean => {
            if before.leader.is_some() {
                let message = "Leader election not needed for topic partition.";
                return reject(Reason::ElectionNotNeeded, message);
            }
            match settler.change(at, before, before.clone(), Unclean::Requested) {
                Some(change) => Ok(Some(change)),
                None => {
                    let message = format!(
                        "Eligible topic partition leaders are not available. No replica of it is alive: start one of \
                         brokers {}.",
                        listed(&before.replicas)
                    );
                    reject(Reason::EligibleLeadersNotAvailable, message)
                }
            }
        }
    }
}

fn listed(nodes: &[NodeId]) -> String {
    let ids: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

/// Kafka's sentence, and what can be done.
fn preferred_not_available(partition: &PartitionState, settler: &Settler<'_>) -> String {
    let kafkas = "The preferred leader was not available.";
    if partition.leader.is_none() {
        // Whoever is in one of the two sets has all that was committed.
        let whole: Vec<NodeId> = partition.isr.iter().chain(&partition.elr).copied().collect();
        return format!(
            "{kafkas} No replica that has all committed records is alive: start one of brokers {}. To elect one without \
             them and lose what it lacks, ask for an unclean election (weir partition elect --unclean).",
            listed(&whole)
        );
    }
    match partition.replicas.first() {
        Some(preferred) if !settler.alive(*preferred) => {
            format!("{kafkas} Broker {preferred} is fenced: start it, or reassign the partition.")
        }
        Some(preferred) => {
            format!("{kafkas} Broker {preferred} is not in sync yet: wait until it is in the ISR.")
        }
        None => kafkas.to_owned(),
    }
}

/// Whether a partition is led by another than its preferred leader, though that one could lead.
pub fn is_imbalanced(state: &ClusterState, partition: &PartitionState) -> bool {
    let Some(preferred) = partition.replicas.first() else { return false };
    partition.leader.is_some_and(|leader| leader != *preferred)
        && partition.isr.contains(preferred)
        && state.nodes().is_active(*preferred)
}

/// Gives preferred leaders their partitions back, `most` at a time; the answer is how many.
pub fn balance_leaders(state: &ClusterState, most: usize) -> Result<Decision<usize>, Rejection> {
    let settler = Settler::new(state);
    let imbalanced = state.partitions().iter().filter(|(_, partition)| is_imbalanced(state, partition));
    let changes: Vec<MetadataChange> = imbalanced
        .take(most)
        .filter_map(|(at, before)| {
            let wanted = PartitionState { leader: before.replicas.first().copied(), ..before.clone() };
            settler.change(at, before, wanted, Unclean::ByConfig)
        })
        .collect();
    let reply = changes.len();
    Ok(Decision { changes, reply })
}
