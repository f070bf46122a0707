//! ElectLeaders: preferred or unclean elections by request (KIP-460); asked of the controller.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::elect_leaders::{
    ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult, TopicPartitions,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{
    ControllerReply, ControllerRequest, ElectLeaders, ElectedLeader, ElectionKind,
};
use proto_types::ids::PartitionIndex;
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    match elect(&node, &request).await {
        Ok(elected) => ElectLeadersResponse {
            replica_election_results: by_topic(elected),
            ..ElectLeadersResponse::default()
        },
        Err(error) => refused(&request, &error),
    }
}

async fn elect(node: &Node, request: &ElectLeadersRequest) -> Result<Vec<ElectedLeader>, KafkaError> {
    let kind = match request.election_type {
        0 => ElectionKind::Preferred,
        1 => ElectionKind::Unclean,
        other => {
            let message = format!("{other} is no kind of election; 0 is preferred, 1 is unclean.");
            return Err(KafkaError::new(ErrorCode::InvalidRequest, message));
        }
    };
    let timeout = node.admin_timeout(request.timeout_ms);
    let question = ControllerRequest::ElectLeaders(ElectLeaders {
        kind,
        partitions: request.topic_partitions.as_deref().map(named),
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    });
    match node.ask_controller(question, timeout).await? {
        ControllerReply::LeadersElected(elected) => Ok(elected),
        other => Err(Node::unexpected_reply(&other)),
    }
}

fn named(topics: &[TopicPartitions]) -> Vec<(String, PartitionIndex)> {
    let partition = |topic: &Str, index: i32| (topic.to_string(), PartitionIndex(index));
    let all = topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |&index| partition(&topic.topic, index)));
    all.collect()
}

fn by_topic(elected: Vec<ElectedLeader>) -> Vec<ReplicaElectionResult> {
    let mut topics: Vec<ReplicaElectionResult> = Vec::new();
    for ElectedLeader { topic, partition, result } in elected {
        let (error_code, error_message) = match result.map_err(KafkaError::from) {
            Ok(()) => (ErrorCode::None, None),
            Err(error) => (error.code, Some(error.message)),
        };
        let result = PartitionResult { partition_id: partition.0, error_code, error_message };
        match topics.iter_mut().rev().find(|known| *known.topic == *topic) {
            Some(known) => known.partition_result.push(result),
            None => {
                topics.push(ReplicaElectionResult { topic: topic.into(), partition_result: vec![result] })
            }
        }
    }
    topics
}

/// The whole request failed: said at the top, and at each partition, since version 0 has no top.
fn refused(request: &ElectLeadersRequest, error: &KafkaError) -> ElectLeadersResponse {
    let result = |&partition_id: &i32| PartitionResult {
        partition_id,
        error_code: error.code,
        error_message: Some(error.message.clone()),
    };
    let topics = request.topic_partitions.iter().flatten().map(|topic| ReplicaElectionResult {
        topic: topic.topic.clone(),
        partition_result: topic.partitions.iter().map(result).collect(),
    });
    ElectLeadersResponse {
        error_code: error.code,
        replica_election_results: topics.collect(),
        ..ElectLeadersResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_port::ControllerFailure;
    use crate::test_node::{TestNode, assert_encodes, live_node};
    use proto_types::error::{Reason, Rejection};

    fn asked(topics: &[(&str, &[i32])], election_type: i8) -> ElectLeadersRequest {
        let topic = |&(topic, partitions): &(&str, &[i32])| TopicPartitions {
            topic: topic.into(),
            partitions: partitions.to_vec(),
        };
        ElectLeadersRequest {
            election_type,
            topic_partitions: Some(topics.iter().map(topic).collect()),
            timeout_ms: 100,
        }
    }

    #[tokio::test]
    async fn each_partition_is_asked_for_and_answered() {
        let test = TestNode::with(&[], &live_node(1), |request| {
            let ControllerRequest::ElectLeaders(elect) = request else { panic!("{request:?}") };
            let results = elect.partitions.iter().flatten().map(|(topic, partition)| {
                let message = "Leader election not needed for topic partition.".to_owned();
                let rejection = Rejection { reason: Reason::ElectionNotNeeded, message };
                let result = if partition.0 == 1 { Err(rejection) } else { Ok(()) };
                ElectedLeader { topic: topic.clone(), partition: *partition, result }
            });
            Ok(ControllerReply::LeadersElected(results.collect()))
        });
        let request = asked(&[("a", &[0, 1]), ("b", &[3])], 1);
        let response = handle(Arc::clone(&test.node), test.context(2), request).await;
        for version in 0..=2 {
            assert_encodes::<ElectLeadersRequest>(&response, version);
        }
        let codes: Vec<_> = response
            .replica_election_results
            .iter()
            .flat_map(|topic| {
                let results = topic.partition_result.iter();
                results.map(|result| (topic.topic.to_string(), result.partition_id, result.error_code))
            })
            .collect();
        let expected = [
            ("a".to_owned(), 0, ErrorCode::None),
            ("a".to_owned(), 1, ErrorCode::ElectionNotNeeded),
            ("b".to_owned(), 3, ErrorCode::None),
        ];
        assert_eq!(codes, expected);
        let asked = test.controller.asked.lock();
        let [ControllerRequest::ElectLeaders(elect)] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((elect.kind, elect.timeout_ms), (ElectionKind::Unclean, 100));
    }

    #[tokio::test]
    async fn all_partitions_are_asked_for_by_null() {
        let test = TestNode::with(&[], &live_node(1), |request| {
            let ControllerRequest::ElectLeaders(elect) = request else { panic!("{request:?}") };
            assert_eq!((elect.kind, &elect.partitions), (ElectionKind::Preferred, &None));
            Ok(ControllerReply::LeadersElected(vec![]))
        });
        let request = ElectLeadersRequest { topic_partitions: None, ..ElectLeadersRequest::default() };
        let response = handle(Arc::clone(&test.node), test.context(0), request).await;
        assert_eq!((response.error_code, response.replica_election_results.len()), (ErrorCode::None, 0));
    }

    #[tokio::test]
    async fn a_refusal_of_the_whole_reaches_clients_of_all_versions() {
        let test = TestNode::with(&[], &live_node(1), |_| Err(ControllerFailure::Unavailable("gone".into())));
        for (kind, code) in [(0, ErrorCode::NotController), (7, ErrorCode::InvalidRequest)] {
            let response = handle(Arc::clone(&test.node), test.context(2), asked(&[("a", &[4])], kind)).await;
            assert_eq!(response.error_code, code);
            assert_eq!(response.replica_election_results[0].partition_result[0].error_code, code);
        }
    }
}
