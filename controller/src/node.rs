//! The controller as a whole: what is started in which order, and stopped in the reverse one. Wiring only.

use crate::api_table::{self, Services, ServicesSlot};
use crate::change_feed::ChangeRing;
use crate::config::Config;
use crate::data_dir::{DataDir, DirectoryLock};
use crate::error::StartError;
use crate::liveness::{Liveness, LivenessConfig};
use crate::metrics::ControllerMetrics;
use crate::proposer::{Proposer, ProposerConfig, confirm_leadership};
use crate::quorum::levels::{self, ControllerLevels};
use crate::quorum::log_store::LogStore;
use crate::quorum::network::{Network, QuicCarrier};
use crate::quorum::peers::Peers;
use crate::quorum::rpc::{self, RaftSlot};
use crate::quorum::state_machine::{StateMachine, StateView};
use crate::quorum::type_config::{Member, Raft, TypeConfig};
use crate::quorum::voters::{Voters, VotersConfig};
use crate::room::{self, Room, SpaceOf};
use controller_core::ClusterState;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{InitializeError, RaftError};
use openraft::type_config::TypeConfigExt;
use openraft::{Config as OpenraftConfig, SnapshotPolicy};
use prometheus_client::registry::Registry;
use proto_types::ids::ControllerId;
use quic_transport::pki::Credentials;
use quic_transport::{
    Endpoint, EndpointConfig, Identity, Limits as TransportLimits, NodeKeys, Role, Router, Transport,
    TransportMetrics,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Largest body of a call between controllers: one log entry at its largest, and its envelope.
const CALL_BYTES_MAX: usize = 20 << 20;
const CALL_MEMORY_BYTES: usize = 128 << 20;
/// Least time between two looks at the state for the gauges.
const GAUGES_PAUSE: Duration = Duration::from_millis(100);

/// Starts a controller on the current tokio runtime, which should not be shared with bulk work: heartbeats and elections
/// run on it. Metrics go into `registry`.
pub async fn start(
    config: Config,
    credentials: Credentials,
    registry: &mut Registry,
) -> Result<ControllerHandle, StartError> {
    config.validate().map_err(StartError::Config)?;
    check_certificate(&config, credentials.identity())?;
    let keys_path = config.data_dir.join("transport.keys");
    let registry = registry.sub_registry_with_prefix("weir_controller");
    let transport_metrics = TransportMetrics::register(registry);
    let listen = config.listen;
    start_on(config, registry, room::space_of, move |router| {
        let keys = NodeKeys::load_or_create(&keys_path)?.endpoint("control");
        let mut endpoint = EndpointConfig::new(listen, credentials, keys);
        endpoint.limits = TransportLimits {
            call_bytes_max: CALL_BYTES_MAX,
            call_memory_bytes: CALL_MEMORY_BYTES,
            ..TransportLimits::default()
        };
        endpoint.seed = uuid::Uuid::new_v4().as_u64_pair().0;
        Ok(Arc::new(Endpoint::bind(endpoint, router, transport_metrics)?))
    })
    .await
}

fn check_certificate(config: &Config, found: &Identity) -> Result<(), StartError> {
    let expected = Identity::new(&config.cluster_id, Role::Controller, config.id);
    if expected.as_ref() == Ok(found) {
        return Ok(());
    }
    let expected = expected.map_or_else(|error| error.to_string(), |expected| expected.to_string());
    Err(StartError::WrongCertificate { found: found.clone(), expected })
}

/// The same over any transport and with any disk: `bind` makes the former for the table of what we answer, `space_of`
/// tells the room on the latter.
pub(crate) async fn start_on(
    config: Config,
    registry: &mut Registry,
    space_of: SpaceOf,
    bind: impl FnOnce(Router) -> Result<Arc<dyn Transport>, StartError>,
) -> Result<ControllerHandle, StartError> {
    let metrics = ControllerMetrics::register(registry);
    let DataDir { files: data, lock } = open_data_dir(&config).await?;
    let members: BTreeMap<u64, String> =
        config.voters.iter().map(|voter| (voter.id, voter.address.clone())).collect();
    let raft_slot: Arc<RaftSlot> =
        Arc::new(RaftSlot::new(members.keys().copied().collect(), data.peers.clone()));
    let services_slot: ServicesSlot = Arc::new(OnceLock::new());
    let router = rpc::add_routes(Router::builder(), &raft_slot);
    let router = levels::add_routes(router, config.levels);
    let router = api_table::add_routes(router, &services_slot).build();
    let transport = bind(router)?;

    let (log_store, log_thread) = LogStore::start(data.log);
    let ring = ChangeRing::new(config.limits.feed_changes_max);
    let (machine, view) = StateMachine::new(data.snapshots, ring, config.levels);
    let carrier = QuicCarrier::new(Arc::clone(&transport), config.cluster_id.clone());
    let levels = ControllerLevels::new(
        ControllerId(config.id),
        config.levels,
        &transport,
        config.cluster_id.clone(),
        members.clone(),
        Duration::from_millis(config.timing.confirm_ms),
    );
    let network = Network::new(carrier, config.id, members.clone(), data.peers.clone());
    let raft_config = Arc::new(openraft_config(&config).map_err(StartError::Raft)?);
    let raft = Raft::new(config.id, raft_config, network, log_store, machine)
        .await
        .map_err(|error| StartError::Raft(error.to_string()))?;
    data.peers.believe(view.clone());
    raft_slot.fill(raft.clone(), view.clone());
    if config.join {
        tracing::info!(id = config.id, "waits to be added to the quorum, or goes on in it");
    } else {
        form(&raft, members).await?;
    }

    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let services = start_services(&config, &raft, &view, (&data.peers, levels), &metrics, &stop, &tasks);
    let watched = (space_of, config.limits.reserve_bytes);
    let room = services.room.clone();
    tasks.spawn(room.watch(config.data_dir.clone(), watched, metrics.clone(), stop.clone()));
    tasks.spawn(watch_gauges(raft.clone(), view.clone(), metrics, stop.clone()));
    let filled = services_slot.set(services);
    assert!(filled.is_ok(), "services are started once");
    tracing::info!(
        id = config.id, cluster = config.cluster_id, listen = %transport.local_addr(), "controller started"
    );
    Ok(ControllerHandle {
        shutdown_grace: Duration::from_millis(config.timing.shutdown_ms),
        heartbeat: Duration::from_millis(config.raft.heartbeat_ms),
        commit_timeout: Duration::from_millis(config.timing.commit_ms),
        id: config.id,
        transport,
        raft,
        view,
        peers: data.peers,
        stop,
        tasks,
        log_thread,
        _lock: lock,
    })
}

async fn open_data_dir(config: &Config) -> Result<DataDir, StartError> {
    let (path, cluster_id) = (config.data_dir.clone(), config.cluster_id.clone());
    let (id, segment_bytes) = (config.id, config.raft.segment_bytes);
    let opened =
        tokio::task::spawn_blocking(move || DataDir::open(&path, &cluster_id, id, segment_bytes)).await;
    Ok(opened.map_err(|error| StartError::Raft(error.to_string()))??)
}

pub(crate) fn openraft_config(config: &Config) -> Result<OpenraftConfig, String> {
    let raft = &config.raft;
    let config = OpenraftConfig {
        cluster_name: config.cluster_id.clone(),
        heartbeat_interval: raft.heartbeat_ms,
        election_timeout_min: raft.election_min_ms,
        election_timeout_max: raft.election_max_ms,
        enable_pre_vote: Some(true),
        install_snapshot_timeout: raft.snapshot_timeout_ms,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(raft.snapshot_entries),
        max_in_snapshot_log_to_keep: raft.keep_entries,
        // Above what lies between two snapshots, else a follower could be sent one snapshot after the other.
        replication_lag_threshold: raft.snapshot_entries.saturating_mul(2).max(5_000),
        backoff: "50ms 100ms 200ms ...500ms".to_owned(),
        // What was committed is written down lazily, so a leader that went on where it had stopped could answer from a
        // state that is older than what it had acknowledged. It is elected again, like anybody.
        enable_leader_restore: Some(false),
        ..OpenraftConfig::default()
    };
    config.validate().map_err(|error| error.to_string())
}

/// On the very first start every controller proposes the same members; on later ones this changes nothing.
async fn form(raft: &Raft, members: BTreeMap<u64, String>) -> Result<(), StartError> {
    let alone = members.len() == 1;
    let initialized = raft.is_initialized().await.map_err(|error| StartError::Raft(error.to_string()))?;
    if !initialized {
        let members: BTreeMap<u64, Member> =
            members.into_iter().map(|(id, address)| (id, Member { address })).collect();
        match raft.initialize(members).await {
            // Another controller's entries may have come first.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => return Err(StartError::Raft(error.to_string())),
        }
    }
    if initialized && alone {
        // Nobody else to wait for, not even the clock. (Forming has begun an election already.)
        raft.trigger().elect(false).await.map_err(|error| StartError::Raft(error.to_string()))?;
    }
    Ok(())
}

fn liveness_config(config: &Config) -> LivenessConfig {
    LivenessConfig {
        session: Duration::from_millis(config.sessions.session_ms),
        probe_silent: config
            .sessions
            .probe_silent
            .then(|| Duration::from_millis(config.sessions.heartbeat_ms)),
        read_timeout: Duration::from_millis(config.timing.confirm_ms),
        rebalance: config
            .leaders
            .auto_rebalance
            .then(|| Duration::from_secs(config.leaders.imbalance_check_seconds)),
    }
}

fn start_services(
    config: &Config,
    raft: &Raft,
    view: &StateView,
    (peers, levels): (&Peers, ControllerLevels),
    metrics: &ControllerMetrics,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Services {
    let proposer_config = ProposerConfig {
        limits: config.plan_limits(),
        cluster_id: config.cluster_id.clone(),
        levels: config.levels,
        queued_max: config.limits.requests_queued_max,
        per_batch_max: config.limits.requests_per_batch_max,
        request_bytes_max: config.limits.request_bytes_max,
        commit_timeout: Duration::from_millis(config.timing.commit_ms),
    };
    let (proposer, proposing) = Proposer::start(raft.clone(), view.clone(), proposer_config, metrics.clone());
    let (breakdown, stopped) = (view.breakdown().clone(), stop.clone());
    tasks.spawn(async move {
        tokio::select! {
            () = breakdown.watch_task("the proposer", proposing) => {}
            () = stopped.cancelled() => {}
        }
    });
    let (liveness, watching) = Liveness::start(
        raft.clone(),
        view.clone(),
        proposer.clone(),
        liveness_config(config),
        metrics.clone(),
        stop.clone().cancelled_owned(),
    );
    tasks.spawn(view.breakdown().clone().watch_task("the watch over nodes", watching));
    let voters_config = VotersConfig {
        voters_max: config.limits.voters_max,
        confirm: Duration::from_millis(config.timing.confirm_ms),
        alive: Duration::from_millis(config.raft.election_max_ms * 2),
    };
    let voters =
        Voters::new(config.id, raft.clone(), view.clone(), proposer.clone(), peers.clone(), voters_config);
    let (watch, stopped) = (voters.clone().watch(), stop.clone());
    let watch = view.breakdown().clone().watch_task("the watch over voters", watch);
    tasks.spawn(async move {
        tokio::select! {
            () = watch => {}
            () = stopped.cancelled() => {}
        }
    });
    Services {
        voters,
        levels,
        proposer,
        liveness,
        view: view.clone(),
        metrics: metrics.clone(),
        room: Room::default(),
        cluster_id: config.cluster_id.clone(),
        session_ms: config.sessions.session_ms,
        heartbeat_ms: config.sessions.heartbeat_ms,
        propagation: Duration::from_millis(config.timing.propagation_ms),
        feed_stall: Duration::from_millis(config.timing.feed_stall_ms),
    }
}

/// Shows the state as gauges, at most a few times a second.
async fn watch_gauges(raft: Raft, view: StateView, metrics: ControllerMetrics, stop: CancellationToken) {
    let mut server = raft.server_metrics();
    let mut applied = view.applied();
    loop {
        {
            let raft = server.borrow_watched();
            metrics.leader.set(i64::from(raft.current_leader == Some(raft.id)));
            metrics.term.set(i64::try_from(raft.vote.leader_id.term).unwrap_or(i64::MAX));
        }
        metrics.show(&view.state());
        tokio::select! {
            () = stop.cancelled() => return,
            changed = server.changed() => if changed.is_err() { return },
            changed = applied.changed() => if changed.is_err() { return },
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(GAUGES_PAUSE) => {}
        }
    }
}

/// A running controller.
pub struct ControllerHandle {
    id: u64,
    transport: Arc<dyn Transport>,
    raft: Raft,
    view: StateView,
    peers: Peers,
    stop: CancellationToken,
    tasks: TaskTracker,
    log_thread: JoinHandle<()>,
    shutdown_grace: Duration,
    heartbeat: Duration,
    commit_timeout: Duration,
    _lock: DirectoryLock,
}

impl ControllerHandle {
    /// Where controllers, storage nodes and coordinators reach this one.
    pub fn address(&self) -> SocketAddr {
        self.transport.local_addr()
    }

    /// The quorum's leader as far as this controller knows.
    pub fn leader(&self) -> Option<ControllerId> {
        self.raft.server_metrics().borrow_watched().current_leader.map(ControllerId)
    }

    /// The newest state that this controller has applied.
    pub fn state(&self) -> Arc<ClusterState> {
        self.view.state()
    }

    #[cfg(test)]
    pub(crate) fn raft(&self) -> &Raft {
        &self.raft
    }

    /// What is missing for this controller to do its work, a sentence each; for `/readyz`.
    pub fn readiness(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
        let (raft, peers) = (self.raft.clone(), self.peers.clone());
        move || {
            let mut missing: Vec<String> = peers.rejected().map(str::to_owned).into_iter().collect();
            let metrics = raft.metrics();
            let metrics = metrics.borrow_watched();
            if let Err(error) = &metrics.running_state {
                missing.push(format!("raft has stopped: {error}"));
            } else if metrics.current_leader.is_none() {
                missing.push("the quorum has no leader".to_owned());
            }
            missing
        }
    }

    /// Waits until the quorum has a leader that answers; if it is this controller, until it has confirmed that with the
    /// others. False if that does not come about within `timeout`.
    pub async fn ready(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut server = self.raft.server_metrics();
        loop {
            let leader = server.borrow_watched().current_leader;
            if leader == Some(self.id) {
                if confirm_leadership(&self.raft, self.commit_timeout).await.is_ok() {
                    return true;
                }
            } else if leader.is_some() {
                return true;
            }
            match tokio::time::timeout_at(deadline, server.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return false,
            }
        }
    }

    /// Completes when this controller cannot go on, with the reason: a disk that failed, a panic where nothing must be left
    /// out, or a directory that was lost and must not come back under the same id. The process should end.
    pub async fn failed(&self) -> String {
        tokio::select! {
            reason = self.view.breakdown().wait() => reason,
            reason = self.raft_failed() => reason,
            reason = self.peers.until_rejected() => reason,
        }
    }

    async fn raft_failed(&self) -> String {
        let mut metrics = self.raft.metrics();
        loop {
            if let Err(error) = &metrics.borrow_watched().running_state {
                return error.to_string();
            }
            if metrics.changed().await.is_err() {
                return "raft has ended".to_owned();
            }
        }
    }

    /// Stops: hands the leadership over, finishes calls in progress, closes the files.
    pub async fn shutdown(self) {
        self.hand_over().await;
        self.transport.shutdown(self.shutdown_grace).await;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "raft did not stop cleanly");
        }
        let Self { raft, transport, log_thread, _lock, .. } = self;
        drop((raft, transport));
        // The thread ends when raft's last reader of the log is gone.
        let joined = tokio::task::spawn_blocking(move || log_thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::warn!("the raft log's thread did not end cleanly");
        }
        drop(_lock);
        tracing::info!(id = self.id, "controller stopped");
    }

    /// Gives the leadership to the controller that is furthest among those that answer, if we have it and there is one. An
    /// heir that falls silent, because it stops as well, is not waited for: then it is the next one's turn.
    async fn hand_over(&self) {
        let deadline = Instant::now() + self.shutdown_grace;
        let mut passed_over = BTreeSet::new();
        let mut server = self.raft.server_metrics();
        while let Some(heir) = self.heir(&passed_over) {
            if self.raft.trigger().transfer_leader(heir).await.is_err() {
                return;
            }
            loop {
                if server.borrow_watched().current_leader != Some(self.id) {
                    return;
                }
                let look_again = Instant::now() + self.heartbeat;
                match tokio::time::timeout_at(look_again.min(deadline), server.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_ended)) => return,
                    Err(_elapsed) if Instant::now() >= deadline => {
                        tracing::info!(heir, "the leadership could not be handed over in time");
                        return;
                    }
                    Err(_elapsed)
                        if self.silence(heir).is_none_or(|silence| silence > self.heartbeat * 3) =>
                    {
                        tracing::info!(heir, "the heir does not answer");
                        passed_over.insert(heir);
                        break;
                    }
                    Err(_elapsed) => {}
                }
            }
        }
    }

    /// The voter that is furthest, of those that have answered lately.
    fn heir(&self, passed_over: &BTreeSet<u64>) -> Option<u64> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let voters: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
        let answers = |id: u64| self.silence(id).is_some_and(|silence| silence <= self.heartbeat * 3);
        let matched = metrics.replication?;
        let others = matched.iter().filter(|(id, _)| {
            **id != self.id && voters.contains(id) && !passed_over.contains(id) && answers(**id)
        });
        others.max_by_key(|(_, matched)| **matched).map(|(id, _)| *id)
    }

    /// How long ago another controller answered, if it has under our leadership.
    fn silence(&self, id: u64) -> Option<Duration> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let heard = metrics.heartbeat?.get(&id).copied()??;
        Some(TypeConfig::now() - *heard)
    }
}

impl std::fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerHandle").field("id", &self.id).finish_non_exhaustive()
    }
}
