//! A model of one copy's log: batches, what of them is on disk, the history of leader epochs and the producers' states,
//! the last two by the real code. It behaves like the engine: a cut or a move of the start is durable before it returns,
//! an append is durable once a flush that began after it is over.

use controller_core::Chance;
use log_engine_core::{EpochHistory, ProducerBatch, ProducerStates};
use storage_node_core::ProducerStamp;

/// A batch. Two batches are the same bytes exactly if they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) base: i64,
    pub(crate) end: i64,
    pub(crate) epoch: i32,
    /// Names the append at a leader that made it.
    pub(crate) id: u64,
    pub(crate) producer: Option<ProducerStamp>,
    pub(crate) timestamp: i64,
    pub(crate) bytes: u64,
}

impl Batch {
    fn as_producer_batch(&self) -> Option<ProducerBatch> {
        let stamp = self.producer?;
        Some(ProducerBatch {
            producer_id: stamp.producer_id,
            producer_epoch: stamp.producer_epoch,
            first_sequence: stamp.base_sequence,
            offset_delta: (self.end - self.base - 1) as i32,
            last_offset: self.end - 1,
            timestamp: self.timestamp,
            is_transactional: false,
        })
    }
}

/// A flush that is under way: what it will have brought to the disk, and its name.
#[derive(Clone, Copy, Debug)]
struct Flush {
    end: i64,
    generation: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelLog {
    pub(crate) batches: Vec<Batch>,
    pub(crate) start: i64,
    pub(crate) flushed: i64,
    end: i64,
    pub(crate) epochs: EpochHistory,
    pub(crate) producers: ProducerStates,
    flush: Option<Flush>,
    flushes: u64,
    pub(crate) failed: bool,
}

impl ModelLog {
    pub(crate) fn new() -> Self {
        ModelLog {
            batches: Vec::new(),
            start: 0,
            flushed: 0,
            end: 0,
            epochs: EpochHistory::new(),
            producers: ProducerStates::new(1_000),
            flush: None,
            flushes: 0,
            failed: false,
        }
    }

    pub(crate) fn end(&self) -> i64 {
        self.end
    }

    /// The batch that holds `offset`.
    pub(crate) fn at(&self, offset: i64) -> Option<&Batch> {
        let at = self.batches.partition_point(|batch| batch.end <= offset);
        self.batches.get(at).filter(|batch| batch.base <= offset)
    }

    pub(crate) fn append(&mut self, batch: Batch) {
        assert!(!self.failed, "nobody appends to a failed log");
        let fits = batch.base == self.end || (self.batches.is_empty() && batch.base <= self.end);
        assert!(
            fits && batch.end > self.end,
            "R9: {batch:?} does not continue a log that ends at {}",
            self.end
        );
        assert!(
            self.batches.last().is_none_or(|last| last.epoch <= batch.epoch),
            "R6: {batch:?} comes after a batch of a newer epoch"
        );
        let base = batch.base.max(self.start);
        if self.epochs.epoch_of(base) != Some(batch.epoch) {
            self.epochs.assign(batch.epoch, base);
        }
        if let Some(batch) = batch.as_producer_batch() {
            self.producers.append(&batch);
        }
        self.end = batch.end;
        self.batches.push(batch);
    }

    pub(crate) fn begin_epoch(&mut self, epoch: i32) {
        if self.epochs.latest().is_none_or(|latest| latest.epoch < epoch) {
            self.epochs.assign(epoch, self.end);
        }
    }

    /// Takes away all batches that reach `offset` or beyond; answers the new end.
    pub(crate) fn truncate(&mut self, offset: i64) -> i64 {
        assert!(offset >= self.start && offset <= self.end, "a cut lies within the log");
        if offset == self.end {
            return self.end;
        }
        let keep = self.batches.partition_point(|batch| batch.end <= offset);
        let new_end = self.batches.get(keep).map_or(offset, |batch| batch.base.min(offset));
        self.batches.truncate(keep);
        self.cut_to(new_end);
        self.end
    }

    fn cut_to(&mut self, end: i64) {
        self.end = end;
        self.start = self.start.min(end);
        self.flushed = self.flushed.min(end);
        if let Some(flush) = &mut self.flush {
            flush.end = flush.end.min(end);
        }
        self.epochs.truncate_from_end(end);
        self.replay_producers();
    }

    /// Drops everything and begins anew at `start`.
    pub(crate) fn restart_at(&mut self, start: i64) {
        let (flush, flushes) = (self.flush, self.flushes);
        *self = ModelLog { flushes, ..ModelLog::new() };
        (self.start, self.end, self.flushed) = (start, start, start);
        self.flush = flush.map(|flush| Flush { end: start, ..flush });
    }

    pub(crate) fn set_start(&mut self, start: i64) {
        assert!(start >= self.start && start <= self.end, "the start stays within the log");
        self.start = start;
        let gone = self.batches.partition_point(|batch| batch.end <= start);
        self.batches.drain(..gone);
        self.flushed = self.flushed.max(start);
        self.epochs.truncate_from_start(start);
    }

    /// Names the flush that begins.
    pub(crate) fn begin_flush(&mut self) -> u64 {
        assert!(self.flush.is_none(), "one flush at a time");
        self.flushes += 1;
        self.flush = Some(Flush { end: self.end, generation: self.flushes });
        self.flushes
    }

    /// The flush is over; answers what is on disk now.
    pub(crate) fn finish_flush(&mut self, generation: u64) -> Option<i64> {
        let flush = self.flush.take_if(|flush| flush.generation == generation)?;
        if self.failed {
            return None;
        }
        self.flushed = self.flushed.max(flush.end);
        Some(self.flushed)
    }

    /// The process ends. `losing`: so does the machine, and a random suffix of what no flush has confirmed is gone.
    pub(crate) fn crash(&mut self, rng: &mut Chance, losing: bool) {
        self.failed = false;
        self.flush = None;
        if losing && self.flushed < self.end {
            let sure = self.batches.partition_point(|batch| batch.end <= self.flushed);
            let keep = sure + rng.below(self.batches.len() - sure + 1);
            let end = self.batches[..keep].last().map_or(self.flushed, |batch| batch.end);
            self.batches.truncate(keep);
            self.cut_to(end.max(self.flushed));
        }
        // Recovery writes the epochs anew from the batches, reads producers back, and syncs.
        self.epochs.truncate_from_end(self.end);
        self.replay_producers();
        self.flushed = self.end;
    }

    fn replay_producers(&mut self) {
        self.producers = ProducerStates::new(1_000);
        for batch in self.batches.iter().filter_map(Batch::as_producer_batch) {
            self.producers.append(&batch);
        }
    }

    /// The history of epochs that the batches tell.
    pub(crate) fn scanned_epochs(&self) -> EpochHistory {
        let mut epochs = EpochHistory::new();
        for batch in &self.batches {
            if epochs.latest().is_none_or(|latest| latest.epoch < batch.epoch) {
                epochs.assign(batch.epoch, batch.base.max(self.start));
            }
        }
        epochs
    }

    /// Whole batches from `from` on: as many as fit, and one in any case if that is asked for.
    pub(crate) fn read(&self, from: i64, bytes_max: u64, at_least_one: bool) -> Vec<Batch> {
        let first = self.batches.partition_point(|batch| batch.end <= from);
        let mut bytes = 0;
        let fits = |batch: &&Batch| {
            bytes += batch.bytes;
            bytes <= bytes_max || (at_least_one && bytes == batch.bytes)
        };
        self.batches[first..].iter().take_while(fits).copied().collect()
    }
}
