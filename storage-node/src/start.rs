//! How a node comes up and goes down.
//!
//! Up: open the data directories (a foreign, damaged or busy one ends it here), bind everything, register, follow the
//! metadata, open the partitions; only when the cluster counts this node as live are clients served. Down: ask the
//! controller to move the leaderships, let clients finish, flush and close the partitions.

use crate::clock::Clock;
use crate::config::Config;
use crate::control_thread::ControlThread;
use crate::controller_client::{ControllerClient, ControllerTiming};
use crate::controller_port::ControllerPort;
use crate::error::{NodeFailure, StartError};
use crate::kafka::api_table::api_table;
use crate::metadata_feed::{MetadataFeed, Published};
use crate::metrics::NodeMetrics;
use crate::node::Node;
use crate::partition::{PartitionMetrics, Partitions, PartitionsConfig};
use crate::published_image::PublishedImage;
use crate::session::{Session, SessionState};
use kafka_wire::{BoundListener, HostPort, ListenerConfig, Server, WireMetrics, bind_listeners};
use log_engine::{DataDir, DataDirOptions, RealDisk};
use prometheus_client::registry::Registry;
use proto_types::controller_api::RegisterNode;
use proto_types::ids::{DirectoryId, Incarnation, NodeId};
use proto_types::metadata::Listener;
use quic_transport::pki::{CredentialFiles, Credentials};
use quic_transport::{Identity, NodeKeys, Role, TransportMetrics};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::{ClusterImage, ConfigMap, ImageDelta};
use telemetry::{HttpConfig, HttpServer, ProcessCollector};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// File in the first data directory that holds the secret of the node's QUIC endpoints.
const NODE_KEYS_FILE: &str = "node.keys";
/// How long the HTTP endpoint and the internal endpoint may take to stop.
const CLOSE_GRACE: Duration = Duration::from_millis(500);

/// Where Kafka clients reach a running node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaAddress {
    /// The listener's name.
    pub listener: String,
    /// The bound address, with the real port.
    pub bound: SocketAddr,
    /// What clients are told.
    pub advertised: HostPort,
}

/// How far a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Starting,
    Ready,
    Failed(NodeFailure),
}

/// A running node. Dropping it stops it without ceremony; [`NodeHandle::shutdown`] does it properly.
#[derive(Debug)]
pub struct NodeHandle {
    kafka: Vec<KafkaAddress>,
    http: Option<SocketAddr>,
    control: SocketAddr,
    phase: watch::Receiver<Phase>,
    stop: watch::Sender<bool>,
    supervisor: JoinHandle<()>,
}

impl NodeHandle {
    /// Where Kafka clients reach the node, in the order of the configuration.
    pub fn kafka_addresses(&self) -> &[KafkaAddress] {
        &self.kafka
    }

    /// Where `/metrics`, `/healthz` and `/readyz` are, if they are served.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where the internal control endpoint is bound.
    pub fn control_address(&self) -> SocketAddr {
        self.control
    }

    /// Waits until clients are served, or until that has become impossible.
    pub async fn ready(&self) -> Result<(), NodeFailure> {
        let mut phase = self.phase.clone();
        match phase.wait_for(|phase| *phase != Phase::Starting).await.as_deref() {
            Ok(Phase::Failed(failure)) => Err(failure.clone()),
            Ok(Phase::Ready | Phase::Starting) => Ok(()),
            Err(_) => Err(NodeFailure::Stopped),
        }
    }

    /// Waits until the node gives up by itself; never returns while it works.
    pub async fn failed(&self) -> NodeFailure {
        let mut phase = self.phase.clone();
        match phase.wait_for(|phase| matches!(phase, Phase::Failed(_))).await.as_deref() {
            Ok(Phase::Failed(failure)) => failure.clone(),
            Ok(Phase::Starting | Phase::Ready) | Err(_) => NodeFailure::Stopped,
        }
    }

    /// Hands over leaderships, lets clients finish, flushes and closes. Each step is bounded by the configuration.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.supervisor.await {
            tracing::error!(%error, "the node's supervisor did not end well");
        }
    }
}

