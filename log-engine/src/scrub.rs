//! Looking at what lies on the disk before somebody needs it: segments are read from end to end, and those that are
//! finished are compared with their seals.
//!
//! A finished segment without a seal gets one. Of one that takes appends every batch is checked by its own checksum.
//! Indexes that are not what was sealed are built anew, and so is the producer snapshot at a segment's end. Damage to records cannot be mended here: the caller takes the
//! copy offline, and [`WrittenSegment::mark_damaged`] leaves a mark that keeps it offline over restarts until the segment
//! is whole again or the copy was replaced.

mod producers;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use log_engine_core::seal::{FileSum, PIECE_BYTES, Seal};

use crate::LogName;
use crate::data_dir::{DataDir, read_file, write_file};
use crate::disk::Disk;
use crate::error::{FileError, ReadError};
use crate::full_walk::Pace;
use crate::index::SparseIndex;
use crate::reader::{LogReader, Shared};
use crate::scan::{Fault, HeaderScan};
use crate::seal::{self, Finished, Found, INDEX_BYTES_MAX, Sealing, dir_of, seal_segment, walk_segment};
use crate::segment::{Segment, file_name};

/// The mark of a log of which a segment is damaged: its base offset, then what was found.
pub(crate) const DAMAGED_FILE: &str = "damaged";
/// A mark is a short sentence.
const MARK_BYTES_MAX: u64 = 64 << 10;

/// A segment as it was when somebody asked: finished, or still taking appends.
#[derive(Clone)]
pub struct WrittenSegment(pub(crate) Finished);

/// What came of a look at a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrubbed {
    /// All is as it was written, and sealed if it was.
    Sound,
    /// It had no seal, is whole, and has one now.
    Sealed,
    /// Its records are whole; its indexes were not and are again.
    IndexesRebuilt,
    /// Its records and indexes are whole; the producer snapshot at its end was not and is again.
    SnapshotRebuilt,
    /// The segment was cut, replaced or removed meanwhile.
    Gone,
    /// The pace ended it.
    Stopped,
}

impl LogReader {
    /// All segments, oldest first; the last one takes appends.
    pub fn written_segments(&self) -> Vec<WrittenSegment> {
        let shared = self.shared();
        let written = |segment: &Arc<Segment>| {
            WrittenSegment(Finished { shared: shared.clone(), segment: segment.clone() })
        };
        shared.segments().iter().map(written).collect()
    }

    /// Damage was met in this log by somebody who reads it otherwise: the bad bytes may be in memory now, so no read without a
    /// check gets them.
    pub fn distrust(&self) {
        self.shared.met_damage.store(true, Ordering::Release);
    }
}

impl WrittenSegment {
    pub fn log(&self) -> LogName {
        self.0.shared.name
    }

    pub fn base_offset(&self) -> i64 {
        self.0.segment.base_offset()
    }

