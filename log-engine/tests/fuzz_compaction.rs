//! Seeded compaction of a log on a disk that fails: appends, transactions, passes with their steps between other operations,
//! cuts, snapshots and indexes that are lost, and the power going at any operation.
//!
//! A model knows everything that was appended and how far the log is committed. Whatever happens, the log opens by itself,
//! holds only what was appended, tells of each key what the model tells, of each producer how far it has come, and of each
//! transaction how it ended. A failing seed prints the command that repeats it.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use log_engine::inspect::{Severity, verify_log};
use log_engine::{
    AppendError, Compaction, CompactionError, CompactionRequest, DataDir, DataDirOptions, Disk, Installed,
    Log, LogConfig, LogName, OpenMode, ProducerEvent, Sealing, SimDisk, SimFault,
};
use log_engine_core::ProducerStates;
use log_engine_core::compact::CompactionPolicy;
use records::{BatchBuilder, BatchHeader, BatchView, Compression, EndMarker, batches};
use support::{AtOnce, Random, batches_of, read_committed};
use uuid::Uuid;

const SEEDS: u64 = 1000;
const STEPS: usize = 80;
const RETENTION_MS: i64 = 200;
/// Producers that write in transactions.
const TRANSACTIONAL: [i64; 2] = [20, 21];

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
    /// Every batch that may be in the log, by its first offset, with what it means for the producers.
    batches: BTreeMap<i64, (BatchHeader, ProducerEvent)>,
    durable: i64,
    /// Nothing below is ever cut.
    committed: i64,
    pass: Option<Compaction>,
    sequence: i32,
    now: i64,
    calm: bool,
    /// Committed records were cut, or may have been.
    unclean: bool,
    /// That has happened: of producers and transactions the log may know what it has cut, or compacted away.
    was_unclean: bool,
    crashes: usize,
    installed: usize,
    stale: usize,
    gone: usize,
    sealed: usize,
    scrubbed: usize,
    copy: Option<Copy>,
    outdated: usize,
    committed_transactions: usize,
    aborted_transactions: usize,
    snapshots_lost: usize,
}

/// What a follower has that copied the log up to `end` and went away.
struct Copy {
    end: i64,
    records: BTreeMap<i64, Record>,
    batches: Vec<(BatchHeader, ProducerEvent)>,
    /// What was dropped of the log when it began.
    dropped_to: i64,
}

/// What the batches of the model mean.
struct Meaning {
    producers: ProducerStates,
    /// Producer and first offset of transactions without a marker.
    open: BTreeMap<i64, i64>,
    /// First offsets of batches that were aborted.
    aborted: BTreeSet<i64>,
    /// No transaction that began below is without a marker below the high watermark.
    last_stable: i64,
}

fn replay<'a>(batches: impl Iterator<Item = &'a (BatchHeader, ProducerEvent)>) -> ProducerStates {
    let mut producers = ProducerStates::new(100);
    batches.for_each(|(_, event)| _ = event.replay(&mut producers));
    producers
}

fn open_in(producers: &ProducerStates) -> BTreeMap<i64, i64> {
    producers.iter().filter_map(|(id, state)| Some((id, state.txn_first_offset?))).collect()
}

#[test]
fn a_reader_gets_the_models_map_whenever_the_power_goes() {
    let (mut crashes, mut installed, mut stale, mut gone) = (0, 0, 0, 0);
    let (mut sealed, mut scrubbed, mut outdated) = (0, 0, 0);
    let (mut commits, mut aborts, mut lost) = (0, 0, 0);
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
        commits += world.committed_transactions;
        aborts += world.aborted_transactions;
        lost += world.snapshots_lost;
    }
    if std::env::var_os("WEIR_SEED").is_none() && std::env::var_os("WEIR_SEEDS").is_none() {
        // A suite in which nothing of that happens proves nothing.
        let seen = format!("{crashes} {installed} {stale} {gone} {sealed} {scrubbed}");
        assert!(outdated > 5, "{outdated} times a copy had to begin anew");
        assert!(commits > 500 && aborts > 500, "{commits} transactions were committed, {aborts} aborted");
        assert!(lost > 500, "{lost} snapshots and indexes were lost");
        assert!(
            crashes > 300 && installed > 400 && stale > 10 && gone > 5 && sealed > 100 && scrubbed > 100,
            "{seen}"
        );
    }
}

