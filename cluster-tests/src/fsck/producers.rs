//! Idempotent producers: no sequence is there twice or missing, and producer snapshots equal what the batches give.

use std::collections::BTreeMap;

use super::batch::Batch;
use super::copy::PartitionCopy;
use super::scan::Scan;
use super::{Findings, ReadError, crc32c, read};

/// The newest batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Newest {
    epoch: i16,
    last_sequence: i32,
    last_offset: i64,
}

pub(super) fn check(copy: &PartitionCopy, findings: &mut Findings) -> Result<(), ReadError> {
    let mut producers: BTreeMap<i64, Newest> = BTreeMap::new();
    let mut batches = copy.batches.iter().peekable();
    for (offset, path) in copy.files("snapshot")? {
        while let Some(batch) = batches.next_if(|batch| batch.last < offset) {
            replay(&mut producers, batch, copy, findings);
        }
        findings.counts.producer_snapshots += 1;
        // Older producers may have expired, or have been forgotten with the segments that they wrote to.
        match parse(&read(&path)?) {
            None => findings.faults.push(format!("{}: producer snapshot {offset} is damaged", copy.label)),
            Some(named) => {
                for (id, newest) in named.iter().filter(|(_, newest)| newest.last_offset >= copy.start()) {
                    if producers.get(id) != Some(newest) {
                        findings.faults.push(format!(
                            "{}: producer snapshot {offset} says {newest:?} of producer {id}, the batches say {:?}",
                            copy.label,
                            producers.get(id)
                        ));
                    }
                }
                for (id, newest) in producers.iter().filter(|(id, _)| !named.contains_key(id)) {
                    findings.faults.push(format!(
                        "{}: producer snapshot {offset} lacks producer {id} with {newest:?}",
                        copy.label
                    ));
                }
            }
        }
    }
    for batch in batches {
        replay(&mut producers, batch, copy, findings);
    }
    Ok(())
}

fn replay(
    producers: &mut BTreeMap<i64, Newest>,
    batch: &Batch,
    copy: &PartitionCopy,
    findings: &mut Findings,
) {
    if batch.producer < 0 || batch.is_control() {
        return;
    }
    let expected = producers.get(&batch.producer).map(|newest| {
        if newest.epoch == batch.producer_epoch { newest.last_sequence.wrapping_add(1) & i32::MAX } else { 0 }
    });
    let backwards = producers.get(&batch.producer).is_some_and(|newest| newest.epoch > batch.producer_epoch);
    if backwards || expected.is_some_and(|expected| expected != batch.first_sequence) {
        findings.faults.push(format!(
            "{}: offset {}: sequence {} of producer {} in epoch {} follows {:?}",
            copy.label,
            batch.base,
            batch.first_sequence,
            batch.producer,
            batch.producer_epoch,
            producers.get(&batch.producer)
        ));
    }
    let last_sequence = batch.first_sequence.wrapping_add(batch.records - 1) & i32::MAX;
    let newest = Newest { epoch: batch.producer_epoch, last_sequence, last_offset: batch.last };
    producers.insert(batch.producer, newest);
}

/// Kafka's snapshot of version 1; what stands behind its entries is covered by its checksum.
fn parse(bytes: &[u8]) -> Option<BTreeMap<i64, Newest>> {
    let mut scan = Scan::new(bytes);
    let version = scan.i16()?;
    let crc = scan.u32()?;
    if version != 1 || crc32c(&[&bytes[6..]]) != crc {
        return None;
    }
    let mut producers = BTreeMap::new();
    for _ in 0..scan.i32()? {
        let id = scan.i64()?;
        let newest = Newest { epoch: scan.i16()?, last_sequence: scan.i32()?, last_offset: scan.i64()? };
        // Offset delta, timestamp, coordinator epoch, first offset of an open transaction.
        scan.take(4 + 8 + 4 + 8)?;
        if newest.last_offset >= 0 {
            producers.insert(id, newest);
        }
    }
    Some(producers)
}
