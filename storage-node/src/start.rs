//! How a node comes up.
//!
//! Open the data directories (if none can be read, or one is somebody else's, it ends here), bind everything, register, follow
//! the metadata, open the partitions; only when the cluster counts this node as live are clients served. What comes after is the
//! [`Supervisor`]'s.

use crate::boot;
use crate::clock::Clock;
use crate::config::Config;
use crate::control_thread::ControlThread;
use crate::controller_client::{ControllerClient, ControllerTiming};
use crate::controller_port::ControllerPort;
use crate::coordinators::{Coordinators, ForwardLimits};
use crate::descriptors::DescriptorShares;
use crate::directories::Directories;
use crate::disk::cleaner::CleanerMetrics;
use crate::error::StartError;
use crate::handle::{KafkaAddress, NodeHandle, Phase};
use crate::metadata_feed::{MetadataFeed, Published};
use crate::metrics::NodeMetrics;
use crate::mover::Mover;
use crate::node::{Node, NodeParts};
use crate::open_partitions::open_partitions;
use crate::partition::tail::TailBudget;
use crate::partition::{PartitionMetrics, Partitions, PartitionsConfig};
use crate::published_image::PublishedImage;
use crate::repairer::Repairer;
use crate::replication::data_thread::DataThread;
use crate::replication::follower_lanes::LaneParts;
use crate::replication::isr_proposer::IsrProposer;
use crate::replication::lane_pump::LeaderThrottle;
use crate::replication::lane_server::{self, LaneServer, LaneServerSlot};
use crate::replication::{FollowerLanes, IsrProposals, Replication, ReplicationMetrics, Throttles};
use crate::resigner::Resigner;
use crate::session::{Session, SessionState};
use crate::shard_logs::{self, ShardLogs, ShardLogsSlot};
use crate::supervisor::Supervisor;
use kafka_wire::{BoundListener, HostPort, ListenerConfig, WireMetrics, bind_listeners};
use log_engine::{DataDirOptions, Disk, RealDisk};
use prometheus_client::registry::Registry;
use proto_types::controller_api::RegisterNode;
use proto_types::ids::{BrokerEpoch, Incarnation, NodeId, TopicPartition};
use proto_types::metadata::Listener;
use quic_transport::pki::{CredentialFiles, Credentials};
use quic_transport::{Identity, NodeKeys, Role, Router, TransportMetrics};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::ConfigMap;
use telemetry::{HttpConfig, HttpServer, ProcessCollector};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// File in the first data directory that is open, that holds the secret of the node's QUIC endpoints.
const NODE_KEYS_FILE: &str = "node.keys";

/// Starts a node. Returns when its directories are open and its addresses bound; [`NodeHandle::ready`] tells when clients
/// are served. Must run inside a multi-threaded tokio runtime with time and I/O.
pub async fn start(config: Config) -> Result<NodeHandle, StartError> {
    let faults = config.validate();
    if !faults.is_empty() {
        return Err(crate::config::ConfigError::Invalid(faults).into());
    }
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, &config);
    let credentials = load_credentials(&config)?;
    let shares = DescriptorShares::of(&config);
    let directories = open_directories(&config, shares).await?;
    let keys = NodeKeys::load_or_create(&directories.open[0].path().join(NODE_KEYS_FILE))?;
    let listeners = bind_kafka(&config)?;
    let shard_logs = ShardLogsSlot::default();
    let router = shard_logs::add_routes(Router::builder(), &shard_logs).build();
    let control = ControlThread::start(
        config.control.bind,
        credentials.clone(),
        keys.endpoint("control"),
        router,
        metrics.transport.clone(),
    )
    .await?;
    let lane_server = LaneServerSlot::default();
    let data = DataThread::start(
        config.data.bind,
        credentials,
        keys.endpoint("data"),
        config.wire_limits().frame_bytes_max,
        lane_server::router(&lane_server),
        metrics.transport.clone(),
    )
    .await?;
    let (phase, phase_seen) = watch::channel(Phase::Starting);
    let session_state = watch::Sender::new(SessionState::default());
    let http = serve_http(&config, registry, &metrics, phase_seen.clone(), session_state.subscribe()).await?;
    let bound = Bound {
        limits: kafka_wire::Limits { connections_max: shares.connections_max, ..config.wire_limits() },
        directories,
        listeners,
        control,
        shard_logs,
        data,
        lane_server,
        http,
    };
    run(config, bound, metrics, (phase, phase_seen), session_state)
}

