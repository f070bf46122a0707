//! OffsetDelete: forget offsets of a group (KIP-496).

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of OffsetDelete.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, key = OffsetDelete, response = OffsetDeleteResponse)]
pub struct OffsetDeleteRequest {
    /// The group.
    pub group_id: Str,
    /// Partitions whose offsets go, by topic.
    pub topics: Vec<OffsetDeleteRequestTopic>,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetDeleteRequestTopic {
    /// Name of the topic.
    pub name: Str,
    /// Partitions of the topic.
    pub partitions: Vec<OffsetDeleteRequestPartition>,
}

/// A partition whose offset goes.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetDeleteRequestPartition {
    /// Index of the partition.
    pub partition_index: i32,
}

/// Response of OffsetDelete.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0)]
pub struct OffsetDeleteResponse {
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(ignorable)]
    pub throttle_time_ms: i32,
    /// Answers, by topic.
    pub topics: Vec<OffsetDeleteResponseTopic>,
}

/// Answers for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetDeleteResponseTopic {
    /// Name of the topic.
    pub name: Str,
    /// Partitions of the topic.
    pub partitions: Vec<OffsetDeleteResponsePartition>,
}

/// Answer for one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetDeleteResponsePartition {
    /// Index of the partition.
    pub partition_index: i32,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
}
