//! The file `leader-epoch-checkpoint` of a log: Kafka's text format, replaced as a whole.

use std::path::Path;

use log_engine_core::EpochHistory;

use crate::data_dir::read_file;
use crate::disk::Disk;
use crate::error::FileError;

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
