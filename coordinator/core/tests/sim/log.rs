//! The log of the shard as storage nodes keep it: one leader, a high watermark that lags, a fence by claims, compaction;
//! and the whole history beside it, which no daemon has.

use std::collections::BTreeMap;

use bytes::Bytes;
use coordinator_core::stored::Record;
use coordinator_core::{Append, Epoch, LoadedRecord, State};

/// What stands at an offset.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    /// A claim of an epoch.
    Claim(Epoch),
    /// A record.
    Record { key: Bytes, value: Option<Bytes> },
}

/// An entry and who really wrote it, whatever it said of itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    pub(crate) writer: Epoch,
    pub(crate) entry: Entry,
    /// What the record says, if it is one.
    pub(crate) record: Option<Record>,
}

/// What the leader says to an append or claim at once; that it is committed comes later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It stands in the log up to this end.
    Stands {
        end: i64,
    },
    Fenced,
    Mismatch,
}

#[derive(Debug, Default)]
pub(crate) struct ModelLog {
    /// Everything that stands in the log, without compaction.
    pub(crate) history: Vec<Written>,
    /// Offsets that compaction has removed are absent.
    compacted: BTreeMap<i64, Entry>,
    pub(crate) high_watermark: i64,
    /// Whether the leader looks if an append at the wrong end is one that is there already; else it refuses it, and the
    /// coordinator has to load again.
    knows_retries: bool,
}

impl ModelLog {
    pub(crate) fn new(knows_retries: bool) -> Self {
        ModelLog { knows_retries, ..ModelLog::default() }
    }

    pub(crate) fn end(&self) -> i64 {
        self.history.len() as i64
    }

    /// The highest epoch that a claim in the log states: older ones are refused.
    fn fence(&self) -> Epoch {
        let claims = self.compacted.values().filter_map(|entry| match entry {
            Entry::Claim(epoch) => Some(*epoch),
            Entry::Record { .. } => None,
        });
        claims.max().unwrap_or(Epoch(0))
    }

    fn put(&mut self, writer: Epoch, entry: Entry) {
        self.compacted.insert(self.end(), entry.clone());
        let record = match &entry {
            Entry::Record { key, value } => Record::decode(key, value.as_ref()).ok(),
            Entry::Claim(_) => None,
        };
        self.history.push(Written { writer, entry, record });
    }

    /// Appends a claim. `stated` is the epoch that it states, `writer` whose it is.
    pub(crate) fn claim(&mut self, stated: Epoch, writer: Epoch) -> Verdict {
        let known = stated.0 != i64::MAX;
        if known && stated < self.fence() {
            return Verdict::Fenced;
        }
        // A coordinator that hides its epoch is not refused; what it claims does not count as a fence.
        self.put(writer, Entry::Claim(if known { stated } else { writer }));
        Verdict::Stands { end: self.end() }
    }

    pub(crate) fn append(&mut self, append: &Append, writer: Epoch) -> Verdict {
        if append.epoch < self.fence() {
            return Verdict::Fenced;
        }
        let entries: Vec<Entry> = append
            .records
            .iter()
            .map(|record| Entry::Record { key: record.key.clone(), value: record.value.clone() })
            .collect();
        if append.expected_end == self.end() {
            entries.into_iter().for_each(|entry| self.put(writer, entry));
            return Verdict::Stands { end: append.end() };
        }
        // A retry is recognised by what it says, byte for byte.
        let from = usize::try_from(append.expected_end).unwrap_or(usize::MAX);
        let there = self.history.get(from..from.saturating_add(entries.len()));
        let same = there.is_some_and(|there| there.iter().map(|w| &w.entry).eq(entries.iter()));
        if same && self.knows_retries { Verdict::Stands { end: append.end() } } else { Verdict::Mismatch }
    }

    /// The leader is lost, and with it what was above the high watermark.
    pub(crate) fn truncate(&mut self) -> bool {
        let lost = self.end() > self.high_watermark;
        self.history.truncate(self.high_watermark as usize);
        self.compacted.split_off(&self.high_watermark);
        lost
    }

    /// Keeps the last record of each key below the high watermark, and all claims.
    pub(crate) fn compact(&mut self, drop_tombstones: bool) {
        let mut last: BTreeMap<Bytes, i64> = BTreeMap::new();
        for (offset, entry) in self.compacted.range(..self.high_watermark) {
            if let Entry::Record { key, .. } = entry {
                last.insert(key.clone(), *offset);
            }
        }
        let end = self.high_watermark;
        self.compacted.retain(|offset, entry| match entry {
            Entry::Record { key, value } if *offset < end => {
                last.get(key) == Some(offset) && !(drop_tombstones && value.is_none())
            }
            Entry::Record { .. } | Entry::Claim(_) => true,
        });
    }

    /// Committed records from `from` on, at most `count`, and the next offset to read.
    pub(crate) fn read(&self, from: i64, until: i64, count: usize) -> (Vec<LoadedRecord>, i64) {
        let until = until.min(self.high_watermark);
        let mut records = Vec::new();
        for (offset, entry) in self.compacted.range(from..until.max(from)) {
            if let Entry::Record { key, value } = entry {
                if records.len() == count {
                    return (records, *offset);
                }
                let (key, value) = (Some(key.clone()), value.clone());
                records.push(LoadedRecord { offset: *offset, key, value });
            }
        }
        (records, until)
    }

    /// State after the first `end` entries, compacted or not.
    pub(crate) fn replay(&self, end: i64, compacted: bool) -> State {
        let mut state = State::default();
        let mut apply = |entry: &Entry| {
            if let Entry::Record { key, value } = entry {
                state.replay(key, value.as_ref()).expect("our own records");
            }
        };
        if compacted {
            self.compacted.range(..end).for_each(|(_, entry)| apply(entry));
        } else {
            self.history.iter().take(end as usize).for_each(|written| apply(&written.entry));
        }
        state
    }
}
