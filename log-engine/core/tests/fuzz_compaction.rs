//! Seeded histories of a compacted log in memory: producers, transactions, tombstones, tiny maps, and passes in between.
//!
//! A model remembers every record that was ever appended. After each pass the log must still tell what the model tells (L1 of
//! the rules that compaction has to keep). A failing seed prints the command that repeats it.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

use std::collections::{BTreeMap, HashMap, HashSet};

use log_engine_core::compact::{
    AbortedRanges, Cleaned, Cleaning, CleaningRules, CompactionPolicy, Control, GroupLimits, KeyHash, KeyMap,
    Mapping, SegmentFacts, control_of, groups, last_batches, look,
};
use log_engine_core::{
    AbortedTransaction, ProducerBatch, ProducerStates, TransactionMarker, TransactionOutcome,
};
use records::{BatchBuilder, BatchHeader, BatchView, Compression, EndMarker};

const SEEDS: u64 = 1200;
const STEPS: usize = 50;
const RETENTION_MS: i64 = 100;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

struct PrintOnPanic(u64);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "repeat with: WEIR_SEED={} cargo test -p log-engine-core --test fuzz_compaction",
                self.0
            );
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Fact {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp: i64,
    /// Offset of the marker of its transaction, and whether that aborts; `None` while it is open.
    marker: Option<(i64, bool)>,
    transactional: bool,
    header: BatchHeader,
}

#[derive(Clone)]
struct Segment {
    base: i64,
    end: i64,
    batches: Vec<Vec<u8>>,
}

struct World {
    random: Random,
    now: i64,
    segments: Vec<Segment>,
    /// All records ever, by offset.
    facts: BTreeMap<i64, Fact>,
    markers: BTreeMap<i64, (i64, bool)>,
    producers: ProducerStates,
    sequences: HashMap<i64, i32>,
    open: HashMap<i64, Vec<i64>>,
    cleaned_to: Option<i64>,
    /// Tombstones and markers that a pass has kept as clean: since when.
    clean_since: BTreeMap<i64, i64>,
    /// When the last pass wrote each batch, by its first offset.
    written_at: HashMap<i64, i64>,
    end: i64,
    passes: usize,
}

/// T-71, T-98 to T-101, T-103: with tiny maps, markers, tombstones and gaps.
#[test]
fn a_compacted_log_tells_what_the_whole_one_told() {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let seeds = match number("WEIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_SEEDS").unwrap_or(SEEDS),
    };
    let mut passes = 0;
    for seed in seeds.clone() {
        let _command = PrintOnPanic(seed);
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.grow_old();
        passes += world.passes;
    }
    assert!(passes as u64 > seeds.end - seeds.start, "{passes} passes");
}

/// Replays a batch; answers with the transaction that it aborted.
fn replay(producers: &mut ProducerStates, batch: &BatchView<'_>) -> Option<AbortedTransaction> {
    let header = batch.header();
    if !header.is_control() {
        producers.append(&ProducerBatch {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            first_sequence: header.base_sequence,
            offset_delta: header.last_offset_delta,
            last_offset: header.last_offset(),
            timestamp: header.max_timestamp,
            is_transactional: header.is_transactional(),
        });
        return None;
    }
    let marker = EndMarker::decode(batch)?;
    let completed = producers.complete(&TransactionMarker {
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        coordinator_epoch: marker.coordinator_epoch,
        outcome: if marker.is_commit { TransactionOutcome::Commit } else { TransactionOutcome::Abort },
        offset: header.base_offset,
        timestamp: header.max_timestamp,
    });
    completed.and_then(|completed| completed.aborted())
}

