//! A compacted topic whose keys are written again and again: what may a reader that rebuilds the map from its beginning find?
//!
//! Judged from a [`History`] like everything that clients see ([`crate::checker`] has the rules for a topic that keeps all). A
//! value is unique and says its key and whether it deletes that key, so that it is known who wrote what stands where. Of each key
//! the newest acknowledged write is there, or a later one of which its producer does not know; what is there stands where its
//! producer was told. The same is asked of what readers get and of what each copy has on its disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use crate::history::{EventKind, History};

/// As many keys has each partition at most.
pub const KEYS: u64 = 200;
/// The header of a record that has no value, which deletes its key: what else the value would be.
pub const HEADER: &str = "write";
/// One write of so many deletes its key.
const DELETES_ONE_OF: u64 = 8;
/// Violations of one reader or copy that are kept word by word.
const TOLD_MAX: usize = 10;

/// The key that a value is for.
pub fn key_of(value: u64) -> u64 {
    mix(value) % KEYS
}

/// A key as text, as records have it.
pub fn key_text(value: u64) -> String {
    format!("key{}", key_of(value))
}

/// Whether a write deletes its key: the record has no value then.
pub fn deletes(value: u64) -> bool {
    (mix(value) >> 32).is_multiple_of(DELETES_ONE_OF)
}

fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 3
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nobody knows whether, or where, it was written.
    Open,
    Refused,
    At(i64),
}

/// Everything that was written, as far as producers know.
#[derive(Clone, Debug, Default)]
pub struct Model {
    sent: HashMap<u64, (u16, Outcome)>,
    /// The newest acknowledged write of each key: offset and value.
    newest: BTreeMap<(u16, u64), (i64, u64)>,
    /// What was acknowledged at each offset.
    at: HashMap<(u16, i64), u64>,
    /// Keys with a deletion of which nobody knows whether it was written.
    maybe_deleted: HashSet<(u16, u64)>,
}

impl Model {
    /// What the producers of a history say.
    pub fn of(history: &History) -> Model {
        let mut model = Model::default();
        for event in &history.events {
            let (value, outcome) = match event.kind {
                EventKind::Send { value }
                | EventKind::Unknown { value }
                | EventKind::AcknowledgedSomewhere { value } => (value, Outcome::Open),
                EventKind::Refused { value } => (value, Outcome::Refused),
                EventKind::Acknowledged { value, offset } => (value, Outcome::At(offset)),
                EventKind::Assigned { .. }
                | EventKind::Polled { .. }
                | EventKind::Malformed { .. }
                | EventKind::End { .. }
                | EventKind::Closed => continue,
            };
            let known = model.sent.entry(value).or_insert((event.partition, outcome));
            if outcome != Outcome::Open {
                known.1 = outcome;
            }
        }
        for (value, (partition, outcome)) in &model.sent {
            let key = (*partition, key_of(*value));
            match outcome {
                Outcome::At(offset) => {
                    model.at.insert((*partition, *offset), *value);
                    let newest = model.newest.entry(key).or_insert((*offset, *value));
                    *newest = (*newest).max((*offset, *value));
                }
                Outcome::Open if deletes(*value) => _ = model.maybe_deleted.insert(key),
                Outcome::Open | Outcome::Refused => {}
            }
        }
        model
    }

    /// Writes that were acknowledged at an offset.
    pub fn acknowledged(&self) -> usize {
        self.at.len()
    }

    /// What is wrong with the records of a partition, offset and value of each from the beginning to the end.
    pub fn check(&self, partition: u16, records: &[(i64, u64)]) -> Vec<String> {
        let mut wrong = Vec::new();
        let (mut map, mut seen, mut last) = (HashMap::new(), HashSet::new(), -1);
        for (offset, value) in records.iter().copied() {
            if offset <= last {
                wrong.push(format!("offset {offset} comes after {last}"));
            }
            last = offset;
            if !seen.insert(value) {
                wrong.push(format!("value {value} is there twice, the second time at offset {offset}"));
            }
            wrong.extend(self.check_record(partition, offset, value));
            map.insert(key_of(value), offset);
        }
        let of_partition = (partition, 0)..=(partition, u64::MAX);
        for ((_, key), (offset, value)) in self.newest.range(of_partition) {
            let promised = format!("value {value} was acknowledged at offset {offset}");
            match map.get(key) {
                Some(found) if found >= offset => {}
                Some(found) => {
                    wrong.push(format!("key{key} is as it was at offset {found}, though {promised}"))
                }
                None if deletes(*value) || self.maybe_deleted.contains(&(partition, *key)) => {}
                None => wrong.push(format!("key{key} is not there, though {promised}")),
            }
        }
        let more = wrong.len().saturating_sub(TOLD_MAX);
        wrong.truncate(TOLD_MAX);
        wrong.extend((more > 0).then(|| format!("{more} more of this kind")));
        wrong
    }

