//! What a coordinator must know of the cluster: shards and their owners, who leads their partitions and where, and the
//! topics for which offsets are committed.
//!
//! The metadata feed applies changes and publishes clones; readers take a clone and never change it. Maps sit behind
//! `Arc`s, so a clone costs a few counters.

use coordinator_core::{Topic, TopicImage};
use kafka_wire_core::Str;
use proto_types::coordinator_api::Shard;
use proto_types::ids::{
    CoordinatorEpoch, CoordinatorId, Incarnation, MetadataIndex, NodeId, TopicId, TopicPartition,
};
use proto_types::metadata::{InternalTopic, MetadataChange};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// The cluster as of one metadata index. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    index: MetadataIndex,
    /// Address of each storage node's control endpoint.
    nodes: Arc<BTreeMap<NodeId, Arc<str>>>,
    topics: Arc<BTreeMap<TopicId, Topic>>,
    names: Arc<BTreeMap<Str, TopicId>>,
    /// Leaders of the partitions of internal topics.
    leaders: Arc<BTreeMap<TopicPartition, Option<NodeId>>>,
    coordinators: Arc<BTreeMap<CoordinatorId, Incarnation>>,
    shards: Arc<BTreeMap<Shard, (Option<CoordinatorId>, CoordinatorEpoch)>>,
}

impl Default for Image {
    /// The image before the first change.
    fn default() -> Self {
        Self {
            index: MetadataIndex(0),
            nodes: Arc::default(),
            topics: Arc::default(),
            names: Arc::default(),
            leaders: Arc::default(),
            coordinators: Arc::default(),
            shards: Arc::default(),
        }
    }
}

/// The topics of an image, as shards look at them.
pub(crate) struct Topics<'a>(pub(crate) &'a Image);

impl Image {
    /// Applies what was committed at `index`. Returns the topics that were deleted.
    pub(crate) fn apply(&mut self, index: MetadataIndex, changes: &[MetadataChange]) -> Vec<Topic> {
        let mut deleted = Vec::new();
        for change in changes {
            self.apply_one(change, &mut deleted);
        }
        self.index = index;
        deleted
    }

    fn apply_one(&mut self, change: &MetadataChange, deleted: &mut Vec<Topic>) {
        match change {
            MetadataChange::NodeRegistered(registration) => {
                let address = registration.control_address.as_str().into();
                Arc::make_mut(&mut self.nodes).insert(registration.node, address);
            }
            MetadataChange::NodeRemoved { node } => {
                Arc::make_mut(&mut self.nodes).remove(node);
            }
            MetadataChange::TopicCreated { topic, name } => {
                let name = Str::from(name.clone());
                let known = Topic { name: name.clone(), id: topic.0, partitions: 0 };
                Arc::make_mut(&mut self.topics).insert(*topic, known);
                Arc::make_mut(&mut self.names).insert(name, *topic);
            }
            MetadataChange::TopicDeleted { topic } => deleted.extend(self.delete_topic(*topic)),
            MetadataChange::PartitionSet { partition, state } => {
                self.set_partition(*partition, state.leader);
            }
            MetadataChange::CoordinatorRegistered(registration) => {
                Arc::make_mut(&mut self.coordinators)
                    .insert(registration.coordinator, registration.incarnation);
            }
            MetadataChange::ShardAssigned { shard, owner, epoch } => {
                Arc::make_mut(&mut self.shards).insert(*shard, (*owner, *epoch));
            }
            // Fenced nodes lead nothing, fenced coordinators own nothing, and the rest is not ours.
            MetadataChange::NodeFenced { .. }
            | MetadataChange::CoordinatorFenced { .. }
            | MetadataChange::ConfigSet { .. }
            | MetadataChange::ProducerIdsAllocated { .. }
            | MetadataChange::ControllersSet { .. }
            | MetadataChange::FeatureLevelSet { .. }
            | MetadataChange::NodeLevels { .. }
            | MetadataChange::CoordinatorLevels { .. } => {}
        }
    }

    fn delete_topic(&mut self, id: TopicId) -> Option<Topic> {
        let topic = Arc::make_mut(&mut self.topics).remove(&id)?;
        if self.names.get(&topic.name) == Some(&id) {
            Arc::make_mut(&mut self.names).remove(&topic.name);
        }
        if self.leaders.keys().any(|partition| partition.topic == id) {
            Arc::make_mut(&mut self.leaders).retain(|partition, _| partition.topic != id);
            Arc::make_mut(&mut self.shards).retain(|shard, _| shard.topic != id);
        }
        Some(topic)
    }

    fn set_partition(&mut self, at: TopicPartition, leader: Option<NodeId>) {
        let Some(topic) = self.topics.get(&at.topic) else { return };
        let (internal, count) = (is_internal(&topic.name), at.partition.0 + 1);
        if topic.partitions < count
            && let Some(topic) = Arc::make_mut(&mut self.topics).get_mut(&at.topic)
        {
            topic.partitions = count;
        }
        if internal {
            Arc::make_mut(&mut self.leaders).insert(at, leader);
        }
    }

    /// The last index that is applied.
    pub(crate) fn index(&self) -> MetadataIndex {
        self.index
    }

