//! Heartbeat: a member lives. Answered by the group's coordinator.

use crate::coordinator_port::NoAnswer;
use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    groups::forward(&node, &context, &request.group_id, &request).await
}

impl GroupApi for HeartbeatRequest {
    fn refuse(&self, _version: i16, error: ErrorCode) -> HeartbeatResponse {
        HeartbeatResponse { error_code: error, ..HeartbeatResponse::default() }
    }

    /// Clients take "loading" for a fault here.
    fn code(no_answer: NoAnswer) -> ErrorCode {
        match no_answer {
            NoAnswer::Loading | NoAnswer::NotAvailable => ErrorCode::CoordinatorNotAvailable,
            NoAnswer::Malformed => ErrorCode::InvalidRequest,
        }
    }
}
