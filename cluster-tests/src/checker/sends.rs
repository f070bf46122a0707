//! What became of what was sent: acknowledged records are there, in the order of sending.

use std::collections::HashMap;

use super::placements::Placements;
use super::{Report, Violation};
use crate::history::{EventKind, History};

/// Everything that was sent, by value.
#[derive(Debug, Default)]
pub(super) struct Sent {
    by_value: HashMap<u64, Fate>,
}

/// What a client knows of a record that it sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) partition: u16,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Not answered, or answered that nobody knows.
    Open,
    Refused,
    Acknowledged {
        time_us: u64,
    },
}

impl Sent {
    pub(super) fn of(history: &History) -> Sent {
        let mut by_value = HashMap::new();
        for event in &history.events {
            let (value, outcome) = match event.kind {
                EventKind::Send { value } | EventKind::Unknown { value } => (value, Outcome::Open),
                EventKind::Refused { value } => (value, Outcome::Refused),
                EventKind::Acknowledged { value, .. } | EventKind::AcknowledgedSomewhere { value } => {
                    (value, Outcome::Acknowledged { time_us: event.time_us })
                }
                EventKind::Assigned { .. }
                | EventKind::Polled { .. }
                | EventKind::Malformed { .. }
                | EventKind::End { .. }
                | EventKind::Closed => continue,
            };
            let fate = by_value.entry(value).or_insert(Fate { partition: event.partition, outcome });
            if outcome != Outcome::Open {
                fate.outcome = outcome;
            }
        }
        Sent { by_value }
    }

    pub(super) fn get(&self, value: u64) -> Option<Fate> {
        self.by_value.get(&value).copied()
    }
}

pub(super) fn check(history: &History, sent: &Sent, placements: &Placements, report: &mut Report) {
    // By client and partition: the last record that is known to stand somewhere.
    let mut last: HashMap<(u16, u16), (u64, i64)> = HashMap::new();
    for event in &history.events {
        let partition = event.partition;
        match event.kind {
            EventKind::Acknowledged { value, offset } if !placements.was_read(partition, offset) => {
                let read_to = placements.highest_read(partition).unwrap_or(-1);
                report.add(if offset <= read_to {
                    Violation::Lost { partition, value, offset }
                } else {
                    Violation::Unseen { partition, value, offset, read_to }
                });
            }
            EventKind::AcknowledgedSomewhere { value } => {
                if placements.offset_of(partition, value).is_none() {
                    report.add(Violation::Nowhere { partition, value });
                }
            }
            EventKind::Send { value } => {
                let Some(offset) = placements.offset_of(partition, value) else { continue };
                match sent.get(value).map(|fate| fate.outcome) {
                    Some(Outcome::Refused) => {
                        report.add(Violation::RefusedButRead { partition, value, offset });
                    }
                    Some(Outcome::Open) => report.counts.unknown_but_read += 1,
                    Some(Outcome::Acknowledged { .. }) | None => {}
                }
                let before = last.insert((event.client, partition), (value, offset));
                if let Some((earlier, at)) = before
                    && at >= offset
                {
                    let client = history.name(event.client).to_owned();
                    let (values, offsets) = ((earlier, value), (at, offset));
                    report.add(Violation::Reordered { client, partition, values, offsets });
                }
            }
            EventKind::Acknowledged { .. }
            | EventKind::Refused { .. }
            | EventKind::Unknown { .. }
            | EventKind::Assigned { .. }
            | EventKind::Polled { .. }
            | EventKind::Malformed { .. }
            | EventKind::End { .. }
            | EventKind::Closed => {}
        }
    }
}
