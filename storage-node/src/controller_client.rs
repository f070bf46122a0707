//! Asks the controllers over the internal network: finds the leader, follows it, and says honestly what is known when no
//! answer comes.
//!
//! A request that certainly was not carried out (no connection, not the leader, busy) is repeated until the time is over,
//! with pauses that grow and are spread by chance. What may have been carried out is repeated only if twice is the same as
//! once. The list of controllers begins as the config says and follows the quorum's voters, as the metadata tells them.

use crate::clock::Clock;
use crate::config::ControllerAddress;
use crate::controller_port::{ControllerFailure, ControllerPort};
use parking_lot::{Mutex, RwLock};
use proto_types::controller_api::{ControllerReply, ControllerRequest};
use proto_types::error::ControllerError;
use proto_types::ids::ControllerId;
use proto_types::metadata;
use quic_transport::{
    BoxFuture, CallError, Identity, IdentityError, MessageKind, Peer, PeerTarget, Role, Transport,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The step of the growing pause that is long enough not to burden anybody, and short beside an election.
const SHORT_PAUSE_ATTEMPT: u32 = 1;

/// Bounds of [`ControllerClient`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ControllerTiming {
    /// First pause between attempts.
    pub(crate) retry_min: Duration,
    /// Longest pause between attempts.
    pub(crate) retry_max: Duration,
    /// Longest that the first attempt waits for a connection before another controller is tried; doubles with each round.
    pub(crate) connect_min: Duration,
    /// Longest that any attempt waits for a connection.
    pub(crate) connect_max: Duration,
    /// How long one controller may take to answer what can be asked again of another.
    pub(crate) answer_max: Duration,
}

/// Knows all controllers and guesses which one leads. Shared behind an `Arc`.
pub(crate) struct ControllerClient {
    transport: Arc<dyn Transport>,
    controllers: RwLock<Arc<[Arc<Controller>]>>,
    /// Index of the controller that led when we last heard.
    leader: AtomicUsize,
    timing: ControllerTiming,
    clock: Clock,
    chance: AtomicU64,
}

struct Controller {
    id: ControllerId,
    address: String,
    /// Our config names it, and has the last word on its address.
    configured: bool,
    identity: Identity,
    /// The handle in use, which also keeps the connection; made anew, with a look at the resolver, after a failure.
    peer: Mutex<Option<Peer>>,
}

/// How long to wait before the next attempt.
enum Pause {
    No,
    /// Somebody is there and an election is under way: ask again soon.
    Short,
    /// Nobody is there, or it has too much to do: longer from time to time.
    Growing,
}

/// What one attempt says about the next one.
enum Attempt {
    Answered(ControllerReply),
    /// Certainly not done; whom to ask next, and why.
    Next {
        controller: usize,
        pause: Pause,
        reason: String,
    },
    Failed(ControllerFailure),
}

