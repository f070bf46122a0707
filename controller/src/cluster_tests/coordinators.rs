//! T-80a for coordinators: a leader that is cut off from its quorum, but not from a coordinator, keeps no lease alive. By
//! the time at which the shards have another owner, every lease that the old one was ever granted is over.

use super::*;
use controller_core::state::Ownership;
use proto_types::metadata::InternalTopic;

/// Longest pause of a coordinator between its heartbeats.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the old leader must have refused before the test believes it.
const REFUSALS_MIN: u32 = 5;

/// A coordinator that beats by hand.
struct Coordinator {
    id: CoordinatorId,
    client: Arc<dyn Transport>,
    epoch: RegistrationEpoch,
    session: Duration,
}

impl Coordinator {
    async fn register(quorum: &Quorum, id: i32, leader: u64) -> Self {
        let coordinator = CoordinatorId(id);
        let number = u8::try_from(id).expect("few coordinators");
        let identity = Identity::new(CLUSTER, Role::Coordinator, u64::from(number)).expect("valid");
        let at = SocketAddr::from(([10, 0, 2, number], 9184));
        let (limits, metrics) = (Limits::default(), TransportMetrics::unregistered());
        let endpoint = quorum.network.endpoint(identity, at, Router::empty(), limits, metrics);
        let client: Arc<dyn Transport> = Arc::new(endpoint.expect("valid limits"));
        let request = ControllerRequest::RegisterCoordinator(RegisterCoordinator {
            cluster_id: CLUSTER.into(),
            coordinator,
            incarnation: Incarnation(Uuid::from_u128(u128::from(number))),
            control_address: at.to_string(),
        });
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "never registered");
            match ask(&client, leader, &request).await {
                Ok(ControllerReply::CoordinatorRegistered { epoch, session_ms, .. }) => {
                    let session = Duration::from_millis(session_ms);
                    return Self { id: coordinator, client, epoch, session };
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// One heartbeat; whether it was acknowledged, and what with.
    async fn beat(&self, controller: u64) -> Option<CoordinatorHeartbeatReply> {
        let heartbeat = CoordinatorHeartbeat {
            coordinator: self.id,
            epoch: self.epoch,
            applied: MetadataIndex(u64::MAX),
            stopping: false,
        };
        let request = ControllerRequest::CoordinatorHeartbeat(heartbeat);
        match ask(&self.client, controller, &request).await {
            Ok(ControllerReply::CoordinatorHeartbeat(reply)) => Some(reply),
            Ok(other) => panic!("{other:?}"),
            Err(ControllerError::Busy(_) | ControllerError::NotLeader { .. }) => None,
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Beats until that is acknowledged; from when on the lease runs.
    async fn last_lease(&self, controller: u64) -> Instant {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let from = Instant::now();
            if self.beat(controller).await.is_some_and(|reply| !reply.fenced) {
                return from;
            }
            assert!(from < deadline, "never acknowledged");
        }
    }

    async fn unfence(&self, controller: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.beat(controller).await.is_none_or(|reply| reply.fenced) {
            assert!(Instant::now() < deadline, "never let in");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn ask(
    client: &Arc<dyn Transport>,
    controller: u64,
    request: &ControllerRequest,
) -> Result<ControllerReply, ControllerError> {
    let answer = client.peer(target(controller)).ask(MessageKind::Controller, request, PATIENCE).await;
    answer.expect("the call itself works")
}

/// Who owns the shards, as this controller knows it.
fn owners(quorum: &Quorum, controller: u64) -> Vec<Ownership> {
    let handle = quorum.running[controller as usize - 1].as_ref().expect("running");
    handle.state().shards().iter().map(|(_, ownership)| ownership).collect()
}

fn still_owns(quorum: &Quorum, controller: u64, coordinator: &Coordinator) -> bool {
    owners(quorum, controller).iter().any(|ownership| ownership.owner == Some(coordinator.id))
}

fn all_owned_by(quorum: &Quorum, controller: u64, coordinator: &Coordinator) -> bool {
    let owners = owners(quorum, controller);
    !owners.is_empty() && owners.iter().all(|ownership| ownership.owner == Some(coordinator.id))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leader_extends_no_lease_of_a_coordinator() {
    let quorum = Quorum::start(3, |config| {
        config.timing.confirm_ms = 300;
        config.sessions.session_ms = 4_000;
    })
    .await;
    let epoch = quorum.register(1).await;
    quorum.unfence(epoch).await;
    let deposed = quorum.leader().await;
    let old = Coordinator::register(&quorum, 1, deposed).await;
    old.unfence(deposed).await;
    let topic = CreateInternalTopic { topic: InternalTopic::ConsumerOffsets, timeout_ms: 0 };
    let topic = ControllerRequest::CreateInternalTopic(topic);
    quorum.ask_leader(&topic).await.expect("created");
    eventually("the shards have their first owner", || all_owned_by(&quorum, deposed, &old).then_some(()))
        .await;
    let epochs: Vec<_> = owners(&quorum, deposed).iter().map(|ownership| ownership.epoch).collect();

    let lease_from = old.last_lease(deposed).await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != deposed).collect();
    for other in &others {
        quorum.network.partition(address(deposed), address(*other));
    }
    let elect = || {
        let leader = quorum.running[others[0] as usize - 1].as_ref().expect("running").leader()?.0;
        others.contains(&leader).then_some(leader)
    };
    let leader = eventually("the others elect a leader", elect).await;
    let (moved, ()) = tokio::join!(
        async {
            let deadline = Instant::now() + PATIENCE;
            let new = Coordinator::register(&quorum, 2, leader).await;
            while !all_owned_by(&quorum, leader, &new) {
                assert!(Instant::now() < deadline, "the shards are never given away");
                new.beat(leader).await;
                tokio::time::sleep(PAUSE).await;
            }
            Instant::now()
        },
        async {
            let mut refusals = 0;
            while still_owns(&quorum, leader, &old) || refusals < REFUSALS_MIN {
                let answer = old.beat(deposed).await;
                assert_eq!(answer, None, "a deposed leader extends no lease");
                refusals += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    );
    let between = moved - lease_from;
    assert!(
        between >= old.session,
        "given away {between:?} after an acknowledgement, session {:?}",
        old.session
    );
    let raised = owners(&quorum, leader).iter().zip(&epochs).all(|(now, before)| now.epoch > *before);
    assert!(raised, "each under a new epoch");
    // It does not know: what it holds for the owner is the old one, and it must not vouch for it.
    assert!(all_owned_by(&quorum, deposed, &old));
    for other in &others {
        quorum.network.heal(address(deposed), address(*other));
    }
    eventually("it learns who owns them now", || (!still_owns(&quorum, deposed, &old)).then_some(())).await;
}
