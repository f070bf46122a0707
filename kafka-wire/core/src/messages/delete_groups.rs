//! DeleteGroups: forget groups without members, and their offsets (KIP-229).
//!
//! Versions:
//! - 2: flexible
//! - 3: errors in words

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DeleteGroups.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=3, flexible = 2.., key = DeleteGroups, response = DeleteGroupsResponse)]
pub struct DeleteGroupsRequest {
    /// The groups.
    pub groups_names: Vec<Str>,
}

/// Response of DeleteGroups.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=3, flexible = 2..)]
pub struct DeleteGroupsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// One answer for each group.
    pub results: Vec<DeletableGroupResult>,
}

/// What became of one group.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DeletableGroupResult {
    /// The group.
    pub group_id: Str,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    #[kafka(versions = 3.., ignorable)]
    pub error_message: Option<Str>,
}