/// Starts a node. Returns when its directories are open and its addresses bound; [`NodeHandle::ready`] tells when clients
/// are served. Must run inside a multi-threaded tokio runtime with time and I/O.
pub async fn start(config: Config) -> Result<NodeHandle, StartError> {
    let faults = config.validate();
    if !faults.is_empty() {
        return Err(crate::config::ConfigError::Invalid(faults).into());
    }
    let clock = Clock::start();
    let credentials = load_credentials(&config)?;
    let mut registry = Registry::default();
    ProcessCollector::register(&mut registry);
    let metrics = Arc::new(NodeMetrics::register(&mut registry));
    let wire_metrics = WireMetrics::new(&mut registry);
    let partition_metrics = PartitionMetrics::register(&mut registry);
    let transport_metrics = TransportMetrics::register(&mut registry);

    let directories = open_directories(&config).await?;
    let keys = NodeKeys::load_or_create(&directories[0].path().join(NODE_KEYS_FILE))?;
    let listeners = bind_kafka(&config)?;
    let control =
        ControlThread::start(config.control.bind, credentials, keys.endpoint("control"), transport_metrics)
            .await?;

    let published = Arc::new(PublishedImage::default());
    let (phase, phase_seen) = watch::channel(Phase::Starting);
    let session_state = watch::Sender::new(SessionState::default());
    let http = serve_http(&config, registry, phase_seen.clone(), session_state.subscribe()).await?;

    let seed = Uuid::new_v4().as_u64_pair().0;
    let client =
        ControllerClient::new(control.transport(), &config.controllers, timing(&config), clock, seed)?;
    let client = Arc::new(client);
    let registration = registration(&config, &directories, &listeners, control.local_addr());
    let incarnation = registration.incarnation;
    let kafka: Vec<KafkaAddress> = listeners.iter().map(kafka_address).collect();
    let stopping = watch::Sender::new(false);
    let broker_epoch = watch::Sender::new(None);

    let file_configs = file_configs(&config, &kafka);
    let partitions_config = PartitionsConfig {
        node: NodeId(config.node_id),
        file_configs: file_configs.clone(),
        limits: config.partition_limits(),
        clock,
        metrics: partition_metrics,
    };
    let partitions = Partitions::start(partitions_config, directories)
        .map_err(|error| StartError::Thread { name: "partitions", error })?;
    let node = Arc::new(Node::new(
        &config,
        file_configs,
        Arc::clone(&partitions),
        Arc::clone(&published),
        Arc::clone(&client) as Arc<dyn ControllerPort>,
        broker_epoch.subscribe(),
        clock,
        Arc::clone(&metrics),
    ));
    let (opener, to_open) = mpsc::channel(config.limits.metadata_deltas_pending_max);
    let feed = MetadataFeed {
        controller: Arc::clone(&client),
        cluster_id: config.cluster_id.clone(),
        published: Arc::clone(&published),
        session: session_state.subscribe(),
        opener,
        open_max: Duration::from_millis(config.limits.controller_call_ms_max),
        stall_max: Duration::from_millis(config.limits.metadata_stall_ms_max),
        metrics: Arc::clone(&metrics),
    };
    let session = Session {
        controller: client,
        registration,
        call_max: Duration::from_millis(config.limits.controller_call_ms_max),
        applied: published.watch_applied(),
        stopping: stopping.subscribe(),
        healthy: partitions.watch_healthy(),
        broker_epoch: broker_epoch.clone(),
        state: session_state.clone(),
        metrics: Arc::clone(&metrics),
    };
    control.run(session);

    let handle_parts = (http.as_ref().map(HttpServer::local_addr), control.local_addr());
    let (stop, stop_seen) = watch::channel(false);
    let supervisor = Supervisor {
        config,
        node,
        listeners,
        wire_metrics,
        http,
        control,
        phase,
        session: session_state.subscribe(),
        stopping,
        stop: stop_seen,
    };
    let feed = tokio::spawn(feed.run());
    let opening = tokio::spawn(open_partitions(Arc::clone(&supervisor.node), to_open, incarnation, metrics));
    let supervisor = tokio::spawn(async move {
        supervisor.run().await;
        feed.abort();
        opening.abort();
    });
    let (http, control) = handle_parts;
    Ok(NodeHandle { kafka, http, control, phase: phase_seen, stop, supervisor })
}

fn load_credentials(config: &Config) -> Result<Credentials, StartError> {
    let credentials = Credentials::load(&CredentialFiles {
        certificate: config.certificates.certificate.clone(),
        key: config.certificates.key.clone(),
        authority: config.certificates.ca.clone(),
    })?;
    let number = u64::try_from(config.node_id).expect("the configuration was validated: it is not negative");
    let expected = Identity::new(&config.cluster_id, Role::StorageNode, number)?;
    if *credentials.identity() != expected {
        return Err(StartError::WrongCertificate {
            path: config.certificates.certificate.clone(),
            found: credentials.identity().to_string(),
            expected: expected.to_string(),
        });
    }
    Ok(credentials)
}

