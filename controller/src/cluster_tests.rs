//! Controllers in one process over the network in memory, with files on disk: elections, proposals, failures, restarts,
//! snapshots, sessions, the feed.

mod breakdown;
mod features;
mod room;
mod voters;

mod coordinators;
mod partitions;

use crate::config::{Config, Voter};
use crate::node::{ControllerHandle, start_on};
use prometheus_client::registry::Registry;
use proto_types::controller_api::*;
use proto_types::error::{ControllerError, Reason};
use proto_types::ids::*;
use proto_types::message_kind::MessageKind;
use proto_types::metadata::{Listener, MetadataChange, topic_partition};
use quic_transport::memory::{MemoryNetwork, MemoryNetworkConfig};
use quic_transport::{
    FrameReceiver, FrameSender, Identity, Limits, Peer, PeerTarget, Role, Router, Transport, TransportMetrics,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;
use uuid::Uuid;

const CLUSTER: &str = "test-cluster";
const PATIENCE: Duration = Duration::from_secs(30);

struct Quorum {
    network: MemoryNetwork,
    /// Those that formed it, 1 to this.
    formed: u64,
    dirs: Vec<TempDir>,
    running: Vec<Option<ControllerHandle>>,
    adjust: fn(&mut Config),
    client: Arc<dyn Transport>,
}

fn address(id: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(id).expect("few controllers")], 9183))
}

fn config(id: u64, voters: u64, data_dir: &Path) -> Config {
    let mut config = Config {
        id,
        cluster_id: CLUSTER.into(),
        data_dir: data_dir.to_owned(),
        voters: (1..=voters).map(|id| Voter { id, address: address(id).to_string() }).collect(),
        ..Config::default()
    };
    // Machines that build have better things to do than to be on time: no slow sync may look like a death.
    config.raft.election_min_ms = 1_000;
    config.raft.election_max_ms = 1_800;
    config.sessions.session_ms = 20_000;
    config.timing.commit_ms = 30_000;
    // The addresses of these nodes are made up.
    config.sessions.probe_silent = false;
    config
}

impl Quorum {
    async fn start(voters: u64, adjust: fn(&mut Config)) -> Self {
        if let Ok(filter) = std::env::var("WEIR_TEST_LOG") {
            let log = telemetry::LogConfig { filter, ..telemetry::LogConfig::default() };
            telemetry::init_logging(&log).expect("a valid filter");
        }
        let network = MemoryNetwork::new(MemoryNetworkConfig::default());
        let client = client(&network, 1);
        let mut quorum = Self {
            network,
            formed: voters,
            dirs: (0..voters).map(|_| tempfile::tempdir().expect("temp dir")).collect(),
            running: (0..voters).map(|_| None).collect(),
            adjust,
            client,
        };
        for id in 1..=voters {
            quorum.start_one(id).await;
        }
        quorum
    }

    async fn start_one(&mut self, id: u64) {
        let handle = self.try_start(id).await.expect("controller starts");
        self.running[id as usize - 1] = Some(handle);
    }

    async fn try_start(&self, id: u64) -> Result<ControllerHandle, crate::error::StartError> {
        let at = id as usize - 1;
        let mut config = config(id, self.formed, self.dirs[at].path());
        config.join = id > self.formed;
        (self.adjust)(&mut config);
        let network = self.network.clone();
        start_on(config, &mut Registry::default(), room::space_of, move |router| {
            let limits = Limits { call_bytes_max: 20 << 20, ..Limits::default() };
            let identity = Identity::new(CLUSTER, Role::Controller, id).expect("valid");
            let metrics = TransportMetrics::unregistered();
            Ok(Arc::new(network.endpoint(identity, address(id), router, limits, metrics)?))
        })
        .await
    }

    /// Takes a controller off the network, both ways, and then stops it: nobody hears a word from it.
    async fn kill(&mut self, id: u64) {
        self.network.crash(address(id));
        let others = |quorum: &Self| (1..=quorum.dirs.len() as u64).filter(move |other| *other != id);
        for other in others(self) {
            self.network.partition(address(id), address(other));
        }
        self.stop(id).await;
        for other in others(self) {
            self.network.heal(address(id), address(other));
        }
    }

