//! Whether the files of a log fit each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine_core::append_times::AppendTimes;
use log_engine_core::seal::{FileSum, Seal};
use log_engine_core::{EpochHistory, producer_snapshot};
use records::NO_TIMESTAMP;

use super::{Item, PRODUCERS_MAX, aborted, entries, small};
use crate::compact::{CLEANED_SUFFIX, SWAP_SUFFIX};
use crate::disk::{Disk, OpenMode};
use crate::error::FileError;
use crate::full_walk::walk_all;
use crate::index::{IndexEntry, TimeEntry};
use crate::recovery::{KAFKA_FILE, Replacement, judge_replacement};
use crate::scan::{Fault, HeaderScan};
use crate::scrub::{DAMAGED_FILE, difference};
use crate::segment::{file_name, parse_file_name};
use crate::{LogName, append_times, epoch_file, flushed_ends, poison, seal};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong, but a start will have something to do.
    Note,
    /// The file is wrong or missing; a start or the scrub builds it anew from the records.
    Rebuildable,
    /// Records are gone or wrong, or the data directory is not opened as it is.
    Damage,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub path: PathBuf,
    /// Where in the file, if that can be said.
    pub position: Option<u64>,
    pub reason: String,
}

/// What was looked at, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    pub segments: u64,
    pub sealed: u64,
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
    /// First offset of the first segment.
    pub start: i64,
    /// Offset after the last batch.
    pub end: i64,
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// How bad the worst finding is.
    pub fn severity(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Compares the end with the offset up to which the data directory knows the log to be on disk.
    pub fn check_flushed(&mut self, dir: &Path, flushed: i64) {
        if flushed > self.end {
            let reason = format!("the log was on disk up to offset {flushed} but ends at {}", self.end);
            self.find(Severity::Damage, dir.to_owned(), None, reason);
        }
    }

    fn find(&mut self, severity: Severity, path: PathBuf, position: Option<u64>, reason: impl Into<String>) {
        self.findings.push(Finding { severity, path, position, reason: reason.into() });
    }
}

/// Reads every file of a log's directory and compares them with each other.
pub fn verify_log(disk: &dyn Disk, dir: &Path) -> Result<Verdict, FileError> {
    let entries = disk.list(dir).map_err(|e| FileError::new("list", dir, e))?;
    let names: BTreeSet<String> = entries.iter().filter(|e| !e.is_dir).map(|e| e.name.clone()).collect();
    let mut verify = Verify {
        disk,
        dir,
        verdict: Verdict::default(),
        epochs: Vec::new(),
        swapped: names.iter().filter(|name| name.ends_with(SWAP_SUFFIX)).cloned().collect(),
        of_kafka: names.contains(KAFKA_FILE),
        settled_to: settled_to(disk, dir)?,
    };
    let (mut logs, mut decided) = (BTreeMap::new(), BTreeMap::new());
    for entry in entries.iter().filter(|entry| !entry.is_dir) {
        match parse_file_name(&entry.name) {
            Some((base, "log")) => _ = logs.insert(base, entry.len),
            Some((base, "log.swap")) => _ = decided.insert(base, entry.len),
            Some(_) | None => {}
        }
    }
    for (&base, &size) in &decided {
        let Some(end) = verify.end_of_replacement(base, size, &names)? else { continue };
        logs.retain(|&other, _| other <= base || other >= end);
        logs.insert(base, size);
    }
    let bases: Vec<i64> = logs.keys().copied().collect();
    verify.verdict.start = bases.first().copied().unwrap_or(0);
    for (i, &base) in bases.iter().enumerate() {
        let holds_more = bases[i + 1..].iter().any(|later| logs[later] > 0);
        verify.segment(base, logs[&base], bases.get(i + 1).copied(), holds_more)?;
    }
    for name in &names {
        verify.other_file(name, &logs)?;
    }
    verify.check_epochs()?;
    Ok(verify.verdict)
}

