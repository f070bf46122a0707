//! What the replicas would hold if there were any: how much is committed in each partition, and how much of it each replica
//! has. Checks R3 after every change: whoever is in an ISR or ELR has everything that is committed.

use controller_core::ClusterState;
use controller_core::observe::{Election, partition_event};
use controller_core::plan::min_insync;
use proto_types::controller_api::AlterPartition;
use proto_types::ids::*;
use proto_types::metadata::*;
use std::collections::{BTreeMap, BTreeSet};

/// Why a batch is committed, as far as it matters to what may be in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Cause {
    #[default]
    Own,
    /// A leader admits replicas.
    Proposal,
    /// Somebody asked for an unclean election.
    UncleanRequest,
}

#[derive(Debug, Clone, Default)]
struct Log {
    committed: u64,
    ends: BTreeMap<NodeId, u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Ghost {
    logs: BTreeMap<TopicPartition, Log>,
    /// Elections that happened, by kind.
    pub(crate) elections: BTreeMap<&'static str, usize>,
}

impl Ghost {
    /// A change is about to be applied to `before`.
    pub(crate) fn change(&mut self, before: &ClusterState, change: &MetadataChange, cause: &Cause) {
        match change {
            MetadataChange::PartitionSet { partition, state } => {
                if let Some(old) = before.partitions().get(*partition) {
                    self.alter(before, *partition, old, state, change, cause);
                } else {
                    let ends = state.replicas.iter().map(|node| (*node, 0)).collect();
                    self.logs.insert(*partition, Log { committed: 0, ends });
                }
            }
            MetadataChange::TopicDeleted { topic } => self.logs.retain(|at, _| at.topic != *topic),
            MetadataChange::NodeRegistered(registration) => self.restarted(before, registration.node),
            _ => {}
        }
    }

    /// A node whose copy nobody counts on may come back with less than it had.
    fn restarted(&mut self, state: &ClusterState, node: NodeId) {
        for (at, log) in &mut self.logs {
            let counted = state
                .partitions()
                .get(*at)
                .is_some_and(|partition| partition.isr.contains(&node) || partition.elr.contains(&node));
            if !counted && let Some(end) = log.ends.get_mut(&node) {
                *end = 0;
            }
        }
    }

    fn alter(
        &mut self,
        before: &ClusterState,
        at: TopicPartition,
        old: &PartitionState,
        next: &PartitionState,
        change: &MetadataChange,
        cause: &Cause,
    ) {
        let log = self.logs.get_mut(&at).expect("the partition exists");
        log.ends.retain(|node, _| next.replicas.contains(node));
        for node in &next.replicas {
            log.ends.entry(*node).or_insert(0);
        }
        let event = partition_event(before, change).expect("the partition exists");
        if let Some((leader, epoch, election)) = event.elected {
            assert!(epoch > old.leader_epoch);
            let kind = match election {
                Election::InSync => "in sync",
                Election::Eligible => "eligible",
                Election::Preferred => "preferred",
                Election::Reassigned => "reassigned",
                Election::Unclean => "unclean",
            };
            *self.elections.entry(kind).or_default() += 1;
            if election == Election::Unclean {
                let enabled = before.configs().topic_value(at.topic, "unclean.leader.election.enable");
                let allowed = *cause == Cause::UncleanRequest || enabled == Some("true");
                assert!(allowed, "{at}: unclean election of {leader} without permission");
                assert_eq!((&next.isr, &next.elr), (&vec![leader], &vec![]));
                log.committed = log.committed.min(log.ends[&leader]);
                for end in log.ends.values_mut() {
                    *end = (*end).min(log.committed);
                }
            }
        }
        if *cause != Cause::Proposal {
            // The heir of an ISR that is gone: the new leader, or an eligible one that waits to be that.
            let alone = next.isr.first().copied().filter(|_| next.isr.len() == 1);
            let heir = alone.filter(|node| next.leader == Some(*node) || old.elr.contains(node));
            let joined = next.isr.iter().find(|node| !old.isr.contains(node) && heir != Some(**node));
            assert_eq!(joined, None, "{at}: only a leader admits replicas");
        }
    }

    /// R3, and that every partition has a ghost.
    pub(crate) fn check(&self, state: &ClusterState) {
        assert_eq!(self.logs.len(), state.partitions().len());
        for (at, partition) in state.partitions().iter() {
            let log = &self.logs[&at];
            for node in partition.isr.iter().chain(&partition.elr) {
                let end = log.ends[node];
                assert!(
                    end >= log.committed,
                    "{at}: node {node} has {end} of {} records and is eligible: {partition:?}",
                    log.committed
                );
            }
        }
    }

    /// The leader commits a record, if it may: all of its ISR, and of the set that it has proposed, must have it.
    pub(crate) fn write(
        &mut self,
        state: &ClusterState,
        at: TopicPartition,
        proposed: Option<&AlterPartition>,
    ) {
        let Some(partition) = state.partitions().get(at) else { return };
        let mut maximal: BTreeSet<NodeId> = partition.isr.iter().copied().collect();
        for (node, broker_epoch) in proposed.iter().flat_map(|request| &request.partitions[0].isr) {
            let current = state.nodes().get(*node).map(|known| known.registration.broker_epoch);
            if partition.leader_epoch == proposed.expect("iterated").partitions[0].leader_epoch {
                if current != Some(*broker_epoch) {
                    return;
                }
                maximal.insert(*node);
            }
        }
        let needed = min_insync(state, at.topic, partition.replicas.len());
        if partition.leader.is_none() || partition.isr.len() < needed {
            return;
        }
        let log = self.logs.get_mut(&at).expect("the partition exists");
        log.committed += 1;
        for node in maximal {
            log.ends.insert(node, log.committed);
        }
    }

    /// A follower has fetched everything: its leader may propose it.
    pub(crate) fn catch_up(&mut self, at: TopicPartition, node: NodeId) {
        let log = self.logs.get_mut(&at).expect("the partition exists");
        log.ends.insert(node, log.committed);
    }
}
