//! One of two disks of a storage node fails while the node runs: what is on the other is led, written and in sync as before, the
//! copies on the failed one are led by others, the node says which directory it is, and when the disk works again and the node was
//! started anew they are in sync once more. What was acknowledged is all there. That is for writes and syncs; where only reads fail the
//! directory goes on, and others give what it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_tests::clients::{kafka_tool, kcat, kcat_read, weir, weir_output};
use cluster_tests::clock::wait_until;
use cluster_tests::dump::partition_dirs;
use cluster_tests::failing_disk::{Failing, FailingDisk};
use cluster_tests::guard::Guard;
use cluster_tests::http;
use cluster_tests::load::{Load, check_promises};
use cluster_tests::partition_view::PartitionView;
use cluster_tests::replicated_cluster::{Daemon, ReplicatedCluster, Shape};
use cluster_tests::run_dir::RunDir;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::describe_log_dirs::DescribeLogDirsRequest;
use log_engine::RealDisk;
use log_engine::inspect::{Severity, verify_log};

use crate::raw_connection::RawConnection;

const TOPIC: &str = "kept";
const PARTITIONS: usize = 6;
/// The node with two data directories; every partition prefers it for its leader.
const VICTIM: usize = 1;
/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);
const IN_FLIGHT: u32 = 200;
/// More than are in flight, so that each partition has some.
const PROGRESS: usize = 1_000;
const OFFLINE: &str = "the data directory is offline";

/// A cluster whose victim has a second data directory, on a disk that can fail.
struct World {
    cluster: ReplicatedCluster,
    at: String,
    first: PathBuf,
    second: PathBuf,
    // Unmounted when the daemons have ended.
    disk: FailingDisk,
}

impl World {
    fn start(dir: &Path, disk: FailingDisk) -> World {
        let shape = Shape { controllers: 1, ..Shape::default() };
        let mut cluster = ReplicatedCluster::prepare(dir, &shape).expect("it can be made");
        let first = cluster.node(VICTIM).data.clone();
        // Of a mount of its own a node may sync all at once, and the system hands that on to nobody.
        let second = disk.path().join("data");
        cluster.node(VICTIM).set(&format!("data_dirs=[{first:?}, {second:?}]"));
        cluster.daemons_mut().iter_mut().for_each(Daemon::start);
        cluster.wait_ready();
        let at = cluster.bootstrap();
        World { cluster, at, first, second, disk }
    }

    fn create(&self, topic: &str, partitions: usize) {
        let assignment = vec!["1:2:3"; partitions].join(",");
        let create = ["--create", "--topic", topic, "--replica-assignment", &assignment];
        kafka_tool(
            "kafka-topics",
            &self.at,
            &[&create[..], &["--config", "min.insync.replicas=2"]].concat(),
            b"",
        );
    }

    fn wait_for(&self, topic: &str, what: &str, holds: impl Fn(&[PartitionView]) -> bool) {
        let mut views = Vec::new();
        let reached = wait_until(LIMIT, || {
            views = self.cluster.partitions(2, topic)?;
            (!views.is_empty() && holds(&views)).then_some(())
        });
        assert!(reached.is_some(), "{what}: {views:?}");
    }

    /// Has the victim lead everything.
    fn lead(&self) {
        self.wait_for(TOPIC, "in sync", |views| views.len() == PARTITIONS && views.iter().all(is_in_sync));
        self.wait_for(TOPIC, "the victim leads", |views| self.leads(views.iter()));
    }

