//! SyncGroup: a member asks for its part. Answered by the group's coordinator.

use crate::coordinator_port::NoAnswer;
use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use std::sync::Arc;

/// From this version on a member says which protocol it takes the group to have chosen (KIP-559).
const PROTOCOL_VERSION_MIN: i16 = 5;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    if context.api_version >= PROTOCOL_VERSION_MIN
        && (request.protocol_type.is_none() || request.protocol_name.is_none())
    {
        return request.refuse(context.api_version, ErrorCode::InconsistentGroupProtocol);
    }
    groups::forward(&node, &context, &request.group_id, &request).await
}

impl GroupApi for SyncGroupRequest {
    fn refuse(&self, _version: i16, error: ErrorCode) -> SyncGroupResponse {
        SyncGroupResponse { error_code: error, ..SyncGroupResponse::default() }
    }

    /// Clients take "loading" for a fault here.
    fn code(no_answer: NoAnswer) -> ErrorCode {
        match no_answer {
            NoAnswer::Loading | NoAnswer::NotAvailable => ErrorCode::CoordinatorNotAvailable,
            NoAnswer::Malformed => ErrorCode::InvalidRequest,
        }
    }
}
