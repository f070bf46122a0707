//! What the log remembers of each idempotent producer (KIP-98, KIP-360).
//!
//! For every producer id: its epoch, its last five batches, and where its open transaction began.
//! [`ProducerStates::check_append`] and [`ProducerStates::check_marker`] ask whether a leader may append a batch or a
//! transaction marker; [`ProducerStates::append`] and [`ProducerStates::complete`] replay one that *is* in the log and
//! therefore cannot fail. The two never share state: recovery and followers only replay.

use std::collections::{BTreeMap, VecDeque};

use crate::transactions::{CompletedTransaction, TransactionMarker, Transactions};

/// Batches remembered per producer: Kafka's number, and the most that a client keeps in flight per connection.
pub const BATCHES_REMEMBERED: usize = 5;

/// A batch whose timestamp is so near to the broker's time says by itself when its producer was there.
const TIMESTAMP_BELIEVED_MS: u64 = 60_000;

/// The facts of one batch that idempotence needs; `first_sequence..=last_sequence` may wrap at 2^31.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerBatch {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub first_sequence: i32,
    /// Records in the batch minus one.
    pub offset_delta: i32,
    pub last_offset: i64,
    /// Max timestamp of the batch in milliseconds.
    pub timestamp: i64,
    pub is_transactional: bool,
}

/// One remembered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchWindow {
    pub last_sequence: i32,
    pub last_offset: i64,
    pub offset_delta: i32,
    pub timestamp: i64,
}

impl BatchWindow {
    /// Sequence of the batch's first record.
    pub fn first_sequence(&self) -> i32 {
        sequence_minus(self.last_sequence, self.offset_delta)
    }

    /// Offset of the batch's first record.
    pub fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// All that is known of one producer id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerState {
    pub epoch: i16,
    /// Timestamp of the last batch or marker, in milliseconds; decides expiry.
    pub last_timestamp: i64,
    /// Epoch of the coordinator that wrote the last transaction marker, −1 if none did.
    pub coordinator_epoch: i32,
    /// First offset of the transaction that is open, if one is.
    pub txn_first_offset: Option<i64>,
    /// Oldest first, at most [`BATCHES_REMEMBERED`]. Empty after an epoch that wrote markers only.
    batches: VecDeque<BatchWindow>,
}

impl ProducerState {
    pub(crate) fn restored(
        epoch: i16,
        last_timestamp: i64,
        coordinator_epoch: i32,
        txn_first_offset: Option<i64>,
        batches: VecDeque<BatchWindow>,
    ) -> ProducerState {
        ProducerState { epoch, last_timestamp, coordinator_epoch, txn_first_offset, batches }
    }

    /// The remembered batches, oldest first.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = &BatchWindow> + DoubleEndedIterator {
        self.batches.iter()
    }

    /// Sequence of the newest record, if a batch of this epoch is known.
    pub fn last_sequence(&self) -> Option<i32> {
        self.batches.back().map(|b| b.last_sequence)
    }
}

/// The answer to "may a leader append this batch?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceCheck {
    /// It continues the producer's sequence (or starts one).
    Accept,
    /// It is in the log already; answer with the original once the high watermark covers `last_offset`.
    Duplicate { first_offset: i64, last_offset: i64, timestamp: i64 },
    /// It is older than the batches that are remembered. Whether it is in the log nobody can tell: what is remembered may
    /// have begun in its middle, so it must not be taken for written.
    DuplicateTooOld,
    /// There is a gap before it, or a new epoch that does not start at sequence 0.
    OutOfOrderSequence { expected: i32, found: i32 },
    /// The producer was fenced by a newer epoch.
    InvalidProducerEpoch { current: i16 },
    /// The producer has a transaction open, of which this batch is no part: it is not transactional, or of a newer epoch.
    InvalidTxnState { txn_first_offset: i64 },
    /// As many producers as may be remembered have a transaction open; none can be forgotten for another.
    TooManyTransactions { open: usize },
}

