//! A storage node whose process is gone loses its leaderships long before its session ends; one that stands still keeps them,
//! however silent it is.

use std::time::Duration;

use cluster_tests::clients::kafka_tool;
use cluster_tests::clock::{monotonic_us, wait_until};
use cluster_tests::http;
use cluster_tests::replicated_cluster::{ReplicatedCluster, Role, Shape};
use cluster_tests::run_dir::RunDir;

const TOPIC: &str = "led";
/// Far longer than what is measured takes, also on a busy machine.
const SESSION: Duration = Duration::from_secs(40);
/// A dead leader is replaced within this.
const REPLACED: Duration = Duration::from_secs(20);
/// A leader that stands still leads at least for so long. That is many probes.
const STANDS_STILL: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn only_a_process_that_is_gone_is_taken_for_dead() {
    let dir = RunDir::new("proof-of-death");
    let session = SESSION.as_millis().to_string();
    let settings = [("SESSIONS__SESSION_MS", session.as_str()), ("SESSIONS__HEARTBEAT_MS", "1000")];
    let controller_settings =
        settings.map(|(name, value)| (format!("WEIR_CONTROLLER_{name}"), value.to_owned())).to_vec();
    let shape = Shape { controllers: 1, controller_settings, ..Shape::default() };
    let mut cluster = ReplicatedCluster::start(dir.path(), &shape).expect("a cluster");
    let create = ["--create", "--topic", TOPIC, "--partitions", "1", "--replication-factor", "3"];
    kafka_tool("kafka-topics", &cluster.bootstrap(), &create, b"");
    let leader = wait_until(LIMIT, || leader_of_all(&cluster)).expect("all copies are in sync");

    // While it stands still nothing proves that it is dead.
    let fenced = metric(&mut cluster, "weir_controller_fencings_total");
    cluster.node(leader).pause();
    std::thread::sleep(STANDS_STILL);
    assert_eq!(metric(&mut cluster, "weir_controller_fencings_total"), fenced);
    let other = 1 + leader % 3;
    assert_eq!(wait_until(LIMIT, || seen_by(&cluster, other)), Some(leader));
    cluster.node(leader).resume();
    assert_eq!(metric(&mut cluster, "weir_controller_deaths_proved_total"), 0.0);

    let begun = monotonic_us();
    cluster.node(leader).kill();
    let moved = wait_until(REPLACED, || seen_by(&cluster, other).filter(|now| *now != leader));
    assert!(moved.is_some(), "nobody else leads after {REPLACED:?}");
    println!("another node leads {} ms after the leader's death", (monotonic_us() - begun) / 1000);
    assert_eq!(metric(&mut cluster, "weir_controller_deaths_proved_total"), 1.0);

    cluster.node(leader).start();
    wait_until(LIMIT, || leader_of_all(&cluster)).expect("it is back, and all copies are in sync");
}

fn metric(cluster: &mut ReplicatedCluster, name: &str) -> f64 {
    let address = cluster.daemon(Role::Controller, 1).http();
    wait_until(LIMIT, || http::metric(address, name)).expect("the controller tells it")
}

/// The leader as a node tells it.
fn seen_by(cluster: &ReplicatedCluster, node: usize) -> Option<usize> {
    cluster.partitions(node, TOPIC)?.first()?.leader
}

/// The leader on which all nodes agree, once all copies are in sync.
fn leader_of_all(cluster: &ReplicatedCluster) -> Option<usize> {
    let told: Option<Vec<_>> =
        (1..=3).map(|node| cluster.partitions(node, TOPIC)?.into_iter().next()).collect();
    let told = told?;
    let leader = told[0].leader?;
    told.iter()
        .all(|partition| partition.isr.len() == 3 && partition.leader == Some(leader))
        .then_some(leader)
}
