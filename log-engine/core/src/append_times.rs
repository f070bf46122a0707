//! When a segment's records were appended, by the broker's clock: some offsets with their times, and the newest.
//!
//! Timestamps in records are their producers' and may lie anywhere; what the broker itself saw bounds them. Times never
//! go back within a log, whatever the clock does. The number of entries is bounded: when there are too many, every other
//! one goes and new ones come half as often. On disk the times of a segment are its file `<base>.appendtimes`, which
//! only saves knowledge: without it the file system's time of the segment's last change stands in.
//!
//! ```text
//! "WAT1" | entries u32 | base offset i64 | entries: relative offset u32, time i64 | CRC-32C u32      big-endian
//! ```

/// Entries of one segment at most, the newest append not counted.
pub const ENTRIES_MAX: usize = 128;
/// Bytes of the largest file.
pub const FILE_BYTES_MAX: usize = HEADER_BYTES + (ENTRIES_MAX + 1) * ENTRY_BYTES + CRC_BYTES;

const MAGIC: &[u8; 4] = b"WAT1";
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 12;
const CRC_BYTES: usize = 4;
/// Two entries are so far apart at first, in milliseconds.
const SPACING_MS: i64 = 1000;

/// The last offset of an append and when it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendTime {
    pub offset: i64,
    /// Broker time in milliseconds.
    pub time_ms: i64,
}

/// The append times of one segment, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendTimes {
    entries: Vec<AppendTime>,
    newest: Option<AppendTime>,
    spacing_ms: i64,
}

