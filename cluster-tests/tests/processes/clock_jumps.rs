//! The wall clock of one daemon jumps by a year, forth and back, while a producer is busy (libfaketime): who is in sync and
//! who is alive is a matter of clocks that do not jump, so no in-sync set changes and nobody is fenced. And nothing is deleted
//! for its age by a clock that has just jumped (T-115).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster_tests::clients::{kafka_tool, kcat, kcat_read};
use cluster_tests::clock::{unix_ms, wait_until};
use cluster_tests::load::{Load, check_promises};

use crate::replication::{IN_FLIGHT, PARTITIONS, PROGRESS, Replicated};
use crate::separate_daemons::{Daemon, Daemons};

/// Where the wall clock jumps to: days from what the machine has, one after the other.
const JUMPS: [i64; 4] = [365, 0, -365, 0];
const DAY_MS: i64 = 24 * 3600 * 1000;
/// Until records have the time that their leader's clock was set to, on a busy machine.
const SEEN_LIMIT: Duration = Duration::from_secs(60);
/// Patience with the silence of a node, in milliseconds: much more than a busy machine needs, much less than a jump.
const SESSION_MS: &str = "60000";

/// The wall clock of one daemon, as it is told by a file.
struct WallClock {
    file: PathBuf,
}

impl WallClock {
    /// Has the daemon, which was not started yet, read its wall clock from here.
    fn of(daemon: &mut Daemon, file: PathBuf, library: &str) -> Self {
        let clock = WallClock { file };
        clock.jump(0);
        daemon.set_environment([
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", clock.file.to_str().expect("the run folder has a plain name")),
            // The file is read whenever the time is, so that a jump is in force when it is written.
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ]);
        clock
    }

    fn jump(&self, days: i64) {
        // Never half written for who reads it.
        let draft = self.file.with_extension("draft");
        fs::write(&draft, format!("{days:+}d\n")).expect("the run folder can be written");
        fs::rename(&draft, &self.file).expect("the run folder can be written");
    }
}

/// What libfaketime's own program would preload.
fn library() -> String {
    let output = Command::new("faketime").args(["-m", "-f", "+0", "printenv", "LD_PRELOAD"]).output();
    let output = output.expect("faketime is installed");
    let path = String::from_utf8(output.stdout).expect("a path");
    assert!(output.status.success() && !path.trim().is_empty(), "faketime tells no library");
    path.trim().to_owned()
}

fn cluster_with_clocks() -> (Replicated, WallClock, Vec<(i32, WallClock)>) {
    let library = library();
    let mut cluster = Replicated::prepare("clock-jumps");
    let file = |dir: &Path, name: &str| dir.join(format!("{name}.clock"));
    let dir = cluster.run_dir.path().to_owned();
    let of_controller = WallClock::of(&mut cluster.controller, file(&dir, "controller"), &library);
    cluster.controller.set_environment([("WEIR_CONTROLLER_SESSIONS__SESSION_MS", SESSION_MS)]);
    let mut of_nodes = Vec::new();
    for (id, node) in &mut cluster.nodes {
        of_nodes.push((*id, WallClock::of(node, file(&dir, &format!("node-{id}")), &library)));
    }
    cluster.start_all();
    (cluster, of_controller, of_nodes)
}

/// How often an in-sync set became smaller and somebody was fenced, as controller and leaders count.
fn changes(cluster: &Replicated) -> (f64, f64, f64) {
    let of = |daemon: &Daemon, name: &str| {
        wait_until(SEEN_LIMIT, || daemon.metric(name)).unwrap_or_else(|| panic!("no {name}"))
    };
    let controller = &cluster.controller;
    (
        of(controller, "weir_controller_isr_shrinks_total"),
        of(controller, "weir_controller_fencings_total"),
        cluster.nodes.values().map(|node| of(node, "weir_storage_node_isr_shrinks_total")).sum(),
    )
}

/// Waits until the newest record of a partition has the time of a clock that is `days` off.
fn wait_for_time(cluster: &Replicated, partition: usize, days: i64) {
    let (bootstrap, partition) = (cluster.bootstrap(), partition.to_string());
    let mut last = String::new();
    let seen = wait_until(SEEN_LIMIT, || {
        let args = ["-C", "-t", "kept", "-p", &partition, "-o", "-1", "-c", "1", "-f", "%T"];
        last = kcat(&bootstrap, &args, b"");
        let off = last.trim().parse::<i64>().ok()? - unix_ms() - days * DAY_MS;
        (off.abs() < DAY_MS / 2).then_some(())
    });
    assert!(seen.is_some(), "partition {partition} should be stamped {days} days off: {last}");
}

