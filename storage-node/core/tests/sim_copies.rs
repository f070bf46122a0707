//! One node's copies while topics are deleted, created anew under their old names, and moved: the metadata comes late, in any
//! portions, again after it came already, or as a snapshot; and the node restarts.
//!
//! `WEIR_SEED=7 cargo test -p storage-node-core --test sim_copies` repeats one seed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proto_types::ids::{LeaderEpoch, MetadataIndex, NodeId, PartitionEpoch, PartitionIndex};
use proto_types::ids::{TopicId, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use storage_node_core::image::{ClusterImage, ImageDelta};
use storage_node_core::{CopyChange, copy_changes};
use uuid::Uuid;

const SEEDS: u64 = 200;
const STEPS: u64 = 300;
const PARTITIONS: i32 = 3;
const NAMES: [&str; 3] = ["a", "b", "c"];
const ME: NodeId = NodeId(1);

/// What the controllers have committed.
#[derive(Default)]
struct Controller {
    image: ClusterImage,
    log: Vec<Vec<MetadataChange>>,
    /// Ids are never used again.
    topics: u128,
}

impl Controller {
    fn commit(&mut self, changes: Vec<MetadataChange>) {
        self.log.push(changes);
        self.image.apply(MetadataIndex(self.log.len() as u64), &self.log[self.log.len() - 1]);
    }

    fn step(&mut self, rng: &mut StdRng) {
        let name = NAMES[rng.random_range(0..NAMES.len())];
        let Some(topic) = self.image.topic_by_name(name).map(|topic| topic.id) else {
            self.topics += 1;
            let topic = TopicId(Uuid::from_u128(self.topics));
            let created = MetadataChange::TopicCreated { topic, name: name.to_owned() };
            let partitions = (0..PARTITIONS).map(|partition| placed(rng, topic, partition, true));
            return self.commit([created].into_iter().chain(partitions).collect());
        };
        if rng.random_bool(0.3) {
            return self.commit(vec![MetadataChange::TopicDeleted { topic }]);
        }
        let (partition, here) = (rng.random_range(0..PARTITIONS), rng.random_bool(0.6));
        let moved = placed(rng, topic, partition, here);
        self.commit(vec![moved]);
    }

    /// What belonged here at every index from `first` to `last`.
    fn here_all_along(&self, first: usize, last: usize) -> BTreeSet<TopicPartition> {
        let here = |image: &ClusterImage| -> BTreeSet<TopicPartition> {
            image.partitions_on(ME).map(|local| local.id).collect()
        };
        let mut image = ClusterImage::empty();
        let mut always: Option<BTreeSet<TopicPartition>> = None;
        for index in 0..=last {
            if let Some(at) = index.checked_sub(1) {
                image.apply(MetadataIndex(index as u64), &self.log[at]);
            }
            if index >= first {
                let now = here(&image);
                always = Some(always.map_or_else(|| now.clone(), |before| &before & &now));
            }
        }
        always.unwrap_or_default()
    }
}

fn placed(rng: &mut StdRng, topic: TopicId, partition: i32, here: bool) -> MetadataChange {
    let replicas = if here { vec![ME, NodeId(2)] } else { vec![NodeId(2), NodeId(3)] };
    MetadataChange::PartitionSet {
        partition: TopicPartition { topic, partition: PartitionIndex(partition) },
        state: PartitionState {
            leader: replicas.first().copied(),
            isr: replicas.clone(),
            replicas,
            adding: vec![],
            removing: vec![],
            elr: vec![],
            leader_epoch: LeaderEpoch(rng.random_range(0..9)),
            partition_epoch: PartitionEpoch(rng.random_range(0..9)),
        },
    }
}

/// The node: what it knows, the copies that it holds, and its disk, on which each log has a number of its own.
#[derive(Default)]
struct Node {
    image: ClusterImage,
    held: HashMap<TopicPartition, u64>,
    disk: BTreeMap<TopicPartition, u64>,
    logs: u64,
    /// A delta that it was told and may be told again.
    told: ImageDelta,
    /// Logs that belong here and must stay until the metadata says otherwise.
    owed: BTreeMap<TopicPartition, u64>,
}

impl Node {
    fn index(&self) -> usize {
        usize::try_from(self.image.index().0).expect("small")
    }

    /// Hears of the next entries, perhaps together with what it heard before.
    fn hear(&mut self, rng: &mut StdRng, controller: &Controller, until: usize) {
        let mut delta = ImageDelta::default();
        for at in self.index()..until {
            let changes = &controller.log[at];
            // What goes away in the middle of a portion is gone for good, though it may be back at its end.
            delta.merge(self.image.apply(MetadataIndex(at as u64 + 1), changes));
        }
        if rng.random_bool(0.3) {
            delta.merge(self.told.clone());
        }
        self.told = delta.clone();
        self.carry_out(&delta);
    }

    /// Gets everything anew, as after it was too far behind.
    fn hear_snapshot(&mut self, controller: &Controller) {
        let delta = ImageDelta::between(&self.image, &controller.image);
        self.image = controller.image.clone();
        self.carry_out(&delta);
    }

    fn carry_out(&mut self, delta: &ImageDelta) {
        let mut seen = BTreeSet::new();
        for change in copy_changes(&self.image, delta, ME, &self.held) {
            let id = match change {
                CopyChange::Open(local) => {
                    let log = *self.disk.entry(local.id).or_insert_with(|| {
                        self.logs += 1;
                        self.logs
                    });
                    assert_eq!(self.held.insert(local.id, log), None, "{} is open already", local.id);
                    local.id
                }
                CopyChange::GoOn(local) => {
                    assert!(self.held.contains_key(&local.id), "{} is not held", local.id);
                    local.id
                }
                CopyChange::Drop(id) => {
                    assert!(self.held.remove(&id).is_some(), "{id} is not held");
                    self.disk.remove(&id);
                    id
                }
            };
            assert!(seen.insert(id), "{id} is changed twice");
        }
    }

    /// The copies that are held are those that belong here; and none that belonged here before and now was begun anew.
    fn check(&mut self) {
        let here: BTreeSet<TopicPartition> = self.image.partitions_on(ME).map(|local| local.id).collect();
        let held: BTreeSet<TopicPartition> = self.held.keys().copied().collect();
        self.owed.retain(|id, _| here.contains(id));
        for (id, log) in &self.owed {
            assert_eq!(self.disk.get(id), Some(log), "R1: the log of {id} is lost");
        }
        assert_eq!(held, here, "held, and placed here");
        self.owed = self.held.iter().map(|(id, log)| (*id, *log)).collect();
    }

    /// It comes back with its disk and metadata of any age, or none.
    fn restart(&mut self, rng: &mut StdRng, controller: &Controller) {
        let until = rng.random_range(0..=self.index());
        let mut before = std::mem::take(self);
        *self = Node { disk: before.disk.clone(), logs: before.logs, ..Node::default() };
        self.hear(rng, controller, until);
        let lost = before.disk.iter().find(|(id, log)| self.disk.get(id) != Some(log));
        assert_eq!(lost, None, "T-30: lost at a start");
        // What belonged here all the time since then is still owed.
        let always = controller.here_all_along(until, before.index());
        before.owed.retain(|id, _| always.contains(id));
        self.owed = before.owed;
        self.check();
    }
}

fn run(seed: u64) {
    let rng = &mut StdRng::seed_from_u64(seed);
    let (mut controller, mut node) = (Controller::default(), Node::default());
    for _ in 0..STEPS {
        match rng.random_range(0..100) {
            0..50 => controller.step(rng),
            50..95 => {
                let until = rng.random_range(node.index()..=controller.log.len());
                node.hear(rng, &controller, until);
                node.check();
            }
            95..98 => {
                node.hear_snapshot(&controller);
                node.check();
            }
            _ => node.restart(rng, &controller),
        }
    }
}

/// T-29, T-30.
#[test]
fn only_copies_that_do_not_belong_here_go() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("WEIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        eprintln!("WEIR_SEED={seed}");
        run(seed);
    }
}
