//! CreatePartitions: give topics more partitions (KIP-195).
//!
//! Versions:
//! - 2: flexible
//! - 3: THROTTLING_QUOTA_EXCEEDED

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of CreatePartitions.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=3, flexible = 2.., key = CreatePartitions, response = CreatePartitionsResponse)]
pub struct CreatePartitionsRequest {
    /// Topics to enlarge.
    pub topics: Vec<CreatePartitionsTopic>,
    /// How long the server may take, in milliseconds.
    pub timeout_ms: i32,
    /// Check everything, change nothing.
    pub validate_only: bool,
}

/// A topic to enlarge.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct CreatePartitionsTopic {
    /// Name of the topic.
    pub name: Str,
    /// Partitions that the topic shall have.
    pub count: i32,
    /// Replicas of the new partitions; null lets the cluster choose.
    pub assignments: Option<Vec<CreatePartitionsAssignment>>,
}

/// Replicas of one new partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct CreatePartitionsAssignment {
    /// Ids of the replicas, the preferred leader first.
    pub broker_ids: Vec<i32>,
}

/// Response of CreatePartitions.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=3, flexible = 2..)]
pub struct CreatePartitionsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Answers, one for each asked.
    pub results: Vec<CreatePartitionsTopicResult>,
}

/// The answer for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct CreatePartitionsTopicResult {
    /// Name of the topic.
    pub name: Str,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
}
