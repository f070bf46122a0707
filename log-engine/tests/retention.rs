//! What goes because it was kept long enough: hostile timestamps, idle segments, files under other names, and power cuts at
//! every operation in between.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]
#![allow(dead_code, reason = "the tests of this folder share their support")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use log_engine::{
    CompactionRequest, DataDir, DataDirOptions, Disk, Installed, Log, LogConfig, LogName, RealDisk, SimDisk,
};
use log_engine_core::compact::CompactionPolicy;
use log_engine_core::retention::RetentionLimits;
use records::{BatchBuilder, BatchHeader, Compression, EndMarker};
use support::{AtOnce, TestBatch, batches_of, offsets};
use uuid::Uuid;

const NAME: LogName = LogName { topic_id: Uuid::from_u128(78), partition: 3 };
const NOW: i64 = 1_700_000_000_000;
const DAY: i64 = 86_400_000;
const YEAR: i64 = 365 * DAY;
const WEEK: RetentionLimits = RetentionLimits { ms: Some(7 * DAY), bytes: None };

fn small() -> LogConfig {
    // Two batches fill a segment.
    LogConfig { segment_bytes: 1000, index_interval_bytes: 100, ..LogConfig::default() }
}

fn open_dir(disk: &Arc<dyn Disk>, path: &Path) -> DataDir {
    let options = DataDirOptions {
        cluster_id: "c1".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(9),
        descriptors_max: 50,
    };
    DataDir::open(disk.clone(), path, &options).unwrap()
}

fn open(data: &DataDir, now_ms: i64) -> Log {
    Log::open(data, NAME, small(), now_ms).unwrap().0
}

fn append(log: &mut Log, timestamp: i64, now_ms: i64) {
    let batch = TestBatch::new(log.end(), 0, &[timestamp], 400, Compression::None, None);
    log.append(&batch.bytes, &[batch.header], now_ms).unwrap();
}

fn flush(log: &mut Log) {
    if let Some(handle) = log.begin_flush() {
        let result = handle.sync();
        log.on_flushed(handle.done(result));
    }
    assert_eq!(log.flushed(), log.end());
}

fn names(disk: &dyn Disk, path: &Path, suffix: &str) -> Vec<String> {
    let names = disk.list(&path.join(NAME.to_string())).unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.ends_with(suffix)).collect()
}

/// Lets go of what may go, as often as something may.
fn expire(log: &mut Log, limits: &RetentionLimits, high_watermark: i64, now_ms: i64) -> Option<i64> {
    let expiry = log.expired(limits, high_watermark, now_ms, true)?;
    log.set_start(expiry.start).unwrap();
    assert_eq!(log.expired(limits, high_watermark, now_ms, true), None, "a second look finds nothing more");
    Some(expiry.start)
}

/// Timestamps that clients may send when nothing forbids it.
const HOSTILE: [i64; 7] = [i64::MAX, NOW + 100 * YEAR, NOW + 8 * DAY, NOW, 0, -1, i64::MAX - 1];

fn hostile_log(disk: &Arc<dyn Disk>, path: &Path) -> (DataDir, Log) {
    let data = open_dir(disk, path);
    let mut log = open(&data, NOW);
    for timestamp in HOSTILE {
        for _ in 0..3 {
            append(&mut log, timestamp, NOW);
        }
    }
    flush(&mut log);
    (data, log)
}

/// T-114.
#[test]
fn whatever_timestamps_say_records_go_when_their_append_is_old() {
    let disk: Arc<dyn Disk> = SimDisk::new(1);
    let path = PathBuf::from("data");
    let (_data, mut log) = hostile_log(&disk, &path);
    let end = log.end();
    assert_eq!(
        expire(&mut log, &WEEK, end, NOW + 7 * DAY),
        None,
        "the first segment is a week old and no more"
    );
    assert_eq!(log.expired(&WEEK, end, NOW + 7 * DAY + 1, false), None, "the clock is not believed");
    assert_eq!(expire(&mut log, &WEEK, end, NOW + 7 * DAY + 1), Some(end), "the open segment too");
    assert_eq!((log.start(), log.end()), (end, end));
    assert_eq!(names(&*disk, &path, ".log").len(), 1, "an empty segment goes on where the log ends");
    assert!(names(&*disk, &path, ".log.deleted").len() > 5);
    log.take_detached().unwrap().remove_files().unwrap();
    assert_eq!(names(&*disk, &path, ".deleted"), [] as [String; 0]);
    append(&mut log, NOW, NOW + 8 * DAY);
    flush(&mut log);
    assert_eq!(offsets(&batches_of(&log, log.end())), [(end, end)]);
}

