//! Moving a log to another data directory: the power cut, or the process killed, at every operation of it, and faults in its
//! middle. Whatever happens, exactly one directory has the log afterwards, whole.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use log_engine::{
    CompactionRequest, DataDir, DataDirOptions, DetachedLog, Disk, Installed, Log, LogConfig, LogMove,
    LogName, MoveError, OpenError, OpenMode, SimDisk, SimFault, settle_moves,
};
use log_engine_core::compact::CompactionPolicy;
use records::{BatchHeader, Compression};
use support::{AtOnce, Random, TestBatch, batches_of, check_lookups, check_transactions};
use uuid::Uuid;

const NAME: LogName = LogName { topic_id: Uuid::from_u128(77), partition: 4 };
const NOW: i64 = 1_700_000_000_000;
/// Of the data directories.
const PATHS: [&str; 2] = ["a", "b"];
const NO_BOUND: u64 = u64::MAX;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 3000,
        index_interval_bytes: 200,
        producer_snapshot_interval_bytes: 2500,
        ..LogConfig::default()
    }
}

fn id(at: usize) -> Uuid {
    Uuid::from_u128(at as u128 + 1)
}

fn free(_: u64) -> Result<(), MoveError> {
    Ok(())
}

/// A log, the directories of which it may be in one or the other, and what must be in it.
struct World {
    disk: Arc<SimDisk>,
    random: Random,
    dirs: Vec<DataDir>,
    /// The open log, and in which directory.
    log: Option<(usize, Log)>,
    /// What moves left, to be removed when the log is open.
    left: Vec<DetachedLog>,
    batches: Vec<TestBatch>,
    durable: i64,
    start: i64,
}

impl World {
    fn new(seed: u64) -> World {
        let disk = SimDisk::new(seed);
        let mut world = World {
            dirs: Vec::new(),
            random: Random::new(seed),
            log: None,
            left: Vec::new(),
            batches: Vec::new(),
            durable: 0,
            start: 0,
            disk,
        };
        world.open_dirs();
        world
    }

    fn open_dir(&self, at: usize) -> DataDir {
        let options = DataDirOptions {
            cluster_id: "c1".into(),
            node_id: 1,
            new_directory_id: id(at),
            descriptors_max: 6,
        };
        DataDir::open(self.disk.clone(), Path::new(PATHS[at]), &options).unwrap()
    }

    fn open_dirs(&mut self) {
        self.dirs = (0..2).map(|at| self.open_dir(at)).collect();
        let settled = settle_moves(&self.dirs, &[]).unwrap();
        assert_eq!(settled.elsewhere, []);
        self.left = settled.left.into_iter().map(|(_, left)| left).collect();
    }

    /// A start that finds only one of the directories: what the log there takes must not be lost when the other is back.
    fn start_with(&mut self, at: usize, by_power: bool) {
        let data = self.open_dir(at);
        let settled = settle_moves(std::slice::from_ref(&data), &[]).unwrap();
        let is_here = data.list().unwrap().contains(&NAME);
        if let [(name, place)] = settled.elsewhere[..] {
            assert_eq!((name, place, is_here), (NAME, 0, false));
            let refused = Log::open(&data, NAME, config(), NOW).err().unwrap();
            let there = id(1 - at);
            assert!(
                matches!(refused, OpenError::MovedAway { directory, .. } if directory == there),
                "{refused}"
            );
            assert_eq!(data.list().unwrap(), [], "it is not made anew");
        }
        if is_here {
            let (log, _) = Log::open(&data, NAME, config(), NOW).unwrap();
            let end = log.end();
            assert!(end >= self.durable, "{end} < {}", self.durable);
            self.batches.retain(|batch| batch.header.last_offset() < end);
            self.log = Some((at, log));
            self.append(2);
            self.log = None;
        }
        drop((settled, data));
        self.restart(by_power);
    }

    fn restart(&self, by_power: bool) {
        match by_power {
            true => self.disk.restart(),
            false => self.disk.restart_process(),
        }
    }

    /// All that is in the two directories, but for what is inside a log.
    fn names(&self) -> Vec<String> {
        PATHS.iter().flat_map(|dir| self.disk.list(Path::new(dir)).unwrap()).map(|e| e.name).collect()
    }

