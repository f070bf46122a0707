//! DeleteRecords: drop records below an offset (KIP-107).
//!
//! Versions:
//! - 2: flexible

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DeleteRecords.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 2.., key = DeleteRecords, response = DeleteRecordsResponse)]
pub struct DeleteRecordsRequest {
    /// Topics, each with its partitions.
    pub topics: Vec<DeleteRecordsTopic>,
    /// How long the server may take, in milliseconds.
    pub timeout_ms: i32,
}

/// Partitions of one topic to shorten.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DeleteRecordsTopic {
    /// Name of the topic.
    pub name: Str,
    /// Partitions of the topic.
    pub partitions: Vec<DeleteRecordsPartition>,
}

/// A partition to shorten.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DeleteRecordsPartition {
    /// Index of the partition.
    pub partition_index: i32,
    /// Records below it go; -1 stands for the high watermark.
    pub offset: i64,
}

/// Response of DeleteRecords.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 2..)]
pub struct DeleteRecordsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Topics, each with its partitions.
    pub topics: Vec<DeleteRecordsTopicResult>,
}

/// Answers for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DeleteRecordsTopicResult {
    /// Name of the topic.
    pub name: Str,
    /// Partitions of the topic.
    pub partitions: Vec<DeleteRecordsPartitionResult>,
}

/// The answer for one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DeleteRecordsPartitionResult {
    /// Index of the partition.
    pub partition_index: i32,
    /// First offset that is left, or -1.
    pub low_watermark: i64,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
}
