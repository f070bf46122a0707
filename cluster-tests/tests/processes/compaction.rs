//! A keyed topic under continuous update, compacted all the time, its node killed again and again: whoever reads it from the
//! beginning gets the newest value of every key. And a partition that rots keeps no other from being compacted; a person is told
//! of it (T-102).
//!
//! The moments of the kills come from a seed, printed at the start; `WEIR_SEED` repeats it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use crate::separate_daemons::Daemons;
use cluster_tests::clients::{ReadRecord, java_read, kafka_tool, kcat, kcat_read};
use cluster_tests::clock::wait_until;
use cluster_tests::dump::{files, partition_dirs};
use cluster_tests::moments::Moments;

const TOPIC: &str = "keyed";
const ROUNDS: usize = 4;
const RECORDS_OF_ROUND: usize = 5_000;
const KEYS: u64 = 600;
/// A kill comes at a random moment within this time after a round has begun.
const SPREAD: Duration = Duration::from_secs(3);
const COMPACTION_LIMIT: Duration = Duration::from_secs(60);

type Map = BTreeMap<String, String>;

/// A round of updates and deletions, as the console producer takes them.
fn round(random: &mut u64, round: usize, model: &mut Map) -> String {
    let mut lines = String::new();
    for i in 0..RECORDS_OF_ROUND {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("key{}", (*random >> 33) % KEYS);
        let deletes = (*random >> 20).is_multiple_of(10);
        let value = if deletes { "NULL".to_owned() } else { format!("{round}-{i}-{}", "x".repeat(500)) };
        writeln!(lines, "{key}:{value}").expect("writing to a string cannot fail");
        match deletes {
            true => _ = model.remove(&key),
            false => _ = model.insert(key, value),
        }
    }
    lines
}

fn map_of(read: &[ReadRecord]) -> Map {
    let mut map = Map::new();
    let mut next = 0;
    for record in read {
        assert!(record.offset >= next, "offsets go up: {} after {next}", record.offset);
        next = record.offset + 1;
        let key = record.key.clone().expect("every record has a key");
        match record.value.as_str() {
            "" | "NULL" | "null" => _ = map.remove(&key),
            value => _ = map.insert(key, value.to_owned()),
        }
    }
    map
}

fn compact_often(bootstrap: &str) {
    let node = ["--alter", "--entity-type", "brokers", "--entity-default", "--add-config"];
    let often = ["log.cleaner.backoff.ms=100"];
    kafka_tool("kafka-configs", bootstrap, &[&node[..], &often[..]].concat(), b"");
}

#[test]
fn a_reader_rebuilds_the_map_after_compaction_and_kills() {
    let mut daemons = Daemons::start("compaction", 1);
    let mut moments = Moments::from_env("a_reader_rebuilds_the_map_after_compaction_and_kills");
    let bootstrap = daemons.bootstrap();
    compact_often(&bootstrap);
    let create = ["--create", "--topic", TOPIC, "--partitions", "1"];
    let configs = ["cleanup.policy=compact", "segment.bytes=1048576", "min.cleanable.dirty.ratio=0.01"];
    let configs: Vec<&str> = configs.iter().flat_map(|config| ["--config", config]).collect();
    kafka_tool("kafka-topics", &bootstrap, &[&create[..], &configs].concat(), b"");
    let (mut model, mut random) = (Map::new(), 42);
    for number in 0..ROUNDS {
        let lines = round(&mut random, number, &mut model);
        let to = bootstrap.clone();
        let producer = std::thread::spawn(move || {
            let codec = ["compression.type=none", "compression.type=lz4"][number % 2];
            let mut args = vec!["--topic", TOPIC, "--producer-property", codec];
            // The tool gives up early, and loses records without a word.
            for property in ["retries=2147483647", "request.timeout.ms=30000"] {
                args.extend(["--producer-property", property]);
            }
            for property in ["parse.key=true", "key.separator=:", "null.marker=NULL"] {
                args.extend(["--reader-property", property]);
            }
            kafka_tool("kafka-console-producer", &to, &args, lines.as_bytes());
        });
        std::thread::sleep(moments.within(SPREAD));
        daemons.node.kill();
        daemons.node.start();
        daemons.wait_ready();
        producer.join().expect("the producer delivers every record in the end");
        assert_eq!(map_of(&kcat_read(&bootstrap, TOPIC)), model, "after round {number}");
    }
    // The last pass may have been that of a process which was killed since: what is left says it, not a counter.
    let read = wait_until(COMPACTION_LIMIT, || {
        let ratio = daemons.node.metric("weir_storage_node_compaction_dirty_ratio_max")?;
        let read = kcat_read(&bootstrap, TOPIC);
        (ratio <= 0.01 && read.len() < ROUNDS * RECORDS_OF_ROUND / 2).then_some(read)
    });
    let read =
        read.unwrap_or_else(|| panic!("too little was compacted:\n{}", daemons.node.process().output()));
    assert_eq!(daemons.node.metric("weir_storage_node_compaction_failures_total"), Some(0.0));
    assert_eq!(map_of(&read), model);
    // What lies on the disk is what is told after a restart too, and by another client.
    daemons.node.kill();
    daemons.node.start();
    daemons.wait_ready();
    assert_eq!(map_of(&java_read(&bootstrap, TOPIC)), model);
}