/// Makes one segment of all that take no appends.
fn merge(data: &DataDir, log: &mut Log, now_ms: i64) {
    merge_beside(data, log, now_ms, i64::MAX);
}

/// The same while somebody has copied up to `keep_from`.
fn merge_beside(data: &DataDir, log: &mut Log, now_ms: i64, keep_from: i64) {
    log.update_config(LogConfig { segment_bytes: 1 << 20, ..small() });
    let policy = CompactionPolicy { min_dirty_ratio: 0.0, min_lag_ms: 0, max_lag_ms: i64::MAX };
    let bound = log.flushed();
    let dirtiness = log.reader().dirtiness(data, bound, Some(now_ms), &policy);
    let request = CompactionRequest {
        bound,
        dirtiness,
        now_ms: Some(now_ms),
        delete_retention_ms: DAY,
        keep_from,
        map_bytes_max: 1 << 20,
    };
    let mut pass = log.begin_compaction(&request).unwrap();
    pass.prepare(&mut AtOnce(now_ms)).unwrap();
    while let Some(segment) = pass.next_segment(&mut AtOnce(now_ms)).unwrap() {
        assert!(matches!(log.install(segment), Ok(Installed::Yes)));
    }
    assert!(log.finish_compaction(&pass.finished()));
}

fn append_bytes(log: &mut Log, mut bytes: Vec<u8>) {
    records::set_base_offset(&mut bytes, log.end());
    let header = BatchHeader::parse(&bytes).unwrap();
    log.append(&bytes, &[header], NOW).unwrap();
}

fn append_key(log: &mut Log, builder: BatchBuilder, key: &str) {
    let mut builder = builder;
    builder.push(NOW, Some(key.as_bytes()), Some(b"v"), &[]).unwrap();
    append_bytes(log, builder.build());
}

/// A snapshot has a transaction open of which passes have dropped first the data and then the marker since: were it believed,
/// the last stable offset would stand still for ever.
#[test]
fn an_old_snapshot_brings_back_no_transaction_that_is_gone() {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = sim.clone();
    let path = PathBuf::from("data");
    let data = open_dir(&disk, &path);
    let mut log = open(&data, NOW);
    append_key(&mut log, BatchBuilder::new().producer(9, 0, 0).transactional(), "t");
    log.roll().unwrap();
    flush(&mut log);
    assert_eq!(log.producers().first_ongoing(), Some(0));
    let marker = EndMarker { is_commit: false, coordinator_epoch: 0 };
    append_bytes(&mut log, marker.encode(9, 0, NOW).unwrap());
    append_key(&mut log, BatchBuilder::new(), "a");
    log.roll().unwrap();
    append_key(&mut log, BatchBuilder::new(), "b");
    flush(&mut log);
    log.on_high_watermark(log.end());
    // What is known of a producer keeps its last batch.
    assert_eq!(log.expire_producers(NOW + YEAR, DAY), 1);
    merge(&data, &mut log, NOW);
    assert_eq!((offsets(&batches_of(&log, 2)), log.dropped_to()), (vec![(1, 1)], -1), "the data went");
    log.roll().unwrap();
    append_key(&mut log, BatchBuilder::new(), "c");
    flush(&mut log);
    // This pass finds none of its data any more, and says until when the marker stays.
    merge(&data, &mut log, NOW);
    assert_eq!(log.dropped_to(), -1);
    log.roll().unwrap();
    append_key(&mut log, BatchBuilder::new(), "d");
    flush(&mut log);
    merge(&data, &mut log, NOW + 2 * DAY);
    assert_eq!((offsets(&batches_of(&log, 3)), log.dropped_to()), (vec![(2, 2)], 1), "the marker went");
    drop(log);
    drop(data);
    let kept = format!("{:020}.snapshot", 1);
    let snapshots = names(&*disk, &path, ".snapshot");
    assert!(snapshots.contains(&kept), "{snapshots:?}");
    for name in snapshots.iter().filter(|name| **name != kept) {
        disk.remove_file(&path.join(NAME.to_string()).join(name)).unwrap();
    }
    sim.restart_process();
    let data = open_dir(&disk, &path);
    let mut log = open(&data, NOW + 3 * DAY);
    assert_eq!(log.producers().first_ongoing(), None);
    assert_eq!(log.dropped_to(), 1, "it is remembered");
    // A cut below it, and one within it.
    log.truncate_to(2).unwrap();
    assert_eq!((log.dropped_to(), log.producers().first_ongoing()), (1, None));
    log.truncate_to(1).unwrap();
    assert_eq!((log.end(), log.dropped_to()), (1, 0));
}

