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
    /// Time of the pass, milliseconds of the broker's clock.
    pub now_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// Largest size of one batch's records in bytes, unpacked.
    pub unpacked_bytes_max: usize,
    /// See [`last_batches`].
    pub last_batches: HashMap<i64, LastBatch>,
    /// Aborted transactions with data in the log.
    pub aborted: AbortedRanges,
}

/// What came of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleaned {
    /// It was copied byte for byte.
    Same,
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
    /// Producers of which transactional data were seen since their last marker.
    with_data: HashSet<i64>,
}

impl<'a> Cleaning<'a> {
    pub fn new(rules: &'a CleaningRules, mapping: &'a Mapping) -> Cleaning<'a> {
        Cleaning { rules, mapping, filter: BatchFilter::default(), with_data: HashSet::new() }
    }

    /// Goes on where another left off ([`suspend`](Self::suspend)).
    pub fn resume(rules: &'a CleaningRules, mapping: &'a Mapping, with_data: HashSet<i64>) -> Cleaning<'a> {
        Cleaning { with_data, ..Cleaning::new(rules, mapping) }
    }

    /// What must be known to go on: the producers with data since their last marker.
    pub fn suspend(self) -> HashSet<i64> {
        self.with_data
    }

    /// Appends to `out` what stays of the next batch, whose checksum was checked. `closes_segment` says that it is the last
    /// one of the segment that is written.
    pub fn take(
        &mut self,
        batch: &BatchView<'_>,
        closes_segment: bool,
        hash: impl Fn(&[u8]) -> KeyHash,
        out: &mut Vec<u8>,
    ) -> Result<Cleaned, BatchError> {
        let header = batch.header();
        let beyond = header.base_offset >= self.mapping.end();
        let filtered = match header.is_control() {
            true => self.take_control(batch, beyond, out)?,
            false => self.take_data(batch, beyond, hash, out)?,
        };
        match filtered {
            Filtered::Same => Ok(Cleaned::Same),
            Filtered::Rewritten { .. } => Ok(Cleaned::Changed),
            Filtered::Nothing if closes_segment || self.is_last_of_producer(header) => {
                put_emptied_batch(header, out);
                let was_emptied = header.record_count == 0 && header.size() == BatchHeader::LEN;
                Ok(if was_emptied { Cleaned::Same } else { Cleaned::Changed })
            }
            Filtered::Nothing => Ok(Cleaned::Dropped),
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
            self.with_data.insert(header.producer_id);
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
            Some(horizon) => horizon <= rules.now_ms,
            // Planted: the pass that first sees a tombstone drops it.
            None => cfg!(weir_planted_bug = "B16"),
        };
        let map = self.mapping.map();
        let keep = |record: &Record<'_>| {
            if record.offset >= end {
                return true;
            }
            let Some(key) = record.key else { return false };
            let newest = map.get(hash(key)).is_none_or(|newest| record.offset >= newest);
            newest && (record.value.is_some() || !may_go)
        };
        let horizon = match whole {
            true => Horizon::ForTombstones(rules.now_ms.saturating_add(rules.delete_retention_ms)),
            false => Horizon::Leave,
        };
        self.filter.filter(batch, rules.unpacked_bytes_max, horizon, keep, out)
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
        let with_data = self.with_data.remove(&header.producer_id);
        // Planted: markers go though their data are still there.
        let with_data = with_data && !cfg!(weir_planted_bug = "B17");
        if control == Control::Emptied {
            return Ok(Filtered::Nothing);
        }
        if beyond || with_data {
            out.extend_from_slice(batch.bytes());
            return Ok(Filtered::Same);
        }
        let horizon = match header.delete_horizon() {
            Some(horizon) if horizon <= self.rules.now_ms => return Ok(Filtered::Nothing),
            Some(_) => Horizon::Leave,
            None => Horizon::Set(self.rules.now_ms.saturating_add(self.rules.delete_retention_ms)),
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
