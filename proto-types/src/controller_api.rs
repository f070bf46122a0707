//! Storage node (and coordinator) ⇄ controller.
//!
//! Short calls carry a [`ControllerRequest`] and get `Result<ControllerReply, ControllerError>`. Only the quorum's leader
//! answers them; others say who leads. The metadata feed is a stream: the node sends one [`FeedRequest`], any controller
//! answers with [`FeedFrame`]s until one of them goes away.

use crate::error::Rejection;
use crate::ids::{
    BrokerEpoch, CoordinatorId, DirectoryId, Incarnation, MetadataIndex, NodeId, PartitionIndex, ProducerId,
    RegistrationEpoch, TopicId,
};
use crate::metadata::{ConfigResource, InternalTopic, Listener, MetadataChange};
use serde::{Deserialize, Serialize};

/// What a node may ask the controller. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControllerRequest {
    /// Join the cluster, or join again as a new incarnation.
    RegisterNode(RegisterNode),
    /// Keep the session; tell what has been applied.
    Heartbeat(Heartbeat),
    /// Create topics.
    CreateTopics(CreateTopics),
    /// Delete topics.
    DeleteTopics(DeleteTopics),
    /// Add partitions to topics.
    CreatePartitions(CreatePartitions),
    /// Change configs.
    AlterConfigs(AlterConfigs),
    /// Hand out a block of producer ids.
    AllocateProducerIds(AllocateProducerIds),
    /// A coordinator joins, or joins again as a new incarnation.
    RegisterCoordinator(RegisterCoordinator),
    /// A coordinator keeps its session.
    CoordinatorHeartbeat(CoordinatorHeartbeat),
    /// Create an internal topic, which was needed for the first time.
    CreateInternalTopic(CreateInternalTopic),
}

/// The answers, in the order of the requests. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControllerReply {
    /// To [`ControllerRequest::RegisterNode`].
    Registered {
        /// The registration's epoch.
        broker_epoch: BrokerEpoch,
        /// How long the node stays alive without a heartbeat, milliseconds.
        session_ms: u64,
        /// How often to send heartbeats, milliseconds.
        heartbeat_ms: u64,
    },
    /// To [`ControllerRequest::Heartbeat`].
    Heartbeat(HeartbeatReply),
    /// To [`ControllerRequest::CreateTopics`]: one result per topic, in order.
    TopicsCreated(Vec<Result<CreatedTopic, Rejection>>),
    /// To [`ControllerRequest::DeleteTopics`]: one result per topic, in order.
    TopicsDeleted(Vec<Result<DeletedTopic, Rejection>>),
    /// To [`ControllerRequest::CreatePartitions`]: one result per topic, in order.
    PartitionsCreated(Vec<Result<(), Rejection>>),
    /// To [`ControllerRequest::AlterConfigs`]: one result per resource, in order.
    ConfigsAltered(Vec<Result<(), Rejection>>),
    /// To [`ControllerRequest::AllocateProducerIds`]: `first .. first + count`.
    ProducerIds {
        /// First id of the block.
        first: ProducerId,
        /// How many ids the block holds.
        count: i32,
    },
    /// To [`ControllerRequest::RegisterCoordinator`].
    CoordinatorRegistered {
        /// The registration's epoch.
        epoch: RegistrationEpoch,
        /// How long the coordinator keeps its shards without a heartbeat, milliseconds.
        session_ms: u64,
        /// How often to send heartbeats, milliseconds.
        heartbeat_ms: u64,
    },
    /// To [`ControllerRequest::CoordinatorHeartbeat`].
    CoordinatorHeartbeat(CoordinatorHeartbeatReply),
    /// To [`ControllerRequest::CreateInternalTopic`]: it exists.
    InternalTopicCreated {
        /// Its id.
        topic: TopicId,
    },
}

/// See [`ControllerRequest::RegisterNode`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterNode {
    /// The node's cluster, as its data directory says; must be the controller's.
    pub cluster_id: String,
    /// The node; must be the one in its certificate.
    pub node: NodeId,
    /// This run of its process.
    pub incarnation: Incarnation,
    /// Its data directories.
    pub directories: Vec<DirectoryId>,
    /// Advertised addresses for Kafka clients.
    pub listeners: Vec<Listener>,
    /// `host:port` of its control endpoint.
    pub control_address: String,
    /// `host:port` of its data endpoint.
    pub data_address: String,
    /// Its rack or zone.
    pub rack: Option<String>,
}

/// Sent every `heartbeat_ms`, and at once when `applied` has moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The node; must be the one in its certificate.
    pub node: NodeId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// Everything up to here is applied: the image shows it and the partitions that the node leads are open.
    pub applied: MetadataIndex,
    /// The node asks to be fenced now and its leaders moved: it is stopping.
    pub stopping: bool,
    /// The node's own opinion of its disks; an unhealthy node gets fenced.
    pub healthy: bool,
}

/// The leader's answer, given only after it has confirmed with the quorum that it still leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// The leader's commit index.
    pub committed: MetadataIndex,
    /// Whether the node is fenced.
    pub fenced: bool,
    /// A stopping node may go: it leads nothing any more.
    pub may_stop: bool,
}

/// See [`ControllerRequest::CreateTopics`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTopics {
    /// What to create.
    pub topics: Vec<NewTopic>,
    /// Check only.
    pub validate_only: bool,
    /// How long the answer may wait for the commit to reach all nodes, milliseconds.
    pub timeout_ms: u32,
}

