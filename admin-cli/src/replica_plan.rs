//! Which nodes shall hold which partitions: pure planning of moves.
//!
//! A plan keeps what it can: data moves only off nodes that are to go, or to even out what nodes hold. A new replica goes to
//! a rack that the partition does not use yet, as far as there is one, then to the node that holds least. Preferred
//! leaders are evened out at last, by order alone, which moves no data.

use std::collections::{BTreeMap, BTreeSet};

/// A partition and its replicas, preferred leader first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) replicas: Vec<i32>,
}

/// A node that may hold replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) id: i32,
    pub(crate) rack: Option<String>,
}

/// New replicas for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) from: Vec<i32>,
    pub(crate) to: Vec<i32>,
}

impl Move {
    /// Nodes that get a copy by it.
    pub(crate) fn adding(&self) -> impl Iterator<Item = i32> {
        self.to.iter().copied().filter(|node| !self.from.contains(node))
    }
}

/// A partition has more replicas than there are nodes to hold them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{topic}-{partition} has {replicas} replicas, and only {hosts} nodes may hold them")]
pub(crate) struct TooFewHosts {
    topic: String,
    partition: i32,
    replicas: usize,
    hosts: usize,
}

/// Spreads the partitions evenly over exactly these nodes.
pub(crate) fn spread(partitions: &[Placed], hosts: &[Host]) -> Result<Vec<Move>, TooFewHosts> {
    let mut plan = Plan::new(partitions, hosts, partitions);
    plan.replace_all()?;
    plan.even_out_replicas();
    plan.even_out_leaders();
    Ok(plan.moves(partitions))
}

/// Moves what `node` holds to `hosts`, which it is not one of, and nothing else. `all` are the partitions of the cluster.
pub(crate) fn drain(all: &[Placed], node: i32, hosts: &[Host]) -> Result<Vec<Move>, TooFewHosts> {
    let held: Vec<Placed> = all.iter().filter(|placed| placed.replicas.contains(&node)).cloned().collect();
    let mut plan = Plan::new(&held, hosts, all);
    plan.replace(|id| id == node)?;
    Ok(plan.moves(&held))
}

struct Plan<'a> {
    partitions: Vec<Placed>,
    racks: BTreeMap<i32, Option<&'a str>>,
    /// Replicas by node.
    load: BTreeMap<i32, usize>,
    /// Preferred leaderships by node.
    leads: BTreeMap<i32, usize>,
}

impl<'a> Plan<'a> {
    fn new(partitions: &[Placed], hosts: &'a [Host], counted: &[Placed]) -> Self {
        let zero = || hosts.iter().map(|host| (host.id, 0)).collect::<BTreeMap<_, _>>();
        let (mut load, mut leads) = (zero(), zero());
        for placed in counted {
            for node in &placed.replicas {
                if let Some(count) = load.get_mut(node) {
                    *count += 1;
                }
            }
            if let Some(count) = placed.replicas.first().and_then(|node| leads.get_mut(node)) {
                *count += 1;
            }
        }
        let racks = hosts.iter().map(|host| (host.id, host.rack.as_deref())).collect();
        Self { partitions: partitions.to_vec(), racks, load, leads }
    }

    fn moves(self, before: &[Placed]) -> Vec<Move> {
        let pairs = before.iter().zip(self.partitions);
        let changed = pairs.filter(|(old, new)| old.replicas != new.replicas);
        changed
            .map(|(old, new)| Move {
                topic: new.topic,
                partition: new.partition,
                from: old.replicas.clone(),
                to: new.replicas,
            })
            .collect()
    }

    fn replace_all(&mut self) -> Result<(), TooFewHosts> {
        let hosts: BTreeSet<i32> = self.racks.keys().copied().collect();
        self.replace(|id| !hosts.contains(&id))
    }

    /// Gives a new host to each replica on a node that is to go.
    fn replace(&mut self, goes: impl Fn(i32) -> bool) -> Result<(), TooFewHosts> {
        for at in 0..self.partitions.len() {
            for slot in 0..self.partitions[at].replicas.len() {
                if !goes(self.partitions[at].replicas[slot]) {
                    continue;
                }
                let placed = &self.partitions[at];
                let others = placed.replicas.iter().enumerate();
                let others: Vec<i32> =
                    others.filter(|(other, _)| *other != slot).map(|(_, id)| *id).collect();
                let free = self.racks.keys().copied().filter(|id| !placed.replicas.contains(id));
                let best = free.min_by_key(|id| {
                    let leads = if slot == 0 { self.leads[id] } else { 0 };
                    (self.shares_rack(*id, &others), self.load[id], leads, *id)
                });
                let Some(best) = best else {
                    return Err(TooFewHosts {
                        topic: placed.topic.clone(),
                        partition: placed.partition,
                        replicas: placed.replicas.len(),
                        hosts: self.racks.len(),
                    });
                };
                self.put(at, slot, best);
            }
        }
        Ok(())
    }

