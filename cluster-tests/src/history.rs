//! What clients of a run did and saw, as they wrote it down: the only thing that the [`crate::checker`] looks at.
//!
//! Each client writes a file of its own, one event a line, in the order in which things happened to it. Times are microseconds
//! of the machine's monotonic clock, so that they can be compared between processes of one machine.
//!
//! ```text
//! s TIME PARTITION VALUE                     a record is about to be sent
//! o TIME PARTITION VALUE OFFSET              it was acknowledged, and stands at this offset; -1 if nobody said where
//! x TIME PARTITION VALUE REASON              it was refused for good: nobody may ever read it
//! u TIME PARTITION VALUE REASON              nobody knows whether it was written (a time-out, for example)
//! a TIME PARTITION OFFSET                    from here on the client reads at this offset
//! r TIME PARTITION OFFSET VALUE CHECKSUM     it read a record
//! m TIME PARTITION OFFSET                    it read a record that no client of the run can have written
//! e TIME PARTITION OFFSET                    it has read everything up to this offset, which was the end
//! c TIME                                     the client ended its work properly
//! ```
//!
//! A value is unique in the whole run. A record's payload is `VALUE CHECKSUM`, perhaps with padding behind it; the checksum
//! ([`checksum`]) covers value and partition, so that a record in the wrong partition, or a changed one, cannot pass for another.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Extension of history files.
pub const EXTENSION: &str = "history";

/// Everything that the clients of a run wrote down.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Names of the clients; events point at them by index.
    pub clients: Vec<String>,
    /// Events, for each client in its own order.
    pub events: Vec<Event>,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whose.
    pub client: u16,
    /// When, in microseconds of the monotonic clock.
    pub time_us: u64,
    /// Of which partition; 0 where there is none.
    pub partition: u16,
    /// What.
    pub kind: EventKind,
}

/// What happened; see the module for the meaning of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the module's table says what each field is")]
pub enum EventKind {
    Send { value: u64 },
    Acknowledged { value: u64, offset: i64 },
    AcknowledgedSomewhere { value: u64 },
    Refused { value: u64 },
    Unknown { value: u64 },
    Assigned { offset: i64 },
    Polled { offset: i64, value: u64, checksum: u64 },
    Malformed { offset: i64 },
    End { offset: i64 },
    Closed,
}

/// A history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The system said no.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// A line that no client writes.
    #[error("{}, line {line}: not an event: {text:?}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
}

