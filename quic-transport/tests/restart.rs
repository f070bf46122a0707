//! A peer that is killed and comes back on its port is noticed at once, not after the idle time-out.
//!
//! The peer is a process of its own (this test program, started again for the one test that serves), because only a killed
//! process says no goodbye.

use bytes::Bytes;
use quic_transport::pki::{CredentialFiles, Credentials};
use quic_transport::testing::TestCluster;
use quic_transport::{
    CallError, Endpoint, EndpointConfig, Limits, MessageKind, NodeKeys, PeerTarget, Role, Roles, Router,
    Timing, Transport, TransportMetrics,
};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

const DIRECTORY: &str = "WEIR_TEST_RESTART_DIRECTORY";
const ADDRESS: &str = "WEIR_TEST_RESTART_ADDRESS";
const LONG: Duration = Duration::from_secs(20);
/// Far longer than the test may take to notice.
const IDLE: Duration = Duration::from_secs(60);

/// The child's half. Without the environment of the other test there is nothing to serve, and nothing to check.
#[tokio::test]
async fn child_serves_until_killed() {
    let (Ok(directory), Ok(address)) = (std::env::var(DIRECTORY), std::env::var(ADDRESS)) else {
        return;
    };
    let directory = Path::new(&directory);
    let credentials = Credentials::load(&CredentialFiles::in_directory(directory)).expect("credentials");
    let keys = NodeKeys::load_or_create(&directory.join("quic.keys")).expect("keys");
    let address: SocketAddr = address.parse().expect("address");
    let mut config = EndpointConfig::new(address, credentials, keys.endpoint("control"));
    config.timing = timing();
    let router = Router::builder()
        .call(MessageKind::Controller, Roles::of(&Role::ALL), |call| async move {
            if call.body.is_empty() { std::future::pending().await } else { Ok(call.body) }
        })
        .build();
    let endpoint = Endpoint::bind(config, router, TransportMetrics::unregistered()).expect("binds");
    println!("\nserving {}", endpoint.local_addr());
    std::future::pending::<()>().await;
}

fn timing() -> Timing {
    Timing { idle: IDLE, keep_alive: Duration::from_millis(200), ..Timing::default() }
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(directory: &Path, address: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("own path"))
            .args(["--exact", "child_serves_until_killed", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(ADDRESS, address)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let stdout = child.stdout.take().expect("piped");
        let line =
            BufReader::new(stdout).lines().map_while(Result::ok).find(|line| line.contains("serving "));
        let line = line.expect("the child says where it serves");
        let address = line.trim().trim_start_matches("serving ").parse().expect("an address");
        Self { child, address }
    }

    /// SIGKILL: no goodbye is sent.
    fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _killed_before = self.child.kill();
        let _waited_before = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_and_restarted_peer_is_noticed_at_once() {
    let cluster = TestCluster::new("restart");
    let directory = tempfile::tempdir().expect("temp dir");
    let files = CredentialFiles::in_directory(directory.path());
    cluster.credentials(Role::Controller, 1).store(&files).expect("stored");
    let mut config = cluster.config(Role::StorageNode, 2, Limits::default());
    config.timing = timing();
    let endpoint = Endpoint::bind(config, Router::empty(), TransportMetrics::unregistered()).expect("binds");

    let mut server = Server::start(directory.path(), "127.0.0.1:0");
    let target = PeerTarget::new(server.address, cluster.identity(Role::Controller, 1));
    let peer = endpoint.peer(target);
    let body = Bytes::from_static(b"x");
    assert_eq!(peer.call(MessageKind::Controller, body.clone(), LONG).await, Ok(body.clone()));

    // One call that waits at the peer while it is killed; nothing but keep-alives is sent after it.
    let waiting = peer.clone();
    let waiting =
        tokio::spawn(async move { waiting.call(MessageKind::Controller, Bytes::new(), IDLE).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "the call waits at the peer");
    server.kill();
    let _again = Server::start(directory.path(), &server.address.to_string());
    let restarted = Instant::now();
    let outcome = tokio::time::timeout(LONG, waiting).await.expect("noticed long before the idle time-out");
    let outcome = outcome.expect("no panic");
    assert!(
        matches!(&outcome, Err(CallError::Closed { reason }) if reason.contains("reset")),
        "ended by the restarted peer's reset: {outcome:?}"
    );
    println!("noticed {:?} after the restart", restarted.elapsed());
    assert_eq!(peer.call(MessageKind::Controller, body.clone(), LONG).await, Ok(body));
}
