//! What a cut at the end leaves: a log that cannot be told from one that never had more.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use log_engine::{DataDir, DataDirOptions, Disk, Log, LogConfig, LogName, OpenMode, SimDisk};
use records::Compression;
use support::{PrintOnPanic, Random, TestBatch, check_lookups, check_transactions};
use uuid::Uuid;

const NAME: LogName = LogName { topic_id: Uuid::from_u128(3), partition: 1 };
const NOW: i64 = 1_700_000_000_000;
const SEEDS: u64 = 60;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 12_000,
        index_interval_bytes: 200,
        index_entries_in_memory_max: 6,
        producer_snapshot_interval_bytes: 3_000,
        ..LogConfig::default()
    }
}

fn open(disk: &Arc<SimDisk>) -> (DataDir, Log) {
    let options = DataDirOptions {
        cluster_id: "c1".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(9),
        descriptors_max: 6,
    };
    let data = DataDir::open(disk.clone(), Path::new("data"), &options).unwrap();
    let (log, _) = Log::open(&data, NAME, config(), NOW).unwrap();
    (data, log)
}

fn close(data: DataDir, log: Log) {
    log.close().unwrap();
    data.close_clean().unwrap();
}

/// The indexes as they lie on the disk.
fn indexes(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let dir = Path::new("data").join(NAME.to_string());
    let is_index =
        |name: &str| ["index", "timeindex", "txnindex"].iter().any(|s| name.ends_with(&format!(".{s}")));
    let names = disk.list(&dir).unwrap().into_iter().map(|entry| entry.name).filter(|name| is_index(name));
    let read = |name: String| {
        let file = disk.open(&dir.join(&name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        // No file says the same as an empty one.
        (!bytes.is_empty()).then_some((name, bytes))
    };
    names.filter_map(read).collect()
}

/// Where segments begin.
fn bases(disk: &SimDisk) -> Vec<i64> {
    let names = disk.list(&Path::new("data").join(NAME.to_string())).unwrap();
    names.iter().filter_map(|entry| entry.name.strip_suffix(".log")?.parse().ok()).collect()
}

/// Damages one index file somewhere.
fn damage(disk: &SimDisk, random: &mut Random) {
    let names: Vec<String> = indexes(disk).into_keys().collect();
    let name = &names[random.below(names.len() as u64) as usize];
    let path = Path::new("data").join(NAME.to_string()).join(name);
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    match random.below(3) {
        0 => disk.flip_bit(&path, random.below(len), random.below(8) as u8),
        1 => file.write_at(&vec![0; len as usize / 2], len / 4).unwrap(),
        _ => {
            let mut front = vec![0; len as usize / 2];
            file.read_at(&mut front, 0).unwrap();
            file.write_at(&front, len - front.len() as u64).unwrap();
        }
    }
}

/// Appends, cuts and restarts; with damage to indexes in between, if asked.
fn life(seed: u64, with_damage: bool) -> (Arc<SimDisk>, Vec<TestBatch>) {
    let mut random = Random::new(seed);
    let disk = SimDisk::new(seed);
    let mut batches: Vec<TestBatch> = Vec::new();
    let (mut data, mut log) = open(&disk);
    for round in 0..10 {
        for i in 0..random.below(40) {
            // Timestamps go up and down.
            let now = NOW + i as i64 * 20 - 300 * random.below(3) as i64;
            let batch = TestBatch::random(&mut random, &batches, &[], log.end(), round, now);
            log.append(&batch.bytes, &[batch.header], NOW).unwrap();
            batches.push(batch);
        }
        if random.chance(50) {
            close(data, log);
            if with_damage && !indexes(&disk).is_empty() {
                damage(&disk, &mut random);
            }
            (data, log) = open(&disk);
        }
        // Now and then all of it, mostly a little.
        let most = if random.chance(20) { log.end() + 1 } else { 40.min(log.end() + 1) };
        let to = log.end() - random.below(most as u64) as i64;
        let end = log.truncate_to(to).unwrap();
        batches.retain(|batch| batch.header.last_offset() < end);
        check_lookups(&log, &batches, &mut random, 10);
        check_transactions(&log, &batches, 0, &mut random, 4).unwrap();
    }
    // A log that was opened and not changed writes no indexes when it is closed.
    let batch = TestBatch::random(&mut random, &batches, &[], log.end(), 10, NOW);
    log.append(&batch.bytes, &[batch.header], NOW).unwrap();
    batches.push(batch);
    close(data, log);
    (disk, batches)
}

/// Compares a closed log with one that never had more. Answers how many index entries that is, about.
fn check_closed(disk: &Arc<SimDisk>, batches: &[TestBatch]) -> usize {
    // A batch that is gone may have begun a segment that stayed.
    let bases = bases(disk);
    let straight = SimDisk::new(1);
    let (data, mut log) = open(&straight);
    log.update_config(LogConfig { segment_bytes: 1 << 20, ..config() });
    for batch in batches {
        if bases.contains(&log.end()) {
            log.roll().unwrap();
        }
        log.append(&batch.bytes, &[batch.header], NOW).unwrap();
    }
    let producers = log.producers().clone();
    close(data, log);
    let (found, expected) = (indexes(disk), indexes(&straight));
    assert_eq!(found, expected);
    let (_data, cut) = open(disk);
    assert_eq!(cut.producers(), &producers);
    expected.values().map(|bytes| bytes.len() / 8).sum()
}

#[test]
fn indexes_and_producers_are_those_of_a_log_that_never_had_more() {
    let mut entries = 0;
    for seed in 1..=SEEDS {
        let _case = PrintOnPanic(format!("seed {seed}"));
        let (disk, batches) = life(seed, false);
        entries += check_closed(&disk, &batches);
    }
    assert!(entries > 1000, "{entries}");
}

/// Appends batches of one record each.
fn append(log: &mut Log, batches: &mut Vec<TestBatch>, count: i64, timestamp: impl Fn(i64) -> i64) {
    for i in 0..count {
        let batch = TestBatch::new(log.end(), 1, &[timestamp(i)], 100, Compression::None, None);
        log.append(&batch.bytes, &[batch.header], NOW).unwrap();
        batches.push(batch);
    }
}

fn cut(log: &mut Log, batches: &mut Vec<TestBatch>, to: i64) {
    assert_eq!(log.truncate_to(to).unwrap(), to);
    batches.retain(|batch| batch.header.last_offset() < to);
}

fn flush(log: &mut Log) {
    let handle = log.begin_flush().unwrap();
    let result = handle.sync();
    log.on_flushed(handle.done(result));
    assert_eq!((log.flushed(), log.poisoned()), (log.end(), None));
}

/// A start on a full disk leaves a segment with a few of its index entries, in memory. Then a cut makes it the one that takes
/// appends, and its index goes to the files.
#[test]
fn an_index_that_a_full_disk_has_thinned_out_is_whole_again_after_a_cut() {
    const STEP: i64 = 100;
    for further in 0..20 {
        let _case = PrintOnPanic(format!("further {further}"));
        let (disk, mut batches) = (SimDisk::new(1), Vec::new());
        let (data, mut log) = open(&disk);
        append(&mut log, &mut batches, 150, |i| NOW + i * STEP);
        drop((log, data));
        disk.restart_process();
        let dir = Path::new("data").join(NAME.to_string());
        indexes(&disk).into_keys().for_each(|name| disk.remove_file(&dir.join(name)).unwrap());
        // None even for what a start puts in place of what it removes.
        disk.set_capacity(Some(0));
        let (data, mut log) = open(&disk);
        assert!(indexes(&disk).is_empty() && log.end() == 150, "no room");
        disk.set_capacity(None);

        let next = bases(&disk)[1];
        cut(&mut log, &mut batches, next - 1);
        append(&mut log, &mut batches, 20, |i| NOW + (next + i) * STEP);
        assert!(!indexes(&disk).is_empty(), "in the files");
        let to = next - 10 - further;
        cut(&mut log, &mut batches, to);
        // Newer than what a thinned index would say, older than what is there.
        append(&mut log, &mut batches, 20, |i| NOW + (to - 5) * STEP + i);
        check_lookups(&log, &batches, &mut Random::new(1), 200);
        close(data, log);
        check_closed(&disk, &batches);
    }
}

#[test]
fn an_index_file_that_is_gone_is_no_reason_not_to_cut() {
    for suffix in ["index", "timeindex"] {
        let _case = PrintOnPanic(suffix.to_owned());
        let (disk, mut batches) = (SimDisk::new(1), Vec::new());
        let (data, mut log) = open(&disk);
        append(&mut log, &mut batches, 300, |i| NOW + i);
        flush(&mut log);
        let last = *bases(&disk).last().unwrap();
        let dir = Path::new("data").join(NAME.to_string());
        disk.remove_file(&dir.join(format!("{last:020}.{suffix}"))).unwrap();
        // Other files take its place among those that are open.
        for &base in &bases(&disk)[..3] {
            let reader = log.reader();
            reader.read(base + 20, 1000, log.end(), true).unwrap().to_bytes().unwrap();
            reader.offset_for_timestamp(NOW + base + 20, log.end()).unwrap();
        }
        let to = log.end() - 1;
        cut(&mut log, &mut batches, to);
        append(&mut log, &mut batches, 30, |i| NOW + to + i);
        check_lookups(&log, &batches, &mut Random::new(1), 100);
        close(data, log);
        check_closed(&disk, &batches);
    }
}

#[test]
fn an_index_that_lies_is_not_gone_by() {
    for seed in 1..=SEEDS {
        let _case = PrintOnPanic(format!("seed {seed}"));
        let (disk, batches) = life(seed, true);
        let (_data, log) = open(&disk);
        check_lookups(&log, &batches, &mut Random::new(seed), 40);
        check_transactions(&log, &batches, 0, &mut Random::new(seed), 10).unwrap();
    }
}
