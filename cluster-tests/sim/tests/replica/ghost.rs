//! What really happened, seen from above: which records are committed, who led when, what was acknowledged. The rules read
//! it.
//!
//! A record counts as committed from the moment at which some leader's high watermark covers it: from then on a producer
//! may have been told so and a consumer may have seen it. An unclean election may take committed records away: the ghost
//! then cuts its list to what the new leader has, and what older leaderships go on to say is nobody's promise any more.

use std::collections::BTreeMap;

use crate::log::{Batch, ModelLog};

/// A node and the run of its process.
pub(crate) type Run = (usize, u64);

#[derive(Debug, Default)]
pub(crate) struct PartitionGhost {
    /// Everything that was ever committed, without gap from `first`.
    committed: Vec<Batch>,
    /// Where the list begins: at 0, but after an unclean election of a log that begins later there.
    pub(crate) first: i64,
    /// Below it everything is committed.
    pub(crate) high_watermark: i64,
    /// The part of it that every eligible replica must have. Smaller only after an unclean election, whose winner shows
    /// what it took for committed before, though nobody else needs to have it.
    pub(crate) sure: i64,
    /// Who led in which epoch.
    pub(crate) leaders: BTreeMap<i32, Run>,
    /// The newest epoch that began with an unclean election, −1 if none did.
    pub(crate) unclean_epoch: i32,
    /// Below it clients were told, in leader epochs up to the second, that records are deleted.
    pub(crate) deleted: (i64, i32),
    /// An unclean election was decided, and its winner has not begun yet.
    pub(crate) suspended: bool,
    /// Sequences of idempotent producers in committed batches: where each begins.
    sequences: BTreeMap<(i64, i16, i32), i64>,
    /// Batches that producers with acks=all were told of: first offset → its name.
    acknowledged: BTreeMap<i64, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Ghost {
    pub(crate) partitions: Vec<PartitionGhost>,
    /// Marks of what was reached.
    pub(crate) marks: BTreeMap<&'static str, u64>,
    trace: u64,
}

impl Ghost {
    pub(crate) fn new(partitions: usize) -> Self {
        let partition =
            || PartitionGhost { unclean_epoch: -1, deleted: (0, -1), ..PartitionGhost::default() };
        Ghost { partitions: (0..partitions).map(|_| partition()).collect(), ..Ghost::default() }
    }

    pub(crate) fn mark(&mut self, mark: &'static str) {
        *self.marks.entry(mark).or_default() += 1;
    }

    /// Mixes a fact into the hash of the run.
    pub(crate) fn trace(&mut self, fact: &str) {
        for byte in fact.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.trace
    }
}

impl PartitionGhost {
    /// The committed batch that holds `offset`.
    pub(crate) fn at(&self, offset: i64) -> Option<&Batch> {
        let at = self.committed.partition_point(|batch| batch.end <= offset);
        self.committed.get(at).filter(|batch| batch.base <= offset)
    }

    /// Whether `log` holds every committed record below `end` that lies above its start. By R2 it is enough to look at the
    /// last one.
    pub(crate) fn is_in(&self, log: &ModelLog, end: i64) -> bool {
        end <= log.start.max(self.first) || (log.end() >= end && log.at(end - 1) == self.at(end - 1))
    }

    /// A leader's high watermark covers more: it is committed.
    pub(crate) fn commit(&mut self, log: &ModelLog, high_watermark: i64) {
        if self.unclean_epoch >= 0 && log.start > self.high_watermark {
            // An unclean leader brought back records that an earlier one had deleted, and did not commit them again before it
            // gave way to a log that still begins behind them. Both logs agree from there on, else the reconciliation had
            // dropped this one: so what is missing below are those deleted records, and no promise of the unclean leader.
            self.committed.clear();
            (self.first, self.high_watermark) = (log.start, log.start);
        }
        let from = self.high_watermark;
        assert!(log.start <= from, "R1: a leader begins at {} and {from} was the high watermark", log.start);
        let first = log.batches.partition_point(|batch| batch.end <= from);
        for batch in log.batches[first..].iter().take_while(|batch| batch.end <= high_watermark) {
            let end = self.end();
            // Where the list was cut to a log that begins inside a batch, the part before is not known.
            let half_known = self.unclean_epoch >= 0 && batch.base < end;
            let continues = batch.base == end || half_known;
            assert!(continues, "R9: after {end} {batch:?} was committed");
            if let Some(stamp) = batch.producer {
                let key = (stamp.producer_id, stamp.producer_epoch, stamp.base_sequence);
                let before = self.sequences.insert(key, batch.base).filter(|before| *before >= log.start);
                assert!(before.is_none(), "X1: {batch:?} was committed before at {before:?}");
            }
            self.committed.push(*batch);
        }
        let end = self.end();
        assert!(end == high_watermark, "R7: the high watermark {high_watermark} is not between two batches");
        self.high_watermark = high_watermark;
        self.sure = high_watermark;
    }

