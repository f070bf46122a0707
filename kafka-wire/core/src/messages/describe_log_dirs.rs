//! DescribeLogDirs: data directories and the partitions in them (KIP-113).
//!
//! Versions:
//! - 2: flexible
//! - 3: an error of the whole request
//! - 4: sizes of volumes (KIP-827)
//! - 5: cordoned directories (KIP-1066)

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DescribeLogDirs.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=5, flexible = 2.., key = DescribeLogDirs, response = DescribeLogDirsResponse)]
pub struct DescribeLogDirsRequest {
    /// Partitions to look for; null looks for all.
    pub topics: Option<Vec<DescribableLogDirTopic>>,
}

/// Partitions of one topic to look for.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribableLogDirTopic {
    /// Name of the topic.
    pub topic: Str,
    /// Indexes of the partitions.
    pub partitions: Vec<i32>,
}

/// Response of DescribeLogDirs.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=5, flexible = 2..)]
pub struct DescribeLogDirsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    #[kafka(versions = 3.., ignorable)]
    pub error_code: ErrorCode,
    /// Answers, one for each asked.
    pub results: Vec<DescribeLogDirsResult>,
}

/// A data directory.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeLogDirsResult {
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// Absolute path of the data directory.
    pub log_dir: Str,
    /// Topics, each with its partitions.
    pub topics: Vec<DescribeLogDirsTopic>,
    /// Size of its volume, or -1.
    #[kafka(versions = 4.., default = -1, ignorable)]
    pub total_bytes: i64,
    /// Free bytes of its volume, or -1.
    #[kafka(versions = 4.., default = -1, ignorable)]
    pub usable_bytes: i64,
    /// Whether it takes no new partitions (KIP-1066).
    #[kafka(versions = 5.., ignorable)]
    pub is_cordoned: bool,
}

/// Partitions of one topic in a data directory.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeLogDirsTopic {
    /// Name of the topic.
    pub name: Str,
    /// Partitions of the topic.
    pub partitions: Vec<DescribeLogDirsPartition>,
}

/// A partition in a data directory.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeLogDirsPartition {
    /// Index of the partition.
    pub partition_index: i32,
    /// Bytes of the log.
    pub partition_size: i64,
    /// How far the copy lags behind the high watermark (or a future copy behind the present one), in records.
    pub offset_lag: i64,
    /// Whether it is a copy that is being moved here.
    pub is_future_key: bool,
}
