//! The indexes of a segment that was cut: what they say of the batches that stay is kept, and only what lies behind the last
//! entry of it is walked. An index that does not tell the truth there is built anew.

use std::io;
use std::sync::Arc;

use log_engine_core::ProducerStates;
use records::BatchHeader;

use super::file_error;
use crate::descriptors::CachedFile;
use crate::disk::OpenMode;
use crate::error::FileError;
use crate::index::{Entry, Front, IndexEntry, SparseIndex, TimeEntry, front_on_disk, last_in_order};
use crate::log::Log;
use crate::replay::{self, forget_phantoms};
use crate::scan::{Fault, HeaderScan};
use crate::segment::{Segment, SegmentState};
use crate::txn_index;

/// What stays of the indexes of a segment.
pub(super) struct Kept {
    index: Front<IndexEntry>,
    time_index: Front<TimeEntry>,
    /// Of the batches before the one that the last entry is of.
    max_timestamp: TimeEntry,
    /// Base offset of the batch that the last entry is of.
    base_offset: i64,
}

impl Log {
    /// Brings the indexes of a segment, whose file was cut to `size` bytes, down to what is left.
    pub(super) fn cut_indexes(
        &mut self,
        segment: &Segment,
        size: u64,
        kept: Option<&Kept>,
    ) -> Result<(), FileError> {
        let file = segment.file(false).map_err(|fault| file_error(fault, segment))?;
        let from = match kept.filter(|kept| self.has_files_of(segment, kept)) {
            Some(kept) => go_back_to(segment, kept),
            None => {
                segment.forget_batches();
                0
            }
        };
        let mut scan = HeaderScan::new(file, segment.log().path(), from, size, segment.base_offset(), false);
        while let Some(found) = scan.next().map_err(|fault| file_error(fault, segment))? {
            segment.state().write().add_batch(&found.header, self.config.index_interval_bytes);
        }
        segment.first_timestamp().map_err(|fault| file_error(fault, segment))?;
        let files = {
            let state = segment.state().read();
            let len = |entries: u32, bytes: usize| u64::from(entries) * bytes as u64;
            [
                (state.index.file().clone(), len(state.index.on_disk(), IndexEntry::BYTES)),
                (state.time_index.file().clone(), len(state.time_index.on_disk(), TimeEntry::BYTES)),
            ]
        };
        // Entries of the cut part must not be taken for new ones.
        files.iter().try_for_each(|(file, len)| self.cut_side_file(file, *len))
    }

    /// Whether the files hold what is kept in them. They are open from then on.
    fn has_files_of(&mut self, segment: &Segment, kept: &Kept) -> bool {
        let files = {
            let state = segment.state().read();
            let len = |entries: u32, bytes: usize| u64::from(entries) * bytes as u64;
            [
                (state.index.file().clone(), len(kept.index.on_disk, IndexEntry::BYTES)),
                (state.time_index.file().clone(), len(kept.time_index.on_disk, TimeEntry::BYTES)),
            ]
        };
        files.iter().filter(|(_, len)| *len > 0).all(|(file, kept)| {
            let opened = self.dirty_file(file, OpenMode::ReadWrite);
            opened.is_ok_and(|pin| pin.file().len().is_ok_and(|len| len >= *kept))
        })
    }

    /// Cuts a file beside a segment, durably; one that is missing stays so.
    fn cut_side_file(&mut self, file: &CachedFile, len: u64) -> Result<(), FileError> {
        let pin = match self.dirty_file(file, OpenMode::ReadWrite) {
            Err(e) if e.source.kind() == io::ErrorKind::NotFound && len == 0 => return Ok(()),
            pin => pin?,
        };
        let cut = pin.file().set_len(len).and_then(|()| pin.file().sync());
        cut.map_err(|e| FileError::new("cut", file.path(), e))
    }

    /// After a cut: the producers at the end of the log, and the last segment's transaction index, from the newest snapshot and
    /// the batches since. What that index had up to the snapshot stays, if it is what it was then.
    pub(super) fn replay_last(&mut self, segments: &[Arc<Segment>]) -> Result<ProducerStates, Fault> {
        let (at, producers_max) = (segments.len() - 1, self.config.producers_max);
        let last = &segments[at];
        let (saved, within) = replay::newest_trusted(
            (&**self.data.disk(), &self.dir),
            segments,
            &self.snapshots,
            self.end(),
            producers_max,
        )?;
        let (from, mut producers) = match saved {
            Some(saved) => (saved.offset, saved.producers),
            None => (i64::MIN, ProducerStates::new(producers_max)),
        };
        let known = (segments[0].base_offset(), i64::MAX);
        forget_phantoms(segments, &mut producers, from, known, &mut |_| true).map_err(|(fault, _)| fault)?;
        let aborted = replay::replay_up_to(segments, at, from, &mut producers)?;
        let within = within.filter(|within| within.segment == last.base_offset());
        let on_disk = within.map(|within| within.digest).unwrap_or_default();
        self.cut_side_file(last.aborted().file(), txn_index::position(on_disk.count)).map_err(Fault::Io)?;
        last.aborted().set(on_disk, aborted);
        Ok(producers)
    }
}