/// What is counted, each by whom it concerns.
struct Metrics {
    node: Arc<NodeMetrics>,
    wire: Arc<WireMetrics>,
    partitions: PartitionMetrics,
    cleaner: CleanerMetrics,
    replication: ReplicationMetrics,
    /// Of both endpoints.
    transport: TransportMetrics,
}

impl Metrics {
    fn register(registry: &mut Registry, config: &Config) -> Self {
        ProcessCollector::register(registry);
        Self {
            node: Arc::new(NodeMetrics::register(registry)),
            wire: WireMetrics::new(registry),
            partitions: PartitionMetrics::register(registry),
            cleaner: CleanerMetrics::register(registry, config.limits.compaction_metrics_partitions_max),
            replication: ReplicationMetrics::register(registry),
            transport: TransportMetrics::register(registry.sub_registry_with_prefix("weir_storage_node")),
        }
    }
}

/// Everything that can be foreign, busy or taken, and is not.
struct Bound {
    /// Of the connection loop, as far as the system allows what is configured.
    limits: kafka_wire::Limits,
    directories: Directories,
    listeners: Vec<BoundListener>,
    control: ControlThread,
    shard_logs: ShardLogsSlot,
    data: DataThread,
    lane_server: LaneServerSlot,
    http: Option<HttpServer>,
}

/// Sets the parts of a bound node going.
fn run(
    config: Config,
    bound: Bound,
    metrics: Metrics,
    (phase, phase_seen): (watch::Sender<Phase>, watch::Receiver<Phase>),
    session_state: watch::Sender<SessionState>,
) -> Result<NodeHandle, StartError> {
    let registration = registration(&config, &bound);
    let Bound { limits, directories, listeners, control, shard_logs, data, lane_server, http } = bound;
    let (clock, incarnation) = (Clock::start(), registration.incarnation);
    let client = controller_client(&config, &control, clock)?;
    let kafka: Vec<KafkaAddress> = listeners.iter().map(kafka_address).collect();
    let file_configs = file_configs(&config, &kafka);
    let published = Arc::new(PublishedImage::default());
    let (stopping, broker_epoch) = (watch::Sender::new(false), watch::Sender::new(None));
    let Replicating { replication, throttle, proposer } =
        replicate(&config, &data, &published, &broker_epoch, &client, clock, &metrics.replication);
    let (to_remember, counted) = (directories.to_remember(), (metrics.partitions, metrics.cleaner));
    let partitions = start_partitions(&config, &file_configs, directories, clock, counted, replication)?;
    tokio::spawn(boot::remember(to_remember, broker_epoch.subscribe(), partitions.watch_lost_missed()));
    let (mut following, lost_copies) =
        look_after(&config, &partitions, &published, &client, &broker_epoch, clock, proposer);
    serve_daemons(&config, &partitions, clock, (&shard_logs, &lane_server), metrics.replication, throttle);
    let coordinators = Coordinators::new(
        control.transport(),
        Arc::clone(&published),
        forward_limits(&config),
        Arc::clone(&metrics.node),
    );
    let node = Arc::new(Node::new(NodeParts {
        config: &config,
        file_configs,
        partitions: Arc::clone(&partitions),
        published: Arc::clone(&published),
        controller: Arc::clone(&client) as Arc<dyn ControllerPort>,
        coordinators: Arc::new(coordinators),
        broker_epoch: broker_epoch.subscribe(),
        clock,
        metrics: Arc::clone(&metrics.node),
    }));
    let (opener, to_open) = mpsc::channel(config.limits.metadata_deltas_pending_max);
    let feed = metadata_feed(&config, &client, &published, &session_state, opener, &metrics.node);
    let session = Session {
        controller: client,
        registration,
        levels: config.levels,
        call_max: Duration::from_millis(config.limits.controller_call_ms_max),
        applied: published.watch_applied(),
        stopping: stopping.subscribe(),
        healthy: partitions.watch_healthy(),
        broker_epoch,
        state: session_state.clone(),
        metrics: Arc::clone(&metrics.node),
    };
    control.run(session);

    let (http_address, control_address) = (http.as_ref().map(HttpServer::local_addr), control.local_addr());
    let (stop, stop_seen) = watch::channel(false);
    let opening = open_partitions(Arc::clone(&node), to_open, lost_copies, incarnation, metrics.node);
    following.extend([tokio::spawn(feed.run()), tokio::spawn(opening)]);
    let supervisor = Supervisor {
        config,
        wire_limits: limits,
        node,
        listeners,
        wire_metrics: metrics.wire,
        http,
        control,
        data,
        phase,
        session: session_state.subscribe(),
        stopping,
        stop: stop_seen,
        following,
    };
    let supervisor = tokio::spawn(supervisor.run());
    Ok(NodeHandle {
        kafka,
        http: http_address,
        control: control_address,
        phase: phase_seen,
        stop,
        supervisor,
    })
}

