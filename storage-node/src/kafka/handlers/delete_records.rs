//! DeleteRecords: drop the records below an offset, never above the high watermark (KIP-107).

use std::sync::Arc;

use kafka_wire::RequestContext;
use kafka_wire_core::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::ids::Offset;
use storage_node_core::image::ClusterImage;

use crate::kafka::authorize;
use crate::kafka::error_code::KafkaError;
use crate::kafka::find_partition::{self, TopicKey};
use crate::node::Node;

/// Stands for the high watermark.
const UP_TO_HIGH_WATERMARK: i64 = -1;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let image = node.image();
    let mut response = DeleteRecordsResponse::default();
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let (low_watermark, error_code) = match delete(&node, &image, &topic.name, &partition).await {
                Ok(start) => (start.0, ErrorCode::None),
                Err(error) => (-1, error.code),
            };
            let partition_index = partition.partition_index;
            partitions.push(DeleteRecordsPartitionResult { partition_index, low_watermark, error_code });
        }
        response.topics.push(DeleteRecordsTopicResult { name: topic.name, partitions });
    }
    response
}

async fn delete(
    node: &Node,
    image: &ClusterImage,
    topic: &Str,
    partition: &DeleteRecordsPartition,
) -> Result<Offset, KafkaError> {
    let topic = find_partition::topic(image, &TopicKey::Name(topic.clone()))?;
    if authorize::is_internal(&topic.name) {
        let message = Str::from_static("Records of internal topics are not deleted by clients.");
        return Err(KafkaError::new(ErrorCode::InvalidTopicException, message));
    }
    let handle = find_partition::partition(node.partitions(), topic, partition.partition_index)?;
    if !handle.settings().deletable {
        let message =
            Str::from_static("Records of the topic are not deleted: its cleanup.policy lacks delete.");
        return Err(KafkaError::new(ErrorCode::PolicyViolation, message));
    }
    let before = (partition.offset != UP_TO_HIGH_WATERMARK).then_some(Offset(partition.offset));
    Ok(handle.delete_records(before).await?)
}
