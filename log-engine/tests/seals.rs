//! Seals: what a start makes of them, and what damage it sees by them.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use log_engine::{
    DataDir, DataDirOptions, Disk, Log, LogConfig, LogName, OpenError, OpenMode, ReadError, RecoveryReport,
    Scrubbed, Sealing, SimDisk, SimFault,
};
use log_engine_core::{Seal, producer_snapshot};
use support::{Random, TestBatch, check_lookups, check_transactions};
use uuid::Uuid;

const NAME: LogName = LogName { topic_id: Uuid::from_u128(77), partition: 4 };
const NOW: i64 = 1_700_000_000_000;

fn config() -> LogConfig {
    LogConfig { segment_bytes: 4000, index_interval_bytes: 200, ..LogConfig::default() }
}

fn open_dir(disk: &Arc<SimDisk>) -> DataDir {
    let options = DataDirOptions {
        cluster_id: "c1".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(9),
        descriptors_max: 6,
    };
    DataDir::open(disk.clone(), Path::new("data"), &options).unwrap()
}

fn open(data: &DataDir) -> (Log, RecoveryReport) {
    Log::open(data, NAME, config(), NOW).unwrap()
}

fn flush(log: &mut Log) {
    let handle = log.begin_flush().unwrap();
    let result = handle.sync();
    log.on_flushed(handle.done(result));
}

fn path(base: i64, suffix: &str) -> PathBuf {
    PathBuf::from("data").join(NAME.to_string()).join(format!("{base:020}.{suffix}"))
}

fn bases(disk: &SimDisk, suffix: &str) -> Vec<i64> {
    let names = disk.list(&Path::new("data").join(NAME.to_string())).unwrap();
    names.iter().filter_map(|e| e.name.strip_suffix(suffix)?.strip_suffix('.')?.parse().ok()).collect()
}

fn seal_all(data: &DataDir) -> Vec<Sealing> {
    std::iter::from_fn(|| data.seal_next(Duration::ZERO)).map(|(_, sealing)| sealing.unwrap()).collect()
}

/// A closed log of many segments, sealed but for the last, under several epochs.
fn sealed() -> (Arc<SimDisk>, Vec<TestBatch>) {
    let disk = SimDisk::new(1);
    let data = open_dir(&disk);
    let (mut log, _) = open(&data);
    let mut random = Random::new(5);
    let mut batches = Vec::new();
    for i in 0..200 {
        let batch = TestBatch::random(&mut random, &batches, &[], log.end(), i / 40, NOW + i64::from(i) * 50);
        log.append(&batch.bytes, &[batch.header], NOW).unwrap();
        batches.push(batch);
    }
    flush(&mut log);
    let sealings = seal_all(&data);
    assert!(sealings.len() > 5 && sealings.iter().all(|s| *s == Sealing::Sealed), "{sealings:?}");
    log.close().unwrap();
    data.close_clean().unwrap();
    (disk, batches)
}