/// A record in a segment that takes no appends any more.
fn append_behind(log: &mut Log, key: &str) {
    log.roll().unwrap();
    append_key(log, BatchBuilder::new(), key);
    flush(log);
    log.on_high_watermark(log.end());
}

fn append_tombstone(log: &mut Log, key: &str) {
    let mut builder = BatchBuilder::new();
    builder.push(NOW, Some(key.as_bytes()), None, &[]).unwrap();
    append_bytes(log, builder.build());
}

fn bases(log: &Log) -> Vec<i64> {
    offsets(&batches_of(log, log.end())).into_iter().map(|(base, _)| base).collect()
}

/// A marker goes after a tombstone above it, since the data of its transaction were there for longer. A copy that began when
/// the tombstone was gone already, with the data and without the marker, must be told from one that knows of both.
#[test]
fn a_marker_that_goes_below_what_went_before_is_told_of() {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = sim.clone();
    let path = PathBuf::from("data");
    let data = open_dir(&disk, &path);
    let mut log = open(&data, NOW);
    append_key(&mut log, BatchBuilder::new().producer(9, 0, 0).transactional(), "t");
    let marker = EndMarker { is_commit: true, coordinator_epoch: 0 };
    append_bytes(&mut log, marker.encode(9, 0, NOW).unwrap());
    append_tombstone(&mut log, "x");
    append_key(&mut log, BatchBuilder::new(), "a");
    append_behind(&mut log, "b");
    assert_eq!(log.expire_producers(NOW + YEAR, DAY), 1);
    merge(&data, &mut log, NOW);
    append_behind(&mut log, "c");
    merge(&data, &mut log, NOW + 2 * DAY);
    assert_eq!((bases(&log), log.dropped_to()), (vec![0, 1, 3, 4, 5], 2), "the tombstone went");
    // The copy begins, and goes away when it has the first record.
    let told = log.dropped_to();
    append_behind(&mut log, "t");
    append_behind(&mut log, "d");
    merge(&data, &mut log, NOW + 2 * DAY);
    assert_eq!((bases(&log), log.dropped_to()), (vec![1, 3, 4, 5, 6, 7], told), "the data went");
    append_behind(&mut log, "e");
    merge(&data, &mut log, NOW + 2 * DAY);
    append_behind(&mut log, "f");
    // Another copy is under way, and has not come further than it would count as outdated.
    merge_beside(&data, &mut log, NOW + 4 * DAY, told + 1);
    assert_eq!((bases(&log)[0], log.dropped_to()), (1, told), "the marker waits");
    append_behind(&mut log, "g");
    merge_beside(&data, &mut log, NOW + 4 * DAY, told + 2);
    assert_eq!((bases(&log)[0], log.dropped_to()), (3, told + 1), "the marker went, and it is told");
    // A pass that drops nothing tells nothing.
    append_behind(&mut log, "h");
    merge(&data, &mut log, NOW + 6 * DAY);
    assert_eq!(log.dropped_to(), told + 1);
    drop(log);
    drop(data);
    sim.restart();
    let data = open_dir(&disk, &path);
    assert_eq!(open(&data, NOW + 7 * DAY).dropped_to(), told + 1, "it is durable");
}

/// A copy was told of more than it has. What it drops below that could not be told from that, or those in sync would count as
/// outdated.
#[test]
fn nothing_is_dropped_of_which_nobody_could_be_told() {
    let disk: Arc<dyn Disk> = SimDisk::new(1);
    let data = open_dir(&disk, Path::new("data"));
    let mut log = open(&data, NOW);
    log.note_dropped(4).unwrap();
    append_tombstone(&mut log, "x");
    append_key(&mut log, BatchBuilder::new(), "a");
    for (key, left, dropped_to) in [("b", 0, 4), ("c", 0, 4), ("d", 0, 4), ("e", 1, 5)] {
        append_behind(&mut log, key);
        let now_ms = if key == "b" { NOW } else { NOW + 2 * DAY };
        // The bound is 5 with "d", and 6 with "e".
        merge(&data, &mut log, now_ms);
        assert_eq!((bases(&log)[0], log.dropped_to()), (left, dropped_to), "{key}");
    }
}

fn seal_all(data: &DataDir) {
    while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
        sealing.unwrap();
    }
}

