//! Compaction of one log: the part that reads and writes much, on a thread that may wait, beside the log's owner.
//!
//! [`Log::begin_compaction`] hands out what a pass needs to know, taken at one instant; [`Compaction`] reads the segments,
//! builds the map of keys and writes new segments under names that end in `.cleaned`; the owner puts each in the place of
//! those that it was made of ([`Log::install`]), or throws it away if the log was cut or deleted meanwhile. Rules:
//! `log_engine_core::compact`.
//!
//! ```text
//! .log.cleaned, side files → sync → side files .swap → sync directory                   beside the owner
//! .log.cleaned → .log.swap → sync directory      from here on a start completes it       the owner
//! old seal and segments put aside, side files under their names → sync directory → .log.swap → .log
//! ```
//!
//! Side files are the indexes and the append times; a new segment gets a seal of its own when it is in place.
//! Readers that hold an old segment's file go on with it; those that come later find the new one. How far passes have come is
//! kept for all logs of a directory in `cleaner-offset-checkpoint`.

pub(crate) mod cleaned_ends;
mod dropped;
mod install;
mod source;
mod target;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use log_engine_core::compact::{
    AbortedRanges, Carried, Cleaned, Cleaning, CleaningRules, CompactionPolicy, Dirtiness, GroupLimits,
    KeyHash, KeyMap, Mapping, SegmentFacts, groups, last_batches, look,
};

use crate::append_times;
use crate::data_dir::DataDir;
use crate::error::CompactionError;
use crate::flushed_ends::KnownEnd;
use crate::log::Log;
use crate::reader::{LogReader, Shared};
use crate::scan::Fault;
use crate::segment::Segment;
pub use install::Installed;
use source::Source;
pub use target::CompactedSegment;
use target::Target;
pub(crate) use target::{CLEANED_SUFFIX, SIDE_SUFFIXES, SWAP_SUFFIX};

/// Segments that become one at most: so many old files are put aside at once, while the log's owner waits.
const SOURCES_MAX: usize = 64;
/// The share of the memory for the map that aborted transactions may take; one in so many parts.
const ABORTED_SHARE: usize = 8;

/// What a pass is asked to do.
#[derive(Debug, Clone, Copy)]
pub struct CompactionRequest {
    /// Nothing at or above it is touched: the lesser of high watermark and last stable offset.
    pub bound: i64,
    /// What was found due.
    pub dirtiness: Dirtiness,
    /// Broker time, milliseconds; `None` if the clock is not believed: then nothing goes by its age.
    pub now_ms: Option<i64>,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// Tombstones and markers at or above stay: somebody is about to copy them. `i64::MAX` if nobody is.
    pub keep_from: i64,
    /// Memory for the map of keys, bytes, an eighth of which aborted transactions may take.
    pub map_bytes_max: usize,
}

/// Slows a pass down, and stops it.
pub trait Pace {
    /// So many bytes are about to be read or were written. Returns when the pass may go on, `false` if it must stop.
    fn spend(&mut self, bytes: u64) -> bool;

    /// Whether a new segment of so many bytes may be written. If not, the pass ends before it.
    fn has_room(&mut self, bytes: u64) -> bool;

    /// Broker time, milliseconds, if the clock is believed. Delete horizons count from it.
    fn now_ms(&mut self) -> Option<i64>;
}

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionCounts {
    /// Bytes of segments that were read to be written anew.
    pub bytes_in: u64,
    /// Bytes of the new segments.
    pub bytes_out: u64,
    /// Bytes that were read for the map.
    pub bytes_mapped: u64,
    /// Keys in the map.
    pub keys: u64,
    /// Batches that cannot be unpacked though their checksums are right. They stay.
    pub opaque_batches: u64,
}