/// Records of ten keys in one partition, in batches that are not compressed, so that a byte of a value can be found.
fn produce_to(bootstrap: &str, partition: usize, records: usize) {
    let line = |n: usize| format!("key{}:partition {partition}, {n} {}\n", n % 10, "x".repeat(1_000));
    let lines: String = (0..records).map(line).collect();
    let partition = partition.to_string();
    let args = ["-P", "-t", TOPIC, "-p", &partition, "-K", ":", "-X", "batch.size=16000"];
    kcat(bootstrap, &args, lines.as_bytes());
}

fn records_in(bootstrap: &str, partition: usize) -> usize {
    let partition = partition.to_string();
    let args = ["-C", "-t", TOPIC, "-p", &partition, "-o", "beginning", "-e", "-f", "%o\n"];
    kcat(bootstrap, &args, b"").lines().count()
}

fn wait_compacted(bootstrap: &str, partition: usize) {
    let mut left = 0;
    let compacted = wait_until(COMPACTION_LIMIT, || {
        left = records_in(bootstrap, partition);
        // What the segment has that takes appends stays.
        (left < 1_200).then_some(())
    });
    assert!(compacted.is_some(), "partition {partition} still has {left} records");
}

#[test]
fn a_partition_that_rots_keeps_no_other_from_being_compacted() {
    let mut daemons = Daemons::prepare("uncleanable", 1);
    // Who compacts is to find the damage, not the scrub.
    daemons.node.configure("[limits]\nscrub_bytes_per_second = 0\n");
    daemons.controllers[0].start();
    daemons.node.start();
    daemons.wait_ready();
    let bootstrap = daemons.bootstrap();
    compact_often(&bootstrap);
    let create = ["--create", "--topic", TOPIC, "--partitions", "3", "--config", "segment.bytes=1048576"];
    kafka_tool("kafka-topics", &bootstrap, &create, b"");
    (0..3).for_each(|partition| produce_to(&bootstrap, partition, 2_500));
    daemons.node.stop();
    let rotten =
        partition_dirs(&daemons.node_data()).into_iter().find(|dir| dir.to_string_lossy().ends_with("-0"));
    let segment = files(&rotten.expect("partition 0 is there"), "log").remove(0);
    let mut bytes = fs::read(&segment).expect("it is there");
    let value =
        bytes.windows(20).position(|bytes| bytes == [b'x'; 20]).expect("records are as they were sent");
    bytes[value] ^= 1;
    fs::write(&segment, bytes).expect("writable");
    daemons.node.start();
    daemons.wait_ready();

    let policy = "cleanup.policy=compact,min.cleanable.dirty.ratio=0.01";
    let alter = ["--alter", "--topic", TOPIC, "--add-config", policy];
    kafka_tool("kafka-configs", &bootstrap, &alter, b"");
    let metric = |daemons: &Daemons, name: &str| {
        daemons.node.metric(&format!("weir_storage_node_compaction_{name}")).filter(|value| *value > 0.0)
    };
    let failed = wait_until(COMPACTION_LIMIT, || metric(&daemons, "uncleanable_age_seconds"));
    let age = failed.unwrap_or_else(|| panic!("nothing has failed:\n{}", daemons.node.process().output()));
    assert_eq!(metric(&daemons, "uncleanable_partitions"), Some(1.0));
    assert!(metric(&daemons, "failures_total").is_some());
    (1..3).for_each(|partition| wait_compacted(&bootstrap, partition));
    // And again, after the failure.
    for partition in 1..3 {
        produce_to(&bootstrap, partition, 2_500);
        wait_compacted(&bootstrap, partition);
    }
    let older = wait_until(COMPACTION_LIMIT, || {
        metric(&daemons, "uncleanable_age_seconds").filter(|now| *now > age + 1.0)
    });
    assert!(older.is_some(), "the age of the failure grows beyond {age} s");
    assert_eq!(metric(&daemons, "uncleanable_partitions"), Some(1.0));
    let text = daemons.node.process().output();
    let named = segment.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(text.contains("cannot be compacted") && text.contains(&named), "{text}");
}
