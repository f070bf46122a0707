//! Seeded crashes: random operations on a log, the power cut at any of them, and a model that knows what may be left.
//!
//! After each crash the log must open by itself and hold a prefix of what was appended that covers all that was
//! reported flushed; every lookup must equal a linear one; producers and epochs must equal a replay. A failing seed
//! prints the command that repeats it. Starts, cuts and new segments are among the operations (T-73, T-108 to T-111).

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use log_engine::{
    AppendError, CrashChoices, DataDir, DataDirOptions, Disk, Log, LogConfig, LogName, OpenError, OpenMode,
    Sealing, SimDisk, SimFault,
};
use log_engine_core::EpochHistory;
use support::{Random, TestBatch, batches_of, check_lookups, check_transactions};
use uuid::Uuid;

const SEEDS: u64 = 3_000;
const STEPS: usize = 60;

/// A short script, the power cut at every single operation of it.
/// T-25: starts and clean stops are in it.
#[test]
fn crash_at_every_operation_of_a_script() {
    let script: [fn(&mut World); 20] = [
        World::append,
        World::flush,
        World::append,
        World::append,
        World::roll,
        World::append,
        World::flush,
        World::seal,
        World::append,
        World::truncate,
        World::append,
        World::flush,
        World::set_start,
        World::append,
        World::roll,
        World::append,
        World::seal,
        World::close,
        World::append,
        World::flush,
    ];
    for seed in support::seeds(6) {
        let mut finished = false;
        for crash in 0.. {
            let _command = support::PrintOnPanic(format!(
                "WEIR_SEED={seed} cargo test -p log-engine crash_at_every (operation {crash})"
            ));
            let mut world = World::new(seed);
            world.calm = true;
            world.crashes = 0;
            world.disk.crash_at(world.disk.ops() + 1 + crash);
            for step in script {
                step(&mut world);
                if world.disk.is_crashed() {
                    world.power_cut();
                    world.check();
                }
            }
            world.settle();
            if world.crashes > 1 {
                continue;
            }
            // Only the cut at the end: the script is shorter than this.
            assert!(crash > 60, "{crash} operations");
            finished = true;
            break;
        }
        assert!(finished);
    }
}

/// What no sync covers, survives a power cut or does not: all combinations are tried if they are no more, else so many of them.
const OUTCOMES_MAX: usize = 1 << 8;

/// A shorter script, the power cut at every operation of it, and everything that may be left then: each sector, length and name.
#[test]
fn every_outcome_of_a_crash_at_every_operation() {
    let script: [fn(&mut World); 6] =
        [World::append, World::flush, World::append, World::truncate, World::roll, World::close];
    let (mut outcomes, mut points, mut whole) = (0, 0, 0);
    for seed in support::seeds(1) {
        for crash in 1.. {
            let (mut choices, mut tried) = (CrashChoices::default(), 0);
            let (finished, is_whole) = loop {
                tried += 1;
                let _command = support::PrintOnPanic(format!(
                    "WEIR_SEED={seed} cargo test -p log-engine every_outcome (operation {crash}, outcome {tried})"
                ));
                let mut world = World::new(seed);
                world.calm = true;
                world.disk.crash_at(world.disk.ops() + crash);
                let finished = !script.iter().any(|step| {
                    step(&mut world);
                    world.disk.is_crashed()
                });
                world.open = None;
                choices = world.disk.restart_choosing(choices);
                world.reopen();
                world.check();
                world.append();
                world.check();
                let is_last = !choices.advance();
                if is_last || tried == OUTCOMES_MAX {
                    break (finished, is_last);
                }
            };
            outcomes += tried;
            points += 1;
            whole += usize::from(is_whole);
            if finished {
                break;
            }
        }
    }
    if std::env::var_os("WEIR_SEED").is_none() {
        assert!(
            points > 30 && whole * 4 > points && outcomes > 5_000,
            "{outcomes} outcomes, {whole} of {points} points"
        );
    }
}

