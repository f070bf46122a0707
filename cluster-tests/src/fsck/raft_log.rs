//! The metadata log as the controllers of a quorum have it on disk: files of records and snapshots.
//!
//! What two controllers have at the same index and term must be the same bytes, and what one knows to be committed must not
//! differ from what another one has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proto_types::metadata::MetadataChange;
use serde::Deserialize;

use super::{Findings, ReadError, crc32c, list, read};

const SEGMENT_MAGIC: &[u8; 8] = b"WEIRRAFT";
const SEGMENT_HEADER: usize = 32;
const RECORD_HEADER: usize = 12;
const SNAPSHOT_MAGIC: &[u8; 8] = b"WEIRSNAP";
const SNAPSHOT_HEADER: usize = 32;
const SLOT: usize = 4096;
const SLOT_HEADER: usize = 20;
const SLOT_MAGIC: u32 = 0x5753_4c54;
/// Kind and version in front of each stored value.
const ENVELOPE: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct EntryId {
    pub(super) term: u64,
    pub(super) node: u64,
    pub(super) index: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Members {
    configs: Vec<Vec<u64>>,
    members: Vec<(u64, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
enum Payload {
    Blank,
    Changes(Vec<MetadataChange>),
    Membership(Members),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Entry {
    id: EntryId,
    payload: Payload,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Progress {
    _purged: Option<EntryId>,
    _begins: u64,
    _synced_next: u64,
    committed: Option<EntryId>,
}

#[derive(Clone, Debug, Deserialize)]
struct SnapshotMeta {
    last: Option<EntryId>,
    _membership_id: Option<EntryId>,
    _membership: Members,
}

/// A state at an index, as the changes that make it.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) index: u64,
    pub(super) changes: Vec<MetadataChange>,
    pub(super) path: PathBuf,
}

/// The committed log of the quorum.
#[derive(Clone, Debug, Default)]
pub(super) struct Quorum {
    /// By index; nothing for entries without changes.
    pub(super) entries: BTreeMap<u64, Vec<MetadataChange>>,
    pub(super) snapshots: Vec<Snapshot>,
}

/// What one controller has on disk.
#[derive(Debug, Default)]
struct Log {
    entries: BTreeMap<u64, (EntryId, Vec<u8>)>,
    committed: u64,
}

/// Reads and compares all controllers.
pub(super) fn read_quorum(dirs: &[PathBuf], findings: &mut Findings) -> Result<Quorum, ReadError> {
    let mut quorum = Quorum::default();
    let mut logs = Vec::new();
    for dir in dirs {
        logs.push(read_log(dir, findings)?);
        quorum.snapshots.extend(read_snapshots(dir, findings)?);
    }
    compare(dirs, &logs, findings);
    let committed = logs.iter().map(|log| log.committed).max().unwrap_or_default();
    let committed =
        committed.max(quorum.snapshots.iter().map(|snapshot| snapshot.index).max().unwrap_or_default());
    // An entry that lost against a committed one is of an older term.
    let mut newest: BTreeMap<u64, &(EntryId, Vec<u8>)> = BTreeMap::new();
    for (index, entry) in logs.iter().flat_map(|log| log.entries.range(..=committed)) {
        let kept = newest.entry(*index).or_insert(entry);
        if kept.0 < entry.0 {
            *kept = entry;
        }
    }
    for (index, (_, bytes)) in newest {
        match decode(bytes) {
            Ok(Entry { payload: Payload::Changes(changes), .. }) => {
                quorum.entries.insert(index, changes);
            }
            Ok(Entry { payload: Payload::Blank | Payload::Membership(_), .. }) => {
                quorum.entries.insert(index, Vec::new());
            }
            Err(why) => findings.faults.push(format!("metadata entry {index}: {why}")),
        }
    }
    findings.counts.metadata_entries += quorum.entries.len() as u64;
    Ok(quorum)
}

/// Same index and term: same bytes, there and below. Committed: the same at everybody who has it.
fn compare(dirs: &[PathBuf], logs: &[Log], findings: &mut Findings) {
    for (at, one) in logs.iter().enumerate() {
        for (other_at, other) in logs.iter().enumerate().skip(at + 1) {
            let agreed = one.entries.iter().rev().find(|(index, (id, _))| {
                other.entries.get(index).is_some_and(|(other_id, _)| id.term == other_id.term)
            });
            let agreed = agreed.map_or(0, |(index, _)| *index);
            let same_for = agreed.max(one.committed.min(other.committed));
            let differing = one
                .entries
                .range(..=same_for)
                .find(|(index, entry)| other.entries.get(index).is_some_and(|other| other != *entry));
            if let Some((index, _)) = differing {
                findings.faults.push(format!(
                    "the metadata logs in {} and {} differ at index {index} though they agree at {agreed}",
                    dirs[at].display(),
                    dirs[other_at].display()
                ));
            }
        }
    }
}

fn read_log(dir: &Path, findings: &mut Findings) -> Result<Log, ReadError> {
    let mut log = Log::default();
    let files: Vec<(String, PathBuf)> =
        list(&dir.join("log"))?.into_iter().filter(|(name, _)| name.ends_with(".raft")).collect();
    for (at, (_, path)) in files.iter().enumerate() {
        let bytes = read(path)?;
        if let Err(why) = read_segment(&bytes, &mut log) {
            // A crash may leave a torn end in the newest file.
            let what = format!("{}: {why}", path.display());
            if at + 1 == files.len() { findings.notes.push(what) } else { findings.faults.push(what) }
        }
    }
    let path = dir.join("progress");
    match newest_slot(&read(&path)?).and_then(|value| decode_value::<Progress>(&value).ok()) {
        Some(progress) => log.committed = progress.committed.map_or(0, |id| id.index),
        None => findings.faults.push(format!("{} is damaged", path.display())),
    }
    Ok(log)
}

fn read_segment(bytes: &[u8], log: &mut Log) -> Result<(), String> {
    let header = bytes.get(..SEGMENT_HEADER).ok_or("it is shorter than its header")?;
    if &header[..8] != SEGMENT_MAGIC || little(header, 24) != Some(crc32c(&[&header[..24]])) {
        return Err("its header is damaged".to_owned());
    }
    let first = u64::from_le_bytes(header[16..24].try_into().map_err(|_| "no first index")?);
    let mut at = SEGMENT_HEADER;
    let mut index = first;
    while at < bytes.len() {
        let broken = || format!("the record of index {index} at byte {at} is broken");
        let header = bytes.get(at..at + RECORD_HEADER).ok_or_else(broken)?;
        let length = little(header, 0).ok_or_else(broken)? as usize;
        let place = crc32c(&[&header[..8], &first.to_le_bytes(), &(at as u64).to_le_bytes()]);
        let payload = bytes.get(at + RECORD_HEADER..at + RECORD_HEADER + length).ok_or_else(broken)?;
        if little(header, 8) != Some(place) || little(header, 4) != Some(crc32c(&[payload])) {
            return Err(broken());
        }
        let id = decode(payload)?.id;
        if id.index != index {
            return Err(format!("index {index} holds the entry {id:?}"));
        }
        log.entries.insert(index, (id, payload.to_vec()));
        at += RECORD_HEADER + length;
        index += 1;
    }
    Ok(())
}

fn read_snapshots(dir: &Path, findings: &mut Findings) -> Result<Vec<Snapshot>, ReadError> {
    let dir = dir.join("snapshot");
    let mut snapshots = Vec::new();
    if !dir.exists() {
        return Ok(snapshots);
    }
    for (_, path) in list(&dir)?.into_iter().filter(|(name, _)| name.ends_with(".snap")) {
        match parse_snapshot(&read(&path)?) {
            Ok((index, changes)) => snapshots.push(Snapshot { index, changes, path }),
            Err(why) => findings.faults.push(format!("{}: {why}", path.display())),
        }
    }
    Ok(snapshots)
}

fn parse_snapshot(bytes: &[u8]) -> Result<(u64, Vec<MetadataChange>), String> {
    let header = bytes.get(..SNAPSHOT_HEADER).ok_or("it is shorter than its header")?;
    let body = &bytes[SNAPSHOT_HEADER..];
    let meta_len = little(header, 12).ok_or("no length")? as usize;
    let (meta, data) = body.split_at_checked(meta_len).ok_or("its meta is cut off")?;
    if &header[..8] != SNAPSHOT_MAGIC || little(header, 24) != Some(crc32c(&[&header[..24], meta, data])) {
        return Err("its checksum is wrong".to_owned());
    }
    let meta: SnapshotMeta = decode_value(meta)?;
    let changes = proto_types::decode(data).map_err(|error| error.to_string())?;
    Ok((meta.last.map_or(0, |id| id.index), changes))
}

/// The newest of two copies whose checksum is right.
fn newest_slot(bytes: &[u8]) -> Option<Vec<u8>> {
    let slots = bytes.chunks(SLOT).take(2).filter_map(|slot| {
        if little(slot, 0)? != SLOT_MAGIC {
            return None;
        }
        let value = slot.get(SLOT_HEADER..SLOT_HEADER + little(slot, 4)? as usize)?;
        let sequence = u64::from_le_bytes(slot.get(8..16)?.try_into().ok()?);
        (little(slot, 16)? == crc32c(&[&slot[..16], value])).then(|| (sequence, value.to_vec()))
    });
    slots.max_by_key(|(sequence, _)| *sequence).map(|(_, value)| value)
}

fn decode(bytes: &[u8]) -> Result<Entry, String> {
    decode_value(bytes)
}

fn decode_value<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let body = bytes.get(ENVELOPE..).ok_or("shorter than its envelope")?;
    proto_types::decode(body).map_err(|error| error.to_string())
}

fn little(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
