//! Seeded compaction of a log on a disk that fails: appends, passes with their steps between other operations, cuts, and the
//! power going at any operation.
//!
//! A model knows every record that was appended and how far the log is committed. Whatever happens, the log opens by itself,
//! holds only what was appended, and tells of each key what the model tells. A failing seed prints the command that repeats it.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use log_engine::inspect::{Severity, verify_log};
use log_engine::{
    AppendError, Compaction, CompactionError, CompactionRequest, DataDir, DataDirOptions, Installed, Log,
    LogConfig, LogName, Sealing, SimDisk, SimFault,
};
use log_engine_core::compact::CompactionPolicy;
use records::{BatchBuilder, BatchHeader, BatchView, Compression, batches};
use support::{AtOnce, Random, batches_of};
use uuid::Uuid;

const SEEDS: u64 = 1000;
const STEPS: usize = 80;
const RETENTION_MS: i64 = 200;

type Record = (Vec<u8>, Option<Vec<u8>>);

struct World {
    seed: u64,
    random: Random,
    disk: Arc<SimDisk>,
    config: LogConfig,
    name: LogName,
    open: Option<(DataDir, Log)>,
    /// Every record that may be in the log, by offset.
    records: BTreeMap<i64, Record>,
    headers: BTreeMap<i64, BatchHeader>,
    durable: i64,
    /// Nothing below is ever cut.
    committed: i64,
    pass: Option<Compaction>,
    sequence: i32,
    now: i64,
    calm: bool,
    /// Committed records were cut, or may have been.
    unclean: bool,
    crashes: usize,
    installed: usize,
    stale: usize,
    gone: usize,
    sealed: usize,
    scrubbed: usize,
    copy: Option<Copy>,
    outdated: usize,
}

/// What a follower has that copied the log up to `end` and went away.
struct Copy {
    end: i64,
    records: BTreeMap<i64, Record>,
    /// What was dropped of the log when it began.
    dropped_to: i64,
}

#[test]
fn a_reader_gets_the_models_map_whenever_the_power_goes() {
    let (mut crashes, mut installed, mut stale, mut gone) = (0, 0, 0, 0);
    let (mut sealed, mut scrubbed, mut outdated) = (0, 0, 0);
    for seed in support::seeds(SEEDS) {
        let command = format!("WEIR_SEED={seed} cargo test -p log-engine --test fuzz_compaction models_map");
        let _command = support::PrintOnPanic(command);
        let mut world = World::new(seed);
        world.calm = false;
        for _ in 0..STEPS {
            world.step();
        }
        world.check();
        crashes += world.crashes;
        installed += world.installed;
        stale += world.stale;
        gone += world.gone;
        sealed += world.sealed;
        scrubbed += world.scrubbed;
        outdated += world.outdated;
    }
    if std::env::var_os("WEIR_SEED").is_none() && std::env::var_os("WEIR_SEEDS").is_none() {
        // A suite in which nothing of that happens proves nothing.
        let seen = format!("{crashes} {installed} {stale} {gone} {sealed} {scrubbed}");
        assert!(outdated > 5, "{outdated} times a copy had to begin anew");
        assert!(
            crashes > 300 && installed > 500 && stale > 10 && gone > 5 && sealed > 100 && scrubbed > 100,
            "{seen}"
        );
    }
}

