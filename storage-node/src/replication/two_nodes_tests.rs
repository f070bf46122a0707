//! Two partition runtimes over real files, joined by the network in memory; the test plays the controllers. And each side of a
//! lane against a peer that does what none of ours would.

use super::data_thread::limits;
use super::follower_lanes::LaneParts;
use super::isr_proposer::IsrProposer;
use super::lane_pump::LeaderThrottle;
use super::lane_server::{self, LaneServer, LaneServerSlot};
use super::{FollowerLanes, IsrProposals, Replication, ReplicationLimits, ReplicationMetrics, Throttles};
use crate::clock::Clock;
use crate::config::Config;
use crate::controller_port::{ControllerFailure, ControllerPort};
use crate::disk::event::MarkerToWrite;
use crate::partition::stalling_disk::StallingDisk;
use crate::partition::tail::TailBudget;
use crate::partition::{
    Lookup, PartitionHandle, PartitionLimits, PartitionMetrics, Partitions, PartitionsConfig, ProduceOutcome,
    ValidBatch,
};
use crate::published_image::PublishedImage;
use crate::test_node::{live_node, topic, topic_id};
use bytes::Bytes;
use log_engine::{DataDir, DataDirOptions, Disk, RealDisk};
use log_engine_core::{MarkerEpochRule, TransactionOutcome};
use parking_lot::Mutex;
use proto_types::controller_api::{ControllerReply, ControllerRequest, ProposedIsr};
use proto_types::error::{Reason, Rejection};
use proto_types::ids::{BrokerEpoch, LeaderEpoch, MetadataIndex, Millis, NodeId, Offset, PartitionEpoch};
use proto_types::metadata::{ConfigResource, MetadataChange, topic_partition};
use proto_types::replication_api::{
    Batches, FollowerFrame, LaneHello, LeaderFrame, Marks, OpenSession, SessionAck, SessionAnswer, SessionId,
};
use quic_transport::memory::{MemoryEndpoint, MemoryNetwork, MemoryNetworkConfig};
use quic_transport::{
    BoxFuture, FrameReceiver, FrameSender, Identity, MessageKind, PeerTarget, Role, Roles, Transport,
    TransportMetrics,
};
use records::{BatchBuilder, BatchHeader};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::{ClusterImage, ConfigMap, ImageDelta};
use storage_node_core::{Acks, DeleteRecordsError, ProduceError, Standing};
use tempfile::TempDir;
use tokio::sync::watch;

const CLUSTER: &str = "test-cluster";
const LONG: Duration = Duration::from_secs(60);

/// One node: everything but the door and the controllers.
struct Node {
    partitions: Arc<Partitions>,
    published: Arc<PublishedImage>,
    metrics: ReplicationMetrics,
    clock: Clock,
    broker_epoch: watch::Sender<Option<BrokerEpoch>>,
    directory: TempDir,
    _endpoint: Arc<MemoryEndpoint>,
}

/// Two nodes and what was committed.
struct World {
    nodes: BTreeMap<i32, Node>,
    network: MemoryNetwork,
    image: Arc<Mutex<ClusterImage>>,
}

/// Takes every proposal for nodes as they are registered, as the controllers do when nothing else speaks against it.
struct Agreeable(Arc<Mutex<ClusterImage>>);

impl ControllerPort for Agreeable {
    fn ask(
        &self,
        request: ControllerRequest,
        _timeout: Duration,
    ) -> BoxFuture<'_, Result<ControllerReply, ControllerFailure>> {
        let ControllerRequest::AlterPartition(request) = request else { panic!("asked {request:?}") };
        let mut image = self.0.lock();
        let mut results = Vec::new();
        for proposed in request.partitions {
            let mut state = image.partition(proposed.partition).expect("it exists").as_ref().clone();
            assert_eq!(state.partition_epoch, proposed.partition_epoch, "nobody else changes it");
            let registered = |(node, epoch): &(NodeId, BrokerEpoch)| {
                let now = image.node(*node).map(|node| node.registration.broker_epoch);
                now == Some(*epoch) || (*epoch == ProposedIsr::NOT_HEARD_FROM && state.isr.contains(node))
            };
            if !proposed.isr.iter().all(registered) {
                let message = "another registration".to_owned();
                results.push(Err(Rejection { reason: Reason::IneligibleReplica, message }));
                continue;
            }
            state.isr = proposed.isr.iter().map(|(node, _)| *node).collect();
            state.partition_epoch = PartitionEpoch(state.partition_epoch.0 + 1);
            commit(
                &mut image,
                &[MetadataChange::PartitionSet { partition: proposed.partition, state: state.clone() }],
            );
            results.push(Ok(state));
        }
        Box::pin(async move { Ok(ControllerReply::IsrAltered(results)) })
    }
}

fn commit(image: &mut ClusterImage, changes: &[MetadataChange]) -> ImageDelta {
    image.apply(MetadataIndex(image.index().0 + 1), changes)
}

fn address(id: i32) -> SocketAddr {
    ([127, 0, 0, 1], u16::try_from(id).expect("small")).into()
}

