//! The transaction index of a segment: which transactions were aborted by a marker in it, in Kafka's bytes.
//!
//! The owner of the log appends; the newest entries stay in memory until the producers are saved or the segment is
//! finished. Without an entry the records of an aborted transaction would be shown as committed, so the file is not
//! trusted, unlike the other indexes' files: Kafka's format has no checksum, but the producer snapshot at the end of the
//! segment has one of it. What an earlier process left is compared with that when it is needed first, and built anew from
//! the batches if it is damaged or missing. An entry is never ahead of the log: it is made of a batch that is in it.

use std::path::Path;
use std::sync::Arc;

use log_engine_core::compact::{AbortedCollector, AbortedRanges};
use log_engine_core::seal::FileSum;
use log_engine_core::{AbortedDigest, AbortedIndex, AbortedTransaction};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::data_dir::{read_file, write_file};
use crate::descriptors::{CachedFile, Descriptors};
use crate::disk::DiskFile;
use crate::error::ReadError;
use crate::reader::{LogReader, Shared, floor};
use crate::replay;
use crate::scan::{self, Fault};
use crate::seal::INDEX_BYTES_MAX;
use crate::segment::{Segment, file_name};
use crate::snapshots;

pub(crate) const SUFFIX: &str = "txnindex";
/// Entries that are read at once.
const BLOCK_ENTRIES: u32 = 256;

/// See the module.
pub(crate) struct TxnIndex {
    file: CachedFile,
    /// `None` until the file was verified.
    known: RwLock<Option<Known>>,
    /// Held by who verifies the file or builds it anew, which can take long.
    settling: Mutex<()>,
    /// Held while the file is replaced, cut or removed, which does not; counts how often it was cut or removed.
    gate: Mutex<u64>,
}

struct Known {
    /// Of the entries at the front of the file that count.
    on_disk: AbortedDigest,
    /// Entries that are not in the file yet.
    tail: Vec<AbortedTransaction>,
    /// First offset of the oldest transaction that is open where the segment ends, `i64::MAX` if none is; not known of
    /// a segment that is being written.
    oldest_open_at_end: Option<i64>,
}

/// Whether a search has to go on in the next segment.
#[derive(Debug, PartialEq, Eq)]
enum Search {
    GoOn,
    Done,
}

impl TxnIndex {
    /// The index of a segment about which nothing is known.
    pub(crate) fn new(descriptors: &Descriptors, dir: &Path, base_offset: i64) -> TxnIndex {
        let file = descriptors.name(dir.join(file_name(base_offset, SUFFIX)));
        TxnIndex { file, known: RwLock::new(None), settling: Mutex::new(()), gate: Mutex::new(0) }
    }

    pub(crate) fn file(&self) -> &CachedFile {
        &self.file
    }

    /// Says what the index holds: what is at the front of the file, and what is to be added to it.
    pub(crate) fn set(&self, on_disk: AbortedDigest, tail: Vec<AbortedTransaction>) {
        *self.known.write() = Some(Known { on_disk, tail, oldest_open_at_end: None });
    }

    /// A transaction was aborted by a marker that was appended.
    pub(crate) fn push(&self, aborted: AbortedTransaction) {
        if let Some(known) = &mut *self.known.write() {
            known.tail.push(aborted);
        }
    }

    /// The segment is finished.
    pub(crate) fn finish(&self, first_ongoing: Option<i64>) {
        if let Some(known) = &mut *self.known.write() {
            known.oldest_open_at_end = Some(first_ongoing.unwrap_or(i64::MAX));
        }
    }

    /// The entries that are not in the file yet, as bytes, and where in the file they belong.
    pub(crate) fn to_spill(&self) -> Option<(Vec<u8>, u64)> {
        let known = self.known.read();
        let known = known.as_ref().filter(|known| !known.tail.is_empty())?;
        Some((encode(&known.tail), position(known.on_disk.count)))
    }

    /// They are in the file now. Only the owner adds some.
    pub(crate) fn spilled(&self) {
        if let Some(known) = &mut *self.known.write() {
            known.on_disk = digest_from(known.on_disk, &known.tail);
            known.tail.clear();
        }
    }

    /// Entries that are not in the file yet.
    pub(crate) fn in_memory(&self) -> usize {
        self.known.read().as_ref().map_or(0, |known| known.tail.len())
    }