/// T-112: one pass over several segments, the power cut at every single operation of it.
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
            world.end_all_transactions();
            world.flush();
            world.commit_to(world.durable);
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
            batches: BTreeMap::new(),
            durable: 0,
            committed: 0,
            pass: None,
            sequence: 0,
            now: 1_000_000,
            calm: true,
            unclean: false,
            was_unclean: false,
            crashes: 0,
            installed: 0,
            stale: 0,
            gone: 0,
            sealed: 0,
            scrubbed: 0,
            copy: None,
            outdated: 0,
            committed_transactions: 0,
            aborted_transactions: 0,
            snapshots_lost: 0,
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
            0..=30 => self.append(),
            31..=39 => self.end_transaction(),
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
        match self.random.below(10) {
            0..=2 => {
                builder = builder.producer(7, 0, self.sequence);
                self.sequence += count as i32;
            }
            3..=4 => {
                let id = TRANSACTIONAL[self.random.below(2) as usize];
                let (epoch, sequence) = self.next_of(id);
                builder = builder.producer(id, epoch, sequence).transactional();
            }
            _ => {}
        }
        let mut made = Vec::new();
        for i in 0..count {
            // T-71: keys may look like those of markers.
            let key = match self.random.below(14) {
                n @ 0..12 => vec![b'k', n as u8],
                n => vec![0, 0, 0, (n - 12) as u8],
            };
            let value = (!self.random.chance(20)).then(|| {
                let mut value = (base + i).to_be_bytes().to_vec();
                value.resize(8 + self.random.below(80) as usize, 7);
                value
            });
            builder.push(self.now - i, Some(&key), value.as_deref(), &[]).unwrap();
            made.push((base + i, (key, value)));
        }
        self.append_batch(&builder.leader_epoch(0).build(), made);
    }

    fn append_batch(&mut self, bytes: &[u8], made: Vec<(i64, Record)>) {
        let view = BatchView::parse(bytes).unwrap();
        let (header, event) = (*view.header(), ProducerEvent::of(&view));
        let now = self.now;
        // Whatever comes of it, a crash may find it.
        self.records.extend(made);
        self.batches.insert(header.base_offset, (header, event));
        match self.log().append(bytes, &[header], now) {
            Ok(_) => {}
            Err(AppendError::TooLarge { .. }) => self.forget_from(header.base_offset),
            Err(_) => self.after_error(),
        }
    }

    /// Epoch and sequence with which a producer goes on.
    fn next_of(&self, id: i64) -> (i16, i32) {
        let producers = replay(self.batches.values());
        producers
            .get(id)
            .map_or((0, 0), |state| (state.epoch, state.last_sequence().map_or(0, |last| last + 1)))
    }

    /// The marker of a producer's transaction; sometimes one that ends nothing, sometimes one that fences.
    fn end_transaction(&mut self) {
        let open = open_in(&replay(self.batches.values()));
        let ids: Vec<i64> = open.keys().copied().collect();
        let id = *ids.get(self.random.below(ids.len() as u64) as usize).unwrap_or(&TRANSACTIONAL[0]);
        if open.contains_key(&id) || self.random.chance(10) {
            self.mark(id, open.contains_key(&id));
        }
    }

    fn mark(&mut self, id: i64, open: bool) {
        let is_commit = self.random.chance(50);
        match is_commit {
            true => self.committed_transactions += usize::from(open),
            false => self.aborted_transactions += usize::from(open),
        }
        let epoch = self.next_of(id).0 + i16::from(self.random.chance(20));
        let marker = EndMarker { is_commit, coordinator_epoch: self.random.below(3) as i32 };
        let mut bytes = marker.encode(id, epoch, self.now).unwrap();
        records::set_base_offset(&mut bytes, self.log().end());
        records::set_leader_epoch(&mut bytes, 0);
        self.append_batch(&bytes, Vec::new());
    }

    fn end_all_transactions(&mut self) {
        for id in open_in(&replay(self.batches.values())).into_keys() {
            self.mark(id, true);
        }
    }

    fn meaning(&self) -> Meaning {
        let mut producers = ProducerStates::new(100);
        let mut running: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        let (mut aborted, mut last_stable) = (BTreeSet::new(), self.committed);
        for (header, event) in self.batches.values() {
            event.replay(&mut producers);
            if header.is_transactional() && !header.is_control() {
                running.entry(header.producer_id).or_default().push(header.base_offset);
            }
            if let ProducerEvent::Marker(marker) = event
                && let Some(ended) = running.remove(&header.producer_id)
            {
                if header.base_offset >= self.committed {
                    last_stable = last_stable.min(ended[0]);
                }
                if marker.outcome == log_engine_core::TransactionOutcome::Abort {
                    aborted.extend(ended);
                }
            }
        }
        let open: BTreeMap<i64, i64> = running.iter().map(|(&id, batches)| (id, batches[0])).collect();
        let last_stable = open.values().copied().fold(last_stable, i64::min);
        Meaning { producers, open, aborted, last_stable }
    }

    fn forget_from(&mut self, end: i64) {
        self.records.split_off(&end);
        self.batches.split_off(&end);
    }

    /// The high watermark moves.
    fn commit_to(&mut self, end: i64) {
        self.committed = self.committed.max(end);
        let committed = self.committed;
        self.log().on_high_watermark(committed);
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
            self.commit_to(self.boundary_below(below));
        }
    }

    fn boundary_below(&self, offset: i64) -> i64 {
        let ends = self.batches.values().map(|(header, _)| header.last_offset() + 1);
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
            self.was_unclean = true;
        }
    }

    fn set_start(&mut self) {
        let (start, end) = (self.log().start(), self.log().end());
        let to = start + self.random.below((self.committed.min(end) - start).max(0) as u64 + 1) as i64;
        if self.log().set_start(to).is_err() {
            self.after_error();
        }
    }

    /// Producer snapshots and transaction indexes get lost, or damaged, while no process has the log. They are older than the
    /// log then, or there are none.
    fn lose_snapshots(&mut self) {
        let dir = Path::new("data").join(self.name.to_string());
        let Ok(files) = self.disk.list(&dir) else { return };
        let share = [10, 50, 100][self.random.below(3) as usize];
        for file in files {
            let lost = file.name.ends_with(".snapshot") || file.name.ends_with(".txnindex");
            if !lost || !self.random.chance(share) {
                continue;
            }
            let path = dir.join(&file.name);
            let size = self.disk.open(&path, OpenMode::Read).and_then(|file| file.len()).unwrap_or(0);
            if self.random.chance(30) && size > 0 {
                let at = self.random.below(size);
                self.disk.flip_bit(&path, at, self.random.below(8) as u8);
            } else if self.disk.remove_file(&path).and_then(|()| self.disk.sync_dir(&dir)).is_err() {
                return;
            }
            self.snapshots_lost += 1;
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
        if self.random.chance(50) {
            self.lose_snapshots();
        }
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
        let mut batches = batches_in(log);
        batches.retain(|(header, _)| header.last_offset() < end);
        self.copy = Some(Copy { end, records, batches, dropped_to });
    }

    fn begin_pass(&mut self) {
        let (bound, now) = (self.meaning().last_stable, self.now);
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
        if !self.calm && self.random.chance(30) {
            self.lose_snapshots();
        }
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
                    self.commit_to(self.committed);
                    self.check();
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
            let (original, _) = &self.batches[&header.base_offset];
            assert_eq!(header.last_offset(), original.last_offset());
            assert_eq!(header.partition_leader_epoch, original.partition_leader_epoch);
        }
        let meaning = self.meaning();
        // Of what is decided, the newest committed value of each key; what is not stays as it is.
        let map = |records: &BTreeMap<i64, Record>| {
            let mut map = BTreeMap::new();
            for (&offset, (key, value)) in records.range(start..) {
                let (&base, _) = self.batches.range(..=offset).next_back().unwrap();
                match value {
                    _ if meaning.aborted.contains(&base) && offset < meaning.last_stable => {}
                    Some(value) => _ = map.insert(key.clone(), value.clone()),
                    None => _ = map.remove(key),
                }
            }
            map
        };
        assert_eq!(map(&found), map(&self.records), "L1: the newest value of each key");
        let decided_to = meaning.last_stable.max(start);
        assert!(found.range(decided_to..).eq(self.records.range(decided_to..)), "undecided records stay");
        // Nobody needs to know of a transaction that began below the start.
        let from_start = |mut open: BTreeMap<i64, i64>| {
            let began_below = |id: &i64| meaning.open.get(id).is_some_and(|&first| first < start);
            open.retain(|id, _| !began_below(id));
            open
        };
        if let Some(copy) = &self.copy {
            // T-98: who went away goes on copying where it was, unless it can be told that it must not.
            if log.dropped_to() < copy.end || log.dropped_to() <= copy.dropped_to {
                let mut copied = copy.records.clone();
                copied.extend(found.range(copy.end..).map(|(&offset, record)| (offset, record.clone())));
                assert_eq!(map(&copied), map(&self.records), "T-98: the copy up to {}", copy.end);
                // Every transaction that has ended does so for the copy too, unless that has to begin at the start. (T-71)
                if copy.end >= start {
                    let since = batches_in(log).into_iter().filter(|(h, _)| h.last_offset() >= copy.end);
                    let batches: Vec<_> = copy.batches.iter().copied().chain(since).collect();
                    let open = from_start(open_in(&replay(batches.iter())));
                    assert_eq!(
                        open,
                        from_start(meaning.open.clone()),
                        "open transactions of the copy up to {}",
                        copy.end
                    );
                }
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
        self.check_transactions(&meaning);
    }

    /// X4, X10 (T-71, T-103): producers, open and aborted transactions are those of the model, however the log came to know
    /// them.
    fn check_transactions(&mut self, meaning: &Meaning) {
        let Some((_, log)) = &self.open else { return };
        let (start, held) = (log.start(), batches_in(log));
        // What the log alone tells. Compaction leaves the newest batch of each producer.
        let bare = replay(held.iter());
        let open = open_in(log.producers());
        if self.was_unclean {
            for (id, first) in &open_in(&bare) {
                assert!(open.get(id) <= Some(first) && open.contains_key(id), "producer {id} has one open");
            }
            let known = |id: &i64| meaning.open.contains_key(id) || open_in(&bare).contains_key(id);
            assert!(open.keys().all(known), "{open:?} have ended");
            return;
        }
        // Of a transaction that began below the start the log may know less.
        let whole = meaning.last_stable >= start && meaning.open.values().all(|&first| first >= start);
        if whole {
            assert_eq!(open, meaning.open, "open transactions");
        }
        for (id, state) in meaning.producers.iter() {
            // One below the start may be forgotten.
            let newest = self.batches.values().rev().find(|(h, _)| h.producer_id == id && !h.is_control());
            let Some((newest, _)) = newest.filter(|(h, _)| h.last_offset() >= start) else { continue };
            let found = log.producers().get(id).unwrap_or_else(|| panic!("producer {id} is forgotten"));
            if newest.producer_epoch == state.epoch {
                assert_eq!(found.last_sequence(), state.last_sequence(), "producer {id}");
            }
            assert_eq!(found.epoch, state.epoch, "producer {id}");
        }
        let last_stable = log.producers().last_stable(self.committed);
        if whole {
            assert_eq!(last_stable, meaning.last_stable, "last stable offset");
        }
        // A consumer gets what was committed, all of what is left of it and nothing else.
        let seen = match read_committed(log, last_stable, &mut self.random) {
            Ok(seen) => seen,
            Err(error) => return assert!(self.disk.is_crashed(), "{error}"),
        };
        // Where nothing is left of a batch, nobody asks how it ended.
        let full: Vec<&BatchHeader> =
            held.iter().map(|(h, _)| h).filter(|h| !h.is_control() && h.record_count > 0).collect();
        let kept: Vec<i64> = full
            .iter()
            .filter(|h| h.last_offset() < last_stable && !meaning.aborted.contains(&h.base_offset))
            .map(|header| header.base_offset)
            .collect();
        let seen: Vec<i64> =
            seen.into_iter().filter(|base| full.iter().any(|h| h.base_offset == *base)).collect();
        assert_eq!(seen, kept, "committed below {last_stable}");
    }
}

/// All batches of a log, with what they mean for the producers.
fn batches_in(log: &Log) -> Vec<(BatchHeader, ProducerEvent)> {
    let bytes = batches_of(log, i64::MAX);
    let all = batches(&bytes).map(|batch| batch.unwrap());
    all.map(|batch| (*batch.header(), ProducerEvent::of(&batch))).collect()
}

fn records_of(log: &Log) -> BTreeMap<i64, Record> {
    let mut found = BTreeMap::new();
    for batch in batches(&batches_of(log, i64::MAX)) {
        let batch: BatchView<'_> = batch.unwrap();
        batch.check_crc().unwrap();
        if batch.header().is_control() {
            continue;
        }
        for record in batch.records(1 << 20).unwrap().iter() {
            let record = record.unwrap();
            found.insert(record.offset, (record.key.unwrap().to_vec(), record.value.map(<[u8]>::to_vec)));
        }
    }
    found
}
