//! G4: one member per instance name; who is fenced was replaced by another.

use std::collections::BTreeSet;

use kafka_wire_core::messages::join_group::JoinGroupResponse;

use crate::client::Client;

/// A leader was told the members of its group.
pub(crate) fn check_members(response: &JoinGroupResponse) {
    let names: Vec<_> =
        response.members.iter().filter_map(|member| member.group_instance_id.as_ref()).collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), distinct.len(), "G4: two members of one name: {response:?}");
}

/// A client was told that it is fenced, though it is the only process of its name.
pub(crate) fn check_fenced(client: &Client) {
    // An earlier join of its own may have come in late and replaced it.
    assert!(client.join_in_doubt, "G4: the living member is fenced: {client:?}");
}
