//! What a log does when nothing crashes, on the simulated and on the real disk; and what it does with damaged files.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine::{
    AppendError, DataDir, DataDirOptions, Disk, Log, LogConfig, LogError, LogName, OpenError, OpenMode,
    ReadError, RealDisk, RecoveryProgress, RecoveryReport, SimDisk, SimFault, SlicePart,
};
use log_engine_core::SequenceCheck;
use records::Compression;
use support::{Random, TestBatch, batches_of, check_lookups, offsets};
use uuid::Uuid;

const NAME: LogName = LogName { topic_id: Uuid::from_u128(77), partition: 4 };
const NOW: i64 = 1_700_000_000_000;

fn small() -> LogConfig {
    LogConfig {
        segment_bytes: 4000,
        index_interval_bytes: 200,
        index_entries_in_memory_max: 4,
        ..LogConfig::default()
    }
}

fn open_dir(disk: Arc<dyn Disk>, path: &Path) -> DataDir {
    let options = DataDirOptions {
        cluster_id: "c1".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(9),
        descriptors_max: 6,
    };
    DataDir::open(disk, path, &options).unwrap()
}

fn open(data: &DataDir, config: &LogConfig) -> (Log, RecoveryReport) {
    Log::open(data, NAME, config.clone(), NOW).unwrap()
}

fn append(log: &mut Log, batch: &TestBatch) {
    log.append(&batch.bytes, &[batch.header], NOW).unwrap();
}

fn flush(log: &mut Log) {
    if let Some(handle) = log.begin_flush() {
        let result = handle.sync();
        log.on_flushed(handle.done(result));
    }
    assert_eq!(log.flushed(), log.end());
}

/// A log of `count` random batches, flushed.
fn filled(data: &DataDir, config: &LogConfig, count: usize) -> (Log, Vec<TestBatch>) {
    let (mut log, _) = open(data, config);
    let mut random = Random::new(5);
    let mut batches = Vec::new();
    for i in 0..count {
        let batch =
            TestBatch::random(&mut random, &batches, &[], log.end(), i as i32 / 40, NOW + i as i64 * 50);
        append(&mut log, &batch);
        batches.push(batch);
    }
    flush(&mut log);
    (log, batches)
}

fn sim() -> (Arc<SimDisk>, PathBuf) {
    (SimDisk::new(1), PathBuf::from("data"))
}

fn segment_path(base: i64, suffix: &str) -> PathBuf {
    PathBuf::from("data").join(NAME.to_string()).join(format!("{base:020}.{suffix}"))
}

/// Base offsets of the segments, from the names of their files.
fn segments(disk: &dyn Disk, data: &Path) -> Vec<i64> {
    let names = disk.list(&data.join(NAME.to_string())).unwrap();
    names.iter().filter_map(|e| e.name.strip_suffix(".log")?.parse().ok()).collect()
}

fn a_log_is_what_was_appended(disk: Arc<dyn Disk>, path: &Path) {
    let data = open_dir(disk.clone(), path);
    let (log, batches) = filled(&data, &small(), 200);
    assert!(segments(&*disk, path).len() > 5);
    let mut random = Random::new(6);
    assert!(batches_of(&log, log.end()) == support::from(&batches, 0));
    for _ in 0..20 {
        check_lookups(&log, &batches, &mut random, 20);
    }
    assert!(data.descriptors_open() <= 6, "{} files are open", data.descriptors_open());
    let (producers, epochs) = (log.producers().clone(), log.epochs().clone());
    assert_eq!(epochs.entries().len(), 5);
    log.close().unwrap();
    assert!(data.close_clean().unwrap());
    drop(data);

    let data = open_dir(disk.clone(), path);
    assert!(data.was_clean());
    assert_eq!(data.list().unwrap(), [NAME]);
    let (mut log, report) = open(&data, &small());
    assert_eq!((report.bytes_cut, report.bytes_verified, report.indexes_rebuilt), (0, 0, 0));
    assert!(report.batches_walked < 10, "{report:?}");
    assert_eq!((log.producers(), log.epochs()), (&producers, &epochs));
    for _ in 0..20 {
        check_lookups(&log, &batches, &mut random, 20);
    }
    // It goes on where it was.
    let batch = TestBatch::new(log.end(), 9, &[NOW], 10, Compression::Zstd, None);
    append(&mut log, &batch);
    flush(&mut log);
    log.delete().unwrap();
    assert!(data.list().unwrap().is_empty());
    assert!(data.known_logs().is_empty());
    let (log, _) = open(&data, &small());
    assert_eq!(log.end(), 0);
}

#[test]
fn simulated_disk() {
    let (disk, path) = sim();
    a_log_is_what_was_appended(disk, &path);
}

#[test]
fn real_disk() {
    let dir = tempfile::tempdir().unwrap();
    a_log_is_what_was_appended(Arc::new(RealDisk), &dir.path().join("data"));
}

#[test]
fn a_slice_of_a_real_file_outlives_its_segment_and_warm_reads_find_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let data = open_dir(Arc::new(RealDisk), dir.path());
    let (mut log, batches) = filled(&data, &small(), 100);
    let reader = log.reader();
    let slice = reader.read(0, 2000, log.end(), true).unwrap();
    assert!(matches!(slice.parts[0], SlicePart::File { .. }));
    log.set_start(log.end() - 1).unwrap();
    assert!(slice.to_bytes().unwrap() == support::from(&batches, 0)[..slice.len()]);
    assert!(matches!(reader.read(0, 1, log.end(), true), Err(ReadError::OffsetOutOfRange { .. })));
    // The active segment's file is open and its pages have just been written.
    let warm = reader.try_read_warm(log.start(), 10_000, log.end(), true);
    if let Some(warm) = warm {
        assert!(warm.unwrap().to_bytes().unwrap() == batches.last().unwrap().bytes);
    }
}