    /// Whether one of the others is in the node's rack; without a rack it shares none.
    fn shares_rack(&self, id: i32, others: &[i32]) -> bool {
        let Some(rack) = self.racks[&id] else { return false };
        others.iter().any(|other| self.racks.get(other).copied().flatten() == Some(rack))
    }

    fn put(&mut self, at: usize, slot: usize, node: i32) {
        let old = std::mem::replace(&mut self.partitions[at].replicas[slot], node);
        let mut count = |map: fn(&mut Self) -> &mut BTreeMap<i32, usize>| {
            if let Some(count) = map(self).get_mut(&old) {
                *count -= 1;
            }
            if let Some(count) = map(self).get_mut(&node) {
                *count += 1;
            }
        };
        count(|plan| &mut plan.load);
        if slot == 0 {
            count(|plan| &mut plan.leads);
        }
    }

    /// Moves single replicas from nodes that hold more to nodes that hold less, until none differ by more than one or racks
    /// forbid it.
    fn even_out_replicas(&mut self) {
        while let Some((at, slot, to)) = self.next_even_out() {
            self.put(at, slot, to);
        }
    }

    fn next_even_out(&self) -> Option<(usize, usize, i32)> {
        for (from, to) in uneven(&self.load) {
            let movable = self.partitions.iter().enumerate().filter_map(|(at, placed)| {
                let slot = placed.replicas.iter().position(|id| *id == from)?;
                let mut after = placed.replicas.clone();
                after[slot] = to;
                let fits = !placed.replicas.contains(&to)
                    && self.racks_of(&after) >= self.racks_of(&placed.replicas);
                fits.then_some((at, slot))
            });
            // A follower rather than the preferred leader.
            if let Some((at, slot)) = movable.min_by_key(|(_, slot)| usize::from(*slot == 0)) {
                return Some((at, slot, to));
            }
        }
        None
    }

    /// How many racks the nodes are in; a node without one counts as a rack of its own.
    fn racks_of(&self, nodes: &[i32]) -> usize {
        let (mut racks, mut alone) = (BTreeSet::new(), 0);
        for id in nodes {
            match self.racks.get(id).copied().flatten() {
                Some(rack) => _ = racks.insert(rack),
                None => alone += 1,
            }
        }
        racks.len() + alone
    }

    fn even_out_leaders(&mut self) {
        while let Some((at, slot)) = self.next_leader_swap() {
            let replicas = &mut self.partitions[at].replicas;
            let (old, new) = (replicas[0], replicas[slot]);
            replicas.swap(0, slot);
            *self.leads.entry(old).or_default() -= 1;
            *self.leads.entry(new).or_default() += 1;
        }
    }

    fn next_leader_swap(&self) -> Option<(usize, usize)> {
        uneven(&self.leads).into_iter().find_map(|(from, to)| {
            self.partitions.iter().enumerate().find_map(|(at, placed)| {
                let slot = placed.replicas.iter().position(|id| *id == to)?;
                (placed.replicas.first() == Some(&from)).then_some((at, slot))
            })
        })
    }
}