struct World {
    seed: u64,
    /// No crashes but those that the test asks for.
    calm: bool,
    random: Random,
    disk: Arc<SimDisk>,
    config: LogConfig,
    name: LogName,
    open: Option<(DataDir, Log)>,
    /// Every batch that may be in the log, in order. Recovery may find fewer, never others.
    appended: Vec<TestBatch>,
    /// What must be there after a crash.
    durable: i64,
    /// What the log was told last.
    high_watermark: i64,
    start: i64,
    /// A change of the start that was begun when the power went.
    start_in_doubt: Option<i64>,
    epoch: i32,
    now: i64,
    crashes: usize,
    poisonings: usize,
    /// The directory was closed cleanly, if the power let it, and not opened since.
    stopped_cleanly: bool,
    /// The directory was opened at least once.
    was_open: bool,
    seals: usize,
    fault_armed: bool,
}

#[test]
fn crash_at_any_operation() {
    let (mut crashes, mut poisonings, mut seals) = (0, 0, 0);
    for seed in support::seeds(SEEDS) {
        let _command =
            support::PrintOnPanic(format!("WEIR_SEED={seed} cargo test -p log-engine crash_at_any"));
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
        crashes += world.crashes;
        poisonings += world.poisonings;
        seals += world.seals;
    }
    // A suite that never crashes proves nothing.
    if std::env::var_os("WEIR_SEED").is_none() {
        assert!(crashes > 500 && poisonings > 50, "{crashes} crashes, {poisonings} poisonings");
        assert!(seals > 50, "{seals} seals");
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let config = LogConfig {
            segment_bytes: 1500 + random.below(6000),
            segment_ms: if random.chance(50) { 500 } else { 1 << 40 },
            index_interval_bytes: random.below(600),
            index_bytes_max: 120 + random.below(4000),
            index_entries_in_memory_max: 2 + random.below(8) as usize,
            producer_snapshot_interval_bytes: 1000 + random.below(8000),
            ..LogConfig::default()
        };
        let disk = SimDisk::new(seed);
        let name = LogName::new(Uuid::from_u128(u128::from(seed)), 3);
        let mut world = World {
            seed,
            calm: false,
            random,
            disk,
            config,
            name,
            open: None,
            appended: Vec::new(),
            durable: 0,
            high_watermark: 0,
            start: 0,
            start_in_doubt: None,
            epoch: 0,
            now: 1_000_000,
            crashes: 0,
            poisonings: 0,
            stopped_cleanly: false,
            was_open: false,
            seals: 0,
            fault_armed: false,
        };
        world.reopen();
        world
    }

    fn step(&mut self) {
        self.now += self.random.below(100) as i64;
        if self.random.chance(4) {
            let soon = self.disk.ops() + 1 + self.random.below(40);
            self.disk.crash_at(soon);
        }
        match self.random.below(100) {
            0..=49 => self.append(),
            50..=69 => self.flush(),
            70..=73 => self.roll(),
            74..=77 => self.truncate(),
            78..=80 => self.set_start(),
            81..=84 => self.close(),
            85..=86 => self.kill(),
            87..=89 => self.inject_fault(),
            90..=93 => {
                let data = self.open.as_ref().map(|(data, _)| data.clone());
                if data.is_some_and(|data| data.checkpoint().is_err()) {
                    self.after_error();
                }
            }
            94..=95 => self.epoch += 1,
            96..=97 => self.move_high_watermark(),
            98 => self.seal(),
            _ => self.check(),
        }
        if self.disk.is_crashed() {
            self.power_cut();
        }
    }

    fn log(&mut self) -> &mut Log {
        &mut self.open.as_mut().expect("the log is open between steps").1
    }

    fn append(&mut self) {
        let (now, epoch) = (self.now, self.epoch);
        let mut end = self.log().end();
        let mut made = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let batch = TestBatch::random(&mut self.random, &self.appended, &made, end, epoch, now);
            end = batch.header.last_offset() + 1;
            made.push(batch);
        }
        let bytes: Vec<u8> = made.iter().flat_map(|b| b.bytes.clone()).collect();
        let headers: Vec<_> = made.iter().map(|b| b.header).collect();
        // Whatever comes of it, a crash may find it.
        let before = self.appended.len();
        self.appended.extend(made);
        match self.log().append(&bytes, &headers, now) {
            Ok(appended) => assert_eq!(appended.end, end),
            Err(AppendError::TooLarge { .. }) => {
                let end = self.log().end();
                self.appended.retain(|b| b.header.base_offset < end);
                assert!(self.appended.len() >= before);
            }
            Err(AppendError::Poisoned { .. } | AppendError::DiskFull(_)) => self.after_error(),
            Err(e @ (AppendError::OutOfOrder { .. } | AppendError::Mismatch { .. })) => panic!("{e}"),
        }
    }

    fn flush(&mut self) {
        let Some(handle) = self.log().begin_flush() else { return };
        let end = handle.end();
        // Something else may happen while the flush is under way.
        let mut lowered = end;
        if self.random.chance(20) {
            self.append();
        } else if self.random.chance(10) {
            self.truncate();
            lowered = self.open.as_ref().map_or(end, |(_, log)| log.end().min(end));
        }
        if self.open.is_none() || self.disk.is_crashed() {
            return;
        }
        let result = handle.sync();
        let failed = result.is_err();
        let flushed = self.log().on_flushed(handle.done(result));
        match failed {
            // A log that does not give up by itself goes on.
            true if self.log().poisoned().is_none() && !self.disk.is_crashed() => {}
            true => self.after_error(),
            false => {
                assert!(flushed >= lowered && flushed <= self.log().end());
                self.durable = self.durable.max(lowered);
            }
        }
    }

    /// What waits is sealed; a failure of it harms nobody.
    fn seal(&mut self) {
        let data = self.open.as_ref().expect("the log is open between steps").0.clone();
        while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
            match sealing {
                Ok(sealing) => self.seals += usize::from(sealing == Sealing::Sealed),
                Err(error) => {
                    assert!(self.disk.is_crashed() || self.fault_armed, "seed {}: {error}", self.seed)
                }
            }
        }
    }

    fn roll(&mut self) {
        if self.log().roll().is_err() {
            self.after_error();
        }
    }

    fn truncate(&mut self) {
        let (start, end) = (self.log().start(), self.log().end());
        if start == end {
            return;
        }
        let to = start + self.random.below((end - start) as u64 + 1) as i64;
        let boundary = self.boundary_below(to);
        self.durable = self.durable.min(boundary);
        self.high_watermark = self.high_watermark.min(boundary);
        self.start_in_doubt = Some(self.start.min(boundary));
        match self.log().truncate_to(to) {
            Ok(end) => {
                assert!(end <= to);
                self.start = self.start.min(end);
                self.appended.retain(|b| b.header.last_offset() < end);
                assert_eq!(self.appended.last().map_or(0, |b| b.header.last_offset() + 1), end);
            }
            Err(_) => self.after_error(),
        }
    }

    /// The end of the last batch that does not reach `offset`.
    fn boundary_below(&self, offset: i64) -> i64 {
        let ends = self.appended.iter().map(|b| b.header.last_offset() + 1);
        ends.take_while(|&end| end <= offset).last().unwrap_or(0)
    }

    fn move_high_watermark(&mut self) {
        let more = self.random.below((self.durable - self.high_watermark).max(0) as u64 + 1) as i64;
        self.high_watermark += more;
        let high_watermark = self.high_watermark;
        self.log().on_high_watermark(high_watermark);
    }

    fn set_start(&mut self) {
        let (start, end) = (self.log().start(), self.log().end());
        let to = start + self.random.below((end - start) as u64 + 1) as i64;
        self.start_in_doubt = Some(to);
        match self.log().set_start(to) {
            Ok(()) => {
                self.start = self.start.max(to);
                self.start_in_doubt = None;
                if to > start {
                    self.durable = self.durable.max(end);
                }
            }
            Err(_) => self.after_error(),
        }
    }

    fn close(&mut self) {
        let (data, log) = self.open.take().expect("the log is open between steps");
        let (start, end) = (log.start(), log.end());
        match log.close() {
            Ok(()) => {
                self.durable = self.durable.max(end);
                self.check_index_files(start);
                self.stopped_cleanly = true;
                if data.close_clean().is_err() {
                    drop(data);
                    return self.after_error();
                }
                drop(data);
                self.reopen();
            }
            Err(_) => {
                drop(data);
                self.after_error();
            }
        }
    }

    /// Every entry of an offset index must point at the batch that ends there. (A wrong one would only cost time: readers
    /// look at the batch.)
    fn check_index_files(&self, start: i64) {
        let dir = Path::new("data").join(self.name.to_string());
        let Ok(files) = self.disk.list(&dir) else { return };
        let bases: Vec<i64> =
            files.iter().filter_map(|f| f.name.strip_suffix(".log")?.parse().ok()).collect();
        for &base in bases.iter().filter(|&&base| base >= start) {
            let Ok(index) = self.disk.open(&dir.join(format!("{base:020}.index")), OpenMode::Read) else {
                continue;
            };
            let mut bytes = vec![0; index.len().unwrap_or(0) as usize];
            if index.read_at(&mut bytes, 0).is_err() {
                return assert!(self.disk.is_crashed() || self.fault_armed, "an index cannot be read");
            }
            let mut position = 0;
            let mut ends = Vec::new();
            for batch in self.appended.iter().filter(|b| b.header.base_offset >= base) {
                ends.push((batch.header.last_offset() - base, position));
                position += batch.bytes.len() as i64;
            }
            for entry in bytes.chunks_exact(8) {
                let number = |at: usize| i64::from(i32::from_be_bytes(entry[at..at + 4].try_into().unwrap()));
                let entry = (number(0), number(4));
                assert!(ends.contains(&entry), "index entry {entry:?} of segment {base} points nowhere");
            }
        }
    }

    /// The process dies, the machine stays up.
    fn kill(&mut self) {
        self.open = None;
        self.disk.restart_process();
        self.reopen();
    }

    fn inject_fault(&mut self) {
        if self.random.chance(30) {
            return self.lose_pages();
        }
        let suffix = [
            ".log",
            ".index",
            ".timeindex",
            ".txnindex",
            ".snapshot",
            "checkpoint.tmp",
            "flushed-ends.tmp",
            "seal.tmp",
        ];
        let suffix = suffix[self.random.below(8) as usize].to_owned();
        self.fault_armed = true;
        self.disk.inject(match self.random.chance(50) {
            true => SimFault::Sync(suffix),
            false => SimFault::Write(suffix),
        });
    }

    /// Write-back of some file fails in the background: whoever syncs it next hears of it, if it still has it open.
    fn lose_pages(&mut self) {
        let dir = Path::new("data").join(self.name.to_string());
        let Ok(files) = self.disk.list(&dir) else { return };
        if let Some(file) = files.get(self.random.below(files.len() as u64) as usize) {
            self.disk.lose_dirty_pages(&dir.join(&file.name));
        }
    }

    /// An operation failed: by a power cut, or by a fault, which must have closed the log for writing, or changed
    /// nothing (the record of flushed ends). Then the process gives up and starts again.
    fn after_error(&mut self) {
        if self.disk.is_crashed() {
            return;
        }
        self.poisonings += 1;
        if let Some((_, log)) = &mut self.open
            && log.poisoned().is_some()
        {
            let end = log.end();
            let batch = TestBatch::random(&mut self.random, &[], &[], end, self.epoch, self.now);
            let refused = log.append(&batch.bytes, &[batch.header], self.now);
            assert!(matches!(refused, Err(AppendError::Poisoned { .. })), "{refused:?}");
            assert!(log.begin_flush().is_none());
        }
        self.open = None;
        match self.random.chance(50) {
            true => self.disk.restart_process(),
            false => self.disk.restart(),
        }
        self.reopen();
    }

    fn power_cut(&mut self) {
        self.crashes += 1;
        self.open = None;
        self.disk.restart();
        self.reopen();
    }

    /// Opens directory and log, perhaps with more crashes while at it, and compares with the model.
    fn reopen(&mut self) {
        loop {
            if !self.calm && self.random.chance(15) {
                let soon = self.disk.ops() + 1 + self.random.below(25);
                self.disk.crash_at(soon);
            }
            match self.try_open() {
                Ok(open) => {
                    self.open = Some(open);
                    break;
                }
                Err(_) if self.disk.is_crashed() => {
                    self.crashes += 1;
                    self.disk.restart();
                }
                // A fault that was still armed.
                Err(e) => {
                    assert!(self.fault_armed, "seed {}: {e}", self.seed);
                    self.fault_armed = false;
                    self.disk.restart_process();
                }
            }
        }
        if self.disk.is_crashed() {
            return;
        }
        let (end, start) = (self.log().end(), self.log().start());
        assert!(end >= self.durable, "end {end}, but {} was flushed", self.durable);
        self.appended.retain(|b| b.header.last_offset() < end);
        assert_eq!(self.appended.last().map_or(0, |b| b.header.last_offset() + 1), end, "end of a batch");
        assert!(start == self.start || self.start_in_doubt == Some(start), "start {start}");
        self.start = start;
        self.start_in_doubt = None;
        assert_eq!(self.log().flushed(), end);
        self.durable = end;
        self.check();
    }

    fn try_open(&mut self) -> Result<(DataDir, Log), String> {
        let options = DataDirOptions {
            cluster_id: "test".into(),
            node_id: 1,
            new_directory_id: Uuid::from_u128(1),
            descriptors_max: 3,
        };
        let data =
            DataDir::open(self.disk.clone(), Path::new("data"), &options).map_err(|e| e.to_string())?;
        assert!(
            self.stopped_cleanly || !self.was_open || !data.was_clean(),
            "the directory was not closed, and says that it was"
        );
        (self.stopped_cleanly, self.was_open) = (false, true);
        let opened = Log::open(&data, self.name, self.config.clone(), self.now);
        if let Err(e @ OpenError::Damaged { .. }) = &opened {
            panic!("seed {}: {e}", self.seed);
        }
        let (log, _) = opened.map_err(|e| e.to_string())?;
        Ok((data, log))
    }

    fn check(&mut self) {
        let (_, log) = self.open.as_ref().expect("the log is open between steps");
        let crash_pending = self.disk.is_crashed();
        if crash_pending {
            return;
        }
        let (found, expected) = (batches_of(log, log.end()), support::from(&self.appended, log.start()));
        assert_eq!(support::offsets(&found), support::offsets(&expected));
        assert!(found == expected, "the bytes differ");
        check_lookups(log, &self.appended, &mut self.random, 6);
        let checked = check_transactions(log, &self.appended, self.high_watermark, &mut self.random, 6);
        if let Err(e) = checked {
            // A transaction index may be repaired when it is read.
            return assert!(self.disk.is_crashed(), "{e}");
        }
        let mut epochs = EpochHistory::new();
        for batch in &self.appended {
            if epochs.latest().is_none_or(|l| l.epoch < batch.header.partition_leader_epoch) {
                epochs.assign(batch.header.partition_leader_epoch, batch.header.base_offset);
            }
        }
        epochs.truncate_from_start(log.start());
        let epochs: Vec<_> =
            epochs.entries().iter().copied().filter(|e| e.start_offset < log.end()).collect();
        let found: Vec<_> =
            log.epochs().entries().iter().copied().filter(|e| e.start_offset < log.end()).collect();
        assert_eq!(found, epochs);
    }

    /// At the end: a last power cut, then everything still works.
    fn settle(&mut self) {
        if self.disk.is_crashed() {
            self.power_cut();
        }
        self.power_cut();
        while self.disk.is_crashed() {
            self.power_cut();
        }
        self.append();
        if !self.disk.is_crashed() {
            self.check();
        }
    }
}
