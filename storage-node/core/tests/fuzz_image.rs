//! The image under seeded random changes: a snapshot rebuilds what the deltas built, and deltas name what they touched.
//!
//! `WEIR_SEED=7 cargo test -p storage-node-core --test fuzz_image` repeats one seed.

use proto_types::feature::FeatureLevel;
use proto_types::ids::{
    BrokerEpoch, DirectoryId, FeatureEpoch, Incarnation, LeaderEpoch, MetadataIndex, NodeId, PartitionEpoch,
    PartitionIndex, ProducerId, TopicId, TopicPartition,
};
use proto_types::metadata::{ConfigResource, Listener, MetadataChange, NodeRegistered, PartitionState};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use storage_node_core::image::{ClusterImage, ImageDelta};
use uuid::Uuid;

const STEPS: u64 = 400;

fn seeds() -> Vec<u64> {
    match std::env::var("WEIR_SEED") {
        Ok(seed) => vec![seed.parse().expect("WEIR_SEED is a number")],
        Err(_) => (0..40).collect(),
    }
}

fn topic(rng: &mut StdRng) -> TopicId {
    TopicId(Uuid::from_u128(rng.random_range(1..12)))
}

fn node(rng: &mut StdRng) -> NodeId {
    NodeId(rng.random_range(1..5))
}

fn resource(rng: &mut StdRng) -> ConfigResource {
    match rng.random_range(0..3) {
        0 => ConfigResource::Topic(topic(rng)),
        1 => ConfigResource::Node(node(rng)),
        _ => ConfigResource::NodeDefault,
    }
}

fn registration(rng: &mut StdRng) -> NodeRegistered {
    let node = node(rng);
    NodeRegistered {
        node,
        broker_epoch: BrokerEpoch(rng.random_range(1..4)),
        incarnation: Incarnation(Uuid::from_u128(rng.random())),
        directories: vec![DirectoryId(Uuid::from_u128(rng.random()))],
        listeners: vec![Listener { name: "PLAINTEXT".into(), host: "h".into(), port: 9092 }],
        control_address: "h:9182".into(),
        data_address: "h:9192".into(),
        rack: None,
    }
}

fn partition_state(rng: &mut StdRng) -> PartitionState {
    let replicas: Vec<NodeId> = (1..5).map(NodeId).filter(|_| rng.random_bool(0.5)).collect();
    PartitionState {
        leader: replicas.first().copied(),
        isr: replicas.clone(),
        replicas,
        adding: vec![],
        removing: vec![],
        elr: vec![],
        leader_epoch: LeaderEpoch(rng.random_range(0..9)),
        partition_epoch: PartitionEpoch(rng.random_range(0..9)),
    }
}

/// A change that the controller could have committed on top of `image`: configs only of what exists, names unique.
fn change(rng: &mut StdRng, image: &ClusterImage) -> MetadataChange {
    match rng.random_range(0..11) {
        0 => MetadataChange::NodeRegistered(registration(rng)),
        1 => MetadataChange::NodeFenced {
            node: node(rng),
            broker_epoch: BrokerEpoch(rng.random_range(1..4)),
            fenced: rng.random(),
        },
        2 => MetadataChange::NodeRemoved { node: node(rng) },
        3 => {
            let topic = topic(rng);
            if image.topic(topic).is_some() {
                return MetadataChange::TopicDeleted { topic };
            }
            MetadataChange::TopicCreated { topic, name: format!("topic-{topic}") }
        }
        4..=6 => MetadataChange::PartitionSet {
            partition: TopicPartition {
                topic: topic(rng),
                partition: PartitionIndex(rng.random_range(0..4)),
            },
            state: partition_state(rng),
        },
        7 => MetadataChange::ProducerIdsAllocated { next: ProducerId(rng.random_range(0..9000)) },
        8 => {
            let (level, FeatureEpoch(last)) = image.feature_level();
            let epoch = FeatureEpoch(last + 1 + rng.random_range(0..3));
            MetadataChange::FeatureLevelSet { level: FeatureLevel(level.0 + rng.random_range(0..2)), epoch }
        }
        _ => {
            let resource = resource(rng);
            let exists = match &resource {
                ConfigResource::Topic(topic) => image.topic(*topic).is_some(),
                ConfigResource::Node(node) => image.node(*node).is_some(),
                ConfigResource::NodeDefault => true,
            };
            let name = ["retention.ms", "segment.bytes"][rng.random_range(0..2)].to_owned();
            let value = (exists && rng.random_bool(0.7)).then(|| rng.random_range(1..5).to_string());
            MetadataChange::ConfigSet { resource, name, value }
        }
    }
}