fn bytes_of(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn seal_of(disk: &SimDisk, base: i64) -> Seal {
    Seal::decode(&bytes_of(disk, &path(base, "seal")), base).unwrap()
}

/// Why the log is not opened.
fn refusal(disk: &Arc<SimDisk>) -> (String, PathBuf, u64) {
    match Log::open(&open_dir(disk), NAME, config(), NOW) {
        Err(OpenError::Damaged { reason, path, position, .. }) => (reason, path, position),
        Err(other) => panic!("{other}"),
        Ok((_, report)) => panic!("opened: {report:?}"),
    }
}

#[test]
fn a_seal_says_what_its_segment_holds() {
    let (disk, batches) = sealed();
    let logs = bases(&disk, "log");
    assert_eq!(bases(&disk, "seal"), logs[..logs.len() - 1]);
    for pair in logs.windows(2) {
        let seal = seal_of(&disk, pair[0]);
        let within: Vec<_> =
            batches.iter().filter(|b| (pair[0]..pair[1]).contains(&b.header.base_offset)).collect();
        assert_eq!((seal.last_offset + 1, seal.next_base), (pair[1], pair[1]));
        assert_eq!(seal.batches, within.len() as u64);
        assert_eq!(seal.records, within.iter().map(|b| b.header.record_count as u64).sum::<u64>());
        assert_eq!(seal.length, within.iter().map(|b| b.bytes.len() as u64).sum::<u64>());
        let max = within.iter().map(|b| b.header.max_timestamp).max().unwrap();
        assert_eq!(seal.max_timestamp, max);
        assert_eq!(seal.producers_at, Some(pair[1]));
        assert_eq!(seal.index.unwrap().length, bytes_of(&disk, &path(pair[0], "index")).len() as u64);
    }
}

#[test]
fn a_start_takes_sealed_segments_as_they_are_described() {
    let (disk, batches) = sealed();
    let data = open_dir(&disk);
    let (log, report) = open(&data);
    assert_eq!(report.seals_read, bases(&disk, "seal").len());
    assert_eq!((report.seals_dropped, report.indexes_rebuilt, report.bytes_verified), (0, 0, 0));
    // The last index entry is where the segment that takes appends goes on.
    assert!(!report.epochs_rebuilt && report.batches_walked <= 3, "{report:?}");
    check_lookups(&log, &batches, &mut Random::new(7), 200);
}

#[test]
fn segments_without_seals_are_opened_as_ever() {
    let (disk, batches) = sealed();
    for base in bases(&disk, "seal") {
        disk.remove_file(&path(base, "seal")).unwrap();
    }
    let (log, report) = open(&open_dir(&disk));
    assert_eq!((report.seals_read, report.seals_dropped), (0, 0));
    check_lookups(&log, &batches, &mut Random::new(7), 200);
}

#[test]
fn a_segment_that_was_shortened_is_damage_even_where_a_batch_ends() {
    let (disk, batches) = sealed();
    let logs = bases(&disk, "log");
    let (base, next) = (logs[2], logs[3]);
    let last = batches.iter().rfind(|b| b.header.base_offset < next).unwrap();
    let cut = seal_of(&disk, base).length - last.bytes.len() as u64;
    disk.open(&path(base, "log"), OpenMode::ReadWrite).unwrap().set_len(cut).unwrap();
    let (reason, found, position) = refusal(&disk);
    assert!(reason.contains("but was sealed with"), "{reason}");
    assert_eq!((found, position), (path(base, "log"), cut));
}

#[test]
fn a_segment_that_is_missing_in_the_middle_is_named() {
    let (disk, _) = sealed();
    let base = bases(&disk, "log")[3];
    disk.remove_file(&path(base, "log")).unwrap();
    let (reason, found, _) = refusal(&disk);
    assert_eq!((reason.as_str(), found), ("the segment file is missing", path(base, "log")));
}

#[test]
fn seals_that_cannot_be_believed_are_dropped() {
    let (disk, batches) = sealed();
    let seals = bases(&disk, "seal");
    disk.flip_bit(&path(seals[0], "seal"), 30, 3);
    disk.open(&path(seals[1], "seal"), OpenMode::ReadWrite).unwrap().set_len(40).unwrap();
    // That of another segment.
    let other = bytes_of(&disk, &path(seals[3], "seal"));
    let file = disk.open(&path(seals[2], "seal"), OpenMode::CreateOrEmpty).unwrap();
    file.write_at(&other, 0).unwrap();
    // One that is whole, but older than the segment: all of that is there, so it is the seal that is wrong.
    let older = Seal {
        length: 17,
        pieces: vec![1],
        next_base: seals[3] + 2,
        last_offset: seals[3] + 1,
        ..seal_of(&disk, seals[3])
    };
    let file = disk.open(&path(seals[3], "seal"), OpenMode::CreateOrEmpty).unwrap();
    file.write_at(&older.encode(), 0).unwrap();
    let (log, report) = open(&open_dir(&disk));
    assert_eq!((report.seals_dropped, report.seals_read), (4, seals.len() - 4));
    assert_eq!(bases(&disk, "seal"), seals[4..]);
    check_lookups(&log, &batches, &mut Random::new(7), 200);
}

/// The next read of a seal fails.
fn unreadable_seal(disk: &SimDisk, base: i64) {
    disk.inject(SimFault::Read(format!("{base:020}.seal")));
}

#[test]
fn a_start_that_cannot_read_a_seal_fails_and_leaves_it() {
    let (disk, batches) = sealed();
    let seals = bases(&disk, "seal");
    unreadable_seal(&disk, seals[2]);
    match Log::open(&open_dir(&disk), NAME, config(), NOW) {
        Err(OpenError::Io(error)) => assert_eq!(error.path, path(seals[2], "seal")),
        other => panic!("{:?}", other.map(|(_, report)| report)),
    }
    assert_eq!(bases(&disk, "seal"), seals);
    let (log, report) = open(&open_dir(&disk));
    assert_eq!((report.seals_read, report.seals_dropped), (seals.len(), 0));
    check_lookups(&log, &batches, &mut Random::new(7), 20);
}

#[test]
fn a_scrub_that_cannot_read_a_seal_seals_nothing_as_it_finds_it() {
    let (disk, _) = sealed();
    let data = open_dir(&disk);
    let (log, _) = open(&data);
    let seals = bases(&disk, "seal");
    // The leader epoch of the first batch, which no batch checksum covers.
    disk.flip_bit(&path(seals[2], "log"), 13, 2);
    unreadable_seal(&disk, seals[2]);
    let scrubbed = scrub(&data, &log);
    assert!(scrubbed[2].as_ref().unwrap_err().contains(".seal"), "{scrubbed:?}");
    assert_eq!(bases(&disk, "seal"), seals);
    let scrubbed = scrub(&data, &log);
    assert!(scrubbed[2].as_ref().unwrap_err().contains("sealed"), "{scrubbed:?}");
}

#[test]
fn a_marked_segment_is_not_whole_again_because_its_seal_cannot_be_read() {
    for seal_is_damaged in [false, true] {
        let (disk, _) = sealed();
        let data = open_dir(&disk);
        let (log, _) = open(&data);
        let base = bases(&disk, "seal")[2];
        disk.flip_bit(&path(base, "log"), 13, 2);
        let segment = log.reader().written_segments().swap_remove(2);
        let error = segment.scrub(&data, 200, &mut |_| true).unwrap_err();
        assert!(segment.mark_damaged(&data, &error.to_string()).unwrap());
        log.close().unwrap();
        drop(data);
        if seal_is_damaged {
            disk.flip_bit(&path(base, "seal"), 30, 3);
            assert!(refusal(&disk).0.contains("seal"), "nothing tells what the segment was");
        } else {
            unreadable_seal(&disk, base);
            let opened = Log::open(&open_dir(&disk), NAME, config(), NOW);
            assert!(matches!(opened, Err(OpenError::Io(_))), "{:?}", opened.map(|(_, report)| report));
        }
        // Nor when it is asked again.
        assert_eq!(refusal(&disk).1.file_stem(), path(base, "log").file_stem());
    }
}

#[test]
fn indexes_that_are_not_as_long_as_they_were_are_built_anew() {
    let (disk, batches) = sealed();
    let base = bases(&disk, "seal")[1];
    disk.open(&path(base, "index"), OpenMode::ReadWrite).unwrap().set_len(0).unwrap();
    let (log, report) = open(&open_dir(&disk));
    assert_eq!((report.indexes_rebuilt, report.seals_dropped), (1, 1));
    check_lookups(&log, &batches, &mut Random::new(7), 200);
}

#[test]
fn what_is_cut_loses_its_seals_and_what_was_cut_meanwhile_gets_none() {
    let (disk, _) = sealed();
    let data = open_dir(&disk);
    let (mut log, _) = open(&data);
    let seals = bases(&disk, "seal");
    log.truncate_to(seals[3] + 1).unwrap();
    assert_eq!(bases(&disk, "seal"), seals[..3]);
    let mut random = Random::new(6);
    let mut append = |log: &mut Log| {
        let batch = TestBatch::random(&mut random, &[], &[], log.end(), 9, NOW);
        log.append(&batch.bytes, &[batch.header], NOW).unwrap();
    };
    while bases(&disk, "log").len() < 8 {
        append(&mut log);
    }
    flush(&mut log);
    let end = bases(&disk, "log")[6] + 1;
    log.truncate_to(end).unwrap();
    let sealings = seal_all(&data);
    assert!(sealings.contains(&Sealing::Sealed) && sealings.contains(&Sealing::Gone), "{sealings:?}");
    let logs = bases(&disk, "log");
    assert_eq!(bases(&disk, "seal"), logs[..logs.len() - 1]);
    log.set_start(logs[2]).unwrap();
    assert_eq!(bases(&disk, "seal"), logs[2..logs.len() - 1]);
    log.restart_at(5, NOW).unwrap().remove_files().unwrap();
    assert_eq!(bases(&disk, "seal"), []);
}

#[test]
fn damage_keeps_a_segment_from_being_sealed() {
    let disk = SimDisk::new(1);
    let data = open_dir(&disk);
    let (mut log, _) = open(&data);
    let mut random = Random::new(5);
    while bases(&disk, "log").len() < 3 {
        let batch = TestBatch::random(&mut random, &[], &[], log.end(), 0, NOW);
        log.append(&batch.bytes, &[batch.header], NOW).unwrap();
    }
    flush(&mut log);
    disk.flip_bit(&path(0, "log"), 100, 1);
    let first = data.seal_next(Duration::ZERO).unwrap();
    let second = data.seal_next(Duration::ZERO).unwrap();
    let mut outcomes = [first, second].map(|(_, o)| o.map_err(|e| e.to_string()));
    outcomes.sort_by_key(Result::is_ok);
    assert!(outcomes[0].as_ref().unwrap_err().contains("checksum"), "{outcomes:?}");
    assert_eq!(outcomes[1], Ok(Sealing::Sealed));
}

/// T-6: epoch 0 too.
#[test]
fn a_checkpoint_of_epochs_that_does_not_fit_the_batches_is_built_anew() {
    let checkpoint = Path::new("data").join(NAME.to_string()).join("leader-epoch-checkpoint");
    let truth = {
        let (disk, _) = sealed();
        String::from_utf8(bytes_of(&disk, &checkpoint)).unwrap()
    };
    let lines: Vec<&str> = truth.lines().skip(2).collect();
    assert_eq!(lines.len(), 5, "{truth}");
    let starts: Vec<i64> = lines.iter().map(|l| l.split_once(' ').unwrap().1.parse().unwrap()).collect();
    let lies = [
        format!("0\n4\n{}\n", lines[..4].join("\n")),
        format!("0\n4\n{}\n", lines[1..].join("\n")),
        truth.replace(lines[2], &format!("2 {}", starts[1] + 30)),
        truth.replace(lines[2], &format!("2 {}", starts[3] - 30)),
        truth.replace(lines[4], &format!("5 {}", starts[4])),
        "nonsense".to_owned(),
    ];
    for lie in lies {
        let (disk, batches) = sealed();
        let file = disk.open(&checkpoint, OpenMode::CreateOrEmpty).unwrap();
        file.write_at(lie.as_bytes(), 0).unwrap();
        let (log, _) = open(&open_dir(&disk));
        // Where an epoch begins in a gap between two batches makes no difference to any of them.
        for header in batches.iter().map(|batch| &batch.header) {
            assert_eq!(
                log.epochs().epoch_of(header.base_offset),
                Some(header.partition_leader_epoch),
                "{lie}"
            );
        }
        assert_eq!(log.epochs().entries().len(), 5, "{lie}");
    }
}

fn scrub(data: &DataDir, log: &Log) -> Vec<Result<Scrubbed, String>> {
    let segments = log.reader().written_segments();
    segments.iter().map(|s| s.scrub(data, 200, &mut |_| true).map_err(|e| e.to_string())).collect()
}

#[test]
fn a_scrub_finds_everything_sound_and_seals_what_has_no_seal() {
    let (disk, _) = sealed();
    let data = open_dir(&disk);
    let (log, _) = open(&data);
    assert!(scrub(&data, &log).iter().all(|s| *s == Ok(Scrubbed::Sound)));
    let seals = bases(&disk, "seal");
    let truth = seal_of(&disk, seals[2]);
    disk.remove_file(&path(seals[2], "seal")).unwrap();
    disk.flip_bit(&path(seals[4], "seal"), 9, 0);
    let scrubbed = scrub(&data, &log);
    assert_eq!((&scrubbed[2], &scrubbed[4]), (&Ok(Scrubbed::Sealed), &Ok(Scrubbed::Sealed)));
    // The last one takes appends and has no seal.
    assert_eq!(scrubbed.iter().filter(|s| **s == Ok(Scrubbed::Sound)).count(), seals.len() - 1);
    assert_eq!(seal_of(&disk, seals[2]), truth);
}

/// T-118.
#[test]
fn a_scrub_finds_any_flipped_bit_of_a_segment_and_the_mark_outlives_a_restart() {
    let mut random = Random::new(3);
    for round in 0..40 {
        let (disk, batches) = sealed();
        let data = open_dir(&disk);
        let (log, _) = open(&data);
        let seals = bases(&disk, "seal");
        let nth = random.below(seals.len() as u64) as usize;
        let damaged = path(seals[nth], "log");
        // Also the bytes that no batch checksum covers: the first of the file are the base offset.
        let at = if round == 0 { 3 } else { random.below(seal_of(&disk, seals[nth]).length) };
        let bit = random.below(8) as u8;
        disk.flip_bit(&damaged, at, bit);
        for (i, segment) in log.reader().written_segments().iter().enumerate() {
            let scrubbed = segment.scrub(&data, 200, &mut |_| true);
            assert_eq!(scrubbed.is_err(), i == nth, "byte {at}: {scrubbed:?}");
            if let Err(error) = scrubbed {
                assert!(segment.mark_damaged(&data, &error.to_string()).unwrap());
            }
        }
        log.close().unwrap();
        drop(data);
        assert_eq!(refusal(&disk).1, damaged);
        // The operator brings the bytes back.
        disk.flip_bit(&damaged, at, bit);
        let (log, _) = open(&open_dir(&disk));
        check_lookups(&log, &batches, &mut Random::new(7), 20);
        drop(log);
        open(&open_dir(&disk));
    }
}

#[test]
fn a_scrub_finds_what_rots_where_appends_go_and_a_torn_end_is_no_damage() {
    let mut random = Random::new(4);
    for round in 0..20 {
        let (disk, mut batches) = sealed();
        let data = open_dir(&disk);
        let (mut log, _) = open(&data);
        let last = *bases(&disk, "log").last().unwrap();
        let damaged = path(last, "log");
        let flushed = batches.iter().filter(|b| b.header.base_offset >= last);
        let flushed: Vec<_> = flushed.map(|b| b.bytes.len() as u64).collect();
        // Behind the twelve bytes of a batch that its checksum leaves out.
        let (begin, len) = (flushed[0], flushed[1]);
        let at = begin + 16 + random.below(len - 16);
        let bit = random.below(8) as u8;
        disk.flip_bit(&damaged, at, bit);
        let scrubbed = scrub(&data, &log);
        assert!(scrubbed.last().unwrap().is_err(), "byte {at}: {scrubbed:?}");
        assert_eq!(scrubbed.iter().filter(|s| s.is_err()).count(), 1);
        let reader = log.reader();
        assert!(reader.try_read_warm(last, 1 << 20, log.end(), true).is_some());
        assert!(matches!(
            reader.read_checked(last, 1 << 20, log.end(), true),
            Err(ReadError::Damaged { .. })
        ));
        // What was read is in memory now, where nobody would check it.
        assert!(reader.try_read_warm(last, 1 << 20, log.end(), true).is_none());
        assert!(reader.try_read_committed_warm(last, 1 << 20, log.end(), true).is_none());
        let segment = reader.written_segments().pop().unwrap();
        assert!(segment.mark_damaged(&data, "a bit has flipped").unwrap());
        // More comes behind it, which nobody flushes, and the power goes.
        if round % 2 == 0 {
            let batch = TestBatch::random(&mut random, &batches, &[], log.end(), 9, NOW + 90_000);
            log.append(&batch.bytes, &[batch.header], NOW).unwrap();
            batches.push(batch);
        }
        drop((log, data));
        disk.restart();
        assert_eq!(refusal(&disk).1, damaged);
        disk.flip_bit(&damaged, at, bit);
        let (log, _) = open(&open_dir(&disk));
        batches.retain(|batch| batch.header.base_offset < log.end());
        assert!(batches.len() >= 200, "what was flushed is there");
        check_lookups(&log, &batches, &mut Random::new(7), 20);
    }
}

#[test]
fn a_scrub_builds_indexes_anew_that_rotted() {
    let (disk, batches) = sealed();
    let data = open_dir(&disk);
    let (log, _) = open(&data);
    let seals = bases(&disk, "seal");
    let whole = [1, 2].map(|nth| (bytes_of(&disk, &path(seals[nth], "index")), seals[nth]));
    disk.flip_bit(&path(seals[1], "index"), 2, 4);
    disk.remove_file(&path(seals[2], "index")).unwrap();
    disk.flip_bit(&path(seals[3], "timeindex"), 7, 1);
    let scrubbed = scrub(&data, &log);
    for (nth, scrubbed) in scrubbed.iter().enumerate() {
        let expected = if (1..=3).contains(&nth) { Scrubbed::IndexesRebuilt } else { Scrubbed::Sound };
        assert_eq!(scrubbed, &Ok(expected), "{nth}");
    }
    for (bytes, base) in whole {
        assert_eq!(bytes_of(&disk, &path(base, "index")), bytes);
    }
    assert!(scrub(&data, &log).iter().all(|s| *s == Ok(Scrubbed::Sound)));
    check_lookups(&log, &batches, &mut Random::new(7), 200);
    log.close().unwrap();
    drop(data);
    let (_, report) = open(&open_dir(&disk));
    assert_eq!((report.seals_dropped, report.indexes_rebuilt), (0, 0));
}

#[test]
fn a_scrub_builds_a_transaction_index_anew_that_rotted_behind_the_back_of_who_has_read_it() {
    let mut rounds = 0;
    for damage in 0..3 {
        let (disk, batches) = sealed();
        let data = open_dir(&disk);
        let (log, _) = open(&data);
        let seals = bases(&disk, "seal");
        for base in bases(&disk, "txnindex").into_iter().filter(|base| seals.contains(base)) {
            let index = path(base, "txnindex");
            let whole = bytes_of(&disk, &index);
            if whole.is_empty() {
                continue;
            }
            // Readers know it by now, and would not look at its checksum again.
            check_transactions(&log, &batches, 0, &mut Random::new(base as u64), 20).unwrap();
            match damage {
                0 => disk.flip_bit(&index, whole.len() as u64 - 3, 1),
                1 => disk.remove_file(&index).unwrap(),
                _ => disk.open(&index, OpenMode::ReadWrite).unwrap().set_len(whole.len() as u64 - 1).unwrap(),
            }
            let at = bases(&disk, "log").iter().position(|log| *log == base).unwrap();
            for (nth, scrubbed) in scrub(&data, &log).into_iter().enumerate() {
                let expected = if nth == at { Scrubbed::IndexesRebuilt } else { Scrubbed::Sound };
                assert_eq!(scrubbed, Ok(expected), "{nth}");
            }
            assert_eq!(bytes_of(&disk, &index), whole);
            check_transactions(&log, &batches, 0, &mut Random::new(base as u64), 20).unwrap();
            assert!(scrub(&data, &log).iter().all(|s| *s == Ok(Scrubbed::Sound)));
            rounds += 1;
        }
    }
    assert!(rounds >= 6, "{rounds} indexes have entries");
}

#[test]
fn a_pace_of_nothing_stops_a_scrub() {
    let (disk, _) = sealed();
    let data = open_dir(&disk);
    let (log, _) = open(&data);
    let first = &log.reader().written_segments()[0];
    assert_eq!(first.scrub(&data, 200, &mut |_| false).unwrap(), Scrubbed::Stopped);
}

/// The producers at the end of a segment, and where its transaction index stands, are what the batches tell.
#[test]
fn a_scrub_builds_producer_snapshots_anew_that_are_damaged_or_missing() {
    let (disk, batches) = sealed();
    let data = open_dir(&disk);
    let (log, _) = open(&data);
    let logs = bases(&disk, "log");
    let snapshots = || -> Vec<Vec<u8>> {
        logs[1..].iter().map(|&base| bytes_of(&disk, &path(base, "snapshot"))).collect()
    };
    let whole = snapshots();
    disk.flip_bit(&path(logs[2], "snapshot"), 20, 4);
    disk.remove_file(&path(logs[3], "snapshot")).unwrap();
    disk.open(&path(logs[5], "snapshot"), OpenMode::ReadWrite).unwrap().set_len(0).unwrap();
    let without = Seal { producers_at: None, ..seal_of(&disk, logs[2]) };
    let file = disk.open(&path(logs[2], "seal"), OpenMode::CreateOrEmpty).unwrap();
    file.write_at(&without.encode(), 0).unwrap();
    let expected = |nth: usize| match nth {
        1 | 2 | 4 => Scrubbed::SnapshotRebuilt,
        _ => Scrubbed::Sound,
    };
    for (nth, scrubbed) in scrub(&data, &log).into_iter().enumerate() {
        assert_eq!(scrubbed, Ok(expected(nth)), "{nth}");
    }
    assert_eq!(snapshots(), whole);
    assert_eq!(seal_of(&disk, logs[2]).producers_at, Some(logs[3]));
    assert!(scrub(&data, &log).iter().all(|s| *s == Ok(Scrubbed::Sound)));
    // One that came from the scrub goes with what it tells of, or it would tell of other batches later.
    let (at, cut) = (logs[4], logs[3] - 1);
    disk.remove_file(&path(at, "snapshot")).unwrap();
    log.close().unwrap();
    let (mut log, _) = open(&data);
    assert_eq!(scrub(&data, &log)[3], Ok(Scrubbed::SnapshotRebuilt));
    log.truncate_to(cut).unwrap();
    assert!(bases(&disk, "snapshot").iter().all(|&offset| offset <= log.end()));
    let kept = batches.iter().take_while(|batch| batch.header.last_offset() < log.end()).count();
    check_lookups(&log, &batches[..kept], &mut Random::new(7), 50);
    let bases_left = bases(&disk, "log");
    disk.flip_bit(&path(bases_left[1], "snapshot"), 20, 4);
    log.set_start(bases_left[1]).unwrap();
    let producers = |bytes: &[u8]| producer_snapshot::decode(bytes, usize::MAX).unwrap().0;
    let first = producers(&bytes_of(&disk, &path(bases_left[1], "snapshot")));
    assert_eq!(first, producers(&whole[0]), "written anew before what it tells of goes");
    // What nothing tells any more goes, if it is damaged, and not if it cannot be read for the moment.
    disk.inject(SimFault::Read(format!("{:020}.snapshot", bases_left[1])));
    scrub(&data, &log);
    assert!(bases(&disk, "snapshot").contains(&bases_left[1]));
    disk.flip_bit(&path(bases_left[1], "snapshot"), 20, 4);
    scrub(&data, &log);
    assert!(!bases(&disk, "snapshot").contains(&bases_left[1]));
}

#[test]
fn a_start_builds_the_newest_producer_snapshot_anew() {
    for damage in 0..3 {
        let (disk, _) = sealed();
        let end = *bases(&disk, "snapshot").last().unwrap();
        let newest = path(end, "snapshot");
        let whole = bytes_of(&disk, &newest);
        match damage {
            0 => disk.flip_bit(&newest, 20, 4),
            1 => disk.remove_file(&newest).unwrap(),
            // An older one is not whole either: it goes, since the scrub looks only at the ends of segments.
            _ => {
                let stray = disk.open(&path(end - 1, "snapshot"), OpenMode::CreateNew).unwrap();
                stray.write_at(&whole[..whole.len() / 2], 0).unwrap();
                disk.flip_bit(&newest, 20, 4);
            }
        }
        let data = open_dir(&disk);
        let (log, report) = open(&data);
        assert!(report.batches_walked > 3, "{report:?}");
        assert_eq!((log.end(), bytes_of(&disk, &newest)), (end, whole), "{damage}");
        assert!(!bases(&disk, "snapshot").contains(&(end - 1)));
        drop((log, data));
        disk.restart();
        let (_, report) = open(&open_dir(&disk));
        assert!(report.batches_walked <= 3, "{report:?}");
    }
}