    /// Whether a record may stand where it does.
    fn check_record(&self, partition: u16, offset: i64, value: u64) -> Option<String> {
        let promised = self.at.get(&(partition, offset)).filter(|promised| **promised != value);
        if let Some(promised) = promised {
            return Some(format!("offset {offset} holds {value} instead of the acknowledged {promised}"));
        }
        match self.sent.get(&value) {
            Some((to, Outcome::Open)) if *to == partition => None,
            Some((to, Outcome::At(told))) if *to == partition && *told == offset => None,
            Some((_, Outcome::At(told))) => {
                Some(format!("value {value} stands at offset {offset}, its producer was told {told}"))
            }
            Some((_, Outcome::Refused)) => {
                Some(format!("value {value} was refused, and is at offset {offset}"))
            }
            Some((to, Outcome::Open)) => Some(format!("value {value} was sent to partition {to}")),
            None => Some(format!("value {value} at offset {offset} was never sent")),
        }
    }
}

/// What the readers of a run found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Writes that were acknowledged at an offset.
    pub acknowledged: usize,
    /// Records that the readers got, of all partitions and each reader.
    pub read: usize,
    /// Readers that came to the end.
    pub readers: usize,
    /// What must not be.
    pub violations: Vec<String>,
}

/// Judges a history: each of its readers began at offset 0 and went to the end.
pub fn check(history: &History, model: &Model) -> Report {
    let mut report = Report { acknowledged: model.acknowledged(), ..Report::default() };
    let mut read: BTreeMap<(u16, u16), Vec<(i64, u64)>> = BTreeMap::new();
    let mut closed = BTreeSet::new();
    for event in &history.events {
        let at = (event.client, event.partition);
        let name = history.name(event.client);
        match event.kind {
            EventKind::Assigned { .. } => drop(read.entry(at).or_default()),
            EventKind::Polled { offset, value, checksum } => {
                if checksum != crate::history::checksum(value, event.partition) {
                    report.violations.push(format!("{name} got a changed record at offset {offset}"));
                }
                read.entry(at).or_default().push((offset, value));
            }
            EventKind::Malformed { offset } => {
                report.violations.push(format!("{name} got a record at offset {offset} that nobody wrote"));
            }
            EventKind::Closed => _ = closed.insert(event.client),
            EventKind::Send { .. }
            | EventKind::Acknowledged { .. }
            | EventKind::AcknowledgedSomewhere { .. }
            | EventKind::Refused { .. }
            | EventKind::Unknown { .. }
            | EventKind::End { .. } => {}
        }
    }
    // Whoever was killed has not read to the end.
    for ((client, partition), records) in read.iter().filter(|((client, _), _)| closed.contains(client)) {
        report.read += records.len();
        let name = history.name(*client);
        let wrong = model.check(*partition, records);
        report
            .violations
            .extend(wrong.into_iter().map(|what| format!("{name}, partition {partition}: {what}")));
    }
    report.readers = read
        .keys()
        .map(|(client, _)| client)
        .filter(|client| closed.contains(client))
        .collect::<BTreeSet<_>>()
        .len();
    report
}