fn hash(key: &[u8]) -> KeyHash {
    // Keys of this test are at most 16 bytes and different.
    let mut bytes = [0; 16];
    bytes[..key.len()].copy_from_slice(key);
    KeyHash(u128::from_le_bytes(bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: Random(seed),
            now: 10_000,
            segments: vec![Segment { base: 0, end: 0, batches: Vec::new() }],
            facts: BTreeMap::new(),
            markers: BTreeMap::new(),
            producers: ProducerStates::new(1000),
            sequences: HashMap::new(),
            open: HashMap::new(),
            cleaned_to: None,
            clean_since: BTreeMap::new(),
            written_at: HashMap::new(),
            end: 0,
            passes: 0,
        }
    }

    fn step(&mut self) {
        self.now += self.random.below(60) as i64;
        match self.random.below(100) {
            0..=64 => self.append(),
            65..=74 => self.end_transaction(),
            75..=84 => self.roll(),
            85..=86 => {
                let now = self.now;
                self.producers.expire(now, 300);
            }
            _ => _ = self.compact(),
        }
    }

    fn push(&mut self, bytes: Vec<u8>) -> BatchHeader {
        let view = BatchView::parse(&bytes).unwrap();
        let header = *view.header();
        replay(&mut self.producers, &view);
        self.end = header.last_offset() + 1;
        let active = self.segments.last_mut().unwrap();
        active.end = self.end;
        active.batches.push(bytes);
        header
    }

    fn append(&mut self) {
        // As on a copy of a compacted log.
        self.end += if self.random.chance(5) { self.random.below(4) as i64 } else { 0 };
        let codec = Compression::ALL[self.random.below(5) as usize];
        let mut builder =
            BatchBuilder::new().compression(codec).base_offset(self.end).leader_epoch((self.end / 20) as i32);
        let producer = self.random.chance(70).then(|| self.random.below(4) as i64);
        // 0 and 1 are transactional, 2 and 3 are not.
        let transactional = producer.filter(|&id| id < 2);
        if let Some(id) = producer {
            let sequence = self.sequences.entry(id).or_insert(0);
            builder = builder.producer(id, 1, *sequence);
        }
        if transactional.is_some() {
            builder = builder.transactional();
        }
        let count = 1 + self.random.below(5);
        let mut records = Vec::new();
        for i in 0..count {
            let key = format!("k{}", self.random.below(8)).into_bytes();
            let key = (!self.random.chance(3)).then_some(key);
            let value = (!self.random.chance(30)).then(|| format!("v{}", self.end + i as i64).into_bytes());
            let timestamp = self.now - self.random.below(50) as i64;
            builder.push(timestamp, key.as_deref(), value.as_deref(), &[]).unwrap();
            records.push((key, value, timestamp));
        }
        let header = self.push(builder.build());
        if let Some(id) = producer {
            *self.sequences.get_mut(&id).unwrap() += count as i32;
        }
        for (i, (key, value, timestamp)) in records.into_iter().enumerate() {
            let offset = header.base_offset + i as i64;
            let transactional = transactional.is_some();
            self.facts.insert(offset, Fact { key, value, timestamp, marker: None, transactional, header });
            if let Some(id) = producer.filter(|_| transactional) {
                self.open.entry(id).or_default().push(offset);
            }
        }
    }

    fn end_transaction(&mut self) {
        let id = self.random.below(2) as i64;
        let offsets = self.open.remove(&id).unwrap_or_default();
        if offsets.is_empty() && !self.random.chance(10) {
            return;
        }
        let aborts = self.random.chance(50);
        let mut builder = BatchBuilder::new()
            .base_offset(self.end)
            .leader_epoch((self.end / 20) as i32)
            .transactional()
            .control();
        builder = builder.producer(id, 1, -1);
        let key = [0, 0, 0, u8::from(!aborts)];
        builder.push(self.now, Some(&key), Some(&[0, 0, 0, 0, 0, 1]), &[]).unwrap();
        let header = self.push(builder.build());
        self.markers.insert(header.base_offset, (id, aborts));
        for offset in offsets {
            self.facts.get_mut(&offset).unwrap().marker = Some((header.base_offset, aborts));
        }
    }

    fn roll(&mut self) {
        if !self.segments.last().unwrap().batches.is_empty() {
            self.segments.push(Segment { base: self.end, end: self.end, batches: Vec::new() });
        }
    }

    fn facts_of_segments(&self) -> Vec<SegmentFacts> {
        let facts = |s: &Segment| SegmentFacts {
            base_offset: s.base,
            end: s.end,
            bytes: s.batches.iter().map(|b| b.len() as u64).sum(),
            max_timestamp: None,
            first_timestamp: None,
        };
        self.segments[..self.segments.len() - 1].iter().map(facts).collect()
    }

    fn aborted(&self) -> AbortedRanges {
        let mut producers = ProducerStates::new(1000);
        let batches = self.segments.iter().flat_map(|s| &s.batches);
        AbortedRanges::new(
            batches.filter_map(|bytes| replay(&mut producers, &BatchView::parse(bytes).unwrap())),
        )
    }

    fn last_stable(&self) -> i64 {
        self.open.values().filter_map(|o| o.first()).copied().min().unwrap_or(self.end)
    }

    /// One pass with a map of random size; answers whether it did anything.
    fn compact(&mut self) -> bool {
        let policy = CompactionPolicy { min_dirty_ratio: 0.0, min_lag_ms: 0, max_lag_ms: i64::MAX };
        let facts = self.facts_of_segments();
        let bound = self.last_stable();
        let found = look(&facts, self.cleaned_to, (bound, self.end), Some(self.now), &policy);
        if !found.due {
            return false;
        }
        let rules = CleaningRules {
            now_ms: Some(self.now),
            delete_retention_ms: RETENTION_MS,
            unpacked_bytes_max: 1 << 20,
            last_batches: last_batches(&self.producers),
            aborted: self.aborted(),
            keep_from: i64::MAX,
        };
        let bytes = if self.random.chance(50) { 1 << 20 } else { 24 * self.random.below(10) as usize };
        let mut mapping = Mapping::new(KeyMap::new(bytes, 100).unwrap(), found.from);
        'map: for segment in &self.segments[..found.segments] {
            for bytes in &segment.batches {
                let view = BatchView::parse(bytes).unwrap();
                if !mapping.take(&view, 1 << 20, &rules.aborted, hash) {
                    break 'map;
                }
            }
            mapping.reach(segment.end);
        }
        let end = mapping.end();
        assert!(end > found.from && end <= bound.max(found.until), "a pass makes the dirty part shorter");
        let limits = GroupLimits {
            segment_bytes: 200 + self.random.below(1500),
            segments_max: 1 + self.random.below(6) as usize,
        };
        let within = facts[..found.segments].partition_point(|s| s.base_offset < end);
        let mut cleaning = Cleaning::new(&rules, &mapping);
        let mut cleaned = Vec::new();
        for group in groups(&facts[..within], &limits) {
            let (base, end) = (facts[group.start].base_offset, facts[group.end - 1].end);
            let inside: Vec<&Vec<u8>> = self.segments[group].iter().flat_map(|s| &s.batches).collect();
            let mut batches = Vec::new();
            for (i, bytes) in inside.iter().enumerate() {
                let mut out = Vec::new();
                let view = BatchView::parse(bytes).unwrap();
                // A pass takes its time.
                self.now += i64::from(self.random.chance(3)) * RETENTION_MS / 2;
                cleaning.set_time(Some(self.now));
                self.written_at.insert(view.header().base_offset, self.now);
                let came = cleaning.take(&view, i + 1 == inside.len(), hash, &mut out);
                assert_eq!(came == Cleaned::Dropped, out.is_empty());
                assert_eq!(came == Cleaned::Same, out == **bytes);
                batches.extend((!out.is_empty()).then_some(out));
            }
            cleaned.push(Segment { base, end, batches });
        }
        let ends: Vec<i64> = self.segments[..within].iter().map(|s| s.end).collect();
        cleaned.iter().for_each(|s| assert!(ends.contains(&s.end)));
        self.segments.splice(..within, cleaned);
        self.cleaned_to = Some(end);
        self.passes += 1;
        self.check(end);
        true
    }

    /// Everything is closed, and passes are made until nothing is left to drop.
    fn grow_old(&mut self) {
        for id in [0, 1] {
            if self.open.contains_key(&id) {
                self.end_transaction();
            }
        }
        while !self.open.is_empty() {
            self.end_transaction();
        }
        for _ in 0..6 {
            self.append_filler();
            self.now += 2 * RETENTION_MS;
            self.roll();
            while self.compact() {}
        }
        // No tombstone and no marker is older than two passes and the retention, unless something rests on it.
        let limit = self.cleaned_to.unwrap();
        for bytes in self.segments.iter().flat_map(|s| &s.batches) {
            let view = BatchView::parse(bytes).unwrap();
            if view.header().last_offset() + 20 < limit && !view.header().is_control() {
                let records = view.records(1 << 20).unwrap();
                assert!(records.iter().all(|r| r.unwrap().value.is_some()), "a tombstone stays for ever");
            }
        }
    }

    fn append_filler(&mut self) {
        let mut builder = BatchBuilder::new().base_offset(self.end).leader_epoch((self.end / 20) as i32);
        builder.push(self.now, Some(b"filler"), Some(b"x"), &[]).unwrap();
        let header = self.push(builder.build());
        let (key, value) = (Some(b"filler".to_vec()), Some(b"x".to_vec()));
        let fact = Fact { key, value, timestamp: self.now, marker: None, transactional: false, header };
        self.facts.insert(header.base_offset, fact);
    }

    fn check(&mut self, clean_end: i64) {
        let (mut seen, mut batches) = (BTreeMap::new(), Vec::new());
        let mut offset_min = 0;
        for segment in &self.segments {
            assert!(segment.base >= offset_min);
            for bytes in &segment.batches {
                let view = BatchView::parse(bytes).unwrap();
                view.check_crc().unwrap();
                let header = *view.header();
                assert!(header.base_offset >= offset_min, "batches are in order");
                offset_min = header.last_offset() + 1;
                batches.push(view);
                if header.is_control() {
                    continue;
                }
                for record in view.records(1 << 20).unwrap().iter() {
                    let record = record.unwrap();
                    let fact = &self.facts[&record.offset];
                    assert_eq!((record.key, record.value), (fact.key.as_deref(), fact.value.as_deref()));
                    assert_eq!(record.timestamp, fact.timestamp);
                    let same = |h: &BatchHeader| {
                        let producer = (h.producer_id, h.producer_epoch, h.base_sequence);
                        (
                            h.base_offset,
                            h.last_offset_delta,
                            h.partition_leader_epoch,
                            producer,
                            h.compression(),
                        )
                    };
                    assert_eq!(same(&header), same(&fact.header), "offset {}", record.offset);
                    seen.insert(record.offset, fact.clone());
                }
            }
            let last = segment
                .batches
                .last()
                .map_or(segment.base, |b| BatchHeader::parse(b).unwrap().last_offset() + 1);
            assert_eq!(last, segment.end, "the end of a segment stays");
        }
        self.check_map(&seen, clean_end);
        self.check_transactions(&batches);
        self.check_producers(&batches);
        self.check_tombstones(&seen, clean_end);
    }

    /// A reader of committed records gets the model's map, and no key twice in the clean part.
    fn check_map(&self, seen: &BTreeMap<i64, Fact>, clean_end: i64) {
        let map = |facts: &BTreeMap<i64, Fact>| {
            let mut map = BTreeMap::new();
            for fact in facts.values().filter(|f| !f.transactional || f.marker.is_some_and(|m| !m.1)) {
                let Some(key) = fact.key.clone() else { continue };
                match fact.value.clone() {
                    Some(value) => _ = map.insert(key, value),
                    None => _ = map.remove(&key),
                }
            }
            map
        };
        assert_eq!(map(seen), map(&self.facts), "L1: the newest value of each key");
        let mut keys = HashSet::new();
        let last = self.segments.iter().flat_map(|s| &s.batches).map(|b| BatchHeader::parse(b).unwrap());
        let straddling = last.filter(|h| h.last_offset() >= clean_end).map(|h| h.base_offset).next();
        for (offset, fact) in seen.range(..straddling.unwrap_or(clean_end).min(clean_end)) {
            let key = fact.key.as_ref().unwrap_or_else(|| panic!("a record without a key at {offset}"));
            assert!(keys.insert(key), "key {key:?} is twice below {clean_end}");
            assert!(!fact.transactional || !fact.marker.unwrap().1, "aborted data at {offset}");
        }
    }

    /// The marker of a transaction stays as long as any of its batches.
    fn check_transactions(&self, batches: &[BatchView<'_>]) {
        let markers: HashSet<i64> = batches
            .iter()
            .filter(|b| b.header().is_control() && control_of(b) == Control::Marker)
            .map(|b| b.header().base_offset)
            .collect();
        for header in batches.iter().map(BatchView::header) {
            if header.is_control() || !header.is_transactional() {
                continue;
            }
            let marker = self.facts[&header.base_offset].marker;
            assert!(
                marker.is_none_or(|(marker, _)| markers.contains(&marker)),
                "L1: the marker {marker:?} is gone before its batch at {}",
                header.base_offset
            );
        }
        // Each marker that was there stays its time after a pass first found it without data; and it is what it was.
        for batch in batches.iter().filter(|b| markers.contains(&b.header().base_offset)) {
            let (id, aborts) = self.markers[&batch.header().base_offset];
            assert_eq!(EndMarker::decode(batch).unwrap().is_commit, !aborts);
            assert_eq!(batch.header().producer_id, id);
        }
    }

    fn check_tombstones(&mut self, seen: &BTreeMap<i64, Fact>, clean_end: i64) {
        let committed = |f: &Fact| !f.transactional || f.marker.is_some_and(|m| !m.1);
        let mut newest = BTreeMap::new();
        for (&offset, fact) in self.facts.range(..clean_end).filter(|(_, f)| committed(f)) {
            newest.insert(fact.key.clone(), offset);
        }
        // Superseded below the end: may go at once.
        for (&offset, fact) in self.facts.range(..clean_end) {
            if fact.value.is_some() || !committed(fact) || fact.key.is_none() {
                continue;
            }
            if newest[&fact.key] != offset {
                continue;
            }
            let written_at = self.written_at[&fact.header.base_offset];
            let since = *self.clean_since.entry(offset).or_insert(written_at);
            assert!(
                seen.contains_key(&offset) || self.now >= since + RETENTION_MS,
                "L1: the tombstone at {offset}, clean since {since}, is gone at {}",
                self.now
            );
        }
    }

    /// A replay finds the newest sequence of every producer that was known.
    fn check_producers(&self, batches: &[BatchView<'_>]) {
        let mut replayed = ProducerStates::new(1000);
        for batch in batches {
            replay(&mut replayed, batch);
        }
        for (id, state) in self.producers.iter() {
            // One of which only a marker was left may be unknown, one that was forgotten and came back may know less.
            let Some(sequence) = state.last_sequence() else { continue };
            let found = replayed.get(id).unwrap_or_else(|| panic!("producer {id} is gone"));
            assert_eq!(found.last_sequence(), Some(sequence), "producer {id}");
            assert_eq!(found.epoch, state.epoch);
            let open = |s: &log_engine_core::ProducerState| s.txn_first_offset.is_some();
            assert_eq!(open(found), open(state), "transaction of producer {id}");
        }
    }
}
