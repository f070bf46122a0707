//! Who owns which partition of the internal topics.

use proto_types::ids::{CoordinatorEpoch, CoordinatorId, TopicId, TopicPartition};
use proto_types::metadata::MetadataChange;
use std::collections::BTreeMap;

/// Who owns a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The owner, or none while no coordinator is alive.
    pub owner: Option<CoordinatorId>,
    /// Grows with every assignment.
    pub epoch: CoordinatorEpoch,
}

/// All shards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shards {
    by_id: BTreeMap<TopicPartition, Ownership>,
}

impl Shards {
    /// Who owns the shard; `None` if it is none.
    pub fn get(&self, shard: TopicPartition) -> Option<Ownership> {
        self.by_id.get(&shard).copied()
    }

    /// All shards in order.
    pub fn iter(&self) -> impl Iterator<Item = (TopicPartition, Ownership)> {
        self.by_id.iter().map(|(shard, ownership)| (*shard, *ownership))
    }

    /// How many shards there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn assign(
        &mut self,
        shard: TopicPartition,
        owner: Option<CoordinatorId>,
        epoch: CoordinatorEpoch,
    ) {
        self.by_id.insert(shard, Ownership { owner, epoch });
    }

    pub(super) fn remove_topic(&mut self, topic: TopicId) {
        self.by_id.retain(|shard, _| shard.topic != topic);
    }

    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        changes.extend(self.by_id.iter().map(|(shard, ownership)| MetadataChange::ShardAssigned {
            shard: *shard,
            owner: ownership.owner,
            epoch: ownership.epoch,
        }));
    }
}