    /// Reads all of it. `index_interval_bytes` is for indexes that must be built anew. `pace` is told of bytes before
    /// they are read, waits as long as it likes, and ends the walk by `false`.
    pub fn scrub(
        &self,
        data: &DataDir,
        index_interval_bytes: u64,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Scrubbed, ReadError> {
        let Finished { shared, segment } = &self.0;
        let generation = *shared.seal_gate.lock();
        let scrubbed = scrub(data, shared, segment, index_interval_bytes, pace);
        match scrubbed {
            Err(_) if *shared.seal_gate.lock() != generation || !shared.has(segment) => Ok(Scrubbed::Gone),
            scrubbed => scrubbed.map_err(|fault| fault.into_read_error(segment.log().path())),
        }
    }

    /// Leaves a mark beside the segment: the log is not opened as long as the segment is not whole. Answers whether it is
    /// still there to be marked.
    pub fn mark_damaged(&self, data: &DataDir, reason: &str) -> Result<bool, FileError> {
        let Finished { shared, segment } = &self.0;
        let _gate = shared.seal_gate.lock();
        if !shared.has(segment) {
            return Ok(false);
        }
        let text = format!("{}\n{reason}\n", segment.base_offset());
        write_file(&**data.disk(), dir_of(segment), DAMAGED_FILE, text.as_bytes())?;
        Ok(true)
    }
}

fn scrub(
    data: &DataDir,
    shared: &Arc<Shared>,
    segment: &Arc<Segment>,
    index_interval_bytes: u64,
    pace: Pace<'_>,
) -> Result<Scrubbed, Fault> {
    producers::forget_unreadable_at_start(&**data.disk(), shared, segment);
    let Some(next_base) = shared.base_after(segment) else {
        return scrub_unfinished(shared, segment, pace);
    };
    // What was damaged would tell lies of producers too.
    match scrub_finished(data, shared, (segment, next_base), index_interval_bytes, pace)? {
        scrubbed @ (Scrubbed::Gone | Scrubbed::Stopped) => Ok(scrubbed),
        scrubbed @ (Scrubbed::Sound
        | Scrubbed::Sealed
        | Scrubbed::IndexesRebuilt
        | Scrubbed::SnapshotRebuilt) => {
            let mended = producers::mend(&**data.disk(), shared, (segment, next_base), pace)?;
            Ok(mended.filter(|_| scrubbed == Scrubbed::Sound).unwrap_or(scrubbed))
        }
    }
}

fn scrub_finished(
    data: &DataDir,
    shared: &Arc<Shared>,
    (segment, next_base): (&Arc<Segment>, i64),
    index_interval_bytes: u64,
    pace: Pace<'_>,
) -> Result<Scrubbed, Fault> {
    let (disk, dir) = (&**data.disk(), dir_of(segment));
    let generation = *shared.seal_gate.lock();
    let seal = match seal::read_seal(disk, dir, segment.base_offset()).map_err(Fault::Io)? {
        Found::Seal(seal) if seal.next_base == next_base => seal,
        Found::Seal(_) | Found::Nothing | Found::Damaged(_) => {
            return Ok(match seal_segment(disk, shared, segment, pace)? {
                Sealing::Sealed => Scrubbed::Sealed,
                Sealing::Gone => Scrubbed::Gone,
                Sealing::Stopped => Scrubbed::Stopped,
            });
        }
    };
    let Some(walked) = walk_segment(segment, pace)? else { return Ok(Scrubbed::Stopped) };
    if let Some((position, reason)) = difference(&seal, segment.state().read().size, &walked.pieces) {
        return Err(Fault::Damaged { position, reason });
    }
    let indexes_are_sound = indexes_are_sealed(disk, dir, &seal).map_err(Fault::Io)?;
    let mut seal = *seal;
    let aborted = mend_aborted(disk, shared, segment, &seal)?;
    if let Some((sum, _)) = aborted {
        seal.txn_index = sum;
    }
    match (indexes_are_sound, aborted) {
        (true, None) => Ok(Scrubbed::Sound),
        (true, Some((_, was_damaged))) => reseal(disk, shared, segment, &seal, generation, was_damaged),
        (false, _) => rebuild_indexes(data, shared, segment, seal, index_interval_bytes),
    }
}

/// A segment that takes appends, or of which the end is not on disk yet: what is there must be whole batches.
fn scrub_unfinished(shared: &Shared, segment: &Arc<Segment>, pace: Pace<'_>) -> Result<Scrubbed, Fault> {
    if !shared.has(segment) {
        return Ok(Scrubbed::Gone);
    }
    Ok(walk_segment(segment, pace)?.map_or(Scrubbed::Stopped, |_| Scrubbed::Sound))
}

/// Where a segment is not what was sealed.
pub(crate) fn difference(seal: &Seal, size: u64, pieces: &[u32]) -> Option<(u64, String)> {
    if seal.length != size {
        return Some((size, other_length(seal, size)));
    }
    let at = seal.pieces.iter().zip(pieces).position(|(sealed, found)| sealed != found)?;
    let (from, to) = (at as u64 * PIECE_BYTES, ((at + 1) as u64 * PIECE_BYTES).min(size));
    Some((from, other_bytes(from, to)))
}

/// Says that a segment has another length than it was sealed with.
pub(crate) fn other_length(seal: &Seal, size: u64) -> String {
    format!("the segment has {size} bytes but was sealed with {}", seal.length)
}

/// Says that a piece of a segment is not what was sealed.
pub(crate) fn other_bytes(from: u64, to: u64) -> String {
    format!("bytes {from} to {to} do not have the checksum that they were sealed with")
}

fn indexes_are_sealed(disk: &dyn Disk, dir: &Path, seal: &Seal) -> Result<bool, FileError> {
    for (suffix, sealed) in [("index", seal.index), ("timeindex", seal.time_index)] {
        let path = dir.join(file_name(seal.base_offset, suffix));
        let found = read_file(disk, &path, INDEX_BYTES_MAX)?.map(|bytes| FileSum::of(&bytes));
        if found != sealed {
            tracing::warn!(path = %path.display(), "the index is not what was sealed, build it anew");
            return Ok(false);
        }
    }
    Ok(true)
}

/// If the transaction index is not what was sealed it is compared with the batches, and built anew where it differs: its sum
/// as it is now, and whether it was built anew. A compaction leaves it to whoever needs it first to build the index.
fn mend_aborted(
    disk: &dyn Disk,
    shared: &Shared,
    segment: &Arc<Segment>,
    seal: &Seal,
) -> Result<Option<(Option<FileSum>, bool)>, Fault> {
    let path = segment.aborted().file().path();
    let found = read_file(disk, path, INDEX_BYTES_MAX).ok().flatten().unwrap_or_default();
    // One that is empty says the same as none.
    let sum = |sum: Option<FileSum>| sum.filter(|sum| sum.length > 0);
    if sum(Some(FileSum::of(&found))) == sum(seal.txn_index) {
        return Ok(None);
    }
    segment.aborted().mend(shared, segment)
}

/// A seal with another description of the transaction index.
fn reseal(
    disk: &dyn Disk,
    shared: &Shared,
    segment: &Arc<Segment>,
    seal: &Seal,
    generation: u64,
    was_damaged: bool,
) -> Result<Scrubbed, Fault> {
    let gate = shared.seal_gate.lock();
    if *gate != generation || shared.base_after(segment).is_none() {
        return Ok(Scrubbed::Gone);
    }
    let name = file_name(seal.base_offset, seal::SUFFIX);
    write_file(disk, dir_of(segment), &name, &seal.encode()).map_err(Fault::Io)?;
    Ok(if was_damaged { Scrubbed::IndexesRebuilt } else { Scrubbed::Sound })
}

/// Both indexes from the batches, and a seal that describes them.
fn rebuild_indexes(
    data: &DataDir,
    shared: &Arc<Shared>,
    segment: &Arc<Segment>,
    seal: Seal,
    index_interval_bytes: u64,
) -> Result<Scrubbed, Fault> {
    let (disk, dir, base) = (&**data.disk(), dir_of(segment), segment.base_offset());
    let generation = *shared.seal_gate.lock();
    let mut built = Segment::state_on_disk(data.descriptors(), dir, base, 0, 0, 0);
    let mut scan = HeaderScan::new(segment.file(false)?, segment.log().path(), 0, seal.length, base, false);
    while let Some(found) = scan.next()? {
        built.add_batch(&found.header, index_interval_bytes);
    }
    built.push_time_entry();
    let counts = (built.index.in_memory(), built.time_index.in_memory());
    let (index, time_index) = (built.index.to_spill(counts.0).0, built.time_index.to_spill(counts.1).0);
    let gate = shared.seal_gate.lock();
    if *gate != generation || shared.base_after(segment).is_none() {
        return Ok(Scrubbed::Gone);
    }
    let write = || -> Result<(), FileError> {
        seal::remove_seal(disk, dir, base)?;
        write_file(disk, dir, &file_name(base, "index"), &index)?;
        write_file(disk, dir, &file_name(base, "timeindex"), &time_index)?;
        let sums = (Some(FileSum::of(&index)), Some(FileSum::of(&time_index)));
        let seal = Seal { index: sums.0, time_index: sums.1, ..seal };
        write_file(disk, dir, &file_name(base, seal::SUFFIX), &seal.encode())
    };
    write().map_err(Fault::Io)?;
    let mut state = segment.state().write();
    for file in [state.index.file(), state.time_index.file()] {
        data.descriptors().forget(file);
    }
    state.index = SparseIndex::new(base, state.index.file().clone(), counts.0 as u32, None);
    state.time_index = SparseIndex::new(base, state.time_index.file().clone(), counts.1 as u32, None);
    Ok(Scrubbed::IndexesRebuilt)
}

/// The base offset of the segment that was marked as damaged, and what was found. A mark that cannot be read names none.
pub(crate) fn read_mark(disk: &dyn Disk, dir: &Path) -> Result<(Option<i64>, String), FileError> {
    let bytes = read_file(disk, &dir.join(DAMAGED_FILE), MARK_BYTES_MAX)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (base, reason) = text.split_once('\n').unwrap_or((&text, ""));
    Ok((base.parse().ok(), reason.trim().to_owned()))
}
