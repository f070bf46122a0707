//! Fencing a coordinator that lost its session or is stopping; and letting it back in.

use super::assign_shards::{Loads, reassigned};
use super::update_features::check_level;
use super::{Decision, check_coordinator};
use crate::state::ClusterState;
use proto_types::error::Rejection;
use proto_types::ids::{CoordinatorId, RegistrationEpoch};
use proto_types::metadata::MetadataChange;

/// Fences a coordinator and gives its shards to the others, in one batch. The caller knows that it answers no more: its
/// session is over, and so its lease, or it has said that it stops.
pub fn fence_coordinator(
    state: &ClusterState,
    coordinator: CoordinatorId,
    epoch: RegistrationEpoch,
) -> Result<Decision<()>, Rejection> {
    check_coordinator(state, coordinator, epoch)?;
    let mut changes = Vec::new();
    if state.coordinators().is_active(coordinator) {
        changes.push(MetadataChange::CoordinatorFenced { coordinator, epoch, fenced: true });
        let mut loads = Loads::of(state, Some(coordinator));
        let owned = state.shards().iter().filter(|(_, ownership)| ownership.owner == Some(coordinator));
        changes.extend(owned.map(|(shard, before)| reassigned(shard, before, loads.take_least())));
    }
    Ok(Decision { changes, reply: () })
}

/// Lets a coordinator back in, if it supports the level that the cluster has reached meanwhile. Shards without owner, and its part of the others', follow by
/// [`assign_shards`](super::assign_shards()).
pub fn unfence_coordinator(
    state: &ClusterState,
    coordinator: CoordinatorId,
    epoch: RegistrationEpoch,
) -> Result<Decision<()>, Rejection> {
    check_coordinator(state, coordinator, epoch)?;
    let mut changes = Vec::new();
    if let Some(known) = state.coordinators().get(coordinator)
        && known.fenced
    {
        let level = state.features().level();
        check_level(level, format_args!("coordinator {coordinator}"), known.levels)?;
        changes.push(MetadataChange::CoordinatorFenced { coordinator, epoch, fenced: false });
    }
    Ok(Decision { changes, reply: () })
}