#[test]
fn what_was_compacted_is_no_younger_and_is_sealed_anew() {
    for restarted in [false, true] {
        let disk: Arc<dyn Disk> = SimDisk::new(1);
        let path = PathBuf::from("data");
        let (mut data, mut log) = hostile_log(&disk, &path);
        let end = log.end();
        log.roll().unwrap();
        append(&mut log, NOW + 3 * DAY, NOW + 3 * DAY);
        flush(&mut log);
        seal_all(&data);
        assert_eq!(names(&*disk, &path, ".seal").len() + 1, names(&*disk, &path, ".log").len());
        merge(&data, &mut log, NOW + 3 * DAY);
        assert_eq!(names(&*disk, &path, ".log").len(), 2);
        assert_eq!(names(&*disk, &path, ".seal"), [] as [String; 0], "they were of other segments");
        seal_all(&data);
        assert_eq!(names(&*disk, &path, ".seal").len(), 1);
        assert_eq!(names(&*disk, &path, ".appendtimes").len(), 1);
        if restarted {
            log.close().unwrap();
            data.close_clean().unwrap();
            drop(data);
            data = open_dir(&disk, &path);
            let (opened, report) = Log::open(&data, NAME, small(), NOW + 4 * DAY).unwrap();
            assert_eq!((report.seals_read, report.seals_dropped), (1, 0));
            log = opened;
        }
        assert_eq!(expire(&mut log, &WEEK, end + 1, NOW + 7 * DAY), None);
        assert_eq!(expire(&mut log, &WEEK, end + 1, NOW + 7 * DAY + 1), Some(end));
        drop((data, log));
    }
}

/// T-113.
#[test]
fn nothing_goes_at_or_above_the_high_watermark() {
    let disk: Arc<dyn Disk> = SimDisk::new(1);
    let (_data, mut log) = hostile_log(&disk, Path::new("data"));
    let tight = RetentionLimits { ms: Some(0), bytes: Some(0) };
    for high_watermark in 0..=log.end() {
        expire(&mut log, &tight, high_watermark, NOW + YEAR);
        assert!(log.start() <= high_watermark);
        assert!(
            high_watermark - log.start() < 2,
            "two batches fill a segment: {high_watermark} {}",
            log.start()
        );
    }
}

#[test]
fn size_counts_whole_segments_from_the_newest_on() {
    let disk: Arc<dyn Disk> = SimDisk::new(1);
    let (_data, mut log) = hostile_log(&disk, Path::new("data"));
    let limits = RetentionLimits { ms: None, bytes: Some(3000) };
    let end = log.end();
    expire(&mut log, &limits, end, NOW).unwrap();
    let left = log.reader().size_bytes();
    assert!((3000..4000).contains(&left), "{left}");
}

#[test]
fn append_times_outlive_a_restart_and_their_loss_only_delays() {
    for damage in [false, true] {
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = sim.clone();
        let path = PathBuf::from("data");
        let (data, log) = hostile_log(&disk, &path);
        let end = log.end();
        log.close().unwrap();
        data.close_clean().unwrap();
        drop(data);
        let files = names(&*disk, &path, ".appendtimes");
        assert_eq!(files.len(), names(&*disk, &path, ".log").len());
        for name in files.iter().filter(|_| damage) {
            sim.flip_bit(&path.join(NAME.to_string()).join(name), 17, 3);
        }
        let data = open_dir(&disk, &path);
        let started = NOW + 20 * DAY;
        let mut log = open(&data, started);
        match damage {
            false => assert_eq!(expire(&mut log, &WEEK, end, started), Some(end)),
            true => {
                // Nobody knows when the first segment was appended, and its timestamps say: in the far future.
                assert_eq!(expire(&mut log, &WEEK, end, started), None);
                assert_eq!(expire(&mut log, &WEEK, end, started + 7 * DAY + 1), Some(end));
            }
        }
    }
}

#[test]
fn the_file_system_says_when_a_segment_without_append_times_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let (data, log) = hostile_log(&disk, dir.path());
    let (end, now_ms) = (log.end(), 1_000 * i64::from(u32::MAX));
    log.close().unwrap();
    data.close_clean().unwrap();
    drop(data);
    for name in names(&*disk, dir.path(), ".appendtimes") {
        disk.remove_file(&dir.path().join(NAME.to_string()).join(name)).unwrap();
    }
    let data = open_dir(&disk, dir.path());
    assert!(data.last_written_ms().unwrap() > NOW);
    let mut log = open(&data, now_ms);
    assert_eq!(expire(&mut log, &WEEK, end, now_ms), Some(end), "the files are years old at that time");
}