/// Opens and locks the data directories; files are not for async workers.
async fn open_directories(config: &Config) -> Result<Vec<DataDir>, StartError> {
    let (paths, cluster_id, node_id) = (config.data_dirs.clone(), config.cluster_id.clone(), config.node_id);
    let descriptors_max = config.limits.descriptors_per_directory_max;
    let open = move || {
        let open_one = |path: &std::path::PathBuf| {
            let options = DataDirOptions {
                cluster_id: cluster_id.clone(),
                node_id,
                new_directory_id: Uuid::new_v4(),
                descriptors_max,
            };
            DataDir::open(Arc::new(RealDisk), path, &options)
        };
        paths.iter().map(open_one).collect::<Result<Vec<_>, _>>()
    };
    let opened = tokio::task::spawn_blocking(open).await;
    Ok(opened.expect("opening does not panic, and the runtime is running this very task")?)
}

fn bind_kafka(config: &Config) -> Result<Vec<BoundListener>, StartError> {
    let listeners: Vec<ListenerConfig> = config
        .listeners
        .iter()
        .map(|listener| ListenerConfig {
            name: listener.name.clone(),
            bind: listener.bind,
            advertised: listener.advertised.as_deref().and_then(|text| text.parse().ok()),
        })
        .collect();
    Ok(bind_listeners(&listeners, &config.wire_limits())?)
}

fn kafka_address(listener: &BoundListener) -> KafkaAddress {
    let info = listener.info();
    KafkaAddress { listener: info.name.clone(), bound: info.bound, advertised: info.advertised.clone() }
}

fn timing(config: &Config) -> ControllerTiming {
    ControllerTiming {
        retry_min: Duration::from_millis(config.limits.controller_retry_ms_min),
        retry_max: Duration::from_millis(config.limits.controller_retry_ms_max),
        connect_max: Duration::from_millis(config.limits.controller_call_ms_max),
    }
}

fn registration(
    config: &Config,
    directories: &[DataDir],
    listeners: &[BoundListener],
    control: SocketAddr,
) -> RegisterNode {
    let control_address = match config.control.advertised.as_deref().and_then(|text| text.parse().ok()) {
        Some(HostPort { host, port: 0 }) => HostPort::new(host, control.port()),
        Some(advertised) => advertised,
        None => HostPort::new(control.ip().to_string(), control.port()),
    };
    let listener = |bound: &BoundListener| Listener {
        name: bound.info().name.clone(),
        host: bound.info().advertised.host.clone(),
        port: bound.info().advertised.port,
    };
    RegisterNode {
        cluster_id: config.cluster_id.clone(),
        node: NodeId(config.node_id),
        incarnation: Incarnation(Uuid::new_v4()),
        directories: directories.iter().map(|directory| DirectoryId(directory.directory_id())).collect(),
        listeners: listeners.iter().map(listener).collect(),
        control_address: control_address.to_string(),
        // Nothing is replicated yet, so there is no data endpoint to tell of.
        data_address: String::new(),
        rack: config.rack.clone(),
    }
}

/// The node configs that this node's own configuration sets, as DescribeConfigs shows them.
fn file_configs(config: &Config, kafka: &[KafkaAddress]) -> ConfigMap {
    let joined =
        |text: &dyn Fn(&KafkaAddress) -> String| kafka.iter().map(text).collect::<Vec<_>>().join(",");
    let directories: Vec<String> = config.data_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let mut configs = config.kafka.clone();
    let own = [
        ("node.id", config.node_id.to_string()),
        ("broker.id", config.node_id.to_string()),
        ("log.dirs", directories.join(",")),
        ("listeners", joined(&|address| format!("{}://{}", address.listener, address.bound))),
        ("advertised.listeners", joined(&|address| format!("{}://{}", address.listener, address.advertised))),
        ("listener.security.protocol.map", joined(&|address| format!("{}:PLAINTEXT", address.listener))),
    ];
    configs.extend(own.map(|(name, value)| (name.to_owned(), value)));
    configs.extend(config.rack.clone().map(|rack| ("broker.rack".to_owned(), rack)));
    configs
}

async fn serve_http(
    config: &Config,
    registry: Registry,
    phase: watch::Receiver<Phase>,
    session: watch::Receiver<SessionState>,
) -> Result<Option<HttpServer>, StartError> {
    if !config.http.enabled {
        return Ok(None);
    }
    let missing = move || {
        let mut missing = Vec::new();
        match &*phase.borrow() {
            Phase::Ready => {}
            Phase::Starting => missing.push("starting: not yet registered or not caught up".to_owned()),
            Phase::Failed(failure) => missing.push(failure.to_string()),
        }
        if session.borrow().fenced {
            missing.push("fenced: the controllers do not count this node as live".to_owned());
        }
        missing
    };
    Ok(Some(HttpServer::bind(HttpConfig::at(config.http.bind), registry, missing).await?))
}