    fn homes(&self) -> Vec<usize> {
        (0..2).filter(|&at| self.dirs[at].list().unwrap().contains(&NAME)).collect()
    }

    fn open_in(&mut self, at: usize) {
        let opened = Log::open(&self.dirs[at], NAME, config(), NOW);
        if self.disk.is_crashed() {
            return;
        }
        self.log = Some((at, opened.unwrap().0));
        self.left.drain(..).for_each(|left| left.remove_files().unwrap());
    }

    /// Appends and flushes; what was told to be flushed must never go.
    fn append(&mut self, count: usize) {
        for i in 0..count {
            let Some((_, log)) = self.log.as_mut().filter(|_| !self.disk.is_crashed()) else { return };
            let (end, now) = (log.end(), NOW + i as i64);
            let batch = TestBatch::random(&mut self.random, &self.batches, &[], end, 0, now);
            // A crash may find it.
            self.batches.push(batch.clone());
            if log.append(&batch.bytes, &[batch.header], now).is_err() {
                return;
            }
        }
        self.flush();
    }

    fn flush(&mut self) {
        let Some((_, log)) = &mut self.log else { return };
        let Some(handle) = log.begin_flush() else { return };
        let result = handle.sync();
        self.durable = self.durable.max(log.on_flushed(handle.done(result)));
    }

    fn seal(&self) {
        for data in &self.dirs {
            while data.seal_next(Duration::ZERO).is_some() {}
        }
    }

    fn begin(&self, from: usize) -> Option<LogMove> {
        let begun = LogMove::begin(&self.dirs[from], &self.dirs[1 - from], NAME);
        if self.disk.is_crashed() { None } else { Some(begun.unwrap()) }
    }

    fn copy(&mut self, moving: &mut Option<LogMove>) {
        if let (Some(begun), Some((_, log))) = (moving.as_mut(), &self.log)
            && let Err(error) = begun.copy_written(&log.reader(), &mut free)
        {
            assert!(self.disk.is_crashed(), "{error}");
            *moving = None;
        }
    }

    /// Closes the log, puts the copy in its place, and opens that.
    fn finish(&mut self, moving: Option<LogMove>) {
        let Some((from, log)) = self.log.take() else { return };
        let reader = log.reader();
        let (start, end) = (log.start(), log.end());
        let closed = log.close();
        let (Some(mut moving), Ok(())) = (moving, closed) else { return };
        self.durable = self.durable.max(end);
        match moving.finish(&reader, NO_BOUND, &mut free) {
            Ok(left) => {
                self.open_in(1 - from);
                drop(left.remove_files());
                if let Some((_, log)) = &self.log {
                    assert_eq!((log.start(), log.end()), (start, end));
                }
            }
            Err(error) => assert!(self.disk.is_crashed(), "{error}"),
        }
    }

    /// After a crash: what is there is opened and compared. Before, one of the directories may come back `alone`.
    fn recover(&mut self, by_power: bool, alone: Option<usize>) {
        self.log = None;
        self.left.clear();
        self.dirs.clear();
        self.restart(by_power);
        if let Some(at) = alone {
            self.start_with(at, by_power);
        }
        self.open_dirs();
        let homes = self.homes();
        assert!(homes.len() == 1 || (homes.is_empty() && self.durable == 0), "{homes:?}");
        self.open_in(homes.first().copied().unwrap_or(0));
        let left = self.names();
        let stays = |name: &String| {
            [".moving", ".moved-to", ".deleted", ".tmp"].iter().any(|part| name.contains(part))
        };
        assert!(!left.iter().any(stays), "{left:?}");
        self.check();
    }