#[test]
fn what_was_cut_away_leaves_no_times_to_what_comes_instead() {
    let disk: Arc<dyn Disk> = SimDisk::new(1);
    let path = PathBuf::from("data");
    let (data, mut log) = hostile_log(&disk, &path);
    log.truncate_to(4).unwrap();
    for _ in 0..3 {
        append(&mut log, i64::MAX, NOW + 30 * DAY);
    }
    flush(&mut log);
    // A crash of the process: nothing was closed.
    drop(log);
    drop(data);
    let data = open_dir(&disk, &path);
    let mut log = open(&data, NOW + 30 * DAY);
    let end = log.end();
    let start = expire(&mut log, &WEEK, end, NOW + 30 * DAY).unwrap();
    assert_eq!(start, 4, "the first two segments are old; what was appended today is not");
}

/// T-114: idle segments too.
#[test]
fn an_idle_segment_ends_and_what_follows_begins_another() {
    let disk: Arc<dyn Disk> = SimDisk::new(1);
    let data = open_dir(&disk, Path::new("data"));
    let mut log = open(&data, NOW);
    let age = small().segment_ms;
    assert!(!log.roll_if_idle(i64::MAX).unwrap(), "there is nothing");
    append(&mut log, 0, NOW + 5);
    assert!(!log.roll_if_idle(NOW + 5 + age).unwrap());
    assert!(log.roll_if_idle(NOW + 6 + age).unwrap());
    assert!(!log.roll_if_idle(NOW + 7 + age).unwrap());
    append(&mut log, 0, NOW + 8 + age);
    flush(&mut log);
    assert_eq!(names(&*disk, Path::new("data"), ".log").len(), 2);
    // The age is that of the first append, also after a restart.
    log.close().unwrap();
    let mut log = open(&data, NOW + 2 * age);
    assert!(!log.roll_if_idle(NOW + 8 + 2 * age).unwrap());
    assert!(log.roll_if_idle(NOW + 9 + 2 * age).unwrap());
}

#[test]
fn jitter_ends_idle_segments_at_different_times() {
    let disk: Arc<dyn Disk> = SimDisk::new(1);
    let data = open_dir(&disk, Path::new("data"));
    let config = LogConfig { segment_ms: 10_000, segment_jitter_ms: 10_000, ..small() };
    let mut ages: Vec<i64> = (0..20)
        .map(|partition| {
            let name = LogName { partition, ..NAME };
            let (mut log, _) = Log::open(&data, name, config.clone(), NOW).unwrap();
            append(&mut log, NOW, NOW);
            (0..=10_001).find(|age| log.roll_if_idle(NOW + age).unwrap()).unwrap()
        })
        .collect();
    ages.sort_unstable();
    ages.dedup();
    assert!(ages.len() > 15 && ages.iter().all(|age| *age <= 10_001), "{ages:?}");
}

/// The power goes at every single operation of a deletion; what survives is whole, and a start that was told stays.
#[test]
fn a_power_cut_at_any_operation_leaves_a_whole_log() {
    let path = PathBuf::from("data");
    let mut ops = 0;
    for seed in 0..3 {
        for cut in 1.. {
            let sim = SimDisk::new(seed);
            let disk: Arc<dyn Disk> = sim.clone();
            let (data, mut log) = hostile_log(&disk, &path);
            let end = log.end();
            let middle =
                log.expired(&RetentionLimits { ms: None, bytes: Some(4000) }, end, NOW, true).unwrap();
            sim.crash_at(sim.ops() + cut);
            let mut told = 0;
            for start in [middle.start, end] {
                if log.set_start(start).is_ok() && !sim.is_crashed() {
                    told = start;
                }
                log.take_detached().map(|segments| segments.remove_files());
            }
            let crashed = sim.is_crashed();
            drop((log, data));
            sim.restart();
            let data = open_dir(&disk, &path);
            let mut log = open(&data, NOW);
            assert!([0, middle.start, end].contains(&log.start()), "op {cut}: {}", log.start());
            assert!(
                log.start() >= told,
                "op {cut}: the start was told to be {told}, now it is {}",
                log.start()
            );
            assert_eq!(log.end(), end, "op {cut}");
            let expected = (end - log.start()) as usize;
            let held = offsets(&batches_of(&log, end)).len();
            assert_eq!(held, expected, "op {cut}");
            assert_eq!(names(&*disk, &path, ".deleted"), [] as [String; 0], "op {cut}");
            append(&mut log, NOW, NOW);
            flush(&mut log);
            if !crashed {
                ops = cut;
                break;
            }
        }
    }
    assert!(ops > 30, "{ops} operations");
}
