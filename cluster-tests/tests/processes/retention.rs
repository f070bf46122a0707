//! Records that were kept long enough, or deleted by a client, go from every copy, whatever their timestamps say (T-114), and
//! readers learn where the log begins now.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cluster_tests::clients::{kafka_tool, kcat};
use cluster_tests::clock::{unix_ms, wait_until};
use cluster_tests::replicated_cluster::{Daemon, ReplicatedCluster, Role, Shape};
use cluster_tests::run_dir::RunDir;
use kafka_wire::{Client, ClientConfig};
use kafka_wire_core::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use kafka_wire_core::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kafka_wire_core::{ErrorCode, Records};
use records::BatchBuilder;

use crate::raw_connection::RawConnection;

/// How long a change may take to be everywhere on a busy machine.
const SEEN_LIMIT: Duration = Duration::from_secs(60);

const YEAR_MS: i64 = 365 * 24 * 3_600_000;
/// Of a record in each partition of a topic whose timestamps are hostile.
const HOSTILE: [&str; 5] = ["in 100 years", "i64::MAX", "-1", "0", "now"];
const RECORD_BYTES: usize = 200_000;
/// The last version that names topics.
const PRODUCE: i16 = 12;

/// Names of files of the topics in a node's data directory.
fn files(data: &Path) -> Vec<String> {
    let directories =
        fs::read_dir(data).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let inside =
        directories.flat_map(|directory| fs::read_dir(directory.path()).into_iter().flatten().flatten());
    inside.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn produce(bootstrap: &str, records: std::ops::Range<u32>) {
    let lines: String = records.map(|number| format!("{number}\n")).collect();
    kcat(bootstrap, &["-P", "-t", "aging", "-p", "0", "-X", "acks=all"], lines.as_bytes());
}

fn read_from(bootstrap: &str, offset: &str) -> String {
    let args = [
        "-C",
        "-t",
        "aging",
        "-p",
        "0",
        "-o",
        offset,
        "-e",
        "-f",
        "%o:%s ",
        "-X",
        "auto.offset.reset=earliest",
    ];
    kcat(bootstrap, &args, b"")
}

/// Two records at the leader, which answers without waiting for its followers.
fn produce_uncommitted(leader: &str) {
    let mut batch = BatchBuilder::new();
    for value in ["10", "11"] {
        batch.push(unix_ms(), None, Some(value.as_bytes()), &[]).expect("small");
    }
    let records = Some(Records::Bytes(Bytes::from(batch.build())));
    let data = TopicProduceData {
        name: "aging".into(),
        partition_data: vec![PartitionProduceData { index: 0, records }],
        ..TopicProduceData::default()
    };
    let request =
        ProduceRequest { acks: 1, timeout_ms: 10_000, topic_data: vec![data], ..ProduceRequest::default() };
    let response = RawConnection::open(leader).call(&request, PRODUCE).expect("answered");
    let answer = &response.responses[0].partition_responses[0];
    assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::None, 10));
}

/// Nothing of the topic is to be kept. A client library would ask any node for it, also one that stands still.
fn expire_soon(node: &str) {
    let retention =
        AlterableConfig { name: "retention.ms".into(), config_operation: 0, value: Some("100".into()) };
    let configs = vec![retention];
    let topic = AlterConfigsResource { resource_type: 2, resource_name: "aging".into(), configs };
    let request = IncrementalAlterConfigsRequest { resources: vec![topic], validate_only: false };
    let response = RawConnection::open(node).call(&request, 1).expect("answered");
    assert_eq!(response.responses[0].error_code, ErrorCode::None);
}

/// The copy of a node that stands still as well (T-113).
#[test]
fn what_goes_goes_from_every_copy() {
    let run_dir = RunDir::new("retention");
    let settings = vec!["kafka.log.retention.check.interval.ms=200".to_owned()];
    let shape = Shape { controllers: 1, node_settings: settings, ..Shape::default() };
    let mut cluster = ReplicatedCluster::start(run_dir.path(), &shape).expect("loopback needs no permission");
    let (bootstrap, leader) = (cluster.bootstrap(), cluster.node(1).kafka());
    let create = ["--create", "--topic", "aging", "--replica-assignment", "1:2:3"];
    let create = [&create[..], &["--config", "file.delete.delay.ms=100"]].concat();
    kafka_tool("kafka-topics", &bootstrap, &create, b"");
    produce(&bootstrap, 0..10);

    let json = run_dir.join("delete.json");
    let wanted = r#"{"version":1,"partitions":[{"topic":"aging","partition":0,"offset":7}]}"#;
    fs::write(&json, wanted).expect("the run folder can be written");
    let json = json.display().to_string();
    let deleted = kafka_tool("kafka-delete-records", &bootstrap, &["--offset-json-file", &json], b"");
    assert!(deleted.contains("low_watermark: 7"), "{deleted}");
    assert_eq!(read_from(&bootstrap, "2"), "7:7 8:8 9:9 ");

    // A follower stands still for longer than records are kept: what it has not got is not committed until it has lost its
    // place in sync, and goes after that only.
    cluster.node(3).pause();
    produce_uncommitted(&leader);
    expire_soon(&leader);
    let wait_for = |node: &Daemon, names: &[&str]| {
        let mut seen = Vec::new();
        let gone = wait_until(SEEN_LIMIT, || {
            seen = files(&node.data);
            let logs: Vec<_> = seen.iter().filter(|name| name.ends_with(".log")).collect();
            (logs == names && !seen.iter().any(|name| name.ends_with(".deleted"))).then_some(())
        });
        assert!(gone.is_some(), "{} still has {seen:?}", node.name());
    };
    let empty = ["00000000000000000012.log"];
    wait_for(cluster.node(1), &empty);
    wait_for(cluster.node(2), &empty);
    wait_for(cluster.node(3), &["00000000000000000000.log"]);
    cluster.node(3).resume();
    wait_for(cluster.node(3), &empty);

    let keep = ["--alter", "--topic", "aging", "--add-config", "retention.ms=-1"];
    kafka_tool("kafka-configs", &bootstrap, &keep, b"");
    produce(&bootstrap, 12..14);
    assert_eq!(read_from(&bootstrap, "2"), "12:12 13:13 ");
}