    /// What a producer snapshot at the end of the segment says of the index; nothing that is not in the file.
    pub(crate) fn describe(&self, base_offset: i64) -> AbortedIndex {
        match &*self.known.read() {
            Some(known) if known.tail.is_empty() => match known.on_disk {
                AbortedDigest { count: 0, .. } => AbortedIndex::Empty,
                digest => AbortedIndex::Of { base_offset, digest },
            },
            Some(_) | None => AbortedIndex::Unknown,
        }
    }

    /// Keeps everybody from replacing the file, for who is about to cut or remove it. Whoever builds it anew meanwhile
    /// begins again.
    pub(crate) fn hold(&self) -> MutexGuard<'_, u64> {
        let mut cuts = self.gate.lock();
        *cuts += 1;
        cuts
    }

    /// The same, unless somebody replaces the file now.
    pub(crate) fn try_hold(&self) -> Option<MutexGuard<'_, u64>> {
        let mut cuts = self.gate.try_lock()?;
        *cuts += 1;
        Some(cuts)
    }

    /// Tells `take` what was aborted in this segment by a marker at `from` or behind. It answers up to where those matter
    /// that are still to come, which is `upper` before the first.
    fn collect(
        &self,
        segment: &Segment,
        (from, mut upper): (i64, i64),
        warm: bool,
        take: &mut dyn FnMut(&AbortedTransaction) -> i64,
    ) -> Result<Search, Fault> {
        let (on_disk, tail, oldest_open) = {
            let known = self.known.read();
            let Some(known) = &*known else { return Err(Fault::Cold) };
            let after = known.tail.partition_point(|e| e.last_offset < from);
            (known.on_disk.count, known.tail[after..].to_vec(), known.oldest_open_at_end)
        };
        let mut is_last = |entry: &AbortedTransaction| {
            upper = take(entry);
            // Nothing that is open after it began below the bound.
            entry.last_stable_offset >= upper
        };
        if on_disk > 0 {
            let file = segment.open(&self.file, warm)?;
            let mut at = self.first_from(&*file, on_disk, from, warm)?;
            while at < on_disk {
                let count = BLOCK_ENTRIES.min(on_disk - at);
                for entry in self.read(&*file, at, count, warm)? {
                    if is_last(&entry) {
                        return Ok(Search::Done);
                    }
                }
                at += count;
            }
        }
        if tail.iter().any(is_last) {
            return Ok(Search::Done);
        }
        // Whatever begins behind the segment begins behind the bound, and nothing below it is open.
        let ends_behind = upper <= segment.state().read().next_offset;
        match oldest_open {
            Some(oldest) if ends_behind && oldest >= upper => Ok(Search::Done),
            Some(_) | None => Ok(Search::GoOn),
        }
    }

    /// The number of entries in the file whose marker lies before `from`.
    fn first_from(&self, file: &dyn DiskFile, count: u32, from: i64, warm: bool) -> Result<u32, Fault> {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.read(file, middle, 1, warm)?.first().is_some_and(|e| e.last_offset < from) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }

    fn read(
        &self,
        file: &dyn DiskFile,
        at: u32,
        count: u32,
        warm: bool,
    ) -> Result<Vec<AbortedTransaction>, Fault> {
        let mut bytes = vec![0; count as usize * AbortedTransaction::BYTES];
        scan::read_at(file, self.file.path(), &mut bytes, position(at), warm)?;
        let (entries, _) = bytes.as_chunks();
        let entry = |bytes| {
            AbortedTransaction::decode(bytes).ok_or_else(|| Fault::Damaged {
                position: position(at),
                reason: "the transaction index has an impossible entry".into(),
            })
        };
        entries.iter().map(entry).collect()
    }

    /// Whether the file begins with the entries that the digest is of. Waits for the device.
    pub(crate) fn begins_with(&self, segment: &Segment, digest: AbortedDigest) -> Result<bool, Fault> {
        let mut found = AbortedDigest::default();
        if digest.count == 0 {
            return Ok(true);
        }
        let file = match segment.open(&self.file, false) {
            Err(Fault::Io(e)) if e.source.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        while found.count < digest.count {
            let count = BLOCK_ENTRIES.min(digest.count - found.count);
            match self.read(&*file, found.count, count, false) {
                Ok(entries) => found = digest_from(found, &entries),
                Err(Fault::Damaged { .. }) => return Ok(false),
                Err(other) => return Err(other),
            }
        }
        Ok(found == digest)
    }

    /// Verifies the file of a finished segment, or replaces it. Waits for the device.
    fn settle(&self, segments: &[Arc<Segment>], at: usize) -> Result<(), Fault> {
        let _settling = self.settling.lock();
        loop {
            let cuts = *self.gate.lock();
            if self.known.read().is_some() {
                return Ok(());
            }
            let segment = &segments[at];
            let (base_offset, end) = (segment.base_offset(), segment.state().read().next_offset);
            let saved =
                snapshots::load(&**segment.disk(), segment.dir(), end, usize::MAX).map_err(Fault::Io)?;
            if let Some((producers, aborted)) = saved
                && let Some(digest) = aborted.digest_of(base_offset)
                && self.begins_with(segment, digest)?
            {
                let gate = self.gate.lock();
                if *gate == cuts {
                    self.set(digest, Vec::new());
                    self.finish(producers.first_ongoing());
                    return Ok(());
                }
            } else if self.build(segments, at, cuts)?.is_some() {
                return Ok(());
            }
        }
    }

    /// Compares the file of a finished segment with its batches, and replaces it if it is not what they say. The file's sum
    /// as it is now, and whether it was replaced; `None` if the segment is not finished any more, or none of the log's. Waits
    /// for the device.
    pub(crate) fn mend(
        &self,
        shared: &Shared,
        segment: &Arc<Segment>,
    ) -> Result<Option<(Option<FileSum>, bool)>, Fault> {
        let _settling = self.settling.lock();
        // Whoever cuts the segment from here on is noticed.
        let cuts = *self.gate.lock();
        let segments = shared.segments();
        let Some(at) = segments.iter().position(|other| Arc::ptr_eq(other, segment)) else { return Ok(None) };
        match shared.base_after(segment) {
            Some(_) => self.build(&segments, at, cuts),
            None => Ok(None),
        }
    }

    /// The index of a finished segment from its batches, and its file, if that is not the same. `None` if the file was cut
    /// or removed meanwhile; nothing that takes long happens while the gate is held.
    fn build(
        &self,
        segments: &[Arc<Segment>],
        at: usize,
        cuts: u64,
    ) -> Result<Option<(Option<FileSum>, bool)>, Fault> {
        let segment = &segments[at];
        let (disk, dir) = (segment.disk(), segment.dir());
        // Producers with an open transaction are never forgotten, so any bound would do.
        let (producers, entries) = replay::aborted_in(segments, at, usize::MAX)?;
        let (path, bytes) = (self.file.path(), encode(&entries));
        // One that cannot be read is as good as none.
        let found = read_file(&**disk, path, INDEX_BYTES_MAX).ok().flatten();
        let sum = |bytes: &[u8]| (!bytes.is_empty()).then(|| FileSum::of(bytes));
        let gate = self.gate.lock();
        if *gate != cuts {
            return Ok(None);
        }
        let is_whole = found.unwrap_or_default() == bytes;
        let digest = digest_from(AbortedDigest::default(), &entries);
        let mut replaced = false;
        if is_whole {
            self.set(digest, Vec::new());
        } else {
            tracing::warn!(path = %path.display(), entries = entries.len(), "transaction index is built anew");
            segment.forget(&self.file);
            match write_file(&**disk, dir, &file_name(segment.base_offset(), SUFFIX), &bytes) {
                Ok(()) => {
                    self.set(digest, Vec::new());
                    replaced = true;
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "transaction index stays in memory");
                    self.set(AbortedDigest::default(), entries);
                }
            }
        }
        self.finish(producers.first_ongoing());
        Ok(Some((sum(&bytes), replaced)))
    }

    /// The file proved damaged or missing after all: it is verified again, if nobody writes it any more. One that is being
    /// written is repaired by the next start.
    fn doubt(&self) {
        let mut known = self.known.write();
        if known.as_ref().is_some_and(|known| known.oldest_open_at_end.is_some()) {
            *known = None;
        }
    }
}

