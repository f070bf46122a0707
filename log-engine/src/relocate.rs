//! Moving a log to another data directory of its node (KIP-113), while it is written and read until the very last step.
//!
//! The files are copied into `<target>/<log>.moving`: finished segments with their seals, by which every byte is checked, and as
//! much of the newest segment as there is ([`LogMove::copy_written`], again and again). Then the owner closes the log, and
//! [`LogMove::finish`] makes the copy exactly what the closed log is: what has changed is copied again, what is gone goes.
//!
//! ```text
//! <target>/<log>.moving/                                      files, synced
//! <target>/flushed-ends …                                     what is known of the log
//! <source>/<log>          → <source>/<log>.moved-to.<target>  synced: nobody has it, and the source tells who will (the target's id)
//! <target>/<log>.moving/  → <target>/<log>                    synced: the target has it
//! <source>/flushed-ends …                                     forgets the log
//! <source>/<log>.moved-to.<target>                            its files are removed when the log was opened in the target
//! ```
//!
//! So no two directories ever have the log, whichever of them a start finds: the source does not open what was moved away, and a
//! start puts it back only where the target is there and has not got it ([`settle_moves`]). `.moving` directories that it finds go.

mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine_core::seal::{FileSum, PIECE_BYTES, Seal, crc32c};

use self::settle::{MovedAway, forget_end};
pub use self::settle::{SettledMoves, settle_moves};
pub(crate) use self::settle::{moved_away, moved_away_log, remove_unfinished};
use crate::LogName;
use crate::compact::{CLEANED_SUFFIX, SWAP_SUFFIX};
use crate::data_dir::{DELETED_SUFFIX, DataDir, TMP_SUFFIX, read_file, remove_dir_and_files};
use crate::delete::DetachedLog;
use crate::disk::{DiskFile, OpenMode};
use crate::error::{FileError, MoveError};
use crate::flushed_ends::{FlushedEnd, KnownEnd};
use crate::full_walk::BatchCheck;
use crate::reader::{LogReader, Shared};
use crate::recovery::remove_if_there;
use crate::scan::{Fault, read_at};
use crate::seal::{self, Found, INDEX_BYTES_MAX};
use crate::segment::{Segment, file_name, parse_file_name};
use crate::{poison, scrub};

const MOVING_SUFFIX: &str = ".moving";
/// Indexes of a finished segment that its seal describes.
const SEALED_INDEXES: [&str; 3] = ["index", "timeindex", "txnindex"];
/// What else a finished segment has.
const BESIDE_SEALED: [&str; 3] = ["seal", "snapshot", "appendtimes"];
/// Files that are written before they are synced, so that the device may take them together.
const UNSYNCED_MAX: usize = 64;

/// How fast to go: told the bytes before they are copied. It waits as long as it likes; an error ends the copying.
pub type MovePace<'a> = &'a mut dyn FnMut(u64) -> Result<(), MoveError>;

/// A log that is being copied into another data directory. Dropped in the middle it leaves files that the next
/// [`DataDir::open`] removes; [`abandon`](Self::abandon) removes them now.
pub struct LogMove {
    source: DataDir,
    target: DataDir,
    name: LogName,
    from: PathBuf,
    to: PathBuf,
    /// Finished segments that were copied, as they were sealed.
    sealed: BTreeMap<i64, Seal>,
    /// Files that were copied of them, besides the records, and are as sealed.
    indexes: BTreeSet<String>,
    /// Other files of them that were copied.
    beside: BTreeMap<String, FileSum>,
    newest: Option<Newest>,
    copied_to: i64,
    /// What was too much when the log was closed the last time.
    left_last: Option<u64>,
    /// The target may have noted what is known of the log.
    is_noted: bool,
}

/// How far the segment that takes appends was copied.
struct Newest {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    /// Of the log, when the copying began: nothing that was copied was cut since.
    cuts: u64,
    position: u64,
    check: BatchCheck,
    file: Arc<dyn DiskFile>,
}

