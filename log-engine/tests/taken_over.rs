//! Logs that Apache Kafka wrote and compacted: whose segments may end before the next one begins.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine::inspect::{Severity, verify_log};
use log_engine::{
    DataDir, DataDirOptions, Disk, Log, LogConfig, LogName, OpenError, OpenMode, RecoveryReport, SimDisk,
};
use records::{BatchBuilder, BatchHeader, batches};
use uuid::Uuid;

const NAME: LogName = LogName { topic_id: Uuid::from_u128(77), partition: 4 };
const NOW: i64 = 1_700_000_000_000;
/// What the segments that Kafka left hold: base offset, and the offsets of the batches, each of one record. The first and the
/// third have lost their ends to the cleaner, the second its beginning, the fourth everything.
const SEGMENTS: [(i64, &[i64]); 6] =
    [(0, &[0, 3, 7]), (10, &[12, 13, 19]), (20, &[21, 25]), (30, &[]), (40, &[40, 41, 49]), (50, &[50, 51])];
const END: i64 = 52;

fn open_dir(disk: &Arc<SimDisk>) -> Result<DataDir, log_engine::DataDirError> {
    let options = DataDirOptions {
        cluster_id: "c1".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(9),
        descriptors_max: 6,
    };
    DataDir::open(disk.clone(), Path::new("data"), &options)
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 4000, index_interval_bytes: 200, ..LogConfig::default() }
}

fn dir() -> PathBuf {
    Path::new("data").join(NAME.to_string())
}

fn path(base: i64, suffix: &str) -> PathBuf {
    dir().join(format!("{base:020}.{suffix}"))
}

fn mark() -> PathBuf {
    dir().join("partition.metadata")
}

fn batch(offset: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new().base_offset(offset).leader_epoch(3);
    builder.push(NOW + offset, Some(&offset.to_be_bytes()), Some(&[7; 100]), &[]).unwrap();
    builder.build()
}

fn write(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::CreateOrEmpty).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn exists(disk: &SimDisk, path: &Path) -> bool {
    disk.open(path, OpenMode::Read).is_ok()
}

fn segment(offsets: &[i64]) -> Vec<u8> {
    offsets.iter().flat_map(|&offset| batch(offset)).collect()
}

/// What Kafka left, in place of a log of ours of one record, which the directory knows to be flushed.
fn handed_over() -> Arc<SimDisk> {
    let disk = SimDisk::new(1);
    let data = open_dir(&disk).unwrap();
    let (mut log, _) = Log::open(&data, NAME, config(), NOW).unwrap();
    let bytes = batch(0);
    log.append(&bytes, &[BatchHeader::parse(&bytes).unwrap()], NOW).unwrap();
    log.close().unwrap();
    data.close_clean().unwrap();
    drop(data);
    for entry in disk.list(&dir()).unwrap() {
        disk.remove_file(&dir().join(entry.name)).unwrap();
    }
    for (base, offsets) in SEGMENTS {
        write(&disk, &path(base, "log"), &segment(offsets));
        // As large as Kafka makes them.
        write(&disk, &path(base, "index"), &[0; 8000]);
        write(&disk, &path(base, "timeindex"), &[0; 12_000]);
    }
    write(&disk, &mark(), b"version: 0\ntopic_id: FjPmJ2wmTyWP5pJ0bUuB2Q");
    disk.sync_dir(&dir()).unwrap();
    disk.sync_dir(Path::new("data")).unwrap();
    disk.restart();
    disk
}

fn open(disk: &Arc<SimDisk>) -> (DataDir, Log, RecoveryReport) {
    let data = open_dir(disk).unwrap();
    let (log, report) = Log::open(&data, NAME, config(), NOW).unwrap();
    (data, log, report)
}

fn offsets(log: &Log) -> Vec<i64> {
    let (reader, mut at, mut offsets) = (log.reader(), log.start(), Vec::new());
    while at < log.end() {
        let bytes = reader.read(at, 1 << 20, i64::MAX, true).unwrap().to_bytes().unwrap();
        let found: Vec<i64> = batches(&bytes).map(|batch| batch.unwrap().header().base_offset).collect();
        let Some(last) = found.last() else { break };
        at = last + 1;
        offsets.extend(found);
    }
    offsets
}

fn all_offsets() -> Vec<i64> {
    SEGMENTS.iter().flat_map(|(_, offsets)| offsets.iter().copied()).collect()
}

fn assert_unchanged(disk: &SimDisk) {
    for (base, offsets) in SEGMENTS {
        assert_eq!(read(disk, &path(base, "log")), segment(offsets), "{base}");
    }
}

fn damage(disk: &Arc<SimDisk>) -> (PathBuf, String) {
    let data = open_dir(disk).unwrap();
    match Log::open(&data, NAME, config(), NOW) {
        Err(OpenError::Damaged { path, reason, .. }) => (path, reason),
        other => panic!("{:?}", other.map(|(_, report)| report)),
    }
}

fn findings(disk: &SimDisk, severity: Severity) -> Vec<String> {
    let findings = verify_log(disk, &dir()).unwrap().findings;
    findings.into_iter().filter(|f| f.severity == severity).map(|f| f.reason).collect()
}

