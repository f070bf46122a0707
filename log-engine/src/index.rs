//! The sparse indexes of a segment, in Kafka's bytes: offset → position, and timestamp → offset.
//!
//! An index is a sorted file of fixed entries and a tail in memory that is not in the file yet. The tail is bounded:
//! its older half goes to the file when it is full. Indexes are hints, never the truth: every answer is checked
//! against the batch that it points at, so a damaged index costs time and not correctness.

use std::collections::VecDeque;

use log_engine_core::roll::{INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES};

use crate::descriptors::CachedFile;
use crate::disk::DiskFile;
use crate::error::FileError;
use crate::scan::{self, Fault};

/// Entries that a search on disk reads in one go.
const BLOCK_ENTRIES: usize = 256;

/// A fixed-size entry, sorted by everything it holds.
pub(crate) trait Entry: Copy + PartialEq {
    const BYTES: usize;
    fn encode(&self, base_offset: i64, out: &mut Vec<u8>);
    /// `bytes` has exactly [`BYTES`](Self::BYTES).
    fn decode(bytes: &[u8], base_offset: i64) -> Self;
    /// Whether the other may follow.
    fn is_before(&self, next: &Self) -> bool;
}

/// The batch that ends at `offset` begins at `position`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) offset: i64,
    pub(crate) position: u32,
}

/// No record up to `offset` is newer than `timestamp`, which is the max timestamp of the batch that ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub(crate) timestamp: i64,
    pub(crate) offset: i64,
}

impl Entry for IndexEntry {
    const BYTES: usize = INDEX_ENTRY_BYTES as usize;

    fn encode(&self, base_offset: i64, out: &mut Vec<u8>) {
        out.extend_from_slice(&relative(self.offset, base_offset).to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8], base_offset: i64) -> IndexEntry {
        IndexEntry {
            offset: base_offset.saturating_add(i64::from(i32_at(bytes, 0))),
            position: i32_at(bytes, 4) as u32,
        }
    }

    fn is_before(&self, next: &IndexEntry) -> bool {
        self.offset < next.offset && self.position < next.position
    }
}

impl Entry for TimeEntry {
    const BYTES: usize = TIME_INDEX_ENTRY_BYTES as usize;

    fn encode(&self, base_offset: i64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&relative(self.offset, base_offset).to_be_bytes());
    }

    fn decode(bytes: &[u8], base_offset: i64) -> TimeEntry {
        let timestamp = (i64::from(i32_at(bytes, 0)) << 32) | i64::from(i32_at(bytes, 4) as u32);
        TimeEntry { timestamp, offset: base_offset.saturating_add(i64::from(i32_at(bytes, 8))) }
    }

    fn is_before(&self, next: &TimeEntry) -> bool {
        self.timestamp < next.timestamp && self.offset < next.offset
    }
}

fn relative(offset: i64, base_offset: i64) -> i32 {
    i32::try_from(offset - base_offset).expect("a segment rolls before an offset leaves its 32-bit reach")
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// One index of one segment.
pub(crate) struct SparseIndex<E> {
    base_offset: i64,
    file: CachedFile,
    on_disk: u32,
    tail: VecDeque<E>,
    /// The newest entry, wherever it is; not known of a segment that was sealed by an earlier process.
    last: Option<E>,
    /// Entries are missing in the tail.
    is_thinned: bool,
}

/// The front of an index, in file and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Front<E> {
    pub(crate) on_disk: u32,
    in_memory: usize,
    pub(crate) last: E,
}

impl<E> Front<E> {
    /// Entries of it.
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.on_disk) + self.in_memory as u64
    }
}

/// Where a search must go on.
pub(crate) enum Lookup<E> {
    Found(E),
    /// Not in memory: search the first `count` entries of the file.
    OnDisk {
        count: u32,
    },
}

impl<E: Entry> SparseIndex<E> {
    pub(crate) fn new(base_offset: i64, file: CachedFile, on_disk: u32, last: Option<E>) -> SparseIndex<E> {
        SparseIndex { base_offset, file, on_disk, tail: VecDeque::new(), last, is_thinned: false }
    }

    pub(crate) fn file(&self) -> &CachedFile {
        &self.file
    }

