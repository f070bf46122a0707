//! Forwarding against coordinators that the test plays, over the network in memory.

use crate::coordinator_port::{CoordinatorPort, GroupCall, NoAnswer};
use crate::coordinators::{Coordinators, ForwardLimits};
use crate::metrics::NodeMetrics;
use crate::published_image::PublishedImage;
use crate::test_node::{apply, topic_id};
use bytes::Bytes;
use kafka_wire_core::ApiKey;
use proto_types::coordinator_api::{AnswerFrame, ForwardFrame, ForwardRefusal, Shard};
use proto_types::ids::{CoordinatorEpoch, CoordinatorId, Incarnation, RegistrationEpoch};
use proto_types::metadata::{CoordinatorRegistered, MetadataChange, topic_partition};
use quic_transport::memory::{MemoryEndpoint, MemoryNetwork, MemoryNetworkConfig};
use quic_transport::{Identity, Limits, MessageKind, Role, Roles, Router, TransportMetrics};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use uuid::Uuid;

/// What a coordinator does with a frame; none: nothing.
type Play = Arc<dyn Fn(&ForwardFrame) -> Option<AnswerFrame> + Send + Sync>;

struct World {
    network: MemoryNetwork,
    published: Arc<PublishedImage>,
    coordinators: Arc<Coordinators>,
}

fn shard() -> Shard {
    topic_partition(topic_id(1), 0)
}

fn at(id: i32) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 100 + u16::try_from(id).expect("small")))
}

fn identity(role: Role, id: i32) -> Identity {
    Identity::new("c", role, id.unsigned_abs().into()).expect("a name")
}

fn registered(id: i32) -> MetadataChange {
    MetadataChange::CoordinatorRegistered(CoordinatorRegistered {
        coordinator: CoordinatorId(id),
        epoch: RegistrationEpoch(1),
        incarnation: Incarnation(Uuid::from_u128(1)),
        control_address: at(id).to_string(),
    })
}

fn assigned(owner: Option<i32>, epoch: i32) -> MetadataChange {
    let owner = owner.map(CoordinatorId);
    MetadataChange::ShardAssigned { shard: shard(), owner, epoch: CoordinatorEpoch(epoch) }
}

fn call() -> GroupCall {
    GroupCall {
        shard: shard(),
        api: ApiKey::Heartbeat,
        api_version: 4,
        client_id: None,
        client_host: "/127.0.0.1".into(),
        listener: "L".into(),
        principal: "User:ANONYMOUS".into(),
        body: Bytes::from_static(b"body"),
    }
}

/// An answer under an epoch, whose body is `body`.
fn says(epoch: i32, body: &'static [u8]) -> Play {
    Arc::new(move |frame| match frame {
        ForwardFrame::Request(request) => {
            Some(AnswerFrame::Answer { id: request.id, epoch: CoordinatorEpoch(epoch), body: body.to_vec() })
        }
        ForwardFrame::Abandon { .. } => None,
    })
}

fn refuses(reason: ForwardRefusal) -> Play {
    Arc::new(move |frame| match frame {
        ForwardFrame::Request(request) => Some(AnswerFrame::Refused { id: request.id, reason }),
        ForwardFrame::Abandon { .. } => None,
    })
}

impl World {
    fn new() -> Self {
        let network = MemoryNetwork::new(MemoryNetworkConfig::default());
        let endpoint = network
            .endpoint(
                identity(Role::StorageNode, 1),
                at(0),
                Router::empty(),
                Limits::default(),
                TransportMetrics::unregistered(),
            )
            .expect("bound");
        let published = Arc::new(PublishedImage::default());
        let limits = ForwardLimits {
            requests_max: 2,
            open_max: Duration::from_secs(1),
            recheck: Duration::from_millis(500),
        };
        let transport = Arc::new(endpoint);
        let coordinators =
            Coordinators::new(transport, Arc::clone(&published), limits, Arc::new(NodeMetrics::default()));
        Self { network, published, coordinators: Arc::new(coordinators) }
    }

    fn apply(&self, changes: &[MetadataChange]) {
        apply(&self.published, changes);
    }

    /// A coordinator at its address.
    fn coordinator(&self, id: i32, play: Play) -> MemoryEndpoint {
        let roles = Roles::of(&[Role::StorageNode]);
        let router =
            Router::builder().stream(MessageKind::Forward, roles, move |_, mut sender, mut frames| {
                let play = Arc::clone(&play);
                async move {
                    while let Ok(Some(frame)) = frames.recv_message::<ForwardFrame>().await {
                        if let Some(answer) = play(&frame)
                            && sender.send_message(&answer).await.is_err()
                        {
                            return;
                        }
                    }
                }
            });
        let metrics = TransportMetrics::unregistered();
        let identity = identity(Role::Coordinator, id);
        self.network.endpoint(identity, at(id), router.build(), Limits::default(), metrics).expect("bound")
    }