/// Which epoch the marker of a transaction must have (`transaction.version`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerEpochRule {
    /// That of the transaction's batches, or a newer one (versions 0 and 1).
    NotOlder,
    /// A newer one (version 2, KIP-890): each transaction has an epoch of its own, so that a late marker cannot end the
    /// transaction after the one that it was written for.
    Newer,
}

/// The answer to "may a leader append this marker?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerCheck {
    Accept,
    /// It is in the log already, so nothing is left for it to end.
    Repeated,
    /// The producer has written under a newer epoch, or the marker belongs to an earlier transaction.
    InvalidProducerEpoch {
        current: i16,
    },
    /// A newer coordinator has written a marker of this producer.
    CoordinatorFenced {
        current: i32,
    },
}

/// The producers of one log. Bounded: beyond `producers_max` the longest idle ones are forgotten.
#[derive(Debug, Clone)]
pub struct ProducerStates {
    producers: BTreeMap<i64, ProducerState>,
    transactions: Transactions,
    producers_max: usize,
    /// Whether this process has forgotten a producer that may come back.
    has_forgotten: bool,
    /// When producers whose timestamps do not tell were last here, milliseconds of the broker's clock. Not stored.
    seen: BTreeMap<i64, i64>,
    /// The same for those that may have been here before the log was opened.
    opened_ms: i64,
}

impl PartialEq for ProducerStates {
    /// Equal are states that know the same, whatever they have known before.
    fn eq(&self, other: &ProducerStates) -> bool {
        self.producers == other.producers && self.producers_max == other.producers_max
    }
}

impl Eq for ProducerStates {}

impl ProducerStates {
    /// `producers_max` bounds memory: one producer takes about 300 bytes.
    pub fn new(producers_max: usize) -> ProducerStates {
        let producers_max = producers_max.max(1);
        ProducerStates {
            producers: BTreeMap::new(),
            transactions: Transactions::default(),
            producers_max,
            has_forgotten: false,
            seen: BTreeMap::new(),
            opened_ms: i64::MIN,
        }
    }

    /// The log was opened now: since when its producers are idle their timestamps alone do not tell.
    pub fn set_opened(&mut self, now_ms: i64) {
        self.opened_ms = now_ms;
    }

    /// A producer has written a batch with this timestamp now, by the broker's clock. Who copies old records writes old
    /// timestamps, and must not be forgotten for that.
    pub fn note_seen(&mut self, producer_id: i64, timestamp: i64, now_ms: i64) {
        if timestamp.abs_diff(now_ms) < TIMESTAMP_BELIEVED_MS {
            self.seen.remove(&producer_id);
        } else if self.producers.contains_key(&producer_id) {
            self.seen.insert(producer_id, now_ms);
        }
    }

    /// The log was cut, and these are its producers now: when they were here is known from before.
    pub fn take_seen(&mut self, before: &mut ProducerStates) {
        self.seen = std::mem::take(&mut before.seen);
        self.seen.retain(|id, _| self.producers.contains_key(id));
        self.opened_ms = before.opened_ms;
    }

    pub fn len(&self) -> usize {
        self.producers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    pub fn get(&self, producer_id: i64) -> Option<&ProducerState> {
        self.producers.get(&producer_id)
    }

    /// All producers by id.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &ProducerState)> {
        self.producers.iter().map(|(&id, state)| (id, state))
    }

