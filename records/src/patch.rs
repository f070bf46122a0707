//! What a leader changes in a batch before it appends it. Offset and leader epoch stand in front of what the
//! checksum covers, so that patching them costs nothing; the append time does not, so the checksum is made anew.
//!
//! All three take a batch whose header was parsed and whose bytes are all there.

use crate::header::{ATTRIBUTES_AT, LEADER_EPOCH_AT, LOG_APPEND_TIME_BIT, MAX_TIMESTAMP_AT};
use crate::{BatchHeader, crc};

/// Sets the offset of the first record. Does not touch checksummed bytes.
///
/// # Panics
/// If `batch` is shorter than a batch header.
pub fn set_base_offset(batch: &mut [u8], base_offset: i64) {
    batch[..8].copy_from_slice(&base_offset.to_be_bytes());
}

/// Sets the epoch of the appending leader. Does not touch checksummed bytes.
///
/// # Panics
/// If `batch` is shorter than a batch header.
pub fn set_leader_epoch(batch: &mut [u8], leader_epoch: i32) {
    batch[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Marks the batch as stamped by the broker at `now_ms` and renews its checksum. The base timestamp stays, as in
/// Kafka: readers take the max timestamp for every record once the bit is set.
///
/// # Panics
/// If `batch` is not exactly one batch.
pub fn set_log_append_time(batch: &mut [u8], now_ms: i64) {
    assert!(batch.len() >= BatchHeader::LEN, "the caller parsed the header");
    batch[ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME_BIT as u8;
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&now_ms.to_be_bytes());
    crc::seal(batch);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, TimestampType, batches, check_crc};

    fn sample() -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        builder.push(1_000, Some(b"k"), Some(b"v"), &[]).unwrap();
        builder.push(2_000, None, Some(b"w"), &[]).unwrap();
        builder.build()
    }

    #[test]
    fn offset_and_epoch_stay_outside_of_the_checksum() {
        let before = sample();
        let mut batch = before.clone();
        set_base_offset(&mut batch, i64::MAX - 5);
        set_leader_epoch(&mut batch, 77);
        check_crc(&batch).unwrap();
        let header = BatchHeader::parse(&batch).unwrap();
        assert_eq!((header.base_offset, header.partition_leader_epoch), (i64::MAX - 5, 77));
        assert_eq!(batch[16..], before[16..]);
    }

    #[test]
    fn append_time_is_what_readers_see() {
        let mut batch = sample();
        set_log_append_time(&mut batch, 9_999);
        check_crc(&batch).unwrap();
        let view = batches(&batch).next().unwrap().unwrap();
        assert_eq!(view.header().timestamp_type(), TimestampType::LogAppendTime);
        let records = view.records(1 << 20).unwrap();
        let times: Vec<_> = records.iter().map(|record| record.unwrap().timestamp).collect();
        assert_eq!(times, [9_999, 9_999]);
    }
}
