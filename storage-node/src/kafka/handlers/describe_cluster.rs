//! DescribeCluster: cluster id and brokers, for admin tools.

use crate::kafka::authorize::{self, CLUSTER_OPERATIONS};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use std::sync::Arc;

/// The kind of endpoint that a storage node is.
const ENDPOINT_BROKERS: i8 = 1;
/// The kind of endpoint that only a controller is.
const ENDPOINT_CONTROLLERS: i8 = 2;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    if request.endpoint_type != ENDPOINT_BROKERS {
        let (error_code, message) = if request.endpoint_type == ENDPOINT_CONTROLLERS {
            let message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER";
            (ErrorCode::MismatchedEndpointType, Str::from_static(message))
        } else {
            let message = format!("Unsupported endpoint type {}", request.endpoint_type);
            (ErrorCode::UnsupportedEndpointType, Str::from(message))
        };
        let error_message = Some(message);
        return DescribeClusterResponse { error_code, error_message, ..DescribeClusterResponse::default() };
    }
    let image = node.image();
    let shown = image.nodes().filter(|node| request.include_fenced_brokers || !node.fenced);
    let brokers = shown.filter_map(|node| {
        let address = node.listener(&context.listener.name)?;
        Some(DescribeClusterBroker {
            broker_id: node.registration.node.0,
            host: address.host.as_str().into(),
            port: i32::from(address.port),
            rack: node.registration.rack.as_deref().map(Str::from),
            is_fenced: node.fenced,
        })
    });
    DescribeClusterResponse {
        cluster_id: node.cluster_id().clone(),
        controller_id: node.admin_node(&image),
        brokers: brokers.collect(),
        cluster_authorized_operations: authorize::operations(
            request.include_cluster_authorized_operations,
            CLUSTER_OPERATIONS,
        ),
        ..DescribeClusterResponse::default()
    }
}
