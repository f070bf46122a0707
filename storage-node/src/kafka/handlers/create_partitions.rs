//! CreatePartitions: more partitions for topics that exist; asked of the controller.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{ControllerReply, ControllerRequest, CreatePartitions, MorePartitions};
use proto_types::ids::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
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
            results.push(result(&topic.name, Err(error)));
        }
    }
    if !wanted.is_empty() {
        results.extend(create(&node, &request, &wanted).await);
    }
    CreatePartitionsResponse { results, ..CreatePartitionsResponse::default() }
}

async fn create(
    node: &Node,
    request: &CreatePartitionsRequest,
    wanted: &[&CreatePartitionsTopic],
) -> Vec<CreatePartitionsTopicResult> {
    let timeout = node.admin_timeout(request.timeout_ms);
    let question = ControllerRequest::CreatePartitions(CreatePartitions {
        topics: wanted.iter().map(|topic| more_partitions(topic)).collect(),
        validate_only: request.validate_only,
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    });
    let answer = match node.ask_controller(question, timeout).await {
        Ok(ControllerReply::PartitionsCreated(results)) if results.len() == wanted.len() => Ok(results),
        Ok(other) => Err(Node::unexpected_reply(&other)),
        Err(error) => Err(error),
    };
    match answer {
        Ok(results) => {
            let pairs = wanted.iter().zip(results);
            pairs.map(|(topic, outcome)| result(&topic.name, outcome.map_err(KafkaError::from))).collect()
        }
        Err(error) => wanted.iter().map(|topic| result(&topic.name, Err(error.clone()))).collect(),
    }
}

fn more_partitions(topic: &CreatePartitionsTopic) -> MorePartitions {
    let assignments = topic.assignments.iter().flatten();
    MorePartitions {
        name: topic.name.to_string(),
        count: topic.count,
        assignments: assignments
            .map(|assignment| assignment.broker_ids.iter().copied().map(NodeId).collect())
            .collect(),
    }
}

fn result(name: &Str, outcome: Result<(), KafkaError>) -> CreatePartitionsTopicResult {
    let (error_code, error_message) = match outcome {
        Ok(()) => (ErrorCode::None, None),
        Err(error) => (error.code, Some(error.message)),
    };
    CreatePartitionsTopicResult { name: name.clone(), error_code, error_message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{TestNode, assert_encodes, live_node};
    use kafka_wire_core::messages::create_partitions::CreatePartitionsAssignment;
    use proto_types::error::{Reason, Rejection};

    #[tokio::test]
    async fn every_topic_is_in_the_answer_with_the_controllers_words() {
        let test = TestNode::with(&[], &live_node(1), |request| {
            let ControllerRequest::CreatePartitions(create) = request else { panic!("{request:?}") };
            let results = create.topics.iter().map(|topic| {
                let message = format!("The topic {} currently has 3 partition(s)", topic.name);
                let fewer = Rejection { reason: Reason::InvalidPartitions, message };
                if topic.count > 3 { Ok(()) } else { Err(fewer) }
            });
            Ok(ControllerReply::PartitionsCreated(results.collect()))
        });
        let more = |name: &str, count| CreatePartitionsTopic { name: name.into(), count, assignments: None };
        let assigned = CreatePartitionsTopic {
            assignments: Some(vec![CreatePartitionsAssignment { broker_ids: vec![2, 1] }]),
            ..more("c", 4)
        };
        let request = CreatePartitionsRequest {
            topics: vec![more("a", 5), more("b", 2), more("d", 9), more("d", 8), assigned],
            timeout_ms: 100,
            validate_only: true,
        };
        let response = handle(Arc::clone(&test.node), test.context(3), request).await;
        for version in 0..=3 {
            assert_encodes::<CreatePartitionsRequest>(&response, version);
        }
        let mut codes: Vec<(&str, ErrorCode)> =
            response.results.iter().map(|result| (&*result.name, result.error_code)).collect();
        codes.sort();
        let expected = [
            ("a", ErrorCode::None),
            ("b", ErrorCode::InvalidPartitions),
            ("c", ErrorCode::None),
            ("d", ErrorCode::InvalidRequest),
        ];
        assert_eq!(codes, expected);
        let asked = test.controller.asked.lock();
        let [ControllerRequest::CreatePartitions(create)] = &asked[..] else { panic!("{asked:?}") };
        assert!(create.validate_only);
        assert_eq!(create.topics[2].assignments, [vec![NodeId(2), NodeId(1)]]);
    }
}
