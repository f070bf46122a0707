//! The first half of a pass: the last offset of each key in the dirty part of the log.

use records::{BatchError, BatchView};

use super::{AbortedRanges, KeyHash, KeyMap};

/// The map while it is filled.
#[derive(Debug)]
pub struct Mapping {
    map: KeyMap,
    from: i64,
    end: i64,
    /// Keys of the batch that is being looked at.
    keys: Vec<(KeyHash, i64)>,
}

impl Mapping {
    /// Nothing yet; `from` is where the dirty part begins.
    pub fn new(map: KeyMap, from: i64) -> Mapping {
        Mapping { map, from, end: from, keys: Vec::new() }
    }

    /// The map holds every key below this offset, from where it began.
    pub fn end(&self) -> i64 {
        self.end
    }

    pub fn map(&self) -> &KeyMap {
        &self.map
    }

    /// Nothing was left out below `offset`, where a segment ends; its last batch may end before.
    pub fn reach(&mut self, offset: i64) {
        self.end = self.end.max(offset);
    }

    /// Takes the next batch of the log. Answers `false` when the map is full, or when it is not known whether the batch was
    /// aborted: the map is complete up to [`end`](Self::end),
    /// which may lie inside the batch but is above where it began. The keys of a batch that cannot be unpacked are not in the
    /// map: it and all records of those keys before it stay.
    pub fn take(
        &mut self,
        batch: &BatchView<'_>,
        unpacked_bytes_max: usize,
        aborted: &AbortedRanges,
        hash: impl Fn(&[u8]) -> KeyHash,
    ) -> bool {
        let header = batch.header();
        if header.last_offset() < self.from {
            return true;
        }
        if header.base_offset >= aborted.known_to() {
            self.reach(aborted.known_to());
            return false;
        }
        self.keys.clear();
        if !header.is_control()
            && !aborted.holds(header)
            && header.record_count != 0
            && self.collect(batch, unpacked_bytes_max, hash).is_err()
        {
            self.keys.clear();
        }
        for &(key, offset) in &self.keys {
            if !self.map.put(key, offset) {
                self.end = offset;
                return false;
            }
        }
        self.end = header.last_offset() + 1;
        true
    }

    fn collect(
        &mut self,
        batch: &BatchView<'_>,
        unpacked_bytes_max: usize,
        hash: impl Fn(&[u8]) -> KeyHash,
    ) -> Result<(), BatchError> {
        let records = batch.records(unpacked_bytes_max)?;
        for record in records.iter() {
            let record = record?;
            if let Some(key) = record.key.filter(|_| record.offset >= self.from) {
                self.keys.push((hash(key), record.offset));
            }
        }
        Ok(())
    }
}
