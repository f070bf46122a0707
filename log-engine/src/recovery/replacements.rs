//! What a compaction left when the process died or the power went in the middle.
//!
//! A `.log.swap` is a complete new segment that was decided upon: it takes its place, and whatever it covers goes. Everything
//! else that ends in `.cleaned` or `.swap` was not decided and goes.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{remove_if_there, remove_segment_files};
use crate::LogName;
use crate::compact::{CLEANED_SUFFIX, SIDE_SUFFIXES, SWAP_SUFFIX};
use crate::disk::{Disk, OpenMode};
use crate::error::{FileError, OpenError};
use crate::scan::{Fault, HeaderScan};
use crate::segment::{file_name, parse_file_name};
use crate::{seal, txn_index};

/// Completes or removes it. Run before the files of a log are looked at.
pub(super) fn settle_replacements(disk: &dyn Disk, dir: &Path, log: LogName) -> Result<(), OpenError> {
    let names: Vec<String> = match disk.list(dir) {
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
    for &base in &decided {
        complete(disk, dir, log, base, &bases)?;
    }
    for name in names.iter().filter(unfinished) {
        let base = parse_file_name(name).map(|(base, _)| base);
        if base.is_some_and(|base| decided.contains(&base)) && name.ends_with(SWAP_SUFFIX) {
            continue;
        }
        let path = dir.join(name);
        disk.remove_file(&path).map_err(|e| FileError::new("remove", path, e))?;
    }
    tracing::info!(log = %log, completed = decided.len(), "settled what a compaction left");
    Ok(disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?)
}

fn complete(
    disk: &dyn Disk,
    dir: &Path,
    log: LogName,
    base: i64,
    bases: &BTreeSet<i64>,
) -> Result<(), OpenError> {
    let swap: Arc<Path> = dir.join(format!("{}{SWAP_SUFFIX}", file_name(base, "log"))).into();
    let end = end_of(disk, log, base, &swap)?;
    for &covered in bases.range(base + 1..end.max(base + 1)) {
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
                return Err(FileError::new("rename", from, e).into());
            }
            Ok(()) | Err(_) => {}
        }
    }
    disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?;
    let renamed = disk.rename(&swap, &dir.join(file_name(base, "log")));
    Ok(renamed.map_err(|e| FileError::new("rename", &*swap, e))?)
}

/// The offset after the last batch of a new segment, which was durable before it got this name.
fn end_of(disk: &dyn Disk, log: LogName, base: i64, swap: &Arc<Path>) -> Result<i64, OpenError> {
    let file = disk.open(swap, OpenMode::Read).map_err(|e| FileError::new("open", &**swap, e))?;
    let size = file.len().map_err(|e| FileError::new("look at", &**swap, e))?;
    let mut scan = HeaderScan::new(file, swap, 0, size, base, false);
    let mut end = base;
    loop {
        match scan.next() {
            Ok(Some(found)) => end = found.header.last_offset() + 1,
            Ok(None) => return Ok(end),
            Err(Fault::Io(e)) => return Err(e.into()),
            Err(Fault::Cold) => {
                return Err(FileError::new("read", &**swap, io::ErrorKind::WouldBlock.into()).into());
            }
            Err(Fault::Damaged { position, reason }) => {
                return Err(OpenError::Damaged {
                    log,
                    flushed_end: end,
                    reason: format!("a compacted segment that was about to take its place: {reason}"),
                    path: swap.to_path_buf(),
                    position,
                });
            }
        }
    }
}
