//! ListGroups: the groups of the shards whose partitions this node leads, so that a client that asks all nodes sees each
//! once. A list is whole or it is an error that is worth a retry.

use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use futures_util::future::join_all;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};
use proto_types::ids::TopicPartition;
use proto_types::metadata::InternalTopic;
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let image = node.image();
    let Some(topic) = image.topic_by_name(InternalTopic::ConsumerOffsets.name()) else {
        return ListGroupsResponse::default();
    };
    let led = topic.partitions.iter().filter(|(_, state)| state.leader == Some(node.id()));
    let parts = led.map(|(&partition, _)| {
        let shard = TopicPartition { topic: topic.id, partition };
        groups::forward_to(&node, &context, shard, &request)
    });
    let mut whole = ListGroupsResponse::default();
    for part in join_all(parts).await {
        match part {
            Ok(part) if part.error_code.is_none() => whole.groups.extend(part.groups),
            Ok(part) => return request.refuse(context.api_version, part.error_code),
            Err(why) => return request.refuse(context.api_version, ListGroupsRequest::code(why)),
        }
    }
    whole
}

impl GroupApi for ListGroupsRequest {
    fn refuse(&self, _version: i16, error: ErrorCode) -> ListGroupsResponse {
        ListGroupsResponse { error_code: error, ..ListGroupsResponse::default() }
    }
}
