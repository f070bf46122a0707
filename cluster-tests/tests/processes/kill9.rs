//! `kill -9` under load with acks=all, again and again: every acknowledged record is there once, in order.
//!
//! `WEIR_KILL_TIMES` says how often (5 if not set; `cargo xtask chaos-kill --times 50` sets it). The moments of the kills come
//! from a seed, printed at the start; `WEIR_SEED` repeats it.

use std::time::Duration;

use crate::separate_daemons::Daemons;
use cluster_tests::clients::{all_output, kafka_tool, kafka_tool_output, kcat_read};
use cluster_tests::clock::wait_until;
use cluster_tests::load::{Load, check_promises};
use cluster_tests::local_cluster::WeirDev;
use cluster_tests::moments::Moments;

const PARTITIONS: u32 = 3;
const IN_FLIGHT: u32 = 200;
/// Acknowledgements between two kills, at least.
const PROGRESS: usize = 200;
/// How long the quorum may take to be whole again, on a busy machine. (What it should take is a matter of `bench`.)
const FAILOVER_LIMIT: Duration = Duration::from_secs(60);
/// A kill comes at a random moment within this time after the progress.
const SPREAD: Duration = Duration::from_millis(150);

fn times() -> usize {
    match std::env::var("WEIR_KILL_TIMES") {
        Ok(times) => times.parse().expect("WEIR_KILL_TIMES is a number"),
        Err(_) => 5,
    }
}

fn start_load(bootstrap: &str) -> Load {
    let partitions = PARTITIONS.to_string();
    kafka_tool(
        "kafka-topics",
        bootstrap,
        &["--create", "--topic", "promised", "--partitions", &partitions],
        b"",
    );
    Load::start(bootstrap, "promised", PARTITIONS, IN_FLIGHT)
}

/// Creates a topic while the quorum may be without a leader. A request that was on its way to the old leader has an unknown
/// outcome, and says so; then a client asks again.
fn create_whatever_happens(bootstrap: &str, topic: &str) {
    let args = ["--create", "--if-not-exists", "--topic", topic, "--partitions", "1"];
    let created = wait_until(FAILOVER_LIMIT, || {
        let output = kafka_tool_output("kafka-topics", bootstrap, &args, b"");
        if output.status.success() {
            return Some(());
        }
        let text = all_output(&output);
        assert!(text.contains("TimeoutException"), "{text}");
        None
    });
    assert!(created.is_some(), "{topic} could not be created within {FAILOVER_LIMIT:?}");
}

fn finish(load: Load, bootstrap: &str) {
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    let answers = load.finish();
    check_promises(&answers, &kcat_read(bootstrap, "promised"));
}

#[test]
fn the_whole_of_weir_dev() {
    let mut dev = WeirDev::start("kill9_dev");
    let mut moments = Moments::from_env("the_whole_of_weir_dev");
    let load = start_load(&dev.bootstrap());
    for _ in 0..times() {
        load.wait_for_progress(load.acknowledged(), PROGRESS);
        std::thread::sleep(moments.within(SPREAD));
        dev.kill();
        dev.start_again();
    }
    finish(load, &dev.bootstrap());
}

#[test]
fn the_storage_node() {
    let mut daemons = Daemons::start("kill9-node", 1);
    let mut moments = Moments::from_env("the_storage_node");
    let load = start_load(&daemons.bootstrap());
    for _ in 0..times() {
        load.wait_for_progress(load.acknowledged(), PROGRESS);
        std::thread::sleep(moments.within(SPREAD));
        daemons.node.kill();
        daemons.node.start();
        daemons.wait_ready();
    }
    finish(load, &daemons.bootstrap());
}

#[test]
fn the_controller() {
    let mut daemons = Daemons::start("kill9-controller", 1);
    let mut moments = Moments::from_env("the_controller");
    let load = start_load(&daemons.bootstrap());
    for n in 0..times() {
        load.wait_for_progress(load.acknowledged(), PROGRESS);
        std::thread::sleep(moments.within(SPREAD));
        daemons.controllers[0].kill();
        // Records go on while the controller is away.
        load.wait_for_progress(load.acknowledged(), PROGRESS);
        daemons.controllers[0].start();
        // And it is whole again: it can change the cluster.
        let topic = format!("after-kill-{n}");
        kafka_tool(
            "kafka-topics",
            &daemons.bootstrap(),
            &["--create", "--topic", &topic, "--partitions", "1"],
            b"",
        );
    }
    let topics = kafka_tool("kafka-topics", &daemons.bootstrap(), &["--list"], b"");
    assert_eq!(topics.matches("after-kill-").count(), times(), "{topics}");
    finish(load, &daemons.bootstrap());
}

#[test]
fn the_leader_of_three_controllers() {
    let mut daemons = Daemons::start("kill9-quorum", 3);
    let mut moments = Moments::from_env("the_leader_of_three_controllers");
    let load = start_load(&daemons.bootstrap());
    for n in 0..times() {
        load.wait_for_progress(load.acknowledged(), PROGRESS);
        std::thread::sleep(moments.within(SPREAD));
        // One after another, so that the leader is among them every time but never two are away.
        for controller in 0..3 {
            daemons.controllers[controller].kill();
            create_whatever_happens(&daemons.bootstrap(), &format!("without-{controller}-{n}"));
            daemons.controllers[controller].start();
        }
    }
    let topics = kafka_tool("kafka-topics", &daemons.bootstrap(), &["--list"], b"");
    assert_eq!(topics.matches("without-").count(), 3 * times(), "{topics}");
    finish(load, &daemons.bootstrap());
}
