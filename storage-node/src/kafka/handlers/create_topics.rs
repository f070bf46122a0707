//! CreateTopics: asked of the controller; answered when all live nodes know the new topics and their leaders are open.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::config_schema::TOPIC_CONFIGS;
use proto_types::controller_api::{ControllerReply, ControllerRequest, CreateTopics, CreatedTopic, NewTopic};
use proto_types::ids::{NodeId, PartitionIndex};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage_node_core::effective_config::{ConfigSource, ConfigView};

/// Kafka's "take the default" for both counts.
const DEFAULT_COUNT: i32 = -1;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *counts.entry(&topic.name).or_default() += 1;
    }
    let mut results = Vec::new();
    let mut wanted = Vec::new();
    for topic in &request.topics {
        if counts.get(topic.name.as_str()) == Some(&1) {
            wanted.push(topic);
        } else if counts.remove(topic.name.as_str()).is_some() {
            let error = KafkaError::new(ErrorCode::InvalidRequest, Str::from_static("Duplicate topic name."));
            results.push(failed(&topic.name, error));
        }
    }
    if !wanted.is_empty() {
        results.extend(create(&node, &request, &wanted).await);
    }
    CreateTopicsResponse { topics: results, ..CreateTopicsResponse::default() }
}

async fn create(
    node: &Node,
    request: &CreateTopicsRequest,
    wanted: &[&CreatableTopic],
) -> Vec<CreatableTopicResult> {
    let timeout = node.admin_timeout(request.timeout_ms);
    let question = ControllerRequest::CreateTopics(CreateTopics {
        topics: wanted.iter().map(|topic| new_topic(node, topic)).collect(),
        validate_only: request.validate_only,
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    });
    let answer = match node.ask_controller(question, timeout).await {
        Ok(ControllerReply::TopicsCreated(results)) if results.len() == wanted.len() => Ok(results),
        Ok(other) => Err(Node::unexpected_reply(&other)),
        Err(error) => Err(error),
    };
    let image = node.image();
    let view = node.configs(&image);
    match answer {
        Ok(results) => wanted
            .iter()
            .zip(results)
            .map(|(topic, result)| match result {
                Ok(created) => succeeded(&topic.name, &created, view),
                Err(rejection) => failed(&topic.name, rejection.into()),
            })
            .collect(),
        Err(error) => wanted.iter().map(|topic| failed(&topic.name, error.clone())).collect(),
    }
}

fn new_topic(node: &Node, topic: &CreatableTopic) -> NewTopic {
    // With an assignment the counts follow from it, and the controller refuses counts beside it.
    let (default_partitions, default_replicas) =
        if topic.assignments.is_empty() { node.new_topic_counts() } else { (None, None) };
    let partitions = (topic.num_partitions != DEFAULT_COUNT).then_some(topic.num_partitions);
    let replicas = (i32::from(topic.replication_factor) != DEFAULT_COUNT).then_some(topic.replication_factor);
    NewTopic {
        name: topic.name.to_string(),
        partitions: partitions.or(default_partitions),
        replication_factor: replicas.or(default_replicas),
        assignments: topic
            .assignments
            .iter()
            .map(|assignment| {
                let nodes = assignment.broker_ids.iter().copied().map(NodeId).collect();
                (PartitionIndex(assignment.partition_index), nodes)
            })
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|config| (config.name.to_string(), config.value.as_ref().map(Str::to_string)))
            .collect(),
    }
}

fn succeeded(name: &Str, created: &CreatedTopic, view: ConfigView<'_>) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.clone(),
        topic_id: created.topic.0,
        num_partitions: created.partitions,
        replication_factor: created.replication_factor,
        configs: Some(configs(created, view)),
        ..CreatableTopicResult::default()
    }
}

/// All configs of the new topic: what was set explicitly, and what it inherits. The topic need not exist (validate only).
fn configs(created: &CreatedTopic, view: ConfigView<'_>) -> Vec<CreatableTopicConfigs> {
    let own: BTreeMap<&str, &str> =
        created.configs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let entries = TOPIC_CONFIGS.iter().map(|def| {
        let (value, source) = match own.get(def.name) {
            Some(value) => (Some((*value).to_owned()), ConfigSource::Topic),
            None => view
                .topic_default(def.name)
                .map_or((None, ConfigSource::Default), |config| (config.value, config.source)),
        };
        CreatableTopicConfigs {
            name: Str::from_static(def.name),
            value: value.filter(|_| !def.sensitive()).map(Str::from),
            read_only: false,
            config_source: source.wire_number(),
            is_sensitive: def.sensitive(),
        }
    });
    entries.collect()
}

fn failed(name: &Str, error: KafkaError) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.clone(),
        error_code: error.code,
        error_message: Some(error.message),
        configs: Some(Vec::new()),
        ..CreatableTopicResult::default()
    }
}
