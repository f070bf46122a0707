//! What a pass does when something else happens to the log meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use log_engine_core::compact::CompactionPolicy;
use records::{BatchBuilder, BatchHeader, BatchView, Compression, EndMarker, batches};
use uuid::Uuid;

use super::*;
use crate::data_dir::DataDirOptions;
use crate::disk::Disk;
use crate::disk::{SimDisk, SimFault};
use crate::error::{FileError, LogError, OpenError};
use crate::inspect::{Severity, verify_log};
use crate::reader::{Wanted, with_aborted};
use crate::segment::file_name;
use crate::{LogConfig, LogName};

const NAME: LogName = LogName { topic_id: Uuid::from_u128(79), partition: 0 };
const NOW: i64 = 1_000_000;
const EAGER: CompactionPolicy =
    CompactionPolicy { min_dirty_ratio: 0.0, min_lag_ms: 0, max_lag_ms: i64::MAX };

struct TestPace {
    room: u64,
}

fn at_once() -> TestPace {
    TestPace { room: u64::MAX }
}

impl Pace for TestPace {
    fn spend(&mut self, _bytes: u64) -> bool {
        true
    }

    fn has_room(&mut self, bytes: u64) -> bool {
        bytes <= self.room
    }

    fn now_ms(&mut self) -> Option<i64> {
        Some(NOW)
    }
}

struct World {
    disk: Arc<SimDisk>,
    data: DataDir,
    log: Log,
}

impl World {
    fn new() -> World {
        let disk = SimDisk::new(1);
        let options = DataDirOptions {
            cluster_id: "c".into(),
            node_id: 1,
            new_directory_id: Uuid::from_u128(9),
            descriptors_max: 50,
        };
        let data = DataDir::open(disk.clone(), Path::new("data"), &options).unwrap();
        let log = World::open(&data);
        World { disk, data, log }
    }

    fn open(data: &DataDir) -> Log {
        let config = LogConfig { unpacked_batch_bytes_max: 10_000, ..LogConfig::default() };
        Log::open(data, NAME, config, NOW).unwrap().0
    }

    fn push(&mut self, mut bytes: Vec<u8>) {
        records::set_base_offset(&mut bytes, self.log.end());
        records::set_leader_epoch(&mut bytes, 0);
        let header = BatchHeader::parse(&bytes).unwrap();
        self.log.append(&bytes, &[header], NOW).unwrap();
    }

    fn append(&mut self, key: &str, value: Option<&[u8]>) {
        let mut builder = BatchBuilder::new().compression(Compression::Lz4);
        builder.push(NOW, Some(key.as_bytes()), value, &[]).unwrap();
        self.push(builder.build());
    }

    /// A segment of its own for each key.
    fn fill(&mut self, keys: &[&str]) {
        for key in keys {
            self.append(key, Some(b"v"));
            self.log.roll().unwrap();
        }
        self.append("last", Some(b"v"));
        self.flush();
    }

    fn flush(&mut self) {
        let handle = self.log.begin_flush().unwrap();
        let result = handle.sync();
        self.log.on_flushed(handle.done(result));
        assert_eq!(self.log.flushed(), self.log.end());
    }

    fn begin(&self) -> Compaction {
        self.begin_with(1 << 20)
    }

    fn begin_with(&self, map_bytes_max: usize) -> Compaction {
        let bound = self.log.end();
        let dirtiness = self.log.reader().dirtiness(&self.data, bound, Some(NOW), &EAGER);
        let request = CompactionRequest {
            bound,
            dirtiness,
            now_ms: Some(NOW),
            delete_retention_ms: 1_000,
            keep_from: i64::MAX,
            map_bytes_max,
        };
        self.log.begin_compaction(&request).unwrap()
    }

    /// A whole pass.
    fn compact(&mut self) -> Result<(), CompactionError> {
        let mut pass = self.begin();
        pass.prepare(&mut at_once())?;
        while let Some(segment) = pass.next_segment(&mut at_once())? {
            assert!(matches!(self.log.install(segment), Ok(Installed::Yes)));
        }
        assert!(self.log.finish_compaction(&pass.finished()));
        Ok(())
    }