#[test]
fn readers_see_whole_batches_while_the_owner_appends_rolls_and_cuts() {
    let dir = tempfile::tempdir().unwrap();
    let data = open_dir(Arc::new(RealDisk), dir.path());
    let (mut log, _) = open(&data, &small());
    let reader = log.reader();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let ordering = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut reads = 0usize;
                    let mut offset = 0;
                    while !stop.load(ordering) {
                        // The owner never cuts below half of what it has, nor do readers go beyond.
                        let bound = reader.end() / 2;
                        match reader.read(offset, 3000, bound, true) {
                            Ok(slice) => {
                                let bytes = slice.to_bytes().unwrap();
                                let mut next = None;
                                for batch in records::batches(&bytes) {
                                    let batch = batch.unwrap();
                                    batch.check_crc().unwrap();
                                    let header = batch.header();
                                    assert!(next.is_none_or(|n| n == header.base_offset));
                                    next = Some(header.last_offset() + 1);
                                }
                                if let Some(next) = next {
                                    assert_eq!(next, slice.next_offset);
                                }
                                reads += usize::from(!bytes.is_empty());
                                offset = slice.next_offset;
                                if bytes.is_empty() {
                                    offset = reader.start();
                                }
                            }
                            Err(ReadError::OffsetOutOfRange { start, .. }) => offset = start,
                            Err(e) => panic!("{e}"),
                        }
                    }
                    reads
                })
            })
            .collect();
        let mut random = Random::new(1);
        for i in 0..3000 {
            let timestamps = vec![NOW + i; 1 + random.below(3) as usize];
            let batch = TestBatch::new(log.end(), 0, &timestamps, 100, Compression::None, None);
            append(&mut log, &batch);
            match random.below(100) {
                0..=9 => flush(&mut log),
                10 => log.set_start(log.end() / 4).unwrap(),
                11 => _ = log.truncate_to(log.end() - random.below(4) as i64).unwrap(),
                _ => {}
            }
        }
        // At least one pass through what is there now.
        while log.end() < 3000 {
            let batch = TestBatch::new(log.end(), 0, &[NOW], 100, Compression::None, None);
            append(&mut log, &batch);
        }
        std::thread::yield_now();
        stop.store(true, ordering);
        let reads: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(reads > 0);
    });
}

#[test]
fn max_timestamp_is_the_first_record_that_has_it_below_the_bound() {
    let (disk, path) = sim();
    let data = open_dir(disk, &path);
    let (mut log, _) = open(&data, &small());
    for (i, timestamps) in [[5, 9, 9], [3, 20, 1], [7, 8, 20], [50, 2, 2]].iter().enumerate() {
        append(&mut log, &TestBatch::new(i as i64 * 3, 1, timestamps, 10, Compression::Gzip, None));
        log.roll().unwrap();
    }
    let reader = log.reader();
    let max = |bound| reader.max_timestamp(bound).unwrap().map(|m| (m.offset, m.timestamp, m.leader_epoch));
    assert_eq!(max(12), Some((9, 50, 1)));
    assert_eq!(max(9), Some((4, 20, 1)));
    assert_eq!(max(3), Some((1, 9, 1)));
    assert_eq!(max(0), None);
    log.set_start(5).unwrap();
    assert_eq!(reader.max_timestamp(9).unwrap().map(|m| m.offset), Some(8));
}

#[test]
fn log_append_time_needs_no_unpacking() {
    let (disk, path) = sim();
    let data = open_dir(disk, &path);
    let (mut log, _) = open(&data, &small());
    let mut batch = TestBatch::new(0, 0, &[1, 2, 3], 10, Compression::Snappy, None);
    records::set_log_append_time(&mut batch.bytes, NOW);
    batch.header = records::BatchHeader::parse(&batch.bytes).unwrap();
    append(&mut log, &batch);
    let reader = log.reader();
    assert_eq!(reader.offset_for_timestamp(NOW, 3).unwrap().map(|f| (f.offset, f.timestamp)), Some((0, NOW)));
    assert_eq!(reader.offset_for_timestamp(NOW + 1, 3).unwrap(), None);
}

/// T-106: offsets too far apart for one index get another segment.
#[test]
fn segments_roll_by_size_time_index_and_reach() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let config = LogConfig { segment_ms: 1000, index_bytes_max: 36, ..small() };
    let (mut log, _) = open(&data, &config);
    let at = |log: &mut Log, base: i64, timestamp: i64, bytes: usize| {
        let batch = TestBatch::new(base, 0, &[timestamp], bytes, Compression::None, None);
        log.append(&batch.bytes, &[batch.header], NOW).unwrap().rolled
    };
    assert!(!at(&mut log, 0, NOW, 10));
    assert!(!at(&mut log, 1, NOW + 1000, 10));
    assert!(at(&mut log, 2, NOW + 1001, 10), "by time");
    assert!(at(&mut log, 3, NOW + 1001, 3850), "by size");
    assert!(at(&mut log, 4, NOW + 1001, 300), "by size again");
    let mut rolled_at = None;
    for i in 5..20 {
        if at(&mut log, i, NOW + 1001 + i, 300) {
            rolled_at = Some(i);
            break;
        }
    }
    assert_eq!(rolled_at, Some(7), "the time index has room for three entries, the last at the roll");
    assert!(at(&mut log, 1 << 40, NOW, 10), "by reach");
    assert!(at(&mut log, (1 << 40) + (1 << 31), NOW, 10), "by reach");
    assert_eq!(segments(&*disk, &path).last(), Some(&((1 << 40) + 1)));
    let reader = log.reader();
    assert_eq!(reader.read(100, 10, i64::MAX, true).unwrap().next_offset, (1 << 40) + 1);
    flush(&mut log);
    drop((log, data));
    disk.restart();
    let (log, _) = open(&open_dir(disk, &path), &config);
    assert_eq!(log.end(), (1 << 40) + (1 << 31) + 1);
}

