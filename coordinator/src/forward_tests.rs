//! Requests on a forwarding stream against shards whose logs are in memory.

use crate::clock::Clock;
use crate::forward::{ForwardServices, ForwardSlot, add_route};
use crate::group_log::memory::{Faults, MemoryLog};
use crate::image::Image;
use crate::lease::SharedLease;
use crate::metadata_feed::Published;
use crate::metrics::CoordinatorMetrics;
use crate::runtime::{OwnedShards, Runtime};
use crate::shard_task::ShardServices;
use arc_swap::ArcSwap;
use bytes::Bytes;
use coordinator_core::Config as CoreConfig;
use kafka_wire_core::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse,
};
use kafka_wire_core::{ErrorCode, Message, Request, Writer};
use proto_types::coordinator_api::{AnswerFrame, ForwardFrame, ForwardRefusal, ForwardedRequest, Shard};
use proto_types::ids::{
    CoordinatorEpoch, CoordinatorId, Incarnation, LeaderEpoch, MetadataIndex, NodeId, PartitionEpoch,
    RegistrationEpoch, TopicId,
};
use proto_types::metadata::{CoordinatorRegistered, MetadataChange, PartitionState, topic_partition};
use quic_transport::memory::{MemoryEndpoint, MemoryNetwork, MemoryNetworkConfig};
use quic_transport::{
    FrameReceiver, FrameSender, Identity, Limits, MessageKind, PeerTarget, Role, Router, Transport,
    TransportMetrics,
};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(60);

/// A coordinator with shard 0 of `__consumer_offsets`, and a storage node's stream to it.
struct World {
    lease: Arc<SharedLease>,
    clock: Clock,
    log: Arc<MemoryLog>,
    images: mpsc::Sender<Published>,
    image: Image,
    applied: watch::Receiver<MetadataIndex>,
    sender: FrameSender,
    receiver: FrameReceiver,
    _endpoints: [MemoryEndpoint; 2],
}

fn offsets_topic() -> TopicId {
    TopicId(Uuid::from_u128(1))
}

fn shard() -> Shard {
    topic_partition(offsets_topic(), 0)
}

fn partition(topic: u128) -> MetadataChange {
    let state = PartitionState {
        replicas: vec![NodeId(1)],
        adding: vec![],
        removing: vec![],
        isr: vec![NodeId(1)],
        elr: vec![],
        leader: Some(NodeId(1)),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
    };
    MetadataChange::PartitionSet { partition: topic_partition(TopicId(Uuid::from_u128(topic)), 0), state }
}

fn assigned(owner: i32, epoch: i32) -> MetadataChange {
    let owner = Some(CoordinatorId(owner));
    MetadataChange::ShardAssigned { shard: shard(), owner, epoch: CoordinatorEpoch(epoch) }
}

impl World {
    async fn new() -> Self {
        let (clock, incarnation) = (Clock::start(), Incarnation(Uuid::from_u128(9)));
        let metrics = Arc::new(CoordinatorMetrics::register(&mut Default::default()));
        let lease = Arc::new(SharedLease::new(clock, 100));
        lease.begin(60_000);
        let log = Arc::new(MemoryLog::default());
        let services = Arc::new(ShardServices {
            config: Arc::new(CoreConfig { group_initial_rebalance_delay_ms: 0, ..CoreConfig::default() }),
            log: Arc::clone(&log) as _,
            image: Arc::new(ArcSwap::from_pointee(Image::default())),
            lease: Arc::clone(&lease),
            clock,
            metrics: Arc::clone(&metrics),
            loads: Semaphore::new(1),
            batch_output_max: 1 << 20,
        });
        let shards = Arc::new(OwnedShards::default());
        let slot: ForwardSlot = Arc::new(OnceLock::new());
        let _first = slot.set(ForwardServices {
            shards: Arc::clone(&shards),
            lease: Arc::clone(&lease),
            metrics,
            requests_per_stream_max: 2,
        });
        let (applied, applied_seen) = watch::channel(MetadataIndex(0));
        let (images, to_apply) = mpsc::channel(4);
        let draining = CancellationToken::new();
        let coordinator = CoordinatorId(1);
        let runtime = Runtime { coordinator, incarnation, services, shards, queue_max: 8, applied, draining };
        tokio::spawn(runtime.run(to_apply));
        let (endpoints, (sender, receiver)) = connect(&slot).await;
        let mut world = Self {
            lease,
            clock,
            log,
            images,
            image: Image::default(),
            applied: applied_seen,
            sender,
            receiver,
            _endpoints: endpoints,
        };
        let registered = CoordinatorRegistered {
            coordinator,
            epoch: RegistrationEpoch(1),
            incarnation,
            control_address: String::new(),
        };
        let created = |topic: u128, name: &str| MetadataChange::TopicCreated {
            topic: TopicId(Uuid::from_u128(topic)),
            name: name.to_owned(),
        };
        let changes = [
            MetadataChange::CoordinatorRegistered(registered),
            created(1, "__consumer_offsets"),
            partition(1),
            created(2, "t"),
            partition(2),
            assigned(1, 5),
        ];
        world.publish(&changes).await;
        world.lease.acknowledged(world.clock.boot(), world.image.index());
        world
    }

