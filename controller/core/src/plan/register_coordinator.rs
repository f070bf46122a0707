//! A coordinator joins, or joins again as a new incarnation.
//!
//! It owns nothing on disk, so a new incarnation under a used id supersedes the old one at once. What the old one owned
//! it keeps, under new coordinator epochs: its memory is gone and the shards must be claimed and loaded anew.

use super::assign_shards::reassigned;
use super::register_node::TEXT_BYTES_MAX;
use super::update_features::{check_joining, found};
use super::{Decision, Inputs, reject};
use crate::state::ClusterState;
use proto_types::controller_api::RegisterCoordinator;
use proto_types::error::{Reason, Rejection};
use proto_types::feature::LevelRange;
use proto_types::ids::RegistrationEpoch;
use proto_types::metadata::{CoordinatorRegistered, MetadataChange};

/// Plans the registration of a coordinator that supports `levels`; the answer is its epoch.
pub fn register_coordinator(
    state: &ClusterState,
    request: &RegisterCoordinator,
    levels: LevelRange,
    inputs: &Inputs,
) -> Result<Decision<RegistrationEpoch>, Rejection> {
    check_request(request, inputs)?;
    let coordinator = request.coordinator;
    check_joining(state, inputs, format_args!("coordinator {coordinator}"), levels)?;
    let known = state.coordinators().get(coordinator);
    if let Some(known) = known
        && known.registration.incarnation == request.incarnation
    {
        // A repeated request of the same run, after a lost answer or to a new leader.
        return Ok(Decision { changes: Vec::new(), reply: known.registration.epoch });
    }
    if known.is_none() && state.coordinators().len() >= inputs.limits.nodes_max {
        let message = format!(
            "Coordinator {coordinator} cannot join: the cluster has {} coordinators already (nodes_max).",
            state.coordinators().len()
        );
        return reject(Reason::PolicyViolation, message);
    }
    let after_all = i64::try_from(state.applied().0).expect("indexes count committed entries") + 1;
    let epoch = known.map_or(after_all, |known| after_all.max(known.registration.epoch.0 + 1));
    let epoch = RegistrationEpoch(epoch);
    let mut changes: Vec<MetadataChange> = found(state, inputs).into_iter().collect();
    changes.push(MetadataChange::CoordinatorRegistered(CoordinatorRegistered {
        coordinator,
        epoch,
        incarnation: request.incarnation,
        control_address: request.control_address.clone(),
    }));
    if levels != LevelRange::IMPLIED {
        changes.push(MetadataChange::CoordinatorLevels { coordinator, levels });
    }
    let owned = state.shards().iter().filter(|(_, ownership)| ownership.owner == Some(coordinator));
    changes.extend(owned.map(|(shard, before)| reassigned(shard, before, Some(coordinator))));
    Ok(Decision { changes, reply: epoch })
}

fn check_request(request: &RegisterCoordinator, inputs: &Inputs) -> Result<(), Rejection> {
    let coordinator = request.coordinator;
    if request.cluster_id != inputs.cluster_id {
        let message = format!(
            "Coordinator {coordinator} belongs to cluster {:?}, this is cluster {:?}. Point it at its own \
             controllers.",
            request.cluster_id, inputs.cluster_id
        );
        return reject(Reason::InconsistentClusterId, message);
    }
    if coordinator.0 < 0 {
        return reject(Reason::InvalidRequest, format!("The coordinator id {coordinator} is negative."));
    }
    if request.control_address.len() > TEXT_BYTES_MAX {
        let message =
            format!("The address of coordinator {coordinator} is longer than {TEXT_BYTES_MAX} bytes.");
        return reject(Reason::InvalidRequest, message);
    }
    Ok(())
}
