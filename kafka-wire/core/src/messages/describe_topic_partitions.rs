//! DescribeTopicPartitions: topics and partitions page by page, with eligible leader replicas (KIP-966).

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DescribeTopicPartitions.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0.., key = DescribeTopicPartitions, response = DescribeTopicPartitionsResponse)]
pub struct DescribeTopicPartitionsRequest {
    /// Topics to describe; empty asks for all.
    pub topics: Vec<TopicRequest>,
    /// Partitions in one answer at most.
    #[kafka(default = 2000)]
    pub response_partition_limit: i32,
    /// Where the previous answer ended, or null.
    pub cursor: Option<Cursor>,
}

/// A topic to describe.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct TopicRequest {
    /// Name of the topic.
    pub name: Str,
}

/// A place between two answers.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct Cursor {
    /// First topic of the next answer.
    pub topic_name: Str,
    /// Its first partition.
    pub partition_index: i32,
}

/// Response of DescribeTopicPartitions.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0..)]
pub struct DescribeTopicPartitionsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Topics, each with its partitions.
    pub topics: Vec<DescribeTopicPartitionsResponseTopic>,
    /// Where to go on, or null at the end.
    pub next_cursor: Option<Cursor>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeTopicPartitionsResponseTopic {
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// Name of the topic, or null.
    pub name: Option<Str>,
    /// Id of the topic.
    pub topic_id: Uuid,
    /// Whether it is an internal topic.
    pub is_internal: bool,
    /// Partitions of the topic.
    pub partitions: Vec<DescribeTopicPartitionsResponsePartition>,
    /// Bits of the operations that the client may do on the topic; the smallest number if it did not ask.
    #[kafka(default = i32::MIN)]
    pub topic_authorized_operations: i32,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeTopicPartitionsResponsePartition {
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// Index of the partition.
    pub partition_index: i32,
    /// Id of the leader, or -1.
    pub leader_id: i32,
    /// Epoch of the leader, or -1.
    #[kafka(default = -1)]
    pub leader_epoch: i32,
    /// Ids of all replicas, the preferred leader first.
    pub replica_nodes: Vec<i32>,
    /// Ids of the replicas in sync.
    pub isr_nodes: Vec<i32>,
    /// Replicas out of sync that may still become leader (KIP-966), or null.
    pub eligible_leader_replicas: Option<Vec<i32>>,
    /// The last known such replicas (KIP-966), or null.
    pub last_known_elr: Option<Vec<i32>>,
    /// Ids of the replicas that are offline.
    pub offline_replicas: Vec<i32>,
}
