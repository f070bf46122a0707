//! What readers saw: only what was sent, in order, without holes.

use std::collections::{BTreeMap, HashMap};

use super::placements::Placements;
use super::sends::{Outcome, Sent};
use super::{Report, Violation};
use crate::history::{EventKind, History, checksum};

/// Where a reader is in a partition.
#[derive(Clone, Copy, Debug)]
struct Position {
    /// The offset that it asks for next.
    next: i64,
    /// Where it began, and when: what was acknowledged before that says nothing about its lag.
    since_us: u64,
}

pub(super) fn check(history: &History, sent: &Sent, placements: &Placements, report: &mut Report) {
    let mut positions: HashMap<(u16, u16), Position> = HashMap::new();
    let mut gaps: BTreeMap<(u16, i64), i64> = BTreeMap::new();
    for event in &history.events {
        let (client, partition) = (event.client, event.partition);
        let offset = match event.kind {
            EventKind::Assigned { offset } => {
                positions.insert((client, partition), Position { next: offset, since_us: event.time_us });
                continue;
            }
            EventKind::Polled { offset, value, checksum: found } => {
                if let Some(reason) = why_phantom(sent, partition, value, found) {
                    report.add(Violation::Phantom { partition, offset, reason });
                }
                offset
            }
            EventKind::Malformed { offset } => {
                let reason = "no client writes such bytes";
                report.add(Violation::Phantom { partition, offset, reason });
                offset
            }
            // Whoever read to the end has passed everything below it.
            EventKind::End { offset } => offset,
            EventKind::Send { .. }
            | EventKind::Acknowledged { .. }
            | EventKind::AcknowledgedSomewhere { .. }
            | EventKind::Refused { .. }
            | EventKind::Unknown { .. }
            | EventKind::Closed => continue,
        };
        let is_end = matches!(event.kind, EventKind::End { .. });
        let Some(position) = positions.get_mut(&(client, partition)) else {
            // A reader that never said where it began is judged from its first record on.
            let next = if is_end { offset } else { offset + 1 };
            positions.insert((client, partition), Position { next, since_us: event.time_us });
            continue;
        };
        let from = position.next;
        if offset < from && !is_end {
            let client = history.name(client).to_owned();
            report.add(Violation::Backwards { client, partition, from, to: offset });
        } else if offset > from {
            match placements.next_known(partition, from).filter(|known| *known < offset) {
                Some(skipped) => {
                    let client = history.name(client).to_owned();
                    report.add(Violation::Skipped { client, partition, from, to: offset, skipped });
                }
                None => {
                    gaps.insert((partition, from), offset);
                }
            }
        }
        if let EventKind::Polled { value, .. } = event.kind {
            let acknowledged = sent.get(value).map(|fate| fate.outcome);
            if let Some(Outcome::Acknowledged { time_us }) = acknowledged
                && time_us >= position.since_us
            {
                let lag = event.time_us.saturating_sub(time_us);
                report.read_lag_us_max = report.read_lag_us_max.max(lag);
            }
        }
        position.next = if is_end { offset.max(from) } else { offset + 1 };
    }
    for ((partition, from), to) in gaps {
        report.add(Violation::Gap { partition, from, to });
    }
}

fn why_phantom(sent: &Sent, partition: u16, value: u64, found: u64) -> Option<&'static str> {
    match sent.get(value) {
        None => Some("nobody sent this value"),
        Some(fate) if fate.partition != partition => Some("it was sent to another partition"),
        Some(_) if checksum(value, partition) != found => Some("its checksum is wrong"),
        Some(_) => None,
    }
}
