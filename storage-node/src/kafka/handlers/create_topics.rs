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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_port::ControllerFailure;
    use crate::test_node::{TestNode, assert_encodes, live_node, topic_id};
    use kafka_wire_core::messages::create_topics::{CreatableReplicaAssignment, CreatableTopicConfig};
    use proto_types::error::{Reason, Rejection};

    fn new(name: &str, partitions: i32) -> CreatableTopic {
        CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: -1,
            ..CreatableTopic::default()
        }
    }

    /// A node whose controller creates everything but topics named `taken`.
    fn test_node(file: &[(&str, &str)]) -> TestNode {
        TestNode::with(file, &live_node(1), |request| {
            let ControllerRequest::CreateTopics(create) = request else { panic!("{request:?}") };
            let results = create.topics.iter().map(|new| match new.name.as_str() {
                "taken" => {
                    Err(Rejection { reason: Reason::TopicExists, message: "Topic 'taken' exists".into() })
                }
                _ => Ok(CreatedTopic {
                    topic: topic_id(5),
                    partitions: new.partitions.unwrap_or(1),
                    replication_factor: new.replication_factor.unwrap_or(1),
                    configs: vec![("retention.ms".into(), "77".into())],
                }),
            });
            Ok(ControllerReply::TopicsCreated(results.collect()))
        })
    }

    async fn ask(test: &TestNode, topics: Vec<CreatableTopic>) -> Vec<CreatableTopicResult> {
        let request = CreateTopicsRequest { topics, timeout_ms: 1000, validate_only: false };
        let response = handle(Arc::clone(&test.node), test.context(7), request).await;
        for version in 2..=7 {
            assert_encodes::<CreateTopicsRequest>(&response, version);
        }
        response.topics
    }

    fn asked(test: &TestNode) -> Vec<NewTopic> {
        let asked = test.controller.asked.lock();
        let [ControllerRequest::CreateTopics(create)] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((create.timeout_ms, create.validate_only), (1000, false));
        create.topics.clone()
    }

    #[tokio::test]
    async fn each_topic_has_its_own_answer() {
        let test = test_node(&[]);
        let results = ask(&test, vec![new("a", 3), new("taken", 1), new("b", -1)]).await;
        let codes: Vec<(&str, ErrorCode, i32)> =
            results.iter().map(|r| (&*r.name, r.error_code, r.num_partitions)).collect();
        assert_eq!(
            codes,
            [
                ("a", ErrorCode::None, 3),
                ("taken", ErrorCode::TopicAlreadyExists, -1),
                ("b", ErrorCode::None, 1)
            ]
        );
        assert_eq!(results[0].topic_id, topic_id(5).0);
        assert_eq!(results[1].error_message.as_deref(), Some("Topic 'taken' exists"));
        assert_eq!(asked(&test)[2].partitions, None, "the controller knows the default");
    }

    #[tokio::test]
    async fn the_answer_shows_all_configs_in_force() {
        let test = test_node(&[("log.segment.bytes", "2000000")]);
        let results = ask(&test, vec![new("a", 1)]).await;
        let configs = results[0].configs.as_deref().unwrap();
        let of = |name: &str| {
            let config = configs.iter().find(|config| config.name == name).unwrap();
            (config.value.as_deref().unwrap().to_owned(), config.config_source)
        };
        assert_eq!(configs.len(), TOPIC_CONFIGS.len());
        assert_eq!(of("retention.ms"), ("77".into(), 1));
        assert_eq!(of("segment.bytes"), ("2000000".into(), 4));
        assert_eq!(of("cleanup.policy"), ("delete".into(), 5));
    }

    #[tokio::test]
    async fn a_name_given_twice_is_refused_once_and_the_others_go_on() {
        let test = test_node(&[]);
        let results = ask(&test, vec![new("d", 1), new("a", 1), new("d", 2), new("d", 3)]).await;
        let codes: Vec<(&str, ErrorCode)> = results.iter().map(|r| (&*r.name, r.error_code)).collect();
        assert_eq!(codes, [("d", ErrorCode::InvalidRequest), ("a", ErrorCode::None)]);
        assert_eq!(asked(&test).len(), 1);
    }

    #[tokio::test]
    async fn counts_come_from_the_nodes_file_but_not_beside_an_assignment() {
        let test = test_node(&[("num.partitions", "6"), ("default.replication.factor", "2")]);
        let assigned = CreatableTopic {
            assignments: vec![CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![1, 2] }],
            configs: vec![CreatableTopicConfig { name: "x".into(), value: None }],
            ..new("b", -1)
        };
        ask(&test, vec![new("a", -1), assigned]).await;
        let topics = asked(&test);
        assert_eq!((topics[0].partitions, topics[0].replication_factor), (Some(6), Some(2)));
        assert_eq!((topics[1].partitions, topics[1].replication_factor), (None, None));
        assert_eq!(topics[1].assignments, [(PartitionIndex(0), vec![NodeId(1), NodeId(2)])]);
        assert_eq!(topics[1].configs, [("x".to_owned(), None)]);
    }

    #[tokio::test]
    async fn what_is_known_of_the_outcome_decides_whether_clients_repeat() {
        for (failure, code) in [
            (ControllerFailure::Unavailable("x".into()), ErrorCode::NotController),
            (ControllerFailure::OutcomeUnknown("x".into()), ErrorCode::RequestTimedOut),
        ] {
            let test = TestNode::with(&[], &live_node(1), move |_| Err(failure.clone()));
            let results = ask(&test, vec![new("a", 1), new("b", 1)]).await;
            assert!(results.iter().all(|result| result.error_code == code), "{results:?}");
            assert_eq!(results.len(), 2);
        }
        // An answer to another question, or to another number of topics, is an error and no guess.
        let test = TestNode::with(&[], &live_node(1), |_| Ok(ControllerReply::TopicsCreated(vec![])));
        let results = ask(&test, vec![new("a", 1)]).await;
        assert_eq!(results[0].error_code, ErrorCode::UnknownServerError);
    }
}
