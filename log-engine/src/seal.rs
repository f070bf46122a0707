//! Seals: sidecar files that say what a finished segment holds ([`Seal`] has their bytes).
//!
//! When a flush has covered a segment that takes no more appends, the owner of the log puts it into its directory's
//! queue, and some background thread seals it ([`DataDir::seal_next`]): it reads the segment from end to end, checks
//! every batch, and writes the seal. Nothing waits for that. The queue is short; a segment that found no place in it,
//! or that was made by an older version, is sealed when the scrub comes by.
//!
//! A seal must never outlive what it describes. Whoever cuts, replaces or removes segments holds the log's *gate*
//! meanwhile ([`Shared::hold_seals`]), and a seal is written only if nothing of the kind has happened since its segment
//! was read. Seals are removed before, and never after, the segments that they describe.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use log_engine_core::seal::{FileSum, Seal};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::data_dir::{DataDir, read_file, write_file};
use crate::disk::{Disk, OpenMode};
use crate::error::{FileError, ReadError};
use crate::full_walk::{Pace, Walked, walk_all};
use crate::reader::Shared;
use crate::scan::Fault;
use crate::scrub::WrittenSegment;
use crate::segment::{Segment, file_name};

pub(crate) const SUFFIX: &str = "seal";
/// Segments that may wait to be sealed.
const QUEUE_MAX: usize = 1024;
/// How often who needs a seal tries to get one: each time something else has happened to the log.
const SEAL_TRIES_MAX: usize = 16;
/// An index of more is not hashed.
pub(crate) const INDEX_BYTES_MAX: u64 = 256 << 20;

/// A finished segment.
#[derive(Clone)]
pub(crate) struct Finished {
    pub(crate) shared: Arc<Shared>,
    pub(crate) segment: Arc<Segment>,
}

/// Segments of one data directory that wait to be sealed.
#[derive(Default)]
pub(crate) struct SealQueue {
    waiting: Mutex<VecDeque<Finished>>,
    came: Condvar,
    stopped: AtomicBool,
}

impl SealQueue {
    /// Answers whether there was a place.
    fn push(&self, finished: Finished) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= QUEUE_MAX {
            return false;
        }
        waiting.push_back(finished);
        drop(waiting);
        self.came.notify_one();
        true
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let _waiting = self.waiting.lock();
        self.came.notify_all();
    }

    fn pop(&self, wait: Duration) -> Option<Finished> {
        let mut waiting = self.waiting.lock();
        if self.stopped.load(Ordering::Acquire) {
            return None;
        }
        if waiting.is_empty() && !wait.is_zero() {
            self.came.wait_for(&mut waiting, wait);
        }
        waiting.pop_front()
    }
}

/// What came of an attempt to seal a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealing {
    Sealed,
    /// The segment was cut, replaced or removed meanwhile.
    Gone,
    /// Whoever sets the pace ended it.
    Stopped,
}

impl DataDir {
    /// Seals the segment that has waited longest, and says which it was; waits for one at most so long. `None` if there
    /// is none. Reads all of it. An error says that the segment is damaged, or that the device refuses.
    pub fn seal_next(&self, wait: Duration) -> Option<(WrittenSegment, Result<Sealing, ReadError>)> {
        let finished = self.seal_queue().pop(wait)?;
        let Finished { shared, segment } = &finished;
        let sealing = seal_segment(&**self.disk(), shared, segment, &mut |_| true);
        let sealing = sealing.map_err(|fault| fault.into_read_error(segment.log().path()));
        Some((WrittenSegment(finished), sealing))
    }

    /// Lets nobody wait for segments to be sealed any more: the directory is about to be closed.
    pub fn stop_sealing(&self) {
        self.seal_queue().stop();
    }

