//! What this node knows of the cluster: nodes, topics, partitions and configs as of one index of the metadata log.
//!
//! The metadata feed applies committed changes to a [`ClusterImage`] and publishes a clone of it; everybody else reads
//! published images and never changes one. Families and topics sit behind `Arc`s, so a clone costs a few counters and a
//! change copies only the family that it touches. Applying cannot fail: the controller has checked every change, and a
//! change about something unknown (a partition of a deleted topic, say) is ignored. [`ImageDelta`] names what an
//! application touched, so that its readers need not compare whole images.

use proto_types::feature::FeatureLevel;
use proto_types::ids::{
    BrokerEpoch, CoordinatorEpoch, CoordinatorId, FeatureEpoch, MetadataIndex, NodeId, PartitionIndex,
    RegistrationEpoch, TopicId, TopicPartition,
};
use proto_types::metadata::{
    ConfigResource, ControllerAddress, CoordinatorRegistered, Listener, MetadataChange, NodeRegistered,
    PartitionState,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// The cluster as of one metadata index. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterImage {
    index: MetadataIndex,
    nodes: Arc<BTreeMap<NodeId, Arc<NodeImage>>>,
    topics: Arc<BTreeMap<TopicId, Arc<TopicImage>>>,
    names: Arc<BTreeMap<Arc<str>, TopicId>>,
    configs: Arc<BTreeMap<ConfigResource, Arc<ConfigMap>>>,
    coordinators: Arc<BTreeMap<CoordinatorId, CoordinatorImage>>,
    shards: Arc<BTreeMap<TopicPartition, ShardImage>>,
    controllers: Arc<[ControllerAddress]>,
    feature_level: (FeatureLevel, FeatureEpoch),
}

/// The dynamic configs of one resource: Kafka's name to value.
pub type ConfigMap = BTreeMap<String, String>;

/// A storage node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeImage {
    /// Its newest registration.
    pub registration: NodeRegistered,
    /// A fenced node leads nothing and is not shown to clients.
    pub fenced: bool,
}

/// A coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorImage {
    /// Its newest registration.
    pub registration: CoordinatorRegistered,
    /// A fenced coordinator owns no shard.
    pub fenced: bool,
}

/// Who owns a shard, which is a partition of an internal topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardImage {
    /// The owner; none while no coordinator is alive.
    pub owner: Option<CoordinatorId>,
    /// Grows with every assignment: what was said under an older one does not count.
    pub epoch: CoordinatorEpoch,
}

impl NodeImage {
    /// Where clients of the listener `name` reach this node.
    pub fn listener(&self, name: &str) -> Option<&Listener> {
        self.registration.listeners.iter().find(|listener| listener.name == name)
    }
}

/// A topic and all its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicImage {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
    /// Its partitions by index.
    pub partitions: BTreeMap<PartitionIndex, Arc<PartitionState>>,
}

/// A partition of which this node holds a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPartition {
    /// Which partition.
    pub id: TopicPartition,
    /// Its topic's name.
    pub topic_name: Arc<str>,
    /// Its state; whether this node leads it is in there.
    pub state: Arc<PartitionState>,
}

/// What one application of changes touched (created, changed or removed).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageDelta {
    /// Nodes that registered, left, or were fenced or unfenced.
    pub nodes: BTreeSet<NodeId>,
    /// Topics that appeared or went.
    pub topics: BTreeSet<TopicId>,
    /// Partitions whose state changed, appeared or went.
    pub partitions: BTreeSet<TopicPartition>,
    /// Resources whose dynamic configs changed.
    pub configs: BTreeSet<ConfigResource>,
}

