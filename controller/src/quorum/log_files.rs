//! The raft log on disk: files of records, and a small file that says what must be in them.
//!
//! Layout of the directory: `log/<first index>.raft` ([`Segment`]), `vote`, `voted` and `progress` ([`SlotFile`]). The progress
//! file holds what was purged (durable before anything is removed), and two lower bounds that are written without waiting
//! for the disk: up to where the log was synced, and what was known to be committed. If the log ends before the first, it
//! was damaged, and the controller does not start: forgetting an acknowledged entry could undo what a quorum has decided.
//!
//! `voted` is such a lower bound too, of the term in `vote`. A vote below it, or below the term of an entry, is an older one:
//! with it the controller could vote twice in a term, so it does not start either.
//!
//! Synchronous; owned by the log's thread. After a failed write or sync nothing is written any more.

use super::disk::SharedDisk;
use super::segment::{Opened, PAYLOAD_MAX, RECORD_HEADER, Segment, index_of_name};
use super::slot_file::SlotFile;
use super::store_error::{AtPath, StoreError, sync_directory};
use super::stored::{DiskKind, StoredEntry, StoredLogId, StoredVote, seal, unseal};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Planted: a vote reaches the disk behind the log, not before what is appended under it.
const VOTE_BEHIND_LOG: bool = cfg!(weir_planted_bug = "B28-reordered");

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Entries up to here are gone from the log; a snapshot holds what they did.
    pub(crate) purged: Option<StoredLogId>,
    /// Index of the very first entry.
    pub(crate) begins: u64,
    /// Index after the last entry that was certainly on disk.
    pub(crate) synced_next: u64,
    /// Known to be committed.
    pub(crate) committed: Option<StoredLogId>,
}

/// The open log.
#[derive(Debug)]
pub(crate) struct LogFiles {
    disk: SharedDisk,
    directory: PathBuf,
    segment_bytes_max: u64,
    segments: Vec<Segment>,
    vote_file: SlotFile,
    vote: Option<StoredVote>,
    /// Tells a term that the vote has reached; see the module.
    voted_file: SlotFile,
    progress_file: SlotFile,
    progress: Progress,
    last: Option<StoredLogId>,
    failed: bool,
}

impl LogFiles {
    /// Makes the files of a new controller. What a creation that crashed half-way left is replaced; a log with entries is
    /// not.
    pub(crate) fn create(disk: &SharedDisk, root: &Path, segment_bytes_max: u64) -> Result<Self, StoreError> {
        let directory = root.join("log");
        disk.create_directory(&directory).at("create", &directory)?;
        if let Some(path) = segment_paths(disk, &directory)?.pop() {
            return Err(StoreError::damaged(&path.1, "it has entries but the controller's identity is gone"));
        }
        let vote_file =
            SlotFile::create(disk, &root.join("vote"), &seal(DiskKind::Vote, &None::<StoredVote>))?;
        let voted_file = SlotFile::create(disk, &root.join("voted"), &seal(DiskKind::Voted, &0_u64))?;
        let progress = Progress::default();
        let progress_file =
            SlotFile::create(disk, &root.join("progress"), &seal(DiskKind::Progress, &progress))?;
        sync_directory(disk, root)?;
        Ok(Self {
            disk: Arc::clone(disk),
            directory,
            segment_bytes_max,
            segments: Vec::new(),
            vote_file,
            vote: None,
            voted_file,
            progress_file,
            progress,
            last: None,
            failed: false,
        })
    }

    /// Opens and checks everything.
    pub(crate) fn open(disk: &SharedDisk, root: &Path, segment_bytes_max: u64) -> Result<Self, StoreError> {
        let directory = root.join("log");
        let (vote_file, vote) = open_slots(disk, &root.join("vote"), DiskKind::Vote)?;
        let (voted_file, voted) = open_voted(disk, root, vote)?;
        let (progress_file, progress) =
            open_slots::<Progress>(disk, &root.join("progress"), DiskKind::Progress)?;
        let mut log = Self {
            disk: Arc::clone(disk),
            directory,
            segment_bytes_max,
            segments: Vec::new(),
            vote_file,
            vote,
            voted_file,
            progress_file,
            progress,
            last: progress.purged,
            failed: false,
        };
        log.open_segments()?;
        log.check_bounds()?;
        log.check_vote(voted, &root.join("vote"))?;
        // A snapshot may have been installed, and its index noted, just before the log could follow.
        log.progress.committed = log.progress.committed.filter(|id| id.index < log.next());
        log.drop_purged_segments()?;
        Ok(log)
    }

