//! What the tests of the log share: chance from a seed, batches, and lookups compared with a linear search.

#![allow(dead_code, reason = "each test program uses its part")]

use std::ops::Range;

use std::collections::BTreeSet;

use log_engine::{Log, Pace, ProducerEvent, ReadError};
use log_engine_core::{AbortedTransaction, ProducerStates};
use records::{BatchBuilder, BatchHeader, BatchView, Compression, EndMarker};

/// splitmix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 ≤ answer < `n`; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Never makes a compaction wait; the time stands still.
pub(crate) struct AtOnce(pub(crate) i64);

impl Pace for AtOnce {
    fn spend(&mut self, _bytes: u64) -> bool {
        true
    }

    fn has_room(&mut self, _bytes: u64) -> bool {
        true
    }

    fn now_ms(&mut self) -> Option<i64> {
        Some(self.0)
    }
}

/// The seeds of a run: `count`, or as many as `WEIR_SEEDS` says, or the one that `WEIR_SEED` names.
pub(crate) fn seeds(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    match number("WEIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_SEEDS").unwrap_or(count),
    }
}

/// Prints how to repeat a failure.
pub(crate) struct PrintOnPanic(pub(crate) String);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with: {}", self.0);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TestBatch {
    pub(crate) header: BatchHeader,
    pub(crate) bytes: Vec<u8>,
    pub(crate) timestamps: Vec<i64>,
}

impl TestBatch {
    pub(crate) fn new(
        base_offset: i64,
        epoch: i32,
        timestamps: &[i64],
        value_bytes: usize,
        compression: Compression,
        producer: Option<(i64, i16, i32)>,
    ) -> TestBatch {
        let builder = BatchBuilder::new().compression(compression).base_offset(base_offset);
        TestBatch::of(builder.leader_epoch(epoch), base_offset, timestamps, value_bytes, producer)
    }

    fn of(
        mut builder: BatchBuilder,
        base_offset: i64,
        timestamps: &[i64],
        value_bytes: usize,
        producer: Option<(i64, i16, i32)>,
    ) -> TestBatch {
        if let Some((id, producer_epoch, sequence)) = producer {
            builder = builder.producer(id, producer_epoch, sequence);
        }
        for (i, &timestamp) in timestamps.iter().enumerate() {
            let value: Vec<u8> = (0..value_bytes).map(|b| (b * 7 + i) as u8).collect();
            builder.push(timestamp, Some(&base_offset.to_be_bytes()), Some(&value), &[]).unwrap();
        }
        let bytes = builder.build();
        let header = BatchHeader::parse(&bytes).unwrap();
        TestBatch { header, bytes, timestamps: timestamps.to_vec() }
    }

    /// The marker of a transaction.
    pub(crate) fn marker(
        base_offset: i64,
        epoch: i32,
        timestamp: i64,
        (producer_id, producer_epoch): (i64, i16),
        marker: EndMarker,
    ) -> TestBatch {
        let mut bytes = marker.encode(producer_id, producer_epoch, timestamp).unwrap();
        records::set_base_offset(&mut bytes, base_offset);
        records::set_leader_epoch(&mut bytes, epoch);
        let header = BatchHeader::parse(&bytes).unwrap();
        TestBatch { header, bytes, timestamps: vec![timestamp] }
    }

    /// A batch or marker that continues the log, by one of a few producers that write in transactions.
    fn random_of_transaction(
        random: &mut Random,
        appended: &[TestBatch],
        made: &[TestBatch],
        end: i64,
        epoch: i32,
        now: i64,
    ) -> TestBatch {
        let id = 10 + random.below(4) as i64;
        let of_producer = |b: &&TestBatch| b.header.producer_id == id;
        let last = made.iter().rev().chain(appended.iter().rev()).find(of_producer);
        let open = last.is_some_and(|b| !b.header.is_control());
        let producer_epoch = last.map_or(0, |b| b.header.producer_epoch);
        // A marker may come twice, and to producers that have written nothing.
        if random.chance(if open { 45 } else { 3 }) {
            let marker =
                EndMarker { is_commit: random.chance(50), coordinator_epoch: random.below(3) as i32 };
            let producer_epoch = producer_epoch + i16::from(random.chance(30));
            return TestBatch::marker(end, epoch, now, (id, producer_epoch), marker);
        }
        let data = made.iter().rev().chain(appended.iter().rev()).filter(of_producer);
        let data = data.take_while(|b| b.header.producer_epoch == producer_epoch);
        let sequence = data.filter(|b| !b.header.is_control()).map(|b| b.header.last_sequence() + 1).next();
        let builder = BatchBuilder::new().base_offset(end).leader_epoch(epoch).transactional();
        let timestamps = vec![now; 1 + random.below(3) as usize];
        let producer = (id, producer_epoch, sequence.unwrap_or(0));
        TestBatch::of(builder, end, &timestamps, random.below(200) as usize, Some(producer))
    }

