//! Apache Kafka on free loopback ports, in a temporary folder: one node or three, each broker and controller in one.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{OracleError, tools};
use crate::clock::wait_until;
use crate::ports::free_port;
use crate::process::Process;

/// Any cluster id will do; this one is fixed so that two runs write the same files.
const CLUSTER_ID: &str = "V2VpclRlc3RPcmFjbGUxMA";

const CONFIG_FILE: &str = "server.properties";

const READY_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Flags for a broker that serves a test: starts fast, stays small.
pub const TEST_JVM: &[&str] = &["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"];

/// The flags that Apache Kafka's own start script gives; for measurements beside it.
pub const SHIPPED_JVM: &[&str] = &[
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
];

/// Each line of a broker's log begins with its time in UTC.
const TIMES_IN_LOG: &[&str] = &[
    "-Duser.timezone=UTC",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSX",
];

/// What kind of Kafka cluster to start.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// How many nodes.
    pub nodes: usize,
    /// Client port of the first node, further ones take the next; free ones if not given.
    pub port: Option<u16>,
    /// The rack of each node, if they have any.
    pub racks: Vec<String>,
    /// Flags of the JVM.
    pub jvm: &'static [&'static str],
    /// Broker configs beside (and instead of) those that a test cluster needs.
    pub properties: Vec<(String, String)>,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        BrokerOptions { nodes: 1, port: None, racks: Vec::new(), jvm: TEST_JVM, properties: Vec::new() }
    }
}

/// A running Kafka cluster; ended and removed from disk when dropped.
#[derive(Debug)]
pub struct KafkaCluster {
    nodes: Vec<Node>,
    jvm: &'static [&'static str],
    // Dropped after the nodes, so that no process writes into a removed folder.
    dir: TempDir,
}

#[derive(Debug)]
struct Node {
    port: u16,
    process: Process,
}

impl KafkaCluster {
    /// Starts a cluster and waits until every node answers ApiVersions.
    pub fn start(options: &BrokerOptions) -> Result<KafkaCluster, OracleError> {
        let dir = TempDir::new().map_err(OracleError::io("make a temporary folder"))?;
        let ports: Vec<(u16, u16)> = (0..options.nodes)
            .zip(0..)
            .map(|(_, further)| (options.port.map_or_else(free_port, |port| port + further), free_port()))
            .collect();
        let mut nodes = Vec::new();
        for (index, (port, _)) in ports.iter().enumerate() {
            let home = home(&dir, index);
            fs::create_dir(&home).map_err(OracleError::io(format!("create {}", home.display())))?;
            let config = write_config(&home, index, &ports, options)?;
            format_storage(&config)?;
            let process = start_node(&home, &config, options.jvm)?;
            nodes.push(Node { port: *port, process });
        }
        let mut cluster = KafkaCluster { nodes, jvm: options.jvm, dir };
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// `host:port` of every node, separated by commas.
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        addresses.join(",")
    }

    /// The port of the first node.
    pub fn port(&self) -> u16 {
        self.nodes.first().map_or(0, |node| node.port)
    }

    /// Process ids of the nodes, for measuring them.
    pub fn process_ids(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.process.id()).collect()
    }

    /// Ends a node, by id, at once.
    pub fn kill_node(&mut self, id: usize) {
        let node = &mut self.nodes[id - 1];
        node.process.kill().unwrap_or_else(|error| panic!("Kafka node {id} cannot be killed: {error}"));
    }

    /// The folder with each node's data (`node-<id>/data/<topic>-<partition>`).
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends all nodes softly, at the same time: the last one of a quorum could not end its work alone. One that takes too
    /// long is ended hard, since its data is thrown away.
    pub fn stop(mut self) -> Result<(), OracleError> {
        self.end_all()
    }

    /// Ends all nodes as [`KafkaCluster::stop`] does, starts them again where they were, and waits until each answers.
    pub fn restart(&mut self) -> Result<(), OracleError> {
        self.end_all()?;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let home = home(&self.dir, index);
            node.process = start_node(&home, &home.join(CONFIG_FILE), self.jvm)?;
        }
        self.wait_ready()
    }

    fn end_all(&mut self) -> Result<(), OracleError> {
        let failed = OracleError::io("stop a Kafka node");
        let signals = self.nodes.iter().map(|node| node.process.signal(Signal::TERM));
        signals.collect::<std::io::Result<()>>().map_err(failed)?;
        for node in &mut self.nodes {
            if wait_until(STOP_LIMIT, || node.process.ended().transpose()).is_none() {
                node.process.kill().map_err(OracleError::io("end a Kafka node"))?;
            }
        }
        Ok(())
    }

    fn wait_ready(&mut self) -> Result<(), OracleError> {
        for node in &mut self.nodes {
            let ready = wait_until(READY_LIMIT, || {
                if answers_api_versions(node.port) {
                    return Some(true);
                }
                matches!(node.process.ended(), Ok(Some(_))).then_some(false)
            });
            if ready != Some(true) {
                return Err(OracleError::NotReady {
                    address: format!("127.0.0.1:{}", node.port),
                    seconds: READY_LIMIT.as_secs(),
                    output: node.process.output(),
                });
            }
        }
        Ok(())
    }
}