    fn open_segments(&mut self) -> Result<(), StoreError> {
        let paths = segment_paths(&self.disk, &self.directory)?;
        let count = paths.len();
        for (at, (first, path)) in paths.into_iter().enumerate() {
            let last = &mut self.last;
            let check = |index: u64, payload: &[u8]| {
                let entry: StoredEntry = unseal(DiskKind::Entry, payload)?;
                if entry.id.index != index {
                    return Err(format!("says that it has index {}", entry.id.index));
                }
                if last.is_some_and(|last| last.index < index && last > entry.id) {
                    return Err("is of an older term than the one before it".to_owned());
                }
                if last.is_none_or(|last| last.index < index) {
                    *last = Some(entry.id);
                }
                Ok(())
            };
            match Segment::open(&self.disk, &path, at + 1 == count, check)? {
                Opened::Unborn => self.disk.remove(&path).at("remove", &path)?,
                Opened::Usable(segment, cut) => {
                    if segment.first() != first {
                        let what = format!("its header says that it begins at index {}", segment.first());
                        return Err(StoreError::damaged(&path, what));
                    }
                    if cut {
                        tracing::warn!(path = %path.display(), "cut a torn record off the end of the raft log");
                    }
                    let before = self.segments.last().map(Segment::next);
                    if before.is_some_and(|next| next != first) {
                        return Err(StoreError::damaged(&path, "entries before it are missing"));
                    }
                    self.segments.push(segment);
                }
            }
        }
        Ok(())
    }

    /// The log must reach from what was purged to what was certainly on disk.
    fn check_bounds(&self) -> Result<(), StoreError> {
        let purged_next = self.purged_next();
        if let Some(first) = self.segments.first()
            && first.first() > purged_next
        {
            let what = format!("entries {purged_next} to {} before it are missing", first.first() - 1);
            return Err(StoreError::damaged(&first.path, what));
        }
        let next = self.next();
        let must = self.progress.synced_next;
        if next < must {
            let what =
                format!("the log ends before index {next}, but entries before {must} had been on disk");
            return Err(StoreError::damaged(&self.directory, what));
        }
        Ok(())
    }

    /// The vote must have reached the terms that it is known to have reached.
    fn check_vote(&self, voted: u64, path: &Path) -> Result<(), StoreError> {
        // Planted: it may be lost, and nobody is to say so.
        if VOTE_BEHIND_LOG || cfg!(weir_planted_bug = "B28") {
            return Ok(());
        }
        let term = self.vote.map_or(0, |vote| vote.term);
        let reached = self.last.map_or(0, |last| last.term).max(voted);
        if term < reached {
            let what = format!("it is an older version, of term {term}: it had reached term {reached}");
            return Err(StoreError::damaged(path, what));
        }
        Ok(())
    }

    /// Index that the next entry must have.
    pub(crate) fn next(&self) -> u64 {
        let by_segments = self.segments.last().map_or(0, Segment::next);
        by_segments.max(self.purged_next())
    }

    /// Index of the first entry that may be in the log.
    fn purged_next(&self) -> u64 {
        self.progress.purged.map_or(self.progress.begins, |id| id.index + 1)
    }

    /// The last entry, or what was purged if nothing is left.
    pub(crate) fn last(&self) -> Option<StoredLogId> {
        self.last
    }

