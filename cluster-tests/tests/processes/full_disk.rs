//! A small disk fills under load and empties again: producers are refused with a reason and go on when there is room,
//! everything else works on, the process is never restarted, and nothing that was acknowledged is lost. And a disk on which
//! another file has taken every byte: the node starts, serves and deletes (T-117).

use std::time::Duration;

use bytes::Bytes;
use cluster_tests::clients::{kafka_tool, kcat, kcat_read, weir};
use cluster_tests::clock::{unix_ms, wait_until};
use cluster_tests::disks::Disks;
use cluster_tests::guard::Guard;
use cluster_tests::http;
use cluster_tests::load::{Load, check_promises};
use cluster_tests::replicated_cluster::{ReplicatedCluster, Shape};
use cluster_tests::run_dir::RunDir;
use kafka_wire_core::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use kafka_wire_core::{ErrorCode, Records};
use records::BatchBuilder;

use crate::raw_connection::RawConnection;

const DISK_MIB: u64 = 64;
const NODE: &str = "storage-node-1";
/// How long a change may take to be seen on a busy machine.
const SEEN_LIMIT: Duration = Duration::from_secs(60);
const RECORD_BYTES: usize = 900_000;
const PROGRESS: usize = 200;

/// Random enough that no codec makes much less of it, and no newline.
fn large_record(seed: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + ((state >> 40) % 26) as u8
    };
    (0..RECORD_BYTES).map(|_| byte()).collect()
}

/// One produce request of one record, with acks=all; what is answered about it.
fn produce(bootstrap: &str, topic: &str, value: &[u8]) -> PartitionProduceResponse {
    let mut batch = BatchBuilder::new();
    batch.push(unix_ms(), None, Some(value), &[]).expect("it is far below the largest batch");
    let records = Some(Records::Bytes(Bytes::from(batch.build())));
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            partition_data: vec![PartitionProduceData { index: 0, records }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    let mut client = RawConnection::open(bootstrap);
    client.assert_alive();
    let response = client.call(&request, 9);
    response.expect("a well-behaved client is answered").responses.remove(0).partition_responses.remove(0)
}

/// Producers are refused with a code that clients retry, in words that say what is wrong and what to do about it.
fn check_refused(answer: &PartitionProduceResponse) {
    assert_eq!(answer.error_code, ErrorCode::KafkaStorageError, "{answer:?}");
    let words = answer.error_message.as_deref().unwrap_or_default();
    assert!(words.contains("the broker's disk") && words.contains("topics or records"), "{answer:?}");
    assert_eq!(answer.base_offset, -1, "{answer:?}");
}

/// Sends large records until they do not fit any more, and says what the client was told then.
fn fill(bootstrap: &str) -> PartitionProduceResponse {
    let mut answers =
        (0..2 * DISK_MIB as usize).map(|seed| produce(bootstrap, "filler", &large_record(seed)));
    answers
        .find(|answer| answer.error_code != ErrorCode::None)
        .expect("a small disk does not take everything")
}

/// The offset that a group has committed for the only partition of `topic`.
fn committed(bootstrap: &str, group: &str, topic: &str) -> Option<i64> {
    let args = ["--describe", "--group", group, "--offsets"];
    let text = kafka_tool("kafka-consumer-groups", bootstrap, &args, b"");
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let columns = rows.clone().find(|row| row.contains(&"CURRENT-OFFSET"))?;
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let (topic_at, offset_at) = (column("TOPIC")?, column("CURRENT-OFFSET")?);
    let row = rows.into_iter().find(|row| row.get(topic_at) == Some(&topic))?;
    row.get(offset_at)?.parse().ok()
}

/// Whether file systems can be mounted here. Where everything is to be tested, that they cannot is a failure.
fn can_mount() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    assert!(
        is_root || std::env::var_os("CI").is_none(),
        "only root can mount the file systems that are to be full"
    );
    if !is_root {
        eprintln!("file systems can be mounted by root alone: nothing was tested");
    }
    is_root
}

