//! The history of the metadata, change by change: nobody leads who was not in sync, epochs never go back, no id is used twice.

use std::collections::{BTreeMap, BTreeSet};

use controller_core::{ClusterState, invariants};
use proto_types::ids::{MetadataIndex, NodeId, TopicId, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};

use super::Findings;
use super::raft_log::{Quorum, Snapshot};

/// Kafka's name of the config that allows an unclean election.
const UNCLEAN: &str = "unclean.leader.election.enable";

/// Replays everything that is there and gives the state at the end.
pub(super) fn replay(quorum: &Quorum, findings: &mut Findings) -> ClusterState {
    let mut snapshots = quorum.snapshots.clone();
    snapshots.sort_by_key(|snapshot| snapshot.index);
    let first = quorum.entries.keys().next().copied().unwrap_or(u64::MAX);
    // The log may begin behind a snapshot; then the history before it is lost to us.
    let begin = snapshots.iter().find(|_| first > 1).filter(|snapshot| snapshot.index + 1 >= first);
    let mut state = begin.map_or_else(ClusterState::new, state_of);
    if first > 1 && begin.is_none() && first != u64::MAX {
        findings
            .faults
            .push(format!("the metadata log begins at index {first} and no snapshot covers what was before"));
    }
    let mut topics: BTreeSet<TopicId> = state.topics().iter().map(|(_, id)| id).collect();
    let begun = state.applied().0 + 1;
    let mut expected = begun;
    let mut broken = None;
    let mut later = snapshots.iter().filter(|snapshot| snapshot.index >= begun).peekable();
    for (index, changes) in quorum.entries.range(begun..) {
        if *index != expected && expected > 1 {
            findings.faults.push(format!("metadata entries {expected} to {} are missing", index - 1));
        }
        expected = index + 1;
        for change in changes {
            findings.counts.metadata_changes += 1;
            if let Some(what) = fault_of(&state, change, &mut topics, findings) {
                findings.faults.push(format!("metadata index {index}: {what}"));
            }
            state.apply(MetadataIndex(*index), change);
        }
        // Told when it appears, not once more for each entry until it goes away.
        let now = invariants::check(&state).err();
        if let Some(broken) = now.as_ref().filter(|_| now != broken) {
            findings.faults.push(format!("metadata index {index}: {broken}"));
        }
        broken = now;
        while let Some(snapshot) = later.next_if(|snapshot| snapshot.index <= *index) {
            if snapshot.index == *index && state_of(snapshot).to_changes() != state.to_changes() {
                let path = snapshot.path.display();
                findings.faults.push(format!("{path} is another state than the log gives at index {index}"));
            }
        }
    }
    // The log of the newest snapshot may be gone everywhere.
    match snapshots.last().filter(|newest| newest.index >= expected) {
        Some(newest) => state_of(newest),
        None => state,
    }
}

fn state_of(snapshot: &Snapshot) -> ClusterState {
    ClusterState::from_changes(MetadataIndex(snapshot.index), &snapshot.changes)
}

