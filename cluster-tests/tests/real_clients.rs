//! Stock clients do their daily work: Apache Kafka's tools, kcat, Kafka's Java producer, and `weir`.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;

use cluster_tests::clients::{
    ReadRecord, all_output, java, java_read, kafka_tool, kafka_tool_output, kcat, kcat_read, weir,
    weir_output, weir_read,
};
use cluster_tests::local_cluster::Subject;

/// Keyed lines `key<separator>value` of ten users, and what must come back for each key.
fn keyed_lines(separator: char, count: usize) -> (String, BTreeMap<String, Vec<String>>) {
    let mut text = String::new();
    let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for n in 0..count {
        let (key, value) = (format!("user-{}", n % 10), format!("click-{n}"));
        text.push_str(&format!("{key}{separator}{value}\n"));
        by_key.entry(key).or_default().push(value);
    }
    (text, by_key)
}

/// Values by key, in the order of each partition; a key in two partitions is a failure.
fn values_by_key(records: &[ReadRecord]) -> BTreeMap<String, Vec<String>> {
    let mut homes: BTreeMap<String, i32> = BTreeMap::new();
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in records {
        let key = record.key.clone().expect("all records of this test have keys");
        let home = *homes.entry(key.clone()).or_insert(record.partition);
        assert_eq!(home, record.partition, "key {key} is in two partitions");
        values.entry(key).or_default().push(record.value.clone());
    }
    values
}

/// Offsets of each partition count from 0 without a hole.
fn assert_dense(records: &[ReadRecord]) {
    let mut next: BTreeMap<i32, i64> = BTreeMap::new();
    for record in records {
        let expected = next.entry(record.partition).or_insert(0);
        assert_eq!(record.offset, *expected, "partition {}", record.partition);
        *expected += 1;
    }
}

fn create(bootstrap: &str, topic: &str, partitions: &str) {
    kafka_tool("kafka-topics", bootstrap, &["--create", "--topic", topic, "--partitions", partitions], b"");
}

#[test]
fn kafka_tools_create_produce_and_consume_with_keys() {
    let subject = Subject::start("kafka_tools");
    let at = subject.bootstrap();
    let created =
        kafka_tool("kafka-topics", &at, &["--create", "--topic", "ad-events", "--partitions", "3"], b"");
    assert!(created.contains("Created topic ad-events."), "{created}");
    let described = kafka_tool("kafka-topics", &at, &["--describe", "--topic", "ad-events"], b"");
    assert!(described.contains("PartitionCount: 3"), "{described}");
    assert_eq!(described.matches("Leader: ").count(), 3, "{described}");
    assert!(!described.contains("Leader: none"), "{described}");

    let (lines, expected) = keyed_lines(':', 300);
    let keyed = [
        "--topic",
        "ad-events",
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=:",
    ];
    kafka_tool("kafka-console-producer", &at, &keyed, lines.as_bytes());

    let mut records = Vec::new();
    let ends = kafka_tool("kafka-get-offsets", &at, &["--topic", "ad-events"], b"");
    for partition in ["0", "1", "2"] {
        let prefix = format!("ad-events:{partition}:");
        let end = ends.lines().find_map(|line| line.strip_prefix(&prefix)).expect("it is told");
        let mut args = vec!["--topic", "ad-events", "--partition", partition, "--from-beginning"];
        args.extend(["--max-messages", end, "--timeout-ms", "60000"]);
        for property in ["print.key=true", "print.offset=true", "print.partition=true"] {
            args.extend(["--formatter-property", property]);
        }
        let text = kafka_tool("kafka-console-consumer", &at, &args, b"");
        records.extend(text.lines().map(console_record));
    }
    assert_dense(&records);
    assert_eq!(values_by_key(&records), expected);
}

/// `Partition:0`, `Offset:0`, key and value between tabs.
fn console_record(line: &str) -> ReadRecord {
    let fields: Vec<&str> = line.split('\t').collect();
    let number = |text: &str, name: &str| text.strip_prefix(name).unwrap().parse::<i64>().unwrap();
    ReadRecord {
        partition: number(fields[0], "Partition:").try_into().unwrap(),
        offset: number(fields[1], "Offset:"),
        key: Some(fields[2].to_owned()),
        value: fields[3].to_owned(),
    }
}

