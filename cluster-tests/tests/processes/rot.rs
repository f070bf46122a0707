//! T-118: one replica's files rot while its node is down, each partition's in another way, and then that node leads all of them.
//! Nothing wrong is served, nothing that was acknowledged is missed, and every copy is whole again by itself.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cluster_tests::clients::{kafka_tool, kcat_read, weir_output};
use cluster_tests::clock::wait_until;
use cluster_tests::dump::files;
use cluster_tests::load::{Answers, Load, check_promises};
use cluster_tests::partition_view::PartitionView;
use cluster_tests::replicated_cluster::{ReplicatedCluster, Shape};
use cluster_tests::run_dir::RunDir;
use log_engine::inspect::{Severity, verify_log};
use log_engine::{LogName, RealDisk};
use records::batches;

const TOPIC: &str = "rotting";
/// The node whose files rot; every partition prefers it for its leader.
const VICTIM: usize = 1;
/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);
const IN_FLIGHT: u32 = 500;
/// Segments that every partition must have had finished.
const SEALED: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Target {
    Sealed,
    Active,
    Index,
    TimeIndex,
    Snapshot,
    Epochs,
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// A bit of a record.
    Flip,
    /// A bit of an offset, which no checksum of a batch covers.
    FlipOffset,
    /// Bytes lie where others belong.
    Copy,
    /// What was there before: of a log nothing, of other files an older one.
    Old,
    Truncate,
    Remove,
}

/// What rots, how, and whether the copy must be made anew from that of another node.
const TABLE: &[(Target, Damage, bool)] = &[
    (Target::Sealed, Damage::Flip, true),
    (Target::Sealed, Damage::FlipOffset, true),
    (Target::Sealed, Damage::Copy, true),
    (Target::Sealed, Damage::Old, true),
    (Target::Sealed, Damage::Truncate, true),
    (Target::Sealed, Damage::Remove, true),
    (Target::Active, Damage::Flip, true),
    (Target::Active, Damage::Copy, true),
    (Target::Active, Damage::Old, true),
    (Target::Active, Damage::Truncate, true),
    (Target::Active, Damage::Remove, true),
    (Target::Index, Damage::Flip, false),
    (Target::Index, Damage::Copy, false),
    (Target::Index, Damage::Old, false),
    (Target::Index, Damage::Truncate, false),
    (Target::Index, Damage::Remove, false),
    (Target::TimeIndex, Damage::Copy, false),
    (Target::TimeIndex, Damage::Old, false),
    (Target::TimeIndex, Damage::Remove, false),
    (Target::Snapshot, Damage::Flip, false),
    (Target::Snapshot, Damage::Old, false),
    (Target::Snapshot, Damage::Truncate, false),
    (Target::Snapshot, Damage::Remove, false),
    (Target::Epochs, Damage::Flip, false),
    (Target::Epochs, Damage::Old, false),
    (Target::Epochs, Damage::Truncate, false),
    (Target::Epochs, Damage::Remove, false),
];

/// The copies on a node, by partition; what is set aside is none.
fn copies(data: &Path) -> Vec<PathBuf> {
    let name = |dir: &PathBuf| LogName::parse(&dir.file_name()?.to_string_lossy());
    let dirs = fs::read_dir(data).expect("the node has a data directory").flatten().map(|entry| entry.path());
    let mut found: Vec<(i32, PathBuf)> = dirs.filter_map(|dir| Some((name(&dir)?.partition, dir))).collect();
    found.sort();
    found.into_iter().map(|(_, dir)| dir).collect()
}

/// A finished segment in the middle.
fn sealed(dir: &Path) -> PathBuf {
    let seals = files(dir, "seal");
    seals[seals.len() / 2].clone()
}

fn file_of(dir: &Path, target: Target) -> PathBuf {
    match target {
        Target::Sealed => sealed(dir).with_extension("log"),
        Target::Active => files(dir, "log").pop().expect("a log has a segment"),
        Target::Index => sealed(dir).with_extension("index"),
        Target::TimeIndex => sealed(dir).with_extension("timeindex"),
        Target::Snapshot => files(dir, "snapshot").pop().expect("a log that was closed has a snapshot"),
        Target::Epochs => dir.join("leader-epoch-checkpoint"),
    }
}

