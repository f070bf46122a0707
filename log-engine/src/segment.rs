//! One segment: a file of batches and its two indexes.
//!
//! The owner thread of the log appends; any number of readers look up and read at the same time. What they share is
//! `SegmentState` behind a lock that is held for a look or an update in memory, never across a read or write of the
//! device: bytes are written first and become visible after.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use records::{BatchHeader, NO_TIMESTAMP};

use crate::descriptors::{CachedFile, Descriptors};
use crate::disk::{Disk, DiskFile};
use crate::index::{self, IndexEntry, Lookup, SparseIndex, TimeEntry};
use crate::scan::{Fault, Found, HeaderScan};
use crate::txn_index::TxnIndex;

/// File name of a segment's part: 20 digits, so that names sort by offset.
pub(crate) fn file_name(base_offset: i64, suffix: &str) -> String {
    format!("{base_offset:020}.{suffix}")
}

/// Base offset and suffix of a file name made by [`file_name`].
pub(crate) fn parse_file_name(name: &str) -> Option<(i64, &str)> {
    let (digits, suffix) = name.split_once('.')?;
    let well_formed = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    Some((well_formed.then(|| digits.parse().ok())??, suffix))
}

pub(crate) struct Segment {
    base_offset: i64,
    log: CachedFile,
    descriptors: Arc<Descriptors>,
    state: RwLock<SegmentState>,
    aborted: TxnIndex,
    /// The segment has a seal, or somebody is about to write one.
    sealed: AtomicBool,
    /// Its name belongs to another segment, or soon will.
    replaced: AtomicBool,
}

/// What changes while a segment is written.
pub(crate) struct SegmentState {
    /// Bytes of whole batches.
    pub(crate) size: u64,
    /// Offset after the last batch; in a sealed segment the base offset of the next one.
    pub(crate) next_offset: i64,
    pub(crate) index: SparseIndex<IndexEntry>,
    pub(crate) time_index: SparseIndex<TimeEntry>,
    /// Max timestamp so far and the last offset of its batch; `None` until known.
    pub(crate) max_timestamp: Option<TimeEntry>,
    /// Bytes since the batch of the last index entry.
    pub(crate) bytes_since_entry: u64,
    /// Max timestamp of the first batch that has one.
    pub(crate) first_timestamp: Option<i64>,
    pub(crate) created_ms: i64,
    /// Broker time of the last append, once the segment is sealed and somebody has asked.
    pub(crate) last_append_ms: Option<i64>,
}

impl SegmentState {
    /// Takes a batch that was written (or found) at the end of the segment.
    pub(crate) fn add_batch(&mut self, header: &BatchHeader, interval_bytes: u64) {
        let position = self.size;
        let last_offset = header.last_offset();
        let max = self.max_timestamp.map_or(NO_TIMESTAMP, |m| m.timestamp);
        let newest = header.newest_timestamp();
        if newest > max || self.max_timestamp.is_none() {
            let timestamp = newest.max(max);
            self.max_timestamp = Some(TimeEntry { timestamp, offset: last_offset });
        }
        if self.first_timestamp.is_none() && newest >= 0 {
            self.first_timestamp = Some(newest);
        }
        if self.bytes_since_entry > interval_bytes {
            // Planted: the entry points at the batch behind.
            let skipped = if cfg!(weir_planted_bug = "B18") { header.size() as u64 } else { 0 };
            self.index.push(IndexEntry { offset: last_offset, position: (position + skipped) as u32 });
            self.push_time_entry();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += header.size() as u64;
        self.size = position + header.size() as u64;
        self.next_offset = last_offset + 1;
    }

    /// Brings the time index up to the max timestamp so far.
    pub(crate) fn push_time_entry(&mut self) {
        let last = self.time_index.last().map_or(NO_TIMESTAMP, |e| e.timestamp);
        if let Some(max) = self.max_timestamp
            && max.timestamp > last
        {
            self.time_index.push(max);
        }
    }
}

impl Segment {
    /// A segment of `size` bytes. Its indexes have the given numbers of entries in their files.
    pub(crate) fn new(
        descriptors: &Arc<Descriptors>,
        dir: &Path,
        base_offset: i64,
        state: SegmentState,
    ) -> Segment {
        let log = descriptors.name(dir.join(file_name(base_offset, "log")));
        Segment {
            base_offset,
            log,
            descriptors: descriptors.clone(),
            state: RwLock::new(state),
            aborted: TxnIndex::new(descriptors, dir, base_offset),
            sealed: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
        }
    }