#[test]
fn batches_that_do_not_continue_the_log_are_refused() {
    let (disk, path) = sim();
    let data = open_dir(disk, &path);
    let (mut log, _) = open(&data, &small());
    append(&mut log, &TestBatch::new(0, 0, &[1, 2], 10, Compression::None, None));
    let old = TestBatch::new(1, 0, &[1], 10, Compression::None, None);
    assert!(matches!(
        log.append(&old.bytes, &[old.header], NOW),
        Err(AppendError::OutOfOrder { found: 1, end: 2 })
    ));
    let next = TestBatch::new(2, 0, &[1], 10, Compression::None, None);
    assert!(matches!(log.append(&next.bytes[1..], &[next.header], NOW), Err(AppendError::Mismatch { .. })));
    assert!(matches!(log.append(&[], &[], NOW), Err(AppendError::Mismatch { .. })));
    assert!(matches!(log.truncate_to(3), Err(LogError::OutOfRange { .. })));
    assert!(matches!(log.set_start(3), Err(LogError::OutOfRange { .. })));
    append(&mut log, &next);
    assert_eq!(log.end(), 3);
}

#[test]
fn a_batch_from_before_the_segment_size_was_lowered_gets_a_segment_of_its_own() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, _) = open(&data, &small());
    let batches = [(0, 10), (1, 5000), (2, 10)]
        .map(|(offset, size)| TestBatch::new(offset, 0, &[1], size, Compression::None, None));
    assert!(batches[1].bytes.len() as u64 > small().segment_bytes);
    let (bytes, headers) =
        (batches.each_ref().map(|b| &b.bytes[..]).concat(), batches.each_ref().map(|b| b.header));
    log.append(&bytes, &headers, NOW).unwrap();
    assert_eq!(segments(&*disk, &path), [0, 1, 2]);
    flush(&mut log);
    drop((log, data));
    disk.restart();
    let (log, _) = open(&open_dir(disk, &path), &small());
    assert!(batches_of(&log, 3) == support::from(&batches, 0));
}

#[test]
fn of_logs_that_are_put_aside_the_first_one_stays_until_it_is_removed() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    for records in [3, 1] {
        let (mut log, _) = open(&data, &small());
        assert_eq!(log.end(), 0, "the name is free");
        (0..records).for_each(|offset| {
            append(&mut log, &TestBatch::new(offset, 0, &[1], 10, Compression::None, None))
        });
        flush(&mut log);
        log.close().unwrap();
        let second = data.set_aside(NAME).unwrap();
        assert_eq!(second.is_some(), records == 1);
        second.into_iter().for_each(|log| log.remove_files().unwrap());
        assert_eq!((data.list().unwrap(), data.logs_aside().unwrap()), (vec![], vec![NAME]));
    }
    drop(data);
    disk.restart();
    let data = open_dir(disk.clone(), &path);
    assert_eq!(data.logs_aside().unwrap(), [NAME]);
    let aside = disk.list(&path.join(format!("{NAME}.damaged"))).unwrap();
    assert!(aside.iter().any(|entry| entry.name.ends_with(".log")));
    data.remove_aside(NAME).unwrap();
    assert_eq!(data.logs_aside().unwrap(), []);
}

/// T-117.
#[test]
fn a_full_disk_loses_nothing_and_appends_go_on_when_there_is_space() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, mut batches) = filled(&data, &small(), 20);
    disk.set_capacity(Some(disk.used_bytes() + 10_000));
    let mut random = Random::new(8);
    let mut refused = 0;
    for _ in 0..300 {
        let batch = TestBatch::random(&mut random, &batches, &[], log.end(), 1, NOW);
        match log.append(&batch.bytes, &[batch.header], NOW) {
            Ok(_) => batches.push(batch),
            Err(AppendError::DiskFull(_)) => refused += 1,
            Err(e) => panic!("{e}"),
        }
        if let Some(handle) = log.begin_flush() {
            let result = handle.sync();
            log.on_flushed(handle.done(result));
        }
    }
    assert!(refused > 10 && log.poisoned().is_none());
    check_lookups(&log, &batches, &mut random, 20);
    log.set_start(log.end() / 2).unwrap();
    disk.set_capacity(None);
    let batch = TestBatch::random(&mut random, &batches, &[], log.end(), 1, NOW);
    append(&mut log, &batch);
    batches.push(batch);
    flush(&mut log);
    let start = log.start();
    drop((log, data));
    disk.restart();
    let (log, _) = open(&open_dir(disk, &path), &small());
    assert_eq!(log.start(), start);
    assert!(batches_of(&log, log.end()) == support::from(&batches, start));
}

/// T-116.
#[test]
fn a_failed_sync_closes_the_log_for_writing_until_it_was_copied() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, batches) = filled(&data, &LogConfig::default(), 10);
    let batch = TestBatch::new(log.end(), 1, &[NOW], 100, Compression::None, None);
    append(&mut log, &batch);
    disk.inject(SimFault::Sync(".log".into()));
    let handle = log.begin_flush().unwrap();
    let result = handle.sync();
    let flushed = log.on_flushed(handle.done(result));
    assert!(flushed < log.end());
    assert!(log.poisoned().is_some());
    let next = TestBatch::new(log.end(), 1, &[NOW], 100, Compression::None, None);
    assert!(matches!(log.append(&next.bytes, &[next.header], NOW), Err(AppendError::Poisoned { .. })));
    assert!(log.begin_flush().is_none());
    assert!(matches!(log.truncate_to(0), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.set_start(1), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.roll(), Err(LogError::Poisoned { .. })));
    // It can still be read.
    assert!(batches_of(&log, flushed) == support::from(&batches, 0));
    assert!(matches!(log.close(), Err(LogError::Poisoned { .. })));
    assert!(!data.close_clean().unwrap());
    drop(data);
    // The process starts again: the cache shows a batch that the device does not have. After the open it has.
    disk.restart_process();
    let data = open_dir(disk.clone(), &path);
    assert!(!data.was_clean());
    let (log, report) = open(&data, &LogConfig::default());
    assert!(report.was_poisoned);
    assert_eq!(log.end(), batch.header.last_offset() + 1);
    drop((log, data));
    disk.restart();
    let (log, report) = open(&open_dir(disk, &path), &LogConfig::default());
    assert!(!report.was_poisoned);
    let mut all = support::from(&batches, 0);
    all.extend(&batch.bytes);
    assert!(batches_of(&log, log.end()) == all);
}

