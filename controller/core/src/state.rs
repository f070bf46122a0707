//! The cluster's metadata: what has been committed and applied up to some index.
//!
//! Cut into families, one file each, behind [`Arc`]s: copying the whole state costs a few reference counts, so that a
//! planner can work on a scratch copy and a snapshot can be written while new changes are applied.

pub mod configs;
pub mod controllers;
pub mod coordinators;
pub mod features;
pub mod nodes;
pub mod partitions;
pub mod producer_ids;
pub mod shards;
pub mod topics;

use proto_types::ids::MetadataIndex;
use proto_types::metadata::{ConfigResource, MetadataChange};
use std::sync::Arc;

pub use configs::Configs;
pub use controllers::Controllers;
pub use coordinators::{Coordinator, Coordinators};
pub use features::Features;
pub use nodes::{Node, Nodes};
pub use partitions::Partitions;
pub use producer_ids::ProducerIds;
pub use shards::{Ownership, Shards};
pub use topics::Topics;

/// All families and the index up to which they are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterState {
    applied: MetadataIndex,
    nodes: Arc<Nodes>,
    topics: Arc<Topics>,
    partitions: Arc<Partitions>,
    configs: Arc<Configs>,
    producer_ids: ProducerIds,
    coordinators: Arc<Coordinators>,
    shards: Arc<Shards>,
    controllers: Arc<Controllers>,
    features: Features,
}

impl Default for ClusterState {
    fn default() -> Self {
        Self::new()
    }
}

impl ClusterState {
    /// The state of a cluster in which nothing has happened yet.
    pub fn new() -> Self {
        Self {
            applied: MetadataIndex(0),
            nodes: Arc::default(),
            topics: Arc::default(),
            partitions: Arc::default(),
            configs: Arc::default(),
            producer_ids: ProducerIds::default(),
            coordinators: Arc::default(),
            shards: Arc::default(),
            controllers: Arc::default(),
            features: Features::default(),
        }
    }

    /// Applies one committed change. Cannot fail: the plan has checked everything.
    pub fn apply(&mut self, index: MetadataIndex, change: &MetadataChange) {
        self.applied = self.applied.max(index);
        match change {
            MetadataChange::NodeRegistered(registration) => {
                Arc::make_mut(&mut self.nodes).register(registration.clone());
            }
            MetadataChange::NodeFenced { node, broker_epoch, fenced } => {
                Arc::make_mut(&mut self.nodes).set_fenced(*node, *broker_epoch, *fenced);
            }
            MetadataChange::NodeRemoved { node } => {
                Arc::make_mut(&mut self.nodes).remove(*node);
                Arc::make_mut(&mut self.configs).remove_resource(&ConfigResource::Node(*node));
            }
            MetadataChange::TopicCreated { topic, name } => {
                Arc::make_mut(&mut self.topics).create(*topic, name.clone());
            }
            MetadataChange::TopicDeleted { topic } => {
                Arc::make_mut(&mut self.topics).delete(*topic);
                Arc::make_mut(&mut self.partitions).remove_topic(*topic);
                Arc::make_mut(&mut self.shards).remove_topic(*topic);
                Arc::make_mut(&mut self.configs).remove_resource(&ConfigResource::Topic(*topic));
            }
            MetadataChange::PartitionSet { partition, state } => {
                Arc::make_mut(&mut self.partitions).set(*partition, state.clone());
            }
            MetadataChange::ConfigSet { resource, name, value } => {
                let (resource, name, value) = (resource.clone(), name.clone(), value.clone());
                Arc::make_mut(&mut self.configs).set(resource, name, value, &self.topics);
            }
            MetadataChange::ProducerIdsAllocated { next } => self.producer_ids.allocated(*next),
            MetadataChange::CoordinatorRegistered(registration) => {
                Arc::make_mut(&mut self.coordinators).register(registration.clone());
            }
            MetadataChange::CoordinatorFenced { coordinator, epoch, fenced } => {
                Arc::make_mut(&mut self.coordinators).set_fenced(*coordinator, *epoch, *fenced);
            }
            MetadataChange::ShardAssigned { shard, owner, epoch } => {
                Arc::make_mut(&mut self.shards).assign(*shard, *owner, *epoch);
            }
            MetadataChange::ControllersSet { voters, removed } => {
                Arc::make_mut(&mut self.controllers).set(voters, removed);
            }
            MetadataChange::FeatureLevelSet { level, epoch } => self.features.set(*level, *epoch),
            MetadataChange::NodeLevels { node, levels } => {
                Arc::make_mut(&mut self.nodes).set_levels(*node, *levels);
            }
            MetadataChange::CoordinatorLevels { coordinator, levels } => {
                Arc::make_mut(&mut self.coordinators).set_levels(*coordinator, *levels);
            }
        }
    }

    /// Applies all changes of one committed entry and moves to its index, also when it holds none.
    pub fn apply_batch(&mut self, index: MetadataIndex, changes: &[MetadataChange]) {
        for change in changes {
            self.apply(index, change);
        }
        self.applied = self.applied.max(index);
        #[cfg(debug_assertions)]
        if let Err(broken) = crate::invariants::check(self) {
            panic!("metadata invariant broken at index {index}: {broken}");
        }
    }

    /// The changes that rebuild this state from nothing.
    pub fn to_changes(&self) -> Vec<MetadataChange> {
        let mut changes = Vec::new();
        self.features.to_changes(&mut changes);
        self.nodes.to_changes(&mut changes);
        self.topics.to_changes(&mut changes);
        self.partitions.to_changes(&mut changes);
        self.configs.to_changes(&mut changes);
        self.producer_ids.to_changes(&mut changes);
        self.coordinators.to_changes(&mut changes);
        self.shards.to_changes(&mut changes);
        self.controllers.to_changes(&mut changes);
        changes
    }

    /// Rebuilds a state from the changes of a snapshot that stands at `index`.
    pub fn from_changes<'a>(
        index: MetadataIndex,
        changes: impl IntoIterator<Item = &'a MetadataChange>,
    ) -> Self {
        let mut state = Self::new();
        for change in changes {
            state.apply(index, change);
        }
        state.applied = index;
        state
    }

    /// The index up to which everything is applied.
    pub fn applied(&self) -> MetadataIndex {
        self.applied
    }

    /// The storage nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The topics.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// The partitions.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// The dynamic configs.
    pub fn configs(&self) -> &Configs {
        &self.configs
    }

    /// The producer ids handed out.
    pub fn producer_ids(&self) -> &ProducerIds {
        &self.producer_ids
    }

    /// The coordinators.
    pub fn coordinators(&self) -> &Coordinators {
        &self.coordinators
    }

    /// Who owns the shards.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// The level at which the cluster is.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The controllers of the quorum.
    pub fn controllers(&self) -> &Controllers {
        &self.controllers
    }
}
