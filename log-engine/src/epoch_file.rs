//! The file `leader-epoch-checkpoint` of a log: Kafka's text format, replaced as a whole.

use std::ops::Range;
use std::path::Path;

use log_engine_core::EpochHistory;

use crate::data_dir::{read_file, write_file};
use crate::disk::Disk;
use crate::error::FileError;
use crate::log::is_disk_full;
use crate::recovery::remove_if_there;

pub(crate) const FILE_NAME: &str = "leader-epoch-checkpoint";
/// Two numbers a line; a log of a million leader changes still fits.
const BYTES_MAX: u64 = 32 << 20;

/// What the file says; `None` if it is missing or damaged, so that the history must come from the batches.
pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<EpochHistory>, FileError> {
    let path = dir.join(FILE_NAME);
    let Some(bytes) = read_file(disk, &path, BYTES_MAX)? else { return Ok(None) };
    let history = std::str::from_utf8(&bytes).ok().and_then(|text| EpochHistory::decode(text).ok());
    if history.is_none() {
        tracing::warn!(path = %path.display(), "leader epoch checkpoint is damaged, read the epochs from the log");
    }
    Ok(history)
}

/// Replaces the file, durably; `in_file` is what it said and says. Answers whether it says `history` now. Where there is no
/// room for that, it stays if it says the same of the `records`, which are about to count as flushed, and goes otherwise:
/// without it their epochs come from the batches.
pub(crate) fn write(
    disk: &dyn Disk,
    dir: &Path,
    history: &EpochHistory,
    records: Range<i64>,
    in_file: &mut Option<EpochHistory>,
) -> Result<bool, FileError> {
    match write_file(disk, dir, FILE_NAME, history.encode().as_bytes()) {
        Ok(()) => {
            *in_file = Some(history.clone());
            return Ok(true);
        }
        Err(error) if is_disk_full(&error.source) => {
            tracing::warn!(%error, "go on without the newest leader epochs in their file until there is room");
        }
        Err(error) => return Err(error),
    }
    let of_records = |history: &EpochHistory| {
        let mut history = history.clone();
        history.truncate_from_end(records.end);
        history.truncate_from_start(records.start);
        history
    };
    if in_file.as_ref().is_none_or(|in_file| of_records(in_file) != of_records(history)) {
        remove_if_there(disk, &dir.join(FILE_NAME))?;
        *in_file = None;
    }
    // What the directory lists besides counts as flushed too.
    disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?;
    Ok(false)
}
