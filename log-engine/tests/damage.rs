//! Every kind of file of a data directory, damaged in every way: what the next start and the next scrub make of it. The
//! table in `docs/damage.md` is what this test finds; after a change write it anew with
//! `WEIR_WRITE_TABLE=1 cargo test -p log-engine --test damage`.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use log_engine::{
    DataDir, DataDirError, DataDirOptions, Disk, Log, LogConfig, LogName, OpenError, OpenMode,
    RecoveryReport, SimDisk,
};
use log_engine_core::{AbortedIndex, producer_snapshot};
use support::{PrintOnPanic, Random, TestBatch};
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
const KINDS: [(&str, Pick); 10] = [
    ("`.log`, sealed", Pick::Segment("log", 3)),
    ("`.log`, taking appends, below the flushed end", Pick::Last("log")),
    ("`.index`, sealed", Pick::Segment("index", 3)),
    ("`.timeindex`, sealed", Pick::Segment("timeindex", 3)),
    ("`.seal`", Pick::Segment("seal", 3)),
    ("`.snapshot`, the newest", Pick::Last("snapshot")),
    ("`leader-epoch-checkpoint`", Pick::Log("leader-epoch-checkpoint")),
    ("`flushed-ends`", Pick::Directory("flushed-ends")),
    ("`clean-shutdown`", Pick::Directory("clean-shutdown")),
    ("`meta.properties`", Pick::Directory("meta.properties")),
];

#[derive(Debug, Clone, Copy)]
enum Pick {
    /// Of the nth segment.
    Segment(&'static str, usize),
    /// The last with this suffix.
    Last(&'static str),
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

fn open_dir(disk: &Arc<SimDisk>) -> Result<DataDir, DataDirError> {
    let options = DataDirOptions {
        cluster_id: "c1".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(9),
        descriptors_max: 20,
    };
    DataDir::open(disk.clone(), Path::new("data"), &options)
}

fn log_dir() -> PathBuf {
    Path::new("data").join(NAME.to_string())
}

/// A closed log of many segments, sealed but for the last, and every file as it was when the log was half as long.
struct World {
    disk: Arc<SimDisk>,
    batches: Vec<TestBatch>,
    older: BTreeMap<PathBuf, Vec<u8>>,
    /// How many there are.
    epochs: usize,
    producers: Vec<u8>,
}

impl World {
    fn new() -> World {
        let disk = SimDisk::new(1);
        let mut random = Random::new(5);
        let (mut batches, mut older) = (Vec::new(), BTreeMap::new());
        let (mut epochs, mut producers) = (0, Vec::new());
        // In two lives, so that there is an older version of everything.
        for life in 0..2 {
            let data = open_dir(&disk).unwrap();
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
            while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
                sealing.unwrap();
            }
            epochs = log.epochs().entries().len();
            producers = producer_snapshot::encode(log.producers(), AbortedIndex::Unknown);
            log.close().unwrap();
            data.close_clean().unwrap();
            drop(data);
            if life == 0 {
                older = all_files(&disk);
            }
        }
        World { disk, batches, older, epochs, producers }
    }

    fn path(&self, pick: Pick) -> PathBuf {
        let with = |suffix: &str| -> Vec<PathBuf> {
            let names = self.disk.list(&log_dir()).unwrap().into_iter().map(|entry| entry.name);
            names.filter(|n| n.ends_with(&format!(".{suffix}"))).map(|n| log_dir().join(n)).collect()
        };
        match pick {
            Pick::Segment(suffix, nth) => with(suffix)[nth].clone(),
            Pick::Last(suffix) => with(suffix).pop().unwrap(),
            Pick::Log(name) => log_dir().join(name),
            Pick::Directory(name) => Path::new("data").join(name),
        }
    }

    /// Whether there is something to damage in this way.
    fn damage(&self, path: &Path, damage: &str, random: &mut Random) -> bool {
        let bytes = read(&self.disk, path);
        let write = |bytes: &[u8]| {
            let file = self.disk.open(path, OpenMode::CreateOrEmpty).unwrap();
            file.write_at(bytes, 0).unwrap();
        };
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

    /// What the next start and the next scrub say, after a check that nothing is served that never was written.
    fn outcome(&self) -> String {
        let data = match open_dir(&self.disk) {
            Ok(data) => data,
            Err(DataDirError::Io(error)) => panic!("{error}"),
            Err(_) => return "the node does not start and says why".to_owned(),
        };
        let was_clean = data.was_clean();
        let (log, report) = match Log::open(&data, NAME, config(), NOW) {
            Ok(opened) => opened,
            Err(OpenError::Damaged { .. }) => return "**offline** at the start, which names it".to_owned(),
            Err(error @ OpenError::Io(_)) => panic!("{error}"),
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
        let before = all_files(&self.disk);
        for segment in log.reader().finished_segments() {
            if segment.scrub(&data, 200, &mut |_| true).is_err() {
                return "**offline** by the scrub, which names it; the checksum of the batch stops a reader before"
                    .to_owned();
            }
        }
        if reader_notices {
            return "the checksum of the batch stops a reader".to_owned();
        }
        let rebuilt_by_scrub = all_files(&self.disk) != before;
        said(&report, was_clean, rebuilt_by_scrub).to_owned()
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

fn said(report: &RecoveryReport, was_clean: bool, rebuilt_by_scrub: bool) -> &'static str {
    if report.flushed_end_lost {
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
        "of no consequence: an older, safe version counts"
    }
}

fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn all_files(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in [PathBuf::from("data"), log_dir()] {
        for entry in
            disk.list(&dir).unwrap().into_iter().filter(|entry| !entry.is_dir && entry.name != ".lock")
        {
            let path = dir.join(entry.name);
            files.insert(path.clone(), read(disk, &path));
        }
    }
    files
}

fn cell(pick: Pick, damage: &str) -> String {
    let by_chance = matches!(damage, "a bit flips" | "cut short" | "a block of zeros");
    let rounds = if by_chance { ROUNDS } else { 1 };
    let mut outcomes = BTreeSet::new();
    for seed in 1..=rounds {
        let _case = PrintOnPanic(format!("{pick:?}, {damage}, round {seed}"));
        let world = World::new();
        let path = world.path(pick);
        if world.damage(&path, damage, &mut Random::new(seed)) {
            outcomes.insert(world.outcome());
        }
    }
    match outcomes.is_empty() {
        true => "there is none".to_owned(),
        false => outcomes.into_iter().collect::<Vec<_>>().join("; or "),
    }
}

#[test]
fn the_table_of_damages_is_true() {
    let mut table = format!("| file | {} |\n|---|{}\n", DAMAGES.join(" | "), "---|".repeat(DAMAGES.len()));
    for (name, pick) in KINDS {
        let cells: Vec<String> = DAMAGES.iter().map(|damage| cell(pick, damage)).collect();
        table.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
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