#[test]
fn a_jump_of_a_wall_clock_changes_no_in_sync_set() {
    let (cluster, of_controller, of_nodes) = cluster_with_clocks();
    let bootstrap = cluster.bootstrap();
    let all: BTreeSet<i32> = cluster.nodes.keys().copied().collect();
    let partitions = PARTITIONS.to_string();
    let create = ["--create", "--topic", "kept", "--partitions", &partitions, "--replication-factor", "3"];
    // The records show the clock of their leader; none is too old, whatever that says.
    let stamped = ["--config", "message.timestamp.type=LogAppendTime", "--config", "retention.ms=-1"];
    kafka_tool("kafka-topics", &bootstrap, &[&create[..], &stamped[..]].concat(), b"");
    cluster.wait_in_sync("kept", &all);
    let load = Load::start(&bootstrap, "kept", PARTITIONS, IN_FLIGHT);
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    let before = changes(&cluster);
    let leader = cluster.partitions("kept")[0].leader;
    let (_, of_leader) = of_nodes.iter().find(|(id, _)| *id == leader).expect("the leader is one of ours");
    for days in JUMPS {
        of_leader.jump(days);
        wait_for_time(&cluster, 0, days);
        of_controller.jump(days);
        load.wait_for_progress(load.acknowledged(), PROGRESS);
        assert_eq!(
            changes(&cluster),
            before,
            "in-sync sets shrank or nodes were fenced (by the controller, by the leaders) at a jump to {days} days"
        );
    }
    cluster.wait_in_sync("kept", &all);
    assert_eq!(changes(&cluster), before);
    check_promises(&load.finish(), &kcat_read(&bootstrap, "kept"));
}

fn create(bootstrap: &str, topic: &str, configs: &[&str]) {
    let mut args = vec!["--create", "--topic", topic, "--partitions", "1"];
    args.extend(configs.iter().flat_map(|config| ["--config", config]));
    kafka_tool("kafka-topics", bootstrap, &args, b"");
}

/// Offset of the first record that is left.
fn first_offset(bootstrap: &str, topic: &str) -> Option<i64> {
    kcat_read(bootstrap, topic).first().map(|record| record.offset)
}

#[test]
fn nothing_goes_for_its_age_while_the_clock_is_doubted() {
    let mut cluster = Daemons::prepare("clock-retention", 1);
    cluster.node.configure("[kafka]\n\"log.retention.check.interval.ms\" = \"100\"\n");
    let file = cluster.run_dir.join("node.clock");
    let clock = WallClock::of(&mut cluster.node, file, &library());
    cluster.controllers[0].start();
    cluster.node.start();
    cluster.wait_ready();
    let bootstrap = cluster.bootstrap();
    create(&bootstrap, "aging", &["retention.ms=604800000"]);
    create(&bootstrap, "sized", &["retention.ms=-1", "retention.bytes=1000000", "segment.bytes=1048576"]);
    kcat(&bootstrap, &["-P", "-t", "aging"], b"a\nb\nc\n");

    clock.jump(365);
    let doubted =
        format!("weir_storage_node_clock_doubted{{directory=\"{}\"}}", cluster.node_data().display());
    let seen = wait_until(SEEN_LIMIT, || (cluster.node.metric(&doubted)? >= 1.0).then_some(()));
    assert!(seen.is_some(), "a jump by a year should be doubted");
    // What goes by size shows that retention has gone over the disk since.
    let lines = format!("{}\n", "x".repeat(1000)).repeat(5000);
    kcat(&bootstrap, &["-P", "-t", "sized"], lines.as_bytes());
    let seen = wait_until(SEEN_LIMIT, || (first_offset(&bootstrap, "sized")? > 0).then_some(()));
    assert!(seen.is_some(), "retention by size should go on");
    assert_eq!(first_offset(&bootstrap, "aging"), Some(0), "deleted on the word of a clock that had jumped");

    clock.jump(0);
    let seen = wait_until(SEEN_LIMIT, || (cluster.node.metric(&doubted)? < 1.0).then_some(()));
    assert!(seen.is_some(), "the clock has come back");
    assert_eq!(first_offset(&bootstrap, "aging"), Some(0));
}
