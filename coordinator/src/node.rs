//! The coordinator as a whole: what is started in which order, and stopped in the reverse one. Wiring only.

use crate::clock::Clock;
use crate::config::Config;
use crate::controllers::{Controllers, Pauses};
use crate::error::{CoordinatorFailure, StartError};
use crate::forward::{self, ForwardServices, ForwardSlot};
use crate::group_log::remote::RemoteLog;
use crate::image::Image;
use crate::lease::SharedLease;
use crate::metadata_feed::MetadataFeed;
use crate::metrics::CoordinatorMetrics;
use crate::runtime::{OwnedShards, Runtime};
use crate::session::{Session, SessionState};
use crate::shard_task::ShardServices;
use arc_swap::ArcSwap;
use prometheus_client::registry::Registry;
use proto_types::controller_api::RegisterCoordinator;
use proto_types::ids::{CoordinatorId, Incarnation, MetadataIndex};
use quic_transport::pki::Credentials;
use quic_transport::{
    Endpoint, EndpointConfig, Identity, NodeKeys, Role, Router, Transport, TransportMetrics,
};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Images that wait for the runtime.
const IMAGES_MAX: usize = 16;

/// Starts a coordinator on the current tokio runtime. Metrics go into `registry`.
pub fn start(
    config: Config,
    credentials: Credentials,
    registry: &mut Registry,
) -> Result<CoordinatorHandle, StartError> {
    config.validate().map_err(StartError::Config)?;
    check_certificate(&config, credentials.identity())?;
    let registry = registry.sub_registry_with_prefix("weir_coordinator");
    let transport_metrics = TransportMetrics::register(registry);
    let metrics = Arc::new(CoordinatorMetrics::register(registry));
    let keys = NodeKeys::load_or_create(&config.keys_file)?.endpoint("control");
    let forward_slot: ForwardSlot = Arc::new(OnceLock::new());
    let router = forward::add_route(Router::builder(), &forward_slot).build();
    let mut endpoint = EndpointConfig::new(config.listen, credentials, keys);
    endpoint.seed = Uuid::new_v4().as_u64_pair().0;
    let transport: Arc<dyn Transport> = Arc::new(Endpoint::bind(endpoint, router, transport_metrics)?);
    run(&config, transport, &forward_slot, metrics)
}

fn check_certificate(config: &Config, found: &Identity) -> Result<(), StartError> {
    let number = u64::try_from(config.id).expect("the configuration was validated: it is not negative");
    let expected = Identity::new(&config.cluster_id, Role::Coordinator, number)?;
    if *found != expected {
        return Err(StartError::WrongCertificate { found: found.clone(), expected });
    }
    Ok(())
}

fn run(
    config: &Config,
    transport: Arc<dyn Transport>,
    forward_slot: &ForwardSlot,
    metrics: Arc<CoordinatorMetrics>,
) -> Result<CoordinatorHandle, StartError> {
    let millis = Duration::from_millis;
    let (clock, timing, limits) = (Clock::start(), &config.timing, &config.limits);
    let retry = Pauses { first: millis(timing.retry_ms_min), longest: millis(timing.retry_ms_max) };
    let controllers =
        Arc::new(Controllers::new(Arc::clone(&transport), &config.controllers, millis(timing.call_ms))?);
    let registration = registration(config, transport.local_addr());
    let (coordinator, incarnation) = (registration.coordinator, registration.incarnation);
    let lease = Arc::new(SharedLease::new(clock, timing.lease_margin_ms));
    let image = Arc::new(ArcSwap::from_pointee(Image::default()));
    let log = RemoteLog {
        transport: Arc::clone(&transport),
        image: Arc::clone(&image),
        call_max: millis(timing.log_call_ms),
        page_bytes: limits.load_page_bytes,
    };
    let services = Arc::new(ShardServices {
        config: Arc::new(config.core()),
        log: Arc::new(log),
        image,
        lease: Arc::clone(&lease),
        clock,
        metrics: Arc::clone(&metrics),
        loads: Semaphore::new(limits.loads_max),
        batch_output_max: limits.batch_output_bytes_max,
    });
    let shards = Arc::new(OwnedShards::default());
    let filled = forward_slot.set(ForwardServices {
        shards: Arc::clone(&shards),
        lease: Arc::clone(&lease),
        metrics: Arc::clone(&metrics),
        requests_per_stream_max: limits.requests_per_stream_max,
    });
    assert!(filled.is_ok(), "services are started once");

    let (applied, applied_seen) = watch::channel(MetadataIndex(0));
    let (stopping, stopping_seen) = watch::channel(false);
    let (state, draining) = (watch::Sender::new(SessionState::default()), CancellationToken::new());
    let (images, to_apply) = mpsc::channel(IMAGES_MAX);
    let feed = MetadataFeed {
        controllers: Arc::clone(&controllers),
        cluster_id: config.cluster_id.clone(),
        session: state.subscribe(),
        images,
        retry,
        stall_max: millis(timing.metadata_stall_ms),
        metrics: Arc::clone(&metrics),
    };
    let runtime = Runtime {
        coordinator,
        incarnation,
        services,
        shards,
        queue_max: limits.requests_per_shard_max,
        applied,
        draining: draining.clone(),
    };
    let session_seen = state.subscribe();
    let session = Session {
        controllers,
        registration,
        levels: config.levels,
        retry,
        applied: applied_seen.clone(),
        stopping: stopping_seen,
        state,
        lease,
        clock,
        metrics,
    };
    tracing::info!(id = %coordinator, listen = %transport.local_addr(), "coordinator started");
    Ok(CoordinatorHandle {
        transport,
        session: session_seen,
        applied: applied_seen,
        stopping,
        draining,
        runtime: tokio::spawn(runtime.run(to_apply)),
        others: [tokio::spawn(session.run()), tokio::spawn(feed.run())],
        shutdown_max: millis(timing.shutdown_ms),
    })
}