/// A descriptor tells of lost pages once. Whoever asks second, flusher or owner, must not take its silence for success.
#[test]
fn an_error_that_the_other_one_was_told_counts_for_both() {
    for owner_is_first in [true, false] {
        let (disk, path) = sim();
        let data = open_dir(disk.clone(), &path);
        let (mut log, _) = filled(&data, &LogConfig::default(), 5);
        let before = log.flushed();
        append(&mut log, &TestBatch::new(before, 1, &[NOW], 100, Compression::None, None));
        let handle = log.begin_flush().unwrap();
        disk.inject(SimFault::Sync(".log".into()));
        let early = (!owner_is_first).then(|| handle.sync());
        assert!(log.set_start(before).is_err(), "{owner_is_first}");
        assert!(log.poisoned().is_some());
        let result = early.unwrap_or_else(|| handle.sync());
        assert!(result.is_err());
        assert_eq!(log.on_flushed(handle.done(result)), before);
        assert_eq!(log.flushed(), before);
    }
}

#[test]
fn a_flush_that_succeeds_after_another_failure_moves_nothing() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, _) = filled(&data, &LogConfig::default(), 5);
    let before = log.flushed();
    let batch = TestBatch::new(before, 1, &[NOW], 100, Compression::None, None);
    append(&mut log, &batch);
    let handle = log.begin_flush().unwrap();
    disk.inject(SimFault::Write(".log".into()));
    let next = TestBatch::new(before + 1, 1, &[NOW], 100, Compression::None, None);
    assert!(matches!(log.append(&next.bytes, &[next.header], NOW), Err(AppendError::Poisoned { .. })));
    let result = handle.sync();
    assert_eq!(log.on_flushed(handle.done(result)), before);
}

/// Without space for pages that were written already, the pages are gone: a second sync would report success.
#[test]
fn a_sync_without_space_is_a_failed_sync() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, _) = filled(&data, &LogConfig::default(), 5);
    let before = log.flushed();
    append(&mut log, &TestBatch::new(before, 1, &[NOW], 100, Compression::None, None));
    disk.inject(SimFault::SyncNoSpace(".log".into()));
    assert!(log.set_start(before).is_err());
    assert!(log.poisoned().is_some());
    assert!(log.begin_flush().is_none());
    assert_eq!(log.flushed(), before);
}

/// What was copied before the room ended is not left behind: with each try less would be free.
#[test]
fn a_log_that_does_not_fit_twice_waits_for_room_and_takes_none() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, batches) = filled(&data, &LogConfig::default(), 40);
    let batch = TestBatch::new(log.end(), 1, &[NOW], 100, Compression::None, None);
    append(&mut log, &batch);
    disk.inject(SimFault::SyncNoSpace(".log".into()));
    let handle = log.begin_flush().unwrap();
    let result = handle.sync();
    let flushed = log.on_flushed(handle.done(result));
    assert!(log.closed_for_space().is_some());
    drop(log);
    let leftover = disk.open(&segment_path(0, "log.tmp"), OpenMode::CreateNew).unwrap();
    leftover.write_at(&[1; 900], 0).unwrap();
    let used = disk.used_bytes() - 900;
    let copies = || disk.list(&path.join(NAME.to_string())).unwrap().iter().any(|e| e.name.ends_with(".tmp"));
    for room in [0, 200, 1_000] {
        disk.set_capacity(Some(used + room));
        let error = Log::open(&data, NAME, LogConfig::default(), NOW).err().unwrap();
        let OpenError::Io(error) = error else { panic!("{error}") };
        assert_eq!(error.source.kind(), std::io::ErrorKind::StorageFull, "{error}");
        assert_eq!((disk.used_bytes(), copies()), (used, false), "{room}");
    }
    disk.set_capacity(None);
    disk.inject(SimFault::Sync(".log.tmp".into()));
    Log::open(&data, NAME, LogConfig::default(), NOW).err().unwrap();
    assert_eq!((disk.used_bytes(), copies()), (used, false));
    let (log, report) = open(&data, &LogConfig::default());
    assert!(report.was_poisoned && report.flushed_end_known == flushed);
    assert_eq!((log.end(), copies()), (batch.header.last_offset() + 1, false));
    assert!(batches_of(&log, flushed) == support::from(&batches, 0));
}

/// The log was cut at the front and knows it only from one record: without that record it must not count as new, whose
/// files continue nothing and are removed.
#[test]
fn a_log_whose_record_has_rotted_keeps_its_files() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, batches) = filled(&data, &small(), 60);
    let start = segments(&*disk, &path)[1];
    log.set_start(start).unwrap();
    log.close().unwrap();
    drop(data);
    // Opened once more, the directory has one record for each log.
    drop(open_dir(disk.clone(), &path));
    disk.flip_bit(&path.join("flushed-ends"), 64 + 33, 1);
    let (log, report) = open(&open_dir(disk, &path), &small());
    assert!(report.flushed_end_lost);
    assert_eq!(log.start(), start);
    assert!(batches_of(&log, log.end()) == support::from(&batches, start));
}

#[test]
fn a_detached_log_is_gone_before_its_files_are() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (log, _) = filled(&data, &small(), 20);
    let left = log.detach().unwrap();
    let has_left = |disk: &SimDisk| disk.list(&path).unwrap().iter().any(|e| e.name.ends_with(".deleted"));
    assert!(has_left(&disk));
    assert!(data.known_logs().is_empty() && data.list().unwrap().is_empty());
    let (log, _) = open(&data, &small());
    assert_eq!(log.end(), 0);
    // Nobody came to remove the files: the next start does.
    drop((left, log, data));
    disk.restart();
    let data = open_dir(disk.clone(), &path);
    assert!(!has_left(&disk));
    assert_eq!(open(&data, &small()).0.end(), 0);
}

