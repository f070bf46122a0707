//! A node for tests of handlers: an image that the test makes, a controller that the test plays, no disks.

use crate::clock::Clock;
use crate::config::{Config, Limits};
use crate::controller_port::{ControllerFailure, ControllerPort};
use crate::coordinator_port::{CoordinatorPort, GroupCall, NoAnswer};
use crate::metrics::NodeMetrics;
use crate::node::{Node, NodeParts};
use crate::partition::{PartitionLimits, PartitionMetrics, Partitions, PartitionsConfig};
use crate::published_image::PublishedImage;
use bytes::Bytes;
use kafka_wire::{ConnectionId, HostPort, ListenerInfo, RequestContext};
use kafka_wire_core::{Request, Writer};
use log_engine::{DataDir, DataDirOptions, Disk, RealDisk};
use parking_lot::Mutex;
use proto_types::controller_api::{ControllerReply, ControllerRequest};
use proto_types::ids::{
    BrokerEpoch, DirectoryId, Incarnation, LeaderEpoch, MetadataIndex, NodeId, PartitionEpoch, TopicId,
};
use proto_types::metadata::{Listener, MetadataChange, NodeRegistered, PartitionState, topic_partition};
use quic_transport::BoxFuture;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::{ClusterImage, ConfigMap, ImageDelta};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) const LISTENER: &str = "PLAINTEXT";
pub(crate) const CLUSTER: &str = "test-cluster";

/// Plays the controller: keeps the questions, answers with a function.
pub(crate) struct FakeController {
    pub(crate) asked: Mutex<Vec<ControllerRequest>>,
    answer: Box<dyn Fn(&ControllerRequest) -> Answer + Send + Sync>,
}

/// Plays the coordinators: keeps the calls, and answers as the test says; by default nobody is there.
#[derive(Default)]
pub(crate) struct FakeCoordinators {
    pub(crate) asked: Mutex<Vec<GroupCall>>,
    pub(crate) answer: Mutex<Option<CoordinatorAnswer>>,
}

type CoordinatorAnswer = Box<dyn Fn(&GroupCall) -> Result<Bytes, NoAnswer> + Send + Sync>;

impl CoordinatorPort for FakeCoordinators {
    fn forward(&self, call: GroupCall) -> BoxFuture<'_, Result<Bytes, NoAnswer>> {
        let answer = self.answer.lock().as_ref().map_or(Err(NoAnswer::NotAvailable), |answer| answer(&call));
        self.asked.lock().push(call);
        Box::pin(async move { answer })
    }
}

type Answer = Result<ControllerReply, ControllerFailure>;

impl ControllerPort for FakeController {
    fn ask(&self, request: ControllerRequest, _timeout: Duration) -> BoxFuture<'_, Answer> {
        let answer = (self.answer)(&request);
        self.asked.lock().push(request);
        Box::pin(async move { answer })
    }
}

/// Everything that a handler test needs.
pub(crate) struct TestNode {
    pub(crate) node: Arc<Node>,
    pub(crate) controller: Arc<FakeController>,
    pub(crate) coordinators: Arc<FakeCoordinators>,
    pub(crate) published: Arc<PublishedImage>,
}

impl TestNode {
    /// Node 1 of a cluster in which `changes` were committed.
    pub(crate) fn new(changes: &[MetadataChange]) -> Self {
        Self::with(&[], changes, |request| panic!("the controller was asked {request:?}"))
    }

    /// The same with configs in the node's file and a controller that answers.
    pub(crate) fn with(
        file: &[(&str, &str)],
        changes: &[MetadataChange],
        answer: impl Fn(&ControllerRequest) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::over(Vec::new(), file, changes, answer)
    }

    /// A node over a data directory, with the partitions of `changes` open.
    pub(crate) async fn on_disk(directory: &Path, changes: &[MetadataChange]) -> Self {
        Self::on(Arc::new(RealDisk), directory, changes).await
    }

    /// The same, on this disk.
    pub(crate) async fn on(disk: Arc<dyn Disk>, directory: &Path, changes: &[MetadataChange]) -> Self {
        let options = DataDirOptions {
            cluster_id: CLUSTER.into(),
            node_id: 1,
            new_directory_id: Uuid::from_u128(1),
            descriptors_max: 1_000,
        };
        let data = DataDir::open(disk, directory, &options).expect("the directory is ours");
        let answer =
            |request: &ControllerRequest| -> Answer { panic!("the controller was asked {request:?}") };
        let test = Self::over(vec![data], &[], changes, answer);
        let image = test.node.image();
        let delta = ImageDelta::between(&ClusterImage::empty(), &image);
        test.node.partitions().apply(&image, &delta).await;
        test
    }

