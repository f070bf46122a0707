//! Transactions as a log knows them: which are open, which are decided but not for certain yet, which were aborted.
//!
//! A transaction of a producer begins in a partition with its first batch and ends with a *marker*, a control record that
//! the transaction's coordinator wrote (KIP-98). The marker decides it, but only once the marker itself is committed: a
//! marker above the high watermark may still be cut away. So the last stable offset, below which read-committed
//! consumers may read, is the first offset of the oldest transaction that has no marker below the high watermark.
//!
//! What was aborted is kept beside the log in Kafka's transaction index, [`AbortedTransaction::encode`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionOutcome {
    Abort,
    Commit,
}

/// A marker that is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionMarker {
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// Epoch of the coordinator that wrote it.
    pub coordinator_epoch: i32,
    pub outcome: TransactionOutcome,
    pub offset: i64,
    /// Milliseconds.
    pub timestamp: i64,
}

/// A transaction that its marker has ended, if it had written anything here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    /// Offset of the marker.
    pub last_offset: i64,
    /// First offset of the oldest transaction that was open after this one, or the offset after the marker.
    pub last_stable_offset: i64,
    pub outcome: TransactionOutcome,
}

impl CompletedTransaction {
    /// What the transaction index says of it; nothing of committed ones.
    pub fn aborted(&self) -> Option<AbortedTransaction> {
        match self.outcome {
            TransactionOutcome::Commit => None,
            TransactionOutcome::Abort => Some(AbortedTransaction {
                producer_id: self.producer_id,
                first_offset: self.first_offset,
                last_offset: self.last_offset,
                last_stable_offset: self.last_stable_offset,
            }),
        }
    }
}

/// One entry of a transaction index: the records of `producer_id` from `first_offset` on, up to the marker at
/// `last_offset`, are not to be shown to read-committed consumers. Entries stand in the order of their markers, and in
/// that order `last_stable_offset` never falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub last_stable_offset: i64,
}

/// Version of an entry's bytes.
const ENTRY_VERSION: i16 = 0;

impl AbortedTransaction {
    /// Size of an entry in the index file.
    pub const BYTES: usize = 34;

    /// Kafka's bytes: version, producer id, first, last and last stable offset, big-endian.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&ENTRY_VERSION.to_be_bytes());
        let fields = [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset];
        for (field, at) in fields.iter().zip((2..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// Reads an entry; `None` if no such one can have been written.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<AbortedTransaction> {
        let field = |at: usize| i64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let entry = AbortedTransaction {
            producer_id: field(2),
            first_offset: field(10),
            last_offset: field(18),
            last_stable_offset: field(26),
        };
        let plausible = bytes[..2] == ENTRY_VERSION.to_be_bytes()
            && entry.producer_id >= 0
            && (0..entry.last_offset).contains(&entry.first_offset)
            && (0..=entry.last_offset + 1).contains(&entry.last_stable_offset);
        plausible.then_some(entry)
    }
}

/// A checksum over the entries of one transaction index, which has none itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AbortedDigest {
    pub count: u32,
    /// CRC-32C of the digest so far and the next entry, again and again.
    pub chain: u32,
}

impl AbortedDigest {
    /// The digest with one more entry.
    #[must_use]
    pub fn and(self, entry: &AbortedTransaction) -> AbortedDigest {
        let mut bytes = [0; 4 + AbortedTransaction::BYTES];
        bytes[..4].copy_from_slice(&self.chain.to_be_bytes());
        bytes[4..].copy_from_slice(&entry.encode());
        let chain = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32;
        AbortedDigest { count: self.count + 1, chain }
    }
}

/// What a producer snapshot says of the transaction index of the segment that holds the batch before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AbortedIndex {
    /// Nothing: Kafka wrote it.
    #[default]
    Unknown,
    /// The segment has no aborted transaction up to there.
    Empty,
    /// The segment that begins at `base_offset` has these, up to there.
    Of { base_offset: i64, digest: AbortedDigest },
}

impl AbortedIndex {
    /// What is known of the index of the segment that begins at `base_offset`.
    pub fn digest_of(&self, base_offset: i64) -> Option<AbortedDigest> {
        match *self {
            AbortedIndex::Unknown => None,
            AbortedIndex::Empty => Some(AbortedDigest::default()),
            AbortedIndex::Of { base_offset: of, digest } => (of == base_offset).then_some(digest),
        }
    }
}

/// The transactions of one log that matter for its last stable offset.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transactions {
    /// First offset and producer of those without a marker.
    ongoing: BTreeSet<(i64, i64)>,
    /// First offset → offset of the marker, of those whose marker may be above the high watermark.
    undecided: BTreeMap<i64, i64>,
    /// The same as marker and first offset, in the order of the markers.
    by_marker: VecDeque<(i64, i64)>,
}

impl Transactions {
    pub(crate) fn begin(&mut self, producer_id: i64, first_offset: i64) {
        self.ongoing.insert((first_offset, producer_id));
    }

    pub(crate) fn forget(&mut self, producer_id: i64, first_offset: i64) {
        self.ongoing.remove(&(first_offset, producer_id));
    }

