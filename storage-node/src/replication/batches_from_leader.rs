//! Looks at what comes from a leader before it may be appended: whole batches with right checksums, in order, of epochs
//! that the session can have. A fault ends the session of this one partition; the others on the lane go on.

use proto_types::ids::LeaderEpoch;
use records::{BatchError, BatchHeader, batches};

/// What a session expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    /// First offset that the follower does not have.
    pub(crate) next: i64,
    /// The follower's log is empty, so that the first batch may reach back before its start.
    pub(crate) empty: bool,
    /// The leader's epoch.
    pub(crate) epoch_max: LeaderEpoch,
    /// Leader epoch of the last batch, −1 if there was none.
    pub(crate) epoch_min: LeaderEpoch,
}

/// What is wrong with the bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BatchesFault {
    #[error("no batch")]
    Nothing,
    #[error("{0}")]
    Batch(#[from] BatchError),
    #[error("offset {found} came where {expected} was expected")]
    Offset { expected: i64, found: i64 },
    #[error("leader epoch {found} came in a session of epoch {epoch_max}, after epoch {epoch_min}")]
    Epoch { found: i32, epoch_min: LeaderEpoch, epoch_max: LeaderEpoch },
    #[error("a batch that ends before it begins, or without end")]
    Extent,
}

/// The headers of the batches, in order, and what is expected after them.
pub(crate) fn check_batches(
    bytes: &[u8],
    mut expected: Expected,
) -> Result<(Vec<BatchHeader>, Expected), BatchesFault> {
    let mut headers = Vec::new();
    for batch in batches(bytes) {
        let batch = batch?;
        batch.check_crc()?;
        let header = *batch.header();
        let end = header
            .base_offset
            .checked_add(i64::from(header.last_offset_delta))
            .and_then(|o| o.checked_add(1));
        let end = end
            .filter(|_| header.last_offset_delta >= 0 && header.base_offset >= 0)
            .ok_or(BatchesFault::Extent)?;
        // Offsets that compaction took away leave gaps.
        let in_order = header.base_offset >= expected.next || expected.empty && end > expected.next;
        if !in_order {
            return Err(BatchesFault::Offset { expected: expected.next, found: header.base_offset });
        }
        let found = header.partition_leader_epoch;
        let (epoch_min, epoch_max) = (expected.epoch_min, expected.epoch_max);
        if found < epoch_min.0.max(0) || found > epoch_max.0 {
            return Err(BatchesFault::Epoch { found, epoch_min, epoch_max });
        }
        expected = Expected { next: end, empty: false, epoch_min: LeaderEpoch(found), ..expected };
        headers.push(header);
    }
    match headers.is_empty() {
        true => Err(BatchesFault::Nothing),
        false => Ok((headers, expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::BatchBuilder;

    fn batch(base: i64, count: usize, epoch: i32) -> Vec<u8> {
        let mut builder = BatchBuilder::new().base_offset(base).leader_epoch(epoch);
        for n in 0..count {
            builder.push(1_000 + n as i64, None, Some(b"value"), &[]).unwrap();
        }
        builder.build()
    }

    fn expected(next: i64) -> Expected {
        Expected { next, empty: false, epoch_max: LeaderEpoch(5), epoch_min: LeaderEpoch(3) }
    }

    fn ends(bytes: &[u8], expected: Expected) -> Result<i64, BatchesFault> {
        check_batches(bytes, expected).map(|(_, after)| after.next)
    }

    #[test]
    fn whole_batches_in_order_pass() {
        let bytes = [batch(10, 3, 3), batch(13, 1, 5), batch(20, 2, 5)].concat();
        let (headers, after) = check_batches(&bytes, expected(10)).unwrap();
        assert_eq!(headers.len(), 3);
        assert_eq!(after, Expected { next: 22, epoch_min: LeaderEpoch(5), ..expected(0) });
    }

    #[test]
    fn faults_are_told_apart() {
        assert_eq!(ends(&[], expected(10)), Err(BatchesFault::Nothing));
        assert_eq!(ends(&batch(9, 3, 3), expected(10)), Err(BatchesFault::Offset { expected: 10, found: 9 }));
        for epoch in [2, 6] {
            assert!(matches!(ends(&batch(10, 1, epoch), expected(10)), Err(BatchesFault::Epoch { .. })));
        }
        let back = [batch(10, 1, 5), batch(11, 1, 4)].concat();
        assert!(matches!(ends(&back, expected(10)), Err(BatchesFault::Epoch { found: 4, .. })));
        let torn = batch(10, 1, 3);
        assert!(matches!(ends(&torn[..torn.len() - 1], expected(10)), Err(BatchesFault::Batch(_))));
    }

    #[test]
    fn every_flipped_bit_of_the_records_is_found() {
        let good = batch(10, 2, 4);
        for at in 16..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert!(ends(&bad, expected(10)).is_err(), "byte {at}");
        }
    }

    #[test]
    fn only_into_an_empty_log_a_batch_may_reach_back() {
        let empty = Expected { empty: true, ..expected(12) };
        assert_eq!(ends(&batch(10, 3, 4), empty), Ok(13));
        assert!(ends(&batch(9, 3, 4), empty).is_err(), "it ends at the start, so it holds nothing new");
        assert!(ends(&[batch(10, 3, 4), batch(12, 3, 4)].concat(), empty).is_err(), "but only the first");
    }
}
