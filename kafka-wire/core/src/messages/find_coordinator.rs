//! FindCoordinator: which node coordinates a group or transactional id.
//!
//! Versions:
//! - 1: kinds of keys
//! - 3: flexible
//! - 4: several keys at once (KIP-699)
//! - 6: share groups (KIP-932)

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of FindCoordinator.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=6, flexible = 3.., key = FindCoordinator, response = FindCoordinatorResponse)]
pub struct FindCoordinatorRequest {
    /// Group id or transactional id.
    #[kafka(versions = ..=3)]
    pub key: Str,
    /// 0 consumer group, 1 transaction, 2 share group.
    #[kafka(versions = 1..)]
    pub key_type: i8,
    /// Group ids or transactional ids (KIP-699).
    #[kafka(versions = 4..)]
    pub coordinator_keys: Vec<Str>,
}

/// Response of FindCoordinator.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=6, flexible = 3..)]
pub struct FindCoordinatorResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 1.., ignorable)]
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    #[kafka(versions = ..=3)]
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    #[kafka(versions = 1..=3, ignorable)]
    pub error_message: Option<Str>,
    /// Node of the coordinator, or -1.
    #[kafka(versions = ..=3)]
    pub node_id: i32,
    /// Host name or address that clients connect to.
    #[kafka(versions = ..=3)]
    pub host: Str,
    /// Port that clients connect to.
    #[kafka(versions = ..=3)]
    pub port: i32,
    /// One answer for each key.
    #[kafka(versions = 4..)]
    pub coordinators: Vec<Coordinator>,
}

/// The coordinator of one key.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct Coordinator {
    /// The key that was asked for.
    pub key: Str,
    /// Node of the coordinator, or -1.
    pub node_id: i32,
    /// Host name or address that clients connect to.
    pub host: Str,
    /// Port that clients connect to.
    pub port: i32,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
}
