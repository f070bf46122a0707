//! DescribeGroups: state and members of classic groups.
//!
//! Versions:
//! - 1: throttle time
//! - 3: what the caller may do (KIP-430)
//! - 4: static members (KIP-345)
//! - 5: flexible
//! - 6: an unknown group is an error, in words (KIP-1043)

use bytes::Bytes;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DescribeGroups.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=6, flexible = 5.., key = DescribeGroups, response = DescribeGroupsResponse)]
pub struct DescribeGroupsRequest {
    /// The groups.
    pub groups: Vec<Str>,
    /// Whether to answer what the caller may do (KIP-430).
    #[kafka(versions = 3..)]
    pub include_authorized_operations: bool,
}

/// Response of DescribeGroups.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=6, flexible = 5..)]
pub struct DescribeGroupsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 1.., ignorable)]
    pub throttle_time_ms: i32,
    /// One answer for each group.
    pub groups: Vec<DescribedGroup>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribedGroup {
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    #[kafka(versions = 6..)]
    pub error_message: Option<Str>,
    /// The group.
    pub group_id: Str,
    /// Kafka's name of its state, e.g. "Stable".
    pub group_state: Str,
    /// Kind of its protocols, "consumer" for consumers.
    pub protocol_type: Str,
    /// The chosen protocol; empty unless stable.
    pub protocol_data: Str,
    /// Its members.
    pub members: Vec<DescribedGroupMember>,
    /// What the caller may do, as bits, or the smallest number.
    #[kafka(versions = 3.., default = i32::MIN)]
    pub authorized_operations: i32,
}

/// A member.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DescribedGroupMember {
    /// Id of the member.
    pub member_id: Str,
    /// Name of a static member, or null (KIP-345).
    #[kafka(versions = 4.., ignorable)]
    pub group_instance_id: Option<Str>,
    /// Client id of its last join.
    pub client_id: Str,
    /// Host of its last join.
    pub client_host: Str,
    /// What it said in the chosen protocol; empty unless stable.
    pub member_metadata: Bytes,
    /// Its part; empty unless stable.
    pub member_assignment: Bytes,
}
