//! Which leader epoch began at which offset (KIP-101, KIP-279, KIP-320).
//!
//! The history is a list of (epoch, start offset), both strictly increasing. It answers "where did epoch E end here?",
//! by which a follower or a consumer finds the offset where two logs part. On disk it is Kafka's text file
//! `leader-epoch-checkpoint`; [`EpochHistory::encode`] and [`EpochHistory::decode`] are that format.

use std::fmt::Write as _;

/// One leader epoch and the first offset that was written under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    pub epoch: i32,
    pub start_offset: i64,
}

/// The leader epochs of one log, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochHistory {
    entries: Vec<EpochEntry>,
}

/// Why the bytes of a `leader-epoch-checkpoint` are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("leader epoch checkpoint is damaged: {0}")]
pub struct EpochDecodeError(pub &'static str);

impl EpochHistory {
    pub fn new() -> EpochHistory {
        EpochHistory::default()
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest epoch, if any record or leader has named one.
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// Notes that `epoch` begins at `start_offset`. A repetition changes nothing; an entry that contradicts newer
    /// ones removes them, because what was written last is what the log holds. Answers whether anything changed.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        if epoch < 0 || start_offset < 0 {
            return false;
        }
        if let Some(latest) = self.entries.last()
            && latest.epoch == epoch
            && start_offset >= latest.start_offset
        {
            return false;
        }
        let before = self.entries.len();
        while self.entries.last().is_some_and(|e| e.epoch > epoch || e.start_offset >= start_offset) {
            self.entries.pop();
        }
        // Under what is taken away the epoch itself may come to light: it goes on from where it began.
        if self.entries.last().is_some_and(|e| e.epoch == epoch) {
            return self.entries.len() < before;
        }
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// The epoch under which the record at `offset` was written.
    pub fn epoch_of(&self, offset: i64) -> Option<i32> {
        let after = self.entries.partition_point(|e| e.start_offset <= offset);
        after.checked_sub(1).map(|i| self.entries[i].epoch)
    }

    /// Where the largest epoch ≤ `requested` ended here: (that epoch, first offset after it). `None` if this log has
    /// not heard of an epoch as new as `requested` (or the request is negative). `log_end` ends the newest epoch.
    pub fn end_offset_for(&self, requested: i32, log_end: i64) -> Option<(i32, i64)> {
        if requested < 0 {
            return None;
        }
        let after = self.entries.partition_point(|e| e.epoch <= requested);
        match (after.checked_sub(1).map(|i| self.entries[i]), self.entries.get(after)) {
            (Some(floor), Some(next)) => Some((floor.epoch, next.start_offset)),
            (Some(floor), None) if floor.epoch == requested => Some((floor.epoch, log_end)),
            // Older than everything that is left here: it ended at or before our first entry.
            (None, Some(next)) => Some((requested, next.start_offset)),
            (Some(_), None) | (None, None) => None,
        }
    }

    /// Forgets epochs that begin at or after `end_offset`. Answers whether anything changed.
    pub fn truncate_from_end(&mut self, end_offset: i64) -> bool {
        let keep = self.entries.partition_point(|e| e.start_offset < end_offset);
        let changed = keep < self.entries.len();
        self.entries.truncate(keep);
        changed
    }

    /// Forgets epochs that ended at or before `start_offset`; the one that covers it begins there from now on.
    /// Answers whether anything changed.
    pub fn truncate_from_start(&mut self, start_offset: i64) -> bool {
        let after = self.entries.partition_point(|e| e.start_offset <= start_offset);
        let Some(covering) = after.checked_sub(1) else { return false };
        if covering == 0 && self.entries[0].start_offset == start_offset {
            return false;
        }
        self.entries.drain(..covering);
        self.entries[0].start_offset = start_offset;
        true
    }

    /// The text of Kafka's `leader-epoch-checkpoint`: version 0, number of entries, one "epoch offset" per line.
    pub fn encode(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for e in &self.entries {
            writeln!(text, "{} {}", e.epoch, e.start_offset).expect("writing to a string cannot fail");
        }
        text
    }

    /// Reads what [`encode`](Self::encode) wrote. Entries out of order are refused, not repaired.
    pub fn decode(text: &str) -> Result<EpochHistory, EpochDecodeError> {
        let mut lines = text.lines();
        if lines.next() != Some("0") {
            return Err(EpochDecodeError("unknown version"));
        }
        let count: usize =
            lines.next().and_then(|l| l.parse().ok()).ok_or(EpochDecodeError("no number of entries"))?;
        let mut entries: Vec<EpochEntry> = Vec::new();
        for line in lines.by_ref().take(count) {
            let mut words = line.split(' ');
            let (Some(epoch), Some(start), None) = (words.next(), words.next(), words.next()) else {
                return Err(EpochDecodeError("a line is not 'epoch offset'"));
            };
            let (Ok(epoch), Ok(start_offset)) = (epoch.parse::<i32>(), start.parse::<i64>()) else {
                return Err(EpochDecodeError("a line is not two numbers"));
            };
            let ordered = entries.last().is_none_or(|l| l.epoch < epoch && l.start_offset < start_offset);
            if epoch < 0 || start_offset < 0 || !ordered {
                return Err(EpochDecodeError("entries are out of order"));
            }
            entries.push(EpochEntry { epoch, start_offset });
        }
        if entries.len() != count || lines.next().is_some() {
            return Err(EpochDecodeError("number of entries and lines differ"));
        }
        Ok(EpochHistory { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn history(entries: &[(i32, i64)]) -> EpochHistory {
        let mut h = EpochHistory::new();
        for &(epoch, start) in entries {
            assert!(h.assign(epoch, start));
        }
        h
    }

    #[test]
    fn end_offsets_follow_kip_279() {
        let h = history(&[(2, 0), (4, 100), (7, 250)]);
        let cases = [
            (-1, None),
            (0, Some((0, 0))),
            (2, Some((2, 100))),
            (3, Some((2, 100))),
            (4, Some((4, 250))),
            (6, Some((4, 250))),
            (7, Some((7, 300))),
            (8, None),
        ];
        for (requested, expected) in cases {
            assert_eq!(h.end_offset_for(requested, 300), expected, "epoch {requested}");
        }
        assert_eq!(EpochHistory::new().end_offset_for(0, 10), None);
    }

    #[test]
    fn epoch_zero_is_an_epoch() {
        let h = history(&[(0, 0)]);
        assert_eq!(h.end_offset_for(0, 5), Some((0, 5)));
        assert_eq!(h.encode(), "0\n1\n0 0\n");
    }

    #[test]
    fn a_contradicting_assignment_removes_newer_entries() {
        let mut h = history(&[(1, 0), (3, 50), (5, 90)]);
        assert!(!h.assign(5, 95));
        assert!(h.assign(4, 40));
        assert_eq!(h, history(&[(1, 0), (4, 40)]));
    }

    #[test]
    fn an_epoch_goes_on_where_a_newer_one_left_no_record() {
        let mut h = history(&[(4, 0), (5, 50), (7, 100)]);
        assert!(h.assign(5, 100));
        assert_eq!(h, history(&[(4, 0), (5, 50)]));
        assert!(h.assign(5, 30), "it began sooner than was known");
        assert_eq!(h, history(&[(4, 0), (5, 30)]));
    }

    #[test]
    fn truncation_from_both_sides() {
        let mut h = history(&[(1, 0), (3, 50), (5, 90)]);
        assert!(h.truncate_from_end(90));
        assert_eq!(h, history(&[(1, 0), (3, 50)]));
        assert!(!h.truncate_from_end(90));
        assert!(h.truncate_from_start(60));
        assert_eq!(h, history(&[(3, 60)]));
        assert!(!h.truncate_from_start(60));
        assert!(!h.truncate_from_start(10));
    }

    #[test]
    fn damaged_text_is_refused() {
        for text in
            ["", "1\n0\n", "0\n", "0\n1\n", "0\n1\n1\n", "0\n1\n1 2 3\n", "0\n1\nx 2\n", "0\n2\n1 5\n1 6\n"]
        {
            assert!(EpochHistory::decode(text).is_err(), "{text:?}");
        }
        assert!(EpochHistory::decode("0\n1\n1 5\n2 6\n").is_err());
        assert_eq!(EpochHistory::decode("0\n0\n"), Ok(EpochHistory::new()));
    }

    proptest! {
        /// Whatever is assigned or cut, the entries stay strictly increasing, survive their text form, and every
        /// answer equals a linear search.
        #[test]
        fn history_keeps_its_order(ops in prop::collection::vec((0u8..3, 0i32..20, 0i64..200), 0..40)) {
            let mut h = EpochHistory::new();
            for (kind, epoch, offset) in ops {
                match kind {
                    0 => { h.assign(epoch, offset); }
                    1 => { h.truncate_from_end(offset); }
                    _ => { h.truncate_from_start(offset); }
                }
                let ordered = h.entries().windows(2).all(|w| {
                    w[0].epoch < w[1].epoch && w[0].start_offset < w[1].start_offset
                });
                prop_assert!(ordered);
                prop_assert_eq!(&EpochHistory::decode(&h.encode()).unwrap(), &h);
                for offset in 0..200 {
                    let linear = h.entries().iter().rfind(|e| e.start_offset <= offset).map(|e| e.epoch);
                    prop_assert_eq!(h.epoch_of(offset), linear);
                }
                for requested in 0..20 {
                    let end = h.end_offset_for(requested, 1000);
                    let newer = h.entries().iter().find(|e| e.epoch > requested);
                    match newer {
                        Some(n) => prop_assert_eq!(end.map(|e| e.1), Some(n.start_offset)),
                        None => prop_assert_eq!(end.is_some(), h.latest().is_some_and(|l| l.epoch == requested)),
                    }
                }
            }
        }
    }
}