    /// Asks whether a client's batch may be appended now; `log_start` is where the log begins. Changes nothing.
    ///
    /// An unknown producer must begin at sequence 0, unless what it wrote may have been forgotten (then any sequence is
    /// accepted, as Kafka does always). Otherwise a batch that came here while those before it were on their way to an older
    /// leader would open a gap that nothing can close: the earlier ones would then look like repetitions.
    pub fn check_append(&self, batch: &ProducerBatch, log_start: i64) -> SequenceCheck {
        let Some(state) = self.producers.get(&batch.producer_id) else {
            let may_be_forgotten = self.has_forgotten || log_start > 0;
            let open = self.transactions.ongoing();
            return match batch.first_sequence {
                _ if open >= self.producers_max => SequenceCheck::TooManyTransactions { open },
                found if found > 0 && !may_be_forgotten => {
                    SequenceCheck::OutOfOrderSequence { expected: 0, found }
                }
                _ => SequenceCheck::Accept,
            };
        };
        if batch.producer_epoch < state.epoch {
            return SequenceCheck::InvalidProducerEpoch { current: state.epoch };
        }
        let found = batch.first_sequence;
        let newer = batch.producer_epoch > state.epoch;
        // What would be accepted, but for the producer's transaction. Batches of a newer epoch would join the open
        // transaction of an older one, whose marker has not come yet.
        let accept = match state.txn_first_offset {
            Some(txn_first_offset) if newer || !batch.is_transactional => {
                SequenceCheck::InvalidTxnState { txn_first_offset }
            }
            Some(_) | None => SequenceCheck::Accept,
        };
        if newer {
            return match found {
                0 => accept,
                _ => SequenceCheck::OutOfOrderSequence { expected: 0, found },
            };
        }
        let last_sequence = sequence_plus(found, batch.offset_delta);
        if let Some(original) =
            state.batches.iter().find(|b| b.first_sequence() == found && b.last_sequence == last_sequence)
        {
            return SequenceCheck::Duplicate {
                first_offset: original.first_offset(),
                last_offset: original.last_offset,
                timestamp: original.timestamp,
            };
        }
        let Some(newest) = state.batches.back() else {
            // Only markers were written under this epoch: its data start at 0.
            return match found {
                0 => accept,
                _ => SequenceCheck::OutOfOrderSequence { expected: 0, found },
            };
        };
        let expected = sequence_plus(newest.last_sequence, 1);
        if found == expected {
            return accept;
        }
        let oldest = state.batches.front().map_or(expected, BatchWindow::first_sequence);
        if is_before(last_sequence, oldest) && is_before(found, oldest) {
            return SequenceCheck::DuplicateTooOld;
        }
        SequenceCheck::OutOfOrderSequence { expected, found }
    }

    /// Asks whether a coordinator's marker may be appended now. Changes nothing.
    pub fn check_marker(&self, marker: &TransactionMarker, rule: MarkerEpochRule) -> MarkerCheck {
        let Some(state) = self.producers.get(&marker.producer_id) else { return MarkerCheck::Accept };
        let current = state.epoch;
        if marker.producer_epoch < current {
            return MarkerCheck::InvalidProducerEpoch { current };
        }
        if marker.coordinator_epoch < state.coordinator_epoch {
            return MarkerCheck::CoordinatorFenced { current: state.coordinator_epoch };
        }
        match rule {
            MarkerEpochRule::Newer if marker.producer_epoch == current => match state.txn_first_offset {
                Some(_) => MarkerCheck::InvalidProducerEpoch { current },
                None => MarkerCheck::Repeated,
            },
            MarkerEpochRule::Newer | MarkerEpochRule::NotOlder => MarkerCheck::Accept,
        }
    }

    /// Replays a batch of data that is in the log. Batches without a producer id are ignored.
    pub fn append(&mut self, batch: &ProducerBatch) {
        if batch.producer_id < 0 {
            return;
        }
        let state = self.entry(batch.producer_id, batch.producer_epoch, batch.timestamp);
        if state.batches.len() == BATCHES_REMEMBERED {
            state.batches.pop_front();
        }
        state.batches.push_back(BatchWindow {
            last_sequence: sequence_plus(batch.first_sequence, batch.offset_delta),
            last_offset: batch.last_offset,
            offset_delta: batch.offset_delta,
            timestamp: batch.timestamp,
        });
        if batch.is_transactional && state.txn_first_offset.is_none() {
            let first_offset = batch.last_offset - i64::from(batch.offset_delta);
            state.txn_first_offset = Some(first_offset);
            self.transactions.begin(batch.producer_id, first_offset);
        }
    }