    /// The shards of groups that `coordinator` owns in this run of it.
    pub(crate) fn owned_by(
        &self,
        coordinator: CoordinatorId,
        incarnation: Incarnation,
    ) -> BTreeMap<Shard, CoordinatorEpoch> {
        let groups = self.names.get(InternalTopic::ConsumerOffsets.name());
        // Before our registration is applied, what this id owns belongs to an earlier run.
        if self.coordinators.get(&coordinator) != Some(&incarnation) {
            return BTreeMap::new();
        }
        let owned = self
            .shards
            .iter()
            .filter(|(shard, (owner, _))| *owner == Some(coordinator) && Some(&shard.topic) == groups);
        owned.map(|(shard, (_, epoch))| (*shard, *epoch)).collect()
    }

    /// The leader of a shard's partition, and where its control endpoint is.
    pub(crate) fn leader(&self, shard: Shard) -> Option<(NodeId, Arc<str>)> {
        let leader = (*self.leaders.get(&shard)?)?;
        Some((leader, Arc::clone(self.nodes.get(&leader)?)))
    }

    /// An image in which `node` at `address` leads all of `shards`.
    #[cfg(test)]
    pub(crate) fn for_test(
        shards: impl IntoIterator<Item = Shard>,
        node: NodeId,
        address: std::net::SocketAddr,
    ) -> Self {
        let leaders = shards.into_iter().map(|shard| (shard, Some(node))).collect();
        let nodes = BTreeMap::from([(node, address.to_string().into())]);
        Self { leaders: Arc::new(leaders), nodes: Arc::new(nodes), ..Self::default() }
    }

    /// The topics that `other` has and this image has not, for a snapshot that replaces `other`.
    pub(crate) fn topics_missing_from(&self, other: &Image) -> Vec<Topic> {
        let gone = other.topics.iter().filter(|(id, _)| !self.topics.contains_key(id));
        gone.map(|(_, topic)| topic.clone()).collect()
    }
}

fn is_internal(name: &str) -> bool {
    [InternalTopic::ConsumerOffsets, InternalTopic::TransactionState].iter().any(|topic| topic.name() == name)
}

impl TopicImage for Topics<'_> {
    fn by_name(&self, name: &str) -> Option<Topic> {
        self.0.topics.get(self.0.names.get(name)?).cloned()
    }

    fn by_id(&self, id: Uuid) -> Option<Topic> {
        self.0.topics.get(&TopicId(id)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::{LeaderEpoch, PartitionEpoch, RegistrationEpoch};
    use proto_types::metadata::{CoordinatorRegistered, PartitionState, topic_partition};

    fn topic(n: u128) -> TopicId {
        TopicId(Uuid::from_u128(n))
    }

    fn created(n: u128, name: &str) -> MetadataChange {
        MetadataChange::TopicCreated { topic: topic(n), name: name.to_owned() }
    }

    fn partition(n: u128, index: i32, leader: Option<i32>) -> MetadataChange {
        let state = PartitionState {
            replicas: vec![NodeId(1)],
            adding: vec![],
            removing: vec![],
            isr: vec![NodeId(1)],
            elr: vec![],
            leader: leader.map(NodeId),
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
        };
        MetadataChange::PartitionSet { partition: topic_partition(topic(n), index), state }
    }

    fn registered(incarnation: u128) -> MetadataChange {
        MetadataChange::CoordinatorRegistered(CoordinatorRegistered {
            coordinator: CoordinatorId(1),
            epoch: RegistrationEpoch(1),
            incarnation: Incarnation(Uuid::from_u128(incarnation)),
            control_address: "c:1".into(),
        })
    }

    fn assigned(n: u128, owner: Option<i32>, epoch: i32) -> MetadataChange {
        let owner = owner.map(CoordinatorId);
        let shard = topic_partition(topic(n), 0);
        MetadataChange::ShardAssigned { shard, owner, epoch: CoordinatorEpoch(epoch) }
    }

    #[test]
    fn only_shards_of_this_run_and_of_groups_are_ours() {
        let mut image = Image::default();
        let mine = |image: &Image, incarnation| {
            image.owned_by(CoordinatorId(1), Incarnation(Uuid::from_u128(incarnation))).len()
        };
        let changes =
            [registered(7), created(1, "__consumer_offsets"), partition(1, 0, None), assigned(1, Some(1), 3)];
        image.apply(MetadataIndex(1), &changes);
        assert_eq!((mine(&image, 7), mine(&image, 8)), (1, 0));
        image.apply(MetadataIndex(2), &[created(2, "__transaction_state"), assigned(2, Some(1), 1)]);
        assert_eq!(mine(&image, 7), 1, "no code runs shards of transactions");
        image.apply(MetadataIndex(3), &[assigned(1, Some(2), 4)]);
        assert_eq!(mine(&image, 7), 0);
    }

    #[test]
    fn topics_are_found_by_name_and_id_until_they_are_deleted() {
        let mut image = Image::default();
        image.apply(MetadataIndex(1), &[created(1, "a"), partition(1, 0, Some(1)), partition(1, 1, Some(1))]);
        let found = Topics(&image).by_name("a").expect("known");
        assert_eq!((found.partitions, found.id), (2, topic(1).0));
        assert_eq!(Topics(&image).by_id(topic(1).0), Some(found.clone()));
        assert_eq!(
            image.leader(topic_partition(topic(1), 0)),
            None,
            "leaders of ordinary topics are not kept"
        );
        let deleted = image.apply(MetadataIndex(2), &[MetadataChange::TopicDeleted { topic: topic(1) }]);
        assert_eq!(deleted, vec![found]);
        assert_eq!(Topics(&image).by_name("a"), None);
    }
}