    /// Entries in file and memory.
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.on_disk) + self.tail.len() as u64
    }

    pub(crate) fn on_disk(&self) -> u32 {
        self.on_disk
    }

    pub(crate) fn in_memory(&self) -> usize {
        self.tail.len()
    }

    pub(crate) fn last(&self) -> Option<E> {
        self.last
    }

    /// Says what the newest entry in the file is, so that the index can be continued.
    pub(crate) fn set_last(&mut self, last: E) {
        self.last = Some(last);
    }

    pub(crate) fn push(&mut self, entry: E) {
        self.tail.push_back(entry);
        self.last = Some(entry);
    }

    /// The entry of the tail at `at`, oldest first.
    pub(crate) fn tail_entry(&self, at: usize) -> Option<E> {
        self.tail.get(at).copied()
    }

    /// Entries at the front of the tail that satisfy `holds`.
    pub(crate) fn tail_count(&self, holds: impl Fn(&E) -> bool) -> usize {
        self.tail.partition_point(holds)
    }

    /// The oldest `count` entries of the tail as bytes, and where in the file they belong. The tail is left alone until
    /// [`spilled`](Self::spilled), so that a failed write changes nothing.
    pub(crate) fn to_spill(&self, count: usize) -> (Vec<u8>, u64) {
        let mut bytes = Vec::with_capacity(count * E::BYTES);
        for entry in self.tail.iter().take(count) {
            entry.encode(self.base_offset, &mut bytes);
        }
        (bytes, u64::from(self.on_disk) * E::BYTES as u64)
    }

    /// Writes what [`to_spill`](Self::to_spill) gives.
    pub(crate) fn spill(&self, file: &dyn DiskFile, count: usize) -> Result<(), FileError> {
        let (bytes, at) = self.to_spill(count);
        file.write_at(&bytes, at).map_err(|e| FileError::new("write", self.file.path(), e))
    }

    /// The oldest `count` entries are in the file now.
    pub(crate) fn spilled(&mut self, count: usize) {
        self.tail.drain(..count);
        self.on_disk += count as u32;
    }

    /// Drops what is known of the file and in memory.
    pub(crate) fn clear(&mut self) {
        (self.on_disk, self.last, self.is_thinned) = (0, None, false);
        self.tail.clear();
    }

    /// Whether every entry that was ever added is there.
    pub(crate) fn is_complete(&self) -> bool {
        !self.is_thinned
    }

    /// The entries in memory for which `holds` is true, with all of the file before them; it must be true for a prefix of the
    /// index.
    pub(crate) fn front_in_memory(&self, holds: impl Fn(&E) -> bool) -> Option<Front<E>> {
        let in_memory = self.tail.partition_point(holds);
        let last = *self.tail.get(in_memory.checked_sub(1)?)?;
        Some(Front { on_disk: self.on_disk, in_memory, last })
    }

    /// Drops all behind a front of it.
    pub(crate) fn cut_to(&mut self, front: &Front<E>) {
        self.on_disk = front.on_disk;
        self.tail.truncate(front.in_memory);
        self.last = Some(front.last);
    }

    /// Keeps at most so many entries in memory, evenly spread: a search walks further from what it finds.
    pub(crate) fn thin_out(&mut self, entries_max: usize) {
        let step = self.tail.len().div_ceil(entries_max.max(1)).max(1);
        let mut at = 0;
        self.is_thinned |= step > 1;
        self.tail.retain(|_| {
            at += 1;
            (at - 1) % step == 0
        });
    }

    /// The last entry for which `holds` is true; it must be true for a prefix of the index.
    pub(crate) fn last_where(&self, holds: impl Fn(&E) -> bool) -> Lookup<E> {
        match self.tail.partition_point(&holds).checked_sub(1) {
            Some(at) => Lookup::Found(self.tail[at]),
            // Most ask for the end, which is known without the file.
            None => match self.last.filter(|last| self.tail.is_empty() && holds(last)) {
                Some(last) => Lookup::Found(last),
                None => Lookup::OnDisk { count: self.on_disk },
            },
        }
    }
}

/// The last of the first `count` entries of an index file, if those before it that one read brings along are in order: else it
/// was not flushed like this.
pub(crate) fn last_in_order<E: Entry>(
    file: &dyn DiskFile,
    path: &std::path::Path,
    base_offset: i64,
    count: u32,
) -> Result<Option<E>, Fault> {
    let count = count as usize;
    let first = count.saturating_sub(BLOCK_ENTRIES);
    let mut block = vec![0u8; (count - first) * E::BYTES];
    if block.is_empty() {
        return Ok(None);
    }
    scan::read_at(file, path, &mut block, (first * E::BYTES) as u64, false)?;
    let entries: Vec<E> = block.chunks_exact(E::BYTES).map(|bytes| E::decode(bytes, base_offset)).collect();
    let in_order = entries.windows(2).all(|pair| pair[0].is_before(&pair[1]));
    Ok(entries.last().copied().filter(|_| in_order))
}

/// The front of an index file's first `count` entries for which `holds` is true, as [`last_on_disk_where`] finds it.
pub(crate) fn front_on_disk<E: Entry>(
    file: &dyn DiskFile,
    path: &std::path::Path,
    base_offset: i64,
    count: u32,
    holds: impl Fn(&E) -> bool,
) -> Result<Option<Front<E>>, Fault> {
    let found = search_on_disk(file, path, base_offset, count, false, holds)?;
    Ok(found.map(|(at, last)| Front { on_disk: at as u32 + 1, in_memory: 0, last }))
}

