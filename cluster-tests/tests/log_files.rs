//! Files of logs across the border: `weir log` and Apache Kafka's dump tool say the same of the same files, whoever wrote
//! them, and what Kafka wrote is served.

mod raw_connection;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_tests::clients::{java, kafka_tool, kcat, weir_read};
use cluster_tests::clock::wait_until;
use cluster_tests::dump::{compare_dumps, dump_transactions, files, partition_dirs, verify, weir_log};
use cluster_tests::local_cluster::WeirDev;
use cluster_tests::oracle::broker::{BrokerOptions, KafkaCluster};
use cluster_tests::random::Random;
use kafka_wire_core::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, PartitionData};
use kafka_wire_core::{ErrorCode, Records};
use records::batches;
use serde_json::Value;

use crate::raw_connection::RawConnection;

const RECORDS: usize = 12_000;
/// Transactions only.
const TRANSACTED: &str = "transacted";
/// Transactions with keys, compacted.
const COMPACTED: &str = "compacted";
const PRODUCERS: usize = 6;
const KEYS: u64 = 150;
/// How long Kafka's cleaner may take on a busy machine.
const CLEANED_LIMIT: Duration = Duration::from_secs(60);
/// The newest version that names topics.
const FETCH: i16 = 12;
/// Records of an idempotent producer, a part by each codec.
fn fill(at: &str) -> Vec<String> {
    kafka_tool(
        "kafka-topics",
        at,
        &["--create", "--topic", "t", "--partitions", "1", "--config", "segment.bytes=1048576"],
        b"",
    );
    let lines: Vec<String> = (0..RECORDS).map(|n| format!("record {n} {}", "payload ".repeat(130))).collect();
    for (codec, part) in ["none", "gzip", "snappy", "lz4", "zstd"].iter().zip(lines.chunks(RECORDS / 5)) {
        let options =
            ["-P", "-t", "t", "-z", codec, "-X", "enable.idempotence=true", "-X", "batch.size=16000"];
        kcat(at, &options, part.join("\n").as_bytes());
    }
    lines
}

#[test]
fn both_tools_say_the_same_of_our_files_and_damage_has_an_exit_code() {
    let mut dev = WeirDev::start("log_files_ours");
    fill(&dev.bootstrap());
    assert!(dev.stop().success());
    let dirs = partition_dirs(dev.data());
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    assert!(compare_dumps(&dirs[0])["log"] > RECORDS);

    let above = dirs[0].parent().expect("a data directory");
    let document = verify(above);
    assert_eq!(
        (&document[0]["state"], &document[0]["end"]),
        (&Value::from("sound"), &Value::from(RECORDS)),
        "{document}"
    );
    assert!(document[0]["sealed"].as_u64() >= Some(1), "{document}");
    let seal = files(&dirs[0], "seal").remove(0);
    let (sound, text) = weir_log(&["dump", &seal.display().to_string()]);
    assert!(sound && text.contains("nextBaseOffset: "), "{text}");

    let segment = files(&dirs[0], "log").remove(0);
    let mut bytes = fs::read(&segment).expect("it is there");
    bytes[700] ^= 4;
    fs::write(&segment, bytes).expect("writable");
    let document = verify(above);
    assert_eq!(document[0]["state"], "damage", "{document}");
    assert!(!weir_log(&["dump", &segment.display().to_string()]).0, "a dump of damage fails too");
}

