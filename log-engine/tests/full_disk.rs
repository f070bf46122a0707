//! A disk without any room: a directory is opened all the same, after a clean stop, a kill and a power cut, and wherever in
//! the start the room ends. Its logs are read, cut and deleted, take appends as soon as there is room, and lose nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine::{DataDir, DataDirOptions, Disk, Log, LogConfig, LogName, SimDisk};
use records::Compression;
use support::{Random, TestBatch, batches_of, check_lookups, check_transactions};
use uuid::Uuid;

const NOW: i64 = 1_700_000_000_000;
const LOGS: [LogName; 2] = [
    LogName { topic_id: Uuid::from_u128(1), partition: 0 },
    LogName { topic_id: Uuid::from_u128(2), partition: 7 },
];
/// More than everything that a start writes but the record of flushed ends.
const ROOM_MAX: u64 = 12_000;
const ROOM_STEP: u64 = 173;

/// What there is left.
#[derive(Debug, Clone, Copy)]
enum Room {
    Bytes(u64),
    Inodes(usize),
}

impl Room {
    /// Nothing of what this is room of.
    fn none(self) -> Room {
        match self {
            Room::Bytes(_) => Room::Bytes(0),
            Room::Inodes(_) => Room::Inodes(0),
        }
    }

    fn leave(self, disk: &SimDisk) {
        match self {
            Room::Bytes(bytes) => disk.set_capacity(Some(disk.used_bytes() + bytes)),
            Room::Inodes(count) => disk.set_inodes_max(Some(disk.used_inodes() + count)),
        }
    }

