//! The few answers a peer may get instead of what it asked for.

use crate::ids::ControllerId;
use serde::{Deserialize, Serialize};

/// Why a controller does not do what it was asked. A sentence for people goes with every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ControllerError {
    /// This controller does not lead the quorum. Ask `leader` if it is known, else another one, later.
    #[error("not the controller leader (leader: {leader:?})")]
    NotLeader {
        /// The leader as far as this controller knows.
        leader: Option<ControllerId>,
    },
    /// Too many requests wait, or the quorum cannot commit now. Retry after a pause.
    #[error("the controller is busy: {0}")]
    Busy(String),
    /// The controller is stopping. Ask another one.
    #[error("the controller is shutting down")]
    Shutdown,
    /// The commit did not finish within the deadline; its outcome is unknown.
    #[error("the outcome is not known within the deadline")]
    TimedOut,
    /// The request itself is refused. Repeating it unchanged is useless.
    #[error(transparent)]
    Rejected(#[from] Rejection),
}

/// A refused request: which rule, and a sentence that says what was wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// The rule that was broken; storage nodes map it to Kafka's error code.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

/// The rules that a request to the controller can break. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// A topic of that name exists.
    TopicExists,
    /// No such topic (by name).
    UnknownTopic,
    /// No such topic id.
    UnknownTopicId,
    /// The name breaks Kafka's rules for topic names.
    InvalidTopicName,
    /// Zero, negative, fewer than now, or too many partitions.
    InvalidPartitions,
    /// Replication factor is not positive or above the number of live storage nodes.
    InvalidReplicationFactor,
    /// A manual replica assignment is not usable.
    InvalidReplicaAssignment,
    /// Unknown config name, or value out of range.
    InvalidConfig,
    /// The request contradicts itself.
    InvalidRequest,
    /// The request is larger than one metadata batch may be.
    PolicyViolation,
    /// Internal topics are closed to clients.
    ClosedTopic,
    /// The broker epoch is not the node's current one: another incarnation has registered.
    StaleBrokerEpoch,
    /// The node id is registered with other data directories.
    DuplicateNodeId,
    /// The node is not registered.
    UnknownNode,
    /// The request comes from a node of another cluster.
    InconsistentClusterId,
    /// The config resource does not exist or cannot hold configs.
    UnknownResource,
    /// The leader epoch of the request is older than the partition's.
    FencedLeaderEpoch,
    /// The partition's state has changed since the asking node saw it.
    StalePartitionEpoch,
    /// A replica that is fenced, stopping, or of another incarnation cannot join the ISR.
    IneligibleReplica,
    /// The asking node does not lead the partition, or leads it in no such epoch.
    NotLeader,
    /// No such partition.
    UnknownPartition,
    /// The preferred replica leads already, or the partition has a leader that is in sync.
    ElectionNotNeeded,
    /// The preferred leader is not in sync, or not alive.
    PreferredLeaderNotAvailable,
    /// No replica is alive that may lead.
    EligibleLeadersNotAvailable,
    /// There is no reassignment to cancel.
    NoReassignmentInProgress,
    /// The node still holds replicas, or is still alive.
    NodeInUse,
    /// The voter exists already.
    DuplicateVoter,
    /// No such voter.
    VoterNotFound,
    /// Another change of the same kind is under way.
    ChangeInProgress,
    /// A feature cannot have that level.
    InvalidFeatureLevel,
    /// A daemon does not support the level at which the cluster is.
    UnsupportedLevel,
}
