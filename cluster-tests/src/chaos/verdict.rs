//! The judgement of a run: what clients saw, what lies on the disks, what the daemons logged, and how long writes stood still.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::load::Histories;
use super::{Diary, KEYED_TOPIC, TOPIC};
use crate::checker::{self, Report};
use crate::fsck::{self, Findings};
use crate::history::{EventKind, History};
use crate::keyed;
use crate::netns::NetworkError;
use crate::replicated_cluster::ReplicatedCluster;

/// What came out.
#[derive(Debug)]
pub struct Verdict {
    /// What clients saw.
    pub history: Report,
    /// What readers of the compacted topic found.
    pub keyed: keyed::Report,
    /// What lies on the disks.
    pub disks: Findings,
    /// Liveness, ends of daemons, panics, errors that daemons logged for no reason.
    pub complaints: Vec<String>,
    /// For each fault, in order: what it was, and the longest time without an acknowledgement of any partition after it began.
    pub stand_stills: Vec<(String, f64)>,
    /// Lines of level ERROR by daemon: how many, and the first.
    pub errors: BTreeMap<String, (usize, String)>,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.history.is_clean()
            && self.keyed.is_clean()
            && self.disks.is_clean()
            && self.complaints.is_empty()
    }
}

/// Judges a run whose daemons have all ended.
pub(super) fn judge(
    cluster: &ReplicatedCluster,
    dir: &Path,
    histories: &Histories,
    mut diary: Diary,
) -> Result<Verdict, NetworkError> {
    let failed = |error: &dyn fmt::Display| NetworkError(error.to_string());
    let history = History::read_dir(&histories.all).map_err(|error| failed(&error))?;
    let report = checker::check(&history);
    let (controllers, nodes) = cluster.data();
    let mut options = fsck::Options { controllers, nodes, topic: Some(TOPIC.to_owned()), keyed: None };
    let mut keyed = keyed::Report::default();
    if let Some(dir) = &histories.keyed {
        let written = History::read_dir(dir).map_err(|error| failed(&error))?;
        let model = keyed::Model::of(&written);
        keyed = keyed::check(&written, &model);
        diary.complaints.extend(judge_compaction(&keyed));
        options.keyed = Some((KEYED_TOPIC.to_owned(), model));
    }
    let disks = fsck::check(&options, Some(&history)).map_err(|error| failed(&error))?;
    let mut errors = BTreeMap::new();
    for daemon in cluster.daemons() {
        let log = std::fs::read(daemon.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let panics = log.lines().filter(|line| line.contains("panicked at"));
        diary.complaints.extend(panics.map(|line| format!("{}: {line}", daemon.name())));
        let wrong = log.lines().filter(|line| is_error(line) && !is_allowed(&daemon.name(), line, &diary));
        let wrong: Vec<&str> = wrong.collect();
        if let Some(first) = wrong.first() {
            diary.complaints.push(format!(
                "{} logged {} errors that no fault explains, the first: {first}",
                daemon.name(),
                wrong.len()
            ));
        }
        let mut lines = log.lines().filter(|line| is_error(line));
        if let Some(first) = lines.next() {
            errors.insert(daemon.name(), (1 + lines.count(), first.to_owned()));
        }
    }
    let stand_stills = stand_stills(&history, &diary);
    let told = std::fs::write(dir.join("diary.txt"), &diary.text);
    told.map_err(|error| failed(&error))?;
    Ok(Verdict { history: report, keyed, disks, complaints: diary.complaints, stand_stills, errors })
}

/// After so many writes most must be gone.
const COMPACTION_SURE: usize = 5_000;

/// A run in which nothing is compacted says nothing about compaction.
fn judge_compaction(report: &keyed::Report) -> Option<String> {
    let keyed::Report { acknowledged, read, readers, .. } = report;
    if *readers == 0 {
        return Some("nobody has read the compacted topic to its end".to_owned());
    }
    let too_many = *acknowledged >= COMPACTION_SURE && read / readers > acknowledged / 2;
    too_many.then(|| format!("of {acknowledged} writes of the compacted topic {read} are left"))
}

/// What storage nodes say at level ERROR when their disk is full: that it is, and that they cannot write.
const OF_FULL_DISKS: [&str; 2] = ["the disk is nearly full", "No space left on device"];

fn is_error(line: &str) -> bool {
    // Behind the time; names of errors may be anywhere.
    line.split_whitespace().take(2).any(|word| word == "ERROR")
}

/// What one says whose disk does not answer.
const OF_STALLED_DISKS: &str = "a disk does not answer";

/// What one says of its files that are not what they were.
const OF_DAMAGED_FILES: [&str; 5] = [
    "is damaged",
    "the record of flushed ends",
    "the record of how far",
    "log is closed for writing",
    "its log failed",
];

/// What one says besides whose disk gives errors.
const OF_FAILED_DISKS: &str = "Input/output error";

/// Whether a fault explains an error. Dead peers, cuts and lost power do not: a cluster is made for them.
fn is_allowed(daemon: &str, line: &str, diary: &Diary) -> bool {
    let filled = diary.disks_filled && OF_FULL_DISKS.iter().any(|said| line.contains(said));
    let disk_failed = diary.failed.contains(daemon);
    let damaged = (disk_failed || diary.damaged.contains(daemon))
        && OF_DAMAGED_FILES.iter().any(|said| line.contains(said));
    let failed = disk_failed && line.contains(OF_FAILED_DISKS);
    filled || damaged || failed || (diary.disks_stalled && line.contains(OF_STALLED_DISKS))
}

/// The longest pause between two acknowledgements of one partition, from the beginning of each fault to the next one's.
fn stand_stills(history: &History, diary: &Diary) -> Vec<(String, f64)> {
    let mut acknowledged: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for event in &history.events {
        if let EventKind::Acknowledged { .. } = event.kind {
            acknowledged.entry(event.partition).or_default().push(event.time_us);
        }
    }
    acknowledged.values_mut().for_each(|times| times.sort_unstable());
    let until = diary.begun.iter().skip(1).map(|(begin, _)| *begin).chain([u64::MAX]);
    let window = |begin: u64, end: u64| {
        let gaps = acknowledged.values().flat_map(|times| {
            // With the one before the window, so that a pause that began at its beginning counts.
            let first = times.partition_point(|time| *time < begin).saturating_sub(1);
            let last = times.partition_point(|time| *time < end).min(times.len().saturating_sub(1));
            times[first..=last].windows(2).map(|pair| pair[1] - pair[0].max(begin).min(pair[1])).max()
        });
        gaps.max().unwrap_or_default() as f64 / 1e6
    };
    let faults = diary.begun.iter().zip(until);
    faults.map(|((begin, what), end)| (what.trim().to_owned(), window(*begin, end))).collect()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults: {}, and how long some partition then stood still:", self.stand_stills.len())?;
        for (what, seconds) in &self.stand_stills {
            writeln!(f, "  {seconds:6.2} s  {what}")?;
        }
        for (daemon, (count, first)) in &self.errors {
            writeln!(f, "errors logged by {daemon}: {count}, the first: {first}")?;
        }
        writeln!(f, "{}", self.history)?;
        writeln!(f, "{}", self.keyed)?;
        writeln!(f, "{}", self.disks)?;
        for complaint in &self.complaints {
            writeln!(f, "COMPLAINT: {complaint}")?;
        }
        f.write_str(if self.is_clean() { "verdict: clean" } else { "verdict: BROKEN" })
    }
}
