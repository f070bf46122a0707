//! Which part of a log is dirty, how much of it may be compacted, and whether it is time.

/// What is known of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFacts {
    pub base_offset: i64,
    /// Where the next one begins.
    pub end: i64,
    pub bytes: u64,
    /// Largest timestamp, if it matters (see [`CompactionPolicy::min_lag_ms`]) and is known.
    pub max_timestamp: Option<i64>,
    /// Timestamp of the first batch, if it matters (see [`CompactionPolicy::max_lag_ms`]) and is known.
    pub first_timestamp: Option<i64>,
}

/// When a log is compacted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactionPolicy {
    /// `min.cleanable.dirty.ratio`.
    pub min_dirty_ratio: f64,
    /// `min.compaction.lag.ms`; 0 means none.
    pub min_lag_ms: i64,
    /// `max.compaction.lag.ms`; `i64::MAX` means none.
    pub max_lag_ms: i64,
}

/// What a pass over a log would have to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dirtiness {
    /// The first offset that no pass has seen.
    pub from: i64,
    /// Where a pass would end: the end of the last segment that may be rewritten.
    pub until: i64,
    /// How many segments, from the oldest on, lie below `until`.
    pub segments: usize,
    /// Bytes of those that are clean.
    pub clean_bytes: u64,
    /// Bytes of the others among them.
    pub dirty_bytes: u64,
    /// Whether a pass should be made.
    pub due: bool,
}

impl Dirtiness {
    /// Share of what may be compacted that is dirty.
    pub fn ratio(&self) -> f64 {
        match self.clean_bytes + self.dirty_bytes {
            0 => 0.0,
            all => self.dirty_bytes as f64 / all as f64,
        }
    }
}