/// T-80b.
#[test]
fn a_write_back_error_is_not_lost_with_the_descriptor() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, _) = filled(&data, &small(), 5);
    let before = log.flushed();
    append(&mut log, &TestBatch::new(before, 1, &[NOW], 100, Compression::None, None));
    let base = *segments(&*disk, &path).last().unwrap();
    disk.lose_dirty_pages(&segment_path(base, "log"));
    // Much else is opened meanwhile, and the segment is rolled.
    log.roll().unwrap();
    for i in 0..20 {
        let name = LogName::new(Uuid::from_u128(i + 100), 0);
        let (mut other, _) = Log::open(&data, name, small(), NOW).unwrap();
        append(&mut other, &TestBatch::new(0, 1, &[NOW], 100, Compression::None, None));
        flush(&mut other);
    }
    let handle = log.begin_flush().unwrap();
    let result = handle.sync();
    assert!(result.is_err());
    assert_eq!(log.on_flushed(handle.done(result)), before);
    assert!(log.poisoned().is_some());
}

/// The device lost pages, the process died before it could hear of it, and the cache shows them to the next one.
#[test]
fn what_recovery_keeps_is_on_the_device_even_if_only_the_cache_had_it() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, batches) = filled(&data, &LogConfig::default(), 5);
    let batch = TestBatch::new(log.flushed(), 1, &[NOW], 100, Compression::None, None);
    append(&mut log, &batch);
    disk.lose_dirty_pages(&segment_path(0, "log"));
    drop((log, data));
    disk.restart_process();
    let data = open_dir(disk.clone(), &path);
    let (log, _) = open(&data, &LogConfig::default());
    let end = batch.header.last_offset() + 1;
    assert_eq!((log.end(), log.flushed()), (end, end));
    drop((log, data));
    disk.restart();
    let (log, _) = open(&open_dir(disk, &path), &LogConfig::default());
    assert_eq!(log.end(), end);
    assert!(batches_of(&log, end)[support::from(&batches, 0).len()..] == batch.bytes);
}

/// Damage below the flushed end takes the copy offline; the same damage above it is a torn tail (T-118).
#[test]
fn damage_below_the_flushed_end_is_not_a_torn_tail() {
    for flushed in [true, false] {
        let (disk, path) = sim();
        let data = open_dir(disk.clone(), &path);
        let (mut log, _) = open(&data, &LogConfig::default());
        let mut positions = vec![0];
        for i in 0..10 {
            let batch = TestBatch::new(log.end(), 0, &[NOW + i], 100, Compression::None, None);
            append(&mut log, &batch);
            positions.push(positions[i as usize] + batch.bytes.len() as u64);
        }
        if flushed {
            flush(&mut log);
            data.checkpoint().unwrap();
        }
        drop((log, data));
        disk.restart_process();
        // The magic byte of the sixth batch.
        disk.flip_bit(&segment_path(0, "log"), positions[5] + 16, 3);
        let data = open_dir(disk, &path);
        match (flushed, Log::open(&data, NAME, LogConfig::default(), NOW)) {
            (true, Err(OpenError::Damaged { position, flushed_end, .. })) => {
                assert_eq!((position, flushed_end), (positions[5], 10));
            }
            (false, Ok((log, report))) => {
                assert_eq!(log.end(), 5);
                assert_eq!(report.bytes_cut, positions[10] - positions[5]);
            }
            (_, opened) => panic!("flushed {flushed}: {:?}", opened.map(|(_, report)| report)),
        }
    }
}

#[test]
fn missing_and_short_segment_files_are_damage() {
    type Damage = fn(&SimDisk, &[i64]);
    let cases: [(&str, Damage); 4] = [
        ("first segment", |disk, bases| disk.remove_file(&segment_path(bases[0], "log")).unwrap()),
        ("last segment", |disk, bases| {
            disk.remove_file(&segment_path(bases[bases.len() - 1], "log")).unwrap();
        }),
        ("short", |disk, bases| {
            let path = segment_path(bases[bases.len() - 1], "log");
            let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
            file.set_len(file.len().unwrap() - 1).unwrap();
        }),
        ("directory", |disk, _| {
            let dir = segment_path(0, "log").parent().unwrap().to_owned();
            for entry in disk.list(&dir).unwrap() {
                disk.remove_file(&dir.join(entry.name)).unwrap();
            }
            disk.remove_dir(&dir).unwrap();
        }),
    ];
    for (what, damage) in cases {
        let (disk, path) = sim();
        let data = open_dir(disk.clone(), &path);
        let (log, _) = filled(&data, &small(), 50);
        log.close().unwrap();
        data.close_clean().unwrap();
        drop(data);
        damage(&disk, &segments(&*disk, &path));
        let data = open_dir(disk, &path);
        let opened = Log::open(&data, NAME, small(), NOW);
        assert!(matches!(opened, Err(OpenError::Damaged { .. })), "{what}");
    }
}

