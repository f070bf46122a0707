//! Transactions in a log, as stock clients and tools see them. They are written into the files of a stopped node, as
//! producers and their coordinator would have them written. One of the two logs is compacted by the node then.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cluster_tests::clients::{kafka_tool, kcat};
use cluster_tests::clock::wait_until;
use cluster_tests::dump::{compare_dumps, dump_transactions, files, partition_dirs, verify};
use cluster_tests::local_cluster::WeirDev;
use cluster_tests::random::Random;
use log_engine::{DataDir, DataDirOptions, Log, LogConfig, LogName, RealDisk};
use records::{BatchBuilder, BatchHeader, Compression, EndMarker};
use uuid::Uuid;

const TOPIC: &str = "transacted";
const COMPACTED: &str = "compacted";
const BATCHES: usize = 3_000;
const SEED: u64 = 20_261_130;
const PRODUCERS: usize = 5;
const KEYS: u64 = 150;
const NOW: i64 = 1_700_000_000_000;
const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
/// How long the node may take to compact on a busy machine.
const COMPACTED_LIMIT: Duration = Duration::from_secs(60);

/// A record: its offset, its key, its value (empty: deletes the key).
type Record = (i64, String, String);

/// What one producer has written since its last marker.
#[derive(Default)]
struct Open {
    first_offset: Option<i64>,
    sequence: i32,
    records: Vec<Record>,
}

/// What was written.
#[derive(Default)]
struct Written {
    committed: Vec<Record>,
    all: Vec<Record>,
    /// Producer, first and last offset, of every aborted transaction.
    aborted: Vec<[i64; 3]>,
    markers: Vec<(i64, bool)>,
    /// Producer and first offset of open transactions.
    open: Vec<[i64; 2]>,
}

impl Written {
    fn last_stable(&self) -> i64 {
        self.open.iter().map(|open| open[1]).min().expect("some are open")
    }

    /// What a reader of what is committed gets, in order.
    fn stable(&self) -> Vec<Record> {
        let end = self.last_stable();
        let mut stable: Vec<Record> = self.committed.iter().filter(|(at, ..)| *at < end).cloned().collect();
        stable.sort_unstable();
        stable
    }
}

fn append(log: &mut Log, mut batch: Vec<u8>, epoch: i32) -> i64 {
    let offset = log.end();
    records::set_base_offset(&mut batch, offset);
    records::set_leader_epoch(&mut batch, epoch);
    let header = BatchHeader::parse(&batch).expect("just built");
    log.append(&batch, &[header], NOW).expect("the disk works");
    offset
}

/// Appends a batch of up to three records.
fn append_records(log: &mut Log, random: &mut Random, n: usize, producer: Option<(i64, i32)>) -> Vec<Record> {
    let mut builder = BatchBuilder::new().compression(CODECS[n % CODECS.len()]);
    if let Some((id, sequence)) = producer {
        builder = builder.producer(id, 0, sequence).transactional();
    }
    let mut records = Vec::new();
    for i in 0..1 + i64::try_from(random.below(3)).expect("small") {
        let key = format!("key{}", random.below(KEYS));
        let value = match random.below(10) {
            0 => String::new(),
            _ => format!("{n}-{i}-{}", "x".repeat(usize::try_from(random.below(60)).expect("small"))),
        };
        let bytes = Some(value.as_bytes()).filter(|bytes| !bytes.is_empty());
        builder.push(NOW, Some(key.as_bytes()), bytes, &[]).expect("small");
        records.push((log.end() + i, key, value));
    }
    let epoch = log.epochs().latest().expect("a record was produced").epoch;
    append(log, builder.build(), epoch);
    records
}

