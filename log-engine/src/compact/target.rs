//! Writes a new segment beside the log: batches, indexes and append times in files that end in `.cleaned`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine_core::append_times::AppendTimes;
use records::BatchHeader;

use super::Pace;
use crate::append_times;
use crate::data_dir::DataDir;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{CompactionError, FileError};
use crate::reader::Shared;
use crate::segment::{Segment, file_name};

/// End of the name of a file that is being written.
pub(crate) const CLEANED_SUFFIX: &str = ".cleaned";
/// End of the name of a file that is complete and about to take its place.
pub(crate) const SWAP_SUFFIX: &str = ".swap";
/// The files that go with a segment's batches and are written with them.
pub(crate) const SIDE_SUFFIXES: [&str; 3] = ["index", "timeindex", append_times::SUFFIX];

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// All files of a new segment.
fn suffixes() -> impl Iterator<Item = &'static str> {
    std::iter::once("log").chain(SIDE_SUFFIXES)
}

/// The segment while it is written.
pub(super) struct Target {
    data: DataDir,
    dir: PathBuf,
    segment: Segment,
    interval_bytes: u64,
    /// In the order of [`suffixes`].
    files: Vec<Arc<dyn DiskFile>>,
    /// Bytes at the end that are not in the file yet; those before `seen` are counted.
    buffer: Vec<u8>,
    seen: usize,
    written: u64,
}

impl Target {
    pub(super) fn create(
        data: &DataDir,
        dir: &Path,
        base_offset: i64,
        interval_bytes: u64,
    ) -> Result<Target, CompactionError> {
        let state = Segment::state_on_disk(data.descriptors(), dir, base_offset, 0, 0, 0);
        let segment = Segment::new(data.descriptors(), dir, base_offset, state);
        let mut target = Target {
            data: data.clone(),
            dir: dir.to_owned(),
            segment,
            interval_bytes,
            files: Vec::new(),
            buffer: Vec::with_capacity(WRITE_BYTES * 2),
            seen: 0,
            written: 0,
        };
        for suffix in suffixes() {
            let path = target.path(suffix, CLEANED_SUFFIX);
            match data.disk().open(&path, OpenMode::CreateOrEmpty) {
                Ok(file) => target.files.push(file),
                Err(e) => {
                    target.remove();
                    return Err(CompactionError::from(FileError::new("create", path, e)));
                }
            }
        }
        Ok(target)
    }

    fn path(&self, suffix: &str, state: &str) -> PathBuf {
        self.dir.join(format!("{}{state}", file_name(self.segment.base_offset(), suffix)))
    }

    /// Where to append batches; each is told by [`appended`](Self::appended).
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// One batch was appended to the buffer.
    pub(super) fn appended(&mut self, pace: &mut dyn Pace) -> Result<(), CompactionError> {
        let header = BatchHeader::parse(&self.buffer[self.seen..]).expect("a batch was just written there");
        self.seen = self.buffer.len();
        let size = self.written + self.buffer.len() as u64;
        if size > i32::MAX as u64 {
            return Err(CompactionError::TooLarge { base_offset: self.segment.base_offset(), bytes: size });
        }
        self.segment.state().write().add_batch(&header, self.interval_bytes);
        if self.buffer.len() >= WRITE_BYTES { self.write(pace) } else { Ok(()) }
    }

    fn write(&mut self, pace: &mut dyn Pace) -> Result<(), CompactionError> {
        let written = self.files[0].write_at(&self.buffer, self.written);
        written.map_err(|e| FileError::new("write", self.path("log", CLEANED_SUFFIX), e))?;
        self.written += self.buffer.len() as u64;
        let go_on = pace.spend(self.buffer.len() as u64);
        self.buffer.clear();
        self.seen = 0;
        if go_on { Ok(()) } else { Err(CompactionError::Stopped) }
    }

    /// Bytes of batches.
    pub(super) fn size(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Makes everything durable, so that only names are left to change. The next segment begins at `next_offset`; `times`
    /// say when the records were appended.
    pub(super) fn complete(
        &mut self,
        next_offset: i64,
        times: &AppendTimes,
        pace: &mut dyn Pace,
    ) -> Result<(), CompactionError> {
        self.write(pace)?;
        let written = self.files[3].write_at(&times.encode(self.segment.base_offset()), 0);
        written.map_err(|e| FileError::new("write", self.path(append_times::SUFFIX, CLEANED_SUFFIX), e))?;
        {
            let mut state = self.segment.state().write();
            state.push_time_entry();
            let (index, time_index) = (state.index.in_memory(), state.time_index.in_memory());
            state.index.spill(&*self.files[1], index)?;
            state.time_index.spill(&*self.files[2], time_index)?;
            state.index.spilled(index);
            state.time_index.spilled(time_index);
            state.next_offset = next_offset;
            state.last_append_ms = times.newest().map(|newest| newest.time_ms);
        }
        let disk = self.data.disk();
        for (file, suffix) in self.files.iter().zip(suffixes()) {
            file.sync().map_err(|e| FileError::new("sync", self.path(suffix, CLEANED_SUFFIX), e))?;
        }
        for suffix in SIDE_SUFFIXES {
            let from = self.path(suffix, CLEANED_SUFFIX);
            let renamed = disk.rename(&from, &self.path(suffix, SWAP_SUFFIX));
            renamed.map_err(|e| FileError::new("rename", from, e))?;
        }
        Ok(disk.sync_dir(&self.dir).map_err(|e| FileError::new("sync", &self.dir, e))?)
    }

    /// Removes the files. What cannot be removed the next start removes.
    pub(super) fn remove(self) {
        self.data.descriptors().forget(self.segment.log());
        remove_unfinished(&**self.data.disk(), &self.dir, self.segment.base_offset());
    }

    pub(super) fn into_segment(self) -> (Segment, Vec<Arc<dyn DiskFile>>) {
        (self.segment, self.files)
    }
}

fn remove_unfinished(disk: &dyn Disk, dir: &Path, base_offset: i64) {
    for suffix in suffixes() {
        for state in [CLEANED_SUFFIX, SWAP_SUFFIX] {
            let path = dir.join(format!("{}{state}", file_name(base_offset, suffix)));
            match disk.remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), error = %e, "a file of a compaction stays");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// A new segment, durable but under other names, and the ones that it is made of.
pub struct CompactedSegment {
    pub(super) target: Target,
    /// With the sizes that they had.
    pub(super) sources: Vec<(Arc<Segment>, u64)>,
    /// Of the log that they belong to.
    pub(super) shared: Arc<Shared>,
    /// See [`crate::Log::dropped_to`].
    pub(super) dropped_to: i64,
    pub(super) cuts: u64,
}

impl std::fmt::Debug for CompactedSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CompactedSegment({} segments, {} bytes)", self.sources.len(), self.target.size())
    }
}

impl CompactedSegment {
    /// Throws it away.
    pub fn discard(self) {
        self.target.remove();
    }
}
