//! Take-over by hand, at one log with one or two owners. Each case of the catalogue has a test with its name:
//!
//! | case | what must hold | test |
//! |---|---|---|
//! | T-76 | who was paused between decision and append writes nothing afterwards | [`a_deposed_owner_writes_nothing_and_says_so`] |
//! | T-77 | an append that was on its way at the take-over is loaded | [`a_load_reads_up_to_its_own_claim`] |
//! | T-78 | a lost answer to an append is no failure | [`an_unknown_outcome_is_settled_before_anything_is_said`] |
//! | T-79 | a shard that comes back begins anew | [`a_shard_that_comes_back_begins_anew`] |
//! | T-80a | a deposed leader of the metadata extends no lease | `a_deposed_leader_extends_no_lease_of_a_coordinator` in `controller` |
//! | T-80b | a write-back error outlives its descriptor | `a_write_back_error_is_not_lost_with_the_descriptor` in `log-engine` |
//! | T-89 | a gap in the log does not stop a load | [`a_gap_in_the_log_does_not_stop_a_load`] |
//! | T-90 | nothing is told before it is committed | [`replies_wait_for_the_high_watermark`] |
//!
//! T-80 is about transactions, which there are none yet. The simulator beside this runs T-76 to T-79 in thousands of
//! orders.

use std::sync::Arc;

use bytes::Bytes;
use coordinator_core::{
    Append, AppendOutcome, Attempt, ClaimOutcome, Completion, Config, Effect, Epoch, GroupReply,
    GroupRequest, LoadedRecord, Now, Owned, RequestContext, Resignation, ShardOwner, StoredRecord, Token,
};
use kafka_wire_core::messages::heartbeat::HeartbeatRequest;
use kafka_wire_core::messages::offset_fetch::OffsetFetchRequest;
use kafka_wire_core::messages::sync_group::SyncGroupRequest;
use kafka_wire_core::{ErrorCode, Message};
use uuid::Uuid;

use crate::desk::{Asking, Image};
use crate::offsets::commit_request;

const NOW: Now = Now { monotonic: 0, wall: 1_700_000_000_000 };

fn at(monotonic: i64) -> Now {
    Now { monotonic, wall: NOW.wall + monotonic }
}

fn config() -> Arc<Config> {
    Arc::new(Config::default())
}

fn claim(effects: &[Effect]) -> (Attempt, Epoch) {
    match effects {
        [Effect::Claim { attempt, epoch }] => (*attempt, *epoch),
        other => panic!("{other:?}"),
    }
}

fn append(effects: &[Effect]) -> (Attempt, Append) {
    match effects {
        [Effect::Append { attempt, append }] => (*attempt, append.clone()),
        other => panic!("{other:?}"),
    }
}

fn reply(effects: &[Effect]) -> &Completion {
    let mut replies = effects.iter().filter_map(|effect| match effect {
        Effect::Reply(completion) => Some(completion),
        _ => None,
    });
    let first = replies.next().unwrap_or_else(|| panic!("no reply in {effects:?}"));
    assert_eq!(replies.next(), None);
    first
}

fn as_loaded(records: &[StoredRecord], from: i64) -> Vec<LoadedRecord> {
    let records = records.iter().zip(from..);
    records
        .map(|(record, offset)| LoadedRecord {
            offset,
            key: Some(record.key.clone()),
            value: record.value.clone(),
        })
        .collect()
}

/// An owner that serves what `records` say, whose claim stands behind them.
fn serving(epoch: i64, records: &[StoredRecord]) -> (ShardOwner, Attempt) {
    let (mut owner, effects) = ShardOwner::take_over(config(), Epoch(epoch));
    let (attempt, claimed) = claim(&effects);
    assert_eq!(claimed, Epoch(epoch));
    let offset = records.len() as i64;
    let effects = owner.claimed(NOW, attempt, ClaimOutcome::Claimed { offset });
    assert_eq!(effects, [Effect::Load { attempt, from: 0, until: offset + 1 }]);
    assert_eq!(owner.status(), Owned::Loading(0, offset + 1));
    assert_eq!(owner.loaded(NOW, attempt, &as_loaded(records, 0), offset + 1), []);
    assert_eq!(owner.status(), Owned::Serving);
    (owner, attempt)
}

fn ask(owner: &mut ShardOwner, token: u64, version: i16, request: GroupRequest) -> Vec<Effect> {
    let context = RequestContext {
        token: Token(token),
        api_version: version,
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
        fresh_id: Uuid::from_u128(u128::from(token)),
    };
    owner.request(NOW, &context, &request, &Image::usual())
}

fn commit(owner: &mut ShardOwner, token: u64, offset: i64) -> Vec<Effect> {
    let request = commit_request(&Asking::new("g"), "t", &[(0, offset)]);
    ask(owner, token, 9, GroupRequest::Commit(request))
}

