//! DescribeQuorum: the controllers and how far each of them is (KIP-595, KIP-836, KIP-853); asked of their leader.
//!
//! Kafka knows the quorum by the topic that it keeps its metadata in; Weir has no such topic and answers to its name. Offsets
//! are positions in the controllers' log. Storage nodes follow the metadata without being members, so they are no observers.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::{HostPort, RequestContext};
use kafka_wire_core::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, Listener, Node as QuorumNode, PartitionData, ReplicaState,
    TopicData,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{ControllerReply, ControllerRequest, QuorumDescription, VoterProgress};
use proto_types::ids::{ControllerId, MetadataIndex};
use std::sync::Arc;
use std::time::Duration;

/// Kafka's topic of metadata.
const TOPIC: &str = "__cluster_metadata";
/// Name of the endpoint at which controllers speak.
const LISTENER: &str = "CONTROLLER";
const UNKNOWN: i64 = -1;
/// The first version that has room for addresses.
const ADDRESSES_VERSION_MIN: i16 = 2;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse {
    if !asks_for_the_quorum(&request) {
        return wrong_topic(request);
    }
    let timeout = Duration::from_millis(node.request_timeout_ms());
    let answer = match node.ask_controller(ControllerRequest::DescribeQuorum, timeout).await {
        Ok(ControllerReply::Quorum(quorum)) => Ok(quorum),
        Ok(other) => Err(Node::unexpected_reply(&other)),
        Err(error) => Err(error),
    };
    match answer {
        Ok(quorum) => {
            let mut response = described(&quorum, node.clock().wall().0);
            if context.api_version < ADDRESSES_VERSION_MIN {
                response.nodes.clear();
            }
            response
        }
        Err(KafkaError { code, message }) => DescribeQuorumResponse {
            error_code: code,
            error_message: Some(message),
            ..DescribeQuorumResponse::default()
        },
    }
}

fn asks_for_the_quorum(request: &DescribeQuorumRequest) -> bool {
    matches!(&request.topics[..], [topic] if topic.topic_name == *TOPIC
        && matches!(&topic.partitions[..], [partition] if partition.partition_index == 0))
}

fn wrong_topic(request: DescribeQuorumRequest) -> DescribeQuorumResponse {
    let topics = request.topics.into_iter().map(|topic| TopicData {
        topic_name: topic.topic_name,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| PartitionData {
                partition_index: partition.partition_index,
                error_code: ErrorCode::UnknownTopicOrPartition,
                ..PartitionData::default()
            })
            .collect(),
    });
    DescribeQuorumResponse { topics: topics.collect(), ..DescribeQuorumResponse::default() }
}

fn described(quorum: &QuorumDescription, now_ms: i64) -> DescribeQuorumResponse {
    let state = |member: &VoterProgress| {
        // The leader is in touch with itself, and has all that there is.
        let at = |time: Option<i64>| match time {
            None if member.id == quorum.leader => now_ms,
            time => time.unwrap_or(UNKNOWN),
        };
        ReplicaState {
            replica_id: kafka_id(member.id),
            log_end_offset: member.matched.map_or(UNKNOWN, one_past),
            last_fetch_timestamp: at(member.last_contact_ms),
            last_caught_up_timestamp: at(member.caught_up_ms),
            ..ReplicaState::default()
        }
    };
    let partition = PartitionData {
        leader_id: kafka_id(quorum.leader),
        leader_epoch: i32::try_from(quorum.epoch).unwrap_or(i32::MAX),
        high_watermark: one_past(quorum.committed),
        current_voters: quorum.voters.iter().map(state).collect(),
        observers: quorum.learners.iter().map(state).collect(),
        ..PartitionData::default()
    };
    DescribeQuorumResponse {
        topics: vec![TopicData { topic_name: Str::from_static(TOPIC), partitions: vec![partition] }],
        nodes: quorum.voters.iter().chain(&quorum.learners).map(member).collect(),
        ..DescribeQuorumResponse::default()
    }
}

/// Kafka counts to the first position that does not exist, we to the last that does.
fn one_past(index: MetadataIndex) -> i64 {
    i64::try_from(index.0.saturating_add(1)).unwrap_or(i64::MAX)
}