    fn over(
        data: Vec<DataDir>,
        file: &[(&str, &str)],
        changes: &[MetadataChange],
        answer: impl Fn(&ControllerRequest) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let published = Arc::new(PublishedImage::default());
        let mut image = ClusterImage::empty();
        image.apply(MetadataIndex(1), changes);
        published.publish(image);
        let kafka: ConfigMap =
            file.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let limits = Limits { departed_node_told_ms: 60_000, ..Limits::default() };
        let config = Config {
            cluster_id: CLUSTER.into(),
            node_id: 1,
            kafka: kafka.clone(),
            limits,
            ..Config::default()
        };
        let controller = Arc::new(FakeController { asked: Mutex::default(), answer: Box::new(answer) });
        let coordinators = Arc::new(FakeCoordinators::default());
        let partitions = PartitionsConfig {
            node: NodeId(1),
            file_configs: kafka.clone(),
            limits: PartitionLimits::default(),
            clock: Clock::start(),
            metrics: PartitionMetrics::default(),
            cleaner_metrics: crate::disk::cleaner::CleanerMetrics::default(),
            replication: crate::replication::Replication::alone(),
            offline: Vec::new(),
            given_up: Vec::new(),
            replaces_lost_disk: false,
        };
        let node = Node::new(NodeParts {
            config: &config,
            file_configs: kafka,
            partitions: Partitions::start(partitions, data).expect("threads can be started"),
            published: Arc::clone(&published),
            controller: Arc::clone(&controller) as Arc<dyn ControllerPort>,
            coordinators: Arc::clone(&coordinators) as Arc<dyn CoordinatorPort>,
            broker_epoch: watch::Sender::new(Some(BrokerEpoch(1))).subscribe(),
            clock: Clock::start(),
            metrics: Arc::new(NodeMetrics::default()),
        });
        Self { node: Arc::new(node), controller, coordinators, published }
    }

    /// Commits more changes.
    pub(crate) fn apply(&self, changes: &[MetadataChange]) {
        apply(&self.published, changes);
    }

    /// Commits more changes, and makes the partitions follow them.
    pub(crate) async fn apply_and_open(&self, changes: &[MetadataChange]) {
        let before = self.node.image();
        self.apply(changes);
        let image = self.node.image();
        self.node.partitions().apply(&image, &ImageDelta::between(&before, &image)).await;
    }

    /// A request of this version on the ordinary listener.
    pub(crate) fn context(&self, api_version: i16) -> RequestContext {
        context_on(LISTENER, api_version)
    }
}

pub(crate) fn apply(published: &PublishedImage, changes: &[MetadataChange]) {
    let mut image = published.load().as_ref().clone();
    let next = MetadataIndex(image.index().0 + 1);
    image.apply(next, changes);
    published.publish(image);
}

pub(crate) fn context_on(listener: &str, api_version: i16) -> RequestContext {
    let bound = (Ipv4Addr::LOCALHOST, 9092).into();
    let advertised = HostPort::new("here", 9092);
    RequestContext {
        api_version,
        correlation_id: 1,
        arrived: Clock::start().now(),
        client_id: None,
        client_host: IpAddr::V4(Ipv4Addr::LOCALHOST),
        client_port: 1,
        listener: Arc::new(ListenerInfo { name: listener.to_owned(), bound, advertised }),
        connection: ConnectionId(1),
        software: None,
        draining: CancellationToken::new(),
    }
}

/// A live node with one address on [`LISTENER`] and one on `EXTRA`.
pub(crate) fn live_node(id: i32) -> Vec<MetadataChange> {
    let listener =
        |name: &str, port: u16| Listener { name: name.to_owned(), host: format!("{name}-{id}"), port };
    let broker_epoch = BrokerEpoch(1);
    let registered = NodeRegistered {
        node: NodeId(id),
        broker_epoch,
        incarnation: Incarnation(Uuid::from_u128(1)),
        directories: vec![DirectoryId(Uuid::from_u128(id.unsigned_abs().into()))],
        listeners: vec![listener(LISTENER, 9092), listener("EXTRA", 9093)],
        control_address: String::new(),
        data_address: String::new(),
        rack: Some(format!("rack-{id}")),
    };
    vec![
        MetadataChange::NodeRegistered(registered),
        MetadataChange::NodeFenced { node: NodeId(id), broker_epoch, fenced: false },
    ]
}

pub(crate) fn fence(id: i32) -> MetadataChange {
    MetadataChange::NodeFenced { node: NodeId(id), broker_epoch: BrokerEpoch(1), fenced: true }
}

pub(crate) fn topic_id(n: u128) -> TopicId {
    TopicId(Uuid::from_u128(n))
}

/// A topic whose partitions are all on `replicas`, led by the first of them.
pub(crate) fn topic(n: u128, name: &str, partitions: i32, replicas: &[i32]) -> Vec<MetadataChange> {
    let replicas: Vec<NodeId> = replicas.iter().copied().map(NodeId).collect();
    let state = PartitionState {
        leader: replicas.first().copied(),
        isr: replicas.clone(),
        replicas,
        adding: vec![],
        removing: vec![],
        elr: vec![],
        leader_epoch: LeaderEpoch(3),
        partition_epoch: PartitionEpoch(4),
    };
    let mut changes = vec![MetadataChange::TopicCreated { topic: topic_id(n), name: name.to_owned() }];
    changes.extend((0..partitions).map(|index| MetadataChange::PartitionSet {
        partition: topic_partition(topic_id(n), index),
        state: state.clone(),
    }));
    changes
}

/// Fails unless the response can be sent in this version.
pub(crate) fn assert_encodes<R: Request>(response: &R::Response, version: i16) {
    use kafka_wire_core::Message;
    let mut writer = Writer::new();
    if let Err(error) = response.encode(&mut writer, version) {
        panic!("{} version {version}: {error}: {response:?}", R::NAME);
    }
}