/// A pass over one log.
pub struct Compaction {
    data: DataDir,
    dir: PathBuf,
    shared: Arc<Shared>,
    cuts: u64,
    /// All segments at the beginning.
    all: Arc<Vec<Arc<Segment>>>,
    /// Which of them may be rewritten.
    sources: Vec<SegmentFacts>,
    /// Runs of them that become one segment each; empty before [`prepare`](Self::prepare).
    groups: VecDeque<Range<usize>>,
    /// The run that was handed out last.
    handed_out: Range<usize>,
    group_limits: GroupLimits,
    map_bytes_max: usize,
    index_interval_bytes: u64,
    /// Stands in for append times of which nothing is known.
    opened_ms: i64,
    rules: CleaningRules,
    /// What drops something counts as dropped up to here at least.
    dropped_to_least: i64,
    mapping: Mapping,
    /// Two secrets, which together make a hash of 128 bits.
    hashers: [RandomState; 2],
    carried: Carried,
    counts: CompactionCounts,
}

impl Log {
    /// Takes what a pass needs to know. `None` if there is nothing to do, any more. Does not wait for the device.
    pub fn begin_compaction(&self, request: &CompactionRequest) -> Option<Compaction> {
        if self.poisoned.is_some() {
            return None;
        }
        let all = self.shared.segments();
        let facts = settled(&self.data, &self.shared, &all);
        // Who looked has waited for timestamps, and the log has gone on.
        let bound = request.bound.min(request.dirtiness.until);
        let bound = if cfg!(weir_planted_bug = "B15") { request.dirtiness.until } else { bound };
        let policy = CompactionPolicy { min_dirty_ratio: 0.0, min_lag_ms: 0, max_lag_ms: i64::MAX };
        let cleaned_to = self.data.cleaned().get(self.name);
        let found = look(&facts, cleaned_to, (bound, self.end()), request.now_ms, &policy);
        let sources: Vec<SegmentFacts> =
            facts.into_iter().take(found.segments).take_while(|s| s.end <= bound).collect();
        let until = sources.last()?.end;
        if until <= found.from {
            return None;
        }
        let (keep_from, dropped_to_least) = self.rise_of_dropped(request);
        Some(Compaction {
            data: self.data.clone(),
            dir: self.dir.clone(),
            shared: self.shared.clone(),
            cuts: self.shared.cuts(),
            all,
            sources,
            groups: VecDeque::new(),
            handed_out: 0..0,
            group_limits: GroupLimits { segment_bytes: self.config.segment_bytes, segments_max: SOURCES_MAX },
            map_bytes_max: request.map_bytes_max,
            index_interval_bytes: self.config.index_interval_bytes,
            opened_ms: self.opened_ms,
            rules: CleaningRules {
                now_ms: request.now_ms,
                delete_retention_ms: request.delete_retention_ms,
                unpacked_bytes_max: self.config.unpacked_batch_bytes_max,
                last_batches: last_batches(&self.producers),
                aborted: AbortedRanges::default(),
                keep_from,
            },
            dropped_to_least,
            mapping: Mapping::new(KeyMap::default(), found.from),
            hashers: [RandomState::new(), RandomState::new()],
            carried: Carried::default(),
            counts: CompactionCounts::default(),
        })
    }
}

impl LogReader {
    /// What a pass would have to do now; without a time no lag counts as passed. Waits for the device if the policy has lags
    /// and a segment is new to it. `data` is the log's directory.
    pub fn dirtiness(
        &self,
        data: &DataDir,
        bound: i64,
        now_ms: Option<i64>,
        policy: &CompactionPolicy,
    ) -> Dirtiness {
        let shared = self.shared();
        let segments = shared.segments();
        let mut facts = settled(data, shared, &segments);
        let cleaned_to = data.cleaned().get(shared.name);
        let clean = cleaned_to.filter(|&to| to <= self.end()).unwrap_or(i64::MIN);
        let dirty = facts.partition_point(|fact| fact.end <= clean);
        for at in dirty..facts.len() {
            let Err(fault) = add_times(&mut facts[at], &segments[at], policy) else { continue };
            // How young it is nobody can tell, so it waits, and all behind it.
            facts.truncate(at);
            if Arc::ptr_eq(&segments, &shared.segments()) {
                let error = fault.into_read_error(segments[at].log().path());
                tracing::warn!(log = %shared.name, %error, "compaction goes no further than a segment that cannot be read");
            }
            break;
        }
        look(&facts, cleaned_to, (bound, self.end()), now_ms, policy)
    }
}

