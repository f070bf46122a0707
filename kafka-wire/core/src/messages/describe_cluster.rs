//! DescribeCluster: cluster id, controller and brokers (KIP-700).
//!
//! Versions:
//! - 1: controllers as endpoints (KIP-919)
//! - 2: fenced brokers (KIP-1073)

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DescribeCluster.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 0.., key = DescribeCluster, response = DescribeClusterResponse)]
pub struct DescribeClusterRequest {
    /// Ask for the operations allowed on the cluster.
    pub include_cluster_authorized_operations: bool,
    /// 1 asks for brokers, 2 for controllers (KIP-919).
    #[kafka(versions = 1.., default = 1)]
    pub endpoint_type: i8,
    /// Also name brokers that are fenced (KIP-1073).
    #[kafka(versions = 2..)]
    pub include_fenced_brokers: bool,
}

/// Response of DescribeCluster.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 0..)]
pub struct DescribeClusterResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
    /// 1 describes brokers, 2 controllers (KIP-919).
    #[kafka(versions = 1.., default = 1)]
    pub endpoint_type: i8,
    /// Id of the cluster.
    pub cluster_id: Str,
    /// Id of a node that takes controller requests, or -1.
    #[kafka(default = -1)]
    pub controller_id: i32,
    /// The brokers (or controllers).
    pub brokers: Vec<DescribeClusterBroker>,
    /// Bits of the operations that the client may do on the cluster; the smallest number if it did not ask.
    #[kafka(default = i32::MIN)]
    pub cluster_authorized_operations: i32,
}

/// A broker or controller.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeClusterBroker {
    /// Id of the broker.
    pub broker_id: i32,
    /// Host name or address that clients connect to.
    pub host: Str,
    /// Port that clients connect to.
    pub port: i32,
    /// Rack of the node, or null.
    pub rack: Option<Str>,
    /// Whether the broker is fenced (KIP-1073).
    #[kafka(versions = 2..)]
    pub is_fenced: bool,
}