/// What stays of the indexes if a segment is cut to `size` bytes, and all of it can be believed. One that cannot be read is as
/// good as none; and of the batches the walk will tell.
pub(super) fn kept(segment: &Segment, size: u64) -> Option<Kept> {
    try_kept(segment, size).ok().flatten()
}

fn try_kept(segment: &Segment, size: u64) -> Result<Option<Kept>, Fault> {
    {
        // Of a segment that takes appends every entry comes to be in the files, where nobody could tell any more that some
        // are missing: of what lies between two others the next one would claim too little.
        let state = segment.state().read();
        if !(state.index.is_complete() && state.time_index.is_complete()) {
            return Ok(None);
        }
    }
    let below = |entry: &IndexEntry| u64::from(entry.position) < size;
    let Some((index, _)) = front(segment, |state| &state.index, below)? else { return Ok(None) };
    // Each entry is of a batch of its own behind the first, or what is walked from there would come to the index once more.
    let position = u64::from(index.last.position);
    if position < index.len() * BatchHeader::LEN as u64 {
        return Ok(None);
    }
    let first = segment.scan_from(position, false)?.next()?;
    let Some(first) = first.filter(|first| first.header.last_offset() == index.last.offset) else {
        return Ok(None);
    };
    let offset = index.last.offset;
    let found = front(segment, |state| &state.time_index, |entry: &TimeEntry| entry.offset <= offset)?;
    let Some((time_index, next)) = found else { return Ok(None) };
    let Some(newest) = segment.batch_of(&time_index.last)? else { return Ok(None) };
    let is_newest = match next {
        Next::Entry(next) => segment.batch_of(&next)?.is_some(),
        Next::Nothing => true,
        Next::Unknown => false,
    };
    let mut max_timestamp = time_index.last;
    // When an entry came to the one index the other was brought up to date. But some may be missing.
    let mut scan = segment.scan_from(newest.position, false)?;
    while let Some(found) = scan.next()?.filter(|found| !is_newest && found.position < position) {
        let timestamp = found.header.newest_timestamp();
        if timestamp > max_timestamp.timestamp {
            max_timestamp = TimeEntry { timestamp, offset: found.header.last_offset() };
        }
    }
    Ok(Some(Kept { index, time_index, max_timestamp, base_offset: first.header.base_offset }))
}

/// What follows on a front.
enum Next<E> {
    Entry(E),
    Nothing,
    /// What the file held behind it may be lost.
    Unknown,
}

type FrontAndNext<E> = (Front<E>, Next<E>);

/// The entries of one index that come first, as long as `holds` is true of them, and what follows; `None` if there are none, or
/// if they cannot be those that were written.
fn front<E: Entry>(
    segment: &Segment,
    of: impl Fn(&SegmentState) -> &SparseIndex<E>,
    holds: impl Fn(&E) -> bool,
) -> Result<Option<FrontAndNext<E>>, Fault> {
    let (file, count, in_memory, last) = {
        let state = segment.state().read();
        let index = of(&state);
        if let Some(front) = index.front_in_memory(&holds) {
            return Ok(Some((front, Next::Nothing)));
        }
        (index.file().clone(), index.on_disk(), index.tail_entry(0), index.last())
    };
    if count == 0 {
        return Ok(None);
    }
    let (opened, base, path) = (segment.open(&file, false)?, segment.base_offset(), file.path());
    let Some(front) = front_on_disk(&*opened, path, base, count, holds)? else { return Ok(None) };
    // With the one that follows, if there is one in the file.
    let with_next = (front.on_disk + 1).min(count);
    let Some(end) = last_in_order::<E>(&*opened, path, base, with_next)? else { return Ok(None) };
    let next = match in_memory {
        _ if with_next > front.on_disk => Next::Entry(end),
        Some(_) => Next::Nothing,
        None if last == Some(end) => Next::Nothing,
        None => Next::Unknown,
    };
    let is_last = with_next > front.on_disk || end == front.last;
    Ok(is_last.then_some((front, next)))
}

/// The segment as it was before the batch of the last entry that is kept; answers where that one begins.
fn go_back_to(segment: &Segment, kept: &Kept) -> u64 {
    let mut state = segment.state().write();
    state.index.cut_to(&kept.index);
    state.time_index.cut_to(&kept.time_index);
    state.size = u64::from(kept.index.last.position);
    state.next_offset = kept.base_offset;
    state.max_timestamp = Some(kept.max_timestamp);
    state.bytes_since_entry = 0;
    state.size
}
