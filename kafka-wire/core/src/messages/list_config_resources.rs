//! ListConfigResources: resources that have configs (KIP-1142).
//!
//! Versions:
//! - 1: all kinds of resources; 0 lists client metrics only

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of ListConfigResources.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=1, flexible = 0.., key = ListConfigResources, response = ListConfigResourcesResponse)]
pub struct ListConfigResourcesRequest {
    /// Kinds of resources to list, numbered as in DescribeConfigs; empty asks for all that have dynamic configs.
    #[kafka(versions = 1..)]
    pub resource_types: Vec<i8>,
}

/// Response of ListConfigResources.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=1, flexible = 0..)]
pub struct ListConfigResourcesResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// Resources that have configs.
    pub config_resources: Vec<ConfigResource>,
}

/// A resource that has configs.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ConfigResource {
    /// Name of the resource.
    pub resource_name: Str,
    /// Kind of resource, numbered as in DescribeConfigs.
    #[kafka(versions = 1.., default = 16, ignorable)]
    pub resource_type: i8,
}
