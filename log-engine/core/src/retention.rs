//! Which records have been kept long enough: whole segments from the start on, by age and by size.
//!
//! The rules are Kafka's but for one: the age of a segment counts from its newest timestamp *or* from its last append by
//! the broker's clock, whichever is earlier. So a timestamp in the far future does not keep a segment for ever; one in the
//! past counts as it does in Kafka. Nothing at or above the high watermark goes, nor does an empty last segment.

/// How much is kept; a part of the topic's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionLimits {
    /// Milliseconds that records are kept (`retention.ms`); `None`: for ever.
    pub ms: Option<i64>,
    /// Bytes of segments that are kept (`retention.bytes`); `None`: any number.
    pub bytes: Option<u64>,
}

/// What is looked at of a segment. The last one of a log ends where the log does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentExtent {
    /// Offset after its last record; the base offset of the next segment.
    pub end: i64,
    /// Bytes of records.
    pub bytes: u64,
}

/// Why segments go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryReason {
    /// They are older than `retention.ms`.
    Age,
    /// The log is larger than `retention.bytes`.
    Size,
}

/// Where the log is to start from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    pub start: i64,
    /// Segments that go.
    pub segments: usize,
    /// Why the last of them does.
    pub reason: ExpiryReason,
}

/// The time from which a segment's age counts: that of its newest record (`None` or negative: it has none), but never
/// later than its last append.
pub fn age_counts_from(newest_timestamp: Option<i64>, last_append_ms: i64) -> i64 {
    match newest_timestamp {
        Some(timestamp) if timestamp >= 0 => timestamp.min(last_append_ms),
        Some(_) | None => last_append_ms,
    }
}