/// The bytes of entries.
pub(crate) fn encode(entries: &[AbortedTransaction]) -> Vec<u8> {
    entries.iter().flat_map(AbortedTransaction::encode).collect()
}

/// The digest with some entries more.
pub(crate) fn digest_from(digest: AbortedDigest, entries: &[AbortedTransaction]) -> AbortedDigest {
    entries.iter().fold(digest, |digest, entry| digest.and(entry))
}

/// Where an entry lies in the file.
pub(crate) fn position(entry: u32) -> u64 {
    u64::from(entry) * AbortedTransaction::BYTES as u64
}

impl LogReader {
    /// The aborted transactions with a record within `from..upper`, by their first offset; also those whose marker lies
    /// behind. `upper` is at most the last stable offset. Waits for the device. Records that were read before may be of other
    /// segments: see [`read_committed`](Self::read_committed).
    pub fn aborted_transactions(&self, from: i64, upper: i64) -> Result<Vec<AbortedTransaction>, ReadError> {
        loop {
            let segments = self.shared.segments();
            match aborted_within(&segments, from, upper, false) {
                Ok(found) => return Ok(found),
                // A segment may have been deleted or cut under our hands.
                Err(_) if !Arc::ptr_eq(&segments, &self.shared.segments()) => {}
                Err((fault, segment)) => {
                    return Err(fault.into_read_error(segment.aborted().file().path()));
                }
            }
        }
    }
}

