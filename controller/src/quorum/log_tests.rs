//! The log store under openraft's own suite, and under crashes, bit flips and cuts of its files.

use super::disk::system_disk;
use super::log_files::LogFiles;
use super::log_store::{LogReader, LogStore};
use super::snapshot_files::SnapshotFiles;
use super::state_machine::StateMachine;
use super::store_error::StoreError;
use super::stored::{DiskKind, StoredEntry, StoredLogId, StoredPayload, StoredVote, seal};
use super::type_config::TypeConfig;
use crate::change_feed::ChangeRing;
use controller_core::Chance;
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use proto_types::feature::LevelRange;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SEGMENT_BYTES: u64 = 300;

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().expect("temp dir");
        let files = LogFiles::create(&system_disk(), dir.path(), SEGMENT_BYTES).expect("created");
        let (store, _thread) = LogStore::start(files);
        let snapshots = SnapshotFiles::open(&system_disk(), dir.path()).expect("opened");
        let (machine, _view) =
            StateMachine::new(snapshots, ChangeRing::new(100), LevelRange::of_this_build());
        Ok((dir, store, machine))
    }
}

/// T-44: what a store must do about a snapshot that comes over entries, as raft's authors test it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_suite() {
    Suite::<TypeConfig, LogStore, StateMachine, Builder, TempDir>::test_all(Builder).await.expect("passes");
    fn is_clone<T: Clone>() {}
    is_clone::<LogReader>();
}

fn id(index: u64) -> StoredLogId {
    StoredLogId { term: 1 + index / 10, node: 1, index }
}

fn entry(index: u64) -> StoredEntry {
    StoredEntry { id: id(index), payload: StoredPayload::Blank }
}

fn append(log: &mut LogFiles, indexes: std::ops::Range<u64>) -> Result<(), StoreError> {
    let ids: Vec<StoredLogId> = indexes.clone().map(id).collect();
    let payloads: Vec<Vec<u8>> = indexes.map(|index| seal(DiskKind::Entry, &entry(index))).collect();
    log.append(&ids, &payloads)
}

fn indexes(log: &LogFiles) -> Vec<u64> {
    (0..log.next())
        .filter_map(|index| log.read(index).expect("readable"))
        .map(|(entry, _)| entry.id.index)
        .collect()
}

/// A log with entries 0..40 in several files, synced, with a vote.
fn filled() -> (TempDir, LogFiles) {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut log = LogFiles::create(&system_disk(), dir.path(), SEGMENT_BYTES).expect("created");
    log.save_vote(StoredVote { term: 5, node: 1, committed: true }).expect("saved");
    append(&mut log, 0..40).expect("appended");
    log.sync().expect("synced");
    (dir, log)
}