    pub(crate) fn view(&self) -> BatchView<'_> {
        BatchView::parse(&self.bytes).unwrap()
    }

    /// A batch that continues the log, by one of a few producers or by none, with times that also run backwards.
    pub(crate) fn random(
        random: &mut Random,
        appended: &[TestBatch],
        made: &[TestBatch],
        end: i64,
        epoch: i32,
        now: i64,
    ) -> TestBatch {
        if random.chance(40) {
            return TestBatch::random_of_transaction(random, appended, made, end, epoch, now);
        }
        let count = 1 + random.below(4);
        let timestamps: Vec<i64> = (0..count)
            .map(|_| match random.below(20) {
                0 => -1,
                1 => now + random.below(2000) as i64,
                _ => now - random.below(300) as i64,
            })
            .collect();
        let producer = random.chance(60).then(|| {
            let id = random.below(4) as i64;
            let last = made.iter().rev().chain(appended.iter().rev()).find(|b| b.header.producer_id == id);
            let sequence = last.map_or(0, |b| b.header.last_sequence() + 1);
            match last.map_or(0, |b| b.header.producer_epoch) {
                producer_epoch if random.chance(5) => (id, producer_epoch + 1, 0),
                producer_epoch => (id, producer_epoch, sequence),
            }
        });
        let compression = match random.below(10) {
            0 => Compression::Gzip,
            1 => Compression::Lz4,
            _ => Compression::None,
        };
        let value_bytes = match random.below(10) {
            0 => 900,
            n => n as usize * 20,
        };
        TestBatch::new(end, epoch, &timestamps, value_bytes, compression, producer)
    }
}

/// The bytes of the batches that hold offsets from `start` on.
pub(crate) fn from(batches: &[TestBatch], start: i64) -> Vec<u8> {
    let kept = batches.iter().filter(|b| b.header.last_offset() >= start);
    kept.flat_map(|b| b.bytes.clone()).collect()
}

/// The first and last offsets of the batches in some bytes.
pub(crate) fn offsets(bytes: &[u8]) -> Vec<(i64, i64)> {
    let headers = records::batches(bytes).map(|b| *b.unwrap().header());
    headers.map(|h| (h.base_offset, h.last_offset())).collect()
}

/// Reads a log from its start to `upper_bound` in small steps.
pub(crate) fn batches_of(log: &Log, upper_bound: i64) -> Vec<u8> {
    let reader = log.reader();
    let mut offset = reader.start();
    let mut out = Vec::new();
    loop {
        let slice = reader.read(offset, 700, upper_bound, true).unwrap();
        if slice.is_empty() {
            return out;
        }
        assert!(slice.next_offset > offset);
        out.extend(slice.to_bytes().unwrap());
        offset = slice.next_offset;
    }
}

/// Compares lookups by offset and by time, below some bound, with a search through all batches.
pub(crate) fn check_lookups(log: &Log, batches: &[TestBatch], random: &mut Random, lookups: usize) {
    let (start, end) = (log.start(), log.end());
    let reader = log.reader();
    for _ in 0..lookups {
        let offset = start + random.below((end - start + 1) as u64) as i64;
        let bound = start + random.below((end - start + 2) as u64) as i64;
        let max = random.below(4000) as usize;
        let min_one = random.chance(50);
        let slice = reader.read(offset, max, bound, min_one).unwrap();
        let mut expected = Vec::new();
        for batch in batches.iter().filter(|b| b.header.last_offset() >= offset) {
            let must = min_one && expected.is_empty();
            let fits = must || expected.len() + batch.bytes.len() <= max;
            if batch.header.last_offset() >= bound || !fits {
                break;
            }
            expected.extend_from_slice(&batch.bytes);
        }
        let found = slice.to_bytes().unwrap();
        assert_eq!(offsets(&found), offsets(&expected), "read({offset}, {max}, {bound}, {min_one})");
        assert!(found == expected, "read({offset}, {max}, {bound}, {min_one})");
    }
    let records: Vec<(i64, i64)> = batches
        .iter()
        .flat_map(|b| b.timestamps.iter().enumerate().map(|(i, &t)| (b.header.base_offset + i as i64, t)))
        .filter(|&(offset, _)| offset >= start)
        .collect();
    for _ in 0..lookups {
        let bound = start + random.below((end - start + 2) as u64) as i64;
        let time = match records.len() {
            0 => 5,
            n => records[random.below(n as u64) as usize].1 + random.below(3) as i64 - 1,
        };
        let expected = records.iter().find(|(offset, t)| *t >= time && *offset < bound);
        let found = reader.offset_for_timestamp(time, bound).unwrap();
        assert_eq!(found.map(|f| (f.offset, f.timestamp)), expected.copied(), "time {time} below {bound}");
    }
}

/// What all batches of a log mean for its producers, and which transactions were aborted.
pub(crate) struct Replayed {
    pub(crate) producers: ProducerStates,
    pub(crate) aborted: Vec<AbortedTransaction>,
}

impl Replayed {
    pub(crate) fn of(batches: &[TestBatch], producers_max: usize) -> Replayed {
        let mut replayed = Replayed { producers: ProducerStates::new(producers_max), aborted: Vec::new() };
        for batch in batches {
            let completed = ProducerEvent::of(&batch.view()).replay(&mut replayed.producers);
            replayed.aborted.extend(completed.and_then(|completed| completed.aborted()));
        }
        replayed
    }
}