impl ImageDelta {
    /// Whether nothing was touched.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.topics.is_empty()
            && self.partitions.is_empty()
            && self.configs.is_empty()
    }

    /// Adds what a later application touched.
    pub fn merge(&mut self, later: ImageDelta) {
        self.nodes.extend(later.nodes);
        self.topics.extend(later.topics);
        self.partitions.extend(later.partitions);
        self.configs.extend(later.configs);
    }

    /// What differs between two images: the delta of a snapshot that replaces `old`.
    pub fn between(old: &ClusterImage, new: &ClusterImage) -> ImageDelta {
        let mut delta = ImageDelta {
            nodes: differing_keys(&old.nodes, &new.nodes),
            configs: differing_keys(&old.configs, &new.configs),
            ..ImageDelta::default()
        };
        for topic in differing_keys(&old.topics, &new.topics) {
            let before = old.topics.get(&topic).map(|topic| &topic.partitions);
            let after = new.topics.get(&topic).map(|topic| &topic.partitions);
            let none = BTreeMap::new();
            let partitions = differing_keys(before.unwrap_or(&none), after.unwrap_or(&none));
            delta
                .partitions
                .extend(partitions.into_iter().map(|partition| TopicPartition { topic, partition }));
            if before.is_some() != after.is_some() {
                delta.topics.insert(topic);
            }
        }
        delta
    }
}

impl Default for ClusterImage {
    fn default() -> Self {
        Self::empty()
    }
}

impl ClusterImage {
    /// The image before the first change.
    pub fn empty() -> Self {
        Self {
            index: MetadataIndex(0),
            nodes: Arc::default(),
            topics: Arc::default(),
            names: Arc::default(),
            configs: Arc::default(),
            coordinators: Arc::default(),
            shards: Arc::default(),
            controllers: Arc::default(),
            feature_level: (FeatureLevel::FIRST, FeatureEpoch(0)),
        }
    }

    /// Applies the changes committed at `index`, in order.
    pub fn apply(&mut self, index: MetadataIndex, changes: &[MetadataChange]) -> ImageDelta {
        let mut delta = ImageDelta::default();
        for change in changes {
            self.apply_one(change, &mut delta);
        }
        self.index = index;
        delta
    }

    fn apply_one(&mut self, change: &MetadataChange, delta: &mut ImageDelta) {
        match change {
            MetadataChange::NodeRegistered(registration) => {
                let node = NodeImage { registration: registration.clone(), fenced: true };
                Arc::make_mut(&mut self.nodes).insert(registration.node, Arc::new(node));
                delta.nodes.insert(registration.node);
            }
            MetadataChange::NodeFenced { node, broker_epoch, fenced } => {
                self.set_fenced(*node, *broker_epoch, *fenced, delta);
            }
            MetadataChange::NodeRemoved { node } => {
                Arc::make_mut(&mut self.nodes).remove(node);
                delta.nodes.insert(*node);
                self.forget_configs(&ConfigResource::Node(*node), delta);
            }
            MetadataChange::TopicCreated { topic, name } => self.create_topic(*topic, name, delta),
            MetadataChange::TopicDeleted { topic } => self.delete_topic(*topic, delta),
            MetadataChange::PartitionSet { partition, state } => {
                self.set_partition(*partition, state, delta);
            }
            MetadataChange::ConfigSet { resource, name, value } => {
                self.set_config(resource, name, value.as_deref(), delta);
            }
            // Only the controller hands out producer ids; a node asks it for a block.
            MetadataChange::ProducerIdsAllocated { next: _ } => {}
            MetadataChange::CoordinatorRegistered(registration) => {
                let coordinator = CoordinatorImage { registration: registration.clone(), fenced: false };
                Arc::make_mut(&mut self.coordinators).insert(registration.coordinator, coordinator);
            }
            MetadataChange::CoordinatorFenced { coordinator, epoch, fenced } => {
                self.set_coordinator_fenced(*coordinator, *epoch, *fenced);
            }
            MetadataChange::ShardAssigned { shard, owner, epoch } => {
                let image = ShardImage { owner: *owner, epoch: *epoch };
                Arc::make_mut(&mut self.shards).insert(*shard, image);
            }
            MetadataChange::ControllersSet { voters, removed: _ } => {
                self.controllers = voters.as_slice().into();
            }
            MetadataChange::FeatureLevelSet { level, epoch } => self.feature_level = (*level, *epoch),
            // The controller sees to it that whoever is registered supports the level.
            MetadataChange::NodeLevels { .. } | MetadataChange::CoordinatorLevels { .. } => {}
        }
    }

