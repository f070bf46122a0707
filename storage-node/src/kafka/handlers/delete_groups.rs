//! DeleteGroups: groups without members go, with their offsets. Answered by their coordinators; each group is asked for
//! apart, and the answers put together in the request's order.

use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::delete_groups::{
    DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse,
};
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    mut request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    if groups::names_too_many(&mut request.groups_names) {
        return request.refuse(context.api_version, ErrorCode::InvalidRequest);
    }
    // Each once, as Kafka does: the second time a group would be unknown.
    let mut seen = HashSet::new();
    request.groups_names.retain(|group| seen.insert(group.clone()));
    let parts = groups::ask_each(request.groups_names, |group| {
        let part = DeleteGroupsRequest { groups_names: vec![group] };
        let (node, context) = (&node, &context);
        async move { groups::forward(node, context, &part.groups_names[0], &part).await.results }
    });
    let results = parts.await.into_iter().flatten().collect();
    DeleteGroupsResponse { throttle_time_ms: 0, results }
}

impl GroupApi for DeleteGroupsRequest {
    fn refuse(&self, _version: i16, error: ErrorCode) -> DeleteGroupsResponse {
        let results = self.groups_names.iter().map(|group| DeletableGroupResult {
            group_id: group.clone(),
            error_code: error,
            ..DeletableGroupResult::default()
        });
        DeleteGroupsResponse { throttle_time_ms: 0, results: results.collect() }
    }
}