/// Interleaved transactions of a few producers, and records beside them.
fn write_transactions(log: &mut Log) -> Written {
    let mut random = Random::new(SEED);
    let mut written = Written::default();
    let mut producers: Vec<Open> = (0..PRODUCERS).map(|_| Open::default()).collect();
    let epoch = log.epochs().latest().expect("a record was produced").epoch;
    for n in 0..BATCHES {
        let at = usize::try_from(random.below(PRODUCERS as u64 + 1)).expect("small");
        let Some(producer) = producers.get_mut(at) else {
            let records = append_records(log, &mut random, n, None);
            written.committed.extend_from_slice(&records);
            written.all.extend(records);
            continue;
        };
        let id = 1_000 + i64::try_from(at).expect("small");
        // The last batches leave transactions open.
        if producer.first_offset.is_some() && random.below(4) == 0 && n < BATCHES - 20 {
            let is_commit = random.below(2) == 0;
            let marker = EndMarker { is_commit, coordinator_epoch: 3 };
            let offset = append(log, marker.encode(id, 0, NOW).expect("small"), epoch);
            written.markers.push((offset, is_commit));
            let first = producer.first_offset.take().expect("it is open");
            match is_commit {
                true => written.committed.append(&mut producer.records),
                false => {
                    producer.records.clear();
                    written.aborted.push([id, first, offset]);
                }
            }
            continue;
        }
        let records = append_records(log, &mut random, n, Some((id, producer.sequence)));
        producer.sequence += i32::try_from(records.len()).expect("small");
        producer.first_offset.get_or_insert(records[0].0);
        producer.records.extend_from_slice(&records);
        written.all.extend(records);
    }
    for (at, producer) in (0..).zip(&producers) {
        written.open.extend(producer.first_offset.map(|first| [1_000 + at, first]));
    }
    written
}

/// Opens the directory of a stopped node as its next process would.
fn open_data_dir(path: &Path) -> DataDir {
    let meta = fs::read_to_string(path.join("meta.properties")).expect("a data directory has it");
    let value = |key: &str| {
        let line = meta.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {key} in {meta}")).to_owned()
    };
    let options = DataDirOptions {
        cluster_id: value("cluster.id"),
        node_id: value("node.id").parse().expect("a number"),
        new_directory_id: Uuid::from_u128(1),
        descriptors_max: 16,
    };
    DataDir::open(Arc::new(RealDisk), path, &options).expect("the node has stopped")
}

/// Directories of partitions by topic, each of which has its topic's name for its first record.
fn dirs_by_topic(data: &Path) -> BTreeMap<&'static str, PathBuf> {
    let first = |dir: &PathBuf| fs::read(dir.join("00000000000000000000.log")).expect("it is there");
    let is_of = |dir: &PathBuf, topic: &str| first(dir).windows(topic.len()).any(|b| b == topic.as_bytes());
    let dirs = partition_dirs(data);
    let of = |topic| dirs.iter().find(|dir| is_of(dir, topic)).expect("the topic has a directory").clone();
    [TOPIC, COMPACTED].map(|topic| (topic, of(topic))).into()
}

