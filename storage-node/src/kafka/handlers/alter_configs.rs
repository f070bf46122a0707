//! AlterConfigs: replaces all configs of a resource. What is not named goes back to its default.

use crate::kafka::alter_resources::{ResourceChanges, ResourceOutcome, alter};
use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{ConfigOp, ConfigOpKind};
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let changes = request.resources.iter().map(changes).collect();
    let outcomes = alter(&node, changes, request.validate_only).await;
    let response = |outcome: ResourceOutcome| AlterConfigsResourceResponse {
        error_code: outcome.error_code,
        error_message: outcome.error_message,
        resource_type: outcome.kind,
        resource_name: outcome.name,
    };
    AlterConfigsResponse {
        responses: outcomes.into_iter().map(response).collect(),
        ..AlterConfigsResponse::default()
    }
}

fn changes(resource: &AlterConfigsResource) -> ResourceChanges {
    let nulls: Vec<&str> = resource
        .configs
        .iter()
        .filter(|config| config.value.is_none())
        .map(|config| config.name.as_str())
        .collect();
    let ops = if nulls.is_empty() {
        let op = |name: &Str, value: &Option<Str>| ConfigOp {
            name: name.to_string(),
            kind: ConfigOpKind::Set,
            value: value.as_ref().map(Str::to_string),
        };
        Ok(resource.configs.iter().map(|config| op(&config.name, &config.value)).collect())
    } else {
        let names = nulls.join(", ").escape_debug().to_string();
        Err(KafkaError::new(ErrorCode::InvalidRequest, format!("Null value not supported for : {names}")))
    };
    ResourceChanges {
        kind: resource.resource_type,
        name: resource.resource_name.clone(),
        replace_all: true,
        ops,
    }
}