fn registration(config: &Config, bound: SocketAddr) -> RegisterCoordinator {
    let control_address = match config.advertised.as_deref().and_then(|text| text.rsplit_once(':')) {
        Some((host, "0")) => format!("{host}:{}", bound.port()),
        Some((host, port)) => format!("{host}:{port}"),
        None => bound.to_string(),
    };
    RegisterCoordinator {
        cluster_id: config.cluster_id.clone(),
        coordinator: CoordinatorId(config.id),
        incarnation: Incarnation(Uuid::new_v4()),
        control_address,
    }
}

/// A running coordinator. Dropping it leaves its tasks running; [`CoordinatorHandle::shutdown`] stops them.
pub struct CoordinatorHandle {
    transport: Arc<dyn Transport>,
    session: watch::Receiver<SessionState>,
    applied: watch::Receiver<MetadataIndex>,
    stopping: watch::Sender<bool>,
    draining: CancellationToken,
    runtime: JoinHandle<()>,
    others: [JoinHandle<()>; 2],
    shutdown_max: Duration,
}

impl CoordinatorHandle {
    /// Where the endpoint is bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.transport.local_addr()
    }

    /// What is missing until the coordinator can own shards; for the readiness endpoint.
    pub fn readiness(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
        let (session, applied) = (self.session.clone(), self.applied.clone());
        move || {
            let mut missing = Vec::new();
            if !session.borrow().live {
                missing.push("the controllers do not count on this coordinator yet".to_owned());
            }
            if *applied.borrow() == MetadataIndex(0) {
                missing.push("the metadata has not arrived".to_owned());
            }
            missing
        }
    }

    /// Waits until the coordinator can own shards, or until that has become impossible.
    pub async fn ready(&self) -> Result<(), CoordinatorFailure> {
        let (mut session, mut applied) = (self.session.clone(), self.applied.clone());
        let state = session.wait_for(|state| state.live || state.refused.is_some()).await;
        match state.map(|state| state.refused.clone()) {
            Ok(None) => {}
            Ok(Some(reason)) => return Err(CoordinatorFailure::Refused(reason)),
            Err(_) => return Err(CoordinatorFailure::Stopped),
        }
        match applied.wait_for(|applied| *applied > MetadataIndex(0)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(CoordinatorFailure::Stopped),
        }
    }

    /// Waits until the coordinator gives up by itself; never returns while it works.
    pub async fn failed(&self) -> CoordinatorFailure {
        let mut session = self.session.clone();
        match session.wait_for(|state| state.refused.is_some()).await.map(|state| state.refused.clone()) {
            Ok(reason) => CoordinatorFailure::Refused(reason.unwrap_or_default()),
            Err(_) => CoordinatorFailure::Stopped,
        }
    }

    /// Stops answering, hands the shards over, closes. Each step is bounded by the configuration.
    pub async fn shutdown(self) {
        let Self { transport, mut session, stopping, draining, mut runtime, others, shutdown_max, .. } = self;
        // What still answers must not be given to another.
        draining.cancel();
        if tokio::time::timeout(shutdown_max, &mut runtime).await.is_err() {
            tracing::warn!("the shards did not stop in time");
            runtime.abort();
        }
        stopping.send_replace(true);
        let over = session.wait_for(|state| state.may_stop || state.refused.is_some());
        if tokio::time::timeout(shutdown_max, over).await.is_err() {
            tracing::warn!(
                "the controllers did not take over in time; the shards move when the session ends"
            );
        }
        for task in others {
            task.abort();
        }
        transport.shutdown(shutdown_max.min(Duration::from_secs(1))).await;
        tracing::info!("coordinator stopped");
    }
}

impl std::fmt::Debug for CoordinatorHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoordinatorHandle").field("address", &self.local_addr()).finish_non_exhaustive()
    }
}
