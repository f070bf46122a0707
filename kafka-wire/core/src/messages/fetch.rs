//! Fetch: read record batches from partitions, waiting for them if asked to.
//!
//! Versions:
//! - 5: log start offset
//! - 7: sessions (KIP-227)
//! - 9: leader epoch
//! - 11: reading from followers (KIP-392)
//! - 12: flexible; diverging epochs
//! - 13: topic ids instead of names (KIP-516)
//! - 15: followers name their registration (KIP-903)
//! - 16: addresses of new leaders (KIP-951)
//! - 17: data directory of followers (KIP-853)
//! - 18: high watermark of followers (KIP-1166)

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Records, Str};

/// Request of Fetch.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 4..=18, flexible = 12.., key = Fetch, response = FetchResponse)]
pub struct FetchRequest {
    /// Cluster that a follower believes to talk to, or null.
    #[kafka(versions = 12.., tag = 0, ignorable)]
    pub cluster_id: Option<Str>,
    /// Id of the follower that asks, -1 for a consumer.
    #[kafka(versions = ..=14, default = -1)]
    pub replica_id: i32,
    /// The follower that asks (KIP-903).
    #[kafka(versions = 15.., tag = 1)]
    pub replica_state: ReplicaState,
    /// How long to wait for `min_bytes`, in milliseconds.
    pub max_wait_ms: i32,
    /// Bytes that are worth an answer before `max_wait_ms` is over.
    pub min_bytes: i32,
    /// Bytes that the answer should not exceed; the first batch always comes whole (KIP-74).
    #[kafka(default = i32::MAX)]
    pub max_bytes: i32,
    /// 0 reads everything below the high watermark, 1 only below the last stable offset.
    pub isolation_level: i8,
    /// Fetch session (KIP-227), or 0.
    #[kafka(versions = 7.., ignorable)]
    pub session_id: i32,
    /// 0 begins a session, -1 ends it or asks without one, above 0 counts its requests.
    #[kafka(versions = 7.., default = -1, ignorable)]
    pub session_epoch: i32,
    /// Partitions to read; in a session, those that were added or changed.
    pub topics: Vec<FetchTopic>,
    /// Partitions to drop from the session.
    #[kafka(versions = 7..)]
    pub forgotten_topics_data: Vec<ForgottenTopic>,
    /// Rack of the consumer, for reading from a near replica (KIP-392); empty if unknown.
    #[kafka(versions = 11.., ignorable)]
    pub rack_id: Str,
}

/// A follower that fetches.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ReplicaState {
    /// Id of the follower, -1 for a consumer.
    #[kafka(default = -1)]
    pub replica_id: i32,
    /// Its registration, or -1.
    #[kafka(default = -1)]
    pub replica_epoch: i64,
}

/// Partitions of one topic to read.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct FetchTopic {
    /// Name of the topic.
    #[kafka(versions = ..=12, ignorable)]
    pub topic: Str,
    /// Id of the topic.
    #[kafka(versions = 13.., ignorable)]
    pub topic_id: Uuid,
    /// Partitions of the topic.
    pub partitions: Vec<FetchPartition>,
}

/// A partition to read.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct FetchPartition {
    /// Index of the partition.
    pub partition: i32,
    /// Leader epoch that the client believes in, or -1: the leader refuses older and newer ones.
    #[kafka(versions = 9.., default = -1, ignorable)]
    pub current_leader_epoch: i32,
    /// Offset to read from.
    pub fetch_offset: i64,
    /// Epoch of the last record read, or -1: finds diverging logs (KIP-595).
    #[kafka(versions = 12.., default = -1)]
    pub last_fetched_epoch: i32,
    /// First offset of the follower's log, or -1.
    #[kafka(versions = 5.., default = -1, ignorable)]
    pub log_start_offset: i64,
    /// Bytes to read from the partition at most; the first batch always comes whole.
    pub partition_max_bytes: i32,
    /// Data directory of the follower (KIP-853).
    #[kafka(versions = 17.., tag = 0, ignorable)]
    pub replica_directory_id: Uuid,
    /// The follower's high watermark (KIP-1166).
    #[kafka(versions = 18.., tag = 1, default = i64::MAX, ignorable)]
    pub high_watermark: i64,
}