fn identity(id: i32) -> Identity {
    Identity::new(CLUSTER, Role::StorageNode, u64::try_from(id).expect("not negative")).expect("well formed")
}

fn small_limits() -> ReplicationLimits {
    // Little in memory, so that files are read too.
    ReplicationLimits { tail_bytes_max: 50_000, ..Config::default().replication_limits() }
}

impl Node {
    fn start(
        id: i32,
        network: &MemoryNetwork,
        image: &Arc<Mutex<ClusterImage>>,
        limits: ReplicationLimits,
        disk: Arc<dyn Disk>,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let options = DataDirOptions {
            cluster_id: CLUSTER.into(),
            node_id: id,
            new_directory_id: uuid::Uuid::from_u128(id.unsigned_abs().into()),
            descriptors_max: 1_000,
        };
        let data = DataDir::open(disk, directory.path(), &options).expect("it is ours");
        let slot = LaneServerSlot::default();
        let transport_limits = limits_of_lanes();
        let router = lane_server::router(&slot);
        let transport = TransportMetrics::unregistered();
        let endpoint = network.endpoint(identity(id), address(id), router, transport_limits, transport);
        let endpoint = Arc::new(endpoint.expect("the limits can be"));
        let (published, metrics, clock) =
            (Arc::new(PublishedImage::default()), ReplicationMetrics::default(), Clock::start());
        let broker_epoch = watch::Sender::new(Some(BrokerEpoch(1)));
        let parts = LaneParts {
            transport: Arc::clone(&endpoint) as Arc<dyn Transport>,
            published: Arc::clone(&published),
            broker_epoch: broker_epoch.subscribe(),
            limits,
            metrics: metrics.clone(),
            throttles: Arc::new(Throttles::new(clock)),
        };
        let throttle = LeaderThrottle {
            me: NodeId(id),
            throttles: Arc::clone(&parts.throttles),
            published: Arc::clone(&published),
        };
        let replication = Arc::new(Replication {
            throttles: Arc::clone(&parts.throttles),
            tails: TailBudget::new(limits.tail_bytes_max),
            lanes: FollowerLanes::new(parts, tokio::runtime::Handle::current()),
            proposals: Arc::new(IsrProposals::default()),
            metrics: metrics.clone(),
        });
        let proposer = IsrProposer {
            me: NodeId(id),
            proposals: Arc::clone(&replication.proposals),
            controller: Arc::new(Agreeable(Arc::clone(image))),
            broker_epoch: broker_epoch.subscribe(),
            batch_max: 100,
            call_max: LONG,
            metrics: metrics.clone(),
        };
        tokio::spawn(proposer.run());
        let config = PartitionsConfig {
            node: NodeId(id),
            file_configs: ConfigMap::new(),
            limits: PartitionLimits::default(),
            clock,
            metrics: PartitionMetrics::default(),
            cleaner_metrics: crate::disk::cleaner::CleanerMetrics::default(),
            replication,
            offline: Vec::new(),
            given_up: Vec::new(),
            replaces_lost_disk: false,
        };
        let partitions = Partitions::start(config, vec![data]).expect("threads can be started");
        let server = LaneServer::new(CLUSTER.to_owned(), &partitions, limits, metrics.clone(), throttle);
        assert!(slot.set(server).is_ok());
        Self { partitions, published, metrics, clock, broker_epoch, directory, _endpoint: endpoint }
    }

    fn handle(&self, partition: i32) -> PartitionHandle {
        match self.partitions.get(topic_partition(topic_id(1), partition)) {
            Lookup::Open(handle) => handle,
            other => panic!("{other:?}"),
        }
    }

    async fn produce(&self, partition: i32, value: &[u8]) -> Result<Offset, ProduceError> {
        self.produce_with(partition, BatchBuilder::new(), value).await
    }

    async fn produce_with(
        &self,
        partition: i32,
        builder: BatchBuilder,
        value: &[u8],
    ) -> Result<Offset, ProduceError> {
        self.outcome_of(partition, builder, value).await.map(|outcome| outcome.base_offset)
    }

    async fn outcome_of(
        &self,
        partition: i32,
        mut builder: BatchBuilder,
        value: &[u8],
    ) -> Result<ProduceOutcome, ProduceError> {
        builder.push(1_000, None, Some(value), &[]).expect("small");
        let bytes = Bytes::from(builder.build());
        let header = BatchHeader::parse(&bytes).expect("just built");
        let deadline = Millis(self.clock.monotonic().0 + 20_000);
        let batch = ValidBatch { bytes, header };
        let pending = self.handle(partition).produce(batch, Acks::All, deadline).await?;
        pending.outcome().await
    }

    async fn delete(
        &self,
        partition: i32,
        before: i64,
        timeout: Duration,
    ) -> Result<Offset, DeleteRecordsError> {
        let timeout_ms = i64::try_from(timeout.as_millis()).expect("small");
        let deadline = Millis(self.clock.monotonic().0 + timeout_ms);
        self.handle(partition).delete_records(Some(Offset(before)), deadline).await
    }

