//! The coordinators that have registered.

use proto_types::feature::LevelRange;
use proto_types::ids::{CoordinatorId, RegistrationEpoch};
use proto_types::metadata::{CoordinatorRegistered, MetadataChange};
use std::collections::BTreeMap;

/// One coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinator {
    /// Its newest registration.
    pub registration: CoordinatorRegistered,
    /// Whether it is fenced: it owns no shard.
    pub fenced: bool,
    /// The levels of `weir.version` that it supports.
    pub levels: LevelRange,
}

/// All coordinators by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coordinators {
    by_id: BTreeMap<CoordinatorId, Coordinator>,
}

impl Coordinators {
    /// The coordinator of that id.
    pub fn get(&self, coordinator: CoordinatorId) -> Option<&Coordinator> {
        self.by_id.get(&coordinator)
    }

    /// Whether the coordinator is registered and not fenced.
    pub fn is_active(&self, coordinator: CoordinatorId) -> bool {
        self.get(coordinator).is_some_and(|coordinator| !coordinator.fenced)
    }

    /// All coordinators in order of id.
    pub fn iter(&self) -> impl Iterator<Item = (CoordinatorId, &Coordinator)> {
        self.by_id.iter().map(|(id, coordinator)| (*id, coordinator))
    }

    /// The coordinators that may own shards, in order of id.
    pub fn active(&self) -> impl Iterator<Item = CoordinatorId> {
        self.iter().filter(|(_, coordinator)| !coordinator.fenced).map(|(id, _)| id)
    }

    /// How many are registered.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether none is registered.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn register(&mut self, registration: CoordinatorRegistered) {
        let (fenced, levels) = (false, LevelRange::IMPLIED);
        self.by_id.insert(registration.coordinator, Coordinator { registration, fenced, levels });
    }

    /// Follows the registration that it is about.
    pub(super) fn set_levels(&mut self, id: CoordinatorId, levels: LevelRange) {
        if let Some(coordinator) = self.by_id.get_mut(&id) {
            coordinator.levels = levels;
        }
    }

    /// A change that was decided about an older registration says nothing about the newer one.
    pub(super) fn set_fenced(&mut self, id: CoordinatorId, epoch: RegistrationEpoch, fenced: bool) {
        if let Some(coordinator) = self.by_id.get_mut(&id)
            && coordinator.registration.epoch == epoch
        {
            coordinator.fenced = fenced;
        }
    }

    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        for (id, coordinator) in &self.by_id {
            changes.push(MetadataChange::CoordinatorRegistered(coordinator.registration.clone()));
            if coordinator.levels != LevelRange::IMPLIED {
                let (coordinator, levels) = (*id, coordinator.levels);
                changes.push(MetadataChange::CoordinatorLevels { coordinator, levels });
            }
            if coordinator.fenced {
                changes.push(MetadataChange::CoordinatorFenced {
                    coordinator: *id,
                    epoch: coordinator.registration.epoch,
                    fenced: true,
                });
            }
        }
    }
}
