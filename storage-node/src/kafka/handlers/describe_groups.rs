//! DescribeGroups: members and state of groups. Answered by their coordinators; each group is asked for apart, and the
//! answers put together in the request's order.

use crate::kafka::authorize::{self, GROUP_OPERATIONS};
use crate::kafka::groups::{self, GroupApi};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup,
};
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    mut request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    if groups::names_too_many(&mut request.groups) {
        return request.refuse(context.api_version, ErrorCode::InvalidRequest);
    }
    let include_authorized_operations = request.include_authorized_operations;
    let parts = groups::ask_each(request.groups, |group| {
        let part = DescribeGroupsRequest { groups: vec![group], include_authorized_operations };
        let (node, context) = (&node, &context);
        async move { groups::forward(node, context, &part.groups[0], &part).await.groups }
    });
    let mut groups: Vec<DescribedGroup> = parts.await.into_iter().flatten().collect();
    for group in groups.iter_mut().filter(|group| group.error_code == ErrorCode::None) {
        group.authorized_operations =
            authorize::operations(request.include_authorized_operations, GROUP_OPERATIONS);
    }
    DescribeGroupsResponse { throttle_time_ms: 0, groups }
}

impl GroupApi for DescribeGroupsRequest {
    fn refuse(&self, _version: i16, error: ErrorCode) -> DescribeGroupsResponse {
        let groups = self.groups.iter().map(|group| DescribedGroup {
            error_code: error,
            group_id: group.clone(),
            ..DescribedGroup::default()
        });
        DescribeGroupsResponse { throttle_time_ms: 0, groups: groups.collect() }
    }
}