/// One pass over several segments, the power cut at every single operation of it.
#[test]
fn a_replacement_survives_a_crash_at_every_operation() {
    for seed in support::seeds(8) {
        for crash in 1.. {
            let command =
                format!("WEIR_SEED={seed} cargo test -p log-engine every_operation (operation {crash})");
            let _command = support::PrintOnPanic(command);
            let mut world = World::new(seed);
            for _ in 0..12 {
                world.append();
                world.flush();
                if world.random.chance(40) {
                    world.roll();
                }
            }
            world.append();
            world.flush();
            world.committed = world.durable;
            world.seal();
            world.disk.crash_at(world.disk.ops() + crash);
            world.compact_whole();
            let crashed = world.disk.is_crashed();
            world.power_cut();
            world.check();
            world.scrub();
            // It can be compacted further, whatever was left.
            world.append();
            world.flush();
            world.compact_whole();
            world.check();
            if !crashed {
                assert!(crash > 15, "{crash} operations");
                break;
            }
        }
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let config = LogConfig {
            segment_bytes: 600 + random.below(2000),
            segment_ms: 1 << 40,
            index_interval_bytes: random.below(400),
            index_entries_in_memory_max: 2 + random.below(8) as usize,
            producer_snapshot_interval_bytes: 1000 + random.below(8000),
            ..LogConfig::default()
        };
        let mut world = World {
            seed,
            random,
            disk: SimDisk::new(seed),
            config,
            name: LogName::new(Uuid::from_u128(u128::from(seed)), 3),
            open: None,
            records: BTreeMap::new(),
            headers: BTreeMap::new(),
            durable: 0,
            committed: 0,
            pass: None,
            sequence: 0,
            now: 1_000_000,
            calm: true,
            unclean: false,
            crashes: 0,
            installed: 0,
            stale: 0,
            gone: 0,
            sealed: 0,
            scrubbed: 0,
            copy: None,
            outdated: 0,
        };
        world.reopen();
        world
    }

    fn step(&mut self) {
        self.now += self.random.below(100) as i64;
        if self.random.chance(4) {
            self.disk.crash_at(self.disk.ops() + 1 + self.random.below(40));
        }
        match self.random.below(100) {
            0..=39 => self.append(),
            40..=54 => self.flush(),
            55..=60 => self.roll(),
            61..=63 => self.truncate(),
            64..=65 => self.set_start(),
            66..=67 => self.close(),
            68..=69 => self.inject_fault(),
            70..=79 => self.begin_pass(),
            80..=92 => self.go_on_with_pass(),
            93..=94 => self.seal(),
            95 => self.scrub(),
            96 => self.take_copy(),
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
        let base = self.log().end();
        let count = 1 + self.random.below(4) as i64;
        let codec = [Compression::None, Compression::None, Compression::Lz4, Compression::Gzip];
        let mut builder =
            BatchBuilder::new().compression(codec[self.random.below(4) as usize]).base_offset(base);
        if self.random.chance(50) {
            builder = builder.producer(7, 0, self.sequence);
            self.sequence += count as i32;
        }
        let mut made = Vec::new();
        for i in 0..count {
            let key = vec![b'k', self.random.below(12) as u8];
            let value = (!self.random.chance(20)).then(|| {
                let mut value = (base + i).to_be_bytes().to_vec();
                value.resize(8 + self.random.below(80) as usize, 7);
                value
            });
            builder.push(self.now - i, Some(&key), value.as_deref(), &[]).unwrap();
            made.push((base + i, (key, value)));
        }
        let bytes = builder.leader_epoch(0).build();
        let header = BatchHeader::parse(&bytes).unwrap();
        let now = self.now;
        // Whatever comes of it, a crash may find it.
        self.records.extend(made);
        self.headers.insert(base, header);
        match self.log().append(&bytes, &[header], now) {
            Ok(_) => {}
            Err(AppendError::TooLarge { .. }) => self.forget_from(base),
            Err(_) => self.after_error(),
        }
    }

    fn forget_from(&mut self, end: i64) {
        self.records.split_off(&end);
        self.headers.split_off(&end);
    }

    fn flush(&mut self) {
        let Some(handle) = self.log().begin_flush() else { return };
        let end = handle.end();
        let result = handle.sync();
        let failed = result.is_err();
        self.log().on_flushed(handle.done(result));
        if failed {
            return self.after_error();
        }
        self.durable = self.durable.max(end);
        if self.random.chance(70) {
            let below = end - self.random.below(6) as i64;
            self.committed = self.committed.max(self.boundary_below(below));
        }
    }

    fn boundary_below(&self, offset: i64) -> i64 {
        let ends = self.headers.values().map(|h| h.last_offset() + 1);
        ends.take_while(|&end| end <= offset).last().unwrap_or(0)
    }

    fn roll(&mut self) {
        if self.log().roll().is_err() {
            self.after_error();
        }
    }

    /// As a follower does: never below what is committed, but for an unclean election.
    fn truncate(&mut self) {
        let (start, end) = (self.log().start(), self.log().end());
        let least = if self.random.chance(20) { start } else { start.max(self.committed) };
        if least >= end {
            return;
        }
        let to = least + self.random.below((end - least) as u64 + 1) as i64;
        let to = self.boundary_below(to);
        // A batch that straddles the start is not for this test.
        if to < least {
            return;
        }
        // Where compaction has left a gap, a crash in the middle may leave the log at the end of its batches.
        let (durable, committed, unclean) = (self.durable, self.committed, self.unclean);
        let left = batches_of(self.log(), i64::MAX);
        let ends = batches(&left).map(|batch| batch.unwrap().header().last_offset() + 1);
        let to_at_least = ends.take_while(|&end| end <= to).last().unwrap_or(0);
        self.durable = self.durable.min(to_at_least);
        self.unclean |= to_at_least < self.committed;
        self.committed = self.committed.min(to_at_least);
        match self.log().truncate_to(to) {
            Ok(end) => {
                assert_eq!(end, to, "the log goes on where it was cut");
                self.durable = if to_at_least < to { to } else { durable.min(to) };
                self.committed = committed.min(to);
                self.unclean = unclean || to < committed;
                self.forget_from(end);
                self.forget_lost();
            }
            Err(_) => self.after_error(),
        }
    }

    /// After an unclean cut the model takes over what the log holds: what compaction has dropped for the sake of what is cut
    /// is lost, as in Kafka.
    fn forget_lost(&mut self) {
        if let Some((_, log)) = &self.open
            && std::mem::take(&mut self.unclean)
        {
            self.records = records_of(log);
            self.copy = None;
        }
    }

    fn set_start(&mut self) {
        let (start, end) = (self.log().start(), self.log().end());
        let to = start + self.random.below((self.committed.min(end) - start).max(0) as u64 + 1) as i64;
        if self.log().set_start(to).is_err() {
            self.after_error();
        }
    }

    fn close(&mut self) {
        self.pass = None;
        let (data, log) = self.open.take().expect("the log is open between steps");
        let end = log.end();
        if log.close().is_ok() {
            self.durable = self.durable.max(end);
            _ = data.close_clean();
        }
        drop(data);
        self.disk.restart_process();
        if !self.disk.is_crashed() {
            self.reopen();
        }
    }

    fn inject_fault(&mut self) {
        let suffix = [
            ".log.cleaned",
            ".index.cleaned",
            ".appendtimes.cleaned",
            "cleaner-offset-checkpoint.tmp",
            "leader-epoch-checkpoint.tmp",
            "flushed-ends.tmp",
            ".log",
            ".index",
            ".snapshot",
        ];
        let suffix = suffix[self.random.below(9) as usize].to_owned();
        self.disk.inject(match self.random.below(2) {
            0 => SimFault::Sync(suffix),
            _ => SimFault::Write(suffix),
        });
    }

    fn seal(&mut self) {
        let Some((data, _)) = &self.open else { return };
        while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
            match sealing {
                Ok(sealing) => self.sealed += usize::from(sealing == Sealing::Sealed),
                Err(error) => assert!(self.disk.is_crashed(), "{error}"),
            }
        }
    }

    /// What was sealed is what is there, whatever was compacted since.
    fn scrub(&mut self) {
        let Some((data, log)) = &self.open else { return };
        for segment in log.reader().written_segments() {
            let interval = self.config.index_interval_bytes;
            match segment.scrub(data, interval, &mut |_| true) {
                Ok(_) => self.scrubbed += 1,
                Err(error) => {
                    assert!(self.disk.is_crashed(), "{error}");
                    return;
                }
            }
        }
    }

    /// Somebody has copied the log as it is now, up to somewhere.
    fn take_copy(&mut self) {
        let Some((_, log)) = &self.open else { return };
        let (start, dropped_to) = (log.start(), log.dropped_to());
        let end = start + self.random.below((self.committed - start).max(0) as u64 + 1) as i64;
        let mut records = records_of(log);
        records.split_off(&end);
        self.copy = Some(Copy { end, records, dropped_to });
    }

    fn begin_pass(&mut self) {
        let (bound, now) = (self.committed, self.now);
        let map_bytes_max =
            if self.random.chance(50) { 1 << 20 } else { 24 * self.random.below(12) as usize };
        let Some((data, log)) = &self.open else { return };
        let policy = CompactionPolicy { min_dirty_ratio: 0.0, min_lag_ms: 0, max_lag_ms: i64::MAX };
        let dirtiness = log.reader().dirtiness(data, bound, Some(now), &policy);
        if !dirtiness.due {
            return;
        }
        let request = CompactionRequest {
            bound,
            dirtiness,
            now_ms: Some(now),
            delete_retention_ms: RETENTION_MS,
            keep_from: i64::MAX,
            map_bytes_max,
        };
        let Some(mut pass) = log.begin_compaction(&request) else { return };
        match pass.prepare(&mut AtOnce(now)) {
            Ok(end) => {
                assert!(end > dirtiness.from, "a pass makes the dirty part shorter");
                self.pass = Some(pass);
            }
            Err(error) => self.pass_failed(&error),
        }
    }

    fn pass_failed(&mut self, error: &CompactionError) {
        self.pass = None;
        match error {
            CompactionError::Changed | CompactionError::Io(_) => self.stale += 1,
            CompactionError::Stopped
            | CompactionError::Damaged { .. }
            | CompactionError::TooLarge { .. }
            | CompactionError::OutOfMemory { .. }
            | CompactionError::NoRoom { .. }
            | CompactionError::DiskFull(_) => panic!("{error}"),
        }
    }

    /// The next segment of the pass; sometimes something else happens before it is put in its place.
    fn go_on_with_pass(&mut self) {
        let Some(mut pass) = self.pass.take() else { return };
        let segment = match pass.next_segment(&mut AtOnce(self.now)) {
            Ok(segment) => segment,
            Err(error) => return self.pass_failed(&error),
        };
        let Some(segment) = segment else {
            let finished = pass.finished();
            if self.log().finish_compaction(&finished) {
                _ = pass.save_progress();
            }
            return;
        };
        if !self.calm && self.random.chance(20) {
            match self.random.below(3) {
                0 => self.truncate(),
                1 => self.set_start(),
                _ => self.append(),
            }
            if self.open.is_none() || self.disk.is_crashed() {
                return;
            }
        }
        match self.log().install(segment) {
            Ok(Installed::Yes) => {
                self.installed += 1;
                self.pass = Some(pass);
            }
            Ok(Installed::Gone) => {
                self.gone += 1;
                self.pass = Some(pass);
            }
            Ok(Installed::Stale) => self.stale += 1,
            Ok(Installed::Later(_)) => panic!("nobody builds an index"),
            Err(_) => self.after_error(),
        }
    }

    fn compact_whole(&mut self) {
        self.begin_pass();
        while self.pass.is_some() && !self.disk.is_crashed() {
            self.go_on_with_pass();
        }
    }

    fn after_error(&mut self) {
        if self.disk.is_crashed() {
            return;
        }
        if self.open.as_ref().is_some_and(|(_, log)| log.poisoned().is_some()) {
            // The next start looks closer.
            self.pass = None;
            self.open = None;
            self.disk.restart_process();
            self.reopen();
        }
    }

    fn power_cut(&mut self) {
        self.crashes += 1;
        self.pass = None;
        self.open = None;
        self.disk.restart();
        if self.calm {
            let verdict = verify_log(&*self.disk, &Path::new("data").join(self.name.to_string())).unwrap();
            assert!(verdict.severity() < Some(Severity::Damage), "{:?}", verdict.findings);
        }
        self.reopen();
    }

    fn reopen(&mut self) {
        let options = DataDirOptions {
            cluster_id: "c".into(),
            node_id: 1,
            new_directory_id: Uuid::from_u128(u128::from(self.seed) + 1),
            descriptors_max: 3 + (self.seed % 5) as usize,
        };
        for _ in 0..20 {
            if !self.calm && self.random.chance(10) {
                self.inject_fault();
            }
            if !self.calm && self.random.chance(10) {
                self.disk.crash_at(self.disk.ops() + 1 + self.random.below(40));
            }
            let opened = DataDir::open(self.disk.clone(), Path::new("data"), &options);
            let log = opened.map(|data| {
                let log = Log::open(&data, self.name, self.config.clone(), self.now);
                log.map(|(log, _)| (data, log))
            });
            match log {
                _ if self.disk.is_crashed() => {
                    self.crashes += 1;
                    self.disk.restart();
                }
                Ok(Ok((data, log))) => {
                    let end = log.end();
                    assert!(end >= self.durable, "ends at {end}, durable to {}", self.durable);
                    self.durable = end;
                    self.forget_from(end);
                    self.open = Some((data, log));
                    self.forget_lost();
                    return;
                }
                // A fault: it is tried until that is spent.
                Ok(Err(log_engine::OpenError::Io(_))) | Err(_) => self.disk.restart_process(),
                Ok(Err(error)) => panic!("{error}"),
            }
        }
        panic!("the log does not open");
    }

    fn check(&mut self) {
        if self.disk.is_crashed() {
            return;
        }
        let Some((_, log)) = &self.open else { return };
        let (start, found) = (log.start(), records_of(log));
        for (offset, record) in &found {
            assert_eq!(Some(record), self.records.get(offset), "offset {offset}");
        }
        for batch in batches(&batches_of(log, i64::MAX)) {
            let header = *batch.unwrap().header();
            let original = &self.headers[&header.base_offset];
            assert_eq!(header.last_offset(), original.last_offset());
            assert_eq!(header.partition_leader_epoch, original.partition_leader_epoch);
        }
        let map = |records: &BTreeMap<i64, Record>| {
            let mut map = BTreeMap::new();
            for (key, value) in records.range(start..).map(|(_, record)| record.clone()) {
                match value {
                    Some(value) => _ = map.insert(key, value),
                    None => _ = map.remove(&key),
                }
            }
            map
        };
        assert_eq!(map(&found), map(&self.records), "L1: the newest value of each key");
        if let Some(copy) = &self.copy {
            // T-98: who went away goes on copying where it was, unless it can be told that it must not.
            if log.dropped_to() < copy.end || log.dropped_to() <= copy.dropped_to {
                let mut copied = copy.records.clone();
                copied.extend(found.range(copy.end..).map(|(&offset, record)| (offset, record.clone())));
                assert_eq!(map(&copied), map(&self.records), "T-98: the copy up to {}", copy.end);
            } else {
                self.outdated += 1;
            }
        }
        // Lookups by time agree with a walk, merged segments or not.
        let reader = log.reader();
        let newest = reader.max_timestamp(i64::MAX).unwrap().map(|t| t.timestamp);
        let mut walked = Vec::new();
        for batch in batches(&batches_of(log, i64::MAX)) {
            for record in batch.unwrap().records(1 << 20).unwrap().iter() {
                let record = record.unwrap();
                walked.extend((record.offset >= start).then_some((record.offset, record.timestamp)));
            }
        }
        assert_eq!(newest, walked.iter().map(|w| w.1).max());
        if let Some(&(_, time)) = walked.get(walked.len() / 2) {
            let first = walked.iter().find(|w| w.1 >= time).copied();
            let looked_up = reader.offset_for_timestamp(time, i64::MAX).unwrap();
            assert_eq!(looked_up.map(|t| (t.offset, t.timestamp)), first);
        }
    }
}

fn records_of(log: &Log) -> BTreeMap<i64, Record> {
    let mut found = BTreeMap::new();
    for batch in batches(&batches_of(log, i64::MAX)) {
        let batch: BatchView<'_> = batch.unwrap();
        batch.check_crc().unwrap();
        for record in batch.records(1 << 20).unwrap().iter() {
            let record = record.unwrap();
            found.insert(record.offset, (record.key.unwrap().to_vec(), record.value.map(<[u8]>::to_vec)));
        }
    }
    found
}