/// Looks up what the policy's lags need to know of a segment.
fn add_times(fact: &mut SegmentFacts, segment: &Segment, policy: &CompactionPolicy) -> Result<(), Fault> {
    if policy.min_lag_ms > 0 {
        fact.max_timestamp = segment.max_timestamp()?.map(|max| max.timestamp);
    }
    if policy.max_lag_ms < i64::MAX {
        fact.first_timestamp = segment.first_timestamp()?;
    }
    Ok(())
}

/// Facts of the segments, oldest first, that take no appends any more and are on disk, as even the record of flushed ends says.
fn settled(data: &DataDir, shared: &Shared, segments: &[Arc<Segment>]) -> Vec<SegmentFacts> {
    let KnownEnd::Known(known) = data.ends().get(shared.name) else { return Vec::new() };
    let pairs = segments.iter().zip(segments.iter().skip(1));
    let settled = pairs.take_while(|(_, next)| next.base_offset() <= known.active_base);
    let facts = settled.map(|(segment, _)| {
        let state = segment.state().read();
        SegmentFacts {
            base_offset: segment.base_offset(),
            end: state.next_offset,
            bytes: state.size,
            max_timestamp: None,
            first_timestamp: None,
        }
    });
    facts.collect()
}

impl std::fmt::Debug for Compaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compaction({})", self.shared.name)
    }
}

impl Compaction {
    /// Makes durable what a pass rests on, finds aborted transactions, and builds the map. Answers where the pass ends.
    pub fn prepare(&mut self, pace: &mut dyn Pace) -> Result<i64, CompactionError> {
        let prepared = self.try_prepare(pace);
        prepared.map_err(|error| self.unless_changed(error))?;
        self.counts.keys = self.mapping.map().len() as u64;
        let end = self.mapping.end();
        let whole = self.sources.partition_point(|s| s.end <= end);
        let mut runs = groups(&self.sources[..whole], &self.group_limits);
        // One that the map reaches only in part may hold aborted data still: its transaction index must not become another's.
        runs.extend(self.sources.get(whole).filter(|s| s.base_offset < end).map(|_| whole..whole + 1));
        self.groups = runs.into();
        Ok(end)
    }

