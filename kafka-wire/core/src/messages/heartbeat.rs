//! Heartbeat: a member of a classic group lives, and learns whether the group rebalances.
//!
//! Versions:
//! - 1: throttle time
//! - 3: static members (KIP-345)
//! - 4: flexible

use crate::{ErrorCode, KafkaMessage, Str};

/// Request of Heartbeat.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=4, flexible = 4.., key = Heartbeat, response = HeartbeatResponse)]
pub struct HeartbeatRequest {
    /// The group.
    pub group_id: Str,
    /// Generation of the member.
    pub generation_id: i32,
    /// Id of the member.
    pub member_id: Str,
    /// Name of a static member, or null (KIP-345).
    #[kafka(versions = 3..)]
    pub group_instance_id: Option<Str>,
}

/// Response of Heartbeat.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=4, flexible = 4..)]
pub struct HeartbeatResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 1.., ignorable)]
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
}