    async fn stop(&mut self, id: u64) {
        self.running[id as usize - 1].take().expect("running").shutdown().await;
    }

    fn all(&self) -> impl Iterator<Item = &ControllerHandle> {
        self.running.iter().flatten()
    }

    /// The leader on which all running members agree.
    async fn leader(&self) -> u64 {
        eventually("a leader", || {
            // Whoever waits to be added knows of nobody.
            let waits = |one: &&ControllerHandle| one.leader().is_none() && one.state().applied().0 == 0;
            let mut leaders = self.all().filter(|one| !waits(one)).map(ControllerHandle::leader);
            let first = leaders.next()??;
            let alive = self.running[first.0 as usize - 1].is_some();
            (alive && leaders.all(|leader| leader == Some(first))).then_some(first.0)
        })
        .await
    }

    fn peer(&self, id: u64) -> Peer {
        self.client.peer(target(id))
    }

    async fn ask(&self, id: u64, request: &ControllerRequest) -> Result<ControllerReply, ControllerError> {
        let answer = self.peer(id).ask(MessageKind::Controller, request, PATIENCE).await;
        answer.expect("the call itself works")
    }

    /// Asks whoever leads, as nodes do, until somebody answers.
    async fn ask_leader(&self, request: &ControllerRequest) -> Result<ControllerReply, ControllerError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "no leader answers");
            let leader = self.leader().await;
            match self.ask(leader, request).await {
                Err(ControllerError::NotLeader { .. } | ControllerError::Busy(_)) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn register(&self, incarnation: u128) -> BrokerEpoch {
        match self.ask_leader(&registration(incarnation)).await.expect("registered") {
            ControllerReply::Registered { broker_epoch, .. } => broker_epoch,
            other => panic!("{other:?}"),
        }
    }

    async fn beat(&self, broker_epoch: BrokerEpoch, applied: MetadataIndex) -> HeartbeatReply {
        let heartbeat = Heartbeat { node: NodeId(1), broker_epoch, applied, stopping: false, healthy: true };
        match self.ask_leader(&ControllerRequest::Heartbeat(heartbeat)).await.expect("acknowledged") {
            ControllerReply::Heartbeat(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Heartbeats until the node is unfenced.
    async fn unfence(&self, broker_epoch: BrokerEpoch) -> HeartbeatReply {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "the node is never unfenced");
            let reply = self.beat(broker_epoch, MetadataIndex(u64::MAX)).await;
            if !reply.fenced {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn create(&self, name: &str) -> Result<ControllerReply, ControllerError> {
        self.ask_leader(&create(name)).await
    }

    async fn all_have_topic(&self, name: &str) {
        eventually("all controllers know the topic", || {
            self.all().all(|one| one.state().topics().id(name).is_some()).then_some(())
        })
        .await;
    }

    /// The last topic is not the last change: a node's session goes on changing what is held.
    async fn all_hold_the_same(&self) {
        eventually("all hold the same", || {
            let states: Vec<_> = self.all().map(|one| one.state().to_changes()).collect();
            states.windows(2).all(|pair| pair[0] == pair[1]).then_some(())
        })
        .await;
    }
}

fn target(id: u64) -> PeerTarget {
    PeerTarget::new(address(id), Identity::new(CLUSTER, Role::Controller, id).expect("valid"))
}

fn client(network: &MemoryNetwork, node: u64) -> Arc<dyn Transport> {
    let identity = Identity::new(CLUSTER, Role::StorageNode, node).expect("valid");
    let at = SocketAddr::from(([10, 0, 1, u8::try_from(node).expect("few nodes")], 9182));
    let limits = Limits::default();
    let endpoint = network.endpoint(identity, at, Router::empty(), limits, TransportMetrics::unregistered());
    Arc::new(endpoint.expect("valid limits"))
}

fn registration(incarnation: u128) -> ControllerRequest {
    ControllerRequest::RegisterNode(RegisterNode {
        cluster_id: CLUSTER.into(),
        node: NodeId(1),
        incarnation: Incarnation(Uuid::from_u128(incarnation)),
        directories: vec![DirectoryId(Uuid::from_u128(77))],
        listeners: vec![Listener { name: "PLAINTEXT".into(), host: "h".into(), port: 9092 }],
        control_address: "h:1".into(),
        data_address: "h:2".into(),
        rack: None,
        may_lack: MayLack::Nothing,
    })
}

fn create(name: &str) -> ControllerRequest {
    let topic = NewTopic {
        name: name.into(),
        partitions: Some(3),
        replication_factor: Some(1),
        assignments: vec![],
        configs: vec![],
    };
    ControllerRequest::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false, timeout_ms: 0 })
}

fn created(answer: Result<ControllerReply, ControllerError>) -> TopicId {
    match answer {
        Ok(ControllerReply::TopicsCreated(results)) => results[0].clone().expect("created").topic,
        other => panic!("{other:?}"),
    }
}

async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn plain(config: &mut Config) {
    // A controller that was cut off has nobody to hand its leadership to.
    config.timing.shutdown_ms = 50;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_controller_is_ready_at_once_and_keeps_everything() {
    let begun = Instant::now();
    let mut quorum = Quorum::start(1, plain).await;
    assert!(quorum.all().next().expect("running").ready(PATIENCE).await);
    println!("ready after {:?}", begun.elapsed());
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    let topic = created(quorum.create("kept").await);
    let again = quorum.create("kept").await;
    match again {
        Ok(ControllerReply::TopicsCreated(results)) => {
            assert_eq!(results[0].clone().expect_err("exists").reason, Reason::TopicExists);
        }
        other => panic!("{other:?}"),
    }
    let before = quorum.all().next().expect("running").state();
    quorum.stop(1).await;
    quorum.start_one(1).await;
    let handle = quorum.all().next().expect("running");
    assert!(handle.ready(PATIENCE).await);
    let after = handle.state();
    assert_eq!(after.topics().id("kept"), Some(topic));
    assert_eq!(after.to_changes(), before.to_changes());
    assert_ne!(quorum.register(2).await, epoch, "a new incarnation gets a new epoch");
    quorum.stop(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_controllers_survive_their_leaders_one_after_the_other() {
    let mut quorum = Quorum::start(3, plain).await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    let mut names = Vec::new();
    for round in 0..3 {
        let name = format!("before-{round}");
        created(quorum.create(&name).await);
        names.push(name);
        let leader = quorum.leader().await;
        let begun = Instant::now();
        quorum.kill(leader).await;
        let name = format!("after-{round}");
        created(quorum.create(&name).await);
        println!("answered {:?} after the leader was gone", begun.elapsed());
        names.push(name);
        quorum.start_one(leader).await;
        for name in &names {
            quorum.all_have_topic(name).await;
        }
        // The node's session is fresh under the new leader.
        quorum.unfence(epoch).await;
    }
    quorum.all_hold_the_same().await;
    for id in 1..=3 {
        quorum.stop(id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_does_not_lead_says_who_does() {
    let quorum = Quorum::start(3, plain).await;
    let heartbeat = Heartbeat {
        node: NodeId(1),
        broker_epoch: BrokerEpoch(0),
        applied: MetadataIndex(0),
        stopping: false,
        healthy: true,
    };
    for request in [registration(1), ControllerRequest::Heartbeat(heartbeat)] {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leader = quorum.leader().await;
            let other = (1..=3).find(|id| *id != leader).expect("three");
            let answer = quorum.ask(other, &request).await;
            if answer == Err(ControllerError::NotLeader { leader: Some(ControllerId(leader)) }) {
                break;
            }
            // A machine that stands still elects anew in between.
            assert!(Instant::now() < deadline, "controller {other}: {answer:?}");
        }
    }
}

/// T-49, T-20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_quorum_acknowledges_nothing() {
    let quorum = Quorum::start(3, |config| {
        config.timing.commit_ms = 2_000;
        config.timing.confirm_ms = 300;
    })
    .await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    let topic = created(quorum.create("led-by-node-1").await);
    let leader = quorum.leader().await;
    for other in (1..=3).filter(|id| *id != leader) {
        quorum.network.partition(address(leader), address(other));
    }
    let heartbeat = Heartbeat {
        node: NodeId(1),
        broker_epoch: epoch,
        applied: MetadataIndex(1),
        stopping: false,
        healthy: true,
    };
    let answer = quorum.ask(leader, &ControllerRequest::Heartbeat(heartbeat)).await;
    assert!(
        matches!(answer, Err(ControllerError::Busy(_) | ControllerError::NotLeader { .. })),
        "a deposed leader extends no session: {answer:?}"
    );
    // T-20: it may not know of the leadership in whose name it is asked, and judges nothing.
    let newer = ProposedIsr {
        partition: topic_partition(topic, 0),
        leader_epoch: LeaderEpoch(7),
        partition_epoch: PartitionEpoch(7),
        isr: vec![(NodeId(1), epoch)],
    };
    let request = AlterPartition { node: NodeId(1), broker_epoch: epoch, partitions: vec![newer] };
    let answer = quorum.ask(leader, &ControllerRequest::AlterPartition(request)).await;
    assert!(
        matches!(answer, Err(ControllerError::Busy(_) | ControllerError::NotLeader { .. })),
        "a deposed leader refuses no in-sync set: {answer:?}"
    );
    // The second one finds the first one's outcome open: it waits no longer than that did.
    for name in ["lost", "lost too"] {
        let answer = quorum.ask(leader, &create(name)).await;
        assert!(answer.is_err(), "nothing is promised without a quorum: {answer:?}");
    }
    for other in (1..=3).filter(|id| *id != leader) {
        quorum.network.heal(address(leader), address(other));
    }
    created(quorum.create("after").await);
    quorum.all_have_topic("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_was_away_for_long_gets_a_snapshot() {
    let mut quorum = Quorum::start(3, |config| {
        config.raft.snapshot_entries = 20;
        config.raft.keep_entries = 5;
        config.raft.segment_bytes = 4096;
    })
    .await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    let leader = quorum.leader().await;
    let away = (1..=3).find(|id| *id != leader).expect("three");
    quorum.kill(away).await;
    for n in 0..100 {
        created(quorum.create(&format!("t{n}")).await);
    }
    let snapshots = |dir: &TempDir| std::fs::read_dir(dir.path().join("snapshot")).expect("there").count();
    eventually("a snapshot is written", || (snapshots(&quorum.dirs[leader as usize - 1]) > 0).then_some(()))
        .await;
    quorum.start_one(away).await;
    quorum.all_have_topic("t99").await;
    quorum.all_hold_the_same().await;
    // And everything is still there after all were down.
    for id in 1..=3 {
        quorum.stop(id).await;
    }
    for id in 1..=3 {
        quorum.start_one(id).await;
    }
    quorum.all_have_topic("t0").await;
    quorum.all_have_topic("t99").await;
}

/// T-46: nobody comes back under his id without what he knew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_lost_its_directory_is_not_taken_back() {
    let mut quorum = Quorum::start(3, plain).await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    created(quorum.create("before").await);
    quorum.all_have_topic("before").await;
    let lost = quorum.leader().await;
    quorum.kill(lost).await;
    quorum.dirs[lost as usize - 1] = tempfile::tempdir().expect("temp dir");
    quorum.start_one(lost).await;
    let handle = quorum.running[lost as usize - 1].take().expect("running");
    let reason = tokio::time::timeout(PATIENCE, handle.failed()).await.expect("it is told");
    assert!(reason.contains("must not come back under its old id"), "{reason}");
    assert!(handle.readiness()().iter().any(|missing| missing.contains("must not come back")));
    handle.shutdown().await;
    // The others go on, with everything.
    created(quorum.create("after").await);
    quorum.all_have_topic("before").await;
    quorum.all_have_topic("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_is_fenced_and_let_back_in() {
    let quorum = Quorum::start(1, |config| {
        config.sessions.session_ms = 5_000;
        config.sessions.heartbeat_ms = 100;
    })
    .await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    created(quorum.create("t").await);
    let handle = quorum.all().next().expect("running");
    let leaders = || {
        let state = handle.state();
        let leaders: Vec<_> = state.partitions().iter().map(|(_, partition)| partition.leader).collect();
        leaders
    };
    assert_eq!(leaders(), [Some(NodeId(1)); 3]);
    eventually("the node is fenced", || (!handle.state().nodes().is_active(NodeId(1))).then_some(())).await;
    assert_eq!(leaders(), [None; 3]);
    quorum.unfence(epoch).await;
    assert_eq!(leaders(), [Some(NodeId(1)); 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_speaks_for_another_node() {
    let quorum = Quorum::start(1, plain).await;
    quorum.leader().await;
    let stranger = client(&quorum.network, 2);
    let answer: Result<ControllerReply, ControllerError> = stranger
        .peer(target(1))
        .ask(MessageKind::Controller, &registration(1), PATIENCE)
        .await
        .expect("the call itself works");
    match answer {
        Err(ControllerError::Rejected(rejection)) => {
            assert!(rejection.message.contains("made for node 1"), "{}", rejection.message);
        }
        other => panic!("{other:?}"),
    }
}

/// A follower of the feed that applies what it gets, as nodes do.
struct Follower {
    state: controller_core::ClusterState,
    index: Option<MetadataIndex>,
    snapshots: usize,
    _sender: FrameSender,
    receiver: FrameReceiver,
    parts: Vec<MetadataChange>,
}

impl Follower {
    async fn open(quorum: &Quorum, id: u64, after: Option<MetadataIndex>) -> Self {
        let request = FeedRequest { cluster_id: CLUSTER.into(), after };
        let hello = proto_types::encode(&request).into();
        let stream = quorum.peer(id).open_stream(MessageKind::MetadataFeed, hello, PATIENCE).await;
        let (sender, receiver) = stream.expect("opens");
        Self {
            state: controller_core::ClusterState::new(),
            index: after,
            snapshots: 0,
            _sender: sender,
            receiver,
            parts: Vec::new(),
        }
    }

    async fn next(&mut self) {
        let frame = tokio::time::timeout(PATIENCE, self.receiver.recv_message::<FeedFrame>());
        match frame.await.expect("in time").expect("readable").expect("not the end") {
            FeedFrame::Snapshot { index, first, last, changes } => {
                if first {
                    self.parts.clear();
                }
                self.parts.extend(changes);
                if last {
                    self.state = controller_core::ClusterState::from_changes(index, &self.parts);
                    self.index = Some(index);
                    self.snapshots += 1;
                }
            }
            FeedFrame::Delta { index, changes } => {
                assert!(self.index.is_some_and(|last| last < index), "deltas come in order");
                self.state.apply_batch(index, &changes);
                self.index = Some(index);
            }
        }
    }

    async fn until(&mut self, index: MetadataIndex) {
        while self.index.is_none_or(|at| at < index) {
            self.next().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_controller_feeds_its_followers() {
    let quorum = Quorum::start(3, |config| config.limits.feed_changes_max = 60).await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    created(quorum.create("first").await);
    quorum.all_have_topic("first").await;
    let mut followers = Vec::new();
    for id in 1..=3 {
        followers.push(Follower::open(&quorum, id, None).await);
    }
    for follower in &mut followers {
        follower.next().await;
        assert_eq!(follower.snapshots, 1);
        assert!(follower.state.topics().id("first").is_some());
    }
    created(quorum.create("second").await);
    quorum.all_have_topic("second").await;
    let leader = quorum.leader().await;
    let newest = quorum.running[leader as usize - 1].as_ref().expect("running").state();
    for follower in &mut followers {
        follower.until(newest.applied()).await;
        assert_eq!(follower.snapshots, 1, "deltas do");
        assert_eq!(follower.state.to_changes(), newest.to_changes());
    }
    // One that comes back a little later goes on where it was; one that was away for long starts anew.
    let at = newest.applied();
    let mut soon = Follower::open(&quorum, leader, Some(at)).await;
    soon.state = (*newest).clone();
    created(quorum.create("third").await);
    soon.until(MetadataIndex(at.0 + 1)).await;
    assert!(soon.snapshots == 0 && soon.state.topics().id("third").is_some());
    for n in 0..20 {
        created(quorum.create(&format!("more-{n}")).await);
    }
    let mut late = Follower::open(&quorum, leader, Some(at)).await;
    late.next().await;
    assert_eq!(late.snapshots, 1);
    assert!(late.state.topics().id("more-19").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_wait_for_the_nodes_but_not_for_ever() {
    let quorum = Quorum::start(1, |config| config.timing.propagation_ms = 700).await;
    let epoch = quorum.register(1).await;
    let known = MetadataIndex(quorum.all().next().expect("running").state().applied().0);
    // Unfenced, but it claims no more than it has applied.
    loop {
        if !quorum.beat(epoch, known).await.fenced {
            break;
        }
    }
    let request = |name: &str| match create(name) {
        ControllerRequest::CreateTopics(request) => {
            ControllerRequest::CreateTopics(CreateTopics { timeout_ms: 60_000, ..request })
        }
        other => other,
    };
    let begun = Instant::now();
    created(quorum.ask_leader(&request("slow")).await);
    assert!(begun.elapsed() >= Duration::from_millis(650), "nobody had applied it");
    let fast = request("fast");
    let (answer, reply) = tokio::join!(quorum.ask_leader(&fast), async {
        eventually("it is committed", || {
            quorum.all().next().expect("running").state().topics().id("fast").map(|_| ())
        })
        .await;
        quorum.beat(epoch, quorum.all().next().expect("running").state().applied()).await
    });
    created(answer);
    assert!(!reply.fenced);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_share_batches_and_all_are_answered() {
    let quorum = Quorum::start(1, plain).await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    let answers = futures_util::future::join_all((0..200).map(|n| {
        let peer = quorum.peer(1);
        async move {
            let request = create(&format!("t{}", n % 100));
            peer.ask::<_, Result<ControllerReply, ControllerError>>(
                MessageKind::Controller,
                &request,
                PATIENCE,
            )
            .await
        }
    }))
    .await;
    let ok = answers
        .into_iter()
        .filter(
            |answer| matches!(answer, Ok(Ok(ControllerReply::TopicsCreated(results))) if results[0].is_ok()),
        )
        .count();
    assert_eq!(ok, 100, "each name once");
    assert_eq!(quorum.all().next().expect("running").state().topics().len(), 100);
}

/// Together they are larger than a log entry can be; none of them is refused, and the controller lives on.
/// T-54: many of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_at_once_do_not_become_an_entry_that_is_too_large() {
    const TOPICS: usize = 15;
    // Twenty megabytes take their time on a busy machine; how much is not what is tested.
    let patience = 10 * PATIENCE;
    let quorum = Quorum::start(1, |config| {
        plain(config);
        config.timing.commit_ms = 300_000;
        config.sessions.session_ms = 300_000;
    });
    let quorum = quorum.await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    for n in 0..TOPICS {
        created(quorum.create(&format!("t{n}")).await);
    }
    let answers = futures_util::future::join_all((0..18).map(|n| {
        let peer = quorum.peer(1);
        // 32,700 bytes, different in each request.
        let value = format!("{}:1,", n % 10).repeat(8_175).trim_end_matches(',').to_owned();
        let op =
            |name: &str| ConfigOp { name: name.into(), kind: ConfigOpKind::Set, value: Some(value.clone()) };
        let ops =
            vec![op("leader.replication.throttled.replicas"), op("follower.replication.throttled.replicas")];
        let resources = (0..TOPICS)
            .map(|topic| AlterResource {
                resource: ResourceRef::Topic(format!("t{topic}")),
                replace_all: false,
                ops: ops.clone(),
            })
            .collect();
        let request =
            ControllerRequest::AlterConfigs(AlterConfigs { resources, validate_only: false, timeout_ms: 0 });
        async move {
            peer.ask::<_, Result<ControllerReply, ControllerError>>(
                MessageKind::Controller,
                &request,
                patience,
            )
            .await
        }
    }))
    .await;
    for answer in answers {
        match answer {
            Ok(Ok(ControllerReply::ConfigsAltered(results))) => assert!(results.iter().all(Result::is_ok)),
            other => panic!("{other:?}"),
        }
    }
    created(quorum.create("afterwards").await);
}