    /// All bytes of a partition, with the offset after them.
    fn log(&self, partition: i32) -> (Vec<u8>, i64) {
        let handle = self.handle(partition);
        let (mut at, mut all) = (handle.view().start.0, Vec::new());
        while at < handle.view().end.0 {
            let slice = handle.reader().read(at, 1 << 20, i64::MAX, true).expect("readable");
            all.extend(slice.to_bytes().expect("readable"));
            at = slice.next_offset;
        }
        (all, at)
    }
}

fn limits_of_lanes() -> quic_transport::Limits {
    limits(1 << 20)
}

impl World {
    /// Node 1 leads all partitions of a topic, node 2 follows.
    async fn start(partitions: i32, limits: ReplicationLimits) -> Self {
        let network = MemoryNetwork::new(MemoryNetworkConfig::default());
        let image = Arc::new(Mutex::new(ClusterImage::empty()));
        let nodes: BTreeMap<_, _> = [1, 2]
            .into_iter()
            .map(|id| (id, Node::start(id, &network, &image, limits, Arc::new(RealDisk))))
            .collect();
        let world = Self { nodes, network, image };
        let mut changes = Vec::new();
        for id in [1, 2] {
            for mut change in live_node(id) {
                if let MetadataChange::NodeRegistered(node) = &mut change {
                    node.data_address = address(id).to_string();
                }
                changes.push(change);
            }
        }
        changes.extend(topic(1, "t", partitions, &[1, 2]));
        let min = MetadataChange::ConfigSet {
            resource: ConfigResource::Topic(topic_id(1)),
            name: "min.insync.replicas".to_owned(),
            value: Some("2".to_owned()),
        };
        changes.push(min);
        world.commit(&changes).await;
        world
    }

    async fn commit(&self, changes: &[MetadataChange]) {
        let (delta, image) = {
            let mut image = self.image.lock();
            (commit(&mut image, changes), image.clone())
        };
        for node in self.nodes.values() {
            node.published.publish(image.clone());
            node.partitions.apply(&image, &delta).await;
        }
    }

    async fn close(self) {
        for node in self.nodes.values() {
            node.partitions.close().await;
        }
    }
}

/// Waits for a condition.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, waiting).await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_follower_has_what_the_leader_has_byte_for_byte() {
    let world = World::start(3, small_limits()).await;
    let (leader, follower) = (&world.nodes[&1], &world.nodes[&2]);
    for n in 0..30 {
        let offset = leader.produce(n % 3, format!("value {n}").as_bytes()).await;
        assert_eq!(offset, Ok(Offset(i64::from(n / 3))), "acks=all, and both are needed");
    }
    for partition in 0..3 {
        assert_eq!(follower.log(partition), leader.log(partition));
        until("the follower hears what is committed", || {
            follower.handle(partition).view().high_watermark == Offset(10)
        })
        .await;
    }
    world.close().await;
}

/// L2: whoever leads next, nobody finds records of which a client was told that they are deleted. Nothing is written meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_deleted_when_the_follower_has_deleted_them_too() {
    let world = World::start(1, small_limits()).await;
    let (leader, follower) = (&world.nodes[&1], &world.nodes[&2]);
    for offset in 0..10 {
        assert_eq!(leader.produce(0, b"value").await, Ok(Offset(offset)));
    }
    for before in [1, 6] {
        assert_eq!(leader.delete(0, before, LONG).await, Ok(Offset(before)));
        assert_eq!(follower.handle(0).view().start, Offset(before));
    }
    world.network.partition(address(1), address(2));
    let in_vain = leader.delete(0, 8, Duration::from_secs(1)).await;
    assert_eq!(in_vain, Err(DeleteRecordsError::TimedOut));
    assert_eq!((leader.handle(0).view().start, follower.handle(0).view().start), (Offset(8), Offset(6)));
    world.network.heal(address(1), address(2));
    assert_eq!(leader.delete(0, 8, LONG).await, Ok(Offset(8)));
    assert_eq!(follower.handle(0).view().start, Offset(8));
    assert_eq!(follower.log(0), leader.log(0));
    world.close().await;
}

/// What consumers may read of transactions, they may read of followers too (KIP-392).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_knows_transactions_as_its_leader_does() {
    let world = World::start(1, small_limits()).await;
    let (leader, follower) = (&world.nodes[&1], &world.nodes[&2]);
    for n in 0..40 {
        let producer = i64::from(n % 4);
        let builder = BatchBuilder::new().producer(producer, 0, n / 4).transactional();
        leader.produce_with(0, builder, b"in a transaction").await.expect("both nodes take it");
        // The last transaction of each producer but one stays open.
        if n % 3 == 0 || n >= 39 {
            let marker = MarkerToWrite {
                producer_id: producer,
                producer_epoch: 0,
                coordinator_epoch: 1,
                outcome: if n % 2 == 0 { TransactionOutcome::Commit } else { TransactionOutcome::Abort },
                epoch_rule: MarkerEpochRule::NotOlder,
            };
            let deadline = Millis(leader.clock.monotonic().0 + 20_000);
            leader.handle(0).write_marker(marker, deadline).await.expect("both nodes take it");
        }
    }
    let view = leader.handle(0).view();
    assert!(view.high_watermark == view.end && view.last_stable < view.end, "{view:?}");
    until("the follower hears what is committed", || {
        follower.handle(0).view().high_watermark == view.high_watermark
    })
    .await;
    assert_eq!(follower.handle(0).view().last_stable, view.last_stable);
    let aborted = |node: &Node| {
        let handle = node.handle(0);
        handle.reader().aborted_transactions(0, view.last_stable.0).expect("readable")
    };
    assert!(!aborted(leader).is_empty());
    assert_eq!(aborted(follower), aborted(leader));
    world.close().await;
}