fn fetch(owner: &mut ShardOwner, token: u64) -> Vec<Effect> {
    let request = OffsetFetchRequest { group_id: "g".into(), topics: None, ..Default::default() };
    ask(owner, token, 7, GroupRequest::Fetch(request))
}

fn commit_code(completion: &Completion) -> ErrorCode {
    match &completion.reply {
        GroupReply::Commit(response) => response.topics[0].partitions[0].error_code,
        other => panic!("{other:?}"),
    }
}

fn fetched(completion: &Completion) -> Vec<i64> {
    match &completion.reply {
        GroupReply::Fetch(response) => {
            response.topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.committed_offset).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// T-90: nothing is told before it is committed, and reads wait for the writes that they would show.
#[test]
fn replies_wait_for_the_high_watermark() {
    let (mut owner, attempt) = serving(1, &[]);
    let (_, first) = append(&commit(&mut owner, 1, 10));
    assert_eq!((first.epoch, first.expected_end), (Epoch(1), 1));
    assert_eq!(fetch(&mut owner, 2), []);
    let effects = owner.appended(NOW, attempt, 1, AppendOutcome::Committed);
    let tokens: Vec<u64> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Reply(completion) => completion.token.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tokens, [1, 2]);
    assert_eq!(fetched(reply(&effects[1..])), [10]);
}

/// T-76: paused after deciding; meanwhile another has taken over. The append is refused, and so is who asked.
#[test]
fn a_deposed_owner_writes_nothing_and_says_so() {
    let (mut old, attempt) = serving(1, &[]);
    append(&commit(&mut old, 1, 10));
    let effects = old.appended(NOW, attempt, 1, AppendOutcome::Fenced);
    assert_eq!(commit_code(reply(&effects)), ErrorCode::NotCoordinator);
    assert_eq!(effects.last(), Some(&Effect::Resigned(Resignation::Fenced)));
    assert_eq!(old.status(), Owned::Resigned);
    assert_eq!(fetched(reply(&fetch(&mut old, 2))), Vec::<i64>::new());
    // A claim of an old epoch fares no better.
    let (mut late, effects) = ShardOwner::take_over(config(), Epoch(1));
    let (attempt, _) = claim(&effects);
    let effects = late.claimed(NOW, attempt, ClaimOutcome::Fenced);
    assert_eq!(effects, [Effect::Resigned(Resignation::Fenced)]);
}

/// T-77: an append of the former owner that was already on its way comes in before the claim, and is loaded.
#[test]
fn a_load_reads_up_to_its_own_claim() {
    let (mut old, _) = serving(1, &[]);
    let (_, late) = append(&commit(&mut old, 1, 10));
    let (mut new, effects) = ShardOwner::take_over(config(), Epoch(2));
    let (attempt, _) = claim(&effects);
    // Offset 0: the first claim; 1: the late append; 2: the second claim.
    new.claimed(NOW, attempt, ClaimOutcome::Claimed { offset: 2 });
    assert_eq!(new.loaded(NOW, attempt, &[], 1), [Effect::Load { attempt, from: 1, until: 3 }]);
    // Not yet: a request is put off.
    assert_eq!(commit_code(reply(&commit(&mut new, 2, 5))), ErrorCode::CoordinatorLoadInProgress);
    new.loaded(NOW, attempt, &as_loaded(&late.records, 1), 3);
    assert_eq!(fetched(reply(&fetch(&mut new, 3))), [10]);
}

/// T-78: the answer to an append is lost. The owner neither says that it failed nor goes on: it asks again, and if that
/// does not help, loads again behind a new claim.
#[test]
fn an_unknown_outcome_is_settled_before_anything_is_said() {
    let (mut owner, attempt) = serving(1, &[]);
    let (_, first) = append(&commit(&mut owner, 1, 10));
    assert_eq!(owner.appended(at(100), attempt, 1, AppendOutcome::Unknown), []);
    assert_eq!(owner.next_deadline(), Some(200));
    assert_eq!(append(&owner.tick(at(200))), (attempt, first.clone()));
    assert_eq!(owner.appended(at(300), attempt, 1, AppendOutcome::Unknown), []);
    let effects = owner.tick(at(5_000));
    assert_eq!(commit_code(reply(&effects)), ErrorCode::CoordinatorNotAvailable);
    let (again, epoch) = claim(&effects[1..]);
    assert_eq!((owner.status(), epoch), (Owned::Claiming, Epoch(1)));
    // Word of the old append comes too late to count.
    assert_eq!(owner.appended(at(5_001), attempt, 1, AppendOutcome::Committed), []);
    owner.claimed(at(5_002), again, ClaimOutcome::Claimed { offset: 2 });
    owner.loaded(at(5_003), again, &as_loaded(&first.records, 1), 3);
    assert_eq!(fetched(reply(&fetch(&mut owner, 2))), [10]);
    // Something stands where it wanted to append: loaded again as well.
    append(&commit(&mut owner, 3, 11));
    let effects = owner.appended(at(5_004), again, 3, AppendOutcome::Mismatch);
    assert_eq!(commit_code(reply(&effects)), ErrorCode::CoordinatorNotAvailable);
    assert!(claim(&effects[1..]).0 > again);
}

/// T-79: moved away and back; what was meant for the former load does not reach the new one.
#[test]
fn a_shard_that_comes_back_begins_anew() {
    let (mut owner, attempt) = serving(1, &[]);
    append(&commit(&mut owner, 1, 10));
    let effects = owner.resign();
    assert_eq!(commit_code(reply(&effects)), ErrorCode::NotCoordinator);
    assert_eq!(effects.last(), Some(&Effect::Resigned(Resignation::Asked)));
    assert_eq!(owner.resign(), []);
    assert_eq!(owner.appended(NOW, attempt, 1, AppendOutcome::Committed), []);
    assert_eq!((owner.tick(at(10_000)), owner.next_deadline()), (Vec::new(), None));
}

/// T-89: the end of the log is compacted away; pieces of nothing still end the load, and no progress is asked for again.
#[test]
fn a_gap_in_the_log_does_not_stop_a_load() {
    let (mut owner, effects) = ShardOwner::take_over(config(), Epoch(4));
    let (attempt, _) = claim(&effects);
    assert_eq!(owner.claimed(NOW, attempt, ClaimOutcome::Unknown), []);
    assert_eq!(claim(&owner.tick(at(100))), (attempt, Epoch(4)));
    owner.claimed(NOW, attempt, ClaimOutcome::Claimed { offset: 50 });
    assert_eq!(owner.loaded(NOW, attempt, &[], 40), [Effect::Load { attempt, from: 40, until: 51 }]);
    owner.load_failed(at(10), attempt);
    assert_eq!(owner.tick(at(109)), []);
    assert_eq!(owner.tick(at(110)), [Effect::Load { attempt, from: 40, until: 51 }]);
    assert_eq!(owner.loaded(at(111), attempt, &[], 40), []);
    assert_eq!(owner.tick(at(211)), [Effect::Load { attempt, from: 40, until: 51 }]);
    assert_eq!(owner.loaded(at(212), attempt, &[], 51), []);
    assert_eq!(owner.status(), Owned::Serving);
}

#[test]
fn damage_ends_the_owner_and_a_newer_release_does_not() {
    for (key, status) in [(&b"\0\x63"[..], Owned::Serving), (&b"\0"[..], Owned::Resigned)] {
        let (mut owner, effects) = ShardOwner::take_over(config(), Epoch(1));
        let (attempt, _) = claim(&effects);
        owner.claimed(NOW, attempt, ClaimOutcome::Claimed { offset: 1 });
        let key = Some(Bytes::from_static(key));
        let effects = owner.loaded(NOW, attempt, &[LoadedRecord { offset: 0, key, value: None }], 2);
        assert_eq!(owner.status(), status);
        if status == Owned::Resigned {
            assert_eq!(effects, [Effect::Resigned(Resignation::Damaged(0))]);
        } else {
            assert_eq!(owner.shard().map(|shard| shard.skipped_records()), Some(1));
        }
    }
}

/// Kafka's clients take LOAD_IN_PROGRESS on these for a fatal error.
#[test]
fn members_are_put_off_gently_while_the_shard_loads() {
    let (mut owner, _) = ShardOwner::take_over(config(), Epoch(1));
    let effects = ask(&mut owner, 1, 4, GroupRequest::Heartbeat(HeartbeatRequest::default()));
    let GroupReply::Heartbeat(response) = &reply(&effects).reply else { panic!() };
    assert_eq!(response.error_code, ErrorCode::None);
    let effects = ask(&mut owner, 2, 5, GroupRequest::Sync(SyncGroupRequest::default()));
    let GroupReply::Sync(response) = &reply(&effects).reply else { panic!() };
    assert_eq!(response.error_code, ErrorCode::RebalanceInProgress);
}

/// T-84: whatever is refused can be written in every version that a client may speak.
#[test]
fn every_refusal_can_be_written_in_every_version() {
    fn all<M: Message>(wrap: impl Fn(M) -> GroupRequest) {
        for version in M::VERSIONS {
            let request = wrap(M::default());
            for error in ErrorCode::ALL {
                let refused = request.refuse(version, *error);
                refused.encode(version).unwrap();
                refused.refused(version, *error).encode(version).unwrap();
            }
            request.refuse_while_loading(version).encode(version).unwrap();
        }
    }
    all(GroupRequest::Join);
    all(GroupRequest::Sync);
    all(GroupRequest::Heartbeat);
    all(GroupRequest::Leave);
    all(GroupRequest::Commit);
    all(GroupRequest::OffsetDelete);
    all(GroupRequest::Describe);
    all(GroupRequest::List);
    all(GroupRequest::DeleteGroups);
    all(GroupRequest::DescribeOffsets);
    all(GroupRequest::Fetch);
}