    /// Drops what is known of batches and indexes, for a segment that is walked anew.
    pub(crate) fn forget_batches(&self) {
        let mut state = self.state.write();
        state.index.clear();
        state.time_index.clear();
        state.size = 0;
        state.next_offset = self.base_offset;
        state.max_timestamp = None;
        state.first_timestamp = None;
        state.bytes_since_entry = 0;
    }

    /// State of a segment about which nothing but file sizes is known.
    pub(crate) fn state_on_disk(
        descriptors: &Arc<Descriptors>,
        dir: &Path,
        base_offset: i64,
        size: u64,
        index_entries: u32,
        time_index_entries: u32,
    ) -> SegmentState {
        let name = |suffix| descriptors.name(dir.join(file_name(base_offset, suffix)));
        SegmentState {
            size,
            next_offset: base_offset,
            index: SparseIndex::new(base_offset, name("index"), index_entries, None),
            time_index: SparseIndex::new(base_offset, name("timeindex"), time_index_entries, None),
            max_timestamp: None,
            bytes_since_entry: 0,
            first_timestamp: None,
            created_ms: 0,
            last_append_ms: None,
        }
    }

    pub(crate) fn base_offset(&self) -> i64 {
        self.base_offset
    }

    pub(crate) fn log(&self) -> &CachedFile {
        &self.log
    }

    pub(crate) fn state(&self) -> &RwLock<SegmentState> {
        &self.state
    }

    /// Which transactions were aborted in it.
    pub(crate) fn aborted(&self) -> &TxnIndex {
        &self.aborted
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        self.descriptors.disk()
    }

    /// The directory of its files.
    pub(crate) fn dir(&self) -> &Path {
        self.log.path().parent().unwrap_or_else(|| Path::new(""))
    }

    /// Forgets a file that was removed or replaced on disk.
    pub(crate) fn forget(&self, file: &CachedFile) {
        self.descriptors.forget(file);
    }

    /// Answers whether the segment has no seal yet and nobody was told to write one; now somebody is.
    pub(crate) fn begin_sealing(&self) -> bool {
        !self.sealed.swap(true, Ordering::AcqRel)
    }

    /// The segment takes appends again, or its seal was dropped.
    pub(crate) fn unseal(&self) {
        self.sealed.store(false, Ordering::Release);
    }

    /// The open segment file; cold if it would have to be opened.
    pub(crate) fn file(&self, warm: bool) -> Result<Arc<dyn DiskFile>, Fault> {
        self.open(&self.log, warm)
    }

    /// An open file of the segment; cold if it would have to be opened.
    pub(crate) fn open(&self, file: &CachedFile, warm: bool) -> Result<Arc<dyn DiskFile>, Fault> {
        let opened = match warm {
            true => self.descriptors.get_open(file).ok_or(Fault::Cold),
            false => self.descriptors.get(file).map_err(|e| Fault::io("open", file.path(), e)),
        }?;
        // What was opened before the mark was set is the old file: names change only after it.
        if self.is_replaced() {
            let reason = "the segment was replaced by a compacted one".to_owned();
            return Err(Fault::Damaged { position: 0, reason });
        }
        Ok(opened)
    }

    /// From now on readers that come late must look for another segment.
    pub(crate) fn set_replaced(&self) {
        self.replaced.store(true, Ordering::SeqCst);
    }

    /// Whether another has its place in the log.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::SeqCst)
    }

    /// Walks the headers from a position to the end of what is visible now.
    pub(crate) fn scan_from(&self, position: u64, warm: bool) -> Result<HeaderScan, Fault> {
        let size = self.state.read().size;
        let file = self.file(warm)?;
        Ok(HeaderScan::new(file, self.log.path(), position, size, self.base_offset, warm))
    }

    /// Whether reads that follow are one after another; opens the file if need be.
    pub(crate) fn read_ahead(&self, pays: bool) -> Result<(), Fault> {
        self.file(false)?.read_ahead(pays);
        Ok(())
    }

