//! [`ShardLog`]: which reply waits for which append.
//!
//! Records of all decisions queue up and go out as one append at a time, each with the coordinator's epoch and the end of
//! the log that it expects; so what is retried after a lost answer is either found to be there or comes in at the right
//! place, and nothing else can. A reply waits until the records that it could have seen, those of its group, are below the
//! high watermark: the log answers an append only then.
//!
//! An append that turns out impossible, or stays without an outcome for too long, ends the log's use: memory is ahead of the
//! log by an unknown amount, so the shard is dropped and loaded again, behind a new claim.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use kafka_wire_core::{ErrorCode, Str};

use crate::config::Config;
use crate::request::{Completion, Decision, StoredRecord};

/// Counts the owners of a shard; the controller gives a higher one with each assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

/// What to append, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// Epoch of the owner: the log refuses an older one than it has seen a claim of.
    pub epoch: Epoch,
    /// Where the first record must come to stand.
    pub expected_end: i64,
    /// The records, in order, as one batch.
    pub records: Arc<[StoredRecord]>,
}

impl Append {
    /// The header of the batch that holds the records.
    pub const HEADER_BYTES: usize = 61;

    /// One past the last record.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.expected_end + self.records.len() as i64
    }
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The records stand where they were expected to, below the high watermark; now or since an earlier try.
    Committed,
    /// The log knows a claim of a newer epoch.
    Fenced,
    /// Something else stands there, or the log does not reach as far.
    Mismatch,
    /// No answer, or one that does not tell: the records may be there or may yet come.
    Unknown,
}

/// Whether memory can still be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is what the log says or will say.
    Serving,
    /// It may differ from the log: to be dropped and loaded again.
    Reload,
    /// Somebody else owns the shard.
    Fenced,
}

#[derive(Debug)]
struct InFlight {
    append: Append,
    since: i64,
    retry_at: Option<i64>,
}

/// Appends of one shard under way, and the replies that wait for them.
#[derive(Debug)]
pub struct ShardLog {
    config: Arc<Config>,
    epoch: Epoch,
    /// One past the last record that was decided.
    end: i64,
    queue: VecDeque<StoredRecord>,
    queued_bytes: usize,
    in_flight: Option<InFlight>,
    /// One past the last record of each group that is not yet committed. Never iterated into an output.
    last_writes: HashMap<Str, i64>,
    /// By the end that must be committed, then in order of arrival.
    waiting: BTreeMap<(i64, u64), Completion>,
    next_waiting: u64,
}

impl ShardLog {
    /// A log whose records below `end` are loaded and committed.
    #[must_use]
    pub fn new(config: Arc<Config>, epoch: Epoch, end: i64) -> Self {
        ShardLog {
            config,
            epoch,
            end,
            queue: VecDeque::new(),
            queued_bytes: 0,
            in_flight: None,
            last_writes: HashMap::new(),
            waiting: BTreeMap::new(),
            next_waiting: 0,
        }
    }