fn create(bootstrap: &str, topic: &str, configs: &[&str]) {
    // Node 1 leads, so that records can be sent to it without asking.
    let assignment = vec!["1:2:3"; HOSTILE.len()].join(",");
    let mut args = vec!["--create", "--topic", topic, "--replica-assignment", &assignment];
    args.extend(configs.iter().flat_map(|config| ["--config", config]));
    kafka_tool("kafka-topics", bootstrap, &args, b"");
}

/// Sends to each partition a record with another timestamp, as no client library would; what the node answers.
fn produce_hostile(leader: &str, topic: &str) -> Vec<ErrorCode> {
    let now = unix_ms();
    let timestamps = [now + 100 * YEAR_MS, i64::MAX, -1, 0, now];
    let partition = |(index, timestamp)| {
        let mut batch = BatchBuilder::new();
        batch.push(timestamp, None, Some(&[b'x'; RECORD_BYTES]), &[]).expect("small");
        PartitionProduceData { index, records: Some(Records::Bytes(Bytes::from(batch.build()))) }
    };
    let data = TopicProduceData {
        name: topic.into(),
        partition_data: (0..).zip(timestamps).map(partition).collect(),
        ..TopicProduceData::default()
    };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![data], ..ProduceRequest::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let response = runtime.block_on(async {
        let config = ClientConfig::new(vec![leader.parse().expect("an address")]);
        let client = Client::connect(config).await.expect("the node is up");
        let connection = client.any().await.expect("the node is up");
        connection.call_version(&request, PRODUCE).await.expect("it answers")
    });
    let partitions = response.responses.into_iter().flat_map(|topic| topic.partition_responses);
    let mut answers: Vec<_> = partitions.map(|p| (p.index, p.error_code)).collect();
    answers.sort_unstable_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, error)| error).collect()
}

fn bytes_of_segments(data: &Path) -> u64 {
    let dirs = fs::read_dir(data).into_iter().flatten().flatten();
    let files = dirs.flat_map(|dir| fs::read_dir(dir.path()).into_iter().flatten().flatten());
    let segments = files.filter(|file| file.file_name().to_string_lossy().contains(".log"));
    segments.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[test]
fn no_timestamp_keeps_records_of_an_idle_topic_for_ever_or_lets_them_go_early() {
    let run_dir = RunDir::new("hostile-timestamps");
    let settings = vec!["kafka.log.retention.check.interval.ms=200".to_owned()];
    let shape = Shape { controllers: 1, node_settings: settings, ..Shape::default() };
    let mut cluster = ReplicatedCluster::start(run_dir.path(), &shape).expect("loopback needs no permission");
    let (bootstrap, leader) = (cluster.bootstrap(), cluster.node(1).kafka());
    let any_time = "message.timestamp.after.max.ms=9223372036854775807";
    create(&bootstrap, "refused", &["file.delete.delay.ms=100"]);
    create(&bootstrap, "idle", &[any_time, "retention.ms=-1", "file.delete.delay.ms=100"]);
    create(&bootstrap, "kept", &[any_time, "file.delete.delay.ms=100"]);

    let answers = produce_hostile(&leader, "refused");
    let (far, near) = (ErrorCode::InvalidTimestamp, ErrorCode::None);
    assert_eq!(answers, [far, far, near, near, near], "timestamps {HOSTILE:?}, as no config allows them");
    for topic in ["idle", "kept"] {
        assert_eq!(produce_hostile(&leader, topic), [near; HOSTILE.len()], "{topic}");
    }
    let count = |topic: &str| {
        let read = kcat(&bootstrap, &["-C", "-t", topic, "-o", "beginning", "-e", "-f", "%p "], b"");
        read.split_whitespace().count()
    };
    assert_eq!(count("idle"), HOSTILE.len());

    // From now on nobody writes, and the only segment of each partition is the one that takes appends.
    let alter = ["--alter", "--topic", "idle", "--add-config", "retention.ms=1000"];
    kafka_tool("kafka-configs", &bootstrap, &alter, b"");
    // Of the other two topics only the record of 1970 is as old as it says; it is older than a week.
    let (kept, refused) = (4, 2);
    let left = RECORD_BYTES as u64 * (kept + refused) as u64;
    for node in cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode) {
        let mut seen = 0;
        let freed = wait_until(SEEN_LIMIT, || {
            seen = bytes_of_segments(&node.data);
            (seen < left + RECORD_BYTES as u64).then_some(())
        });
        assert!(freed.is_some(), "{} still has {seen} bytes: {:?}", node.name(), files(&node.data));
        assert!(seen >= left, "{} has {seen} bytes, what is kept for a week are {left}", node.name());
    }
    assert_eq!((count("idle"), count("kept"), count("refused")), (0, kept, refused));
}