    /// Has segments sealed that are on disk and take no more appends: those below `flushed` but for the last. Looks only
    /// as far back as the newest of them that was in the queue.
    pub(crate) fn queue_finished(&self, shared: &Arc<Shared>, flushed: i64) {
        let segments = shared.segments();
        for pair in segments.windows(2).rev() {
            let (segment, next) = (&pair[0], &pair[1]);
            if next.base_offset() > flushed {
                continue;
            }
            if !segment.begin_sealing() {
                return;
            }
            if !self.seal_queue().push(Finished { shared: shared.clone(), segment: segment.clone() }) {
                return;
            }
        }
    }
}

impl DataDir {
    /// Has one segment sealed, which is on disk and takes no more appends.
    pub(crate) fn queue_segment(&self, shared: &Arc<Shared>, segment: &Arc<Segment>) {
        if segment.begin_sealing() {
            self.seal_queue().push(Finished { shared: shared.clone(), segment: segment.clone() });
        }
    }
}

impl Shared {
    /// Keeps seals from being written while segments are cut, replaced or removed.
    pub(crate) fn hold_seals(&self) -> MutexGuard<'_, u64> {
        let mut generation = self.seal_gate.lock();
        *generation += 1;
        generation
    }

    /// Whether the segment is still one of the log's.
    pub(crate) fn has(&self, segment: &Arc<Segment>) -> bool {
        self.segments().iter().any(|other| Arc::ptr_eq(other, segment))
    }

    /// The base offset of the segment that follows, if this one is there and takes no more appends.
    pub(crate) fn base_after(&self, segment: &Arc<Segment>) -> Option<i64> {
        let segments = self.segments();
        let at = segments.iter().position(|other| Arc::ptr_eq(other, segment))?;
        let next = segments.get(at + 1)?.base_offset();
        (next <= self.flushed.load(Ordering::Acquire)).then_some(next)
    }
}

/// Reads a segment and writes its seal.
pub(crate) fn seal_segment(
    disk: &dyn Disk,
    shared: &Shared,
    segment: &Arc<Segment>,
    pace: Pace<'_>,
) -> Result<Sealing, Fault> {
    let generation = *shared.seal_gate.lock();
    let Some(next_base) = shared.base_after(segment) else { return Ok(Sealing::Gone) };
    let walked = match walk_segment(segment, pace) {
        Ok(Some(walked)) => walked,
        Ok(None) => return Ok(Sealing::Stopped),
        Err(_) if *shared.seal_gate.lock() != generation => return Ok(Sealing::Gone),
        Err(fault) => return Err(fault),
    };
    let length = segment.state().read().size;
    if let Some(last) = walked.last_offset.filter(|&last| last >= next_base) {
        let reason =
            format!("its last batch ends at offset {last}, but the next segment begins at {next_base}");
        return Err(Fault::Damaged { position: length, reason });
    }
    let seal = describe(disk, segment, next_base, length, walked).map_err(Fault::Io)?;
    let gate = shared.seal_gate.lock();
    if *gate != generation || shared.base_after(segment).is_none() {
        return Ok(Sealing::Gone);
    }
    let dir = dir_of(segment);
    write_file(disk, dir, &file_name(seal.base_offset, SUFFIX), &seal.encode()).map_err(Fault::Io)?;
    Ok(Sealing::Sealed)
}

/// Reads all of a segment.
pub(crate) fn walk_segment(segment: &Segment, pace: Pace<'_>) -> Result<Option<Walked>, Fault> {
    let size = segment.state().read().size;
    let file = segment.file(false)?;
    walk_all(&*file, segment.log().path(), segment.base_offset(), size, pace)
}