    /// Whether the victim leads these; else it is to. A busy machine may have taken it for dead.
    fn leads<'a>(&self, mut views: impl Iterator<Item = &'a PartitionView>) -> bool {
        let leads = views.all(|view| view.leader == Some(VICTIM));
        if !leads {
            // One that is not needed, or not possible yet, is a failure too.
            weir_output(&self.at, &["partition", "elect", TOPIC], b"");
        }
        leads
    }

    /// What the victim tells of a data directory: whether it works, and which partitions of a topic are in it.
    fn directory(&mut self, path: &Path, topic: &str) -> (ErrorCode, BTreeSet<usize>) {
        let mut victim = RawConnection::open(&self.cluster.node(VICTIM).kafka());
        victim.assert_alive();
        let answer = victim.call(&DescribeLogDirsRequest { topics: None }, 4).expect("it is answered");
        let found = answer.results.into_iter().find(|found| Path::new(found.log_dir.as_str()) == path);
        let found = found.unwrap_or_else(|| panic!("{} is not named", path.display()));
        let partitions = found.topics.iter().filter(|of| of.name.as_str() == topic).flat_map(|of| {
            let index = |p: i32| usize::try_from(p).expect("an index");
            of.partitions.iter().map(move |partition| index(partition.partition_index))
        });
        (found.error_code, partitions.collect())
    }

    /// The metric that says whether a directory is offline, by path.
    fn metric(&mut self) -> Option<BTreeMap<PathBuf, bool>> {
        let (_, text) = http::get(self.cluster.node(VICTIM).http(), "/metrics")?;
        let values = text.lines().filter_map(|line| {
            let of = line.strip_prefix("weir_storage_node_directory_offline{directory=\"")?;
            let (path, value) = of.split_once("\"} ")?;
            Some((PathBuf::from(path), value == "1"))
        });
        Some(values.collect())
    }

    /// How often the victim has logged that the second directory is offline.
    fn logged(&mut self) -> usize {
        let log = fs::read_to_string(self.cluster.node(VICTIM).log()).expect("it has a log");
        let second = self.second.display().to_string();
        log.lines().filter(|line| line.contains(OFFLINE) && line.contains(&second)).count()
    }

    /// Whoever looks after the node finds out which directory it is.
    fn check_named(&mut self, failures: usize) {
        let second = self.second.display().to_string();
        let says = format!("data directory {second} is offline");
        let http = self.cluster.node(VICTIM).http();
        let ready = wait_until(LIMIT, || {
            let (status, body) = http::get(http, "/readyz")?;
            (status != 200 && body.contains(&says)).then_some(())
        });
        assert!(ready.is_some(), "{:?}", http::get(http, "/readyz"));
        let offline = [(self.first.clone(), false), (self.second.clone(), true)];
        assert_eq!(self.metric(), Some(offline.into_iter().collect()));
        assert_eq!(self.logged(), failures, "each time once");
        let (first, second_path) = (self.first.clone(), self.second.clone());
        assert_eq!(self.directory(&first, TOPIC).0, ErrorCode::None);
        assert_eq!(self.directory(&second_path, TOPIC).0, ErrorCode::KafkaStorageError);
        let status = weir(&self.at, &["cluster", "status"], b"");
        assert!(status.contains(&second), "{status}");
    }
}

fn is_in_sync(view: &PartitionView) -> bool {
    view.isr.len() == 3
}

fn is_led_elsewhere(view: &PartitionView) -> bool {
    view.leader.is_some_and(|leader| leader != VICTIM) && !view.isr.contains(&VICTIM)
}

/// What is wrong with the copies in a data directory.
fn damage(data: &Path) -> Vec<String> {
    let verdicts = partition_dirs(data).into_iter().map(|dir| verify_log(&RealDisk, &dir).expect("readable"));
    let findings = verdicts.flat_map(|verdict| verdict.findings);
    let damage = findings.filter(|finding| finding.severity == Severity::Damage);
    damage.map(|finding| format!("{finding:?}")).collect()
}