/// Tells a folder from another one that has its name later, and perhaps its inode number.
fn identity(dir: &Path) -> (u64, Option<SystemTime>) {
    let metadata = fs::metadata(dir).expect("it is there");
    (metadata.ino(), metadata.created().ok())
}

/// Where a batch in the middle of a segment begins.
fn middle_batch(bytes: &[u8]) -> usize {
    let sizes = batches(bytes).map(|batch| batch.expect("a sound log").header().size());
    let begins: Vec<usize> = sizes.scan(0, |at, size| Some(std::mem::replace(at, *at + size))).collect();
    begins[begins.len() / 2]
}

/// The file as it is after the damage; none if it is gone.
fn damaged(path: &Path, target: Target, damage: Damage) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).expect("it is there");
    let (is_log, middle) = (matches!(target, Target::Sealed | Target::Active), bytes.len() / 2);
    match damage {
        Damage::Flip if is_log => {
            // Behind the 61 bytes of a batch's header its records begin.
            let at = (middle_batch(&bytes) + 70).min(bytes.len() - 1);
            bytes[at] ^= 4;
        }
        Damage::Flip => bytes[middle] ^= 4,
        Damage::FlipOffset => {
            let at = middle_batch(&bytes) + 7;
            bytes[at] ^= 0x10;
        }
        Damage::Copy => {
            let length = 100.min(middle / 2);
            bytes.copy_within(..length, middle);
        }
        Damage::Old if is_log => {
            let end = bytes.len().min(middle + 512);
            bytes[middle..end].fill(0);
        }
        Damage::Old if matches!(target, Target::Epochs) => bytes = b"0\n0\n".to_vec(),
        Damage::Old => {
            let extension =
                path.extension().and_then(|extension| extension.to_str()).expect("a file of a log");
            bytes = fs::read(&files(path.parent().expect("a directory"), extension)[0]).expect("it is there");
        }
        Damage::Truncate => bytes.truncate(bytes.len() - bytes.len() / 3),
        Damage::Remove => return None,
    }
    Some(bytes)
}

/// Damages a file on the device: what the machine still had of it in memory is forgotten.
fn damage_file(path: &Path, target: Target, damage: Damage) {
    let before = fs::read(path).expect("it is there");
    let after = damaged(path, target, damage);
    assert!(after.as_ref() != Some(&before), "{damage:?} of {} changes nothing", path.display());
    let Some(after) = after else {
        fs::remove_file(path).expect("removable");
        return;
    };
    let file = File::options().write(true).open(path).expect("writable");
    file.write_all_at(&after, 0).and_then(|()| file.set_len(after.len() as u64)).expect("writable");
    file.sync_all().expect("the disk works");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("a file can be forgotten");
}

fn in_sync(views: &[PartitionView]) -> bool {
    views.len() == TABLE.len() && views.iter().all(|view| view.isr.len() == 3)
}

fn wait_in_sync(cluster: &ReplicatedCluster, when: &str) {
    let mut views = Vec::new();
    let reached = wait_until(LIMIT, || {
        views = cluster.partitions(2, TOPIC)?;
        in_sync(&views).then_some(())
    });
    assert!(reached.is_some(), "{when}: all copies should be in sync: {views:?}");
}

/// Has the victim lead every partition at the same time.
fn lead_by_victim(cluster: &ReplicatedCluster, bootstrap: &str) {
    let mut views = Vec::new();
    let reached = wait_until(LIMIT, || {
        views = cluster.partitions(2, TOPIC)?;
        if in_sync(&views) && views.iter().all(|view| view.leader == Some(VICTIM)) {
            return Some(());
        }
        // One that is not needed, or not possible yet, is a failure too.
        weir_output(bootstrap, &["partition", "elect", TOPIC], b"");
        None
    });
    assert!(reached.is_some(), "node {VICTIM} should lead everywhere: {views:?}");
}

