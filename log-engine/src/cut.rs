//! Taking records away: at the end (a follower that diverged) and at the start (`DeleteRecords`).
//!
//! Both change what the next start must find, so the record of flushed ends is changed durably *before* the files
//! are. A crash in between leaves more than there should be, never less. An error in the middle poisons the log.

mod indexes;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use log_engine_core::{AbortedIndex, ProducerStates, producer_snapshot};

use crate::data_dir::write_file;
use crate::disk::OpenMode;
use crate::error::{FileError, LogError};
use crate::flushed_ends::FlushedEnd;
use crate::log::{Log, is_disk_full};
use crate::reader::{Shared, floor};
use crate::recovery::remove_segment_files;
use crate::replay::{forget_phantoms, replay_segment};
use crate::scan::Fault;
use crate::segment::{Segment, file_name};
use crate::{seal, snapshots};

impl Log {
    /// Takes away all batches that reach `offset` or beyond. Answers the new end, which is below `offset` if that lay
    /// inside a batch; if it lies below the start (which was inside that batch too), the empty log starts there. Waits
    /// for the device.
    pub fn truncate_to(&mut self, offset: i64) -> Result<i64, LogError> {
        self.check_writable()?;
        let (start, end) = (self.start(), self.end());
        if offset < start || offset > end {
            return Err(LogError::OutOfRange { offset, start, end });
        }
        if offset == end {
            return Ok(end);
        }
        let segments = self.shared.segments();
        let at = floor(&segments, offset);
        let segment = segments[at].clone();
        let cut = find_cut(&segment, offset).map_err(|f| self.fault(f, &segment))?;
        let result = self.cut_at(&segments, at, cut);
        result.map_err(|e| {
            self.poison_by(&e);
            LogError::Io(e)
        })?;
        Ok(self.end())
    }