/// The changes that rebuild `image` from nothing, as a controller's snapshot lists them.
fn snapshot(image: &ClusterImage) -> Vec<MetadataChange> {
    let (level, epoch) = image.feature_level();
    let mut changes = vec![MetadataChange::FeatureLevelSet { level, epoch }];
    for node in image.nodes() {
        changes.push(MetadataChange::NodeRegistered(node.registration.clone()));
        changes.push(MetadataChange::NodeFenced {
            node: node.registration.node,
            broker_epoch: node.registration.broker_epoch,
            fenced: node.fenced,
        });
    }
    for topic in image.topics() {
        changes.push(MetadataChange::TopicCreated { topic: topic.id, name: topic.name.to_string() });
        changes.extend(topic.partitions.iter().map(|(&partition, state)| MetadataChange::PartitionSet {
            partition: TopicPartition { topic: topic.id, partition },
            state: state.as_ref().clone(),
        }));
    }
    for resource in image.configured_resources() {
        let configs = image.configs(resource).expect("the resource was listed");
        changes.extend(configs.iter().map(|(name, value)| MetadataChange::ConfigSet {
            resource: resource.clone(),
            name: name.clone(),
            value: Some(value.clone()),
        }));
    }
    changes
}

/// Everything that really differs was named by the deltas.
fn covers(delta: &ImageDelta, real: &ImageDelta) -> bool {
    real.nodes.is_subset(&delta.nodes)
        && real.topics.is_subset(&delta.topics)
        && real.partitions.is_subset(&delta.partitions)
        && real.configs.is_subset(&delta.configs)
}

#[test]
fn a_snapshot_rebuilds_what_the_deltas_built() {
    for seed in seeds() {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut image = ClusterImage::empty();
        let mut since = (image.clone(), ImageDelta::default());
        for step in 1..=STEPS {
            let before = image.clone();
            let next = change(&mut rng, &image);
            let delta = image.apply(MetadataIndex(step), std::slice::from_ref(&next));
            let real = ImageDelta::between(&before, &image);
            assert!(
                covers(&delta, &real),
                "seed {seed} step {step}: {next:?} touched {real:?}, said {delta:?}"
            );
            since.1.merge(delta);

            let mut rebuilt = ClusterImage::empty();
            rebuilt.apply(MetadataIndex(step), &snapshot(&image));
            assert_eq!(rebuilt, image, "seed {seed} step {step}: after {next:?}");

            if rng.random_bool(0.05) {
                let real = ImageDelta::between(&since.0, &image);
                assert!(covers(&since.1, &real), "seed {seed} step {step}: merged deltas miss a change");
                assert!(ImageDelta::between(&image, &rebuilt).is_empty(), "seed {seed} step {step}");
                since = (image.clone(), ImageDelta::default());
            }
        }
    }
}

#[test]
fn lookups_agree_with_the_whole_listing() {
    for seed in seeds() {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut image = ClusterImage::empty();
        for step in 1..=STEPS {
            let next = change(&mut rng, &image);
            image.apply(MetadataIndex(step), std::slice::from_ref(&next));
        }
        let names: Vec<&str> = image.topics().map(|topic| &*topic.name).collect();
        assert!(names.is_sorted(), "seed {seed}: {names:?}");
        assert_eq!(names.len(), image.topic_count(), "seed {seed}");
        for (i, name) in names.iter().enumerate() {
            let by_name = image.topic_by_name(name).expect("a listed topic is found by name");
            assert_eq!(Some(by_name), image.topic(by_name.id), "seed {seed}");
            assert_eq!(image.topics_from(name).count(), names.len() - i, "seed {seed}");
        }
        for id in (1..5).map(NodeId) {
            for local in image.partitions_on(id) {
                assert!(local.state.replicas.contains(&id), "seed {seed}");
                assert_eq!(image.partition_on(id, local.id), Some(local.clone()), "seed {seed}");
                assert_eq!(image.partition(local.id), Some(&local.state), "seed {seed}");
            }
        }
    }
}