/// Pairs of nodes of which the first counts at least two more than the second, the largest difference first.
fn uneven(counts: &BTreeMap<i32, usize>) -> Vec<(i32, i32)> {
    let mut pairs: Vec<(usize, i32, i32)> = counts
        .iter()
        .flat_map(|(&from, &more)| {
            counts.iter().filter_map(move |(&to, &less)| {
                let difference = more.checked_sub(less).filter(|difference| *difference >= 2)?;
                Some((difference, from, to))
            })
        })
        .collect();
    pairs.sort_unstable_by_key(|&(difference, from, to)| (std::cmp::Reverse(difference), from, to));
    pairs.into_iter().map(|(_, from, to)| (from, to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(ids: &[(i32, &str)]) -> Vec<Host> {
        let rack = |rack: &str| (!rack.is_empty()).then(|| rack.to_owned());
        ids.iter().map(|&(id, name)| Host { id, rack: rack(name) }).collect()
    }

    fn placed(replicas: &[&[i32]]) -> Vec<Placed> {
        let one = |(index, nodes): (usize, &&[i32])| Placed {
            topic: "t".to_owned(),
            partition: i32::try_from(index).unwrap(),
            replicas: nodes.to_vec(),
        };
        replicas.iter().enumerate().map(one).collect()
    }

    /// The placement after the moves.
    fn after(partitions: &[Placed], moves: &[Move]) -> Vec<Vec<i32>> {
        let moved = |placed: &Placed| {
            let found = moves.iter().find(|m| (&m.topic, m.partition) == (&placed.topic, placed.partition));
            found.map_or_else(|| placed.replicas.clone(), |m| m.to.clone())
        };
        partitions.iter().map(moved).collect()
    }

    fn counts(placement: &[Vec<i32>], of: impl Fn(&Vec<i32>) -> Vec<i32>) -> BTreeMap<i32, usize> {
        let mut counts = BTreeMap::new();
        for id in placement.iter().flat_map(of) {
            *counts.entry(id).or_insert(0) += 1;
        }
        counts
    }

    #[test]
    fn a_drained_node_holds_nothing_and_others_keep_what_they_have() {
        let all = placed(&[&[1, 2], &[2, 3], &[3, 1], &[2, 1]]);
        let moves = drain(&all, 1, &hosts(&[(2, ""), (3, ""), (4, "")])).unwrap();
        let placement = after(&all, &moves);
        assert!(placement.iter().flatten().all(|id| *id != 1), "{placement:?}");
        assert_eq!(placement[1], [2, 3], "what it did not hold stays");
        assert_eq!(moves.len(), 3);
        for m in &moves {
            assert_eq!(m.adding().count(), 1);
        }
        assert!(placement.iter().flatten().filter(|id| **id == 4).count() >= 2, "the empty node takes most");
    }

    #[test]
    fn racks_stay_apart_if_they_can() {
        let all = placed(&[&[1, 2], &[1, 2]]);
        // Node 4 holds nothing but is in the rack of node 2.
        let moves = drain(&all, 1, &hosts(&[(2, "b"), (3, "a"), (4, "b")])).unwrap();
        assert!(moves.iter().all(|m| m.to == [3, 2]), "{moves:?}");
        // With no other rack left, a copy in the same rack is better than none.
        let moves = drain(&all, 1, &hosts(&[(2, "b"), (4, "b")])).unwrap();
        assert!(moves.iter().all(|m| m.to == [4, 2]), "{moves:?}");
    }

    #[test]
    fn more_replicas_than_nodes_are_refused() {
        let all = placed(&[&[1, 2, 3]]);
        let error = drain(&all, 1, &hosts(&[(2, ""), (3, "")])).unwrap_err();
        assert_eq!(error.to_string(), "t-0 has 3 replicas, and only 2 nodes may hold them");
        assert!(spread(&all, &hosts(&[(4, ""), (5, "")])).is_err());
    }

    #[test]
    fn spreading_fills_new_nodes_with_few_moves() {
        let all = placed(&[&[1, 2], &[2, 1], &[1, 2], &[2, 1], &[1, 2], &[2, 1]]);
        let moves = spread(&all, &hosts(&[(1, ""), (2, ""), (3, "")])).unwrap();
        let placement = after(&all, &moves);
        assert_eq!(counts(&placement, Vec::clone).into_values().collect::<Vec<_>>(), [4, 4, 4]);
        assert_eq!(counts(&placement, |p| vec![p[0]]).into_values().collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(moves.iter().map(|m| m.adding().count()).sum::<usize>(), 4, "{moves:?}");
        // What is even already stays as it is.
        let even = placed(&[&[1, 2], &[2, 3], &[3, 1]]);
        assert_eq!(spread(&even, &hosts(&[(1, ""), (2, ""), (3, "")])).unwrap(), []);
    }

    #[test]
    fn plans_hold_their_rules_whatever_the_placement() {
        let mut state = 20_260_u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % bound
        };
        for round in 0..300 {
            let racks = ["", "a", "b", "c"];
            let nodes: Vec<(i32, &str)> = (1..=7).map(|id| (id, racks[below(4)])).collect();
            let factor = 1 + below(3);
            let all: Vec<Vec<i32>> = (0..1 + below(20))
                .map(|_| {
                    let mut replicas = Vec::new();
                    while replicas.len() < factor {
                        let id = nodes[below(nodes.len())].0;
                        if !replicas.contains(&id) {
                            replicas.push(id);
                        }
                    }
                    replicas
                })
                .collect();
            let all = placed(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let left: Vec<_> = nodes[1..5].to_vec();
            let placement = after(&all, &spread(&all, &hosts(&left)).unwrap());
            let loads = counts(&placement, Vec::clone);
            for replicas in &placement {
                let each: BTreeSet<_> = replicas.iter().collect();
                assert_eq!((each.len(), replicas.len()), (factor, factor), "round {round}");
                assert!(replicas.iter().all(|id| left.iter().any(|(host, _)| host == id)), "round {round}");
            }
            if left.iter().all(|(_, rack)| rack.is_empty()) {
                let most = loads.values().max().unwrap_or(&0);
                let least = left.iter().map(|(id, _)| loads.get(id).unwrap_or(&0)).min().unwrap_or(&0);
                assert!(most - least <= 1, "round {round}: {loads:?}");
            }
        }
    }
}
