//! `weir cluster init` makes all that separate daemons need: they start from its files, serve a client, and end cleanly.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::process::Command;
use std::time::Duration;

use cluster_tests::clients::{weir, weir_read};
use cluster_tests::local_cluster::wait_for_answer;
use cluster_tests::ports::free_port;
use cluster_tests::process::Process;
use cluster_tests::run_dir::RunDir;
use cluster_tests::workspace;

const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Starts a daemon from the folder that was made for it, with metrics on a free port.
fn start(run_dir: &RunDir, role: &str, http: [String; 2]) -> Process {
    let program = format!("weir-{role}");
    let mut command = Command::new(workspace::program(&program));
    command.arg("--config").arg(run_dir.join(&format!("cluster/{role}-1/{role}.toml"))).args(http);
    Process::start(&program, command, &run_dir.join(&format!("{role}.log"))).unwrap()
}

#[test]
fn daemons_start_from_the_files_that_were_made() {
    let run_dir = RunDir::new("cluster_init");
    let kafka = free_port();
    let made = Command::new(workspace::program("weir"))
        .args(["cluster", "init"])
        .arg(run_dir.join("cluster"))
        .args(["--controllers", &format!("127.0.0.1:{}", free_port())])
        .args(["--storage-nodes", &format!("127.0.0.1:{kafka}")])
        .args(["--coordinators", &format!("127.0.0.1:{}", free_port())])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    let http = || ["--http".to_owned(), format!("127.0.0.1:{}", free_port())];
    let mut controller = start(&run_dir, "controller", http());
    // The port of a storage node's QUIC endpoint follows from no argument.
    let control = format!("127.0.0.1:{}", free_port());
    let file = run_dir.join("cluster/storage-node-1/storage-node.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("127.0.0.1:9182"), "{text}");
    std::fs::write(&file, text.replace("127.0.0.1:9182", &control)).unwrap();
    let mut node = start(
        &run_dir,
        "storage-node",
        ["--set".to_owned(), format!("http.address=127.0.0.1:{}", free_port())],
    );
    let mut coordinator = start(&run_dir, "coordinator", http());
    wait_for_answer(&mut node, kafka);

    let at = format!("127.0.0.1:{kafka}");
    weir(&at, &["topic", "create", "made", "--partitions", "2"], b"");
    weir(&at, &["produce", "made", "--key-separator", ":"], b"a:1\nb:2\na:3\n");
    let records = weir_read(&at, "made", 3);
    assert_eq!(records.len(), 3);

    for daemon in [&mut coordinator, &mut node, &mut controller] {
        let status = daemon.terminate(STOP_LIMIT).unwrap();
        assert!(status.success(), "{} ended with {status}:\n{}", daemon.name(), daemon.output());
    }
}
