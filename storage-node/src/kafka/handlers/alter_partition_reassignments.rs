//! AlterPartitionReassignments: other replicas for partitions, or none of it any more (KIP-455); asked of the controller.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartition,
    ReassignablePartitionResponse, ReassignableTopic, ReassignableTopicResponse,
};
use proto_types::controller_api::{AlterReassignments, ControllerReply, ControllerRequest, Reassignment};
use proto_types::error::Rejection;
use proto_types::ids::{NodeId, PartitionIndex};
use std::sync::Arc;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let mut response = AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: request.allow_replication_factor_change,
        ..AlterPartitionReassignmentsResponse::default()
    };
    match alter(&node, &request).await {
        Ok(results) => {
            let mut results = results.into_iter();
            response.responses = answers(&request, || match results.next() {
                Some(Err(rejection)) => Some(rejection.into()),
                Some(Ok(())) | None => None,
            });
        }
        Err(error) => {
            response.responses = answers(&request, || Some(error.clone()));
            response.error_code = error.code;
            response.error_message = Some(error.message);
        }
    }
    response
}

async fn alter(
    node: &Node,
    request: &AlterPartitionReassignmentsRequest,
) -> Result<Vec<Result<(), Rejection>>, KafkaError> {
    let timeout = node.admin_timeout(request.timeout_ms);
    let partitions: Vec<Reassignment> = request
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |partition| reassignment(topic, partition)))
        .collect();
    let count = partitions.len();
    let question = ControllerRequest::AlterReassignments(AlterReassignments {
        partitions,
        allow_factor_change: request.allow_replication_factor_change,
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    });
    match node.ask_controller(question, timeout).await? {
        ControllerReply::ReassignmentsAltered(results) if results.len() == count => Ok(results),
        other => Err(Node::unexpected_reply(&other)),
    }
}

fn reassignment(topic: &ReassignableTopic, partition: &ReassignablePartition) -> Reassignment {
    let nodes = |ids: &Vec<i32>| ids.iter().copied().map(NodeId).collect();
    Reassignment {
        topic: topic.name.to_string(),
        partition: PartitionIndex(partition.partition_index),
        replicas: partition.replicas.as_ref().map(nodes),
    }
}

/// An answer for each partition of the request, in its order, with what `next` says of it.
fn answers(
    request: &AlterPartitionReassignmentsRequest,
    mut next: impl FnMut() -> Option<KafkaError>,
) -> Vec<ReassignableTopicResponse> {
    let mut answer = |partition: &ReassignablePartition| {
        let (error_code, error_message) = match next() {
            None => (ErrorCode::None, None),
            Some(error) => (error.code, Some(error.message)),
        };
        let partition_index = partition.partition_index;
        ReassignablePartitionResponse { partition_index, error_code, error_message }
    };
    let topic = |topic: &ReassignableTopic| ReassignableTopicResponse {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(&mut answer).collect(),
    };
    request.topics.iter().map(topic).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_port::ControllerFailure;
    use crate::test_node::{TestNode, assert_encodes, live_node};
    use proto_types::error::Reason;

    fn request() -> AlterPartitionReassignmentsRequest {
        let partition = |partition_index, replicas: Option<&[i32]>| ReassignablePartition {
            partition_index,
            replicas: replicas.map(<[i32]>::to_vec),
        };
        let topic = |name: &str, partitions| ReassignableTopic { name: name.into(), partitions };
        AlterPartitionReassignmentsRequest {
            timeout_ms: 100,
            allow_replication_factor_change: false,
            topics: vec![
                topic("a", vec![partition(0, Some(&[2, 1])), partition(1, None)]),
                topic("b", vec![partition(0, Some(&[9]))]),
            ],
        }
    }

    fn codes(response: &AlterPartitionReassignmentsResponse) -> Vec<(&str, i32, ErrorCode)> {
        let topics = response.responses.iter();
        topics
            .flat_map(|topic| {
                topic.partitions.iter().map(|p| (&*topic.name, p.partition_index, p.error_code))
            })
            .collect()
    }

    #[tokio::test]
    async fn each_partition_gets_the_controllers_answer() {
        let test = TestNode::with(&[], &live_node(1), |request| {
            let ControllerRequest::AlterReassignments(alter) = request else { panic!("{request:?}") };
            let results = alter.partitions.iter().map(|partition| match &partition.replicas {
                None => Err(Rejection {
                    reason: Reason::NoReassignmentInProgress,
                    message: "Nothing to cancel.".to_owned(),
                }),
                Some(nodes) if nodes.contains(&NodeId(9)) => Err(Rejection {
                    reason: Reason::InvalidReplicaAssignment,
                    message: "Node 9 is not registered.".to_owned(),
                }),
                Some(_) => Ok(()),
            });
            Ok(ControllerReply::ReassignmentsAltered(results.collect()))
        });
        let response = handle(Arc::clone(&test.node), test.context(1), request()).await;
        for version in 0..=1 {
            assert_encodes::<AlterPartitionReassignmentsRequest>(&response, version);
        }
        let expected = [
            ("a", 0, ErrorCode::None),
            ("a", 1, ErrorCode::NoReassignmentInProgress),
            ("b", 0, ErrorCode::InvalidReplicaAssignment),
        ];
        assert_eq!(codes(&response), expected);
        assert_eq!(response.error_code, ErrorCode::None);
        let asked = test.controller.asked.lock();
        let [ControllerRequest::AlterReassignments(alter)] = &asked[..] else { panic!("{asked:?}") };
        assert!(!alter.allow_factor_change);
        assert_eq!(alter.partitions[0].replicas, Some(vec![NodeId(2), NodeId(1)]));
    }

    #[tokio::test]
    async fn without_a_controller_nothing_is_done_and_said_so_everywhere() {
        let test = TestNode::with(&[], &live_node(1), |_| Err(ControllerFailure::Unavailable("gone".into())));
        let response = handle(Arc::clone(&test.node), test.context(1), request()).await;
        assert_eq!(response.error_code, ErrorCode::NotController);
        assert!(codes(&response).iter().all(|(_, _, code)| *code == ErrorCode::NotController));
        assert_eq!(codes(&response).len(), 3);
    }
}
