//! What a cut at the end leaves: a log that cannot be told from one that never had more.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use log_engine::{DataDir, DataDirOptions, Disk, Log, LogConfig, LogName, OpenMode, SimDisk};
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

#[test]
fn indexes_and_producers_are_those_of_a_log_that_never_had_more() {
    let mut entries = 0;
    for seed in 1..=SEEDS {
        let _case = PrintOnPanic(format!("seed {seed}"));
        let (disk, batches) = life(seed, false);
        // A batch that is gone may have begun a segment that stayed.
        let bases = bases(&disk);
        let straight = SimDisk::new(seed);
        let (data, mut log) = open(&straight);
        log.update_config(LogConfig { segment_bytes: 1 << 20, ..config() });
        for batch in &batches {
            if bases.contains(&log.end()) {
                log.roll().unwrap();
            }
            log.append(&batch.bytes, &[batch.header], NOW).unwrap();
        }
        let producers = log.producers().clone();
        close(data, log);
        let (found, expected) = (indexes(&disk), indexes(&straight));
        entries += expected.values().map(|bytes| bytes.len() / 8).sum::<usize>();
        assert_eq!(found, expected);
        let (_data, cut) = open(&disk);
        assert_eq!(cut.producers(), &producers);
    }
    assert!(entries > 1000, "{entries}");
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
