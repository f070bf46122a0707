//! DescribeConfigs: all configs of topics and storage nodes, with where each value comes from.

use crate::kafka::config_resource::{self, resource_type};
use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::ResourceRef;
use proto_types::metadata::ConfigResource;
use std::sync::Arc;
use storage_node_core::effective_config::{ConfigSource, EffectiveConfig};
use storage_node_core::image::ClusterImage;
use storage_node_core::topic_name;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let image = node.image();
    let shown = Shown { synonyms: request.include_synonyms, documentation: request.include_documentation };
    let results = request.resources.iter().map(|resource| describe(&node, &image, shown, resource)).collect();
    DescribeConfigsResponse { results, ..DescribeConfigsResponse::default() }
}

/// What the client wants to see of each config.
#[derive(Debug, Clone, Copy)]
struct Shown {
    synonyms: bool,
    documentation: bool,
}

fn describe(
    node: &Node,
    image: &ClusterImage,
    shown: Shown,
    resource: &DescribeConfigsResource,
) -> DescribeConfigsResult {
    let (error_code, error_message, configs) = match effective(node, image, resource) {
        Ok(configs) => (ErrorCode::None, None, configs),
        Err(error) => (error.code, Some(error.message), Vec::new()),
    };
    let wanted = |config: &EffectiveConfig| match &resource.configuration_keys {
        None => true,
        Some(keys) => keys.is_empty() || keys.iter().any(|key| key == config.def.name),
    };
    DescribeConfigsResult {
        error_code,
        error_message,
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        configs: configs.into_iter().filter(wanted).map(|config| entry(shown, config)).collect(),
    }
}

fn effective(
    node: &Node,
    image: &ClusterImage,
    resource: &DescribeConfigsResource,
) -> Result<Vec<EffectiveConfig>, KafkaError> {
    let view = node.configs(image);
    if resource.resource_type == resource_type::TOPIC && resource.resource_name.is_empty() {
        return Err(unknown_topic(""));
    }
    match config_resource::parse(resource.resource_type, &resource.resource_name)? {
        ResourceRef::Topic(name) => match image.topic_by_name(&name) {
            Some(topic) => Ok(view.topic_configs(topic.id)),
            None => Err(unknown_topic(&name)),
        },
        ResourceRef::Resource(ConfigResource::Topic(id)) => Ok(view.topic_configs(id)),
        ResourceRef::Resource(ConfigResource::Node(id)) if id == node.id() => Ok(view.node_configs()),
        ResourceRef::Resource(ConfigResource::Node(id)) => {
            let own = node.id();
            let message = format!("Unexpected broker id, expected {own} or empty string, but received {id}");
            Err(KafkaError::new(ErrorCode::InvalidRequest, message))
        }
        ResourceRef::Resource(ConfigResource::NodeDefault) => Ok(cluster_wide(view.node_configs())),
    }
}

fn unknown_topic(name: &str) -> KafkaError {
    match topic_name::check(name) {
        Ok(()) => KafkaError::new(ErrorCode::UnknownTopicOrPartition, format!("The topic '{name}' does not exist.")),
        Err(message) => KafkaError::new(ErrorCode::InvalidTopicException, message),
    }
}

/// What is set for all nodes at once: no defaults, nothing of a single node.
fn cluster_wide(configs: Vec<EffectiveConfig>) -> Vec<EffectiveConfig> {
    let set = configs.into_iter().filter_map(|mut config| {
        let name = config.def.name;
        config.synonyms.retain(|synonym| synonym.source == ConfigSource::NodeDefault && synonym.name == name);
        let own = config.synonyms.first()?;
        let value = Some(own.value.clone());
        Some(EffectiveConfig { value, source: ConfigSource::NodeDefault, ..config })
    });
    set.collect()
}

fn entry(shown: Shown, config: EffectiveConfig) -> DescribeConfigsResourceResult {
    let def = config.def;
    let visible = |value: String| (!def.sensitive()).then(|| Str::from(value));
    let synonyms = if shown.synonyms { config.synonyms } else { Vec::new() };
    DescribeConfigsResourceResult {
        name: Str::from_static(def.name),
        value: config.value.and_then(visible),
        // A topic's configs can all be changed; so can those of a node that are not fixed at its start.
        read_only: def.read_only(),
        config_source: config.source.wire_number(),
        is_sensitive: def.sensitive(),
        synonyms: synonyms
            .into_iter()
            .map(|synonym| DescribeConfigsSynonym {
                name: Str::from_static(synonym.name),
                value: visible(synonym.value),
                source: synonym.source.wire_number(),
            })
            .collect(),
        config_type: def.kind.wire_number(),
        documentation: shown.documentation.then_some(Str::from_static(def.doc)),
    }
}
