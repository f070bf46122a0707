//! The append times of a log's segments on disk: written when a segment is sealed or the log closed, read when somebody
//! asks, and put together anew from what the file system knows if a file is missing, damaged or old.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine_core::append_times::{AppendTimes, FILE_BYTES_MAX};

use crate::data_dir::read_file;
use crate::disk::{Disk, OpenMode};
use crate::error::FileError;
use crate::log::Log;
use crate::segment::{Segment, file_name};

pub(crate) const SUFFIX: &str = "appendtimes";

fn path(dir: &Path, base_offset: i64) -> PathBuf {
    dir.join(file_name(base_offset, SUFFIX))
}

/// The append times of a segment that holds records up to `end`. What no file tells of is taken for as new as the last
/// change of the segment's file, and if the file system keeps no such times, for as new as `opened_ms`.
fn load(disk: &dyn Disk, dir: &Path, base_offset: i64, end: i64, opened_ms: i64) -> AppendTimes {
    let stored = match read_file(disk, &path(dir, base_offset), FILE_BYTES_MAX as u64) {
        Ok(Some(bytes)) => AppendTimes::decode(&bytes, base_offset).map_err(|e| e.to_string()),
        Ok(None) => Ok(AppendTimes::default()),
        Err(error) => Err(error.to_string()),
    };
    let mut times = stored.unwrap_or_else(|error| {
        tracing::warn!(dir = %dir.display(), base_offset, error, "go on without the append times of a segment");
        AppendTimes::default()
    });
    times.truncate(end);
    let told_to = times.newest().map_or(base_offset, |newest| newest.offset + 1);
    if told_to < end {
        let changed = disk.modified_ms(&dir.join(file_name(base_offset, "log"))).ok().flatten();
        times.note(end - 1, changed.map_or(opened_ms, |changed| changed.min(opened_ms)));
    }
    times
}

/// The append times of a segment that is made of others; `segments` are their first offsets and where they end.
pub(crate) fn load_all(
    disk: &dyn Disk,
    dir: &Path,
    segments: impl Iterator<Item = (i64, i64)>,
    opened_ms: i64,
) -> AppendTimes {
    let mut all = AppendTimes::default();
    for (base_offset, end) in segments {
        all.extend(&load(disk, dir, base_offset, end, opened_ms));
    }
    all
}

impl Log {
    /// The log was opened: the append times of the segment that was written last.
    pub(crate) fn load_append_times(&mut self, now_ms: i64) {
        let Some(active) = self.active.clone() else { return };
        let (end, empty) = {
            let state = active.state().read();
            (state.next_offset, state.size == 0)
        };
        if empty {
            self.append_times = AppendTimes::default();
            return;
        }
        self.append_times = load(&**self.data.disk(), &self.dir, active.base_offset(), end, now_ms);
        if let Some(oldest) = self.append_times.oldest() {
            let mut state = active.state().write();
            state.created_ms = oldest.time_ms.min(now_ms);
        }
    }

    /// Notes an append to the active segment.
    pub(crate) fn note_append_time(&mut self, last_offset: i64, now_ms: i64) {
        let now_ms = now_ms.max(self.append_floor_ms);
        self.append_floor_ms = now_ms;
        if let (None, Some(active)) = (self.append_times.newest(), &self.active) {
            active.state().write().created_ms = now_ms;
        }
        self.append_times.note(last_offset, now_ms);
    }

    /// A segment was cut at `end` and takes appends again. Its file goes: what it tells of other records must not be
    /// taken for these. The caller syncs the directory.
    pub(crate) fn cut_append_times(&mut self, segment: &Arc<Segment>, end: i64) -> Result<(), FileError> {
        let disk = self.data.disk().clone();
        let base = segment.base_offset();
        match self.active.as_ref().is_some_and(|active| Arc::ptr_eq(active, segment)) {
            true => self.append_times.truncate(end),
            false => {
                let now_ms = self.append_floor_ms.max(self.opened_ms);
                self.append_times = load(&*disk, &self.dir, base, end, now_ms);
            }
        }
        segment.state().write().last_append_ms = None;
        let path = path(&self.dir, base);
        let file = self.data.descriptors().name(path.clone());
        self.dirty.files.remove(&file.id());
        match disk.remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(FileError::new("remove", path, e)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The active segment was sealed, or is about to be closed. Knowledge is saved, not records: a failure is none of
    /// the log.
    pub(crate) fn save_append_times(&mut self, segment: &Arc<Segment>) {
        let Some(newest) = self.append_times.newest() else { return };
        segment.state().write().last_append_ms = Some(newest.time_ms);
        let bytes = self.append_times.encode(segment.base_offset());
        let file = self.data.descriptors().name(path(&self.dir, segment.base_offset()));
        let written = self.dirty_file(&file, OpenMode::CreateOrEmpty).and_then(|pin| {
            pin.file().write_at(&bytes, 0).map_err(|e| FileError::new("write", file.path(), e))
        });
        self.dirty.dir = true;
        if let Err(error) = written {
            tracing::warn!(log = %self.name, %error, "go on without the append times of a segment");
            self.dirty.files.remove(&file.id());
            self.data.descriptors().forget(&file);
        }
    }

    /// When a segment was appended to last, by the broker's clock. Waits for the device the first time, for a segment
    /// that an earlier process sealed.
    pub(crate) fn last_append_ms(&self, segment: &Arc<Segment>) -> i64 {
        let is_active = self.active.as_ref().is_some_and(|active| Arc::ptr_eq(active, segment));
        if let (true, Some(newest)) = (is_active, self.append_times.newest()) {
            return newest.time_ms;
        }
        let (known, end) = {
            let state = segment.state().read();
            (state.last_append_ms, state.next_offset)
        };
        if let Some(known) = known {
            return known;
        }
        let times = load(&**self.data.disk(), &self.dir, segment.base_offset(), end, self.opened_ms);
        let last = times.newest().map_or(self.opened_ms, |newest| newest.time_ms);
        segment.state().write().last_append_ms = Some(last);
        last
    }
}
