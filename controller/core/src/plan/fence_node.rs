//! Fencing a node that lost its session, is stopping or has sick disks; and letting it back in.

use super::elect_leaders;
use super::{Decision, check_registration};
use crate::observe::partition_event;
use crate::state::ClusterState;
use proto_types::controller_api::MayLack;
use proto_types::error::Rejection;
use proto_types::ids::{BrokerEpoch, NodeId};
use proto_types::metadata::MetadataChange;

/// Fences a node and moves its leaderships; the reply is how many partitions get another leader. Nothing happens if it is
/// fenced already.
pub fn fence_node(
    state: &ClusterState,
    node: NodeId,
    broker_epoch: BrokerEpoch,
) -> Result<Decision<usize>, Rejection> {
    set_fenced(state, node, broker_epoch, true)
}

/// Lets a node back in that has caught up, and gives it the leaderships that only it can have; the reply is how many.
pub fn unfence_node(
    state: &ClusterState,
    node: NodeId,
    broker_epoch: BrokerEpoch,
) -> Result<Decision<usize>, Rejection> {
    set_fenced(state, node, broker_epoch, false)
}

fn set_fenced(
    state: &ClusterState,
    node: NodeId,
    broker_epoch: BrokerEpoch,
    fenced: bool,
) -> Result<Decision<usize>, Rejection> {
    check_registration(state, node, broker_epoch)?;
    let mut changes = Vec::new();
    if state.nodes().is_active(node) == fenced {
        changes.push(MetadataChange::NodeFenced { node, broker_epoch, fenced });
        changes.extend(if fenced {
            elect_leaders::after_loss(state, node, MayLack::Nothing)
        } else {
            elect_leaders::after_return(state, node)
        });
    }
    let events = changes.iter().filter_map(|change| partition_event(state, change));
    let elected = events.filter(|event| event.elected.is_some()).count();
    Ok(Decision { changes, reply: elected })
}
