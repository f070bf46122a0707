//! DescribeQuorum: the controllers, and how far each of them is (KIP-595).
//!
//! Versions:
//! - 0: flexible
//! - 1: times of the last contact (KIP-836)
//! - 2: addresses, directories, errors in words (KIP-853)

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DescribeQuorum.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 0.., key = DescribeQuorum, response = DescribeQuorumResponse)]
pub struct DescribeQuorumRequest {
    /// The quorum's topics: `__cluster_metadata` is the one there is.
    pub topics: Vec<TopicToDescribe>,
}

/// A topic to describe.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct TopicToDescribe {
    /// Name of the topic.
    pub topic_name: Str,
    /// Its partitions.
    pub partitions: Vec<PartitionToDescribe>,
}

/// A partition to describe.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct PartitionToDescribe {
    /// Index of the partition.
    pub partition_index: i32,
}

/// Response of DescribeQuorum.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 0..)]
pub struct DescribeQuorumResponse {
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    #[kafka(versions = 2.., ignorable)]
    pub error_message: Option<Str>,
    /// Answers by topic.
    pub topics: Vec<TopicData>,
    /// Addresses of the quorum's members.
    #[kafka(versions = 2..)]
    pub nodes: Vec<Node>,
}

/// Answers for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct TopicData {
    /// Name of the topic.
    pub topic_name: Str,
    /// Answers by partition.
    pub partitions: Vec<PartitionData>,
}

/// The answer for one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct PartitionData {
    /// Index of the partition.
    pub partition_index: i32,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    #[kafka(versions = 2.., ignorable)]
    pub error_message: Option<Str>,
    /// Id of the leader, or -1.
    pub leader_id: i32,
    /// Epoch of the leader.
    pub leader_epoch: i32,
    /// One past the last committed entry.
    pub high_watermark: i64,
    /// Members with a vote.
    pub current_voters: Vec<ReplicaState>,
    /// Members without.
    pub observers: Vec<ReplicaState>,
}

/// How far a member is.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ReplicaState {
    /// Id of the member.
    pub replica_id: i32,
    /// Its directory (KIP-853).
    #[kafka(versions = 2..)]
    pub replica_directory_id: Uuid,
    /// One past its last entry, or -1 if that is not known.
    pub log_end_offset: i64,
    /// When the leader last heard from it, in milliseconds since the epoch; -1 for the leader itself, or if that is not known.
    #[kafka(versions = 1.., default = -1, ignorable)]
    pub last_fetch_timestamp: i64,
    /// When it last had all that the leader had, in milliseconds since the epoch; -1 if that is not known.
    #[kafka(versions = 1.., default = -1, ignorable)]
    pub last_caught_up_timestamp: i64,
}

/// Addresses of a member.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct Node {
    /// Id of the member.
    pub node_id: i32,
    /// Its addresses.
    pub listeners: Vec<Listener>,
}

/// An address of a member.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct Listener {
    /// Name of the endpoint.
    pub name: Str,
    /// Host name or address.
    pub host: Str,
    /// Port.
    pub port: u16,
}
