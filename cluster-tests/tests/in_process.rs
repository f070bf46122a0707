//! Whole clusters in this process, over real certificates, QUIC, disks and Kafka connections: what holds when controllers
//! and storage nodes come and go.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use cluster_tests::clock::unix_ms;
use cluster_tests::ports::free_port;
use controller::ControllerHandle;
use kafka_wire::{Client, ClientConfig, HostPort};
use kafka_wire_core::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use kafka_wire_core::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use kafka_wire_core::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use kafka_wire_core::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use kafka_wire_core::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use kafka_wire_core::messages::describe_log_dirs::DescribeLogDirsRequest;
use kafka_wire_core::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, ReplicaState};
use kafka_wire_core::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use kafka_wire_core::messages::init_producer_id::InitProducerIdRequest;
use kafka_wire_core::messages::metadata::MetadataResponseTopic;
use kafka_wire_core::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kafka_wire_core::{ErrorCode, Records};
use quic_transport::Role;
use quic_transport::pki::CredentialFiles;
use quic_transport::testing::TestCluster;
use records::BatchBuilder;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use storage_node::NodeHandle;
use storage_node::config::{Certificates, ControllerAddress, Listener};
use telemetry::Registry;
use tempfile::TempDir;

const CLUSTER: &str = "in-process";
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster whose daemons can be stopped and started one by one.
struct Cluster {
    dir: TempDir,
    authority: TestCluster,
    voters: Vec<controller::Voter>,
    controllers: Vec<Option<ControllerHandle>>,
    nodes: Vec<Option<NodeHandle>>,
    addresses: Vec<SocketAddr>,
    /// Of each node.
    directories: usize,
}

impl Cluster {
    async fn start(controllers: usize, nodes: usize) -> Self {
        Self::start_with(controllers, nodes, 1).await
    }

    async fn start_with(controllers: usize, nodes: usize, directories: usize) -> Self {
        let voter = |id| controller::Voter { id, address: format!("127.0.0.1:{}", free_port()) };
        let mut cluster = Self {
            dir: tempfile::tempdir().unwrap(),
            authority: TestCluster::new(CLUSTER),
            voters: (1..=controllers as u64).map(voter).collect(),
            controllers: (0..controllers).map(|_| None).collect(),
            nodes: (0..nodes).map(|_| None).collect(),
            addresses: (0..nodes).map(|_| SocketAddr::from(([127, 0, 0, 1], free_port()))).collect(),
            directories,
        };
        for i in 0..controllers {
            cluster.start_controller(i).await;
        }
        for i in 0..nodes {
            cluster.start_node(i).await;
        }
        cluster
    }

    async fn start_controller(&mut self, i: usize) {
        let voter = &self.voters[i];
        let mut config = controller::Config {
            id: voter.id,
            cluster_id: CLUSTER.to_owned(),
            data_dir: self.dir.path().join(format!("controller-{}", voter.id)),
            listen: voter.address.parse().unwrap(),
            voters: self.voters.clone(),
            ..controller::Config::default()
        };
        // A busy machine must not hold elections for want of a processor.
        config.raft.election_min_ms *= 3;
        config.raft.election_max_ms *= 3;
        let credentials = self.authority.credentials(Role::Controller, voter.id);
        let handle = controller::start(config, credentials, &mut Registry::default()).await.unwrap();
        self.controllers[i] = Some(handle);
    }

    async fn start_node(&mut self, i: usize) {
        let config = self.node_config(i);
        let node = storage_node::start(config).await.unwrap();
        tokio::time::timeout(PATIENCE, node.ready()).await.expect("ready in time").unwrap();
        self.addresses[i] = node.kafka_addresses()[0].bound;
        self.nodes[i] = Some(node);
    }

