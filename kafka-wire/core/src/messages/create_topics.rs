//! CreateTopics: create topics.
//!
//! Versions:
//! - 4: defaults for partitions and replicas (KIP-464)
//! - 5: flexible; the answer shows the configs (KIP-525)
//! - 6: THROTTLING_QUOTA_EXCEEDED
//! - 7: topic ids

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of CreateTopics.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 2..=7, flexible = 5.., key = CreateTopics, response = CreateTopicsResponse)]
pub struct CreateTopicsRequest {
    /// Topics to create.
    pub topics: Vec<CreatableTopic>,
    /// How long the server may take, in milliseconds.
    #[kafka(default = 60_000)]
    pub timeout_ms: i32,
    /// Check everything, change nothing.
    pub validate_only: bool,
}

/// A topic to create.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct CreatableTopic {
    /// Name of the topic.
    pub name: Str,
    /// Partitions; -1 takes the default or the assignments.
    pub num_partitions: i32,
    /// Replicas of each partition; -1 takes the default or the assignments.
    pub replication_factor: i16,
    /// Replicas chosen by the client.
    pub assignments: Vec<CreatableReplicaAssignment>,
    /// Config entries other than the defaults.
    pub configs: Vec<CreatableTopicConfig>,
}

/// Replicas of one partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct CreatableReplicaAssignment {
    /// Index of the partition.
    pub partition_index: i32,
    /// Ids of the replicas, the preferred leader first.
    pub broker_ids: Vec<i32>,
}

/// A config of a new topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct CreatableTopicConfig {
    /// Name of the config.
    pub name: Str,
    /// Its value.
    pub value: Option<Str>,
}

/// Response of CreateTopics.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 2..=7, flexible = 5..)]
pub struct CreateTopicsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Answers, one for each topic.
    pub topics: Vec<CreatableTopicResult>,
}

/// The answer for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct CreatableTopicResult {
    /// Name of the topic.
    pub name: Str,
    /// Id of the topic.
    #[kafka(versions = 7.., ignorable)]
    pub topic_id: Uuid,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
    /// Why the configs are not shown, or none.
    #[kafka(versions = 5.., tag = 0, ignorable)]
    pub topic_config_error_code: ErrorCode,
    /// Partitions, or -1.
    #[kafka(versions = 5.., default = -1, ignorable)]
    pub num_partitions: i32,
    /// Replicas of each partition, or -1.
    #[kafka(versions = 5.., default = -1, ignorable)]
    pub replication_factor: i16,
    /// All configs in force; null if they may not be shown.
    #[kafka(versions = 5.., ignorable)]
    pub configs: Option<Vec<CreatableTopicConfigs>>,
}

/// A config in force.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct CreatableTopicConfigs {
    /// Name of the config.
    pub name: Str,
    /// Value; null removes it or, in answers, hides it.
    pub value: Option<Str>,
    /// Whether it cannot be changed while the broker runs.
    pub read_only: bool,
    /// Where the value comes from: 1 topic, 2 dynamic broker, 3 dynamic default of brokers, 4 static broker, 5 default,
    /// 6 dynamic logger, 7 client metrics, 8 group.
    #[kafka(default = -1)]
    pub config_source: i8,
    /// Whether the value is a secret and hidden.
    pub is_sensitive: bool,
}
