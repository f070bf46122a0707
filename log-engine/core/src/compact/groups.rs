//! Which neighbouring segments become one.

use std::ops::Range;

use super::SegmentFacts;

/// How large a segment may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLimits {
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// How many segments may become one: so many files are replaced at once, while the log's owner waits.
    pub segments_max: usize,
}

/// Divides segments, oldest first, into runs that are rewritten as one segment each. Offsets in a segment must stay within 31
/// bits of its base.
pub fn groups(segments: &[SegmentFacts], limits: &GroupLimits) -> Vec<Range<usize>> {
    let bytes_max = limits.segment_bytes.min(i32::MAX as u64);
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0u64;
    for (at, segment) in segments.iter().enumerate() {
        let joins = groups.last().is_some_and(|group| {
            let base = segments[group.start].base_offset;
            group.len() < limits.segments_max
                && bytes.saturating_add(segment.bytes) <= bytes_max
                && segment.end.saturating_sub(base).saturating_sub(1) <= i64::from(i32::MAX)
        });
        match groups.last_mut() {
            Some(group) if joins => {
                group.end = at + 1;
                bytes += segment.bytes;
            }
            Some(_) | None => {
                groups.push(at..at + 1);
                bytes = segment.bytes;
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(base_offset: i64, end: i64, bytes: u64) -> SegmentFacts {
        SegmentFacts { base_offset, end, bytes, max_timestamp: None, first_timestamp: None }
    }

    #[test]
    fn small_ones_are_merged_up_to_the_size() {
        let limits = GroupLimits { segment_bytes: 100, segments_max: 9 };
        let segments =
            [(0, 5, 40), (5, 9, 60), (9, 10, 1), (10, 90, 200), (90, 95, 1), (95, 96, 99), (96, 97, 1)];
        let segments: Vec<_> = segments.iter().map(|&(base, end, bytes)| segment(base, end, bytes)).collect();
        assert_eq!(groups(&segments, &limits), [0..2, 2..3, 3..4, 4..6, 6..7]);
        assert!(groups(&[], &limits).is_empty());
        let few = GroupLimits { segment_bytes: 1000, segments_max: 3 };
        assert_eq!(groups(&segments, &few), [0..3, 3..6, 6..7]);
    }

    #[test]
    fn offsets_stay_within_reach_of_the_base() {
        let limits = GroupLimits { segment_bytes: 1 << 30, segments_max: 9 };
        let far = i64::from(i32::MAX);
        assert_eq!(groups(&[segment(0, 5, 1), segment(5, far + 1, 1)], &limits).len(), 1);
        assert_eq!(groups(&[segment(0, 5, 1), segment(5, far + 2, 1)], &limits), [0..1, 1..2]);
    }
}
