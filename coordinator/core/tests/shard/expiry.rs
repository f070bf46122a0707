//! Expiry of offsets and groups (KIP-211), T-81 and T-82.

use coordinator_core::Config;
use kafka_wire_core::ErrorCode;

use crate::desk::{Asking, Desk, WALL, subscription};
use crate::offsets::{codes, commit, commit_request, offsets};

const MINUTE: i64 = 60_000;
const RETENTION: i64 = 60 * MINUTE;

fn desk() -> Desk {
    Desk::with(Config {
        offsets_retention_ms: RETENTION,
        offsets_retention_check_interval_ms: MINUTE,
        expiry_turn_max: 3,
        group_initial_rebalance_delay_ms: 0,
        ..Config::default()
    })
}

#[test]
fn offsets_without_members_expire_by_their_commit() {
    let mut desk = desk();
    let alone = Asking::new("g");
    commit(&mut desk, &alone, "t", &[(0, 1), (1, 1), (2, 1), (3, 1)]);
    desk.pass(10 * MINUTE);
    commit(&mut desk, &alone, "u", &[(0, 2)]);
    desk.pass(RETENTION - 10 * MINUTE - 1);
    assert_eq!(offsets(&mut desk, "g").len(), 5);
    desk.pass(2 * MINUTE);
    assert_eq!(offsets(&mut desk, "g"), [("u".to_owned(), 0, 2)]);
    desk.pass(10 * MINUTE);
    assert_eq!(desk.shard.group_overview("g"), None);
    desk.fail_over();
    assert_eq!(desk.shard.group_overview("g"), None);
}

#[test]
fn a_group_keeps_its_offsets_until_long_after_its_last_member() {
    let mut desk = desk();
    let mut members = [Asking { session_timeout_ms: 30 * MINUTE as i32, ..Asking::new("g") }];
    desk.stable(&mut members);
    let [member] = members;
    commit(&mut desk, &member, "t", &[(0, 1)]);
    commit(&mut desk, &member, "u", &[(0, 1)]);
    for _ in 0..5 {
        desk.pass(20 * MINUTE);
        assert_eq!(desk.beat(&member), ErrorCode::None);
    }
    // Stable: what is subscribed stays, however old; the rest goes.
    assert_eq!(offsets(&mut desk, "g"), [("t".to_owned(), 0, 1)]);
    // In a rebalance nothing goes.
    commit(&mut desk, &member, "u", &[(0, 1)]);
    desk.join(4, &Asking { protocols: vec![("range".into(), subscription(&["u"]))], ..Asking::new("g") });
    desk.pass(30 * MINUTE);
    assert_eq!(desk.beat(&member), ErrorCode::UnknownMemberId);
    // Empty: counted from when the last member went, also by the next coordinator.
    desk.pass(RETENTION / 2);
    desk.fail_over();
    assert_eq!(offsets(&mut desk, "g").len(), 2);
    desk.pass(RETENTION / 2 + 2 * MINUTE);
    assert_eq!(offsets(&mut desk, "g"), []);
    assert_eq!(desk.shard.group_overview("g"), None);
}

#[test]
fn a_commit_with_a_retention_of_its_own_expires_by_it() {
    let mut desk = desk();
    let mut request = commit_request(&Asking::new("g"), "t", &[(0, 1)]);
    request.retention_time_ms = 5 * MINUTE;
    assert_eq!(codes(&mut desk, 4, request), [ErrorCode::None]);
    commit(&mut desk, &Asking::new("g"), "t", &[(1, 1)]);
    desk.fail_over();
    desk.pass(5 * MINUTE - 1);
    assert_eq!(offsets(&mut desk, "g").len(), 2);
    desk.pass(2 * MINUTE);
    assert_eq!(offsets(&mut desk, "g"), [("t".to_owned(), 1, 1)]);
    assert_eq!(desk.time().wall, WALL + desk.now);
}

/// Thousands of offsets go in many small turns, not in one append that no log would take.
#[test]
fn expiry_works_in_small_turns() {
    let mut desk = desk();
    desk.image.topics.insert("wide".to_owned(), (9, 100));
    let all: Vec<(i32, i64)> = (0..100).map(|partition| (partition, 1)).collect();
    commit(&mut desk, &Asking::new("g"), "wide", &all);
    desk.now = RETENTION;
    let mut turns = 0;
    while let Some(decision) = desk.shard.tick(desk.time()) {
        assert!(decision.records.len() <= 4);
        desk.take_in(decision);
        desk.now += 1;
        turns += 1;
    }
    assert!(turns >= 33);
    assert_eq!(desk.shard.group_overview("g"), None);
}