    /// The first batch that ends at or after `offset`, and the walk standing behind it.
    pub(crate) fn locate(&self, offset: i64, warm: bool) -> Result<Option<(Found, HeaderScan)>, Fault> {
        let entry = match offset <= self.base_offset {
            // No entry is of the first batch.
            true => None,
            false => self.index_entry_where(warm, |e| e.offset <= offset)?,
        };
        let (mut scan, mut next) = self.scan_from_entry(entry, 0, warm)?;
        while let Some(found) = next {
            if found.header.last_offset() >= offset {
                return Ok(Some((found, scan)));
            }
            next = scan.next()?;
        }
        Ok(None)
    }

    /// The offset after the last batch that is really there and begins before `position`.
    pub(crate) fn end_of_batches(&self, position: u64) -> Result<i64, Fault> {
        let entry = self.index_entry_where(false, |e| u64::from(e.position) < position)?;
        let (mut scan, mut next) = self.scan_from_entry(entry, 0, false)?;
        let mut end = self.base_offset;
        while let Some(found) = next.filter(|found| found.position < position) {
            end = found.header.last_offset() + 1;
            next = scan.next()?;
        }
        Ok(end)
    }

    /// Starts a walk at an index entry if that one tells the truth, else at `otherwise`; with its first batch.
    fn scan_from_entry(
        &self,
        entry: Option<IndexEntry>,
        otherwise: u64,
        warm: bool,
    ) -> Result<(HeaderScan, Option<Found>), Fault> {
        if let Some(entry) = entry {
            let mut scan = self.scan_from(u64::from(entry.position), warm)?;
            match scan.next() {
                Ok(Some(found)) if found.header.last_offset() == entry.offset => {
                    return Ok((scan, Some(found)));
                }
                Err(Fault::Cold) => return Err(Fault::Cold),
                Err(Fault::Io(e)) => return Err(Fault::Io(e)),
                Ok(_) | Err(Fault::Damaged { .. }) => {
                    tracing::warn!(segment = %self.log.path().display(), "index entry points nowhere, scan instead");
                }
            }
        }
        let mut scan = self.scan_from(otherwise, warm)?;
        let first = scan.next()?;
        Ok((scan, first))
    }

    /// The end position of the whole batches from `first` on that take at most `bytes_max` (`first` itself always)
    /// and whose offsets all lie below `upper_bound`, and the offset that follows them.
    pub(crate) fn extent(
        &self,
        first: &Found,
        scan: HeaderScan,
        bytes_max: u64,
        upper_bound: i64,
        warm: bool,
    ) -> Result<(u64, i64), Fault> {
        let (size, next_offset) = {
            let state = self.state.read();
            (state.size, state.next_offset)
        };
        let limit = first.position.saturating_add(bytes_max);
        if size <= limit && next_offset <= upper_bound {
            return Ok((size, next_offset));
        }
        let jump =
            self.index_entry_where(warm, |e| u64::from(e.position) <= limit && e.offset < upper_bound)?;
        let jump = jump.filter(|e| u64::from(e.position) > first.end());
        let mut extent = (first.end(), first.header.last_offset() + 1);
        let (mut scan, mut next) = match jump {
            None => {
                let mut scan = scan;
                let next = scan.next()?;
                (scan, next)
            }
            Some(entry) => {
                let (scan, next) = self.scan_from_entry(Some(entry), first.end(), warm)?;
                // All batches before the entry are within both limits, since the entry's own start is.
                if let Some(found) = next
                    && found.position == u64::from(entry.position)
                {
                    extent = (found.position, found.header.base_offset);
                }
                (scan, next)
            }
        };
        while let Some(found) = next {
            if found.end() > limit || found.header.last_offset() >= upper_bound {
                break;
            }
            extent = (found.end(), found.header.last_offset() + 1);
            next = scan.next()?;
        }
        Ok(extent)
    }

    fn index_entry_where(
        &self,
        warm: bool,
        holds: impl Fn(&IndexEntry) -> bool,
    ) -> Result<Option<IndexEntry>, Fault> {
        let (count, file) = {
            let state = self.state.read();
            match state.index.last_where(&holds) {
                Lookup::Found(entry) => return Ok(Some(entry)),
                Lookup::OnDisk { count: 0 } => return Ok(None),
                Lookup::OnDisk { count } => (count, state.index.file().clone()),
            }
        };
        self.search_file(&file, count, warm, holds)
    }

