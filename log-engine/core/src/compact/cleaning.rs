//! The second half of a pass: what of each batch stays.

use std::collections::{HashMap, HashSet};

use records::{
    BatchError, BatchFilter, BatchHeader, BatchView, Filtered, Horizon, Record, put_emptied_batch,
};

use super::{AbortedRanges, Control, KeyHash, Mapping, control_of};
use crate::ProducerStates;

/// What is known of a producer's newest batch, which stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastBatch {
    /// Last offset of its newest batch of data, if its epoch has one.
    pub data_offset: Option<i64>,
    /// Its epoch, which its newest marker tells if nothing else does.
    pub epoch: i16,
}

/// The newest batches of all producers that are known.
pub fn last_batches(producers: &ProducerStates) -> HashMap<i64, LastBatch> {
    let last = |(id, state): (i64, &crate::ProducerState)| {
        let data_offset = state.batches().next_back().map(|batch| batch.last_offset);
        (id, LastBatch { data_offset, epoch: state.epoch })
    };
    producers.iter().map(last).collect()
}

/// What a pass goes by.
#[derive(Debug, Clone)]
pub struct CleaningRules {
    /// When the pass began, milliseconds of the broker's clock; `None` if that is not believed, so that nothing goes by its age.
    pub now_ms: Option<i64>,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// Largest size of one batch's records in bytes, unpacked.
    pub unpacked_bytes_max: usize,
    /// See [`last_batches`].
    pub last_batches: HashMap<i64, LastBatch>,
    /// Aborted transactions with data in the log.
    pub aborted: AbortedRanges,
    /// Tombstones and markers at or above stay, however old: somebody is about to copy them. `i64::MAX` if nobody is.
    pub keep_from: i64,
}

/// What came of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cleaned {
    /// It was copied byte for byte.
    Same,
    /// The same, since it cannot be unpacked though its checksum is right. Its keys are not known.
    Opaque(BatchError),
    /// It was written with other content.
    Changed,
    /// It is gone.
    Dropped,
}

/// Goes over all batches of a log from its start, in order.
#[derive(Debug)]
pub struct Cleaning<'a> {
    rules: &'a CleaningRules,
    mapping: &'a Mapping,
    filter: BatchFilter,
    /// The present time, from which delete horizons count.
    time_ms: Option<i64>,
    dropped_to: i64,
    carried: Carried,
}

/// What of the batches so far matters for those to come.
#[derive(Debug, Clone, Default)]
pub struct Carried {
    /// Producers of which transactional data were seen since their last marker.
    with_data: HashSet<i64>,
    /// A batch stays of which the keys are not known: no tombstone behind it may go.
    has_opaque: bool,
}

