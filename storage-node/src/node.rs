//! What every handler of the Kafka door gets: the image, the configs, the way to the controllers, and the partitions.

use crate::clock::Clock;
use crate::config::{Config, Limits};
use crate::controller_port::ControllerPort;
use crate::coordinator_port::CoordinatorPort;
use crate::kafka::error_code::KafkaError;
use crate::kafka::fetch_sessions::{FetchSessionLimits, FetchSessions};
use crate::kafka::first_use::InCreation;
use crate::kafka::read_replica::ReplicaSelector;
use crate::metrics::NodeMetrics;
use crate::partition::Partitions;
use crate::producer_ids::ProducerIds;
use crate::published_image::PublishedImage;
use kafka_wire::{Features, LogLimiter};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{ControllerReply, ControllerRequest};
use proto_types::feature::{LevelRange, WEIR_VERSION};
use proto_types::ids::{BrokerEpoch, NodeId, TopicPartition};
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::effective_config::{ConfigSource, ConfigView};
use storage_node_core::image::{ClusterImage, ConfigMap, NodeImage};
use tokio::sync::{Semaphore, watch};

/// Added to the time that the controller may take, so that its answer "not in time" still arrives.
const ANSWER_GRACE: Duration = Duration::from_millis(500);

/// The shared state of all handlers.
pub(crate) struct Node {
    id: NodeId,
    cluster_id: Str,
    published: Arc<PublishedImage>,
    controller: Arc<dyn ControllerPort>,
    coordinators: Arc<dyn CoordinatorPort>,
    producer_ids: ProducerIds,
    file_configs: ConfigMap,
    partitions: Arc<Partitions>,
    fetch_sessions: FetchSessions,
    fetch_bytes_max: usize,
    auto_create_topics: bool,
    in_creation: Arc<InCreation>,
    request_timeout_ms: u64,
    describe_partitions_max: usize,
    replica_selector: ReplicaSelector,
    limits: Limits,
    levels: LevelRange,
    admin_requests: Semaphore,
    read_failures: LogLimiter,
    clock: Clock,
    metrics: Arc<NodeMetrics>,
}

/// What a [`Node`] is put together from.
pub(crate) struct NodeParts<'a> {
    pub(crate) config: &'a Config,
    /// The node configs that the node's own configuration sets.
    pub(crate) file_configs: ConfigMap,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) published: Arc<PublishedImage>,
    pub(crate) controller: Arc<dyn ControllerPort>,
    pub(crate) coordinators: Arc<dyn CoordinatorPort>,
    /// This node's registration, once there is one.
    pub(crate) broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<NodeMetrics>,
}

impl Node {
    /// Puts the parts together.
    pub(crate) fn new(parts: NodeParts<'_>) -> Self {
        let NodeParts {
            config,
            file_configs,
            partitions,
            published,
            controller,
            coordinators,
            broker_epoch,
            clock,
            metrics,
        } = parts;
        let id = NodeId(config.node_id);
        let positive = |name: &str| u64::try_from(config.kafka_number(name)).unwrap_or(0);
        let size = |name: &str| usize::try_from(config.kafka_number(name)).unwrap_or(0);
        Self {
            id,
            cluster_id: config.cluster_id.as_str().into(),
            published,
            producer_ids: ProducerIds::new(id, Arc::clone(&controller), broker_epoch),
            controller,
            coordinators,
            file_configs,
            partitions,
            fetch_sessions: FetchSessions::new(FetchSessionLimits {
                sessions_max: size("max.incremental.fetch.session.cache.slots"),
                partitions_max: config.limits.fetch_session_partitions_max,
                eviction_ms: config.limits.fetch_session_eviction_ms,
            }),
            fetch_bytes_max: size("fetch.max.bytes"),
            auto_create_topics: config.kafka_flag("auto.create.topics.enable"),
            in_creation: InCreation::new(config.limits.topics_in_creation_max),
            request_timeout_ms: positive("request.timeout.ms"),
            describe_partitions_max: usize::try_from(positive("max.request.partition.size.limit"))
                .unwrap_or(1)
                .max(1),
            replica_selector: ReplicaSelector::of_class(config.kafka_value("replica.selector.class")),
            read_failures: LogLimiter::new(clock.now()),
            admin_requests: Semaphore::new(config.limits.admin_requests_in_flight_max),
            limits: config.limits.clone(),
            levels: config.levels,
            clock,
            metrics,
        }
    }

    /// This node.
    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    /// The cluster, as clients are told.
    pub(crate) fn cluster_id(&self) -> &Str {
        &self.cluster_id
    }

    /// The cluster as this node knows it now.
    pub(crate) fn image(&self) -> Arc<ClusterImage> {
        self.published.load()
    }

    /// What ApiVersions tells of features: what this node supports, and the level of the cluster as this node knows it.
    pub(crate) fn features(&self) -> Features {
        let (level, epoch) = self.image().feature_level();
        let name = || WEIR_VERSION.to_owned();
        Features {
            supported: vec![(name(), self.levels.min.0, self.levels.max.0)],
            finalized: vec![(name(), level.0)],
            epoch: epoch.0,
        }
    }

