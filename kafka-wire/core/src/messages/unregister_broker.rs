//! UnregisterBroker: forget a node that has left for good (KIP-500).
//!
//! Versions:
//! - 0: flexible

use crate::{ErrorCode, KafkaMessage, Str};

/// Request of UnregisterBroker.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0.., key = UnregisterBroker, response = UnregisterBrokerResponse)]
pub struct UnregisterBrokerRequest {
    /// Id of the node.
    pub broker_id: i32,
}

/// Response of UnregisterBroker.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0..)]
pub struct UnregisterBrokerResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
}
