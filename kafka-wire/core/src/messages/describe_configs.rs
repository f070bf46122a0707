//! DescribeConfigs: configs of topics, brokers and other resources.
//!
//! Versions:
//! - 1: synonyms
//! - 3: types and documentation
//! - 4: flexible

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DescribeConfigs.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=4, flexible = 4.., key = DescribeConfigs, response = DescribeConfigsResponse)]
pub struct DescribeConfigsRequest {
    /// Resources, each with its configs.
    pub resources: Vec<DescribeConfigsResource>,
    /// Also show where else a value could come from.
    pub include_synonyms: bool,
    /// Also show what a config means.
    #[kafka(versions = 3..)]
    pub include_documentation: bool,
}

/// A resource to describe.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeConfigsResource {
    /// Kind of resource: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    pub resource_type: i8,
    /// Name of the resource: a topic, or a broker id in digits (empty: default of all brokers).
    pub resource_name: Str,
    /// Names of the configs to show; null shows all.
    pub configuration_keys: Option<Vec<Str>>,
}

/// Response of DescribeConfigs.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=4, flexible = 4..)]
pub struct DescribeConfigsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Answers, one for each asked.
    pub results: Vec<DescribeConfigsResult>,
}

/// Configs of one resource.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeConfigsResult {
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
    /// Kind of resource: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    pub resource_type: i8,
    /// Name of the resource: a topic, or a broker id in digits (empty: default of all brokers).
    pub resource_name: Str,
    /// Config entries.
    pub configs: Vec<DescribeConfigsResourceResult>,
}

/// A config in force.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeConfigsResourceResult {
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
    /// Where the value could come from, strongest first.
    pub synonyms: Vec<DescribeConfigsSynonym>,
    /// 0 unknown, 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    #[kafka(versions = 3.., ignorable)]
    pub config_type: i8,
    /// What the config means, or null.
    #[kafka(versions = 3.., ignorable)]
    pub documentation: Option<Str>,
}

/// Another place that a value could come from.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribeConfigsSynonym {
    /// Name of the config there.
    pub name: Str,
    /// Value; null removes it or, in answers, hides it.
    pub value: Option<Str>,
    /// Where it comes from, numbered as `config_source`.
    pub source: i8,
}
