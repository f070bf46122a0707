//! The leader's watch over storage nodes and coordinators: heartbeats in, fencing and unfencing out.
//!
//! One task owns the [`Sessions`] for as long as the process runs; each leadership begins with fresh ones. Heartbeats are
//! acknowledged only after the quorum has confirmed, in a round that began after they arrived, that we still lead: a
//! deposed leader extends no session. All heartbeats that wait share one round.

mod coordinators;
mod probes;
mod upkeep;

use crate::clock::{Clock, wall_clock};
use crate::metrics::ControllerMetrics;
use crate::proposer::{Proposer, confirm_leadership, not_leader};
use crate::quorum::state_machine::StateView;
use crate::quorum::type_config::{Raft, TypeConfig};
use controller_core::sessions::{Probe, ProbeAnswer, Verdict};
use controller_core::{Sessions, plan};
use coordinators::{CoordinatorNews, CoordinatorWatch};
use openraft::alias::CommittedLeaderIdOf;
use parking_lot::Mutex;
use proto_types::controller_api::{
    CoordinatorHeartbeat, CoordinatorHeartbeatReply, Heartbeat, HeartbeatReply, MetadataFollower,
};
use proto_types::error::ControllerError;
use proto_types::ids::{BrokerEpoch, CoordinatorId, MetadataIndex, Millis, NodeId, RegistrationEpoch};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use upkeep::{Upkeep, UpkeepNews};

/// Heartbeats and news in the queue: several of every node.
const QUEUE: usize = 4096;
/// Heartbeats that share one round of the quorum.
const BEATS_PER_ROUND: usize = 1024;

/// Times; see the controller's config.
#[derive(Debug, Clone)]
pub(crate) struct LivenessConfig {
    pub(crate) session: Duration,
    /// The pause between heartbeats, if nodes that are silent for two of it are probed.
    pub(crate) probe_silent: Option<Duration>,
    pub(crate) read_timeout: Duration,
    /// How often preferred leaders get their partitions back; never, if `None`.
    pub(crate) rebalance: Option<Duration>,
}

enum Event {
    Beat {
        heartbeat: Heartbeat,
        arrived: Millis,
        reply: oneshot::Sender<Result<HeartbeatReply, ControllerError>>,
    },
    CoordinatorBeat {
        heartbeat: CoordinatorHeartbeat,
        arrived: Millis,
        reply: oneshot::Sender<Result<CoordinatorHeartbeatReply, ControllerError>>,
    },
    Coordinator(CoordinatorNews),
    Upkeep(UpkeepNews),
    Registered {
        node: NodeId,
        broker_epoch: BrokerEpoch,
        index: MetadataIndex,
    },
    Decided {
        verdict: Verdict,
        index: Option<MetadataIndex>,
    },
    Probed {
        probe: Probe,
        answer: ProbeAnswer,
    },
}

/// A handle to the watch. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Liveness {
    events: mpsc::Sender<Event>,
    sessions: Arc<Mutex<Sessions>>,
    progress: watch::Receiver<u64>,
    view: StateView,
    clock: Clock,
}

impl Liveness {
    /// Starts the watch's task; it ends when `stop` completes.
    pub(crate) fn start(
        raft: Raft,
        view: StateView,
        proposer: Proposer,
        config: LivenessConfig,
        metrics: ControllerMetrics,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> (Self, impl Future<Output = ()>) {
        let (events, queue) = mpsc::channel(QUEUE);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let session_ms = millis(config.session);
        let sessions = Sessions::new(session_ms);
        let sessions = match config.probe_silent {
            Some(heartbeat) => sessions.probing(millis(heartbeat)),
            None => sessions,
        };
        let sessions = Arc::new(Mutex::new(sessions));
        let (progress_tx, progress) = watch::channel(0);
        let clock = Clock::start();
        let task = Task {
            raft,
            view: view.clone(),
            proposer,
            config,
            metrics,
            clock,
            sessions: Arc::clone(&sessions),
            coordinators: CoordinatorWatch::new(session_ms),
            upkeep: Upkeep::default(),
            probes_open: 0,
            progress: progress_tx,
            events: events.downgrade(),
            leadership: None,
        };
        (Self { events, sessions, progress, view, clock }, task.run(queue, stop))
    }

    /// Takes a heartbeat and waits for its acknowledgement.
    pub(crate) async fn beat(&self, heartbeat: Heartbeat) -> Result<HeartbeatReply, ControllerError> {
        let arrived = self.clock.now();
        self.acknowledge(|reply| Event::Beat { heartbeat, arrived, reply }).await
    }

    /// The same for a coordinator.
    pub(crate) async fn coordinator_beat(
        &self,
        heartbeat: CoordinatorHeartbeat,
    ) -> Result<CoordinatorHeartbeatReply, ControllerError> {
        let arrived = self.clock.now();
        self.acknowledge(|reply| Event::CoordinatorBeat { heartbeat, arrived, reply }).await
    }

    async fn acknowledge<R>(
        &self,
        event: impl FnOnce(oneshot::Sender<Result<R, ControllerError>>) -> Event,
    ) -> Result<R, ControllerError> {
        let (reply, answer) = oneshot::channel();
        self.events.try_send(event(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                ControllerError::Busy("too many heartbeats wait".to_owned())
            }
            mpsc::error::TrySendError::Closed(_) => ControllerError::Shutdown,
        })?;
        answer.await.unwrap_or(Err(ControllerError::Shutdown))
    }

