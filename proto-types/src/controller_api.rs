//! Storage node (and coordinator) ⇄ controller.
//!
//! Short calls carry a [`ControllerRequest`] and get `Result<ControllerReply, ControllerError>`. Only the quorum's leader
//! answers them; others say who leads. The metadata feed is a stream: the node sends one [`FeedRequest`], any controller
//! answers with [`FeedFrame`]s until one of them goes away.

mod features;

use crate::error::Rejection;
use crate::feature::LevelRange;
use crate::ids::{
    BrokerEpoch, ControllerId, CoordinatorId, DirectoryId, Incarnation, LeaderEpoch, MetadataIndex, NodeId,
    PartitionEpoch, PartitionIndex, ProducerId, RegistrationEpoch, TopicId, TopicPartition,
};
use crate::metadata::{ConfigResource, InternalTopic, Listener, MetadataChange, PartitionState};
use serde::{Deserialize, Serialize};

pub use features::{FeatureUpdate, UpdateFeatures, UpgradeType};

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
    /// Leaders propose new in-sync sets.
    AlterPartition(AlterPartition),
    /// Elect leaders, by preference or uncleanly (KIP-460).
    ElectLeaders(ElectLeaders),
    /// Begin, change or cancel reassignments (KIP-455).
    AlterReassignments(AlterReassignments),
    /// Forget a node that has left for good.
    UnregisterNode {
        /// The node.
        node: NodeId,
    },
    /// Tell of the quorum itself.
    DescribeQuorum,
    /// Add a voter to the quorum, or remove one (KIP-853).
    AlterVoters(AlterVoters),
    /// A node has lost what it held of partitions that others lead.
    LoseCopies(LoseCopies),
    /// Tell how far the storage nodes follow the metadata.
    DescribeMetadataFollowers,
    /// [`ControllerRequest::RegisterNode`] of a node that supports other levels than [`LevelRange::IMPLIED`].
    RegisterNodeWithLevels {
        /// The registration.
        registration: RegisterNode,
        /// What the node supports.
        levels: LevelRange,
    },
    /// [`ControllerRequest::RegisterCoordinator`] of a coordinator that supports other levels than
    /// [`LevelRange::IMPLIED`].
    RegisterCoordinatorWithLevels {
        /// The registration.
        registration: RegisterCoordinator,
        /// What the coordinator supports.
        levels: LevelRange,
    },
    /// Change the levels of features (KIP-584).
    UpdateFeatures(UpdateFeatures),
}

/// The answers, in the order of the requests. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControllerReply {
    /// To [`ControllerRequest::RegisterNode`] and [`ControllerRequest::RegisterNodeWithLevels`].
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
    /// To [`ControllerRequest::RegisterCoordinator`] and [`ControllerRequest::RegisterCoordinatorWithLevels`].
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
    /// To [`ControllerRequest::AlterPartition`]: one result per partition, in order; the state that is in force.
    IsrAltered(Vec<Result<PartitionState, Rejection>>),
    /// To [`ControllerRequest::ElectLeaders`]: the partitions that were looked at. Where all were asked for, those that
    /// needed nothing are left out.
    LeadersElected(Vec<ElectedLeader>),
    /// To [`ControllerRequest::AlterReassignments`]: one result per partition, in order.
    ReassignmentsAltered(Vec<Result<(), Rejection>>),
    /// To [`ControllerRequest::UnregisterNode`].
    NodeUnregistered,
    /// To [`ControllerRequest::DescribeQuorum`].
    Quorum(QuorumDescription),
    /// To [`ControllerRequest::AlterVoters`].
    VotersAltered,
    /// To [`ControllerRequest::LoseCopies`]: one result per partition, in order; the state in which nobody counts on the
    /// copy.
    CopiesLost(Vec<Result<PartitionState, Rejection>>),
    /// To [`ControllerRequest::DescribeMetadataFollowers`]: those that the leader has heard from since it leads, in order of id.
    MetadataFollowers(Vec<MetadataFollower>),
    /// To [`ControllerRequest::UpdateFeatures`]: all that was asked for is in force.
    FeaturesUpdated,
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
    /// What its disks may have lost since a process of the node was last registered.
    pub may_lack: MayLack,
}

/// What the disks of a storage node may have lost of what it has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MayLack {
    /// Nothing: only the process ended.
    Nothing,
    /// The machine has restarted under a process that did not end cleanly: what no flush had brought to disk may be gone.
    Unflushed,
    /// It is not known any more how far the logs were flushed: the end of any of them may be gone.
    Anything,
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

