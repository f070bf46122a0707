//! The storage nodes that have registered.

use proto_types::feature::LevelRange;
use proto_types::ids::{BrokerEpoch, NodeId};
use proto_types::metadata::{MetadataChange, NodeRegistered};
use std::collections::BTreeMap;

/// One storage node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its newest registration.
    pub registration: NodeRegistered,
    /// Whether it is fenced: it leads nothing and clients do not see it.
    pub fenced: bool,
    /// The levels of `weir.version` that it supports.
    pub levels: LevelRange,
}

/// All storage nodes by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    by_id: BTreeMap<NodeId, Node>,
}

impl Nodes {
    /// The node of that id.
    pub fn get(&self, node: NodeId) -> Option<&Node> {
        self.by_id.get(&node)
    }

    /// Whether the node is registered and not fenced.
    pub fn is_active(&self, node: NodeId) -> bool {
        self.get(node).is_some_and(|node| !node.fenced)
    }

    /// All nodes in order of id.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.by_id.iter().map(|(id, node)| (*id, node))
    }

    /// The nodes that may hold new replicas and lead, in order of id.
    pub fn active(&self) -> impl Iterator<Item = NodeId> {
        self.iter().filter(|(_, node)| !node.fenced).map(|(id, _)| id)
    }

    /// How many nodes are registered.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether no node is registered.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn register(&mut self, registration: NodeRegistered) {
        let (fenced, levels) = (true, LevelRange::IMPLIED);
        self.by_id.insert(registration.node, Node { registration, fenced, levels });
    }

    /// Follows the registration that it is about.
    pub(super) fn set_levels(&mut self, node: NodeId, levels: LevelRange) {
        if let Some(node) = self.by_id.get_mut(&node) {
            node.levels = levels;
        }
    }

    /// A change that was decided about an older registration says nothing about the newer one.
    pub(super) fn set_fenced(&mut self, node: NodeId, broker_epoch: BrokerEpoch, fenced: bool) {
        if let Some(node) = self.by_id.get_mut(&node)
            && node.registration.broker_epoch == broker_epoch
        {
            node.fenced = fenced;
        }
    }

    pub(super) fn remove(&mut self, node: NodeId) {
        self.by_id.remove(&node);
    }

    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        for (id, node) in &self.by_id {
            changes.push(MetadataChange::NodeRegistered(node.registration.clone()));
            if node.levels != LevelRange::IMPLIED {
                changes.push(MetadataChange::NodeLevels { node: *id, levels: node.levels });
            }
            if !node.fenced {
                changes.push(MetadataChange::NodeFenced {
                    node: *id,
                    broker_epoch: node.registration.broker_epoch,
                    fenced: false,
                });
            }
        }
    }
}
