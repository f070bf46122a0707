//! Copies of a compacted partition. Each node compacts for itself, so copies need not have the same records or batches; but what
//! two of them have at one offset is the same, nothing stands where it was not written, and all tell the same map.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use controller_core::ClusterState;
use proto_types::ids::{NodeId, TopicId, TopicPartition};

use super::batch::{Batch, Record};
use super::copy::{Holes, PartitionCopy};
use super::{Findings, ReadError, crc32c, current, epochs, indexes, name_of};
use crate::history::{checksum, parse_payload};
use crate::keyed::{self, Model};

/// Compacted whatever their configs say.
const INTERNAL: [&str; 2] = ["__consumer_offsets", "__transaction_state"];

/// Whether a topic was, or may have been, compacted.
pub(super) fn is_compacted(state: &ClusterState, topic: TopicId) -> bool {
    let policy = state.configs().topic_value(topic, "cleanup.policy").unwrap_or_default();
    policy.split(',').any(|item| item.trim() == "compact")
        || state.topics().name(topic).is_some_and(|name| INTERNAL.contains(&name))
}

/// What of a record must be the same everywhere: its epoch, and a checksum of what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Print {
    epoch: i32,
    crc: u32,
}

/// `model`: what was written, if the partition had time to come to rest.
pub(super) fn check(
    partition: TopicPartition,
    paths: &BTreeMap<NodeId, PathBuf>,
    state: &ClusterState,
    model: Option<&Model>,
    findings: &mut Findings,
) -> Result<(), ReadError> {
    let name = name_of(state, partition);
    let mut copies = BTreeMap::new();
    for (node, path) in paths {
        let copy = PartitionCopy::read(path, &format!("{name} at node {node}"), Holes::Allowed, findings)?;
        epochs::check(&copy, Holes::Allowed, findings)?;
        indexes::check(&copy, findings)?;
        copies.insert(*node, copy);
    }
    let replicas = state.partitions().get(partition).map(|held| held.replicas.clone()).unwrap_or_default();
    let current = current(&copies, &replicas, &name, findings);
    // Of the first copy that has it, for each offset.
    let mut prints: HashMap<i64, Print> = HashMap::new();
    for copy in &current {
        compare(copy, &mut prints, findings);
    }
    let Some(model) = model else { return Ok(()) };
    if let [first, rest @ ..] = current.as_slice() {
        for other in rest.iter().filter(|other| other.end() != first.end()) {
            let (one, two) = (first.end(), other.end());
            findings.faults.push(format!("{} and {} end at {one} and {two}", first.label, other.label));
        }
    }
    let Ok(partition) = u16::try_from(partition.partition.0) else { return Ok(()) };
    for copy in &current {
        check_map(copy, partition, model, findings);
    }
    Ok(())
}

/// Calls `each` with every record of a copy that can be read; says of what cannot.
fn for_each_record<'a>(
    copy: &'a PartitionCopy,
    findings: &mut Findings,
    mut each: impl FnMut(&Batch, Record<'a>),
) {
    for batch in copy.batches.iter().filter(|batch| !batch.is_control() && !batch.is_compressed()) {
        let whole = batch.for_each_record(&copy.segments[batch.segment].bytes, |record| each(batch, record));
        if !whole {
            let (label, base) = (&copy.label, batch.base);
            findings.faults.push(format!("{label}: offset {base}: the records of the batch cannot be read"));
        }
    }
}

fn compare(copy: &PartitionCopy, prints: &mut HashMap<i64, Print>, findings: &mut Findings) {
    let (mut bytes, mut other) = (0, None);
    for_each_record(copy, findings, |batch, Record { offset, key, value, header }| {
        let lengths = [key, value, header].map(|part| part.map_or(-1, |part| part.len() as i64));
        let lengths = lengths.map(i64::to_be_bytes).concat();
        let parts = [key, value, header].map(Option::unwrap_or_default);
        let crc = crc32c(&[&lengths, parts[0], parts[1], parts[2]]);
        let print = Print { epoch: batch.epoch, crc };
        bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if *prints.entry(offset).or_insert(print) != print {
            other.get_or_insert(offset);
        }
    });
    findings.counts.bytes_compared += bytes;
    if let Some(offset) = other {
        findings.faults.push(format!("{}: another copy has something else at offset {offset}", copy.label));
    }
}

/// Whoever reads this copy from its beginning gets the map that was written.
fn check_map(copy: &PartitionCopy, partition: u16, model: &Model, findings: &mut Findings) {
    let (mut records, mut foreign) = (Vec::new(), None);
    for_each_record(copy, findings, |_, Record { offset, key, value, header }| {
        let written = value.or(header).and_then(parse_payload);
        let whole = written.filter(|(written, sum)| {
            *sum == checksum(*written, partition)
                && key == Some(keyed::key_text(*written).as_bytes())
                && value.is_none() == keyed::deletes(*written)
        });
        match whole {
            Some((value, _)) => records.push((offset, value)),
            None => _ = foreign.get_or_insert(offset),
        }
    });
    findings.counts.acknowledged_records += records.len() as u64;
    let foreign = foreign.map(|offset| format!("offset {offset}: nobody wrote such a record"));
    let wrong = model.check(partition, &records);
    findings.faults.extend(foreign.into_iter().chain(wrong).map(|what| format!("{}: {what}", copy.label)));
}
