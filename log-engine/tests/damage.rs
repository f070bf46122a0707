//! Every kind of file of a data directory, damaged in every way: what the next start and the next scrub make of it. The
//! table in `docs/damage.md` is what this test finds; after a change write it anew with
//! `WEIR_WRITE_TABLE=1 cargo test -p log-engine --test damage`.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use log_engine::inspect::{self, Severity, verify_data_dir, verify_log};
use log_engine::{
    CompactionError, CompactionRequest, DataDir, DataDirError, DataDirOptions, Disk, Installed, Log,
    LogConfig, LogName, OpenError, OpenMode, REPLACES_LOST_DISK, RecoveryReport, SimDisk, lost_disk_note,
};
use log_engine_core::compact::CompactionPolicy;
use log_engine_core::retention::RetentionLimits;
use log_engine_core::{AbortedIndex, producer_snapshot};
use records::{BatchHeader, Compression};
use support::{AtOnce, PrintOnPanic, Random, TestBatch, check_lookups, check_transactions};
use uuid::Uuid;

const NAME: LogName = LogName { topic_id: Uuid::from_u128(77), partition: 4 };
const NOW: i64 = 1_700_000_000_000;
/// Damages of the kinds that depend on chance.
const ROUNDS: u64 = 12;
const BEGIN: &str = "<!-- table -->\n";
const END: &str = "<!-- end of table -->\n";

/// What can happen to a file.
const DAMAGES: [&str; 5] = ["a bit flips", "cut short", "missing", "an older version", "a block of zeros"];