/// One failure of the second directory, from a node that leads everything to one that has everything in sync again.
fn fail(world: &mut World, load: &Load, failing: Failing, failures: usize) {
    world.lead();
    let (first, second) = (world.first.clone(), world.second.clone());
    let (kept, gone) = (world.directory(&first, TOPIC).1, world.directory(&second, TOPIC).1);
    assert!(
        !kept.is_empty() && !gone.is_empty() && kept.len() + gone.len() == PARTITIONS,
        "{kept:?} {gone:?}"
    );

    let met = world.disk.met();
    world.disk.fail(failing);
    world.wait_for(TOPIC, "one directory is in sync and led, the other is neither", |views| {
        let kept = || kept.iter().map(|at| &views[*at]);
        kept().all(is_in_sync) && gone.iter().all(|at| is_led_elsewhere(&views[*at])) && world.leads(kept())
    });
    world.check_named(failures);
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    let victim = world.cluster.node(VICTIM).kafka();
    for at in &kept {
        let one = ["-C", "-t", TOPIC, "-p", &at.to_string(), "-o", "beginning", "-c", "1"];
        assert_eq!(kcat(&victim, &one, b"").lines().count(), 1);
    }
    let new = format!("since-{failing:?}");
    world.create(&new, 2);
    world.wait_for(&new, "a new topic", |views| views.len() == 2 && views.iter().all(is_in_sync));
    assert_eq!(world.directory(&first, &new).1.len(), 2, "new copies are made in the directory that works");
    assert_eq!(world.cluster.node(VICTIM).ended(), None);
    assert!(world.disk.met() > met);
}

/// The disk gives nothing back, but takes what is written: that is damage to each copy, and the directory goes on.
fn fail_to_read(world: &mut World, load: &Load) {
    world.lead();
    let (first, second) = (world.first.clone(), world.second.clone());
    let (kept, gone) = (world.directory(&first, TOPIC).1, world.directory(&second, TOPIC).1);
    world.disk.fail(Failing::Reads);
    world.disk.forget(&second).expect("it can be read");
    let read = kcat_read(&world.at, TOPIC);
    let found: BTreeSet<i32> = read.iter().filter(|record| record.offset == 0).map(|r| r.partition).collect();
    assert_eq!(found.len(), PARTITIONS, "others give what this disk does not");
    world.wait_for(TOPIC, "one directory is in sync and led, the other is led by others", |views| {
        let kept = || kept.iter().map(|at| &views[*at]);
        let elsewhere = |at: &usize| views[*at].leader.is_some_and(|leader| leader != VICTIM);
        kept().all(is_in_sync) && gone.iter().all(elsewhere) && world.leads(kept())
    });
    assert_eq!(world.directory(&second, TOPIC).0, ErrorCode::None);
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    assert!(world.disk.mend());
}

#[test]
fn what_is_on_the_other_disk_goes_on_when_one_fails() {
    let run_dir = RunDir::new("failing-disk");
    let mounts = run_dir.join("mounts");
    let _guard =
        Guard::start("weir-failing-disk", "weir-failing-disk", &mounts).expect("a shell can be started");
    let below = run_dir.join("below");
    fs::create_dir(&below).expect("it can be made");
    let disk = match FailingDisk::mount(&below, &mounts.join("second")) {
        Ok(disk) => disk,
        Err(error) => return eprintln!("NO FAILING DISK ON THIS MACHINE: {error}"),
    };
    let mut world = World::start(&run_dir.join("cluster"), disk);
    world.create(TOPIC, PARTITIONS);
    let load = Load::start(&world.at, TOPIC, u32::try_from(PARTITIONS).expect("few"), IN_FLIGHT);
    load.wait_for_progress(load.acknowledged(), PROGRESS);

    fail_to_read(&mut world, &load);
    fail(&mut world, &load, Failing::Syncs, 1);
    // The disk is repaired while the node is stopped.
    world.cluster.node(VICTIM).stop();
    assert!(world.disk.mend());
    world.cluster.node(VICTIM).start();
    world.cluster.wait_ready();
    fail(&mut world, &load, Failing::Writes, 2);
    world.cluster.node(VICTIM).kill();
    assert!(world.disk.mend());
    world.cluster.node(VICTIM).start();
    world.cluster.wait_ready();

    world.lead();
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    check_promises(&load.finish(), &kcat_read(&world.at, TOPIC));
    world.cluster.stop();
    assert_eq!((damage(&world.first), damage(&world.second)), (vec![], vec![]));
}