    pub(crate) fn vote(&self) -> Option<StoredVote> {
        self.vote
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// Saves the vote durably.
    pub(crate) fn save_vote(&mut self, vote: StoredVote) -> Result<(), StoreError> {
        self.guarded(|log| {
            let sealed = seal(DiskKind::Vote, &Some(vote));
            if cfg!(weir_planted_bug = "B28") {
                log.vote_file.write_lazy(&sealed)?;
            } else if !VOTE_BEHIND_LOG {
                log.vote_file.write_durable(&sealed)?;
            }
            log.vote = Some(vote);
            log.voted_file.write_lazy(&seal(DiskKind::Voted, &vote.term))
        })
    }

    /// Notes what is committed, without waiting for the disk; but never before the entries themselves are on it.
    pub(crate) fn save_committed(&mut self, committed: Option<StoredLogId>) -> Result<(), StoreError> {
        if committed.is_some_and(|id| id.index >= self.progress.synced_next) {
            self.sync()?;
        }
        self.guarded(|log| {
            log.progress.committed = committed;
            log.write_progress_lazy()
        })
    }

    /// Appends sealed entries. They are on disk after [`LogFiles::sync`].
    pub(crate) fn append(&mut self, ids: &[StoredLogId], payloads: &[Vec<u8>]) -> Result<(), StoreError> {
        self.guarded(|log| {
            log.begin_at(ids)?;
            let expected = log.next();
            let consecutive = (expected..).zip(ids).all(|(index, id)| index == id.index);
            if !consecutive || payloads.iter().any(|payload| payload.len() > PAYLOAD_MAX) {
                let source = std::io::Error::other("the entries do not continue the log or are too large");
                return Err(StoreError::Io { verb: "append to", path: log.directory.clone(), source });
            }
            let mut rest = payloads;
            while !rest.is_empty() {
                let room = log.writable_segment()?;
                let fitting = fitting(rest, room);
                let (now, later) = rest.split_at(fitting);
                log.segments.last_mut().expect("just made").append(now)?;
                rest = later;
            }
            log.last = ids.last().copied().or(log.last);
            Ok(())
        })
    }

    /// The first entry of all says where the log begins.
    fn begin_at(&mut self, ids: &[StoredLogId]) -> Result<(), StoreError> {
        let Some(first) = ids.first().filter(|id| id.index != self.progress.begins) else { return Ok(()) };
        if !self.segments.is_empty() || self.progress.purged.is_some() {
            return Ok(());
        }
        self.progress.begins = first.index;
        self.progress.synced_next = first.index;
        self.write_progress_durable()
    }

    /// Waits until everything appended is on disk, and notes that.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.guarded(|log| {
            if let Some(segment) = log.segments.last() {
                segment.sync()?;
            }
            log.progress.synced_next = log.next();
            if VOTE_BEHIND_LOG {
                log.vote_file.write_durable(&seal(DiskKind::Vote, &log.vote))?;
            }
            log.write_progress_lazy()
        })
    }

    /// Reads an entry back, with its size in bytes.
    pub(crate) fn read(&self, index: u64) -> Result<Option<(StoredEntry, usize)>, StoreError> {
        if index < self.purged_next() {
            return Ok(None);
        }
        let after = self.segments.partition_point(|segment| segment.first() <= index);
        let Some(segment) = after.checked_sub(1).map(|at| &self.segments[at]) else {
            return Ok(None);
        };
        if index >= segment.next() {
            return Ok(None);
        }
        let payload = segment.read(index)?;
        let entry = unseal(DiskKind::Entry, &payload);
        let entry = entry.map_err(|what| StoreError::damaged(&segment.path, what))?;
        Ok(Some((entry, payload.len())))
    }

    /// Removes the entries from index `next` on.
    pub(crate) fn truncate(&mut self, next: u64) -> Result<(), StoreError> {
        self.guarded(|log| {
            let next = next.max(log.purged_next());
            if next >= log.next() {
                return Ok(());
            }
            // First the bound, durably: else a crash in between would look like damage.
            log.progress.synced_next = log.progress.synced_next.min(next);
            log.progress.committed = log.progress.committed.filter(|id| id.index < next);
            log.write_progress_durable()?;
            while let Some(segment) = log.segments.last()
                && segment.first() >= next
            {
                log.disk.remove(&segment.path).at("remove", &segment.path)?;
                sync_directory(&log.disk, &log.directory)?;
                log.segments.pop();
            }
            if let Some(segment) = log.segments.last_mut() {
                segment.truncate(next)?;
            }
            log.last = match next.checked_sub(1).map(|index| log.read(index)) {
                Some(read) => read?.map(|(entry, _)| entry.id).or(log.progress.purged),
                None => None,
            };
            Ok(())
        })
    }

    /// Forgets the entries up to `upto`, which may lie beyond the log's end after a snapshot was installed.
    pub(crate) fn purge(&mut self, upto: StoredLogId) -> Result<(), StoreError> {
        self.guarded(|log| {
            if log.progress.purged.is_some_and(|purged| purged.index >= upto.index) {
                return Ok(());
            }
            let beyond = upto.index + 1 >= log.next();
            log.progress.purged = Some(upto);
            log.progress.synced_next = log.progress.synced_next.max(upto.index + 1);
            log.write_progress_durable()?;
            if beyond {
                log.last = Some(upto);
            }
            log.drop_purged_segments()
        })
    }

    fn drop_purged_segments(&mut self) -> Result<(), StoreError> {
        let purged_next = self.purged_next();
        let gone = self.segments.iter().take_while(|segment| segment.next() <= purged_next).count();
        // Oldest first, so that what is left has no gap whenever the power goes.
        for segment in self.segments.drain(..gone) {
            self.disk.remove(&segment.path).at("remove", &segment.path)?;
        }
        if gone > 0 { sync_directory(&self.disk, &self.directory) } else { Ok(()) }
    }

    /// Makes sure that the last segment can take more; returns how many bytes.
    fn writable_segment(&mut self) -> Result<u64, StoreError> {
        let next = self.next();
        let full = match self.segments.last() {
            Some(segment) => segment.len() >= self.segment_bytes_max || segment.next() != next,
            None => true,
        };
        if full {
            if let Some(segment) = self.segments.last() {
                segment.sync()?;
            }
            self.segments.push(Segment::create(&self.disk, &self.directory, next)?);
        }
        let length = self.segments.last().expect("just made").len();
        Ok(self.segment_bytes_max.saturating_sub(length))
    }

    fn write_progress_lazy(&mut self) -> Result<(), StoreError> {
        let bytes = seal(DiskKind::Progress, &self.progress);
        self.progress_file.write_lazy(&bytes)
    }

    fn write_progress_durable(&mut self) -> Result<(), StoreError> {
        let bytes = seal(DiskKind::Progress, &self.progress);
        self.progress_file.write_durable(&bytes)
    }

    /// After one failure nothing more is written: what is on disk is not known any more.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Result<(), StoreError>) -> Result<(), StoreError> {
        if self.failed {
            let source = std::io::Error::other("an earlier write failed");
            return Err(StoreError::Io { verb: "write to", path: self.directory.clone(), source });
        }
        let outcome = work(self);
        self.failed = outcome.is_err();
        outcome
    }
}

