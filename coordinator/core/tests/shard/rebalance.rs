//! JoinGroup and SyncGroup of dynamic members: phases, time-outs, codes.

use coordinator_core::{Config, GroupReply, GroupRequest, GroupState};
use kafka_wire_core::ErrorCode;

use crate::desk::{Asking, Desk, subscription};

#[test]
fn a_new_member_gets_its_id_first_and_then_joins() {
    let mut desk = Desk::new();
    let mut member = Asking::new("g");
    let token = desk.join(4, &member);
    let response = desk.joined(token);
    assert_eq!(response.error_code, ErrorCode::MemberIdRequired);
    assert_eq!(response.member_id, "c-00000000-0000-0000-0000-000000000001");
    member.id = response.member_id;
    let token = desk.join(9, &member);
    desk.pass(0);
    let response = desk.joined(token);
    assert_eq!((response.error_code, response.generation_id), (ErrorCode::None, 1));
    assert_eq!((&response.leader, response.members.len()), (&member.id, 1));
    assert_eq!(response.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(response.protocol_name.as_deref(), Some("range"));
    // Before version 4 it is in at once.
    let token = desk.join(3, &Asking::new("h"));
    desk.pass(0);
    assert_eq!(desk.joined(token).generation_id, 1);
}

#[test]
fn joins_are_refused_with_kafkas_codes() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g")];
    desk.stable(&mut members);
    let known = members[0].clone();
    let mut refused = |member: Asking| {
        let token = desk.join(9, &member);
        let response = desk.joined(token);
        (response.error_code, response.member_id)
    };
    let new = Asking::new("g");
    let nobody = || Asking { id: "x".into(), ..new.clone() };
    let code = |error: ErrorCode, id: &str| (error, id.into());
    assert_eq!(refused(Asking::new("")), code(ErrorCode::InvalidGroupId, ""));
    let short = Asking { session_timeout_ms: 5_999, ..new.clone() };
    assert_eq!(refused(short), code(ErrorCode::InvalidSessionTimeout, ""));
    let long = Asking { session_timeout_ms: i32::MAX, ..nobody() };
    assert_eq!(refused(long), code(ErrorCode::InvalidSessionTimeout, "x"));
    assert_eq!(refused(nobody()), code(ErrorCode::UnknownMemberId, "x"));
    let elsewhere = Asking { group: "unknown".into(), ..nobody() };
    assert_eq!(refused(elsewhere), code(ErrorCode::UnknownMemberId, "x"));
    let connect = Asking { protocol_type: "connect".into(), ..new.clone() };
    assert_eq!(refused(connect), code(ErrorCode::InconsistentGroupProtocol, ""));
    let other = Asking { protocols: vec![("sticky".into(), subscription(&[]))], ..known };
    // Its own old protocol does not bind the only member, but it is what the group speaks.
    assert_eq!(refused(other).0, ErrorCode::InconsistentGroupProtocol);
    let mute = Asking { group: "new".into(), protocols: Vec::new(), ..new.clone() };
    assert_eq!(refused(mute), code(ErrorCode::InconsistentGroupProtocol, ""));
    let untyped = Asking { group: "new".into(), protocol_type: "".into(), ..new };
    assert_eq!(refused(untyped), code(ErrorCode::InconsistentGroupProtocol, ""));
    assert_eq!(desk.shard.group_overview("new"), None);
}

#[test]
fn the_first_rebalance_gathers_for_a_while() {
    let config = Config { group_initial_rebalance_delay_ms: 3_000, ..Config::default() };
    let mut desk = Desk::with(config);
    let member = Asking { rebalance_timeout_ms: 5_000, ..Asking::new("g") };
    let first = desk.enter(&member);
    desk.pass(2_000);
    let second = desk.enter(&member);
    // Somebody came: the delay begins again, but not beyond the rebalance time-out.
    desk.pass(1_000);
    assert!(desk.done.is_empty());
    let third = desk.enter(&member);
    desk.pass(1_999);
    assert!(desk.done.is_empty());
    desk.pass(1);
    for token in [first, second, third] {
        assert_eq!(desk.joined(token).generation_id, 1);
    }
    assert_eq!(desk.shard.group_overview("g"), Some((GroupState::CompletingRebalance, 1, 3)));
}

