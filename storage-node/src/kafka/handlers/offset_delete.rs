//! OffsetDelete: offsets of a group go. Answered by the group's coordinator.

use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::offset_delete::{OffsetDeleteRequest, OffsetDeleteResponse};
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    groups::forward(&node, &context, &request.group_id, &request).await
}

impl GroupApi for OffsetDeleteRequest {
    fn refuse(&self, _version: i16, error: ErrorCode) -> OffsetDeleteResponse {
        OffsetDeleteResponse { error_code: error, ..OffsetDeleteResponse::default() }
    }
}
