//! Judges a [`History`]: what may clients never see, whatever happens to the servers?
//!
//! Nothing but the history is looked at, so the checker shares no mistake with the system that it judges. It is built from the
//! rules that Jepsen's workload for Kafka uses, in O(n log n) for histories of millions of operations. The topic is not compacted
//! and nothing in it expires. The rules are the variants of [`Violation`], each in the file that looks for it: [`placements`]
//! (what stands where), [`reads`] (what a reader saw in which order), [`sends`] (what became of what was sent).

mod placements;
mod reads;
mod sends;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{EventKind, History};
use placements::Placements;

/// How many violations of one rule are kept word by word; the others are counted.
const KEPT_MAX: usize = 20;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was in the history.
    pub counts: Counts,
    /// How many violations there are of each rule.
    pub broken: BTreeMap<&'static str, u64>,
    /// The first violations of each rule.
    pub violations: Vec<Violation>,
    /// Longest time from an acknowledgement to the moment when a reader that was following got the record. No violation.
    pub read_lag_us_max: u64,
}

/// How much there was to judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub sent: u64,
    pub acknowledged: u64,
    /// Of those, how many without being told where they stand.
    pub acknowledged_somewhere: u64,
    pub refused: u64,
    pub unknown: u64,
    /// Of those, how many were read nevertheless.
    pub unknown_but_read: u64,
    pub polled: u64,
}

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant says what its fields are")]
pub enum Violation {
    /// An acknowledged record below what somebody has read was read by nobody.
    Lost { partition: u16, value: u64, offset: i64 },
    /// A record was acknowledged, though not where, and nobody read it.
    Nowhere { partition: u16, value: u64 },
    /// An acknowledged record beyond everything that was read, although the last readers went to the end.
    Unseen { partition: u16, value: u64, offset: i64, read_to: i64 },
    /// One record stands at two offsets.
    Duplicate { partition: u16, value: u64, offsets: (i64, i64) },
    /// Two records stand at one offset.
    InconsistentOffset { partition: u16, offset: i64, values: (u64, u64) },
    /// A record that nobody sent, or not to this partition, or not with these bytes.
    Phantom { partition: u16, offset: i64, reason: &'static str },
    /// A record that was refused for good was read.
    RefusedButRead { partition: u16, value: u64, offset: i64 },
    /// A producer's records stand in another order than it sent them.
    Reordered { client: String, partition: u16, values: (u64, u64), offsets: (i64, i64) },
    /// A reader went backwards without being told to.
    Backwards { client: String, partition: u16, from: i64, to: i64 },
    /// A reader went over a record that was there.
    Skipped { client: String, partition: u16, from: i64, to: i64, skipped: i64 },
    /// There is an offset below the end at which no reader found a record.
    Gap { partition: u16, from: i64, to: i64 },
}

impl Violation {
    /// The rule's name.
    pub fn rule(&self) -> &'static str {
        match self {
            Violation::Lost { .. } => "lost",
            Violation::Nowhere { .. } => "nowhere",
            Violation::Unseen { .. } => "unseen",
            Violation::Duplicate { .. } => "duplicate",
            Violation::InconsistentOffset { .. } => "inconsistent offset",
            Violation::Phantom { .. } => "phantom",
            Violation::RefusedButRead { .. } => "refused but read",
            Violation::Reordered { .. } => "reordered",
            Violation::Backwards { .. } => "backwards",
            Violation::Skipped { .. } => "skipped",
            Violation::Gap { .. } => "gap",
        }
    }
}

/// Judges a history.
pub fn check(history: &History) -> Report {
    let mut report = Report { counts: count(history), ..Report::default() };
    let sent = sends::Sent::of(history);
    let placements = Placements::of(history);
    placements.check(&mut report);
    reads::check(history, &sent, &placements, &mut report);
    sends::check(history, &sent, &placements, &mut report);
    report
}

fn count(history: &History) -> Counts {
    let mut counts = Counts::default();
    for event in &history.events {
        match event.kind {
            EventKind::Send { .. } => counts.sent += 1,
            EventKind::Acknowledged { .. } => counts.acknowledged += 1,
            EventKind::AcknowledgedSomewhere { .. } => {
                counts.acknowledged += 1;
                counts.acknowledged_somewhere += 1;
            }
            EventKind::Refused { .. } => counts.refused += 1,
            EventKind::Unknown { .. } => counts.unknown += 1,
            EventKind::Polled { .. } | EventKind::Malformed { .. } => counts.polled += 1,
            EventKind::Assigned { .. } | EventKind::End { .. } | EventKind::Closed => {}
        }
    }
    counts
}

impl Report {
    /// Whether no rule was broken.
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }

    fn add(&mut self, violation: Violation) {
        let count = self.broken.entry(violation.rule()).or_default();
        *count += 1;
        if *count <= KEPT_MAX as u64 {
            self.violations.push(violation);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { sent, acknowledged, acknowledged_somewhere, .. } = self.counts;
        let Counts { refused, unknown, unknown_but_read, polled, .. } = self.counts;
        writeln!(
            f,
            "history: {sent} sent, {acknowledged} acknowledged ({acknowledged_somewhere} without an offset), {refused} refused, {unknown} unknown ({unknown_but_read} of \
             them written), {polled} read; a follower was at most {:.1} s behind an acknowledgement",
            self.read_lag_us_max as f64 / 1e6
        )?;
        if self.is_clean() {
            return write!(
                f,
                "history: nothing lost, unseen, duplicate, reordered, inconsistent, phantom, skipped or backwards"
            );
        }
        for (rule, count) in &self.broken {
            writeln!(f, "history: BROKEN {rule}: {count}")?;
        }
        for violation in &self.violations {
            writeln!(f, "  {violation:?}")?;
        }
        Ok(())
    }
}