    fn bases(&self) -> Vec<i64> {
        self.log.shared.segments().iter().map(|segment| segment.base_offset()).collect()
    }

    fn keys(&self) -> Vec<(i64, String)> {
        let read = self.log.reader().read(self.log.start(), 1 << 20, i64::MAX, true).unwrap();
        let mut keys = Vec::new();
        for batch in batches(&read.to_bytes().unwrap()) {
            for record in batch.unwrap().records(1 << 20).unwrap().iter() {
                let record = record.unwrap();
                keys.push((record.offset, String::from_utf8(record.key.unwrap().to_vec()).unwrap()));
            }
        }
        keys
    }
}

#[test]
fn a_pass_over_a_dropped_log_says_nothing_of_the_next_of_its_name() {
    let mut world = World::new();
    world.fill(&["a", "a"]);
    let mut pass = world.begin();
    pass.prepare(&mut at_once()).unwrap();
    let segment = pass.next_segment(&mut at_once()).unwrap().unwrap();
    let World { disk, data, log } = world;
    log.delete().unwrap();
    let mut world = World { disk, log: World::open(&data), data };
    world.fill(&["a", "a"]);
    assert!(!world.log.finish_compaction(&pass.finished()), "it has never seen these records");
    assert_eq!(world.data.cleaned().get(NAME), None);
    assert!(matches!(world.log.install(segment), Ok(Installed::Stale)));
    assert_eq!(world.keys().len(), 3);
}

#[test]
fn records_and_aborted_transactions_are_of_the_same_segments() {
    for finished in [false, true] {
        let mut world = World::new();
        let mut builder = BatchBuilder::new().producer(7, 0, 0).transactional();
        builder.push(NOW, Some(b"void"), Some(b"v"), &[]).unwrap();
        world.push(builder.build());
        world.push(EndMarker { is_commit: false, coordinator_epoch: 1 }.encode(7, 0, NOW).unwrap());
        world.log.roll().unwrap();
        world.fill(&["a"]);
        if finished {
            // The index is in its file alone.
            let World { disk, data, log } = world;
            log.close().unwrap();
            world = World { disk, log: World::open(&data), data };
        }
        let mut pass = world.begin();
        pass.prepare(&mut at_once()).unwrap();
        let mut segment = pass.next_segment(&mut at_once()).unwrap();
        let reader = world.log.reader();
        let wanted =
            Wanted { offset: 0, bytes_max: 1 << 20, upper_bound: i64::MAX, min_one: true, warm: false };
        let read = reader.read_from(&wanted, |segments, slice| {
            // It comes between the records and the transactions.
            if let Some(segment) = segment.take() {
                assert!(matches!(world.log.install(segment), Ok(Installed::Yes)));
            }
            with_aborted(segments, &wanted, slice)
        });
        let Ok(Ok((slice, aborted))) = read else { panic!("the log can be read") };
        assert!(segment.is_none());
        let bytes = slice.to_bytes().unwrap();
        let has_void = batches(&bytes).any(|batch| {
            let header = *batch.unwrap().header();
            header.producer_id == 7 && !header.is_control() && header.record_count > 0
        });
        assert_eq!(
            has_void,
            !aborted.is_empty(),
            "an aborted record without its transaction, or the reverse"
        );
        let (_, aborted) = reader.read_committed(0, 1 << 20, i64::MAX, true).unwrap();
        assert_eq!(aborted, [], "nothing of it is left");
    }
}