    /// To wait for a newer image.
    pub(crate) fn published(&self) -> &PublishedImage {
        &self.published
    }

    /// The configs in force as of `image`.
    pub(crate) fn configs<'a>(&'a self, image: &'a ClusterImage) -> ConfigView<'a> {
        ConfigView::new(image, self.id, &self.file_configs)
    }

    /// The partition copies on this node.
    pub(crate) fn partitions(&self) -> &Arc<Partitions> {
        &self.partitions
    }

    /// What the node counts about itself.
    pub(crate) fn metrics(&self) -> &NodeMetrics {
        &self.metrics
    }

    /// A read of a log failed. Clients repeat it, so only some failures are written down.
    pub(crate) fn log_read_failure(&self, partition: TopicPartition, error: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.read_failures.admit(self.clock.now()) {
            tracing::error!(%partition, %error, suppressed, "cannot read the log");
        }
    }

    /// The clocks.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Ids for idempotent producers.
    pub(crate) fn producer_ids(&self) -> &ProducerIds {
        &self.producer_ids
    }

    /// The way to the coordinators of groups.
    pub(crate) fn coordinators(&self) -> &dyn CoordinatorPort {
        &*self.coordinators
    }

    /// Whether asking for an unknown topic may create it.
    pub(crate) fn auto_create_topics(&self) -> bool {
        self.auto_create_topics
    }

    /// The topics that are being made because somebody asked for them.
    pub(crate) fn in_creation(&self) -> &Arc<InCreation> {
        &self.in_creation
    }

    /// How long a request that says nothing about it may wait inside the cluster.
    pub(crate) fn request_timeout_ms(&self) -> u64 {
        self.request_timeout_ms.min(self.limits.admin_request_ms_max)
    }

    /// What consumers are reading.
    pub(crate) fn fetch_sessions(&self) -> &FetchSessions {
        &self.fetch_sessions
    }

    /// Most bytes of one Fetch answer, whatever the client asks for.
    pub(crate) fn fetch_bytes_max(&self) -> usize {
        self.fetch_bytes_max
    }

    /// Most partitions in one DescribeTopicPartitions answer.
    pub(crate) fn describe_partitions_max(&self) -> usize {
        self.describe_partitions_max
    }

    /// How leaders choose the replica that a consumer reads from.
    pub(crate) fn replica_selector(&self) -> ReplicaSelector {
        self.replica_selector
    }

    /// The nodes that clients are told of: those that are live, and those that were until a moment ago.
    pub(crate) fn told_nodes<'a>(&self, image: &'a ClusterImage) -> impl Iterator<Item = &'a Arc<NodeImage>> {
        let departed = self.published.departed(Duration::from_millis(self.limits.departed_node_told_ms));
        image.nodes().filter(move |node| !node.fenced || departed.contains(&node.registration.node))
    }

    /// A node that takes admin requests, as clients are told: any live one does, so this one if it lives.
    pub(crate) fn admin_node(&self, image: &ClusterImage) -> i32 {
        if image.is_live(self.id) {
            return self.id.0;
        }
        image.live_nodes().next().map_or(-1, |node| node.registration.node.0)
    }

    /// Partitions and replicas of a new topic for which a client gave none, as far as this node's file decides it. `None`
    /// leaves it to the controller, which knows the cluster-wide default.
    pub(crate) fn new_topic_counts(&self) -> (Option<i32>, Option<i16>) {
        let image = self.image();
        let view = self.configs(&image);
        let from_file = |name| {
            let config = view.node_config(name)?;
            let from_file = config.source == ConfigSource::NodeFile;
            config.value.filter(|_| from_file)?.parse::<i32>().ok()
        };
        let replicas = from_file("default.replication.factor").and_then(|count| i16::try_from(count).ok());
        (from_file("num.partitions"), replicas)
    }

    /// How long the cluster may take for a request, given what the client says.
    pub(crate) fn admin_timeout(&self, asked_ms: i32) -> Duration {
        let asked = u64::try_from(asked_ms).unwrap_or(0);
        Duration::from_millis(asked.clamp(1, self.limits.admin_request_ms_max))
    }

    /// Asks the controller for a client. `timeout` is what the request grants the controller.
    pub(crate) async fn ask_controller(
        &self,
        request: ControllerRequest,
        timeout: Duration,
    ) -> Result<ControllerReply, KafkaError> {
        let Ok(_permit) = self.admin_requests.try_acquire() else {
            self.metrics.on_admin_request(false);
            let message = "Too many admin requests wait for the controller; try again.";
            return Err(KafkaError::new(ErrorCode::NotController, Str::from_static(message)));
        };
        let answer = self.controller.ask(request, timeout + ANSWER_GRACE).await;
        self.metrics.on_admin_request(answer.is_ok());
        answer.map_err(KafkaError::from)
    }

    /// The controller answered another question than the one that was asked.
    pub(crate) fn unexpected_reply(reply: &ControllerReply) -> KafkaError {
        tracing::error!(?reply, "the controller's answer does not fit the question");
        let message = "The controller's answer does not fit the question.";
        KafkaError::new(ErrorCode::UnknownServerError, Str::from_static(message))
    }
}
