//! The partitions: who holds and who leads them.

use proto_types::ids::{PartitionIndex, TopicId, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};
use std::collections::BTreeMap;
use std::sync::Arc;

type OfTopic = BTreeMap<PartitionIndex, PartitionState>;

/// All partitions by topic. A topic's partitions share one [`Arc`], so that a change copies those of its topic only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partitions {
    by_topic: BTreeMap<TopicId, Arc<OfTopic>>,
    count: usize,
}

impl Partitions {
    /// One partition.
    pub fn get(&self, partition: TopicPartition) -> Option<&PartitionState> {
        self.by_topic.get(&partition.topic)?.get(&partition.partition)
    }

    /// A topic's partitions in order of index.
    pub fn of_topic(&self, topic: TopicId) -> impl Iterator<Item = (PartitionIndex, &PartitionState)> {
        self.by_topic.get(&topic).into_iter().flat_map(|all| all.iter().map(|(index, state)| (*index, state)))
    }

    /// How many partitions a topic has.
    pub fn count_of(&self, topic: TopicId) -> usize {
        self.by_topic.get(&topic).map_or(0, |all| all.len())
    }

    /// All partitions.
    pub fn iter(&self) -> impl Iterator<Item = (TopicPartition, &PartitionState)> {
        self.by_topic.iter().flat_map(|(topic, all)| {
            all.iter()
                .map(|(partition, state)| (TopicPartition { topic: *topic, partition: *partition }, state))
        })
    }

    /// How many partitions the cluster has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no partition.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn set(&mut self, partition: TopicPartition, state: PartitionState) {
        let all = Arc::make_mut(self.by_topic.entry(partition.topic).or_default());
        if all.insert(partition.partition, state).is_none() {
            self.count += 1;
        }
    }

    pub(super) fn remove_topic(&mut self, topic: TopicId) {
        if let Some(all) = self.by_topic.remove(&topic) {
            self.count -= all.len();
        }
    }

    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        changes.extend(
            self.iter()
                .map(|(partition, state)| MetadataChange::PartitionSet { partition, state: state.clone() }),
        );
    }
}
