//! DescribeQuorum: the controllers and how far each of them is (KIP-595, KIP-836, KIP-853); asked of their leader.
//!
//! Kafka knows the quorum by the topic that it keeps its metadata in; Weir has no such topic and answers to its name. Offsets
//! are positions in the controllers' log. Observers are controllers without a vote, and the storage nodes: these tell the
//! controllers how far they have applied the metadata with each heartbeat, which stands for Kafka's fetch. They keep no copy of the
//! log, so the directory that is told of them is their first data directory. Coordinators have ids of their own, which would be
//! taken for those of nodes, and are not told.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::{HostPort, RequestContext};
use kafka_wire_core::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, Listener, Node as QuorumNode, PartitionData, ReplicaState,
    TopicData,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{
    ControllerReply, ControllerRequest, MetadataFollower, QuorumDescription, VoterProgress,
};
use proto_types::ids::{ControllerId, MetadataIndex};
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::ClusterImage;
use uuid::Uuid;

/// Kafka's topic of metadata.
const TOPIC: &str = "__cluster_metadata";
/// Name of the endpoint at which controllers speak.
const LISTENER: &str = "CONTROLLER";
const UNKNOWN: i64 = -1;
/// The first version that has room for addresses and directories.
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
    // First: so none of them is ahead of what the leader says of itself.
    let followers = match node.ask_controller(ControllerRequest::DescribeMetadataFollowers, timeout).await {
        Ok(ControllerReply::MetadataFollowers(followers)) => Ok(followers),
        Ok(other) => Err(Node::unexpected_reply(&other)),
        Err(error) => Err(error),
    };
    let answer = match node.ask_controller(ControllerRequest::DescribeQuorum, timeout).await {
        Ok(ControllerReply::Quorum(quorum)) => Ok(quorum),
        Ok(other) => Err(Node::unexpected_reply(&other)),
        Err(error) => Err(error),
    };
    match followers.and_then(|followers| Ok((answer?, followers))) {
        Ok((quorum, followers)) => {
            let mut response = described(&node.image(), &quorum, &followers, node.clock().wall().0);
            if context.api_version < ADDRESSES_VERSION_MIN {
                response.nodes.clear();
                for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    let members = partition.current_voters.iter_mut().chain(&mut partition.observers);
                    members.for_each(|member| member.replica_directory_id = Uuid::nil());
                }
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

fn described(
    image: &ClusterImage,
    quorum: &QuorumDescription,
    followers: &[MetadataFollower],
    now_ms: i64,
) -> DescribeQuorumResponse {
    let state = |member: &VoterProgress| {
        // The leader is in touch with itself, and has all that there is.
        let at = |time: Option<i64>| match time {
            None if member.id == quorum.leader => now_ms,
            time => time.unwrap_or(UNKNOWN),
        };
        ReplicaState {
            replica_id: kafka_id(member.id),
            replica_directory_id: directory_of(image, member.id),
            log_end_offset: member.matched.map_or(UNKNOWN, one_past),
            last_fetch_timestamp: at(member.last_contact_ms),
            last_caught_up_timestamp: at(member.caught_up_ms),
        }
    };
    let nodes = followers.iter().filter_map(|follower| {
        let registration = &image.node(follower.node)?.registration;
        Some(ReplicaState {
            replica_id: follower.node.0,
            replica_directory_id: registration
                .directories
                .first()
                .map_or(Uuid::nil(), |directory| directory.0),
            log_end_offset: one_past(follower.applied),
            last_fetch_timestamp: follower.last_contact_ms,
            last_caught_up_timestamp: follower.caught_up_ms.unwrap_or(UNKNOWN),
        })
    });
    let partition = PartitionData {
        leader_id: kafka_id(quorum.leader),
        leader_epoch: i32::try_from(quorum.epoch).unwrap_or(i32::MAX),
        high_watermark: one_past(quorum.committed),
        current_voters: quorum.voters.iter().map(state).collect(),
        observers: quorum.learners.iter().map(state).chain(nodes).collect(),
        ..PartitionData::default()
    };
    DescribeQuorumResponse {
        topics: vec![TopicData { topic_name: Str::from_static(TOPIC), partitions: vec![partition] }],
        nodes: quorum.voters.iter().chain(&quorum.learners).map(member).collect(),
        ..DescribeQuorumResponse::default()
    }
}

/// The data directory of a controller; Kafka's "no directory" as long as it is not known.
fn directory_of(image: &ClusterImage, id: ControllerId) -> Uuid {
    let known = image.controllers().iter().find(|controller| controller.id == id);
    known.and_then(|controller| controller.directory).map_or(Uuid::nil(), |directory| directory.0)
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
    use proto_types::ids::{DirectoryId, NodeId};
    use proto_types::metadata::{ControllerAddress, MetadataChange};

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
        let directory = |id: u128| DirectoryId(Uuid::from_u128(id));
        let mut changes = live_node(1);
        let voter =
            |id, directory| ControllerAddress { id: ControllerId(id), address: String::new(), directory };
        changes.push(MetadataChange::ControllersSet {
            voters: vec![voter(2, Some(directory(22))), voter(3, None)],
            removed: vec![],
        });
        let test = TestNode::with(&[], &changes, |request| {
            if request == &ControllerRequest::DescribeMetadataFollowers {
                let applied = MetadataIndex(38);
                let follower = |node, caught_up_ms| MetadataFollower {
                    node: NodeId(node),
                    applied,
                    last_contact_ms: 2_000,
                    caught_up_ms,
                };
                // Node 9 is not known here yet, or not any more.
                return Ok(ControllerReply::MetadataFollowers(vec![follower(1, None), follower(9, Some(1))]));
            }
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
        let directories = [leader, follower].map(|voter| voter.replica_directory_id);
        assert_eq!(directories, [Uuid::from_u128(22), Uuid::nil()]);
        let [learner, node] = &partition.observers[..] else { panic!("{partition:?}") };
        assert_eq!((learner.log_end_offset, learner.last_fetch_timestamp), (-1, -1));
        assert_eq!(learner.replica_directory_id, Uuid::nil());
        assert_eq!((node.replica_id, node.replica_directory_id), (1, Uuid::from_u128(1)));
        assert_eq!((node.log_end_offset, node.last_fetch_timestamp), (39, 2_000));
        assert_eq!(node.last_caught_up_timestamp, -1);
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