impl<'a> Cleaning<'a> {
    pub fn new(rules: &'a CleaningRules, mapping: &'a Mapping) -> Cleaning<'a> {
        Cleaning::resume(rules, mapping, Carried::default())
    }

    /// Goes on where another left off ([`suspend`](Self::suspend)).
    pub fn resume(rules: &'a CleaningRules, mapping: &'a Mapping, carried: Carried) -> Cleaning<'a> {
        Cleaning {
            rules,
            mapping,
            filter: BatchFilter::default(),
            time_ms: rules.now_ms,
            dropped_to: -1,
            carried,
        }
    }

    /// What must be known to go on.
    pub fn suspend(self) -> Carried {
        self.carried
    }

    /// Tells the present time. Delete horizons count from it, and not from when the pass began: what is superseded is there
    /// until the batch is rewritten, and who reads meanwhile must see the tombstone for as long as is promised.
    pub fn set_time(&mut self, now_ms: Option<i64>) {
        self.time_ms = now_ms;
    }

    /// When tombstones and markers that are found now may go.
    fn horizon_ms(&self) -> Option<i64> {
        self.time_ms.map(|now| now.saturating_add(self.rules.delete_retention_ms))
    }

    /// The highest offset of which a tombstone that was the newest of its key, or a marker, was dropped here; −1 if none was.
    /// Whoever has copied the log up to less, with what they were about, never learns of them.
    pub fn dropped_to(&self) -> i64 {
        self.dropped_to
    }

    /// Appends to `out` what stays of the next batch, whose checksum was checked. `closes_segment` says that it is the last
    /// one of the segment that is written.
    pub fn take(
        &mut self,
        batch: &BatchView<'_>,
        closes_segment: bool,
        hash: impl Fn(&[u8]) -> KeyHash,
        out: &mut Vec<u8>,
    ) -> Cleaned {
        let header = batch.header();
        let beyond = header.base_offset >= self.mapping.end();
        let at = out.len();
        let filtered = match header.is_control() {
            true => self.take_control(batch, beyond, out),
            false => self.take_data(batch, beyond, hash, out),
        };
        match filtered {
            Ok(Filtered::Same) => Cleaned::Same,
            Ok(Filtered::Rewritten { .. }) => Cleaned::Changed,
            Ok(Filtered::Nothing) if closes_segment || self.is_last_of_producer(header) => {
                put_emptied_batch(header, out);
                let was_emptied = header.record_count == 0 && header.size() == BatchHeader::LEN;
                if was_emptied { Cleaned::Same } else { Cleaned::Changed }
            }
            Ok(Filtered::Nothing) => {
                if header.is_control() {
                    self.dropped_to = self.dropped_to.max(header.last_offset());
                }
                Cleaned::Dropped
            }
            Err(error) => {
                self.carried.has_opaque = true;
                out.truncate(at);
                out.extend_from_slice(batch.bytes());
                Cleaned::Opaque(error)
            }
        }
    }

    fn take_data(
        &mut self,
        batch: &BatchView<'_>,
        beyond: bool,
        hash: impl Fn(&[u8]) -> KeyHash,
        out: &mut Vec<u8>,
    ) -> Result<Filtered, BatchError> {
        let header = batch.header();
        if header.is_transactional() {
            self.carried.with_data.insert(header.producer_id);
        }
        if beyond {
            out.extend_from_slice(batch.bytes());
            return Ok(Filtered::Same);
        }
        let end = self.mapping.end();
        // A batch that the map reaches only in part is not clean yet.
        let whole = header.last_offset() < end;
        if whole && self.rules.aborted.holds(header) {
            return Ok(Filtered::Nothing);
        }
        let rules = self.rules;
        let may_go = match header.delete_horizon() {
            Some(horizon) => rules.now_ms.is_some_and(|now| horizon <= now) && !self.carried.has_opaque,
            // Planted: the pass that first sees a tombstone drops it.
            None => cfg!(weir_planted_bug = "B16"),
        };
        let may_go = may_go && header.last_offset() < rules.keep_from;
        let map = self.mapping.map();
        let mut dropped_to = -1;
        let keep = |record: &Record<'_>| {
            if record.offset >= end {
                return true;
            }
            let Some(key) = record.key else { return false };
            let newest = map.get(hash(key)).is_none_or(|newest| record.offset >= newest);
            let goes = newest && record.value.is_none() && may_go;
            if goes {
                dropped_to = record.offset;
            }
            newest && !goes
        };
        let horizon = match self.horizon_ms() {
            Some(horizon) if whole => Horizon::ForTombstones(horizon),
            Some(_) | None => Horizon::Leave,
        };
        let filtered = self.filter.filter(batch, rules.unpacked_bytes_max, horizon, keep, out);
        self.dropped_to = self.dropped_to.max(dropped_to);
        filtered
    }

    fn take_control(
        &mut self,
        batch: &BatchView<'_>,
        beyond: bool,
        out: &mut Vec<u8>,
    ) -> Result<Filtered, BatchError> {
        let header = batch.header();
        let control = control_of(batch);
        if control == Control::Other {
            out.extend_from_slice(batch.bytes());
            return Ok(Filtered::Same);
        }
        let with_data = self.carried.with_data.remove(&header.producer_id);
        // Planted: markers go though their data are still there.
        let with_data = with_data && !cfg!(weir_planted_bug = "B17");
        let is_kept = header.last_offset() >= self.rules.keep_from;
        if control == Control::Emptied && !is_kept {
            return Ok(Filtered::Nothing);
        }
        if control == Control::Emptied || beyond || with_data {
            out.extend_from_slice(batch.bytes());
            return Ok(Filtered::Same);
        }
        let horizon = match header.delete_horizon() {
            Some(horizon) if self.rules.now_ms.is_some_and(|now| horizon <= now) && !is_kept => {
                self.dropped_to = self.dropped_to.max(header.last_offset());
                return Ok(Filtered::Nothing);
            }
            Some(_) => Horizon::Leave,
            None => self.horizon_ms().map_or(Horizon::Leave, Horizon::Set),
        };
        self.filter.filter(batch, self.rules.unpacked_bytes_max, horizon, |_| true, out)
    }

    /// Whether the batch tells the newest sequence, or at least the epoch, of a producer that is known.
    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        let Some(last) = self.rules.last_batches.get(&header.producer_id) else { return false };
        match last.data_offset {
            Some(offset) => offset == header.last_offset(),
            None => header.is_control() && header.producer_epoch == last.epoch,
        }
    }
}
