//! A real table goes in by three clients and comes back by three: 336,776 departures keyed by tail number, the missing tail
//! numbers with a null key. Complete, each record once, and in order per key.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::fs;

use cluster_tests::clients::{ReadRecord, java, java_read, kafka_tool, kcat, kcat_read, weir, weir_read};
use cluster_tests::local_cluster::Subject;
use cluster_tests::workspace;

const DEPARTURES: usize = 336_776;
const WITHOUT_TAIL_NUMBER: usize = 2_512;

/// The lines as kcat takes them: tail number, tab, JSON; no tab without a tail number.
fn keyed_lines() -> String {
    let path = workspace::flights_file().with_extension("keyed");
    fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: run `cargo xtask flights`", path.display()))
}

fn create(bootstrap: &str, topic: &str) {
    kafka_tool("kafka-topics", bootstrap, &["--create", "--topic", topic, "--partitions", "6"], b"");
}

/// Fails unless `records` are exactly the departures, in order per key, and dense offsets in each partition.
fn check(records: &[ReadRecord], keyed: &str) {
    assert_eq!(records.len(), DEPARTURES);
    let mut expected: HashMap<Option<&str>, Vec<&str>> = HashMap::new();
    for line in keyed.lines() {
        let (key, value) = line.split_once('\t').map_or((None, line), |(key, value)| (Some(key), value));
        expected.entry(key).or_default().push(value);
    }
    assert_eq!(expected[&None].len(), WITHOUT_TAIL_NUMBER);

    let mut next_offset: BTreeMap<i32, i64> = BTreeMap::new();
    let mut homes: HashMap<&str, i32> = HashMap::new();
    let mut found: HashMap<Option<&str>, Vec<&str>> = HashMap::new();
    for record in records {
        let next = next_offset.entry(record.partition).or_insert(0);
        assert_eq!(record.offset, *next, "partition {}", record.partition);
        *next += 1;
        if let Some(key) = &record.key {
            assert_eq!(*homes.entry(key).or_insert(record.partition), record.partition, "key {key} moved");
        }
        found.entry(record.key.as_deref()).or_default().push(&record.value);
    }
    // Records without a key may go to any partition, so only their set is fixed.
    expected.get_mut(&None).unwrap().sort_unstable();
    found.get_mut(&None).unwrap().sort_unstable();
    for (key, values) in &expected {
        assert_eq!(found.get(key), Some(values), "departures of {key:?}");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn by_kcat_and_back_by_java() {
    let subject = Subject::start("flights_kcat");
    let at = subject.bootstrap();
    let keyed = keyed_lines();
    create(&at, "flights-kcat");
    let args = [
        "-P",
        "-t",
        "flights-kcat",
        "-K",
        "\t",
        "-X",
        "acks=all",
        "-X",
        "enable.idempotence=true",
        "-z",
        "lz4",
    ];
    kcat(&at, &args, keyed.as_bytes());
    check(&java_read(&at, "flights-kcat"), &keyed);
}

#[test]
fn by_java_and_back_by_kcat() {
    let subject = Subject::start("flights_java");
    let at = subject.bootstrap();
    let keyed = keyed_lines();
    create(&at, "flights-java");
    let told = java("ProduceLines", &[&at, "flights-java", "compression.type=zstd"], keyed.as_bytes());
    assert_eq!(told.trim(), format!("acknowledged {DEPARTURES}"));
    check(&kcat_read(&at, "flights-java"), &keyed);
}

#[test]
fn by_weir_and_back_by_weir() {
    let subject = Subject::start("flights_weir");
    let at = subject.bootstrap();
    let keyed = keyed_lines();
    create(&at, "flights-weir");
    let file = workspace::flights_file().display().to_string();
    weir(&at, &["produce", "flights-weir", "--file", &file, "--key-field", "tailnum"], b"");
    check(&weir_read(&at, "flights-weir", DEPARTURES), &keyed);
}
