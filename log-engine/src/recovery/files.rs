//! The names in a log's directory, sorted out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use super::taken_over::KAFKA_FILE;
use crate::data_dir::{DELETED_SUFFIX, DataDir, TMP_SUFFIX};
use crate::disk::Disk;
use crate::error::{FileError, OpenError};
use crate::log::is_disk_full;
use crate::relocate::moved_away_log;
use crate::segment::{file_name, parse_file_name};
use crate::{LogName, append_times, poison, scrub, txn_index};

/// The names in a log's directory, sorted out.
#[derive(Default)]
pub(super) struct Files {
    /// Base offset → bytes.
    pub(super) logs: BTreeMap<i64, u64>,
    pub(super) indexes: BTreeMap<i64, u64>,
    pub(super) time_indexes: BTreeMap<i64, u64>,
    pub(super) aborted: BTreeSet<i64>,
    pub(super) seals: BTreeSet<i64>,
    pub(super) snapshots: BTreeSet<i64>,
    pub(super) poisoned: bool,
    /// A segment was found damaged earlier.
    pub(super) damaged: bool,
    /// Kafka has written what is there.
    pub(super) of_kafka: bool,
    pub(super) dir_is_new: bool,
    /// There was no room for it.
    pub(super) dir_is_missing: bool,
}

/// The parts of a segment; its records go last, so that what is left by a crash is still known for a segment.
pub(crate) const PARTS: [&str; 6] = ["seal", "timeindex", "index", "txnindex", append_times::SUFFIX, "log"];

/// Lists a log's directory, creating it if need be, and removes what interrupted replacements and deletions left. One that was
/// moved away is not made anew.
pub(super) fn list_files(data: &DataDir, name: LogName, dir: &Path) -> Result<Files, OpenError> {
    let disk = &**data.disk();
    let mut files = Files::default();
    let entries = match disk.list(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if let Some(away) = moved_away_log(disk, data.path(), name)? {
                return Err(OpenError::MovedAway { path: away.path_in(data.path()), directory: away.to });
            }
            files.dir_is_new = true;
            match disk.create_dir_all(dir) {
                Ok(()) => {}
                // It is made when something is to be in it.
                Err(e) if is_disk_full(&e) => files.dir_is_missing = true,
                Err(e) => return Err(FileError::new("create directory", dir, e).into()),
            }
            return Ok(files);
        }
        Err(e) => return Err(FileError::new("list", dir, e).into()),
    };
    for entry in entries {
        if entry.name.ends_with(TMP_SUFFIX) || entry.name.ends_with(DELETED_SUFFIX) {
            let path = dir.join(&entry.name);
            disk.remove_file(&path).map_err(|e| FileError::new("remove", path, e))?;
            continue;
        }
        files.poisoned |= entry.name == poison::FILE_NAME;
        files.damaged |= entry.name == scrub::DAMAGED_FILE;
        files.of_kafka |= entry.name == KAFKA_FILE;
        match parse_file_name(&entry.name) {
            Some((base, "log")) => _ = files.logs.insert(base, entry.len),
            Some((base, "index")) => _ = files.indexes.insert(base, entry.len),
            Some((base, "timeindex")) => _ = files.time_indexes.insert(base, entry.len),
            Some((base, txn_index::SUFFIX)) => _ = files.aborted.insert(base),
            Some((base, "seal")) => _ = files.seals.insert(base),
            Some((offset, "snapshot")) => _ = files.snapshots.insert(offset),
            Some(_) | None => {}
        }
    }
    let indexes = files.indexes.keys().chain(files.time_indexes.keys()).chain(&files.aborted);
    let orphans = indexes.chain(&files.seals);
    let orphans: BTreeSet<i64> = orphans.copied().collect();
    for base in orphans {
        if !files.logs.contains_key(&base) {
            remove_segment_files(disk, dir, base)?;
        }
    }
    Ok(files)
}

pub(crate) fn remove_segment_files(disk: &dyn Disk, dir: &Path, base: i64) -> Result<(), FileError> {
    for suffix in PARTS {
        let path = dir.join(file_name(base, suffix));
        remove_if_there(disk, &path)?;
    }
    Ok(())
}

pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<(), FileError> {
    match disk.remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FileError::new("remove", path, e)),
        Ok(()) | Err(_) => Ok(()),
    }
}
