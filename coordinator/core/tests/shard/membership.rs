//! Heartbeat, LeaveGroup, sessions.

use coordinator_core::{GroupReply, GroupRequest, GroupState};
use kafka_wire_core::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberIdentity};
use kafka_wire_core::{ErrorCode, Str};

use crate::desk::{Asking, Desk};

fn leave(desk: &mut Desk, version: i16, group: &str, who: &[(&Str, Option<&Str>)]) -> LeaveGroupResponse {
    let members = who.iter().map(|(id, name)| MemberIdentity {
        member_id: (*id).clone(),
        group_instance_id: name.cloned(),
        reason: None,
    });
    let request = LeaveGroupRequest {
        group_id: group.into(),
        member_id: if version < 3 { who[0].0.clone() } else { Str::default() },
        members: if version < 3 { Vec::new() } else { members.collect() },
    };
    match desk.answer(version, GroupRequest::Leave(request)) {
        GroupReply::Leave(response) => response,
        other => panic!("{other:?}"),
    }
}

#[test]
fn heartbeats_tell_kafkas_codes() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g")];
    assert_eq!(desk.beat(&Asking::new("")), ErrorCode::InvalidGroupId);
    assert_eq!(desk.beat(&members[0]), ErrorCode::UnknownMemberId);
    desk.stable(&mut members);
    let [member] = members;
    assert_eq!(desk.beat(&member), ErrorCode::None);
    let newer = Asking { generation: member.generation + 1, ..member.clone() };
    assert_eq!(desk.beat(&newer), ErrorCode::IllegalGeneration);
    let named = Asking { instance_id: Some("i".into()), ..member };
    assert_eq!(desk.beat(&named), ErrorCode::UnknownMemberId);
}

#[test]
fn who_is_silent_for_a_session_is_out() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g"), Asking::new("g")];
    desk.stable(&mut members);
    let [a, b] = members;
    desk.pass(9_999);
    assert_eq!(desk.beat(&a), ErrorCode::None);
    desk.pass(1);
    assert_eq!(desk.beat(&a), ErrorCode::RebalanceInProgress);
    assert_eq!(desk.beat(&b), ErrorCode::UnknownMemberId);
    desk.pass(10_000);
    assert_eq!(desk.shard.group_overview("g"), Some((GroupState::Empty, a.generation + 1, 0)));
    assert_eq!(desk.beat(&a), ErrorCode::UnknownMemberId);
    assert_eq!(desk.log.last().unwrap().value.as_ref().map(|value| value[1]), Some(3));
}

#[test]
fn the_last_one_to_leave_leaves_an_empty_group() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g"), Asking::new("g")];
    desk.stable(&mut members);
    let [a, b] = members;
    let response = leave(&mut desk, 5, "g", &[(&a.id, None), (&"x".into(), None)]);
    assert_eq!(response.error_code, ErrorCode::None);
    let codes: Vec<ErrorCode> = response.members.iter().map(|member| member.error_code).collect();
    assert_eq!(codes, [ErrorCode::None, ErrorCode::UnknownMemberId]);
    assert_eq!(desk.beat(&b), ErrorCode::RebalanceInProgress);
    assert_eq!(leave(&mut desk, 0, "g", &[(&"x".into(), None)]).error_code, ErrorCode::UnknownMemberId);
    assert_eq!(leave(&mut desk, 2, "g", &[(&b.id, None)]), LeaveGroupResponse::default());
    assert_eq!(desk.shard.group_overview("g"), Some((GroupState::Empty, b.generation + 1, 0)));
    assert_eq!(leave(&mut desk, 2, "x", &[(&b.id, None)]).error_code, ErrorCode::UnknownMemberId);
    // Where several can leave, each is told that there is no such group.
    let response = leave(&mut desk, 5, "x", &[(&b.id, None)]);
    assert_eq!((response.error_code, response.members.len()), (ErrorCode::None, 1));
    assert_eq!(response.members[0].error_code, ErrorCode::UnknownMemberId);
}

#[test]
fn an_operator_removes_static_members_by_name() {
    let mut desk = Desk::new();
    let mut members = [Asking::named("g", "i"), Asking::new("g")];
    desk.stable(&mut members);
    let none = Str::default();
    let codes = |response: LeaveGroupResponse| {
        response.members.iter().map(|member| member.error_code).collect::<Vec<_>>()
    };
    let who: [(&Str, Option<&Str>); 3] =
        [(&none, Some(&"j".into())), (&none, None), (&"old".into(), Some(&"i".into()))];
    let response = leave(&mut desk, 3, "g", &who);
    let expected = [ErrorCode::UnknownMemberId, ErrorCode::UnknownMemberId, ErrorCode::FencedInstanceId];
    assert_eq!(codes(response), expected);
    assert_eq!(desk.beat(&members[1]), ErrorCode::None);
    assert_eq!(codes(leave(&mut desk, 3, "g", &[(&none, Some(&"i".into()))])), [ErrorCode::None]);
    assert_eq!(desk.beat(&members[0]), ErrorCode::UnknownMemberId);
    assert_eq!(desk.beat(&members[1]), ErrorCode::RebalanceInProgress);
}

#[test]
fn a_parked_request_of_a_member_that_leaves_is_answered() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g"), Asking::new("g")];
    desk.stable(&mut members);
    let waits = desk.join(9, &members[0]);
    let parked = if desk.done.is_empty() { waits } else { desk.join(9, &members[1]) };
    let parked_id = if parked == waits { &members[0].id } else { &members[1].id }.clone();
    leave(&mut desk, 5, "g", &[(&parked_id, None)]);
    assert_eq!(desk.joined(parked).error_code, ErrorCode::UnknownMemberId);
}
