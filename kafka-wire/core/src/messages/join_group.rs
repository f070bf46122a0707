//! JoinGroup: enter a group of the classic protocol, and wait until the others have too.
//!
//! Versions:
//! - 1: rebalance time-out (KIP-62)
//! - 4: a first join is answered with MEMBER_ID_REQUIRED and an id (KIP-394)
//! - 5: static members (KIP-345)
//! - 6: flexible
//! - 7: protocol type in the answer; its protocol name may be null (KIP-559)
//! - 8: reason (KIP-800)
//! - 9: a static leader may be told not to assign (KIP-814)

use bytes::Bytes;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of JoinGroup.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=9, flexible = 6.., key = JoinGroup, response = JoinGroupResponse)]
pub struct JoinGroupRequest {
    /// The group.
    pub group_id: Str,
    /// Silence after which the member is given up, in milliseconds.
    pub session_timeout_ms: i32,
    /// How long the member may take to rejoin when the group rebalances, in milliseconds; -1 = the session time-out.
    #[kafka(versions = 1.., default = -1, ignorable)]
    pub rebalance_timeout_ms: i32,
    /// Id that the coordinator gave the member, empty at first.
    pub member_id: Str,
    /// Name of a static member, or null (KIP-345).
    #[kafka(versions = 5..)]
    pub group_instance_id: Option<Str>,
    /// Kind of the protocols, "consumer" for consumers.
    pub protocol_type: Str,
    /// Protocols that the member speaks, most wanted first.
    pub protocols: Vec<JoinGroupRequestProtocol>,
    /// Why the member joins, for the log.
    #[kafka(versions = 8.., ignorable)]
    pub reason: Option<Str>,
}

/// A protocol, and what the member says in it.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct JoinGroupRequestProtocol {
    /// Name of the protocol; for consumers, of an assignor.
    pub name: Str,
    /// What only the members understand; for consumers, the subscription.
    pub metadata: Bytes,
}

/// Response of JoinGroup.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=9, flexible = 6..)]
pub struct JoinGroupResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 2.., ignorable)]
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// Generation that the member is in, or -1.
    #[kafka(default = -1)]
    pub generation_id: i32,
    /// Kind of the protocols.
    #[kafka(versions = 7.., ignorable)]
    pub protocol_type: Option<Str>,
    /// The protocol that all members speak. Empty rather than null by default, as old versions have it.
    #[kafka(nullable = 7.., default = Some(Str::default()))]
    pub protocol_name: Option<Str>,
    /// Id of the member that assigns.
    pub leader: Str,
    /// Whether the leader keeps the assignment that there is (KIP-814).
    #[kafka(versions = 9..)]
    pub skip_assignment: bool,
    /// Id of the member that asked.
    pub member_id: Str,
    /// To the leader, all members; else empty.
    pub members: Vec<JoinGroupResponseMember>,
}

/// A member, as the leader sees it.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct JoinGroupResponseMember {
    /// Id of the member.
    pub member_id: Str,
    /// Name of a static member, or null (KIP-345).
    #[kafka(versions = 5.., ignorable)]
    pub group_instance_id: Option<Str>,
    /// What the member says in the chosen protocol.
    pub metadata: Bytes,
}