/// Why the bytes of an `appendtimes` file are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("append times are damaged: {0}")]
pub struct AppendTimesError(&'static str);

impl Default for AppendTimes {
    fn default() -> AppendTimes {
        AppendTimes { entries: Vec::new(), newest: None, spacing_ms: SPACING_MS }
    }
}

impl AppendTimes {
    /// Notes that everything up to `last_offset` was appended by now. A clock that went back does not take the times back
    /// with it.
    pub fn note(&mut self, last_offset: i64, now_ms: i64) {
        let before = self.newest;
        let time_ms = before.map_or(now_ms, |newest| now_ms.max(newest.time_ms));
        let noted = AppendTime { offset: last_offset, time_ms };
        self.newest = Some(noted);
        let due = |last: &AppendTime| time_ms.saturating_sub(last.time_ms) >= self.spacing_ms;
        if self.entries.last().is_none_or(due) {
            self.entries.push(noted);
        }
        if self.entries.len() > ENTRIES_MAX {
            let mut place = 0;
            self.entries.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.spacing_ms = self.spacing_ms.saturating_mul(2);
        }
    }

    /// The times of a segment that holds this one's records and then those of the next.
    pub fn extend(&mut self, next: &AppendTimes) {
        for entry in next.entries.iter().chain(&next.newest) {
            if self.newest.is_none_or(|newest| newest.offset < entry.offset) {
                self.note(entry.offset, entry.time_ms);
            }
        }
    }

    /// When the oldest records of the segment were appended.
    pub fn oldest(&self) -> Option<AppendTime> {
        self.entries.first().copied()
    }

    /// When the newest were.
    pub fn newest(&self) -> Option<AppendTime> {
        self.newest
    }

    /// The segment was cut: what reaches `end` is gone. Of what is left the time of the next entry stands for that of the
    /// newest, which is too late rather than too early.
    pub fn truncate(&mut self, end: i64) {
        let Some(newest) = self.newest.filter(|newest| newest.offset >= end) else { return };
        let kept = self.entries.partition_point(|entry| entry.offset < end);
        let after = self.entries.get(kept).copied().unwrap_or(newest);
        self.entries.truncate(kept);
        self.newest = self.entries.last().map(|last| match last.offset == end - 1 {
            true => *last,
            false => AppendTime { offset: end - 1, time_ms: after.time_ms },
        });
    }

    /// The file of a segment.
    pub fn encode(&self, base_offset: i64) -> Vec<u8> {
        let newest = self.newest.filter(|newest| self.entries.last() != Some(newest));
        let mut bytes = MAGIC.to_vec();
        let count = self.entries.len() + usize::from(newest.is_some());
        bytes.extend((count as u32).to_be_bytes());
        bytes.extend(base_offset.to_be_bytes());
        for entry in self.entries.iter().chain(&newest) {
            // Offsets of a segment lie within 31 bits of its base.
            bytes.extend(((entry.offset - base_offset) as u32).to_be_bytes());
            bytes.extend(entry.time_ms.to_be_bytes());
        }
        bytes.extend(crc(&bytes).to_be_bytes());
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote for the segment of that base offset.
    pub fn decode(bytes: &[u8], base_offset: i64) -> Result<AppendTimes, AppendTimesError> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(AppendTimesError("too long"));
        }
        let (body, stored) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(AppendTimesError("too short"))?;
        if crc(body) != u32::from_be_bytes(*stored) {
            return Err(AppendTimesError("checksum"));
        }
        let (magic, body) = body.split_first_chunk::<4>().ok_or(AppendTimesError("too short"))?;
        let (count, body) = body.split_first_chunk::<4>().ok_or(AppendTimesError("too short"))?;
        let (base, body) = body.split_first_chunk::<8>().ok_or(AppendTimesError("too short"))?;
        let count = u32::from_be_bytes(*count) as usize;
        if magic != MAGIC || i64::from_be_bytes(*base) != base_offset || body.len() != count * ENTRY_BYTES {
            return Err(AppendTimesError("header"));
        }
        let mut times = AppendTimes::default();
        let mut entries = Vec::with_capacity(count);
        for entry in body.as_chunks::<ENTRY_BYTES>().0 {
            let (offset, time) = entry.split_at(4);
            let relative = u32::from_be_bytes(offset.try_into().map_err(|_| AppendTimesError("entry"))?);
            let time_ms = i64::from_be_bytes(time.try_into().map_err(|_| AppendTimesError("entry"))?);
            let offset = base_offset.checked_add(i64::from(relative)).ok_or(AppendTimesError("entry"))?;
            let in_order = |last: &AppendTime| last.offset < offset && last.time_ms <= time_ms;
            if !entries.last().is_none_or(in_order) {
                return Err(AppendTimesError("order"));
            }
            entries.push(AppendTime { offset, time_ms });
        }
        times.newest = entries.last().copied();
        if entries.len() > ENTRIES_MAX {
            entries.pop();
        }
        if let (Some(first), Some(last)) = (entries.first(), entries.last())
            && let Ok(gaps) = i64::try_from(entries.len() - 1)
            && gaps > 0
        {
            times.spacing_ms = ((last.time_ms - first.time_ms) / gaps).max(SPACING_MS);
        }
        times.entries = entries;
        Ok(times)
    }
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64, time_ms: i64) -> AppendTime {
        AppendTime { offset, time_ms }
    }

    #[test]
    fn segments_that_become_one_keep_their_times() {
        let (mut first, mut second, mut merged) =
            (AppendTimes::default(), AppendTimes::default(), AppendTimes::default());
        for i in 0..1000 {
            let times = if i < 400 { &mut first } else { &mut second };
            times.note(i, i * 1000);
        }
        second.note(1000, 999_001);
        merged.extend(&first);
        merged.extend(&second);
        merged.extend(&AppendTimes::default());
        assert_eq!(merged.oldest(), Some(at(0, 0)));
        assert_eq!(merged.newest(), Some(at(1000, 999_001)));
        assert!(merged.entries.len() <= ENTRIES_MAX);
        assert!(merged.entries.is_sorted_by(|a, b| a.offset < b.offset && a.time_ms <= b.time_ms));
        assert_eq!(AppendTimes::decode(&merged.encode(0), 0).unwrap().newest(), merged.newest());
    }

    #[test]
    fn entries_are_spaced_and_bounded() {
        let mut times = AppendTimes::default();
        for i in 0..100_000 {
            times.note(i, i * 100);
            assert!(times.entries.len() <= ENTRIES_MAX);
            assert_eq!(times.newest(), Some(at(i, i * 100)));
        }
        assert_eq!(times.oldest(), Some(at(0, 0)));
        assert!(times.entries.len() >= ENTRIES_MAX / 2);
        assert!(times.entries.is_sorted_by(|a, b| a.offset < b.offset && a.time_ms + 1000 <= b.time_ms));
    }

    #[test]
    fn time_does_not_go_back() {
        let mut times = AppendTimes::default();
        times.note(5, 1_000_000);
        times.note(6, 10);
        assert_eq!(times.newest(), Some(at(6, 1_000_000)));
        times.note(7, i64::MIN);
        times.note(8, i64::MAX);
        assert_eq!(times.newest(), Some(at(8, i64::MAX)));
    }

    #[test]
    fn a_cut_never_makes_records_older_than_they_are() {
        let mut times = AppendTimes::default();
        for i in 0..1000 {
            times.note(i, i * 400);
        }
        for end in (0..=1000).rev() {
            times.truncate(end);
            match times.newest() {
                None => assert!(end <= 1),
                Some(newest) => {
                    assert_eq!(newest.offset, end - 1);
                    assert!(newest.time_ms >= (end - 1) * 400, "{end}: {newest:?}");
                    assert!(newest.time_ms <= (end - 1) * 400 + 2 * times.spacing_ms, "{end}: {newest:?}");
                }
            }
        }
        times.note(0, 7);
        assert_eq!(times.newest(), Some(at(0, 7)));
    }

    #[test]
    fn the_file_says_what_was_noted_and_damage_is_seen() {
        for count in [0, 1, 2, 50, 1000, 7777] {
            let mut times = AppendTimes::default();
            for i in 0..count {
                times.note(1_000 + i, i * 777);
            }
            let bytes = times.encode(1_000);
            assert!(bytes.len() <= FILE_BYTES_MAX);
            let read = AppendTimes::decode(&bytes, 1_000).unwrap();
            assert_eq!((read.oldest(), read.newest()), (times.oldest(), times.newest()));
            assert!(AppendTimes::decode(&bytes, 1_001).is_err());
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                assert!(AppendTimes::decode(&damaged, 1_000).is_err(), "byte {at}");
                assert!(AppendTimes::decode(&bytes[..at], 1_000).is_err(), "cut at {at}");
            }
        }
    }
}
