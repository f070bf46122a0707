//! `weir-controller` and `weir-storage-node` as processes of their own: configuration, health, clean stop.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use cluster_tests::clients::{all_output, kafka_tool, kcat, kcat_read};
use cluster_tests::clock::wait_until;
use cluster_tests::http;
use cluster_tests::local_cluster::READY_LIMIT;
use cluster_tests::workspace;

use crate::separate_daemons::Daemons;

/// Status and body of `GET path` on a loopback port; none if nobody answers.
pub(crate) fn get(port: u16, path: &str) -> Option<(u16, String)> {
    http::get(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), path)
}

fn wait_for_status(port: u16, path: &str, status: u16) {
    let last = wait_until(READY_LIMIT, || get(port, path).filter(|(found, _)| *found == status));
    assert!(last.is_some(), "{path} on port {port} never said {status}: {:?}", get(port, path));
}

#[test]
fn a_cluster_of_processes_serves_stops_and_starts_again() {
    let mut daemons = Daemons::start("daemons", 1);
    let at = daemons.bootstrap();
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "kept", "--partitions", "2"], b"");
    kcat(&at, &["-P", "-t", "kept", "-p", "1", "-X", "acks=all"], b"one\ntwo\n");
    daemons.node.stop();
    daemons.controllers[0].stop();

    daemons.controllers[0].start();
    daemons.node.start();
    daemons.wait_ready();
    let values: Vec<String> = kcat_read(&at, "kept").into_iter().map(|record| record.value).collect();
    assert_eq!(values, ["one", "two"]);
    kcat(&at, &["-P", "-t", "kept", "-p", "1", "-X", "acks=all"], b"three\n");
    assert_eq!(kcat_read(&at, "kept").len(), 3);
}

#[test]
fn three_controllers_serve_one_node() {
    let daemons = Daemons::start("three-controllers", 3);
    let at = daemons.bootstrap();
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "voted", "--partitions", "4"], b"");
    let described = kafka_tool("kafka-topics", &at, &["--describe", "--topic", "voted"], b"");
    assert_eq!(described.matches("Leader: 1").count(), 4, "{described}");
}

#[test]
fn health_and_metrics_are_served() {
    let mut daemons = Daemons::prepare("health", 1);
    let at = daemons.bootstrap();
    // Without a controller the node is alive but of no use yet.
    daemons.node.start();
    wait_for_status(daemons.node.http_port, "/healthz", 200);
    let (status, reasons) = get(daemons.node.http_port, "/readyz").expect("it listens");
    assert_eq!(status, 503);
    assert!(reasons.trim().len() > 10, "it says why: {reasons}");
    daemons.controllers[0].start();
    wait_for_status(daemons.node.http_port, "/readyz", 200);
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "measured", "--partitions", "1"], b"");
    kcat(&at, &["-P", "-t", "measured", "-X", "acks=all"], b"one\n");
    let documented = documented_names();
    for (port, prefix) in [
        (daemons.controllers[0].http_port, "weir_controller_"),
        (daemons.node.http_port, "weir_storage_node_"),
    ] {
        wait_for_status(port, "/healthz", 200);
        wait_for_status(port, "/readyz", 200);
        let (status, metrics) = get(port, "/metrics").expect("it listens");
        assert_eq!(status, 200);
        assert!(metrics.contains("process_resident_memory_bytes"), "{metrics}");
        let undocumented: Vec<&str> =
            names_of(&metrics).filter(|name| !is_documented(&documented, name)).collect();
        assert_eq!(undocumented, Vec::<&str>::new(), "docs/metrics.md should explain them");
        assert!(names_of(&metrics).any(|name| name.starts_with(prefix)), "{metrics}");
        assert_eq!(get(port, "/nothing").expect("it listens").0, 404);
    }
}

/// Names of metrics as a scraper sees them, from the lines `# TYPE <name> <kind>`.
fn names_of(metrics: &str) -> impl Iterator<Item = &str> {
    metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
}

/// The first column of the tables of docs/metrics.md.
fn documented_names() -> Vec<String> {
    let text = std::fs::read_to_string(workspace::root().join("docs/metrics.md")).expect("it is there");
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    cells.map(|(name, _)| name.to_owned()).collect()
}

fn is_documented(documented: &[String], name: &str) -> bool {
    documented.iter().any(|documented| is_same(documented, name))
}

/// `<daemon>` stands for any daemon; counters are told without `_total` in their type line.
fn is_same(documented: &str, served: &str) -> bool {
    let documented = documented.strip_suffix("_total").unwrap_or(documented);
    let served = served.strip_suffix("_total").unwrap_or(served);
    match documented.split_once("<daemon>") {
        Some((before, after)) => ["controller", "storage_node"].iter().any(|daemon| {
            served.strip_prefix(before).and_then(|rest| rest.strip_prefix(daemon)) == Some(after)
        }),
        None => documented == served,
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_the_name_of_the_setting() {
    let daemons = Daemons::prepare("configuration", 1);
    for (program, file) in
        [("weir-controller", "controller-1.toml"), ("weir-storage-node", "storage-node-1.toml")]
    {
        let path = daemons.run_dir.join(file);
        let check = || {
            let mut command = Command::new(workspace::program(program));
            command.arg("--config").arg(&path).arg("--check-config");
            command.output().expect("the program can be started")
        };
        let good = check();
        assert!(good.status.success(), "{}", all_output(&good));
        let text = std::fs::read_to_string(&path).expect("it was written");
        std::fs::write(&path, format!("no_such_setting = 1\n{text}")).expect("it can be written");
        let bad = check();
        assert_eq!(bad.status.code(), Some(2), "{}", all_output(&bad));
        assert!(all_output(&bad).contains("no_such_setting"), "{}", all_output(&bad));
    }
}
