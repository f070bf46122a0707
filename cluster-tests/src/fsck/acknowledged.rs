//! Every acknowledged record of a history stands in a copy at the offset that its producer was told.

use std::collections::BTreeMap;

use super::Findings;
use super::batch::Record;
use super::copy::PartitionCopy;
use crate::history::{EventKind, History, checksum, parse_payload};

/// Faults of one copy that are told one by one.
const TOLD_MAX: usize = 10;

pub(super) fn check(copy: &PartitionCopy, partition: i32, history: &History, findings: &mut Findings) {
    let Ok(partition) = u16::try_from(partition) else { return };
    let mut promised: BTreeMap<i64, u64> = history
        .events
        .iter()
        .filter(|event| event.partition == partition)
        .filter_map(|event| match event.kind {
            EventKind::Acknowledged { value, offset } => Some((offset, value)),
            EventKind::Send { .. }
            | EventKind::AcknowledgedSomewhere { .. }
            | EventKind::Refused { .. }
            | EventKind::Unknown { .. }
            | EventKind::Assigned { .. }
            | EventKind::Polled { .. }
            | EventKind::Malformed { .. }
            | EventKind::End { .. }
            | EventKind::Closed => None,
        })
        .collect();
    findings.counts.acknowledged_records += promised.len() as u64;
    let mut wrong = Vec::new();
    for batch in copy.batches.iter().filter(|batch| !batch.is_control()) {
        if batch.is_compressed() {
            wrong.push(format!(
                "offset {}: a compressed batch, which no client of the run writes",
                batch.base
            ));
            continue;
        }
        let bytes = &copy.segments[batch.segment].bytes;
        let whole = batch.for_each_record(bytes, |Record { offset, value, .. }| {
            let found = value.and_then(parse_payload);
            if let Some(value) = promised.remove(&offset)
                && found != Some((value, checksum(value, partition)))
            {
                wrong.push(format!("offset {offset} holds {found:?} instead of the acknowledged {value}"));
            }
        });
        if !whole {
            wrong.push(format!("offset {}: the records of the batch cannot be read", batch.base));
        }
    }
    let lacks =
        promised.iter().map(|(offset, value)| format!("lacks the acknowledged {value} at offset {offset}"));
    wrong.extend(lacks);
    let more = wrong.len().saturating_sub(TOLD_MAX);
    findings.faults.extend(wrong.into_iter().take(TOLD_MAX).map(|what| format!("{}: {what}", copy.label)));
    if more > 0 {
        findings.faults.push(format!("{}: {more} more of this kind", copy.label));
    }
}
