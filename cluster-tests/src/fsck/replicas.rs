//! Copies of one partition against each other: where two have a batch with the same offset and leader epoch, they are the same
//! bytes from there down.

use super::Findings;
use super::batch::Batch;
use super::copy::PartitionCopy;

/// Compares each copy with each other one. `settled`: the cluster had time to come to rest, so all must be equal to the end.
pub(super) fn compare(copies: &[&PartitionCopy], settled: bool, findings: &mut Findings) {
    for (at, one) in copies.iter().enumerate() {
        for other in &copies[at + 1..] {
            pair(one, other, settled, findings);
        }
    }
}

fn pair(one: &PartitionCopy, other: &PartitionCopy, settled: bool, findings: &mut Findings) {
    let labels = format!("{} and {}", one.label, other.label);
    if settled && one.end() != other.end() {
        findings.faults.push(format!("{labels} end at {} and {}", one.end(), other.end()));
    }
    let start = one.start().max(other.start());
    let (ours, theirs) = (from(&one.batches, start), from(&other.batches, start));
    // The last batch on which both agree; below it nothing may differ.
    let agreed = last_agreement(ours, theirs);
    if let Some(agreed) = agreed {
        identical(one, other, up_to(ours, agreed), up_to(theirs, agreed), &labels, findings);
    }
    let parted = agreed.map_or(start, |batch| batch.last + 1);
    if parted < one.end().min(other.end()) {
        let what = format!("{labels} part at offset {parted} and end at {} and {}", one.end(), other.end());
        if settled {
            findings.faults.push(what);
        } else {
            findings.notes.push(what);
        }
    }
}

fn from(batches: &[Batch], start: i64) -> &[Batch] {
    &batches[batches.partition_point(|batch| batch.base < start)..]
}

fn up_to(batches: &[Batch], last: Batch) -> &[Batch] {
    &batches[..batches.partition_point(|batch| batch.base <= last.base)]
}

/// The newest batch of `ours` that has its like (offset and epoch) in `theirs`.
fn last_agreement(ours: &[Batch], theirs: &[Batch]) -> Option<Batch> {
    ours.iter().rev().copied().find(|batch| {
        let at = theirs.partition_point(|other| other.base < batch.base);
        theirs.get(at).is_some_and(|other| other.base == batch.base && other.epoch == batch.epoch)
    })
}

fn identical(
    one: &PartitionCopy,
    other: &PartitionCopy,
    ours: &[Batch],
    theirs: &[Batch],
    labels: &str,
    findings: &mut Findings,
) {
    for (mine, yours) in ours.iter().zip(theirs) {
        let same_place = (mine.base, mine.last, mine.epoch) == (yours.base, yours.last, yours.epoch);
        if !same_place || one.bytes(mine) != other.bytes(yours) {
            findings.faults.push(format!(
                "{labels} differ below a batch on which they agree: offsets {}..={} of epoch {} against {}..={} of epoch {}",
                mine.base, mine.last, mine.epoch, yours.base, yours.last, yours.epoch
            ));
            return;
        }
        findings.counts.bytes_compared += mine.size as u64;
    }
    if ours.len() != theirs.len() {
        findings.faults.push(format!(
            "{labels} have {} and {} batches up to the same one",
            ours.len(),
            theirs.len()
        ));
    }
}
