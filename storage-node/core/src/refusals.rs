//! Idempotent producers whose batch was refused for now, and what comes behind it.
//!
//! A client has several batches of a partition under way. If the first is refused because of something that passes (no room, too
//! few in sync, no leader yet), and it passes before the second is looked at, then the second leaves a gap. But
//! OUT_OF_ORDER_SEQUENCE_NUMBER tells a client that the log has lost records: librdkafka answers it with a new epoch for all of
//! its partitions, under which it sends everything again that is not acknowledged, also what is in other logs and only waits to
//! be committed. That makes duplicates. So what comes behind a refused batch is refused for now like it, until the client has sent
//! the refused one again.

use std::collections::BTreeMap;

use log_engine_core::ProducerStates;
use log_engine_core::producers::{is_before, sequence_plus};
use proto_types::ids::Millis;

use crate::action::ProduceError;
use crate::input::ProducerStamp;

/// So long a client may take to learn of a refusal, and to send the batch again. A node that stands still counts in.
const REMEMBERED_MS: i64 = 60_000;
/// So many producers with a refused batch are remembered per partition; the longest refused one is forgotten for another.
const PRODUCERS_MAX: usize = 1_024;
/// So long after a copy was opened, batches may come behind those that were refused because there was no copy yet.
const OPENING_MS: i64 = 5_000;

/// The first batch of a producer that was refused, and is not in the log yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused {
    producer_epoch: i16,
    base_sequence: i32,
    at: Millis,
}

/// What the log knows of where a producer is to go on.
enum Next {
    /// Nothing: it may never have been here.
    Unknown,
    Sequence(i32),
    /// There is a newer instance of it.
    Fenced,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    producers: BTreeMap<i64, Refused>,
    opened: Option<Opened>,
}

/// When the copy was opened, and whether it had records already: else its producers have all been here since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Opened {
    at: Millis,
    had_records: bool,
}

impl Refusals {
    /// The copy is open, at the first call for the first time.
    pub(crate) fn begin(&mut self, now: Millis, had_records: bool) {
        self.opened.get_or_insert(Opened { at: now, had_records });
    }

    /// Whether a batch comes behind one that was refused and has not come again.
    pub(crate) fn is_behind(
        &self,
        now: Millis,
        producers: &ProducerStates,
        producer: Option<ProducerStamp>,
    ) -> bool {
        let Some(stamp) = producer else { return false };
        let Some(refused) = self.producers.get(&stamp.producer_id) else { return false };
        refused.producer_epoch == stamp.producer_epoch
            && now.0.saturating_sub(refused.at.0) < REMEMBERED_MS
            && refused.is_missing(&Next::of(producers, stamp))
            && is_before(refused.base_sequence, stamp.base_sequence)
    }

    /// A batch is refused. Answers what its producer is told, and remembers what it is to send again.
    pub(crate) fn refused(
        &mut self,
        now: Millis,
        producers: &ProducerStates,
        producer: Option<ProducerStamp>,
        error: ProduceError,
    ) -> ProduceError {
        let Some(stamp) = producer else { return error };
        let next = Next::of(producers, stamp);
        if matches!(error, ProduceError::OutOfOrderSequence { .. }) {
            let is_young = self.opened.is_some_and(|opened| {
                now.0.saturating_sub(opened.at.0) < OPENING_MS
                    && (opened.had_records || matches!(next, Next::Unknown))
            });
            return if is_young { ProduceError::BehindRefused } else { error };
        }
        if error.is_passing_refusal() {
            self.remember(now, stamp, &next);
        }
        error
    }

    /// A batch is about to be appended, or is in the log already.
    pub(crate) fn passed(&mut self, producer: Option<ProducerStamp>) {
        if let Some(stamp) = producer
            && let Some(refused) = self.producers.get(&stamp.producer_id)
            && refused.producer_epoch <= stamp.producer_epoch
            && !is_before(stamp.base_sequence, refused.base_sequence)
        {
            self.producers.remove(&stamp.producer_id);
        }
    }

