//! The first half of a pass: the last offset of each key in the dirty part of the log.

use records::{BatchError, BatchView};

use super::{AbortedRanges, KeyHash, KeyMap};

/// The map while it is filled.
#[derive(Debug)]
pub struct Mapping {
    map: KeyMap,
    from: i64,
    end: i64,
}

impl Mapping {
    /// Nothing yet; `from` is where the dirty part begins.
    pub fn new(map: KeyMap, from: i64) -> Mapping {
        Mapping { map, from, end: from }
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

    /// Takes the next batch of the log. Answers `false` when the map is full: it is complete up to [`end`](Self::end),
    /// which may lie inside the batch but is above where it began.
    pub fn take(
        &mut self,
        batch: &BatchView<'_>,
        unpacked_bytes_max: usize,
        aborted: &AbortedRanges,
        hash: impl Fn(&[u8]) -> KeyHash,
    ) -> Result<bool, BatchError> {
        let header = batch.header();
        if header.last_offset() < self.from {
            return Ok(true);
        }
        if !header.is_control() && !aborted.holds(header) && header.record_count != 0 {
            let records = batch.records(unpacked_bytes_max)?;
            for record in records.iter() {
                let record = record?;
                let Some(key) = record.key.filter(|_| record.offset >= self.from) else { continue };
                if !self.map.put(hash(key), record.offset) {
                    self.end = record.offset;
                    return Ok(false);
                }
            }
        }
        self.end = header.last_offset() + 1;
        Ok(true)
    }
}
