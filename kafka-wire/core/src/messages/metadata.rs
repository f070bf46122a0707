//! Metadata: brokers, topics, partitions and their leaders.
//!
//! Versions:
//! - 1: null asks for all topics (in 0: an empty list does); racks, controller, internal topics
//! - 2: cluster id
//! - 3: throttle time
//! - 4: whether topics may be created
//! - 5: offline replicas
//! - 7: leader epochs
//! - 8: authorized operations (KIP-430)
//! - 9: flexible
//! - 10: topic ids, of use from 12 on
//! - 11: cluster operations moved to DescribeCluster
//! - 13: an error of the whole request

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of Metadata.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=13, flexible = 9.., key = Metadata, response = MetadataResponse)]
pub struct MetadataRequest {
    /// Topics to describe. Null: all; empty: none, but in version 0 all.
    #[kafka(nullable = 1..)]
    pub topics: Option<Vec<MetadataRequestTopic>>,
    /// Whether topics that do not exist may be created.
    #[kafka(versions = 4.., default = true)]
    pub allow_auto_topic_creation: bool,
    /// Ask for the operations allowed on the cluster.
    #[kafka(versions = 8..=10)]
    pub include_cluster_authorized_operations: bool,
    /// Ask for the operations allowed on each topic.
    #[kafka(versions = 8..)]
    pub include_topic_authorized_operations: bool,
}

/// A topic that is asked for, by name or id.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct MetadataRequestTopic {
    /// Id of the topic; nil asks by name.
    #[kafka(versions = 10.., ignorable)]
    pub topic_id: Uuid,
    /// Name of the topic; null asks by id.
    #[kafka(nullable = 10..)]
    pub name: Option<Str>,
}

/// Response of Metadata.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=13, flexible = 9..)]
pub struct MetadataResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 3.., ignorable)]
    pub throttle_time_ms: i32,
    /// All live brokers.
    pub brokers: Vec<MetadataResponseBroker>,
    /// Id of the cluster, or null.
    #[kafka(versions = 2.., ignorable)]
    pub cluster_id: Option<Str>,
    /// Id of a node that takes controller requests, or -1.
    #[kafka(versions = 1.., default = -1, ignorable)]
    pub controller_id: i32,
    /// Topics, each with its partitions.
    pub topics: Vec<MetadataResponseTopic>,
    /// Bits of the operations that the client may do on the cluster; the smallest number if it did not ask.
    #[kafka(versions = 8..=10, default = i32::MIN)]
    pub cluster_authorized_operations: i32,
    /// Error of the whole request, or none.
    #[kafka(versions = 13.., ignorable)]
    pub error_code: ErrorCode,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct MetadataResponseBroker {
    /// Id of the node.
    pub node_id: i32,
    /// Host name or address that clients connect to.
    pub host: Str,
    /// Port that clients connect to.
    pub port: i32,
    /// Rack of the node, or null.
    #[kafka(versions = 1.., ignorable)]
    pub rack: Option<Str>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct MetadataResponseTopic {
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// Name of the topic; null if an unknown id was asked.
    #[kafka(nullable = 12..)]
    pub name: Option<Str>,
    /// Id of the topic.
    #[kafka(versions = 10.., ignorable)]
    pub topic_id: Uuid,
    /// Whether it is an internal topic.
    #[kafka(versions = 1.., ignorable)]
    pub is_internal: bool,
    /// Partitions of the topic.
    pub partitions: Vec<MetadataResponsePartition>,
    /// Bits of the operations that the client may do on the topic; the smallest number if it did not ask.
    #[kafka(versions = 8.., default = i32::MIN)]
    pub topic_authorized_operations: i32,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct MetadataResponsePartition {
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// Index of the partition.
    pub partition_index: i32,
    /// Id of the leader, or -1.
    pub leader_id: i32,
    /// Epoch of the leader, or -1.
    #[kafka(versions = 7.., default = -1, ignorable)]
    pub leader_epoch: i32,
    /// Ids of all replicas, the preferred leader first.
    pub replica_nodes: Vec<i32>,
    /// Ids of the replicas in sync.
    pub isr_nodes: Vec<i32>,
    /// Ids of the replicas that are offline.
    #[kafka(versions = 5.., ignorable)]
    pub offline_replicas: Vec<i32>,
}