/// Deleting, cutting or damaging any index, snapshot or checkpoint changes nothing but the time to start (L4, T-108).
#[test]
fn indexes_and_checkpoints_are_only_hints() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (log, batches) = filled(&data, &small(), 120);
    let (producers, epochs) = (log.producers().clone(), log.epochs().clone());
    log.close().unwrap();
    data.close_clean().unwrap();
    drop(data);
    let dir = segment_path(0, "log").parent().unwrap().to_owned();
    let mut random = Random::new(3);
    for round in 0..60 {
        // What damage to append times does is a matter of `retention.rs`.
        let is_hint = |name: &str| !name.ends_with(".log") && !name.ends_with(".appendtimes");
        let names: Vec<_> = disk.list(&dir).unwrap().into_iter().filter(|e| is_hint(&e.name)).collect();
        for _ in 0..1 + random.below(3) {
            let victim = &names[random.below(names.len() as u64) as usize];
            let file = dir.join(&victim.name);
            let Ok(opened) = disk.open(&file, OpenMode::ReadWrite) else { continue };
            match random.below(4) {
                0 => disk.remove_file(&file).unwrap(),
                1 => opened.set_len(random.below(victim.len + 1)).unwrap(),
                2 => disk.flip_bit(&file, random.below(victim.len), random.below(8) as u8),
                _ => opened.write_at(&vec![0; victim.len as usize / 2], 0).unwrap(),
            }
        }
        if random.chance(10) {
            disk.remove_file(&path.join("flushed-ends")).unwrap();
        }
        let data = open_dir(disk.clone(), &path);
        let (log, report) = open(&data, &small());
        assert_eq!(report.bytes_cut, 0, "round {round}");
        check_lookups(&log, &batches, &mut random, 20);
        check_lookups(&log, &batches, &mut random, 20);
        assert_eq!(log.producers(), &producers, "round {round}");
        assert_eq!(log.epochs(), &epochs, "round {round}");
        log.close().unwrap();
        data.close_clean().unwrap();
    }
}

/// An entry that points at the first batch is true, but not the last of several: the walk from there would add all of them
/// once more.
#[test]
fn an_index_whose_last_entry_points_at_the_front_is_built_anew() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let config = LogConfig { segment_bytes: 1 << 20, ..small() };
    let (log, batches) = filled(&data, &config, 60);
    log.close().unwrap();
    data.close_clean().unwrap();
    drop(data);
    let read = || {
        let file = disk.open(&segment_path(0, "index"), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let whole = read();
    assert!(whole.len() > 3 * 8);
    let file = disk.open(&segment_path(0, "index"), OpenMode::ReadWrite).unwrap();
    let entry = (batches[0].header.last_offset() as u64) << 32;
    file.write_at(&entry.to_be_bytes(), whole.len() as u64 - 8).unwrap();
    let data = open_dir(disk.clone(), &path);
    let (log, report) = open(&data, &config);
    assert_eq!((report.indexes_rebuilt, report.bytes_cut, report.bytes_verified), (1, 0, 0));
    check_lookups(&log, &batches, &mut Random::new(3), 40);
    log.close().unwrap();
    assert_eq!(read(), whole);
}

/// Each of the entries is true, and the last one far enough behind: only their order tells that they are not what was flushed.
#[test]
fn an_index_whose_last_entries_are_earlier_ones_is_built_anew() {
    for (suffix, bytes) in [("index", 8), ("timeindex", 12)] {
        let (disk, path) = sim();
        let data = open_dir(disk.clone(), &path);
        let config = LogConfig { segment_bytes: 1 << 20, ..small() };
        let (log, batches) = filled(&data, &config, 200);
        log.close().unwrap();
        data.close_clean().unwrap();
        drop(data);
        let file = disk.open(&segment_path(0, suffix), OpenMode::ReadWrite).unwrap();
        let mut whole = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut whole, 0).unwrap();
        let entries = whole.len() / bytes;
        assert!(entries > 20, "{entries}");
        let earlier = &whole[(entries - 6) * bytes..(entries - 3) * bytes];
        file.write_at(earlier, ((entries - 3) * bytes) as u64).unwrap();
        let data = open_dir(disk.clone(), &path);
        let (log, report) = open(&data, &config);
        assert_eq!((report.indexes_rebuilt, report.bytes_cut, report.bytes_verified), (1, 0, 0), "{suffix}");
        check_lookups(&log, &batches, &mut Random::new(3), 40);
        log.close().unwrap();
        let mut found = vec![0; whole.len()];
        file.read_at(&mut found, 0).unwrap();
        assert!(found == whole, "{suffix}");
    }
}

/// The index files say what Kafka's would: an entry names the batch that ends at its offset, and the time entries are
/// the maxima so far.
#[test]
fn index_files_are_exact() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (log, _) = filled(&data, &small(), 150);
    log.close().unwrap();
    let read = |base, suffix| {
        let file = disk.open(&segment_path(base, suffix), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let i32_at = |bytes: &[u8], at: usize| i32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
    let (mut index_entries, mut time_entries) = (0, 0);
    for base in segments(&*disk, &path) {
        let (log, index, time_index) = (read(base, "log"), read(base, "index"), read(base, "timeindex"));
        let (mut position, mut max) = (0, -1);
        let (mut by_position, mut maxima) = (Vec::new(), Vec::new());
        for batch in records::batches(&log) {
            let header = *batch.unwrap().header();
            by_position.push((position as i32, header.last_offset()));
            position += header.size();
            if header.max_timestamp > max {
                max = header.max_timestamp;
                maxima.push((max, header.last_offset()));
            }
        }
        for entry in index.chunks_exact(8) {
            let found = (i32_at(entry, 4), base + i64::from(i32_at(entry, 0)));
            assert!(by_position.contains(&found), "{found:?} in segment {base}");
            index_entries += 1;
        }
        let time_entry = |e: &[u8]| {
            let timestamp = i64::from_be_bytes(std::array::from_fn(|i| e[i]));
            (timestamp, base + i64::from(i32_at(e, 8)))
        };
        for entry in time_index.chunks_exact(12) {
            assert!(maxima.contains(&time_entry(entry)), "{:?} in segment {base}", time_entry(entry));
            time_entries += 1;
        }
        // The last one tells the largest timestamp of the segment.
        assert_eq!(time_index.chunks_exact(12).last().map(time_entry), maxima.last().copied());
    }
    assert!(index_entries > 50 && time_entries > 20, "{index_entries} and {time_entries} entries");
}

/// With the record of flushed ends gone, a torn middle cannot be told from damage, so it counts as damage.
#[test]
fn a_lost_record_of_flushed_ends_makes_a_torn_middle_damage() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (log, _) = filled(&data, &small(), 60);
    log.close().unwrap();
    drop(data);
    disk.remove_file(&path.join("flushed-ends")).unwrap();
    disk.flip_bit(&segment_path(0, "log"), 70, 1);
    let data = open_dir(disk, &path);
    assert!(matches!(Log::open(&data, NAME, small(), NOW), Err(OpenError::Damaged { .. })));
}

