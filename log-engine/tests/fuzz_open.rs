//! Seeded damage: a valid directory, a few changes to any of its files, and `Log::open` on the result. It may refuse,
//! but neither it nor any read after it may panic, hang, or serve a batch that is not where it should be.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine::{
    DataDir, DataDirOptions, Disk, Log, LogConfig, LogName, OpenError, OpenMode, ReadError, SimDisk,
};
use support::{PrintOnPanic, Random, TestBatch};
use uuid::Uuid;

const SEEDS: u64 = 400;
const NAME: LogName = LogName { topic_id: Uuid::from_u128(3), partition: 0 };

#[test]
fn open_a_mutated_directory() {
    let (mut opened, mut refused) = (0, 0);
    for seed in support::seeds(SEEDS) {
        let _command = PrintOnPanic(format!("WEIR_SEED={seed} cargo test -p log-engine open_a_mutated"));
        match open_mutated(seed) {
            true => opened += 1,
            false => refused += 1,
        }
    }
    if std::env::var_os("WEIR_SEED").is_none() {
        assert!(opened > 20 && refused > 10, "{opened} opened, {refused} refused");
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 5000,
        index_interval_bytes: 150,
        index_entries_in_memory_max: 4,
        unpacked_batch_bytes_max: 1 << 20,
        ..LogConfig::default()
    }
}

fn open_dir(disk: &Arc<SimDisk>) -> Result<DataDir, log_engine::DataDirError> {
    let options = DataDirOptions {
        cluster_id: "test".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(1),
        descriptors_max: 10,
    };
    DataDir::open(disk.clone(), Path::new("data"), &options)
}

fn open_mutated(seed: u64) -> bool {
    let mut random = Random::new(seed);
    let disk = SimDisk::new(seed);
    let data = open_dir(&disk).unwrap();
    let (mut log, _) = Log::open(&data, NAME, config(), 0).unwrap();
    let mut batches = Vec::new();
    let mut flushed = 0;
    for i in 0..40 {
        let batch =
            TestBatch::random(&mut random, &batches, &[], log.end(), i / 15, 1000 + i64::from(i) * 20);
        log.append(&batch.bytes, &[batch.header], 0).unwrap();
        batches.push(batch);
        if i == 30
            && let Some(handle) = log.begin_flush()
        {
            let result = handle.sync();
            flushed = log.on_flushed(handle.done(result));
        }
    }
    match random.chance(50) {
        true => {
            flushed = log.end();
            log.close().unwrap();
        }
        false => drop(log),
    }
    if random.chance(50) {
        data.close_clean().unwrap();
    } else {
        data.checkpoint().unwrap();
    }
    drop(data);
    let mut flushed_end_is_known = true;
    for _ in 0..1 + random.below(5) {
        flushed_end_is_known &= !mutate(&disk, &mut random).ends_with("flushed-ends");
    }
    let Ok(data) = open_dir(&disk) else { return false };
    match Log::open(&data, NAME, config(), 0) {
        Ok((mut log, _)) => {
            let lost = flushed_end_is_known && log.end() < flushed;
            assert!(!lost, "{flushed} records were flushed, and it says nothing of having {}", log.end());
            read_all(&log, &batches);
            let next = TestBatch::new(log.end(), 9, &[5], 10, records::Compression::None, None);
            if log.append(&next.bytes, &[next.header], 0).is_ok()
                && let Some(handle) = log.begin_flush()
            {
                let result = handle.sync();
                log.on_flushed(handle.done(result));
                assert_eq!(log.flushed(), log.end());
            }
            true
        }
        Err(OpenError::Damaged { .. } | OpenError::Io(_) | OpenError::MovedAway { .. }) => false,
    }
}

/// Changes a file; which one.
fn mutate(disk: &SimDisk, random: &mut Random) -> PathBuf {
    let dir = Path::new("data").join(NAME.to_string());
    let inside = disk.list(&dir).unwrap().into_iter().map(|e| (dir.join(e.name), e.len));
    let mut files: Vec<(PathBuf, u64)> = inside.collect();
    files.push((PathBuf::from("data/flushed-ends"), 128));
    let (path, len) = &files[random.below(files.len() as u64) as usize];
    let Ok(file) = disk.open(path, OpenMode::ReadWrite) else { return path.clone() };
    let at = random.below(len.saturating_sub(1));
    match random.below(6) {
        0 => (0..3).for_each(|_| disk.flip_bit(path, random.below(*len), random.below(8) as u8)),
        1 => file.set_len(at).unwrap(),
        2 => file.write_at(&vec![0; (len - at).min(512) as usize], at).unwrap(),
        3 => disk.remove_file(path).unwrap(),
        // A block of the same file at another place.
        4 => {
            let mut block = vec![0; (len - at).min(256) as usize];
            if file.read_at(&mut block, at).is_ok() {
                file.write_at(&block, random.below(*len)).unwrap();
            }
        }
        _ => file.write_at(&random.next().to_be_bytes(), *len).unwrap(),
    }
    path.clone()
}

/// Reads and looks up everything; errors are fine.
fn read_all(log: &Log, batches: &[TestBatch]) {
    let reader = log.reader();
    let mut offset = reader.start();
    while offset < log.end() {
        match reader.read(offset, 1000, log.end(), true) {
            Ok(slice) if slice.is_empty() => break,
            Ok(slice) => {
                assert!(slice.next_offset > offset);
                for batch in records::batches(&slice.to_bytes().unwrap()) {
                    let Ok(batch) = batch else { break };
                    let header = batch.header();
                    // Whatever passes its checksum is a batch that was appended, at the offset where it was.
                    let original = batches.iter().any(|b| b.bytes == batch.bytes());
                    assert!(original || batch.check_crc().is_err() || differs_outside_crc(header, batches));
                }
                offset = slice.next_offset;
            }
            Err(ReadError::Damaged { .. } | ReadError::Io(_)) => break,
            Err(ReadError::OffsetOutOfRange { .. }) => panic!("{offset} is within the log"),
        }
    }
    for timestamp in (900..2000).step_by(50) {
        let _ = reader.offset_for_timestamp(timestamp, log.end());
    }
    let _ = reader.max_timestamp(log.end());
}

/// Base offset, length, leader epoch and magic are not under the checksum (Kafka's format).
fn differs_outside_crc(header: &records::BatchHeader, batches: &[TestBatch]) -> bool {
    batches.iter().any(|b| b.header.crc == header.crc)
}