    fn remember(&mut self, now: Millis, stamp: ProducerStamp, next: &Next) {
        let ProducerStamp { producer_id, producer_epoch, base_sequence, is_transactional: _ } = stamp;
        let new = Refused { producer_epoch, base_sequence, at: now };
        // A repetition of what is in the log leaves no gap.
        if !new.is_missing(next) {
            return;
        }
        let before = self.producers.get(&producer_id).filter(|before| before.is_missing(next));
        let first = match before {
            Some(before) if before.producer_epoch > producer_epoch => return,
            Some(before)
                if before.producer_epoch == producer_epoch
                    && is_before(before.base_sequence, base_sequence) =>
            {
                before.base_sequence
            }
            Some(_) | None => base_sequence,
        };
        if self.producers.len() >= PRODUCERS_MAX && !self.producers.contains_key(&producer_id) {
            let longest = self.producers.iter().min_by_key(|(_, refused)| refused.at).map(|(&id, _)| id);
            longest.map(|id| self.producers.remove(&id));
        }
        self.producers.insert(producer_id, Refused { base_sequence: first, ..new });
    }
}

impl Refused {
    fn is_missing(&self, next: &Next) -> bool {
        match next {
            Next::Unknown => true,
            Next::Sequence(next) => !is_before(self.base_sequence, *next),
            Next::Fenced => false,
        }
    }
}

