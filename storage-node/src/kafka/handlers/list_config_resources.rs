//! ListConfigResources: the resources that can have configs (KIP-1142).

use crate::kafka::config_resource::resource_type;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};
use std::sync::Arc;

/// In version 0 only client metrics can be listed.
const TYPES_MIN: i16 = 1;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    const KNOWN: [i8; 5] = [
        resource_type::TOPIC,
        resource_type::BROKER,
        resource_type::BROKER_LOGGER,
        resource_type::CLIENT_METRICS,
        resource_type::GROUP,
    ];
    if request.resource_types.iter().any(|kind| !KNOWN.contains(kind)) {
        return ListConfigResourcesResponse {
            error_code: ErrorCode::UnsupportedVersion,
            ..ListConfigResourcesResponse::default()
        };
    }
    let wanted = |kind: i8| {
        context.api_version >= TYPES_MIN
            && (request.resource_types.is_empty() || request.resource_types.contains(&kind))
    };
    let image = node.image();
    let mut config_resources = Vec::new();
    if wanted(resource_type::TOPIC) {
        config_resources.extend(image.topics().map(|topic| ConfigResource {
            resource_name: (&*topic.name).into(),
            resource_type: resource_type::TOPIC,
        }));
    }
    if wanted(resource_type::BROKER) {
        config_resources.extend(image.live_nodes().map(|node| ConfigResource {
            resource_name: node.registration.node.to_string().into(),
            resource_type: resource_type::BROKER,
        }));
    }
    ListConfigResourcesResponse { config_resources, ..ListConfigResourcesResponse::default() }
}