    fn check(&mut self) {
        let (at, log) = self.log.as_ref().unwrap();
        assert_eq!(self.homes(), [*at]);
        let is_kept = self.names().iter().any(|name| name.contains(".moved-to."));
        assert!(is_kept || self.dirs[1 - at].known_logs().is_empty(), "the other knows nothing of it");
        let end = log.end();
        assert!(end >= self.durable, "{end} < {}", self.durable);
        self.batches.retain(|batch| batch.header.last_offset() < end);
        assert_eq!(self.batches.last().map_or(0, |batch| batch.header.last_offset() + 1), end);
        let kept: Vec<TestBatch> =
            self.batches.iter().filter(|batch| batch.header.last_offset() >= log.start()).cloned().collect();
        assert!(log.start() <= self.start);
        assert!(batches_of(log, end) == support::from(&kept, log.start()));
        check_lookups(log, &self.batches, &mut self.random, 3);
        check_transactions(log, &self.batches, 0, &mut self.random, 3).unwrap();
        self.durable = end;
    }

    /// All steps of a move under load, with what else may happen to a log meanwhile.
    fn script(&mut self) {
        self.open_in(0);
        self.append(14);
        self.seal();
        let mut moving = self.begin(0);
        self.copy(&mut moving);
        self.append(6);
        if let Some((_, log)) = self.log.as_mut().filter(|_| !self.disk.is_crashed()) {
            let to = self.batches[self.batches.len() - 2].header.base_offset;
            self.durable = self.durable.min(to);
            if let Ok(end) = log.truncate_to(to) {
                self.batches.retain(|batch| batch.header.last_offset() < end);
            }
        }
        self.append(3);
        self.copy(&mut moving);
        if let Some((_, log)) = self.log.as_mut().filter(|_| !self.disk.is_crashed()) {
            // Not beyond the first segment's end: its producers are needed by the model.
            self.start = self.batches[1].header.base_offset;
            let _ = log.set_start(self.start);
        }
        self.append(2);
        self.finish(moving);
        self.append(3);
    }

    fn assert_in(&self, at: usize) {
        assert_eq!(self.homes(), [at]);
    }
}

#[test]
fn a_crash_at_every_operation_of_a_move_leaves_one_whole_log() {
    for seed in support::seeds(2) {
        let starts = [None, Some(0), Some(1)];
        for (by_power, alone) in
            [true, false].into_iter().flat_map(|by_power| starts.map(|alone| (by_power, alone)))
        {
            let mut finished = false;
            for crash in 0.. {
                let _command = support::PrintOnPanic(format!(
                    "WEIR_SEED={seed} cargo test -p log-engine --test relocate a_crash_at (operation {crash}, {alone:?})"
                ));
                let mut world = World::new(seed);
                world.disk.crash_at(world.disk.ops() + 1 + crash);
                world.script();
                let crashed = world.disk.is_crashed();
                if !crashed {
                    world.assert_in(1);
                    world.check();
                }
                world.recover(by_power, alone);
                // It goes on from wherever it is, also back.
                world.append(2);
                let from = world.log.as_ref().unwrap().0;
                let mut moving = world.begin(from);
                world.copy(&mut moving);
                world.finish(moving);
                world.append(2);
                world.assert_in(1 - from);
                world.check();
                if !crashed {
                    assert!(crash > 150, "{crash} operations");
                    finished = true;
                    break;
                }
            }
            assert!(finished);
        }
    }
}

/// A log in the first directory with a copy of some of it under way.
fn begun(seed: u64) -> (World, LogMove) {
    let mut world = World::new(seed);
    world.open_in(0);
    world.append(30);
    world.seal();
    let mut moving = world.begin(0);
    world.copy(&mut moving);
    world.append(3);
    (world, moving.unwrap())
}

fn close(world: &mut World) -> log_engine::LogReader {
    let (_, log) = world.log.take().unwrap();
    let reader = log.reader();
    log.close().unwrap();
    reader
}

/// The source goes on, and nothing is left in the target.
fn goes_on(world: &mut World, moving: LogMove) {
    moving.abandon().unwrap();
    world.open_in(0);
    world.append(1);
    world.check();
    let names = world.names();
    let of_it: Vec<_> = names.iter().filter(|name| name.starts_with(&NAME.to_string())).collect();
    assert_eq!(of_it, [&NAME.to_string()]);
    world.recover(true, None);
    world.assert_in(0);
}

