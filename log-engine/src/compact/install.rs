//! The owner's half of a compaction: a new segment takes the place of those that it was made of.

use std::io;
use std::sync::Arc;

use super::target::{CLEANED_SUFFIX, SIDE_SUFFIXES, SWAP_SUFFIX};
use super::{CompactedSegment, FinishedCompaction};
use crate::descriptors::Pin;
use crate::error::{FileError, LogError};
use crate::log::Log;
use crate::recovery::{remove_if_there, remove_segment_files};
use crate::segment::{Segment, file_name};
use crate::{seal, txn_index};

/// What came of a new segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installed {
    /// It is part of the log.
    Yes,
    /// The log was cut, shortened or begun anew since the pass began: the segment is gone, and the pass is over.
    Stale,
}

impl Log {
    /// Puts a new segment in the place of its sources. Waits for the device a few times, for names only. An error before the
    /// replacement is decided changes nothing; one after it poisons the log, and the next start completes it.
    pub fn install(&mut self, compacted: CompactedSegment) -> Result<Installed, LogError> {
        if let Err(error) = self.check_writable() {
            compacted.discard();
            return Err(error);
        }
        let Some(first) = self.place_of(&compacted) else {
            compacted.discard();
            return Ok(Installed::Stale);
        };
        let base = compacted.sources[0].0.base_offset();
        if let Err(error) = self.decide(base) {
            compacted.discard();
            return Err(error);
        }
        let shared = self.shared.clone();
        // Nobody may seal or mend what is about to be replaced.
        let no_seals = shared.hold_seals();
        let CompactedSegment { target, sources, .. } = compacted;
        let (segment, files) = target.into_segment();
        let created_ms = sources.iter().map(|(source, _)| source.state().read().created_ms).max();
        segment.state().write().created_ms = created_ms.unwrap_or(0);
        let segment = Arc::new(segment);
        // From here on readers get the new segment. Its files have other names still, but are open.
        let pins = self.pin_open(&segment, files);
        let mut segments = self.shared.segments().to_vec();
        segments.splice(first..first + sources.len(), [segment.clone()]);
        *self.shared.segments.write() = Arc::new(segments);
        for (source, _) in &sources {
            source.set_replaced();
            self.forget(source);
        }
        let moved = self.move_names(base, &sources);
        for (source, _) in &sources {
            // A late reader may have opened one again.
            self.forget_segment(source);
        }
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

    /// Notes how far the log is clean now, if it is still the log of that pass.
    pub fn finish_compaction(&mut self, finished: &FinishedCompaction) -> Installed {
        if finished.cuts != self.shared.cuts() {
            return Installed::Stale;
        }
        self.data.cleaned().raise(self.name, finished.end);
        Installed::Yes
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

    fn forget(&mut self, source: &Segment) {
        {
            let state = source.state().read();
            let names = [source.log(), state.index.file(), state.time_index.file(), source.aborted().file()];
            for file in names {
                self.dirty.files.remove(&file.id());
            }
        }
        self.forget_segment(source);
    }

    /// Removes the old files and gives the new ones their names. The batches get theirs last: until then a start does all of
    /// this again.
    fn move_names(&self, base: i64, sources: &[(Arc<Segment>, u64)]) -> Result<(), FileError> {
        let disk = &**self.data.disk();
        // Nobody may build the transaction index of an old segment anew. That of the new one is built when it is needed.
        let _held: Vec<_> = sources.iter().map(|(source, _)| source.aborted().hold()).collect();
        seal::remove_seal(disk, &self.dir, base)?;
        remove_if_there(disk, &self.dir.join(file_name(base, txn_index::SUFFIX)))?;
        for (source, _) in &sources[1..] {
            remove_segment_files(disk, &self.dir, source.base_offset())?;
        }
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