fn open(dir: &Path) -> Result<LogFiles, StoreError> {
    LogFiles::open(&system_disk(), dir, SEGMENT_BYTES)
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir.join("log"))
        .expect("listed")
        .map(|entry| entry.expect("listed").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn everything_is_there_after_a_restart() {
    let (dir, mut log) = filled();
    log.save_committed(Some(id(30))).expect("saved");
    let segments_before = segments(dir.path()).len();
    assert!(segments_before > 2, "the log is in several files");
    drop(log);
    let mut log = open(dir.path()).expect("opened");
    assert_eq!(indexes(&log), (0..40).collect::<Vec<_>>());
    assert_eq!(log.vote(), Some(StoredVote { term: 5, node: 1, committed: true }));
    assert_eq!(log.progress().committed, Some(id(30)));
    assert_eq!(log.last(), Some(id(39)));

    log.purge(id(20)).expect("purged");
    assert_eq!(indexes(&log), (21..40).collect::<Vec<_>>());
    assert!(segments(dir.path()).len() < segments_before, "purged files are gone");
    log.truncate(25).expect("truncated");
    append(&mut log, 25..27).expect("appended");
    log.sync().expect("synced");
    drop(log);
    let mut log = open(dir.path()).expect("opened");
    assert_eq!(indexes(&log), (21..27).collect::<Vec<_>>());
    log.save_vote(StoredVote { term: 6, node: 1, committed: true }).expect("saved");
    log.purge(id(50)).expect("purged beyond the end, as after a snapshot");
    assert_eq!((log.last(), log.next()), (Some(id(50)), 51));
    drop(log);
    let mut log = open(dir.path()).expect("opened");
    assert_eq!((log.last(), log.next()), (Some(id(50)), 51));
    append(&mut log, 51..53).expect("appended");
    assert_eq!(indexes(&log), [51, 52]);
    assert!(append(&mut log, 60..61).is_err(), "a gap is refused");
}

#[test]
fn a_torn_end_beyond_the_last_sync_is_cut() {
    let (dir, mut log) = filled();
    let path = segments(dir.path()).pop().expect("there");
    let synced = std::fs::metadata(&path).expect("there").len() as usize;
    append(&mut log, 40..42).expect("appended");
    drop(log);
    let whole = std::fs::read(&path).expect("read");
    assert!(whole.len() > synced);
    for length in synced..whole.len() {
        std::fs::write(&path, &whole[..length]).expect("write");
        let log = open(dir.path()).expect("a short file is a torn end");
        assert!(log.next() >= 40 && indexes(&log).len() as u64 == log.next(), "cut at {length}");
        drop(log);
        let mut zeros = whole[..length].to_vec();
        zeros.resize(whole.len(), 0);
        std::fs::write(&path, &zeros).expect("write");
        // Within one sector a prefix is not how a lost write looks, but zeros to the end of the record may be.
        match open(dir.path()) {
            Ok(log) => assert!(log.next() >= 40, "zeros from {length}"),
            Err(error) => assert!(matches!(error, StoreError::Damaged { .. })),
        }
    }
    let mut lost = whole[..synced].to_vec();
    lost.resize(synced + 4096, 0);
    std::fs::write(&path, &lost).expect("write");
    assert_eq!(open(dir.path()).expect("zeros are a torn end").next(), 40);
}

/// T-47, of the log.
#[test]
fn every_bit_flip_in_a_synced_record_is_damage() {
    let (dir, log) = filled();
    drop(log);
    for path in segments(dir.path()) {
        let whole = std::fs::read(&path).expect("read");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            std::fs::write(&path, &bytes).expect("write");
            match open(dir.path()) {
                Err(StoreError::Damaged { .. }) => {}
                other => panic!("flip at byte {at} of {}: {other:?}", path.display()),
            }
        }
        std::fs::write(&path, &whole).expect("write");
    }
    assert_eq!(open(dir.path()).expect("whole again").next(), 40);
}

/// T-47, T-51: files of the log that are cut or gone.
#[test]
fn cuts_and_lost_files_below_the_last_sync_are_damage() {
    let (dir, log) = filled();
    drop(log);
    let all = segments(dir.path());
    for path in &all {
        let whole = std::fs::read(path).expect("read");
        for length in 0..whole.len() {
            std::fs::write(path, &whole[..length]).expect("write");
            let outcome = open(dir.path());
            assert!(matches!(outcome, Err(StoreError::Damaged { .. })), "{} cut to {length}", path.display());
            // The check itself may have cut a torn-looking end off; put everything back.
            std::fs::write(path, &whole).expect("write");
        }
        std::fs::remove_file(path).expect("removed");
        assert!(matches!(open(dir.path()), Err(StoreError::Damaged { .. })), "{} is gone", path.display());
        std::fs::write(path, &whole).expect("write");
    }
    for name in ["vote", "voted", "progress"] {
        let path = dir.path().join(name);
        let whole = std::fs::read(&path).expect("read");
        std::fs::write(&path, b"").expect("write");
        assert!(matches!(open(dir.path()), Err(StoreError::Damaged { .. })), "{name} is empty");
        std::fs::remove_file(&path).expect("removed");
        // An older version of the program has none of those that only tell a bound of the vote.
        assert_eq!(open(dir.path()).is_err(), name != "voted", "{name} is gone");
        std::fs::write(&path, &whole).expect("write");
    }
    let stranger = dir.path().join("log").join("notes.txt");
    std::fs::write(&stranger, b"x").expect("write");
    assert!(open(dir.path()).is_err(), "a stranger's file");
    std::fs::remove_file(stranger).expect("removed");
    open(dir.path()).expect("whole again");
    assert!(
        LogFiles::create(&system_disk(), dir.path(), SEGMENT_BYTES).is_err(),
        "a log with entries is not made anew"
    );
}

