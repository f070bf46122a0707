//! What crashes leave of moves, and who ends it: the copy of a log that did not get its name, and the mark of one that did.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::LogName;
use crate::data_dir::{DataDir, read_file, remove_dir_and_files};
use crate::disk::Disk;
use crate::error::FileError;
use crate::flushed_ends::FlushedEnds;
use crate::log::is_disk_full;
use crate::recovery::remove_if_there;
use crate::relocate::{MARK_BYTES_MAX, MARK_SUFFIX, MOVING_SUFFIX};

pub(super) fn mark_path(data: &DataDir, name: LogName) -> PathBuf {
    data.path().join(format!("{name}{MARK_SUFFIX}"))
}

pub(super) fn remove_mark(data: &DataDir, name: LogName) -> Result<(), FileError> {
    remove_if_there(&**data.disk(), &mark_path(data, name))?;
    data.disk().sync_dir(data.path()).map_err(|e| FileError::new("sync", data.path(), e))
}

/// Forgets what was noted for a log that did not get its name.
pub(super) fn forget(
    disk: &dyn Disk,
    dir: &Path,
    ends: &FlushedEnds,
    name: LogName,
) -> Result<(), FileError> {
    match ends.remove_durably(name) {
        // It is written when there is room.
        Err(error) if is_disk_full(&error.source) => {}
        done => done?,
    }
    remove_if_there(disk, &dir.join(format!("{name}{MARK_SUFFIX}")))
}

/// What moves into this directory left that a crash ended before the log got its name.
pub(crate) fn remove_unfinished(disk: &dyn Disk, dir: &Path, ends: &FlushedEnds) -> Result<(), FileError> {
    let entries = disk.list(dir).map_err(|e| FileError::new("list", dir, e))?;
    let here = |name: LogName| entries.iter().any(|e| e.is_dir && LogName::parse(&e.name) == Some(name));
    let mut changed = false;
    for entry in &entries {
        let of = |suffix| entry.name.strip_suffix(suffix).and_then(LogName::parse);
        match (of(MOVING_SUFFIX), of(MARK_SUFFIX)) {
            (Some(name), _) if entry.is_dir && here(name) => {
                changed = true;
                remove_dir_and_files(disk, &dir.join(&entry.name))?;
            }
            (Some(name), _) | (_, Some(name)) if !here(name) => {
                changed = true;
                forget(disk, dir, ends, name)?;
                remove_dir_and_files(disk, &dir.join(format!("{name}{MOVING_SUFFIX}")))?;
            }
            (Some(_), _) | (_, Some(_)) | (None, None) => {}
        }
    }
    if changed {
        disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?;
    }
    Ok(())
}

/// Ends the moves between a node's open data directories that a crash interrupted after the log had its new place: the old one
/// loses it. Called before logs are looked for.
pub fn settle_moves(directories: &[DataDir]) -> Result<(), FileError> {
    for target in directories {
        let entries = target.disk().list(target.path());
        let entries = entries.map_err(|e| FileError::new("list", target.path(), e))?;
        for name in entries.iter().filter_map(|e| LogName::parse(e.name.strip_suffix(MARK_SUFFIX)?)) {
            settle(directories, target, name)?;
        }
    }
    Ok(())
}

fn settle(directories: &[DataDir], target: &DataDir, name: LogName) -> Result<(), FileError> {
    let mark = mark_path(target, name);
    let bytes = read_file(&**target.disk(), &mark, MARK_BYTES_MAX)?.unwrap_or_default();
    let id = std::str::from_utf8(&bytes).ok().and_then(|text| Uuid::parse_str(text.trim()).ok());
    // Of one that cannot be read any more it is known all the same that this directory has the newer log.
    let is_source = |data: &DataDir| id.is_none_or(|id| data.directory_id() == id);
    let others = directories.iter().filter(|data| data.directory_id() != target.directory_id());
    let sources: Vec<&DataDir> = others.filter(|data| is_source(data)).collect();
    if sources.is_empty() {
        tracing::warn!(log = %name, mark = %mark.display(), "a log was moved here from a directory that is offline");
        return Ok(());
    }
    for source in sources {
        if source.list()?.contains(&name) {
            let (from, to) = (source.path().display(), target.path().display());
            tracing::info!(log = %name, %from, %to, "a log had been moved: what its old place still has is removed");
            source.detach(name)?.remove_files()?;
        }
    }
    remove_mark(target, name)
}
