//! Controllers over real QUIC on loopback, by the crate's public API, and the program itself.

use controller::{Config, ControllerHandle, StartError, Voter, start};
use prometheus_client::registry::Registry;
use proto_types::controller_api::*;
use proto_types::error::ControllerError;
use proto_types::ids::*;
use proto_types::message_kind::MessageKind;
use quic_transport::pki::CredentialFiles;
use quic_transport::testing::TestCluster;
use quic_transport::{
    CallError, Endpoint, Limits, Peer, PeerTarget, Refusal, Role, Router, Transport, TransportMetrics,
};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

const CLUSTER: &str = "loopback";
const PATIENCE: Duration = Duration::from_secs(30);

fn config(id: u64, listen: SocketAddr, voters: &[(u64, SocketAddr)], data_dir: &Path) -> Config {
    let mut config = Config {
        id,
        cluster_id: CLUSTER.into(),
        data_dir: data_dir.to_owned(),
        listen,
        voters: voters.iter().map(|(id, at)| Voter { id: *id, address: at.to_string() }).collect(),
        ..Config::default()
    };
    config.raft.election_min_ms = 1_000;
    config.raft.election_max_ms = 1_800;
    config
}

fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// Different ones: each is held until all are chosen.
fn free_ports<const COUNT: usize>() -> [SocketAddr; COUNT] {
    let held = [(); COUNT].map(|()| UdpSocket::bind(any_port()).expect("loopback has free ports"));
    held.each_ref().map(|socket| socket.local_addr().expect("bound"))
}

async fn start_one(cluster: &TestCluster, config: Config) -> ControllerHandle {
    let credentials = cluster.credentials(Role::Controller, config.id);
    start(config, credentials, &mut Registry::default()).await.expect("starts")
}

/// An endpoint of storage node 1.
fn node(cluster: &TestCluster, role: Role) -> Endpoint {
    let config = cluster.config(role, 1, Limits::default());
    Endpoint::bind(config, Router::empty(), TransportMetrics::unregistered()).expect("binds")
}

fn peer(endpoint: &Endpoint, cluster: &TestCluster, id: u64, address: SocketAddr) -> Peer {
    endpoint.peer(PeerTarget::new(address, cluster.identity(Role::Controller, id)))
}

fn registration() -> ControllerRequest {
    ControllerRequest::RegisterNode(RegisterNode {
        cluster_id: CLUSTER.into(),
        node: NodeId(1),
        incarnation: Incarnation(Uuid::from_u128(1)),
        directories: vec![DirectoryId(Uuid::from_u128(2))],
        listeners: vec![],
        control_address: "h:1".into(),
        data_address: "h:2".into(),
        rack: None,
        may_lack: MayLack::Nothing,
    })
}