#[test]
fn segments_that_a_cleaner_left_open_whole_and_unchanged() {
    let disk = handed_over();
    assert_eq!(findings(&disk, Severity::Damage), [""; 0]);
    assert!(findings(&disk, Severity::Note)[0].contains("takes it over"));
    let (data, mut log, report) = open(&disk);
    assert!(report.taken_over);
    assert_eq!((report.start, report.end, report.bytes_cut), (0, END, 0));
    assert_eq!(offsets(&log), all_offsets());
    assert!(!exists(&disk, &mark()));
    log.settle_dropped(true);
    assert_eq!(log.dropped_to(), END - 1, "what Kafka has dropped nobody knows");
    // It is ours now: after a power cut, with records that were not flushed, and without any seal yet.
    let bytes = batch(END);
    log.append(&bytes, &[BatchHeader::parse(&bytes).unwrap()], NOW).unwrap();
    drop((data, log));
    disk.restart();
    assert_eq!(findings(&disk, Severity::Damage), [""; 0]);
    let (_data, log, report) = open(&disk);
    assert!(!report.taken_over && report.flushed_end_known == END);
    assert!(offsets(&log).starts_with(&all_offsets()));
    assert_unchanged(&disk);
}

#[test]
fn a_power_cut_at_any_time_of_it_changes_nothing() {
    for ops in 1.. {
        let disk = handed_over();
        let data = open_dir(&disk).unwrap();
        disk.crash_at(disk.ops() + ops);
        let opened = Log::open(&data, NAME, config(), NOW);
        let done = opened.is_ok();
        drop((opened, data));
        disk.restart();
        let was_taken = !exists(&disk, &mark());
        assert!(was_taken || !done);
        let (_data, log, report) = open(&disk);
        assert_eq!((report.taken_over, report.end, report.bytes_cut), (!was_taken, END, 0), "{ops}");
        assert_eq!(offsets(&log), all_offsets(), "{ops}");
        assert_unchanged(&disk);
        if done {
            assert!(ops > 10, "{ops}");
            return;
        }
    }
}

/// A segment of ours begins where the one before it ends: that it does not is what a power cut leaves.
#[test]
fn without_the_file_of_kafka_a_gap_is_a_lost_tail_and_verify_says_so() {
    let disk = handed_over();
    disk.remove_file(&mark()).unwrap();
    disk.sync_dir(&dir()).unwrap();
    let found = findings(&disk, Severity::Damage);
    assert!(found[0].contains("ends at offset 8, but the next one begins at 10"), "{found:?}");
    let (_data, log, report) = open(&disk);
    assert_eq!((report.end, report.taken_over), (8, false));
    assert_eq!(offsets(&log), [0, 3, 7]);
}

#[test]
fn after_it_was_taken_over_a_gap_in_what_was_not_flushed_is_a_lost_tail() {
    let disk = handed_over();
    let (data, log, _) = open(&disk);
    log.close().unwrap();
    drop(data);
    // What a crash may leave of appends: the end of one segment is lost, and the next one is there.
    write(&disk, &path(50, "log"), &segment(&[50, 51, 52]));
    write(&disk, &path(60, "log"), &segment(&[60, 61]));
    disk.sync_dir(&dir()).unwrap();
    assert!(findings(&disk, Severity::Damage)[0].contains("ends at offset 53"));
    let (_data, log, report) = open(&disk);
    assert_eq!(report.end, 53);
    let kept: Vec<i64> = all_offsets().into_iter().chain([52]).collect();
    assert_eq!(offsets(&log), kept);
}

#[test]
fn damage_in_the_middle_is_damage_at_every_start_and_a_torn_end_is_cut() {
    for cut in [false, true] {
        let disk = handed_over();
        let log = path(20, "log");
        match cut {
            true => write(&disk, &log, &segment(&[21, 25])[..250]),
            false => disk.flip_bit(&log, 100, 3),
        }
        disk.sync_dir(&dir()).unwrap();
        let before = read(&disk, &log);
        for _ in 0..2 {
            let (path, reason) = damage(&disk);
            assert_eq!((path, reason.as_str()), (log.clone(), "a segment in the middle is torn"));
            assert!(exists(&disk, &mark()) && read(&disk, &log) == before, "nothing was cut");
            disk.restart();
        }
    }
    let disk = handed_over();
    let whole = segment(&[50, 51]);
    write(&disk, &path(50, "log"), &whole[..whole.len() - 5]);
    let (_data, log, report) = open(&disk);
    assert_eq!((report.end, report.bytes_cut as usize), (51, whole.len() / 2 - 5));
    assert_eq!(log.end(), 51);
}

#[test]
fn a_log_of_kafka_may_begin_anywhere_and_be_empty() {
    let disk = handed_over();
    for suffix in ["log", "index", "timeindex"] {
        disk.remove_file(&path(0, suffix)).unwrap();
    }
    disk.sync_dir(&dir()).unwrap();
    let (_data, _log, report) = open(&disk);
    assert_eq!((report.start, report.end), (10, END));

    let disk = handed_over();
    for (base, _) in SEGMENTS {
        disk.remove_file(&path(base, "log")).unwrap();
    }
    disk.sync_dir(&dir()).unwrap();
    let (data, _log, report) = open(&disk);
    assert_eq!((report.start, report.end), (0, 0));
    drop(data);
    disk.restart();
    assert_eq!(open(&disk).2.flushed_end_known, 0, "what was known of an earlier log is forgotten");
}
