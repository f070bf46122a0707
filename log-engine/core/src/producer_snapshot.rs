//! The bytes of a producer snapshot (`<offset>.snapshot`): the producers as of that offset.
//!
//! The front is Kafka's snapshot format, version 1: `i16` version, `u32` CRC-32C of all that follows, then an array
//! with the *newest* batch of each producer. Kafka's readers stop there. Behind it Weir writes a trailer with the
//! older batches of each producer's window, so that a restart forgets none of the five; the CRC covers it too, and a
//! snapshot without a trailer (one that Kafka wrote) is read as well.
//!
//! The trailer also tells what Kafka's format has no place for: a checksum of the transaction index of the segment
//! that ends there, and transactions whose marker was not committed yet. Without either it is of version 1.
//!
//! ```text
//! version i16 = 1 | crc u32 | n i32 | n × { id i64, epoch i16, last sequence i32, last offset i64, offset delta i32,
//!                                           timestamp i64, coordinator epoch i32, transaction first offset i64 }
//! "WEIR" | version u16 = 1 or 2 | n i32 | n × { id i64, batches u8, batches × { last sequence, last offset,
//!                                               offset delta, timestamp } }
//! version 2: base offset of the segment i64 (−1: nothing is known of it), aborted transactions u32, chain u32
//!            | n i32 | n × { first offset i64, marker offset i64 }                  (everything big-endian)
//! ```

use std::collections::VecDeque;

use crate::producers::{BATCHES_REMEMBERED, BatchWindow, ProducerState, ProducerStates};
use crate::transactions::{AbortedDigest, AbortedIndex};

const VERSION: i16 = 1;
const ENTRIES_AT: usize = 6;
const TRAILER_MAGIC: &[u8; 4] = b"WEIR";
const TRAILER_VERSION: u16 = 1;
const TRAILER_VERSION_TRANSACTIONS: u16 = 2;
/// Base offset of no segment.
const NO_SEGMENT: i64 = -1;
const NO_SEQUENCE: i32 = -1;

/// Why the bytes of a snapshot are refused; the caller falls back to an older one or to the log itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("producer snapshot is damaged: {0}")]
pub struct SnapshotError(pub &'static str);

/// Writes the state of all producers, and what is known of the transaction index of the segment that ends here.
pub fn encode(states: &ProducerStates, aborted: AbortedIndex) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + states.len() * 150);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(states.len() as i32).to_be_bytes());
    for (id, state) in states.iter() {
        let newest = state.batches().next_back().copied();
        let newest = newest.unwrap_or(BatchWindow {
            last_sequence: NO_SEQUENCE,
            last_offset: -1,
            offset_delta: 0,
            timestamp: state.last_timestamp,
        });
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&state.epoch.to_be_bytes());
        out.extend_from_slice(&newest.last_sequence.to_be_bytes());
        out.extend_from_slice(&newest.last_offset.to_be_bytes());
        out.extend_from_slice(&newest.offset_delta.to_be_bytes());
        out.extend_from_slice(&state.last_timestamp.to_be_bytes());
        out.extend_from_slice(&state.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&state.txn_first_offset.unwrap_or(-1).to_be_bytes());
    }
    let with_transactions = states.undecided().len() > 0 || aborted != AbortedIndex::Empty;
    let version = if with_transactions { TRAILER_VERSION_TRANSACTIONS } else { TRAILER_VERSION };
    out.extend_from_slice(TRAILER_MAGIC);
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&(states.len() as i32).to_be_bytes());
    for (id, state) in states.iter() {
        out.extend_from_slice(&id.to_be_bytes());
        out.push(state.batches().len() as u8);
        for batch in state.batches() {
            out.extend_from_slice(&batch.last_sequence.to_be_bytes());
            out.extend_from_slice(&batch.last_offset.to_be_bytes());
            out.extend_from_slice(&batch.offset_delta.to_be_bytes());
            out.extend_from_slice(&batch.timestamp.to_be_bytes());
        }
    }
    if with_transactions {
        encode_transactions(states, aborted, &mut out);
    }
    let crc = crc32c(&out[ENTRIES_AT..]);
    out[2..6].copy_from_slice(&crc.to_be_bytes());
    out
}

fn encode_transactions(states: &ProducerStates, aborted: AbortedIndex, out: &mut Vec<u8>) {
    let (base_offset, digest) = match aborted {
        AbortedIndex::Unknown => (NO_SEGMENT, AbortedDigest::default()),
        // No entries are none, of whichever segment.
        AbortedIndex::Empty => (0, AbortedDigest::default()),
        AbortedIndex::Of { base_offset, digest } => (base_offset, digest),
    };
    out.extend_from_slice(&base_offset.to_be_bytes());
    out.extend_from_slice(&digest.count.to_be_bytes());
    out.extend_from_slice(&digest.chain.to_be_bytes());
    out.extend_from_slice(&(states.undecided().len() as i32).to_be_bytes());
    for (first_offset, marker) in states.undecided() {
        out.extend_from_slice(&first_offset.to_be_bytes());
        out.extend_from_slice(&marker.to_be_bytes());
    }
}