/// See [`ControllerRequest::AlterPartition`] (KIP-497, KIP-841, KIP-903).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterPartition {
    /// The node that leads, or a member that leaves; must be the one in its certificate.
    pub node: NodeId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// What it proposes. Who does not lead can only leave itself out.
    pub partitions: Vec<ProposedIsr>,
}

/// See [`ControllerRequest::LoseCopies`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoseCopies {
    /// The node; must be the one in its certificate.
    pub node: NodeId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// The partitions of which it has lost something.
    pub partitions: Vec<TopicPartition>,
}

/// A leader's proposal of a new in-sync set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedIsr {
    /// Of which partition.
    pub partition: TopicPartition,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// The state that the proposal is about.
    pub partition_epoch: PartitionEpoch,
    /// The new set, the leader included; each member with the registration that the leader has heard from, or −1 if it has
    /// heard from none: such a member can stay, but not join. The set of the present state takes back earlier proposals
    /// about it: it is accepted as a newer state.
    pub isr: Vec<(NodeId, BrokerEpoch)>,
}

impl ProposedIsr {
    /// In place of the registration of a member that is in the ISR already and of which the leader, itself included, has
    /// heard nothing in this leadership: it does not vouch for it.
    pub const NOT_HEARD_FROM: BrokerEpoch = BrokerEpoch(-1);
}

/// See [`ControllerRequest::ElectLeaders`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectLeaders {
    /// Of which kind.
    pub kind: ElectionKind,
    /// Where; `None`: wherever it makes a difference.
    pub partitions: Option<Vec<(String, PartitionIndex)>>,
    /// How long the answer may wait for the commit to reach all nodes, milliseconds.
    pub timeout_ms: u32,
}

/// Kafka's kinds of elections by request. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ElectionKind {
    /// The first replica of the list, if it is in sync.
    Preferred,
    /// Any live replica, where no eligible one is alive. Committed records may be lost.
    Unclean,
}

/// What came of the election at one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectedLeader {
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// A new leader, or why not.
    pub result: Result<(), Rejection>,
}

/// See [`ControllerRequest::AlterReassignments`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterReassignments {
    /// What to move.
    pub partitions: Vec<Reassignment>,
    /// Whether the replication factor may change by it.
    pub allow_factor_change: bool,
    /// How long the answer may wait for the commit to reach all nodes, milliseconds.
    pub timeout_ms: u32,
}

/// The wanted replicas of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassignment {
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The replicas, preferred leader first; `None` cancels what is under way.
    pub replicas: Option<Vec<NodeId>>,
}

/// See [`ControllerRequest::AlterVoters`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlterVoters {
    /// A controller with an empty directory that runs at `address` becomes a voter.
    Add {
        /// Its id, never used before.
        id: ControllerId,
        /// `host:port` of its endpoint.
        address: String,
    },
    /// The voter leaves. Its id is never used again.
    Remove {
        /// Its id.
        id: ControllerId,
    },
}

/// The quorum as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumDescription {
    /// Who leads.
    pub leader: ControllerId,
    /// The leader's term.
    pub epoch: u64,
    /// Everything up to here is committed.
    pub committed: MetadataIndex,
    /// The voters, the leader included.
    pub voters: Vec<VoterProgress>,
    /// Controllers that follow without a vote.
    pub learners: Vec<VoterProgress>,
}

/// How far a storage node follows the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataFollower {
    /// Who.
    pub node: NodeId,
    /// The last entry that it said it has applied.
    pub applied: MetadataIndex,
    /// Wall clock of the heartbeat that said so, milliseconds since the Unix epoch.
    pub last_contact_ms: i64,
    /// Wall clock at which it last had everything that the leader had applied, milliseconds since the Unix epoch.
    pub caught_up_ms: Option<i64>,
}

/// How far a member of the quorum is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterProgress {
    /// Who.
    pub id: ControllerId,
    /// `host:port` of its endpoint.
    pub address: String,
    /// The last entry that it has on disk, as far as the leader knows.
    pub matched: Option<MetadataIndex>,
    /// Wall clock of the last answer that the leader got from it, milliseconds since the Unix epoch.
    pub last_contact_ms: Option<i64>,
    /// Wall clock at which it last had everything that the leader had, milliseconds since the Unix epoch.
    pub caught_up_ms: Option<i64>,
}