#[test]
fn a_fault_in_the_middle_leaves_the_log_where_it_was() {
    let moving_dir = format!("b/{NAME}.moving");
    let faults = [
        SimFault::Write(".log".into()),
        SimFault::Sync(".log".into()),
        SimFault::SyncNoSpace(".timeindex".into()),
        SimFault::Read(".log".into()),
        SimFault::SyncDir(moving_dir),
        SimFault::Sync("b/flushed-ends.tmp".into()),
        SimFault::Rename(format!("a/{NAME}")),
        SimFault::SyncDirAfterRename(format!("a/{NAME}")),
        SimFault::Rename(format!("b/{NAME}.moving")),
    ];
    for fault in faults {
        let (mut world, mut moving) = begun(7);
        let closed = close(&mut world);
        world.disk.inject(fault.clone());
        let error = moving.finish(&closed, NO_BOUND, &mut free).err().unwrap();
        assert!(matches!(error, MoveError::Io(_)), "{fault:?}: {error}");
        goes_on(&mut world, moving);
    }
}

/// The new name may not last, or the old one could not be given back.
#[test]
fn a_log_of_which_nobody_knows_where_it_is_is_in_one_place_after_the_next_start() {
    let (there, back) = (format!("b/{NAME}.moving"), format!("a/{NAME}.moved-to.{}", id(1)));
    let new_name = vec![SimFault::SyncDirAfterRename(there.clone())];
    let old_name = vec![SimFault::Rename(there), SimFault::Rename(back)];
    for (faults, homes) in [(new_name, vec![1]), (old_name, vec![])] {
        for (seed, by_power) in (0..10).flat_map(|seed| [(seed, true), (seed, false)]) {
            for alone in [None, Some(0), Some(1)] {
                let (mut world, mut moving) = begun(seed);
                let closed = close(&mut world);
                world.durable = closed.end();
                faults.iter().for_each(|fault| world.disk.inject(fault.clone()));
                let error = moving.finish(&closed, NO_BOUND, &mut free).err().unwrap();
                assert!(matches!(error, MoveError::InDoubt(_)), "{error}");
                assert_eq!(world.homes(), homes);
                let refused = Log::open(&world.dirs[0], NAME, config(), NOW).err().unwrap();
                assert!(matches!(refused, OpenError::MovedAway { .. }), "{refused}");
                drop(moving);
                world.recover(by_power, alone);
            }
        }
    }
}

#[test]
fn damage_in_the_source_is_not_copied() {
    let mut world = World::new(7);
    world.open_in(0);
    world.append(30);
    world.seal();
    let path = PathBuf::from("a").join(NAME.to_string()).join("00000000000000000000.log");
    world.disk.flip_bit(&path, 500, 3);
    let mut moving = world.begin(0).unwrap();
    let reader = world.log.as_ref().unwrap().1.reader();
    let error = moving.copy_written(&reader, &mut free).unwrap_err();
    assert!(matches!(error, MoveError::Damaged { .. }), "{error}");
    world.disk.flip_bit(&path, 500, 3);
    moving.copy_written(&reader, &mut free).unwrap();
    // What takes appends has no seal; its batches have checksums.
    let newest = world.log.as_ref().unwrap().1.reader().written_segments().last().unwrap().base_offset();
    world.append(1);
    let path = path.with_file_name(format!("{newest:020}.log"));
    let end = world.disk.open(&path, OpenMode::Read).unwrap().len().unwrap();
    let closed = close(&mut world);
    world.disk.flip_bit(&path, end - 2, 3);
    let error = moving.finish(&closed, NO_BOUND, &mut free).err().unwrap();
    assert!(matches!(error, MoveError::Damaged { .. }), "{error}");
    world.disk.flip_bit(&path, end - 2, 3);
    goes_on(&mut world, moving);
}

#[test]
fn a_log_is_not_kept_closed_for_long() {
    let (mut world, mut moving) = begun(7);
    world.append(20);
    let closed = close(&mut world);
    let error = moving.finish(&closed, 1000, &mut free).err().unwrap();
    assert!(matches!(error, MoveError::TooMuchLeft { bytes } if bytes > 1000), "{error}");
    let error = moving.finish(&closed, 1000, &mut free).err().unwrap();
    assert!(matches!(error, MoveError::NeverLittle { .. }), "{error}");
    // It goes on where it was, is copied further, and then little is left.
    world.open_in(0);
    let reader = world.log.as_ref().unwrap().1.reader();
    moving.copy_written(&reader, &mut free).unwrap();
    assert_eq!(moving.copied_to(), reader.end());
    let mut told = 0;
    let mut count = |bytes| {
        told += bytes;
        Ok(())
    };
    let closed = close(&mut world);
    moving.finish(&closed, NO_BOUND, &mut count).unwrap();
    let all = closed_bytes(&world);
    assert!(told < all / 2, "{told} of {all} bytes while it was closed");
    world.open_in(1);
    world.check();
}