#[test]
fn members_vote_for_a_protocol_that_all_speak() {
    let mut desk = Desk::with(Config { group_initial_rebalance_delay_ms: 10, ..Config::default() });
    let speaks = |names: &[&str]| Asking {
        protocols: names.iter().map(|name| ((*name).into(), subscription(&["t"]))).collect(),
        ..Asking::new("g")
    };
    let tokens = [
        desk.enter(&speaks(&["a", "b", "c"])),
        desk.enter(&speaks(&["c", "b"])),
        desk.enter(&speaks(&["b", "c", "b"])),
    ];
    desk.pass(100);
    let votes = tokens.map(|token| desk.joined(token).protocol_name);
    assert_eq!(votes, [Some("b".into()), Some("b".into()), Some("b".into())]);
    let token = desk.enter(&speaks(&["a"]));
    assert_eq!(desk.joined(token).error_code, ErrorCode::InconsistentGroupProtocol);
}

#[test]
fn the_leader_assigns_and_everybody_gets_a_part() {
    let mut desk = Desk::with(Config { group_initial_rebalance_delay_ms: 10, ..Config::default() });
    let mut members = [Asking::new("g"), Asking::new("g")];
    let tokens = [desk.enter(&members[0]), desk.enter(&members[1])];
    desk.pass(100);
    for (member, token) in members.iter_mut().zip(tokens) {
        let response = desk.joined(token);
        assert_eq!(response.members.len(), if response.leader == response.member_id { 2 } else { 0 });
        member.take(&response);
    }
    members.sort_by_key(|member| !member.leads);
    let [leader, follower] = &members;
    let waits = desk.sync(follower, &[]);
    assert!(desk.done.is_empty());
    assert_eq!(desk.log.len(), 0);
    let leads = desk.sync(leader, &[(&follower.id, "f")]);
    assert_eq!(desk.log.len(), 1);
    let synced = desk.synced(waits);
    assert_eq!((synced.error_code, &synced.assignment[..]), (ErrorCode::None, &b"f"[..]));
    assert_eq!(synced.protocol_name.as_deref(), Some("range"));
    // Whom the leader forgot gets an empty part.
    assert_eq!(&desk.synced(leads).assignment[..], b"");
    // Asked again, the same.
    let again = desk.sync(follower, &[]);
    assert_eq!(&desk.synced(again).assignment[..], b"f");
    let mut stale = follower.clone();
    stale.generation -= 1;
    let token = desk.sync(&stale, &[]);
    assert_eq!(desk.synced(token).error_code, ErrorCode::IllegalGeneration);
    let mut request = follower.sync(&[]);
    request.protocol_name = Some("sticky".into());
    match desk.answer(5, GroupRequest::Sync(request)) {
        GroupReply::Sync(response) => {
            assert_eq!(response.error_code, ErrorCode::InconsistentGroupProtocol);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rebalance_waits_for_members_and_drops_who_does_not_come() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g"), Asking::new("g")];
    desk.stable(&mut members);
    let [a, b] = members;
    let new = desk.enter(&Asking::new("g"));
    assert_eq!(desk.beat(&a), ErrorCode::RebalanceInProgress);
    let token = desk.sync(&a, &[]);
    assert_eq!(desk.synced(token).error_code, ErrorCode::RebalanceInProgress);
    let again = desk.join(9, &a);
    // b sends heartbeats, but does not join.
    for _ in 0..5 {
        desk.pass(5_000);
        assert_eq!(desk.beat(&b), ErrorCode::RebalanceInProgress);
    }
    assert!(desk.done.is_empty());
    desk.pass(5_000);
    let generation = desk.joined(again).generation_id;
    assert_eq!(desk.joined(new).generation_id, generation);
    assert_eq!(generation, a.generation + 1);
    assert_eq!(desk.beat(&b), ErrorCode::UnknownMemberId);
    assert_eq!(desk.beat(&a), ErrorCode::IllegalGeneration);
}

#[test]
fn a_member_that_missed_the_answer_gets_it_again() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g"), Asking::new("g")];
    desk.stable(&mut members);
    members.sort_by_key(|member| !member.leads);
    let [leader, follower] = members;
    // Stable: the same subscription of a follower changes nothing, of the leader it begins a rebalance.
    let token = desk.join(9, &follower);
    let response = desk.joined(token);
    assert_eq!((response.error_code, response.generation_id), (ErrorCode::None, follower.generation));
    let waits = desk.join(9, &leader);
    assert!(desk.done.is_empty());
    let token = desk.join(9, &follower);
    let generation = follower.generation + 1;
    assert_eq!(desk.joined(token).generation_id, generation);
    assert_eq!(desk.joined(waits).generation_id, generation);
    // Completing: the same subscription is answered with the generation, to the leader with all members.
    let token = desk.join(9, &leader);
    let response = desk.joined(token);
    assert_eq!((response.generation_id, response.members.len()), (generation, 2));
    // Another subscription begins a rebalance.
    let changed = Asking { protocols: vec![("range".into(), subscription(&["u"]))], ..follower };
    let waits = desk.join(9, &changed);
    assert!(desk.done.is_empty());
    let token = desk.join(9, &leader);
    assert_eq!(desk.joined(token).generation_id, generation + 1);
    assert_eq!(desk.joined(waits).generation_id, generation + 1);
}

/// T-83: the leader, a follower, a pending member never come back; the group goes on.
#[test]
fn nobody_can_hold_a_group_up() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g"), Asking::new("g")];
    desk.stable(&mut members);
    members.sort_by_key(|member| !member.leads);
    let [leader, follower] = members;
    let waits = [desk.join(9, &leader), desk.join(9, &follower)];
    let mut follower = follower;
    follower.take(&desk.joined(waits[1]));
    let syncs = desk.sync(&follower, &[]);
    // The leader lives, but never assigns: it is out when the rebalance time-out is over.
    let mut silent = leader;
    silent.take(&desk.joined(waits[0]));
    for _ in 0..6 {
        assert_eq!(desk.beat(&silent), ErrorCode::None);
        desk.pass(5_000);
    }
    assert_eq!(desk.synced(syncs).error_code, ErrorCode::RebalanceInProgress);
    assert_eq!(desk.beat(&silent), ErrorCode::UnknownMemberId);
    let token = desk.join(4, &Asking::new("g"));
    assert_eq!(desk.joined(token).error_code, ErrorCode::MemberIdRequired);
    // Who was given an id is waited for, until its session is over.
    let token = desk.join(9, &follower);
    assert!(desk.done.is_empty());
    desk.pass(10_000);
    let response = desk.joined(token);
    assert_eq!((response.error_code, response.members.len()), (ErrorCode::None, 1));
}

/// T-88: heartbeats keep a member alive through a long assignment.
#[test]
fn a_slow_leader_costs_nobody_the_membership() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g"), Asking::new("g")];
    for member in &mut members {
        member.rebalance_timeout_ms = 90_000;
    }
    desk.stable(&mut members);
    members.sort_by_key(|member| !member.leads);
    let waits = [desk.join(9, &members[0]), desk.join(9, &members[1])];
    for (member, token) in members.iter_mut().zip(waits) {
        member.take(&desk.joined(token));
    }
    let [leader, follower] = members;
    let syncs = desk.sync(&follower, &[]);
    for _ in 0..12 {
        desk.pass(5_000);
        assert_eq!(desk.beat(&leader), ErrorCode::None);
    }
    let token = desk.sync(&leader, &[(&follower.id, "f")]);
    assert_eq!(desk.synced(token).error_code, ErrorCode::None);
    assert_eq!(&desk.synced(syncs).assignment[..], b"f");
}
