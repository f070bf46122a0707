//! Internal topics are created when they are needed, perhaps by the first node alone, and get more replicas as nodes join.

use super::alter_reassignments::retarget;
use super::{Decision, Inputs};
use crate::observe::is_reassigned;
use crate::placement::{self, Loads};
use crate::state::ClusterState;
use crate::topic_name;
use proto_types::error::Rejection;
use proto_types::ids::{TopicId, TopicPartition};
use proto_types::metadata::{ConfigResource, MetadataChange, PartitionState};

/// Replicas of an internal topic, once there are so many nodes.
pub(super) const REPLICATION_FACTOR: usize = 3;
/// Their `min.insync.replicas`, once they have all their replicas.
pub(super) const MIN_INSYNC: &str = "2";
pub(super) const MIN_INSYNC_NAME: &str = "min.insync.replicas";

/// What [`raise_internal_topics`] has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Raised {
    /// Partitions that get further replicas.
    pub partitions: usize,
    /// Topics whose `min.insync.replicas` is raised, now that all replicas are there.
    pub minimums: usize,
}

/// How many replicas internal topics shall have.
pub(super) fn wanted_factor(state: &ClusterState) -> usize {
    state.nodes().active().count().clamp(1, REPLICATION_FACTOR)
}

fn internal(state: &ClusterState) -> impl Iterator<Item = TopicId> + '_ {
    topic_name::CLOSED.iter().filter_map(|name| state.topics().id(name))
}

fn lacks_replicas(partition: &PartitionState, factor: usize) -> bool {
    !is_reassigned(partition) && partition.leader.is_some() && partition.replicas.len() < factor
}

/// Whether the minimum can be raised: all replicas are there, and enough of them in sync that nothing has to wait.
fn lacks_minimum(state: &ClusterState, topic: TopicId) -> bool {
    let settled = |partition: &PartitionState| {
        !is_reassigned(partition)
            && partition.replicas.len() >= REPLICATION_FACTOR
            && partition.isr.len() >= 2
    };
    state.configs().get(&ConfigResource::Topic(topic), MIN_INSYNC_NAME).is_none()
        && state.partitions().of_topic(topic).all(|(_, partition)| settled(partition))
}

/// Whether [`raise_internal_topics`] has something to do.
pub fn internal_topics_lack_replicas(state: &ClusterState) -> bool {
    let factor = wanted_factor(state);
    internal(state).any(|topic| {
        state.partitions().of_topic(topic).any(|(_, partition)| lacks_replicas(partition, factor))
            || lacks_minimum(state, topic)
    })
}

/// Plans reassignments that add replicas to internal topics which have fewer than the nodes allow. New replicas go where
/// the fewest are, and the leaders to be are spread over all replicas.
pub fn raise_internal_topics(
    state: &ClusterState,
    inputs: &mut Inputs,
) -> Result<Decision<Raised>, Rejection> {
    let factor = wanted_factor(state);
    let mut raised = Raised::default();
    let mut changes = Vec::new();
    let mut loads = Loads::of(state);
    for topic in internal(state) {
        for (partition, before) in state.partitions().of_topic(topic) {
            if !lacks_replicas(before, factor) {
                continue;
            }
            let missing = factor - before.replicas.len();
            let mut target = before.replicas.clone();
            target.extend(placement::extend(
                state.nodes(),
                &mut loads,
                &before.replicas,
                missing,
                &mut inputs.chance,
            ));
            loads.prefer_least(&mut target, before.replicas[0]);
            let at = TopicPartition { topic, partition };
            if let Some(change) = retarget(state, at, before, &target) {
                raised.partitions += 1;
                changes.push(change);
            }
        }
        if lacks_minimum(state, topic) {
            raised.minimums += 1;
            changes.push(MetadataChange::ConfigSet {
                resource: ConfigResource::Topic(topic),
                name: MIN_INSYNC_NAME.to_owned(),
                value: Some(MIN_INSYNC.to_owned()),
            });
        }
    }
    Ok(Decision { changes, reply: raised })
}
