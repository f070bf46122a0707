//! SyncGroup: the leader hands in the assignment of a generation, every member receives its part.
//!
//! Versions:
//! - 1: throttle time
//! - 3: static members (KIP-345)
//! - 4: flexible
//! - 5: protocol type and name (KIP-559)

use bytes::Bytes;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of SyncGroup.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=5, flexible = 4.., key = SyncGroup, response = SyncGroupResponse)]
pub struct SyncGroupRequest {
    /// The group.
    pub group_id: Str,
    /// Generation of the member.
    pub generation_id: i32,
    /// Id of the member.
    pub member_id: Str,
    /// Name of a static member, or null (KIP-345).
    #[kafka(versions = 3..)]
    pub group_instance_id: Option<Str>,
    /// Kind of the protocols that the member believes in, or null.
    #[kafka(versions = 5.., ignorable)]
    pub protocol_type: Option<Str>,
    /// The protocol that the member believes in, or null.
    #[kafka(versions = 5.., ignorable)]
    pub protocol_name: Option<Str>,
    /// From the leader, the part of each member; else empty.
    pub assignments: Vec<SyncGroupRequestAssignment>,
}

/// The part of one member.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct SyncGroupRequestAssignment {
    /// Id of the member.
    pub member_id: Str,
    /// What only the members understand; for consumers, the partitions.
    pub assignment: Bytes,
}

/// Response of SyncGroup.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=5, flexible = 4..)]
pub struct SyncGroupResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 1.., ignorable)]
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// Kind of the protocols.
    #[kafka(versions = 5.., ignorable)]
    pub protocol_type: Option<Str>,
    /// The protocol of the generation.
    #[kafka(versions = 5.., ignorable)]
    pub protocol_name: Option<Str>,
    /// The member's part.
    pub assignment: Bytes,
}
