//! OffsetCommit: a group notes how far it has come. Answered by the group's coordinator.

use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    groups::forward(&node, &context, &request.group_id, &request).await
}

impl GroupApi for OffsetCommitRequest {
    fn refuse(&self, _version: i16, error: ErrorCode) -> OffsetCommitResponse {
        let topics = self.topics.iter().map(|topic| OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| OffsetCommitResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: error,
                })
                .collect(),
        });
        OffsetCommitResponse { throttle_time_ms: 0, topics: topics.collect() }
    }
}
