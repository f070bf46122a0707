//! A whole node in process: real certificates, QUIC, disks and Kafka clients; only the controller is played.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake_controller;

use bytes::Bytes;
use fake_controller::{CLUSTER, FakeController};
use kafka_wire::{Client, ClientConfig, HostPort};
use kafka_wire_core::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use kafka_wire_core::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use kafka_wire_core::messages::init_producer_id::InitProducerIdRequest;
use kafka_wire_core::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kafka_wire_core::{ErrorCode, Records};
use proto_types::error::{Reason, Rejection};
use quic_transport::Role;
use quic_transport::pki::CredentialFiles;
use records::BatchBuilder;
use std::path::Path;
use std::time::Duration;
use storage_node::config::{Certificates, ControllerAddress, Listener};
use storage_node::{Config, NodeFailure, NodeHandle, StartError, start};

const PATIENCE: Duration = Duration::from_secs(30);

fn config(controller: &FakeController, dir: &Path) -> Config {
    let files = CredentialFiles::in_directory(&dir.join("certificates"));
    std::fs::create_dir_all(dir.join("certificates")).unwrap();
    controller.cluster.credentials(Role::StorageNode, 1).store(&files).unwrap();
    let any_port = "127.0.0.1:0".parse().unwrap();
    let mut config = Config {
        cluster_id: CLUSTER.to_owned(),
        node_id: 1,
        data_dirs: vec![dir.join("data")],
        controllers: vec![ControllerAddress { id: 1, address: controller.address().to_string() }],
        listeners: vec![Listener { name: "PLAINTEXT".into(), bind: any_port, advertised: None }],
        certificates: Certificates {
            certificate: files.certificate,
            key: files.key,
            authority: files.authority,
        },
        ..Config::default()
    };
    config.control.bind = any_port;
    config.data.bind = any_port;
    config.http.address = any_port;
    config
}

async fn ready(config: Config) -> NodeHandle {
    let node = start(config).await.unwrap();
    tokio::time::timeout(PATIENCE, node.ready()).await.expect("ready in time").expect("ready");
    node
}

async fn client(node: &NodeHandle) -> Client {
    let bound = node.kafka_addresses()[0].bound;
    let bootstrap = vec![HostPort::new(bound.ip().to_string(), bound.port())];
    Client::connect(ClientConfig::new(bootstrap)).await.unwrap()
}

async fn create_topic(client: &Client, name: &str, partitions: i32) {
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, validate_only: false };
    let response = client.call(&request).await.unwrap();
    assert_eq!(response.topics[0].error_code, ErrorCode::None, "{response:?}");
}

async fn produce(client: &Client, topic: &str, text: &str) -> Result<i64, ErrorCode> {
    let mut batch = BatchBuilder::new();
    batch.push(0, None, Some(text.as_bytes()), &[]).unwrap();
    let records = Some(Records::Bytes(Bytes::from(batch.build())));
    let topic_id = client.metadata(Some(&[topic])).await.unwrap().topics[0].topic_id;
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            topic_id,
            partition_data: vec![PartitionProduceData { index: 0, records }],
        }],
        ..ProduceRequest::default()
    };
    let response = client.call(&request).await.unwrap();
    let partition = &response.responses[0].partition_responses[0];
    match partition.error_code {
        ErrorCode::None => Ok(partition.base_offset),
        code => Err(code),
    }
}