    fn try_prepare(&mut self, pace: &mut dyn Pace) -> Result<(), CompactionError> {
        self.check_room(0..1, pace)?;
        // After a crash only that record tells which segments are whole.
        self.data.checkpoint()?;
        let (from, until) = (self.mapping.end(), self.sources[self.sources.len() - 1].end);
        // Earlier passes have dropped what was aborted before.
        let reader = LogReader::new(self.shared.clone());
        self.rules.aborted = reader.aborted_for_pass((from, until), self.map_bytes_max / ABORTED_SHARE)?;
        let bytes = self.map_bytes_max.saturating_sub(self.rules.aborted.bytes());
        let map = KeyMap::new(bytes, (until - from).unsigned_abs())
            .map_err(|_| CompactionError::OutOfMemory { bytes })?;
        self.mapping = Mapping::new(map, from);
        let dirty = self.sources.partition_point(|s| s.end <= from);
        for at in dirty..self.sources.len() {
            match self.map_source(at, pace) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // Its records are gone, and those before it: nobody asks for their keys.
                Err(error) if self.may_go_on(&error, at) => {}
                Err(error) => return Err(error),
            }
            self.mapping.reach(self.sources[at].end);
        }
        Ok(())
    }

    /// Puts the keys of a segment into the map; `false` if it is full.
    fn map_source(&mut self, at: usize, pace: &mut dyn Pace) -> Result<bool, CompactionError> {
        let mut source = self.open_source(at, pace)?;
        let mut has_room = true;
        while has_room && source.advance(pace)? {
            let batch = source.batch()?;
            let (aborted, hashers) = (&self.rules.aborted, &self.hashers);
            let hash = |key: &[u8]| hash(hashers, key);
            has_room = self.mapping.take(&batch, self.rules.unpacked_bytes_max, aborted, hash);
        }
        self.counts.bytes_mapped += source.bytes_read();
        Ok(has_room)
    }

    fn open_source(&self, at: usize, pace: &mut dyn Pace) -> Result<Source, CompactionError> {
        Source::open(&self.data, &self.dir, (&self.shared, &self.all[at]), &self.sources[at], pace)
    }

    /// A new segment takes about as much room as its sources at most, before they go.
    fn check_room(&self, group: Range<usize>, pace: &mut dyn Pace) -> Result<(), CompactionError> {
        let bytes = self.sources[group].iter().map(|source| source.bytes).sum();
        if pace.has_room(bytes) { Ok(()) } else { Err(CompactionError::NoRoom { bytes }) }
    }

    /// Writes the next new segment, ready for [`Log::install`]; `None` after the last. Segments of which everything stays are
    /// left as they are, and so is what was removed at the log's start meanwhile.
    pub fn next_segment(&mut self, pace: &mut dyn Pace) -> Result<Option<CompactedSegment>, CompactionError> {
        self.take_back();
        while let Some(group) = self.next_group() {
            self.check_room(group.clone(), pace)?;
            let mut target = None;
            match self.clean(group.clone(), pace, &mut target) {
                Ok(Some(segment)) => {
                    self.handed_out = group;
                    return Ok(Some(segment));
                }
                Ok(None) => {}
                Err(error) => {
                    if let Some(target) = target {
                        target.remove();
                    }
                    if !self.may_go_on(&error, group.start) {
                        return Err(self.unless_changed(error));
                    }
                    self.groups.push_front(group);
                }
            }
        }
        Ok(None)
    }

    /// If the start of the log has moved into the segments that were handed out last, before they were replaced, those that
    /// are left are done again.
    fn take_back(&mut self) {
        let group = std::mem::replace(&mut self.handed_out, 0..0);
        let now = self.shared.segments();
        let is_there = |at: usize| now.iter().any(|segment| Arc::ptr_eq(segment, &self.all[at]));
        if !is_there(group.start) && group.clone().any(is_there) {
            self.groups.push_front(group);
        }
    }

    /// The next run of segments, without those that are gone.
    fn next_group(&mut self) -> Option<Range<usize>> {
        while let Some(group) = self.groups.pop_front() {
            let gone = self.gone();
            if gone <= group.start {
                return Some(group);
            }
            // So are all batches before them.
            self.carried = Carried::default();
            if gone < group.end {
                return Some(gone..group.end);
            }
        }
        None
    }

    /// How many of the sources were removed at the start of the log.
    fn gone(&self) -> usize {
        let first = self.shared.segments().first().map_or(i64::MAX, |segment| segment.base_offset());
        self.sources.partition_point(|source| source.base_offset < first)
    }

    /// Whether an error in the source comes of its being removed at the start of the log.
    fn may_go_on(&self, error: &CompactionError, at: usize) -> bool {
        !matches!(error, CompactionError::Stopped) && self.cuts == self.shared.cuts() && at < self.gone()
    }

    fn clean(
        &mut self,
        group: Range<usize>,
        pace: &mut dyn Pace,
        slot: &mut Option<Target>,
    ) -> Result<Option<CompactedSegment>, CompactionError> {
        let Some(last) = group.clone().rev().find(|&at| self.sources[at].bytes > 0) else { return Ok(None) };
        let base = self.sources[group.start].base_offset;
        let target = slot.insert(Target::create(&self.data, &self.dir, base, self.index_interval_bytes)?);
        let mut cleaning = Cleaning::resume(&self.rules, &self.mapping, std::mem::take(&mut self.carried));
        let mut same = group.len() == 1;
        for at in group.clone() {
            let mut source = self.open_source(at, pace)?;
            while source.advance(pace)? {
                let batch = source.batch()?;
                let closes = at == last && source.is_last();
                let hashers = &self.hashers;
                cleaning.set_time(pace.now_ms());
                let cleaned = cleaning.take(&batch, closes, |key| hash(hashers, key), target.buffer());
                same &= matches!(cleaned, Cleaned::Same | Cleaned::Opaque(_));
                match cleaned {
                    Cleaned::Dropped => {}
                    Cleaned::Same | Cleaned::Changed => target.appended(pace)?,
                    Cleaned::Opaque(error) => {
                        source.warn_opaque(&error, &mut self.counts.opaque_batches);
                        target.appended(pace)?;
                    }
                }
            }
            self.counts.bytes_in += source.bytes_read();
        }
        let dropped_to = Some(cleaning.dropped_to()).filter(|&to| to >= 0);
        let dropped_to = dropped_to.map_or(-1, |to| to.max(self.dropped_to_least));
        self.carried = cleaning.suspend();
        if same {
            self.counts.bytes_out += self.sources[group.start].bytes;
            if let Some(target) = slot.take() {
                target.remove();
            }
            return Ok(None);
        }
        let sources: Vec<(Arc<Segment>, u64)> =
            group.clone().map(|at| (self.all[at].clone(), self.sources[at].bytes)).collect();
        let next_offset = self.sources[group.end - 1].end;
        let extents = self.sources[group].iter().map(|source| (source.base_offset, source.end));
        let times = append_times::load_all(&**self.data.disk(), &self.dir, extents, self.opened_ms);
        target.complete(next_offset, &times, pace)?;
        self.counts.bytes_out += target.size();
        if dropped_to >= 0 {
            self.note_dropped(dropped_to)?;
        }
        let Some(target) = slot.take() else { return Ok(None) };
        Ok(Some(CompactedSegment {
            target,
            sources,
            shared: self.shared.clone(),
            dropped_to,
            cuts: self.cuts,
        }))
    }

    /// From before the replacement on, whoever has copied less than that must be found out.
    fn note_dropped(&self, to: i64) -> Result<(), CompactionError> {
        let dropped = self.data.dropped();
        if !dropped.raise_if(self.shared.name, to, || self.shared.cuts() == self.cuts) {
            return Err(CompactionError::Changed);
        }
        Ok(dropped.write()?)
    }

    /// Whatever went wrong in a log that was cut meanwhile may have come from that.
    fn unless_changed(&self, error: CompactionError) -> CompactionError {
        match error {
            CompactionError::Stopped => error,
            _ if self.cuts != self.shared.cuts() => CompactionError::Changed,
            error => error,
        }
    }

    /// What was done so far.
    pub fn counts(&self) -> CompactionCounts {
        self.counts
    }

    /// What to tell the owner after the last segment ([`Log::finish_compaction`]).
    pub fn finished(&self) -> FinishedCompaction {
        FinishedCompaction { shared: self.shared.clone(), cuts: self.cuts, end: self.mapping.end() }
    }

    /// Makes durable how far the logs of the directory are clean. A crash before only repeats work.
    pub fn save_progress(&self) -> Result<(), CompactionError> {
        Ok(self.data.cleaned().write()?)
    }
}

/// A pass that came to its end.
#[derive(Clone)]
pub struct FinishedCompaction {
    /// Of the log that it went over: another may have its name since.
    pub(crate) shared: Arc<Shared>,
    pub(crate) cuts: u64,
    pub(crate) end: i64,
}

impl std::fmt::Debug for FinishedCompaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FinishedCompaction({} to {})", self.shared.name, self.end)
    }
}

fn hash(hashers: &[RandomState; 2], key: &[u8]) -> KeyHash {
    let [low, high] = hashers.each_ref().map(|hasher| u128::from(hasher.hash_one(key)));
    KeyHash(high << 64 | low)
}