    /// A marker came. The first offset of the oldest transaction that is open now, if one is.
    pub(crate) fn complete(&mut self, producer_id: i64, first_offset: i64, marker: i64) -> Option<i64> {
        self.forget(producer_id, first_offset);
        self.add_undecided(first_offset, marker);
        self.first_ongoing()
    }

    pub(crate) fn add_undecided(&mut self, first_offset: i64, marker: i64) {
        self.undecided.insert(first_offset, marker);
        self.by_marker.push_back((marker, first_offset));
    }

    /// First offset and marker of those whose marker may be above the high watermark, in the order of the markers.
    pub(crate) fn undecided(&self) -> impl ExactSizeIterator<Item = (i64, i64)> {
        self.by_marker.iter().map(|&(marker, first)| (first, marker))
    }

    pub(crate) fn ongoing(&self) -> usize {
        self.ongoing.len()
    }

    pub(crate) fn first_ongoing(&self) -> Option<i64> {
        self.ongoing.first().map(|&(first, _)| first)
    }

    /// See [`crate::ProducerStates::last_stable`]. Cheap, if everything decided was dropped at the last high watermark.
    pub(crate) fn last_stable(&self, high_watermark: i64) -> i64 {
        let undecided = self.undecided.iter().find(|&(_, &marker)| marker >= high_watermark);
        let undecided = undecided.map_or(high_watermark, |(&first, _)| first);
        self.first_ongoing().map_or(undecided, |ongoing| ongoing.min(undecided)).min(high_watermark)
    }

    /// Drops those whose marker is committed.
    pub(crate) fn decide_below(&mut self, high_watermark: i64) {
        while let Some(&(marker, first)) = self.by_marker.front()
            && marker < high_watermark
        {
            self.by_marker.pop_front();
            // A batch that reaches back before a new log's start may have begun two transactions in turn.
            if self.undecided.get(&first) == Some(&marker) {
                self.undecided.remove(&first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_are_kafkas_bytes() {
        let entry = AbortedTransaction {
            producer_id: 0x0102_0304_0506_0708,
            first_offset: 16,
            last_offset: 32,
            last_stable_offset: 33,
        };
        let bytes = entry.encode();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let expected = "0000".to_owned()
            + "0102030405060708"
            + "0000000000000010"
            + "0000000000000020"
            + "0000000000000021";
        assert_eq!(hex, expected);
        assert_eq!(AbortedTransaction::decode(&bytes), Some(entry));
        for (at, value) in [(1, 1), (2, 0x80), (10, 0x80), (17, 32), (18, 0x80), (33, 34)] {
            let mut damaged = bytes;
            damaged[at] = value;
            assert_eq!(AbortedTransaction::decode(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn a_digest_knows_every_entry_and_their_order() {
        let entry = |id| AbortedTransaction {
            producer_id: id,
            first_offset: 1,
            last_offset: 2,
            last_stable_offset: 3,
        };
        let of = |ids: &[i64]| ids.iter().fold(AbortedDigest::default(), |d, &id| d.and(&entry(id)));
        assert_eq!(of(&[1, 2]), of(&[1, 2]));
        for other in [&[][..], &[1], &[2, 1], &[1, 3], &[1, 2, 2]] {
            assert_ne!(of(&[1, 2]), of(other));
        }
    }

    /// One transaction of the model: first offset, and marker if it has one.
    fn model(all: &[(i64, i64, Option<i64>)], high_watermark: i64) -> i64 {
        let undecided = all.iter().filter(|(_, _, marker)| marker.is_none_or(|m| m >= high_watermark));
        undecided.map(|&(_, first, _)| first).min().map_or(high_watermark, |first| first.min(high_watermark))
    }

    proptest! {
        /// Begins, markers and a rising high watermark against a model that keeps every transaction.
        #[test]
        fn the_last_stable_offset_is_the_models(steps in prop::collection::vec((0u8..3, 0i64..6, 1i64..4), 1..80)) {
            let mut transactions = Transactions::default();
            let mut all: Vec<(i64, i64, Option<i64>)> = Vec::new();
            let (mut end, mut high_watermark, mut last_stable) = (0, 0, 0);
            for (what, producer, count) in steps {
                let open = all.iter().position(|&(p, _, marker)| p == producer && marker.is_none());
                match (what, open) {
                    (0, None) => {
                        transactions.begin(producer, end);
                        all.push((producer, end, None));
                        end += count;
                    }
                    (0, Some(_)) => end += count,
                    (1, Some(open)) => {
                        let first = all[open].1;
                        all[open].2 = Some(end);
                        let next = transactions.complete(producer, first, end);
                        let oldest = all.iter().filter(|t| t.2.is_none()).map(|t| t.1).min();
                        prop_assert_eq!(next, oldest);
                        end += 1;
                    }
                    _ => {
                        high_watermark = end.min(high_watermark + count);
                        prop_assert_eq!(transactions.last_stable(high_watermark), model(&all, high_watermark));
                        transactions.decide_below(high_watermark);
                    }
                }
                let now = transactions.last_stable(high_watermark);
                prop_assert_eq!(now, model(&all, high_watermark));
                prop_assert!(now >= last_stable && now <= high_watermark);
                last_stable = now;
                prop_assert_eq!(transactions.by_marker.len(), transactions.undecided.len());
            }
        }
    }
}