fn closed_bytes(world: &World) -> u64 {
    let entries = world.disk.list(&Path::new("b").join(NAME.to_string())).unwrap();
    entries.iter().map(|entry| entry.len).sum()
}

#[test]
fn whoever_sets_the_pace_ends_it_anywhere() {
    for calls in 0..40 {
        let (mut world, mut moving) = begun(7);
        let mut left = calls;
        let mut pace = |_: u64| {
            left -= 1;
            if left < 0 { Err(MoveError::NoRoom) } else { Ok(()) }
        };
        let closed = close(&mut world);
        match moving.finish(&closed, NO_BOUND, &mut pace) {
            Err(error) => {
                assert!(matches!(error, MoveError::NoRoom), "{error}");
                goes_on(&mut world, moving);
            }
            Ok(_) => {
                assert!(calls > 3, "{calls}");
                world.open_in(1);
                return world.check();
            }
        }
    }
    panic!("it never ends");
}

#[test]
fn a_log_is_not_moved_over_another_nor_as_long_as_old_files_are_there() {
    let (world, moving) = begun(7);
    drop(moving);
    drop(Log::open(&world.dirs[1], NAME, config(), NOW).unwrap());
    let taken = LogMove::begin(&world.dirs[0], &world.dirs[1], NAME).err().unwrap();
    assert!(matches!(taken, MoveError::Taken { .. }), "{taken}");
    for dir in PATHS {
        let (world, moving) = begun(7);
        drop(moving);
        let old = format!("{dir}/{NAME}.moved-to.{}", Uuid::from_u128(99));
        world.disk.create_dir_all(Path::new(&old)).unwrap();
        let refused = LogMove::begin(&world.dirs[0], &world.dirs[1], NAME).err().unwrap();
        assert!(matches!(&refused, MoveError::OldFiles { path } if path == Path::new(&old)), "{refused}");
    }
}

/// A log that was moved from the first directory to the second, and not removed from the first.
fn moved() -> World {
    let (mut world, mut moving) = begun(7);
    let closed = close(&mut world);
    world.durable = closed.end();
    drop(moving.finish(&closed, NO_BOUND, &mut free).unwrap());
    world
}

/// The first directory is away while the log is dropped from the second and comes to be in a third one.
#[test]
fn old_files_do_not_come_back_beside_a_log_that_was_made_since() {
    let mut world = moved();
    world.dirs.clear();
    let open_c = |world: &World| {
        let options = DataDirOptions {
            cluster_id: "c1".into(),
            node_id: 1,
            new_directory_id: id(2),
            descriptors_max: 6,
        };
        DataDir::open(world.disk.clone(), Path::new("c"), &options).unwrap()
    };
    world.disk.restart();
    let (b, c) = (world.open_dir(1), open_c(&world));
    assert!(settle_moves(&[b.clone(), c.clone()], &[]).unwrap().left.is_empty());
    b.detach(NAME).unwrap().remove_files().unwrap();
    let (mut log, _) = Log::open(&c, NAME, config(), NOW).unwrap();
    append_key(&mut log, 1);
    let (end, records) = (log.end(), batches_of(&log, log.end()));
    log.close().unwrap();
    c.checkpoint().unwrap();
    let known = [0, 1, 2].map(|at| (id(at), PathBuf::from(at.to_string())));
    b.remember_siblings(&known).unwrap();
    drop((b, c));
    world.disk.restart();
    let dirs = [world.open_dir(0), world.open_dir(1)];
    let settled = settle_moves(&dirs, &[]).unwrap();
    assert_eq!((settled.elsewhere, settled.left.len()), (vec![(NAME, 0)], 0), "the third may have it");
    assert_eq!(settle_moves(&dirs, &[id(2)]).unwrap().elsewhere, []);
    world
        .disk
        .rename(&PathBuf::from(format!("a/{NAME}")), &PathBuf::from(format!("a/{NAME}.moved-to.{}", id(1))))
        .unwrap();
    drop(dirs);
    let dirs = [world.open_dir(0), world.open_dir(1), open_c(&world)];
    let settled = settle_moves(&dirs, &[]).unwrap();
    assert_eq!((settled.elsewhere.len(), settled.left.len()), (0, 1));
    assert_eq!([0, 1, 2].map(|at| dirs[at].list().unwrap().len()), [0, 0, 1]);
    assert_eq!(dirs[2].known_logs(), [NAME]);
    let (log, _) = Log::open(&dirs[2], NAME, config(), NOW).unwrap();
    assert!(log.end() == end && batches_of(&log, end) == records);
    settled.left.into_iter().for_each(|(_, left)| left.remove_files().unwrap());
    assert_eq!(dirs[0].known_logs(), []);
    let names = world.names();
    assert!(!names.iter().any(|name| name.starts_with(&NAME.to_string())), "{names:?}");
}

