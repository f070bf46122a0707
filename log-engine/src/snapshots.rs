//! The producer snapshots of a log: files `<offset>.snapshot`, each the producers as of that offset.
//!
//! They only save time: whatever is missing or damaged is replayed from the batches. One is written at each roll, at a
//! clean close, and after every so many bytes. Those at the base of a segment stay as long as the segment; of the
//! others, the newest two.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use log_engine_core::{AbortedIndex, ProducerStates, producer_snapshot};

use crate::data_dir::read_file;
use crate::disk::Disk;
use crate::error::FileError;
use crate::segment::file_name;

/// 100,000 producers take 23 MB.
const BYTES_MAX: u64 = 1 << 30;
const STRAY_KEPT: usize = 2;

pub(crate) fn path(dir: &Path, offset: i64) -> PathBuf {
    dir.join(file_name(offset, "snapshot"))
}

/// A snapshot that was read.
pub(crate) struct Saved {
    pub(crate) offset: i64,
    pub(crate) producers: ProducerStates,
    /// What it says of the transaction index of the segment before it.
    pub(crate) aborted: AbortedIndex,
}

/// The newest snapshot at or below `offset_max` that is whole.
pub(crate) fn load_newest(
    disk: &dyn Disk,
    dir: &Path,
    snapshots: &BTreeSet<i64>,
    offset_max: i64,
    producers_max: usize,
) -> Result<Option<Saved>, FileError> {
    for &offset in snapshots.range(..=offset_max).rev() {
        if let Some((producers, aborted)) = load(disk, dir, offset, producers_max)? {
            return Ok(Some(Saved { offset, producers, aborted }));
        }
    }
    Ok(None)
}

/// The snapshot at `offset`, if there is one and it is whole.
pub(crate) fn load(
    disk: &dyn Disk,
    dir: &Path,
    offset: i64,
    producers_max: usize,
) -> Result<Option<(ProducerStates, AbortedIndex)>, FileError> {
    let path = path(dir, offset);
    let Some(bytes) = read_file(disk, &path, BYTES_MAX)? else { return Ok(None) };
    match producer_snapshot::decode(&bytes, producers_max) {
        Ok(saved) => Ok(Some(saved)),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "pass over producer snapshot");
            Ok(None)
        }
    }
}

/// Removes the snapshots for which `gone` is true; a missing file is fine.
pub(crate) fn remove_where(
    disk: &dyn Disk,
    dir: &Path,
    snapshots: &mut BTreeSet<i64>,
    gone: impl Fn(i64) -> bool,
) -> Result<bool, FileError> {
    let doomed: Vec<i64> = snapshots.iter().copied().filter(|&o| gone(o)).collect();
    for &offset in &doomed {
        let path = path(dir, offset);
        match disk.remove_file(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(FileError::new("remove", path, e)),
        }
        snapshots.remove(&offset);
    }
    Ok(!doomed.is_empty())
}

/// The snapshots that nothing needs any more.
pub(crate) fn superfluous(snapshots: &BTreeSet<i64>, segment_bases: &BTreeSet<i64>) -> BTreeSet<i64> {
    let strays: Vec<i64> = snapshots.iter().copied().filter(|o| !segment_bases.contains(o)).collect();
    strays[..strays.len().saturating_sub(STRAY_KEPT)].iter().copied().collect()
}