fn metric(cluster: &mut ReplicatedCluster, name: &str) -> Option<f64> {
    let (_, text) = http::get(cluster.node(1).http(), "/metrics")?;
    text.lines().find_map(|line| line.strip_prefix(name)?.split_once("} ")?.1.parse().ok())
}

fn wait_for_full(cluster: &mut ReplicatedCluster, full: f64) {
    let seen = wait_until(SEEN_LIMIT, || {
        (metric(cluster, "weir_storage_node_disk_full{") == Some(full)).then_some(())
    });
    let free = metric(cluster, "weir_storage_node_disk_free_bytes{");
    assert!(seen.is_some(), "weir_storage_node_disk_full should be {full}; {free:?} bytes are free");
}

#[test]
fn a_small_disk_fills_under_load_and_empties_again() {
    if !can_mount() {
        return;
    }
    let run_dir = RunDir::new("full-disk");
    let mounts = run_dir.join("disks");
    let _guard = Guard::start("weir-full-disk", "weir-full-disk", &mounts).expect("a shell can be started");
    let shape = Shape { controllers: 1, nodes: 1, ..Shape::default() };
    let mut cluster =
        ReplicatedCluster::prepare(run_dir.path(), &shape).expect("loopback needs no permission");
    Disks::new(&run_dir.join("images"), &mounts).make(NODE, DISK_MIB).expect("root mounts a loop device");
    cluster.daemons_mut().iter_mut().for_each(|daemon| daemon.start());
    cluster.wait_ready();
    let bootstrap = cluster.bootstrap();
    for topic in ["kept", "filler"] {
        kafka_tool("kafka-topics", &bootstrap, &["--create", "--topic", topic, "--partitions", "1"], b"");
    }
    kcat(&bootstrap, &["-P", "-t", "kept", "-p", "0", "-X", "acks=all"], b"first\n");
    weir(&bootstrap, &["topic", "create", "promised", "--partitions", "1"], b"");
    let load = Load::start(&bootstrap, "promised", 1, 50);
    load.wait_for_progress(0, PROGRESS);

    check_refused(&fill(&bootstrap));
    wait_for_full(&mut cluster, 1.0);
    assert_eq!(metric(&mut cluster, "weir_storage_time_to_full_seconds{"), Some(0.0));

    // What does not write records of clients works on.
    check_refused(&produce(&bootstrap, "kept", b"refused"));
    assert_eq!(kcat(&bootstrap, &["-C", "-t", "kept", "-o", "beginning", "-e"], b""), "first\n");
    let group = ["-G", "readers", "kept", "-X", "auto.offset.reset=earliest", "-c", "1"];
    assert_eq!(kcat(&bootstrap, &group, b""), "first\n");
    let read = wait_until(SEEN_LIMIT, || committed(&bootstrap, "readers", "kept"));
    assert_eq!(read, Some(1), "a group commits while producers are refused");
    kafka_tool("kafka-topics", &bootstrap, &["--create", "--topic", "more", "--partitions", "1"], b"");

    kafka_tool("kafka-topics", &bootstrap, &["--delete", "--topic", "filler"], b"");
    wait_for_full(&mut cluster, 0.0);
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    assert_eq!(cluster.node(1).ended(), None);
    let answers = load.finish();
    check_promises(&answers, &kcat_read(&bootstrap, "promised"));
    assert_eq!(committed(&bootstrap, "readers", "kept"), Some(1));
    kcat(&bootstrap, &["-P", "-t", "kept", "-p", "0", "-X", "acks=all"], b"second\n");
    assert_eq!(kcat(&bootstrap, &["-C", "-t", "kept", "-o", "beginning", "-e"], b""), "first\nsecond\n");
    cluster.stop();
}

/// Takes every byte, also what the node gives back meanwhile.
fn fill_to_the_last_byte(disks: &Disks) {
    let full = wait_until(SEEN_LIMIT, || {
        disks.fill(NODE).expect("the file system has fallocate");
        (disks.free_bytes(NODE).expect("it is mounted") == 0).then_some(())
    });
    assert!(full.is_some(), "{:?} bytes are free", disks.free_bytes(NODE));
}

