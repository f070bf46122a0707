//! Produce: append record batches.
//!
//! Versions:
//! - 3: transactional id; record batches of format 2
//! - 5: log start offset
//! - 7: zstd
//! - 8: errors by record (KIP-467)
//! - 9: flexible
//! - 10: the leader and its address in the answer (KIP-951)
//! - 12: adds partitions to the transaction by itself (KIP-890)
//! - 13: topic ids instead of names (KIP-516)
//!
//! A server announces versions from 0, since old librdkafka takes the lack of 0 for the lack of everything; 0 to 2 have no
//! messages here: Kafka 4 closes the connection of whoever sends one.

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Records, Str};

/// Request of Produce.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 3..=13, flexible = 9.., key = Produce, response = ProduceResponse)]
pub struct ProduceRequest {
    /// Transactional id of the producer, or null.
    pub transactional_id: Option<Str>,
    /// Who must have the records before the answer: 0 nobody (and no answer), 1 the leader, -1 all in sync.
    pub acks: i16,
    /// How long the server may take, in milliseconds.
    pub timeout_ms: i32,
    /// Record batches by topic.
    pub topic_data: Vec<TopicProduceData>,
}

/// Batches for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct TopicProduceData {
    /// Name of the topic.
    #[kafka(versions = ..=12, ignorable)]
    pub name: Str,
    /// Id of the topic.
    #[kafka(versions = 13.., ignorable)]
    pub topic_id: Uuid,
    /// Record batches by partition.
    pub partition_data: Vec<PartitionProduceData>,
}

/// The batch for one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct PartitionProduceData {
    /// Index of the partition.
    pub index: i32,
    /// Exactly one record batch; a slice of the frame.
    pub records: Option<Records>,
}

/// Response of Produce.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 3..=13, flexible = 9..)]
pub struct ProduceResponse {
    /// Answers, one for each asked.
    pub responses: Vec<TopicProduceResponse>,
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Addresses of the leaders named above (KIP-951).
    #[kafka(versions = 10.., tag = 0)]
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// Answers for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct TopicProduceResponse {
    /// Name of the topic.
    #[kafka(versions = ..=12, ignorable)]
    pub name: Str,
    /// Id of the topic.
    #[kafka(versions = 13.., ignorable)]
    pub topic_id: Uuid,
    /// Answers by partition.
    pub partition_responses: Vec<PartitionProduceResponse>,
}

/// The answer for one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct PartitionProduceResponse {
    /// Index of the partition.
    pub index: i32,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// Offset of the first record, or -1.
    pub base_offset: i64,
    /// Time of the append if the topic uses it, else -1.
    #[kafka(default = -1)]
    pub log_append_time_ms: i64,
    /// First offset of the log, or -1.
    #[kafka(versions = 5.., default = -1, ignorable)]
    pub log_start_offset: i64,
    /// The records that made the batch be refused (KIP-467).
    #[kafka(versions = 8.., ignorable)]
    pub record_errors: Vec<BatchIndexAndErrorMessage>,
    /// The error in words, for the batch as a whole (KIP-467).
    #[kafka(versions = 8.., ignorable)]
    pub error_message: Option<Str>,
    /// The leader as this node knows it, with NOT_LEADER_OR_FOLLOWER and the like (KIP-951).
    #[kafka(versions = 10.., tag = 0)]
    pub current_leader: LeaderIdAndEpoch,
}

/// A record that made its batch be refused.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct BatchIndexAndErrorMessage {
    /// Position of the record in its batch.
    pub batch_index: i32,
    /// What is wrong with it.
    pub batch_index_error_message: Option<Str>,
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
