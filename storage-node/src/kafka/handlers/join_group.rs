//! JoinGroup: a member joins, and waits for the others. Answered by the group's coordinator.

use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::join_group::{JoinGroupRequest, JoinGroupResponse};
use kafka_wire_core::{ErrorCode, Str};
use std::sync::Arc;

/// From this version on a missing protocol is null.
const NULL_PROTOCOL_MIN: i16 = 7;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    groups::forward(&node, &context, &request.group_id, &request).await
}

impl GroupApi for JoinGroupRequest {
    fn refuse(&self, version: i16, error: ErrorCode) -> JoinGroupResponse {
        JoinGroupResponse {
            error_code: error,
            generation_id: -1,
            protocol_name: (version < NULL_PROTOCOL_MIN).then(Str::default),
            member_id: self.member_id.clone(),
            ..JoinGroupResponse::default()
        }
    }
}
