//! AlterPartitionReassignments: move partitions to other replicas, or cancel that (KIP-455).
//!
//! Versions:
//! - 0: flexible
//! - 1: whether the replication factor may change (KIP-860)

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of AlterPartitionReassignments.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(
    versions = 0..=1,
    flexible = 0..,
    key = AlterPartitionReassignments,
    response = AlterPartitionReassignmentsResponse
)]
pub struct AlterPartitionReassignmentsRequest {
    /// How long the server may take, in milliseconds.
    #[kafka(default = 60_000)]
    pub timeout_ms: i32,
    /// Whether partitions may get more or fewer replicas by it.
    #[kafka(versions = 1.., default = true)]
    pub allow_replication_factor_change: bool,
    /// What to move, by topic.
    pub topics: Vec<ReassignableTopic>,
}

/// Partitions of one topic to move.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ReassignableTopic {
    /// Name of the topic.
    pub name: Str,
    /// Its partitions.
    pub partitions: Vec<ReassignablePartition>,
}

/// A partition to move.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ReassignablePartition {
    /// Index of the partition.
    pub partition_index: i32,
    /// Replicas that it shall have, preferred leader first; null cancels what is under way.
    pub replicas: Option<Vec<i32>>,
}

/// Response of AlterPartitionReassignments.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=1, flexible = 0..)]
pub struct AlterPartitionReassignmentsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Whether partitions might get more or fewer replicas.
    #[kafka(versions = 1.., default = true, ignorable)]
    pub allow_replication_factor_change: bool,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
    /// Answers by topic.
    pub responses: Vec<ReassignableTopicResponse>,
}

/// Answers for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ReassignableTopicResponse {
    /// Name of the topic.
    pub name: Str,
    /// Answers by partition.
    pub partitions: Vec<ReassignablePartitionResponse>,
}

/// The answer for one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ReassignablePartitionResponse {
    /// Index of the partition.
    pub partition_index: i32,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
}
