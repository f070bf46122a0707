//! The topics that Weir keeps for itself, created when they are needed for the first time.

use super::assign_shards::Loads;
use super::create_topics::{fresh_id, new_partition};
use super::raise_internal_topics::{MIN_INSYNC, MIN_INSYNC_NAME, REPLICATION_FACTOR, wanted_factor};
use super::{Decision, Inputs};
use crate::placement;
use crate::state::ClusterState;
use proto_types::error::Rejection;
use proto_types::ids::{CoordinatorEpoch, TopicId};
use proto_types::metadata::{ConfigResource, InternalTopic, MetadataChange, topic_partition};

/// Kafka's configs of the topics: of each key the newest value counts.
const CONFIGS: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("compression.type", "producer"), ("segment.bytes", "104857600")];

/// Plans the creation; the answer is the topic's id. Nothing happens if it exists. Its partitions are shards, which get
/// owners at once.
pub fn create_internal_topic(
    state: &ClusterState,
    topic: InternalTopic,
    inputs: &mut Inputs,
) -> Result<Decision<TopicId>, Rejection> {
    if let Some(id) = state.topics().id(topic.name()) {
        return Ok(Decision { changes: Vec::new(), reply: id });
    }
    let partitions = inputs.limits.internal_topic_partitions;
    super::create_partitions::check_new_partitions(state, partitions, &inputs.limits)?;
    // As many as there are nodes for; it gets the others when they join.
    let factor = wanted_factor(state);
    let replicas = placement::place(state.nodes(), partitions, factor, &mut inputs.chance)?;
    let id = fresh_id(state, inputs);
    let mut changes = vec![MetadataChange::TopicCreated { topic: id, name: topic.name().to_owned() }];
    let mut loads = Loads::of(state, None);
    for (index, replicas) in (0_i32..).zip(&replicas) {
        let partition = topic_partition(id, index);
        changes.push(MetadataChange::PartitionSet { partition, state: new_partition(state, replicas) });
        changes.push(MetadataChange::ShardAssigned {
            shard: partition,
            owner: loads.take_least(),
            epoch: CoordinatorEpoch(1),
        });
    }
    let minimum = (factor >= REPLICATION_FACTOR).then_some((MIN_INSYNC_NAME, MIN_INSYNC));
    changes.extend(CONFIGS.iter().copied().chain(minimum).map(|(name, value)| MetadataChange::ConfigSet {
        resource: ConfigResource::Topic(id),
        name: name.to_owned(),
        value: Some(value.to_owned()),
    }));
    Ok(Decision { changes, reply: id })
}