/// Whether a Kafka broker answers an ApiVersions request on this loopback port.
pub fn answers_api_versions(port: u16) -> bool {
    // size 18, key 18 (ApiVersions), version 0, correlation id 7, client id "oracle".
    let mut request = vec![0, 0, 0, 16, 0, 18, 0, 0, 0, 0, 0, 7, 0, 6];
    request.extend_from_slice(b"oracle");
    let limit = Duration::from_secs(2);
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(&request)?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        Ok(answer[4..] == [0, 0, 0, 7, 0, 0])
    };
    ask().unwrap_or(false)
}

fn home(dir: &TempDir, index: usize) -> PathBuf {
    dir.path().join(format!("node-{}", index + 1))
}

fn write_config(
    home: &Path,
    index: usize,
    ports: &[(u16, u16)],
    options: &BrokerOptions,
) -> Result<PathBuf, OracleError> {
    let (port, controller_port) = ports[index];
    let voters: Vec<String> =
        ports.iter().enumerate().map(|(i, (_, port))| format!("{}@127.0.0.1:{port}", i + 1)).collect();
    let copies = options.nodes.min(3).to_string();
    let mut lines: Vec<(String, String)> = [
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", (index + 1).to_string()),
        ("controller.quorum.voters", voters.join(",")),
        ("listeners", format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}")),
        ("advertised.listeners", format!("PLAINTEXT://127.0.0.1:{port}")),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        ("log.dirs", home.join("data").display().to_string()),
        ("offsets.topic.replication.factor", copies.clone()),
        ("offsets.topic.num.partitions", "5".to_owned()),
        ("transaction.state.log.replication.factor", copies.clone()),
        ("transaction.state.log.min.isr", "1".to_owned()),
        ("transaction.state.log.num.partitions", "5".to_owned()),
        ("share.coordinator.state.topic.replication.factor", copies),
        ("share.coordinator.state.topic.min.isr", "1".to_owned()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    lines.extend(options.racks.get(index).map(|rack| ("broker.rack".to_owned(), rack.clone())));
    lines.retain(|(key, _)| !options.properties.iter().any(|(other, _)| other == key));
    lines.extend(options.properties.iter().cloned());
    let text: String = lines.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
    let path = home.join(CONFIG_FILE);
    fs::write(&path, text).map_err(OracleError::io(format!("write {}", path.display())))?;
    Ok(path)
}

fn format_storage(config: &Path) -> Result<(), OracleError> {
    let config = config.display().to_string();
    tools::output("storage", &["format", "--cluster-id", CLUSTER_ID, "--config", &config]).map(drop)
}

fn start_node(home: &Path, config: &Path, jvm: &[&str]) -> Result<Process, OracleError> {
    let mut command: Command = tools::java(jvm)?;
    command.args(TIMES_IN_LOG).arg("kafka.Kafka").arg(config).current_dir(home);
    Process::start("kafka", command, &home.join("broker.log")).map_err(|error| OracleError::ProgramMissing {
        program: "java",
        package: "openjdk-17-jdk-headless",
        error,
    })
}
