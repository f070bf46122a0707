//! A byte rots on the disk of a follower, then on that of the leader: the scrub finds it, and the copy is whole again
//! without anybody doing anything; what was acknowledged is all there.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_tests::clients::{kafka_tool, kcat, kcat_read};
use cluster_tests::clock::wait_until;
use cluster_tests::dump::partition_dirs;
use cluster_tests::http;
use cluster_tests::partition_view::PartitionView;
use cluster_tests::replicated_cluster::{ReplicatedCluster, Shape};
use cluster_tests::run_dir::RunDir;
use log_engine::RealDisk;
use log_engine::inspect::verify_log;

/// How long what is found and mended at once may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const TOPIC: &str = "kept";

fn view(cluster: &ReplicatedCluster, from: usize) -> Option<PartitionView> {
    cluster.partitions(from, TOPIC)?.into_iter().next()
}

/// The directory of the topic's copy below a node's data, once it has a seal.
fn copy_with_seal(data: &Path) -> (PathBuf, PathBuf) {
    let sealed = || {
        partition_dirs(data).into_iter().find_map(|dir| {
            let mut seals: Vec<PathBuf> = fs::read_dir(&dir)
                .ok()?
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "seal"))
                .collect();
            seals.sort();
            Some((dir, seals.first()?.clone()))
        })
    };
    wait_until(LIMIT, sealed).expect("finished segments get seals")
}

#[test]
fn rot_on_a_follower_and_on_a_leader_is_found_and_mended() {
    let run_dir = RunDir::new("repair");
    let settings = ["limits.scrub_period_ms=500", "limits.scrub_bytes_per_second=1000000000"];
    let shape = Shape {
        controllers: 1,
        coordinators: 1,
        node_settings: settings.map(str::to_owned).to_vec(),
        ..Shape::default()
    };
    let mut cluster = ReplicatedCluster::start(&run_dir.join("cluster"), &shape).expect("it starts");
    cluster.wait_ready();
    let at = cluster.bootstrap();
    let create = ["--create", "--topic", TOPIC, "--partitions", "1", "--replication-factor", "3"];
    kafka_tool("kafka-topics", &at, &[&create[..], &["--config", "segment.bytes=1048576"]].concat(), b"");
    let lines: Vec<String> = (0..4_000).map(|n| format!("record {n} {}", "x".repeat(1000))).collect();
    let options = ["-P", "-t", TOPIC, "-X", "acks=all", "-X", "batch.size=16000"];
    kcat(&at, &options, lines.join("\n").as_bytes());

    for of_leader in [false, true] {
        let before =
            wait_until(LIMIT, || view(&cluster, 1).filter(|view| view.isr.len() == 3)).expect("in sync");
        let leader = before.leader.expect("somebody leads");
        let victim = match of_leader {
            true => leader,
            false => (1..=3).find(|id| *id != leader).expect("three nodes"),
        };
        let data = cluster.node(victim).data.clone();
        let (dir, seal) = copy_with_seal(&data);
        let segment = seal.with_extension("log");
        let node = cluster.node(victim).http();
        let count = |name: &str| http::metric(node, name);
        let (restarted, damaged) =
            ("weir_storage_node_restarted_copies_total", "weir_storage_node_damaged_segments_total");
        let counted =
            wait_until(LIMIT, || Some((count(restarted)?, count(damaged)?))).expect("metrics are there");
        // A byte of an offset: no checksum of a batch covers it.
        let file = fs::OpenOptions::new().read(true).write(true).open(&segment).expect("it is there");
        let mut byte = [0];
        file.read_exact_at(&mut byte, 3).expect("readable");
        file.write_all_at(&[byte[0] ^ 0x10], 3).expect("writable");

        let mended = wait_until(LIMIT, || count(restarted).filter(|count| *count > counted.0));
        assert!(mended.is_some(), "node {victim}, leader: {of_leader}");
        assert!(wait_until(LIMIT, || count(damaged).filter(|count| *count > counted.1)).is_some());
        let after = wait_until(LIMIT, || view(&cluster, 1).filter(|view| view.isr.len() == 3));
        let after = after.expect("the new copy is in sync");
        if of_leader {
            assert_ne!(after.leader, Some(victim), "it resigned");
        }
        let verdict = wait_until(LIMIT, || {
            let verdict = verify_log(&RealDisk, &dir).ok()?;
            (verdict.end == 4_000 && verdict.findings.is_empty()).then_some(verdict)
        });
        assert!(verdict.is_some(), "{:?}", verify_log(&RealDisk, &dir));
        let read: Vec<String> = kcat_read(&at, TOPIC).into_iter().map(|record| record.value).collect();
        assert!(read == lines, "all that was acknowledged, in order");
        let aside = || {
            fs::read_dir(&data)
                .ok()?
                .flatten()
                .find(|e| e.file_name().to_string_lossy().ends_with(".damaged"))
        };
        let removed = wait_until(LIMIT, || aside().is_none().then_some(()));
        assert!(removed.is_some(), "what was damaged goes when it is replaced: {:?}", aside());
    }
    cluster.stop();
}