fn describe(
    disk: &dyn Disk,
    segment: &Segment,
    next_base: i64,
    length: u64,
    walked: Walked,
) -> Result<Seal, FileError> {
    let (dir, base_offset) = (dir_of(segment), segment.base_offset());
    let sum = |suffix: &str| -> Result<Option<FileSum>, FileError> {
        let bytes = read_file(disk, &dir.join(file_name(base_offset, suffix)), INDEX_BYTES_MAX)?;
        Ok(bytes.map(|bytes| FileSum::of(&bytes)))
    };
    let snapshot = dir.join(file_name(next_base, "snapshot"));
    let max = walked.max_timestamp;
    Ok(Seal {
        base_offset,
        last_offset: walked.last_offset.unwrap_or(base_offset - 1),
        next_base,
        length,
        batches: walked.batches,
        records: walked.records,
        max_timestamp: max.map_or(records::NO_TIMESTAMP, |max| max.timestamp),
        max_timestamp_offset: max.map_or(base_offset, |max| max.offset),
        producers_at: disk.open(&snapshot, OpenMode::Read).is_ok().then_some(next_base),
        index: sum("index")?,
        time_index: sum("timeindex")?,
        txn_index: sum("txnindex")?,
        pieces: walked.pieces,
    })
}

/// What is found where a seal should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Seal(Box<Seal>),
    Nothing,
    /// It cannot be believed.
    Damaged(String),
}

/// Reads the seal of the segment at `base_offset`. One that is damaged goes. One that cannot be read, for want of descriptors
/// or memory or because the device failed, is an error and stays: without it nobody would notice what it tells of.
pub(crate) fn read_seal(disk: &dyn Disk, dir: &Path, base_offset: i64) -> Result<Found, FileError> {
    let found = look_at_seal(disk, dir, base_offset)?;
    if let Found::Damaged(_) = found {
        remove_seal(disk, dir, base_offset)?;
    }
    Ok(found)
}

/// The same, but one that is damaged stays.
pub(crate) fn look_at_seal(disk: &dyn Disk, dir: &Path, base_offset: i64) -> Result<Found, FileError> {
    let path = dir.join(file_name(base_offset, SUFFIX));
    match read_file(disk, &path, Seal::BYTES_MAX) {
        Ok(None) => Ok(Found::Nothing),
        Ok(Some(bytes)) => Ok(match Seal::decode(&bytes, base_offset) {
            Ok(seal) => Found::Seal(Box::new(seal)),
            Err(error) => Found::Damaged(error.to_string()),
        }),
        // No seal has so many bytes, or fewer than its file says.
        Err(error)
            if matches!(error.source.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::UnexpectedEof) =>
        {
            Ok(Found::Damaged(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// The seal of a segment that is on disk and takes no more appends. If it has none, or one of something else, it is sealed
/// now. `None` if it is none of the log's any more, or the pace ended it.
pub(crate) fn seal_of(
    disk: &dyn Disk,
    shared: &Shared,
    segment: &Arc<Segment>,
    pace: Pace<'_>,
) -> Result<Option<Box<Seal>>, Fault> {
    for _ in 0..SEAL_TRIES_MAX {
        let Some(next_base) = shared.base_after(segment) else { return Ok(None) };
        match read_seal(disk, dir_of(segment), segment.base_offset()).map_err(Fault::Io)? {
            Found::Seal(seal) if seal.next_base == next_base => return Ok(Some(seal)),
            Found::Seal(_) | Found::Nothing | Found::Damaged(_) => {}
        }
        match seal_segment(disk, shared, segment, pace)? {
            // Gone may have been another: then it is there still.
            Sealing::Sealed | Sealing::Gone => {}
            Sealing::Stopped => return Ok(None),
        }
    }
    let reason = "the log changes all the time, or the seal cannot be read back";
    Err(Fault::Io(FileError::new("seal", segment.log().path(), io::Error::other(reason))))
}

/// Whether a file is a seal, by its name: then an error of it says nothing of the records.
pub fn is_seal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == SUFFIX)
}

/// Removes a seal; one that is not there is fine. Lasts when the directory was synced.
pub(crate) fn remove_seal(disk: &dyn Disk, dir: &Path, base_offset: i64) -> Result<(), FileError> {
    let path = dir.join(file_name(base_offset, SUFFIX));
    match disk.remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FileError::new("remove", path, e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(crate) fn dir_of(segment: &Segment) -> &Path {
    segment.log().path().parent().expect("a segment lies in the directory of its log")
}
