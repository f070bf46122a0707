//! The producer ids handed out so far.

use proto_types::ids::ProducerId;
use proto_types::metadata::MetadataChange;

/// All ids below [`ProducerIds::next`] belong to blocks that were handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerIds {
    next: ProducerId,
}

impl Default for ProducerIds {
    fn default() -> Self {
        Self { next: ProducerId(0) }
    }
}

impl ProducerIds {
    /// First id of the next block.
    pub fn next(&self) -> ProducerId {
        self.next
    }

    pub(super) fn allocated(&mut self, next: ProducerId) {
        self.next = self.next.max(next);
    }

    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        if self.next != ProducerId(0) {
            changes.push(MetadataChange::ProducerIdsAllocated { next: self.next });
        }
    }
}
