//! DescribeGroupOffsets: what a group has committed, and when. An API of Weir's own.
//!
//! OffsetFetch tells the offsets, but in no version when they were committed, which is how an operator sees that a group has
//! stood still. Answered by the group's coordinator, on whose clock the ages are to be taken.
//!
//! Versions:
//! - 0: flexible

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DescribeGroupOffsets.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0.., key = DescribeGroupOffsets, response = DescribeGroupOffsetsResponse)]
pub struct DescribeGroupOffsetsRequest {
    /// The group.
    pub group_id: Str,
}

/// Response of DescribeGroupOffsets.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0..)]
pub struct DescribeGroupOffsetsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The coordinator's clock when it answered, in milliseconds since the epoch.
    pub current_time_ms: i64,
    /// Committed offsets, by topic.
    pub topics: Vec<DescribedGroupOffsetsTopic>,
}

/// Committed offsets of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribedGroupOffsetsTopic {
    /// Name of the topic.
    pub name: Str,
    /// Partitions with a committed offset.
    pub partitions: Vec<DescribedGroupOffset>,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribedGroupOffset {
    /// Index of the partition.
    pub partition_index: i32,
    /// The offset.
    pub committed_offset: i64,
    /// When it was committed, on the clock of the coordinator of then, in milliseconds since the epoch.
    pub commit_time_ms: i64,
}