#[test]
fn damaged_records_are_reported_and_not_served_by_lookups() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, _) = open(&data, &LogConfig::default());
    append(&mut log, &TestBatch::new(0, 0, &[NOW, NOW + 5], 100, Compression::None, None));
    disk.flip_bit(&segment_path(0, "log"), 80, 1);
    let found = log.reader().offset_for_timestamp(NOW + 1, 2);
    assert!(matches!(found, Err(ReadError::Damaged { position: 0, .. })), "{found:?}");
    disk.inject(SimFault::Read(".log".into()));
    assert!(matches!(log.reader().read(0, 100, 2, true), Err(ReadError::Io(_))));
}

#[test]
fn all_five_batches_of_a_producer_survive_a_restart_right_after_a_roll() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, _) = open(&data, &LogConfig::default());
    let batch = |i: i64| TestBatch::new(i, 0, &[NOW], 10, Compression::None, Some((5, 0, i as i32)));
    for i in 0..7 {
        append(&mut log, &batch(i));
    }
    log.roll().unwrap();
    flush(&mut log);
    data.checkpoint().unwrap();
    drop((log, data));
    disk.restart();
    let (log, _) = open(&open_dir(disk, &path), &LogConfig::default());
    for i in 2..7 {
        let check = log.producers().check_append(&log_engine::producer_batch(&batch(i).header), 0);
        assert_eq!(check, SequenceCheck::Duplicate { first_offset: i, last_offset: i, timestamp: NOW });
    }
}

/// T-105.
#[test]
fn a_flush_that_was_overtaken_by_a_cut_does_not_claim_what_came_after() {
    let (disk, path) = sim();
    let data = open_dir(disk, &path);
    let (mut log, _) = filled(&data, &LogConfig::default(), 3);
    let kept = log.end();
    append(&mut log, &TestBatch::new(kept, 1, &[NOW, NOW, NOW], 10, Compression::None, None));
    let handle = log.begin_flush().unwrap();
    assert!(log.begin_flush().is_none(), "one at a time");
    let result = handle.sync();
    log.truncate_to(kept + 1).unwrap();
    append(&mut log, &TestBatch::new(kept, 2, &[NOW], 10, Compression::None, None));
    assert_eq!(log.on_flushed(handle.done(result)), kept);
    assert_eq!(log.end(), kept + 1);
    data.checkpoint().unwrap();
    flush(&mut log);
    // A flush that could not be queued is taken back.
    append(&mut log, &TestBatch::new(kept + 1, 2, &[NOW], 10, Compression::None, None));
    let handle = log.begin_flush().unwrap();
    log.return_flush(handle);
    flush(&mut log);
}

/// A copy of a compacted log has gaps between its batches.
#[test]
fn a_log_that_is_cut_in_a_gap_goes_on_there_also_after_a_restart() {
    for (start, to) in [(0, 2), (0, 7), (0, 10), (5, 7), (5, 5)] {
        let (disk, path) = sim();
        let data = open_dir(disk.clone(), &path);
        let (mut log, _) = open(&data, &small());
        let batch = |at: i64| TestBatch::new(at, 0, &[NOW, NOW], 10, Compression::None, None);
        append(&mut log, &batch(0));
        append(&mut log, &batch(10));
        flush(&mut log);
        log.set_start(start).unwrap();
        assert_eq!(log.truncate_to(to).unwrap(), to);
        assert_eq!((log.start(), log.end()), (start, to));
        drop((log, data));
        disk.restart();
        let data = open_dir(disk.clone(), &path);
        let (mut log, report) = open(&data, &small());
        assert_eq!((report.start, report.end), (start, to));
        append(&mut log, &batch(to));
        let left = if start == 0 { vec![(0, 1), (to, to + 1)] } else { vec![(to, to + 1)] };
        assert_eq!(offsets(&batches_of(&log, i64::MAX)), left, "start {start}, cut at {to}");
    }
}

#[test]
fn a_prepared_log_has_nothing_left_to_write_when_it_is_closed_and_an_idle_one_neither() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, batches) = filled(&data, &small(), 30);
    log.prepare_close().unwrap();
    flush(&mut log);
    let ops = disk.ops();
    log.close().unwrap();
    assert_eq!(disk.ops(), ops);
    data.close_clean().unwrap();
    drop(data);
    let data = open_dir(disk.clone(), &path);
    let ops = disk.ops();
    let (log, report) = open(&data, &small());
    assert_eq!((report.indexes_rebuilt, report.bytes_verified), (0, 0));
    check_lookups(&log, &batches, &mut Random::new(1), 20);
    log.close().unwrap();
    assert_eq!(disk.ops(), ops);
}

#[test]
fn a_leader_epoch_without_records_is_known() {
    let (disk, path) = sim();
    let data = open_dir(disk, &path);
    let (mut log, _) = filled(&data, &LogConfig::default(), 3);
    log.begin_epoch(7);
    log.begin_epoch(6);
    assert_eq!(log.epochs().end_offset_for(7, log.end()), Some((7, log.end())));
    assert_eq!(log.epochs().end_offset_for(5, log.end()), Some((0, log.end())));
    flush(&mut log);
}

#[test]
fn a_leader_epoch_without_records_goes_when_an_older_one_comes_in_its_place() {
    let (disk, path) = sim();
    let data = open_dir(disk, &path);
    let (mut log, _) = open(&data, &LogConfig::default());
    log.begin_epoch(7);
    // It led in epoch 7 and nobody wrote to it; now it follows a leader that has older records here.
    let mut random = Random::new(1);
    append(&mut log, &TestBatch::random(&mut random, &[], &[], 0, 0, NOW));
    let known: Vec<_> =
        log.epochs().entries().iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
    assert_eq!(known, [(0, 0)]);
    flush(&mut log);
}