fn open_slots<T: serde::de::DeserializeOwned>(
    disk: &SharedDisk,
    path: &Path,
    kind: DiskKind,
) -> Result<(SlotFile, T), StoreError> {
    let (file, bytes) = SlotFile::open(disk, path)?;
    let value = unseal(kind, &bytes).map_err(|what| StoreError::damaged(path, what))?;
    Ok((file, value))
}

/// The term that the vote has reached, as the file beside it tells. A directory of an older version has none, and gets one.
fn open_voted(
    disk: &SharedDisk,
    root: &Path,
    vote: Option<StoredVote>,
) -> Result<(SlotFile, u64), StoreError> {
    let path = root.join("voted");
    if disk.exists(&path) {
        return open_slots(disk, &path, DiskKind::Voted);
    }
    let term = vote.map_or(0, |vote| vote.term);
    // Under its name it is whole: else a crash here would end every start.
    let new = root.join("voted.new");
    drop(SlotFile::create(disk, &new, &seal(DiskKind::Voted, &term))?);
    disk.rename(&new, &path).at("rename", &new)?;
    sync_directory(disk, root)?;
    open_slots(disk, &path, DiskKind::Voted)
}

/// The log's files in order of first index.
fn segment_paths(disk: &SharedDisk, directory: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let mut paths = Vec::new();
    for path in disk.list(directory).at("list", directory)? {
        match path.file_name().and_then(|name| name.to_str()).and_then(index_of_name) {
            Some(first) => paths.push((first, path)),
            None => return Err(StoreError::damaged(&path, "it does not belong into a raft log")),
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// How many payloads go into a segment with `room` bytes left; at least one.
fn fitting(payloads: &[Vec<u8>], room: u64) -> usize {
    let mut used = 0;
    let within = payloads
        .iter()
        .take_while(|payload| {
            used += RECORD_HEADER + payload.len() as u64;
            used <= room
        })
        .count();
    within.max(1)
}
