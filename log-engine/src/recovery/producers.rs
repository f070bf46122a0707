//! Producers, epochs and transaction indexes of an opened log: from what is stored of them, and from the batches since.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use log_engine_core::{AbortedDigest, AbortedTransaction, EpochHistory, ProducerStates, producer_snapshot};

use super::files::Files;
use super::{Recovery, note_epoch};
use crate::data_dir::write_file;
use crate::disk::OpenMode;
use crate::error::{FileError, OpenError};
use crate::log::is_disk_full;
use crate::replay::{Within, forget_phantoms, newest_trusted, replay_segment_while};
use crate::segment::{Segment, file_name};
use crate::snapshots::{self, Saved};
use crate::txn_index;

/// What the replay found of a segment.
#[derive(Default)]
struct Replayed {
    aborted: Vec<AbortedTransaction>,
    first_ongoing_at_end: Option<i64>,
}

impl Recovery<'_> {
    /// Producers and epochs from what is stored of them and the batches since; with the offset of the snapshot. The
    /// transaction indexes of the segments that are replayed are written anew where they differ.
    pub(super) fn replay(
        &mut self,
        segments: &[Arc<Segment>],
        files: &Files,
        stored_epochs: Option<EpochHistory>,
    ) -> Result<(ProducerStates, EpochHistory, i64), OpenError> {
        let (saved, trusted) = self.newest_snapshot(segments, files)?;
        let snapshot_offset = saved.as_ref().map_or(-1, |saved| saved.offset);
        let (from, mut producers) = match saved {
            Some(saved) => (saved.offset, saved.producers),
            None => (i64::MIN, ProducerStates::new(self.config.producers_max)),
        };
        let dropped_to = self.data.dropped().get(self.name).unwrap_or(-1);
        let known = (self.report.start, dropped_to);
        forget_phantoms(segments, &mut producers, from, known, &mut |bytes| self.watched.on_work(bytes))
            .map_err(|(fault, segment)| self.fault(fault, segment.log().path()))?;
        self.watched.check(self.dir)?;
        // Epochs that began above the known end may be ahead of the log; the batches tell them again.
        let (mut epochs, epochs_from) = match stored_epochs.filter(|_| self.known.is_some()) {
            Some(mut stored) => {
                stored.truncate_from_end(self.floor);
                (stored, self.floor)
            }
            None => (EpochHistory::new(), i64::MIN),
        };
        let mut replayed: BTreeMap<i64, Replayed> = BTreeMap::new();
        for segment in segments {
            if segment.state().read().next_offset <= from.min(epochs_from) {
                continue;
            }
            let found = replayed.entry(segment.base_offset()).or_default();
            let result = replay_segment_while(segment, from.min(epochs_from), |header, event| {
                self.report.batches_walked += 1;
                if header.base_offset >= from {
                    let completed = event.replay(&mut producers);
                    found.aborted.extend(completed.and_then(|completed| completed.aborted()));
                }
                note_epoch(&mut epochs, header);
                self.watched.on_work(header.size() as u64)
            });
            found.first_ongoing_at_end = producers.first_ongoing();
            result.map_err(|fault| self.fault(fault, segment.log().path()))?;
            self.watched.check(self.dir)?;
        }
        epochs.truncate_from_end(self.report.end);
        epochs.truncate_from_start(self.report.start);
        for (at, segment) in segments.iter().enumerate() {
            let base = segment.base_offset();
            let is_last = at + 1 == segments.len();
            let on_disk = match trusted.as_ref().filter(|within| within.segment == base) {
                Some(within) => within.digest,
                None if base >= from => AbortedDigest::default(),
                // It is looked at when it is needed.
                None => continue,
            };
            let replayed = replayed.remove(&base).unwrap_or_default();
            self.settle_aborted(segment, files.aborted.contains(&base), on_disk, &replayed.aborted)?;
            if !is_last {
                segment.aborted().finish(replayed.first_ongoing_at_end);
            }
        }
        Ok((producers, epochs, snapshot_offset))
    }

    /// The newest snapshot to go on from, with the segment within which it stands.
    fn newest_snapshot(
        &self,
        segments: &[Arc<Segment>],
        files: &Files,
    ) -> Result<(Option<Saved>, Option<Within>), OpenError> {
        if self.known.is_none() {
            return Ok((None, None));
        }
        let producers_max = self.config.producers_max;
        let (saved, within) =
            newest_trusted((self.disk, self.dir), segments, &files.snapshots, self.floor, producers_max)
                .map_err(|fault| self.fault(fault, self.dir))?;
        let Some(within) = within.filter(|_| self.poisoned) else { return Ok((saved, within)) };
        // What was written of the index may be lost, whatever the cache shows.
        let newest =
            snapshots::load_newest(self.disk, self.dir, &files.snapshots, within.segment, producers_max)?;
        Ok((newest, None))
    }

    /// If newer snapshots could not be used, or the newest is missing, one as of the end takes their place, so that the next
    /// start need not read the batches again. Those at the base of a segment are the scrub's. Answers the offset of the newest
    /// that is whole.
    pub(super) fn replace_passed_over(
        &mut self,
        segments: &[Arc<Segment>],
        files: &mut Files,
        producers: &ProducerStates,
        used: i64,
    ) -> Result<i64, OpenError> {
        let end = self.report.end;
        let passed_over: Vec<i64> = files.snapshots.range(used + 1..).copied().collect();
        let is_missing = self.known.is_some_and(|known| known.snapshot_at_end && known.end > used)
            && !files.snapshots.contains(&self.floor);
        let Some(last) = segments.iter().rfind(|segment| segment.base_offset() < end) else {
            return Ok(used);
        };
        if passed_over.is_empty() && !is_missing {
            return Ok(used);
        }
        let bytes = producer_snapshot::encode(producers, last.aborted().describe(last.base_offset()));
        match write_file(self.disk, self.dir, &file_name(end, "snapshot"), &bytes) {
            // It only saves time.
            Err(error) if is_disk_full(&error.source) => {
                tracing::warn!(log = %self.name, %error, "go on without a producer snapshot");
                return Ok(used);
            }
            written => written?,
        }
        tracing::warn!(log = %self.name, offset = end, "producer snapshots were damaged or missing, the newest is built anew");
        let is_kept = |at: i64| at == end || segments.iter().any(|segment| segment.base_offset() == at);
        snapshots::remove_where(self.disk, self.dir, &mut files.snapshots, |at| {
            passed_over.contains(&at) && !is_kept(at)
        })?;
        files.snapshots.insert(end);
        Ok(end)
    }

    /// Makes the file of a transaction index hold what is trusted of it and what the batches told, durably.
    fn settle_aborted(
        &mut self,
        segment: &Segment,
        exists: bool,
        on_disk: AbortedDigest,
        aborted: &[AbortedTransaction],
    ) -> Result<(), FileError> {
        let index = segment.aborted();
        let digest = txn_index::digest_from(on_disk, aborted);
        if exists || digest.count > 0 {
            let path = index.file().path();
            let write = || -> io::Result<bool> {
                let (file, created) = match self.disk.open(path, OpenMode::ReadWrite) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        (self.disk.open(path, OpenMode::CreateNew)?, true)
                    }
                    opened => (opened?, false),
                };
                if !aborted.is_empty() || file.len()? != txn_index::position(digest.count) {
                    file.write_at(&txn_index::encode(aborted), txn_index::position(on_disk.count))?;
                    file.set_len(txn_index::position(digest.count))?;
                    file.sync()?;
                }
                Ok(created)
            };
            match write() {
                Ok(created) => self.dir_changed |= created,
                // They stay in memory; the file must not end in half of one.
                Err(e) if is_disk_full(&e) => {
                    tracing::warn!(log = %self.name, path = %path.display(), "no room for the transaction index");
                    let cut = match self.disk.open(path, OpenMode::ReadWrite) {
                        // Not even for the file itself.
                        Err(e) if e.kind() == io::ErrorKind::NotFound && on_disk.count == 0 => Ok(()),
                        opened => opened.and_then(|file| file.set_len(txn_index::position(on_disk.count))),
                    };
                    cut.map_err(|e| FileError::new("cut", path, e))?;
                    self.dir_changed = true;
                    index.set(on_disk, aborted.to_vec());
                    return Ok(());
                }
                Err(e) => return Err(FileError::new("write", path, e)),
            }
        }
        index.set(digest, Vec::new());
        Ok(())
    }
}
