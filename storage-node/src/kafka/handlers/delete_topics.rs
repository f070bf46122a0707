//! DeleteTopics: by name, or from version 6 by id; asked of the controller.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::delete_topics::{
    DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{ControllerReply, ControllerRequest, DeleteTopics, TopicRef};
use proto_types::ids::TopicId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// From this version on a topic is named by a structure.
const STATES_MIN: i16 = 6;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let topics = if context.api_version >= STATES_MIN {
        request.topics
    } else {
        let by_name = |name| DeleteTopicState { name: Some(name), ..DeleteTopicState::default() };
        request.topic_names.into_iter().map(by_name).collect()
    };
    let mut counts: BTreeMap<(Option<Str>, u128), usize> = BTreeMap::new();
    for topic in &topics {
        *counts.entry(key(topic)).or_default() += 1;
    }
    let mut responses = Vec::new();
    let mut wanted = Vec::new();
    for topic in topics {
        let refusal = match (&topic.name, topic.topic_id.is_nil()) {
            (Some(_), false) => Some("You may not specify both topic name and topic id."),
            (None, true) => Some("Neither topic name nor id were specified."),
            (Some(_), true) if counts.get(&key(&topic)) != Some(&1) => Some("Duplicate topic name."),
            (None, false) if counts.get(&key(&topic)) != Some(&1) => Some("Duplicate topic id."),
            _ => None,
        };
        match refusal {
            None => wanted.push(topic),
            Some(message) => {
                // One answer for all repetitions of a topic.
                if counts.remove(&key(&topic)).is_some() {
                    let error = KafkaError::new(ErrorCode::InvalidRequest, Str::from_static(message));
                    responses.push(failed(&topic, error));
                }
            }
        }
    }
    if !wanted.is_empty() {
        responses.extend(delete(&node, request.timeout_ms, &wanted).await);
    }
    DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() }
}

fn key(topic: &DeleteTopicState) -> (Option<Str>, u128) {
    (topic.name.clone(), topic.topic_id.as_u128())
}

async fn delete(node: &Node, timeout_ms: i32, wanted: &[DeleteTopicState]) -> Vec<DeletableTopicResult> {
    let timeout = node.admin_timeout(timeout_ms);
    let topic_ref = |topic: &DeleteTopicState| match &topic.name {
        Some(name) => TopicRef::Name(name.to_string()),
        None => TopicRef::Id(TopicId(topic.topic_id)),
    };
    let question = ControllerRequest::DeleteTopics(DeleteTopics {
        topics: wanted.iter().map(topic_ref).collect(),
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    });
    let answer = match node.ask_controller(question, timeout).await {
        Ok(ControllerReply::TopicsDeleted(results)) if results.len() == wanted.len() => Ok(results),
        Ok(other) => Err(Node::unexpected_reply(&other)),
        Err(error) => Err(error),
    };
    match answer {
        Ok(results) => wanted
            .iter()
            .zip(results)
            .map(|(topic, result)| match result {
                Ok(deleted) => DeletableTopicResult {
                    name: Some(deleted.name.into()),
                    topic_id: deleted.topic.0,
                    ..DeletableTopicResult::default()
                },
                Err(rejection) => failed(topic, rejection.into()),
            })
            .collect(),
        Err(error) => wanted.iter().map(|topic| failed(topic, error.clone())).collect(),
    }
}

fn failed(topic: &DeleteTopicState, error: KafkaError) -> DeletableTopicResult {
    DeletableTopicResult {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        error_code: error.code,
        error_message: Some(error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{TestNode, assert_encodes, live_node, topic_id};
    use proto_types::controller_api::DeletedTopic;
    use proto_types::error::{Reason, Rejection};
    use uuid::Uuid;

    /// A node whose controller deletes `a` (id 1) and knows nothing else.
    fn test_node() -> TestNode {
        TestNode::with(&[], &live_node(1), |request| {
            let ControllerRequest::DeleteTopics(delete) = request else { panic!("{request:?}") };
            let results = delete.topics.iter().map(|topic| match topic {
                TopicRef::Name(name) if name == "a" => Ok(()),
                TopicRef::Id(id) if *id == topic_id(1) => Ok(()),
                TopicRef::Name(_) => Err(Reason::UnknownTopic),
                TopicRef::Id(_) => Err(Reason::UnknownTopicId),
            });
            let results = results.map(|result| match result {
                Ok(()) => Ok(DeletedTopic { topic: topic_id(1), name: "a".into() }),
                Err(reason) => Err(Rejection { reason, message: "no".into() }),
            });
            Ok(ControllerReply::TopicsDeleted(results.collect()))
        })
    }

    async fn ask(version: i16, request: DeleteTopicsRequest) -> Vec<DeletableTopicResult> {
        let test = test_node();
        let response = handle(Arc::clone(&test.node), test.context(version), request).await;
        assert_encodes::<DeleteTopicsRequest>(&response, version);
        response.responses
    }

    #[tokio::test]
    async fn old_versions_delete_by_name() {
        for version in 1..=5 {
            let topic_names = vec!["a".into(), "nope".into(), "b".into(), "b".into()];
            let request = DeleteTopicsRequest { topic_names, timeout_ms: 100, ..Default::default() };
            let mut codes: Vec<(String, ErrorCode)> = ask(version, request)
                .await
                .iter()
                .map(|result| (result.name.as_deref().unwrap().to_owned(), result.error_code))
                .collect();
            codes.sort();
            let expected = [
                ("a", ErrorCode::None),
                ("b", ErrorCode::InvalidRequest),
                ("nope", ErrorCode::UnknownTopicOrPartition),
            ];
            assert_eq!(codes, expected.map(|(name, code)| (name.to_owned(), code)));
        }
    }

    #[tokio::test]
    async fn a_topic_is_named_by_name_or_id_but_not_by_both() {
        let check = async |name: Option<&str>, id: u128, expected: ErrorCode| {
            let topic = DeleteTopicState { name: name.map(Str::from), topic_id: Uuid::from_u128(id) };
            let request = DeleteTopicsRequest { topics: vec![topic], timeout_ms: 100, ..Default::default() };
            let results = ask(6, request).await;
            assert_eq!(results.len(), 1);
            assert_eq!(results[0].error_code, expected, "{results:?}");
            results.into_iter().next().unwrap()
        };
        check(Some("a"), 0, ErrorCode::None).await;
        let by_id = check(None, 1, ErrorCode::None).await;
        assert_eq!(by_id.name.as_deref(), Some("a"));
        let unknown = check(None, 9, ErrorCode::UnknownTopicId).await;
        assert_eq!((unknown.name, unknown.topic_id), (None, Uuid::from_u128(9)));
        check(Some("a"), 1, ErrorCode::InvalidRequest).await;
        check(None, 0, ErrorCode::InvalidRequest).await;
    }
}