    fn set_coordinator_fenced(&mut self, id: CoordinatorId, epoch: RegistrationEpoch, fenced: bool) {
        if let Some(coordinator) = Arc::make_mut(&mut self.coordinators).get_mut(&id)
            && coordinator.registration.epoch == epoch
        {
            coordinator.fenced = fenced;
        }
    }

    fn set_fenced(&mut self, node: NodeId, epoch: BrokerEpoch, fenced: bool, delta: &mut ImageDelta) {
        if let Some(node_image) = Arc::make_mut(&mut self.nodes).get_mut(&node)
            && node_image.registration.broker_epoch == epoch
        {
            Arc::make_mut(node_image).fenced = fenced;
            delta.nodes.insert(node);
        }
    }

    fn create_topic(&mut self, id: TopicId, name: &str, delta: &mut ImageDelta) {
        let name: Arc<str> = name.into();
        let topic = TopicImage { id, name: Arc::clone(&name), partitions: BTreeMap::new() };
        Arc::make_mut(&mut self.topics).insert(id, Arc::new(topic));
        Arc::make_mut(&mut self.names).insert(name, id);
        delta.topics.insert(id);
    }

    fn delete_topic(&mut self, id: TopicId, delta: &mut ImageDelta) {
        let Some(topic) = Arc::make_mut(&mut self.topics).remove(&id) else { return };
        if self.names.get(&topic.name) == Some(&id) {
            Arc::make_mut(&mut self.names).remove(&topic.name);
        }
        delta.topics.insert(id);
        let partitions = topic.partitions.keys();
        delta.partitions.extend(partitions.map(|&partition| TopicPartition { topic: id, partition }));
        self.forget_configs(&ConfigResource::Topic(id), delta);
        if self.shards.keys().any(|shard| shard.topic == id) {
            Arc::make_mut(&mut self.shards).retain(|shard, _| shard.topic != id);
        }
    }

    fn set_partition(&mut self, id: TopicPartition, state: &PartitionState, delta: &mut ImageDelta) {
        if let Some(topic) = Arc::make_mut(&mut self.topics).get_mut(&id.topic) {
            Arc::make_mut(topic).partitions.insert(id.partition, Arc::new(state.clone()));
            delta.partitions.insert(id);
        }
    }

    fn set_config(&mut self, of: &ConfigResource, name: &str, value: Option<&str>, delta: &mut ImageDelta) {
        let configs = Arc::make_mut(&mut self.configs);
        match value {
            Some(value) => {
                let map = configs.entry(of.clone()).or_default();
                Arc::make_mut(map).insert(name.to_owned(), value.to_owned());
            }
            None => {
                let Some(map) = configs.get_mut(of) else { return };
                Arc::make_mut(map).remove(name);
                if map.is_empty() {
                    configs.remove(of);
                }
            }
        }
        delta.configs.insert(of.clone());
    }

    fn forget_configs(&mut self, of: &ConfigResource, delta: &mut ImageDelta) {
        if self.configs.contains_key(of) {
            Arc::make_mut(&mut self.configs).remove(of);
            delta.configs.insert(of.clone());
        }
    }

    /// The last index that is applied.
    pub fn index(&self) -> MetadataIndex {
        self.index
    }

    /// A node by id, fenced or not.
    pub fn node(&self, id: NodeId) -> Option<&Arc<NodeImage>> {
        self.nodes.get(&id)
    }

