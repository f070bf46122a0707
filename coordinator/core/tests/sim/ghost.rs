//! What really happened, seen from outside: commits and assignments that clients were told of. The invariants read it.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_core::Epoch;
use coordinator_core::stored::Record;
use kafka_wire_core::Str;

use crate::log::ModelLog;

/// A partition of a group.
pub(crate) type Place = (Str, i32);

#[derive(Debug, Default)]
pub(crate) struct Ghost {
    /// Commits that clients were told of: when, and their labels, in order of the telling.
    pub(crate) acknowledged: BTreeMap<Place, Vec<(i64, Str)>>,
    /// Who was told to own what, by group, generation and partition.
    pub(crate) owners: BTreeMap<(Str, i32, i32), Str>,
    /// Per group, when a member was told of its part, and of which generation.
    pub(crate) assigned: BTreeMap<Str, Vec<(i64, i32)>>,
    /// Epochs whose owners have begun to serve.
    pub(crate) served: BTreeSet<Epoch>,
    /// Marks of what was reached.
    pub(crate) marks: BTreeMap<&'static str, u64>,
    trace: u64,
}

impl Ghost {
    pub(crate) fn mark(&mut self, mark: &'static str) {
        *self.marks.entry(mark).or_default() += 1;
    }

    /// Mixes a fact into the hash of the run.
    pub(crate) fn trace(&mut self, fact: &str) {
        for byte in fact.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.trace
    }

    /// The newest generation of the group that some member had been told its part of before `time`.
    pub(crate) fn newest_generation(&self, group: &Str, time: i64) -> Option<i32> {
        let told = self.assigned.get(group)?;
        told.iter().filter(|(at, _)| *at < time).map(|(_, generation)| *generation).max()
    }
}

/// Offsets in the history at which a commit with this label for this place stands.
pub(crate) fn commit_offsets(log: &ModelLog, place: &Place, label: &Str, below: i64) -> Vec<i64> {
    let entries = log.history.iter().take(below as usize).enumerate();
    entries
        .filter(|(_, written)| match &written.record {
            Some(Record::Offset(key, Some(value))) => {
                value.metadata == *label && key.group == place.0 && key.partition == place.1
            }
            _ => false,
        })
        .map(|(offset, _)| offset as i64)
        .collect()
}

/// Whether a group's record of this generation stands below the high watermark.
pub(crate) fn generation_is_durable(log: &ModelLog, group: &Str, generation: i32) -> bool {
    log.history.iter().take(log.high_watermark as usize).any(|written| match &written.record {
        Some(Record::Group(key, Some(value))) => key.group == *group && value.generation == generation,
        _ => false,
    })
}