/// What is noted of the log in its old place is still there when it comes back: it begins where it began.
#[test]
fn a_log_that_goes_back_has_kept_its_start() {
    let mut world = World::new(11);
    world.open_in(0);
    world.append(40);
    let (_, log) = world.log.as_mut().unwrap();
    let start = log.end() / 2;
    log.set_start(start).unwrap();
    let first = log.reader().written_segments().first().map(|segment| segment.base_offset()).unwrap();
    assert!(first > 0, "segments below the start have gone");
    world.start = start;
    let mut moving = world.begin(0).unwrap();
    let closed = close(&mut world);
    let end = closed.end();
    drop(moving.finish(&closed, NO_BOUND, &mut free).unwrap());
    drop(moving);
    world.dirs.clear();
    world.disk.restart();
    let a = world.open_dir(0);
    assert!(settle_moves(std::slice::from_ref(&a), &[id(1)]).unwrap().elsewhere.is_empty());
    let (log, report) = Log::open(&a, NAME, config(), NOW).unwrap();
    assert_eq!((log.start(), log.end(), report.bytes_cut), (start, end, 0));
}

#[test]
fn a_log_goes_back_when_the_directory_that_it_was_moved_to_is_given_up() {
    let mut world = moved();
    for given_up in [vec![], vec![id(7)], vec![id(1)]] {
        world.dirs.clear();
        world.disk.restart();
        let a = world.open_dir(0);
        let settled = settle_moves(std::slice::from_ref(&a), &given_up).unwrap();
        let is_back = given_up.contains(&id(1));
        assert_eq!((a.list().unwrap().len(), settled.elsewhere.len()), if is_back { (1, 0) } else { (0, 1) });
        assert!(settled.left.is_empty());
        let opened = Log::open(&a, NAME, config(), NOW);
        match opened {
            Ok((log, report)) => assert!(is_back && log.end() == world.durable && report.bytes_cut == 0),
            Err(error) => assert!(!is_back && matches!(error, OpenError::MovedAway { .. }), "{error}"),
        }
    }
}

/// Both directories say that they moved it: the newer one is the one that has not forgotten it, or nobody knows.
#[test]
fn of_two_that_were_moved_away_only_the_newer_one_comes_back() {
    let away = |dir: &str, to: usize| PathBuf::from(format!("{dir}/{NAME}.moved-to.{}", id(to)));
    let mut world = moved();
    world.dirs.clear();
    world.disk.restart();
    world.disk.rename(&PathBuf::from(format!("b/{NAME}")), &away("b", 0)).unwrap();
    world.open_dirs();
    world.assert_in(1);
    world.open_in(1);
    world.check();

    let world = World::new(3);
    world.disk.create_dir_all(&away("a", 1)).unwrap();
    world.disk.create_dir_all(&away("b", 0)).unwrap();
    let settled = settle_moves(&world.dirs, &[id(0), id(1)]).unwrap();
    assert_eq!((settled.elsewhere, settled.left.len()), (vec![(NAME, 0), (NAME, 1)], 0));
    assert_eq!(world.homes(), []);
}