/// Partitions of one topic to drop from the session.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ForgottenTopic {
    /// Name of the topic.
    #[kafka(versions = ..=12, ignorable)]
    pub topic: Str,
    /// Id of the topic.
    #[kafka(versions = 13.., ignorable)]
    pub topic_id: Uuid,
    /// Indexes of the partitions.
    pub partitions: Vec<i32>,
}

/// Response of Fetch.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 4..=18, flexible = 12..)]
pub struct FetchResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the session or the whole request, or none.
    #[kafka(versions = 7.., ignorable)]
    pub error_code: ErrorCode,
    /// Fetch session (KIP-227), or 0.
    #[kafka(versions = 7..)]
    pub session_id: i32,
    /// What was read, by topic.
    pub responses: Vec<FetchableTopicResponse>,
    /// Addresses of the leaders named above (KIP-951).
    #[kafka(versions = 16.., tag = 0)]
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// What was read of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct FetchableTopicResponse {
    /// Name of the topic.
    #[kafka(versions = ..=12, ignorable)]
    pub topic: Str,
    /// Id of the topic.
    #[kafka(versions = 13.., ignorable)]
    pub topic_id: Uuid,
    /// Partitions of the topic.
    pub partitions: Vec<PartitionData>,
}

/// What was read of one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct PartitionData {
    /// Index of the partition.
    pub partition_index: i32,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// One past the last record that is safe to read.
    pub high_watermark: i64,
    /// One past the last record whose transaction, if any, has ended; or -1.
    #[kafka(default = -1)]
    pub last_stable_offset: i64,
    /// First offset of the log, or -1.
    #[kafka(versions = 5.., default = -1, ignorable)]
    pub log_start_offset: i64,
    /// Where the reader's log leaves the leader's: it must cut back to there (KIP-595).
    #[kafka(versions = 12.., tag = 0)]
    pub diverging_epoch: EpochEndOffset,
    /// The leader as this node knows it, with NOT_LEADER_OR_FOLLOWER and the like.
    #[kafka(versions = 12.., tag = 1)]
    pub current_leader: LeaderIdAndEpoch,
    /// Snapshot to load when the offset is gone; only in the metadata quorum.
    #[kafka(versions = 12.., tag = 2)]
    pub snapshot_id: SnapshotId,
    /// Aborted transactions among the records; null for readers of everything.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// Replica that the consumer should rather ask (KIP-392), or -1.
    #[kafka(versions = 11.., default = -1)]
    pub preferred_read_replica: i32,
    /// Whole record batches, the first of which may begin before the offset. Empty rather than null by default.
    #[kafka(default = Some(Records::default()))]
    pub records: Option<Records>,
}

/// A leader epoch and where it ends.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct EpochEndOffset {
    /// Largest leader epoch below the asked one, or -1.
    #[kafka(default = -1)]
    pub epoch: i32,
    /// End offset of the epoch: one past its last record.
    #[kafka(default = -1)]
    pub end_offset: i64,
}

/// A leader and its epoch.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct LeaderIdAndEpoch {
    /// Id of the leader, or -1.
    #[kafka(default = -1)]
    pub leader_id: i32,
    /// Epoch of the leader, or -1.
    #[kafka(default = -1)]
    pub leader_epoch: i32,
}

/// A snapshot of the metadata quorum.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct SnapshotId {
    /// One past the last offset in the snapshot.
    #[kafka(default = -1)]
    pub end_offset: i64,
    /// Epoch of its last offset.
    #[kafka(default = -1)]
    pub epoch: i32,
}

/// An aborted transaction.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct AbortedTransaction {
    /// Id of the producer.
    pub producer_id: i64,
    /// First offset of the transaction.
    pub first_offset: i64,
}

/// Address of a node.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct NodeEndpoint {
    /// Id of the node.
    pub node_id: i32,
    /// Host name or address that clients connect to.
    pub host: Str,
    /// Port that clients connect to.
    pub port: i32,
    /// Rack of the node, or null.
    pub rack: Option<Str>,
}