/// The segments that begin below were on disk, all of them, when their data directory last noted how far the log is.
fn settled_to(disk: &dyn Disk, dir: &Path) -> Result<Option<i64>, FileError> {
    let name = dir.file_name().and_then(|name| LogName::parse(name.to_str()?));
    let (Some(name), Some(above)) = (name, dir.parent()) else { return Ok(None) };
    let known = flushed_ends::read(disk, &above.join(flushed_ends::FILE_NAME))?;
    Ok(known.and_then(|known| known.ends.get(&name).map(|end| end.active_base)))
}

struct Verify<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    verdict: Verdict,
    /// Where the epoch changes from batch to batch.
    epochs: Vec<(i32, i64)>,
    /// Files of compacted segments that were about to take their place, as the next start will have it.
    swapped: BTreeSet<String>,
    /// Kafka has written the log, and no start has taken it over.
    of_kafka: bool,
    settled_to: Option<i64>,
}

/// What the batches of a segment say, for what else is said of them.
#[derive(Default)]
struct Batches {
    /// Position of the batch that ends at an offset.
    positions: HashMap<i64, u64>,
    /// Where the largest timestamp grows: the last offset of the batch, and the timestamp.
    maxima: Vec<(i64, i64)>,
    end: i64,
}

impl Verify<'_> {
    fn path(&self, base: i64, suffix: &str) -> PathBuf {
        let name = file_name(base, suffix);
        let swapped = format!("{name}{SWAP_SUFFIX}");
        match self.is_decided(base) && self.swapped.contains(&swapped) {
            true => self.dir.join(swapped),
            false => self.dir.join(name),
        }
    }

    /// Whether a compacted segment is whole and only its name is not yet the right one.
    fn is_decided(&self, base: i64) -> bool {
        self.swapped.contains(&format!("{}{SWAP_SUFFIX}", file_name(base, "log")))
    }

    /// Where a new segment ends that was decided upon; `None` if the next start does not put it in its place.
    fn end_of_replacement(
        &mut self,
        base: i64,
        size: u64,
        names: &BTreeSet<String>,
    ) -> Result<Option<i64>, FileError> {
        match judge_replacement(self.disk, self.dir, base, names, &mut |_| true)? {
            Some(Replacement::Whole { end }) => Ok(Some(end)),
            Some(Replacement::Needless { position, reason }) => {
                let reason = format!("a compacted segment that is damaged, and not needed: {reason}");
                self.verdict.find(Severity::Note, self.path(base, "log"), Some(position), reason);
                self.swapped.retain(|name| parse_file_name(name).is_none_or(|(other, _)| other != base));
                Ok(None)
            }
            Some(Replacement::Damaged { position, reason }) => {
                self.verdict.find(Severity::Damage, self.path(base, "log"), Some(position), reason);
                self.end_of_batches(base, size).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Where the whole batches of a segment end.
    fn end_of_batches(&self, base: i64, size: u64) -> Result<i64, FileError> {
        let path: Arc<Path> = self.path(base, "log").into();
        let file = self.disk.open(&path, OpenMode::Read).map_err(|e| FileError::new("open", &path, e))?;
        let mut scan = HeaderScan::new(file, &path, 0, size, base, false);
        let mut end = base;
        while let Ok(Some(found)) = scan.next() {
            end = found.header.last_offset() + 1;
        }
        Ok(end)
    }

    fn segment(
        &mut self,
        base: i64,
        size: u64,
        next_base: Option<i64>,
        holds_more: bool,
    ) -> Result<(), FileError> {
        let path: Arc<Path> = self.path(base, "log").into();
        let file = self.disk.open(&path, OpenMode::Read).map_err(|e| FileError::new("open", &path, e))?;
        let seal = self.seal(base)?;
        self.verdict.segments += 1;
        self.verdict.bytes += size;
        // Only the last segment may be torn, and that is for a start to cut.
        let severity = if next_base.is_none() { Severity::Note } else { Severity::Damage };
        let whole = match walk_all(&*file, &path, base, size, &mut |_| true) {
            Ok(walked) => {
                let walked = walked.unwrap_or_default();
                self.verdict.batches += walked.batches;
                self.verdict.records += walked.records;
                if let Some((position, reason)) =
                    seal.as_ref().and_then(|s| difference(s, size, &walked.pieces))
                {
                    self.verdict.find(Severity::Damage, path.to_path_buf(), Some(position), reason);
                }
                size
            }
            Err(Fault::Damaged { position, reason }) => {
                self.verdict.find(severity, path.to_path_buf(), Some(position), reason);
                position
            }
            Err(Fault::Io(error)) => {
                self.verdict.find(Severity::Damage, path.to_path_buf(), None, error.to_string());
                return Ok(());
            }
            Err(Fault::Cold) => return Err(FileError::new("read", &path, io::ErrorKind::WouldBlock.into())),
        };
        let batches = self.batches(&file, &path, base, whole);
        self.verdict.end = batches.end;
        if let Some(next) = next_base {
            self.check_joint(&path, (base, size), (batches.end, next), seal.as_ref(), holds_more);
        }
        let missing = seal.as_ref().map(|seal| seal.next_base).filter(|next| Some(*next) != next_base);
        if let Some(next) = missing {
            let missing = self.path(next, "log");
            self.verdict.find(
                Severity::Damage,
                missing,
                None,
                "the segment is missing: the one before names it",
            );
        }
        self.index(base, next_base.is_some(), &batches)?;
        self.time_index(base, next_base.is_some(), &batches)?;
        self.check_sums(base, seal.as_ref())
    }

    /// Whether a segment that ends at offset `end` may be followed by one that begins at `next`, by the rule of a start.
    fn check_joint(
        &mut self,
        path: &Path,
        (base, size): (i64, u64),
        (end, next): (i64, i64),
        seal: Option<&Seal>,
        holds_more: bool,
    ) {
        if end > next {
            let reason = format!("the segment reaches to offset {end}, into the next one at {next}");
            return self.verdict.find(Severity::Damage, path.to_owned(), None, reason);
        }
        // What compaction has written is durable before it takes its place, and only what is settled is compacted.
        let is_settled = self.of_kafka
            || self.is_decided(base)
            || match self.settled_to {
                Some(to) => next <= to,
                None => seal.is_some_and(|seal| seal.next_base == next && seal.length == size),
            };
        if end < next && !is_settled {
            let severity = if holds_more { Severity::Damage } else { Severity::Note };
            let reason = format!(
                "the segment ends at offset {end}, but the next one begins at {next}, and nothing says that it was \
                 compacted: a start does not take what follows"
            );
            self.verdict.find(severity, path.to_owned(), None, reason);
        }
    }

    fn seal(&mut self, base: i64) -> Result<Option<Seal>, FileError> {
        let path = self.path(base, seal::SUFFIX);
        if self.is_decided(base) {
            // It is that of the segment before, and goes.
            return Ok(None);
        }
        let bytes = match small(self.disk, &path) {
            Err(e) if e.source.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        match Seal::decode(&bytes, base) {
            Ok(seal) => {
                self.verdict.sealed += 1;
                Ok(Some(seal))
            }
            Err(error) => {
                self.verdict.find(Severity::Rebuildable, path, None, error.to_string());
                Ok(None)
            }
        }
    }

    fn batches(
        &mut self,
        file: &Arc<dyn crate::disk::DiskFile>,
        path: &Arc<Path>,
        base: i64,
        whole: u64,
    ) -> Batches {
        let mut batches = Batches { end: base, ..Batches::default() };
        let mut max = i64::MIN;
        let mut scan = HeaderScan::new(file.clone(), path, 0, whole, base, false);
        while let Ok(Some(found)) = scan.next() {
            let header = &found.header;
            batches.positions.insert(header.last_offset(), found.position);
            batches.end = header.last_offset() + 1;
            if header.newest_timestamp() > max {
                max = header.newest_timestamp();
                batches.maxima.push((header.last_offset(), max));
            }
            let epoch = header.partition_leader_epoch;
            if self.epochs.last().is_none_or(|(last, _)| *last != epoch) {
                self.epochs.push((epoch, header.base_offset));
            }
        }
        batches
    }

    /// The bytes of an index; a missing one is noted where the segment is finished.
    fn index_bytes(&mut self, path: &Path, finished: bool) -> Result<Option<Vec<u8>>, FileError> {
        match small(self.disk, path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.source.kind() == io::ErrorKind::NotFound => {
                if finished {
                    self.verdict.find(Severity::Rebuildable, path.to_owned(), None, "the index is missing");
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn index(&mut self, base: i64, finished: bool, batches: &Batches) -> Result<(), FileError> {
        let path = self.path(base, "index");
        let Some(bytes) = self.index_bytes(&path, finished)? else { return Ok(()) };
        let (mut at, mut last, mut wrong) = (0, i64::MIN, Vec::new());
        entries::<IndexEntry>(&bytes, base, &mut |entry| {
            match entry {
                Ok(entry) => {
                    let true_position = batches.positions.get(&entry.offset);
                    if entry.offset <= last || true_position != Some(&u64::from(entry.position)) {
                        let reason =
                            format!("no batch ends at {} and begins at {}", entry.offset, entry.position);
                        wrong.push((at, reason));
                    }
                    last = entry.offset;
                }
                Err(Item::Broken { position, reason }) => wrong.push((position, reason)),
                Err(_) => {}
            }
            at += 8;
        });
        self.note_wrong(&path, finished, wrong);
        Ok(())
    }

    fn time_index(&mut self, base: i64, finished: bool, batches: &Batches) -> Result<(), FileError> {
        let path = self.path(base, "timeindex");
        let Some(bytes) = self.index_bytes(&path, finished)? else { return Ok(()) };
        let (mut at, mut last, mut wrong) = (0, i64::MIN, Vec::new());
        entries::<TimeEntry>(&bytes, base, &mut |entry| {
            match entry {
                Ok(entry) => {
                    let upto = batches.maxima.partition_point(|(offset, _)| *offset <= entry.offset);
                    let max = upto.checked_sub(1).map_or(NO_TIMESTAMP, |i| batches.maxima[i].1);
                    if entry.timestamp < last || max != entry.timestamp {
                        let (said, offset) = (entry.timestamp, entry.offset);
                        wrong.push((
                            at,
                            format!("says {said} up to offset {offset}, where the largest is {max}"),
                        ));
                    }
                    last = entry.timestamp;
                }
                Err(Item::Broken { position, reason }) => wrong.push((position, reason)),
                Err(_) => {}
            }
            at += 12;
        });
        self.note_wrong(&path, finished, wrong);
        Ok(())
    }

    /// The first of what is wrong with an index; the last segment's may be ahead of what a crash left.
    fn note_wrong(&mut self, path: &Path, finished: bool, wrong: Vec<(u64, String)>) {
        let count = wrong.len();
        let Some((position, reason)) = wrong.into_iter().next() else { return };
        let severity = if finished { Severity::Rebuildable } else { Severity::Note };
        let reason = if count > 1 { format!("{reason}, and {} more", count - 1) } else { reason };
        self.verdict.find(severity, path.to_owned(), Some(position), reason);
    }

    fn check_sums(&mut self, base: i64, seal: Option<&Seal>) -> Result<(), FileError> {
        let Some(seal) = seal else { return Ok(()) };
        let sums = [("index", seal.index), ("timeindex", seal.time_index), ("txnindex", seal.txn_index)];
        for (suffix, sealed) in sums {
            let path = self.path(base, suffix);
            let found = match small(self.disk, &path) {
                Ok(bytes) => Some(FileSum::of(&bytes)),
                Err(e) if e.source.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(e),
            };
            // That of a compacted segment is made when somebody needs it.
            let came_later = suffix == "txnindex" && sealed.is_none();
            if found != sealed && !came_later {
                self.verdict.find(Severity::Rebuildable, path, None, "the file is not what was sealed");
            }
        }
        Ok(())
    }

    fn other_file(&mut self, name: &str, logs: &BTreeMap<i64, u64>) -> Result<(), FileError> {
        let path = self.dir.join(name);
        match (name, parse_file_name(name)) {
            (KAFKA_FILE, _) => {
                let reason =
                    "Kafka has written this log: the next start takes it over, and removes this file";
                self.verdict.find(Severity::Note, path, None, reason);
            }
            (poison::FILE_NAME, _) => {
                let reason = "a write or sync has failed: the next start copies what is whole";
                self.verdict.find(Severity::Note, path, None, reason);
            }
            (DAMAGED_FILE, _) => {
                let reason = String::from_utf8_lossy(&small(self.disk, &path)?).trim().replace('\n', ": ");
                self.verdict.find(
                    Severity::Note,
                    path,
                    None,
                    format!("found damaged before, segment {reason}"),
                );
            }
            (_, Some((_, "snapshot"))) => {
                if let Err(error) = producer_snapshot::decode(&small(self.disk, &path)?, PRODUCERS_MAX) {
                    self.verdict.find(Severity::Rebuildable, path, None, error.to_string());
                }
            }
            (_, Some((base, "txnindex"))) => {
                let mut broken = None;
                let end = logs.range(base + 1..).next().map_or(i64::MAX, |(next, _)| *next);
                aborted(&small(self.disk, &path)?, &mut |item| match item {
                    Item::Broken { position, reason } => broken = Some((position, reason)),
                    Item::Txn(txn)
                        if txn.version != 0
                            || txn.first_offset > txn.last_offset
                            || txn.last_offset >= end =>
                    {
                        broken.get_or_insert_with(|| (0, format!("{txn:?} cannot be")));
                    }
                    _ => {}
                });
                if let Some((position, reason)) = broken {
                    self.verdict.find(Severity::Rebuildable, path, Some(position), reason);
                }
            }
            (_, Some((base, append_times::SUFFIX))) => {
                let bytes = small(self.disk, &path)?;
                if let Err(error) = AppendTimes::decode(&bytes, base) {
                    self.verdict.find(Severity::Rebuildable, path, None, error.to_string());
                }
            }
            (_, Some((base, "index" | "timeindex" | seal::SUFFIX))) if !logs.contains_key(&base) => {
                self.verdict.find(Severity::Note, path, None, "its segment does not exist");
            }
            _ if name.ends_with(CLEANED_SUFFIX) || name.ends_with(SWAP_SUFFIX) => {
                let reason = "left by a compaction: the next start completes or removes it";
                self.verdict.find(Severity::Note, path, None, reason);
            }
            _ => {}
        }
        Ok(())
    }

    /// Every change of epoch among the batches must be in the checkpoint.
    fn check_epochs(&mut self) -> Result<(), FileError> {
        let path = self.dir.join(epoch_file::FILE_NAME);
        let text = match small(self.disk, &path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.source.kind() == io::ErrorKind::NotFound => {
                if self.verdict.batches > 0 {
                    self.verdict.find(Severity::Rebuildable, path, None, "the file is missing");
                }
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let history = match EpochHistory::decode(&text) {
            Ok(history) => history,
            Err(error) => {
                self.verdict.find(Severity::Rebuildable, path, None, error.to_string());
                return Ok(());
            }
        };
        // What lies before the log's start has no entry any more.
        let first = history.entries().first().map_or(i64::MAX, |entry| entry.start_offset);
        for (epoch, offset) in std::mem::take(&mut self.epochs) {
            let said = history.epoch_of(offset.max(first));
            if offset >= first && said != Some(epoch) {
                let reason = format!("it says epoch {said:?} of offset {offset}, whose batch says {epoch}");
                self.verdict.find(Severity::Rebuildable, path, None, reason);
                return Ok(());
            }
        }
        Ok(())
    }
}