impl ControllerClient {
    /// `controllers` must not be empty; `seed` spreads the pauses.
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        controllers: &[ControllerAddress],
        timing: ControllerTiming,
        clock: Clock,
        seed: u64,
    ) -> Result<Self, IdentityError> {
        let cluster = transport.identity().cluster_id().to_owned();
        let controllers = controllers
            .iter()
            .map(|controller| {
                Ok(Arc::new(Controller {
                    id: ControllerId(controller.id),
                    address: controller.address.clone(),
                    configured: true,
                    identity: Identity::new(&cluster, Role::Controller, controller.id)?,
                    peer: Mutex::new(None),
                }))
            })
            .collect::<Result<Vec<_>, IdentityError>>()?;
        assert!(!controllers.is_empty(), "the configuration was validated: there is a controller");
        let (leader, chance) = (AtomicUsize::new(0), AtomicU64::new(seed | 1));
        let controllers = RwLock::new(controllers.into());
        Ok(Self { transport, controllers, leader, timing, clock, chance })
    }

    fn controllers(&self) -> Arc<[Arc<Controller>]> {
        Arc::clone(&self.controllers.read())
    }

    fn controller(&self, index: usize) -> Arc<Controller> {
        let controllers = self.controllers();
        Arc::clone(&controllers[index % controllers.len()])
    }

    /// Takes the voters that the metadata tells: new ones are asked from now on, those that have left are not. An empty
    /// list says nothing.
    pub(crate) fn learn(&self, voters: &[metadata::ControllerAddress]) {
        let mut controllers = self.controllers.write();
        let is_same = |(known, voter): (&Arc<Controller>, &metadata::ControllerAddress)| {
            known.id == voter.id && (known.configured || known.address == voter.address)
        };
        let same = controllers.len() == voters.len() && {
            let mut by_id: Vec<_> = controllers.iter().collect();
            by_id.sort_by_key(|controller| controller.id);
            by_id.into_iter().zip(voters).all(is_same)
        };
        if same || voters.is_empty() {
            return;
        }
        let cluster = self.transport.identity().cluster_id();
        let next: Vec<Arc<Controller>> = voters
            .iter()
            .filter_map(|voter| {
                let known = controllers.iter().find(|known| is_same((*known, voter)));
                if let Some(known) = known {
                    return Some(Arc::clone(known));
                }
                let identity = Identity::new(cluster, Role::Controller, voter.id.0).ok()?;
                let (id, address) = (voter.id, voter.address.clone());
                Some(Arc::new(Controller {
                    id,
                    address,
                    configured: false,
                    identity,
                    peer: Mutex::new(None),
                }))
            })
            .collect();
        let leader = controllers[self.leader() % controllers.len()].id;
        let at = next.iter().position(|controller| controller.id == leader).unwrap_or(0);
        tracing::info!(voters = ?voters.iter().map(|voter| voter.id.0).collect::<Vec<_>>(), "the quorum's voters");
        self.leader.store(at, Ordering::Relaxed);
        *controllers = next.into();
    }

    /// How many controllers there are.
    pub(crate) fn count(&self) -> usize {
        self.controllers().len()
    }

    /// Index of the controller that is thought to lead.
    pub(crate) fn leader(&self) -> usize {
        self.leader.load(Ordering::Relaxed)
    }

    /// A handle to one controller, its address resolved. `index` counts round the list.
    pub(crate) async fn peer(&self, index: usize) -> Result<Peer, String> {
        let controller = self.controller(index);
        if let Some(peer) = controller.peer.lock().clone() {
            return Ok(peer);
        }
        let address = resolve(&controller.address).await?;
        let peer = self.transport.peer(PeerTarget::new(address, controller.identity.clone()));
        *controller.peer.lock() = Some(peer.clone());
        Ok(peer)
    }

    /// Forgets the address of a controller that could not be reached: it may have moved.
    pub(crate) fn forget_address(&self, index: usize) {
        *self.controller(index).peer.lock() = None;
    }

    /// A pause before attempt number `attempt` (from 0), spread by chance over its upper half.
    pub(crate) fn pause(&self, attempt: u32) -> Duration {
        let full = self.timing.retry_min.saturating_mul(1 << attempt.min(10)).min(self.timing.retry_max);
        // xorshift: good enough to keep nodes from asking in step.
        let mut x = self.chance.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.chance.store(x, Ordering::Relaxed);
        full / 2 + (full / 2).mul_f64((x % 1024) as f64 / 1024.0)
    }

    /// How long to wait for a connection: short at first, as another controller may be up; in later rounds long enough for
    /// networks that are far or slow.
    fn connect_max(&self, round: u32) -> Duration {
        self.timing.connect_min.saturating_mul(1 << round.min(10)).min(self.timing.connect_max)
    }

    async fn ask_leader(
        &self,
        request: &ControllerRequest,
        timeout: Duration,
    ) -> Result<ControllerReply, ControllerFailure> {
        let deadline = self.clock.elapsed() + timeout;
        let mut reason = "no time left".to_owned();
        for attempt in 0_u32.. {
            let left = deadline.saturating_sub(self.clock.elapsed());
            if left.is_zero() {
                break;
            }
            let at = self.leader();
            match self.attempt(at, attempt / self.count() as u32, request, left).await {
                Attempt::Answered(reply) => return Ok(reply),
                Attempt::Failed(failure) => return Err(failure),
                Attempt::Next { controller, pause, reason: why } => {
                    tracing::debug!(controller = %self.controller(at).address, why, "ask a controller");
                    reason = why;
                    self.leader.store(controller, Ordering::Relaxed);
                    let pause = match pause {
                        Pause::No => continue,
                        Pause::Short => self.pause(SHORT_PAUSE_ATTEMPT),
                        Pause::Growing => self.pause(attempt),
                    };
                    let left = deadline.saturating_sub(self.clock.elapsed());
                    tokio::time::sleep(pause.min(left)).await;
                }
            }
        }
        Err(ControllerFailure::Unavailable(reason))
    }

    async fn attempt(&self, at: usize, round: u32, request: &ControllerRequest, left: Duration) -> Attempt {
        let following = (at + 1) % self.count();
        // In the first round nobody is asked twice, so there is nobody to spare.
        let pause = || if round == 0 { Pause::No } else { Pause::Growing };
        let elsewhere = |reason: String| Attempt::Next { controller: following, pause: pause(), reason };
        let begun = self.clock.elapsed();
        let peer = match self.peer(at).await {
            Ok(peer) => peer,
            Err(reason) => return elsewhere(reason),
        };
        // Only a controller that can be reached is given the whole time.
        let connect_max = self.connect_max(round);
        if let Err(error) = peer.connect(left.min(connect_max)).await {
            self.forget_address(at);
            return elsewhere(error.to_string());
        }
        // A leader that was killed cannot say so: what can be asked again does not wait for it to the end.
        let repeatable = is_repeatable(request);
        let whole = left.saturating_sub(self.clock.elapsed().saturating_sub(begun));
        let patience = if repeatable { whole.min(self.timing.answer_max) } else { whole };
        let asked = peer.ask::<_, Result<ControllerReply, ControllerError>>(
            MessageKind::Controller,
            request,
            patience,
        );
        match asked.await {
            Ok(Ok(reply)) => Attempt::Answered(reply),
            Ok(Err(ControllerError::NotLeader { leader })) => {
                let known = leader.and_then(|id| self.controllers().iter().position(|c| c.id == id));
                let (controller, pause) = match known {
                    Some(leader) if leader != at => (leader, Pause::No),
                    Some(_) | None => (following, Pause::Short),
                };
                Attempt::Next { controller, pause, reason: "it does not lead the quorum".to_owned() }
            }
            Ok(Err(ControllerError::Busy(reason))) => {
                Attempt::Next { controller: at, pause: Pause::Growing, reason }
            }
            Ok(Err(ControllerError::Shutdown)) => elsewhere("it is shutting down".to_owned()),
            Ok(Err(error @ ControllerError::TimedOut)) if repeatable => elsewhere(error.to_string()),
            Ok(Err(error @ ControllerError::TimedOut)) => {
                Attempt::Failed(ControllerFailure::OutcomeUnknown(error.to_string()))
            }
            Ok(Err(ControllerError::Rejected(rejection))) => Attempt::Failed(rejection.into()),
            Err(error) => {
                self.forget_address(at);
                if repeatable && error.may_have_run() {
                    return elsewhere(error.to_string());
                }
                self.after_call_error(error, following)
            }
        }
    }

    fn after_call_error(&self, error: CallError, following: usize) -> Attempt {
        let reason = error.to_string();
        if error.may_have_run() {
            // The next question goes to another controller; this one is for the caller to decide.
            self.leader.store(following, Ordering::Relaxed);
            return Attempt::Failed(ControllerFailure::OutcomeUnknown(reason));
        }
        match error {
            // Ours is too large: no other controller would take it.
            CallError::TooLarge { .. } => Attempt::Failed(ControllerFailure::Unavailable(reason)),
            CallError::Unreachable { .. }
            | CallError::Refused { .. }
            | CallError::Timeout
            | CallError::Closed { .. }
            | CallError::Remote(_) => Attempt::Next { controller: following, pause: Pause::Growing, reason },
        }
    }
}

