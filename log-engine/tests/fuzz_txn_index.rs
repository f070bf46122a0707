//! Seeded damage to transaction indexes and producer snapshots: whatever happens to them, a log opens, and what it says of
//! transactions is what its batches say.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine::{DataDir, DataDirOptions, Disk, Log, LogConfig, LogName, OpenMode, SimDisk};
use support::{PrintOnPanic, Random, TestBatch, check_transactions};
use uuid::Uuid;

const SEEDS: u64 = 200;
const NAME: LogName = LogName { topic_id: Uuid::from_u128(3), partition: 0 };

#[test]
fn damaged_transaction_indexes_are_built_anew() {
    let mut damaged = 0;
    for seed in support::seeds(SEEDS) {
        let _command = PrintOnPanic(format!("WEIR_SEED={seed} cargo test -p log-engine damaged_transaction"));
        damaged += damage_and_open(seed);
    }
    if std::env::var_os("WEIR_SEED").is_none() {
        assert!(damaged > 100, "{damaged} indexes were damaged");
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 3000,
        index_interval_bytes: 500,
        producer_snapshot_interval_bytes: 2000,
        ..LogConfig::default()
    }
}

fn open(disk: &Arc<SimDisk>) -> (DataDir, Log) {
    let options = DataDirOptions {
        cluster_id: "test".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(1),
        descriptors_max: 10,
    };
    let data = DataDir::open(disk.clone(), Path::new("data"), &options).unwrap();
    let (log, _) = Log::open(&data, NAME, config(), 0).unwrap();
    (data, log)
}

/// The number of damaged transaction indexes.
fn damage_and_open(seed: u64) -> usize {
    let mut random = Random::new(seed);
    let disk = SimDisk::new(seed);
    let mut batches: Vec<TestBatch> = Vec::new();
    let mut damaged = 0;
    for life in 0..3 {
        let (data, mut log) = open(&disk);
        check_transactions(&log, &batches, 0, &mut random, 10).unwrap();
        for i in 0..40 {
            let now = 1000 + i64::from(life) * 1000 + i64::from(i) * 20;
            let batch = TestBatch::random(&mut random, &batches, &[], log.end(), life, now);
            log.append(&batch.bytes, &[batch.header], 0).unwrap();
            batches.push(batch);
        }
        if random.chance(30) {
            let to = random.below(log.end() as u64) as i64;
            let end = log.truncate_to(to).unwrap();
            batches.retain(|b| b.header.last_offset() < end);
        }
        if random.chance(30) {
            // What is verified, or repaired, when it is read.
            check_transactions(&log, &batches, 0, &mut random, 4).unwrap();
        }
        log.close().unwrap();
        drop(data);
        for _ in 0..random.below(4) {
            damaged += usize::from(damage(&disk, &mut random));
        }
    }
    let (_data, log) = open(&disk);
    check_transactions(&log, &batches, 0, &mut random, 20).unwrap();
    damaged
}

/// Damages one file; whether it was a transaction index.
fn damage(disk: &SimDisk, random: &mut Random) -> bool {
    let dir = Path::new("data").join(NAME.to_string());
    let names = disk.list(&dir).unwrap().into_iter();
    let files: Vec<(PathBuf, u64)> = names
        .filter(|e| e.name.ends_with(".txnindex") || e.name.ends_with(".snapshot"))
        .map(|e| (dir.join(e.name), e.len))
        .collect();
    let Some((path, len)) = files.get(random.below(files.len() as u64) as usize) else { return false };
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    match random.below(4) {
        0 => disk.flip_bit(path, random.below(*len), random.below(8) as u8),
        1 => file.set_len(random.below(*len)).unwrap(),
        2 => disk.remove_file(path).unwrap(),
        _ => file.write_at(&random.next().to_be_bytes(), *len).unwrap(),
    }
    path.extension().is_some_and(|extension| extension == "txnindex")
}
