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
use std::collections::HashSet;
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
    // Each once: a short request must not get an answer without bound.
    let mut seen = HashSet::new();
    let asked = request.resources.iter();
    let asked = asked.filter(|resource| seen.insert((resource.resource_type, &resource.resource_name)));
    let results = asked.map(|resource| describe(&node, &image, shown, resource)).collect();
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
        Ok(configs) => (ErrorCode::None, Some(Str::default()), configs),
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
        Ok(()) => {
            KafkaError::new(ErrorCode::UnknownTopicOrPartition, format!("The topic '{name}' does not exist."))
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{TestNode, assert_encodes, live_node, topic, topic_id};
    use proto_types::config_schema::{NODE_CONFIGS, TOPIC_CONFIGS};
    use proto_types::ids::NodeId;
    use proto_types::metadata::MetadataChange;

    fn set(resource: ConfigResource, name: &str, value: &str) -> MetadataChange {
        MetadataChange::ConfigSet { resource, name: name.into(), value: Some(value.into()) }
    }

    fn test_node() -> TestNode {
        let configs = vec![
            set(ConfigResource::Topic(topic_id(1)), "retention.ms", "77"),
            set(ConfigResource::NodeDefault, "log.segment.bytes", "2000000"),
            set(ConfigResource::Node(NodeId(1)), "message.max.bytes", "9"),
        ];
        let changes = [live_node(1), topic(1, "t", 1, &[1]), configs].concat();
        TestNode::with(&[("num.partitions", "6")], &changes, |request| panic!("asked {request:?}"))
    }

    async fn describe(kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResult {
        let test = test_node();
        let keys = keys.map(|keys| keys.iter().map(|&key| key.into()).collect());
        let resource = DescribeConfigsResource {
            resource_type: kind,
            resource_name: name.into(),
            configuration_keys: keys,
        };
        let request = DescribeConfigsRequest {
            resources: vec![resource],
            include_synonyms: true,
            include_documentation: true,
        };
        let response = handle(Arc::clone(&test.node), test.context(4), request).await;
        for version in 1..=4 {
            assert_encodes::<DescribeConfigsRequest>(&response, version);
        }
        response.results.into_iter().next().unwrap()
    }

    fn of<'a>(result: &'a DescribeConfigsResult, name: &str) -> &'a DescribeConfigsResourceResult {
        result.configs.iter().find(|config| config.name == name).unwrap()
    }

    #[tokio::test]
    async fn a_topic_lists_every_config_with_its_source() {
        let result = describe(2, "t", None).await;
        assert_eq!(result.configs.len(), TOPIC_CONFIGS.len());
        let check = |name: &str, value: &str, source: i8, synonyms: usize| {
            let config = of(&result, name);
            let found = (config.value.as_deref().unwrap(), config.config_source, config.synonyms.len());
            assert_eq!(found, (value, source, synonyms), "{name}");
            assert!(!config.read_only && !config.is_sensitive && config.config_type > 0);
            assert!(config.documentation.as_deref().is_some_and(|text| !text.is_empty()));
        };
        check("retention.ms", "77", 1, 1);
        check("segment.bytes", "2000000", 3, 2);
        check("max.message.bytes", "9", 2, 2);
        check("cleanup.policy", "delete", 5, 1);
        check("segment.ms", "604800000", 5, 0);
    }

    #[tokio::test]
    async fn a_resource_that_is_named_again_is_described_once() {
        let test = test_node();
        let resource = |name: &str| DescribeConfigsResource {
            resource_type: resource_type::TOPIC,
            resource_name: name.into(),
            configuration_keys: None,
        };
        let request = DescribeConfigsRequest {
            resources: vec![resource("t"), resource("nope"), resource("t"), resource("t")],
            ..DescribeConfigsRequest::default()
        };
        let response = handle(Arc::clone(&test.node), test.context(4), request).await;
        let names: Vec<&str> = response.results.iter().map(|result| &*result.resource_name).collect();
        assert_eq!(names, ["t", "nope"]);
    }

    #[tokio::test]
    async fn keys_narrow_the_list_and_no_key_means_all() {
        assert_eq!(describe(2, "t", Some(&["retention.ms", "bogus"])).await.configs.len(), 1);
        assert_eq!(describe(2, "t", Some(&[])).await.configs.len(), TOPIC_CONFIGS.len());
    }

    #[tokio::test]
    async fn a_node_lists_its_own_configs_and_no_other_nodes() {
        let result = describe(4, "1", None).await;
        assert_eq!(result.configs.len(), NODE_CONFIGS.len());
        assert_eq!(of(&result, "num.partitions").value.as_deref(), Some("6"));
        assert_eq!(of(&result, "num.partitions").config_source, 4);
        assert!(of(&result, "node.id").read_only);
        let other = describe(4, "2", None).await;
        assert_eq!(other.error_code, ErrorCode::InvalidRequest);
        assert!(other.error_message.unwrap().contains("expected 1"));
        // Without an id: what is set for all nodes, and nothing else.
        let all = describe(4, "", None).await;
        let names: Vec<&str> = all.configs.iter().map(|config| &*config.name).collect();
        assert_eq!(names, ["log.segment.bytes"]);
        assert_eq!(all.configs[0].config_source, 3);
    }

    #[tokio::test]
    async fn what_does_not_exist_says_so() {
        for (kind, name, code) in [
            (2, "nope", ErrorCode::UnknownTopicOrPartition),
            (2, "no pe", ErrorCode::InvalidTopicException),
            (2, "", ErrorCode::InvalidTopicException),
            (4, "x", ErrorCode::InvalidRequest),
            (8, "1", ErrorCode::InvalidRequest),
            (99, "t", ErrorCode::InvalidRequest),
        ] {
            let result = describe(kind, name, None).await;
            assert_eq!(result.error_code, code, "{kind} {name}");
            assert!(result.configs.is_empty() && result.error_message.is_some());
        }
    }
}