#[test]
fn a_pass_goes_on_when_the_start_of_the_log_moves() {
    let mut world = World::new();
    world.fill(&["a", "b", "a", "b", "c"]);
    let mut pass = world.begin();
    pass.prepare(&mut at_once()).unwrap();
    let segment = pass.next_segment(&mut at_once()).unwrap().unwrap();
    world.log.set_start(1).unwrap();
    assert!(matches!(world.log.install(segment), Ok(Installed::Gone)));
    assert_eq!(world.bases(), [1, 2, 3, 4, 5]);
    let segment = pass.next_segment(&mut at_once()).unwrap().expect("what is left is done again");
    assert!(matches!(world.log.install(segment), Ok(Installed::Yes)));
    assert!(pass.next_segment(&mut at_once()).unwrap().is_none());
    assert!(world.log.finish_compaction(&pass.finished()));
    assert_eq!(world.bases(), [1, 5]);
    let keys = world.keys();
    assert_eq!(keys, [(2, "a"), (3, "b"), (4, "c"), (5, "last")].map(|(o, k)| (o, k.to_owned())));
}

#[test]
fn a_pass_goes_on_when_what_it_reads_is_removed() {
    for before_map in [true, false] {
        let mut world = World::new();
        world.fill(&["a", "b", "a", "c"]);
        let mut pass = world.begin();
        if !before_map {
            pass.prepare(&mut at_once()).unwrap();
        }
        world.log.set_start(2).unwrap();
        world.log.take_detached().unwrap().remove_files().unwrap();
        if before_map {
            pass.prepare(&mut at_once()).unwrap();
        }
        let segment = pass.next_segment(&mut at_once()).unwrap().unwrap();
        assert!(matches!(world.log.install(segment), Ok(Installed::Yes)));
        assert!(world.log.finish_compaction(&pass.finished()));
        assert_eq!(world.bases(), [2, 4]);
    }
}

#[test]
fn a_batch_that_cannot_be_unpacked_stays_and_so_does_what_rests_on_it() {
    let mut world = World::new();
    world.append("a", Some(b"old"));
    // More than may be unpacked.
    world.append("a", Some(&[0; 20_000]));
    world.append("b", Some(b"old"));
    world.append("a", None);
    world.append("b", Some(b"new"));
    world.log.roll().unwrap();
    world.append("last", Some(b"v"));
    world.flush();
    let before = world.log.reader().read(1, 1, i64::MAX, true).unwrap().to_bytes().unwrap();
    let mut pass = world.begin();
    pass.prepare(&mut at_once()).unwrap();
    while let Some(segment) = pass.next_segment(&mut at_once()).unwrap() {
        assert!(matches!(world.log.install(segment), Ok(Installed::Yes)));
    }
    assert_eq!(pass.counts().opaque_batches, 1);
    let offsets: Vec<i64> = world.keys().iter().map(|&(offset, _)| offset).collect();
    assert_eq!(offsets, [1, 3, 4, 5]);
    let after = world.log.reader().read(1, 1, i64::MAX, true).unwrap().to_bytes().unwrap();
    assert_eq!(BatchView::parse(&after).unwrap().bytes(), BatchView::parse(&before).unwrap().bytes());
}

#[test]
fn who_builds_a_transaction_index_is_not_waited_for() {
    let mut world = World::new();
    world.fill(&["a", "a"]);
    let mut pass = world.begin();
    pass.prepare(&mut at_once()).unwrap();
    let segment = pass.next_segment(&mut at_once()).unwrap().unwrap();
    let second = world.log.shared.segments()[1].clone();
    let held = second.aborted().hold();
    let Ok(Installed::Later(segment)) = world.log.install(segment) else { panic!("it does not wait") };
    assert_eq!(world.bases(), [0, 1, 2]);
    drop(held);
    assert!(matches!(world.log.install(*segment), Ok(Installed::Yes)));
    assert_eq!(world.bases(), [0, 2]);
    let names = world.disk.list(&Path::new("data").join(NAME.to_string())).unwrap();
    assert_eq!(names.iter().filter(|e| e.name.ends_with(".log.deleted")).count(), 2, "old files wait");
    world.log.take_detached().unwrap().remove_files().unwrap();
    let names = world.disk.list(&Path::new("data").join(NAME.to_string())).unwrap();
    assert!(!names.iter().any(|e| e.name.ends_with(".deleted")));
}

