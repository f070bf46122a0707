//! What a change of a partition means to those who watch: elections by kind, in-sync sets that shrink and grow,
//! reassignments that end.
//!
//! Read from the state before and after, so that it does not matter which plan was the cause.

use crate::state::ClusterState;
use proto_types::ids::{LeaderEpoch, NodeId, TopicPartition};
use proto_types::metadata::{MetadataChange, PartitionState};

/// How a leader came to its leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Election {
    /// A member of the ISR, because the leader was gone, or has come back as a new incarnation.
    InSync,
    /// A member of the ELR (KIP-966).
    Eligible,
    /// The preferred leader, though the one before could have stayed.
    Preferred,
    /// A target replica, because a reassignment has removed the leader.
    Reassigned,
    /// A replica that may lack committed records.
    Unclean,
}

/// What happened at one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionEvent {
    /// Where.
    pub partition: TopicPartition,
    /// There is a new leader.
    pub elected: Option<(NodeId, LeaderEpoch, Election)>,
    /// There was a leader and now there is none.
    pub leader_lost: bool,
    /// Members that left the ISR.
    pub isr_left: usize,
    /// Members that joined the ISR.
    pub isr_joined: usize,
    /// A reassignment was completed or cancelled.
    pub reassignment_ended: bool,
}

/// What `change` means when it is applied to `before`; `None` if it changes no partition that exists.
pub fn partition_event(before: &ClusterState, change: &MetadataChange) -> Option<PartitionEvent> {
    let MetadataChange::PartitionSet { partition, state: next } = change else { return None };
    let old = before.partitions().get(*partition)?;
    let left = |from: &[NodeId], to: &[NodeId]| from.iter().filter(|node| !to.contains(node)).count();
    let elected = next.leader.filter(|leader| old.leader != Some(*leader));
    Some(PartitionEvent {
        partition: *partition,
        elected: elected.map(|leader| (leader, next.leader_epoch, election(before, old, next, leader))),
        leader_lost: old.leader.is_some() && next.leader.is_none(),
        isr_left: left(&old.isr, &next.isr),
        isr_joined: left(&next.isr, &old.isr),
        reassignment_ended: is_reassigned(old) && !is_reassigned(next),
    })
}

/// Whether a reassignment is under way.
pub fn is_reassigned(partition: &PartitionState) -> bool {
    !partition.adding.is_empty() || !partition.removing.is_empty()
}

/// How many replicas are to be in sync: those that a reassignment adds do not count before it is done, as in Kafka.
pub fn target_replicas(partition: &PartitionState) -> usize {
    partition.replicas.len() - partition.adding.len()
}

fn election(state: &ClusterState, old: &PartitionState, next: &PartitionState, leader: NodeId) -> Election {
    if old.isr.contains(&leader) {
        return match old.leader {
            Some(before) if !next.replicas.contains(&before) => Election::Reassigned,
            Some(before) if next.isr.contains(&before) => Election::Preferred,
            Some(_) | None => Election::InSync,
        };
    }
    if old.elr.contains(&leader) {
        return Election::Eligible;
    }
    // A living leader may admit the target's last member by the change that completes a reassignment and ends its own
    // leadership.
    let living = old.leader.is_some_and(|before| state.nodes().is_active(before));
    let target = old.replicas.iter().filter(|node| !old.removing.contains(node));
    let completed = !old.removing.is_empty() && target.eq(&next.replicas);
    if living && completed && next.isr.len() == next.replicas.len() {
        Election::Reassigned
    } else {
        Election::Unclean
    }
}