/// One topic to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; `None` for the cluster's default.
    pub partitions: Option<i32>,
    /// How many replicas of each; `None` for the cluster's default.
    pub replication_factor: Option<i16>,
    /// Replicas by partition index, instead of both counts; empty if the controller is to place them.
    pub assignments: Vec<(PartitionIndex, Vec<NodeId>)>,
    /// Configs as text; `None` values are Kafka's null and refused.
    pub configs: Vec<(String, Option<String>)>,
}

/// A topic as it was (or, with `validate_only`, would be) created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTopic {
    /// Its id; nil when only validated.
    pub topic: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
    /// How many replicas each has.
    pub replication_factor: i16,
    /// The configs that were set explicitly (by the request or fixed at creation).
    pub configs: Vec<(String, String)>,
}

/// A topic by name or by id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopicRef {
    /// By name.
    Name(String),
    /// By id.
    Id(TopicId),
}

/// See [`ControllerRequest::DeleteTopics`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteTopics {
    /// Which.
    pub topics: Vec<TopicRef>,
    /// How long the answer may wait for the commit to reach all nodes, milliseconds.
    pub timeout_ms: u32,
}

/// What was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedTopic {
    /// Its id.
    pub topic: TopicId,
    /// Its name.
    pub name: String,
}

/// See [`ControllerRequest::CreatePartitions`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePartitions {
    /// Which topics.
    pub topics: Vec<MorePartitions>,
    /// Check only.
    pub validate_only: bool,
    /// How long the answer may wait for the commit to reach all nodes, milliseconds.
    pub timeout_ms: u32,
}

/// One topic that is to get more partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MorePartitions {
    /// Its name.
    pub name: String,
    /// How many partitions it is to have in all.
    pub count: i32,
    /// Replicas of each new partition, in order; empty if the controller is to place them.
    pub assignments: Vec<Vec<NodeId>>,
}

/// See [`ControllerRequest::AlterConfigs`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterConfigs {
    /// What to change.
    pub resources: Vec<AlterResource>,
    /// Check only.
    pub validate_only: bool,
    /// How long the answer may wait for the commit to reach all nodes, milliseconds.
    pub timeout_ms: u32,
}

/// The changes of one resource: all are taken, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterResource {
    /// Of what.
    pub resource: ResourceRef,
    /// `true`: the given `Set` operations replace all that is set now (Kafka's AlterConfigs); others stay untouched otherwise.
    pub replace_all: bool,
    /// What to do, in order; a name may come once.
    pub ops: Vec<ConfigOp>,
}

/// A config resource as a client names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResourceRef {
    /// A topic by name.
    Topic(String),
    /// Any other resource.
    Resource(ConfigResource),
}

/// One change of one config (KIP-339).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigOp {
    /// Kafka's name of the config.
    pub name: String,
    /// What to do.
    pub kind: ConfigOpKind,
    /// The value; `None` is right only for `Delete`.
    pub value: Option<String>,
}

/// Kafka's operations on a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigOpKind {
    /// Set the value.
    Set,
    /// Back to the default.
    Delete,
    /// Add to a list.
    Append,
    /// Take out of a list.
    Subtract,
}

/// See [`ControllerRequest::AllocateProducerIds`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocateProducerIds {
    /// The node; must be the one in its certificate.
    pub node: NodeId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
}

/// See [`ControllerRequest::RegisterCoordinator`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterCoordinator {
    /// The coordinator's cluster, as its configuration says; must be the controller's.
    pub cluster_id: String,
    /// The coordinator; must be the one in its certificate.
    pub coordinator: CoordinatorId,
    /// This run of its process.
    pub incarnation: Incarnation,
    /// `host:port` of its control endpoint.
    pub control_address: String,
}

/// Sent every `heartbeat_ms`, and at once when `applied` has moved. The lease of the coordinator's shards runs from the
/// moment at which an acknowledged one was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorHeartbeat {
    /// The coordinator; must be the one in its certificate.
    pub coordinator: CoordinatorId,
    /// Its registration.
    pub epoch: RegistrationEpoch,
    /// Everything up to here is applied: what it no longer owns it no longer answers for.
    pub applied: MetadataIndex,
    /// Its shards shall go to others now: it is stopping.
    pub stopping: bool,
}

/// The leader's answer, given only after it has confirmed with the quorum that it still leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorHeartbeatReply {
    /// The leader's commit index.
    pub committed: MetadataIndex,
    /// Whether the coordinator is fenced: it owns nothing, and the acknowledgement extends no lease.
    pub fenced: bool,
    /// A stopping coordinator may go: it owns nothing any more.
    pub may_stop: bool,
}

/// See [`ControllerRequest::CreateInternalTopic`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateInternalTopic {
    /// Which.
    pub topic: InternalTopic,
    /// How long the answer may wait for the commit to reach all nodes, milliseconds.
    pub timeout_ms: u32,
}

/// Opens the metadata feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedRequest {
    /// The follower's cluster; must be the controller's.
    pub cluster_id: String,
    /// The last index that the follower has applied, or `None` for a snapshot. A controller that no longer has the
    /// changes after it sends a snapshot instead.
    pub after: Option<MetadataIndex>,
}

/// A frame of the metadata feed. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeedFrame {
    /// Part of a snapshot: forget everything at the first part, apply all parts, then stand at `index`.
    Snapshot {
        /// Where the snapshot stands.
        index: MetadataIndex,
        /// Whether this is the first part.
        first: bool,
        /// Whether this is the last part.
        last: bool,
        /// The changes that rebuild the state.
        changes: Vec<MetadataChange>,
    },
    /// What was committed at one index, in order. Indexes grow but need not be dense.
    Delta {
        /// The index.
        index: MetadataIndex,
        /// The changes; empty when only the index moved.
        changes: Vec<MetadataChange>,
    },
}
