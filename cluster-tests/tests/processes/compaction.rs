//! A keyed topic under continuous update, compacted all the time, its node killed again and again: whoever reads it from the
//! beginning gets the newest value of every key.
//!
//! The moments of the kills come from a seed, printed at the start; `WEIR_SEED` repeats it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::separate_daemons::Daemons;
use cluster_tests::clients::{ReadRecord, java_read, kafka_tool, kcat_read};
use cluster_tests::clock::wait_until;
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

#[test]
fn a_reader_rebuilds_the_map_after_compaction_and_kills() {
    let mut daemons = Daemons::start("compaction", 1);
    let mut moments = Moments::from_env("a_reader_rebuilds_the_map_after_compaction_and_kills");
    let bootstrap = daemons.bootstrap();
    let node = ["--alter", "--entity-type", "brokers", "--entity-default"];
    kafka_tool(
        "kafka-configs",
        &bootstrap,
        &[&node[..], &["--add-config", "log.cleaner.backoff.ms=100"]].concat(),
        b"",
    );
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
