//! What clients and other people's suites connect to: Weir, Apache Kafka, or a cluster that runs already.

pub(crate) mod nodes;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::shell::{self, Failure};

/// What to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Against {
    #[default]
    Weir,
    Kafka,
}

impl Against {
    /// The name as the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Against::Weir => "weir",
            Against::Kafka => "kafka",
        }
    }

    /// Reads the name.
    pub(crate) fn parse(name: Option<&String>) -> Option<Against> {
        [Against::Weir, Against::Kafka].into_iter().find(|against| name.is_some_and(|n| n == against.name()))
    }
}

/// How the cluster is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Storage nodes, or brokers.
    pub(crate) nodes: usize,
    /// The port of the first node, if it may not be any.
    pub(crate) port: Option<u16>,
    /// The rack of each node, if they have any.
    pub(crate) racks: &'static [&'static str],
    /// Configs of the nodes, by Kafka's names.
    pub(crate) configs: &'static [(&'static str, &'static str)],
    /// Configs that Apache Kafka alone gets.
    pub(crate) of_kafka: &'static [(&'static str, &'static str)],
}

impl Default for Shape {
    fn default() -> Self {
        Shape { nodes: 1, port: None, racks: &[], configs: &[], of_kafka: &[] }
    }
}

/// A cluster; one that we started is stopped when this is dropped.
pub(crate) struct Subject {
    bootstrap: String,
    process: Option<Child>,
    data: Option<PathBuf>,
    log: PathBuf,
    /// Where `nodes` keeps its files, and the processes that it was told of.
    nodes: PathBuf,
    pids: Vec<u32>,
}

impl Subject {
    /// A cluster that runs already.
    pub(crate) fn running(bootstrap: String) -> Subject {
        Subject::new(bootstrap, Path::new(""))
    }

    fn new(bootstrap: String, dir: &Path) -> Subject {
        let (log, nodes) = (dir.join("cluster.log"), nodes_in(dir));
        Subject { bootstrap, process: None, data: None, log, nodes, pids: Vec::new() }
    }

    /// Starts a cluster on empty data below `dir` and waits until it says that it is ready. `dir` gets `cluster.log` too.
    pub(crate) fn start(against: Against, shape: Shape, dir: &Path) -> Result<Subject, Failure> {
        let mut subject = Subject::new(String::new(), dir);
        let port = match shape.port {
            Some(port) if is_free(port) => port,
            Some(port) => return Err(Failure(format!("port {port} is taken, and the suite wants this one"))),
            None => free_ports(shape.nodes)?,
        };
        let mut command = match against {
            Against::Weir => {
                let data = dir.join(format!("data-{}", std::process::id()));
                subject.data = Some(data.clone());
                weir(shape, port, &data)?
            }
            Against::Kafka => kafka(shape, port)?,
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(shell::create(&subject.log)?);
        let child = command
            .spawn()
            .map_err(|error| Failure(format!("cannot start {}: {error}", shell::line(&command))))?;
        (subject.bootstrap, subject.pids) =
            wait_ready(subject.process.insert(child), shape.nodes, &subject.log)?;
        nodes::record(&subject.nodes, &subject.bootstrap, &subject.pids)?;
        println!("ready: {} (process {})", subject.bootstrap, subject.process.as_ref().map_or(0, Child::id));
        Ok(subject)
    }

    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Stops what was started, cleanly; a cluster that ended badly, or before, is a failure.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        nodes::end_restarted(&self.nodes, &self.pids)?;
        let Some(mut child) = self.process.take() else { return Ok(()) };
        let mut kill = shell::program("kill");
        kill.args(["-TERM", &child.id().to_string()]);
        shell::run(kill)?;
        let status = child.wait().map_err(|error| Failure(format!("wait for the cluster: {error}")))?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure(format!("the cluster ended with {status}; see {}", self.log.display())))
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some(mut child) = self.process.take() {
            // Of a failed run: nothing more can be done about an error here. Softly, so that it ends its own processes.
            let _ = nodes::end_restarted(&self.nodes, &self.pids);
            let mut kill = shell::program("kill");
            let _ = kill.args(["-TERM", &child.id().to_string()]).status();
            let _ = child.wait();
        }
        if let Some(data) = &self.data {
            let _ = fs::remove_dir_all(data);
        }
    }
}

/// `weir dev`.
fn weir(shape: Shape, port: u16, data: &Path) -> Result<Command, Failure> {
    let mut command = program("weir")?;
    command.arg("dev").arg("--data").arg(data).arg("--kafka-port").arg(port.to_string());
    command.args(["--http-port", "0"]);
    if shape.nodes > 1 {
        command.args(["--nodes", &shape.nodes.to_string()]);
        // Which batches are refused, as the log of Apache Kafka has it.
        command.env("WEIR_STORAGE_NODE_LOG__FILTER", "info,storage_node::kafka::handlers::produce=debug");
    }
    with_racks(&mut command, shape);
    for (key, value) in shape.configs {
        command.args(["--config", &format!("{key}={value}")]);
    }
    Ok(command)
}

