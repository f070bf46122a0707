//! Decisions: functions from the state and a request to the changes that answer it.
//!
//! A plan never changes anything. Requests about several topics or resources are planned one after another on a scratch
//! copy, so that the second sees what the first will do; one that is refused leaves nothing behind and does not disturb
//! the others.

pub mod allocate_producer_ids;
pub mod alter_configs;
pub mod alter_partition;
pub mod alter_reassignments;
pub mod assign_shards;
pub mod create_internal_topic;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_topics;
pub mod elect_leaders;
pub mod fence_coordinator;
pub mod fence_node;
pub mod lose_copies;
mod partition_change;
pub mod raise_internal_topics;
pub mod register_coordinator;
pub mod register_node;
pub mod unregister_node;
pub mod update_features;

use crate::chance::Chance;
use crate::limits::Limits;
use crate::state::ClusterState;
use proto_types::error::{Reason, Rejection};
use proto_types::feature::LevelRange;
use proto_types::ids::{BrokerEpoch, CoordinatorId, Millis, NodeId, RegistrationEpoch};
use proto_types::metadata::MetadataChange;

pub use allocate_producer_ids::allocate_producer_ids;
pub use alter_configs::alter_configs;
pub use alter_partition::alter_partition;
pub use alter_reassignments::alter_reassignments;
pub use assign_shards::{assign_shards, shards_are_uneven};
pub use create_internal_topic::create_internal_topic;
pub use create_partitions::create_partitions;
pub use create_topics::create_topics;
pub use delete_topics::delete_topics;
pub use elect_leaders::{balance_leaders, elect_leaders, is_imbalanced};
pub use fence_coordinator::{fence_coordinator, unfence_coordinator};
pub use fence_node::{fence_node, unfence_node};
pub use lose_copies::lose_copies;
pub use partition_change::min_insync;
pub use raise_internal_topics::{Raised, internal_topics_lack_replicas, raise_internal_topics};
pub use register_coordinator::register_coordinator;
pub use register_node::register_node;
pub use unregister_node::unregister_node;
pub use update_features::{QuorumLevels, check_level, found, update_features};

/// What a plan may use beside the state and the request.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The controller's wall clock, milliseconds since the Unix epoch.
    pub now: Millis,
    /// Ids and placement.
    pub chance: Chance,
    /// Bounds on requests.
    pub limits: Limits,
    /// The cluster that this controller belongs to.
    pub cluster_id: String,
    /// The levels of `weir.version` that this controller supports.
    pub levels: LevelRange,
}

/// What a plan has decided: commit these changes, then give this answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<R> {
    /// To commit in one batch; empty if there is nothing to do.
    pub changes: Vec<MetadataChange>,
    /// To give once they are committed and applied.
    pub reply: R,
}

fn reject<T>(reason: Reason, message: impl Into<String>) -> Result<T, Rejection> {
    Err(Rejection { reason, message: message.into() })
}

/// Refuses requests about too many things at once.
fn check_count(limits: &Limits, count: usize, what: &str) -> Result<(), Rejection> {
    let most = limits.topics_per_request_max;
    if count <= most {
        return Ok(());
    }
    let message = format!("The request names {count} {what}; at most {most} are allowed in one request.");
    reject(Reason::PolicyViolation, message)
}

/// Refuses requests about too many partitions at once.
fn check_partition_count(limits: &Limits, count: usize) -> Result<(), Rejection> {
    let most = limits.partitions_per_request_max;
    if count <= most {
        return Ok(());
    }
    let message = format!("The request names {count} partitions; at most {most} are allowed in one request.");
    reject(Reason::PolicyViolation, message)
}

/// Refuses the requests of nodes that are unknown or have been superseded by a newer incarnation.
pub(crate) fn check_registration(
    state: &ClusterState,
    node: NodeId,
    broker_epoch: BrokerEpoch,
) -> Result<(), Rejection> {
    match state.nodes().get(node) {
        None => reject(Reason::UnknownNode, format!("Node {node} is not registered; register it first.")),
        Some(known) if known.registration.broker_epoch != broker_epoch => {
            let current = known.registration.broker_epoch;
            let message = format!(
                "Node {node} speaks for registration {broker_epoch}, but its current one is {current}; \
                 another incarnation has registered."
            );
            reject(Reason::StaleBrokerEpoch, message)
        }
        Some(_) => Ok(()),
    }
}

/// Refuses the requests of coordinators that are unknown or have been superseded by a newer incarnation.
pub(crate) fn check_coordinator(
    state: &ClusterState,
    coordinator: CoordinatorId,
    epoch: RegistrationEpoch,
) -> Result<(), Rejection> {
    let current = state.coordinators().get(coordinator).map(|known| known.registration.epoch);
    match current {
        None => {
            let message = format!("Coordinator {coordinator} is not registered; register it first.");
            reject(Reason::UnknownNode, message)
        }
        Some(current) if current != epoch => {
            let message = format!(
                "Coordinator {coordinator} speaks for registration {epoch}, but its current one is {current}; \
                 another incarnation has registered."
            );
            reject(Reason::StaleBrokerEpoch, message)
        }
        Some(_) => Ok(()),
    }
}

/// Collects the changes of a request's parts, and lets each part see those of the parts before it.
struct Draft {
    scratch: ClusterState,
    changes: Vec<MetadataChange>,
}

impl Draft {
    fn new(state: &ClusterState) -> Self {
        Self { scratch: state.clone(), changes: Vec::new() }
    }

    fn add(&mut self, changes: Vec<MetadataChange>) {
        let index = self.scratch.applied();
        for change in &changes {
            self.scratch.apply(index, change);
        }
        self.changes.extend(changes);
    }

    fn into_decision<R>(self, validate_only: bool, reply: R) -> Decision<R> {
        Decision { changes: if validate_only { Vec::new() } else { self.changes }, reply }
    }
}
