//! The controllers of the quorum, as raft's membership had them when it last changed.
//!
//! Raft decides who votes; this copy is there so that everybody else can know, and so that an id that was once removed is
//! never used again, even after raft has forgotten it.

use proto_types::ids::{ControllerId, DirectoryId};
use proto_types::metadata::{ControllerAddress, MetadataChange};
use std::collections::BTreeMap;

/// Voters of the present and of the past.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controllers {
    voters: Vec<ControllerAddress>,
    removed: Vec<ControllerId>,
}

impl Controllers {
    /// The voters, by id. Empty before the quorum's first leader has written them down.
    pub fn voters(&self) -> &[ControllerAddress] {
        &self.voters
    }

    /// Those that voted once and do not any more, by id.
    pub fn removed(&self) -> &[ControllerId] {
        &self.removed
    }

    /// The data directory of a voter, if it is known.
    pub fn directory(&self, id: ControllerId) -> Option<DirectoryId> {
        self.voters.iter().find(|voter| voter.id == id)?.directory
    }

    /// The change after which this list has exactly these voters, and remembers all that had a vote before; none if it
    /// says so already. A directory that was known stays.
    pub fn become_voters(
        &self,
        voters: BTreeMap<ControllerId, (String, Option<DirectoryId>)>,
    ) -> Option<MetadataChange> {
        let mut removed = self.removed.clone();
        removed.extend(self.voters.iter().map(|voter| voter.id).filter(|id| !voters.contains_key(id)));
        removed.sort_unstable();
        removed.dedup();
        let voters: Vec<ControllerAddress> = voters
            .into_iter()
            .map(|(id, (address, seen))| ControllerAddress {
                id,
                address,
                directory: self.directory(id).or(seen),
            })
            .collect();
        let changed = voters != self.voters || removed != self.removed;
        changed.then_some(MetadataChange::ControllersSet { voters, removed })
    }

    pub(super) fn set(&mut self, voters: &[ControllerAddress], removed: &[ControllerId]) {
        self.voters = voters.to_vec();
        self.removed = removed.to_vec();
    }

    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        if *self != Self::default() {
            let (voters, removed) = (self.voters.clone(), self.removed.clone());
            changes.push(MetadataChange::ControllersSet { voters, removed });
        }
    }
}
