//! OffsetForLeaderEpoch: where a leader epoch ends in this log, by which a client finds out what it has read that is not
//! there any more (KIP-320).

use std::sync::Arc;

use kafka_wire::RequestContext;
use kafka_wire_core::Str;
use kafka_wire_core::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
};
use storage_node_core::image::ClusterImage;

use crate::kafka::error_code::KafkaError;
use crate::kafka::find_partition;
use crate::node::Node;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let image = node.image();
    let topics = request.topics.into_iter().map(|topic| OffsetForLeaderTopicResult {
        partitions: topic
            .partitions
            .iter()
            .map(|partition| {
                let mut answer = epoch_end(&node, &image, &topic.topic, partition).unwrap_or_else(|error| {
                    EpochEndOffset { error_code: error.code, ..EpochEndOffset::default() }
                });
                answer.partition = partition.partition;
                answer
            })
            .collect(),
        topic: topic.topic,
    });
    OffsetForLeaderEpochResponse { topics: topics.collect(), ..OffsetForLeaderEpochResponse::default() }
}

fn epoch_end(
    node: &Node,
    image: &ClusterImage,
    topic: &Str,
    partition: &OffsetForLeaderPartition,
) -> Result<EpochEndOffset, KafkaError> {
    let topic = find_partition::topic_named(image, topic)?;
    let handle = find_partition::partition(node.partitions(), topic, partition.partition)?;
    handle.view().check_leader(partition.current_leader_epoch)?;
    Ok(match handle.epoch_end(partition.leader_epoch) {
        Some((epoch, end)) => {
            EpochEndOffset { leader_epoch: epoch.0, end_offset: end.0, ..EpochEndOffset::default() }
        }
        None => EpochEndOffset::default(),
    })
}
