//! DescribeGroupOffsets, an API of our own: what a group has committed, and when. Answered by the group's coordinator.

use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::describe_group_offsets::{
    DescribeGroupOffsetsRequest, DescribeGroupOffsetsResponse,
};
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: DescribeGroupOffsetsRequest,
) -> DescribeGroupOffsetsResponse {
    groups::forward(&node, &context, &request.group_id, &request).await
}

impl GroupApi for DescribeGroupOffsetsRequest {
    fn refuse(&self, _version: i16, error: ErrorCode) -> DescribeGroupOffsetsResponse {
        DescribeGroupOffsetsResponse { error_code: error, ..DescribeGroupOffsetsResponse::default() }
    }
}
