//! AddRaftVoter: give a controller that runs a vote in the quorum (KIP-853).
//!
//! Versions:
//! - 0: flexible
//! - 1: when to answer (KIP-1186)

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of AddRaftVoter.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=1, flexible = 0.., key = AddRaftVoter, response = AddRaftVoterResponse)]
pub struct AddRaftVoterRequest {
    /// The cluster that is meant, or null.
    pub cluster_id: Option<Str>,
    /// How long the server may take, in milliseconds.
    pub timeout_ms: i32,
    /// Id of the controller.
    pub voter_id: i32,
    /// Its directory.
    pub voter_directory_id: Uuid,
    /// Its addresses.
    pub listeners: Vec<Listener>,
    /// Answer when the new set of voters is committed, or as soon as the leader has written it.
    #[kafka(versions = 1.., default = true)]
    pub ack_when_committed: bool,
}

/// An address of a controller.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct Listener {
    /// Name of the endpoint.
    pub name: Str,
    /// Host name or address.
    pub host: Str,
    /// Port.
    pub port: u16,
}

/// Response of AddRaftVoter.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=1, flexible = 0..)]
pub struct AddRaftVoterResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    #[kafka(ignorable)]
    pub error_message: Option<Str>,
}