    fn time_entry_where(&self, holds: impl Fn(&TimeEntry) -> bool) -> Result<Option<TimeEntry>, Fault> {
        let (count, file) = {
            let state = self.state.read();
            match state.time_index.last_where(&holds) {
                Lookup::Found(entry) => return Ok(Some(entry)),
                Lookup::OnDisk { count: 0 } => return Ok(None),
                Lookup::OnDisk { count } => (count, state.time_index.file().clone()),
            }
        };
        self.search_file(&file, count, false, holds)
    }

    /// A search in an index file; one that cannot be read is like one without entries.
    fn search_file<E: index::Entry>(
        &self,
        file: &CachedFile,
        count: u32,
        warm: bool,
        holds: impl Fn(&E) -> bool,
    ) -> Result<Option<E>, Fault> {
        let opened = match self.open(file, warm) {
            Ok(opened) => opened,
            Err(Fault::Cold) => return Err(Fault::Cold),
            Err(_) => return Ok(None),
        };
        match index::last_on_disk_where(&*opened, file.path(), self.base_offset, count, warm, holds) {
            Err(Fault::Damaged { .. }) => Ok(None),
            other => other,
        }
    }

    /// The largest timestamp of the segment with the last offset of the first batch that has it; `None` if there is
    /// no batch. Waits for the device the first time, for a segment that an earlier process sealed.
    pub(crate) fn max_timestamp(&self) -> Result<Option<TimeEntry>, Fault> {
        if let Some(max) = self.state.read().max_timestamp {
            return Ok(Some(max));
        }
        // The last entry of the time index is where to begin; what stands behind it is walked, so that an index that
        // was cut short is no error.
        let start = match self.time_entry_where(|_| true)? {
            Some(entry) => self.batch_of(&entry)?,
            None => None,
        };
        let mut scan = self.scan_from(start.map_or(0, |f| f.position), false)?;
        let mut max: Option<TimeEntry> = None;
        while let Some(found) = scan.next()? {
            let timestamp = found.header.newest_timestamp();
            if max.is_none_or(|m| timestamp > m.timestamp) {
                max = Some(TimeEntry { timestamp, offset: found.header.last_offset() });
            }
        }
        if let Some(max) = max {
            self.state.write().max_timestamp.get_or_insert(max);
        }
        Ok(max)
    }

    /// Max timestamp of the first batch, if it has one. Waits for the device the first time, for a segment that an earlier
    /// process sealed.
    pub(crate) fn first_timestamp(&self) -> Result<Option<i64>, Fault> {
        if let Some(first) = self.state.read().first_timestamp {
            return Ok(Some(first));
        }
        let first = self.scan_from(0, false)?.next()?.map(|found| found.header.newest_timestamp());
        let first = first.filter(|&timestamp| timestamp >= 0);
        if let Some(first) = first {
            self.state.write().first_timestamp.get_or_insert(first);
        }
        Ok(first)
    }

    /// The batch that a time index entry names, if it tells the truth.
    pub(crate) fn batch_of(&self, entry: &TimeEntry) -> Result<Option<Found>, Fault> {
        let found = self.locate(entry.offset, false)?.map(|(found, _)| found);
        Ok(found.filter(|f| {
            f.header.last_offset() == entry.offset && f.header.newest_timestamp() == entry.timestamp
        }))
    }

    /// A walk that begins before the first batch with a record at or after `timestamp`.
    pub(crate) fn scan_for_timestamp(&self, timestamp: i64) -> Result<HeaderScan, Fault> {
        let start = match self.time_entry_where(|e| e.timestamp <= timestamp)? {
            Some(entry) => self.batch_of(&entry)?,
            None => None,
        };
        self.scan_from(start.map_or(0, |f| f.position), false)
    }

    /// Bytes of a whole batch.
    pub(crate) fn read_batch(&self, found: &Found) -> Result<Vec<u8>, Fault> {
        let file = self.file(false)?;
        let mut bytes = vec![0; found.header.size()];
        crate::scan::read_at(&*file, self.log.path(), &mut bytes, found.position, false)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_twenty_digits() {
        assert_eq!(file_name(17, "log"), "00000000000000000017.log");
        assert_eq!(parse_file_name("00000000000000000017.log"), Some((17, "log")));
        assert_eq!(parse_file_name("00000000000000000017.log.tmp"), Some((17, "log.tmp")));
        for name in ["17.log", "00000000000000000017", "0000000000000000001x.log", "99999999999999999999.log"]
        {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