fn controller_client(
    config: &Config,
    control: &ControlThread,
    clock: Clock,
) -> Result<Arc<ControllerClient>, StartError> {
    let seed = Uuid::new_v4().as_u64_pair().0;
    let client =
        ControllerClient::new(control.transport(), &config.controllers, timing(config), clock, seed)?;
    Ok(Arc::new(client))
}

fn metadata_feed(
    config: &Config,
    client: &Arc<ControllerClient>,
    published: &Arc<PublishedImage>,
    session_state: &watch::Sender<SessionState>,
    opener: mpsc::Sender<Published>,
    metrics: &Arc<NodeMetrics>,
) -> MetadataFeed {
    MetadataFeed {
        controller: Arc::clone(client),
        cluster_id: config.cluster_id.clone(),
        published: Arc::clone(published),
        session: session_state.subscribe(),
        opener,
        open_max: Duration::from_millis(config.limits.controller_call_ms_max),
        stall_max: Duration::from_millis(config.limits.metadata_stall_ms_max),
        metrics: Arc::clone(metrics),
    }
}

/// Starts the tasks that tell the controllers how the copies here do; and who is to hear of copies that are given up.
fn look_after(
    config: &Config,
    partitions: &Arc<Partitions>,
    published: &Arc<PublishedImage>,
    client: &Arc<ControllerClient>,
    broker_epoch: &watch::Sender<Option<BrokerEpoch>>,
    clock: Clock,
    proposer: IsrProposer,
) -> (Vec<JoinHandle<()>>, mpsc::Receiver<TopicPartition>) {
    let (me, batch_max) = (NodeId(config.node_id), config.limits.isr_proposals_max);
    let call_max = Duration::from_millis(config.limits.controller_call_ms_max);
    let (lost, lost_copies) = mpsc::channel(batch_max);
    let resigner = Resigner {
        me,
        partitions: Arc::clone(partitions),
        published: Arc::clone(published),
        controller: Arc::clone(client) as Arc<dyn ControllerPort>,
        broker_epoch: broker_epoch.subscribe(),
        batch_max,
        call_max,
    };
    let repairer = Repairer {
        me,
        partitions: Arc::clone(partitions),
        published: Arc::clone(published),
        controller: Arc::clone(client) as Arc<dyn ControllerPort>,
        broker_epoch: broker_epoch.subscribe(),
        lost,
        batch_max,
        call_max,
        clock,
    };
    let mover = Mover {
        me,
        partitions: Arc::clone(partitions),
        published: Arc::clone(published),
        controller: Arc::clone(client) as Arc<dyn ControllerPort>,
        broker_epoch: broker_epoch.subscribe(),
        call_max,
        clock,
    };
    let tasks = vec![
        tokio::spawn(proposer.run()),
        tokio::spawn(resigner.run()),
        tokio::spawn(repairer.run()),
        tokio::spawn(mover.run()),
    ];
    (tasks, lost_copies)
}

/// Lets coordinators read and write the logs of their shards, and other nodes follow.
fn serve_daemons(
    config: &Config,
    partitions: &Arc<Partitions>,
    clock: Clock,
    (shard_logs, lane_server): (&ShardLogsSlot, &LaneServerSlot),
    metrics: ReplicationMetrics,
    throttle: LeaderThrottle,
) {
    let shards = ShardLogs { partitions: Arc::clone(partitions), clock };
    let limits = config.replication_limits();
    let lanes = LaneServer::new(config.cluster_id.clone(), partitions, limits, metrics, throttle);
    let first = shard_logs.set(shards).is_ok() && lane_server.set(lanes).is_ok();
    assert!(first, "the partitions are started once");
}

/// Replication as it is put together.
struct Replicating {
    replication: Arc<Replication>,
    throttle: LeaderThrottle,
    proposer: IsrProposer,
}

