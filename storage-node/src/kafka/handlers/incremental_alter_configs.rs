//! IncrementalAlterConfigs: sets, deletes, appends to and subtracts from single configs (KIP-339).

use crate::kafka::alter_resources::{ResourceChanges, ResourceOutcome, alter};
use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{ConfigOp, ConfigOpKind};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let changes = request.resources.iter().map(changes).collect();
    let outcomes = alter(&node, changes, request.validate_only).await;
    let response = |outcome: ResourceOutcome| AlterConfigsResourceResponse {
        error_code: outcome.error_code,
        error_message: outcome.error_message,
        resource_type: outcome.kind,
        resource_name: outcome.name,
    };
    IncrementalAlterConfigsResponse {
        responses: outcomes.into_iter().map(response).collect(),
        ..IncrementalAlterConfigsResponse::default()
    }
}

fn changes(resource: &AlterConfigsResource) -> ResourceChanges {
    ResourceChanges {
        kind: resource.resource_type,
        name: resource.resource_name.clone(),
        replace_all: false,
        ops: ops(&resource.configs),
    }
}

fn ops(configs: &[AlterableConfig]) -> Result<Vec<ConfigOp>, KafkaError> {
    let invalid = |message: String| Err(KafkaError::new(ErrorCode::InvalidRequest, message));
    let mut seen = BTreeSet::new();
    let mut ops = Vec::with_capacity(configs.len());
    for config in configs {
        let name = config.name.to_string();
        let shown = config.name.escape_debug();
        if !seen.insert(config.name.clone()) {
            return invalid(format!("Error due to duplicate config keys: {shown}"));
        }
        let Some(kind) = kind(config.config_operation) else {
            return invalid(format!("Unknown operation {} on config {shown}", config.config_operation));
        };
        if config.value.is_none() && kind != ConfigOpKind::Delete {
            return invalid(format!("Null value not supported for : {shown}"));
        }
        ops.push(ConfigOp { name, kind, value: config.value.as_ref().map(Str::to_string) });
    }
    Ok(ops)
}

/// Kafka's numbers of the operations.
fn kind(number: i8) -> Option<ConfigOpKind> {
    match number {
        0 => Some(ConfigOpKind::Set),
        1 => Some(ConfigOpKind::Delete),
        2 => Some(ConfigOpKind::Append),
        3 => Some(ConfigOpKind::Subtract),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, config_operation: i8, value: Option<&str>) -> AlterableConfig {
        AlterableConfig { name: name.into(), config_operation, value: value.map(Str::from) }
    }

    #[test]
    fn operations_have_kafkas_numbers() {
        let configs = [config("a", 0, Some("1")), config("b", 1, None), config("c", 2, Some("x"))];
        let kinds: Vec<ConfigOpKind> = ops(&configs).unwrap().into_iter().map(|op| op.kind).collect();
        assert_eq!(kinds, [ConfigOpKind::Set, ConfigOpKind::Delete, ConfigOpKind::Append]);
    }

    #[test]
    fn contradictions_are_refused_with_the_name() {
        let cases = [
            vec![config("retention.ms", 0, None)],
            vec![config("retention.ms", 4, Some("1"))],
            vec![config("retention.ms", 0, Some("1")), config("retention.ms", 1, None)],
        ];
        for configs in cases {
            let error = ops(&configs).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidRequest);
            assert!(error.message.contains("retention.ms"), "{}", error.message);
        }
    }
}
