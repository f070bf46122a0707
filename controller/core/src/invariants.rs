//! What must be true of a [`ClusterState`] between batches. Checked after every batch in tests and debug builds.

use crate::plan::min_insync;
use crate::state::ClusterState;
use proto_types::config_schema::{node_config, topic_config};
use proto_types::ids::{NodeId, TopicPartition};
use proto_types::metadata::{ConfigResource, PartitionState};
use std::collections::BTreeSet;

/// Checks everything; the error names what is broken.
pub fn check(state: &ClusterState) -> Result<(), String> {
    check_topics(state)?;
    for (at, partition) in state.partitions().iter() {
        check_partition(state, at, partition).map_err(|broken| format!("partition {at}: {broken}"))?;
    }
    check_nodes(state)?;
    check_levels(state)?;
    check_configs(state)?;
    check_shards(state)?;
    ensure(state.producer_ids().next().0 >= 0, || "producer ids are negative".to_owned())
}

fn ensure(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken()) }
}

fn check_topics(state: &ClusterState) -> Result<(), String> {
    let mut partitions = 0;
    for (name, topic) in state.topics().iter() {
        ensure(state.topics().name(topic) == Some(name), || format!("topic {name}: id and name disagree"))?;
        ensure(state.topics().colliding(name) == Some(name), || format!("topic {name} collides"))?;
        let count = state.partitions().count_of(topic);
        ensure(count > 0, || format!("topic {name} has no partition"))?;
        let dense =
            state.partitions().of_topic(topic).enumerate().all(|(at, (index, _))| index.0 as usize == at);
        ensure(dense, || format!("topic {name}: partition indexes are not 0..{count}"))?;
        partitions += count;
    }
    ensure(partitions == state.partitions().len(), || "partitions of unknown topics".to_owned())?;
    ensure(state.topics().iter().count() == state.topics().len(), || "two topics of one name".to_owned())
}

fn check_partition(
    state: &ClusterState,
    at: TopicPartition,
    partition: &PartitionState,
) -> Result<(), String> {
    ensure(state.topics().name(at.topic).is_some(), || "its topic does not exist".to_owned())?;
    ensure(!partition.replicas.is_empty(), || "no replicas".to_owned())?;
    let of = partition;
    for (what, nodes) in [
        ("replicas", &of.replicas),
        ("ISR", &of.isr),
        ("ELR", &of.elr),
        ("adding", &of.adding),
        ("removing", &of.removing),
    ] {
        let distinct: BTreeSet<NodeId> = nodes.iter().copied().collect();
        ensure(distinct.len() == nodes.len(), || format!("{what} names a node twice: {nodes:?}"))?;
        ensure(nodes.iter().all(|node| partition.replicas.contains(node)), || {
            format!("{what} {nodes:?} is not within the replicas")
        })?;
    }
    ensure(!partition.isr.is_empty(), || "empty ISR".to_owned())?;
    ensure(!partition.elr.iter().any(|node| partition.isr.contains(node)), || {
        "a node is in ISR and ELR".to_owned()
    })?;
    check_eligibility(state, at, partition)?;
    ensure(partition.leader_epoch.0 >= 0 && partition.partition_epoch.0 >= 0, || {
        "a negative epoch".to_owned()
    })?;
    match partition.leader {
        Some(leader) => {
            ensure(partition.isr.contains(&leader), || format!("leader {leader} is not in the ISR"))?;
            ensure(state.nodes().is_active(leader), || format!("leader {leader} is fenced or unknown"))
        }
        None => {
            let eligible = || partition.isr.iter().chain(&partition.elr);
            let idle = eligible().find(|node| state.nodes().is_active(**node));
            ensure(idle.is_none(), || format!("no leader although {idle:?} could lead"))
        }
    }
}

/// R4 and R10: who is in the ISR is alive, unless nobody else is left in it; who is eligible beside it can be so only while
/// nothing can be committed; a reassignment has a target, and ends when that is in sync.
fn check_eligibility(
    state: &ClusterState,
    at: TopicPartition,
    partition: &PartitionState,
) -> Result<(), String> {
    let fenced = partition.isr.iter().find(|node| !state.nodes().is_active(**node));
    ensure(fenced.is_none() || partition.isr.len() == 1, || {
        format!("node {fenced:?} is fenced or unknown and in an ISR of several")
    })?;
    if !partition.elr.is_empty() {
        let min = min_insync(state, at.topic, partition.replicas.len());
        ensure(partition.isr.len() < min, || {
            format!(
                "ELR {:?} beside an ISR of {}, though {min} are enough",
                partition.elr,
                partition.isr.len()
            )
        })?;
    }
    let unknown = partition.replicas.iter().find(|node| state.nodes().get(**node).is_none());
    ensure(unknown.is_none(), || format!("replica {unknown:?} is not registered"))?;
    let both = partition.adding.iter().find(|node| partition.removing.contains(node));
    ensure(both.is_none(), || format!("{both:?} is being added and removed"))?;
    let mut target = partition.replicas.iter().filter(|node| !partition.removing.contains(node)).peekable();
    ensure(target.peek().is_some(), || "all replicas are being removed".to_owned())?;
    let moving = !partition.adding.is_empty() || !partition.removing.is_empty();
    ensure(!moving || !target.all(|node| partition.isr.contains(node)), || {
        "a reassignment goes on though its target is in sync".to_owned()
    })
}

fn check_nodes(state: &ClusterState) -> Result<(), String> {
    let mut directories = BTreeSet::new();
    for (id, node) in state.nodes().iter() {
        ensure(node.registration.node == id, || format!("node {id}: registered as another"))?;
        ensure(!node.registration.directories.is_empty(), || format!("node {id} has no directory"))?;
        for directory in &node.registration.directories {
            ensure(directories.insert(*directory), || format!("directory {directory} belongs to two nodes"))?;
        }
    }
    Ok(())
}

/// Whoever is counted on supports the level at which the cluster is.
fn check_levels(state: &ClusterState) -> Result<(), String> {
    let level = state.features().level();
    for (id, node) in state.nodes().iter() {
        ensure(node.levels.contains(level), || {
            format!("node {id} supports {}, not level {level}", node.levels)
        })?;
    }
    for (id, coordinator) in state.coordinators().iter().filter(|(_, coordinator)| !coordinator.fenced) {
        ensure(coordinator.levels.contains(level), || {
            format!("coordinator {id} supports {}, not level {level}", coordinator.levels)
        })?;
    }
    Ok(())
}

fn check_shards(state: &ClusterState) -> Result<(), String> {
    for (shard, ownership) in state.shards().iter() {
        ensure(state.partitions().get(shard).is_some(), || format!("shard {shard}: no such partition"))?;
        ensure(ownership.epoch.0 > 0, || format!("shard {shard}: epoch {}", ownership.epoch))?;
        if let Some(owner) = ownership.owner {
            ensure(state.coordinators().is_active(owner), || {
                format!("shard {shard}: owner {owner} is fenced or unknown")
            })?;
        }
    }
    Ok(())
}

fn check_configs(state: &ClusterState) -> Result<(), String> {
    for (resource, name, value) in state.configs().iter() {
        let def = match resource {
            ConfigResource::Topic(topic) => {
                ensure(state.topics().name(*topic).is_some(), || format!("config of no topic: {topic}"))?;
                topic_config(name)
            }
            ConfigResource::Node(_) | ConfigResource::NodeDefault => node_config(name),
        };
        let def = def.ok_or_else(|| format!("unknown config {name} of {resource:?}"))?;
        def.check(value)?;
    }
    Ok(())
}
