//! Transactions in a log, as stock clients and tools see them. They are written into the files of a stopped node, as
//! producers and their coordinator would have them written.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cluster_tests::clients::{kafka_tool, kcat};
use cluster_tests::dump::{dump_transactions, partition_dirs};
use cluster_tests::local_cluster::WeirDev;
use log_engine::{DataDir, DataDirOptions, Log, LogConfig, LogName, RealDisk};
use records::{BatchBuilder, BatchHeader, EndMarker};
use uuid::Uuid;

const TOPIC: &str = "transacted";
const BATCHES: usize = 3_000;
const SEED: u64 = 20_261_130;
const PRODUCERS: usize = 5;
const NOW: i64 = 1_700_000_000_000;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

/// What one producer has written since its last marker.
#[derive(Default)]
struct Open {
    first_offset: Option<i64>,
    sequence: i32,
    values: Vec<(i64, String)>,
}

/// What was written.
#[derive(Default)]
struct Written {
    /// Offset and value of every committed record.
    committed: Vec<(i64, String)>,
    /// Offset and value of every record.
    all: Vec<(i64, String)>,
    /// Producer, first and last offset, of every aborted transaction.
    aborted: Vec<[i64; 3]>,
    markers: Vec<(i64, bool)>,
    /// Producer and first offset of open transactions.
    open: Vec<[i64; 2]>,
}

fn append(log: &mut Log, mut batch: Vec<u8>, epoch: i32) -> i64 {
    let offset = log.end();
    records::set_base_offset(&mut batch, offset);
    records::set_leader_epoch(&mut batch, epoch);
    let header = BatchHeader::parse(&batch).expect("just built");
    log.append(&batch, &[header], NOW).expect("the disk works");
    offset
}

/// Interleaved transactions of a few producers, and records beside them.
fn write_transactions(log: &mut Log) -> Written {
    let mut random = Random(SEED);
    let mut written = Written::default();
    let mut producers: Vec<Open> = (0..PRODUCERS).map(|_| Open::default()).collect();
    let epoch = log.epochs().latest().expect("a record was produced").epoch;
    for n in 0..BATCHES {
        let at = usize::try_from(random.below(PRODUCERS as u64 + 1)).expect("small");
        let value = format!("{n}-{}", "x".repeat(usize::try_from(random.below(60)).expect("small")));
        let Some(producer) = producers.get_mut(at) else {
            let mut builder = BatchBuilder::new();
            builder.push(NOW, None, Some(value.as_bytes()), &[]).expect("small");
            let offset = append(log, builder.build(), epoch);
            written.committed.push((offset, value.clone()));
            written.all.push((offset, value));
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
                true => written.committed.append(&mut producer.values),
                false => {
                    producer.values.clear();
                    written.aborted.push([id, first, offset]);
                }
            }
            continue;
        }
        let mut builder = BatchBuilder::new().producer(id, 0, producer.sequence).transactional();
        builder.push(NOW, None, Some(value.as_bytes()), &[]).expect("small");
        let offset = append(log, builder.build(), epoch);
        producer.sequence += 1;
        producer.first_offset.get_or_insert(offset);
        producer.values.push((offset, value.clone()));
        written.all.push((offset, value));
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

#[test]
fn stock_consumers_see_exactly_what_was_committed() {
    let mut dev = WeirDev::start("transactions_on_disk");
    let at = dev.bootstrap();
    // The records are of a time that any retention is over for.
    let create = ["--create", "--topic", TOPIC, "--partitions", "1", "--config", "retention.ms=-1"];
    kafka_tool("kafka-topics", &at, &create, b"");
    kcat(&at, &["-P", "-t", TOPIC], b"the first record");
    assert!(dev.stop().success());

    let dirs = partition_dirs(dev.data());
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    let name = dirs[0].file_name().and_then(|name| LogName::parse(&name.to_string_lossy()));
    let data = open_data_dir(dirs[0].parent().expect("a partition lies in a data directory"));
    // Many segments, so that transactions reach from one into others.
    let config = LogConfig { segment_bytes: 32 << 10, ..LogConfig::default() };
    let (mut log, _) = Log::open(&data, name.expect("a partition's name"), config, NOW).expect("healthy");
    let written = write_transactions(&mut log);
    log.close().expect("the disk works");
    data.close_clean().expect("the disk works");
    drop(data);

    let dump = dump_transactions(&dirs[0]);
    assert_eq!(dump.markers, written.markers);
    let aborted: Vec<[i64; 3]> = dump.aborted.iter().map(|a| [a[0], a[1], a[2]]).collect();
    assert!(aborted.len() > 100 && aborted == written.aborted, "{} are in the indexes", aborted.len());
    assert!(dump.aborted.is_sorted_by_key(|a| a[3]), "the last stable offset never falls");
    let open: Vec<[i64; 2]> = dump.producers.iter().filter(|p| p[2] >= 0).map(|p| [p[0], p[2]]).collect();
    assert!(!open.is_empty());
    assert_eq!(open, written.open);
    assert!(dump.producers.iter().all(|p| p[1] == 3), "{:?}", dump.producers);

    dev.start_again();
    let last_stable = written.open.iter().map(|open| open[1]).min().expect("some are open");
    let mut committed: Vec<(i64, String)> = vec![(0, "the first record".to_owned())];
    committed.extend(written.committed.into_iter().filter(|(offset, _)| *offset < last_stable));
    committed.sort_unstable();
    let read = |isolation: &str| -> Vec<(i64, String)> {
        let isolation = format!("isolation.level={isolation}");
        let args = ["-C", "-t", TOPIC, "-o", "beginning", "-e", "-f", "%o\t%s\n", "-X", &isolation];
        let text = kcat(&at, &args, b"");
        let lines = text.lines().map(|line| line.split_once('\t').expect("two fields"));
        lines.map(|(offset, value)| (offset.parse().expect("a number"), value.to_owned())).collect()
    };
    assert!(read("read_committed") == committed, "librdkafka reads what was committed");
    let mut all = vec![(0, "the first record".to_owned())];
    all.extend(written.all);
    assert!(read("read_uncommitted") == all, "and everything if it is asked to");

    let count = committed.len().to_string();
    let args = ["--topic", TOPIC, "--from-beginning", "--max-messages", &count, "--timeout-ms", "20000"];
    let isolation = ["--isolation-level", "read_committed", "--formatter-property", "print.offset=true"];
    let text = kafka_tool("kafka-console-consumer", &at, &[&args[..], &isolation[..]].concat(), b"");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let expected: Vec<String> =
        committed.iter().map(|(offset, value)| format!("Offset:{offset}\t{value}")).collect();
    assert!(lines == expected, "Kafka's Java client reads what was committed: {:?}", lines.first());
}
