//! `leader-epoch-checkpoint` against the epochs that the batches carry.

use super::copy::{Holes, PartitionCopy};
use super::{Findings, ReadError, read};

const FILE: &str = "leader-epoch-checkpoint";

/// Epochs in the batches must never go back, and each must begin where the checkpoint says. The checkpoint may name further
/// epochs, of leaders under which nothing was written, if they fit between.
pub(super) fn check(copy: &PartitionCopy, holes: Holes, findings: &mut Findings) -> Result<(), ReadError> {
    let mut found: Vec<(i32, i64)> = Vec::new();
    for batch in &copy.batches {
        match found.last() {
            Some((epoch, _)) if *epoch == batch.epoch => {}
            Some((epoch, _)) if *epoch > batch.epoch => {
                let (label, base, new) = (&copy.label, batch.base, batch.epoch);
                findings
                    .faults
                    .push(format!("{label}: epoch {new} at offset {base} comes after epoch {epoch}"));
            }
            Some(_) | None => found.push((batch.epoch, batch.base)),
        }
    }
    let path = copy.dir.join(FILE);
    if !path.exists() {
        if !found.is_empty() {
            findings.faults.push(format!("{}: there is no {FILE}", copy.label));
        }
        return Ok(());
    }
    let text = String::from_utf8_lossy(&read(&path)?).into_owned();
    let Some(named) = parse(&text) else {
        findings.faults.push(format!("{}: {FILE} is damaged: {text:?}", copy.label));
        return Ok(());
    };
    let rising = |pair: &[(i32, i64)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
    if !named.windows(2).all(rising) {
        findings.faults.push(format!("{}: {FILE} does not rise: {named:?}", copy.label));
    }
    if holes == Holes::Allowed {
        // An epoch's first records may be gone, or all that were written in it.
        for (epoch, start) in &found {
            let entry = named.iter().rev().find(|(_, begin)| begin <= start);
            if entry.is_none_or(|(of, _)| of != epoch) {
                let label = &copy.label;
                findings
                    .faults
                    .push(format!("{label}: epoch {epoch} stands at {start}, {FILE} says {named:?}"));
            }
        }
        return Ok(());
    }
    for (epoch, start) in &found {
        if !named.contains(&(*epoch, *start)) {
            let label = &copy.label;
            findings.faults.push(format!("{label}: epoch {epoch} begins at {start}, {FILE} says {named:?}"));
        }
    }
    for (epoch, start) in named.iter().filter(|entry| !found.contains(entry)) {
        let written = found.iter().any(|(other, _)| other == epoch);
        if written || *start < copy.start() || *start > copy.end() {
            let label = &copy.label;
            findings
                .faults
                .push(format!("{label}: {FILE} lets epoch {epoch} begin at {start}, which it does not"));
        }
    }
    Ok(())
}

/// Version 0, number of lines, then an epoch and an offset a line.
fn parse(text: &str) -> Option<Vec<(i32, i64)>> {
    let mut lines = text.lines();
    if lines.next()? != "0" {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let entries: Option<Vec<(i32, i64)>> = lines
        .map(|line| {
            let (epoch, start) = line.split_once(' ')?;
            Some((epoch.parse().ok()?, start.parse().ok()?))
        })
        .collect();
    entries.filter(|entries| entries.len() == count)
}