#[test]
fn a_log_without_records_moves_too() {
    let mut world = World::new(3);
    world.open_in(0);
    let moving = world.begin(0);
    world.finish(moving);
    world.assert_in(1);
    world.append(2);
    world.recover(true, None);
    world.assert_in(1);
}

#[test]
fn a_log_that_is_cut_while_it_is_copied_goes_on_moving() {
    let mut cuts = 0;
    for at in 0.. {
        let (mut world, mut moving) = begun(7);
        world.append(12);
        world.seal();
        let (_, mut log) = world.log.take().unwrap();
        let reader = log.reader();
        let second = reader.written_segments()[1].base_offset();
        let cut = world.batches.iter().find(|batch| batch.header.base_offset > second).unwrap();
        let to = cut.header.base_offset;
        drop(moving);
        moving = LogMove::begin(&world.dirs[0], &world.dirs[1], NAME).unwrap();
        let (mut calls, mut is_cut) = (0, false);
        let mut pace = |_: u64| {
            if calls == at {
                log.truncate_to(to).unwrap();
                is_cut = true;
            }
            calls += 1;
            Ok(())
        };
        moving.copy_written(&reader, &mut pace).unwrap();
        if !is_cut {
            break;
        }
        cuts += 1;
        world.durable = to;
        world.batches.retain(|batch| batch.header.last_offset() < to);
        world.log = Some((0, log));
        world.append(3);
        world.finish(Some(moving));
        world.check();
        world.assert_in(1);
    }
    assert!(cuts > 10, "{cuts} cuts");
}

#[test]
fn what_was_copied_of_an_unflushed_log_is_on_the_disk_of_its_source_too() {
    let mut world = World::new(7);
    world.open_in(0);
    world.append(2);
    for _ in 0..3 {
        append_key(&mut world.log.as_mut().unwrap().1, 1);
    }
    let (_, log) = world.log.as_ref().unwrap();
    let (end, records) = (log.end(), batches_of(log, log.end()));
    assert!(log.flushed() < end);
    let mut moving = world.begin(0).unwrap();
    moving.copy_written(&world.log.as_ref().unwrap().1.reader(), &mut free).unwrap();
    drop(moving);
    world.disk.crash_at(world.disk.ops() + 1);
    assert!(world.disk.open(Path::new("a/x"), OpenMode::CreateNew).is_err());
    world.log = None;
    world.dirs.clear();
    world.disk.restart();
    world.open_dirs();
    world.open_in(0);
    let (_, log) = world.log.as_ref().unwrap();
    assert!(log.end() == end && batches_of(log, end) == records, "{} of {end}", log.end());
}

/// One batch of one record with that key, always of the same size.
fn append_key(log: &mut Log, key: i64) {
    let mut bytes = TestBatch::new(key, 0, &[NOW], 100, Compression::None, None).bytes;
    records::set_base_offset(&mut bytes, log.end());
    let header = BatchHeader::parse(&bytes).unwrap();
    log.append(&bytes, &[header], NOW).unwrap();
}

fn compact(data: &DataDir, log: &mut Log) {
    let policy = CompactionPolicy { min_dirty_ratio: 0.0, min_lag_ms: 0, max_lag_ms: i64::MAX };
    let request = CompactionRequest {
        bound: log.end(),
        dirtiness: log.reader().dirtiness(data, log.end(), Some(NOW), &policy),
        now_ms: Some(NOW),
        delete_retention_ms: 1_000,
        map_bytes_max: 1 << 20,
        keep_from: i64::MAX,
    };
    let mut pass = log.begin_compaction(&request).unwrap();
    pass.prepare(&mut AtOnce(NOW)).unwrap();
    let mut segments = 0;
    while let Some(segment) = pass.next_segment(&mut AtOnce(NOW)).unwrap() {
        assert!(matches!(log.install(segment), Ok(Installed::Yes)));
        segments += 1;
    }
    assert!(segments > 0 && log.finish_compaction(&pass.finished()));
}

