//! `weir-fsck`: looks at the data directories of a whole cluster after all its daemons have ended, and says what does not fit.
//!
//! The code shares nothing with the daemons but the numbers of the formats and the types of stored metadata: it reads segment
//! files ([`copy`]), compares copies of a partition byte for byte ([`replicas`]), checks leader epoch checkpoints ([`epochs`]),
//! indexes ([`indexes`]) and producers ([`producers`]) against what a scan of the batches gives, looks for every acknowledged
//! record of a [`History`] in every copy that may lead ([`acknowledged`]), rebuilds the maps of compacted topics ([`compacted`]), and replays the metadata log of the controllers
//! ([`raft_log`], [`elections`]). It writes nothing.

mod acknowledged;
mod batch;
mod compacted;
mod copy;
mod elections;
mod epochs;
mod indexes;
mod producers;
mod raft_log;
mod replicas;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use controller_core::ClusterState;
use proto_types::ids::{NodeId, TopicPartition};

use crate::history::History;
use crate::keyed::Model;
pub(crate) use batch::Batch;
pub(crate) use copy::partition_dirs;
use copy::{Holes, PartitionCopy};
pub(crate) use scan::Scan;

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The data directory of each controller.
    pub controllers: Vec<PathBuf>,
    /// The data directory of each storage node, by node id.
    pub nodes: BTreeMap<i32, PathBuf>,
    /// The topic that a history speaks of. All its copies must be equal: the cluster had time to come to rest.
    pub topic: Option<String>,
    /// A compacted topic whose copies had time to come to rest too, and what was written to it.
    pub keyed: Option<(String, Model)>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What must not be.
    pub faults: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// How much was looked at.
    pub counts: Counts,
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub copies: u64,
    pub batches: u64,
    pub bytes: u64,
    pub bytes_compared: u64,
    pub index_entries: u64,
    pub producer_snapshots: u64,
    pub acknowledged_records: u64,
    pub metadata_entries: u64,
    pub metadata_changes: u64,
    pub leader_changes: u64,
    pub isr_changes: u64,
}

/// A file or folder cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {error}", path.display())]
pub struct ReadError {
    /// Which.
    pub path: PathBuf,
    /// What the system said.
    pub error: io::Error,
}

/// All copies of each partition, by node.
type Copies = BTreeMap<TopicPartition, BTreeMap<NodeId, PathBuf>>;

/// Looks at everything. Memory: all copies of one partition at a time.
pub fn check(options: &Options, history: Option<&History>) -> Result<Findings, ReadError> {
    let mut findings = Findings::default();
    let metadata = raft_log::read_quorum(&options.controllers, &mut findings)?;
    let state = elections::replay(&metadata, &mut findings);
    let mut copies = Copies::new();
    for (node, dir) in &options.nodes {
        for (partition, path) in copy::partition_dirs(dir)? {
            copies.entry(partition).or_default().insert(NodeId(*node), path);
        }
    }
    let topic = options.topic.as_deref().and_then(|name| state.topics().id(name));
    if let (Some(name), None) = (&options.topic, topic) {
        findings.faults.push(format!("the metadata know no topic {name}"));
    }
    for (partition, paths) in &copies {
        let settled = topic == Some(partition.topic);
        let of_topic = history.filter(|_| settled);
        if compacted::is_compacted(&state, partition.topic) {
            let keyed =
                options.keyed.as_ref().filter(|(name, _)| state.topics().id(name) == Some(partition.topic));
            let model = keyed.map(|(_, model)| model);
            compacted::check(*partition, paths, &state, model, &mut findings)?;
        } else {
            check_partition(*partition, paths, &state, settled, of_topic, &mut findings)?;
        }
    }
    let mut missing = BTreeSet::new();
    for (partition, _) in state.partitions().iter().filter(|(partition, _)| topic == Some(partition.topic)) {
        if !copies.contains_key(&partition) {
            missing.insert(partition.to_string());
        }
    }
    findings.faults.extend(missing.into_iter().map(|partition| format!("{partition}: there is no copy")));
    Ok(findings)
}

fn check_partition(
    partition: TopicPartition,
    paths: &BTreeMap<NodeId, PathBuf>,
    state: &ClusterState,
    settled: bool,
    history: Option<&History>,
    findings: &mut Findings,
) -> Result<(), ReadError> {
    let name = name_of(state, partition);
    let mut copies = BTreeMap::new();
    for (node, path) in paths {
        let label = format!("{name} at node {node}");
        let copy = PartitionCopy::read(path, &label, Holes::None, findings)?;
        epochs::check(&copy, Holes::None, findings)?;
        indexes::check(&copy, findings)?;
        producers::check(&copy, findings)?;
        copies.insert(*node, copy);
    }
    let held = state.partitions().get(partition);
    let replicas = held.map(|held| held.replicas.clone()).unwrap_or_default();
    let current = current(&copies, &replicas, &name, findings);
    replicas::compare(&current, settled, findings);
    if let (Some(history), Some(held)) = (history, held) {
        let may_lead = |node: &NodeId| settled || held.isr.contains(node) || held.elr.contains(node);
        for (_, copy) in copies.iter().filter(|(node, _)| replicas.contains(node) && may_lead(node)) {
            acknowledged::check(copy, partition.partition.0, history, findings);
        }
    }
    Ok(())
}

/// For messages.
fn name_of(state: &ClusterState, partition: TopicPartition) -> String {
    match state.topics().name(partition.topic) {
        Some(topic) => format!("{topic}-{}", partition.partition),
        None => partition.to_string(),
    }
}

/// The copies that count: what a reassignment took away, or a deletion has yet to remove, is nobody's copy any more.
fn current<'a>(
    copies: &'a BTreeMap<NodeId, PartitionCopy>,
    replicas: &[NodeId],
    name: &str,
    findings: &mut Findings,
) -> Vec<&'a PartitionCopy> {
    let current: Vec<&PartitionCopy> =
        copies.iter().filter(|(node, _)| replicas.contains(node)).map(|(_, copy)| copy).collect();
    if current.len() < copies.len() {
        findings
            .notes
            .push(format!("{name}: {} copies at nodes that hold none", copies.len() - current.len()));
    }
    current
}

fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    std::fs::read(path).map_err(|error| ReadError { path: path.to_owned(), error })
}

/// Names in a folder, sorted.
fn list(path: &Path) -> Result<Vec<(String, PathBuf)>, ReadError> {
    let failed = |error| ReadError { path: path.to_owned(), error };
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        entries.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    entries.sort();
    Ok(entries)
}

/// CRC-32C.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).expect("a CRC of 32 bits")
}

impl Findings {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counts;
        writeln!(
            f,
            "fsck: {} copies, {} batches, {} bytes ({} compared with another copy), {} index entries, {} producer snapshots",
            c.copies, c.batches, c.bytes, c.bytes_compared, c.index_entries, c.producer_snapshots
        )?;
        writeln!(
            f,
            "fsck: {} acknowledged records looked up, {} metadata entries, {} changes, {} leader changes, {} changes of an ISR",
            c.acknowledged_records, c.metadata_entries, c.metadata_changes, c.leader_changes, c.isr_changes
        )?;
        for note in &self.notes {
            writeln!(f, "fsck: note: {note}")?;
        }
        for fault in &self.faults {
            writeln!(f, "fsck: FAULT: {fault}")?;
        }
        write!(f, "fsck: {} faults", self.faults.len())
    }
}
