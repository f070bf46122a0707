//! The owner's half of a compaction: a new segment takes the place of those that it was made of.

use std::io;
use std::sync::Arc;

use super::target::{CLEANED_SUFFIX, SIDE_SUFFIXES, SWAP_SUFFIX};
use super::{CompactedSegment, FinishedCompaction};
use crate::descriptors::Pin;
use crate::error::{FileError, LogError};
use crate::log::Log;
use crate::segment::{Segment, file_name};

/// What came of a new segment.
#[derive(Debug)]
pub enum Installed {
    /// It is part of the log.
    Yes,
    /// Some of its sources were removed at the log's start meanwhile: the segment is gone, and the pass goes on.
    Gone,
    /// Somebody builds the transaction index of one of its sources. Nothing has happened: it should be brought again.
    Later(Box<CompactedSegment>),
    /// The log was cut or begun anew since the pass began: the segment is gone, and the pass is over.
    Stale,
}

impl Log {
    /// Puts a new segment in the place of its sources. Waits for the device a few times, for names only: the old files wait in
    /// [`take_detached`](Self::take_detached). An error before the replacement is decided changes nothing; one after it poisons
    /// the log, and the next start completes it.
    pub fn install(&mut self, compacted: CompactedSegment) -> Result<Installed, LogError> {
        if let Err(error) = self.check_writable() {
            compacted.discard();
            return Err(error);
        }
        let Some(first) = self.place_of(&compacted) else {
            let gone = self.is_shortened(&compacted);
            compacted.discard();
            return Ok(if gone { Installed::Gone } else { Installed::Stale });
        };
        let base = compacted.sources[0].0.base_offset();
        let olds: Vec<Arc<Segment>> = compacted.sources.iter().map(|(old, _)| old.clone()).collect();
        // Nobody may build the transaction index of an old segment anew. That of the new one is built when it is needed.
        let held: Option<Vec<_>> = olds.iter().map(|old| old.aborted().try_hold()).collect();
        let Some(held) = held else { return Ok(Installed::Later(Box::new(compacted))) };
        if let Err(error) = self.decide(base) {
            compacted.discard();
            return Err(error);
        }
        self.dropped_to = self.dropped_to.max(compacted.dropped_to);
        let shared = self.shared.clone();
        // Nobody may seal or mend what is about to be replaced.
        let no_seals = shared.hold_seals();
        let (segment, files) = compacted.target.into_segment();
        let created_ms = olds.iter().map(|old| old.state().read().created_ms).max();
        segment.state().write().created_ms = created_ms.unwrap_or(0);
        let segment = Arc::new(segment);
        // From here on readers get the new segment. Its files have other names still, but are open.
        let pins = self.pin_open(&segment, files);
        let mut segments = self.shared.segments().to_vec();
        segments.splice(first..first + olds.len(), [segment.clone()]);
        *self.shared.segments.write() = Arc::new(segments);
        for old in &olds {
            old.set_replaced();
            self.let_go(old);
        }
        let moved = self.move_names(base, &olds);
        for old in &olds {
            // A late reader may have opened one again.
            self.forget_segment(old);
        }
        drop(held);
        moved.map_err(|error| {
            // As long as the names are not right the files must stay open.
            for pin in pins {
                self.dirty.files.insert(pin.id(), pin);
            }
            self.poison_by(&error);
            LogError::Io(error)
        })?;
        drop(no_seals);
        self.dirty.dir = true;
        self.data.queue_segment(&self.shared, &segment);
        Ok(Installed::Yes)
    }

    /// Notes how far the log is clean now. Answers whether it is still the log of that pass, of which alone this holds.
    pub fn finish_compaction(&mut self, finished: &FinishedCompaction) -> bool {
        let same = Arc::ptr_eq(&finished.shared, &self.shared) && finished.cuts == self.shared.cuts();
        if same {
            self.data.cleaned().raise(self.name, finished.end);
        }
        same
    }

    /// Whether the log's start has moved into the sources, or beyond them, and nothing else has happened.
    fn is_shortened(&self, compacted: &CompactedSegment) -> bool {
        let segments = self.shared.segments();
        let base = compacted.sources[0].0.base_offset();
        compacted.cuts == self.shared.cuts()
            && Arc::ptr_eq(&compacted.shared, &self.shared)
            && segments.first().is_some_and(|first| first.base_offset() > base)
    }

    /// Where the sources stand among the segments, if nothing has happened to them.
    fn place_of(&self, compacted: &CompactedSegment) -> Option<usize> {
        let segments = self.shared.segments();
        let sources = &compacted.sources;
        let first = segments.iter().position(|s| Arc::ptr_eq(s, &sources[0].0))?;
        let now = segments.get(first..first + sources.len())?;
        let same = now
            .iter()
            .zip(sources)
            .all(|(now, (source, size))| Arc::ptr_eq(now, source) && now.state().read().size == *size);
        let sealed = first + sources.len() < segments.len();
        (same && sealed && compacted.cuts == self.shared.cuts()).then_some(first)
    }

    /// The point of no return: after this a start finds the complete new segment and puts it in its place.
    fn decide(&mut self, base: i64) -> Result<(), LogError> {
        let disk = self.data.disk().clone();
        let name = file_name(base, "log");
        let (from, to) =
            (self.dir.join(format!("{name}{CLEANED_SUFFIX}")), self.dir.join(format!("{name}{SWAP_SUFFIX}")));
        disk.rename(&from, &to).map_err(|e| FileError::new("rename", &from, e))?;
        let Err(error) = disk.sync_dir(&self.dir) else { return Ok(()) };
        let error = FileError::new("sync", &self.dir, error);
        // Whether it is decided the disk alone knows, unless it can be taken back.
        let undone = disk.remove_file(&to).and_then(|()| disk.sync_dir(&self.dir));
        if undone.is_err() {
            self.poison_by(&error);
        }
        Err(LogError::Io(error))
    }

    fn pin_open(&self, segment: &Segment, files: Vec<Arc<dyn crate::disk::DiskFile>>) -> Vec<Arc<Pin>> {
        let state = segment.state().read();
        let names = [segment.log(), state.index.file(), state.time_index.file()];
        let descriptors = self.data.descriptors();
        let pins =
            names.into_iter().zip(files).map(|(name, file)| Arc::new(descriptors.pin_open(name, file)));
        pins.collect()
    }

    /// Puts the old files aside and gives the new ones their names. The batches get theirs last: until then a start does all
    /// of this again.
    fn move_names(&mut self, base: i64, olds: &[Arc<Segment>]) -> Result<(), FileError> {
        // To remove a large file takes long.
        for old in olds {
            self.detach_files(old.base_offset())?;
        }
        let disk = &**self.data.disk();
        for suffix in SIDE_SUFFIXES {
            self.rename_swapped(&file_name(base, suffix))?;
        }
        disk.sync_dir(&self.dir).map_err(|e| FileError::new("sync", &self.dir, e))?;
        self.rename_swapped(&file_name(base, "log"))
    }

    fn rename_swapped(&self, name: &str) -> Result<(), FileError> {
        let from = self.dir.join(format!("{name}{SWAP_SUFFIX}"));
        let renamed: io::Result<()> = self.data.disk().rename(&from, &self.dir.join(name));
        renamed.map_err(|e| FileError::new("rename", from, e))
    }
}