#[test]
fn a_half_copied_segment_that_is_compacted_before_the_log_is_closed_is_copied_anew() {
    let mut world = World::new(7);
    world.open_in(0);
    let mut moving = world.begin(0).unwrap();
    {
        let (data, (_, log)) = (world.dirs[0].clone(), world.log.as_mut().unwrap());
        for key in [1, 1] {
            append_key(log, key);
        }
        moving.copy_written(&log.reader(), &mut free).unwrap();
        for key in [2, 3] {
            append_key(log, key);
        }
        log.roll().unwrap();
        append_key(log, 4);
        let handle = log.begin_flush().unwrap();
        let result = handle.sync();
        log.on_flushed(handle.done(result));
        compact(&data, log);
    }
    let (_, log) = world.log.as_ref().unwrap();
    let (end, before) = (log.end(), batches_of(log, log.end()));
    let closed = close(&mut world);
    moving.finish(&closed, NO_BOUND, &mut free).unwrap().remove_files().unwrap();
    world.open_in(1);
    let (_, log) = world.log.as_ref().unwrap();
    assert!(log.end() == end && batches_of(log, end) == before, "not what the log was");
}

#[test]
fn a_move_that_is_given_up_leaves_alone_what_is_known_of_another_log_of_the_name() {
    for is_noted in [false, true] {
        let (mut world, mut moving) = begun(7);
        let closed = close(&mut world);
        if is_noted {
            world.disk.inject(SimFault::Rename(format!("a/{NAME}")));
            moving.finish(&closed, NO_BOUND, &mut free).err().unwrap();
        }
        world.dirs[0].detach(NAME).unwrap().remove_files().unwrap();
        world.batches.clear();
        world.durable = 0;
        world.open_in(1);
        world.append(3);
        moving.abandon().unwrap();
        assert_eq!(world.dirs[1].known_logs(), [NAME]);
        world.recover(true, None);
        world.assert_in(1);
    }
}

#[test]
fn old_files_stay_over_starts_until_the_log_is_open_in_its_new_place() {
    let mut world = moved();
    let old = PathBuf::from(format!("a/{NAME}.moved-to.{}", id(1)));
    let files = world.disk.list(&old).unwrap().len();
    assert!(files > 3, "{files} files");
    for _ in 0..2 {
        world.dirs.clear();
        world.left.clear();
        world.disk.restart();
        world.open_dirs();
        assert_eq!((world.disk.list(&old).unwrap().len(), world.left.len()), (files, 1));
        world.assert_in(1);
    }
    world.open_in(1);
    world.check();
    world.disk.list(&old).unwrap_err();
}

#[test]
fn a_log_that_was_moved_away_may_be_deleted_where_it_was() {
    let world = moved();
    world.dirs[0].detach(NAME).unwrap().remove_files().unwrap();
    let names: Vec<_> =
        world.names().into_iter().filter(|name| name.starts_with(&NAME.to_string())).collect();
    assert_eq!(names, [NAME.to_string()], "the other directory has it");
}

#[test]
fn of_finished_segments_nothing_is_copied_while_the_log_is_closed() {
    let mut world = World::new(7);
    world.open_in(0);
    world.append(60);
    world.seal();
    let moving = world.begin(0);
    let mut moving = moving.unwrap();
    moving.copy_written(&world.log.as_ref().unwrap().1.reader(), &mut free).unwrap();
    let newest = world.log.as_ref().unwrap().1.reader().written_segments().last().unwrap().base_offset();
    let closed = close(&mut world);
    let entries = world.disk.list(&Path::new("a").join(NAME.to_string())).unwrap();
    let is_newer =
        |name: &str| !matches!(name.get(..20).map(str::parse::<i64>), Some(Ok(base)) if base < newest);
    let newer: u64 = entries.iter().filter(|entry| is_newer(&entry.name)).map(|entry| entry.len).sum();
    assert!(entries.iter().any(|entry| entry.name.ends_with(".seal")));
    let mut told = 0;
    let mut count = |bytes| {
        told += bytes;
        Ok(())
    };
    moving.finish(&closed, NO_BOUND, &mut count).unwrap();
    assert!(told <= newer, "{told} of {newer} bytes");
    world.open_in(1);
    world.check();
}