/// Decides what goes of a log's segments, oldest first. `now_ms` is `None` while the clock cannot be believed: then
/// nothing goes by age. `counts_from` answers [`age_counts_from`] of the segment at a place; it may be slow and is asked
/// for one segment more than goes.
pub fn expired(
    limits: &RetentionLimits,
    segments: &[SegmentExtent],
    high_watermark: i64,
    now_ms: Option<i64>,
    mut counts_from: impl FnMut(usize) -> i64,
) -> Option<Expiry> {
    // An empty one in the middle is what a cut into a compacted log has left.
    let is_empty_last = segments.last().is_some_and(|last| last.bytes == 0);
    let may_go = &segments[..segments.len() - usize::from(is_empty_last)];
    let may_go = may_go.iter().take_while(|segment| segment.end <= high_watermark).count();
    let too_old = match (limits.ms, now_ms) {
        (Some(ms), Some(now_ms)) => {
            (0..may_go).take_while(|&at| now_ms.saturating_sub(counts_from(at)) > ms).count()
        }
        (None, _) | (_, None) => 0,
    };
    let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let mut surplus = limits.bytes.map_or(0, |bytes| total.saturating_sub(bytes));
    let fits = |segment: &&SegmentExtent| {
        let left = surplus.checked_sub(segment.bytes);
        surplus = left.unwrap_or(surplus);
        left.is_some()
    };
    let too_much = match limits.bytes {
        Some(bytes) if total > bytes => segments[..may_go].iter().take_while(fits).count(),
        Some(_) | None => 0,
    };
    let gone = too_old.max(too_much);
    let last = gone.checked_sub(1)?;
    let reason = if too_much > too_old { ExpiryReason::Size } else { ExpiryReason::Age };
    Some(Expiry { start: segments[last].end, segments: gone, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: i64 = 365 * 24 * 3600 * 1000;
    const NOW: i64 = 1_700_000_000_000;

    fn by_age(ms: i64) -> RetentionLimits {
        RetentionLimits { ms: Some(ms), bytes: None }
    }

    fn by_size(bytes: u64) -> RetentionLimits {
        RetentionLimits { ms: None, bytes: Some(bytes) }
    }

    /// Ends and bytes of segments.
    fn segments(of: &[(i64, u64)]) -> Vec<SegmentExtent> {
        of.iter().map(|&(end, bytes)| SegmentExtent { end, bytes }).collect()
    }

    #[test]
    fn age_takes_whole_segments_from_the_start() {
        let log = segments(&[(10, 100), (20, 100), (30, 100)]);
        let ages = [NOW - 50, NOW - 200, NOW - 200];
        assert_eq!(expired(&by_age(100), &log, 30, Some(NOW), |at| ages[at]), None, "the first one is young");
        let ages = [NOW - 200, NOW - 101, NOW - 100];
        let expiry = Expiry { start: 20, segments: 2, reason: ExpiryReason::Age };
        assert_eq!(expired(&by_age(100), &log, 30, Some(NOW), |at| ages[at]), Some(expiry));
        let expiry = Expiry { start: 30, segments: 3, reason: ExpiryReason::Age };
        assert_eq!(
            expired(&by_age(99), &log, 30, Some(NOW), |at| ages[at]),
            Some(expiry),
            "the last one too"
        );
    }

    #[test]
    fn size_is_what_is_left() {
        let log = segments(&[(10, 100), (20, 100), (30, 50)]);
        for (bytes, start) in
            [(250, None), (151, None), (150, Some(10)), (51, Some(10)), (50, Some(20)), (0, Some(30))]
        {
            let expiry = expired(&by_size(bytes), &log, 30, None, |_| panic!("age is not asked for"));
            assert_eq!(expiry.map(|expiry| expiry.start), start, "{bytes}");
        }
        let both = RetentionLimits { ms: Some(100), bytes: Some(150) };
        let by =
            |ages: [i64; 3]| expired(&both, &log, 30, Some(NOW), |at| ages[at]).map(|e| (e.start, e.reason));
        assert_eq!(by([NOW, NOW, NOW]), Some((10, ExpiryReason::Size)));
        assert_eq!(by([0, 0, NOW]), Some((20, ExpiryReason::Age)));
    }

    #[test]
    fn hostile_timestamps_are_bounded_by_the_append() {
        let appended = NOW - 1000;
        for future in [NOW, NOW + YEAR, NOW + 100 * YEAR, i64::MAX] {
            assert_eq!(age_counts_from(Some(future), appended), appended);
        }
        for none in [None, Some(-1), Some(i64::MIN)] {
            assert_eq!(age_counts_from(none, appended), appended);
        }
        assert_eq!(age_counts_from(Some(0), appended), 0, "the past is believed, as in Kafka");
        let log = segments(&[(10, 100)]);
        let extreme = |from: i64, now: i64| expired(&by_age(0), &log, 10, Some(now), |_| from).is_some();
        assert!(extreme(i64::MIN, i64::MAX));
        assert!(!extreme(i64::MAX, i64::MIN));
    }

    /// T-115.
    #[test]
    fn a_clock_that_is_not_believed_deletes_nothing_by_age() {
        let log = segments(&[(10, 100), (20, 100)]);
        let limits = RetentionLimits { ms: Some(1), bytes: Some(100) };
        let expiry = expired(&limits, &log, 20, None, |_| 0);
        assert_eq!(expiry, Some(Expiry { start: 10, segments: 1, reason: ExpiryReason::Size }));
    }

    #[test]
    fn an_empty_last_segment_stays() {
        assert_eq!(expired(&by_age(0), &segments(&[(10, 0)]), 10, Some(NOW), |_| 0), None);
        let log = segments(&[(10, 5), (10, 0)]);
        assert_eq!(expired(&by_age(0), &log, 10, Some(NOW), |_| 0).map(|e| e.segments), Some(1));
    }

    #[test]
    fn an_empty_segment_in_the_middle_holds_nothing_back() {
        let log = segments(&[(10, 0), (20, 100), (30, 100), (40, 0), (50, 50)]);
        assert_eq!(expired(&by_age(5), &log, 50, Some(NOW), |_| 0).map(|e| e.segments), Some(5));
        assert_eq!(expired(&by_size(120), &log, 50, None, |_| 0).map(|e| e.segments), Some(2));
        assert_eq!(expired(&by_size(250), &log, 50, None, |_| 0), None);
        assert_eq!(expired(&RetentionLimits::default(), &log, 50, Some(NOW), |_| 0), None);
    }

    /// Whatever the sizes, times, limits and marks: nothing at or above the high watermark goes, only a prefix of whole
    /// segments, everything that is due, nothing that is not, and a second look finds nothing more.
    #[test]
    fn random_logs_keep_the_rules() {
        for seed in 0..20_000u64 {
            let mut state = seed;
            let mut random = move |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let mut end = 0;
            let count = random(8) as usize;
            let log: Vec<SegmentExtent> = (0..count)
                .map(|_| {
                    end += 1 + random(20) as i64;
                    let empty = random(4) == 0;
                    SegmentExtent { end, bytes: if empty { 0 } else { 1 + random(100) } }
                })
                .collect();
            let from: Vec<i64> = (0..count).map(|_| random(1000) as i64).collect();
            let high_watermark = random(end as u64 + 1) as i64;
            let limits = RetentionLimits {
                ms: (random(3) > 0).then(|| random(500) as i64),
                bytes: (random(3) > 0).then(|| random(400)),
            };
            let now = (random(5) > 0).then_some(1000);
            let expiry = expired(&limits, &log, high_watermark, now, |at| from[at]);
            let gone = expiry.map_or(0, |expiry| expiry.segments);
            let context = format!("seed {seed}: {limits:?} {log:?} {from:?} {high_watermark} {expiry:?}");
            let bytes_from = |at: usize| log[at..].iter().map(|segment| segment.bytes).sum::<u64>();
            let old = |at: usize| limits.ms.is_some_and(|ms| now.is_some_and(|now| now - from[at] > ms));
            let large =
                |at: usize| limits.bytes.is_some_and(|max| bytes_from(0) > max && bytes_from(at + 1) >= max);
            let may = |at: usize| log[at].end <= high_watermark && (at + 1 < count || log[at].bytes > 0);
            if let Some(expiry) = expiry {
                assert_eq!(expiry.start, log[gone - 1].end, "{context}");
                assert!(expiry.start <= high_watermark, "{context}");
            }
            let all_old = (0..gone).all(old);
            assert!((0..gone).all(may), "{context}");
            assert!(gone == 0 || all_old || large(gone - 1), "{context}");
            let first_that_stays = (gone < count && may(gone)).then_some(gone);
            assert!(!first_that_stays.is_some_and(|at| large(at) || (all_old && old(at))), "{context}");
            let again = expired(&limits, &log[gone..], high_watermark, now, |at| from[gone + at]);
            // What stood behind a young segment that went by size alone may be due by its age.
            assert!(again.is_none() || (!all_old && old(gone)), "{context}");
        }
    }
}
