//! `kill -9` under load with acks=all, again and again: every acknowledged record is there once, in order.
//!
//! `WEIR_KILL_TIMES` says how often (5 if not set; `cargo xtask chaos-kill --times 50` sets it). The moments of the kills come
//! from a seed, printed at the start; `WEIR_SEED` repeats it.

use std::time::Duration;

use cluster_tests::clients::{kafka_tool, kcat_read};
use cluster_tests::load::{Load, check_promises};
use cluster_tests::local_cluster::WeirDev;
use cluster_tests::moments::Moments;

const PARTITIONS: u32 = 3;
const IN_FLIGHT: u32 = 200;
/// Acknowledgements between two kills, at least.
const PROGRESS: usize = 200;
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