    async fn publish(&mut self, changes: &[MetadataChange]) {
        let index = MetadataIndex(self.image.index().0 + 1);
        let deleted = self.image.apply(index, changes);
        let published = Published { image: Arc::new(self.image.clone()), deleted };
        self.images.send(published).await.expect("the runtime runs");
        self.applied.wait_for(|applied| *applied == index).await.expect("the runtime runs");
    }

    async fn send<R: Request>(&mut self, id: u64, version: i16, request: &R) {
        let mut writer = Writer::new();
        request.encode(&mut writer, version).expect("fits");
        let request = ForwardedRequest {
            id,
            shard: shard(),
            api_key: R::KEY as i16,
            api_version: version,
            client_id: Some("c".into()),
            client_host: "/127.0.0.1".into(),
            listener: "L".into(),
            principal: "User:ANONYMOUS".into(),
            body: writer.finish().into_bytes().expect("no regions").to_vec(),
        };
        self.sender.send_message(&ForwardFrame::Request(request)).await.expect("sent");
    }

    async fn answer(&mut self) -> AnswerFrame {
        let frame = tokio::time::timeout(LONG, self.receiver.recv_message()).await;
        frame.expect("an answer in time").expect("readable").expect("the stream goes on")
    }

    /// Sends the request until it is answered by something else than "loading".
    async fn ask<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        retry: impl Fn(&R::Response) -> bool,
    ) -> R::Response {
        loop {
            self.send(7, version, request).await;
            match self.answer().await {
                AnswerFrame::Answer { id: 7, body, .. } => {
                    let response = R::Response::decode_exact(Bytes::from(body), version).expect("readable");
                    if !retry(&response) {
                        return response;
                    }
                }
                other @ (AnswerFrame::Answer { .. } | AnswerFrame::Refused { .. }) => panic!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn commit(&mut self, offset: i64) -> ErrorCode {
        let code = |response: &OffsetCommitResponse| response.topics[0].partitions[0].error_code;
        let loading =
            |response: &OffsetCommitResponse| code(response) == ErrorCode::CoordinatorLoadInProgress;
        code(&self.ask(8, &commit_request(offset), loading).await)
    }

    async fn fetch(&mut self) -> i64 {
        let loading =
            |response: &OffsetFetchResponse| response.error_code == ErrorCode::CoordinatorLoadInProgress;
        let topics = vec![OffsetFetchRequestTopic { name: "t".into(), partition_indexes: vec![0] }];
        let request = OffsetFetchRequest { group_id: "g".into(), topics: Some(topics), ..Default::default() };
        self.ask(5, &request, loading).await.topics[0].partitions[0].committed_offset
    }
}

async fn connect(slot: &ForwardSlot) -> ([MemoryEndpoint; 2], (FrameSender, FrameReceiver)) {
    let network = MemoryNetwork::new(MemoryNetworkConfig::default());
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let identity = |role| Identity::new("c", role, 1).expect("a name");
    let endpoint = |role, port, router| {
        let metrics = TransportMetrics::unregistered();
        network.endpoint(identity(role), at(port), router, Limits::default(), metrics).expect("bound")
    };
    let ours = endpoint(Role::Coordinator, 1, add_route(Router::builder(), slot).build());
    let node = endpoint(Role::StorageNode, 2, Router::empty());
    let peer = node.peer(PeerTarget::new(at(1), identity(Role::Coordinator)));
    let stream = peer.open_stream(MessageKind::Forward, Bytes::new(), LONG).await.expect("opened");
    ([ours, node], stream)
}

fn commit_request(offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition {
        partition_index: 0,
        committed_offset: offset,
        committed_metadata: Some("m".into()),
        ..Default::default()
    };
    OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn join_request() -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: "g2".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata: Bytes::new() }],
        ..Default::default()
    }
}

#[tokio::test]
async fn what_is_committed_is_fetched_also_after_a_take_over() {
    let mut world = World::new().await;
    assert_eq!(world.commit(42).await, ErrorCode::None);
    assert_eq!(world.fetch().await, 42);
    // Away to another coordinator, and back: only the log knows.
    world.publish(&[assigned(2, 6)]).await;
    world.send(1, 5, &OffsetFetchRequest { group_id: "g".into(), ..Default::default() }).await;
    assert_eq!(world.answer().await, AnswerFrame::Refused { id: 1, reason: ForwardRefusal::NotOwner });
    world.publish(&[assigned(1, 7)]).await;
    assert_eq!(world.fetch().await, 42);
}

