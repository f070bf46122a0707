//! AlterReplicaLogDirs: moving copies between the data directories of the node that is asked (KIP-113).
//!
//! Versions:
//! - 2: flexible

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of AlterReplicaLogDirs.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=2, flexible = 2.., key = AlterReplicaLogDirs, response = AlterReplicaLogDirsResponse)]
pub struct AlterReplicaLogDirsRequest {
    /// Data directories, each with what is to be moved into it.
    pub dirs: Vec<AlterReplicaLogDir>,
}

/// A data directory and what is to be moved into it.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct AlterReplicaLogDir {
    /// Absolute path of the data directory.
    pub path: Str,
    /// Topics, each with its partitions.
    pub topics: Vec<AlterReplicaLogDirTopic>,
}

/// Partitions of one topic to move.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct AlterReplicaLogDirTopic {
    /// Name of the topic.
    pub name: Str,
    /// Indexes of the partitions.
    pub partitions: Vec<i32>,
}

/// Response of AlterReplicaLogDirs.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=2, flexible = 2..)]
pub struct AlterReplicaLogDirsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Answers, by topic.
    pub results: Vec<AlterReplicaLogDirTopicResult>,
}

/// What came of the moves of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct AlterReplicaLogDirTopicResult {
    /// Name of the topic.
    pub topic_name: Str,
    /// Partitions of the topic.
    pub partitions: Vec<AlterReplicaLogDirPartitionResult>,
}

/// What came of the move of one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct AlterReplicaLogDirPartitionResult {
    /// Index of the partition.
    pub partition_index: i32,
    /// Error of this element, or none: the move has begun, or there is nothing to move.
    pub error_code: ErrorCode,
}
