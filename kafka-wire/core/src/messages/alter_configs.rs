//! AlterConfigs: replace all configs of a resource; IncrementalAlterConfigs is the better one.
//!
//! Versions:
//! - 2: flexible

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of AlterConfigs.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 2.., key = AlterConfigs, response = AlterConfigsResponse)]
pub struct AlterConfigsRequest {
    /// Resources, each with its configs.
    pub resources: Vec<AlterConfigsResource>,
    /// Check everything, change nothing.
    pub validate_only: bool,
}

/// A resource to change.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct AlterConfigsResource {
    /// Kind of resource: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    pub resource_type: i8,
    /// Name of the resource: a topic, or a broker id in digits (empty: default of all brokers).
    pub resource_name: Str,
    /// Config entries.
    pub configs: Vec<AlterableConfig>,
}

/// A config to change.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct AlterableConfig {
    /// Name of the config.
    pub name: Str,
    /// New value; null removes it.
    pub value: Option<Str>,
}

/// Response of AlterConfigs.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 2..)]
pub struct AlterConfigsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Answers, one for each asked.
    pub responses: Vec<AlterConfigsResourceResponse>,
}

/// The answer for one resource.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct AlterConfigsResourceResponse {
    /// Error of this resource, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
    /// Kind of resource: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    pub resource_type: i8,
    /// Name of the resource: a topic, or a broker id in digits (empty: default of all brokers).
    pub resource_name: Str,
}