/// Searches the first `count` entries of an index file for the last one for which `holds` is true. In a damaged file
/// it may answer any entry, which the caller checks.
pub(crate) fn last_on_disk_where<E: Entry>(
    file: &dyn DiskFile,
    path: &std::path::Path,
    base_offset: i64,
    count: u32,
    warm: bool,
    holds: impl Fn(&E) -> bool,
) -> Result<Option<E>, Fault> {
    Ok(search_on_disk(file, path, base_offset, count, warm, holds)?.map(|(_, entry)| entry))
}

/// The same, with the number of entries before it.
fn search_on_disk<E: Entry>(
    file: &dyn DiskFile,
    path: &std::path::Path,
    base_offset: i64,
    count: u32,
    warm: bool,
    holds: impl Fn(&E) -> bool,
) -> Result<Option<(usize, E)>, Fault> {
    // Invariant: all entries before `low` satisfy, none from `high` on does.
    let (mut low, mut high) = (0usize, count as usize);
    let mut buf = vec![0u8; E::BYTES];
    while high - low > BLOCK_ENTRIES {
        let middle = low + (high - low) / 2;
        scan::read_at(file, path, &mut buf, (middle * E::BYTES) as u64, warm)?;
        match holds(&E::decode(&buf, base_offset)) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    // One more before the block, which is known to satisfy.
    let first = low.saturating_sub(1);
    let mut block = vec![0u8; (high - first) * E::BYTES];
    if block.is_empty() {
        return Ok(None);
    }
    scan::read_at(file, path, &mut block, (first * E::BYTES) as u64, warm)?;
    let entries = block.chunks_exact(E::BYTES).map(|b| E::decode(b, base_offset));
    Ok((first..).zip(entries.take_while(|e| holds(e))).last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::Descriptors;
    use crate::disk::{Disk, OpenMode, SimDisk};
    use std::path::Path;

    #[test]
    fn entries_are_kafkas_bytes() {
        let mut out = Vec::new();
        IndexEntry { offset: 105, position: 0x0102_0304 }.encode(100, &mut out);
        assert_eq!(out, [0, 0, 0, 5, 1, 2, 3, 4]);
        assert_eq!(IndexEntry::decode(&out, 100), IndexEntry { offset: 105, position: 0x0102_0304 });
        out.clear();
        TimeEntry { timestamp: -2, offset: 107 }.encode(100, &mut out);
        assert_eq!(out, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 7]);
        assert_eq!(TimeEntry::decode(&out, 100), TimeEntry { timestamp: -2, offset: 107 });
        let large = TimeEntry { timestamp: 0x0123_4567_89ab_cdef, offset: 100 };
        out.clear();
        large.encode(100, &mut out);
        assert_eq!(TimeEntry::decode(&out, 100), large);
    }

    #[test]
    fn a_thinned_index_finds_an_entry_before() {
        let cached = Descriptors::new(SimDisk::new(1), 4).name("x.index".into());
        let mut index = SparseIndex::new(0, cached, 0, None);
        (0..1000).for_each(|i| index.push(IndexEntry { offset: i * 3, position: i as u32 }));
        index.thin_out(300);
        assert!(index.in_memory() > 200 && index.in_memory() <= 300, "{}", index.in_memory());
        for target in 0..3010 {
            let Lookup::Found(found) = index.last_where(|e| e.offset <= target) else { panic!("{target}") };
            assert!(found.offset <= target && (found.offset > target - 15 || target > 2985), "{target}");
        }
        index.thin_out(0);
        assert_eq!(index.in_memory(), 1);
    }

    #[test]
    fn every_search_equals_a_linear_one_in_file_and_tail() {
        let disk = SimDisk::new(1);
        let path = Path::new("x.index");
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        let cached = Descriptors::new(disk, 4).name(path.to_owned());
        let mut index = SparseIndex::new(0, cached, 0, None);
        let all: Vec<IndexEntry> =
            (0..1000).map(|i| IndexEntry { offset: i * 3 + 2, position: i as u32 * 10 }).collect();
        for (i, entry) in all.iter().enumerate() {
            index.push(*entry);
            if i % 300 == 299 {
                let count = index.in_memory() / 2;
                index.spill(&*file, count).unwrap();
                index.spilled(count);
            }
        }
        assert_eq!(index.len(), 1000);
        assert!(index.on_disk() > 500 && index.in_memory() > 100);
        for target in 0..3010 {
            let holds = |e: &IndexEntry| e.offset <= target;
            let found = match index.last_where(holds) {
                Lookup::Found(e) => Some(e),
                Lookup::OnDisk { count } => last_on_disk_where(&*file, path, 0, count, false, holds).unwrap(),
            };
            assert_eq!(found, all.iter().copied().rfind(holds), "{target}");
        }
    }
}