/// Makes the partitions of this node match what the feed publishes, and moves `applied`.
async fn open_partitions(
    node: Arc<Node>,
    mut to_open: mpsc::Receiver<Published>,
    incarnation: Incarnation,
    metrics: Arc<NodeMetrics>,
) {
    // Before this incarnation's registration the log speaks of the one before: its leaderships are not ours.
    let joined = |image: &ClusterImage| {
        image.node(node.id()).is_some_and(|own| own.registration.incarnation == incarnation)
    };
    let mut before: Option<ImageDelta> = None;
    while let Some(mut next) = to_open.recv().await {
        while let Ok(later) = to_open.try_recv() {
            next.delta.merge(later.delta);
            next.image = later.image;
        }
        if let Some(mut delta) = before.take() {
            delta.merge(next.delta);
            next.delta = delta;
        }
        if !joined(&next.image) {
            before = Some(next.delta);
            continue;
        }
        node.partitions().apply(&next.image, &next.delta).await;
        node.published().set_applied(next.image.index());
        metrics.set_applied_index(next.image.index());
    }
}

/// Owns the life of a node once it is bound.
struct Supervisor {
    config: Config,
    node: Arc<Node>,
    listeners: Vec<BoundListener>,
    wire_metrics: Arc<WireMetrics>,
    http: Option<HttpServer>,
    control: ControlThread,
    phase: watch::Sender<Phase>,
    session: watch::Receiver<SessionState>,
    stopping: watch::Sender<bool>,
    stop: watch::Receiver<bool>,
}

impl Supervisor {
    async fn run(mut self) {
        let listeners = std::mem::take(&mut self.listeners);
        let mut server = None;
        let failure = tokio::select! {
            () = live(&self.node) => match self.serve(listeners) {
                Ok(started) => {
                    server = Some(started);
                    self.phase.send_replace(Phase::Ready);
                    tracing::info!(node = %self.node.id(), "ready");
                    tokio::select! {
                        failure = refused(&mut self.session) => Some(failure),
                        () = asked_to_stop(&mut self.stop) => None,
                    }
                }
                Err(failure) => Some(failure),
            },
            failure = refused(&mut self.session) => Some(failure),
            () = asked_to_stop(&mut self.stop) => None,
        };
        match failure {
            Some(failure) => {
                self.phase.send_replace(Phase::Failed(failure));
            }
            None => self.hand_over().await,
        }
        if let Some(server) = server {
            server.shutdown().await;
        }
        self.node.partitions().close().await;
        self.phase.send_if_modified(|phase| match phase {
            Phase::Failed(_) => false,
            Phase::Starting | Phase::Ready => {
                *phase = Phase::Failed(NodeFailure::Stopped);
                true
            }
        });
        self.control.shutdown(CLOSE_GRACE).await;
        if let Some(http) = self.http {
            http.shutdown(CLOSE_GRACE).await;
        }
        tracing::info!("stopped");
    }

    fn serve(&self, listeners: Vec<BoundListener>) -> Result<Server, NodeFailure> {
        let table =
            api_table(&self.config.cluster_id, self.node.id()).expect("the table is checked by a test");
        let server = Server::start(
            listeners,
            Arc::new(table),
            Arc::clone(&self.node),
            self.config.wire_limits(),
            Arc::clone(&self.wire_metrics),
        );
        server.map_err(|error| NodeFailure::Door(error.to_string()))
    }

    /// Asks the controller to fence this node and to move what it leads.
    async fn hand_over(&mut self) {
        self.stopping.send_replace(true);
        let longest = Duration::from_millis(self.config.limits.stop_handover_ms_max);
        let done = self.session.wait_for(|state| state.may_stop || state.refused.is_some());
        if tokio::time::timeout(longest, done).await.is_err() {
            tracing::warn!("the controllers did not take over in time; leaders move when the session ends");
        }
    }
}

/// Completes when the image shows this node as live and everything up to there is open.
async fn live(node: &Node) {
    let forever = Duration::from_secs(u64::from(u32::MAX));
    let Some(image) = node.published().wait_for(forever, |image| image.is_live(node.id())).await else {
        return std::future::pending().await;
    };
    let mut applied = node.published().watch_applied();
    if applied.wait_for(|applied| *applied >= image.index()).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn refused(session: &mut watch::Receiver<SessionState>) -> NodeFailure {
    let reason = session.wait_for(|state| state.refused.is_some()).await.map(|state| state.refused.clone());
    match reason {
        Ok(reason) => NodeFailure::Refused(reason.unwrap_or_default()),
        Err(_) => std::future::pending().await,
    }
}

async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    // A handle that was dropped asks for it as well.
    let _ = stop.wait_for(|stop| *stop).await;
}