/// Controllers have positive ids of Kafka's size; one that has none is shown as unknown.
fn kafka_id(id: ControllerId) -> i32 {
    i32::try_from(id.0).unwrap_or(-1)
}

fn member(member: &VoterProgress) -> QuorumNode {
    // An address that cannot be read is shown as a host: whoever looks at it sees what is wrong.
    let (host, port) = match member.address.parse::<HostPort>() {
        Ok(HostPort { host, port }) => (Str::from(host), port),
        Err(_) => (Str::from(member.address.as_str()), 0),
    };
    let listener = Listener { name: Str::from_static(LISTENER), host, port };
    QuorumNode { node_id: kafka_id(member.id), listeners: vec![listener] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_port::ControllerFailure;
    use crate::test_node::{TestNode, assert_encodes, live_node};
    use kafka_wire_core::messages::describe_quorum::{PartitionToDescribe, TopicToDescribe};

    fn asked(topic: &str, partition_index: i32) -> DescribeQuorumRequest {
        let partitions = vec![PartitionToDescribe { partition_index }];
        DescribeQuorumRequest { topics: vec![TopicToDescribe { topic_name: topic.into(), partitions }] }
    }

    fn progress(id: u64, matched: Option<u64>, at: Option<i64>) -> VoterProgress {
        VoterProgress {
            id: ControllerId(id),
            address: format!("c{id}.example:9183"),
            matched: matched.map(MetadataIndex),
            last_contact_ms: at,
            caught_up_ms: at,
        }
    }

    #[tokio::test]
    async fn members_are_told_with_positions_times_and_addresses() {
        let test = TestNode::with(&[], &live_node(1), |request| {
            assert_eq!(request, &ControllerRequest::DescribeQuorum);
            Ok(ControllerReply::Quorum(QuorumDescription {
                leader: ControllerId(2),
                epoch: 7,
                committed: MetadataIndex(40),
                voters: vec![progress(2, Some(41), None), progress(3, Some(39), Some(1_000))],
                learners: vec![progress(4, None, None)],
            }))
        });
        let response = handle(Arc::clone(&test.node), test.context(2), asked(TOPIC, 0)).await;
        assert_encodes::<DescribeQuorumRequest>(&response, 2);
        let partition = &response.topics[0].partitions[0];
        assert_eq!((partition.leader_id, partition.leader_epoch, partition.high_watermark), (2, 7, 41));
        let [leader, follower] = &partition.current_voters[..] else { panic!("{partition:?}") };
        assert!(leader.last_fetch_timestamp > 0 && leader.last_caught_up_timestamp > 0);
        assert_eq!((leader.log_end_offset, follower.log_end_offset), (42, 40));
        assert_eq!((follower.last_fetch_timestamp, follower.last_caught_up_timestamp), (1_000, 1_000));
        let observer = &partition.observers[0];
        assert_eq!((observer.log_end_offset, observer.last_fetch_timestamp), (-1, -1));
        let addresses: Vec<_> = response
            .nodes
            .iter()
            .map(|node| (node.node_id, node.listeners[0].host.to_string(), node.listeners[0].port))
            .collect();
        assert_eq!(addresses[2], (4, "c4.example".to_owned(), 9183));
        // Older versions have no room for addresses.
        for version in 0..=1 {
            let old = handle(Arc::clone(&test.node), test.context(version), asked(TOPIC, 0)).await;
            assert_encodes::<DescribeQuorumRequest>(&old, version);
        }
    }

    #[tokio::test]
    async fn other_topics_are_unknown_and_a_silent_quorum_is_said_so() {
        let test = TestNode::with(&[], &live_node(1), |_| Err(ControllerFailure::Unavailable("gone".into())));
        for (topic, partition) in [("other", 0), (TOPIC, 1)] {
            let response = handle(Arc::clone(&test.node), test.context(2), asked(topic, partition)).await;
            let code = response.topics[0].partitions[0].error_code;
            assert_eq!(code, ErrorCode::UnknownTopicOrPartition, "{topic}-{partition}");
        }
        let response = handle(Arc::clone(&test.node), test.context(2), asked(TOPIC, 0)).await;
        assert_eq!(response.error_code, ErrorCode::NotController);
    }
}