impl LogReader {
    /// What a pass of compaction over `from..until` must know of aborted transactions, as far as `bytes_max` bytes reach. Waits
    /// for the device.
    pub(crate) fn aborted_for_pass(
        &self,
        (from, until): (i64, i64),
        bytes_max: usize,
    ) -> Result<AbortedRanges, ReadError> {
        // The last segment whose index proved damaged. What it told before may be wrong, so that all begins anew.
        let mut doubted = None;
        loop {
            let segments = self.shared.segments();
            let mut collector = AbortedCollector::new(from, until, bytes_max);
            match collect_for_pass(&segments, from, &mut collector) {
                Ok(()) => return Ok(collector.finish()),
                Err(_) if !Arc::ptr_eq(&segments, &self.shared.segments()) => doubted = None,
                Err((_, at)) if doubted < Some(at) => {
                    segments[at].aborted().doubt();
                    doubted = Some(at);
                }
                Err((fault, at)) => return Err(fault.into_read_error(segments[at].aborted().file().path())),
            }
        }
    }
}

fn collect_for_pass(
    segments: &[Arc<Segment>],
    from: i64,
    collector: &mut AbortedCollector,
) -> Result<(), (Fault, usize)> {
    for at in floor(segments, from)..segments.len() {
        let (segment, index) = (&segments[at], segments[at].aborted());
        let known_to = collector.known_to();
        let mut take = |entry: &AbortedTransaction| collector.take(entry);
        let mut collected = index.collect(segment, (from, known_to), false, &mut take);
        // Then it has told nothing.
        if matches!(collected, Err(Fault::Cold)) {
            let settled = index.settle(segments, at);
            collected = settled.and_then(|()| index.collect(segment, (from, known_to), false, &mut take));
        }
        match collected.map_err(|fault| (fault, at))? {
            Search::Done => break,
            Search::GoOn => {}
        }
    }
    Ok(())
}

pub(crate) fn aborted_within(
    segments: &[Arc<Segment>],
    from: i64,
    upper: i64,
    warm: bool,
) -> Result<Vec<AbortedTransaction>, (Fault, Arc<Segment>)> {
    let mut found = Vec::new();
    if from >= upper {
        return Ok(found);
    }
    let keep = |found: &mut Vec<AbortedTransaction>, entry: &AbortedTransaction| {
        if entry.last_offset >= from && entry.first_offset < upper {
            found.push(*entry);
        }
        upper
    };
    for at in floor(segments, from)..segments.len() {
        let segment = &segments[at];
        let before = found.len();
        let mut take = |entry: &AbortedTransaction| keep(&mut found, entry);
        let mut collected = segment.aborted().collect(segment, (from, upper), warm, &mut take);
        if !warm && collected.is_err() {
            found.truncate(before);
            if matches!(collected, Err(Fault::Damaged { .. } | Fault::Io(_))) {
                segment.aborted().doubt();
            }
            let settled = segment.aborted().settle(segments, at);
            let mut take = |entry: &AbortedTransaction| keep(&mut found, entry);
            collected =
                settled.and_then(|()| segment.aborted().collect(segment, (from, upper), warm, &mut take));
        }
        match collected.map_err(|fault| (fault, segment.clone()))? {
            Search::Done => break,
            Search::GoOn => {}
        }
    }
    found.sort_unstable_by_key(|e| (e.first_offset, e.last_offset));
    Ok(found)
}