impl Report {
    /// Whether no rule was broken.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { acknowledged, read, readers, violations } = self;
        write!(f, "keyed: {acknowledged} writes acknowledged, {read} records left for {readers} readers")?;
        violations.iter().try_for_each(|what| write!(f, "\nkeyed: BROKEN {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::checksum;

    /// The first values for a key, in order: such as delete it, or not.
    fn values(key: u64, deleting: bool) -> impl Iterator<Item = u64> {
        (0..).filter(move |value| key_of(*value) == key && deletes(*value) == deleting)
    }

    /// Two writes of key 1, at 0 and 5; key 2 is deleted at 3 after a write at 1; of key 3 a write is acknowledged at 4, and
    /// nobody knows of a later one.
    struct Run {
        history: History,
        one: [u64; 2],
        two: [u64; 2],
        three: [u64; 2],
    }

    fn run() -> Run {
        let pick = |key, deleting| values(key, deleting).next().unwrap();
        let pair = |key| <[u64; 2]>::try_from(values(key, false).take(2).collect::<Vec<_>>()).unwrap();
        let (one, three) = (pair(1), pair(3));
        let two = [pick(2, false), pick(2, true)];
        let mut history = History::default();
        let mut producer = history.client("producer");
        for (value, offset) in [(one[0], 0), (two[0], 1), (two[1], 3), (three[0], 4), (one[1], 5)] {
            producer.event(1, 0, EventKind::Send { value });
            producer.event(2, 0, EventKind::Acknowledged { value, offset });
        }
        producer.event(3, 0, EventKind::Send { value: three[1] });
        producer.event(4, 0, EventKind::Unknown { value: three[1] });
        Run { history, one, two, three }
    }

    #[test]
    fn a_compacted_log_may_have_lost_what_was_written_again() {
        let Run { history, one, two, three } = run();
        let model = Model::of(&history);
        let all = [(0, one[0]), (1, two[0]), (3, two[1]), (4, three[0]), (5, one[1])];
        for left in [&all[..], &all[2..], &all[3..], &[(5, one[1]), (6, three[1])]] {
            assert_eq!(model.check(0, left), Vec::<String>::new(), "{left:?}");
        }
        assert_eq!(model.acknowledged(), 5);
    }

    #[test]
    fn every_fault_is_found() {
        let Run { history, one, two, three } = run();
        let model = Model::of(&history);
        let cases: [(&[(i64, u64)], &str); 8] = [
            (&[(0, one[0]), (4, three[0])], "key1 is as it was at offset 0"),
            (&[(4, three[0])], "key1 is not there"),
            (&[(1, two[0]), (4, three[0]), (5, one[1])], "key2 is as it was at offset 1"),
            (&[(4, three[0]), (6, one[1])], "was told 5"),
            (&[(4, one[1]), (5, three[1])], "instead of the acknowledged"),
            (&[(5, one[1]), (4, three[0])], "offset 4 comes after 5"),
            (&[(4, three[0]), (5, one[1]), (6, three[1]), (7, three[1])], "is there twice"),
            (&[(4, three[0]), (5, one[1]), (6, u64::MAX)], "never sent"),
        ];
        for (records, expected) in cases {
            let wrong = model.check(0, records);
            assert!(wrong.iter().any(|what| what.contains(expected)), "{expected}: {wrong:?}");
        }
        let elsewhere = model.check(1, &[(6, three[1])]);
        assert!(elsewhere[0].contains("was sent to partition 0"), "{elsewhere:?}");
    }

    #[test]
    fn a_refused_write_is_nowhere_and_a_doubtful_deletion_explains_what_is_gone() {
        let (value, gone) = (values(1, false).next().unwrap(), values(1, true).next().unwrap());
        let mut history = History::default();
        history.client("p").event(1, 0, EventKind::Send { value }).event(2, 0, EventKind::Refused { value });
        let wrong = Model::of(&history).check(0, &[(0, value)]);
        assert!(wrong[0].contains("was refused"), "{wrong:?}");
        let mut history = History::default();
        let mut producer = history.client("p");
        producer.event(1, 0, EventKind::Acknowledged { value, offset: 0 });
        assert_eq!(Model::of(&history).check(0, &[]).len(), 1);
        history.client("p").event(2, 0, EventKind::Send { value: gone });
        assert_eq!(Model::of(&history).check(0, &[]), Vec::<String>::new());
    }

    #[test]
    fn readers_that_came_to_the_end_are_judged_and_those_that_were_killed_are_not() {
        let Run { mut history, one, three, .. } = run();
        let read = |history: &mut History, name: &str, records: &[(i64, u64)], ends: bool| {
            let mut reader = history.client(name);
            reader.event(9, 0, EventKind::Assigned { offset: 0 });
            for (offset, value) in records.iter().copied() {
                reader.event(9, 0, EventKind::Polled { offset, value, checksum: checksum(value, 0) });
            }
            if ends {
                reader.event(9, 0, EventKind::Closed);
            }
        };
        read(&mut history, "whole", &[(4, three[0]), (5, one[1])], true);
        read(&mut history, "killed", &[(4, three[0])], false);
        let report = check(&history, &Model::of(&history));
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.acknowledged, report.read, report.readers), (5, 2, 1));
        read(&mut history, "nothing", &[], true);
        let report = check(&history, &Model::of(&history));
        assert_eq!(report.violations.len(), 2, "keys 1 and 3: {report}");
    }
}