    /// Replays a marker that is in the log. Answers with the transaction that it ended, if there was one: a marker may
    /// come twice, and to partitions into which nothing was written.
    pub fn complete(&mut self, marker: &TransactionMarker) -> Option<CompletedTransaction> {
        if marker.producer_id < 0 {
            return None;
        }
        let state = self.entry(marker.producer_id, marker.producer_epoch, marker.timestamp);
        state.coordinator_epoch = marker.coordinator_epoch;
        let first_offset = state.txn_first_offset.take()?;
        let next = self.transactions.complete(marker.producer_id, first_offset, marker.offset);
        Some(CompletedTransaction {
            producer_id: marker.producer_id,
            first_offset,
            last_offset: marker.offset,
            last_stable_offset: next.unwrap_or(marker.offset + 1),
            outcome: marker.outcome,
        })
    }

    /// The producer's state, made if it is unknown, under the epoch and at the time of what it wrote.
    fn entry(&mut self, producer_id: i64, epoch: i16, timestamp: i64) -> &mut ProducerState {
        if !self.producers.contains_key(&producer_id) {
            self.make_room();
        }
        let state = self
            .producers
            .entry(producer_id)
            .or_insert_with(|| ProducerState::restored(epoch, timestamp, -1, None, VecDeque::new()));
        if epoch != state.epoch {
            state.epoch = epoch;
            state.batches.clear();
        }
        state.last_timestamp = timestamp;
        state
    }

    /// The producer has no transaction open after all: its marker, and all that was part of it, are no longer in the log.
    pub fn forget_transaction(&mut self, producer_id: i64) {
        let open = self.producers.get_mut(&producer_id).and_then(|state| state.txn_first_offset.take());
        if let Some(first_offset) = open {
            self.transactions.forget(producer_id, first_offset);
        }
    }

    /// Everything below is decided: the first offset of the oldest transaction that has no marker below the high
    /// watermark, and at most the high watermark itself.
    pub fn last_stable(&self, high_watermark: i64) -> i64 {
        self.transactions.last_stable(high_watermark)
    }

    /// First offset of the oldest transaction without a marker, if there is one.
    pub fn first_ongoing(&self) -> Option<i64> {
        self.transactions.first_ongoing()
    }

    /// Everything below the high watermark stays: what markers there have decided need not be remembered any more.
    pub fn on_high_watermark(&mut self, high_watermark: i64) {
        self.transactions.decide_below(high_watermark);
    }

    /// First offset and marker of transactions whose marker may be above the high watermark, in the order of markers.
    pub(crate) fn undecided(&self) -> impl ExactSizeIterator<Item = (i64, i64)> {
        self.transactions.undecided()
    }

    pub(crate) fn add_undecided(&mut self, first_offset: i64, marker: i64) {
        self.transactions.add_undecided(first_offset, marker);
    }