impl Newest {
    /// Whether nothing but its closing has happened to the log since: compaction, too, gives a finished segment other records
    /// in the same place.
    fn is_of_closed(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared) && !self.segment.is_replaced() && self.cuts + 1 == shared.cuts()
    }
}

/// What is left to do when the log is closed.
#[derive(Default)]
struct Plan {
    kept: BTreeSet<String>,
    /// Names, and the base offset of what is a segment.
    copied: Vec<(String, Option<i64>)>,
    left: u64,
}

impl LogMove {
    /// Begins; nothing is copied yet. What an earlier try left is removed.
    pub fn begin(source: &DataDir, target: &DataDir, name: LogName) -> Result<LogMove, MoveError> {
        for data in [source, target] {
            if let Some(away) = moved_away_log(&**data.disk(), data.path(), name)? {
                return Err(MoveError::OldFiles { path: away.path_in(data.path()) });
            }
        }
        let (disk, to) = (target.disk().clone(), target.path().join(format!("{name}{MOVING_SUFFIX}")));
        let (source, target) = (source.clone(), target.clone());
        let from = source.path().join(name.to_string());
        let begun = LogMove {
            name,
            from,
            to: to.clone(),
            sealed: BTreeMap::new(),
            indexes: BTreeSet::new(),
            beside: BTreeMap::new(),
            newest: None,
            copied_to: 0,
            left_last: None,
            is_noted: false,
            source,
            target,
        };
        begun.check_name()?;
        remove_dir_and_files(&*disk, &to)?;
        disk.create_dir_all(&to).map_err(|e| FileError::new("create directory", &to, e))?;
        // By its name a start knows that what is noted of the log is not so yet.
        sync(&begun.target)?;
        Ok(begun)
    }

    /// The log.
    pub fn name(&self) -> LogName {
        self.name
    }

    /// The directory that it is copied into.
    pub fn target(&self) -> &DataDir {
        &self.target
    }

    /// Offset up to which the log was copied.
    pub fn copied_to(&self) -> i64 {
        self.copied_to
    }

