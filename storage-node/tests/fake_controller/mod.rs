//! A controller in a test's hands: real certificates and a real QUIC endpoint, a list of committed changes instead of a
//! quorum. It registers one node, unfences it when it has caught up, creates topics with one replica, and can be made to
//! vanish, to forget, or to refuse.

use bytes::Bytes;
use parking_lot::Mutex;
use proto_types::controller_api::{
    ControllerReply, ControllerRequest, CreatedTopic, FeedFrame, FeedRequest, Heartbeat, HeartbeatReply,
    RegisterNode,
};
use proto_types::error::{ControllerError, Reason, Rejection};
use proto_types::ids::{
    BrokerEpoch, LeaderEpoch, MetadataIndex, NodeId, PartitionEpoch, ProducerId, TopicId,
};
use proto_types::metadata::{MetadataChange, NodeRegistered, PartitionState, topic_partition};
use quic_transport::testing::TestCluster;
use quic_transport::{
    Call, Endpoint, EndpointConfig, FrameReceiver, FrameSender, Limits, MessageKind, Refusal, Role, Roles,
    Router, Transport, TransportMetrics,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

pub(crate) const CLUSTER: &str = "fake-cluster";

/// What the fake controller has committed and seen.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) log: Vec<Vec<MetadataChange>>,
    pub(crate) registrations: Vec<RegisterNode>,
    pub(crate) heartbeats: u64,
    fenced: bool,
    epoch: i64,
    partitions: Vec<(proto_types::ids::TopicPartition, LeaderEpoch)>,
    next_producer_id: i64,
    next_topic: u128,
    /// Answer to the next registrations instead of taking them.
    pub(crate) refuse_registration: Option<Rejection>,
    /// Answer to heartbeats instead of taking them.
    pub(crate) refuse_heartbeat: Option<Rejection>,
}

pub(crate) struct FakeController {
    pub(crate) cluster: Arc<TestCluster>,
    pub(crate) state: Arc<Mutex<State>>,
    committed: watch::Sender<u64>,
    applied: watch::Sender<u64>,
    endpoint: Option<Endpoint>,
    address: SocketAddr,
}

type Answer = Result<ControllerReply, ControllerError>;

impl FakeController {
    pub(crate) fn start() -> Self {
        let cluster = Arc::new(TestCluster::new(CLUSTER));
        let mut fake = Self {
            cluster,
            state: Arc::default(),
            committed: watch::Sender::new(0),
            applied: watch::Sender::new(0),
            endpoint: None,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        fake.come_back();
        fake
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Vanishes with all its connections, and remembers what it has committed.
    pub(crate) async fn go_away(&mut self) {
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.shutdown(Duration::ZERO).await;
        }
    }

    /// Listens (again, at the same address).
    pub(crate) fn come_back(&mut self) {
        let serve = Serve {
            state: Arc::clone(&self.state),
            committed: self.committed.clone(),
            applied: self.applied.clone(),
        };
        let roles = Roles::of(&[Role::StorageNode]);
        let asked = serve.clone();
        let router = Router::builder()
            .ask(MessageKind::Controller, roles, move |_, request| {
                let serve = asked.clone();
                async move { Ok::<Answer, Refusal>(serve.answer(request).await) }
            })
            .stream(MessageKind::MetadataFeed, roles, move |call, sender, receiver| {
                serve.clone().feed(call, sender, receiver)
            })
            .build();
        let config = self.cluster.config(Role::Controller, 1, Limits::default());
        let config = EndpointConfig { bind: self.address, ..config };
        let endpoint = Endpoint::bind(config, router, TransportMetrics::unregistered()).expect("a free port");
        self.address = endpoint.local_addr();
        self.endpoint = Some(endpoint);
    }

    /// Waits until the node has applied everything that is committed.
    pub(crate) async fn caught_up(&self) {
        let committed = *self.committed.borrow();
        let mut applied = self.applied.subscribe();
        applied.wait_for(|applied| *applied >= committed).await.expect("the sender lives");
    }
}

#[derive(Clone)]
struct Serve {
    state: Arc<Mutex<State>>,
    committed: watch::Sender<u64>,
    applied: watch::Sender<u64>,
}

impl Serve {
    fn commit(&self, state: &mut State, changes: Vec<MetadataChange>) -> u64 {
        state.log.push(changes);
        let index = state.log.len() as u64;
        self.committed.send_replace(index);
        index
    }

    async fn answer(&self, request: ControllerRequest) -> Answer {
        match request {
            ControllerRequest::RegisterNode(request) => self.register(request),
            ControllerRequest::Heartbeat(heartbeat) => self.heartbeat(&heartbeat),
            ControllerRequest::CreateTopics(create) => {
                let (results, index) = {
                    let mut state = self.state.lock();
                    let results: Vec<_> = create
                        .topics
                        .iter()
                        .map(|new| self.create(&mut state, &new.name, new.partitions))
                        .collect();
                    (results, state.log.len() as u64)
                };
                let mut applied = self.applied.subscribe();
                applied.wait_for(|applied| *applied >= index).await.expect("the sender lives");
                Ok(ControllerReply::TopicsCreated(results))
            }
            ControllerRequest::AllocateProducerIds(_) => {
                let mut state = self.state.lock();
                let first = ProducerId(state.next_producer_id);
                state.next_producer_id += 1000;
                Ok(ControllerReply::ProducerIds { first, count: 1000 })
            }
            other => panic!("not played: {other:?}"),
        }
    }