/// The files: what they are, and which one of them is damaged.
const KINDS: [(&str, Pick); 28] = [
    ("`.log`, sealed", Pick::Segment("log", 3)),
    ("`.log`, taking appends, below the flushed end", Pick::Last("log")),
    ("`.log`, sealed, of a compacted log with gaps", Pick::Compacted("log")),
    ("`.index`, of that log", Pick::Compacted("index")),
    ("`.timeindex`, of that log", Pick::Compacted("timeindex")),
    ("`.seal`, of that log", Pick::Compacted("seal")),
    ("`.snapshot`, of that log", Pick::Compacted("snapshot")),
    ("`.log.cleaned`, which a compaction had not finished", Pick::Unfinished("log.cleaned")),
    ("`.index`, sealed", Pick::Segment("index", 3)),
    ("`.timeindex`, sealed", Pick::Segment("timeindex", 3)),
    ("`.index`, taking appends", Pick::Last("index")),
    ("`.timeindex`, taking appends", Pick::Last("timeindex")),
    ("`.txnindex`, sealed", Pick::Sealed("txnindex")),
    ("`.appendtimes`", Pick::Segment("appendtimes", 3)),
    ("`.seal`", Pick::Segment("seal", 3)),
    ("`.snapshot`, the newest", Pick::Last("snapshot")),
    ("`.snapshot` at the base of a segment", Pick::Segment("snapshot", 2)),
    ("`leader-epoch-checkpoint`", Pick::Log("leader-epoch-checkpoint")),
    ("`damaged`, the mark of a copy that is offline", Pick::Mark("damaged")),
    ("`write-failed`, the mark after a failed write", Pick::Mark("write-failed")),
    ("`flushed-ends`", Pick::Directory("flushed-ends")),
    ("`clean-shutdown`", Pick::Directory("clean-shutdown")),
    ("`boot-id`, after a crash", Pick::Directory("boot-id")),
    ("`cleaner-offset-checkpoint`", Pick::Directory("cleaner-offset-checkpoint")),
    ("`directories`", Pick::Directory("directories")),
    ("`cleaner-dropped-checkpoint`", Pick::Directory("cleaner-dropped-checkpoint")),
    ("`meta.properties`", Pick::Directory("meta.properties")),
    ("`replaces-lost-disk`, in an empty directory", Pick::Note),
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Pick {
    /// Of the nth segment.
    Segment(&'static str, usize),
    /// Of the oldest segment of the compacted log that has one.
    Compacted(&'static str),
    /// What a pass over that segment had left when the process died.
    Unfinished(&'static str),
    /// The note of an operator in a directory that is to take the place of a lost one.
    Note,
    /// Of the first sealed segment that has one with something in it.
    Sealed(&'static str),
    /// The last with this suffix.
    Last(&'static str),
    /// A mark in the directory of the log, which is made for it.
    Mark(&'static str),
    /// By name, in the directory of the log.
    Log(&'static str),
    /// By name, in the data directory.
    Directory(&'static str),
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 4000,
        index_interval_bytes: 200,
        index_entries_in_memory_max: 4,
        ..LogConfig::default()
    }
}

/// A compacted log beside the one that is damaged.
const COMPACTED: LogName = LogName { topic_id: Uuid::from_u128(78), partition: 0 };
/// The run of the machine in which everything was written.
const BOOT: &str = "boot 2";
const POLICY: CompactionPolicy =
    CompactionPolicy { min_dirty_ratio: 0.0, min_lag_ms: 0, max_lag_ms: i64::MAX };

/// The id of the data directory. With digits and letters.
const DIRECTORY: Uuid = Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);

fn open_dir(disk: &Arc<SimDisk>) -> Result<DataDir, DataDirError> {
    let is_made = disk.open(Path::new("data/meta.properties"), OpenMode::Read).is_ok();
    let new = if is_made { Uuid::from_u128(1) } else { DIRECTORY };
    let options = DataDirOptions {
        cluster_id: "c1".into(),
        node_id: 1,
        // When it is made; no later one counts.
        new_directory_id: new,
        descriptors_max: 20,
    };
    DataDir::open(disk.clone(), Path::new("data"), &options)
}

fn log_dir() -> PathBuf {
    dir_of(NAME)
}

fn dir_of(name: LogName) -> PathBuf {
    Path::new("data").join(name.to_string())
}

/// An empty data directory in which an operator has left a note.
const NOTED: &str = "noted";
/// The lost directory that the note names.
const LOST: Uuid = Uuid::from_u128(0xfedc_ba98_7654_4321_8fed_cba9_8765_4321);

/// A closed log of many segments, sealed but for the last, and every file as it was when the log was half as long.
struct World {
    disk: Arc<SimDisk>,
    batches: Vec<TestBatch>,
    older: BTreeMap<PathBuf, Vec<u8>>,
    /// How many there are.
    epochs: usize,
    producers: Vec<u8>,
    /// Where the last pass over the compacted log ended.
    cleaned_to: i64,
    /// Up to where compaction has dropped tombstones of that log.
    dropped_to: i64,
    /// Every file as it was at the end.
    whole: BTreeMap<PathBuf, Vec<u8>>,
}

impl World {
    fn new() -> World {
        let disk = SimDisk::new(1);
        let mut random = Random::new(5);
        let (mut batches, mut older) = (Vec::new(), BTreeMap::new());
        let (mut epochs, mut producers, mut cleaned_to) = (0, Vec::new(), 0);
        // In two lives, so that there is an older version of everything.
        for life in 0..2 {
            let data = open_dir(&disk).unwrap();
            data.remember_boot(if life == 0 { "boot 1" } else { BOOT }).unwrap();
            data.remember_siblings(&siblings(life)).unwrap();
            cleaned_to = append_and_compact(&data, &mut random);
            let (mut log, _) = Log::open(&data, NAME, config(), NOW).unwrap();
            for i in life * 60..(life + 1) * 60 {
                let end = log.end();
                let batch =
                    TestBatch::random(&mut random, &batches, &[], end, i / 20, NOW + i64::from(i) * 50);
                log.append(&batch.bytes, &[batch.header], NOW).unwrap();
                batches.push(batch);
            }
            let handle = log.begin_flush().unwrap();
            let result = handle.sync();
            log.on_flushed(handle.done(result));
            seal_all(&data);
            epochs = log.epochs().entries().len();
            producers = producer_snapshot::encode(log.producers(), AbortedIndex::Unknown);
            log.close().unwrap();
            data.close_clean().unwrap();
            drop(data);
            if life == 0 {
                older = all_files(&disk);
            }
        }
        let dropped_to = cleaned_to - 4;
        let whole = all_files(&disk);
        World { disk, batches, older, epochs, producers, cleaned_to, dropped_to, whole }
    }

    /// All batches of the compacted log.
    fn compacted(&self) -> Vec<u8> {
        let is_of_it =
            |path: &Path| path.starts_with(dir_of(COMPACTED)) && path.extension() == Some("log".as_ref());
        self.whole.iter().filter(|(path, _)| is_of_it(path)).flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    fn path(&self, pick: Pick) -> PathBuf {
        let within = |dir: PathBuf, suffix: &str| -> Vec<PathBuf> {
            let names = self.disk.list(&dir).unwrap().into_iter().map(|entry| entry.name);
            names.filter(|n| n.ends_with(&format!(".{suffix}"))).map(|n| dir.join(n)).collect()
        };
        let with = |suffix: &str| within(log_dir(), suffix);
        match pick {
            Pick::Segment(suffix, nth) => with(suffix)[nth].clone(),
            // At the end of a segment.
            Pick::Compacted("snapshot") => {
                let logs = within(dir_of(COMPACTED), "log");
                let mut snapshots = logs[1..].iter().map(|path| path.with_extension("snapshot"));
                snapshots.find(|path| self.disk.open(path, OpenMode::Read).is_ok()).unwrap()
            }
            Pick::Compacted(suffix) | Pick::Unfinished(suffix) => {
                within(dir_of(COMPACTED), suffix).swap_remove(0)
            }
            Pick::Note => Path::new(NOTED).join(REPLACES_LOST_DISK),
            Pick::Last(suffix) => with(suffix).pop().unwrap(),
            Pick::Sealed(suffix) => {
                let is_sealed =
                    |path: &Path| self.disk.open(&path.with_extension("seal"), OpenMode::Read).is_ok();
                let filled = |path: &Path| !read(&self.disk, path).is_empty();
                with(suffix).into_iter().find(|path| is_sealed(path) && filled(path)).unwrap()
            }
            Pick::Log(name) | Pick::Mark(name) => log_dir().join(name),
            Pick::Directory(name) => Path::new("data").join(name),
        }
    }

    /// Makes what is there to be damaged.
    fn prepare(&self, pick: Pick) {
        match pick {
            Pick::Mark("damaged") => {
                self.disk.flip_bit(&self.path(Pick::Segment("log", 3)), 70, 1);
                let data = open_dir(&self.disk).unwrap();
                let (log, _) = Log::open(&data, NAME, config(), NOW).unwrap();
                let segment = log.reader().written_segments().swap_remove(3);
                let error = segment.scrub(&data, 200, &mut |_| true).unwrap_err();
                assert!(segment.mark_damaged(&data, &error.to_string()).unwrap());
                log.close().unwrap();
                data.close_clean().unwrap();
            }
            Pick::Mark(name) => {
                let file = self.disk.open(&log_dir().join(name), OpenMode::CreateNew).unwrap();
                file.write_at(b"cannot write x.log: input/output error (os error 5)\n", 0).unwrap();
            }
            Pick::Directory("boot-id") => {
                self.disk.remove_file(&Path::new("data").join("clean-shutdown")).unwrap();
            }
            Pick::Compacted(_) => {
                assert!(!read(&self.disk, &self.path(Pick::Compacted("seal"))).is_empty(), "it is sealed");
                let oldest = read(&self.disk, &self.path(Pick::Compacted("log")));
                let batches: Vec<_> = records::batches(&oldest).map(|b| *b.unwrap().header()).collect();
                let gaps = batches.windows(2).filter(|two| two[0].last_offset() + 1 < two[1].base_offset);
                assert!(gaps.count() > 2, "there are gaps between batches");
            }
            Pick::Unfinished(suffix) => {
                let (_, state) = suffix.split_once('.').unwrap();
                for suffix in ["log", "index", "timeindex"] {
                    let path = self.path(Pick::Compacted(suffix));
                    let name = format!("{}.{state}", path.display());
                    let file = self.disk.open(Path::new(&name), OpenMode::CreateNew).unwrap();
                    file.write_at(&read(&self.disk, &path), 0).unwrap();
                }
            }
            Pick::Note => {
                self.disk.create_dir_all(Path::new(NOTED)).unwrap();
                let file = self.disk.open(&self.path(pick), OpenMode::CreateNew).unwrap();
                file.write_at(LOST.to_string().as_bytes(), 0).unwrap();
            }
            Pick::Segment(..) | Pick::Sealed(_) | Pick::Last(_) | Pick::Log(_) | Pick::Directory(_) => {}
        }
    }

    /// Whether there is something to damage in this way.
    fn damage(&self, path: &Path, damage: &str, random: &mut Random) -> bool {
        let bytes = read(&self.disk, path);
        let write = |bytes: &[u8]| {
            let file = self.disk.open(path, OpenMode::CreateOrEmpty).unwrap();
            file.write_at(bytes, 0).unwrap();
        };
        if bytes.is_empty() && damage != "missing" {
            return false;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match damage {
            "a bit flips" => self.disk.flip_bit(path, at as u64, random.below(8) as u8),
            "cut short" => write(&bytes[..at]),
            "missing" => self.disk.remove_file(path).unwrap(),
            "an older version" => match self.older.get(path).filter(|older| **older != bytes) {
                Some(older) => write(older),
                None => return false,
            },
            "a block of zeros" => {
                let mut bytes = bytes;
                let at = at / 64 * 64;
                let end = bytes.len().min(at + 512);
                if bytes[at..end].iter().all(|byte| *byte == 0) {
                    return false;
                }
                bytes[at..end].fill(0);
                write(&bytes);
            }
            other => panic!("{other}"),
        }
        true
    }

    /// What `weir log verify` finds: how bad it is, and the file.
    fn found_offline(&self) -> BTreeSet<(Severity, PathBuf)> {
        let mut findings = Vec::new();
        for dir in ["data", NOTED].map(Path::new).into_iter().filter(|dir| self.disk.list(dir).is_ok()) {
            findings.extend(verify_data_dir(&*self.disk, dir).unwrap().unwrap_or_default());
        }
        let flushed: BTreeMap<_, _> =
            inspect::flushed_ends(&*self.disk, Path::new("data")).unwrap().into_iter().collect();
        for name in [NAME, COMPACTED] {
            let mut verdict = verify_log(&*self.disk, &dir_of(name)).unwrap();
            if let Some(end) = flushed.get(&name) {
                verdict.check_flushed(&dir_of(name), *end);
            }
            findings.extend(verdict.findings);
        }
        findings.into_iter().map(|finding| (finding.severity, finding.path)).collect()
    }

    /// What the next start and the next scrub say, after a check that nothing is served that never was written.
    fn outcome(&self, pick: Pick, damage: &str, scrub_first: bool) -> String {
        if pick == Pick::Note {
            return self.outcome_of_note().to_owned();
        }
        let data = match open_dir(&self.disk) {
            Ok(data) => data,
            Err(error @ DataDirError::Damaged { .. }) => {
                let Pick::Directory(name) = pick else { panic!("{error}") };
                assert!(error.to_string().contains(name), "{error}");
                return "the node does not start and says why".to_owned();
            }
            Err(DataDirError::Foreign { file, .. }) => {
                assert_eq!((pick, damage), (Pick::Directory(file), "missing"));
                return "the node does not start and says why".to_owned();
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(data.directory_id(), DIRECTORY, "the controllers would take it for another one");
        let was_clean = data.was_clean();
        let remembered = data.siblings();
        assert!(remembered.is_empty() || (0..2).any(|life| remembered == siblings(life)), "{remembered:?}");
        let machine_restarted = data.may_lack_unflushed(Some(BOOT)).unwrap();
        match pick {
            Pick::Compacted("log") => return self.outcome_of_compacted_records(&data),
            Pick::Compacted(_) | Pick::Unfinished(_) => {
                return self.outcome_beside_compacted(&data, pick, damage);
            }
            _ => {}
        }
        let has_lost_ends = data.has_lost_ends();
        let (cleaned_to, dropped_to) = (cleaned_to(&data), dropped_to(&data));
        assert!(cleaned_to <= self.cleaned_to, "deleted keys would come back");
        assert!(dropped_to >= self.dropped_to, "a copy that was away for long would keep what was deleted");
        let (log, report) = match Log::open(&data, NAME, config(), NOW) {
            Ok(opened) => opened,
            Err(OpenError::Damaged { .. }) => return "**offline** at the start, which names it".to_owned(),
            Err(error @ (OpenError::Io(_) | OpenError::MovedAway { .. })) => panic!("{error}"),
        };
        let reader_notices = self.read(&log);
        // Where an epoch begins in a gap between two batches makes no difference to any of them.
        let epochs = log.epochs();
        for header in self.batches.iter().map(|batch| &batch.header) {
            let said = epochs.epoch_of(header.base_offset);
            assert_eq!(said, Some(header.partition_leader_epoch), "followers would cut by it");
        }
        assert_eq!(epochs.entries().len(), self.epochs);
        assert_eq!(
            producer_snapshot::encode(log.producers(), AbortedIndex::Unknown),
            self.producers,
            "a retry would be taken twice"
        );
        let newest_snapshot = log_dir().join(format!("{:020}.snapshot", log.end()));
        let newest_snapshot_is_whole = is_whole_snapshot(&self.disk, &newest_snapshot);
        let expired = log.expired(
            &RetentionLimits { ms: Some(864_000_000), bytes: None },
            log.end(),
            NOW + 5_000,
            true,
        );
        assert_eq!(expired, None, "nothing goes before its time");
        let before = all_files(&self.disk);
        if !scrub_first && !reader_notices {
            check_transactions(&log, &self.batches, 0, &mut Random::new(9), 30).unwrap();
            if all_files(&self.disk) != before {
                return "built anew by who reads it first".to_owned();
            }
        }
        for segment in log.reader().written_segments() {
            if segment.scrub(&data, 200, &mut |_| true).is_err() {
                return if reader_notices { SCRUB_OR_READER } else { SCRUB_ALONE }.to_owned();
            }
        }
        if reader_notices {
            return "the checksum of the batch stops a reader".to_owned();
        }
        assert!(has_lost_ends || !report.flushed_end_lost, "others count on this copy");
        let rebuilt_by_scrub = all_files(&self.disk) != before;
        check_lookups(&log, &self.batches, &mut Random::new(10), 60);
        check_transactions(&log, &self.batches, 0, &mut Random::new(9), 30).unwrap();
        match pick {
            Pick::Directory("boot-id") if machine_restarted => {
                "counts as another run of the machine: copies of topics with `weir.flush=os` leave the in-sync sets"
                    .to_owned()
            }
            Pick::Directory("flushed-ends") if report.flushed_end_lost => {
                "every log of the directory is read from end to end, and all copies of the node leave the in-sync sets"
                    .to_owned()
            }
            Pick::Directory("flushed-ends") if has_lost_ends => {
                "all copies of the node leave the in-sync sets".to_owned()
            }
            Pick::Directory("cleaner-offset-checkpoint") if cleaned_to < self.cleaned_to => {
                "more is compacted again than need be".to_owned()
            }
            Pick::Directory("directories") if remembered.is_empty() => {
                "tells nothing until the node has registered again".to_owned()
            }
            Pick::Directory("cleaner-dropped-checkpoint") if dropped_to > self.dropped_to => {
                "everything counts as dropped: copies that were not in sync begin anew".to_owned()
            }
            Pick::Segment("appendtimes", _) => {
                "of no consequence but to retention, which goes by the newest timestamp or the last change of the file"
                    .to_owned()
            }
            Pick::Segment("snapshot", _) if rebuilt_by_scrub => {
                assert!(is_whole_snapshot(&self.disk, &self.path(pick)));
                "what it does not tell is read from the batches when it is needed; built anew by the scrub".to_owned()
            }
            Pick::Last("snapshot") if newest_snapshot_is_whole => {
                assert!(report.batches_walked > 3, "the batches have told it");
                "what it does not tell is read from the batches; built anew at the start".to_owned()
            }
            Pick::Last("index" | "timeindex") if report.indexes_rebuilt == 0 => {
                "each entry is compared with its batch when it is used".to_owned()
            }
            Pick::Mark("write-failed") if report.was_poisoned => "the log is copied into new files".to_owned(),
            Pick::Segment(..)
            | Pick::Compacted(_)
            | Pick::Unfinished(_)
            | Pick::Note
            | Pick::Sealed(_)
            | Pick::Last(_)
            | Pick::Log(_)
            | Pick::Directory(_)
            | Pick::Mark(_) => {
                said(&report, was_clean, rebuilt_by_scrub)
                    .or_else(|| harmless(pick, damage))
                    .unwrap_or_else(|| panic!("nobody has noticed: {report:?}"))
                    .to_owned()
            }
        }
    }

    /// The same of the note of an operator.
    fn outcome_of_note(&self) -> &'static str {
        match lost_disk_note(&*self.disk, Path::new(NOTED)) {
            Err(DataDirError::BadNote { path, .. }) => {
                assert_eq!(path, self.path(Pick::Note));
                "the node does not start and says why"
            }
            Err(error) => panic!("{error}"),
            Ok(None) => "as without it: the directory is offline, since its disk may not be mounted",
            Ok(Some(ids)) if ids.is_empty() => {
                "as an empty one: unless another directory remembers the lost one, the controllers refuse the node and name its id"
            }
            Ok(Some(ids)) => match ids == [LOST] {
                true => "of no consequence: what is left says the same",
                false => "another id: the controllers refuse the node and name those that it had",
            },
        }
    }

    /// The same of what stands beside the records of the compacted log: those are as they were.
    fn outcome_beside_compacted(&self, data: &DataDir, pick: Pick, damage: &str) -> String {
        let (log, report) = Log::open(data, COMPACTED, config(), NOW).unwrap();
        let all = self.compacted();
        let (reader, end) = (log.reader(), log.end());
        let last = records::batches(&all).last().unwrap().unwrap().header().last_offset();
        assert_eq!((log.start(), end), (0, last + 1));
        let before = all_files(&self.disk);
        for segment in reader.written_segments() {
            segment.scrub(data, 200, &mut |_| true).expect("the records are whole");
        }
        let rebuilt_by_scrub = all_files(&self.disk) != before;
        let mut at = 0;
        for batch in records::batches(&all).map(Result::unwrap) {
            let slice = reader.read_checked(at, 1, end, true).unwrap();
            assert_eq!(slice.to_bytes().unwrap(), batch.bytes(), "from offset {at}");
            at = slice.next_offset;
        }
        assert_eq!(at, end);
        match pick {
            Pick::Unfinished(_) => {
                let left = |path: &PathBuf| path.extension() == Some("cleaned".as_ref());
                assert!(!all_files(&self.disk).keys().any(left));
                "removed at the start".to_owned()
            }
            _ => {
                let path = self.path(pick);
                match pick == Pick::Compacted("snapshot") {
                    // Kafka's are whole without what ours tell at the end.
                    true => assert!(is_whole_snapshot(&self.disk, &path)),
                    false => assert_eq!(read(&self.disk, &path), self.whole[&path], "it is what it was"),
                }
                let said = said(&report, true, rebuilt_by_scrub).or_else(|| harmless(pick, damage));
                said.unwrap_or_else(|| panic!("nobody has noticed: {report:?}")).to_owned()
            }
        }
    }

    /// The same of the records of the compacted log, whose next pass would copy what is damaged.
    fn outcome_of_compacted_records(&self, data: &DataDir) -> String {
        let mut log = match Log::open(data, COMPACTED, config(), NOW) {
            Ok((log, _)) => log,
            Err(OpenError::Damaged { .. }) => return "**offline** at the start, which names it".to_owned(),
            Err(error @ (OpenError::Io(_) | OpenError::MovedAway { .. })) => panic!("{error}"),
        };
        let path = self.path(Pick::Compacted("log"));
        assert_ne!(read(&self.disk, &path), self.whole[&path]);
        // A segment that a pass may look at, and one behind it.
        append_finished(&mut log, &[7]);
        append_finished(&mut log, &[8]);
        let error = compact(data, &mut log).expect_err("a pass meets it");
        assert!(matches!(error, CompactionError::Damaged { .. }), "{error}");
        let oldest = log.reader().written_segments().swap_remove(0);
        assert_eq!(oldest.base_offset(), 0);
        oldest.scrub(data, 200, &mut |_| true).expect_err("the scrub meets it");
        "**offline** by the scrub, which names it; a pass of compaction stops there before".to_owned()
    }

    /// Reads everything; whether some batch does not fit its checksum, or cannot be read.
    fn read(&self, log: &Log) -> bool {
        let originals: BTreeMap<i64, &[u8]> =
            self.batches.iter().map(|batch| (batch.header.base_offset, &batch.bytes[..])).collect();
        let (reader, mut at, mut served) = (log.reader(), log.start(), 0);
        assert_eq!(log.end(), self.batches.last().unwrap().header.last_offset() + 1, "the end is flushed");
        while at < log.end() {
            let Ok(slice) = reader.read(at, 1 << 20, log.end(), true) else { return true };
            let bytes = slice.to_bytes().unwrap();
            for batch in records::batches(&bytes) {
                let Ok(batch) = batch else { return true };
                if batch.check_crc().is_err() {
                    return true;
                }
                let original = originals.get(&batch.header().base_offset);
                // The checksum leaves out offset and leader epoch.
                if original.is_none_or(|original| *original != batch.bytes()) {
                    return false;
                }
                served += 1;
            }
            if slice.next_offset <= at {
                return true;
            }
            at = slice.next_offset;
        }
        assert_eq!(served, self.batches.len(), "nothing is passed over in silence");
        false
    }
}

/// Some segments more of a compacted log, of which a pass leaves every other batch, and that pass. Where it ends.
fn append_and_compact(data: &DataDir, random: &mut Random) -> i64 {
    let (mut log, _) = Log::open(data, COMPACTED, config(), NOW).unwrap();
    let first = log.end();
    let keys: Vec<i64> = (0..60).map(|i| first + i / 2).collect();
    append_finished(&mut log, &keys);
    let batch = TestBatch::new(log.end(), 0, &[NOW], random.below(50) as usize, Compression::None, None);
    log.append(&batch.bytes, &[batch.header], NOW).unwrap();
    flush(&mut log);
    compact(data, &mut log).unwrap();
    log.note_dropped(log.end() - 5).unwrap();
    seal_all(data);
    log.close().unwrap();
    cleaned_to(data)
}

/// Batches of records of these keys, in segments that take no more appends.
fn append_finished(log: &mut Log, keys: &[i64]) {
    for &key in keys {
        let mut bytes = TestBatch::new(key, 0, &[NOW; 3], 100, Compression::None, None).bytes;
        records::set_base_offset(&mut bytes, log.end());
        let header = BatchHeader::parse(&bytes).unwrap();
        log.append(&bytes, &[header], NOW).unwrap();
    }
    log.roll().unwrap();
    flush(log);
}

fn flush(log: &mut Log) {
    let handle = log.begin_flush().unwrap();
    let result = handle.sync();
    log.on_flushed(handle.done(result));
}

fn compact(data: &DataDir, log: &mut Log) -> Result<(), CompactionError> {
    let dirtiness = log.reader().dirtiness(data, log.end(), Some(NOW), &POLICY);
    let request = CompactionRequest {
        bound: log.end(),
        dirtiness,
        now_ms: Some(NOW),
        delete_retention_ms: 1_000,
        map_bytes_max: 1 << 20,
        keep_from: i64::MAX,
    };
    let mut pass = log.begin_compaction(&request).unwrap();
    pass.prepare(&mut AtOnce(NOW))?;
    while let Some(segment) = pass.next_segment(&mut AtOnce(NOW))? {
        assert!(matches!(log.install(segment), Ok(Installed::Yes)));
    }
    assert!(log.finish_compaction(&pass.finished()));
    pass.save_progress()
}

fn seal_all(data: &DataDir) {
    while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
        sealing.unwrap();
    }
}

/// The node's data directories in one of the lives.
fn siblings(life: i32) -> Vec<(Uuid, PathBuf)> {
    let of = |n: i32| (Uuid::from_u128(n as u128), PathBuf::from(format!("data{n}")));
    (1..3 + life).map(of).collect()
}

/// How far the compacted log counts as clean.
fn cleaned_to(data: &DataDir) -> i64 {
    let (log, _) = Log::open(data, COMPACTED, config(), NOW).unwrap();
    let dirtiness = log.reader().dirtiness(data, log.end(), Some(NOW), &POLICY);
    log.close().unwrap();
    dirtiness.from
}

/// Up to where tombstones of the compacted log count as dropped.
fn dropped_to(data: &DataDir) -> i64 {
    let (mut log, _) = Log::open(data, COMPACTED, config(), NOW).unwrap();
    log.settle_dropped(true);
    let dropped_to = log.dropped_to();
    log.close().unwrap();
    dropped_to
}

fn said(report: &RecoveryReport, was_clean: bool, rebuilt_by_scrub: bool) -> Option<&'static str> {
    let said = if report.flushed_end_lost {
        "every log of the directory is read from end to end"
    } else if report.epochs_rebuilt {
        "built anew from the batches"
    } else if report.indexes_rebuilt > 0 {
        "built anew at the start"
    } else if report.seals_dropped > 0 {
        "dropped at the start; the scrub writes another"
    } else if rebuilt_by_scrub {
        "built anew by the scrub"
    } else if report.bytes_verified > 0 || report.batches_walked > 3 {
        "what it does not tell is read from the batches"
    } else if !was_clean {
        "a start like that after a crash"
    } else {
        return None;
    };
    Some(said)
}

/// What need not be noticed, and why.
fn harmless(pick: Pick, damage: &str) -> Option<&'static str> {
    match (pick, damage) {
        // Each checked by what the start has found.
        (Pick::Log("leader-epoch-checkpoint"), "cut short") | (Pick::Directory("meta.properties"), _) => {
            Some("of no consequence: what is left says the same")
        }
        // A record that was added later may be torn: the log's record before it holds.
        (Pick::Directory("flushed-ends"), "a bit flips" | "cut short" | "a block of zeros")
        | (Pick::Directory("directories"), "an older version") => {
            Some("of no consequence: an older, safe version counts")
        }
        (Pick::Compacted("snapshot"), "a bit flips" | "cut short" | "a block of zeros") => {
            Some("of no consequence: what it does not tell any more is in the batches")
        }
        (Pick::Mark("write-failed"), "missing") => {
            Some("**not noticed**: what the failed write has left in memory counts as written")
        }
        _ => None,
    }
}

fn is_whole_snapshot(disk: &SimDisk, path: &Path) -> bool {
    let is_there = disk.open(path, OpenMode::Read).is_ok();
    is_there && producer_snapshot::decode(&read(disk, path), usize::MAX).is_ok()
}

fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn all_files(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in [PathBuf::from("data"), log_dir(), dir_of(COMPACTED)] {
        // One that was removed with its only file.
        let Ok(entries) = disk.list(&dir) else { continue };
        for entry in entries.into_iter().filter(|entry| !entry.is_dir && entry.name != ".lock") {
            let path = dir.join(entry.name);
            files.insert(path.clone(), read(disk, &path));
        }
    }
    files
}

const SCRUB_OR_READER: &str =
    "**offline** by the scrub, which names it; the checksum of the batch stops a reader before";
/// Of the bytes of a batch that its checksum leaves out.
const SCRUB_ALONE: &str = "**offline** by the scrub, which names it; until then a reader gets the batch with another offset or leader epoch";

/// What comes of it, in the words of the table, and in how many of all rounds `weir log verify` finds it.
fn cell(pick: Pick, damage: &str) -> (String, [u64; 2]) {
    let by_chance = matches!(damage, "a bit flips" | "cut short" | "a block of zeros");
    let rounds = if by_chance { ROUNDS } else { 2 };
    let (mut outcomes, mut found, mut all) = (BTreeSet::new(), 0, 0);
    for seed in 1..=rounds {
        let _case = PrintOnPanic(format!("{pick:?}, {damage}, round {seed}"));
        let world = World::new();
        world.prepare(pick);
        let path = world.path(pick);
        let sound = world.found_offline();
        if world.damage(&path, damage, &mut Random::new(seed)) {
            all += 1;
            found += u64::from(!world.found_offline().is_subset(&sound));
            outcomes.insert(world.outcome(pick, damage, seed % 2 == 0));
        }
    }
    let text = match outcomes.is_empty() {
        true => "there is none".to_owned(),
        false => outcomes.into_iter().collect::<Vec<_>>().join("; or "),
    };
    (text, [found, all])
}

/// Which damages of a file `weir log verify` finds.
fn found_offline(found: &[[u64; 2]]) -> String {
    let but = |which: fn(u64, u64) -> bool, how: &str| -> Option<String> {
        let of = DAMAGES.iter().zip(found).filter(|(_, [found, all])| which(*found, *all));
        let names: Vec<&str> = of.map(|(damage, _)| *damage).collect();
        (!names.is_empty()).then(|| format!("{how}: {}", names.join(", ")))
    };
    let buts: Vec<String> = [
        but(|found, all| found == 0 && all > 0, "not"),
        but(|found, all| found > 0 && found < all, "not always"),
    ]
    .into_iter()
    .flatten()
    .collect();
    match found.iter().all(|[found, _]| *found == 0) {
        true => "no".to_owned(),
        false if buts.is_empty() => "yes".to_owned(),
        false => format!("yes; {}", buts.join("; ")),
    }
}

/// T-108, T-109, T-118.
#[test]
fn the_table_of_damages_is_true() {
    let mut table = format!(
        "| file | {} | `weir log verify` finds it |\n|---|{}\n",
        DAMAGES.join(" | "),
        "---|".repeat(DAMAGES.len() + 1)
    );
    for (name, pick) in KINDS {
        let (cells, found): (Vec<String>, Vec<_>) = DAMAGES.iter().map(|damage| cell(pick, damage)).unzip();
        table.push_str(&format!("| {name} | {} | {} |\n", cells.join(" | "), found_offline(&found)));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/damage.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("WEIR_WRITE_TABLE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(written, table, "docs/damage.md");
}
