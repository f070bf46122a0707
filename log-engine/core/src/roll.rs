//! When the active segment is closed and a new one begun.
//!
//! The rules are Kafka's: by size, by the age of the first batch in *record* time (broker time where the first
//! batch has no timestamp), by a full index, and when an offset no longer fits the 32-bit relative offsets of the
//! indexes. A segment never rolls while it is empty, except that an offset out of its reach forces a new base.

/// The limits that a segment is held against; a part of the log's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollLimits {
    /// Largest size of one segment's records, in bytes (`segment.bytes`).
    pub segment_bytes: u64,
    /// Largest age of a segment in milliseconds (`segment.ms`).
    pub segment_ms: i64,
    /// Largest size of one index file in bytes (`segment.index.bytes`).
    pub index_bytes_max: u64,
}

/// How full the active segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFill {
    /// First offset that the segment can hold.
    pub base_offset: i64,
    /// Bytes of records in it.
    pub bytes: u64,
    /// Max timestamp of its first batch; `None` while empty or if that batch carries no timestamp.
    pub first_timestamp: Option<i64>,
    /// Broker time at which the segment was created, in milliseconds.
    pub created_ms: i64,
    /// Entries in the offset index.
    pub index_entries: u64,
    /// Entries in the time index.
    pub time_index_entries: u64,
}

/// Why a segment is rolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollReason {
    /// The append would not fit `segment.bytes`.
    Size,
    /// `segment.ms` has passed.
    Time,
    /// An index file reached `segment.index.bytes`.
    IndexFull,
    /// The last offset lies more than 2^31 − 1 above the base offset.
    OffsetReach,
}

/// Bytes of one entry of the offset index.
pub const INDEX_ENTRY_BYTES: u64 = 8;
/// Bytes of one entry of the time index.
pub const TIME_INDEX_ENTRY_BYTES: u64 = 12;

/// Decides whether the segment must be rolled before `append_bytes` with this last offset and max timestamp are
/// written at broker time `now_ms`.
pub fn roll_reason(
    limits: &RollLimits,
    fill: &SegmentFill,
    append_bytes: u64,
    last_offset: i64,
    max_timestamp: i64,
    now_ms: i64,
) -> Option<RollReason> {
    let relative = last_offset.checked_sub(fill.base_offset);
    if !relative.is_some_and(|r| (0..=i64::from(i32::MAX)).contains(&r)) {
        return Some(RollReason::OffsetReach);
    }
    if fill.bytes == 0 {
        return None;
    }
    // Positions in the index are 32 bits too, whatever the configured size says.
    let size_max = limits.segment_bytes.min(i32::MAX as u64);
    if fill.bytes.saturating_add(append_bytes) > size_max {
        return Some(RollReason::Size);
    }
    let age = match fill.first_timestamp {
        Some(first) => max_timestamp.saturating_sub(first),
        None => now_ms.saturating_sub(fill.created_ms),
    };
    if age > limits.segment_ms {
        return Some(RollReason::Time);
    }
    // One entry may be added by this append, and the time index gets its last entry when the segment is closed.
    let index_full = (fill.index_entries + 1) * INDEX_ENTRY_BYTES > limits.index_bytes_max;
    let time_index_full = (fill.time_index_entries + 2) * TIME_INDEX_ENTRY_BYTES > limits.index_bytes_max;
    (index_full || time_index_full).then_some(RollReason::IndexFull)
}

/// Whether a segment that nothing is appended to has been open for longer than `segment.ms`, in broker time: then it is
/// closed, so that retention and compaction come to it.
pub fn is_idle_too_long(limits: &RollLimits, fill: &SegmentFill, now_ms: i64) -> bool {
    fill.bytes > 0 && now_ms.saturating_sub(fill.created_ms) > limits.segment_ms
}