/// T-36: the lane breaks again and again in the middle of everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_breaks_loses_and_doubles_nothing() {
    let world = World::start(2, small_limits()).await;
    let (leader, follower) = (&world.nodes[&1], &world.nodes[&2]);
    for round in 0..5 {
        world.network.partition(address(1), address(2));
        let waiting = leader.produce(0, b"while they do not hear each other");
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waiting).await.is_err(), "it must wait");
        world.network.heal(address(1), address(2));
        assert_eq!(waiting.await, Ok(Offset(2 * round)));
        assert_eq!(leader.produce(0, b"after").await, Ok(Offset(2 * round + 1)));
    }
    assert_eq!(follower.log(0), leader.log(0));
    world.close().await;
}

/// A node may register anew without a restart, when the controllers have forgotten it: leaders vouch for it as it is now (KIP-903).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_registers_anew_comes_back_in_sync() {
    let world = World::start(1, small_limits()).await;
    let (leader, follower) = (&world.nodes[&1], &world.nodes[&2]);
    assert_eq!(leader.produce(0, b"before").await, Ok(Offset(0)));
    let mut changes = live_node(2);
    for change in &mut changes {
        match change {
            MetadataChange::NodeRegistered(node) => {
                node.data_address = address(2).to_string();
                node.broker_epoch = BrokerEpoch(2);
            }
            MetadataChange::NodeFenced { broker_epoch, .. } => *broker_epoch = BrokerEpoch(2),
            other => panic!("{other:?}"),
        }
    }
    let id = topic_partition(topic_id(1), 0);
    let mut alone = world.image.lock().partition(id).expect("it exists").as_ref().clone();
    alone.isr = vec![NodeId(1)];
    alone.partition_epoch = PartitionEpoch(alone.partition_epoch.0 + 1);
    changes.push(MetadataChange::PartitionSet { partition: id, state: alone });
    follower.broker_epoch.send_replace(Some(BrokerEpoch(2)));
    world.commit(&changes).await;
    let back = || world.image.lock().partition(id).is_some_and(|state| state.isr.contains(&NodeId(2)));
    until("the follower is in sync again", back).await;
    world.close().await;
}

/// A producer's time goes where it is spent: while the follower is out of reach, to waiting for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_follower_is_told_from_waiting_for_the_disk() {
    let world = World::start(1, small_limits()).await;
    let leader = &world.nodes[&1];
    leader.produce(0, b"the session is there").await.expect("both nodes take it");
    let mut is_told = false;
    // The disk of a busy machine may take long too; then they are apart for longer.
    for apart_ms in [50, 500, 5_000] {
        let apart = Duration::from_millis(apart_ms);
        world.network.partition(address(1), address(2));
        let mut waiting = Box::pin(leader.outcome_of(0, BatchBuilder::new(), b"nobody hears this"));
        assert!(tokio::time::timeout(apart, &mut waiting).await.is_err(), "it must wait");
        world.network.heal(address(1), address(2));
        let times = waiting.await.expect("both nodes take it").times.expect("it came by all stations");
        let stations = [times.offered, times.taken, times.appended, times.flushed, times.committed];
        assert!(stations.is_sorted(), "{stations:?}");
        assert!(times.committed - times.offered >= apart, "{times:?}");
        is_told = times.committed - times.flushed > apart / 2;
        if is_told {
            break;
        }
    }
    assert!(is_told, "the time went to the follower");
    world.close().await;
}

