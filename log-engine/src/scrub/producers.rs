//! Producer snapshots, as the scrub looks at them: the one at the end of a finished segment is built anew if it is missing or
//! damaged. The start reads from the batches what such a one does not tell, as often as it is asked to; and if the segment
//! before it goes, nothing else tells it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use log_engine_core::{AbortedDigest, AbortedIndex, producer_snapshot};

use super::Scrubbed;
use crate::data_dir::write_file;
use crate::disk::Disk;
use crate::error::FileError;
use crate::full_walk::Pace;
use crate::log::{Log, is_disk_full};
use crate::reader::Shared;
use crate::scan::Fault;
use crate::seal::{self, Found, dir_of};
use crate::segment::{Segment, file_name};
use crate::{replay, snapshots, txn_index};

/// Builds the snapshot at the end of a segment anew, if it is not whole; `None` if it is. The segment itself must have been
/// found whole. `next_base` is where the next one begins.
pub(super) fn mend(
    disk: &dyn Disk,
    shared: &Shared,
    (segment, next_base): (&Arc<Segment>, i64),
    pace: Pace<'_>,
) -> Result<Option<Scrubbed>, Fault> {
    let generation = *shared.seal_gate.lock();
    let producers_max = shared.producers_max.load(Ordering::Relaxed);
    if is_whole(disk, segment, next_base, producers_max) {
        return Ok(None);
    }
    let segments = shared.segments();
    let Some(at) = segments.iter().position(|other| Arc::ptr_eq(other, segment)) else {
        return Ok(Some(Scrubbed::Gone));
    };
    if !pace(segment.state().read().size) {
        return Ok(Some(Scrubbed::Stopped));
    }
    let (producers, aborted) = replay::aborted_in(&segments, at, producers_max)?;
    let aborted = match txn_index::digest_from(AbortedDigest::default(), &aborted) {
        AbortedDigest { count: 0, .. } => AbortedIndex::Empty,
        digest => AbortedIndex::Of { base_offset: segment.base_offset(), digest },
    };
    let bytes = producer_snapshot::encode(&producers, aborted);
    let gate = shared.seal_gate.lock();
    if *gate != generation || shared.base_after(segment) != Some(next_base) {
        return Ok(Some(Scrubbed::Gone));
    }
    match write(disk, segment, next_base, &bytes) {
        Err(error) if is_disk_full(&error.source) => {
            tracing::warn!(log = %shared.name, %error, "go on without a producer snapshot");
            return Ok(None);
        }
        written => written.map_err(Fault::Io)?,
    }
    shared.mended_snapshots.lock().insert(next_base);
    tracing::warn!(log = %shared.name, offset = next_base, "a producer snapshot was missing or damaged and is built anew");
    Ok(Some(Scrubbed::SnapshotRebuilt))
}

/// The snapshot at the start of the log tells what nothing else does any more. If it is damaged it tells nothing, and goes; if it
/// only cannot be read now it stays.
pub(super) fn forget_unreadable_at_start(disk: &dyn Disk, shared: &Shared, segment: &Arc<Segment>) {
    let (base, generation) = (segment.base_offset(), *shared.seal_gate.lock());
    let is_first = shared.segments().first().is_some_and(|first| Arc::ptr_eq(first, segment));
    let producers_max = shared.producers_max.load(Ordering::Relaxed);
    if !is_first || !matches!(snapshots::load(disk, dir_of(segment), base, producers_max), Ok(None)) {
        return;
    }
    let gate = shared.seal_gate.lock();
    if *gate != generation || !shared.has(segment) {
        return;
    }
    let removed = snapshots::remove_where(disk, dir_of(segment), &mut BTreeSet::from([base]), |_| true);
    if let Err(error) = removed {
        tracing::warn!(log = %shared.name, %error, "a damaged producer snapshot stays");
    }
}

/// One that cannot be read is as good as none.
fn is_whole(disk: &dyn Disk, segment: &Segment, offset: i64, producers_max: usize) -> bool {
    matches!(snapshots::load(disk, dir_of(segment), offset, producers_max), Ok(Some(_)))
}

/// Writes a snapshot, and has the seal of the segment say that there is one.
fn write(disk: &dyn Disk, segment: &Segment, offset: i64, bytes: &[u8]) -> Result<(), FileError> {
    let dir = dir_of(segment);
    write_file(disk, dir, &file_name(offset, "snapshot"), bytes)?;
    match seal::read_seal(disk, dir, segment.base_offset())? {
        Found::Seal(mut seal) if seal.producers_at.is_none() => {
            seal.producers_at = Some(offset);
            write_file(disk, dir, &file_name(seal.base_offset, seal::SUFFIX), &seal.encode())
        }
        Found::Seal(_) | Found::Nothing | Found::Damaged(_) => Ok(()),
    }
}

impl Log {
    /// Takes note of the snapshots that the scrub has written.
    pub(crate) fn learn_snapshots(&mut self) {
        self.snapshots.append(&mut self.shared.mended_snapshots.lock());
    }
}
