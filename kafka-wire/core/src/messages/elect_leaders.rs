//! ElectLeaders: let preferred replicas lead, or any replica where no eligible one is left (KIP-183, KIP-460).
//!
//! Versions:
//! - 1: kinds of elections; an error of the whole request
//! - 2: flexible

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of ElectLeaders.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 2.., key = ElectLeaders, response = ElectLeadersResponse)]
pub struct ElectLeadersRequest {
    /// 0 elects preferred replicas, 1 the first live one where no eligible one is alive.
    #[kafka(versions = 1..)]
    pub election_type: i8,
    /// Where; null for all partitions.
    pub topic_partitions: Option<Vec<TopicPartitions>>,
    /// How long the server may take, in milliseconds.
    #[kafka(default = 60_000)]
    pub timeout_ms: i32,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct TopicPartitions {
    /// Name of the topic.
    pub topic: Str,
    /// Indexes of the partitions.
    pub partitions: Vec<i32>,
}

/// Response of ElectLeaders.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 2..)]
pub struct ElectLeadersResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    #[kafka(versions = 1..)]
    pub error_code: ErrorCode,
    /// What came of it, by topic.
    pub replica_election_results: Vec<ReplicaElectionResult>,
}

/// What came of the elections of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ReplicaElectionResult {
    /// Name of the topic.
    pub topic: Str,
    /// Answers by partition.
    pub partition_result: Vec<PartitionResult>,
}

/// The answer for one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct PartitionResult {
    /// Index of the partition.
    pub partition_id: i32,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
}