#[test]
fn the_descriptors_of_many_logs_stay_within_their_bound() {
    let dir = tempfile::tempdir().unwrap();
    let data = open_dir(Arc::new(RealDisk), dir.path());
    let mut logs = Vec::new();
    for i in 0..30 {
        let (mut log, _) = Log::open(&data, LogName::new(Uuid::from_u128(i), 0), small(), NOW).unwrap();
        for batch in 0..5 {
            append(&mut log, &TestBatch::new(batch, 0, &[NOW], 1000, Compression::None, None));
        }
        flush(&mut log);
        assert!(data.descriptors_open() <= 6);
        logs.push(log);
    }
    for log in &logs {
        assert!(batches_of(log, 5).len() > 5000);
        assert!(data.descriptors_open() <= 6);
    }
}

/// A follower whose log ends before its leader's begins: all goes, and a crash at any operation leaves the old log, an empty
/// one at 0, or the new one.
#[test]
fn a_log_begins_anew_whenever_the_power_goes() {
    for crash in 0.. {
        let (disk, path) = sim();
        let data = open_dir(disk.clone(), &path);
        let (mut log, batches) = filled(&data, &small(), 40);
        let old_end = log.end();
        let start = old_end + 1000;
        disk.crash_at(disk.ops() + 1 + crash);
        // Its first batch reaches back before the start, as after DeleteRecords in the middle of a batch at the leader.
        let straddling = TestBatch::new(start - 3, 9, &[NOW; 6], 20, Compression::None, Some((7, 0, 0)));
        let mut restart = || -> Result<(), ()> {
            let old = log.restart_at(start, NOW).map_err(drop)?;
            assert_eq!((log.start(), log.flushed(), log.end()), (start, start, start));
            assert!(log.producers().is_empty() && log.epochs().latest().is_none());
            old.remove_files().map_err(drop)?;
            log.append(&straddling.bytes, &[straddling.header], NOW).map_err(drop)?;
            assert_eq!((log.start(), log.end()), (start, start + 3));
            let handle = log.begin_flush().expect("there is something to flush");
            let result = handle.sync();
            let end = log.on_flushed(handle.done(result));
            if end == start + 3 { Ok(()) } else { Err(()) }
        };
        let done = restart().is_ok() && !disk.is_crashed();
        drop((log, data));
        disk.restart();
        let data = open_dir(disk.clone(), &path);
        let (mut log, _) = open(&data, &small());
        match (log.start(), log.end()) {
            (0, end) if end == old_end => {
                assert!(!done && batches_of(&log, end) == support::from(&batches, 0))
            }
            (at, end) if end == start + 3 => {
                assert!(at == start || at == start - 3, "{at}");
                assert_eq!(batches_of(&log, end), straddling.bytes);
                assert_eq!(log.epochs().latest().map(|e| e.epoch), Some(9));
                assert_eq!(log.producers().len(), 1);
            }
            (at, end) => assert!(!done && at == end && [0, start - 3, start].contains(&at), "{at} {end}"),
        }
        // Whatever is left can be begun anew, also lower.
        log.restart_at(5, NOW).unwrap().remove_files().unwrap();
        append(&mut log, &TestBatch::new(5, 9, &[NOW], 20, Compression::None, None));
        flush(&mut log);
        log.close().unwrap();
        assert_eq!(open(&data, &small()).0.end(), 6);
        if done {
            assert!(crash > 10, "{crash} operations");
            return;
        }
    }
}

#[test]
fn no_stop_is_clean_for_a_log_that_could_not_be_opened() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (log, _) = filled(&data, &small(), 20);
    drop((log, data));
    let data = open_dir(disk.clone(), &path);
    disk.inject(SimFault::Read(".log".into()));
    let error = Log::open(&data, NAME, small(), NOW).err();
    assert!(matches!(error, Some(OpenError::Io(_))), "{error:?}");
    assert!(!data.close_clean().unwrap());
    drop(data);
    assert!(!open_dir(disk, &path).was_clean());
}

/// Whoever watches a long recovery hears that it gets on, and can end it; the next one finds everything.
#[test]
fn a_recovery_tells_how_far_it_is_and_can_be_ended() {
    let (disk, path) = sim();
    let data = open_dir(disk.clone(), &path);
    let (mut log, _) = filled(&data, &LogConfig::default(), 5);
    let mut wanted = batches_of(&log, log.end());
    for _ in 0..40 {
        let batch = TestBatch::new(log.end(), 1, &[NOW], 100_000, Compression::None, None);
        append(&mut log, &batch);
        wanted.extend_from_slice(&batch.bytes);
    }
    let (end, total) = (log.end(), wanted.len() as u64);
    drop((log, data));
    disk.restart_process();
    let data = open_dir(disk, &path);
    let mut told = Vec::new();
    let mut enough = |progress: RecoveryProgress| {
        told.push(progress.bytes_done);
        progress.bytes_done < total / 2
    };
    let ended = Log::open_watched(&data, NAME, LogConfig::default(), NOW, &mut enough).err();
    assert!(
        matches!(&ended, Some(OpenError::Io(e)) if e.source.kind() == ErrorKind::Interrupted),
        "{ended:?}"
    );
    assert!(
        told.len() > 2 && told.is_sorted() && told[0] == 0 && told[told.len() - 2] < total / 2,
        "{told:?}"
    );
    assert!(!data.close_clean().unwrap(), "what was not flushed is still so");
    let mut last = RecoveryProgress::default();
    let mut to_the_end = |progress| {
        last = progress;
        true
    };
    let (log, _) = Log::open_watched(&data, NAME, LogConfig::default(), NOW, &mut to_the_end).unwrap();
    assert!(last.bytes_total == total && last.bytes_done > total - (2 << 20), "{last:?} of {total}");
    assert!(log.end() == end && batches_of(&log, end) == wanted);
    let ended =
        Log::open_watched(&data, LogName { partition: 1, ..NAME }, small(), NOW, &mut |_| false).err();
    assert!(matches!(ended, Some(OpenError::Io(_))), "nothing is begun any more");
}