fn segments(copies: &[PathBuf]) -> Option<()> {
    let enough = |dir: &PathBuf| files(dir, "seal").len() >= SEALED && files(dir, "snapshot").len() >= 2;
    (copies.len() == TABLE.len() && copies.iter().all(enough)).then_some(())
}

/// Waits until nothing is wrong with any file of any copy of the victim, but for snapshots of producers that are not believed and
/// go when newer ones come.
fn wait_whole(data: &Path) {
    let mut findings = Vec::new();
    let whole = wait_until(LIMIT, || {
        let verdicts: Option<Vec<_>> =
            copies(data).iter().map(|dir| verify_log(&RealDisk, dir).ok()).collect();
        let verdicts = verdicts?;
        findings = verdicts.iter().flat_map(|verdict| verdict.findings.clone()).collect();
        findings.retain(|finding| {
            let is_snapshot = finding.path.extension().is_some_and(|extension| extension == "snapshot");
            finding.severity == Severity::Damage || !is_snapshot
        });
        (verdicts.len() == TABLE.len() && findings.is_empty()).then_some(())
    });
    assert!(whole.is_some(), "{findings:#?}");
}

fn promises_are_kept(answers: &Answers, bootstrap: &str, when: &str) {
    eprintln!("{when}");
    check_promises(answers, &kcat_read(bootstrap, TOPIC));
}

#[test]
fn a_replica_with_every_damage_leads() {
    let run_dir = RunDir::new("rot");
    let quiet = vec!["limits.scrub_bytes_per_second=0".to_owned()];
    let shape = Shape { controllers: 1, node_settings: quiet, ..Shape::default() };
    let mut cluster = ReplicatedCluster::start(&run_dir.join("cluster"), &shape).expect("it starts");
    let (at, data) = (cluster.bootstrap(), cluster.node(VICTIM).data.clone());
    let assignment = vec!["1:2:3"; TABLE.len()].join(",");
    let create = ["--create", "--topic", TOPIC, "--replica-assignment", &assignment];
    let configs = ["--config", "segment.ms=1500", "--config", "index.interval.bytes=0"];
    kafka_tool("kafka-topics", &at, &[&create[..], &configs].concat(), b"");
    wait_in_sync(&cluster, "at first");
    let partitions = u32::try_from(TABLE.len()).expect("few");
    let load = Load::start(&at, TOPIC, partitions, IN_FLIGHT);
    assert!(wait_until(LIMIT, || segments(&copies(&data))).is_some(), "segments should be finished");

    cluster.node(VICTIM).stop();
    let rotten = copies(&data);
    let folders: Vec<_> = rotten.iter().map(|dir| identity(dir)).collect();
    for (dir, (target, damage, _)) in rotten.iter().zip(TABLE) {
        damage_file(&file_of(dir, *target), *target, *damage);
    }
    load.wait_for_progress(load.acknowledged(), TABLE.len() * 10);
    cluster.node(VICTIM).start();
    wait_in_sync(&cluster, "after the damage");
    lead_by_victim(&cluster, &at);
    load.wait_for_progress(load.acknowledged(), TABLE.len() * 10);
    let answers = load.finish();
    promises_are_kept(&answers, &at, "while the damaged replica leads");

    // Nobody has read all of it yet; the scrub does.
    cluster.node(VICTIM).stop();
    for setting in ["limits.scrub_bytes_per_second=1000000000", "limits.scrub_period_ms=500"] {
        cluster.node(VICTIM).set(setting);
    }
    cluster.node(VICTIM).start();
    wait_whole(&data);
    wait_in_sync(&cluster, "when all was mended");
    for ((dir, folder), (target, damage, anew)) in copies(&data).iter().zip(folders).zip(TABLE) {
        let is_new = identity(dir) != folder;
        assert_eq!(is_new, *anew, "{target:?}, {damage:?}: whether the copy {} was made anew", dir.display());
    }
    lead_by_victim(&cluster, &at);
    promises_are_kept(&answers, &at, "when all was mended");
    cluster.stop();
}
