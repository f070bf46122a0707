//! What the log remembers of each idempotent producer (KIP-98, KIP-360).
//!
//! For every producer id: its epoch and its last five batches. [`ProducerStates::check_append`] asks whether a
//! leader may append a batch; [`ProducerStates::append`] replays a batch that *is* in the log and therefore cannot
//! fail. The two never share state: recovery and followers only replay.

use std::collections::{BTreeMap, VecDeque};

/// Batches remembered per producer: Kafka's number, and the most that a client keeps in flight per connection.
pub const BATCHES_REMEMBERED: usize = 5;

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
    pub is_control: bool,
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
}

/// The producers of one log. Bounded: beyond `producers_max` the longest idle ones are forgotten.
#[derive(Debug, Clone)]
pub struct ProducerStates {
    producers: BTreeMap<i64, ProducerState>,
    producers_max: usize,
    /// Whether this process has forgotten a producer that may come back.
    has_forgotten: bool,
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
        ProducerStates { producers: BTreeMap::new(), producers_max, has_forgotten: false }
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
            return match batch.first_sequence {
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
        if batch.producer_epoch > state.epoch {
            return match found {
                0 => SequenceCheck::Accept,
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
                0 => SequenceCheck::Accept,
                _ => SequenceCheck::OutOfOrderSequence { expected: 0, found },
            };
        };
        let expected = sequence_plus(newest.last_sequence, 1);
        if found == expected {
            return SequenceCheck::Accept;
        }
        let oldest = state.batches.front().map_or(expected, BatchWindow::first_sequence);
        if is_before(last_sequence, oldest) && is_before(found, oldest) {
            return SequenceCheck::DuplicateTooOld;
        }
        SequenceCheck::OutOfOrderSequence { expected, found }
    }

    /// Replays a batch that is in the log. Batches without a producer id are ignored.
    pub fn append(&mut self, batch: &ProducerBatch) {
        if batch.producer_id < 0 {
            return;
        }
        if !self.producers.contains_key(&batch.producer_id) {
            self.make_room();
        }
        let state = self.producers.entry(batch.producer_id).or_insert_with(|| {
            ProducerState::restored(batch.producer_epoch, batch.timestamp, -1, None, VecDeque::new())
        });
        if batch.producer_epoch != state.epoch {
            state.epoch = batch.producer_epoch;
            state.batches.clear();
        }
        state.last_timestamp = batch.timestamp;
        if batch.is_control {
            state.txn_first_offset = None;
            return;
        }
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
            state.txn_first_offset = Some(batch.last_offset - i64::from(batch.offset_delta));
        }
    }

    /// Forgets producers without an open transaction that wrote nothing for `expiration_ms`
    /// (`producer.id.expiration.ms`). Answers how many.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let before = self.producers.len();
        self.producers.retain(|_, s| {
            s.txn_first_offset.is_some() || now_ms.saturating_sub(s.last_timestamp) < expiration_ms
        });
        let forgotten = before - self.producers.len();
        self.has_forgotten |= forgotten > 0;
        forgotten
    }

    pub(crate) fn insert(&mut self, producer_id: i64, state: ProducerState) {
        if self.producers.len() < self.producers_max || self.producers.contains_key(&producer_id) {
            self.producers.insert(producer_id, state);
        }
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
fn is_before(a: i32, b: i32) -> bool {
    let distance = sequence_minus(b, a);
    distance != 0 && distance < (1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;
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
            is_control: false,
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
        s.append(&ProducerBatch { is_control: true, ..batch(4, -1, 1, 1) });
        assert_eq!(s.check_append(&batch(3, 1, 1, 2), 0), SequenceCheck::InvalidProducerEpoch { current: 4 });
        assert_eq!(
            s.check_append(&batch(4, 1, 1, 2), 0),
            SequenceCheck::OutOfOrderSequence { expected: 0, found: 1 }
        );
        assert_eq!(s.check_append(&batch(4, 0, 1, 2), 0), SequenceCheck::Accept);
    }

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

    #[test]
    fn a_transaction_stays_open_until_its_marker() {
        let mut s = states(&[ProducerBatch { is_transactional: true, ..batch(0, 0, 2, 20) }]);
        assert_eq!(s.get(7).unwrap().txn_first_offset, Some(20));
        assert_eq!(s.expire(i64::MAX, 1), 0);
        s.append(&ProducerBatch { is_control: true, is_transactional: true, ..batch(0, -1, 1, 22) });
        assert_eq!(s.get(7).unwrap().txn_first_offset, None);
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
