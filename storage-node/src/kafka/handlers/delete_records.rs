//! DeleteRecords: drop the records below an offset, never above the high watermark (KIP-107). Answered once no replica that
//! could lead has them any more.

use std::sync::Arc;

use futures_util::future::join_all;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::ids::{Millis, Offset};
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
    let timeout_ms = i64::from(request.timeout_ms.max(0));
    let deadline = Millis(node.clock().monotonic().0.saturating_add(timeout_ms));
    let (node, image) = (&*node, &*image);
    // All at once: each waits for its replicas.
    let topics = join_all(request.topics.into_iter().map(async |topic| {
        let name = &topic.name;
        let partitions = join_all(topic.partitions.into_iter().map(async |partition| {
            let (low_watermark, error_code) = match delete(node, image, name, &partition, deadline).await {
                Ok(low_watermark) => (low_watermark.0, ErrorCode::None),
                Err(error) => (-1, error.code),
            };
            let partition_index = partition.partition_index;
            DeleteRecordsPartitionResult { partition_index, low_watermark, error_code }
        }));
        let partitions = partitions.await;
        DeleteRecordsTopicResult { name: topic.name, partitions }
    }));
    DeleteRecordsResponse { topics: topics.await, ..DeleteRecordsResponse::default() }
}

async fn delete(
    node: &Node,
    image: &ClusterImage,
    topic: &Str,
    partition: &DeleteRecordsPartition,
    deadline: Millis,
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
    Ok(handle.delete_records(before, deadline).await?)
}
