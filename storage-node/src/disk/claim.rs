//! The claim of a coordinator in the log of a shard: a control batch of our own type, which consumers skip and compaction
//! keeps. The newest one is the fence of the partition: appends of older coordinator epochs are refused.
//!
//! Key and value are laid out as Kafka's control records are. Persisted: never change, never reuse the type.

use log_engine::{FileError, LogReader, ReadError};
use proto_types::ids::CoordinatorEpoch;
use records::{BatchBuilder, BatchView, batches};

/// Version of key and value.
const VERSION: i16 = 0;
/// Type of the control record, far from Kafka's own.
const CLAIM_TYPE: i16 = 0x5745;
/// Bytes that are read at a time when a log is searched for its fence.
const SEARCH_BYTES: usize = 1 << 20;
/// Offsets that are searched first, from the log's end; doubled with each further step.
const SEARCH_OFFSETS: i64 = 1_000;
/// Bytes that a claim can unpack to; it is never compressed.
const CLAIM_BYTES_MAX: usize = 256;

/// The batch of a claim.
pub(crate) fn encode(epoch: CoordinatorEpoch, now_ms: i64) -> Vec<u8> {
    let key = [VERSION.to_be_bytes(), CLAIM_TYPE.to_be_bytes()].concat();
    let value = [&VERSION.to_be_bytes()[..], &epoch.0.to_be_bytes()[..]].concat();
    let mut builder = BatchBuilder::new().control();
    builder.push(now_ms, Some(&key), Some(&value), &[]).expect("a claim is small");
    builder.build()
}

/// The epoch, if the batch is a claim.
pub(crate) fn decode(batch: &BatchView<'_>) -> Option<CoordinatorEpoch> {
    if !batch.header().is_control() {
        return None;
    }
    let records = batch.records(CLAIM_BYTES_MAX).ok()?;
    let record = records.iter().next()?.ok()?;
    let (key, value) = (record.key?, record.value?);
    let is_claim = key.get(2..4)? == CLAIM_TYPE.to_be_bytes();
    let epoch = value.get(2..6)?.try_into().ok()?;
    is_claim.then_some(CoordinatorEpoch(i32::from_be_bytes(epoch)))
}

/// Searches a log for its newest claim, from the end. Waits for the disk.
pub(crate) fn newest(
    reader: &LogReader,
    start: i64,
    end: i64,
) -> Result<Option<CoordinatorEpoch>, ReadError> {
    let (mut upper, mut step) = (end, SEARCH_OFFSETS);
    while upper > start {
        let lower = start.max(upper.saturating_sub(step));
        if let Some(found) = newest_in(reader, lower, upper)? {
            return Ok(Some(found));
        }
        (upper, step) = (lower, step.saturating_mul(2));
    }
    Ok(None)
}

fn newest_in(reader: &LogReader, lower: i64, upper: i64) -> Result<Option<CoordinatorEpoch>, ReadError> {
    let (mut at, mut found) = (lower, None);
    while at < upper {
        let (bytes, next) = read(reader, at, SEARCH_BYTES, upper)?;
        if next <= at {
            break;
        }
        // What is read was checked.
        for batch in batches(&bytes).map_while(Result::ok) {
            found = decode(&batch).or(found);
        }
        at = next;
    }
    Ok(found)
}

/// Bytes of whole batches from the one that holds `offset` on, checked, and where to read on. Waits for the disk.
pub(crate) fn read(
    reader: &LogReader,
    offset: i64,
    bytes_max: usize,
    upper_bound: i64,
) -> Result<(Vec<u8>, i64), ReadError> {
    let slice = reader.read_checked(offset, bytes_max, upper_bound, true)?;
    let bytes = slice.to_bytes().map_err(|source| {
        ReadError::Io(FileError { action: "read", path: reader.name().to_string().into(), source })
    })?;
    Ok((bytes, slice.next_offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_a_control_batch_that_is_read_back() {
        let bytes = encode(CoordinatorEpoch(7), 1_000);
        let batch = BatchView::parse(&bytes).expect("whole");
        batch.check_crc().expect("sound");
        assert!(batch.header().is_control() && !batch.header().is_transactional());
        assert_eq!(decode(&batch), Some(CoordinatorEpoch(7)));
    }

    #[test]
    fn golden_record() {
        let bytes = encode(CoordinatorEpoch(0x0102_0304), 0);
        let hex: String = bytes[61..].iter().map(|byte| format!("{byte:02x}")).collect();
        // length, attributes, timestamp delta, offset delta, key 0000 5745, value 0000 01020304, no headers
        assert_eq!(hex, "2000000008000057450c00000102030400");
    }

    #[test]
    fn other_batches_are_no_claims() {
        let mut marker = BatchBuilder::new().control().transactional().producer(1, 0, -1);
        marker.push(0, Some(&[0, 0, 0, 1]), Some(&[0; 6]), &[]).expect("small");
        let marker = marker.build();
        assert_eq!(decode(&BatchView::parse(&marker).expect("whole")), None);
        let mut data = BatchBuilder::new();
        data.push(0, Some(&[0, 0, 0x57, 0x45]), Some(&[0; 6]), &[]).expect("small");
        let data = data.build();
        assert_eq!(decode(&BatchView::parse(&data).expect("whole")), None);
    }
}