/// What is wrong with a change on this state.
fn fault_of(
    state: &ClusterState,
    change: &MetadataChange,
    topics: &mut BTreeSet<TopicId>,
    findings: &mut Findings,
) -> Option<String> {
    match change {
        MetadataChange::NodeRegistered(new) => {
            let old = &state.nodes().get(new.node)?.registration;
            let same = old.incarnation == new.incarnation;
            let wrong =
                old.broker_epoch > new.broker_epoch || (!same && old.broker_epoch == new.broker_epoch);
            wrong.then(|| {
                format!("node {}: broker epoch {} after {}", new.node, new.broker_epoch, old.broker_epoch)
            })
        }
        MetadataChange::CoordinatorRegistered(new) => {
            let old = &state.coordinators().get(new.coordinator)?.registration;
            let same = old.incarnation == new.incarnation;
            let wrong = old.epoch > new.epoch || (!same && old.epoch == new.epoch);
            wrong.then(|| format!("coordinator {}: epoch {} after {}", new.coordinator, new.epoch, old.epoch))
        }
        MetadataChange::TopicCreated { topic, name } => {
            (!topics.insert(*topic)).then(|| format!("the id of topic {name} was used before"))
        }
        MetadataChange::PartitionSet { partition, state: new } => {
            let Some(old) = state.partitions().get(*partition) else {
                return well_formed(new).map(|what| format!("{partition}: {what}: {new:?}"));
            };
            if old.leader != new.leader {
                findings.counts.leader_changes += 1;
            }
            if old.isr != new.isr {
                findings.counts.isr_changes += 1;
            }
            let what = well_formed(new).or_else(|| step(state, *partition, old, new));
            what.map(|what| format!("{partition}: {what}: {old:?} → {new:?}"))
        }
        MetadataChange::ProducerIdsAllocated { next } => {
            let before = state.producer_ids().next();
            (*next <= before).then(|| format!("producer ids up to {next} are handed out after {before}"))
        }
        MetadataChange::ShardAssigned { shard, epoch, .. } => {
            let before = state.shards().get(*shard)?.epoch;
            (*epoch <= before).then(|| format!("shard {shard}: coordinator epoch {epoch} after {before}"))
        }
        MetadataChange::FeatureLevelSet { level, epoch } => {
            let before = state.features();
            let wrong = *level < before.level() || *epoch <= before.epoch();
            wrong.then(|| {
                let (old_level, old_epoch) = (before.level(), before.epoch());
                format!("feature level {level} of epoch {epoch} after {old_level} of {old_epoch}")
            })
        }
        MetadataChange::NodeFenced { .. }
        | MetadataChange::NodeRemoved { .. }
        | MetadataChange::TopicDeleted { .. }
        | MetadataChange::ConfigSet { .. }
        | MetadataChange::CoordinatorFenced { .. }
        | MetadataChange::NodeLevels { .. }
        | MetadataChange::CoordinatorLevels { .. }
        | MetadataChange::ControllersSet { .. } => None,
    }
}

/// What must hold for every state of a partition.
fn well_formed(new: &PartitionState) -> Option<&'static str> {
    let within = |some: &[NodeId]| some.iter().all(|node| new.replicas.contains(node));
    let distinct = |some: &[NodeId]| some.iter().collect::<BTreeSet<_>>().len() == some.len();
    if !within(&new.isr) || !within(&new.elr) {
        return Some("a member of ISR or ELR is no replica");
    }
    if !distinct(&new.replicas) || !distinct(&new.isr) || !distinct(&new.elr) {
        return Some("a node stands twice in a list");
    }
    if new.leader.is_some_and(|leader| !new.isr.contains(&leader)) {
        return Some("the leader is not in the ISR");
    }
    new.isr.iter().any(|node| new.elr.contains(node)).then_some("a node is in ISR and ELR")
}

/// What must hold from one state to the next.
fn step(
    state: &ClusterState,
    partition: TopicPartition,
    old: &PartitionState,
    new: &PartitionState,
) -> Option<&'static str> {
    if new.partition_epoch <= old.partition_epoch {
        return Some("the partition epoch does not grow");
    }
    if new.leader_epoch < old.leader_epoch {
        return Some("the leader epoch goes back");
    }
    if new.leader != old.leader && new.leader_epoch == old.leader_epoch {
        return Some("another leader in the same epoch");
    }
    let was_eligible = |node: &NodeId| old.isr.contains(node) || old.elr.contains(node);
    let unclean_allowed = state.configs().topic_value(partition.topic, UNCLEAN) == Some("true");
    if new.leader.is_some_and(|leader| !was_eligible(&leader)) && !unclean_allowed {
        return Some("the new leader was neither in ISR nor in ELR");
    }
    let joined: BTreeMap<NodeId, bool> = new
        .isr
        .iter()
        .filter(|node| !old.isr.contains(node))
        .map(|node| (*node, state.nodes().is_active(*node)))
        .collect();
    // The node that was the last one may come back as leader in the batch that unfences it.
    let fenced = joined.iter().any(|(node, active)| !active && new.leader != Some(*node));
    fenced.then_some("a fenced node joined the ISR")
}