impl ControllerPort for ControllerClient {
    fn ask(
        &self,
        request: ControllerRequest,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<ControllerReply, ControllerFailure>> {
        Box::pin(async move { self.ask_leader(&request, timeout).await })
    }
}

/// Whether it may be asked again when it is not known whether it was carried out.
fn is_repeatable(request: &ControllerRequest) -> bool {
    match request {
        // The same incarnation, the same state, the same set: the second time changes nothing. A block of ids that nobody
        // got is only lost.
        ControllerRequest::RegisterNode(_)
        | ControllerRequest::RegisterNodeWithLevels { .. }
        | ControllerRequest::UpdateFeatures(_)
        | ControllerRequest::Heartbeat(_)
        | ControllerRequest::AllocateProducerIds(_)
        | ControllerRequest::RegisterCoordinator(_)
        | ControllerRequest::RegisterCoordinatorWithLevels { .. }
        | ControllerRequest::CoordinatorHeartbeat(_)
        | ControllerRequest::CreateInternalTopic(_)
        | ControllerRequest::DescribeQuorum
        | ControllerRequest::DescribeMetadataFollowers => true,
        // The second time they would be refused, although they were carried out.
        ControllerRequest::CreateTopics(_)
        | ControllerRequest::DeleteTopics(_)
        | ControllerRequest::CreatePartitions(_)
        | ControllerRequest::AlterConfigs(_)
        | ControllerRequest::ElectLeaders(_)
        | ControllerRequest::AlterReassignments(_)
        | ControllerRequest::UnregisterNode { .. }
        | ControllerRequest::AlterVoters(_) => false,
        // The leader proposes again by itself, and must know of every copy that may still be carried out: a refusal of one
        // says nothing about an earlier one.
        ControllerRequest::AlterPartition(_) => false,
        // Carried out late it would take a copy out of the in-sync set that has caught up since.
        ControllerRequest::LoseCopies(_) => false,
    }
}

async fn resolve(address: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    let mut found = tokio::net::lookup_host(address)
        .await
        .map_err(|error| format!("cannot resolve {address}: {error}"))?;
    found.next().ok_or_else(|| format!("cannot resolve {address}: no address"))
}
