//! Damage to the files of one storage node while it is down: what rotting media, lost writes and misguided tools leave behind.
//!
//! The node must notice it, and get back from the other copies what it cannot make anew. The rule under which no acknowledged
//! record can be lost: everything is in sync before, so that the other copies have it all; no other fault is on meanwhile; and the
//! next one comes only when the node has looked at every byte that it has and all is in sync again. Batches are damaged only where
//! the node has noted them as flushed: behind that a log may end anywhere after a crash, so nobody could tell. Nor is offset or
//! leader epoch of a batch touched before its segment has a seal: no checksum covers them there. And of each copy one file is
//! damaged at most: the one could hide the other, as a seal that is gone hides an offset.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use proto_types::ids::{PartitionIndex, TopicId, TopicPartition};
use uuid::Uuid;

use super::Storm;
use super::faults::index;
use crate::clock::wait_until;
use crate::failing_disk::Failing;
use crate::fsck::{Batch, Scan, crc32c, partition_dirs};
use crate::http;
use crate::moments::Moments;
use crate::netns::{NetworkError, run};
use crate::replicated_cluster::ReplicatedCluster;

/// So many files at most are damaged at a time.
const STRUCK_MAX: usize = 3;
/// Not every file can be damaged in every way: so often another pair is drawn.
const TRIES: usize = 200;
/// Three times of four it is one of so many copies that have the most records.
const LARGE: usize = 6;
/// Bytes of a block that turns to zeros or lands in the wrong place.
const BLOCK: usize = 512;
/// Bytes at the beginning of a batch that its checksum does not cover, and that show nothing when they are wrong.
const UNCHECKED: usize = 16;
/// Bytes of a record of the file `flushed-ends`.
const END_RECORD: usize = 64;
const FLUSHED_ENDS: &str = "flushed-ends";

/// What a node logs when it has read everything that it has.
const SCRUBBED: &str = ": scrubbed ";
/// How long it may take until it has begun to do so and is through, twice.
const SCRUB_LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    FlippedBit,
    CutShort,
    Zeros,
    MisplacedBlock,
    OlderVersion,
    Missing,
}

const HARMS: [Harm; 6] =
    [Harm::FlippedBit, Harm::CutShort, Harm::Zeros, Harm::MisplacedBlock, Harm::OlderVersion, Harm::Missing];

