//! OffsetFetch: how far a group has come.
//!
//! Versions:
//! - 2: null topics = all; error of the whole request
//! - 3: throttle time
//! - 5: leader epoch (KIP-320)
//! - 6: flexible
//! - 7: wait for transactions (KIP-447)
//! - 8: several groups at once (KIP-709)
//! - 9: member id and epoch (KIP-848)
//! - 10: topic ids instead of names

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of OffsetFetch.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=10, flexible = 6.., key = OffsetFetch, response = OffsetFetchResponse)]
pub struct OffsetFetchRequest {
    /// The group.
    #[kafka(versions = ..=7)]
    pub group_id: Str,
    /// Partitions to answer for, by topic; null = all that have an offset.
    #[kafka(versions = ..=7, nullable = 2..=7)]
    pub topics: Option<Vec<OffsetFetchRequestTopic>>,
    /// Groups, each with its partitions (KIP-709).
    #[kafka(versions = 8..)]
    pub groups: Vec<OffsetFetchRequestGroup>,
    /// Whether offsets of transactions that are still open are an error (KIP-447).
    #[kafka(versions = 7..)]
    pub require_stable: bool,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetFetchRequestTopic {
    /// Name of the topic.
    pub name: Str,
    /// Indexes of the partitions.
    pub partition_indexes: Vec<i32>,
}

/// A group, and what to answer for.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetFetchRequestGroup {
    /// The group.
    pub group_id: Str,
    /// Id of the member, or null (KIP-848).
    #[kafka(versions = 9.., ignorable)]
    pub member_id: Option<Str>,
    /// Epoch of the member, or -1 (KIP-848).
    #[kafka(versions = 9.., default = -1, ignorable)]
    pub member_epoch: i32,
    /// Partitions to answer for, by topic; null = all that have an offset.
    pub topics: Option<Vec<OffsetFetchRequestTopics>>,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetFetchRequestTopics {
    /// Name of the topic.
    #[kafka(versions = ..=9, ignorable)]
    pub name: Str,
    /// Id of the topic.
    #[kafka(versions = 10.., ignorable)]
    pub topic_id: Uuid,
    /// Indexes of the partitions.
    pub partition_indexes: Vec<i32>,
}

/// Response of OffsetFetch.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=10, flexible = 6..)]
pub struct OffsetFetchResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 3.., ignorable)]
    pub throttle_time_ms: i32,
    /// Offsets, by topic.
    #[kafka(versions = ..=7)]
    pub topics: Vec<OffsetFetchResponseTopic>,
    /// Error of the whole request, or none.
    #[kafka(versions = 2..=7, ignorable)]
    pub error_code: ErrorCode,
    /// One answer for each group (KIP-709).
    #[kafka(versions = 8..)]
    pub groups: Vec<OffsetFetchResponseGroup>,
}

/// Offsets of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetFetchResponseTopic {
    /// Name of the topic.
    pub name: Str,
    /// Partitions of the topic.
    pub partitions: Vec<OffsetFetchResponsePartition>,
}

/// Offset of one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetFetchResponsePartition {
    /// Index of the partition.
    pub partition_index: i32,
    /// Next offset to read, or -1.
    pub committed_offset: i64,
    /// Epoch of the last record read, or -1.
    #[kafka(versions = 5..=7, default = -1, ignorable)]
    pub committed_leader_epoch: i32,
    /// What the client wanted to keep. Empty rather than null by default.
    #[kafka(default = Some(Str::default()))]
    pub metadata: Option<Str>,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
}

/// Offsets of one group.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetFetchResponseGroup {
    /// The group.
    pub group_id: Str,
    /// Offsets, by topic.
    pub topics: Vec<OffsetFetchResponseTopics>,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
}

/// Offsets of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetFetchResponseTopics {
    /// Name of the topic.
    #[kafka(versions = ..=9, ignorable)]
    pub name: Str,
    /// Id of the topic.
    #[kafka(versions = 10.., ignorable)]
    pub topic_id: Uuid,
    /// Partitions of the topic.
    pub partitions: Vec<OffsetFetchResponsePartitions>,
}

/// Offset of one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct OffsetFetchResponsePartitions {
    /// Index of the partition.
    pub partition_index: i32,
    /// Next offset to read, or -1.
    pub committed_offset: i64,
    /// Epoch of the last record read, or -1.
    #[kafka(default = -1, ignorable)]
    pub committed_leader_epoch: i32,
    /// What the client wanted to keep. Empty rather than null by default.
    #[kafka(default = Some(Str::default()))]
    pub metadata: Option<Str>,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
}