    fn register(&self, request: RegisterNode) -> Answer {
        let mut state = self.state.lock();
        state.registrations.push(request.clone());
        if let Some(rejection) = state.refuse_registration.clone() {
            return Err(rejection.into());
        }
        state.epoch = state.log.len() as i64 + 1;
        state.fenced = true;
        let broker_epoch = BrokerEpoch(state.epoch);
        let mut changes = vec![MetadataChange::NodeRegistered(NodeRegistered {
            node: request.node,
            broker_epoch,
            incarnation: request.incarnation,
            directories: request.directories,
            listeners: request.listeners,
            control_address: request.control_address,
            data_address: request.data_address,
            rack: request.rack,
        })];
        changes.extend(leaders(&mut state, request.node, None));
        self.commit(&mut state, changes);
        Ok(ControllerReply::Registered { broker_epoch, session_ms: 3000, heartbeat_ms: 50 })
    }

    fn heartbeat(&self, heartbeat: &Heartbeat) -> Answer {
        let mut state = self.state.lock();
        if let Some(rejection) = state.refuse_heartbeat.clone() {
            return Err(rejection.into());
        }
        if heartbeat.broker_epoch != BrokerEpoch(state.epoch) {
            let message = "another incarnation has registered".to_owned();
            return Err(Rejection { reason: Reason::StaleBrokerEpoch, message }.into());
        }
        state.heartbeats += 1;
        self.applied.send_replace(heartbeat.applied.0);
        let caught_up = heartbeat.applied.0 >= state.epoch.unsigned_abs();
        let fenced = heartbeat.stopping || !heartbeat.healthy || (state.fenced && !caught_up);
        if fenced != state.fenced {
            state.fenced = fenced;
            let (node, broker_epoch) = (heartbeat.node, heartbeat.broker_epoch);
            let mut changes = vec![MetadataChange::NodeFenced { node, broker_epoch, fenced }];
            changes.extend(leaders(&mut state, node, (!fenced).then_some(node)));
            self.commit(&mut state, changes);
        }
        let committed = MetadataIndex(state.log.len() as u64);
        Ok(ControllerReply::Heartbeat(HeartbeatReply { committed, fenced, may_stop: heartbeat.stopping }))
    }

    fn create(
        &self,
        state: &mut State,
        name: &str,
        partitions: Option<i32>,
    ) -> Result<CreatedTopic, Rejection> {
        state.next_topic += 1;
        let topic = TopicId(Uuid::from_u128(state.next_topic));
        let partitions = partitions.unwrap_or(1);
        let mut changes = vec![MetadataChange::TopicCreated { topic, name: name.to_owned() }];
        for index in 0..partitions {
            let partition = topic_partition(topic, index);
            state.partitions.push((partition, LeaderEpoch(0)));
            changes.push(partition_set(partition, NodeId(1), Some(NodeId(1)), LeaderEpoch(0)));
        }
        self.commit(state, changes);
        Ok(CreatedTopic { topic, partitions, replication_factor: 1, configs: vec![] })
    }

    async fn feed(self, call: Call, mut sender: FrameSender, _receiver: FrameReceiver) {
        let hello: FeedRequest = call.decode().expect("the node speaks our language");
        assert_eq!(hello.cluster_id, CLUSTER);
        let mut committed = self.committed.subscribe();
        let mut sent = hello.after.map_or(0, |index| index.0);
        if sent == 0 {
            let (index, changes) = {
                let log = &self.state.lock().log;
                (log.len() as u64, log.concat())
            };
            sent = index;
            let half = changes.len() / 2;
            for (part, first) in [(changes[..half].to_vec(), true), (changes[half..].to_vec(), false)] {
                let frame =
                    FeedFrame::Snapshot { index: MetadataIndex(index), first, last: !first, changes: part };
                if sender.send(Bytes::from(proto_types::encode(&frame))).await.is_err() {
                    return;
                }
            }
        }
        while let Ok(committed) = committed.wait_for(|index| *index > sent).await.map(|index| *index) {
            while sent < committed {
                let changes = self.state.lock().log[sent as usize].clone();
                sent += 1;
                let frame = FeedFrame::Delta { index: MetadataIndex(sent), changes };
                if sender.send_message(&frame).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// New states of all partitions under `leader`, each with its next epoch.
fn leaders(state: &mut State, node: NodeId, leader: Option<NodeId>) -> Vec<MetadataChange> {
    let next = |(partition, epoch): &mut (proto_types::ids::TopicPartition, LeaderEpoch)| {
        epoch.0 += 1;
        partition_set(*partition, node, leader, *epoch)
    };
    state.partitions.iter_mut().map(next).collect()
}

fn partition_set(
    partition: proto_types::ids::TopicPartition,
    node: NodeId,
    leader: Option<NodeId>,
    leader_epoch: LeaderEpoch,
) -> MetadataChange {
    let state = PartitionState {
        replicas: vec![node],
        adding: vec![],
        removing: vec![],
        isr: vec![node],
        elr: vec![],
        leader,
        leader_epoch,
        partition_epoch: PartitionEpoch(leader_epoch.0),
    };
    MetadataChange::PartitionSet { partition, state }
}
