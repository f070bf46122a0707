//! Which nodes get the replicas of new partitions.
//!
//! Nodes stand in a ring in which racks alternate. Leaders go round the ring from a random start, so that they spread
//! evenly; followers come from the ring after the leader, first from racks that the partition does not use yet, and with
//! a shift that grows each time round, so that the partitions of one leader do not share all their followers. Fenced
//! nodes are used only when the others do not suffice, and never as leaders.

use crate::chance::Chance;
use crate::state::{ClusterState, Nodes};
use proto_types::error::{Reason, Rejection};
use proto_types::ids::NodeId;
use std::collections::BTreeMap;

/// Places `partitions` partitions with `replication_factor` replicas each; the first of each is the leader to be.
pub fn place(
    nodes: &Nodes,
    partitions: usize,
    replication_factor: usize,
    chance: &mut Chance,
) -> Result<Vec<Vec<NodeId>>, Rejection> {
    let refuse = |message: String| Rejection { reason: Reason::InvalidReplicationFactor, message };
    let times = format!("Unable to replicate the partition {replication_factor} time(s)");
    if nodes.len() < replication_factor {
        return Err(refuse(format!(
            "{times}: The target replication factor of {replication_factor} cannot be reached because only {} \
             broker(s) are registered. Start {} more, or ask for fewer replicas.",
            nodes.len(),
            replication_factor - nodes.len()
        )));
    }
    let active = ring(nodes, false, chance);
    if active.is_empty() {
        return Err(refuse(format!(
            "{times}: All brokers are currently fenced. Start one of them: weir cluster status lists them."
        )));
    }
    let fenced = ring(nodes, true, chance);
    let start = chance.below(active.len());
    let first_shift = chance.below(active.len());
    Ok((0..partitions)
        .map(|partition| {
            let leader = (start + partition) % active.len();
            let shift = first_shift + partition / active.len();
            pick(&active, &fenced, leader, shift, replication_factor)
        })
        .collect())
}

/// How many replicas each node holds, and of how many partitions it is the preferred leader.
#[derive(Debug, Clone, Default)]
pub struct Loads {
    held: BTreeMap<NodeId, usize>,
    preferred: BTreeMap<NodeId, usize>,
}

impl Loads {
    /// The loads as they are.
    pub fn of(state: &ClusterState) -> Self {
        let mut loads = Self::default();
        for (_, partition) in state.partitions().iter() {
            for node in &partition.replicas {
                *loads.held.entry(*node).or_default() += 1;
            }
            if let Some(first) = partition.replicas.first() {
                *loads.preferred.entry(*first).or_default() += 1;
            }
        }
        loads
    }

    /// Puts the replica first that is the preferred leader of the fewest partitions; `before` was it until now.
    pub fn prefer_least(&mut self, replicas: &mut [NodeId], before: NodeId) {
        if let Some(count) = self.preferred.get_mut(&before) {
            *count = count.saturating_sub(1);
        }
        let least =
            (0..replicas.len()).min_by_key(|at| self.preferred.get(&replicas[*at]).copied().unwrap_or(0));
        if let Some(least) = least {
            replicas[..=least].rotate_right(1);
            *self.preferred.entry(replicas[0]).or_default() += 1;
        }
    }
}

/// Further replicas for a partition that has some: active nodes, first from racks that it does not use yet, and among those
/// the ones that hold the fewest. May be fewer than `count` if there are not so many nodes.
pub fn extend(
    nodes: &Nodes,
    loads: &mut Loads,
    replicas: &[NodeId],
    count: usize,
    chance: &mut Chance,
) -> Vec<NodeId> {
    let rack = |node: NodeId| nodes.get(node).and_then(|known| known.registration.rack.as_deref());
    let mut candidates: Vec<NodeId> = nodes.active().filter(|node| !replicas.contains(node)).collect();
    chance.shuffle(&mut candidates);
    let mut added: Vec<NodeId> = Vec::new();
    while added.len() < count {
        let used =
            |at: Option<&str>| at.is_none() || replicas.iter().chain(&added).any(|node| rack(*node) == at);
        let cost = |node: NodeId| (used(rack(node)), loads.held.get(&node).copied().unwrap_or(0));
        let Some(best) = (0..candidates.len()).min_by_key(|at| cost(candidates[*at])) else { break };
        let node = candidates.swap_remove(best);
        *loads.held.entry(node).or_default() += 1;
        added.push(node);
    }
    added
}

#[derive(Clone, Copy)]
struct Place<'a> {
    node: NodeId,
    rack: Option<&'a str>,
}

/// The fenced, or the other, nodes in an order in which racks alternate.
fn ring<'a>(nodes: &'a Nodes, fenced: bool, chance: &mut Chance) -> Vec<Place<'a>> {
    let mut by_rack: BTreeMap<Option<&str>, Vec<Place<'_>>> = BTreeMap::new();
    for (node, entry) in nodes.iter().filter(|(_, entry)| entry.fenced == fenced) {
        let rack = entry.registration.rack.as_deref();
        by_rack.entry(rack).or_default().push(Place { node, rack });
    }
    let mut racks: Vec<Vec<Place<'_>>> = by_rack.into_values().collect();
    chance.shuffle(&mut racks);
    for rack in &mut racks {
        chance.shuffle(rack);
    }
    let deepest = racks.iter().map(Vec::len).max().unwrap_or(0);
    (0..deepest).flat_map(|depth| racks.iter().filter_map(move |rack| rack.get(depth)).copied()).collect()
}