#[test]
fn a_pass_ends_where_there_is_no_room_for_a_new_segment() {
    let mut world = World::new();
    world.fill(&["a", "a"]);
    let mut pass = world.begin();
    let bytes = world.log.shared.segments()[0].state().read().size;
    let error = pass.prepare(&mut TestPace { room: bytes - 1 }).unwrap_err();
    assert!(matches!(error, CompactionError::NoRoom { .. }), "{error}");
    pass.prepare(&mut TestPace { room: bytes }).unwrap();
    let error = pass.next_segment(&mut TestPace { room: bytes }).unwrap_err();
    assert!(matches!(error, CompactionError::NoRoom { .. }), "both become one: {error}");
}

#[test]
fn a_segment_of_unknown_age_is_not_compacted_where_there_is_a_lag() {
    let mut world = World::new();
    world.fill(&["a", "b", "c"]);
    let World { disk, data, log } = world;
    log.close().unwrap();
    let world = World { disk, log: World::open(&data), data };
    let lazy = CompactionPolicy { min_lag_ms: 1_000, ..EAGER };
    let look = |now| world.log.reader().dirtiness(&world.data, 4, now, &lazy).until;
    let second = world.log.shared.segments()[1].clone();
    second.state().write().max_timestamp = None;
    world.disk.inject(SimFault::Read(file_name(1, "log")));
    assert_eq!(look(Some(NOW + 1_000)), 1, "nothing behind it either");
    assert_eq!(look(Some(NOW + 1_000)), 3, "it can be read again");
    assert_eq!((look(Some(NOW + 999)), look(None)), (0, 0), "too young, or nobody knows");
}

#[test]
fn a_poisoned_log_takes_no_segment() {
    let mut world = World::new();
    world.fill(&["a", "a"]);
    let mut pass = world.begin();
    pass.prepare(&mut at_once()).unwrap();
    let segment = pass.next_segment(&mut at_once()).unwrap().unwrap();
    world.log.poison_by(&FileError::new("sync", "x", std::io::Error::other("gone")));
    assert!(matches!(world.log.install(segment), Err(LogError::Poisoned { .. })));
    let names = world.disk.list(&Path::new("data").join(NAME.to_string())).unwrap();
    assert!(!names.iter().any(|e| e.name.ends_with(CLEANED_SUFFIX) || e.name.ends_with(SWAP_SUFFIX)));
}

