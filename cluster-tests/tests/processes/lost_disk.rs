//! One of two disks of a storage node is lost: what is on the other is served, the node says what is missing, and when an
//! operator has put an empty directory in the lost one's place its copies come from the other nodes; what was acknowledged is all
//! there, and nobody ever counted on an empty copy.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_tests::clients::{kafka_tool, kcat_read, weir_output};
use cluster_tests::clock::wait_until;
use cluster_tests::dump::partition_dirs;
use cluster_tests::http;
use cluster_tests::load::{Load, check_promises};
use cluster_tests::partition_view::PartitionView;
use cluster_tests::replicated_cluster::{Daemon, ReplicatedCluster, Shape};
use cluster_tests::run_dir::RunDir;
use log_engine::inspect::{Severity, verify_log};
use log_engine::{REPLACES_LOST_DISK, RealDisk};

const TOPIC: &str = "kept";
const PARTITIONS: usize = 6;
/// The node with two data directories; every partition prefers it for its leader.
const VICTIM: usize = 1;
/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);
const IN_FLIGHT: u32 = 200;
const PROGRESS: usize = 1_000;

fn wait_for(cluster: &ReplicatedCluster, what: &str, holds: impl Fn(&[PartitionView]) -> bool) {
    let mut views = Vec::new();
    let reached = wait_until(LIMIT, || {
        views = cluster.partitions(2, TOPIC)?;
        (views.len() == PARTITIONS && holds(&views)).then_some(())
    });
    assert!(reached.is_some(), "{what}: {views:?}");
}

fn in_sync(views: &[PartitionView]) -> bool {
    views.iter().all(|view| view.isr.len() == 3)
}

/// What is wrong with the copies in a data directory.
fn damage(data: &Path) -> Vec<String> {
    let verdicts = partition_dirs(data).into_iter().map(|dir| verify_log(&RealDisk, &dir).expect("readable"));
    let findings = verdicts.flat_map(|verdict| verdict.findings);
    let damage = findings.filter(|finding| finding.severity == Severity::Damage);
    damage.map(|finding| format!("{finding:?}")).collect()
}

#[test]
fn a_lost_disk_is_replaced_and_its_copies_come_from_the_others() {
    let run_dir = RunDir::new("lost-disk");
    let shape = Shape { controllers: 1, ..Shape::default() };
    let mut cluster = ReplicatedCluster::prepare(&run_dir.join("cluster"), &shape).expect("it can be made");
    let first = cluster.node(VICTIM).data.clone();
    let second: PathBuf = first.with_file_name(format!("second-disk-of-{VICTIM}"));
    cluster.node(VICTIM).set(&format!("data_dirs=[{first:?}, {second:?}]"));
    cluster.daemons_mut().iter_mut().for_each(Daemon::start);
    cluster.wait_ready();
    let at = cluster.bootstrap();
    let assignment = ["1:2:3"; PARTITIONS].join(",");
    let create = ["--create", "--topic", TOPIC, "--replica-assignment", &assignment];
    kafka_tool("kafka-topics", &at, &[&create[..], &["--config", "min.insync.replicas=2"]].concat(), b"");
    wait_for(&cluster, "in sync at first", in_sync);
    let load = Load::start(&at, TOPIC, u32::try_from(PARTITIONS).expect("few"), IN_FLIGHT);
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    let copies = partition_dirs(&first).len() + partition_dirs(&second).len();
    let lost = partition_dirs(&second).len();
    assert!(copies >= PARTITIONS && (copies / 2..=copies.div_ceil(2)).contains(&lost), "{lost} of {copies}");

    cluster.node(VICTIM).kill();
    fs::remove_dir_all(&second).expect("removable");
    // As a mount point is without its disk.
    fs::create_dir(&second).expect("it can be made");
    cluster.node(VICTIM).start();
    let in_the_first =
        |views: &[PartitionView]| views.iter().filter(|view| view.isr.contains(&VICTIM)).count();
    wait_for(&cluster, "what the other directory has is in sync", |views| {
        let here = in_the_first(views);
        here > 0 && here < PARTITIONS
    });
    let says = wait_until(LIMIT, || {
        let (status, body) = http::get(cluster.node(VICTIM).http(), "/readyz")?;
        let names_it = body.contains(&second.display().to_string()) && body.contains(REPLACES_LOST_DISK);
        (status != 200 && names_it).then_some(body)
    });
    assert!(says.is_some(), "{:?}", http::get(cluster.node(VICTIM).http(), "/readyz"));
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    assert_eq!(fs::read_dir(&second).expect("it is there").count(), 0, "nobody has made it his");

    cluster.node(VICTIM).stop();
    let note = second.join(REPLACES_LOST_DISK);
    fs::write(&note, "").expect("writable");
    cluster.node(VICTIM).start();
    cluster.wait_ready();
    wait_for(&cluster, "in sync again", in_sync);
    assert!(wait_until(LIMIT, || (!note.exists()).then_some(())).is_some(), "everybody knows");
    assert_eq!(partition_dirs(&second).len(), lost, "as many as were lost are made anew there");

    // It is a directory as any other now, and the node leads with what it has.
    cluster.node(VICTIM).kill();
    cluster.node(VICTIM).start();
    cluster.wait_ready();
    wait_for(&cluster, "in sync after another restart", in_sync);
    let leads = wait_until(LIMIT, || {
        // One that is not needed, or not possible yet, is a failure too.
        weir_output(&at, &["partition", "elect", TOPIC], b"");
        let views = cluster.partitions(2, TOPIC)?;
        views.iter().all(|view| view.leader == Some(VICTIM)).then_some(())
    });
    assert!(leads.is_some(), "{:?}", cluster.partitions(2, TOPIC));
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    check_promises(&load.finish(), &kcat_read(&at, TOPIC));
    cluster.stop();
    assert_eq!((damage(&first), damage(&second)), (vec![], vec![]));
}