#[test]
fn kcat_writes_and_reads_in_every_codec() {
    let subject = Subject::start("kcat_codecs");
    let at = subject.bootstrap();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("by-kcat-{codec}");
        create(&at, &topic, "3");
        let (lines, expected) = keyed_lines('|', 500);
        let args =
            ["-P", "-t", &topic, "-K", "|", "-z", codec, "-X", "acks=all", "-X", "enable.idempotence=true"];
        kcat(&at, &args, lines.as_bytes());
        let records = kcat_read(&at, &topic);
        assert_dense(&records);
        assert_eq!(values_by_key(&records), expected, "{codec}");
        // The other client library reads the same bytes.
        let mut by_java = java_read(&at, &topic);
        by_java.sort_by_key(|record| (record.partition, record.offset));
        let mut by_kcat = records;
        by_kcat.sort_by_key(|record| (record.partition, record.offset));
        assert_eq!(by_java, by_kcat, "{codec}");
    }
}

#[test]
fn kcat_lists_topics_and_finds_offsets_by_time() {
    let subject = Subject::start("kcat_offsets");
    let at = subject.bootstrap();
    create(&at, "timed", "1");
    kcat(&at, &["-P", "-t", "timed", "-X", "acks=all"], b"one\ntwo\nthree\n");
    let listing = kcat(&at, &["-L", "-t", "timed"], b"");
    assert!(listing.contains("topic \"timed\" with 1 partitions"), "{listing}");

    let stamps = kcat(&at, &["-C", "-t", "timed", "-o", "beginning", "-e", "-f", "%T\n"], b"");
    let first: i64 = stamps.lines().next().unwrap().parse().unwrap();
    let earliest = kcat(&at, &["-Q", "-t", "timed:0:-2"], b"");
    assert!(earliest.contains("offset 0"), "{earliest}");
    let latest = kcat(&at, &["-Q", "-t", "timed:0:-1"], b"");
    assert!(latest.contains("offset 3"), "{latest}");
    let by_time = kcat(&at, &["-Q", "-t", &format!("timed:0:{first}")], b"");
    assert!(by_time.contains("offset 0"), "{by_time}");
    // From the second record on, and the last one only.
    assert_eq!(kcat(&at, &["-C", "-t", "timed", "-o", "1", "-e"], b""), "two\nthree\n");
    assert_eq!(kcat(&at, &["-C", "-t", "timed", "-o", "-1", "-e"], b""), "three\n");
}

#[test]
fn java_producer_is_idempotent_with_acks_all() {
    let subject = Subject::start("java_producer");
    let at = subject.bootstrap();
    create(&at, "by-java", "3");
    let (lines, expected) = keyed_lines('\t', 2_000);
    let told =
        java("ProduceLines", &[&at, "by-java", "batch.size=1000", "compression.type=lz4"], lines.as_bytes());
    assert_eq!(told.trim(), "acknowledged 2000");
    let records = kcat_read(&at, "by-java");
    assert_dense(&records);
    assert_eq!(values_by_key(&records), expected);
}