    fn cut_at(&mut self, segments: &Arc<Vec<Arc<Segment>>>, at: usize, cut: Cut) -> Result<(), FileError> {
        let Cut { position, end, next } = cut;
        let start = self.start().min(next);
        let shared = self.shared.clone();
        let _no_seals = shared.hold_seals();
        self.learn_snapshots();
        let segment = segments[at].clone();
        let disk = self.data.disk().clone();
        let flushed = self.flushed().min(end);
        self.shared.start.fetch_min(end, Ordering::Release);
        self.shared.end.store(end, Ordering::Release);
        self.shared.flushed.store(flushed, Ordering::Release);
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.end = in_flight.end.min(end);
            in_flight.superseded = true;
        }
        let record = FlushedEnd {
            start: self.start(),
            end: flushed,
            // The oldest segment of which not everything is surely durable.
            active_base: segments[floor(segments, flushed).min(at)].base_offset(),
            index_entries: 0,
            time_index_entries: 0,
            snapshot_at_end: false,
        };
        self.shared.note_cut();
        self.data.cleaned().lower_durably(self.name, Some(end))?;
        let dropped_to = self.dropped_to;
        self.cut_dropped(end)?;
        self.data.ends().set_durably(self.name, record)?;
        if self.epochs.truncate_from_end(next) {
            self.epoch_file().write(&*disk, &self.dir)?;
        }
        snapshots::remove_where(&*disk, &self.dir, &mut self.snapshots, |o| o > end)?;
        let _index_stays = segment.aborted().hold();
        for later in segments[at + 1..].iter().rev() {
            self.remove_segment(later)?;
        }
        *self.shared.segments.write() = Arc::new(segments[..=at].to_vec());
        segment.unseal();
        seal::remove_seal(&*disk, &self.dir, segment.base_offset())?;
        self.cut_append_times(&segment, end)?;
        disk.sync_dir(&self.dir).map_err(|e| FileError::new("sync", &self.dir, e))?;
        let kept = indexes::kept(&segment, position);
        let pin = self.dirty_file(segment.log(), OpenMode::ReadWrite)?;
        let cut = pin.file().set_len(position).and_then(|()| pin.file().sync());
        cut.map_err(|e| FileError::new("cut", segment.log().path(), e))?;
        self.cut_indexes(&segment, position, kept.as_ref())?;
        segment.state().write().next_offset = end;
        self.active = Some(segment.clone());
        let mut producers =
            self.replay_last(&self.shared.segments()).map_err(|fault| file_error(fault, &segment))?;
        producers.take_seen(&mut self.producers);
        self.producers = producers;
        self.bytes_since_snapshot = 1;
        if end == next {
            return Ok(());
        }
        self.go_on_at(next, start)?;
        // What was dropped in the gap still counts.
        self.note_dropped(dropped_to.min(next - 1))
    }

    /// The log was cut in a gap that compaction has left. It goes on behind it in a segment of its own: offsets of what was
    /// dropped must not be given again, and a start goes by what segments hold. A crash before this leaves the log at the
    /// end of its batches.
    fn go_on_at(&mut self, end: i64, start: i64) -> Result<(), FileError> {
        self.shared.end.store(end, Ordering::Release);
        if let Some(last) = &self.active {
            last.state().write().next_offset = end;
        }
        self.seal_active()?;
        self.create_segment(end, self.append_floor_ms.max(0))?;
        self.sync_now()?;
        self.shared.start.store(start, Ordering::Release);
        self.data.ends().set_durably(self.name, self.record(end))
    }

    /// The producers after all batches below `end`, from the newest snapshot and the batches since.
    fn producers_as_of(&self, end: i64) -> Result<ProducerStates, FileError> {
        let disk = self.data.disk();
        let producers_max = self.config.producers_max;
        let newest = snapshots::load_newest(&**disk, &self.dir, &self.snapshots, end, producers_max)?;
        let (from, mut producers) = match newest {
            Some(newest) => (newest.offset, newest.producers),
            None => (i64::MIN, ProducerStates::new(producers_max)),
        };
        let segments = self.shared.segments();
        forget_phantoms(&segments, &mut producers, from, (self.start(), self.dropped_to), &mut |_| true)
            .map_err(|(fault, segment)| file_error(fault, &segment))?;
        for segment in segments.iter() {
            if segment.state().read().next_offset <= from || segment.base_offset() >= end {
                continue;
            }
            let replayed = replay_segment(segment, from, |header, event| {
                if header.base_offset >= from && header.base_offset < end {
                    event.replay(&mut producers);
                }
            });
            replayed.map_err(|f| file_error(f, segment))?;
        }
        Ok(producers)
    }

    /// Moves the start up to `offset` (KIP-107): records below are not served any more, and segments that hold only
    /// such go; their files wait in [`take_detached`](Self::take_detached). The caller passes nothing above the high
    /// watermark. Waits for the device.
    pub fn set_start(&mut self, offset: i64) -> Result<(), LogError> {
        self.check_writable()?;
        let (start, end) = (self.start(), self.end());
        if offset > end {
            return Err(LogError::OutOfRange { offset, start, end });
        }
        if offset <= start {
            return Ok(());
        }
        if offset == end {
            self.begin_after_all(end)?;
        }
        let segments = self.shared.segments();
        let kept = self.first_to_keep(&segments, offset)?;
        let base = segments.get(kept).map_or(start, |s| s.base_offset());
        // What is recorded must be all there is, since the segment that it names may be among those that go.
        self.sync_now()?;
        let record = FlushedEnd { start: offset, ..self.record(end) };
        self.data.ends().set_durably(self.name, record).map_err(|e| self.changing_failed(e))?;
        self.shared.start.store(offset, Ordering::Release);
        self.dirty.epochs |= self.epochs.truncate_from_start(offset);
        if kept == 0 {
            return Ok(());
        }
        let shared = self.shared.clone();
        let _no_seals = shared.hold_seals();
        self.learn_snapshots();
        *self.shared.segments.write() = Arc::new(segments[kept..].to_vec());
        let mut remove = || -> Result<(), FileError> {
            for old in &segments[..kept] {
                self.detach_segment(old)?;
            }
            let disk = self.data.disk().clone();
            snapshots::remove_where(&*disk, &self.dir, &mut self.snapshots, |o| o < base)?;
            Ok(())
        };
        let removed = remove();
        self.dirty.dir = true;
        removed.map_err(|e| self.changing_failed(e))
    }

    /// Everything is to go, and the last segment too can only if there is one after it. Where the disk is too full for that,
    /// it stays until the next time.
    fn begin_after_all(&mut self, end: i64) -> Result<(), LogError> {
        let Some(last) = self.shared.segments().last().cloned() else { return Ok(()) };
        if last.base_offset() == end {
            return Ok(());
        }
        let begun = self.seal_active().and_then(|()| self.create_segment(end, self.append_floor_ms.max(0)));
        match begun {
            Err(e) if !is_disk_full(&e.source) => Err(self.changing_failed(e)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The oldest segment that must stay for `offset` to be the start. What the producers wrote into the segments that
    /// go can be read from nowhere else any more, so a snapshot must stand at its base; if the disk is too full for
    /// one, older segments stay until the next time.
    fn first_to_keep(&mut self, segments: &[Arc<Segment>], offset: i64) -> Result<usize, LogError> {
        let mut kept = floor(segments, offset);
        self.learn_snapshots();
        while kept > 0 && !self.has_whole_snapshot(segments[kept].base_offset()) {
            let base = segments[kept].base_offset();
            // The segment before, whose transaction index it could tell of, is about to go.
            let producers = self.producers_as_of(base);
            let bytes = producers.map(|p| producer_snapshot::encode(&p, AbortedIndex::Unknown));
            // Whole or not at all: a snapshot below the flushed end is not doubted later.
            let name = file_name(base, "snapshot");
            match bytes.and_then(|bytes| write_file(&**self.data.disk(), &self.dir, &name, &bytes)) {
                Ok(()) => {
                    self.snapshots.insert(base);
                    break;
                }
                Err(e) if is_disk_full(&e.source) => kept -= 1,
                Err(e) => return Err(self.changing_failed(e)),
            }
        }
        Ok(kept)
    }

    /// One that cannot be read is as good as none.
    fn has_whole_snapshot(&self, offset: i64) -> bool {
        let load = || snapshots::load(&**self.data.disk(), &self.dir, offset, self.config.producers_max);
        self.snapshots.contains(&offset) && matches!(load(), Ok(Some(_)))
    }

    /// Nothing of the segment has to be flushed any more; its descriptors close when the last reader is done.
    pub(crate) fn let_go(&mut self, segment: &Segment) {
        {
            let state = segment.state().read();
            for file in [segment.log(), state.index.file(), state.time_index.file(), segment.aborted().file()]
            {
                self.dirty.files.remove(&file.id());
            }
        }
        self.forget_segment(segment);
    }

    /// Removes a segment's files.
    fn remove_segment(&mut self, segment: &Segment) -> Result<(), FileError> {
        let _index_stays = segment.aborted().hold();
        self.let_go(segment);
        let removed = remove_segment_files(&**self.data.disk(), &self.dir, segment.base_offset());
        // A late reader may have opened one again; the cache would keep its space for long.
        self.forget_segment(segment);
        removed
    }

    fn fault(&mut self, fault: Fault, segment: &Segment) -> LogError {
        LogError::Io(file_error(fault, segment))
    }
}

impl Shared {
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }

    /// What is being read to be compacted is not the log any more.
    pub(crate) fn note_cut(&self) {
        self.cuts.fetch_add(1, Ordering::AcqRel);
    }
}

/// Where a log is cut.
struct Cut {
    /// Bytes of the segment that stay.
    position: u64,
    /// Where the batches in them end.
    end: i64,
    /// Where the log goes on: not at `end`, if compaction has left a gap there.
    next: i64,
}

/// Where to cut so that nothing reaches `offset`.
fn find_cut(segment: &Segment, offset: i64) -> Result<Cut, Fault> {
    let (position, next) = match segment.locate(offset, false)? {
        Some((found, _)) => (found.position, offset.min(found.header.base_offset)),
        None => (segment.state().read().size, offset),
    };
    Ok(Cut { position, end: segment.end_of_batches(position)?, next })
}

fn file_error(fault: Fault, segment: &Segment) -> FileError {
    let path = segment.log().path();
    match fault {
        Fault::Io(e) => e,
        Fault::Cold => FileError::new("read", path, io::ErrorKind::WouldBlock.into()),
        Fault::Damaged { reason, .. } => {
            FileError::new("walk", path, io::Error::new(io::ErrorKind::InvalidData, reason))
        }
    }
}
