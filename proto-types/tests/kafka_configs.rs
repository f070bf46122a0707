//! The config tables beside Kafka's own classes: names, types, defaults, allowed values and the words of refusals.
//!
//! Needs a JVM and the jars that `cargo xtask kafka-jars` fetches.

use proto_types::config_schema::{Allowed, ConfigDef, ConfigKind, NODE_CONFIGS, TOPIC_CONFIGS, topic_config};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where a default differs on purpose (`docs/differences.md`), or where Weir always has a value that Kafka leaves open.
const OTHER_DEFAULTS: [&str; 8] = [
    "auto.create.topics.enable",
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "log.dir",
    "max.connections",
    "max.connections.per.ip",
    "process.roles",
    "sasl.enabled.mechanisms",
];
/// Where the allowed values differ on purpose: at least one connection; only the selectors that there are, not any class; and
/// what Kafka checks elsewhere or not at all, so that no node starts or runs with a value that means nothing.
const OTHER_RANGES: [&str; 14] = [
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "max.connections",
    "max.connections.per.ip",
    "replica.lag.time.max.ms",
    "replica.selector.class",
    "request.timeout.ms",
];
/// Kafka's broker configs that exist only dynamically, outside its definition.
const DYNAMIC_ONLY: [&str; 3] = [
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

fn ask_kafka(lines: &str) -> Vec<Vec<String>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let jars = here.join("../target/kafka/libs");
    let found = std::fs::read_dir(&jars).is_ok_and(|mut entries| entries.next().is_some());
    assert!(found, "no Kafka jars in {}: run `cargo xtask kafka-jars` first", jars.display());
    let mut java = Command::new("java")
        .args([
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
        ])
        .arg(format!("{}/*", jars.display()))
        .arg(here.join("tests/java/ConfigNames.java"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("java runs; install a JDK");
    java.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("java reads");
    let output = java.wait_with_output().expect("java ends");
    assert!(output.status.success(), "java failed: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn kind(def: &ConfigDef) -> &'static str {
    match def.kind {
        ConfigKind::Boolean => "BOOLEAN",
        ConfigKind::String => "STRING",
        ConfigKind::Int => "INT",
        ConfigKind::Short => "SHORT",
        ConfigKind::Long => "LONG",
        ConfigKind::Double => "DOUBLE",
        ConfigKind::List => "LIST",
        ConfigKind::Class => "CLASS",
        ConfigKind::Password => "PASSWORD",
    }
}

/// Allowed values in Kafka's notation.
fn allowed(def: &ConfigDef) -> String {
    match def.allowed {
        Allowed::Any => String::new(),
        Allowed::Min(min) => format!("[{min},...]"),
        Allowed::Range { min, max } => format!("[{min},...,{max}]"),
        Allowed::RangeOr { min, max, or } => format!("[{min},...,{max}] or {or}"),
        Allowed::Between(min, max) => format!("[{min},...,{max}]"),
        Allowed::OneOf(names) | Allowed::EachOf(names) => format!("[{}]", names.join(", ")),
        Allowed::ThrottledReplicas => "[partitionId]:[brokerId],[partitionId]:[brokerId],...".to_owned(),
    }
}

fn compare(table: &[ConfigDef], kafka: &BTreeMap<&str, &[String]>) {
    for def in table.iter().filter(|def| !def.name.starts_with("weir.") && !DYNAMIC_ONLY.contains(&def.name))
    {
        let row = kafka.get(def.name).unwrap_or_else(|| panic!("Kafka has no config {}", def.name));
        assert_eq!(kind(def), row[2], "type of {}", def.name);
        if !OTHER_RANGES.contains(&def.name) {
            let theirs = if row[4].starts_with("non-") { "" } else { &row[4] };
            assert_eq!(allowed(def), theirs, "allowed values of {}", def.name);
        }
        let ours = def.default.map_or_else(|| "-".to_owned(), |value| format!("={value}"));
        if OTHER_DEFAULTS.contains(&def.name) {
            assert_ne!(ours, row[3], "default of {} is Kafka's after all", def.name);
        } else {
            assert_eq!(ours, row[3], "default of {}", def.name);
        }
    }
}

#[test]
fn names_types_defaults_and_ranges_are_kafkas() {
    let rows = ask_kafka("");
    let of = |table: &str| -> BTreeMap<&str, &[String]> {
        let rows = rows.iter().filter(|row| row[0] == table);
        rows.map(|row| (row[1].as_str(), row.as_slice())).collect()
    };
    let topics = of("topic");
    for name in topics.keys() {
        assert!(topic_config(name).is_some(), "Kafka's topic config {name} is missing");
    }
    compare(TOPIC_CONFIGS, &topics);
    compare(NODE_CONFIGS, &of("node"));
}

#[test]
fn refusals_begin_with_kafkas_words() {
    let values = [
        "",
        "-5",
        "-1",
        "0",
        "1",
        "2",
        "0.5",
        "10",
        "1048576",
        "99999999999",
        "abc",
        " 7 ",
        "true",
        "FALSE",
        "yes",
        "*",
        "0:1,1:2",
        "delete",
        "compact,delete",
        "delete,foo",
        "gzip",
        "none",
        "LogAppendTime",
        "producer",
        "1.5e3",
    ];
    let cases: Vec<(&ConfigDef, &str)> = TOPIC_CONFIGS
        .iter()
        // Not Kafka's, and one that depends on the broker and not on the value.
        .filter(|def| !def.name.starts_with("weir.") && def.name != "remote.storage.enable")
        .flat_map(|def| values.iter().map(move |value| (def, *value)))
        .collect();
    let lines: String = cases.iter().map(|(def, value)| format!("{}\t{value}\n", def.name)).collect();
    let rows = ask_kafka(&lines);
    let verdicts: Vec<&str> =
        rows.iter().filter(|row| row[0] == "verdict").map(|row| row[1].as_str()).collect();
    assert_eq!(verdicts.len(), cases.len());
    for ((def, value), kafka) in cases.iter().zip(verdicts) {
        let ours = def.check(value).err().unwrap_or_else(|| "ok".to_owned());
        // Ours go on with the rest of the range.
        assert!(
            ours.starts_with(kafka) && (kafka != "ok" || ours == "ok"),
            "{}={value:?}: {ours}, Kafka: {kafka}",
            def.name
        );
    }
}
