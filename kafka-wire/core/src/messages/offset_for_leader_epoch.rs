//! OffsetForLeaderEpoch: where a leader epoch ends, to find where two logs part (KIP-101, 279, 320).
//!
//! Versions:
//! - 3: replica id
//! - 4: flexible

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of OffsetForLeaderEpoch.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 2..=4, flexible = 4.., key = OffsetForLeaderEpoch, response = OffsetForLeaderEpochResponse)]
pub struct OffsetForLeaderEpochRequest {
    /// Id of the replica that asks, -1 for a consumer, -2 for a debugging consumer.
    #[kafka(versions = 3.., default = -2, ignorable)]
    pub replica_id: i32,
    /// Topics, each with its partitions.
    pub topics: Vec<OffsetForLeaderTopic>,
}

/// Partitions of one topic to ask about.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetForLeaderTopic {
    /// Name of the topic.
    pub topic: Str,
    /// Partitions of the topic.
    pub partitions: Vec<OffsetForLeaderPartition>,
}

/// A partition and an epoch.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetForLeaderPartition {
    /// Index of the partition.
    pub partition: i32,
    /// Leader epoch that the client believes in, or -1: the leader refuses older and newer ones.
    #[kafka(default = -1)]
    pub current_leader_epoch: i32,
    /// Epoch whose end is asked for.
    pub leader_epoch: i32,
}

/// Response of OffsetForLeaderEpoch.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 2..=4, flexible = 4..)]
pub struct OffsetForLeaderEpochResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Topics, each with its partitions.
    pub topics: Vec<OffsetForLeaderTopicResult>,
}

/// Answers for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetForLeaderTopicResult {
    /// Name of the topic.
    pub topic: Str,
    /// Partitions of the topic.
    pub partitions: Vec<EpochEndOffset>,
}

/// A leader epoch and where it ends.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct EpochEndOffset {
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// Index of the partition.
    pub partition: i32,
    /// Largest leader epoch not above the asked one, or -1.
    #[kafka(default = -1)]
    pub leader_epoch: i32,
    /// End offset of the epoch: one past its last record.
    #[kafka(default = -1)]
    pub end_offset: i64,
}
