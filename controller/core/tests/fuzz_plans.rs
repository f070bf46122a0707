//! Random histories from a seed. After each step the invariants hold, and whoever is in an ISR or ELR has everything that
//! is committed (R3); at the end the state equals a full replay, and a snapshot taken anywhere plus the tail; and no id was
//! ever used twice.

mod cluster;
mod replication;

use cluster::{Cluster, on_topic, op};
use controller_core::{Chance, ClusterState, plan};
use proto_types::controller_api::*;
use proto_types::ids::*;
use proto_types::metadata::*;
use proto_types::{decode, encode};
use std::collections::{BTreeMap, BTreeSet};

const STEPS: usize = 300;

/// Histories of each kind.
const RUNS: u64 = 60;

fn for_each_seed(runs: u64, test: &str, history: fn(u64)) {
    let seeds: Vec<u64> = match std::env::var("WEIR_SEED") {
        Ok(seed) => vec![seed.parse().expect("WEIR_SEED is a number")],
        Err(_) => match std::env::var("WEIR_SEEDS") {
            Ok(count) => (0..count.parse().expect("WEIR_SEEDS is a number")).collect(),
            Err(_) => (0..runs).collect(),
        },
    };
    for seed in seeds {
        let repeat =
            format!("repeat with: WEIR_SEED={seed} cargo test -p controller-core --test fuzz_plans {test}");
        let outcome = std::panic::catch_unwind(|| history(seed));
        assert!(outcome.is_ok(), "{repeat}");
    }
}

#[test]
fn random_histories() {
    for_each_seed(RUNS, "random_histories", history);
}

/// Leaders, in-sync sets and reassignments of a few partitions.
#[test]
fn random_replication() {
    for_each_seed(RUNS * 2, "random_replication", |seed| {
        replication::history(seed);
    });
}

/// What the runs are for has happened in them.
#[test]
fn random_replication_gets_everywhere() {
    let mut seen = replication::Seen::default();
    for seed in 0..RUNS {
        seen.add(replication::history(seed));
    }
    seen.check();
}

fn history(seed: u64) {
    let mut chance = Chance::new(u128::from(seed));
    let mut cluster = Cluster::new(u128::from(seed) << 64 | 1);
    let mut incarnation = 0;
    for _ in 0..STEPS {
        step(&mut cluster, &mut chance, &mut incarnation);
    }
    check_replay(&cluster);
    check_snapshots(&cluster, &mut chance);
    check_ids(&cluster);
}

fn step(cluster: &mut Cluster, chance: &mut Chance, incarnation: &mut u128) {
    let node = 1 + chance.below(5) as i32;
    let name = format!("t{}", chance.below(8));
    match chance.below(12) {
        0 => {
            *incarnation += 1;
            cluster.register(node, *incarnation).expect("right directories");
        }
        1 | 2 if known(cluster, node) => cluster.unfence(node),
        3 if known(cluster, node) => cluster.fence(node),
        4..=6 => {
            let factor = chance.below(4) as i16;
            let _ = cluster.create(cluster::topic(&name, chance.below(6) as i32, factor));
        }
        7 => {
            let _ = cluster.delete(TopicRef::Name(name));
        }
        8 => {
            let _ = cluster.grow(&name, chance.below(9) as i32, vec![]);
        }
        9 => {
            let value = (chance.below(5) as i64 - 1).to_string();
            let names = ["retention.ms", "min.insync.replicas", "cleanup.policy"];
            let kinds =
                [ConfigOpKind::Set, ConfigOpKind::Delete, ConfigOpKind::Append, ConfigOpKind::Subtract];
            let change = op(kinds[chance.below(4)], names[chance.below(3)], &value);
            let _ = cluster.alter(on_topic(&name), chance.below(2) == 0, vec![change]);
        }
        10 => {
            let value = (1 + chance.below(3)).to_string();
            let change = op(ConfigOpKind::Set, "min.insync.replicas", &value);
            let all = ResourceRef::Resource(ConfigResource::NodeDefault);
            cluster.alter(all, false, vec![change]).expect("a valid value");
        }
        _ if known(cluster, node) => {
            let request = AllocateProducerIds { node: NodeId(node), broker_epoch: cluster.epoch(node) };
            let decision = plan::allocate_producer_ids(&cluster.state, &request).expect("registered");
            cluster.commit(decision);
        }
        _ => {}
    }
}

fn known(cluster: &Cluster, node: i32) -> bool {
    cluster.state.nodes().get(NodeId(node)).is_some()
}

fn check_replay(cluster: &Cluster) {
    let mut replayed = ClusterState::new();
    for (index, changes) in &cluster.log {
        let bytes = encode(changes);
        replayed.apply_batch(*index, &decode::<Vec<MetadataChange>>(&bytes).expect("own bytes"));
    }
    assert_eq!(replayed, cluster.state);
}

fn check_snapshots(cluster: &Cluster, chance: &mut Chance) {
    for _ in 0..5 {
        let cut = chance.below(cluster.log.len());
        let mut state = ClusterState::new();
        for (index, changes) in &cluster.log[..cut] {
            state.apply_batch(*index, changes);
        }
        let snapshot = state.to_changes();
        let mut restored = ClusterState::from_changes(state.applied(), &snapshot);
        assert_eq!(restored, state, "a snapshot rebuilds the state");
        for (index, changes) in &cluster.log[cut..] {
            restored.apply_batch(*index, changes);
        }
        assert_eq!(restored, cluster.state, "snapshot and tail equal the full replay");
    }
}

fn check_ids(cluster: &Cluster) {
    let mut topics = BTreeSet::new();
    let mut epochs: BTreeMap<NodeId, BrokerEpoch> = BTreeMap::new();
    let mut leader_epochs: BTreeMap<TopicPartition, (LeaderEpoch, Option<NodeId>)> = BTreeMap::new();
    let mut next_producer = 0;
    for change in cluster.log.iter().flat_map(|(_, changes)| changes) {
        match change {
            MetadataChange::TopicCreated { topic, .. } => assert!(topics.insert(*topic), "topic id reused"),
            MetadataChange::NodeRegistered(registration) => {
                let last = epochs.insert(registration.node, registration.broker_epoch);
                assert!(last.is_none_or(|last| last < registration.broker_epoch), "broker epoch reused");
            }
            MetadataChange::ProducerIdsAllocated { next } => {
                assert_eq!(next.0, next_producer + 1000, "a block was skipped or handed out twice");
                next_producer = next.0;
            }
            MetadataChange::PartitionSet { partition, state } => {
                let now = (state.leader_epoch, state.leader);
                if let Some((epoch, leader)) = leader_epochs.insert(*partition, now) {
                    assert!(epoch < now.0 || (epoch, leader) == now, "one leader per epoch");
                }
            }
            MetadataChange::NodeFenced { .. }
            | MetadataChange::CoordinatorRegistered(_)
            | MetadataChange::CoordinatorFenced { .. }
            | MetadataChange::ShardAssigned { .. }
            | MetadataChange::ControllersSet { .. }
            | MetadataChange::FeatureLevelSet { .. }
            | MetadataChange::NodeLevels { .. }
            | MetadataChange::CoordinatorLevels { .. }
            | MetadataChange::NodeRemoved { .. }
            | MetadataChange::TopicDeleted { .. }
            | MetadataChange::ConfigSet { .. } => {}
        }
    }
}
