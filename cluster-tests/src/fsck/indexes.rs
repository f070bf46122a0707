//! Offset and time indexes against a scan of the batches. An index is sparse, so it need not name every batch; what it names
//! must be true.

use super::batch::Batch;
use super::copy::PartitionCopy;
use super::scan::Scan;
use super::{Findings, ReadError, read};

/// What an index file of a segment says.
struct Indexed<'a> {
    copy: &'a PartitionCopy,
    base: i64,
    /// The batches of the segment.
    batches: Vec<&'a Batch>,
}

impl Indexed<'_> {
    /// The batch of which `offset` is the last record.
    fn ending_at(&self, offset: i64) -> Option<&Batch> {
        let at = self.batches.partition_point(|batch| batch.last < offset);
        self.batches.get(at).copied().filter(|batch| batch.last == offset)
    }

    fn fault(&self, kind: &str, what: &str) -> String {
        format!("{}: {kind} of segment {}: {what}", self.copy.label, self.base)
    }
}

pub(super) fn check(copy: &PartitionCopy, findings: &mut Findings) -> Result<(), ReadError> {
    for (kind, entry_bytes, check) in [
        ("index", 8, offsets as fn(&Indexed<'_>, &[u8]) -> Result<(), String>),
        ("timeindex", 12, times as fn(&Indexed<'_>, &[u8]) -> Result<(), String>),
    ] {
        for (base, path) in copy.files(kind)? {
            let Some(segment) = copy.segments.iter().position(|segment| segment.base == base) else {
                findings.faults.push(format!("{}: {kind} of {base} without a segment", copy.label));
                continue;
            };
            let batches = copy.batches.iter().filter(|batch| batch.segment == segment).collect();
            let indexed = Indexed { copy, base, batches };
            let bytes = read(&path)?;
            findings.counts.index_entries += (bytes.len() / entry_bytes) as u64;
            if bytes.len() % entry_bytes != 0 {
                findings.faults.push(indexed.fault(kind, "it ends within an entry"));
            }
            if let Err(what) = check(&indexed, &bytes) {
                findings.faults.push(indexed.fault(kind, &what));
            }
        }
    }
    Ok(())
}

/// Entries (offset relative to the base, position): the batch that ends at the offset begins at the position.
fn offsets(indexed: &Indexed<'_>, bytes: &[u8]) -> Result<(), String> {
    let mut before = None;
    for entry in bytes.chunks_exact(8) {
        let mut scan = Scan::new(entry);
        let (Some(relative), Some(position)) = (scan.i32(), scan.u32()) else { continue };
        let offset = indexed.base + i64::from(relative);
        if before.is_some_and(|before| before >= (offset, position)) {
            return Err(format!("its entries do not rise at offset {offset}"));
        }
        before = Some((offset, position));
        let batch = indexed.ending_at(offset).ok_or_else(|| format!("no batch ends at offset {offset}"))?;
        if batch.position != position as usize {
            return Err(format!(
                "the batch that ends at offset {offset} begins at {}, not {position}",
                batch.position
            ));
        }
    }
    Ok(())
}

/// Entries (timestamp, offset relative to the base): the batch that ends at the offset has this largest timestamp, and no
/// earlier one has a larger.
fn times(indexed: &Indexed<'_>, bytes: &[u8]) -> Result<(), String> {
    let mut before: Option<(i64, i64)> = None;
    let mut largest = i64::MIN;
    let mut batches = indexed.batches.iter().peekable();
    for entry in bytes.chunks_exact(12) {
        let mut scan = Scan::new(entry);
        let (Some(timestamp), Some(relative)) = (scan.i64(), scan.i32()) else { continue };
        let offset = indexed.base + i64::from(relative);
        if before.is_some_and(|before| before.0 >= timestamp || before.1 >= offset) {
            return Err(format!("its entries do not rise at offset {offset}"));
        }
        before = Some((timestamp, offset));
        let batch = indexed.ending_at(offset).ok_or_else(|| format!("no batch ends at offset {offset}"))?;
        while let Some(batch) = batches.next_if(|batch| batch.last <= offset) {
            largest = largest.max(batch.max_timestamp);
        }
        if batch.max_timestamp != timestamp || largest > timestamp {
            return Err(format!("timestamp {timestamp} at offset {offset} is not the largest up to there"));
        }
    }
    Ok(())
}