/// T-32, T-118: a flipped bit where the leader appends takes its copy offline; the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_batch_is_not_appended_and_stops_nobody_else() {
    // What is sent comes from the files.
    let world = World::start(4, ReplicationLimits { tail_bytes_max: 0, ..small_limits() }).await;
    let (leader, follower) = (&world.nodes[&1], &world.nodes[&2]);
    for partition in 0..4 {
        leader.produce(partition, b"before").await.expect("both have it");
    }
    world.network.partition(address(1), address(2));
    // It is in the leader's log alone; nobody waits for its end.
    let lost = leader.handle(0);
    let lonely = leader.produce(0, b"to be damaged");
    assert!(tokio::time::timeout(Duration::from_millis(20), lonely).await.is_err(), "it must wait");
    until("it is appended", || lost.view().end == Offset(2)).await;
    let path = leader.directory.path().join(format!("{}/{:020}.log", topic_partition(topic_id(1), 0), 0));
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the segment is there");
    let at = file.metadata().expect("it has a length").len() - 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("readable");
    file.write_all_at(&[byte[0] ^ 1], at).expect("writable");
    world.network.heal(address(1), address(2));
    // The leader does not send it, and its copy goes offline, since it is of no use to anybody.
    until("the damage is found", || lost.view().standing == Standing::Failed).await;
    assert_eq!(leader.partitions.damaged(), [lost.id()]);
    assert_eq!(follower.metrics.bad_batches(), 0);
    for partition in 1..4 {
        assert_eq!(leader.produce(partition, b"after").await, Ok(Offset(1)));
        assert_eq!(follower.log(partition), leader.log(partition));
    }
    assert_eq!(follower.handle(0).view().end, Offset(1), "what is damaged is not appended");
    world.close().await;
}

/// T-118: a follower that must cut its log and cannot walk it is damaged, not only failed: a good copy can replace it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_cut_for_damage_is_known_as_damaged() {
    let world = World::start(1, small_limits()).await;
    let (first, second) = (&world.nodes[&1], &world.nodes[&2]);
    first.produce(0, b"before").await.expect("both have it");
    world.network.partition(address(1), address(2));
    let copy = first.handle(0);
    let lonely = first.produce(0, b"never committed");
    assert!(tokio::time::timeout(Duration::from_millis(20), lonely).await.is_err(), "it must wait");
    until("it is appended", || copy.view().end == Offset(2)).await;
    let path = first.directory.path().join(format!("{}/{:020}.log", copy.id(), 0));
    let file = std::fs::File::options().write(true).open(path).expect("the segment is there");
    // The format's version in the header of the first batch.
    file.write_all_at(&[7], 16).expect("writable");
    let mut state = world.image.lock().partition(copy.id()).expect("it exists").as_ref().clone();
    state.leader = Some(NodeId(2));
    state.leader_epoch = LeaderEpoch(state.leader_epoch.0 + 1);
    state.partition_epoch = PartitionEpoch(state.partition_epoch.0 + 1);
    world.commit(&[MetadataChange::PartitionSet { partition: copy.id(), state }]).await;
    until("the other one leads", || second.handle(0).view().standing == Standing::Leader).await;
    world.network.heal(address(1), address(2));
    until("the log fails", || copy.view().standing == Standing::Failed).await;
    until("the damage is made sure of", || first.partitions.damaged() == [copy.id()]).await;
    world.close().await;
}

fn config(resource: ConfigResource, name: &str, value: Option<&str>) -> MetadataChange {
    MetadataChange::ConfigSet { resource, name: name.to_owned(), value: value.map(str::to_owned) }
}

/// A follower that is not in sync catches up no faster than the leader's throttle allows (KIP-73), and freely without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_follower_catches_up_slowly() {
    let world = World::start(1, small_limits()).await;
    let (leader, follower) = (&world.nodes[&1], &world.nodes[&2]);
    world.network.partition(address(1), address(2));
    let id = topic_partition(topic_id(1), 0);
    let mut alone = world.image.lock().partition(id).expect("it exists").as_ref().clone();
    alone.isr = vec![NodeId(1)];
    alone.partition_epoch = PartitionEpoch(alone.partition_epoch.0 + 1);
    let of_topic = || ConfigResource::Topic(topic_id(1));
    let rate = "leader.replication.throttled.rate";
    let changes = [
        config(of_topic(), "min.insync.replicas", Some("1")),
        config(of_topic(), "leader.replication.throttled.replicas", Some("0:1")),
        config(ConfigResource::NodeDefault, rate, Some("1000")),
        MetadataChange::PartitionSet { partition: id, state: alone },
    ];
    world.commit(&changes).await;
    for offset in 0..60 {
        assert_eq!(leader.produce(0, &[b'v'; 10_000]).await, Ok(Offset(offset)));
    }
    world.network.heal(address(1), address(2));
    until("the first push is free", || follower.handle(0).view().end > Offset(0)).await;
    let all = until("", || follower.handle(0).view().end == Offset(60));
    assert!(tokio::time::timeout(Duration::from_millis(300), all).await.is_err(), "600 kB at 1 kB/s");
    world.commit(&[config(ConfigResource::NodeDefault, rate, None)]).await;
    until("nothing holds it back", || follower.handle(0).view().end == Offset(60)).await;
    assert_eq!(follower.log(0), leader.log(0));
    world.close().await;
}

