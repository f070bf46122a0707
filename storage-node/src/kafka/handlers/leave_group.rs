//! LeaveGroup: members go. Answered by the group's coordinator.

use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse};
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    groups::forward(&node, &context, &request.group_id, &request).await
}

impl GroupApi for LeaveGroupRequest {
    fn refuse(&self, _version: i16, error: ErrorCode) -> LeaveGroupResponse {
        LeaveGroupResponse { error_code: error, ..LeaveGroupResponse::default() }
    }
}
