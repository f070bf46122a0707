//! RemoveRaftVoter: take a controller's vote in the quorum away (KIP-853).
//!
//! Versions:
//! - 0: flexible

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, Str};

/// Request of RemoveRaftVoter.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0.., key = RemoveRaftVoter, response = RemoveRaftVoterResponse)]
pub struct RemoveRaftVoterRequest {
    /// The cluster that is meant, or null.
    pub cluster_id: Option<Str>,
    /// Id of the controller.
    pub voter_id: i32,
    /// Its directory.
    pub voter_directory_id: Uuid,
}

/// Response of RemoveRaftVoter.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=0, flexible = 0..)]
pub struct RemoveRaftVoterResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    #[kafka(ignorable)]
    pub error_message: Option<Str>,
}