async fn ask(peer: &Peer, request: &ControllerRequest) -> Result<ControllerReply, ControllerError> {
    peer.ask(MessageKind::Controller, request, PATIENCE).await.expect("the call itself works")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_controller_serves_nodes_and_nobody_else() {
    let cluster = TestCluster::new(CLUSTER);
    let dir = tempfile::tempdir().expect("temp dir");
    let begun = Instant::now();
    let controller = start_one(&cluster, config(1, any_port(), &[(1, any_port())], dir.path())).await;
    assert!(controller.ready(PATIENCE).await);
    println!("ready after {:?}", begun.elapsed());
    assert!(controller.readiness()().is_empty());
    let node_endpoint = node(&cluster, Role::StorageNode);
    let controller_peer = peer(&node_endpoint, &cluster, 1, controller.address());
    let registered = ask(&controller_peer, &registration()).await.expect("registered");
    assert!(matches!(registered, ControllerReply::Registered { session_ms: 3000, heartbeat_ms: 300, .. }));

    let admin = node(&cluster, Role::Admin);
    let refused = peer(&admin, &cluster, 1, controller.address())
        .ask::<_, Result<ControllerReply, ControllerError>>(
            MessageKind::Controller,
            &registration(),
            PATIENCE,
        )
        .await;
    assert_eq!(refused, Err(CallError::Refused { refusal: Refusal::Forbidden }));
    for kind in [MessageKind::RaftVote, MessageKind::RaftAppend, MessageKind::RaftPreVote] {
        let refused = controller_peer.call(kind, vec![0].into(), PATIENCE).await;
        assert_eq!(refused, Err(CallError::Refused { refusal: Refusal::Forbidden }), "{kind:?}");
    }
    let begun = Instant::now();
    controller.shutdown().await;
    println!("stopped after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_controllers_hand_over_when_the_leader_stops() {
    let cluster = TestCluster::new(CLUSTER);
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().expect("temp dir")).collect();
    let voters: Vec<(u64, SocketAddr)> = (1..).zip(free_ports::<3>()).collect();
    let mut running = Vec::new();
    for (id, address) in &voters {
        let dir = dirs[*id as usize - 1].path();
        running.push(Some(start_one(&cluster, config(*id, *address, &voters, dir)).await));
    }
    let endpoint = node(&cluster, Role::StorageNode);
    let first = ask_leader(&endpoint, &cluster, &voters, &registration()).await;
    let leader = running
        .iter()
        .flatten()
        .find_map(ControllerHandle::leader)
        .expect("somebody has answered as the leader")
        .0;
    let begun = Instant::now();
    running[leader as usize - 1].take().expect("running").shutdown().await;
    let rest: Vec<_> = voters.iter().copied().filter(|(id, _)| *id != leader).collect();
    let again = ask_leader(&endpoint, &cluster, &rest, &registration()).await;
    println!("a new leader answered {:?} after the old one began to stop", begun.elapsed());
    assert_eq!(first, again, "the same incarnation has the same epoch under the new leader");
    let back = config(leader, voters[leader as usize - 1].1, &voters, dirs[leader as usize - 1].path());
    let back = start_one(&cluster, back).await;
    assert!(back.ready(PATIENCE).await);
    back.shutdown().await;
    for controller in running.into_iter().flatten() {
        controller.shutdown().await;
    }
}

/// Asks around until the leader has answered.
async fn ask_leader(
    endpoint: &Endpoint,
    cluster: &TestCluster,
    voters: &[(u64, SocketAddr)],
    request: &ControllerRequest,
) -> ControllerReply {
    let deadline = Instant::now() + PATIENCE;
    for (id, address) in voters.iter().cycle() {
        assert!(Instant::now() < deadline, "nobody answers as the leader");
        let peer = peer(endpoint, cluster, *id, *address);
        let answer = peer.ask(MessageKind::Controller, request, Duration::from_secs(2)).await;
        match answer {
            Ok(Ok(reply)) => return reply,
            Ok::<Result<ControllerReply, ControllerError>, CallError>(Err(_)) | Err(_) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    unreachable!("the cycle has no end")
}

#[tokio::test]
async fn wrong_configs_and_certificates_are_refused() {
    let cluster = TestCluster::new(CLUSTER);
    let dir = tempfile::tempdir().expect("temp dir");
    let usable = config(1, any_port(), &[(1, any_port())], dir.path());
    let mut registry = Registry::default();
    let stranger = cluster.credentials(Role::Controller, 2);
    let refused = start(usable.clone(), stranger, &mut registry).await.expect_err("wrong certificate");
    assert!(matches!(refused, StartError::WrongCertificate { .. }), "{refused}");
    let mut unusable = usable;
    unusable.voters.clear();
    let ours = cluster.credentials(Role::Controller, 1);
    let refused = start(unusable, ours, &mut registry).await.expect_err("no voters");
    assert!(refused.to_string().contains("voters must contain this controller's id"), "{refused}");
}

#[test]
fn the_program_runs_until_it_is_told_to_stop() {
    let cluster = TestCluster::new(CLUSTER);
    let dir = tempfile::tempdir().expect("temp dir");
    let files = CredentialFiles::in_directory(dir.path());
    cluster.credentials(Role::Controller, 1).store(&files).expect("stored");
    let mut settings = config(1, any_port(), &[(1, any_port())], &dir.path().join("data"));
    settings.http.address = any_port();
    settings.certificates.certificate = files.certificate;
    settings.certificates.key = files.key;
    settings.certificates.authority = files.authority;
    let path = dir.path().join("controller.toml");
    std::fs::write(&path, settings.to_toml()).expect("written");
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-controller"));
        command.arg("--config").arg(&path).stdin(Stdio::null());
        command
    };
    let printed = program().arg("--print-config").output().expect("runs");
    assert_eq!(String::from_utf8_lossy(&printed.stdout), settings.to_toml());
    assert!(program().arg("--check-config").output().expect("runs").status.success());

    let mut running = Running(program().stderr(Stdio::piped()).spawn().expect("runs"));
    let mut log = BufReader::new(running.0.stderr.take().expect("piped")).lines();
    let line = log
        .find_map(|line| line.ok().filter(|line| line.contains("metrics and health are served")))
        .expect("it says that it has started");
    let http: SocketAddr = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("http=")?.parse().ok())
        .unwrap_or_else(|| panic!("no address in {line:?}"));
    eventually("ready", || get(http, "/readyz").starts_with("HTTP/1.1 200"));
    for name in ["weir_controller_leader 1", "weir_controller_term 1", "weir_controller_transport_connects"] {
        eventually(name, || get(http, "/metrics").contains(name));
    }
    let second = program().output().expect("runs");
    assert_eq!(second.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&second.stderr);
    assert!(complaint.contains("is in use by another process"), "{complaint}");

    let id = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("runs").success());
    let rest: Vec<String> = log.map_while(Result::ok).collect();
    let status = running.0.wait().expect("ends");
    assert!(status.success(), "{status}: {rest:?}");

    std::fs::write(&path, format!("{}\nunknown = 1\n", "id = 1")).expect("written");
    let refused = program().output().expect("runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("unknown"));
}

/// A program that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already if the test went well.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).expect("connects");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}
