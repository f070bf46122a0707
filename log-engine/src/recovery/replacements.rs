//! What a compaction left when the process died or the power went in the middle.
//!
//! A `.log.swap` is a complete new segment that was decided upon: it takes its place, and whatever it covers goes. Everything
//! else that ends in `.cleaned` or `.swap` was not decided and goes.
//!
//! It was durable before it got that name, but may have rotted since, and what it was made of is the last other copy of its
//! records. So all of it is checked before anything goes. If it is damaged and no source has been put aside yet, the sources
//! stay and it goes, as if it had not been decided; if one has, the log is damaged and all files stay as they are.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::progress::Watched;
use super::{remove_if_there, remove_segment_files};
use crate::LogName;
use crate::compact::{CLEANED_SUFFIX, SIDE_SUFFIXES, SWAP_SUFFIX};
use crate::data_dir::DELETED_SUFFIX;
use crate::disk::{Disk, OpenMode};
use crate::error::{FileError, OpenError};
use crate::full_walk::{Pace, walk_all};
use crate::scan::Fault;
use crate::segment::{file_name, parse_file_name};
use crate::{seal, txn_index};

/// A new segment that was decided upon.
pub(crate) enum Replacement {
    /// It takes the place of all that begins below this offset.
    Whole { end: i64 },
    /// It is damaged, and goes: what it was made of is still there.
    Needless { position: u64, reason: String },
    /// It is damaged, and something of what it was made of is not there under its name any more.
    Damaged { position: u64, reason: String },
}

/// Reads the new segment at `base` from end to end. `names` is what there is in the directory. `None` if the pace ended it.
pub(crate) fn judge_replacement(
    disk: &dyn Disk,
    dir: &Path,
    base: i64,
    names: &BTreeSet<String>,
    pace: Pace<'_>,
) -> Result<Option<Replacement>, FileError> {
    let path = swap_path(dir, base);
    let file = disk.open(&path, OpenMode::Read).map_err(|e| FileError::new("open", &path, e))?;
    let size = file.len().map_err(|e| FileError::new("look at", &path, e))?;
    let (position, reason) = match walk_all(&*file, &path, base, size, pace) {
        Ok(None) => return Ok(None),
        Ok(Some(walked)) => {
            let last = walked.last_offset.unwrap_or(base - 1);
            // The offset is not under the batch's checksum.
            if last - base <= i64::from(i32::MAX) {
                return Ok(Some(Replacement::Whole { end: last + 1 }));
            }
            (size, format!("its last batch ends at offset {last}, out of its reach"))
        }
        Err(Fault::Damaged { position, reason }) => (position, reason),
        Err(Fault::Io(error)) => return Err(error),
        Err(Fault::Cold) => return Err(FileError::new("read", path, io::ErrorKind::WouldBlock.into())),
    };
    // They are put aside one by one, and their records last. One that an earlier pass has put aside counts as well: it cannot be
    // told how far this one reached.
    let is_aside = |name: &String| match parse_file_name(name.strip_suffix(DELETED_SUFFIX)?) {
        Some((aside, "log")) if aside >= base => Some(!names.contains(&file_name(aside, "log"))),
        Some(_) | None => None,
    };
    let has_sources =
        names.contains(&file_name(base, "log")) && !names.iter().filter_map(is_aside).any(|gone| gone);
    Ok(Some(match has_sources {
        true => Replacement::Needless { position, reason },
        false => {
            let gone = "a compacted segment that was about to take its place, where something of what it was made of \
                        is gone";
            Replacement::Damaged { position, reason: format!("{gone}: {reason}") }
        }
    }))
}

fn swap_path(dir: &Path, base: i64) -> PathBuf {
    dir.join(format!("{}{SWAP_SUFFIX}", file_name(base, "log")))
}

