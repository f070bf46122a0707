//! OffsetFetch: how far groups have come. Answered by their coordinators; groups of different shards are asked apart, and
//! the answers put together in the request's order.

use crate::coordinator_port::NoAnswer;
use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
};
use std::sync::Arc;

/// From this version on several groups are asked for at once.
const BATCH_MIN: i16 = 8;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    mut request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    if context.api_version < BATCH_MIN {
        return groups::forward(&node, &context, &request.group_id, &request).await;
    }
    if groups::names_too_many(&mut request.groups) {
        return request.refuse(context.api_version, ErrorCode::InvalidRequest);
    }
    let parts = groups::ask_each(request.groups, |group| {
        let part = OffsetFetchRequest {
            groups: vec![group],
            require_stable: request.require_stable,
            ..OffsetFetchRequest::default()
        };
        let (node, context) = (&node, &context);
        async move { groups::forward(node, context, &part.groups[0].group_id, &part).await.groups }
    });
    let groups = parts.await.into_iter().flatten().collect();
    OffsetFetchResponse { groups, ..OffsetFetchResponse::default() }
}

impl GroupApi for OffsetFetchRequest {
    fn refuse(&self, version: i16, error: ErrorCode) -> OffsetFetchResponse {
        if version >= BATCH_MIN {
            let group = |id: &kafka_wire_core::Str| OffsetFetchResponseGroup {
                group_id: id.clone(),
                topics: Vec::new(),
                error_code: error,
            };
            let groups = self.groups.iter().map(|asked| group(&asked.group_id)).collect();
            return OffsetFetchResponse { groups, ..OffsetFetchResponse::default() };
        }
        // Version 1 has no error of the whole request.
        let partition = |index: &i32| OffsetFetchResponsePartition {
            partition_index: *index,
            committed_offset: -1,
            error_code: error,
            ..OffsetFetchResponsePartition::default()
        };
        let topics = self.topics.iter().flatten().map(|topic| OffsetFetchResponseTopic {
            name: topic.name.clone(),
            partitions: topic.partition_indexes.iter().map(partition).collect(),
        });
        OffsetFetchResponse { error_code: error, topics: topics.collect(), ..OffsetFetchResponse::default() }
    }

    /// "Loading" is what every client repeats this request on; many take "not available" for a fault.
    fn code(no_answer: NoAnswer) -> ErrorCode {
        match no_answer {
            NoAnswer::Loading | NoAnswer::NotAvailable => ErrorCode::CoordinatorLoadInProgress,
            NoAnswer::Malformed => ErrorCode::InvalidRequest,
        }
    }
}