/// Produces until it works: right after a change of leader it may take a moment.
async fn produce_soon(client: &Client, topic: &str, text: &str) -> i64 {
    let trying = async {
        loop {
            match produce(client, topic, text).await {
                Ok(offset) => return offset,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, trying).await.expect("produced in time")
}

async fn fetch_all(client: &Client, topic: &str) -> Vec<String> {
    let topic_id = client.metadata(Some(&[topic])).await.unwrap().topics[0].topic_id;
    let request = FetchRequest {
        max_wait_ms: 100,
        min_bytes: 1,
        topics: vec![FetchTopic {
            topic: topic.into(),
            topic_id,
            partitions: vec![FetchPartition {
                partition: 0,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
        }],
        ..FetchRequest::default()
    };
    let response = client.call(&request).await.unwrap();
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::None);
    let Some(Records::Bytes(bytes)) = &partition.records else { return Vec::new() };
    let mut found = Vec::new();
    for batch in records::batches(bytes) {
        let batch = batch.unwrap();
        for record in batch.records(1 << 20).unwrap().iter() {
            let record = record.unwrap();
            found.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_survive_a_restart_and_every_run_is_a_new_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start();
    let node = ready(config(&controller, dir.path())).await;
    let kafka = client(&node).await;
    create_topic(&kafka, "t", 3).await;
    // The answer came after propagation: nothing has to be repeated.
    assert_eq!(produce(&kafka, "t", "one").await, Ok(0));
    assert_eq!(produce(&kafka, "t", "two").await, Ok(1));
    let ids = kafka.call(&InitProducerIdRequest::default()).await.unwrap();
    assert_eq!((ids.error_code, ids.producer_epoch), (ErrorCode::None, 0));
    drop(kafka);
    node.shutdown().await;

    let node = ready(config(&controller, dir.path())).await;
    let kafka = client(&node).await;
    assert_eq!(produce_soon(&kafka, "t", "three").await, 2);
    assert_eq!(fetch_all(&kafka, "t").await, ["one", "two", "three"]);
    let epoch = kafka.metadata(Some(&["t"])).await.unwrap().topics[0].partitions[0].leader_epoch;
    assert!(epoch > 0, "a new incarnation of the leader has a new leader epoch");
    node.shutdown().await;

    let state = controller.state.lock();
    let [first, second] = &state.registrations[..] else { panic!("{:?}", state.registrations) };
    assert_ne!(first.incarnation, second.incarnation);
    assert_eq!(first.directories, second.directories);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_serves_on_while_the_controller_is_away_and_catches_up_after() {
    let dir = tempfile::tempdir().unwrap();
    let mut controller = FakeController::start();
    let node = ready(config(&controller, dir.path())).await;
    let kafka = client(&node).await;
    create_topic(&kafka, "t", 1).await;
    controller.go_away().await;
    assert_eq!(produce(&kafka, "t", "alone").await, Ok(0));
    assert_eq!(fetch_all(&kafka, "t").await, ["alone"]);
    controller.come_back();
    let heartbeats = controller.state.lock().heartbeats;
    create_topic(&kafka, "after", 1).await;
    assert_eq!(produce(&kafka, "after", "together").await, Ok(0));
    assert!(controller.state.lock().heartbeats > heartbeats);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_the_cluster_refuses_gives_up_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start();
    let message = "node 1 is registered with other directories".to_owned();
    controller.state.lock().refuse_registration =
        Some(Rejection { reason: Reason::DuplicateNodeId, message: message.clone() });
    let node = start(config(&controller, dir.path())).await.unwrap();
    let failure = tokio::time::timeout(PATIENCE, node.ready()).await.unwrap().unwrap_err();
    assert_eq!(failure, NodeFailure::Refused(message));
    node.shutdown().await;

    // The same while it runs: another incarnation has taken its place.
    controller.state.lock().refuse_registration = None;
    let node = ready(config(&controller, dir.path())).await;
    controller.state.lock().refuse_heartbeat =
        Some(Rejection { reason: Reason::StaleBrokerEpoch, message: "replaced".to_owned() });
    let failure = tokio::time::timeout(PATIENCE, node.failed()).await.unwrap();
    assert_eq!(failure, NodeFailure::Refused("replaced".to_owned()));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_node_registers_again() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start();
    let node = ready(config(&controller, dir.path())).await;
    let forgotten = Rejection { reason: Reason::UnknownNode, message: "who?".to_owned() };
    controller.state.lock().refuse_heartbeat = Some(forgotten);
    let registered_again = async {
        while controller.state.lock().registrations.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, registered_again).await.expect("registered again in time");
    controller.state.lock().refuse_heartbeat = None;
    let kafka = client(&node).await;
    create_topic(&kafka, "t", 1).await;
    assert_eq!(produce_soon(&kafka, "t", "x").await, 0);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_that_are_not_ours_are_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start();
    let good = config(&controller, dir.path());
    let node = ready(good.clone()).await;
    let refused = async |config: Config, words: &str| {
        let error = start(config).await.expect_err("refused");
        assert!(matches!(error, StartError::DataDir(_)), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    refused(good.clone(), "in use").await;
    node.shutdown().await;

    let foreign = dir.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("letter.txt"), "dear diary").unwrap();
    refused(Config { data_dirs: vec![foreign], ..good.clone() }, "not made by Weir").await;

    let meta = good.data_dirs[0].join("meta.properties");
    let text = std::fs::read_to_string(&meta).unwrap();
    let forged: Vec<&str> = text.lines().filter(|line| !line.starts_with("crc32c")).collect();
    std::fs::write(&meta, forged.join("\n").replace(CLUSTER, "other-cluster")).unwrap();
    refused(good.clone(), "belongs to cluster other-cluster").await;
    std::fs::write(&meta, "garbage").unwrap();
    refused(good, "damaged").await;
}

/// One of several directories that cannot be read takes only itself offline, and is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_serves_what_its_other_directories_hold() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start();
    let mut config = config(&controller, dir.path());
    config.data_dirs.push(dir.path().join("more-data"));
    let node = ready(config.clone()).await;
    let kafka = client(&node).await;
    create_topic(&kafka, "t", 4).await;
    let before = produce_soon(&kafka, "t", "x").await;
    node.shutdown().await;

    let holds_t0 = |path: &Path| {
        let logs = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        logs.filter_map(|name| name.into_string().ok()).any(|name| name.ends_with("-0"))
    };
    let spoilt = config.data_dirs.iter().find(|path| !holds_t0(path)).unwrap().clone();
    let meta = spoilt.join("meta.properties");
    let good = std::fs::read(&meta).unwrap();
    std::fs::write(&meta, "garbage").unwrap();
    let node = start(config.clone()).await.unwrap();
    let is_named = |text: &str| text.contains(&format!("{} is offline", spoilt.display()));
    let named = async { while !is_named(&http_get(&node, "/readyz").await.1) {} };
    tokio::time::timeout(PATIENCE, named).await.expect("why it is not ready");
    let (_, metrics) = http_get(&node, "/metrics").await;
    let gauge = format!("weir_storage_node_directory_offline{{directory=\"{}\"}} 1", spoilt.display());
    assert!(metrics.contains(&gauge), "{metrics}");
    assert_eq!(produce_soon(&client(&node).await, "t", "y").await, before + 1);
    node.shutdown().await;

    std::fs::write(&meta, good).unwrap();
    let node = ready(config).await;
    assert!(!is_named(&http_get(&node, "/readyz").await.1));
    assert_eq!(produce_soon(&client(&node).await, "t", "z").await, before + 2);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_for_somebody_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start();
    let wrong = Config { node_id: 2, ..config(&controller, dir.path()) };
    let error = start(wrong).await.expect_err("refused");
    assert!(error.to_string().contains("storage-node/1"), "{error}");
    assert!(error.to_string().contains("storage-node/2"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_come_early_wait_until_the_node_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    let mut controller = FakeController::start();
    controller.go_away().await;
    let node = start(config(&controller, dir.path())).await.unwrap();
    let kafka = {
        let early = client(&node);
        tokio::pin!(early);
        let waited = tokio::time::timeout(Duration::from_millis(100), &mut early).await;
        assert!(waited.is_err(), "nobody answers before the node is in the cluster");
        controller.come_back();
        tokio::time::timeout(PATIENCE, early).await.expect("answered in time")
    };
    create_topic(&kafka, "t", 1).await;
    controller.caught_up().await;
    node.shutdown().await;
}

/// The body of an HTTP answer, and whether it was good.
async fn http_get(node: &NodeHandle, path: &str) -> (bool, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(node.http_address().unwrap()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.starts_with("HTTP/1.1 200"), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_follows_the_session_and_every_metric_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    let mut controller = FakeController::start();
    controller.go_away().await;
    let node = start(config(&controller, dir.path())).await.unwrap();
    let (ready_now, reason) = http_get(&node, "/readyz").await;
    assert!(!ready_now && reason.contains("fenced"), "{reason}");
    assert!(http_get(&node, "/healthz").await.0);
    controller.come_back();
    tokio::time::timeout(PATIENCE, node.ready()).await.unwrap().unwrap();
    let ready = async { while !http_get(&node, "/readyz").await.0 {} };
    tokio::time::timeout(PATIENCE, ready).await.expect("what was still opening is open soon");

    let documentation = include_str!("../../docs/metrics.md").replace("weir_<daemon>_", "weir_storage_node_");
    let (_, metrics) = http_get(&node, "/metrics").await;
    let mut names: Vec<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    names.retain(|name| !documentation.contains(&format!("`{name}")));
    assert_eq!(names, Vec::<&str>::new(), "these are not in docs/metrics.md");
    node.shutdown().await;
}