/// With it the controller could vote once more in a term in which it has voted.
#[test]
fn an_older_vote_is_damage_where_the_log_or_the_bound_tells_of_a_later_one() {
    let vote = |term| StoredVote { term, node: 1, committed: false };
    for appends in [false, true] {
        let dir = tempfile::tempdir().expect("temp dir");
        let [path, bound] = ["vote", "voted"].map(|name| dir.path().join(name));
        let mut log = LogFiles::create(&system_disk(), dir.path(), SEGMENT_BYTES).expect("created");
        log.save_vote(vote(2)).expect("saved");
        let older = std::fs::read(&path).expect("read");
        log.save_vote(vote(4)).expect("saved");
        if appends {
            append(&mut log, 0..35).expect("appended");
            log.sync().expect("synced");
            // The entries tell it alone.
            std::fs::remove_file(&bound).expect("removed");
        }
        drop(log);
        let newer = std::fs::read(&path).expect("read");
        assert_eq!(open(dir.path()).expect("whole").vote(), Some(vote(4)));
        std::fs::write(&path, older).expect("write");
        if appends {
            std::fs::remove_file(&bound).expect("removed");
        }
        let error = open(dir.path()).expect_err("an older one").to_string();
        assert!(error.contains("vote") && error.contains("term 4"), "{error}");
        std::fs::write(&path, newer).expect("write");
        assert_eq!(open(dir.path()).expect("whole again").vote(), Some(vote(4)));
    }
}

/// Random work against a model, reopened now and then.
#[test]
fn random_work_equals_its_model() {
    let seeds: Vec<u64> = match std::env::var("WEIR_SEED") {
        Ok(seed) => vec![seed.parse().expect("WEIR_SEED is a number")],
        Err(_) => (0..20).collect(),
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| random_work(seed));
        assert!(outcome.is_ok(), "repeat with: WEIR_SEED={seed} cargo test -p controller random_work");
    }
}

fn random_work(seed: u64) {
    let mut chance = Chance::new(u128::from(seed));
    let dir = tempfile::tempdir().expect("temp dir");
    let mut log = LogFiles::create(&system_disk(), dir.path(), SEGMENT_BYTES).expect("created");
    let (mut first, mut next) = (0_u64, 0_u64);
    for _ in 0..120 {
        match chance.below(6) {
            0..=2 => {
                let count = chance.below(8) as u64;
                log.save_vote(StoredVote { term: id(next + count).term, node: 1, committed: true })
                    .expect("saved");
                append(&mut log, next..next + count).expect("appended");
                log.sync().expect("synced");
                next += count;
            }
            3 if next > first => {
                next = first + chance.below((next - first) as usize) as u64;
                log.truncate(next).expect("truncated");
            }
            4 if next > first => {
                let upto = first + chance.below((next - first) as usize) as u64;
                log.purge(id(upto)).expect("purged");
                first = upto + 1;
            }
            _ => {
                drop(log);
                log = open(dir.path()).expect("opened");
            }
        }
        assert_eq!(log.next(), next);
        assert_eq!(indexes(&log), (first..next).collect::<Vec<_>>());
        assert_eq!(log.last(), next.checked_sub(1).map(id));
    }
}
