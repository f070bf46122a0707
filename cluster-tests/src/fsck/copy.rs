//! One node's copy of a partition: its segment files, all batches checked.

use std::path::{Path, PathBuf};

use proto_types::ids::{PartitionIndex, TopicId, TopicPartition};

use super::batch::Batch;
use super::{Findings, ReadError, list, read};

/// Whether offsets may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holes {
    None,
    /// Where compaction has dropped records.
    Allowed,
}

impl Holes {
    fn allow(self, expected: i64, found: i64) -> bool {
        match self {
            Holes::None => found == expected,
            Holes::Allowed => found >= expected,
        }
    }
}

/// A copy with everything in it.
#[derive(Debug)]
pub(super) struct PartitionCopy {
    pub(super) dir: PathBuf,
    /// For messages.
    pub(super) label: String,
    pub(super) segments: Vec<Segment>,
    pub(super) batches: Vec<Batch>,
}

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) base: i64,
    pub(super) bytes: Vec<u8>,
}

/// The folders of partitions in a data directory.
pub(crate) fn partition_dirs(dir: &Path) -> Result<Vec<(TopicPartition, PathBuf)>, ReadError> {
    let entries = list(dir)?.into_iter();
    Ok(entries.filter_map(|(name, path)| Some((parse_name(&name)?, path))).collect())
}

/// `<topic id>-<partition>`; the id may hold dashes itself.
fn parse_name(name: &str) -> Option<TopicPartition> {
    let (topic, partition) = name.rsplit_once('-')?;
    Some(TopicPartition {
        topic: TopicId::from_text(topic)?,
        partition: PartitionIndex(partition.parse().ok()?),
    })
}

/// Base offset from `<20 digits>.<extension>`.
pub(super) fn base_of(name: &str, extension: &str) -> Option<i64> {
    let stem = name.strip_suffix(extension)?.strip_suffix('.')?;
    if stem.len() == 20 { stem.parse().ok() } else { None }
}

impl PartitionCopy {
    /// Reads every segment. Offsets must be without holes, unless `holes` allows them; only behind the last batch of all may be something unfinished.
    pub(super) fn read(
        dir: &Path,
        label: &str,
        holes: Holes,
        findings: &mut Findings,
    ) -> Result<PartitionCopy, ReadError> {
        let mut copy = PartitionCopy {
            dir: dir.to_owned(),
            label: label.to_owned(),
            segments: Vec::new(),
            batches: Vec::new(),
        };
        findings.counts.copies += 1;
        let files: Vec<(i64, PathBuf)> =
            list(dir)?.into_iter().filter_map(|(name, path)| Some((base_of(&name, "log")?, path))).collect();
        for (at, (base, path)) in files.iter().enumerate() {
            let bytes = read(path)?;
            findings.counts.bytes += bytes.len() as u64;
            copy.segments.push(Segment { base: *base, bytes });
            copy.scan_segment(at + 1 == files.len(), holes, findings);
        }
        findings.counts.batches += copy.batches.len() as u64;
        Ok(copy)
    }

    fn scan_segment(&mut self, newest: bool, holes: Holes, findings: &mut Findings) {
        let index = self.segments.len() - 1;
        let Segment { base, bytes } = &self.segments[index];
        let mut position = 0;
        let mut expected = self.batches.last().map(|batch| batch.last + 1);
        if expected.is_some_and(|expected| !holes.allow(expected, *base)) {
            let was = expected.unwrap_or_default();
            findings.faults.push(format!("{}: segment {base} follows the end {was}", self.label));
        }
        while position < bytes.len() {
            match Batch::parse(bytes, index, position) {
                Ok(batch) => {
                    if !holes.allow(expected.unwrap_or(*base), batch.base) {
                        findings.faults.push(format!(
                            "{}: offset {} follows {}",
                            self.label,
                            batch.base,
                            expected.unwrap_or(*base)
                        ));
                    }
                    expected = Some(batch.last + 1);
                    position += batch.size;
                    self.batches.push(batch);
                }
                Err(why) => {
                    let what =
                        format!("{}: segment {base}, byte {position} of {}: {why}", self.label, bytes.len());
                    if newest && why == "it is cut off" {
                        findings.notes.push(what);
                    } else {
                        findings.faults.push(what);
                    }
                    return;
                }
            }
        }
    }

    /// The first offset.
    pub(super) fn start(&self) -> i64 {
        self.segments.first().map_or(0, |segment| segment.base)
    }

    /// The offset after the last.
    pub(super) fn end(&self) -> i64 {
        match self.batches.last() {
            Some(batch) => batch.last + 1,
            None => self.segments.last().map_or(0, |segment| segment.base),
        }
    }

    /// The bytes of a batch.
    pub(super) fn bytes(&self, batch: &Batch) -> &[u8] {
        let bytes = &self.segments[batch.segment].bytes;
        bytes.get(batch.position..batch.position + batch.size).unwrap_or_default()
    }

    /// Files of this kind with the base offset in their name.
    pub(super) fn files(&self, extension: &str) -> Result<Vec<(i64, PathBuf)>, ReadError> {
        let entries = list(&self.dir)?.into_iter();
        Ok(entries.filter_map(|(name, path)| Some((base_of(&name, extension)?, path))).collect())
    }
}
