//! ListOffsets: offsets by timestamp, and of both ends of a log.
//!
//! Versions:
//! - 2: isolation level
//! - 4: leader epochs
//! - 6: flexible
//! - 7: timestamp -3: record of the largest timestamp (KIP-734)
//! - 8: -4: local start (KIP-405)
//! - 9: -5: last tiered (KIP-1005)
//! - 10: time-out (KIP-1075)
//! - 11: -6: next to be tiered (KIP-1023)

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of ListOffsets.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=11, flexible = 6.., key = ListOffsets, response = ListOffsetsResponse)]
pub struct ListOffsetsRequest {
    /// Id of the replica that asks, -1 for a consumer, -2 for a debugging consumer.
    #[kafka(default = -1)]
    pub replica_id: i32,
    /// 0 reads everything below the high watermark, 1 only below the last stable offset.
    #[kafka(versions = 2..)]
    pub isolation_level: i8,
    /// Topics, each with its partitions.
    pub topics: Vec<ListOffsetsTopic>,
    /// How long the server may take, in milliseconds.
    #[kafka(versions = 10.., ignorable)]
    pub timeout_ms: i32,
}

/// Partitions of one topic to look in.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ListOffsetsTopic {
    /// Name of the topic.
    pub name: Str,
    /// Partitions of the topic.
    pub partitions: Vec<ListOffsetsPartition>,
}

/// A partition to look in.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ListOffsetsPartition {
    /// Index of the partition.
    pub partition_index: i32,
    /// Leader epoch that the client believes in, or -1: the leader refuses older and newer ones.
    #[kafka(versions = 4.., default = -1, ignorable)]
    pub current_leader_epoch: i32,
    /// Milliseconds since 1970, or: -1 end, -2 start, -3 record of the largest timestamp, -4 local start, -5 last
    /// tiered, -6 next to be tiered.
    #[kafka(default = -1)]
    pub timestamp: i64,
}

/// Response of ListOffsets.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=11, flexible = 6..)]
pub struct ListOffsetsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 2.., ignorable)]
    pub throttle_time_ms: i32,
    /// Topics, each with its partitions.
    pub topics: Vec<ListOffsetsTopicResponse>,
}

/// What was found in one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ListOffsetsTopicResponse {
    /// Name of the topic.
    pub name: Str,
    /// Partitions of the topic.
    pub partitions: Vec<ListOffsetsPartitionResponse>,
}

/// What was found in one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ListOffsetsPartitionResponse {
    /// Index of the partition.
    pub partition_index: i32,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// Timestamp of the record found, or -1.
    #[kafka(default = -1)]
    pub timestamp: i64,
    /// Offset of the record found, or -1.
    #[kafka(default = -1)]
    pub offset: i64,
    /// Leader epoch of the record found, or -1.
    #[kafka(versions = 4.., default = -1)]
    pub leader_epoch: i32,
}