impl Next {
    fn of(producers: &ProducerStates, stamp: ProducerStamp) -> Self {
        match producers.get(stamp.producer_id) {
            None => Next::Unknown,
            Some(state) if state.epoch > stamp.producer_epoch => Next::Fenced,
            Some(state) if state.epoch < stamp.producer_epoch => Next::Sequence(0),
            Some(state) => Next::Sequence(state.last_sequence().map_or(0, |last| sequence_plus(last, 1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log_engine_core::ProducerBatch;

    const FULL: ProduceError = ProduceError::DiskFull;

    fn stamp(producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Option<ProducerStamp> {
        Some(ProducerStamp { producer_id, producer_epoch, base_sequence, is_transactional: false })
    }

    /// Producer 7 has written sequences 0 to 9 under epoch 1.
    fn known() -> ProducerStates {
        let mut producers = ProducerStates::new(10);
        producers.append(&ProducerBatch {
            producer_id: 7,
            producer_epoch: 1,
            first_sequence: 0,
            offset_delta: 9,
            last_offset: 9,
            timestamp: 0,
            is_transactional: false,
        });
        producers
    }

    #[test]
    fn what_comes_behind_a_refused_batch_is_refused_like_it() {
        let (mut refusals, producers) = (Refusals::default(), known());
        assert!(!refusals.is_behind(Millis(0), &producers, stamp(7, 1, 15)));
        assert_eq!(refusals.refused(Millis(0), &producers, stamp(7, 1, 10), FULL), FULL);
        let behind = |refusals: &Refusals, now, epoch, sequence| {
            refusals.is_behind(Millis(now), &producers, stamp(7, epoch, sequence))
        };
        assert!(behind(&refusals, 1, 1, 15));
        assert!(!behind(&refusals, 1, 1, 10), "itself, once more");
        assert!(!behind(&refusals, 1, 1, 5), "a repetition");
        assert!(!behind(&refusals, 1, 2, 15), "a gap under another epoch");
        assert!(!refusals.is_behind(Millis(1), &producers, stamp(8, 1, 15)), "another producer");
        // The second is refused too, and for another reason: still the first one is missing.
        let few = ProduceError::NotEnoughReplicas { in_sync: 1, needed: 2 };
        refusals.refused(Millis(2), &producers, stamp(7, 1, 15), few);
        assert!(behind(&refusals, 3, 1, 15));
        assert!(!behind(&refusals, 2 + REMEMBERED_MS, 1, 15), "it is not coming again");
        refusals.passed(stamp(7, 1, 10));
        assert!(!behind(&refusals, 3, 1, 20));
    }

    #[test]
    fn a_refused_repetition_hides_no_refused_batch() {
        let (mut refusals, producers) = (Refusals::default(), known());
        refusals.refused(Millis(0), &producers, stamp(7, 1, 0), FULL);
        assert!(refusals.producers.is_empty());
        refusals.refused(Millis(0), &producers, stamp(7, 1, 10), FULL);
        assert!(refusals.is_behind(Millis(1), &producers, stamp(7, 1, 15)));
        // It came into the log by way of another leader.
        let mut producers = producers;
        producers.append(&ProducerBatch {
            producer_id: 7,
            producer_epoch: 1,
            first_sequence: 10,
            offset_delta: 4,
            last_offset: 14,
            timestamp: 0,
            is_transactional: false,
        });
        assert!(!refusals.is_behind(Millis(1), &producers, stamp(7, 1, 20)), "a gap like any other");
    }

    #[test]
    fn the_sequence_may_begin_anew_in_between() {
        let (mut refusals, producers) = (Refusals::default(), ProducerStates::new(10));
        refusals.refused(Millis(0), &producers, stamp(7, 0, i32::MAX - 1), FULL);
        refusals.refused(Millis(0), &producers, stamp(7, 0, 3), FULL);
        assert!(refusals.is_behind(Millis(1), &producers, stamp(7, 0, 3)));
        assert!(!refusals.is_behind(Millis(1), &producers, stamp(7, 0, i32::MAX - 1)));
    }

    #[test]
    fn final_refusals_are_not_remembered_and_an_old_instance_is_fenced() {
        let (mut refusals, producers) = (Refusals::default(), known());
        for error in [ProduceError::DuplicateTooOld, ProduceError::InvalidProducerEpoch { current: 1 }] {
            assert_eq!(refusals.refused(Millis(0), &producers, stamp(7, 1, 10), error), error);
        }
        refusals.refused(Millis(0), &producers, stamp(7, 0, 10), FULL);
        assert!(refusals.producers.is_empty());
    }

    #[test]
    fn nobody_was_refused_by_a_copy_that_was_not_there() {
        let (mut refusals, producers) = (Refusals::default(), known());
        let gap = ProduceError::OutOfOrderSequence { expected: 0, found: 5 };
        refusals.begin(Millis(100), true);
        refusals.begin(Millis(200), true);
        let told = refusals.refused(Millis(101), &producers, stamp(8, 0, 5), gap);
        assert_eq!(told, ProduceError::BehindRefused);
        // One that the log knows may have been refused while the log was closed for a while.
        let told = refusals.refused(Millis(101), &producers, stamp(7, 1, 15), gap);
        assert_eq!(told, ProduceError::BehindRefused);
        assert_eq!(refusals.refused(Millis(100 + OPENING_MS), &producers, stamp(7, 1, 15), gap), gap);
        assert_eq!(refusals.refused(Millis(100 + OPENING_MS), &producers, stamp(8, 0, 5), gap), gap);
        let mut refusals = Refusals::default();
        refusals.begin(Millis(100), false);
        assert_eq!(
            refusals.refused(Millis(101), &producers, stamp(8, 0, 5), gap),
            ProduceError::BehindRefused
        );
        assert_eq!(refusals.refused(Millis(101), &producers, stamp(7, 1, 15), gap), gap, "it has been here");
    }

    #[test]
    fn the_longest_refused_is_forgotten_first() {
        let (mut refusals, producers) = (Refusals::default(), ProducerStates::new(10));
        for producer_id in 0..=PRODUCERS_MAX as i64 {
            refusals.refused(Millis(producer_id), &producers, stamp(producer_id, 0, 0), FULL);
        }
        assert_eq!(refusals.producers.len(), PRODUCERS_MAX);
        let now = Millis(PRODUCERS_MAX as i64);
        assert!(!refusals.is_behind(now, &producers, stamp(0, 0, 5)));
        assert!(refusals.is_behind(now, &producers, stamp(1, 0, 5)));
    }
}