#[test]
fn what_kafka_wrote_is_dumped_verified_and_served() {
    let mut kafka = KafkaCluster::start(&BrokerOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let lines = fill(&kafka.bootstrap());
    kafka.kill_node(1);
    let theirs = kafka.dir().join("node-1/data/t-0");
    assert!(files(&theirs, "log").len() >= 3);
    assert!(compare_dumps(&theirs)["log"] > RECORDS);
    let document = verify(&theirs);
    assert_eq!(
        (&document[0]["state"], &document[0]["end"]),
        (&Value::from("note"), &Value::from(RECORDS)),
        "{document}"
    );

    // In place of the empty log of a topic of ours.
    let mut dev = WeirDev::start("log_files_kafka");
    kafka_tool("kafka-topics", &dev.bootstrap(), &["--create", "--topic", "t", "--partitions", "1"], b"");
    kcat(&dev.bootstrap(), &["-P", "-t", "t"], b"t");
    assert!(dev.stop().success());
    let ours = take_over(&theirs, dev.data(), "t");
    dev.start_again();
    assert_unchanged(&theirs, &ours);
    let read = weir_read(&dev.bootstrap(), "t", RECORDS);
    assert!(read.iter().zip(0..).all(|(record, offset)| record.offset == offset));
    let values: Vec<String> = read.into_iter().map(|record| record.value).collect();
    assert!(values == lines, "every record, as it was sent");
}

/// Puts what Kafka wrote in place of the log of a topic of ours, whose only record is the topic's name.
fn take_over(theirs: &Path, data: &Path, topic: &str) -> PathBuf {
    let is_its = |dir: &PathBuf| {
        let segment = fs::read(dir.join("00000000000000000000.log")).unwrap_or_default();
        segment.windows(topic.len()).any(|bytes| bytes == topic.as_bytes())
    };
    let ours = partition_dirs(data).into_iter().find(is_its).expect("the topic has a directory");
    for file in fs::read_dir(&ours).expect("it is there").flatten() {
        fs::remove_file(file.path()).expect("removable");
    }
    // All of it, as one would copy it.
    for file in fs::read_dir(theirs).expect("it is there").flatten() {
        fs::copy(file.path(), ours.join(file.file_name())).expect("copied");
    }
    assert!(ours.join("partition.metadata").exists(), "by it a start knows whose it is");
    ours
}

/// What is in each segment.
fn segments(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let named =
        |log: PathBuf| (PathBuf::from(log.file_name().expect("a name")), fs::read(&log).expect("readable"));
    files(dir, "log").into_iter().map(named).collect()
}

/// Whether each segment of theirs is still there, as it was; the last one may have grown.
fn assert_unchanged(theirs: &Path, ours: &Path) {
    let (before, after) = (segments(theirs), segments(ours));
    assert!(before.len() <= after.len(), "{} and {}", before.len(), after.len());
    for (at, (before, after)) in before.iter().zip(&after).enumerate() {
        assert!(
            before.0 == after.0 && after.1.starts_with(&before.1),
            "segment {at}: {}",
            before.0.display()
        );
    }
}

/// Interleaved transactions of a few producers, and records beside them, as `ProduceTransactions` takes them. One transaction
/// stays open, at the end.
fn script(random: &mut Random, topic: &str, batches: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut open = [false; PRODUCERS];
    for _ in 0..batches {
        let producer = usize::try_from(random.below(PRODUCERS as u64)).expect("small");
        if open[producer] && random.below(3) == 0 {
            open[producer] = false;
            let end = if random.below(2) == 0 { "commit" } else { "abort" };
            lines.push(format!("{end} {producer}"));
            continue;
        }
        if producer > 0 && !open[producer] {
            open[producer] = true;
            lines.push(format!("begin {producer}"));
        }
        for _ in 0..1 + random.below(12) {
            let key = random.below(KEYS);
            lines.push(match random.below(10) {
                0 => format!("delete {producer} {topic} key{key}"),
                _ => format!("send {producer} {topic} key{key} {}", random.word(800)),
            });
        }
        lines.push(format!("flush {producer}"));
    }
    lines.extend(
        (1..PRODUCERS).filter(|producer| open[*producer]).map(|producer| format!("abort {producer}")),
    );
    lines.extend(["begin 1".to_owned(), format!("send 1 {topic} open open")]);
    lines.join("\n")
}

/// What a server tells of a partition.
#[derive(Debug, PartialEq, Eq)]
struct Served {
    log_start: i64,
    last_stable: i64,
    high_watermark: i64,
    /// Producer and first offset of all aborted transactions.
    aborted: BTreeSet<(i64, i64)>,
    /// Offset, key and value of every record, to a reader of what is committed.
    committed: Vec<String>,
    /// The same to a reader of everything.
    everything: Vec<String>,
}

impl Served {
    fn by(bootstrap: &str, topic: &str) -> Served {
        let read = |isolation: &str| -> Vec<String> {
            let isolation = format!("isolation.level={isolation}");
            let format = "%o\t%K\t%k\t%S\t%s\n";
            let args = ["-C", "-t", topic, "-o", "beginning", "-e", "-f", format, "-X", &isolation];
            kcat(bootstrap, &args, b"").lines().map(str::to_owned).collect()
        };
        let mut connection = RawConnection::open(bootstrap);
        connection.assert_alive();
        let (mut at, mut aborted) = (0, BTreeSet::new());
        loop {
            let part = fetch(&mut connection, topic, at);
            let listed = part.aborted_transactions.iter().flatten();
            aborted.extend(listed.map(|aborted| (aborted.producer_id, aborted.first_offset)));
            let Some(Records::Bytes(bytes)) = part.records else { panic!("no records: {:?}", part.records) };
            // The last batch may be cut off by the size of the answer.
            let last = batches(&bytes).map_while(Result::ok).last();
            if let Some(last) = last {
                at = last.header().last_offset() + 1;
                continue;
            }
            return Served {
                log_start: part.log_start_offset,
                last_stable: part.last_stable_offset,
                high_watermark: part.high_watermark,
                aborted,
                committed: read("read_committed"),
                everything: read("read_uncommitted"),
            };
        }
    }

    fn brief(&self) -> String {
        format!(
            "offsets {} to {}, stable to {}, {} aborted, {} records committed, {} in all",
            self.log_start,
            self.high_watermark,
            self.last_stable,
            self.aborted.len(),
            self.committed.len(),
            self.everything.len()
        )
    }
}

fn fetch(connection: &mut RawConnection, topic: &str, from: i64) -> PartitionData {
    let partition = FetchPartition {
        fetch_offset: from,
        partition_max_bytes: 4 << 20,
        current_leader_epoch: -1,
        ..FetchPartition::default()
    };
    let topic = FetchTopic { topic: topic.into(), partitions: vec![partition], ..FetchTopic::default() };
    let request = FetchRequest {
        replica_id: -1,
        max_bytes: 4 << 20,
        isolation_level: 1,
        session_epoch: -1,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    let mut response = connection.call(&request, FETCH).expect("it answers");
    let partition = response.responses.pop().and_then(|mut topic| topic.partitions.pop()).expect("asked for");
    assert_eq!(partition.error_code, ErrorCode::None);
    partition
}

/// Whether Kafka's cleaner has gone up to the segment that takes appends, beyond `before`; up to where, then.
fn all_cleaned(data: &Path, before: i64) -> Option<i64> {
    let text = fs::read_to_string(data.join("cleaner-offset-checkpoint")).ok()?;
    let of_topic = |line: &str| line.strip_prefix(&format!("{COMPACTED} 0 "))?.parse::<i64>().ok();
    let cleaned = text.lines().find_map(of_topic)?;
    let active = files(&data.join(format!("{COMPACTED}-0")), "log").pop()?;
    let base: i64 = active.file_stem()?.to_str()?.parse().ok()?;
    (cleaned > before && cleaned == base).then_some(cleaned)
}

/// Transactions, and compacted ones, in a Kafka that compacts eagerly; its node was killed when they were there.
fn kafka_with_transactions() -> (KafkaCluster, BTreeMap<&'static str, Served>) {
    let options = BrokerOptions {
        properties: vec![("log.cleaner.backoff.ms".to_owned(), "100".to_owned())],
        ..BrokerOptions::default()
    };
    let mut kafka = KafkaCluster::start(&options).unwrap_or_else(|error| panic!("{error}"));
    let at = kafka.bootstrap();
    let create = |topic: &str, configs: &[&str]| {
        let mut args =
            vec!["--create", "--topic", topic, "--partitions", "1", "--config", "segment.bytes=1048576"];
        args.extend(configs.iter().flat_map(|config| ["--config", config]));
        kafka_tool("kafka-topics", &at, &args, b"");
    };
    create(TRANSACTED, &[]);
    create(COMPACTED, &["cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "delete.retention.ms=1"]);
    let mut random = Random::new(20_261_130);
    let mut produce = |topic: &str| {
        java("ProduceTransactions", &[&at, topic], script(&mut random, topic, 600).as_bytes());
    };
    produce(TRANSACTED);
    // Twice, so that a later pass drops what an earlier one has marked: tombstones and markers. The last batches of producers
    // stay, without records. The second time aborts what the first has left open.
    let (data, mut cleaned) = (kafka.dir().join("node-1/data"), 0);
    for _ in 0..2 {
        produce(COMPACTED);
        let more = wait_until(CLEANED_LIMIT, || all_cleaned(&data, cleaned));
        cleaned = more.unwrap_or_else(|| panic!("Kafka's cleaner has not gone beyond {cleaned}"));
    }
    let served = [TRANSACTED, COMPACTED].map(|topic| (topic, Served::by(&at, topic))).into();
    kafka.kill_node(1);
    (kafka, served)
}

#[test]
fn transactions_and_compacted_logs_that_kafka_wrote_are_served_as_it_served_them() {
    let (kafka, by_kafka) = kafka_with_transactions();
    let mut dev = WeirDev::start("log_files_transactions");
    let at = dev.bootstrap();
    for (topic, policy) in [(TRANSACTED, "delete"), (COMPACTED, "compact")] {
        // Nothing goes but what Kafka took.
        let (policy, idle) = (format!("cleanup.policy={policy}"), "min.compaction.lag.ms=86400000");
        let create =
            ["--create", "--topic", topic, "--partitions", "1", "--config", &policy, "--config", idle];
        kafka_tool("kafka-topics", &at, &create, b"");
        kcat(&at, &["-P", "-t", topic, "-k", "key"], topic.as_bytes());
    }
    assert!(dev.stop().success());
    let mut logs = Vec::new();
    for (topic, served) in &by_kafka {
        let theirs = kafka.dir().join(format!("node-1/data/{topic}-0"));
        let compared = compare_dumps(&theirs);
        assert!(compared["txnindex"] > 0 && compared["snapshot"] > 0, "{topic}: {compared:?}");
        let document = verify(&theirs);
        assert_eq!(
            (&document[0]["state"], &document[0]["end"]),
            (&Value::from("note"), &Value::from(served.high_watermark)),
            "{document}"
        );
        assert!(document[0]["segments"].as_u64() >= Some(2), "{document}");
        // Whether the cleaner has taken the end of a segment is a matter of its timing.
        let ours = take_over(&theirs, dev.data(), topic);
        logs.push((*topic, theirs, ours));
    }

    dev.start_again();
    for (topic, by_kafka) in &by_kafka {
        let mut by_us = Served::by(&at, topic);
        let aborted = by_us.aborted.clone();
        if *topic == COMPACTED {
            // Of a compacted log the start reads them out of what is left: Kafka also names those without any record, and
            // where one began whose first records are gone.
            by_us.aborted.clone_from(&by_kafka.aborted);
        }
        assert!(by_us == *by_kafka, "{topic}:\n{} by us\n{} by Kafka", by_us.brief(), by_kafka.brief());
        assert!(!aborted.is_empty() && by_us.last_stable < by_us.high_watermark, "{}", by_us.brief());
        let gone = by_us.high_watermark - i64::try_from(by_us.everything.len()).expect("small");
        assert!(*topic == TRANSACTED || gone > by_us.high_watermark / 2, "{}", by_us.brief());
    }
    // What the start has made anew says the same.
    assert!(dev.stop().success());
    for (topic, theirs, ours) in &logs {
        assert_unchanged(theirs, ours);
        let (before, after) = (dump_transactions(theirs), dump_transactions(ours));
        assert!(after.markers == before.markers, "{topic}");
        assert!(*topic == COMPACTED || after.aborted == before.aborted, "{topic}");
        compare_dumps(ours);
        let document = verify(ours);
        assert_eq!(document[0]["state"], "sound", "{document}");
    }
}