/// Looks at the segments of a log, oldest first, those left out that take appends or are not surely on disk. `cleaned_to` is
/// where the last pass ended, `bound` the lesser of high watermark and last stable offset, `log_end` the end of the log. Without
/// a time, since the clock is not believed, no lag counts as passed.
pub fn look(
    segments: &[SegmentFacts],
    cleaned_to: Option<i64>,
    (bound, log_end): (i64, i64),
    now_ms: Option<i64>,
    policy: &CompactionPolicy,
) -> Dirtiness {
    // Planted: what is not committed is compacted too.
    let bound = if cfg!(weir_planted_bug = "B15") { i64::MAX } else { bound };
    let first = segments.first().map_or(0, |s| s.base_offset);
    // A note of a pass that went beyond the end is of another life of this log.
    let from = cleaned_to.filter(|&to| to <= log_end).map_or(first, |to| to.max(first));
    let ripe = |s: &SegmentFacts| {
        let old_enough =
            |now: i64| s.max_timestamp.is_none_or(|max| max <= now.saturating_sub(policy.min_lag_ms));
        s.end <= from || policy.min_lag_ms <= 0 || now_ms.is_some_and(old_enough)
    };
    let sources = segments.iter().take_while(|s| s.end <= bound && ripe(s)).count();
    let (segments, bytes) = (&segments[..sources], |s: &[SegmentFacts]| s.iter().map(|s| s.bytes).sum());
    let (clean, dirty) = segments.split_at(segments.partition_point(|s| s.end <= from));
    let mut found = Dirtiness {
        from,
        until: segments.last().map_or(first, |s| s.end),
        segments: sources,
        clean_bytes: bytes(clean),
        dirty_bytes: bytes(dirty),
        due: false,
    };
    let oldest = dirty.iter().filter_map(|s| s.first_timestamp.filter(|&t| t >= 0)).min();
    let waited = oldest.zip(now_ms).map(|(oldest, now)| now.saturating_sub(oldest));
    let overdue = policy.max_lag_ms < i64::MAX && waited.is_some_and(|waited| waited > policy.max_lag_ms);
    found.due = found.dirty_bytes > 0 && (overdue || found.ratio() > policy.min_dirty_ratio);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: CompactionPolicy =
        CompactionPolicy { min_dirty_ratio: 0.5, min_lag_ms: 0, max_lag_ms: i64::MAX };

    /// Four segments of 10 offsets and 100 bytes; times are 1,000 for each.
    fn segments() -> Vec<SegmentFacts> {
        let facts = |i: i64| SegmentFacts {
            base_offset: i * 10,
            end: i * 10 + 10,
            bytes: 100,
            max_timestamp: Some(i * 1000 + 999),
            first_timestamp: Some(i * 1000),
        };
        (0..4).map(facts).collect()
    }

    #[test]
    fn only_whole_segments_below_the_bound_count() {
        let found = look(&segments(), None, (29, 45), Some(0), &POLICY);
        let expected =
            Dirtiness { from: 0, until: 20, segments: 2, clean_bytes: 0, dirty_bytes: 200, due: true };
        #[cfg(not(weir_planted_bug = "B15"))]
        assert_eq!(found, expected);
        assert_eq!(look(&segments(), None, (0, 45), Some(0), &POLICY).due, cfg!(weir_planted_bug = "B15"));
        assert!(!look(&[], None, (9, 9), Some(0), &POLICY).due);
        assert_eq!(expected.ratio(), found.ratio());
    }

    #[test]
    fn the_ratio_must_be_exceeded() {
        assert!(!look(&segments(), Some(20), (40, 45), Some(0), &POLICY).due, "half is not more than half");
        assert!(look(&segments(), Some(10), (40, 45), Some(0), &POLICY).due);
        assert!(
            look(
                &segments(),
                Some(20),
                (40, 45),
                Some(0),
                &CompactionPolicy { min_dirty_ratio: 0.49, ..POLICY }
            )
            .due
        );
        assert!(
            !look(
                &segments(),
                Some(40),
                (40, 45),
                Some(0),
                &CompactionPolicy { min_dirty_ratio: 0.0, ..POLICY }
            )
            .due
        );
        // In the middle of a segment: all of it is dirty.
        assert_eq!(look(&segments(), Some(15), (40, 45), Some(0), &POLICY).dirty_bytes, 300);
    }

    #[test]
    fn notes_outside_of_the_log_are_no_good() {
        assert_eq!(look(&segments(), Some(46), (40, 45), Some(0), &POLICY).from, 0, "beyond the end");
        let cut: Vec<_> = segments().split_off(2);
        let found = look(&cut, Some(10), (40, 45), Some(0), &POLICY);
        assert_eq!((found.from, found.dirty_bytes), (20, 200));
        // Ahead of what may be compacted now: nothing to do until that catches up.
        let found = look(&segments(), Some(30), (20, 45), Some(0), &POLICY);
        #[cfg(not(weir_planted_bug = "B15"))]
        assert_eq!((found.from, found.until, found.dirty_bytes, found.due), (30, 20, 0, false));
        assert_eq!(found.from, 30);
    }

    #[test]
    fn young_records_wait_and_old_ones_do_not() {
        let lazy = CompactionPolicy { min_lag_ms: 1000, ..POLICY };
        assert_eq!(look(&segments(), None, (40, 45), Some(3998), &lazy).until, 20);
        assert_eq!(look(&segments(), None, (40, 45), Some(3999), &lazy).until, 30);
        assert_eq!(look(&segments(), None, (40, 45), Some(99_999), &lazy).until, 40);
        // Clean segments are never too young to be rewritten.
        assert_eq!(look(&segments(), Some(20), (40, 45), Some(0), &lazy).until, 20);
        let urgent = CompactionPolicy { min_dirty_ratio: 1.0, max_lag_ms: 500, ..POLICY };
        assert!(!look(&segments(), Some(30), (40, 45), Some(3500), &urgent).due);
        assert!(look(&segments(), Some(30), (40, 45), Some(3501), &urgent).due);
        // A clock that is not believed says neither.
        assert!(!look(&segments(), Some(30), (40, 45), None, &urgent).due);
        let found = look(&segments(), Some(20), (40, 45), None, &lazy);
        assert_eq!((found.until, found.dirty_bytes), (20, 0));
        assert_eq!(look(&segments(), None, (40, 45), None, &POLICY).until, 40, "there is no lag");
    }
}