/// Completes or removes it. Run before the files of a log are looked at.
pub(super) fn settle_replacements(
    disk: &dyn Disk,
    dir: &Path,
    (log, flushed_end): (LogName, i64),
    watched: &mut Watched<'_>,
) -> Result<(), OpenError> {
    let names: BTreeSet<String> = match disk.list(dir) {
        Ok(entries) => entries.into_iter().filter(|e| !e.is_dir).map(|e| e.name).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(FileError::new("list", dir, e).into()),
    };
    let unfinished = |name: &&String| name.ends_with(CLEANED_SUFFIX) || name.ends_with(SWAP_SUFFIX);
    if !names.iter().any(|name| unfinished(&name)) {
        return Ok(());
    }
    let (mut decided, mut bases) = (Vec::new(), BTreeSet::new());
    for name in &names {
        match parse_file_name(name) {
            Some((base, "log.swap")) => decided.push(base),
            Some((base, "log")) => _ = bases.insert(base),
            Some(_) | None => {}
        }
    }
    let mut completed = BTreeSet::new();
    for base in decided {
        let judged = judge_replacement(disk, dir, base, &names, &mut |bytes| watched.on_work(bytes))?;
        watched.check(dir)?;
        match judged {
            Some(Replacement::Whole { end }) => {
                complete(disk, dir, base, bases.range(base + 1..end.max(base + 1)))?;
                completed.insert(base);
            }
            Some(Replacement::Needless { position, reason }) => {
                tracing::error!(
                    log = %log, segment = base, position, reason,
                    "a compacted segment that was about to take its place is damaged: what it was made of stays"
                );
                withdraw(disk, dir, base, &names)?;
            }
            Some(Replacement::Damaged { position, reason }) => {
                let path = swap_path(dir, base);
                return Err(OpenError::Damaged { log, flushed_end, reason, path, position });
            }
            None => return Err(FileError::new("recover", dir, io::ErrorKind::Interrupted.into()).into()),
        }
    }
    for name in names.iter().filter(unfinished) {
        let base = parse_file_name(name).map(|(base, _)| base);
        if base.is_some_and(|base| completed.contains(&base)) && name.ends_with(SWAP_SUFFIX) {
            continue;
        }
        remove_if_there(disk, &dir.join(name))?;
    }
    tracing::info!(log = %log, completed = completed.len(), "settled what a compaction left");
    Ok(disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?)
}

/// It is as if it had not been decided upon. An index that has got its name already would be that of another segment.
fn withdraw(disk: &dyn Disk, dir: &Path, base: i64, names: &BTreeSet<String>) -> Result<(), FileError> {
    for name in SIDE_SUFFIXES.map(|suffix| file_name(base, suffix)) {
        if !names.contains(&format!("{name}{SWAP_SUFFIX}")) {
            remove_if_there(disk, &dir.join(name))?;
        }
    }
    disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?;
    remove_if_there(disk, &swap_path(dir, base))
}

/// Puts the new segment at `base` in its place, and removes those that it was made of.
fn complete<'a>(
    disk: &dyn Disk,
    dir: &Path,
    base: i64,
    covered: impl Iterator<Item = &'a i64>,
) -> Result<(), FileError> {
    let log = dir.join(file_name(base, "log"));
    let swap = swap_path(dir, base);
    // The first of them goes first, for good: as long as it is there nothing has gone.
    remove_if_there(disk, &log)?;
    disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?;
    for &covered in covered {
        remove_segment_files(disk, dir, covered)?;
    }
    seal::remove_seal(disk, dir, base)?;
    remove_if_there(disk, &dir.join(file_name(base, txn_index::SUFFIX)))?;
    // Those that are not there have got their names already.
    for suffix in SIDE_SUFFIXES {
        let name = file_name(base, suffix);
        let from = dir.join(format!("{name}{SWAP_SUFFIX}"));
        match disk.rename(&from, &dir.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(FileError::new("rename", from, e));
            }
            Ok(()) | Err(_) => {}
        }
    }
    disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?;
    let renamed = disk.rename(&swap, &log);
    renamed.map_err(|e| FileError::new("rename", swap, e))
}