/// `segment.ms` less a share of `segment.jitter.ms` that depends on `seed`, so that segments that were begun together are
/// not all closed together. The same seed gives the same share.
pub fn with_jitter(segment_ms: i64, jitter_ms_max: i64, seed: u64) -> i64 {
    let jitter_ms_max = jitter_ms_max.clamp(0, segment_ms.max(0));
    let mixed = (seed ^ (seed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let share = (i128::from(jitter_ms_max) * i128::from(mixed >> 32)) >> 32;
    segment_ms - i64::try_from(share).unwrap_or(jitter_ms_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RollLimits = RollLimits { segment_bytes: 1000, segment_ms: 100, index_bytes_max: 80 };

    fn fill(bytes: u64) -> SegmentFill {
        SegmentFill {
            base_offset: 10,
            bytes,
            first_timestamp: Some(5000),
            created_ms: 9000,
            index_entries: 0,
            time_index_entries: 0,
        }
    }

    #[test]
    fn size_is_reached_by_the_append_that_does_not_fit() {
        assert_eq!(roll_reason(&LIMITS, &fill(900), 100, 20, 5000, 9000), None);
        assert_eq!(roll_reason(&LIMITS, &fill(900), 101, 20, 5000, 9000), Some(RollReason::Size));
        assert_eq!(roll_reason(&LIMITS, &fill(0), 5000, 20, 5000, 9000), None);
    }

    #[test]
    fn age_is_in_record_time_and_falls_back_to_broker_time() {
        assert_eq!(roll_reason(&LIMITS, &fill(1), 1, 20, 5100, i64::MAX), None);
        assert_eq!(roll_reason(&LIMITS, &fill(1), 1, 20, 5101, 0), Some(RollReason::Time));
        let no_timestamp = SegmentFill { first_timestamp: None, ..fill(1) };
        assert_eq!(roll_reason(&LIMITS, &no_timestamp, 1, 20, -1, 9100), None);
        assert_eq!(roll_reason(&LIMITS, &no_timestamp, 1, 20, -1, 9101), Some(RollReason::Time));
        // Hostile timestamps do not overflow.
        let hostile = SegmentFill { first_timestamp: Some(i64::MIN), ..fill(1) };
        assert_eq!(roll_reason(&LIMITS, &hostile, 1, 20, i64::MAX, 0), Some(RollReason::Time));
    }

    #[test]
    fn a_full_index_and_an_offset_out_of_reach_roll() {
        let full = SegmentFill { index_entries: 10, ..fill(1) };
        assert_eq!(roll_reason(&LIMITS, &full, 1, 20, 5000, 0), Some(RollReason::IndexFull));
        let full = SegmentFill { time_index_entries: 5, ..fill(1) };
        assert_eq!(roll_reason(&LIMITS, &full, 1, 20, 5000, 0), Some(RollReason::IndexFull));
        let reach = 10 + i64::from(i32::MAX);
        assert_eq!(roll_reason(&LIMITS, &fill(1), 1, reach, 5000, 0), None);
        assert_eq!(roll_reason(&LIMITS, &fill(0), 1, reach + 1, 5000, 0), Some(RollReason::OffsetReach));
        assert_eq!(roll_reason(&LIMITS, &fill(0), 1, 9, 5000, 0), Some(RollReason::OffsetReach));
    }

    #[test]
    fn an_idle_segment_is_closed_by_broker_time_unless_it_is_empty() {
        assert!(!is_idle_too_long(&LIMITS, &fill(1), 9100));
        assert!(is_idle_too_long(&LIMITS, &fill(1), 9101));
        assert!(!is_idle_too_long(&LIMITS, &fill(0), i64::MAX));
        assert!(!is_idle_too_long(&LIMITS, &fill(1), i64::MIN), "a clock that went back");
    }

    #[test]
    fn jitter_only_shortens_and_is_spread() {
        let spread: Vec<i64> = (0..1000).map(|seed| with_jitter(10_000, 4_000, seed)).collect();
        assert!(spread.iter().all(|ms| (6_000..=10_000).contains(ms)));
        let early = spread.iter().filter(|ms| **ms < 8_000).count();
        assert!((300..700).contains(&early), "{early}");
        assert_eq!(with_jitter(10_000, 0, 7), 10_000);
        assert!((0..=5).contains(&with_jitter(5, i64::MAX, 7)));
        assert!((0..=i64::MAX).contains(&with_jitter(i64::MAX, i64::MAX, u64::MAX)));
    }
}