    /// Cuts the committed list to what `log` has of it, and lets only what is `durable` count as sure. Below `shown` the
    /// log's owner takes everything for committed.
    pub(crate) fn cut_to(&mut self, log: &ModelLog, durable: i64, shown: i64) {
        let shared = |batch: &Batch| batch.end <= log.start || log.at(batch.base) == Some(batch);
        let keep = self.committed.iter().position(|batch| !shared(batch)).unwrap_or(self.committed.len());
        for gone in self.committed.drain(keep..) {
            if let Some(stamp) = gone.producer {
                self.sequences.remove(&(stamp.producer_id, stamp.producer_epoch, stamp.base_sequence));
            }
        }
        if self.end() < log.start || self.first > log.end() {
            // Nothing of it is left that could be compared.
            self.committed.clear();
            self.sequences.clear();
            self.first = log.start;
        }
        self.high_watermark = self.end();
        self.sure = self.sure.min(self.high_watermark).min(durable);
        self.acknowledged.split_off(&self.high_watermark);
        // What the winner itself took for committed it shows from the first moment on.
        if shown > self.high_watermark {
            self.adopt(log, shown);
        }
    }

    /// A leader shows more than anybody has committed since an unclean election.
    pub(crate) fn adopt(&mut self, log: &ModelLog, shown: i64) {
        let sure = self.sure;
        self.commit(log, shown);
        self.sure = sure;
    }

    /// R8: a consumer at `from` is given these batches as far as they lie below `high_watermark`, and takes what of them is
    /// committed. Answers where it goes on.
    pub(crate) fn check_read(&self, from: i64, batches: &[Batch], high_watermark: i64) -> i64 {
        let mut next = from;
        for batch in batches.iter().take_while(|batch| batch.end <= high_watermark) {
            if next.max(batch.base) < self.first {
                // An unclean election gave up what the list knew of it, and a later one brought it back.
                next = batch.end;
                continue;
            }
            // What of the batch lies below is not for the consumer, and may be the past of an earlier leader.
            let committed = self.at(next.max(batch.base));
            assert!(committed == Some(batch), "R8: read {batch:?} at {next}, committed is {committed:?}");
            next = batch.end;
        }
        next
    }

    fn end(&self) -> i64 {
        self.committed.last().map_or(self.first, |last| last.end)
    }

    /// A producer was told that its batch is committed.
    pub(crate) fn acknowledge(&mut self, base: i64, id: u64) {
        self.acknowledged.insert(base, id);
    }

    /// Every acknowledged batch is where it was said to be in a list of what readers are given.
    pub(crate) fn check_acknowledged(&self, log: &ModelLog) {
        for (base, id) in self.acknowledged.range(log.start..) {
            let found = log.at(*base).map(|batch| (batch.base, batch.id));
            assert!(found == Some((*base, *id)), "R1: acknowledged at {base} was {id}, there is {found:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base: i64, end: i64, epoch: i32) -> Batch {
        Batch { base, end, epoch, id: epoch as u64, producer: None, timestamp: 0, bytes: 1 }
    }

    /// 15..18 was committed and deleted; an unclean leader's log begins at 18, inside a batch 17..19 of an older epoch.
    fn after_an_unclean_election() -> PartitionGhost {
        let mut deleted = ModelLog::new();
        deleted.restart_at(15);
        deleted.append(batch(15, 18, 33));
        let mut ghost = PartitionGhost { first: 15, high_watermark: 15, ..PartitionGhost::default() };
        ghost.commit(&deleted, 18);
        let mut winner = ModelLog::new();
        winner.restart_at(17);
        winner.append(batch(17, 19, 25));
        winner.set_start(18);
        ghost.unclean_epoch = 35;
        ghost.cut_to(&winner, 19, 19);
        ghost
    }

    #[test]
    fn a_consumer_takes_of_a_batch_what_it_has_not_read() {
        let ghost = after_an_unclean_election();
        assert_eq!(ghost.check_read(18, &[batch(17, 19, 25)], 19), 19);
        assert_eq!(ghost.check_read(18, &[batch(17, 19, 25)], 18), 18, "nothing above the high watermark");
    }

    #[test]
    #[should_panic(expected = "R8")]
    fn another_batch_than_the_committed_one_is_noticed() {
        after_an_unclean_election().check_read(17, &[batch(17, 19, 25)], 19);
    }
}