    fn seed(self) -> u64 {
        match self {
            Room::Bytes(count) => count,
            Room::Inodes(count) => count as u64,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stop {
    Clean,
    Kill,
    PowerCut,
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 4000,
        index_interval_bytes: 200,
        index_entries_in_memory_max: 4,
        producer_snapshot_interval_bytes: 3000,
        ..LogConfig::default()
    }
}

fn open_dir(disk: &Arc<SimDisk>) -> DataDir {
    let options = DataDirOptions {
        cluster_id: "c1".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(9),
        descriptors_max: 20,
    };
    DataDir::open(disk.clone(), Path::new("data"), &options).unwrap()
}

fn open(data: &DataDir, name: LogName) -> Log {
    let (log, _) = Log::open(data, name, config(), NOW).unwrap();
    assert!(log.poisoned().is_none());
    log
}

fn flush(log: &mut Log) {
    while let Some(handle) = log.begin_flush() {
        let result = handle.sync();
        log.on_flushed(handle.done(result));
    }
    assert_eq!((log.flushed(), log.poisoned()), (log.end(), None));
}

/// What is on the disk, and what must be.
struct World {
    disk: Arc<SimDisk>,
    /// Of each log.
    appended: [Vec<TestBatch>; 2],
    durable: [i64; 2],
}

/// Two logs of which a part was flushed, on a disk that then fills to the last byte, and a stop.
fn stopped(seed: u64, stop: Stop, room: Room) -> World {
    let disk = SimDisk::new(seed);
    let data = open_dir(&disk);
    let mut random = Random::new(seed);
    let mut appended = [Vec::new(), Vec::new()];
    let mut logs = LOGS.map(|name| open(&data, name));
    for (log, batches) in logs.iter_mut().zip(&mut appended) {
        for i in 0..40 {
            let batch =
                TestBatch::random(&mut random, batches, &[], log.end(), i / 15, NOW + i64::from(i) * 50);
            log.append(&batch.bytes, &[batch.header], NOW).unwrap();
            batches.push(batch);
            if i == 30 || random.chance(10) {
                flush(log);
                data.checkpoint().unwrap();
            }
        }
    }
    if seed.is_multiple_of(2) {
        logs.iter_mut().for_each(flush);
    }
    let durable = [logs[0].flushed(), logs[1].flushed()];
    room.none().leave(&disk);
    // A leader without records, whose epoch finds no room.
    logs[0].begin_epoch(9);
    match stop {
        Stop::Clean => {
            logs.into_iter().for_each(|log| log.close().unwrap());
            assert!(data.close_clean().unwrap());
        }
        Stop::Kill => disk.restart_process(),
        Stop::PowerCut => disk.restart(),
    }
    World { disk, appended, durable }
}

impl World {
    /// Files that a start writes anew.
    fn remove_some(&self, random: &mut Random) {
        for name in LOGS {
            let dir = PathBuf::from("data").join(name.to_string());
            for entry in self.disk.list(&dir).unwrap() {
                let hint = ["index", "snapshot", "checkpoint"].iter().any(|kind| entry.name.ends_with(kind));
                if hint && random.chance(30) {
                    self.disk.remove_file(&dir.join(entry.name)).unwrap();
                }
            }
            self.disk.sync_dir(&dir).unwrap();
        }
    }

    fn check(&self, at: usize, log: &Log, random: &mut Random) {
        let of_log = self.appended[at].iter().filter(|b| b.header.base_offset < log.end());
        let kept: Vec<TestBatch> = of_log.cloned().collect();
        assert!(log.end() >= self.durable[at], "{} of {} are left", log.end(), self.durable[at]);
        assert_eq!(log.end(), kept.last().map_or(0, |last| last.header.last_offset() + 1));
        assert!(batches_of(log, log.end()) == support::from(&kept, log.start()));
        if log.start() == 0 {
            check_lookups(log, &kept, random, 10);
            check_transactions(log, &kept, log.end(), random, 10).unwrap();
        }
    }
}

fn a_start_without_room(seed: u64, stop: Stop, room: Room) {
    let mut random = Random::new(seed ^ room.seed());
    let mut world = stopped(seed, stop, room);
    let disk = world.disk.clone();
    if random.chance(50) {
        world.remove_some(&mut random);
    }
    room.leave(&disk);
    let data = open_dir(&disk);
    assert_eq!(data.was_clean(), stop == Stop::Clean);
    let mut logs = LOGS.map(|name| open(&data, name));
    for (at, log) in logs.iter_mut().enumerate() {
        world.check(at, log, &mut random);
        // A new leader, whose epoch finds no room either.
        log.begin_epoch(10);
        flush(log);
    }
    let epochs = logs[0].epochs().clone();
    room.none().leave(&disk);
    // Room is made by what clients delete.
    let [mut log, other] = logs;
    let middle = log.end() / 2;
    log.set_start(middle).unwrap();
    log.take_detached().into_iter().for_each(|segments| segments.remove_files().unwrap());
    drop((log, other, data));
    match random.chance(50) {
        true => disk.restart(),
        false => disk.restart_process(),
    }
    room.none().leave(&disk);
    let data = open_dir(&disk);
    let [mut log, other] = LOGS.map(|name| open(&data, name));
    assert_eq!(log.start(), middle);
    world.check(0, &log, &mut random);
    world.check(1, &other, &mut random);
    let with_records = |epochs: &log_engine_core::EpochHistory| {
        let mut epochs = epochs.clone();
        epochs.truncate_from_end(log.end());
        epochs.truncate_from_start(middle);
        epochs
    };
    assert_eq!(with_records(log.epochs()), with_records(&epochs));
    other.delete().unwrap();
    // There is room again, and nobody starts anything anew.
    disk.set_capacity(None);
    disk.set_inodes_max(None);
    for _ in 0..20 {
        let batch = TestBatch::new(log.end(), 11, &[NOW], 100, Compression::None, None);
        log.append(&batch.bytes, &[batch.header], NOW).unwrap();
        world.appended[0].retain(|b| b.header.base_offset < batch.header.base_offset);
        world.appended[0].push(batch);
    }
    flush(&mut log);
    world.durable[0] = log.end();
    let epochs = log.epochs().clone();
    drop((log, data));
    disk.restart();
    let data = open_dir(&disk);
    assert_eq!((data.list().unwrap(), data.known_logs()), (vec![LOGS[0]], vec![LOGS[0]]));
    let log = open(&data, LOGS[0]);
    assert_eq!((log.start(), log.epochs()), (middle, &epochs));
    world.check(0, &log, &mut random);
}

fn starts_without_room(stop: Stop) {
    let rooms: Vec<Room> = (0..ROOM_MAX).step_by(ROOM_STEP as usize).map(Room::Bytes).collect();
    starts(stop, &rooms);
}

fn starts(stop: Stop, rooms: &[Room]) {
    for seed in support::seeds(4) {
        for &room in rooms {
            let _command = support::PrintOnPanic(format!(
                "WEIR_SEED={seed} cargo test -p log-engine --test full_disk ({stop:?}, {room:?})"
            ));
            a_start_without_room(seed, stop, room);
        }
    }
}

#[test]
fn a_full_disk_starts_after_a_clean_stop() {
    starts_without_room(Stop::Clean);
}

#[test]
fn a_full_disk_starts_after_a_kill() {
    starts_without_room(Stop::Kill);
}

#[test]
fn a_full_disk_starts_after_a_power_cut() {
    starts_without_room(Stop::PowerCut);
}

/// No clean stop: its mark is a file too.
#[test]
fn a_disk_without_inodes_starts_after_a_kill_and_a_power_cut() {
    for stop in [Stop::Kill, Stop::PowerCut] {
        starts(stop, &(0..12).map(Room::Inodes).collect::<Vec<_>>());
    }
}

/// A log that is new on a full disk waits for room.
#[test]
fn a_new_log_on_a_full_disk_takes_appends_when_there_is_room() {
    let disk = SimDisk::new(1);
    let data = open_dir(&disk);
    disk.set_capacity(Some(disk.used_bytes()));
    let mut log = open(&data, LOGS[0]);
    log.begin_epoch(1);
    let batch = TestBatch::new(0, 1, &[NOW], 100, Compression::None, None);
    log.append(&batch.bytes, &[batch.header], NOW).unwrap_err();
    flush(&mut log);
    assert_eq!(data.list().unwrap(), [], "not even a directory");
    disk.set_capacity(None);
    log.append(&batch.bytes, &[batch.header], NOW).unwrap();
    flush(&mut log);
    drop((log, data));
    disk.restart();
    let log = open(&open_dir(&disk), LOGS[0]);
    assert!(batches_of(&log, 1) == batch.bytes);
}