/// The model's last stable offset: the first offset of the oldest transaction without a marker below the high watermark.
fn model_last_stable(batches: &[TestBatch], high_watermark: i64) -> i64 {
    let mut undecided: Vec<(i64, i64)> = Vec::new();
    let mut last_stable = high_watermark;
    for batch in batches.iter().filter(|b| b.header.is_transactional()) {
        let id = batch.header.producer_id;
        let open = undecided.iter().position(|&(producer, _)| producer == id);
        match (batch.header.is_control(), open) {
            (true, Some(at)) => {
                let (_, first) = undecided.remove(at);
                if batch.header.base_offset >= high_watermark {
                    last_stable = last_stable.min(first);
                }
            }
            (false, None) => undecided.push((id, batch.header.base_offset)),
            (true, None) | (false, Some(_)) => {}
        }
    }
    undecided.iter().map(|&(_, first)| first).fold(last_stable, i64::min)
}

/// The model's committed batches of data: without a transaction, or with a commit as the producer's next marker.
fn model_committed(batches: &[TestBatch], start: i64, last_stable: i64) -> Vec<i64> {
    let mut committed = Vec::new();
    for (i, batch) in batches.iter().enumerate() {
        let header = &batch.header;
        if header.is_control() || header.last_offset() < start || header.last_offset() >= last_stable {
            continue;
        }
        let is_marker = |b: &&TestBatch| b.header.is_control() && b.header.producer_id == header.producer_id;
        let outcome = batches[i..].iter().find(is_marker).map(|marker| EndMarker::decode(&marker.view()));
        if !header.is_transactional() || outcome.is_some_and(|marker| marker.unwrap().is_commit) {
            committed.push(header.base_offset);
        }
    }
    committed
}

/// Reads as Kafka's clients do with `isolation.level=read_committed`, in steps of any size.
pub(crate) fn read_committed(
    log: &Log,
    last_stable: i64,
    random: &mut Random,
) -> Result<Vec<i64>, ReadError> {
    let reader = log.reader();
    let (mut offset, mut seen) = (reader.start(), Vec::new());
    while offset < last_stable {
        let slice = reader.read(offset, 100 + random.below(3000) as usize, last_stable, true)?;
        if slice.is_empty() {
            break;
        }
        let mut aborted = reader.aborted_transactions(offset, slice.next_offset)?;
        assert!(aborted.is_sorted_by_key(|a| a.first_offset));
        aborted.reverse();
        let mut aborting = BTreeSet::new();
        for batch in records::batches(&slice.to_bytes().unwrap()) {
            let batch = batch.unwrap();
            let header = batch.header();
            while let Some(next) = aborted.pop_if(|a| a.first_offset <= header.last_offset()) {
                aborting.insert(next.producer_id);
            }
            match EndMarker::decode(&batch) {
                Some(marker) if !marker.is_commit => _ = aborting.remove(&header.producer_id),
                Some(_) => {}
                // Compaction leaves such a one of a marker that tells a producer's epoch.
                None if header.is_control() => {}
                None if header.is_transactional() && aborting.contains(&header.producer_id) => {}
                None => seen.push(header.base_offset),
            }
        }
        offset = slice.next_offset;
    }
    Ok(seen)
}

/// Compares what a log says of transactions with what its batches say; `high_watermark` is what it was told last.
pub(crate) fn check_transactions(
    log: &Log,
    batches: &[TestBatch],
    high_watermark: i64,
    random: &mut Random,
    lookups: usize,
) -> Result<(), ReadError> {
    let (start, end) = (log.start(), log.end());
    let replayed = Replayed::of(batches, log.config().producers_max);
    assert_eq!(log.producers(), &replayed.producers, "producers");
    for _ in 0..lookups {
        let from = start + random.below((end - start + 1) as u64) as i64;
        let upper = start + random.below((end - start + 2) as u64) as i64;
        let mut expected = replayed.aborted.clone();
        expected.retain(|a| from < upper && a.last_offset >= from && a.first_offset < upper);
        expected.sort_by_key(|a| (a.first_offset, a.last_offset));
        let found = log.reader().aborted_transactions(from, upper)?;
        assert_eq!(found, expected, "aborted within {from}..{upper}");
        let bytes_max = (from * 97 % 3000) as usize;
        let warm = log.reader().try_read_committed_warm(from, bytes_max, upper, true);
        if let Some((slice, aborted)) = warm.transpose()? {
            expected.retain(|a| a.first_offset < slice.next_offset && from < slice.next_offset);
            assert_eq!(aborted, expected, "aborted within {from}..{}, warm", slice.next_offset);
        }
    }
    let least = high_watermark.max(start);
    let high_watermark = least + random.below((end - least + 1) as u64) as i64;
    let last_stable = log.producers().last_stable(high_watermark);
    assert_eq!(last_stable, model_last_stable(batches, high_watermark), "last stable at {high_watermark}");
    let expected = model_committed(batches, start, last_stable);
    assert_eq!(read_committed(log, last_stable, random)?, expected, "committed below {last_stable}");
    Ok(())
}