    /// All registered nodes in order of id, the fenced ones included.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<NodeImage>> {
        self.nodes.values()
    }

    /// The nodes that serve clients, in order of id.
    pub fn live_nodes(&self) -> impl Iterator<Item = &Arc<NodeImage>> {
        self.nodes.values().filter(|node| !node.fenced)
    }

    /// Whether a node is registered and not fenced.
    pub fn is_live(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| !node.fenced)
    }

    /// A topic by id.
    pub fn topic(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(&id)
    }

    /// A topic by name.
    pub fn topic_by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.names.get(name)?)
    }

    /// A partition's state.
    pub fn partition(&self, id: TopicPartition) -> Option<&Arc<PartitionState>> {
        self.topics.get(&id.topic)?.partitions.get(&id.partition)
    }

    /// All topics in order of name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.names.values().filter_map(|id| self.topics.get(id))
    }

    /// The topics in order of name, beginning with the first whose name is not below `first`.
    pub fn topics_from(&self, first: &str) -> impl Iterator<Item = &Arc<TopicImage>> {
        let range = (Bound::Included(first), Bound::<&str>::Unbounded);
        self.names.range::<str, _>(range).filter_map(|(_, id)| self.topics.get(id))
    }

    /// How many topics there are.
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// The dynamic configs of one resource, without defaults; `None` if none are set.
    pub fn configs(&self, of: &ConfigResource) -> Option<&Arc<ConfigMap>> {
        self.configs.get(of)
    }

    /// One dynamic config of one resource.
    pub fn config(&self, of: &ConfigResource, name: &str) -> Option<&str> {
        self.configs.get(of)?.get(name).map(String::as_str)
    }

    /// The resources that have dynamic configs.
    pub fn configured_resources(&self) -> impl Iterator<Item = &ConfigResource> {
        self.configs.keys()
    }

    /// A coordinator by id, fenced or not.
    pub fn coordinator(&self, id: CoordinatorId) -> Option<&CoordinatorImage> {
        self.coordinators.get(&id)
    }

    /// Who owns a partition of an internal topic; `None` for any other.
    pub fn shard(&self, id: TopicPartition) -> Option<ShardImage> {
        self.shards.get(&id).copied()
    }

    /// The controllers that vote, as of this image; empty if none was ever told.
    pub fn controllers(&self) -> &[ControllerAddress] {
        &self.controllers
    }

    /// The level of `weir.version` at which the cluster is, and the epoch of its last change, which is 0 if there was none.
    pub fn feature_level(&self) -> (FeatureLevel, FeatureEpoch) {
        self.feature_level
    }

    /// All partitions of which `node` holds, or is to hold, a copy.
    pub fn partitions_on(&self, node: NodeId) -> impl Iterator<Item = LocalPartition> {
        self.topics.values().flat_map(move |topic| {
            let held = topic.partitions.iter().filter(move |(_, state)| state.replicas.contains(&node));
            held.map(|(&partition, state)| LocalPartition {
                id: TopicPartition { topic: topic.id, partition },
                topic_name: Arc::clone(&topic.name),
                state: Arc::clone(state),
            })
        })
    }

    /// One partition, if `node` holds, or is to hold, a copy of it.
    pub fn partition_on(&self, node: NodeId, id: TopicPartition) -> Option<LocalPartition> {
        let topic = self.topics.get(&id.topic)?;
        let state = topic.partitions.get(&id.partition)?;
        state.replicas.contains(&node).then(|| LocalPartition {
            id,
            topic_name: Arc::clone(&topic.name),
            state: Arc::clone(state),
        })
    }
}

/// The keys that only one map has, or under which the maps hold different values. Shared values are not compared.
fn differing_keys<K: Ord + Clone, V: PartialEq>(
    old: &BTreeMap<K, Arc<V>>,
    new: &BTreeMap<K, Arc<V>>,
) -> BTreeSet<K> {
    let same = |key: &K, value: &Arc<V>, other: &BTreeMap<K, Arc<V>>| {
        other.get(key).is_some_and(|there| Arc::ptr_eq(value, there) || value == there)
    };
    let gone_or_changed = old.iter().filter(|(key, value)| !same(key, value, new));
    let added = new.keys().filter(|key| !old.contains_key(*key));
    gone_or_changed.map(|(key, _)| key).chain(added).cloned().collect()
}
