//! ListGroups: all groups that a node coordinates.
//!
//! Versions:
//! - 1: throttle time
//! - 3: flexible
//! - 4: states (KIP-518)
//! - 5: types (KIP-848)

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of ListGroups.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=5, flexible = 3.., key = ListGroups, response = ListGroupsResponse)]
pub struct ListGroupsRequest {
    /// Only groups in one of these states; empty = all (KIP-518).
    #[kafka(versions = 4..)]
    pub states_filter: Vec<Str>,
    /// Only groups of one of these types; empty = all (KIP-848).
    #[kafka(versions = 5..)]
    pub types_filter: Vec<Str>,
}

/// Response of ListGroups.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=5, flexible = 3..)]
pub struct ListGroupsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 1.., ignorable)]
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The groups.
    pub groups: Vec<ListedGroup>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ListedGroup {
    /// The group.
    pub group_id: Str,
    /// Kind of its protocols, "consumer" for consumers, empty for offsets alone.
    pub protocol_type: Str,
    /// Kafka's name of its state, e.g. "Stable".
    #[kafka(versions = 4.., ignorable)]
    pub group_state: Str,
    /// "classic", "consumer" and so on.
    #[kafka(versions = 5.., ignorable)]
    pub group_type: Str,
}