/// T-31: a follower that knows nothing of a producer takes its batches from the middle: what the leader has is the truth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_without_the_state_of_a_producer_follows() {
    let world = World::start(1, small_limits()).await;
    let (leader, follower) = (&world.nodes[&1], &world.nodes[&2]);
    world.network.partition(address(1), address(2));
    let id = topic_partition(topic_id(1), 0);
    let mut alone = world.image.lock().partition(id).expect("it exists").as_ref().clone();
    alone.isr = vec![NodeId(1)];
    alone.partition_epoch = PartitionEpoch(alone.partition_epoch.0 + 1);
    let alone = MetadataChange::PartitionSet { partition: id, state: alone };
    let min = config(ConfigResource::Topic(topic_id(1)), "min.insync.replicas", Some("1"));
    world.commit(&[alone, min]).await;
    let send = async |sequence: i32| {
        leader.produce_with(0, BatchBuilder::new().producer(7, 0, sequence), b"idempotent").await
    };
    for sequence in 0..10 {
        assert_eq!(send(sequence).await, Ok(Offset(i64::from(sequence))));
    }
    // The records by which a follower would learn the first sequences are gone.
    assert_eq!(leader.delete(0, 6, LONG).await, Ok(Offset(6)));
    world.network.heal(address(1), address(2));
    until("the follower begins at the sixth sequence", || follower.handle(0).view().end == Offset(10)).await;
    assert_eq!(follower.handle(0).view().start, Offset(6));
    assert_eq!(send(10).await, Ok(Offset(10)));
    until("it goes on", || follower.handle(0).view().end == Offset(11)).await;
    assert_eq!(follower.log(0), leader.log(0));
    world.close().await;
}

/// T-17: nothing is written to a thousand partitions, and a throttle is on: all stay in sync. The lag time is short, so that many
/// of it pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_partitions_stay_in_sync() {
    const PARTITIONS: i32 = 1_000;
    const LAG: Duration = Duration::from_secs(4);
    let world = World::start(PARTITIONS, small_limits()).await;
    let leader = &world.nodes[&1];
    let changes = ["leader", "follower"].map(|side| {
        [
            config(
                ConfigResource::Topic(topic_id(1)),
                &format!("{side}.replication.throttled.replicas"),
                Some("*"),
            ),
            config(ConfigResource::NodeDefault, &format!("{side}.replication.throttled.rate"), Some("1")),
        ]
    });
    let mut changes = changes.concat();
    let lag = LAG.as_millis().to_string();
    changes.push(config(ConfigResource::NodeDefault, "replica.lag.time.max.ms", Some(&lag)));
    // What came up first has waited for the others' first words longer than it may later.
    let all_in_sync = async {
        while !leader.partitions.lagging_followers(1, 1).await.0.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, all_in_sync).await.is_ok(), "never all in sync");
    world.commit(&changes).await;
    // A write now and then that is throttled, as in-sync replicas never are.
    for n in 0..4 {
        tokio::time::sleep(LAG).await;
        assert_eq!(leader.produce(n, &[b'v'; 1_000]).await, Ok(Offset(0)));
    }
    let image = world.image.lock().clone();
    for partition in 0..PARTITIONS {
        let state = image.partition(topic_partition(topic_id(1), partition)).expect("it exists");
        assert_eq!(state.isr, [NodeId(1), NodeId(2)], "partition {partition}");
        assert_eq!(state.partition_epoch, PartitionEpoch(4), "partition {partition}: nobody ever left");
    }
    // Who is away does not stay.
    world.network.partition(address(1), address(2));
    let last = topic_partition(topic_id(1), PARTITIONS - 1);
    let left = || world.image.lock().partition(last).is_some_and(|state| state.isr == [NodeId(1)]);
    until("the follower leaves", left).await;
    world.close().await;
}

/// A follower with a throttle of its own withholds credit, and gives it by and by: it gets everything in the end (KIP-73).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_throttles_itself_gets_everything() {
    // Far less credit than there are records.
    let world = World::start(1, ReplicationLimits { credit_bytes_max: 100_000, ..small_limits() }).await;
    let (leader, follower) = (&world.nodes[&1], &world.nodes[&2]);
    world.network.partition(address(1), address(2));
    let id = topic_partition(topic_id(1), 0);
    let mut alone = world.image.lock().partition(id).expect("it exists").as_ref().clone();
    alone.isr = vec![NodeId(1)];
    alone.partition_epoch = PartitionEpoch(alone.partition_epoch.0 + 1);
    let of_topic = || ConfigResource::Topic(topic_id(1));
    let rate = "follower.replication.throttled.rate";
    let changes = [
        config(of_topic(), "min.insync.replicas", Some("1")),
        config(of_topic(), "follower.replication.throttled.replicas", Some("0:2")),
        config(ConfigResource::NodeDefault, rate, Some("2000000")),
        MetadataChange::PartitionSet { partition: id, state: alone },
    ];
    world.commit(&changes).await;
    for offset in 0..60 {
        assert_eq!(leader.produce(0, &[b'v'; 10_000]).await, Ok(Offset(offset)));
    }
    world.network.heal(address(1), address(2));
    until("credit is given again and again", || follower.handle(0).view().end == Offset(60)).await;
    assert_eq!(follower.log(0), leader.log(0));
    world.close().await;
}

/// A follower that the test plays: a lane to node 1, on which it opens what it likes.
struct PlayedFollower {
    sender: FrameSender,
    receiver: FrameReceiver,
    _endpoint: MemoryEndpoint,
}