    /// Whether more may be decided; else requests are to be refused until appends have come through.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queued_bytes < self.config.queue_bytes_max && self.waiting.len() < self.config.waiting_max
    }

    /// Replies that wait for an append.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether every record that was decided is committed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.in_flight.is_none() && self.queue.is_empty()
    }

    /// One past the last record that was decided.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Takes a decision in; returns the completions that have nothing to wait for.
    #[must_use]
    pub fn push(&mut self, decision: Decision) -> Vec<Completion> {
        for record in decision.records {
            self.end += 1;
            self.queued_bytes += record.size();
            self.last_writes.insert(record.group.clone(), self.end);
            self.queue.push_back(record);
        }
        if cfg!(weir_planted_bug = "B22") {
            return decision.completions;
        }
        let mut ready = Vec::new();
        for completion in decision.completions {
            let wait_for = match &completion.group {
                Some(group) => self.last_writes.get(group).copied(),
                None if self.last_writes.is_empty() => None,
                None => Some(self.end),
            };
            match wait_for {
                None => ready.push(completion),
                Some(end) => {
                    self.waiting.insert((end, self.next_waiting), completion);
                    self.next_waiting += 1;
                }
            }
        }
        ready
    }

    /// The append to send now: the next one, or the one under way again. None while its answer is awaited.
    pub fn next_append(&mut self, now: i64) -> Option<Append> {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.retry_at.take_if(|at| *at <= now)?;
            return Some(in_flight.append.clone());
        }
        let first = self.queue.pop_front()?;
        let mut bytes = Append::HEADER_BYTES + first.size();
        let mut records = vec![first];
        while let Some(next) = self.queue.front() {
            bytes += next.size();
            if bytes > self.config.append_bytes_max {
                break;
            }
            records.extend(self.queue.pop_front());
        }
        self.queued_bytes -= records.iter().map(StoredRecord::size).sum::<usize>();
        let expected_end = self.end - self.queue.len() as i64 - records.len() as i64;
        let epoch = if cfg!(weir_planted_bug = "B23") { Epoch(i64::MAX) } else { self.epoch };
        let append = Append { epoch, expected_end, records: records.into() };
        self.in_flight = Some(InFlight { append: append.clone(), since: now, retry_at: None });
        Some(append)
    }

    /// What became of the append at `expected_end`; returns the replies that it sets free. Word of an append that is not
    /// under way any more is ignored.
    pub fn appended(
        &mut self,
        now: i64,
        expected_end: i64,
        outcome: AppendOutcome,
    ) -> (Fate, Vec<Completion>) {
        let Some(in_flight) = &mut self.in_flight else { return (Fate::Serving, Vec::new()) };
        if in_flight.append.expected_end != expected_end {
            return (Fate::Serving, Vec::new());
        }
        match outcome {
            AppendOutcome::Fenced => (Fate::Fenced, Vec::new()),
            AppendOutcome::Mismatch => (Fate::Reload, Vec::new()),
            AppendOutcome::Unknown => {
                in_flight.retry_at = Some(now + self.config.append_retry_ms);
                (Fate::Serving, Vec::new())
            }
            AppendOutcome::Committed => {
                let committed = in_flight.append.end();
                self.in_flight = None;
                self.last_writes.retain(|_, end| *end > committed);
                let later = self.waiting.split_off(&(committed + 1, 0));
                let ready = std::mem::replace(&mut self.waiting, later);
                (Fate::Serving, ready.into_values().collect())
            }
        }
    }

    /// When [`ShardLog::tick`] is next due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<i64> {
        let in_flight = self.in_flight.as_ref()?;
        let timeout = in_flight.since + self.config.append_timeout_ms;
        Some(in_flight.retry_at.map_or(timeout, |at| at.min(timeout)))
    }

    /// Gives an append up that has had no outcome for too long.
    #[must_use]
    pub fn tick(&self, now: i64) -> Fate {
        let timeout = self.config.append_timeout_ms;
        match &self.in_flight {
            Some(in_flight) if now - in_flight.since >= timeout => Fate::Reload,
            Some(_) | None => Fate::Serving,
        }
    }

    /// Refuses everything that waits: whether it took effect is not known.
    #[must_use]
    pub fn close(self, error: ErrorCode) -> Vec<Completion> {
        self.waiting.into_values().map(|completion| completion.refused(error)).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_wire_core::messages::heartbeat::HeartbeatResponse;

    use super::*;
    use crate::request::{GroupReply, Token};

    fn record(group: &str) -> StoredRecord {
        let key = Bytes::from(group.to_owned());
        StoredRecord { group: group.into(), key, value: None, timestamp: 0 }
    }

    fn decision(writes: &[&str], token: u64, sees: Option<&str>) -> Decision {
        let completion = Completion {
            token: Token(token),
            version: 4,
            reply: GroupReply::Heartbeat(HeartbeatResponse::default()),
            group: sees.map(Str::from),
        };
        let records = writes.iter().map(|group| record(group)).collect();
        Decision { records, completions: vec![completion] }
    }

    fn tokens(completions: &[Completion]) -> Vec<u64> {
        completions.iter().map(|completion| completion.token.0).collect()
    }

    fn log(config: Config) -> ShardLog {
        ShardLog::new(Arc::new(config), Epoch(3), 10)
    }

    #[cfg(not(any(weir_planted_bug = "B22", weir_planted_bug = "B23")))]
    #[test]
    fn replies_wait_for_the_writes_that_they_can_see() {
        let mut log = log(Config::default());
        assert_eq!(tokens(&log.push(decision(&["a"], 1, Some("a")))), Vec::<u64>::new());
        let append = log.next_append(0).expect("a record waits");
        assert_eq!((append.epoch, append.expected_end, append.end()), (Epoch(3), 10, 11));
        assert_eq!(tokens(&log.push(decision(&[], 2, Some("b")))), [2]);
        assert_eq!(tokens(&log.push(decision(&[], 3, Some("a")))), Vec::<u64>::new());
        assert_eq!(tokens(&log.push(decision(&["b", "a"], 4, Some("b")))), Vec::<u64>::new());
        assert_eq!(tokens(&log.push(decision(&[], 5, None))), Vec::<u64>::new());
        assert_eq!(log.next_append(0), None);

        // Word of another append changes nothing.
        assert_eq!(log.appended(0, 9, AppendOutcome::Mismatch), (Fate::Serving, Vec::new()));
        let (fate, ready) = log.appended(0, 10, AppendOutcome::Committed);
        assert_eq!((fate, tokens(&ready)), (Fate::Serving, vec![1, 3]));
        let append = log.next_append(0).expect("two records wait");
        assert_eq!((append.expected_end, append.end()), (11, 13));
        let (_, ready) = log.appended(0, 11, AppendOutcome::Committed);
        assert_eq!(tokens(&ready), [4, 5]);
        assert_eq!(tokens(&log.push(decision(&[], 6, None))), [6]);
    }

    #[cfg(not(any(weir_planted_bug = "B22", weir_planted_bug = "B23")))]
    #[test]
    fn an_unknown_outcome_is_asked_for_again_and_then_the_shard_is_dropped() {
        let mut log = log(Config { append_retry_ms: 100, append_timeout_ms: 250, ..Config::default() });
        assert!(log.push(decision(&["a"], 1, Some("a"))).is_empty());
        let append = log.next_append(0).expect("a record waits");
        assert_eq!(log.appended(50, 10, AppendOutcome::Unknown), (Fate::Serving, Vec::new()));
        assert_eq!((log.next_append(149), log.next_deadline()), (None, Some(150)));
        assert_eq!(log.next_append(150), Some(append));
        assert_eq!((log.tick(249), log.next_deadline()), (Fate::Serving, Some(250)));
        assert_eq!(log.tick(250), Fate::Reload);
        let refused = log.close(ErrorCode::CoordinatorNotAvailable);
        let error_code = ErrorCode::CoordinatorNotAvailable;
        let reply = GroupReply::Heartbeat(HeartbeatResponse { error_code, ..Default::default() });
        assert_eq!((tokens(&refused), &refused[0].reply), (vec![1], &reply));
    }

    #[test]
    fn appends_are_cut_by_size_and_the_queue_is_bounded() {
        let framing = StoredRecord::FRAMING_BYTES_MAX;
        let append_bytes_max = Append::HEADER_BYTES + 2 * framing + 3;
        let config = Config { append_bytes_max, queue_bytes_max: 2 * framing + 4, ..Config::default() };
        let mut log = log(config);
        let _ = log.push(decision(&["aa", "b", "cc", "d"], 1, None));
        assert!(!log.has_room());
        let sizes = |append: Option<Append>| append.map(|append| append.records.len());
        assert_eq!(sizes(log.next_append(0)), Some(2));
        assert!(log.has_room());
        let _ = log.appended(0, 10, AppendOutcome::Committed);
        assert_eq!(sizes(log.next_append(0)), Some(2));
    }
}
