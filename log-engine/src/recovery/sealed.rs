//! What a seal says of a segment, against what is there.

use std::path::Path;
use std::sync::Arc;

use log_engine_core::seal::Seal;

use super::Recovery;
use super::files::Files;
use crate::error::{FileError, OpenError};
use crate::full_walk::{walk_all, walk_until};
use crate::scrub;
use crate::seal::{self, Found};
use crate::segment::file_name;

impl Recovery<'_> {
    /// The seal of a segment that is `size` bytes long and ends where the next begins, if there is one that fits. One
    /// that does not fit is damage, unless the segment turns out to be whole.
    pub(super) fn believed_seal(
        &mut self,
        files: &Files,
        base: i64,
        size: u64,
        next_base: i64,
    ) -> Result<Option<Seal>, OpenError> {
        if !files.seals.contains(&base) {
            return Ok(None);
        }
        let path: Arc<Path> = self.dir.join(file_name(base, "log")).into();
        let seal = match seal::read_seal(self.disk, self.dir, base)? {
            Found::Seal(seal) => *seal,
            Found::Nothing => return Ok(None),
            Found::Damaged(reason) => {
                tracing::warn!(log = %self.name, segment = base, reason, "go on without a seal");
                self.report.seals_dropped += 1;
                self.dir_changed = true;
                return Ok(None);
            }
        };
        if seal.length == size && seal.next_base == next_base {
            self.report.seals_read += 1;
            return Ok(Some(seal));
        }
        if seal.length == size && seal.next_base < next_base {
            let missing = self.dir.join(file_name(seal.next_base, "log"));
            return Err(self.damaged("the segment file is missing", missing, 0));
        }
        self.check_unlike_its_seal(&path, &seal, size, next_base)?;
        tracing::warn!(log = %self.name, segment = base, "the seal is not of this segment, go on without");
        self.drop_seal(base)?;
        Ok(None)
    }

    /// Whether nothing that was recorded says that the segment is on disk, but a seal does, and that the next one follows it
    /// wherever its batches end. It is then compared with all of the segment.
    pub(super) fn is_as_sealed(
        &mut self,
        files: &Files,
        base: i64,
        size: u64,
        next_base: i64,
    ) -> Result<bool, OpenError> {
        if !self.report.flushed_end_lost || self.report.taken_over || !files.seals.contains(&base) {
            return Ok(false);
        }
        let Found::Seal(seal) = seal::read_seal(self.disk, self.dir, base)? else { return Ok(false) };
        if seal.length != size || seal.next_base != next_base {
            return Ok(false);
        }
        let path: Arc<Path> = self.dir.join(file_name(base, "log")).into();
        let file = self.open_log(base)?;
        let walked = walk_all(&*file, &path, base, size, &mut |bytes| self.watched.on_done(bytes));
        let walked = walked.map_err(|fault| self.fault(fault, &path))?.unwrap_or_default();
        self.watched.check(self.dir)?;
        if let Some((position, reason)) = scrub::difference(&seal, size, &walked.pieces) {
            return Err(self.damaged(reason, path, position));
        }
        self.report.bytes_verified += size;
        self.report.batches_walked += walked.batches;
        Ok(true)
    }

    /// A segment that was replaced by another that reaches as far, or one that ends where the next begins, only has a
    /// wrong seal. One that ends earlier has lost its end.
    fn check_unlike_its_seal(
        &mut self,
        path: &Arc<Path>,
        seal: &Seal,
        size: u64,
        next_base: i64,
    ) -> Result<(), OpenError> {
        let file = self.open_log(seal.base_offset)?;
        let walked = walk_all(&*file, path, seal.base_offset, size, &mut |bytes| self.watched.on_work(bytes));
        let walked = walked.map_err(|fault| self.fault(fault, path))?.unwrap_or_default();
        self.watched.check(self.dir)?;
        self.report.bytes_verified += size;
        let end = walked.last_offset.map_or(seal.base_offset, |last| last + 1);
        if end == next_base || (end == seal.last_offset + 1 && end < next_base) {
            return Ok(());
        }
        let reason = format!(
            "the segment ends at offset {end}, but was sealed with {} bytes up to offset {}",
            seal.length, seal.next_base
        );
        Err(self.damaged(reason, path, size))
    }

    /// A segment was found damaged, and the log taken offline. It stays so, unless the segment is whole again: somebody
    /// has restored the file, or it could not be read for another reason. A segment that is gone is none of ours.
    pub(super) fn check_marked(&mut self, files: &Files) -> Result<(), OpenError> {
        let (base, reason) = scrub::read_mark(self.disk, self.dir)?;
        // Behind the flushed end there may be the torn end of a crash.
        let enough = if self.is_unknown() { i64::MAX } else { self.floor };
        for &base in files.logs.keys().filter(|at| base.is_none_or(|base| **at == base)) {
            let path: Arc<Path> = self.dir.join(file_name(base, "log")).into();
            let size = files.logs[&base];
            let file = self.open_log(base)?;
            let walked =
                walk_until(&*file, &path, (base, enough), size, &mut |bytes| self.watched.on_work(bytes));
            let walked = walked.map_err(|fault| self.fault(fault, &path))?.unwrap_or_default();
            self.watched.check(self.dir)?;
            self.report.bytes_verified += size;
            match seal::look_at_seal(self.disk, self.dir, base)? {
                Found::Seal(seal) => {
                    if let Some((position, reason)) = scrub::difference(&seal, size, &walked.pieces) {
                        return Err(self.damaged(reason, path, position));
                    }
                }
                Found::Nothing => {}
                Found::Damaged(seal) => {
                    let reason = format!(
                        "{reason}; whether it is whole again nothing tells, since its seal is damaged too ({seal}): \
                         remove the seal if the segment was restored"
                    );
                    return Err(self.damaged(reason, path, 0));
                }
            }
        }
        tracing::warn!(log = %self.name, found = reason, "a segment that was damaged is whole again");
        let mark = self.dir.join(scrub::DAMAGED_FILE);
        self.disk.remove_file(&mark).map_err(|e| FileError::new("remove", mark, e))?;
        self.dir_changed = true;
        Ok(())
    }

    /// The scrub writes another.
    pub(super) fn drop_seal(&mut self, base: i64) -> Result<(), OpenError> {
        self.dir_changed = true;
        self.report.seals_dropped += 1;
        Ok(seal::remove_seal(self.disk, self.dir, base)?)
    }
}