/// The checksum of a value in a partition: two rounds of the finalizer of splitmix64.
pub fn checksum(value: u64, partition: u16) -> u64 {
    mix(value ^ mix(u64::from(partition).wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The beginning of the payload of a record; padding may follow.
pub fn payload(value: u64, partition: u16) -> String {
    format!("{value} {:016x}", checksum(value, partition))
}

/// Takes a payload apart; `None` if no client of ours can have written it.
pub fn parse_payload(payload: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(payload).ok()?;
    let mut words = text.split(' ');
    let value = words.next()?.parse().ok()?;
    let checksum = words.next().filter(|word| word.len() == 16)?;
    Some((value, u64::from_str_radix(checksum, 16).ok()?))
}

impl History {
    /// Reads every history file of a folder.
    pub fn read_dir(dir: &Path) -> Result<History, HistoryError> {
        let failed = |error| HistoryError::Io { path: dir.to_owned(), error };
        let mut paths = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                paths.push(path);
            }
        }
        paths.sort();
        let mut history = History::default();
        for path in paths {
            history.read_file(&path)?;
        }
        Ok(history)
    }

    /// Adds a client's file. A last line without its end is passed over: the client was killed while writing it.
    pub fn read_file(&mut self, path: &Path) -> Result<(), HistoryError> {
        let failed = |error| HistoryError::Io { path: path.to_owned(), error };
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut client = self.client(name);
        let mut reader = BufReader::with_capacity(1 << 20, fs::File::open(path).map_err(failed)?);
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            if reader.read_line(&mut text).map_err(failed)? == 0 || !text.ends_with('\n') {
                break;
            }
            if !client.line(text.trim_end()) {
                return Err(HistoryError::Line {
                    path: path.to_owned(),
                    line,
                    text: text.trim_end().to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Adds a client, whose events then come one by one.
    pub fn client(&mut self, name: impl Into<String>) -> Client<'_> {
        self.clients.push(name.into());
        let client = u16::try_from(self.clients.len() - 1).expect("a run has fewer than 65,536 clients");
        Client { client, events: &mut self.events }
    }

    /// The name of an event's client.
    pub fn name(&self, client: u16) -> &str {
        self.clients.get(usize::from(client)).map_or("?", String::as_str)
    }
}

/// Takes the events of one client.
#[derive(Debug)]
pub struct Client<'a> {
    client: u16,
    events: &'a mut Vec<Event>,
}

impl Client<'_> {
    /// Adds an event.
    pub fn event(&mut self, time_us: u64, partition: u16, kind: EventKind) -> &mut Self {
        self.events.push(Event { client: self.client, time_us, partition, kind });
        self
    }

    /// Adds the event of a line; false if it is none.
    fn line(&mut self, line: &str) -> bool {
        parse(line).is_some_and(|(time_us, partition, kind)| {
            self.event(time_us, partition, kind);
            true
        })
    }
}

fn parse(line: &str) -> Option<(u64, u16, EventKind)> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let time_us = words.next()?.parse().ok()?;
    if kind == "c" {
        return Some((time_us, 0, EventKind::Closed));
    }
    let partition = words.next()?.parse().ok()?;
    let offset = |number: u64| i64::try_from(number).ok();
    let first = words.next()?.parse::<u64>().ok()?;
    let kind = match kind {
        "s" => EventKind::Send { value: first },
        "o" => {
            let value = first;
            match words.next()? {
                "-1" => EventKind::AcknowledgedSomewhere { value },
                at => EventKind::Acknowledged { value, offset: offset(at.parse().ok()?)? },
            }
        }
        "x" => EventKind::Refused { value: first },
        "u" => EventKind::Unknown { value: first },
        "a" => EventKind::Assigned { offset: offset(first)? },
        "m" => EventKind::Malformed { offset: offset(first)? },
        "e" => EventKind::End { offset: offset(first)? },
        "r" => {
            let (at, value) = (offset(first)?, words.next()?.parse().ok()?);
            let checksum = u64::from_str_radix(words.next()?, 16).ok()?;
            EventKind::Polled { offset: at, value, checksum }
        }
        _ => return None,
    };
    Some((time_us, partition, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let sum = format!("{:016x}", checksum(7, 2));
        let lines = format!(
            "s 1 2 7\no 2 2 7 100\no 2 2 6 -1\nx 3 2 8 why it is so\nu 4 2 9 time-out\na 5 2 90\nr 6 2 100 7 {sum}\nm 7 2 101\ne 8 2 102\nc 9\ns 10 2 1"
        );
        std::fs::write(dir.path().join("one.history"), lines).unwrap();
        std::fs::write(dir.path().join("other.txt"), "not a history").unwrap();
        let history = History::read_dir(dir.path()).unwrap();
        assert_eq!(history.clients, ["one"]);
        let kinds: Vec<EventKind> = history.events.iter().map(|event| event.kind).collect();
        assert_eq!(
            kinds,
            [
                EventKind::Send { value: 7 },
                EventKind::Acknowledged { value: 7, offset: 100 },
                EventKind::AcknowledgedSomewhere { value: 6 },
                EventKind::Refused { value: 8 },
                EventKind::Unknown { value: 9 },
                EventKind::Assigned { offset: 90 },
                EventKind::Polled { offset: 100, value: 7, checksum: checksum(7, 2) },
                EventKind::Malformed { offset: 101 },
                EventKind::End { offset: 102 },
                EventKind::Closed,
            ],
            "the line that was cut off is passed over"
        );
        assert_eq!(history.events[1].time_us, 2);
        assert!(history.events[..9].iter().all(|event| event.partition == 2));
    }

    #[test]
    fn a_line_that_no_client_writes_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for wrong in ["q 1 2 3", "o 1 2 3", "o 1 2 3 -5", "r 1 2 3 4 zz", "s 1 70000 3", ""] {
            std::fs::write(dir.path().join("one.history"), format!("c 1\n{wrong}\n")).unwrap();
            let error = History::read_dir(dir.path()).unwrap_err();
            assert!(matches!(error, HistoryError::Line { line: 2, .. }), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn payloads_survive_padding_and_nothing_else() {
        let text = payload(42, 3);
        assert_eq!(parse_payload(text.as_bytes()), Some((42, checksum(42, 3))));
        assert_eq!(parse_payload(format!("{text} xxxxxxxx").as_bytes()), Some((42, checksum(42, 3))));
        assert_ne!(checksum(42, 3), checksum(42, 4));
        for wrong in [&b""[..], b"42", b"42 12", b"x 0000000000000000", b"\xff\xfe", &text.as_bytes()[1..10]]
        {
            assert_eq!(parse_payload(wrong), None);
        }
    }
}
