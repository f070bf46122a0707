//! A storage node joins, or joins again as a new incarnation.
//!
//! Who a node is, is told by its data directories: the same ones under a new incarnation supersede the old registration
//! at once, without waiting for its session; other ones under a used id are refused, because the partitions that this id
//! holds are not on them.

use super::elect_leaders;
use super::update_features::{check_joining, found};
use super::{Decision, Inputs, reject};
use crate::state::ClusterState;
use proto_types::controller_api::RegisterNode;
use proto_types::error::{Reason, Rejection};
use proto_types::feature::LevelRange;
use proto_types::ids::BrokerEpoch;
use proto_types::metadata::{MetadataChange, NodeRegistered};

/// Most data directories of a node.
pub const DIRECTORIES_MAX: usize = 128;
/// Most listeners of a node.
pub const LISTENERS_MAX: usize = 32;
/// Longest address, listener name or rack, bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Plans the registration of a node that supports `levels`; the answer is its broker epoch.
pub fn register_node(
    state: &ClusterState,
    request: &RegisterNode,
    levels: LevelRange,
    inputs: &Inputs,
) -> Result<Decision<BrokerEpoch>, Rejection> {
    check_request(request, inputs)?;
    check_directories(state, request)?;
    check_joining(state, inputs, format_args!("node {}", request.node), levels)?;
    let known = state.nodes().get(request.node);
    if let Some(known) = known
        && known.registration.incarnation == request.incarnation
    {
        // A repeated request of the same run, after a lost answer or to a new leader.
        return Ok(Decision { changes: Vec::new(), reply: known.registration.broker_epoch });
    }
    if known.is_none() && state.nodes().len() >= inputs.limits.nodes_max {
        let message = format!(
            "Node {} cannot join: the cluster has {} nodes already (nodes_max).",
            request.node,
            state.nodes().len()
        );
        return reject(Reason::PolicyViolation, message);
    }
    let broker_epoch = next_epoch(state, known.map(|known| known.registration.broker_epoch));
    let mut changes: Vec<MetadataChange> = found(state, inputs).into_iter().collect();
    changes.push(MetadataChange::NodeRegistered(NodeRegistered {
        node: request.node,
        broker_epoch,
        incarnation: request.incarnation,
        directories: request.directories.clone(),
        listeners: request.listeners.clone(),
        control_address: request.control_address.clone(),
        data_address: request.data_address.clone(),
        rack: request.rack.clone(),
    }));
    if levels != LevelRange::IMPLIED {
        changes.push(MetadataChange::NodeLevels { node: request.node, levels });
    }
    // A new registration begins fenced: what the old incarnation led needs a new leader, or waits for a new epoch.
    changes.extend(elect_leaders::after_loss(state, request.node, request.may_lack));
    Ok(Decision { changes, reply: broker_epoch })
}

/// Larger than the index of every change so far, and than the node's last one if several fall into one batch.
fn next_epoch(state: &ClusterState, last: Option<BrokerEpoch>) -> BrokerEpoch {
    let after_all = i64::try_from(state.applied().0).expect("indexes count committed entries") + 1;
    BrokerEpoch(last.map_or(after_all, |last| after_all.max(last.0 + 1)))
}

fn check_request(request: &RegisterNode, inputs: &Inputs) -> Result<(), Rejection> {
    let node = request.node;
    if request.cluster_id != inputs.cluster_id {
        let message = format!(
            "Node {node} belongs to cluster {:?}, this is cluster {:?}. Point it at its own controllers, or give it \
             an empty data directory.",
            request.cluster_id, inputs.cluster_id
        );
        return reject(Reason::InconsistentClusterId, message);
    }
    if node.0 < 0 {
        return reject(Reason::InvalidRequest, format!("The node id {node} is negative."));
    }
    if request.directories.is_empty() || request.directories.len() > DIRECTORIES_MAX {
        let count = request.directories.len();
        let message =
            format!("Node {node} names {count} data directories; it must be 1 to {DIRECTORIES_MAX}.");
        return reject(Reason::InvalidRequest, message);
    }
    if request.listeners.len() > LISTENERS_MAX {
        let count = request.listeners.len();
        let message = format!("Node {node} names {count} listeners; at most {LISTENERS_MAX} are allowed.");
        return reject(Reason::InvalidRequest, message);
    }
    let texts = request
        .listeners
        .iter()
        .flat_map(|listener| [listener.name.as_str(), listener.host.as_str()])
        .chain([request.control_address.as_str(), request.data_address.as_str()])
        .chain(request.rack.as_deref());
    if texts.map(str::len).any(|len| len > TEXT_BYTES_MAX) {
        let message = format!(
            "An address, listener name or rack of node {node} is longer than {TEXT_BYTES_MAX} bytes."
        );
        return reject(Reason::InvalidRequest, message);
    }
    Ok(())
}

fn check_directories(state: &ClusterState, request: &RegisterNode) -> Result<(), Rejection> {
    let mut distinct = request.directories.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() != request.directories.len() {
        let message = format!("Node {} names a data directory twice.", request.node);
        return reject(Reason::InvalidRequest, message);
    }
    for (id, node) in state.nodes().iter() {
        let shared = || node.registration.directories.iter().find(|dir| distinct.contains(dir));
        if id != request.node
            && let Some(directory) = shared()
        {
            let message = format!(
                "Node {} has data directory {directory}, which belongs to node {id}. A data directory cannot be \
                 copied to another node; start node {} with an empty one.",
                request.node, request.node
            );
            return reject(Reason::DuplicateNodeId, message);
        }
        let missing = || node.registration.directories.iter().filter(|dir| !distinct.contains(dir));
        if id == request.node && missing().next().is_some() {
            let missing = missing().map(|dir| dir.0.to_string()).collect::<Vec<_>>().join(", ");
            let message = format!(
                "Node {id} is registered with data directories that the process that wants to join does not have: \
                 {missing}. Give it its directories back. If they are lost for good, write their ids into a file named \
                 replaces-lost-disk in the new, empty data directory; what nobody else has of what they held is lost then. \
                 Or give the new process an unused node id; or reassign what node {id} holds and remove it, then the id is \
                 free again."
            );
            return reject(Reason::DuplicateNodeId, message);
        }
    }
    Ok(())
}