    /// Forgets producers without an open transaction that wrote nothing for `expiration_ms`
    /// (`producer.id.expiration.ms`), by their timestamps and by the broker's clock. Answers how many.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let before = self.producers.len();
        let (seen, opened_ms) = (&self.seen, self.opened_ms);
        self.producers.retain(|id, s| {
            let here = seen.get(id).copied().unwrap_or(opened_ms).max(s.last_timestamp);
            s.txn_first_offset.is_some() || now_ms.saturating_sub(here) < expiration_ms
        });
        self.seen.retain(|id, _| self.producers.contains_key(id));
        let forgotten = before - self.producers.len();
        self.has_forgotten |= forgotten > 0;
        forgotten
    }

    /// From now on an unknown producer may be one whose batches are gone, wherever the log begins: compaction removes the last one
    /// of a producer that was forgotten, on this copy or on the one that it was copied from.
    pub fn doubt_unknown(&mut self) {
        self.has_forgotten = true;
    }

    /// Takes over what a snapshot says; beyond the bound only producers with an open transaction.
    pub(crate) fn insert(&mut self, producer_id: i64, state: ProducerState) {
        let known = self.producers.get(&producer_id);
        let open = state.txn_first_offset;
        if known.is_none() && open.is_none() && self.producers.len() >= self.producers_max {
            return;
        }
        if let Some(before) = known.and_then(|known| known.txn_first_offset) {
            self.transactions.forget(producer_id, before);
        }
        if let Some(first_offset) = open {
            self.transactions.begin(producer_id, first_offset);
        }
        self.producers.insert(producer_id, state);
    }

    /// At the bound, forgets the longest idle sixteenth at once, so that a flood of new ids costs little per id.
    fn make_room(&mut self) {
        if self.producers.len() < self.producers_max {
            return;
        }
        let mut idle: Vec<(i64, i64)> = self
            .producers
            .iter()
            .filter(|(_, s)| s.txn_first_offset.is_none())
            .map(|(&id, s)| (s.last_timestamp, id))
            .collect();
        idle.sort_unstable();
        self.has_forgotten |= !idle.is_empty();
        for (_, id) in idle.iter().take((self.producers_max / 16).max(1)) {
            self.producers.remove(id);
            self.seen.remove(id);
        }
    }
}

/// Adds within the sequence space 0 ..= 2^31 − 1, which wraps to 0.
pub fn sequence_plus(sequence: i32, increment: i32) -> i32 {
    ((i64::from(sequence) + i64::from(increment)) & i64::from(i32::MAX)) as i32
}

/// Subtracts within the sequence space 0 ..= 2^31 − 1.
pub fn sequence_minus(sequence: i32, decrement: i32) -> i32 {
    ((i64::from(sequence) - i64::from(decrement)) & i64::from(i32::MAX)) as i32
}