fn replicate(
    config: &Config,
    data: &DataThread,
    published: &Arc<PublishedImage>,
    broker_epoch: &watch::Sender<Option<BrokerEpoch>>,
    client: &Arc<ControllerClient>,
    clock: Clock,
    metrics: &ReplicationMetrics,
) -> Replicating {
    let (me, limits) = (NodeId(config.node_id), config.replication_limits());
    let throttles = Arc::new(Throttles::new(clock));
    let lane_parts = LaneParts {
        transport: data.transport(),
        published: Arc::clone(published),
        broker_epoch: broker_epoch.subscribe(),
        limits,
        metrics: metrics.clone(),
        throttles: Arc::clone(&throttles),
    };
    let proposals = Arc::new(IsrProposals::default());
    let replication = Replication {
        lanes: FollowerLanes::new(lane_parts, data.runtime().clone()),
        proposals: Arc::clone(&proposals),
        metrics: metrics.clone(),
        throttles: Arc::clone(&throttles),
        tails: TailBudget::new(limits.tail_bytes_max),
    };
    let throttle = LeaderThrottle { me, throttles, published: Arc::clone(published) };
    let proposer = IsrProposer {
        me,
        proposals,
        controller: Arc::clone(client) as Arc<dyn ControllerPort>,
        broker_epoch: broker_epoch.subscribe(),
        batch_max: config.limits.isr_proposals_max,
        call_max: Duration::from_millis(config.limits.controller_call_ms_max),
        metrics: metrics.clone(),
    };
    Replicating { replication: Arc::new(replication), throttle, proposer }
}

fn start_partitions(
    config: &Config,
    file_configs: &ConfigMap,
    directories: Directories,
    clock: Clock,
    metrics: (PartitionMetrics, CleanerMetrics),
    replication: Arc<Replication>,
) -> Result<Arc<Partitions>, StartError> {
    let config = PartitionsConfig {
        node: NodeId(config.node_id),
        file_configs: file_configs.clone(),
        limits: config.partition_limits(),
        clock,
        metrics: metrics.0,
        cleaner_metrics: metrics.1,
        replication,
        given_up: directories.given_up(),
        offline: directories.offline,
        replaces_lost_disk: directories.replaces_lost_disk,
    };
    Partitions::start(config, directories.open)
        .map_err(|error| StartError::Thread { name: "partitions", error })
}

fn load_credentials(config: &Config) -> Result<Credentials, StartError> {
    let credentials = Credentials::load(&CredentialFiles {
        certificate: config.certificates.certificate.clone(),
        key: config.certificates.key.clone(),
        authority: config.certificates.authority.clone(),
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
async fn open_directories(config: &Config, shares: DescriptorShares) -> Result<Directories, StartError> {
    let (paths, cluster_id, node_id) = (config.data_dirs.clone(), config.cluster_id.clone(), config.node_id);
    let descriptors_max = shares.files_per_directory_max;
    let options = move || DataDirOptions {
        cluster_id: cluster_id.clone(),
        node_id,
        new_directory_id: Uuid::new_v4(),
        descriptors_max,
    };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let opened = tokio::task::spawn_blocking(move || Directories::open(&disk, &paths, options)).await;
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
        connect_min: Duration::from_millis(config.limits.controller_connect_ms_min),
        connect_max: Duration::from_millis(config.limits.controller_call_ms_max),
        answer_max: Duration::from_millis(config.limits.controller_answer_ms_max),
    }
}

fn forward_limits(config: &Config) -> ForwardLimits {
    ForwardLimits {
        requests_max: config.limits.forwarded_requests_max,
        open_max: Duration::from_millis(config.limits.controller_call_ms_max),
        recheck: Duration::from_millis(config.limits.coordinator_recheck_ms_max),
    }
}

fn registration(config: &Config, parts: &Bound) -> RegisterNode {
    let (control, data) = (parts.control.local_addr(), parts.data.local_addr());
    let advertised =
        |given: &Option<String>, bound: SocketAddr| match given.as_deref().and_then(|text| text.parse().ok())
        {
            Some(HostPort { host, port: 0 }) => HostPort::new(host, bound.port()),
            Some(advertised) => advertised,
            None => HostPort::new(bound.ip().to_string(), bound.port()),
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
        directories: parts.directories.ids(),
        listeners: parts.listeners.iter().map(listener).collect(),
        control_address: advertised(&config.control.advertised, control).to_string(),
        data_address: advertised(&config.data.advertised, data).to_string(),
        rack: config.rack.clone(),
        may_lack: parts.directories.may_lack,
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
    metrics: &Metrics,
    phase: watch::Receiver<Phase>,
    session: watch::Receiver<SessionState>,
) -> Result<Option<HttpServer>, StartError> {
    if !config.http.enabled {
        return Ok(None);
    }
    let opening = Arc::clone(metrics.partitions.opening());
    let disks = metrics.partitions.disks().clone();
    let missing = move || {
        let mut missing: Vec<String> = opening.sentence().into_iter().collect();
        missing.extend(disks.failures());
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
    Ok(Some(HttpServer::bind(HttpConfig::at(config.http.address), registry, missing).await?))
}