fn fill(dirs: &BTreeMap<&'static str, PathBuf>) -> BTreeMap<&'static str, Written> {
    let data = open_data_dir(dirs[TOPIC].parent().expect("a partition lies in a data directory"));
    let mut by_topic = BTreeMap::new();
    for (topic, dir) in dirs {
        let name = dir.file_name().and_then(|name| LogName::parse(&name.to_string_lossy()));
        // Many segments, so that transactions reach from one into others.
        let config = LogConfig { segment_bytes: 32 << 10, ..LogConfig::default() };
        let (mut log, _) = Log::open(&data, name.expect("a partition's name"), config, NOW).expect("healthy");
        let mut written = write_transactions(&mut log);
        log.close().expect("the disk works");
        let first = (0, "name".to_owned(), (*topic).to_owned());
        written.committed.push(first.clone());
        written.all.insert(0, first);
        by_topic.insert(*topic, written);
    }
    data.close_clean().expect("the disk works");
    by_topic
}

fn check_dump(dir: &Path, written: &Written) {
    let dump = dump_transactions(dir);
    assert_eq!(dump.markers, written.markers);
    let aborted: Vec<[i64; 3]> = dump.aborted.iter().map(|a| [a[0], a[1], a[2]]).collect();
    assert!(aborted.len() > 100 && aborted == written.aborted, "{} are in the indexes", aborted.len());
    assert!(dump.aborted.is_sorted_by_key(|a| a[3]), "the last stable offset never falls");
    let open: Vec<[i64; 2]> = dump.producers.iter().filter(|p| p[2] >= 0).map(|p| [p[0], p[2]]).collect();
    assert!(!open.is_empty());
    assert_eq!(open, written.open);
    assert!(dump.producers.iter().all(|p| p[1] == 3), "{:?}", dump.producers);
}

/// Everything that librdkafka reads.
fn read(at: &str, topic: &str, isolation: &str) -> Vec<Record> {
    let isolation = format!("isolation.level={isolation}");
    let args = ["-C", "-t", topic, "-o", "beginning", "-e", "-f", "%o\t%k\t%s\n", "-X", &isolation];
    let text = kcat(at, &args, b"");
    let record = |line: &str| -> Option<Record> {
        let mut fields = line.split('\t').map(str::to_owned);
        Some((fields.next()?.parse().ok()?, fields.next()?, fields.next()?))
    };
    text.lines().map(|line| record(line).unwrap_or_else(|| panic!("not a record: {line}"))).collect()
}

fn map_of(records: &[Record]) -> BTreeMap<&str, &str> {
    let mut map = BTreeMap::new();
    for (_, key, value) in records {
        match value.as_str() {
            "" => _ = map.remove(key.as_str()),
            value => _ = map.insert(key.as_str(), value),
        }
    }
    map
}

fn create(at: &str, topic: &str, configs: &[&str]) {
    let mut args = vec!["--create", "--topic", topic, "--partitions", "1"];
    args.extend(configs.iter().flat_map(|config| ["--config", config]));
    kafka_tool("kafka-topics", at, &args, b"");
    kcat(at, &["-P", "-t", topic, "-K", ":"], format!("name:{topic}").as_bytes());
}

#[test]
fn stock_consumers_and_tools_see_exactly_what_was_committed() {
    let mut dev = WeirDev::start("transactions_on_disk");
    let at = dev.bootstrap();
    // The records are of a time that any retention is over for.
    create(&at, TOPIC, &["retention.ms=-1"]);
    create(&at, COMPACTED, &["cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01"]);
    let eager = ["--alter", "--entity-type", "brokers", "--entity-default", "--add-config"];
    kafka_tool("kafka-configs", &at, &[&eager[..], &["log.cleaner.backoff.ms=100"]].concat(), b"");
    assert!(dev.stop().success());
    let dirs = dirs_by_topic(dev.data());
    let by_topic = fill(&dirs);
    for (topic, dir) in &dirs {
        check_dump(dir, &by_topic[topic]);
        assert!(compare_dumps(dir)["txnindex"] > 100);
    }

    dev.start_again();
    let written = &by_topic[TOPIC];
    let committed = written.stable();
    assert!(read(&at, TOPIC, "read_committed") == committed, "librdkafka reads what was committed");
    assert!(read(&at, TOPIC, "read_uncommitted") == written.all, "and everything if it is asked to");
    let count = committed.len().to_string();
    let args = ["--topic", TOPIC, "--from-beginning", "--max-messages", &count, "--timeout-ms", "20000"];
    let isolation = ["--isolation-level", "read_committed", "--formatter-property", "print.offset=true"];
    let text = kafka_tool("kafka-console-consumer", &at, &[&args[..], &isolation[..]].concat(), b"");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let shown = |value: &str| if value.is_empty() { "null".to_owned() } else { value.to_owned() };
    let expected: Vec<String> =
        committed.iter().map(|(offset, _, value)| format!("Offset:{offset}\t{}", shown(value))).collect();
    assert!(lines == expected, "Kafka's Java client reads what was committed: {:?}", lines.first());
    check_compacted(&mut dev, &dirs[COMPACTED], &by_topic[COMPACTED]);
}

/// The other log is compacted up to the first open transaction: the map is the same, both tools tell the same of the files.
fn check_compacted(dev: &mut WeirDev, dir: &Path, written: &Written) {
    let (at, committed) = (dev.bootstrap(), written.stable());
    let compacted = wait_until(COMPACTED_LIMIT, || {
        let left = read(&at, COMPACTED, "read_uncommitted");
        (left.len() < written.all.len() / 4).then_some(())
    });
    assert!(compacted.is_some(), "too little was compacted: {:?}", files(dir, "log"));
    let check = |when: &str| {
        let left = read(&at, COMPACTED, "read_committed");
        let all: BTreeSet<&Record> = committed.iter().collect();
        assert!(left.iter().all(|record| all.contains(record)), "{when}: as they were written");
        assert_eq!(map_of(&left), map_of(&committed), "{when}");
    };
    check("compacted");
    assert!(dev.stop().success());
    let compared = compare_dumps(dir);
    assert!(compared["log"] > 0 && compared["txnindex"] > 0, "{compared:?}");
    let document = verify(dir);
    assert_eq!(document[0]["state"], "sound", "{document}");
    dev.start_again();
    check("after a restart");
}