/// Whether `a` lies in the half circle of sequences before `b`.
pub fn is_before(a: i32, b: i32) -> bool {
    let distance = sequence_minus(b, a);
    distance != 0 && distance < (1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transactions::TransactionOutcome;
    use proptest::prelude::*;

    fn batch(epoch: i16, first_sequence: i32, records: i32, first_offset: i64) -> ProducerBatch {
        ProducerBatch {
            producer_id: 7,
            producer_epoch: epoch,
            first_sequence,
            offset_delta: records - 1,
            last_offset: first_offset + i64::from(records) - 1,
            timestamp: first_offset,
            is_transactional: false,
        }
    }

    fn marker(epoch: i16, coordinator_epoch: i32, offset: i64) -> TransactionMarker {
        TransactionMarker {
            producer_id: 7,
            producer_epoch: epoch,
            coordinator_epoch,
            outcome: TransactionOutcome::Abort,
            offset,
            timestamp: offset,
        }
    }

    fn states(batches: &[ProducerBatch]) -> ProducerStates {
        let mut states = ProducerStates::new(100);
        for b in batches {
            states.append(b);
        }
        states
    }

    #[test]
    fn a_producer_and_a_new_epoch_start_at_zero_unless_the_beginning_may_be_forgotten() {
        let mut empty = states(&[]);
        assert_eq!(empty.check_append(&batch(0, 0, 1, 0), 0), SequenceCheck::Accept);
        let gap = SequenceCheck::OutOfOrderSequence { expected: 0, found: 41 };
        assert_eq!(empty.check_append(&batch(0, 41, 1, 0), 0), gap);
        assert_eq!(empty.check_append(&batch(0, 41, 1, 5), 5), SequenceCheck::Accept, "retention");
        empty.append(&ProducerBatch { producer_id: 8, ..batch(0, 0, 1, 0) });
        assert_eq!(empty.check_append(&batch(0, 41, 1, 1), 0), gap);
        assert_eq!(empty.expire(100, 10), 1);
        assert_eq!(empty.check_append(&batch(0, 41, 1, 1), 0), SequenceCheck::Accept, "expiry");
        let mut compacted = states(&[]);
        compacted.doubt_unknown();
        assert_eq!(compacted.check_append(&batch(0, 41, 1, 0), 0), SequenceCheck::Accept, "compaction");
        let known = states(&[batch(0, 0, 3, 0)]);
        assert_eq!(known.check_append(&batch(1, 0, 1, 3), 0), SequenceCheck::Accept);
        assert_eq!(
            known.check_append(&batch(1, 3, 1, 3), 0),
            SequenceCheck::OutOfOrderSequence { expected: 0, found: 3 }
        );
    }

    #[test]
    fn duplicates_within_the_window_are_answered_with_the_original() {
        let s = states(&[0, 1, 2, 3, 4, 5].map(|i| batch(0, i * 2, 2, 100 + i64::from(i) * 2)));
        assert_eq!(s.check_append(&batch(0, 0, 2, 112), 0), SequenceCheck::DuplicateTooOld);
        for i in 1..6 {
            let first = 100 + i64::from(i) * 2;
            assert_eq!(
                s.check_append(&batch(0, i * 2, 2, 112), 0),
                SequenceCheck::Duplicate { first_offset: first, last_offset: first + 1, timestamp: first }
            );
        }
        assert_eq!(s.check_append(&batch(0, 12, 2, 112), 0), SequenceCheck::Accept);
        assert_eq!(
            s.check_append(&batch(0, 13, 2, 112), 0),
            SequenceCheck::OutOfOrderSequence { expected: 12, found: 13 }
        );
        // The same first sequence with another length is no duplicate.
        assert_eq!(
            s.check_append(&batch(0, 10, 1, 112), 0),
            SequenceCheck::OutOfOrderSequence { expected: 12, found: 10 }
        );
    }

    #[test]
    fn an_older_epoch_is_fenced_and_a_marker_opens_an_epoch() {
        let mut s = states(&[batch(3, 0, 1, 0)]);
        assert_eq!(s.check_append(&batch(2, 1, 1, 1), 0), SequenceCheck::InvalidProducerEpoch { current: 3 });
        assert_eq!(s.complete(&marker(4, 0, 1)), None);
        assert_eq!(s.check_append(&batch(3, 1, 1, 2), 0), SequenceCheck::InvalidProducerEpoch { current: 4 });
        assert_eq!(
            s.check_append(&batch(4, 1, 1, 2), 0),
            SequenceCheck::OutOfOrderSequence { expected: 0, found: 1 }
        );
        assert_eq!(s.check_append(&batch(4, 0, 1, 2), 0), SequenceCheck::Accept);
    }

    /// T-74.
    #[test]
    fn sequences_wrap() {
        let s = states(&[batch(0, i32::MAX - 1, 4, 10)]);
        assert_eq!(s.get(7).unwrap().last_sequence(), Some(1));
        assert_eq!(s.check_append(&batch(0, 2, 1, 14), 0), SequenceCheck::Accept);
        assert_eq!(
            s.check_append(&batch(0, i32::MAX - 1, 4, 14), 0),
            SequenceCheck::Duplicate { first_offset: 10, last_offset: 13, timestamp: 10 }
        );
        assert_eq!(s.check_append(&batch(0, i32::MAX - 3, 2, 14), 0), SequenceCheck::DuplicateTooOld);
    }

    #[test]
    fn idle_producers_go_at_the_bound_and_at_expiry() {
        let mut s = ProducerStates::new(32);
        for id in 0..33 {
            s.append(&ProducerBatch { producer_id: id, timestamp: id, ..batch(0, 0, 1, id) });
        }
        assert_eq!(s.len(), 31);
        assert!(s.get(0).is_none() && s.get(1).is_none() && s.get(32).is_some());
        assert_eq!(s.expire(40, 10), 29);
        assert_eq!(s.iter().map(|(id, _)| id).collect::<Vec<_>>(), [31, 32]);
    }

    /// A copy of old records (T-67): they are old, their producer is not.
    #[test]
    fn a_producer_of_old_timestamps_is_idle_when_it_is() {
        let mut s = ProducerStates::new(32);
        s.append(&ProducerBatch { timestamp: -1, ..batch(0, 0, 1, 0) });
        s.note_seen(7, -1, 1_000_000);
        s.append(&ProducerBatch { producer_id: 8, timestamp: 999_000, ..batch(0, 0, 1, 1) });
        s.note_seen(8, 999_000, 1_000_000);
        assert_eq!(s.expire(1_000_099, 100), 1, "8 has told the time");
        assert_eq!(
            s.check_append(&batch(0, 0, 1, 2), 0),
            SequenceCheck::Duplicate { first_offset: 0, last_offset: 0, timestamp: -1 }
        );
        let mut after_cut = states(&[ProducerBatch { timestamp: -1, ..batch(0, 0, 1, 0) }]);
        after_cut.take_seen(&mut s);
        assert_eq!(after_cut.expire(1_000_099, 100), 0);
        assert_eq!(after_cut.expire(1_000_100, 100), 1);
        let mut opened = states(&[ProducerBatch { timestamp: -1, ..batch(0, 0, 1, 0) }]);
        opened.set_opened(2_000_000);
        assert_eq!((opened.expire(2_000_099, 100), opened.expire(2_000_100, 100)), (0, 1));
    }

    #[test]
    fn a_transaction_stays_open_until_its_marker() {
        let mut s = states(&[ProducerBatch { is_transactional: true, ..batch(0, 0, 2, 20) }]);
        assert_eq!(s.get(7).unwrap().txn_first_offset, Some(20));
        assert_eq!(s.expire(i64::MAX, 1), 0);
        let ended = s.complete(&marker(0, 3, 22)).unwrap();
        assert_eq!((ended.first_offset, ended.last_offset, ended.last_stable_offset), (20, 22, 23));
        assert_eq!((s.get(7).unwrap().txn_first_offset, s.get(7).unwrap().coordinator_epoch), (None, 3));
        assert_eq!(s.complete(&marker(0, 3, 23)), None, "a repeated marker ends nothing");
        assert_eq!(s.expire(i64::MAX, 1), 1);
    }

    #[test]
    fn the_marker_counts_once_it_is_committed() {
        let in_txn = |id, sequence, first_offset| ProducerBatch {
            producer_id: id,
            is_transactional: true,
            ..batch(0, sequence, 2, first_offset)
        };
        let mut s = states(&[batch(0, 0, 10, 0), in_txn(7, 0, 10), in_txn(8, 0, 12), in_txn(7, 2, 14)]);
        assert_eq!((s.last_stable(9), s.last_stable(16)), (9, 10));
        let ended = s.complete(&marker(0, 0, 16)).unwrap();
        assert_eq!(ended.last_stable_offset, 12, "another transaction is open");
        assert_eq!(s.first_ongoing(), Some(12));
        // The marker itself must be below the high watermark.
        assert_eq!((s.last_stable(16), s.last_stable(17)), (10, 12));
        s.on_high_watermark(17);
        assert_eq!(s.last_stable(17), 12);
        s.complete(&TransactionMarker { producer_id: 8, ..marker(0, 0, 17) });
        assert_eq!((s.last_stable(17), s.last_stable(18)), (12, 18));
    }

    #[test]
    fn a_batch_beside_an_open_transaction_is_refused() {
        let in_txn =
            |epoch, sequence| ProducerBatch { is_transactional: true, ..batch(epoch, sequence, 1, 5) };
        let s = states(&[in_txn(3, 0)]);
        let refused = SequenceCheck::InvalidTxnState { txn_first_offset: 5 };
        assert_eq!(s.check_append(&batch(3, 1, 1, 6), 0), refused, "not transactional");
        assert_eq!(s.check_append(&in_txn(4, 0), 0), refused, "of a newer epoch");
        assert_eq!(s.check_append(&in_txn(3, 1), 0), SequenceCheck::Accept);
        assert_eq!(s.check_append(&in_txn(2, 1), 0), SequenceCheck::InvalidProducerEpoch { current: 3 });
        assert!(matches!(s.check_append(&batch(3, 0, 1, 6), 0), SequenceCheck::Duplicate { .. }));
    }

    #[test]
    fn open_transactions_fill_the_room_for_producers() {
        let mut s = ProducerStates::new(2);
        for id in 0..2 {
            s.append(&ProducerBatch { producer_id: id, is_transactional: true, ..batch(0, 0, 1, id) });
        }
        assert_eq!(s.check_append(&batch(0, 0, 1, 2), 0), SequenceCheck::TooManyTransactions { open: 2 });
        // What is in the log counts all the same, and no open transaction is forgotten for it.
        s.append(&batch(0, 0, 1, 2));
        assert_eq!((s.len(), s.first_ongoing()), (3, Some(0)));
    }

    #[test]
    fn markers_of_older_epochs_are_refused() {
        use MarkerEpochRule::{Newer, NotOlder};
        let mut s = states(&[ProducerBatch { is_transactional: true, ..batch(5, 0, 1, 0) }]);
        assert_eq!(
            s.check_marker(&TransactionMarker { producer_id: 1, ..marker(0, 0, 1) }, Newer),
            MarkerCheck::Accept
        );
        let fenced = MarkerCheck::InvalidProducerEpoch { current: 5 };
        assert_eq!([NotOlder, Newer].map(|rule| s.check_marker(&marker(4, 9, 1), rule)), [fenced, fenced]);
        assert_eq!(s.check_marker(&marker(5, 9, 1), NotOlder), MarkerCheck::Accept);
        // The marker of an earlier transaction must not end the present one.
        assert_eq!(s.check_marker(&marker(5, 9, 1), Newer), fenced);
        assert_eq!(s.check_marker(&marker(6, 9, 1), Newer), MarkerCheck::Accept);
        s.complete(&marker(6, 9, 1));
        assert_eq!(s.check_marker(&marker(6, 9, 2), Newer), MarkerCheck::Repeated);
        assert_eq!(s.check_marker(&marker(6, 9, 2), NotOlder), MarkerCheck::Accept);
        for rule in [NotOlder, Newer] {
            assert_eq!(s.check_marker(&marker(7, 8, 2), rule), MarkerCheck::CoordinatorFenced { current: 9 });
        }
    }

    proptest! {
        /// A producer with retries against a model that keeps every batch: what is accepted is exactly the next
        /// sequence, and a duplicate is always answered with the offsets of its original.
        #[test]
        fn accepted_batches_have_no_gap_and_no_repetition(
            start in prop_oneof![Just(0), (i32::MAX - 50)..=i32::MAX],
            attempts in prop::collection::vec((0usize..9, 1i32..5), 1..60),
        ) {
            let mut s = ProducerStates::new(10);
            let mut log: Vec<ProducerBatch> = Vec::new();
            for (back, records) in attempts {
                let end = log.last().map_or(0, |b| b.last_offset + 1);
                let next = log.last().map_or(start, |b| sequence_plus(b.first_sequence, b.offset_delta + 1));
                let attempt = match log.len().checked_sub(back).and_then(|i| log.get(i)) {
                    Some(old) => ProducerBatch { last_offset: end + i64::from(old.offset_delta), ..*old },
                    None => batch(0, next, records, end),
                };
                match s.check_append(&attempt, i64::from(start)) {
                    SequenceCheck::Accept => {
                        prop_assert_eq!(attempt.first_sequence, next);
                        s.append(&attempt);
                        log.push(attempt);
                    }
                    SequenceCheck::Duplicate { first_offset, last_offset, .. } => {
                        prop_assert!(back <= BATCHES_REMEMBERED);
                        let original = &log[log.len() - back];
                        prop_assert_eq!(last_offset, original.last_offset);
                        prop_assert_eq!(last_offset - first_offset, i64::from(original.offset_delta));
                    }
                    SequenceCheck::DuplicateTooOld => prop_assert!(back > BATCHES_REMEMBERED),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
    }
}
