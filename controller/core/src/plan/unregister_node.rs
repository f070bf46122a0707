//! A node is forgotten: it is gone for good, and nothing is left on it.

use super::{Decision, reject};
use crate::state::ClusterState;
use proto_types::error::{Reason, Rejection};
use proto_types::ids::NodeId;
use proto_types::metadata::MetadataChange;

/// Partitions that the refusal names.
const NAMED: usize = 5;

/// Plans the removal of a node that is fenced and holds no replica.
pub fn unregister_node(state: &ClusterState, node: NodeId) -> Result<Decision<()>, Rejection> {
    let Some(known) = state.nodes().get(node) else {
        return reject(Reason::UnknownNode, format!("Broker ID {node} is not currently registered"));
    };
    let held: Vec<String> = state
        .partitions()
        .iter()
        .filter(|(_, partition)| partition.replicas.contains(&node))
        .map(|(at, _)| format!("{}-{}", state.topics().name(at.topic).unwrap_or("?"), at.partition))
        .collect();
    if !held.is_empty() {
        let (named, more) = (held[..held.len().min(NAMED)].join(", "), held.len().saturating_sub(NAMED));
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let message = format!(
            "Node {node} still holds replicas of {} partition(s): {named}{more}. Reassign them to other nodes first, \
             and wait until that is done.",
            held.len()
        );
        return reject(Reason::NodeInUse, message);
    }
    if !known.fenced {
        let message = format!(
            "Node {node} is alive. Stop it first; it can be removed once it is fenced, and would register again \
             otherwise."
        );
        return reject(Reason::NodeInUse, message);
    }
    Ok(Decision { changes: vec![MetadataChange::NodeRemoved { node }], reply: () })
}
