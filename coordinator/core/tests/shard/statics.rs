//! Static members (KIP-345): they keep their place through restarts, one at a time.

use kafka_wire_core::ErrorCode;

use crate::desk::{Asking, Desk, subscription};

#[test]
fn a_restart_keeps_the_place_and_fences_the_old_self() {
    let mut desk = Desk::new();
    let mut members = [Asking::named("g", "i"), Asking::new("g")];
    desk.stable(&mut members);
    let old = members[0].clone();
    let token = desk.join(8, &Asking::named("g", "i"));
    let response = desk.joined(token);
    assert_eq!((response.error_code, response.generation_id), (ErrorCode::None, old.generation));
    // A client of version 8 that leads is told the old leader's name, else it would assign.
    assert_eq!(response.leader == old.id, old.leads);
    assert!(response.members.is_empty() && !response.skip_assignment);
    assert_eq!(desk.beat(&old), ErrorCode::FencedInstanceId);
    let mut new = Asking::named("g", "i");
    new.take(&response);
    assert_eq!(desk.beat(&new), ErrorCode::None);
    let token = desk.sync(&new, &[]);
    assert_eq!(desk.synced(token).assignment, format!("part of {}", old.id));
    let token = desk.join(9, &Asking { id: old.id.clone(), ..old.clone() });
    assert_eq!(desk.joined(token).error_code, ErrorCode::FencedInstanceId);
    let token = desk.sync(&old, &[]);
    assert_eq!(desk.synced(token).error_code, ErrorCode::FencedInstanceId);
    // It is stored (T-86).
    desk.fail_over();
    assert_eq!(desk.beat(&new), ErrorCode::None);
    assert_eq!(desk.beat(&old), ErrorCode::FencedInstanceId);
    assert_eq!(desk.beat(&members[1]), ErrorCode::None);
}

#[test]
fn a_static_leader_of_version_9_is_told_not_to_assign() {
    let mut desk = Desk::new();
    let mut members = [Asking::named("g", "i")];
    desk.stable(&mut members);
    let token = desk.join(9, &Asking::named("g", "i"));
    let response = desk.joined(token);
    assert!(response.skip_assignment);
    assert_eq!((&response.leader, response.members.len()), (&response.member_id, 1));
}

#[test]
fn a_static_member_that_is_away_is_waited_for_by_session_not_by_rebalance() {
    let mut desk = Desk::new();
    let mut members = [Asking::named("g", "i"), Asking::named("g", "j")];
    for member in &mut members {
        member.session_timeout_ms = 60_000;
        member.rebalance_timeout_ms = 5_000;
    }
    desk.stable(&mut members);
    let [a, b] = members;
    let changed = Asking { protocols: vec![("range".into(), subscription(&["u"]))], ..a };
    let token = desk.join(9, &changed);
    desk.pass(5_000);
    let response = desk.joined(token);
    assert_eq!(response.error_code, ErrorCode::None);
    let mut here = changed;
    here.take(&response);
    assert!(here.leads && response.members.len() == 2);
    assert_eq!(desk.beat(&b), ErrorCode::IllegalGeneration);
}

/// A new id that is given in the middle of a rebalance survives a take-over before the rebalance is complete.
#[test]
fn a_new_id_is_stored_in_the_middle_of_a_rebalance() {
    let mut desk = Desk::new();
    let mut members = [Asking::named("g", "i"), Asking::new("g")];
    desk.stable(&mut members);
    let [old, other] = members;
    let newcomer = desk.enter(&Asking::new("g"));
    let token = desk.join(9, &Asking::named("g", "i"));
    let third = desk.join(9, &other);
    let response = desk.joined(token);
    assert_eq!(desk.joined(third).generation_id, response.generation_id);
    assert_eq!(desk.joined(newcomer).generation_id, response.generation_id);
    let mut new = Asking::named("g", "i");
    new.take(&response);
    assert_eq!(new.generation, old.generation + 1);
    desk.fail_over();
    // The generation is lost, the id is not: the living member joins again instead of being fenced.
    assert_eq!(desk.beat(&new), ErrorCode::IllegalGeneration);
    assert_eq!(desk.beat(&old), ErrorCode::FencedInstanceId);
}

/// The same for one whose session ran out, so that it came back as if for the first time.
#[test]
fn a_returning_member_is_not_fenced_by_what_was_stored_of_it() {
    let mut desk = Desk::new();
    let mut members = [Asking::named("g", "i"), Asking::new("g")];
    desk.stable(&mut members);
    let [old, other] = members;
    desk.pass(5_000);
    assert_eq!(desk.beat(&other), ErrorCode::None);
    desk.pass(5_000);
    assert_eq!(desk.beat(&old), ErrorCode::UnknownMemberId);
    let token = desk.join(9, &Asking::named("g", "i"));
    let parked = desk.join(9, &other);
    let response = desk.joined(token);
    assert_eq!(desk.joined(parked).error_code, ErrorCode::None);
    let mut new = Asking::named("g", "i");
    new.take(&response);
    desk.fail_over();
    assert_eq!(desk.beat(&new), ErrorCode::IllegalGeneration);
}
