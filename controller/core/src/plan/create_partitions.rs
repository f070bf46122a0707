//! More partitions for existing topics. There is no way to fewer: keys would move and records vanish.

use super::create_topics::{check_assignment, new_partition};
use super::delete_topics::unknown_topic;
use super::{Decision, Draft, Inputs, check_count, reject};
use crate::limits::Limits;
use crate::placement;
use crate::state::ClusterState;
use crate::topic_name;
use proto_types::controller_api::{CreatePartitions, MorePartitions};
use proto_types::error::{Reason, Rejection};
use proto_types::ids::NodeId;
use proto_types::metadata::{MetadataChange, topic_partition};
use std::collections::BTreeSet;

/// One result per topic, in the request's order.
pub type Results = Vec<Result<(), Rejection>>;

/// Plans the growth of topics.
pub fn create_partitions(
    state: &ClusterState,
    request: &CreatePartitions,
    inputs: &mut Inputs,
) -> Result<Decision<Results>, Rejection> {
    check_count(&inputs.limits, request.topics.len(), "topics")?;
    let added = |more: &MorePartitions| {
        let now = state.topics().id(&more.name).map_or(0, |topic| state.partitions().count_of(topic));
        usize::try_from(more.count).unwrap_or(0).saturating_sub(now)
    };
    let total = request.topics.iter().map(added).fold(0_usize, usize::saturating_add);
    check_new_partitions(state, total, &inputs.limits)?;
    let mut draft = Draft::new(state);
    let mut seen = BTreeSet::new();
    let results = request
        .topics
        .iter()
        .map(|more| {
            if !seen.insert(more.name.as_str()) {
                return reject(Reason::InvalidRequest, "Duplicate topic name.");
            }
            let changes = plan_topic(&draft.scratch, more, inputs)?;
            draft.add(changes);
            Ok(())
        })
        .collect();
    Ok(draft.into_decision(request.validate_only, results))
}

/// Bounds the new partitions of one request and the partitions of the cluster.
pub(super) fn check_new_partitions(
    state: &ClusterState,
    count: usize,
    limits: &Limits,
) -> Result<(), Rejection> {
    if count > limits.partitions_per_request_max {
        let message = format!(
            "Excessively large number of partitions per request: {count}, at most {} are allowed. Use several \
             requests.",
            limits.partitions_per_request_max
        );
        return reject(Reason::PolicyViolation, message);
    }
    let total = state.partitions().len().saturating_add(count);
    if total > limits.partitions_max {
        let message = format!(
            "The cluster would have {total} partitions, at most {} are allowed (partitions_max).",
            limits.partitions_max
        );
        return reject(Reason::PolicyViolation, message);
    }
    Ok(())
}

fn plan_topic(
    state: &ClusterState,
    more: &MorePartitions,
    inputs: &mut Inputs,
) -> Result<Vec<MetadataChange>, Rejection> {
    let Some(topic) = state.topics().id(&more.name) else {
        return reject(Reason::UnknownTopic, unknown_topic(&more.name));
    };
    topic_name::check_open(&more.name)?;
    let now = state.partitions().count_of(topic);
    let wanted = usize::try_from(more.count).unwrap_or(0);
    if wanted == now {
        return reject(Reason::InvalidPartitions, format!("Topic already has {now} partition(s)."));
    }
    if wanted < now {
        let message = format!(
            "The topic {} currently has {now} partition(s); {} would not be an increase.",
            more.name, more.count
        );
        return reject(Reason::InvalidPartitions, message);
    }
    let replicas = replicas_of(state, more, wanted - now, now, inputs)?;
    Ok((now as i32..)
        .zip(replicas)
        .map(|(index, replicas)| MetadataChange::PartitionSet {
            partition: topic_partition(topic, index),
            state: new_partition(state, &replicas),
        })
        .collect())
}

fn replicas_of(
    state: &ClusterState,
    more: &MorePartitions,
    added: usize,
    now: usize,
    inputs: &mut Inputs,
) -> Result<Vec<Vec<NodeId>>, Rejection> {
    let topic = state.topics().id(&more.name).expect("looked up by the caller");
    let factor = state.partitions().of_topic(topic).next().map_or(1, |(_, first)| first.replicas.len());
    if more.assignments.is_empty() {
        return placement::place(state.nodes(), added, factor, &mut inputs.chance);
    }
    if more.assignments.len() != added {
        let message = format!(
            "Attempted to add {added} additional partition(s), but only {} assignment(s) were specified.",
            more.assignments.len()
        );
        return reject(Reason::InvalidReplicaAssignment, message);
    }
    for (index, replicas) in (now as i32..).zip(&more.assignments) {
        check_assignment(state, index, replicas, Some(factor))?;
    }
    Ok(more.assignments.clone())
}