fn earliest(bootstrap: &str, topic: &str) -> String {
    let offsets = kafka_tool("kafka-get-offsets", bootstrap, &["--topic", topic, "--time", "earliest"], b"");
    offsets.trim().to_owned()
}

/// What works on a disk without any room.
fn check_full(bootstrap: &str, kept: &str) {
    check_refused(&produce(bootstrap, "kept", b"refused"));
    assert_eq!(kcat(bootstrap, &["-C", "-t", "kept", "-o", "beginning", "-e"], b""), kept);
}

#[test]
fn a_node_starts_on_a_disk_without_any_room() {
    if !can_mount() {
        return;
    }
    let run_dir = RunDir::new("no-room");
    let mounts = run_dir.join("disks");
    let _guard = Guard::start("weir-no-room", "weir-no-room", &mounts).expect("a shell can be started");
    let shape = Shape { controllers: 1, nodes: 1, ..Shape::default() };
    let mut cluster =
        ReplicatedCluster::prepare(run_dir.path(), &shape).expect("loopback needs no permission");
    let disks = Disks::new(&run_dir.join("images"), &mounts);
    disks.make(NODE, DISK_MIB).expect("root mounts a loop device");
    cluster.daemons_mut().iter_mut().for_each(|daemon| daemon.start());
    cluster.wait_ready();
    let bootstrap = cluster.bootstrap();
    for topic in ["kept", "shortened", "deleted"] {
        let segments =
            ["--create", "--topic", topic, "--partitions", "1", "--config", "segment.bytes=1048576"];
        kafka_tool("kafka-topics", &bootstrap, &segments, b"");
    }
    for topic in ["shortened", "deleted"] {
        for seed in 0..6 {
            kcat(&bootstrap, &["-P", "-t", topic, "-p", "0", "-X", "acks=all"], &large_record(seed));
        }
    }
    let load = Load::start(&bootstrap, "kept", 1, 50);
    load.wait_for_progress(0, PROGRESS);
    let answers = load.finish();
    fill_to_the_last_byte(&disks);
    cluster.node(1).kill();
    fill_to_the_last_byte(&disks);

    cluster.node(1).start();
    cluster.wait_ready();
    wait_for_full(&mut cluster, 1.0);
    fill_to_the_last_byte(&disks);
    let kept = kcat(&bootstrap, &["-C", "-t", "kept", "-o", "beginning", "-e"], b"");
    check_promises(&answers, &kcat_read(&bootstrap, "kept"));
    check_full(&bootstrap, &kept);
    let json = run_dir.join("shorter.json");
    let offsets = r#"{"partitions":[{"topic":"shortened","partition":0,"offset":3}],"version":1}"#;
    std::fs::write(&json, offsets).expect("the folder is writable");
    let json = json.display().to_string();
    kafka_tool("kafka-delete-records", &bootstrap, &["--offset-json-file", &json], b"");
    assert_eq!(earliest(&bootstrap, "shortened"), "shortened:0:3");

    // Whoever fills the disk takes what was given back, and the node stops and starts once more.
    fill_to_the_last_byte(&disks);
    cluster.node(1).stop();
    fill_to_the_last_byte(&disks);
    cluster.node(1).start();
    cluster.wait_ready();
    check_full(&bootstrap, &kept);
    assert_eq!(earliest(&bootstrap, "shortened"), "shortened:0:3");
    fill_to_the_last_byte(&disks);
    kafka_tool("kafka-topics", &bootstrap, &["--delete", "--topic", "deleted"], b"");
    let gone = wait_until(SEEN_LIMIT, || (disks.free_bytes(NODE).ok()? > 4 << 20).then_some(()));
    assert!(gone.is_some(), "a deleted topic gives its room back");

    disks.free(NODE).expect("the filler can be removed");
    wait_for_full(&mut cluster, 0.0);
    kcat(&bootstrap, &["-P", "-t", "kept", "-p", "0", "-X", "acks=all"], b"second\n");
    let all = kcat(&bootstrap, &["-C", "-t", "kept", "-o", "beginning", "-e"], b"");
    assert!(all == kept + "second\n", "what was there stays, and writes go on");
    assert_eq!(cluster.node(1).ended(), None);
    cluster.stop();
}