    fn node_config(&self, i: usize) -> storage_node::Config {
        let id = i32::try_from(i).unwrap() + 1;
        let certificates = self.dir.path().join(format!("certificates-{id}"));
        std::fs::create_dir_all(&certificates).unwrap();
        let files = CredentialFiles::in_directory(&certificates);
        let credentials = self.authority.credentials(Role::StorageNode, id.unsigned_abs().into());
        credentials.store(&files).unwrap();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let address =
            |voter: &controller::Voter| ControllerAddress { id: voter.id, address: voter.address.clone() };
        let mut config = storage_node::Config {
            cluster_id: CLUSTER.to_owned(),
            node_id: id,
            data_dirs: self.data_dirs(i),
            controllers: self.voters.iter().map(address).collect(),
            // The same port after a restart, so that clients find the node again.
            listeners: vec![Listener { name: "PLAINTEXT".into(), bind: self.addresses[i], advertised: None }],
            certificates: Certificates {
                certificate: files.certificate,
                key: files.key,
                authority: files.authority,
            },
            ..storage_node::Config::default()
        };
        config.control.bind = any_port;
        config.data.bind = any_port;
        config.http.enabled = false;
        config
    }

    fn data_dirs(&self, i: usize) -> Vec<PathBuf> {
        let first = data_dir(self.dir.path(), i);
        let more = (1..self.directories).map(|n| first.with_extension(n.to_string()));
        std::iter::once(first.clone()).chain(more).collect()
    }

    async fn stop_controller(&mut self, i: usize) {
        self.controllers[i].take().unwrap().shutdown().await;
    }

    async fn stop_node(&mut self, i: usize) {
        self.nodes[i].take().unwrap().shutdown().await;
    }