#[test]
fn kafka_admin_tools_work() {
    let subject = Subject::start("admin_tools");
    let at = subject.bootstrap();
    create(&at, "administered", "2");
    kcat(&at, &["-P", "-t", "administered", "-p", "0", "-X", "acks=all"], b"a\nb\nc\nd\n");

    let alter = [
        "--alter",
        "--topic",
        "administered",
        "--add-config",
        "max.message.bytes=2048,retention.ms=86400000",
    ];
    kafka_tool("kafka-configs", &at, &alter, b"");
    let shown = kafka_tool("kafka-configs", &at, &["--describe", "--topic", "administered"], b"");
    assert!(shown.contains("max.message.bytes=2048") && shown.contains("retention.ms=86400000"), "{shown}");
    let all = kafka_tool("kafka-configs", &at, &["--describe", "--all", "--topic", "administered"], b"");
    assert!(all.contains("segment.bytes=1073741824"), "{all}");

    kafka_tool("kafka-topics", &at, &["--alter", "--topic", "administered", "--partitions", "4"], b"");
    let described = kafka_tool("kafka-topics", &at, &["--describe", "--topic", "administered"], b"");
    assert!(described.contains("PartitionCount: 4"), "{described}");

    let offsets = kafka_tool("kafka-get-offsets", &at, &["--topic", "administered"], b"");
    assert!(offsets.contains("administered:0:4") && offsets.contains("administered:3:0"), "{offsets}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let json = r#"{"version":1,"partitions":[{"topic":"administered","partition":0,"offset":3}]}"#;
    std::fs::write(file.path(), json).unwrap();
    let path = file.path().display().to_string();
    let deleted = kafka_tool("kafka-delete-records", &at, &["--offset-json-file", &path], b"");
    assert!(deleted.contains("low_watermark: 3"), "{deleted}");
    assert_eq!(kcat(&at, &["-C", "-t", "administered", "-p", "0", "-o", "beginning", "-e"], b""), "d\n");

    let dirs = kafka_tool("kafka-log-dirs", &at, &["--describe", "--topic-list", "administered"], b"");
    assert!(dirs.contains("\"partition\":\"administered-0\""), "{dirs}");
    let versions = kafka_tool("kafka-broker-api-versions", &at, &[], b"");
    assert!(versions.contains("Produce(0): 0 to "), "{versions}");

    kafka_tool("kafka-topics", &at, &["--delete", "--topic", "administered"], b"");
    let list = kafka_tool("kafka-topics", &at, &["--list"], b"");
    assert!(!list.contains("administered"), "{list}");
}

#[test]
fn bad_administration_is_refused_with_kafkas_codes_and_a_reason() {
    let subject = Subject::start("bad_administration");
    let at = subject.bootstrap();
    create(&at, "narrow", "3");
    let refused = |tool: &str, args: &[&str], wanted: &[&str]| {
        let output = kafka_tool_output(tool, &at, args, b"");
        let text = all_output(&output);
        for words in wanted {
            assert!(text.contains(words), "{tool} {args:?} should say {words}:\n{text}");
        }
    };
    let create = "--create";
    refused("kafka-topics", &[create, "--topic", "narrow", "--partitions", "1"], &["TopicExistsException"]);
    refused(
        "kafka-topics",
        &[create, "--topic", "a/b", "--partitions", "1"],
        &["InvalidTopicException", "a/b"],
    );
    refused(
        "kafka-topics",
        &["--alter", "--topic", "narrow", "--partitions", "2"],
        &["InvalidPartitionsException", "3"],
    );
    refused(
        "kafka-topics",
        &[create, "--topic", "wide", "--partitions", "1", "--replication-factor", "3"],
        &["InvalidReplicationFactorException", "3"],
    );
    refused(
        "kafka-configs",
        &["--alter", "--topic", "narrow", "--add-config", "retention.ms=soon"],
        &["InvalidConfigurationException", "retention.ms"],
    );
    refused(
        "kafka-configs",
        &["--alter", "--topic", "narrow", "--add-config", "no.such.config=1"],
        &["InvalidConfigurationException", "no.such.config"],
    );
    refused("kafka-configs", &["--describe", "--topic", "nowhere"], &["nowhere"]);
}

#[test]
fn weir_does_the_same() {
    let subject = Subject::start("weir_commands");
    let at = subject.bootstrap();
    weir(&at, &["topic", "create", "ad-events", "--partitions", "3"], b"");
    let list = weir(&at, &["topic", "list", "--output", "json"], b"");
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert!(list.to_string().contains("ad-events"), "{list}");
    let described = weir(&at, &["topic", "describe", "ad-events"], b"");
    assert!(described.contains("ad-events"), "{described}");

    let (lines, expected) = keyed_lines(':', 1_000);
    weir(&at, &["produce", "ad-events", "--key-separator", ":"], lines.as_bytes());
    let records = weir_read(&at, "ad-events", 1_000);
    assert_dense(&records);
    assert_eq!(values_by_key(&records), expected);
    assert_eq!(values_by_key(&kcat_read(&at, "ad-events")), expected);

    // The same key goes to the same partition as with Java's producer.
    java("ProduceLines", &[&at, "ad-events"], lines.replace(':', "\t").as_bytes());
    let twice: BTreeMap<String, Vec<String>> =
        expected.into_iter().map(|(key, values)| (key, [values.clone(), values].concat())).collect();
    assert_eq!(values_by_key(&kcat_read(&at, "ad-events")), twice);

    let status = weir(&at, &["cluster", "status"], b"");
    assert!(status.contains("127.0.0.1"), "{status}");
    weir(&at, &["topic", "delete", "ad-events"], b"");
    let missing = weir_output(&at, &["topic", "describe", "ad-events"], b"");
    assert!(!missing.status.success());
    assert!(all_output(&missing).contains("ad-events"), "{}", all_output(&missing));
}
