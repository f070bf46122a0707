//! Reading a log, from any thread, while its owner appends.
//!
//! A [`LogReader`] is a cheap handle. It answers with *slices* of segment files, which `sendfile` takes as they are;
//! a slice stays valid when its segment is deleted meanwhile, since it holds the open file. Readers never see a batch
//! that is not whole, and never one whose last offset is at or above the bound that they name (the high watermark or
//! the last stable offset).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use log_engine_core::AbortedTransaction;
use parking_lot::{Mutex, RwLock};
use records::{BatchError, BatchView, NO_TIMESTAMP, TimestampType};

use crate::LogName;
use crate::error::ReadError;
use crate::full_walk::BatchCheck;
use crate::index::TimeEntry;
use crate::scan::{self, Fault, Found};
use crate::segment::Segment;
use crate::txn_index::aborted_within;

/// Segments that one read may span; more only if they are tiny.
const PARTS_MAX: usize = 16;
/// Bytes that are checked at a time.
const CHECK_BYTES: usize = 128 << 10;

/// What owner and readers share.
pub(crate) struct Shared {
    pub(crate) name: LogName,
    /// Oldest first; replaced as a whole when one comes or goes.
    pub(crate) segments: RwLock<Arc<Vec<Arc<Segment>>>>,
    pub(crate) start: AtomicI64,
    pub(crate) end: AtomicI64,
    pub(crate) flushed: AtomicI64,
    pub(crate) unpacked_bytes_max: AtomicUsize,
    /// See [`LogConfig`](crate::LogConfig).
    pub(crate) producers_max: AtomicUsize,
    /// Producer snapshots that the scrub wrote and of which the owner does not know yet. Changed only by who holds the gate.
    pub(crate) mended_snapshots: Mutex<BTreeSet<i64>>,
    /// Counts what happened to segments; see [`seal`](crate::seal).
    pub(crate) seal_gate: Mutex<u64>,
    /// How often records were taken away at the end, or the log was deleted: a compaction that began before is void.
    pub(crate) cuts: AtomicU64,
    /// A checked read has met damage. What is in memory may be what it read, so nothing is read without a check any more,
    /// until the log is opened anew.
    pub(crate) met_damage: AtomicBool,
}

impl Shared {
    pub(crate) fn segments(&self) -> Arc<Vec<Arc<Segment>>> {
        self.segments.read().clone()
    }
}

/// Reads one log.
#[derive(Clone)]
pub struct LogReader {
    pub(crate) shared: Arc<Shared>,
}

/// What is to be read: whole batches from the one that holds `offset` on, none of which reaches `upper_bound`.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) offset: i64,
    pub(crate) bytes_max: u64,
    pub(crate) upper_bound: i64,
    /// At least one batch, whatever its size.
    pub(crate) min_one: bool,
    /// Nothing that waits for the device.
    pub(crate) warm: bool,
}

/// Whole batches, in order.
#[derive(Debug, Clone, Default)]
pub struct LogSlice {
    pub parts: Vec<SlicePart>,
    /// Where to read on; the offset that was asked for if nothing was found.
    pub next_offset: i64,
}

/// A run of bytes.
#[derive(Debug, Clone)]
pub enum SlicePart {
    /// A part of a file of the operating system.
    File { file: Arc<std::fs::File>, offset: u64, len: usize },
    /// The bytes themselves (a simulated disk has no files to hand out).
    Bytes(Bytes),
}