#[tokio::test]
async fn lost_and_refused_appends_lose_and_double_nothing() {
    let mut world = World::new().await;
    assert_eq!(world.commit(1).await, ErrorCode::None);
    world.log.set_faults(Faults { appends_refused: 1, answers_lost: 0 });
    assert_eq!(world.commit(2).await, ErrorCode::None, "tried again");
    assert_eq!(world.fetch().await, 2);
    world.log.set_faults(Faults { appends_refused: 0, answers_lost: 1 });
    let code = world.commit(3).await;
    assert!([ErrorCode::None, ErrorCode::CoordinatorNotAvailable].contains(&code), "{code:?}");
    assert_eq!(world.fetch().await, 3, "it stands in the log, whatever the answer");
}

#[tokio::test]
async fn without_a_lease_nothing_is_answered() {
    let mut world = World::new().await;
    assert_eq!(world.commit(42).await, ErrorCode::None);
    world.lease.lost();
    world.send(1, 8, &commit_request(43)).await;
    assert!(matches!(world.answer().await, AnswerFrame::Refused { id: 1, .. }));
    world.lease.acknowledged(world.clock.boot(), world.image.index());
    assert_eq!(world.fetch().await, 42);
}

#[tokio::test]
async fn answers_are_bounded_and_an_abandoned_request_gives_its_place_back() {
    let mut world = World::new().await;
    assert_eq!(world.commit(42).await, ErrorCode::None);
    // The second member parks: the first one is not there to complete the rebalance.
    let joined = world.ask::<JoinGroupRequest>(0, &join_request(), |_| false).await;
    assert_eq!(joined.error_code, ErrorCode::None);
    world.send(10, 0, &join_request()).await;
    world.send(11, 0, &join_request()).await;
    world.send(12, 0, &join_request()).await;
    assert_eq!(world.answer().await, AnswerFrame::Refused { id: 12, reason: ForwardRefusal::Busy });
    world.sender.send_message(&ForwardFrame::Abandon { id: 10 }).await.expect("sent");
    assert_eq!(world.fetch().await, 42, "there is room again");
    // The parked ones are aborted when the shard goes elsewhere.
    world.publish(&[assigned(2, 6)]).await;
    assert_eq!(world.answer().await, AnswerFrame::Refused { id: 11, reason: ForwardRefusal::LogUnavailable });
}

#[tokio::test]
async fn bad_requests_are_refused_and_the_stream_goes_on() {
    let mut world = World::new().await;
    let refused = |reason| AnswerFrame::Refused { id: 1, reason };
    let mut request = ForwardedRequest {
        id: 1,
        shard: shard(),
        api_key: JoinGroupRequest::KEY as i16,
        api_version: 5,
        client_id: None,
        client_host: String::new(),
        listener: String::new(),
        principal: String::new(),
        body: vec![0xff; 3],
    };
    world.sender.send_message(&ForwardFrame::Request(request.clone())).await.expect("sent");
    assert_eq!(world.answer().await, refused(ForwardRefusal::Malformed));
    request.api_key = 3;
    world.sender.send_message(&ForwardFrame::Request(request.clone())).await.expect("sent");
    assert_eq!(world.answer().await, refused(ForwardRefusal::Unsupported));
    request.api_key = 30_000;
    world.sender.send_message(&ForwardFrame::Request(request)).await.expect("sent");
    assert_eq!(world.answer().await, refused(ForwardRefusal::Unsupported));
    assert_eq!(world.commit(1).await, ErrorCode::None);
}

#[tokio::test]
async fn joins_are_answered_in_the_version_that_was_asked() {
    let mut world = World::new().await;
    assert_eq!(world.commit(1).await, ErrorCode::None);
    for version in JoinGroupRequest::VERSIONS {
        let request = JoinGroupRequest { group_id: format!("v{version}").into(), ..join_request() };
        let joined: JoinGroupResponse = world.ask(version, &request, |_| false).await;
        let expected = if version >= 4 { ErrorCode::MemberIdRequired } else { ErrorCode::None };
        assert_eq!(joined.error_code, expected, "version {version}");
        assert!(!joined.member_id.is_empty());
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_a_refusal_and_the_stream_goes_on() {
    let mut world = World::new().await;
    assert_eq!(world.commit(1).await, ErrorCode::None);
    // Four bytes of the request become more than eighteen of the answer.
    let topic = OffsetFetchRequestTopic { name: "t".into(), partition_indexes: (0..1_000_000).collect() };
    let request =
        OffsetFetchRequest { group_id: "g".into(), topics: Some(vec![topic]), ..Default::default() };
    world.send(7, 5, &request).await;
    assert_eq!(world.answer().await, AnswerFrame::Refused { id: 7, reason: ForwardRefusal::Malformed });
    assert_eq!(world.commit(2).await, ErrorCode::None);
}
