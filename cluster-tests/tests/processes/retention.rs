//! Records that were kept long enough, or deleted by a client, go from every copy, and readers learn where the log begins now.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cluster_tests::clients::{kafka_tool, kcat};
use cluster_tests::clock::wait_until;
use cluster_tests::replicated_cluster::{ReplicatedCluster, Role, Shape};
use cluster_tests::run_dir::RunDir;

/// How long a change may take to be everywhere on a busy machine.
const SEEN_LIMIT: Duration = Duration::from_secs(60);

/// Names of files of the only topic in a node's data directory.
fn files(data: &Path) -> Vec<String> {
    let directories =
        fs::read_dir(data).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let inside =
        directories.flat_map(|directory| fs::read_dir(directory.path()).into_iter().flatten().flatten());
    inside.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn produce(bootstrap: &str, records: std::ops::Range<u32>) {
    let lines: String = records.map(|number| format!("{number}\n")).collect();
    kcat(bootstrap, &["-P", "-t", "aging", "-p", "0", "-X", "acks=all"], lines.as_bytes());
}

fn read_from(bootstrap: &str, offset: &str) -> String {
    let args = [
        "-C",
        "-t",
        "aging",
        "-p",
        "0",
        "-o",
        offset,
        "-e",
        "-f",
        "%o:%s ",
        "-X",
        "auto.offset.reset=earliest",
    ];
    kcat(bootstrap, &args, b"")
}

#[test]
fn what_goes_goes_from_every_copy() {
    let run_dir = RunDir::new("retention");
    let settings = vec!["kafka.log.retention.check.interval.ms=200".to_owned()];
    let shape = Shape { controllers: 1, node_settings: settings, ..Shape::default() };
    let cluster = ReplicatedCluster::start(run_dir.path(), &shape).expect("loopback needs no permission");
    let bootstrap = cluster.bootstrap();
    let create = ["--create", "--topic", "aging", "--partitions", "1", "--replication-factor", "3"];
    kafka_tool("kafka-topics", &bootstrap, &create, b"");
    produce(&bootstrap, 0..10);

    let json = run_dir.join("delete.json");
    let wanted = r#"{"version":1,"partitions":[{"topic":"aging","partition":0,"offset":7}]}"#;
    fs::write(&json, wanted).expect("the run folder can be written");
    let json = json.display().to_string();
    let deleted = kafka_tool("kafka-delete-records", &bootstrap, &["--offset-json-file", &json], b"");
    assert!(deleted.contains("low_watermark: 7"), "{deleted}");
    assert_eq!(read_from(&bootstrap, "2"), "7:7 8:8 9:9 ");

    let alter = ["--alter", "--topic", "aging", "--add-config", "retention.ms=100,file.delete.delay.ms=100"];
    kafka_tool("kafka-configs", &bootstrap, &alter, b"");
    for node in cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode) {
        let mut seen = Vec::new();
        let gone = wait_until(SEEN_LIMIT, || {
            seen = files(&node.data);
            let logs: Vec<_> = seen.iter().filter(|name| name.ends_with(".log")).collect();
            let only_empty = logs == ["00000000000000000010.log"];
            (only_empty && !seen.iter().any(|name| name.ends_with(".deleted"))).then_some(())
        });
        assert!(gone.is_some(), "{} still has {seen:?}", node.name());
    }

    let keep = ["--alter", "--topic", "aging", "--add-config", "retention.ms=-1"];
    kafka_tool("kafka-configs", &bootstrap, &keep, b"");
    produce(&bootstrap, 10..12);
    assert_eq!(read_from(&bootstrap, "2"), "10:10 11:11 ");
}