impl SlicePart {
    pub fn len(&self) -> usize {
        match self {
            SlicePart::File { len, .. } => *len,
            SlicePart::Bytes(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl LogSlice {
    /// Bytes in all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(SlicePart::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether these are batches with the right checksums; if not, where in its file the damage is, as far as that is known.
    fn check(&self) -> Result<(), Fault> {
        use std::os::unix::fs::FileExt;
        let begin = match self.parts.first() {
            Some(SlicePart::File { offset, .. }) => *offset,
            Some(SlicePart::Bytes(_)) | None => 0,
        };
        let in_file = |fault| match fault {
            Fault::Damaged { position, reason } => Fault::Damaged { position: begin + position, reason },
            fault @ (Fault::Io(_) | Fault::Cold) => fault,
        };
        let mut check = BatchCheck::new(0);
        let mut block = Vec::new();
        for part in &self.parts {
            match part {
                SlicePart::Bytes(bytes) => check.feed(bytes).map_err(in_file)?,
                SlicePart::File { file, offset, len } => {
                    let mut at = 0;
                    while at < *len {
                        block.resize(CHECK_BYTES.min(*len - at), 0);
                        let position = *offset + at as u64;
                        file.read_exact_at(&mut block, position).map_err(|error| Fault::Damaged {
                            position,
                            reason: format!("cannot be read: {error}"),
                        })?;
                        check.feed(&block).map_err(in_file)?;
                        at += block.len();
                    }
                }
            }
        }
        check.end(self.len() as u64).map_err(in_file)
    }

    /// Reads all parts into memory, waiting for the device.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let mut out = Vec::with_capacity(self.len());
        for part in &self.parts {
            match part {
                SlicePart::Bytes(bytes) => out.extend_from_slice(bytes),
                SlicePart::File { file, offset, len } => {
                    let at = out.len();
                    out.resize(at + len, 0);
                    file.read_exact_at(&mut out[at..], *offset)?;
                }
            }
        }
        Ok(out)
    }
}

/// A record found by its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    pub offset: i64,
    /// Milliseconds.
    pub timestamp: i64,
    /// Leader epoch of its batch.
    pub leader_epoch: i32,
}

impl LogReader {
    pub(crate) fn new(shared: Arc<Shared>) -> LogReader {
        LogReader { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn name(&self) -> LogName {
        self.shared.name
    }

    /// First offset that may be read.
    pub fn start(&self) -> i64 {
        self.shared.start.load(Ordering::Acquire)
    }

    /// Offset that the next record will get.
    pub fn end(&self) -> i64 {
        self.shared.end.load(Ordering::Acquire)
    }

    /// Every record below is durable.
    pub fn flushed(&self) -> i64 {
        self.shared.flushed.load(Ordering::Acquire)
    }

    /// Bytes of records in all segments.
    pub fn size_bytes(&self) -> u64 {
        self.shared.segments().iter().map(|s| s.state().read().size).sum()
    }

    /// Reads whole batches from the one that holds `offset` on: at most `bytes_max` bytes, or, with `min_one`, at
    /// least one batch whatever its size (KIP-74). Nothing of it reaches `upper_bound`. Waits for the device, also
    /// until the records themselves are in memory: call it on a thread that may.
    pub fn read(
        &self,
        offset: i64,
        bytes_max: usize,
        upper_bound: i64,
        min_one: bool,
    ) -> Result<LogSlice, ReadError> {
        let wanted = Wanted { offset, bytes_max: bytes_max as u64, upper_bound, min_one, warm: false };
        let read = self.read_from(&wanted, |_, slice| Ok(slice));
        read.unwrap_or_else(|(fault, segment)| Err(fault.into_read_error(segment.log().path())))
    }

    /// The same, and every batch is what was written: for bytes that come from the device just now. Costs a copy and a
    /// checksum of all of it.
    pub fn read_checked(
        &self,
        offset: i64,
        bytes_max: usize,
        upper_bound: i64,
        min_one: bool,
    ) -> Result<LogSlice, ReadError> {
        let wanted = Wanted { offset, bytes_max: bytes_max as u64, upper_bound, min_one, warm: false };
        self.checked(&wanted, |_, slice| Ok(slice))
    }

    /// What [`read`](Self::read) answers without ever waiting: `None` if something that it needs, or a sample of the records,
    /// is not in memory, or if the log has met damage.
    pub fn try_read_warm(
        &self,
        offset: i64,
        bytes_max: usize,
        upper_bound: i64,
        min_one: bool,
    ) -> Option<Result<LogSlice, ReadError>> {
        (!self.shared.met_damage.load(Ordering::Acquire)).then_some(())?;
        let wanted = Wanted { offset, bytes_max: bytes_max as u64, upper_bound, min_one, warm: true };
        unless_cold(self.read_from(&wanted, |_, slice| Ok(slice)))
    }

    /// What [`read_checked`](Self::read_checked) answers, and the aborted transactions with a record in it, for consumers of what
    /// is committed. Both are of the same segments: with records from before a compaction and transactions from after it, what
    /// was aborted would pass for committed. `upper_bound` is at most the last stable offset. Waits for the device.
    pub fn read_committed(
        &self,
        offset: i64,
        bytes_max: usize,
        upper_bound: i64,
        min_one: bool,
    ) -> Result<(LogSlice, Vec<AbortedTransaction>), ReadError> {
        let wanted = Wanted { offset, bytes_max: bytes_max as u64, upper_bound, min_one, warm: false };
        self.checked(&wanted, |segments, slice| with_aborted(segments, &wanted, slice))
    }

    /// The same without ever waiting: `None` if something that it needs is not in memory, or not verified.
    pub fn try_read_committed_warm(
        &self,
        offset: i64,
        bytes_max: usize,
        upper_bound: i64,
        min_one: bool,
    ) -> Option<Result<(LogSlice, Vec<AbortedTransaction>), ReadError>> {
        (!self.shared.met_damage.load(Ordering::Acquire)).then_some(())?;
        let wanted = Wanted { offset, bytes_max: bytes_max as u64, upper_bound, min_one, warm: true };
        unless_cold(self.read_from(&wanted, |segments, slice| with_aborted(segments, &wanted, slice)))
    }

    /// Reads, checks the batches, and makes an answer of them.
    fn checked<T>(
        &self,
        wanted: &Wanted,
        mut answer: impl FnMut(&[Arc<Segment>], LogSlice) -> Result<T, (Fault, Arc<Segment>)>,
    ) -> Result<T, ReadError> {
        loop {
            let cuts = self.shared.cuts();
            let read = self.read_from(wanted, |segments, slice| {
                slice.check().map_err(|fault| (fault, segments[floor(segments, wanted.offset)].clone()))?;
                answer(segments, slice)
            });
            match read {
                Ok(answer) => return answer,
                // What was read has been cut away under our hands.
                Err(_) if self.shared.cuts() != cuts => {}
                Err((fault, segment)) => {
                    if matches!(fault, Fault::Damaged { .. }) {
                        self.distrust();
                    }
                    return Err(fault.into_read_error(segment.log().path()));
                }
            }
        }
    }

    /// Reads, and makes an answer of the slice and of the segments that it is from.
    pub(crate) fn read_from<T>(
        &self,
        wanted: &Wanted,
        mut answer: impl FnMut(&[Arc<Segment>], LogSlice) -> Result<T, (Fault, Arc<Segment>)>,
    ) -> Result<Result<T, ReadError>, (Fault, Arc<Segment>)> {
        loop {
            let (start, end) = (self.start(), self.end());
            let offset = wanted.offset;
            if offset < start || offset > end {
                return Ok(Err(ReadError::OffsetOutOfRange { offset, start, end }));
            }
            let segments = self.shared.segments();
            let read = read_segments(&segments, wanted, wanted.upper_bound.min(end));
            match read.and_then(|slice| answer(&segments, slice)) {
                Ok(answer) => return Ok(Ok(answer)),
                // A segment may have been deleted or cut under our hands: look again at what there is now.
                Err(_) if self.changed(&segments, start, end) => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    fn changed(&self, segments: &Arc<Vec<Arc<Segment>>>, start: i64, end: i64) -> bool {
        !Arc::ptr_eq(segments, &self.shared.segments()) || self.start() != start || self.end() < end
    }

    /// The first record below `upper_bound` whose timestamp is at or after `timestamp`. Exact: unpacks the one batch
    /// that holds it. May wait for the device.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        upper_bound: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        self.search(|segment| {
            if segment.max_timestamp()?.is_none_or(|max| max.timestamp < timestamp) {
                return Ok(None);
            }
            let mut scan = segment.scan_for_timestamp(timestamp)?;
            while let Some(found) = scan.next()? {
                if found.header.base_offset >= upper_bound {
                    break;
                }
                if found.header.max_timestamp >= timestamp
                    && let Some(record) = self.first_record(segment, &found, timestamp, upper_bound)?
                {
                    return Ok(Some(record));
                }
            }
            Ok(None)
        })
    }

    /// The first record below `upper_bound` that has the largest timestamp there (KIP-734). May wait for the device.
    pub fn max_timestamp(&self, upper_bound: i64) -> Result<Option<TimestampOffset>, ReadError> {
        self.unless_replaced(|segments| {
            let mut best: Option<(TimeEntry, &Arc<Segment>)> = None;
            for segment in segments {
                let max = match segment.max_timestamp().map_err(|fault| (fault, segment.clone()))? {
                    // The largest may lie outside of the limits: walk what is within.
                    Some(max) if max.offset >= upper_bound || segment.base_offset() < self.start() => {
                        self.max_within(segment, upper_bound).map_err(|fault| (fault, segment.clone()))?
                    }
                    max => max,
                };
                if let Some(max) = max
                    && best.as_ref().is_none_or(|(b, _)| max.timestamp > b.timestamp)
                {
                    best = Some((max, segment));
                }
            }
            let Some((max, segment)) = best.filter(|(max, _)| max.timestamp >= 0) else { return Ok(None) };
            let find = || -> Result<Option<TimestampOffset>, Fault> {
                let Some((found, _)) = segment.locate(max.offset, false)? else { return Ok(None) };
                self.first_record(segment, &found, max.timestamp, upper_bound)
            };
            find().map_err(|fault| (fault, segment.clone()))
        })
    }

    /// The largest timestamp among the records of a segment from the start of the log to the bound.
    fn max_within(&self, segment: &Segment, upper_bound: i64) -> Result<Option<TimeEntry>, Fault> {
        let start = self.start();
        let mut max: Option<TimeEntry> = None;
        let Some((first, mut scan)) = segment.locate(start, false)? else { return Ok(None) };
        let mut next = Some(first);
        while let Some(found) = next.filter(|f| f.header.last_offset() < upper_bound) {
            let mut timestamp = found.header.newest_timestamp();
            if found.header.base_offset < start {
                timestamp = NO_TIMESTAMP;
                self.each_record(segment, &found, |record| {
                    timestamp = timestamp.max(record.timestamp);
                    false
                })?;
            }
            if max.is_none_or(|m| timestamp > m.timestamp) {
                max = Some(TimeEntry { timestamp, offset: found.header.last_offset() });
            }
            next = scan.next()?;
        }
        Ok(max)
    }

    /// Asks the segments in order until one answers.
    fn search<T>(
        &self,
        mut ask: impl FnMut(&Arc<Segment>) -> Result<Option<T>, Fault>,
    ) -> Result<Option<T>, ReadError> {
        self.unless_replaced(|segments| {
            for segment in segments {
                if let Some(answer) = ask(segment).map_err(|fault| (fault, segment.clone()))? {
                    return Ok(Some(answer));
                }
            }
            Ok(None)
        })
    }

    /// Asks the segments from the start of the log on; again if one failed that was deleted or replaced meanwhile.
    fn unless_replaced<T>(
        &self,
        mut ask: impl FnMut(&[Arc<Segment>]) -> Result<T, (Fault, Arc<Segment>)>,
    ) -> Result<T, ReadError> {
        loop {
            let segments = self.shared.segments();
            let first = floor(&segments, self.start());
            match ask(&segments[first.min(segments.len())..]) {
                Ok(answer) => return Ok(answer),
                Err((_, segment)) if !self.shared.segments().iter().any(|s| Arc::ptr_eq(s, &segment)) => {}
                Err((fault, segment)) => return Err(fault.into_read_error(segment.log().path())),
            }
        }
    }

    /// The first record of a batch that is new enough, and neither before the start nor at the bound.
    fn first_record(
        &self,
        segment: &Segment,
        found: &Found,
        timestamp: i64,
        upper_bound: i64,
    ) -> Result<Option<TimestampOffset>, Fault> {
        let leader_epoch = found.header.partition_leader_epoch;
        let mut answer = None;
        self.each_record(segment, found, |record| {
            if record.timestamp >= timestamp && record.offset < upper_bound {
                answer = Some(TimestampOffset { leader_epoch, ..record });
            }
            answer.is_some()
        })?;
        Ok(answer)
    }

    /// Shows the records of a batch, from the start of the log on, until `stop` is true. A batch that the broker
    /// stamped is not unpacked: all its records have one time.
    fn each_record(
        &self,
        segment: &Segment,
        found: &Found,
        mut stop: impl FnMut(TimestampOffset) -> bool,
    ) -> Result<(), Fault> {
        let header = &found.header;
        let start = self.start();
        let shown = |offset, timestamp| TimestampOffset {
            offset,
            timestamp,
            leader_epoch: header.partition_leader_epoch,
        };
        if header.timestamp_type() == TimestampType::LogAppendTime {
            let offset = header.base_offset.max(start);
            if offset <= header.last_offset() {
                stop(shown(offset, header.max_timestamp));
            }
            return Ok(());
        }
        let bytes = segment.read_batch(found)?;
        let damaged = |e: BatchError| Fault::Damaged { position: found.position, reason: e.to_string() };
        let batch = BatchView::parse(&bytes).map_err(damaged)?;
        batch.check_crc().map_err(damaged)?;
        let records =
            batch.records(self.shared.unpacked_bytes_max.load(Ordering::Relaxed)).map_err(damaged)?;
        for record in records.iter() {
            let record = record.map_err(damaged)?;
            if record.offset >= start && stop(shown(record.offset, record.timestamp)) {
                break;
            }
        }
        Ok(())
    }
}

/// Index of the segment that holds `offset`, or of the first.
pub(crate) fn floor(segments: &[Arc<Segment>], offset: i64) -> usize {
    segments.partition_point(|s| s.base_offset() <= offset).saturating_sub(1)
}

/// Records with the aborted transactions among them.
pub(crate) fn with_aborted(
    segments: &[Arc<Segment>],
    wanted: &Wanted,
    slice: LogSlice,
) -> Result<(LogSlice, Vec<AbortedTransaction>), (Fault, Arc<Segment>)> {
    let aborted = aborted_within(segments, wanted.offset, slice.next_offset, wanted.warm)?;
    Ok((slice, aborted))
}

fn unless_cold<T>(read: Result<Result<T, ReadError>, (Fault, Arc<Segment>)>) -> Option<Result<T, ReadError>> {
    match read {
        Ok(answer) => Some(answer),
        Err((Fault::Cold, _)) => None,
        Err((fault, segment)) => Some(Err(fault.into_read_error(segment.log().path()))),
    }
}

fn read_segments(
    segments: &[Arc<Segment>],
    wanted: &Wanted,
    upper_bound: i64,
) -> Result<LogSlice, (Fault, Arc<Segment>)> {
    let Wanted { offset, bytes_max, min_one, warm, .. } = *wanted;
    let mut slice = LogSlice { parts: Vec::new(), next_offset: offset };
    let mut left = bytes_max;
    for segment in &segments[floor(segments, offset)..] {
        if slice.next_offset >= upper_bound || slice.parts.len() == PARTS_MAX {
            break;
        }
        let must_one = min_one && slice.parts.is_empty();
        let part = read_segment(segment, slice.next_offset, left, upper_bound, must_one, warm)
            .map_err(|fault| (fault, segment.clone()))?;
        match part {
            SegmentPart::Nothing => break,
            SegmentPart::PassedBy => {}
            SegmentPart::Part { part, next_offset, whole } => {
                left = left.saturating_sub(part.len() as u64);
                slice.parts.push(part);
                slice.next_offset = next_offset;
                if !whole {
                    break;
                }
            }
        }
    }
    Ok(slice)
}

enum SegmentPart {
    /// A limit is reached.
    Nothing,
    /// The segment ends before the offset; the next one may have it.
    PassedBy,
    Part {
        part: SlicePart,
        next_offset: i64,
        whole: bool,
    },
}

fn read_segment(
    segment: &Segment,
    offset: i64,
    bytes_max: u64,
    upper_bound: i64,
    must_one: bool,
    warm: bool,
) -> Result<SegmentPart, Fault> {
    let Some((first, scan)) = segment.locate(offset, warm)? else { return Ok(SegmentPart::PassedBy) };
    let fits = must_one || first.header.size() as u64 <= bytes_max;
    if !fits || first.header.last_offset() >= upper_bound {
        return Ok(SegmentPart::Nothing);
    }
    let (end, next_offset) = segment.extent(&first, scan, bytes_max, upper_bound, warm)?;
    let len = (end - first.position) as usize;
    let whole = end == segment.state().read().size;
    let file = segment.file(warm)?;
    let part = match file.os_file() {
        Some(os_file) => {
            match warm {
                true if !file.is_warm(first.position, len as u64) => return Err(Fault::Cold),
                true => {}
                false => file.warm_up(first.position, len as u64),
            }
            SlicePart::File { file: os_file, offset: first.position, len }
        }
        None => {
            let mut bytes = vec![0; len];
            scan::read_at(&*file, segment.log().path(), &mut bytes, first.position, warm)?;
            SlicePart::Bytes(bytes.into())
        }
    };
    Ok(SegmentPart::Part { part, next_offset, whole })
}
