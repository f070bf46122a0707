//! DescribeFollowers: how far the followers are of the partitions that the asked node leads. An API of Weir's own.
//!
//! Kafka tells which replicas are in sync, and nothing of how far the others are behind; the leader knows it, in records and
//! in time.
//!
//! Versions:
//! - 0: flexible

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DescribeFollowers.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0.., key = DescribeFollowers, response = DescribeFollowersResponse)]
pub struct DescribeFollowersRequest {
    /// Only followers that have lacked something for at least so long, in milliseconds.
    pub lag_ms_min: i64,
    /// Partitions in the answer at most.
    #[kafka(default = 1000)]
    pub response_partition_limit: i32,
}

/// Response of DescribeFollowers.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0..)]
pub struct DescribeFollowersResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// Whether there are more partitions than the answer has.
    pub is_cut_off: bool,
    /// Topics with such followers.
    pub topics: Vec<DescribedFollowersTopic>,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribedFollowersTopic {
    /// Name of the topic.
    pub name: Str,
    /// The partitions.
    pub partitions: Vec<DescribedFollowersPartition>,
}

/// A partition that the asked node leads.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribedFollowersPartition {
    /// Index of the partition.
    pub partition_index: i32,
    /// Epoch of the leader.
    pub leader_epoch: i32,
    /// Below it everything is committed.
    pub high_watermark: i64,
    /// One past the leader's last record.
    pub log_end_offset: i64,
    /// The followers that were asked for.
    pub followers: Vec<DescribedFollower>,
}

/// A follower.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribedFollower {
    /// Id of its node.
    pub node_id: i32,
    /// Whether it is in sync by the metadata.
    pub in_sync: bool,
    /// Whether it follows at present.
    pub connected: bool,
    /// One past the last record that it is known to have, or -1 if it has not told.
    pub end_offset: i64,
    /// For how long it has lacked something that the leader has, in milliseconds.
    pub lag_ms: i64,
}
