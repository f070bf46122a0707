//! DescribeGroups, ListGroups, DeleteGroups.

use coordinator_core::{GroupReply, GroupRequest};
use kafka_wire_core::messages::delete_groups::DeleteGroupsRequest;
use kafka_wire_core::messages::describe_groups::{DescribeGroupsRequest, DescribedGroup};
use kafka_wire_core::messages::list_groups::ListGroupsRequest;
use kafka_wire_core::{ErrorCode, Str};

use crate::desk::{Asking, Desk, subscription};
use crate::offsets::{commit, offsets};

fn describe(desk: &mut Desk, version: i16, group: &str) -> DescribedGroup {
    let request = DescribeGroupsRequest { groups: vec![group.into()], include_authorized_operations: false };
    match desk.answer(version, GroupRequest::Describe(request)) {
        GroupReply::Describe(mut response) => response.groups.remove(0),
        other => panic!("{other:?}"),
    }
}

fn list(desk: &mut Desk, states: &[&str], types: &[&str]) -> Vec<(Str, Str, Str, Str)> {
    let request = ListGroupsRequest {
        states_filter: states.iter().map(|state| (*state).into()).collect(),
        types_filter: types.iter().map(|kind| (*kind).into()).collect(),
    };
    match desk.answer(5, GroupRequest::List(request)) {
        GroupReply::List(response) => {
            let groups = response.groups.into_iter();
            groups.map(|g| (g.group_id, g.protocol_type, g.group_state, g.group_type)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_are_described_and_listed() {
    let mut desk = Desk::new();
    let mut members = [Asking::named("stable", "i")];
    desk.stable(&mut members);
    commit(&mut desk, &Asking::new("offsets"), "t", &[(0, 1)]);
    desk.enter(&Asking::new("joining"));

    let group = describe(&mut desk, 6, "stable");
    let state = (&*group.group_state, &*group.protocol_type, &*group.protocol_data);
    assert_eq!((group.error_code, state), (ErrorCode::None, ("Stable", "consumer", "range")));
    let member = &group.members[0];
    assert_eq!((&member.member_id, member.group_instance_id.as_deref()), (&members[0].id, Some("i")));
    assert_eq!((&*member.client_id, &*member.client_host), ("c", "/127.0.0.1"));
    assert_eq!(member.member_metadata, subscription(&["t"]));
    assert_eq!(member.member_assignment, format!("part of {}", members[0].id));

    let group = describe(&mut desk, 6, "joining");
    assert_eq!((&*group.group_state, &*group.protocol_data), ("PreparingRebalance", ""));
    assert!(group.members[0].member_metadata.is_empty());
    let group = describe(&mut desk, 6, "offsets");
    assert_eq!((&*group.group_state, &*group.protocol_type), ("Empty", ""));

    let group = describe(&mut desk, 5, "none");
    assert_eq!((group.error_code, &*group.group_state), (ErrorCode::None, "Dead"));
    let group = describe(&mut desk, 6, "none");
    assert_eq!((group.error_code, &*group.group_state), (ErrorCode::GroupIdNotFound, "Dead"));
    assert_eq!(group.error_message.as_deref(), Some("Group none not found."));

    let row = |id: &str, kind: &str, state: &str| (id.into(), kind.into(), state.into(), "classic".into());
    let all = [
        row("joining", "consumer", "PreparingRebalance"),
        row("offsets", "", "Empty"),
        row("stable", "consumer", "Stable"),
    ];
    assert_eq!(list(&mut desk, &[], &[]), all);
    assert_eq!(list(&mut desk, &["stable", "EMPTY"], &["Classic"]), all[1..]);
    assert_eq!(list(&mut desk, &[], &["consumer"]), []);
    assert_eq!(list(&mut desk, &["nonsense"], &[]), []);
}

#[test]
fn only_groups_without_members_are_deleted() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("busy")];
    desk.stable(&mut members);
    commit(&mut desk, &members[0], "t", &[(0, 1)]);
    commit(&mut desk, &Asking::new("idle"), "t", &[(0, 1), (1, 2)]);
    let names = ["busy", "idle", "none"];
    let request = DeleteGroupsRequest { groups_names: names.iter().map(|name| (*name).into()).collect() };
    let GroupReply::DeleteGroups(response) = desk.answer(2, GroupRequest::DeleteGroups(request.clone()))
    else {
        panic!()
    };
    let codes: Vec<ErrorCode> = response.results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [ErrorCode::NonEmptyGroup, ErrorCode::None, ErrorCode::GroupIdNotFound]);
    assert_eq!(offsets(&mut desk, "idle"), []);
    desk.fail_over();
    assert_eq!(offsets(&mut desk, "idle"), []);
    assert_eq!(offsets(&mut desk, "busy"), [("t".to_owned(), 0, 1)]);
    desk.pass(10_000);
    let GroupReply::DeleteGroups(response) = desk.answer(2, GroupRequest::DeleteGroups(request)) else {
        panic!()
    };
    assert_eq!(response.results[0].error_code, ErrorCode::None);
    assert_eq!(list(&mut desk, &[], &[]), []);
}
