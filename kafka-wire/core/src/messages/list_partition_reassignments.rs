//! ListPartitionReassignments: which partitions are on the move (KIP-455).
//!
//! Versions:
//! - 0: flexible

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of ListPartitionReassignments.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(
    versions = 0..=0,
    flexible = 0..,
    key = ListPartitionReassignments,
    response = ListPartitionReassignmentsResponse
)]
pub struct ListPartitionReassignmentsRequest {
    /// How long the server may take, in milliseconds.
    #[kafka(default = 60_000)]
    pub timeout_ms: i32,
    /// Where to look; null for all partitions.
    pub topics: Option<Vec<ListPartitionReassignmentsTopics>>,
}

/// Partitions of one topic to look at.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ListPartitionReassignmentsTopics {
    /// Name of the topic.
    pub name: Str,
    /// Indexes of the partitions.
    pub partition_indexes: Vec<i32>,
}

/// Response of ListPartitionReassignments.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0..)]
pub struct ListPartitionReassignmentsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
    /// What is on the move, by topic.
    pub topics: Vec<OngoingTopicReassignment>,
}

/// Partitions of one topic that are on the move.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OngoingTopicReassignment {
    /// Name of the topic.
    pub name: Str,
    /// The partitions.
    pub partitions: Vec<OngoingPartitionReassignment>,
}

/// A partition that is on the move.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OngoingPartitionReassignment {
    /// Index of the partition.
    pub partition_index: i32,
    /// All replicas: those that stay, come, and go.
    pub replicas: Vec<i32>,
    /// Replicas that come.
    pub adding_replicas: Vec<i32>,
    /// Replicas that go.
    pub removing_replicas: Vec<i32>,
}