fn decode_transactions(
    cursor: &mut Cursor<'_>,
    states: &mut ProducerStates,
) -> Result<AbortedIndex, SnapshotError> {
    let base_offset = i64::from_be_bytes(cursor.take()?);
    let count = u32::from_be_bytes(cursor.take()?);
    let chain = u32::from_be_bytes(cursor.take()?);
    let undecided = i32::from_be_bytes(cursor.take()?);
    for _ in 0..undecided {
        let first_offset = i64::from_be_bytes(cursor.take()?);
        let marker = i64::from_be_bytes(cursor.take()?);
        states.add_undecided(first_offset, marker);
    }
    Ok(match (base_offset, count) {
        (NO_SEGMENT, _) => AbortedIndex::Unknown,
        (_, 0) => AbortedIndex::Empty,
        _ => AbortedIndex::Of { base_offset, digest: AbortedDigest { count, chain } },
    })
}

/// Reads a snapshot of ours or of Kafka's.
pub fn decode(bytes: &[u8], producers_max: usize) -> Result<(ProducerStates, AbortedIndex), SnapshotError> {
    let mut cursor = Cursor { bytes, at: 0 };
    if i16::from_be_bytes(cursor.take()?) != VERSION {
        return Err(SnapshotError("unknown version"));
    }
    if u32::from_be_bytes(cursor.take()?) != crc32c(&bytes[ENTRIES_AT..]) {
        return Err(SnapshotError("checksum differs"));
    }
    let mut states = ProducerStates::new(producers_max);
    let count = i32::from_be_bytes(cursor.take()?);
    for _ in 0..count {
        let (id, state) = decode_entry(&mut cursor)?;
        states.insert(id, state);
    }
    if cursor.at == bytes.len() {
        return Ok((states, AbortedIndex::Unknown));
    }
    let (magic, version) = (cursor.take::<4>()?, u16::from_be_bytes(cursor.take()?));
    if &magic != TRAILER_MAGIC || ![TRAILER_VERSION, TRAILER_VERSION_TRANSACTIONS].contains(&version) {
        return Err(SnapshotError("unknown trailer"));
    }
    let count = i32::from_be_bytes(cursor.take()?);
    for _ in 0..count {
        let id = i64::from_be_bytes(cursor.take()?);
        let batches = u8::from_be_bytes(cursor.take()?);
        if usize::from(batches) > BATCHES_REMEMBERED {
            return Err(SnapshotError("too many batches for one producer"));
        }
        let mut window = VecDeque::with_capacity(usize::from(batches));
        for _ in 0..batches {
            window.push_back(BatchWindow {
                last_sequence: i32::from_be_bytes(cursor.take()?),
                last_offset: i64::from_be_bytes(cursor.take()?),
                offset_delta: i32::from_be_bytes(cursor.take()?),
                timestamp: i64::from_be_bytes(cursor.take()?),
            });
        }
        if let Some(s) = states.get(id).cloned() {
            let restored = ProducerState::restored(
                s.epoch,
                s.last_timestamp,
                s.coordinator_epoch,
                s.txn_first_offset,
                window,
            );
            states.insert(id, restored);
        }
    }
    let aborted = match version {
        TRAILER_VERSION_TRANSACTIONS => decode_transactions(&mut cursor, &mut states)?,
        _ => AbortedIndex::Empty,
    };
    match cursor.at == bytes.len() {
        true => Ok((states, aborted)),
        false => Err(SnapshotError("bytes are left over")),
    }
}