/// A segment that a pass has left with gaps between its batches, and one that no pass has seen. Where its file is, and where
/// the batches lie in it.
fn with_gaps() -> (World, PathBuf, Vec<u64>) {
    let mut world = World::new();
    for key in ["a", "b", "a", "a", "c", "b", "a", "a", "d", "d", "d"] {
        world.append(key, Some(b"v"));
    }
    world.log.roll().unwrap();
    world.fill(&[]);
    world.compact().unwrap();
    assert_eq!(world.log.take_detached().map(|files| files.remove_files().unwrap()), Some(()));
    for key in ["a", "e", "d"] {
        world.append(key, Some(b"new"));
    }
    world.log.roll().unwrap();
    world.fill(&[]);
    let path = Path::new("data").join(NAME.to_string()).join(file_name(0, "log"));
    let file = world.disk.open(&path, crate::disk::OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let (mut at, mut positions, mut offsets) = (0, Vec::new(), Vec::new());
    for batch in batches(&bytes) {
        let header = *batch.unwrap().header();
        positions.push(at);
        offsets.push(header.base_offset);
        at += header.size() as u64;
    }
    assert_eq!(offsets, [4, 5, 7, 10], "there are gaps");
    (world, path, positions)
}

#[test]
fn what_the_checksums_of_batches_leave_out_is_not_copied_damaged() {
    let (mut world, path, positions) = with_gaps();
    while let Some((_, sealing)) = world.data.seal_next(Duration::ZERO) {
        sealing.unwrap();
    }
    let (before, cleaned) = (world.keys(), world.data.cleaned().get(NAME));
    for batch in positions {
        for byte in (0..8).chain(12..16) {
            for bit in 0..8 {
                world.disk.flip_bit(&path, batch + byte, bit);
                let error = world.compact().expect_err("the damage is met");
                assert!(
                    matches!(error, CompactionError::Damaged { .. }),
                    "batch {batch} {byte} {bit}: {error}"
                );
                world.disk.flip_bit(&path, batch + byte, bit);
            }
        }
    }
    assert_eq!((world.keys(), world.data.cleaned().get(NAME)), (before, cleaned), "nothing has changed");
    world.compact().unwrap();
    let offsets: Vec<i64> = world.keys().iter().map(|&(offset, _)| offset).collect();
    assert_eq!(offsets, [4, 5, 11, 12, 13, 14, 15]);
}

#[test]
fn a_segment_without_a_seal_is_sealed_before_it_is_copied() {
    let (mut world, path, positions) = with_gaps();
    let seals = |world: &World| {
        let names = world.disk.list(path.parent().unwrap()).unwrap();
        names.into_iter().filter(|entry| entry.name.ends_with(".seal")).count()
    };
    // Nobody has come to it, and nobody does: it may be from before there were seals.
    for segment in world.log.shared.segments().iter() {
        crate::seal::remove_seal(&*world.disk, path.parent().unwrap(), segment.base_offset()).unwrap();
    }
    assert_eq!(seals(&world), 0);
    // The last batch reaches into the next segment.
    let last = positions[positions.len() - 1];
    for (byte, bit) in [(7, 5), (3, 0), (0, 6)] {
        world.disk.flip_bit(&path, last + byte, bit);
        let error = world.compact().expect_err("the damage is met");
        assert!(matches!(error, CompactionError::Damaged { .. }), "{byte} {bit}: {error}");
        world.disk.flip_bit(&path, last + byte, bit);
    }
    let mut pass = world.begin();
    pass.prepare(&mut at_once()).unwrap();
    let segment = pass.next_segment(&mut at_once()).unwrap().expect("something goes");
    assert!(seals(&world) > 1, "what was read is sealed");
    assert!(matches!(world.log.install(segment), Ok(Installed::Yes)));
}

#[test]
fn very_many_aborted_transactions_take_several_passes_and_no_more_memory() {
    const BYTES_MAX: usize = 32 << 10;
    let mut world = World::new();
    let transactional = |id: i64, sequence: i32, key: &str| {
        let mut builder = BatchBuilder::new().producer(id, 0, sequence).transactional();
        builder.push(NOW, Some(key.as_bytes()), Some(b"v"), &[]).unwrap();
        builder.build()
    };
    let marker =
        |id: i64, is_commit| EndMarker { is_commit, coordinator_epoch: 1 }.encode(id, 0, NOW).unwrap();
    // One is open all the while: nothing is decided for certain before it ends.
    world.push(transactional(1, 0, "long"));
    for i in 0..1_000 {
        let id = 10 + i % 300;
        world.append(&format!("key {}", i % 7), Some(b"v"));
        world.push(transactional(id, (i / 300) as i32, "void"));
        world.push(marker(id, false));
        if i % 200 == 0 {
            world.log.roll().unwrap();
        }
    }
    world.push(marker(1, true));
    world.log.roll().unwrap();
    world.fill(&[]);
    let (mut passes, mut from) = (0, -1);
    loop {
        let dirtiness = world.log.reader().dirtiness(&world.data, world.log.end(), Some(NOW), &EAGER);
        assert!(dirtiness.from > from, "each pass gets further");
        from = dirtiness.from;
        if !dirtiness.due {
            break;
        }
        let mut pass = world.begin_with(BYTES_MAX);
        pass.prepare(&mut at_once()).unwrap();
        let taken = pass.rules.aborted.bytes();
        assert!(taken <= BYTES_MAX / 8 && taken + pass.mapping.map().bytes() <= BYTES_MAX, "{taken}");
        while let Some(segment) = pass.next_segment(&mut at_once()).unwrap() {
            assert!(matches!(world.log.install(segment), Ok(Installed::Yes)));
        }
        assert!(world.log.finish_compaction(&pass.finished()));
        passes += 1;
    }
    assert_eq!(from, world.log.shared.segments().last().unwrap().base_offset());
    assert!(passes > 5, "{passes}");
    let mut keys: Vec<String> =
        world.keys().into_iter().map(|(_, key)| key).filter(|k| !k.is_empty()).collect();
    keys.retain(|key| key.starts_with("key") || key == "void" || key == "long");
    keys.sort();
    assert_eq!(keys, ["key 0", "key 1", "key 2", "key 3", "key 4", "key 5", "key 6", "long"]);
}

fn names(disk: &SimDisk) -> Vec<String> {
    let entries = disk.list(&Path::new("data").join(NAME.to_string())).unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

fn reopened(disk: Arc<SimDisk>) -> Result<World, OpenError> {
    let options = DataDirOptions {
        cluster_id: "c".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(9),
        descriptors_max: 50,
    };
    let data = DataDir::open(disk.clone(), Path::new("data"), &options)
        .map_err(|e| FileError::new("open", "data", std::io::Error::other(e.to_string())))?;
    let (log, _) = Log::open(&data, NAME, LogConfig::default(), NOW)?;
    Ok(World { disk, data, log })
}

/// At any time of a replacement, whatever of it a power cut has left: nothing goes before the new segment was read.
#[test]
fn a_replacement_that_has_rotted_costs_nothing_that_is_still_there() {
    let (mut withdrawn, mut damaged, mut completed) = (0, 0, 0);
    for ops in 1..60 {
        for (byte, power_cut) in [(90, true), (20, false), (250, true)] {
            let mut world = World::new();
            world.fill(&["a", "b", "a", "c", "b"]);
            let before = world.keys();
            let mut pass = world.begin();
            pass.prepare(&mut at_once()).unwrap();
            let segment = pass.next_segment(&mut at_once()).unwrap().unwrap();
            world.disk.crash_at(world.disk.ops() + ops);
            let _ = world.log.install(segment);
            let World { disk, data, log } = world;
            drop((pass, data, log));
            if power_cut {
                disk.restart()
            } else {
                disk.restart_process()
            }
            let swap = Path::new("data").join(NAME.to_string()).join(file_name(0, "log.swap"));
            if disk.open(&swap, crate::disk::OpenMode::Read).is_err() {
                continue;
            }
            disk.flip_bit(&swap, byte, 2);
            let has_source = names(&disk).contains(&file_name(0, "log"));
            let dir = swap.parent().unwrap();
            let verdict = verify_log(&*disk, dir).unwrap();
            let all = names(&disk);
            match reopened(disk.clone()) {
                Ok(world) => {
                    withdrawn += 1;
                    assert!(has_source && world.keys() == before, "{ops} {byte}: {:?}", world.keys());
                    assert!(verdict.severity() < Some(Severity::Damage), "{verdict:?}");
                    assert!(!names(&world.disk).iter().any(|name| name.ends_with(SWAP_SUFFIX)));
                }
                Err(OpenError::Damaged { path, .. }) => {
                    damaged += 1;
                    assert_eq!(path, swap);
                    assert_eq!(verdict.severity(), Some(Severity::Damage));
                    assert_eq!(names(&disk), all, "nothing was removed");
                    // Whole again, it takes its place; a power cut in the middle of that loses nothing either.
                    disk.flip_bit(&swap, byte, 2);
                    disk.crash_at(disk.ops() + ops % 10 + 20);
                    drop(reopened(disk.clone()));
                    disk.restart();
                    let mut keys = before.clone();
                    keys.drain(..2);
                    assert_eq!(reopened(disk).unwrap().keys(), keys);
                    completed += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(withdrawn > 5 && damaged > 5 && completed > 5, "{withdrawn} {damaged} {completed}");
}

/// A completion that is broken off begins by taking the first source away: as long as that is there, all are.
#[test]
fn a_replacement_that_rots_while_it_is_completed_costs_nothing_in_silence() {
    for ops in 1..40 {
        let mut world = World::new();
        world.fill(&["a", "b", "a", "c", "b"]);
        let (before, mut after) = (world.keys(), world.keys());
        after.drain(..2);
        let mut pass = world.begin();
        pass.prepare(&mut at_once()).unwrap();
        let segment = pass.next_segment(&mut at_once()).unwrap().unwrap();
        // Decided, and nothing more.
        world.disk.crash_at(world.disk.ops() + 3);
        world.log.install(segment).unwrap_err();
        let World { disk, data, log } = world;
        drop((pass, data, log));
        disk.restart_process();
        let swap = Path::new("data").join(NAME.to_string()).join(file_name(0, "log.swap"));
        assert!(
            disk.open(&swap, crate::disk::OpenMode::Read).is_ok()
                && names(&disk).contains(&file_name(4, "log"))
        );
        disk.crash_at(disk.ops() + ops);
        let done = reopened(disk.clone()).is_ok();
        disk.restart();
        if disk.open(&swap, crate::disk::OpenMode::Read).is_ok() {
            disk.flip_bit(&swap, 90, 2);
            match reopened(disk) {
                Ok(world) => assert_eq!(world.keys(), before, "{ops}"),
                Err(OpenError::Damaged { path, .. }) => assert_eq!(path, swap),
                Err(error) => panic!("{error}"),
            }
        } else {
            let keys = reopened(disk).unwrap().keys();
            assert!(keys == after, "{ops}: {keys:?}");
        }
        if done {
            assert!(ops > 8, "{ops}");
            return;
        }
    }
    panic!("it never ends");
}

#[test]
fn where_the_record_of_flushed_ends_is_lost_seals_tell_gaps_from_losses() {
    for (sealed, rotten) in [(true, false), (false, false), (true, true)] {
        let mut world = World::new();
        world.append("c", Some(b"v"));
        // As a follower gets it of a compacted log, and then has to go back to an end within the gap.
        let mut behind_gap = BatchBuilder::new().base_offset(9);
        behind_gap.push(NOW, Some(b"a"), Some(b"v"), &[]).unwrap();
        let behind_gap = behind_gap.build();
        world.log.append(&behind_gap, &[BatchHeader::parse(&behind_gap).unwrap()], NOW).unwrap();
        assert_eq!(world.log.truncate_to(7).unwrap(), 7);
        world.append("last", Some(b"v"));
        world.flush();
        assert_eq!(world.bases(), [0, 7]);
        let keys = world.keys();
        assert_eq!(keys, [(0, "c".to_owned()), (7, "last".to_owned())]);
        if sealed {
            while let Some((_, sealing)) = world.data.seal_next(Duration::ZERO) {
                sealing.unwrap();
            }
        }
        let World { disk, data, log } = world;
        log.close().unwrap();
        data.close_clean().unwrap();
        drop(data);
        let dir = Path::new("data").join(NAME.to_string());
        let is_damaged = || verify_log(&*disk, &dir).unwrap().severity() == Some(Severity::Damage);
        assert!(!is_damaged());
        disk.remove_file(&Path::new("data").join("flushed-ends")).unwrap();
        disk.sync_dir(Path::new("data")).unwrap();
        if rotten {
            // No checksum of a batch covers its leader epoch.
            disk.flip_bit(&dir.join(file_name(0, "log")), 14, 1);
        }
        for _ in 0..2 {
            disk.restart();
            let damage = is_damaged();
            match reopened(disk.clone()) {
                Ok(world) => {
                    assert!(sealed && !rotten && !damage && world.keys() == keys, "sealed: {sealed}")
                }
                Err(OpenError::Damaged { reason, .. }) => {
                    assert!(damage && (!sealed || rotten), "{reason}");
                    assert_eq!(reason.contains("nothing says that it was compacted"), !rotten, "{reason}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