fn pick(
    active: &[Place<'_>],
    fenced: &[Place<'_>],
    leader: usize,
    shift: usize,
    count: usize,
) -> Vec<NodeId> {
    let mut chosen = vec![active[leader]];
    // Followers start one step, or a shifted number of steps, after the leader; never at the leader itself.
    let others = active.len() - 1;
    let order: Vec<Place<'_>> = (0..others)
        .map(|step| active[(leader + 1 + (shift + step) % others) % active.len()])
        .chain(fenced.iter().copied())
        .collect();
    for new_racks_only in [true, false] {
        for place in &order {
            if chosen.len() == count {
                break;
            }
            let taken = chosen.iter().any(|other| {
                other.node == place.node
                    || (new_racks_only && (place.rack.is_none() || other.rack == place.rack))
            });
            if !taken {
                chosen.push(*place);
            }
        }
    }
    chosen.into_iter().map(|place| place.node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::ClusterState;
    use proto_types::ids::{BrokerEpoch, DirectoryId, Incarnation, MetadataIndex};
    use proto_types::metadata::{MetadataChange, NodeRegistered};
    use std::collections::BTreeSet;
    use uuid::Uuid;

    fn cluster(nodes: &[(i32, Option<&str>, bool)]) -> ClusterState {
        let mut state = ClusterState::new();
        for &(id, rack, fenced) in nodes {
            let registration = NodeRegistered {
                node: NodeId(id),
                broker_epoch: BrokerEpoch(1),
                incarnation: Incarnation(Uuid::from_u128(1)),
                directories: vec![DirectoryId(Uuid::from_u128(id as u128))],
                listeners: vec![],
                control_address: String::new(),
                data_address: String::new(),
                rack: rack.map(str::to_owned),
            };
            state.apply(MetadataIndex(1), &MetadataChange::NodeRegistered(registration));
            let unfence =
                MetadataChange::NodeFenced { node: NodeId(id), broker_epoch: BrokerEpoch(1), fenced };
            state.apply(MetadataIndex(1), &unfence);
        }
        state
    }

    #[test]
    fn leaders_and_replicas_spread_evenly() {
        let state = cluster(&[(1, None, false), (2, None, false), (3, None, false), (4, None, false)]);
        for seed in 0..50 {
            let placed = place(state.nodes(), 40, 3, &mut Chance::new(seed)).expect("enough nodes");
            for id in 1..=4 {
                let leads = placed.iter().filter(|replicas| replicas[0] == NodeId(id)).count();
                let holds = placed.iter().filter(|replicas| replicas.contains(&NodeId(id))).count();
                assert_eq!(leads, 10, "seed {seed}");
                assert!((25..=35).contains(&holds), "seed {seed}: node {id} holds {holds} of 30");
            }
            for replicas in placed {
                assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 3);
            }
        }
    }

    #[test]
    fn every_partition_uses_as_many_racks_as_it_can() {
        let nodes: Vec<(i32, Option<&str>, bool)> =
            (0..9).map(|id| (id, Some(["a", "b", "c"][id as usize % 3]), false)).collect();
        let state = cluster(&nodes);
        let rack = |node: &NodeId| node.0 % 3;
        for seed in 0..50 {
            for replicas in place(state.nodes(), 30, 3, &mut Chance::new(seed)).expect("enough nodes") {
                assert_eq!(replicas.iter().map(rack).collect::<BTreeSet<_>>().len(), 3, "seed {seed}");
            }
            for replicas in place(state.nodes(), 10, 5, &mut Chance::new(seed)).expect("enough nodes") {
                assert_eq!(replicas.iter().map(rack).collect::<BTreeSet<_>>().len(), 3, "seed {seed}");
                assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 5, "seed {seed}");
            }
        }
    }

    #[test]
    fn fenced_nodes_follow_only_when_needed_and_never_lead() {
        let state = cluster(&[(1, None, false), (2, None, false), (3, None, true)]);
        for seed in 0..50 {
            for replicas in place(state.nodes(), 6, 2, &mut Chance::new(seed)).expect("enough nodes") {
                assert!(!replicas.contains(&NodeId(3)), "seed {seed}");
            }
            for replicas in place(state.nodes(), 6, 3, &mut Chance::new(seed)).expect("enough nodes") {
                assert_eq!(replicas[2], NodeId(3), "seed {seed}");
            }
        }
    }

    #[test]
    fn further_replicas_go_to_new_racks_and_then_where_the_fewest_are() {
        let state = cluster(&[
            (1, Some("a"), false),
            (2, Some("a"), false),
            (3, Some("b"), false),
            (4, Some("c"), true),
        ]);
        for seed in 0..50 {
            let mut loads = Loads::default();
            loads.held.insert(NodeId(3), 10);
            let more = |loads: &mut Loads, replicas: &[NodeId], count| {
                extend(state.nodes(), loads, replicas, count, &mut Chance::new(seed))
            };
            assert_eq!(more(&mut loads, &[NodeId(1)], 1), [NodeId(3)], "a new rack, however full it is");
            assert_eq!(more(&mut loads, &[NodeId(1)], 5), [NodeId(3), NodeId(2)], "never a fenced node");
            assert_eq!(more(&mut loads, &[NodeId(3)], 1), [NodeId(1)], "node 2 has one already");
            assert_eq!(more(&mut loads, &[NodeId(1), NodeId(2), NodeId(3)], 1), []);
        }
    }

    #[test]
    fn too_few_nodes_are_refused_in_kafkas_words() {
        let message = |nodes: &[(i32, Option<&str>, bool)], factor| {
            place(cluster(nodes).nodes(), 1, factor, &mut Chance::new(1)).expect_err("refused").message
        };
        assert_eq!(
            message(&[(1, None, false)], 3),
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached \
             because only 1 broker(s) are registered. Start 2 more, or ask for fewer replicas."
        );
        assert_eq!(
            message(&[(1, None, true)], 1),
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced. Start one of them: \
             weir cluster status lists them."
        );
    }
}
