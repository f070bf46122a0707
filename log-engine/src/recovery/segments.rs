//! Opening the segments of a log: which are taken as they are, which are verified, and where the tail is cut.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::files::Files;
use super::{Recovery, remove_if_there};
use log_engine_core::seal::FileSum;
use records::BatchHeader;

use crate::data_dir::TMP_SUFFIX;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{FileError, OpenError};
use crate::index::{Entry, IndexEntry, SparseIndex, TimeEntry, last_in_order, last_on_disk_where};
use crate::log::is_disk_full;
use crate::poison;
use crate::scan::{Fault, Found, HeaderScan};
use crate::segment::{Segment, SegmentState, file_name};

/// Bytes that are written again before they are made durable. Nothing is told of a recovery during a sync, and many logs are
/// opened at once: each sync waits behind what all of them have written. So it is little, lest the slow disk of a directory
/// with many logs (4 MiB of each of 16 are half a second of one that writes 128 MiB/s) be taken for one that hangs.
const SYNC_BYTES: u64 = 4 << 20;

impl Recovery<'_> {
    pub(super) fn open_segments(&mut self, files: &Files) -> Result<Vec<Arc<Segment>>, OpenError> {
        let bases: Vec<i64> = files.logs.keys().copied().collect();
        let settled_to = self.known.map_or(i64::MIN, |k| k.active_base);
        let unsettled =
            bases.iter().enumerate().filter(|(i, _)| bases.get(i + 1).is_none_or(|next| *next > settled_to));
        self.watched.expect(unsettled.map(|(_, base)| files.logs[base]).sum());
        let mut segments = Vec::with_capacity(bases.len());
        for (i, &base) in bases.iter().enumerate() {
            let next_base = bases.get(i + 1).copied();
            let size = files.logs[&base];
            if let Some(next_base) = next_base
                && self.is_settled(files, base, size, next_base)?
            {
                segments.push(self.open_settled(files, base, size, next_base)?);
                // It reads a seal: of many segments that takes long.
                self.on_look()?;
                continue;
            }
            let (segment, goes_on) = self.open_unsettled(files, base, size, next_base)?;
            segments.push(Arc::new(segment));
            if goes_on {
                continue;
            }
            // The tail is torn here; nothing after it can be a continuation.
            for &later in &bases[i + 1..] {
                self.report.bytes_cut += files.logs[&later];
                self.remove_segment(later)?;
                self.on_look()?;
            }
            break;
        }
        Ok(segments)
    }

    /// Whether the segment was on disk, all of it, when that was recorded. If the segment after it did not survive, neither may
    /// the end of this one have.
    fn is_settled(&mut self, files: &Files, base: i64, size: u64, next_base: i64) -> Result<bool, OpenError> {
        match self.known {
            Some(known) => Ok(next_base <= known.active_base),
            None => self.is_as_sealed(files, base, size, next_base),
        }
    }

    /// A segment that is durable with its indexes: only its sizes are looked at.
    fn open_settled(
        &mut self,
        files: &Files,
        base: i64,
        size: u64,
        next_base: i64,
    ) -> Result<Arc<Segment>, OpenError> {
        let seal = self.believed_seal(files, base, size, next_base)?;
        let entries = |lens: &BTreeMap<i64, u64>, sealed: Option<Option<FileSum>>, bytes: usize| {
            let len = lens.get(&base).copied().filter(|len| len % bytes as u64 == 0)?;
            if sealed.is_some_and(|sealed| sealed.is_none_or(|sum| sum.length != len)) {
                return None;
            }
            u32::try_from(len / bytes as u64).ok()
        };
        let index_entries = entries(&files.indexes, seal.as_ref().map(|s| s.index), IndexEntry::BYTES);
        let time_entries =
            entries(&files.time_indexes, seal.as_ref().map(|s| s.time_index), TimeEntry::BYTES);
        let descriptors = self.data.descriptors();
        if let (Some(index_entries), Some(time_entries)) = (index_entries, time_entries) {
            let mut state =
                Segment::state_on_disk(descriptors, self.dir, base, size, index_entries, time_entries);
            state.next_offset = next_base;
            if let Some(seal) = seal.filter(|seal| seal.batches > 0) {
                let (timestamp, offset) = (seal.max_timestamp, seal.max_timestamp_offset);
                state.max_timestamp = Some(TimeEntry { timestamp, offset });
            }
            return Ok(Arc::new(Segment::new(descriptors, self.dir, base, state)));
        }
        let state = Segment::state_on_disk(descriptors, self.dir, base, 0, 0, 0);
        let segment = Segment::new(descriptors, self.dir, base, state);
        self.walk(&segment, size)?;
        self.report.indexes_rebuilt += 1;
        if seal.is_some() {
            // It describes the indexes too.
            self.drop_seal(base)?;
        }
        self.write_all_indexes(&segment)?;
        segment.state().write().next_offset = next_base;
        Ok(Arc::new(segment))
    }

    /// Walks all headers of a segment of which nothing was taken yet.
    fn walk(&mut self, segment: &Segment, size: u64) -> Result<(), OpenError> {
        let file = self.open_log(segment.base_offset())?;
        let path = segment.log().path();
        let mut scan = HeaderScan::new(file, path, 0, size, segment.base_offset(), false);
        loop {
            match scan.next() {
                Ok(None) => return Ok(()),
                Ok(Some(found)) => {
                    self.on_work(found.header.size() as u64)?;
                    self.take(segment, &found);
                }
                Err(fault) => return Err(self.fault(fault, path)),
            }
        }
    }

    /// A segment that was being written: its indexes are trusted as far as they were flushed, its batches below the
    /// flushed end too, and the rest is verified. The answer says whether the next one continues it.
    fn open_unsettled(
        &mut self,
        files: &Files,
        base: i64,
        size: u64,
        next_base: Option<i64>,
    ) -> Result<(Segment, bool), OpenError> {
        if files.seals.contains(&base) {
            // It may be newer than what survived.
            self.drop_seal(base)?;
        }
        let file = self.open_log(base)?;
        let path: Arc<Path> = self.dir.join(file_name(base, "log")).into();
        let (state, resume) = self.trusted_indexes(files, base)?;
        let segment = Segment::new(self.data.descriptors(), self.dir, base, state);
        let mut scan = HeaderScan::new(file.clone(), &path, resume, size, base, false);
        if resume > 0 {
            self.read_first_timestamp(&segment, &file, size)?;
        }
        self.on_done(resume)?;
        let mut unsynced = 0;
        loop {
            match scan.next() {
                Ok(Some(found)) => {
                    let size = found.header.size() as u64;
                    if found.header.last_offset() >= self.floor {
                        if !self.verify(&file, &path, &found)? {
                            break;
                        }
                        unsynced += size;
                    }
                    self.take(&segment, &found);
                    if unsynced >= SYNC_BYTES && !self.poisoned {
                        self.settle(&path, || file.sync())?;
                        unsynced = 0;
                    }
                    self.on_done(size)?;
                }
                Ok(None) => break,
                Err(Fault::Damaged { position, reason }) => {
                    if segment.state().read().next_offset < self.floor {
                        return Err(self.damaged(reason, path, position));
                    }
                    break;
                }
                Err(fault) => return Err(self.fault(fault, &path)),
            }
        }
        let (end, next_offset) = {
            let state = segment.state().read();
            (state.size, state.next_offset)
        };
        let goes_on = match next_base {
            Some(next_base) => self.joins(&path, (base, next_offset), (end, size), next_base)?,
            None => false,
        };
        if next_offset < self.floor && self.known.is_some_and(|k| base == k.active_base) {
            return Err(self.damaged("the segment file is shorter than what was flushed", path, size));
        }
        self.report.bytes_cut += size - end;
        self.on_done(size - end)?;
        self.make_durable(&segment, &file, size, end)?;
        if let (Some(next_base), true) = (next_base, goes_on) {
            self.settle_between(&segment, next_base)?;
        }
        Ok((segment, goes_on))
    }

    /// Whether the segment at `next_base` continues the one at `base`, of whose `size` bytes `end` are whole batches, up to
    /// offset `ends_at`. If not, it goes, with all that follow; where one of them cannot be the torn tail of a crash that is
    /// damage, and found before anything is changed.
    fn joins(
        &self,
        path: &Path,
        (base, ends_at): (i64, i64),
        (end, size): (u64, u64),
        next_base: i64,
    ) -> Result<bool, OpenError> {
        let whole = end == size;
        // A segment of ours that ends cleanly but too early has lost its end, and the next one does not continue it.
        if whole && (ends_at >= next_base || self.report.taken_over) {
            return Ok(true);
        }
        let reason = match whole {
            true => format!(
                "the segment ends at offset {ends_at}, but the next one begins at {next_base}, and nothing says \
                 that it was compacted"
            ),
            false => "a segment in the middle is torn".to_owned(),
        };
        if next_base < self.floor || self.is_unknown() {
            return Err(self.damaged(reason, path, end));
        }
        tracing::warn!(log = %self.name, segment = base, reason, "what follows was not flushed, and goes");
        Ok(false)
    }

    /// The state of a segment as its flushed index entries give it, and the position to walk on from.
    fn trusted_indexes(&mut self, files: &Files, base: i64) -> Result<(SegmentState, u64), OpenError> {
        let descriptors = self.data.descriptors();
        let entries_in = |lens: &BTreeMap<i64, u64>, bytes: usize| {
            lens.get(&base).map_or(0, |len| len / bytes as u64) as u32
        };
        let counts = self.known.filter(|k| k.active_base == base && !self.poisoned).map(|k| {
            let on_disk = (
                entries_in(&files.indexes, IndexEntry::BYTES),
                entries_in(&files.time_indexes, TimeEntry::BYTES),
            );
            (k.index_entries, k.time_index_entries, on_disk)
        });
        let nothing = |recovery: &mut Self| {
            recovery.report.indexes_rebuilt += 1;
            Ok((Segment::state_on_disk(descriptors, recovery.dir, base, 0, 0, 0), 0))
        };
        let Some((index_entries, time_entries, on_disk)) = counts else { return nothing(self) };
        if index_entries == 0 {
            return Ok((Segment::state_on_disk(descriptors, self.dir, base, 0, 0, 0), 0));
        }
        if index_entries > on_disk.0 || time_entries > on_disk.1 {
            return nothing(self);
        }
        let index = self.last_entry::<IndexEntry>(base, "index", index_entries)?;
        let time_index = match time_entries {
            0 => None,
            n => self.last_entry::<TimeEntry>(base, "timeindex", n)?,
        };
        let (Some(index), true) = (index, time_entries == 0 || time_index.is_some()) else {
            return nothing(self);
        };
        // Each entry is of a batch of its own behind the first. One that claims less is not what was flushed, and what was
        // walked from there would come to the index once more.
        if u64::from(index.position) < u64::from(index_entries) * BatchHeader::LEN as u64 {
            return nothing(self);
        }
        // The entry must point at its batch, or the index is not what was flushed.
        let file = self.open_log(base)?;
        file.read_ahead(false);
        let size = files.logs[&base];
        let path: Arc<Path> = self.dir.join(file_name(base, "log")).into();
        let first = HeaderScan::new(file.clone(), &path, u64::from(index.position), size, base, false).next();
        if !matches!(first, Ok(Some(found)) if found.header.last_offset() == index.offset) {
            return nothing(self);
        }
        if let Some(entry) = time_index {
            let from = match entry.offset == index.offset {
                true => u64::from(index.position),
                false => self.indexed_at_or_before(base, entry.offset, index_entries)?,
            };
            let scan = HeaderScan::new(file, &path, from, size, base, false);
            if !is_of_its_batch(&entry, scan) {
                return nothing(self);
            }
        }
        let mut state = Segment::state_on_disk(
            descriptors,
            self.dir,
            base,
            u64::from(index.position),
            index_entries,
            time_entries,
        );
        state.index.set_last(index);
        if let Some(time_index) = time_index {
            state.time_index.set_last(time_index);
        }
        state.max_timestamp = time_index;
        Ok((state, u64::from(index.position)))
    }

    /// Where a walk to the batch of `offset` may begin.
    fn indexed_at_or_before(&self, base: i64, offset: i64, count: u32) -> Result<u64, OpenError> {
        let path = self.dir.join(file_name(base, "index"));
        let file = self.disk.open(&path, OpenMode::Read).map_err(|e| FileError::new("open", &path, e))?;
        let before = |entry: &IndexEntry| entry.offset <= offset;
        let found = last_on_disk_where(&*file, &path, base, count, false, before);
        Ok(found.map_err(|f| self.fault(f, &path))?.map_or(0, |entry| u64::from(entry.position)))
    }

    /// The last entry of an index that was flushed with so many; `None` if those before it are out of order: the file is not
    /// what was flushed.
    fn last_entry<E: Entry>(&self, base: i64, suffix: &str, count: u32) -> Result<Option<E>, OpenError> {
        let path = self.dir.join(file_name(base, suffix));
        let file = self.disk.open(&path, OpenMode::Read).map_err(|e| FileError::new("open", &path, e))?;
        last_in_order(&*file, &path, base, count).map_err(|f| self.fault(f, &path))
    }

    fn read_first_timestamp(
        &self,
        segment: &Segment,
        file: &Arc<dyn DiskFile>,
        size: u64,
    ) -> Result<(), OpenError> {
        let path = segment.log().path();
        file.read_ahead(false);
        let first = HeaderScan::new(file.clone(), path, 0, size, segment.base_offset(), false).next();
        file.read_ahead(true);
        match first {
            Ok(first) => {
                let first = first.map(|f| f.header.max_timestamp).filter(|&t| t >= 0);
                segment.state().write().first_timestamp = first;
                Ok(())
            }
            Err(fault) => Err(self.fault(fault, path)),
        }
    }

    fn take(&mut self, segment: &Segment, found: &Found) {
        self.report.batches_walked += 1;
        segment.state().write().add_batch(&found.header, self.config.index_interval_bytes);
    }

    /// Checks a batch of the tail and writes it again in place.
    fn verify(&mut self, file: &Arc<dyn DiskFile>, path: &Path, found: &Found) -> Result<bool, OpenError> {
        let mut bytes = vec![0; found.header.size()];
        file.read_at(&mut bytes, found.position).map_err(|e| FileError::new("read", path, e))?;
        if records::check_crc(&bytes).is_err() {
            return Ok(false);
        }
        self.report.bytes_verified += bytes.len() as u64;
        // If nothing is known of the flushed end this would rewrite everything; then the sync alone must do.
        if !self.is_unknown() && !self.poisoned {
            file.write_at(&bytes, found.position).map_err(|e| FileError::new("write", path, e))?;
        }
        Ok(true)
    }

    /// After this the segment is on disk exactly as it is in memory, but for index entries that are in memory only.
    fn make_durable(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn DiskFile>,
        size: u64,
        end: u64,
    ) -> Result<(), OpenError> {
        let path = segment.log().path();
        let next_offset = segment.state().read().next_offset;
        if self.poisoned {
            self.copy_verified(segment, file, end)?;
        } else if end < size || next_offset > self.floor {
            self.settle(path, || {
                if end < size {
                    file.set_len(end)?;
                }
                file.sync()
            })?;
            // The name of a segment that holds flushed records is durable already.
            self.dir_changed |= self.floor <= segment.base_offset();
        }
        let interval_full =
            segment.state().read().index.in_memory() > self.config.index_entries_in_memory_max;
        if interval_full {
            match self.write_indexes(segment) {
                Err(error) if is_disk_full(&error.source) => {
                    tracing::warn!(log = %self.name, %error, "index stays in memory");
                }
                written => return Ok(written?),
            }
        }
        self.cut_indexes(segment)
    }

    /// Has a part of the tail made durable.
    fn settle(&self, path: &Path, sync: impl FnOnce() -> io::Result<()>) -> Result<(), OpenError> {
        let synced = sync().map_err(|e| {
            let error = FileError::new("sync", path, e);
            // The next sync may report success for nothing, also to the next process.
            poison::leave_marker(self.disk, self.dir, &error.to_string());
            error
        });
        Ok(synced?)
    }

    /// So many bytes of those that were expected were gone through.
    fn on_done(&mut self, bytes: u64) -> Result<(), OpenError> {
        self.watched.on_done(bytes);
        self.watched.check(self.dir)
    }

    /// Copies what is whole into a new file, which takes the old one's place: after a failed write or sync neither the
    /// cache nor the blocks of the old file prove anything.
    fn copy_verified(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn DiskFile>,
        end: u64,
    ) -> Result<(), OpenError> {
        let path = segment.log().path().clone();
        let tmp = path.with_extension(format!("log{TMP_SUFFIX}"));
        if let Err(error) = self.write_copy(segment, file, end, &tmp) {
            // It would keep the room that it got. If it cannot be removed, the next try does it.
            let _ = self.disk.remove_file(&tmp);
            return Err(error);
        }
        self.data.descriptors().forget(segment.log());
        self.disk.rename(&tmp, &path).map_err(|e| FileError::new("replace", &path, e))?;
        self.dir_changed = true;
        Ok(())
    }

    fn write_copy(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn DiskFile>,
        end: u64,
        tmp: &Path,
    ) -> Result<(), OpenError> {
        let path = segment.log().path().clone();
        let failed = |e| FileError::new("copy", &path, e);
        let copy = self.disk.open(tmp, OpenMode::CreateOrEmpty).map_err(failed)?;
        // Others need what room there is, as long as it is not enough for all of this.
        if end > 0 && !copy.reserve(0, end) {
            return Err(failed(io::ErrorKind::StorageFull.into()).into());
        }
        let mut scan = HeaderScan::new(file.clone(), &path, 0, end, segment.base_offset(), false);
        let mut unsynced = 0;
        loop {
            let found = match scan.next() {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(fault) => return Err(self.fault(fault, &path)),
            };
            let mut bytes = vec![0; found.header.size()];
            file.read_at(&mut bytes, found.position).map_err(failed)?;
            if let Err(e) = records::check_crc(&bytes) {
                return Err(self.damaged(e.to_string(), path, found.position));
            }
            copy.write_at(&bytes, found.position).map_err(failed)?;
            unsynced += bytes.len() as u64;
            if unsynced >= SYNC_BYTES {
                copy.sync().map_err(failed)?;
                unsynced = 0;
            }
            self.on_work(bytes.len() as u64)?;
        }
        Ok(copy.sync().map_err(failed)?)
    }

    /// Writes all index entries of a segment that takes no more appends. On a full disk they stay in memory, as many as
    /// that may hold, and the next start builds the files anew.
    fn write_all_indexes(&mut self, segment: &Segment) -> Result<(), OpenError> {
        match self.write_indexes(segment) {
            Err(error) if is_disk_full(&error.source) => {
                tracing::warn!(log = %self.name, %error, "a part of the index stays in memory");
            }
            written => return Ok(written?),
        }
        let (files, on_disk, size) = {
            let state = segment.state().read();
            let on_disk = state.index.on_disk() + state.time_index.on_disk();
            ([state.index.file().clone(), state.time_index.file().clone()], on_disk, state.size)
        };
        for file in files {
            self.data.descriptors().forget(&file);
            remove_if_there(self.disk, file.path())?;
        }
        self.dir_changed = true;
        if on_disk > 0 {
            segment.forget_batches();
            self.walk(segment, size)?;
        }
        let mut state = segment.state().write();
        state.push_time_entry();
        state.index.thin_out(self.config.index_entries_in_memory_max);
        state.time_index.thin_out(self.config.index_entries_in_memory_max);
        Ok(())
    }

    /// Writes all index entries and makes them durable.
    fn write_indexes(&mut self, segment: &Segment) -> Result<(), FileError> {
        let mut state = segment.state().write();
        state.push_time_entry();
        let (index, time_index) = (state.index.in_memory(), state.time_index.in_memory());
        write_index(self.disk, &state.index, index)?;
        write_index(self.disk, &state.time_index, time_index)?;
        state.index.spilled(index);
        state.time_index.spilled(time_index);
        self.dir_changed = true;
        Ok(())
    }

    /// Cuts index files to the entries that are trusted. A file that is missing and not needed is left so.
    fn cut_indexes(&mut self, segment: &Segment) -> Result<(), OpenError> {
        let state = segment.state().read();
        let files = [
            (state.index.file(), u64::from(state.index.on_disk()) * IndexEntry::BYTES as u64),
            (state.time_index.file(), u64::from(state.time_index.on_disk()) * TimeEntry::BYTES as u64),
        ];
        for (file, len) in files {
            let path = file.path();
            let cut = || -> io::Result<()> {
                let file = match self.disk.open(path, OpenMode::ReadWrite) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound && len == 0 => return Ok(()),
                    opened => opened?,
                };
                if file.len()? != len {
                    file.set_len(len)?;
                    file.sync()?;
                }
                Ok(())
            };
            cut().map_err(|e| FileError::new("cut", path, e))?;
        }
        Ok(())
    }

    /// A segment that another follows gets its indexes into their files.
    fn settle_between(&mut self, segment: &Segment, next_base: i64) -> Result<(), OpenError> {
        if segment.state().read().next_offset > next_base {
            let path = segment.log().path();
            return Err(self.damaged(
                format!("the segment reaches into the next one at {next_base}"),
                path,
                0,
            ));
        }
        self.write_all_indexes(segment)?;
        segment.state().write().next_offset = next_base;
        Ok(())
    }
}

fn write_index<E: Entry>(disk: &dyn Disk, index: &SparseIndex<E>, count: usize) -> Result<(), FileError> {
    let path = index.file().path();
    let open = || match disk.open(path, OpenMode::ReadWrite) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => disk.open(path, OpenMode::CreateNew),
        opened => opened,
    };
    let file = open().map_err(|e| FileError::new("open", path, e))?;
    index.spill(&*file, count)?;
    let len = (u64::from(index.on_disk()) + count as u64) * E::BYTES as u64;
    file.set_len(len).and_then(|()| file.sync()).map_err(|e| FileError::new("sync", path, e))
}

/// Whether a time entry tells of the batch at its offset what that one says, in a walk that begins at or before it.
fn is_of_its_batch(entry: &TimeEntry, mut scan: HeaderScan) -> bool {
    loop {
        match scan.next() {
            Ok(Some(found)) if found.header.last_offset() < entry.offset => {}
            Ok(Some(found)) => {
                let header = found.header;
                return header.last_offset() == entry.offset && header.newest_timestamp() == entry.timestamp;
            }
            Ok(None) | Err(_) => return false,
        }
    }
}