    /// Index of the controller that leads; waits for one.
    async fn leader(&self) -> usize {
        let looking = async {
            loop {
                for handle in self.controllers.iter().flatten() {
                    if let Some(leader) = handle.leader()
                        && let Some(i) = self.voters.iter().position(|voter| voter.id == leader.0)
                        && self.controllers[i].is_some()
                    {
                        return i;
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.expect("a leader in time")
    }

    async fn client(&self, i: usize) -> Client {
        let bootstrap = HostPort::new(self.addresses[i].ip().to_string(), self.addresses[i].port());
        Client::connect(ClientConfig::new(vec![bootstrap])).await.unwrap()
    }

    async fn stop(self) {
        for node in self.nodes.into_iter().flatten() {
            node.shutdown().await;
        }
        for controller in self.controllers.into_iter().flatten() {
            controller.shutdown().await;
        }
    }
}

fn data_dir(dir: &Path, i: usize) -> PathBuf {
    dir.join(format!("data-{}", i + 1))
}

fn new_topic(name: &str, partitions: i32) -> CreateTopicsRequest {
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    CreateTopicsRequest { topics: vec![topic], timeout_ms: 20_000, validate_only: false }
}

async fn create_topic(client: &Client, name: &str, partitions: i32) {
    let response = client.call(&new_topic(name, partitions)).await.unwrap();
    assert_eq!(response.topics[0].error_code, ErrorCode::None, "{response:?}");
}

/// Creates it even if the leader of the controllers changes meanwhile: clients repeat what may be repeated.
async fn create_topic_soon(client: &Client, name: &str) {
    let trying = async {
        loop {
            let response = client.call(&new_topic(name, 1)).await.unwrap();
            match response.topics[0].error_code {
                ErrorCode::None | ErrorCode::TopicAlreadyExists => return,
                ErrorCode::NotController | ErrorCode::RequestTimedOut => {}
                _ => panic!("{response:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, trying).await.expect("created in time");
}

/// Asks for a producer's id until the controllers have given the node some.
async fn producer_id_soon(client: &Client) -> i64 {
    let trying = async {
        loop {
            let answer = client.call(&InitProducerIdRequest::default()).await.unwrap();
            if answer.error_code.is_none() {
                return answer.producer_id;
            }
            assert!(answer.error_code.is_retriable(), "{answer:?}");
        }
    };
    tokio::time::timeout(PATIENCE, trying).await.expect("given in time")
}

async fn describe(client: &Client, topic: &str) -> MetadataResponseTopic {
    client.metadata(Some(&[topic])).await.unwrap().topics.into_iter().next().unwrap()
}

/// Produces to the leader of partition 0 until it works.
async fn produce_soon(client: &Client, topic: &str, text: &str) -> i64 {
    let mut batch = BatchBuilder::new();
    batch.push(unix_ms(), None, Some(text.as_bytes()), &[]).unwrap();
    let records = Bytes::from(batch.build());
    let trying = async {
        loop {
            let described = describe(client, topic).await;
            let leader = described.partitions.first().map_or(-1, |partition| partition.leader_id);
            let request = ProduceRequest {
                acks: -1,
                timeout_ms: 10_000,
                topic_data: vec![TopicProduceData {
                    name: topic.into(),
                    topic_id: described.topic_id,
                    partition_data: vec![PartitionProduceData {
                        index: 0,
                        records: Some(Records::Bytes(records.clone())),
                    }],
                }],
                ..ProduceRequest::default()
            };
            if leader >= 0
                && let Ok(response) = client.call_node(leader, &request).await
            {
                let partition = &response.responses[0].partition_responses[0];
                if partition.error_code == ErrorCode::None {
                    return partition.base_offset;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, trying).await.expect("produced in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_requests_do_what_they_say_at_once() {
    let cluster = Cluster::start(1, 1).await;
    let client = cluster.client(0).await;
    create_topic(&client, "t", 2).await;
    assert_eq!(describe(&client, "t").await.partitions.len(), 2);

    let more = |count| CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: "t".into(), count, assignments: None }],
        timeout_ms: 20_000,
        validate_only: false,
    };
    let fewer = client.call(&more(1)).await.unwrap();
    assert_eq!(fewer.results[0].error_code, ErrorCode::InvalidPartitions);
    assert_eq!(client.call(&more(5)).await.unwrap().results[0].error_code, ErrorCode::None);
    let leaders: Vec<i32> = describe(&client, "t").await.partitions.iter().map(|p| p.leader_id).collect();
    assert_eq!(leaders, [1; 5], "the answer comes when the new partitions are open");

    let alter = |value: &str| IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 2,
            resource_name: "t".into(),
            configs: vec![AlterableConfig {
                name: "max.message.bytes".into(),
                config_operation: 0,
                value: Some(value.into()),
            }],
        }],
        validate_only: false,
    };
    let wrong = client.call(&alter("-3")).await.unwrap();
    assert_eq!(wrong.responses[0].error_code, ErrorCode::InvalidConfig);
    assert!(wrong.responses[0].error_message.as_ref().unwrap().contains("max.message.bytes"));
    assert_eq!(client.call(&alter("4000")).await.unwrap().responses[0].error_code, ErrorCode::None);
    let described = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: 2,
            resource_name: "t".into(),
            configuration_keys: Some(vec!["max.message.bytes".into()]),
        }],
        ..DescribeConfigsRequest::default()
    };
    let configs = client.call(&described).await.unwrap();
    assert_eq!(configs.results[0].configs[0].value.as_deref(), Some("4000"));

    // A topic of the same name is another topic: other id, offsets from 0.
    let old = describe(&client, "t").await.topic_id;
    assert_eq!(produce_soon(&client, "t", "old").await, 0);
    let by_id = DeleteTopicState { name: None, topic_id: old };
    let delete = DeleteTopicsRequest { topics: vec![by_id], timeout_ms: 20_000, ..Default::default() };
    assert_eq!(client.call(&delete).await.unwrap().responses[0].error_code, ErrorCode::None);
    assert_eq!(describe(&client, "t").await.error_code, ErrorCode::UnknownTopicOrPartition);
    create_topic(&client, "t", 1).await;
    assert_ne!(describe(&client, "t").await.topic_id, old);
    assert_eq!(produce_soon(&client, "t", "new").await, 0);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_serves_while_its_only_controller_restarts() {
    let mut cluster = Cluster::start(1, 1).await;
    let client = cluster.client(0).await;
    create_topic(&client, "t", 1).await;
    assert_eq!(produce_soon(&client, "t", "one").await, 0);
    cluster.stop_controller(0).await;
    assert_eq!(produce_soon(&client, "t", "two").await, 1);
    cluster.start_controller(0).await;
    create_topic_soon(&client, "u").await;
    assert_eq!(produce_soon(&client, "u", "first").await, 0);
    assert_eq!(produce_soon(&client, "t", "three").await, 2);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_leads_again_in_a_new_epoch() {
    let mut cluster = Cluster::start(1, 2).await;
    let client = cluster.client(0).await;
    create_topic(&client, "t", 8).await;
    let before = describe(&client, "t").await;
    let nodes: BTreeSet<i32> = before.partitions.iter().map(|partition| partition.leader_id).collect();
    assert_eq!(nodes, BTreeSet::from([1, 2]), "partitions are spread");

    cluster.stop_node(1).await;
    let without = describe(&client, "t").await;
    for (before, now) in before.partitions.iter().zip(&without.partitions) {
        let expected =
            if before.leader_id == 2 { (-1, ErrorCode::LeaderNotAvailable) } else { (1, ErrorCode::None) };
        assert_eq!((now.leader_id, now.error_code), expected);
    }
    cluster.start_node(1).await;
    let back = async {
        loop {
            let after = describe(&client, "t").await;
            if after.partitions.iter().all(|partition| partition.leader_id > 0) {
                return after;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let after = tokio::time::timeout(PATIENCE, back).await.expect("leaders in time");
    for (before, after) in before.partitions.iter().zip(&after.partitions) {
        assert_eq!(before.leader_id, after.leader_id);
        let grown = after.leader_epoch > before.leader_epoch;
        assert_eq!(
            grown,
            before.leader_id == 2,
            "an epoch grows with the leader's incarnation, and only then"
        );
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_work_goes_on_when_the_leading_controller_stops() {
    let mut cluster = Cluster::start(3, 2).await;
    let client = cluster.client(0).await;
    create_topic_soon(&client, "before").await;
    for round in 0..3 {
        let leader = cluster.leader().await;
        cluster.stop_controller(leader).await;
        create_topic_soon(&client, &format!("without-{round}")).await;
        assert!(produce_soon(&client, &format!("without-{round}"), "x").await >= 0);
        assert!(producer_id_soon(&client).await >= 0);
        cluster.start_controller(leader).await;
    }
    // Both nodes know the same topics.
    let expected = BTreeSet::from(["before", "without-0", "without-1", "without-2"].map(str::to_owned));
    for i in 0..2 {
        let other = cluster.client(i).await;
        let known = async {
            loop {
                let topics = other.metadata(None).await.unwrap().topics;
                let names: BTreeSet<String> =
                    topics.iter().filter_map(|topic| topic.name.as_deref().map(str::to_owned)).collect();
                if names == expected {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, known).await.expect("all topics in time");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_data_directory_is_refused() {
    let mut cluster = Cluster::start(1, 2).await;
    cluster.stop_node(1).await;
    // Node 2 comes with the directory of node 1.
    let meta = data_dir(cluster.dir.path(), 0).join("meta.properties");
    let text = std::fs::read_to_string(meta).unwrap();
    let own = data_dir(cluster.dir.path(), 1);
    let forged = text.replace("node.id=1", "node.id=2");
    assert_ne!(forged, text);
    // Its checksum would give it away.
    let forged: Vec<&str> = forged.lines().filter(|line| !line.starts_with("crc32c")).collect();
    let forged = forged.join("\n");
    std::fs::write(own.join("meta.properties"), forged).unwrap();
    let node = storage_node::start(cluster.node_config(1)).await.unwrap();
    let failure = tokio::time::timeout(PATIENCE, node.ready()).await.expect("refused in time").unwrap_err();
    assert!(failure.to_string().contains("data directory"), "{failure}");
    node.shutdown().await;
    cluster.stop().await;
}

/// The directories that hold the topic's partition 0: the one that serves it, and the one that it moves to.
async fn homes(client: &Client, topic: &str) -> (Option<PathBuf>, Option<PathBuf>) {
    let response = client.call(&DescribeLogDirsRequest { topics: None }).await.unwrap();
    let of = |is_future_key: bool| {
        let has = response.results.iter().find(|dir| {
            let topics = dir.topics.iter().filter(|described| *described.name == *topic);
            topics
                .flat_map(|topic| &topic.partitions)
                .any(|partition| partition.is_future_key == is_future_key)
        });
        has.map(|dir| PathBuf::from(&*dir.log_dir))
    };
    (of(false), of(true))
}

/// The values of partition 0 with their offsets, as a consumer reads them.
async fn values(client: &Client, topic: &str, count: usize) -> Vec<(i64, String)> {
    let described = describe(client, topic).await;
    let (topic_id, mut found) = (described.topic_id, Vec::new());
    while found.len() < count {
        let partition = FetchPartition {
            fetch_offset: found.last().map_or(0, |(offset, _)| offset + 1),
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        };
        let request = FetchRequest {
            replica_state: ReplicaState { replica_id: -1, replica_epoch: -1 },
            max_wait_ms: 1_000,
            max_bytes: 1 << 20,
            topics: vec![FetchTopic { topic: topic.into(), topic_id, partitions: vec![partition] }],
            ..FetchRequest::default()
        };
        let mut response = client.call_node(1, &request).await.unwrap();
        let data = response.responses.remove(0).partitions.remove(0);
        assert_eq!(data.error_code, ErrorCode::None);
        let Some(Records::Bytes(bytes)) = data.records else { panic!("no records") };
        for batch in records::batches(&bytes) {
            for record in batch.unwrap().records(1 << 20).unwrap().iter() {
                let record = record.unwrap();
                found.push((record.offset, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
            }
        }
    }
    found
}

/// KIP-113 from end to end: under acks=all, to another disk and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_moves_between_the_directories_of_its_node_under_load() {
    let mut cluster = Cluster::start_with(1, 1, 2).await;
    let client = cluster.client(0).await;
    create_topic(&client, "t", 1).await;
    let (mut written, padding) = (Vec::new(), "x".repeat(50_000));
    for _ in 0..2 {
        let (Some(from), None) = homes(&client, "t").await else { panic!("it is in no directory, or moves") };
        let to = cluster.data_dirs(0).into_iter().find(|dir| *dir != from).unwrap();
        let topics = vec![AlterReplicaLogDirTopic { name: "t".into(), partitions: vec![0] }];
        let dir = AlterReplicaLogDir { path: to.to_str().unwrap().into(), topics };
        let response = client.call(&AlterReplicaLogDirsRequest { dirs: vec![dir] }).await.unwrap();
        assert_eq!(response.results[0].partitions[0].error_code, ErrorCode::None);
        let mut after = 0;
        while after < 20 {
            let value = format!("{}-{padding}", written.len());
            written.push((produce_soon(&client, "t", &value).await, value));
            let now = homes(&client, "t").await;
            after += usize::from(now == (Some(to.clone()), None));
        }
    }
    // Who was told of a refusal in the middle of it may have written twice: nothing is lost, and all keeps its place.
    let last = written.last().unwrap().0;
    let found = values(&client, "t", usize::try_from(last).unwrap() + 1).await;
    assert!(written.is_sorted_by(|a, b| a.0 < b.0));
    for record in &written {
        assert_eq!(found[usize::try_from(record.0).unwrap()], *record);
    }
    cluster.stop_node(0).await;
    cluster.start_node(0).await;
    let client = cluster.client(0).await;
    assert_eq!(produce_soon(&client, "t", "more").await, last + 1);
    cluster.stop().await;
}