    /// Tells that a coordinator's registration was committed.
    pub(crate) async fn coordinator_registered(&self, coordinator: CoordinatorId, epoch: RegistrationEpoch) {
        let news = CoordinatorNews::Registered { coordinator, epoch };
        // Fails only when the watch has ended with the process.
        let _ended = self.events.send(Event::Coordinator(news)).await;
    }

    /// Tells that a registration was committed.
    pub(crate) async fn registered(&self, node: NodeId, broker_epoch: BrokerEpoch, index: MetadataIndex) {
        // Fails only when the watch has ended with the process.
        let _ended = self.events.send(Event::Registered { node, broker_epoch, index }).await;
    }

    /// How far the storage nodes are that this leader has heard from, with times of the wall clock.
    pub(crate) fn followers(&self) -> Vec<MetadataFollower> {
        let (now, wall) = (self.clock.now(), wall_clock());
        let on_the_wall = |at: Millis| wall.0.saturating_sub(now.0.saturating_sub(at.0));
        let state = self.view.state();
        let sessions = self.sessions.lock();
        let followers = sessions.followers(&state).map(|follower| MetadataFollower {
            node: follower.node,
            applied: follower.applied,
            last_contact_ms: on_the_wall(follower.heard),
            caught_up_ms: follower.caught_up.map(on_the_wall),
        });
        followers.collect()
    }

    /// Waits until all active nodes have applied `index`, at most until `deadline`. True if they have.
    pub(crate) async fn wait_applied(&self, index: MetadataIndex, deadline: Instant) -> bool {
        let mut progress = self.progress.clone();
        let mut applied = self.view.applied();
        loop {
            progress.mark_unchanged();
            applied.mark_unchanged();
            let lagging = self.sessions.lock().lagging(&self.view.state(), index);
            if lagging.is_empty() {
                return true;
            }
            tokio::select! {
                moved = progress.changed() => if moved.is_err() { return false },
                moved = applied.changed() => if moved.is_err() { return false },
                () = tokio::time::sleep_until(deadline) => {
                    tracing::info!(%index, ?lagging, "nodes have not applied a change in time");
                    return false;
                }
            }
        }
    }
}

struct Task {
    raft: Raft,
    view: StateView,
    proposer: Proposer,
    config: LivenessConfig,
    metrics: ControllerMetrics,
    clock: Clock,
    sessions: Arc<Mutex<Sessions>>,
    coordinators: CoordinatorWatch,
    upkeep: Upkeep,
    /// Probes without an answer.
    probes_open: usize,
    progress: watch::Sender<u64>,
    events: mpsc::WeakSender<Event>,
    /// The leadership whose sessions we hold.
    leadership: Option<CommittedLeaderIdOf<TypeConfig>>,
}

