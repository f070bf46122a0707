//! DeleteRecords: drop the records below an offset, never above the high watermark (KIP-107). Answered once no replica that
//! could lead has them any more.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
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
use crate::kafka::find_partition;
use crate::node::Node;

/// Stands for the high watermark.
const UP_TO_HIGH_WATERMARK: i64 = -1;
/// Partitions of one request that wait for their replicas at the same time.
const PARTITIONS_AT_ONCE: usize = 1_000;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let image = node.image();
    let timeout_ms = i64::from(request.timeout_ms.max(0));
    let deadline = Millis(node.clock().monotonic().0.saturating_add(timeout_ms));
    let (node, image) = (&*node, &*image);
    let mut response = DeleteRecordsResponse::default();
    let mut asked = Vec::new();
    for (at, topic) in request.topics.into_iter().enumerate() {
        asked.extend(topic.partitions.into_iter().map(|partition| (at, topic.name.clone(), partition)));
        response.topics.push(DeleteRecordsTopicResult { name: topic.name, partitions: Vec::new() });
    }
    // At the same time, since each waits for its replicas; but a request may name very many.
    let mut answers = stream::iter(asked)
        .map(async |(at, topic, partition)| {
            let (low_watermark, error_code) = match delete(node, image, &topic, &partition, deadline).await {
                Ok(low_watermark) => (low_watermark.0, ErrorCode::None),
                Err(error) => (-1, error.code),
            };
            let partition_index = partition.partition_index;
            (at, DeleteRecordsPartitionResult { partition_index, low_watermark, error_code })
        })
        .buffered(PARTITIONS_AT_ONCE);
    while let Some((at, answer)) = answers.next().await {
        response.topics[at].partitions.push(answer);
    }
    drop(answers);
    response
}

async fn delete(
    node: &Node,
    image: &ClusterImage,
    topic: &Str,
    partition: &DeleteRecordsPartition,
    deadline: Millis,
) -> Result<Offset, KafkaError> {
    let topic = find_partition::topic_named(image, topic)?;
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
