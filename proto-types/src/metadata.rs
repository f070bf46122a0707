//! The records that the metadata quorum commits, and from which every node builds its image.
//!
//! A snapshot is the list of changes that rebuilds the state from nothing, so one type serves the log, the snapshot and
//! the feed. Applying a change cannot fail: whoever proposes it has checked it, and everything that is not determined by
//! the state (ids, placement, time) was chosen before and is inside it.

use crate::feature::{FeatureLevel, LevelRange};
use crate::ids::{
    BrokerEpoch, ControllerId, CoordinatorEpoch, CoordinatorId, DirectoryId, FeatureEpoch, Incarnation,
    LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, ProducerId, RegistrationEpoch, TopicId,
    TopicPartition,
};
use serde::{Deserialize, Serialize};

/// One committed change of the cluster's metadata. Append-only: see the crate's rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetadataChange {
    /// A storage node (or its new incarnation) joined. It is fenced until a [`MetadataChange::NodeFenced`] says otherwise.
    NodeRegistered(NodeRegistered),
    /// A node was fenced (lost its session, has yet to catch up) or unfenced.
    NodeFenced {
        /// The node.
        node: NodeId,
        /// Its registration when this was decided.
        broker_epoch: BrokerEpoch,
        /// Whether it is fenced from now on.
        fenced: bool,
    },
    /// A node left for good.
    NodeRemoved {
        /// The node.
        node: NodeId,
    },
    /// A topic exists from now on; its partitions follow in the same batch.
    TopicCreated {
        /// Its id.
        topic: TopicId,
        /// Its name, unique among live topics.
        name: String,
    },
    /// A topic and all its partitions are gone.
    TopicDeleted {
        /// Its id.
        topic: TopicId,
    },
    /// The whole state of a partition, new or changed.
    PartitionSet {
        /// Which partition.
        partition: TopicPartition,
        /// Its state from now on.
        state: PartitionState,
    },
    /// A dynamic config was set (`Some`) or removed (`None`).
    ConfigSet {
        /// Of what.
        resource: ConfigResource,
        /// Kafka's name of the config, or a `weir.` one.
        name: String,
        /// Its value as text.
        value: Option<String>,
    },
    /// All producer ids below this one have been handed out in blocks.
    ProducerIdsAllocated {
        /// The first id of the next block.
        next: ProducerId,
    },
    /// A coordinator (or its new incarnation) joined. It may own shards from now on.
    CoordinatorRegistered(CoordinatorRegistered),
    /// A coordinator was fenced (lost its session, is stopping) or came back. A fenced one owns no shard.
    CoordinatorFenced {
        /// The coordinator.
        coordinator: CoordinatorId,
        /// Its registration when this was decided.
        epoch: RegistrationEpoch,
        /// Whether it is fenced from now on.
        fenced: bool,
    },
    /// Who owns a shard (a partition of an internal topic) from now on.
    ShardAssigned {
        /// The shard.
        shard: TopicPartition,
        /// Its owner, or none while no coordinator is alive.
        owner: Option<CoordinatorId>,
        /// Grows with every assignment, also of the same owner.
        epoch: CoordinatorEpoch,
    },
    /// Which controllers vote from now on. Raft's own membership decides; this tells everybody who it is.
    ControllersSet {
        /// The voters, by id.
        voters: Vec<ControllerAddress>,
        /// All that ever were voters and are not any more, by id. Their ids are never used again.
        removed: Vec<ControllerId>,
    },
    /// The level of `weir.version` at which the cluster is from now on. A log that never says it is at
    /// [`FeatureLevel::FIRST`]; one that was begun by a build with levels says it in its first batch.
    FeatureLevelSet {
        /// The level.
        level: FeatureLevel,
        /// Grows with every such change.
        epoch: FeatureEpoch,
    },
    /// The levels that a storage node supports. Follows its registration in the same batch; a registration that none
    /// follows stands for [`LevelRange::IMPLIED`].
    NodeLevels {
        /// The node.
        node: NodeId,
        /// What it supports.
        levels: LevelRange,
    },
    /// The same for a coordinator.
    CoordinatorLevels {
        /// The coordinator.
        coordinator: CoordinatorId,
        /// What it supports.
        levels: LevelRange,
    },
}

/// Where a controller is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerAddress {
    /// Which.
    pub id: ControllerId,
    /// `host:port` of its endpoint.
    pub address: String,
    /// Its data directory, once it is known: what comes from another one under its id is not that controller.
    pub directory: Option<DirectoryId>,
}

/// A coordinator's registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorRegistered {
    /// The coordinator.
    pub coordinator: CoordinatorId,
    /// Names this registration; grows with every new incarnation.
    pub epoch: RegistrationEpoch,
    /// This run of its process.
    pub incarnation: Incarnation,
    /// Where other daemons reach its control endpoint (`host:port`).
    pub control_address: String,
}

/// A topic that Weir creates and keeps for itself. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum InternalTopic {
    /// Groups and their offsets.
    ConsumerOffsets,
    /// Transactions.
    TransactionState,
}

impl InternalTopic {
    /// Kafka's name of the topic.
    pub const fn name(self) -> &'static str {
        match self {
            InternalTopic::ConsumerOffsets => "__consumer_offsets",
            InternalTopic::TransactionState => "__transaction_state",
        }
    }
}

/// A node's registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRegistered {
    /// The node.
    pub node: NodeId,
    /// Names this registration; grows with every new incarnation.
    pub broker_epoch: BrokerEpoch,
    /// This run of its process.
    pub incarnation: Incarnation,
    /// Its data directories.
    pub directories: Vec<DirectoryId>,
    /// Where Kafka clients reach it, by listener name.
    pub listeners: Vec<Listener>,
    /// Where other daemons reach its control endpoint (`host:port`).
    pub control_address: String,
    /// Where other storage nodes reach its data endpoint (`host:port`).
    pub data_address: String,
    /// Its rack or zone.
    pub rack: Option<String>,
}

/// An advertised address for Kafka clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The listener's name, the same on all nodes: clients that asked one listener get addresses of the same name.
    pub name: String,
    /// Advertised host name or address.
    pub host: String,
    /// Advertised port.
    pub port: u16,
}

/// Who holds and who leads a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionState {
    /// All replicas, preferred leader first.
    pub replicas: Vec<NodeId>,
    /// Replicas being added by a reassignment.
    pub adding: Vec<NodeId>,
    /// Replicas being removed by a reassignment.
    pub removing: Vec<NodeId>,
    /// In-sync replicas.
    pub isr: Vec<NodeId>,
    /// Eligible leader replicas (KIP-966): out of the ISR but known to hold every committed record.
    pub elr: Vec<NodeId>,
    /// The leader, or none while no eligible replica is alive.
    pub leader: Option<NodeId>,
    /// Counts leaderships; a new incarnation of the leader gets a new one.
    pub leader_epoch: LeaderEpoch,
    /// Counts changes of this state.
    pub partition_epoch: PartitionEpoch,
}

/// What a config belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConfigResource {
    /// A topic.
    Topic(TopicId),
    /// One storage node (Kafka's broker).
    Node(NodeId),
    /// The cluster-wide default for all storage nodes.
    NodeDefault,
}

/// Shorthand used by both sides of the feed.
pub fn topic_partition(topic: TopicId, partition: i32) -> TopicPartition {
    TopicPartition { topic, partition: PartitionIndex(partition) }
}
