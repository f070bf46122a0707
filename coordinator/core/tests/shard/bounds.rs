//! What hostile or broken clients can make a shard hold.

use bytes::Bytes;
use coordinator_core::Config;
use kafka_wire_core::ErrorCode;

use crate::desk::{Asking, Desk, subscription};
use crate::offsets::commit;

/// T-85: joins without an id, each from a client that never comes back.
#[test]
fn endless_joins_without_an_id_do_not_pile_up() {
    let config = Config { pending_members_max: 50, shard_pending_members_max: 120, ..Config::default() };
    let mut desk = Desk::with(config);
    let first = desk.join(4, &Asking::new("g"));
    let first = desk.joined(first).member_id;
    for _ in 0..10_000 {
        let token = desk.join(4, &Asking::new("g"));
        assert_eq!(desk.joined(token).error_code, ErrorCode::MemberIdRequired);
    }
    // The oldest made room.
    let token = desk.join(9, &Asking { id: first, ..Asking::new("g") });
    assert_eq!(desk.joined(token).error_code, ErrorCode::UnknownMemberId);
    // Over many groups there is a bound as well.
    let mut refused = 0;
    for group in 0..200 {
        let token = desk.join(4, &Asking::new(&format!("g{group}")));
        match desk.joined(token).error_code {
            ErrorCode::MemberIdRequired => {}
            ErrorCode::CoordinatorNotAvailable => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 200 - 70);
    // All of it is gone after a session time-out.
    desk.pass(10_000);
    assert_eq!(desk.shard.group_overview("g"), None);
    assert_eq!(desk.shard.group_overview("g5"), None);
    assert_eq!(desk.log.len(), 0);
}

/// T-92: the members that come last stay out, also after a take-over with a lower limit.
#[test]
fn a_full_group_takes_nobody_in() {
    let config = Config { group_max_size: 2, group_initial_rebalance_delay_ms: 10, ..Config::default() };
    let mut desk = Desk::with(config.clone());
    let waits = [desk.enter(&Asking::new("g")), desk.enter(&Asking::new("g"))];
    let token = desk.enter(&Asking::new("g"));
    assert_eq!(desk.joined(token).error_code, ErrorCode::GroupMaxSizeReached);
    desk.pass(100);
    let [a, b] = waits.map(|token| {
        let mut member = Asking::new("g");
        member.take(&desk.joined(token));
        member
    });
    let (leader, follower) = if a.leads { (a, b) } else { (b, a) };
    let token = desk.sync(&leader, &[]);
    assert_eq!(desk.synced(token).error_code, ErrorCode::None);
    let token = desk.join(4, &Asking::new("g"));
    assert_eq!(desk.joined(token).error_code, ErrorCode::GroupMaxSizeReached);

    desk.config = std::sync::Arc::new(Config { group_max_size: 1, ..config });
    desk.fail_over();
    assert_eq!(desk.beat(&leader), ErrorCode::RebalanceInProgress);
    let first = desk.join(9, &follower);
    let token = desk.join(9, &leader);
    assert_eq!(desk.joined(token).error_code, ErrorCode::GroupMaxSizeReached);
    assert_eq!(desk.joined(first).members.len(), 1);
}

#[test]
fn oversized_subscriptions_and_parts_are_refused() {
    let config =
        Config { group_metadata_bytes_max: 1_000, group_initial_rebalance_delay_ms: 0, ..Config::default() };
    let mut desk = Desk::with(config);
    let fat = |size: usize| Asking {
        protocols: vec![("range".into(), Bytes::from(vec![0; size]))],
        ..Asking::new("g")
    };
    let token = desk.enter(&fat(2_000));
    assert_eq!(desk.joined(token).error_code, ErrorCode::UnknownServerError);
    assert_eq!(desk.shard.group_overview("g"), None);
    let mut members = [fat(600)];
    desk.stable(&mut members);
    let token = desk.enter(&fat(600));
    assert_eq!(desk.joined(token).error_code, ErrorCode::UnknownServerError);
    let token = desk.join(9, &members[0]);
    let [mut member] = members;
    member.take(&desk.joined(token));
    let token = desk.sync(&member, &[(&member.id, &"x".repeat(2_000))]);
    assert_eq!(desk.synced(token).error_code, ErrorCode::UnknownServerError);
    let names = (0..65).map(|number| (format!("p{number}").into(), subscription(&[])));
    let many = Asking { protocols: names.collect(), ..Asking::new("h") };
    let token = desk.enter(&many);
    assert_eq!(desk.joined(token).error_code, ErrorCode::InconsistentGroupProtocol);
}

/// Subscriptions, parts and names, each within its bound, are together one record.
#[test]
fn a_group_that_does_not_fit_in_a_record_is_refused_alone() {
    let config = Config {
        group_metadata_bytes_max: 1_000,
        group_record_bytes_max: 1_500,
        group_initial_rebalance_delay_ms: 0,
        ..Config::default()
    };
    let mut desk = Desk::with(config);
    let mut members =
        [Asking { protocols: vec![("range".into(), Bytes::from(vec![0; 700]))], ..Asking::named("g", "a") }];
    desk.stable(&mut members);
    let before = desk.log.len();
    let named = Asking::named("g", &"x".repeat(800));
    let token = desk.enter(&named);
    assert_eq!(desk.joined(token).error_code, ErrorCode::UnknownServerError);
    let token = desk.join(9, &members[0]);
    let [mut member] = members;
    member.take(&desk.joined(token));
    let token = desk.sync(&member, &[(&member.id, &"x".repeat(900))]);
    assert_eq!(desk.synced(token).error_code, ErrorCode::UnknownServerError);
    assert_eq!(desk.log.len(), before, "neither was written");
    let token = desk.join(9, &member);
    member.take(&desk.joined(token));
    let token = desk.sync(&member, &[(&member.id, &"x".repeat(200))]);
    assert_eq!(desk.synced(token).error_code, ErrorCode::None);
}

#[test]
fn groups_and_offsets_are_bounded() {
    let config = Config { groups_max: 2, group_offsets_max: 2, ..Config::default() };
    let mut desk = Desk::with(config);
    assert_eq!(commit(&mut desk, &Asking::new("a"), "t", &[(0, 1), (1, 1)]), [ErrorCode::None; 2]);
    let full = [ErrorCode::PolicyViolation, ErrorCode::None];
    assert_eq!(commit(&mut desk, &Asking::new("a"), "t", &[(2, 1), (1, 2)]), full);
    commit(&mut desk, &Asking::new("b"), "t", &[(0, 1)]);
    assert_eq!(commit(&mut desk, &Asking::new("c"), "t", &[(0, 1)]), [ErrorCode::PolicyViolation]);
    let token = desk.enter(&Asking::new("c"));
    assert_eq!(desk.joined(token).error_code, ErrorCode::PolicyViolation);
    let token = desk.join(4, &Asking::new("b"));
    assert_eq!(desk.joined(token).error_code, ErrorCode::MemberIdRequired);
}

/// Texts that the protocol can carry and a stored record cannot.
#[test]
fn texts_that_cannot_be_stored_are_refused() {
    let mut desk = Desk::new();
    let long = "x".repeat(40_000);
    let token = desk.join(9, &Asking::new(&long));
    assert_eq!(desk.joined(token).error_code, ErrorCode::InvalidGroupId);
    assert_eq!(commit(&mut desk, &Asking::new(&long), "t", &[(0, 1)]), [ErrorCode::InvalidGroupId]);
    let token = desk.join(9, &Asking::named("g", &long));
    assert_eq!(desk.joined(token).error_code, ErrorCode::InvalidRequest);
    let token = desk.join(9, &Asking { protocol_type: long.as_str().into(), ..Asking::new("g") });
    assert_eq!(desk.joined(token).error_code, ErrorCode::InvalidRequest);
}

/// T-97: the longest time-outs that the wire can carry.
#[test]
fn extreme_time_outs_do_not_overflow() {
    let config = Config {
        group_max_session_timeout_ms: i32::MAX,
        group_initial_rebalance_delay_ms: 0,
        ..Config::default()
    };
    let mut desk = Desk::with(config);
    let mut members =
        [Asking { session_timeout_ms: i32::MAX, rebalance_timeout_ms: i32::MAX, ..Asking::new("g") }];
    desk.stable(&mut members);
    assert_eq!(desk.beat(&members[0]), ErrorCode::None);
    let negative = Asking { rebalance_timeout_ms: i32::MIN, ..Asking::new("h") };
    let token = desk.enter(&negative);
    desk.pass(0);
    assert_eq!(desk.joined(token).error_code, ErrorCode::None);
}