    async fn forward(&self) -> Result<Bytes, NoAnswer> {
        let forwarding = self.coordinators.forward(call());
        tokio::time::timeout(Duration::from_secs(60), forwarding).await.expect("an answer in time")
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_answers() {
    let world = World::new();
    assert_eq!(world.forward().await, Err(NoAnswer::NotAvailable), "there is no shard yet");
    let _one = world.coordinator(1, says(3, b"one"));
    world.apply(&[registered(1), assigned(None, 2)]);
    assert_eq!(world.forward().await, Err(NoAnswer::NotAvailable), "nobody owns it");
    world.apply(&[assigned(Some(1), 3)]);
    assert_eq!(world.forward().await, Ok(Bytes::from_static(b"one")));
    let _two = world.coordinator(2, says(4, b"two"));
    world.apply(&[registered(2), assigned(Some(2), 4)]);
    assert_eq!(world.forward().await, Ok(Bytes::from_static(b"two")));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_an_older_epoch_is_not_passed_on() {
    let world = World::new();
    let _zombie = world.coordinator(1, says(3, b"old"));
    world.apply(&[registered(1), assigned(Some(1), 4)]);
    assert_eq!(world.forward().await, Err(NoAnswer::NotAvailable));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_own_it_is_asked_once_more_when_the_image_has_had_its_time() {
    let world = World::new();
    let _one = world.coordinator(1, refuses(ForwardRefusal::NotOwner));
    let _two = world.coordinator(2, says(5, b"two"));
    world.apply(&[registered(1), registered(2), assigned(Some(1), 4)]);
    assert_eq!(world.forward().await, Err(NoAnswer::Loading), "it will own it soon");
    let coordinators = Arc::clone(&world.coordinators);
    let asking = tokio::spawn(async move { coordinators.forward(call()).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.apply(&[assigned(Some(2), 5)]);
    assert_eq!(asking.await.expect("answered"), Ok(Bytes::from_static(b"two")));
}

#[tokio::test(start_paused = true)]
async fn refusals_say_whether_to_come_back() {
    let cases = [
        (ForwardRefusal::Loading, NoAnswer::Loading),
        (ForwardRefusal::Busy, NoAnswer::NotAvailable),
        (ForwardRefusal::LogUnavailable, NoAnswer::NotAvailable),
        (ForwardRefusal::Unsupported, NoAnswer::NotAvailable),
        (ForwardRefusal::Malformed, NoAnswer::Malformed),
    ];
    for (reason, expected) in cases {
        let world = World::new();
        let _one = world.coordinator(1, refuses(reason));
        world.apply(&[registered(1), assigned(Some(1), 4)]);
        assert_eq!(world.forward().await, Err(expected), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_when_the_shard_moves_or_the_coordinator_dies() {
    let world = World::new();
    let silent: Play = Arc::new(|_| None);
    let _one = world.coordinator(1, Arc::clone(&silent));
    world.apply(&[registered(1), assigned(Some(1), 4)]);
    let ask = || {
        let coordinators = Arc::clone(&world.coordinators);
        tokio::spawn(async move { coordinators.forward(call()).await })
    };
    let parked = ask();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!parked.is_finished(), "a parked request may wait for minutes");
    world.apply(&[assigned(None, 5)]);
    assert_eq!(parked.await.expect("answered"), Err(NoAnswer::NotAvailable));
    world.apply(&[assigned(Some(1), 6)]);
    let parked = ask();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.network.crash(at(1));
    assert_eq!(parked.await.expect("answered"), Err(NoAnswer::NotAvailable));
    // The next request finds the coordinator's successor at the same address.
    let _again = world.coordinator(1, says(6, b"again"));
    assert_eq!(world.forward().await, Ok(Bytes::from_static(b"again")));
}

#[tokio::test(start_paused = true)]
async fn requests_are_bounded_and_a_client_that_goes_withdraws_its_own() {
    let world = World::new();
    let (seen, mut frames) = mpsc::channel(8);
    let silent: Play = Arc::new(move |frame| {
        seen.try_send(frame.clone()).expect("room");
        None
    });
    let _one = world.coordinator(1, silent);
    world.apply(&[registered(1), assigned(Some(1), 4)]);
    let ask = || {
        let coordinators = Arc::clone(&world.coordinators);
        tokio::spawn(async move { coordinators.forward(call()).await })
    };
    let (first, _second) = (ask(), ask());
    let ids = [frames.recv().await, frames.recv().await].map(|frame| match frame {
        Some(ForwardFrame::Request(request)) => request.id,
        other => panic!("{other:?}"),
    });
    assert_eq!(world.forward().await, Err(NoAnswer::NotAvailable), "two are open");
    first.abort();
    assert_eq!(frames.recv().await, Some(ForwardFrame::Abandon { id: ids[0] }));
    let _third = ask();
    assert!(matches!(frames.recv().await, Some(ForwardFrame::Request(_))), "there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_fit_is_refused_and_the_others_go_on() {
    let world = World::new();
    let (seen, mut frames) = mpsc::channel(8);
    let silent: Play = Arc::new(move |frame| {
        seen.try_send(frame.clone()).expect("room");
        None
    });
    let _one = world.coordinator(1, silent);
    world.apply(&[registered(1), assigned(Some(1), 4)]);
    let coordinators = Arc::clone(&world.coordinators);
    let parked = tokio::spawn(async move { coordinators.forward(call()).await });
    assert!(matches!(frames.recv().await, Some(ForwardFrame::Request(_))));
    let large = GroupCall { body: Bytes::from(vec![0; Limits::default().frame_bytes_max]), ..call() };
    assert_eq!(world.coordinators.forward(large).await, Err(NoAnswer::Malformed));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!parked.is_finished(), "its stream is still there");
    parked.abort();
}