/// Which file.
#[derive(Clone, Copy, Debug)]
enum Pick {
    /// Records of any copy.
    Log,
    /// Of any segment of any copy.
    Segment(&'static str),
    /// Of any copy, by name.
    Copy(&'static str),
    /// Of the node, by name.
    Node(&'static str),
    /// All files of a copy: an older version takes their place.
    WholeCopy,
}

/// Every other time it is records. `meta.properties` is not among them: without it a node does not start, and says why.
const PICKS: [Pick; 15] = [
    Pick::Segment("index"),
    Pick::Segment("timeindex"),
    Pick::Segment("txnindex"),
    Pick::Segment("appendtimes"),
    Pick::Segment("seal"),
    Pick::Segment("snapshot"),
    Pick::Copy("leader-epoch-checkpoint"),
    Pick::Node(FLUSHED_ENDS),
    Pick::Node("boot-id"),
    Pick::Node("cleaner-offset-checkpoint"),
    Pick::Node("cleaner-dropped-checkpoint"),
    Pick::Node("directories"),
    Pick::WholeCopy,
    Pick::WholeCopy,
    Pick::WholeCopy,
];

/// What was damaged, and older versions of the nodes' files.
#[derive(Debug)]
pub(super) struct Damages {
    older: PathBuf,
    /// The node that was damaged and has not been started since.
    struck: Option<usize>,
}

impl Damages {
    /// Older versions are kept in a folder below `dir`.
    pub(super) fn new(dir: &Path) -> Damages {
        Damages { older: dir.join("older"), struck: None }
    }

    /// `kill -9` of a storage node, and damage to its files.
    pub(super) fn strike(
        &mut self,
        cluster: &mut ReplicatedCluster,
        node: usize,
        chance: &mut Moments,
    ) -> Result<String, NetworkError> {
        let daemon = cluster.node(node);
        daemon.kill();
        let (name, data) = (daemon.name(), daemon.data.clone());
        let older = self.older.join(&name);
        let failed = |error: io::Error| NetworkError(format!("damage the files of {name}: {error}"));
        let done = damage(&data, &older, chance).map_err(failed)?;
        self.struck = Some(node);
        // The next time this is an older version.
        if older.exists() {
            fs::remove_dir_all(&older).map_err(failed)?;
        }
        fs::create_dir_all(&self.older).map_err(failed)?;
        copy_all(&data, &older)?;
        Ok(format!("kill -9 {name}, and then: {}", done.join("; ")))
    }

    /// Lets the disk that can fail be slow.
    pub(super) fn slow_down(
        &mut self,
        cluster: &ReplicatedCluster,
        chance: &mut Moments,
    ) -> Result<String, NetworkError> {
        let delay = Duration::from_millis([100, 500, 2_000, 10_000][index(chance, 4)]);
        let Some((node, disk)) = cluster.failing_disk() else {
            return Ok("there is no such disk".to_owned());
        };
        disk.slow_down(delay);
        Ok(format!("each sync of storage-node-{node} takes {delay:?}"))
    }

    /// Lets the disk that can fail do so. What it does not read counts as damaged, so the same rule holds as for damage.
    pub(super) fn fail(
        &mut self,
        cluster: &ReplicatedCluster,
        chance: &mut Moments,
    ) -> Result<String, NetworkError> {
        let failing = [Failing::Reads, Failing::Writes, Failing::Syncs][index(chance, 3)];
        let Some((node, _)) = cluster.failing_disk() else { return Ok("there is no such disk".to_owned()) };
        cluster.fail_disk(failing)?;
        self.struck = Some(node);
        Ok(format!("{failing:?} of storage-node-{node} fail"))
    }

    /// The node that was damaged since this was last asked.
    pub(super) fn take_struck(&mut self) -> Option<usize> {
        self.struck.take()
    }
}

impl Storm<'_> {
    /// Waits until a node that was damaged has read everything that it has, and has gotten back what was not good any more.
    pub(super) fn wait_for_repair(&mut self, node: usize) {
        self.wait_for_sync();
        let log = self.cluster.node(node).log().to_owned();
        let passes = || fs::read_to_string(&log).map_or(0, |text| text.matches(SCRUBBED).count());
        let before = passes();
        // The next one to end may have begun too early.
        let through = wait_until(SCRUB_LIMIT, || (passes() >= before + 2).then_some(()));
        if through.is_none() {
            self.diary.complain(format!("storage-node-{node} has not scrubbed twice within {SCRUB_LIMIT:?}"));
        }
        self.wait_for_sync();
        let http = self.cluster.node(node).http();
        let count =
            |what: &str| http::metric(http, &format!("weir_storage_node_{what}_total")).unwrap_or(0.0);
        self.diary.note(&format!(
            "  storage-node-{node} has found {} damaged segments by reading, and begun {} copies anew",
            count("damaged_segments"),
            count("restarted_copies")
        ));
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<(), NetworkError> {
    run(Command::new("cp").arg("-a").arg(from).arg(to))
}

/// Damages a few files and says which.
fn damage(data: &Path, older: &Path, chance: &mut Moments) -> io::Result<Vec<String>> {
    let wanted = 1 + index(chance, STRUCK_MAX);
    let (mut done, mut struck) = (Vec::new(), BTreeSet::new());
    let ends = flushed_ends(&fs::read(data.join(FLUSHED_ENDS))?);
    for _ in 0..TRIES {
        let pick = match chance.next_number().is_multiple_of(2) {
            true => Pick::Log,
            false => PICKS[index(chance, PICKS.len())],
        };
        let harm = HARMS[index(chance, HARMS.len())];
        // Whoever does not know any more how far logs were flushed cannot tell that they are cut short.
        let of_ends = matches!(pick, Pick::Node(FLUSHED_ENDS));
        if of_ends && !done.is_empty() {
            continue;
        }
        let Some(path) = choose(data, pick, chance)? else { continue };
        let copy = match pick {
            Pick::WholeCopy => Some(path.clone()),
            Pick::Log | Pick::Segment(_) | Pick::Copy(_) => path.parent().map(Path::to_owned),
            Pick::Node(_) => None,
        };
        if copy.as_ref().is_some_and(|copy| struck.contains(copy)) {
            continue;
        }
        let what = match pick {
            Pick::Log => harm_log(&path, harm, &ends, chance)?,
            Pick::WholeCopy => restore_copy(data, older, &path, &ends)?,
            Pick::Segment(_) | Pick::Copy(_) | Pick::Node(_) => {
                let older = path.strip_prefix(data).ok().and_then(|path| fs::read(older.join(path)).ok());
                harm_file(&path, harm, older, chance)?
            }
        };
        if let Some(what) = what {
            struck.extend(copy);
            done.push(format!("{}: {what}", path.strip_prefix(data).unwrap_or(&path).display()));
            if of_ends || done.len() == wanted {
                break;
            }
        }
    }
    Ok(done)
}

fn choose(data: &Path, pick: Pick, chance: &mut Moments) -> io::Result<Option<PathBuf>> {
    if let Pick::Node(name) = pick {
        return Ok(Some(data.join(name)).filter(|path| path.exists()));
    }
    let copies = partition_dirs(data).map_err(|error| error.error)?;
    let mut copies: Vec<(u64, PathBuf)> =
        copies.into_iter().map(|(_, copy)| Ok((records_in(&copy)?, copy))).collect::<io::Result<_>>()?;
    // Most copies are nearly empty: those of groups.
    copies.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let among = if chance.next_number().is_multiple_of(4) { copies.len() } else { copies.len().min(LARGE) };
    let Some((_, copy)) = copies.get(index(chance, among)) else { return Ok(None) };
    let extension = match pick {
        Pick::Log => "log",
        Pick::Segment(extension) => extension,
        Pick::Copy(name) => return Ok(Some(copy.join(name)).filter(|path| path.exists())),
        Pick::Node(_) | Pick::WholeCopy => return Ok(Some(copy.clone())),
    };
    let mut files = files_in(copy, extension)?;
    Ok(if files.is_empty() { None } else { Some(files.swap_remove(index(chance, files.len()))) })
}

fn records_in(copy: &Path) -> io::Result<u64> {
    files_in(copy, "log")?.iter().map(|path| Ok(path.metadata()?.len())).sum()
}

fn files_in(copy: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(copy)? {
        files.push(entry?.path());
    }
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    Ok(files)
}

/// Harms records that the node has noted as flushed, if there are any in the segment.
fn harm_log(
    path: &Path,
    harm: Harm,
    ends: &BTreeMap<TopicPartition, i64>,
    chance: &mut Moments,
) -> io::Result<Option<String>> {
    let mut bytes = fs::read(path)?;
    let flushed: Vec<Batch> = match end_of(path.parent(), ends) {
        Some(end) => batches(&bytes).into_iter().filter(|batch| batch.last < end).collect(),
        None => Vec::new(),
    };
    let Some(batch) = flushed.get(index(chance, flushed.len())) else { return Ok(None) };
    let unchecked = if path.with_extension("seal").exists() { 0 } else { UNCHECKED };
    let at = batch.position + unchecked + index(chance, batch.size - unchecked);
    let within = at..(batch.position + batch.size).min(at + BLOCK);
    let before = bytes[within.clone()].to_vec();
    let what = match harm {
        Harm::FlippedBit | Harm::Zeros | Harm::MisplacedBlock => harm_bytes(&mut bytes, at, harm, chance),
        Harm::CutShort => {
            let length = batch.position + index(chance, batch.size);
            fs::File::options().write(true).open(path)?.set_len(length as u64)?;
            return Ok(Some(format!("cut to {length} of {} bytes", bytes.len())));
        }
        Harm::Missing => {
            fs::remove_file(path)?;
            return Ok(Some("missing".to_owned()));
        }
        // The beginning of a log is what it was: the same as if it were cut short.
        Harm::OlderVersion => return Ok(None),
    };
    if bytes[within] == before {
        return Ok(None);
    }
    fs::write(path, &bytes)?;
    Ok(Some(what))
}

fn harm_file(
    path: &Path,
    harm: Harm,
    older: Option<Vec<u8>>,
    chance: &mut Moments,
) -> io::Result<Option<String>> {
    let before = fs::read(path)?;
    if before.is_empty() {
        return Ok(None);
    }
    let mut bytes = before.clone();
    let at = index(chance, bytes.len());
    let what = match harm {
        Harm::FlippedBit | Harm::Zeros | Harm::MisplacedBlock => harm_bytes(&mut bytes, at, harm, chance),
        Harm::CutShort => {
            bytes.truncate(at);
            format!("cut to {at} of {} bytes", before.len())
        }
        Harm::OlderVersion => {
            let Some(older) = older else { return Ok(None) };
            bytes = older;
            format!("{} bytes of an older version", bytes.len())
        }
        Harm::Missing => {
            fs::remove_file(path)?;
            return Ok(Some("missing".to_owned()));
        }
    };
    if bytes == before {
        return Ok(None);
    }
    fs::write(path, &bytes)?;
    Ok(Some(what))
}

/// Changes bytes from `at` on, of which there are some, in one of the ways that leave their number as it is; says how.
fn harm_bytes(bytes: &mut [u8], at: usize, harm: Harm, chance: &mut Moments) -> String {
    let length = BLOCK.min(bytes.len() - at);
    match harm {
        Harm::FlippedBit => {
            bytes[at] ^= 1 << index(chance, 8);
            format!("a bit of byte {at} flips")
        }
        Harm::Zeros => {
            bytes[at..at + length].fill(0);
            format!("{length} bytes at {at} are zeros")
        }
        Harm::MisplacedBlock => {
            let from = index(chance, bytes.len() - length + 1);
            bytes.copy_within(from..from + length, at);
            format!("{length} bytes from {from} are at {at}")
        }
        Harm::CutShort | Harm::OlderVersion | Harm::Missing => panic!("{harm:?} is not of bytes"),
    }
}

/// Puts all files of a copy back to what they were, if something flushed is missing then and the log only has grown since.
fn restore_copy(
    data: &Path,
    older: &Path,
    copy: &Path,
    ends: &BTreeMap<TopicPartition, i64>,
) -> io::Result<Option<String>> {
    let old = older.join(copy.strip_prefix(data).unwrap_or(copy));
    let (Some(end), true) = (end_of(Some(copy), ends), old.is_dir()) else { return Ok(None) };
    let mut old_end = 0;
    for log in files_in(&old, "log")? {
        let was = fs::read(&log)?;
        let is = log.file_name().map(|name| fs::read(copy.join(name)));
        if !is.is_some_and(|is| is.is_ok_and(|is| is.starts_with(&was))) {
            return Ok(None);
        }
        old_end = batches(&was).last().map_or(old_end, |batch| batch.last + 1);
    }
    if old_end >= end {
        return Ok(None);
    }
    fs::remove_dir_all(copy)?;
    copy_all(&old, copy).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(Some(format!("as it was when it ended at {old_end} and not at {end}")))
}

fn batches(bytes: &[u8]) -> Vec<Batch> {
    let mut position = 0;
    let next = || {
        let batch = Batch::parse(bytes, 0, position).ok()?;
        position += batch.size;
        Some(batch)
    };
    std::iter::from_fn(next).collect()
}

/// How far the node has noted a copy as flushed.
fn end_of(copy: Option<&Path>, ends: &BTreeMap<TopicPartition, i64>) -> Option<i64> {
    let (topic, partition) = copy?.file_name()?.to_str()?.rsplit_once('-')?;
    let partition = PartitionIndex(partition.parse().ok()?);
    ends.get(&TopicPartition { topic: TopicId::from_text(topic)?, partition }).copied()
}

/// Reads the file `flushed-ends`: after a header, the last valid record of a log counts.
fn flushed_ends(bytes: &[u8]) -> BTreeMap<TopicPartition, i64> {
    let mut ends = BTreeMap::new();
    let (records, _torn) = bytes.as_chunks::<END_RECORD>();
    for record in records.iter().skip(1) {
        let (covered, crc) = record.split_at(END_RECORD - 4);
        if crc32c(&[covered]).to_be_bytes() != crc {
            continue;
        }
        let mut scan = Scan::new(covered);
        let parse = || {
            let topic = TopicId(Uuid::from_slice(scan.take(16)?).ok()?);
            let id = TopicPartition { topic, partition: PartitionIndex(scan.i32()?) };
            let (kind, _flags, _start) = (scan.u8()?, scan.take(3)?, scan.i64()?);
            Some((id, kind, scan.i64()?))
        };
        match { parse }() {
            Some((id, 1, end)) => drop(ends.insert(id, end)),
            Some((id, _, _)) => drop(ends.remove(&id)),
            None => {}
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TopicPartition =
        TopicPartition { topic: TopicId(Uuid::from_u128(7)), partition: PartitionIndex(2) };

    fn end_record(kind: u8, end: i64) -> Vec<u8> {
        let mut record = ID.topic.0.as_bytes().to_vec();
        record.extend(ID.partition.0.to_be_bytes());
        record.extend([kind, 0, 0, 0]);
        record.extend([0_i64, end, 0].map(i64::to_be_bytes).concat());
        record.resize(END_RECORD - 4, 0);
        record.extend(crc32c(&[&record]).to_be_bytes());
        record
    }

    /// A batch of one record's size with nothing in it, as the format has it.
    fn batch(base: i64) -> Vec<u8> {
        let mut covered = [0, 0, 0, 0, 0, 0].to_vec();
        covered.extend([0_i64, 0, -1].map(i64::to_be_bytes).concat());
        covered.extend([255; 6]);
        covered.extend([0, 0, 0, 1]);
        covered.extend([b'x'; 40]);
        let mut bytes = base.to_be_bytes().to_vec();
        bytes.extend((9 + covered.len() as u32).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 2]);
        bytes.extend(crc32c(&[&covered]).to_be_bytes());
        bytes.extend(covered);
        bytes
    }

    fn node(dir: &Path, batches: i64, flushed: i64) -> PathBuf {
        let copy = dir.join(format!("{}-{}", ID.topic, ID.partition.0));
        fs::create_dir_all(&copy).unwrap();
        let log = copy.join("00000000000000000000.log");
        fs::write(&log, (0..batches).flat_map(batch).collect::<Vec<u8>>()).unwrap();
        let ends = [vec![0; END_RECORD], end_record(1, flushed)].concat();
        fs::write(dir.join(FLUSHED_ENDS), ends).unwrap();
        log
    }

    #[test]
    fn the_last_valid_record_of_a_log_counts() {
        let mut torn = end_record(1, 30);
        torn[40] ^= 1;
        let header = vec![0; END_RECORD];
        let file = [header.clone(), end_record(1, 10), end_record(1, 20), torn].concat();
        assert_eq!(flushed_ends(&file), [(ID, 20)].into());
        let removed = [header, end_record(1, 10), end_record(2, 0)].concat();
        assert_eq!(flushed_ends(&removed), BTreeMap::new());
    }

    #[test]
    fn what_was_not_flushed_and_what_no_checksum_covers_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let size = batch(0).len();
        let mut done = 0;
        for seed in 0..300 {
            let log = node(dir.path(), 4, 2);
            let before = fs::read(&log).unwrap();
            let mut chance = Moments::new(seed);
            let harm =
                [Harm::FlippedBit, Harm::CutShort, Harm::Zeros, Harm::MisplacedBlock][index(&mut chance, 4)];
            let ends = flushed_ends(&fs::read(dir.path().join(FLUSHED_ENDS)).unwrap());
            if harm_log(&log, harm, &ends, &mut chance).unwrap().is_none() {
                continue;
            }
            done += 1;
            let after = fs::read(&log).unwrap();
            // Whatever else is wrong, a batch that counts as flushed is, and not only where nobody can see it.
            let shown = |at: usize| at % size >= UNCHECKED && after.get(at) != before.get(at);
            assert!((0..2 * size).any(shown), "seed {seed}: {harm:?}");
            assert!(batches(&after).len() < 2, "seed {seed}: {harm:?}");
        }
        assert!(done > 200, "{done} of 300");
        let log = node(dir.path(), 4, 0);
        let nothing = harm_log(&log, Harm::Missing, &BTreeMap::new(), &mut Moments::new(1)).unwrap();
        assert_eq!(nothing, None, "nothing is known to be flushed");
    }

    #[test]
    fn of_a_copy_one_file_is_damaged_at_most() {
        let (dir, older) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut done = 0;
        for seed in 0..100 {
            let log = node(dir.path(), 4, 4);
            for extension in ["seal", "index", "snapshot"] {
                fs::write(log.with_extension(extension), [7; 100]).unwrap();
            }
            let told = damage(dir.path(), older.path(), &mut Moments::new(seed)).unwrap();
            let of_copy = told.iter().filter(|what| !what.starts_with(FLUSHED_ENDS)).count();
            assert!(of_copy <= 1, "seed {seed}: {told:?}");
            done += of_copy;
        }
        assert!(done > 50, "{done} of 100");
    }

    #[test]
    fn an_older_copy_takes_the_place_of_one_that_has_flushed_more() {
        let (now, then) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = node(now.path(), 4, 4);
        node(then.path(), 2, 2);
        let ends = [(ID, 4)].into();
        let copy = log.parent().unwrap();
        let told = restore_copy(now.path(), then.path(), copy, &ends).unwrap();
        assert_eq!(told.as_deref(), Some("as it was when it ended at 2 and not at 4"));
        assert_eq!(batches(&fs::read(&log).unwrap()).len(), 2);
        // Nothing that was flushed would be missing.
        let ends = [(ID, 2)].into();
        assert_eq!(restore_copy(now.path(), then.path(), copy, &ends).unwrap(), None);
    }
}
