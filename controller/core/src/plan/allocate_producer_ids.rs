//! Blocks of producer ids, so that storage nodes can hand them out without asking each time.

use super::{Decision, check_registration, reject};
use crate::state::ClusterState;
use proto_types::controller_api::AllocateProducerIds;
use proto_types::error::{Reason, Rejection};
use proto_types::ids::ProducerId;
use proto_types::metadata::MetadataChange;

/// Ids in one block.
pub const BLOCK: i32 = 1000;

/// Plans one block; the answer is its first id. A block is never handed out twice, whoever asks.
pub fn allocate_producer_ids(
    state: &ClusterState,
    request: &AllocateProducerIds,
) -> Result<Decision<ProducerId>, Rejection> {
    check_registration(state, request.node, request.broker_epoch)?;
    let first = state.producer_ids().next();
    let Some(next) = first.0.checked_add(i64::from(BLOCK)) else {
        return reject(Reason::PolicyViolation, "All producer ids have been handed out.");
    };
    let changes = vec![MetadataChange::ProducerIdsAllocated { next: ProducerId(next) }];
    Ok(Decision { changes, reply: first })
}
