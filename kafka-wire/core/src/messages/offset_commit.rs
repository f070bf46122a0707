//! OffsetCommit: remember how far a group has come.
//!
//! Versions:
//! - 3: throttle time
//! - 5: no retention time any more (KIP-211)
//! - 6: leader epoch (KIP-320)
//! - 7: static members (KIP-345)
//! - 8: flexible
//! - 9: member epochs (KIP-848)
//! - 10: topic ids instead of names

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of OffsetCommit.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 2..=10, flexible = 8.., key = OffsetCommit, response = OffsetCommitResponse)]
pub struct OffsetCommitRequest {
    /// The group.
    pub group_id: Str,
    /// Generation of a classic member, epoch of a member of the newer protocol, -1 without membership.
    #[kafka(default = -1, ignorable)]
    pub generation_id_or_member_epoch: i32,
    /// Id of the member, empty without membership.
    #[kafka(ignorable)]
    pub member_id: Str,
    /// Name of a static member, or null (KIP-345).
    #[kafka(versions = 7..)]
    pub group_instance_id: Option<Str>,
    /// How long to keep the offsets, in milliseconds; -1 = as configured.
    #[kafka(versions = 2..=4, default = -1, ignorable)]
    pub retention_time_ms: i64,
    /// Offsets, by topic.
    pub topics: Vec<OffsetCommitRequestTopic>,
}

/// Offsets of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetCommitRequestTopic {
    /// Name of the topic.
    #[kafka(versions = ..=9, ignorable)]
    pub name: Str,
    /// Id of the topic.
    #[kafka(versions = 10.., ignorable)]
    pub topic_id: Uuid,
    /// Partitions of the topic.
    pub partitions: Vec<OffsetCommitRequestPartition>,
}

/// Offset of one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetCommitRequestPartition {
    /// Index of the partition.
    pub partition_index: i32,
    /// Next offset to read.
    pub committed_offset: i64,
    /// Epoch of the last record read, or -1.
    #[kafka(versions = 6.., default = -1, ignorable)]
    pub committed_leader_epoch: i32,
    /// Whatever the client wants to keep, or null.
    pub committed_metadata: Option<Str>,
}

/// Response of OffsetCommit.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 2..=10, flexible = 8..)]
pub struct OffsetCommitResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 3.., ignorable)]
    pub throttle_time_ms: i32,
    /// Answers, by topic.
    pub topics: Vec<OffsetCommitResponseTopic>,
}

/// Answers for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetCommitResponseTopic {
    /// Name of the topic.
    #[kafka(versions = ..=9, ignorable)]
    pub name: Str,
    /// Id of the topic.
    #[kafka(versions = 10.., ignorable)]
    pub topic_id: Uuid,
    /// Partitions of the topic.
    pub partitions: Vec<OffsetCommitResponsePartition>,
}

/// Answer for one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetCommitResponsePartition {
    /// Index of the partition.
    pub partition_index: i32,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
}