impl Task {
    async fn run(mut self, mut queue: mpsc::Receiver<Event>, stop: impl Future<Output = ()> + Send) {
        let mut look = tokio::time::interval(self.config.session / 20);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                event = queue.recv() => {
                    let Some(first) = event else { return };
                    let mut events = vec![first];
                    while events.len() < BEATS_PER_ROUND && let Ok(event) = queue.try_recv() {
                        events.push(event);
                    }
                    self.handle(events).await;
                }
                _ = look.tick() => self.look().await,
            }
        }
    }

    async fn handle(&mut self, events: Vec<Event>) {
        let mut beats = Vec::new();
        let mut coordinator_beats = Vec::new();
        let mut news = Vec::new();
        let mut probed = Vec::new();
        for event in events {
            match event {
                Event::Beat { heartbeat, arrived, reply } => beats.push((heartbeat, arrived, reply)),
                Event::CoordinatorBeat { heartbeat, arrived, reply } => {
                    coordinator_beats.push((heartbeat, arrived, reply));
                }
                Event::Registered { .. }
                | Event::Decided { .. }
                | Event::Coordinator(_)
                | Event::Upkeep(_) => news.push(event),
                Event::Probed { probe, answer } => probed.push((probe, answer)),
            }
        }
        let nobody = beats.is_empty() && coordinator_beats.is_empty();
        let leads = if nobody { Ok(()) } else { self.confirm().await };
        for event in news {
            self.take_news(event);
        }
        for (heartbeat, arrived, reply) in beats {
            let answer = match &leads {
                Ok(()) => self.take_beat(&heartbeat, arrived),
                Err(error) => Err(error.clone()),
            };
            // The node may have given up.
            let _gone = reply.send(answer);
        }
        for (heartbeat, arrived, reply) in coordinator_beats {
            let answer = match &leads {
                Ok(()) => self.take_coordinator_beat(&heartbeat, arrived),
                Err(error) => Err(error.clone()),
            };
            // The coordinator may have given up.
            let _gone = reply.send(answer);
        }
        for (probe, answer) in probed {
            self.take_probe(&probe, answer);
        }
        let leader = self.raft.as_leader().ok().map(|leader| leader.to_committed_leader_id());
        if leader.is_some() && leader == self.leadership {
            self.spread_shards();
        }
        self.progress.send_modify(|count| *count += 1);
    }

    fn take_news(&mut self, event: Event) {
        match event {
            Event::Registered { node, broker_epoch, index } => {
                self.sessions.lock().registered(self.clock.now(), node, broker_epoch, index);
            }
            Event::Decided { verdict, index } => self.sessions.lock().decided(verdict, index),
            Event::Coordinator(news) => self.take_coordinator_news(news),
            Event::Upkeep(news) => self.take_upkeep_news(news),
            Event::Beat { .. } | Event::CoordinatorBeat { .. } | Event::Probed { .. } => {}
        }
    }

    fn take_beat(&self, heartbeat: &Heartbeat, arrived: Millis) -> Result<HeartbeatReply, ControllerError> {
        let state = self.view.state();
        let beat = self.sessions.lock().beat(arrived, heartbeat, &state)?;
        self.metrics.heartbeat();
        if let Some(verdict) = beat.verdict {
            self.commit(verdict);
        }
        Ok(HeartbeatReply { committed: state.applied(), fenced: beat.fenced, may_stop: beat.may_stop })
    }

    /// Confirms that we lead, and begins with fresh sessions if the leadership is new.
    async fn confirm(&mut self) -> Result<(), ControllerError> {
        let leader = match self.raft.as_leader() {
            Ok(leader) => leader.to_committed_leader_id(),
            Err(forward) => return Err(not_leader(&forward)),
        };
        confirm_leadership(&self.raft, self.config.read_timeout).await?;
        if self.leadership != Some(leader) {
            self.leadership = Some(leader);
            let (now, state) = (self.clock.now(), self.view.state());
            self.sessions.lock().begin_leadership(now, &state);
            self.coordinators.sessions.begin_leadership(now, &state);
            self.upkeep.begin_leadership();
        }
        Ok(())
    }

    /// Looks for sessions that have run out.
    async fn look(&mut self) {
        let leader = self.raft.as_leader().ok().map(|leader| leader.to_committed_leader_id());
        if leader.is_none() || (self.leadership != leader && self.confirm().await.is_err()) {
            return;
        }
        let expired = self.sessions.lock().expired(self.clock.now(), &self.view.state());
        for verdict in expired {
            self.commit(verdict);
        }
        self.probe_silent();
        self.look_at_coordinators();
        self.spread_shards();
        self.look_after_partitions();
    }

    /// Has a verdict committed by the proposer, and the outcome told to us. At most one per node is on its way.
    fn commit(&self, verdict: Verdict) {
        let (proposer, events) = (self.proposer.clone(), self.events.clone());
        let (metrics, clock) = (self.metrics.clone(), self.clock);
        metrics.verdict(verdict.fence);
        tokio::spawn(async move {
            let Verdict { node, broker_epoch, fence, why, silent_since } = verdict;
            let outcome = proposer
                .propose_own(move |state, _| {
                    if fence {
                        plan::fence_node(state, node, broker_epoch)
                    } else {
                        plan::unfence_node(state, node, broker_epoch)
                    }
                })
                .await;
            if let (Ok((1.., _)), Some(since)) = (&outcome, silent_since) {
                metrics.failed_over(clock.now().0.saturating_sub(since.0));
            }
            match &outcome {
                Ok((elected, index)) if fence => tracing::warn!(%node, %index, elected, why, "node fenced"),
                Ok((elected, index)) => tracing::info!(%node, %index, elected, why, "node unfenced"),
                Err(error) => tracing::info!(%node, fence, %error, "node could not be fenced or unfenced"),
            }
            if let Some(events) = events.upgrade() {
                let index = outcome.ok().map(|(_, index)| index);
                // Fails only when the watch has ended with the process.
                let _ended = events.send(Event::Decided { verdict, index }).await;
            }
        });
    }
}