    /// Copies what was written since the last time, from a log that stays open. How many bytes of records that was.
    pub fn copy_written(&mut self, reader: &LogReader, pace: MovePace<'_>) -> Result<u64, MoveError> {
        let shared = reader.shared();
        let cuts = shared.cuts();
        let segments = shared.segments();
        let mut copied = 0;
        for segment in segments.iter().take(segments.len().saturating_sub(1)) {
            match self.copy_finished(shared, segment, pace) {
                Ok(bytes) => copied += bytes,
                // Another took its place while it was read, or it was cut: what is there now comes the next time, or at the end.
                Err(MoveError::Damaged { .. } | MoveError::Io(_))
                    if !shared.has(segment) || shared.cuts() != cuts => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(newest) = segments.last() {
            match self.copy_newest(shared, newest, cuts, pace) {
                Ok(bytes) => copied += bytes,
                // It was finished meanwhile, and another took its place, or it was cut or removed: the next time begins anew.
                Err(MoveError::Damaged { .. } | MoveError::Io(_))
                    if !shared.has(newest) || shared.cuts() != cuts => {}
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }

    fn copy_finished(
        &mut self,
        shared: &Shared,
        segment: &Arc<Segment>,
        pace: MovePace<'_>,
    ) -> Result<u64, MoveError> {
        let disk = self.source.disk().clone();
        let mut ended = Ok(());
        let mut sealing_pace = |bytes| {
            ended = pace(bytes);
            ended.is_ok()
        };
        let seal = seal::seal_of(&*disk, shared, segment, &mut sealing_pace);
        ended?;
        // It may not be on disk yet, or be gone.
        let Some(seal) = seal.map_err(|fault| fault_of(fault, segment.log().path()))? else { return Ok(0) };
        let base = seal.base_offset;
        if self.sealed.get(&base) == Some(&*seal) {
            return Ok(0);
        }
        self.sealed.remove(&base);
        SEALED_INDEXES.iter().for_each(|part| _ = self.indexes.remove(&file_name(base, part)));
        self.copy_sealed_records(&seal, pace)?;
        let sums = [seal.index, seal.time_index, seal.txn_index];
        for (name, sum) in SEALED_INDEXES.map(|part| file_name(base, part)).into_iter().zip(sums) {
            let bytes = read_file(&*disk, &self.from.join(&name), INDEX_BYTES_MAX)?;
            if let (Some(sum), Some(bytes)) = (sum, bytes)
                && FileSum::of(&bytes) == sum
            {
                pace(bytes.len() as u64)?;
                self.write_whole(&name, &bytes)?;
                self.indexes.insert(name);
            }
        }
        for name in BESIDE_SEALED.map(|part| file_name(base, part)) {
            self.beside.remove(&name);
            if let Some(bytes) = read_file(&*disk, &self.from.join(&name), INDEX_BYTES_MAX)? {
                pace(bytes.len() as u64)?;
                self.write_whole(&name, &bytes)?;
                self.beside.insert(name, FileSum::of(&bytes));
            }
        }
        self.copied_to = self.copied_to.max(seal.next_base);
        let length = seal.length;
        self.sealed.insert(base, *seal);
        Ok(length)
    }

    /// Every piece must be what was sealed.
    fn copy_sealed_records(&self, seal: &Seal, pace: MovePace<'_>) -> Result<(), MoveError> {
        let name = file_name(seal.base_offset, "log");
        let path: Arc<Path> = self.from.join(&name).into();
        let source = self.open_source(&path)?;
        let found = source.len().map_err(|e| FileError::new("look at", &*path, e))?;
        if found != seal.length {
            let reason = scrub::other_length(seal, found);
            return Err(MoveError::Damaged { reason, path: path.to_path_buf(), position: 0 });
        }
        let copy = self.open_copy(&name)?;
        let mut position = 0;
        for sealed in &seal.pieces {
            let piece = copy_piece(&*source, &path, &*copy, (position, seal.length), pace)?;
            if crc32c(&piece) != *sealed {
                let reason = scrub::other_bytes(position, position + piece.len() as u64);
                return Err(MoveError::Damaged { reason, path: path.to_path_buf(), position });
            }
            position += piece.len() as u64;
        }
        Ok(copy.sync().map_err(|e| FileError::new("sync", self.to.join(&name), e))?)
    }

    /// Bytes that may not be on the source's disk yet are copied too: the log is closed before any of them counts.
    fn copy_newest(
        &mut self,
        shared: &Arc<Shared>,
        segment: &Arc<Segment>,
        cuts: u64,
        pace: MovePace<'_>,
    ) -> Result<u64, MoveError> {
        let goes_on = |newest: &Newest| {
            Arc::ptr_eq(&newest.shared, shared)
                && Arc::ptr_eq(&newest.segment, segment)
                && newest.cuts == cuts
        };
        let (base, name) = (segment.base_offset(), file_name(segment.base_offset(), "log"));
        let mut newest = match self.newest.take().filter(goes_on) {
            Some(newest) => newest,
            None => Newest {
                shared: shared.clone(),
                segment: segment.clone(),
                cuts,
                position: 0,
                check: BatchCheck::new(base),
                file: self.open_copy(&name)?,
            },
        };
        self.sealed.remove(&base);
        let (size, next_offset) = {
            let state = segment.state().read();
            (state.size, state.next_offset)
        };
        let path: Arc<Path> = self.from.join(&name).into();
        let source = self.open_source(&path)?;
        let before = newest.position;
        while newest.position < size {
            let piece = copy_piece(&*source, &path, &*newest.file, (newest.position, size), pace)?;
            newest.position += piece.len() as u64;
            newest.check.feed(&piece).map_err(|fault| fault_of(fault, &path))?;
        }
        if newest.position > before {
            newest.file.sync().map_err(|e| FileError::new("sync", self.to.join(&name), e))?;
            // The close would do it, for a log that is flushed when there is time, while nobody can use it.
            source.sync().map_err(|e| FileError::new("sync", &*path, e))?;
        }
        self.copied_to = self.copied_to.max(next_offset);
        let copied = newest.position - before;
        self.newest = Some(newest);
        Ok(copied)
    }

    /// Makes the copy what the log is, which its owner has closed, of which `closed` is a reader, and puts it in the source's
    /// place. If that would copy more than `left_max` bytes nothing was done. After an error the source has the log, but for
    /// [`MoveError::InDoubt`]. The answer is what is left of the log in the source, to be removed when it was opened in the target.
    pub fn finish(
        &mut self,
        closed: &LogReader,
        left_max: u64,
        pace: MovePace<'_>,
    ) -> Result<DetachedLog, MoveError> {
        let record = self.settled_record(closed)?;
        self.check_name()?;
        let plan = self.plan(closed)?;
        if plan.left > left_max {
            return Err(match self.left_last.replace(plan.left) {
                Some(last) if last <= plan.left => MoveError::NeverLittle { bytes: plan.left },
                Some(_) | None => MoveError::TooMuchLeft { bytes: plan.left },
            });
        }
        self.carry_out(closed, plan, pace)?;
        self.is_noted = true;
        match self.take_over_records(record).map_err(MoveError::from).and_then(|()| self.commit()) {
            Ok(moved) => Ok(DetachedLog::moved(self.source.clone(), self.name, moved)),
            Err(error @ MoveError::InDoubt(_)) => Err(error),
            Err(error) => {
                // At once: a log of this name that is made here from now on would be taken for a damaged one.
                self.is_noted = forget_end(self.target.ends(), self.name).is_err();
                Err(error)
            }
        }
    }

    /// What the source has noted of the log, which must be all of it.
    fn settled_record(&self, closed: &LogReader) -> Result<Option<FlushedEnd>, MoveError> {
        let end = closed.end();
        match self.source.ends().get(self.name) {
            KnownEnd::Known(record) if record.end == end => Ok(Some(record)),
            KnownEnd::New | KnownEnd::Lost if end == 0 => Ok(None),
            KnownEnd::Known(_) | KnownEnd::New | KnownEnd::Lost => {
                Err(MoveError::NotSettled { reason: "not all of it is known to be on its disk" })
            }
        }
    }

    /// The target must not have another log of this name.
    fn check_name(&self) -> Result<(), MoveError> {
        match self.target.list()?.contains(&self.name) {
            true => Err(MoveError::Taken { path: self.target.path().join(self.name.to_string()) }),
            false => Ok(()),
        }
    }

    fn plan(&self, closed: &LogReader) -> Result<Plan, MoveError> {
        let disk = self.source.disk();
        let mut plan = Plan::default();
        for entry in disk.list(&self.from).map_err(|e| FileError::new("list", &self.from, e))? {
            let name = entry.name;
            if name == poison::FILE_NAME || name == scrub::DAMAGED_FILE || name.ends_with(SWAP_SUFFIX) {
                return Err(MoveError::NotSettled { reason: "it is damaged, or a write to it has failed" });
            }
            if entry.is_dir || [TMP_SUFFIX, DELETED_SUFFIX, CLEANED_SUFFIX].iter().any(|s| name.ends_with(s))
            {
                continue;
            }
            let is_copied = match parse_file_name(&name) {
                Some((base, "log")) => self.is_as_copied(base)?,
                Some((base, _)) if self.indexes.contains(&name) => self.is_as_copied(base)?,
                Some(_) if self.beside.contains_key(&name) => self.is_beside_as_copied(&name)?,
                Some(_) | None => false,
            };
            if is_copied {
                plan.kept.insert(name);
                continue;
            }
            let base = parse_file_name(&name).filter(|(_, part)| *part == "log").map(|(base, _)| base);
            let already =
                base.map_or(0, |base| self.goes_on(closed, base).map_or(0, |newest| newest.position));
            plan.left += entry.len.saturating_sub(already);
            plan.copied.push((name, base));
        }
        Ok(plan)
    }

    /// Whether a finished segment is what was copied.
    fn is_as_copied(&self, base: i64) -> Result<bool, MoveError> {
        let Some(copied) = self.sealed.get(&base) else { return Ok(false) };
        let found = seal::read_seal(&**self.source.disk(), &self.from, base)?;
        Ok(matches!(found, Found::Seal(seal) if *seal == *copied))
    }

    fn is_beside_as_copied(&self, name: &str) -> Result<bool, MoveError> {
        let found = read_file(&**self.source.disk(), &self.from.join(name), INDEX_BYTES_MAX)?;
        Ok(found.map(|bytes| FileSum::of(&bytes)).as_ref() == self.beside.get(name))
    }

    /// The newest segment, if what was copied of it is the beginning of what the closed log has there.
    fn goes_on(&self, closed: &LogReader, base: i64) -> Option<&Newest> {
        let newest = self.newest.as_ref().filter(|newest| newest.segment.base_offset() == base);
        newest.filter(|newest| newest.is_of_closed(closed.shared()))
    }

    fn carry_out(&mut self, closed: &LogReader, plan: Plan, pace: MovePace<'_>) -> Result<(), MoveError> {
        let disk = self.target.disk().clone();
        for entry in disk.list(&self.to).map_err(|e| FileError::new("list", &self.to, e))? {
            let stays =
                plan.kept.contains(&entry.name) || plan.copied.iter().any(|(name, _)| *name == entry.name);
            if !stays {
                remove_if_there(&*disk, &self.to.join(&entry.name))?;
            }
        }
        let mut newest = self.newest.take().filter(|newest| newest.is_of_closed(closed.shared()));
        let mut unsynced = Vec::new();
        for (name, base) in &plan.copied {
            let copy = match base {
                Some(base) => {
                    let begun = newest.take_if(|newest| newest.segment.base_offset() == *base);
                    self.copy_records(name, *base, begun, pace)?
                }
                None => {
                    let path = self.from.join(name);
                    let bytes = read_file(&**self.source.disk(), &path, INDEX_BYTES_MAX)?.unwrap_or_default();
                    pace(bytes.len() as u64)?;
                    self.write(name, &bytes)?
                }
            };
            unsynced.push((name, copy));
            if unsynced.len() == UNSYNCED_MAX {
                self.sync_all(unsynced.drain(..))?;
            }
        }
        self.sync_all(unsynced)?;
        Ok(disk.sync_dir(&self.to).map_err(|e| FileError::new("sync", &self.to, e))?)
    }

    /// Records without a seal, of which a beginning may be there: every batch must be whole.
    fn copy_records(
        &self,
        name: &str,
        base: i64,
        begun: Option<Newest>,
        pace: MovePace<'_>,
    ) -> Result<Arc<dyn DiskFile>, MoveError> {
        let path: Arc<Path> = self.from.join(name).into();
        let source = self.open_source(&path)?;
        let size = source.len().map_err(|e| FileError::new("look at", &*path, e))?;
        let (mut position, mut check, copy) = match begun {
            Some(newest) => (newest.position, newest.check, newest.file),
            None => (0, BatchCheck::new(base), self.open_copy(name)?),
        };
        while position < size {
            let piece = copy_piece(&*source, &path, &*copy, (position, size), pace)?;
            position += piece.len() as u64;
            check.feed(&piece).map_err(|fault| fault_of(fault, &path))?;
        }
        check.end(size).map_err(|fault| fault_of(fault, &path))?;
        Ok(copy)
    }

    /// What the directory notes of its logs, durably.
    fn take_over_records(&self, record: Option<FlushedEnd>) -> Result<(), FileError> {
        let name = self.name;
        self.target.ends().remove_durably(name)?;
        if let Some(record) = record {
            self.target.ends().set_durably(name, record)?;
        }
        let (source, target) = (&self.source, &self.target);
        for (from, to) in [(source.cleaned(), target.cleaned()), (source.dropped(), target.dropped())] {
            to.lower_durably(name, None)?;
            if let Some(end) = from.get(name) {
                to.raise(name, end);
                to.write()?;
            }
        }
        Ok(())
    }

    /// The log gets its new place, and loses its old one before. The answer is what its old files are called now.
    fn commit(&self) -> Result<PathBuf, MoveError> {
        let moved = MovedAway { name: self.name, to: self.target.directory_id() }.path_in(self.source.path());
        rename(&self.source, &self.from, &moved)?;
        let new = self.target.path().join(self.name.to_string());
        match sync(&self.source).and_then(|()| rename(&self.target, &self.to, &new)) {
            Ok(()) => sync(&self.target).map(|()| moved).map_err(MoveError::InDoubt),
            Err(error) => Err(self.take_back(&moved, error)),
        }
    }

    /// The log gets its old place again.
    fn take_back(&self, moved: &Path, error: FileError) -> MoveError {
        if let Err(second) = rename(&self.source, moved, &self.from) {
            tracing::error!(log = %self.name, %error, "a log could not be moved");
            return MoveError::InDoubt(second);
        }
        if let Err(second) = sync(&self.source) {
            // If it does not last the next start does it again.
            tracing::warn!(log = %self.name, error = %second, "a data directory could not be synced");
        }
        MoveError::Io(error)
    }

    /// Removes what was copied, and what this move has noted of the log; not what is known of another that was made in the
    /// target meanwhile.
    pub fn abandon(self) -> Result<(), FileError> {
        if self.is_noted && !self.target.list()?.contains(&self.name) {
            forget_end(self.target.ends(), self.name)?;
        }
        remove_dir_and_files(&**self.target.disk(), &self.to)?;
        sync(&self.target)
    }

    fn open_source(&self, path: &Path) -> Result<Arc<dyn DiskFile>, FileError> {
        self.source.disk().open(path, OpenMode::Read).map_err(|e| FileError::new("open", path, e))
    }

    fn open_copy(&self, name: &str) -> Result<Arc<dyn DiskFile>, FileError> {
        let path = self.to.join(name);
        self.target.disk().open(&path, OpenMode::CreateOrEmpty).map_err(|e| FileError::new("create", path, e))
    }

    fn write_whole(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        let copy = self.write(name, bytes)?;
        copy.sync().map_err(|e| FileError::new("sync", self.to.join(name), e))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<Arc<dyn DiskFile>, FileError> {
        let copy = self.open_copy(name)?;
        copy.write_at(bytes, 0).map_err(|e| FileError::new("write", self.to.join(name), e))?;
        Ok(copy)
    }

    fn sync_all<'a>(
        &self,
        copies: impl IntoIterator<Item = (&'a String, Arc<dyn DiskFile>)>,
    ) -> Result<(), FileError> {
        copies.into_iter().try_for_each(|(name, copy)| {
            copy.sync().map_err(|e| FileError::new("sync", self.to.join(name), e))
        })
    }
}

fn rename(data: &DataDir, from: &Path, to: &Path) -> Result<(), FileError> {
    data.disk().rename(from, to).map_err(|e| FileError::new("rename", from, e))
}

fn sync(data: &DataDir) -> Result<(), FileError> {
    data.disk().sync_dir(data.path()).map_err(|e| FileError::new("sync", data.path(), e))
}

/// Copies the piece of a file that begins at a position, of so many bytes in all.
fn copy_piece(
    source: &dyn DiskFile,
    path: &Path,
    copy: &dyn DiskFile,
    (position, size): (u64, u64),
    pace: MovePace<'_>,
) -> Result<Vec<u8>, MoveError> {
    let len = PIECE_BYTES.min(size - position);
    pace(len)?;
    let cold = !source.is_warm(position, len);
    let mut piece = vec![0; len as usize];
    read_at(source, path, &mut piece, position, false).map_err(|fault| fault_of(fault, path))?;
    if cold {
        source.let_go(position, len);
    }
    copy.write_at(&piece, position).map_err(|e| FileError::new("copy", path, e))?;
    Ok(piece)
}

fn fault_of(fault: Fault, path: &Path) -> MoveError {
    match fault {
        Fault::Cold => MoveError::Io(FileError::new("read", path, io::ErrorKind::WouldBlock.into())),
        Fault::Io(error) => MoveError::Io(error),
        Fault::Damaged { position, reason } => MoveError::Damaged { reason, path: path.to_owned(), position },
    }
}