fn kafka(shape: Shape, port: u16) -> Result<Command, Failure> {
    let mut command = program("kafka-oracle")?;
    command.args(["broker", "--port", &port.to_string(), "--nodes", &shape.nodes.to_string()]);
    with_racks(&mut command, shape);
    for (key, value) in shape.configs.iter().chain(shape.of_kafka) {
        command.args(["--config", &format!("{key}={value}")]);
    }
    Ok(command)
}

fn with_racks(command: &mut Command, shape: Shape) {
    if !shape.racks.is_empty() {
        command.args(["--racks", &shape.racks.join(",")]);
    }
}

/// A program of ours from `WEIR_BIN_DIR`, else built now.
pub(crate) fn program(name: &str) -> Result<Command, Failure> {
    let dir = match std::env::var_os("WEIR_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let mut build = shell::cargo();
            build.args(["build", "--workspace", "--bins"]);
            shell::run(build)?;
            shell::target_dir().join("debug")
        }
    };
    Ok(shell::program(&dir.join(name).to_string_lossy()))
}

/// Where a cluster with this folder has the files of its nodes.
pub(crate) fn nodes_in(dir: &Path) -> PathBuf {
    dir.join("nodes")
}

/// Reads the output up to the line that names the addresses, and gives these, and with several nodes up to their processes; the
/// rest is dropped.
fn wait_ready(child: &mut Child, nodes: usize, log: &Path) -> Result<(String, Vec<u32>), Failure> {
    let stdout = child.stdout.take().expect("the output was asked to be a pipe");
    let mut lines = BufReader::new(stdout).lines();
    let (mut bootstrap, mut pids) = (None, Vec::new());
    for line in &mut lines {
        let line = line.map_err(|error| Failure(format!("read the output of the cluster: {error}")))?;
        bootstrap = bootstrap.or_else(|| addresses(&line));
        pids.extend(processes(&line));
        if let Some(bootstrap) = bootstrap.take_if(|_| nodes == 1 || pids.len() == nodes) {
            thread::spawn(move || lines.for_each(drop));
            return Ok((bootstrap, pids));
        }
    }
    Err(Failure(format!("the cluster did not start; see {}", log.display())))
}

/// The processes of nodes in a line of what a cluster of several says when it is ready.
fn processes(line: &str) -> Vec<u32> {
    let listed = line.strip_prefix("processes [").and_then(|rest| rest.split_once(']')).map(|(ids, _)| ids);
    let in_row = line.strip_prefix("storage-node-").and_then(|row| row.split_whitespace().nth(1));
    let ids = listed.or(in_row).unwrap_or_default().split(", ");
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// The IPv4 addresses of the line that says that the cluster is ready.
fn addresses(line: &str) -> Option<String> {
    let rest =
        line.strip_prefix("Weir is ready at ").or_else(|| line.strip_prefix("Apache Kafka listens on "))?;
    let words = rest.split([' ', ',']).filter(|word| word.starts_with("127."));
    Some(words.collect::<Vec<_>>().join(",")).filter(|bootstrap| !bootstrap.is_empty())
}

/// The first of `count` neighbouring free ports, below the range from which the kernel picks ports for outgoing connections.
fn free_ports(count: usize) -> Result<u16, Failure> {
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    let begin = 14_000 + u16::try_from(std::process::id() % 5_000).unwrap_or_default();
    let mut candidates = (begin..30_000).step_by(usize::from(count.max(1)));
    candidates
        .find(|first| (*first..first.saturating_add(count)).all(is_free))
        .ok_or_else(|| Failure("no free port between 14000 and 30000".to_owned()))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_are_read_from_what_clusters_say() {
        let read = |line| addresses(line).unwrap_or_default();
        assert_eq!(read("Weir is ready at 127.0.0.1:9092 and [::1]:9092 (0.31 s)"), "127.0.0.1:9092");
        assert_eq!(read("Weir is ready at 127.0.0.1:1,127.0.0.1:2 (9.00 s)"), "127.0.0.1:1,127.0.0.1:2");
        assert_eq!(read("Apache Kafka listens on 127.0.0.1:7"), "127.0.0.1:7");
        assert_eq!(addresses("  data     target/127.0.0.1 (kept)"), None);
    }

    #[test]
    fn the_processes_of_nodes_are_read_from_what_clusters_say() {
        assert_eq!(processes("processes [71, 72], data in tmp"), [71, 72]);
        assert_eq!(processes("storage-node-3  4711  127.0.0.1:3  http://127.0.0.1:4/metrics"), [4711]);
        assert_eq!(processes("coordinator-3   4712  127.0.0.1:5  http://127.0.0.1:6/metrics"), [0; 0]);
    }
}