fn decode_entry(cursor: &mut Cursor<'_>) -> Result<(i64, ProducerState), SnapshotError> {
    let id = i64::from_be_bytes(cursor.take()?);
    let epoch = i16::from_be_bytes(cursor.take()?);
    let last_sequence = i32::from_be_bytes(cursor.take()?);
    let last_offset = i64::from_be_bytes(cursor.take()?);
    let offset_delta = i32::from_be_bytes(cursor.take()?);
    let timestamp = i64::from_be_bytes(cursor.take()?);
    let coordinator_epoch = i32::from_be_bytes(cursor.take()?);
    let txn_first_offset = i64::from_be_bytes(cursor.take()?);
    let mut batches = VecDeque::new();
    if last_sequence != NO_SEQUENCE {
        batches.push_back(BatchWindow { last_sequence, last_offset, offset_delta, timestamp });
    }
    let txn_first_offset = (txn_first_offset >= 0).then_some(txn_first_offset);
    Ok((id, ProducerState::restored(epoch, timestamp, coordinator_epoch, txn_first_offset, batches)))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let part = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let part = part.ok_or(SnapshotError("it is cut short"))?;
        self.at += N;
        Ok(*part)
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producers::ProducerBatch;
    use crate::transactions::{TransactionMarker, TransactionOutcome};
    use proptest::prelude::*;

    fn batch(id: i64, sequence: i32, offset: i64) -> ProducerBatch {
        ProducerBatch {
            producer_id: id,
            producer_epoch: 2,
            first_sequence: sequence,
            offset_delta: 1,
            last_offset: offset + 1,
            timestamp: 1_000 + offset,
            is_transactional: false,
        }
    }

    fn marker(id: i64, offset: i64) -> TransactionMarker {
        TransactionMarker {
            producer_id: id,
            producer_epoch: 2,
            coordinator_epoch: 9,
            outcome: TransactionOutcome::Abort,
            offset,
            timestamp: 1_000 + offset,
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        let mut states = ProducerStates::new(10);
        states.append(&batch(258, 4, 10));
        let bytes = encode(&states, AbortedIndex::Empty);
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let entry = "0000000000000102".to_owned()
            + "0002"
            + "00000005"
            + "000000000000000b"
            + "00000001"
            + "00000000000003f2"
            + "ffffffff"
            + "ffffffffffffffff";
        let trailer = "57454952".to_owned()
            + "0001"
            + "00000001"
            + "0000000000000102"
            + "01"
            + "00000005"
            + "000000000000000b"
            + "00000001"
            + "00000000000003f2";
        let crc = crc32c(&bytes[6..]);
        assert_eq!(hex, format!("0001{crc:08x}00000001{entry}{trailer}"));
    }

    #[test]
    fn the_bytes_of_transactions_are_frozen() {
        let mut states = ProducerStates::new(10);
        states.append(&ProducerBatch { is_transactional: true, ..batch(258, 4, 10) });
        states.append(&ProducerBatch { is_transactional: true, ..batch(259, 0, 12) });
        states.complete(&marker(259, 14));
        let digest = AbortedDigest { count: 1, chain: 0x0a0b_0c0d };
        let aborted = AbortedIndex::Of { base_offset: 5, digest };
        let bytes = encode(&states, aborted);
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let open = "0000000000000102".to_owned()
            + "0002"
            + "00000005"
            + "000000000000000b"
            + "00000001"
            + "00000000000003f2"
            + "ffffffff"
            + "000000000000000a";
        let ended = "0000000000000103".to_owned()
            + "0002"
            + "00000001"
            + "000000000000000d"
            + "00000001"
            + "00000000000003f6"
            + "00000009"
            + "ffffffffffffffff";
        let windows = "000000000000010201000000050000000000\
                       00000b0000000100000000000003f2"
            .to_owned()
            + "00000000000001030100000001000000000000000d0000000100000000000003f4";
        let trailer = format!("57454952000200000002{windows}")
            + "0000000000000005000000010a0b0c0d"
            + "00000001000000000000000c000000000000000e";
        let crc = crc32c(&bytes[6..]);
        assert_eq!(hex, format!("0001{crc:08x}00000002{open}{ended}{trailer}"));
        assert_eq!(decode(&bytes, 10), Ok((states, aborted)));
    }

    #[test]
    fn a_snapshot_of_kafka_has_no_trailer() {
        let mut states = ProducerStates::new(10);
        for i in 0..3 {
            states.append(&batch(1, i * 2, i64::from(i) * 2));
        }
        let ours = encode(&states, AbortedIndex::Empty);
        let mut kafka = ours[..10 + 46].to_vec();
        let crc = crc32c(&kafka[6..]);
        kafka[2..6].copy_from_slice(&crc.to_be_bytes());
        let (read, aborted) = decode(&kafka, 10).unwrap();
        assert_eq!(aborted, AbortedIndex::Unknown);
        assert_eq!(read.get(1).unwrap().batches().count(), 1);
        assert_eq!(read.get(1).unwrap().last_sequence(), Some(5));
        assert_eq!(decode(&ours, 10), Ok((states, AbortedIndex::Empty)));
    }

    proptest! {
        #[test]
        fn round_trip_and_every_damage_is_seen(
            appends in prop::collection::vec((0i64..8, any::<bool>(), any::<bool>()), 0..60),
            aborted in 0u32..4, damage in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let mut states = ProducerStates::new(100);
            for (i, &(id, is_transactional, is_marker)) in appends.iter().enumerate() {
                match is_marker {
                    true => _ = states.complete(&marker(id, i as i64 * 2)),
                    false => states.append(&ProducerBatch { is_transactional, ..batch(id, i as i32 * 2, i as i64 * 2) }),
                }
            }
            let aborted = match aborted {
                0 => AbortedIndex::Unknown,
                1 => AbortedIndex::Empty,
                count => AbortedIndex::Of { base_offset: 3, digest: AbortedDigest { count, chain: 9 } },
            };
            let mut bytes = encode(&states, aborted);
            let (read, read_aborted) = decode(&bytes, 100).unwrap();
            prop_assert_eq!(read_aborted, aborted);
            for high_watermark in 0..appends.len() as i64 * 2 + 3 {
                prop_assert_eq!(read.last_stable(high_watermark), states.last_stable(high_watermark));
            }
            prop_assert_eq!(read, states);
            let at = damage.index(bytes.len());
            prop_assert!(decode(&bytes[..at], 100).is_err());
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(&bytes, 100).is_err());
        }
    }
}
