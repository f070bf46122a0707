//! Who owns which shard: spread evenly over the active coordinators, and moved as little as possible.
//!
//! A shard goes from one living coordinator to another in two steps, each a batch of its own: it is *released* (no owner),
//! and *assigned* once every active coordinator has said that it knows. In between nobody answers for it, so never two
//! do. Shards of a coordinator whose session is over go straight to the next owner.

use super::Decision;
use crate::state::{ClusterState, Ownership};
use proto_types::error::Rejection;
use proto_types::ids::{CoordinatorEpoch, CoordinatorId, TopicPartition};
use proto_types::metadata::MetadataChange;
use std::collections::BTreeMap;

/// What [`assign_shards`] has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assigned {
    /// Everything is where it should be, or has to wait.
    Nothing,
    /// Shards without owner got one.
    Owners(usize),
    /// Shards were taken from coordinators that have too many.
    Released(usize),
}

/// The shards without owner, and the epochs since when they have none.
pub fn orphans(state: &ClusterState) -> Vec<(TopicPartition, CoordinatorEpoch)> {
    let orphans = state.shards().iter().filter(|(_, ownership)| ownership.owner.is_none());
    orphans.map(|(shard, ownership)| (shard, ownership.epoch)).collect()
}

/// Plans the next step towards an even spread. `released` are orphans of which every active coordinator knows; one that
/// got an owner meanwhile, or was released anew, is left alone.
pub fn assign_shards(
    state: &ClusterState,
    released: &[(TopicPartition, CoordinatorEpoch)],
) -> Result<Decision<Assigned>, Rejection> {
    let mut loads = Loads::of(state, None);
    if loads.is_empty() {
        return Ok(Decision { changes: Vec::new(), reply: Assigned::Nothing });
    }
    if state.shards().iter().all(|(_, ownership)| ownership.owner.is_some()) {
        let changes = releases(state, &loads);
        let reply = if changes.is_empty() { Assigned::Nothing } else { Assigned::Released(changes.len()) };
        return Ok(Decision { changes, reply });
    }
    let mut changes = Vec::new();
    for (shard, epoch) in released {
        if let Some(before) = state.shards().get(*shard)
            && before == (Ownership { owner: None, epoch: *epoch })
        {
            changes.push(reassigned(*shard, before, loads.take_least()));
        }
    }
    let reply = if changes.is_empty() { Assigned::Nothing } else { Assigned::Owners(changes.len()) };
    Ok(Decision { changes, reply })
}

/// Whether [`assign_shards`] has something to do, as far as can be told without planning it.
pub fn shards_are_uneven(state: &ClusterState) -> bool {
    let loads = Loads::of(state, None);
    let orphans = || state.shards().iter().any(|(_, ownership)| ownership.owner.is_none());
    !loads.is_empty() && (orphans() || loads.spread() > 1)
}

/// Takes from those that have most, until those that have least can have their part.
fn releases(state: &ClusterState, loads: &Loads) -> Vec<MetadataChange> {
    let mut counts = loads.by_coordinator.clone();
    let mut surplus: BTreeMap<CoordinatorId, usize> = BTreeMap::new();
    loop {
        let most = counts.iter().max_by_key(|(id, count)| (**count, **id)).map(|(id, count)| (*id, *count));
        let least = counts.iter().min_by_key(|(id, count)| (**count, **id)).map(|(id, count)| (*id, *count));
        let (Some((most, high)), Some((least, low))) = (most, least) else { break };
        if high - low <= 1 {
            break;
        }
        counts.insert(most, high - 1);
        counts.insert(least, low + 1);
        *surplus.entry(most).or_default() += 1;
    }
    let mut released = Vec::new();
    for (shard, ownership) in state.shards().iter() {
        let Some(left) = ownership.owner.and_then(|owner| surplus.get_mut(&owner)) else { continue };
        if *left > 0 {
            *left -= 1;
            released.push(reassigned(shard, ownership, None));
        }
    }
    released
}

/// The change that gives a shard to `owner` under the next epoch.
pub(super) fn reassigned(
    shard: TopicPartition,
    before: Ownership,
    owner: Option<CoordinatorId>,
) -> MetadataChange {
    MetadataChange::ShardAssigned { shard, owner, epoch: CoordinatorEpoch(before.epoch.0 + 1) }
}

/// How many shards each active coordinator owns.
pub(super) struct Loads {
    by_coordinator: BTreeMap<CoordinatorId, usize>,
}

impl Loads {
    /// The loads, without `leaving`.
    pub(super) fn of(state: &ClusterState, leaving: Option<CoordinatorId>) -> Self {
        let active = state.coordinators().active().filter(|id| Some(*id) != leaving);
        let mut by_coordinator: BTreeMap<CoordinatorId, usize> = active.map(|id| (id, 0)).collect();
        for (_, ownership) in state.shards().iter() {
            if let Some(count) = ownership.owner.and_then(|owner| by_coordinator.get_mut(&owner)) {
                *count += 1;
            }
        }
        Self { by_coordinator }
    }

    /// The coordinator with the fewest shards, which has one more now; none if there is none.
    pub(super) fn take_least(&mut self) -> Option<CoordinatorId> {
        let (id, count) = self.by_coordinator.iter_mut().min_by_key(|(id, count)| (**count, **id))?;
        *count += 1;
        Some(*id)
    }

    fn is_empty(&self) -> bool {
        self.by_coordinator.is_empty()
    }

    fn spread(&self) -> usize {
        let counts = self.by_coordinator.values();
        counts.clone().max().unwrap_or(&0) - counts.min().unwrap_or(&0)
    }
}