impl PlayedFollower {
    async fn connect(world: &World) -> Self {
        let at = address(9);
        let metrics = TransportMetrics::unregistered();
        let router = quic_transport::Router::empty();
        // Node 2's certificate from another address.
        let endpoint =
            world.network.endpoint(identity(2), at, router, limits_of_lanes(), metrics).expect("bound");
        let hello = LaneHello { cluster_id: CLUSTER.to_owned(), broker_epoch: BrokerEpoch(1) };
        let hello = Bytes::from(proto_types::encode(&hello));
        let peer = endpoint.peer(PeerTarget::new(address(1), identity(1)));
        let opened = peer.open_stream(MessageKind::ReplicationLane, hello, LONG).await;
        let (sender, receiver) = opened.expect("node 1 listens");
        Self { sender, receiver, _endpoint: endpoint }
    }

    async fn open(&mut self, session: u64, partition: i32, credit_bytes: u64) {
        let open = OpenSession {
            session: SessionId(session),
            partition: topic_partition(topic_id(1), partition),
            leader_epoch: LeaderEpoch(3),
            log_start: Offset(0),
            log_end: Offset(0),
            last_epoch: LeaderEpoch(-1),
            credit_bytes,
        };
        self.sender.send_message(&FollowerFrame::Open(open)).await.expect("sent");
    }

    async fn ack(&mut self, session: u64, end: i64, credit_bytes: u64) {
        let (session, end) = (SessionId(session), Offset(end));
        let ack = SessionAck { session, appended: end, flushed: end, credit_bytes };
        self.sender.send_message(&FollowerFrame::Ack(ack)).await.expect("sent");
    }

    /// The next batches: of which session, how many bytes, and the offset after them.
    async fn batches(&mut self) -> (u64, u64, i64) {
        loop {
            match self.receiver.recv_message().await.expect("readable").expect("the lane goes on") {
                LeaderFrame::Batches(batches) => {
                    let bytes = self.receiver.recv().await.expect("readable").expect("the records follow");
                    let last = records::batches(&bytes).last().expect("one at least").expect("whole");
                    return (batches.session.0, bytes.len() as u64, last.header().last_offset() + 1);
                }
                LeaderFrame::Answer { answer, .. } => {
                    assert!(matches!(answer, SessionAnswer::Begins { .. }), "{answer:?}");
                }
                LeaderFrame::Marks { .. } => {}
                LeaderFrame::Closed { session } => panic!("{session:?} was closed"),
            }
        }
    }
}

/// T-38: a partition whose follower takes nothing more gets no more than its credit, and the others on the lane go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_partition_is_sent_its_credit_and_delays_nobody() {
    const CREDIT: u64 = 20_000;
    let mut world = World::start(2, small_limits()).await;
    // Only the played one follows.
    let gone = world.nodes.remove(&2).expect("it was started");
    gone.partitions.close().await;
    drop(gone);
    let leader = &world.nodes[&1];
    let value = vec![b'v'; 1_000];
    for partition in 0..2 {
        let pending = (0..200).map(|_| leader.produce(partition, &value));
        let appending = futures_util::future::join_all(pending);
        assert!(tokio::time::timeout(Duration::from_millis(50), appending).await.is_err(), "nobody follows");
        until("all is appended", || leader.handle(partition).view().end == Offset(200)).await;
    }
    let mut follower = PlayedFollower::connect(&world).await;
    follower.open(1, 0, CREDIT).await;
    follower.open(2, 1, CREDIT).await;
    let (mut slow, mut quick_end) = (0, 0);
    while quick_end < 200 {
        let (session, bytes, end) = follower.batches().await;
        match session {
            1 => slow += bytes,
            _ => {
                quick_end = end;
                follower.ack(2, end, bytes).await;
            }
        }
        assert!(slow <= CREDIT, "{slow} bytes are on their way");
    }
    assert!(slow > 0, "it got something");
    follower.ack(1, 10, CREDIT).await;
    assert_eq!(follower.batches().await.0, 1, "credit lets it go on");
    world.close().await;
}

