//! LeaveGroup: members go, or an operator removes them.
//!
//! Versions:
//! - 1: throttle time
//! - 3: several members at once, static ones by name (KIP-345)
//! - 4: flexible
//! - 5: reason (KIP-800)

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of LeaveGroup.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=5, flexible = 4.., key = LeaveGroup, response = LeaveGroupResponse)]
pub struct LeaveGroupRequest {
    /// The group.
    pub group_id: Str,
    /// Id of the member that goes.
    #[kafka(versions = ..=2)]
    pub member_id: Str,
    /// The members that go.
    #[kafka(versions = 3..)]
    pub members: Vec<MemberIdentity>,
}

/// A member that goes.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct MemberIdentity {
    /// Id of the member; empty if a static member is removed by its name.
    pub member_id: Str,
    /// Name of a static member, or null (KIP-345).
    pub group_instance_id: Option<Str>,
    /// Why it goes, for the log.
    #[kafka(versions = 5.., ignorable)]
    pub reason: Option<Str>,
}

/// Response of LeaveGroup.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=5, flexible = 4..)]
pub struct LeaveGroupResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 1.., ignorable)]
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// One answer for each member.
    #[kafka(versions = 3..)]
    pub members: Vec<MemberResponse>,
}

/// What became of one member.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct MemberResponse {
    /// Id of the member.
    pub member_id: Str,
    /// Name of a static member, or null (KIP-345).
    pub group_instance_id: Option<Str>,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
}