/// Followers come and go while a lane stays: nothing is left of a session that its follower has closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_its_follower_closes_is_forgotten() {
    let mut world = World::start(1, small_limits()).await;
    let gone = world.nodes.remove(&2).expect("it was started");
    gone.partitions.close().await;
    drop(gone);
    let leader = &world.nodes[&1];
    let mut follower = PlayedFollower::connect(&world).await;
    for session in 1..=20 {
        follower.open(session, 0, 1_000).await;
        // It has begun, and there is nothing to send when it is closed.
        loop {
            match follower.receiver.recv_message().await.expect("readable").expect("the lane goes on") {
                LeaderFrame::Marks { .. } => break,
                LeaderFrame::Answer { answer: SessionAnswer::Begins { .. }, .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let close = FollowerFrame::Close { session: SessionId(session) };
        follower.sender.send_message(&close).await.expect("sent");
    }
    until("all are forgotten", || leader.metrics.sessions() == 0).await;
    world.close().await;
}

/// What a leader that the test plays sends, and how much of it was taken.
struct PlayedLeader {
    batches: i64,
    /// Opened when the follower's disk stands still.
    stalled: tokio::sync::Notify,
    sent_bytes: std::sync::atomic::AtomicU64,
}

impl PlayedLeader {
    /// Serves the lane: partition 1 begins at once and is flooded, partition 0 must begin its log anew.
    async fn serve(&self, mut sender: FrameSender, mut receiver: FrameReceiver) {
        let mut flooded = None;
        while let Ok(Some(frame)) = receiver.recv_message::<FollowerFrame>().await {
            let FollowerFrame::Open(open) = frame else { continue };
            let marks = Marks { log_start: Offset(0), high_watermark: Offset(0) };
            let anew = open.partition.partition.0 == 0;
            if anew && flooded.is_none() {
                // Partition 1 first; this one asks again.
                let answer = LeaderFrame::Answer { session: open.session, answer: SessionAnswer::NotServed };
                sender.send_message(&answer).await.expect("sent");
                continue;
            }
            let answer = match anew {
                true => SessionAnswer::StartsLater { start: Offset(5) },
                false => SessionAnswer::Begins { marks },
            };
            sender.send_message(&LeaderFrame::Answer { session: open.session, answer }).await.expect("sent");
            match (anew, flooded) {
                (false, _) => flooded = Some(open.session),
                (true, Some(session)) => {
                    self.stalled.notified().await;
                    self.flood(session, marks, &mut sender).await;
                    // Until the test is over.
                    while let Ok(Some(_)) = receiver.recv().await {}
                    return;
                }
                (true, None) => {}
            }
        }
    }

    async fn flood(&self, session: SessionId, marks: Marks, sender: &mut FrameSender) {
        for offset in 0..self.batches {
            let mut builder = BatchBuilder::new().base_offset(offset).leader_epoch(3);
            builder.push(1_000, None, Some(&[b'v'; 4_000]), &[]).expect("small");
            let bytes = Bytes::from(builder.build());
            let count = bytes.len() as u64;
            let header = LeaderFrame::Batches(Batches { session, from: Offset(offset), marks });
            let header = Bytes::from(proto_types::encode(&header));
            sender.send_all(vec![header, bytes]).await.expect("sent");
            self.sent_bytes.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// T-38: a leader that does not care for credit cannot fill a follower whose disk stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_to_be_appended_is_bounded_for_each_leaders_node() {
    const PEER_BYTES_MAX: usize = 100_000;
    let network_config = MemoryNetworkConfig { stream_frames_max: 4, ..MemoryNetworkConfig::default() };
    let network = MemoryNetwork::new(network_config);
    let image = Arc::new(Mutex::new(ClusterImage::empty()));
    let disk = StallingDisk::over(Arc::new(RealDisk));
    let limits = ReplicationLimits { lanes: 1, peer_bytes_max: PEER_BYTES_MAX, ..small_limits() };
    let node = Node::start(1, &network, &image, limits, Arc::clone(&disk) as Arc<dyn Disk>);
    let played = Arc::new(PlayedLeader {
        batches: 300,
        stalled: tokio::sync::Notify::new(),
        sent_bytes: std::sync::atomic::AtomicU64::new(0),
    });
    let serving = Arc::clone(&played);
    let router = quic_transport::Router::builder()
        .stream(
            MessageKind::ReplicationLane,
            Roles::of(&[Role::StorageNode]),
            move |_call, sender, receiver| {
                let played = Arc::clone(&serving);
                async move { played.serve(sender, receiver).await }
            },
        )
        .build();
    let metrics = TransportMetrics::unregistered();
    let _leader =
        network.endpoint(identity(2), address(2), router, limits_of_lanes(), metrics).expect("bound");

    let first = topic_partition(topic_id(1), 0);
    disk.stall(&format!("{first}/"));
    let mut changes = live_node(1);
    for mut change in live_node(2) {
        if let MetadataChange::NodeRegistered(node) = &mut change {
            node.data_address = address(2).to_string();
        }
        changes.push(change);
    }
    changes.extend(topic(1, "t", 2, &[2, 1]));
    let world = World { nodes: BTreeMap::from([(1, node)]), network, image };
    world.commit(&changes).await;
    let node = &world.nodes[&1];
    // The log thread is in the middle of beginning partition 0 anew.
    until("the log begins anew", || node.metrics.restarts() > 0).await;
    played.stalled.notify_one();
    let sent = || played.sent_bytes.load(std::sync::atomic::Ordering::Relaxed);
    until("the follower takes what it has room for", || sent() >= PEER_BYTES_MAX as u64 - 8_000).await;
    let all_taken = tokio::time::timeout(Duration::from_millis(200), until("", || sent() >= 1_000_000)).await;
    assert!(all_taken.is_err(), "somebody takes without bound");
    assert!(sent() <= PEER_BYTES_MAX as u64 + 8 * 4_200, "{} bytes were taken", sent());
    disk.release();
    until("all is appended", || node.handle(1).view().end == Offset(300)).await;
    world.close().await;
}
