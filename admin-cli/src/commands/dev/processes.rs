//! `weir dev --nodes N`: the daemons of a cluster as processes on loopback, to be looked at, stopped and killed one by one.
//!
//! ```text
//! weir-cluster/
//!   lock        held while a process uses the directory
//!   cluster/    what `weir cluster init` makes, with the data of each daemon in its folder
//!   logs/       what each daemon writes
//! ```
//!
//! Ports are chosen when the cluster is made, and stand in the daemons' files from then on. A daemon that ends by itself is
//! told and not started again: whoever tries out what a cluster survives wants to see it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use quic_transport::Role;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::data_directory::{lock, remove};
use super::ports::Ports;
use super::{DevArgs, Signals};
use crate::certificates::{new_cluster_id, private_directories};
use crate::clock::monotonic_now;
use crate::commands::cluster::init;
use crate::commands::cluster::layout::{self, Daemon, Description, Host};
use crate::failure::Failure;
use crate::output::{Format, Output};

const CLUSTER: &str = "cluster";
const LOGS: &str = "logs";
const LOCK: &str = "lock";
/// How long all daemons may take to be ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long a daemon may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(30);
/// How long a probe of a daemon may take, and the pause between two.
const PROBE_MAX: Duration = Duration::from_secs(2);
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// How much of a log is shown when a daemon does not start.
const LOG_SHOWN: usize = 1500;

/// A daemon as its configuration file describes it.
#[derive(Debug, Clone)]
struct Place {
    name: String,
    role: Role,
    id: u64,
    /// Where clients or other daemons reach it.
    address: SocketAddr,
    http: SocketAddr,
    config: PathBuf,
    log: PathBuf,
}

/// A daemon's process.
struct Process {
    place: Place,
    program: PathBuf,
    pid: u32,
    child: Child,
    /// Set when it has ended.
    ended: Option<ExitStatus>,
}

pub(super) async fn run(args: DevArgs, nodes: u8, output: &mut Output<'_>) -> Result<(), Failure> {
    let begin = monotonic_now();
    let mut signals = Signals::listen()?;
    check_racks(&args.racks, nodes)?;
    let directory = args.data.clone().unwrap_or_else(|| PathBuf::from("weir-cluster"));
    let directory = init::absolute(&directory)?;
    let _lock = open(&directory, args.reset)?;
    let cluster = directory.join(CLUSTER);
    if !cluster.exists() {
        make(&cluster, nodes, &args)?;
    }
    let places = places(&directory)?;
    check(&places, nodes, &args, &directory)?;
    let mut processes = Vec::new();
    for place in places {
        processes.push(Process::start(place, &args)?);
    }
    let started = tokio::select! {
        started = wait_ready(&mut processes) => started.map(|()| true),
        () = signals.next() => Ok(false),
    };
    let outcome = match started {
        Ok(true) => {
            let seconds = monotonic_now().saturating_duration_since(begin).as_secs_f64();
            show_ready(&directory, &processes, seconds, output)?;
            watch(&mut processes, &mut signals, output).await
        }
        Ok(false) => Ok(()),
        Err(failure) => Err(failure),
    };
    if output.format == Format::Table {
        output.note("stopping")?;
    }
    let stopped = tokio::select! {
        stopped = stop(&mut processes, output) => stopped,
        () = signals.next() => {
            Err(Failure::failed("stopped at once by a second signal; the next start recovers"))
        }
    };
    outcome.and(stopped)
}

/// Locks the directory, and empties it with `reset`. Refuses one that holds something else.
fn open(directory: &Path, reset: bool) -> Result<File, Failure> {
    let failed = |what: &str, error: std::io::Error| {
        Failure::failed(format!("cannot {what} {}: {error}", directory.display()))
    };
    private_directories().create(directory).map_err(|error| failed("make", error))?;
    let mut leavings = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| failed("read", error))? {
        let name = entry.map_err(|error| failed("read", error))?.file_name();
        let ours = [CLUSTER, LOGS, LOCK, "lost+found"].iter().any(|known| name == *known);
        // What an interrupted start left beside its goal.
        if name.to_string_lossy().starts_with(&format!("{CLUSTER}.new-")) {
            leavings.push(directory.join(name));
        } else if !ours {
            let path = directory.display();
            return Err(Failure::failed(format!(
                "{path} is not a directory of `weir dev --nodes`: it holds {name:?}"
            ))
            .hint(
                "give an empty or new directory by --data; one of `weir dev` without --nodes is another kind",
            ));
        }
    }
    let lock = lock(directory)?;
    if reset {
        leavings.extend([CLUSTER, LOGS].map(|name| directory.join(name)));
    }
    for path in leavings {
        remove(&path).map_err(|error| failed("empty", error))?;
    }
    Ok(lock)
}

/// Makes the files of a new cluster: as many storage nodes and coordinators, and one or three controllers.
fn make(cluster: &Path, nodes: u8, args: &DevArgs) -> Result<(), Failure> {
    let hosts = |count: u8| vec![Host { name: Ipv4Addr::LOCALHOST.to_string(), port: None }; count.into()];
    let description = Description {
        controllers: hosts(if nodes >= 3 { 3 } else { 1 }),
        storage_nodes: hosts(nodes),
        coordinators: hosts(nodes),
        root: cluster.to_owned(),
        data_root: None,
    };
    let mut daemons: Vec<Daemon> = layout::lay_out(&description).map_err(Failure::usage)?;
    Ports::choose(args)?.give(&mut daemons)?;
    init::make(cluster, &new_cluster_id(), &daemons, &description)
        .map_err(|error| Failure::failed(format!("cannot make a cluster in {}: {error}", cluster.display())))
}

/// The daemons of the directory: controllers, storage nodes, coordinators, each by id.
fn places(directory: &Path) -> Result<Vec<Place>, Failure> {
    let cluster = directory.join(CLUSTER);
    let unreadable =
        |error: std::io::Error| Failure::failed(format!("cannot read {}: {error}", cluster.display()));
    let mut places = Vec::new();
    for entry in fs::read_dir(&cluster).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
        let roles = [Role::Controller, Role::StorageNode, Role::Coordinator];
        let role = roles.into_iter().find(|role| name.starts_with(&format!("{role}-")));
        if let Some(role) = role {
            let config = cluster.join(&name).join(format!("{role}.toml"));
            let log = directory.join(LOGS).join(format!("{name}.log"));
            let damaged = |why: &str| {
                Failure::failed(format!("{} cannot be used: {why}", config.display()))
                    .hint("--reset deletes the cluster and begins anew")
            };
            let (id, address, http) = addresses(role, &config).map_err(|error| damaged(&error))?;
            places.push(Place { name, role, id, address, http, config, log });
        }
    }
    let order = |role| match role {
        Role::Controller => 0,
        Role::StorageNode => 1,
        Role::Coordinator => 2,
        Role::Admin => 3,
    };
    places.sort_by_key(|place| (order(place.role), place.id));
    Ok(places)
}

/// Id, address and HTTP endpoint from a daemon's file.
fn addresses(role: Role, file: &Path) -> Result<(u64, SocketAddr, SocketAddr), String> {
    match role {
        Role::Controller => {
            let config = controller::Config::load(Some(file)).map_err(|error| error.to_string())?;
            Ok((config.id, config.listen, config.http.address))
        }
        Role::StorageNode => {
            let config = storage_node::Config::load(Some(file), &[]).map_err(|error| error.to_string())?;
            let listener = config.listeners.first().ok_or("it has no listener")?;
            Ok((u64::from(config.node_id.unsigned_abs()), listener.bind, config.http.address))
        }
        Role::Coordinator => {
            let config = coordinator::Config::load(Some(file)).map_err(|error| error.to_string())?;
            Ok((u64::from(config.id.unsigned_abs()), config.listen, config.http.address))
        }
        Role::Admin => Err("no daemon has this role".to_owned()),
    }
}

/// Whether each node has a rack, or none has.
fn check_racks(racks: &[String], nodes: u8) -> Result<(), Failure> {
    if racks.is_empty() || racks.len() == usize::from(nodes) {
        return Ok(());
    }
    Err(Failure::usage(format!("--racks names {} racks, and there are {nodes} nodes", racks.len())))
}

/// Whether the cluster that is there is the one that was asked for.
fn check(places: &[Place], nodes: u8, args: &DevArgs, directory: &Path) -> Result<(), Failure> {
    let mut storage_nodes = places.iter().filter(|place| place.role == Role::StorageNode);
    let first = storage_nodes.next();
    let there = usize::from(first.is_some()) + storage_nodes.count();
    let path = directory.display();
    let hint = "--reset begins anew, --data takes another directory";
    if there != usize::from(nodes) {
        return Err(
            Failure::failed(format!("{path} holds a cluster of {there} nodes, not {nodes}")).hint(hint)
        );
    }
    match (first, args.kafka_port) {
        (Some(first), Some(port)) if port != 0 && first.address.port() != port => {
            let was = first.address.port();
            Err(Failure::failed(format!("the cluster in {path} was made with --kafka-port {was}")).hint(hint))
        }
        _ => Ok(()),
    }
}

impl Place {
    fn program(&self) -> &'static str {
        layout::program(self.role)
    }

    /// Its rack, if it is a storage node and they have some: they are numbered from 1 on.
    fn rack<'a>(&self, racks: &'a [String]) -> Option<&'a str> {
        let index = usize::try_from(self.id.checked_sub(1)?).ok()?;
        if self.role == Role::StorageNode { racks.get(index).map(String::as_str) } else { None }
    }

    /// The end of its log, for a failure.
    fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_SHOWN)..]).into_owned();
        format!("{}:\n{}", self.log.display(), tail.trim_end())
    }
}

impl Process {
    fn start(place: Place, args: &DevArgs) -> Result<Self, Failure> {
        let program = beside(place.program())?;
        let failed = |error: std::io::Error| Failure::failed(format!("cannot start {}: {error}", place.name));
        if let Some(logs) = place.log.parent() {
            private_directories().create(logs).map_err(failed)?;
        }
        let log = File::options().create(true).append(true).open(&place.log).map_err(failed)?;
        let mut command = Command::new(&program);
        command.arg("--config").arg(&place.config);
        pass_configs(&mut command, place.role, args)?;
        if let Some(rack) = place.rack(&args.racks) {
            command.arg("--set").arg(format!("rack={rack}"));
        }
        let child = command
            .stdin(Stdio::null())
            .stderr(log.try_clone().map_err(failed)?)
            .stdout(log)
            // Ctrl-C in the terminal is for us: we stop the daemons in their order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let pid = child.id().ok_or_else(|| Failure::failed(format!("{} ended at once", place.name)))?;
        Ok(Self { place, program, pid, child, ended: None })
    }

    /// Whether it has ended since it was asked last.
    fn has_just_ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
            return self.ended;
        }
        None
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        if self.ended.is_some() {
            return Ok(());
        }
        let failed = |why: &str| Failure::failed(format!("{} (pid {}) {why}", self.place.name, self.pid));
        let waited = timeout(STOP_MAX, self.child.wait()).await;
        match waited {
            Ok(Ok(status)) => {
                self.ended = Some(status);
                if status.success() { Ok(()) } else { Err(failed(&format!("ended with {status}"))) }
            }
            Ok(Err(error)) => Err(failed(&format!("cannot be waited for: {error}"))),
            Err(_) => {
                self.child.kill().await.map_err(|error| failed(&format!("cannot be killed: {error}")))?;
                Err(failed("did not stop in time and was killed; the next start recovers"))
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let (None, Some(pid)) = (self.ended, pid) {
            // It may have ended meanwhile, which the wait that follows finds out; until then the id is its own.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The program of a daemon, which is installed beside this one.
fn beside(program: &str) -> Result<PathBuf, Failure> {
    let me = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find where this program lies: {error}")))?;
    let path = me.with_file_name(program);
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::failed(format!("{} is not there", path.display()))
        .hint("`cargo build --release --workspace --bins` builds all programs into one folder"))
}

/// Hands the options of the command line to a daemon.
fn pass_configs(command: &mut Command, role: Role, args: &DevArgs) -> Result<(), Failure> {
    match role {
        Role::StorageNode => {
            let auto_create = format!("kafka.auto.create.topics.enable={}", !args.no_auto_create);
            command.arg("--set").arg(auto_create);
            for (name, value) in &args.configs {
                command.arg("--set").arg(format!("kafka.{name}={value}"));
            }
        }
        Role::Coordinator => {
            let mut groups = coordinator::Config::default().groups;
            let known = serde_json::to_value(&groups).map_err(|error| Failure::failed(error.to_string()))?;
            // As in the configuration that Kafka ships for trying it out: nobody waits for members that will not come.
            let delay = ("group.initial.rebalance.delay.ms".to_owned(), "0".to_owned());
            for (name, value) in std::iter::once(&delay).chain(&args.configs) {
                groups
                    .set(name, value)
                    .map_err(|fault| Failure::usage(format!("--config {name}: {fault}")))?;
                let key = name.replace('.', "_");
                if known.get(&key).is_some() {
                    command.env(format!("WEIR_COORDINATOR_GROUPS__{}", key.to_uppercase()), value);
                }
            }
        }
        Role::Controller | Role::Admin => {}
    }
    Ok(())
}

/// Waits until every daemon says that it is ready and the nodes know each other.
async fn wait_ready(processes: &mut [Process]) -> Result<(), Failure> {
    let begin = monotonic_now();
    let mut waiting: Vec<usize> = (0..processes.len()).collect();
    while !waiting.is_empty() {
        for process in processes.iter_mut() {
            if let Some(status) = process.has_just_ended() {
                let name = &process.place.name;
                return Err(Failure::failed(format!(
                    "{name} ended with {status}; {}",
                    process.place.log_tail()
                )));
            }
        }
        let mut left = Vec::new();
        for index in waiting {
            if !is_ready(processes[index].place.http).await {
                left.push(index);
            }
        }
        waiting = left;
        if let Some(index) = waiting.first() {
            if monotonic_now().saturating_duration_since(begin) > READY_MAX {
                let place = &processes[*index].place;
                return Err(Failure::failed(format!("{} is not ready; {}", place.name, place.log_tail())));
            }
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    }
    Ok(())
}

/// Whether `/readyz` says so.
async fn is_ready(http: SocketAddr) -> bool {
    let probe = async {
        let mut stream = TcpStream::connect(http).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        Ok::<bool, std::io::Error>(status.ends_with(b" 200"))
    };
    matches!(timeout(PROBE_MAX, probe).await, Ok(Ok(true)))
}

/// Tells which daemons end, until a signal comes or none is left.
async fn watch(
    processes: &mut [Process],
    signals: &mut Signals,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let mut child_ended = signal(SignalKind::child())
        .map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))?;
    loop {
        for process in processes.iter_mut() {
            if let Some(status) = process.has_just_ended() {
                let place = &process.place;
                output.note(&format!(
                    "{} (pid {}) ended with {status}; see {}, and start it again by\n  {} --config {}",
                    place.name,
                    process.pid,
                    place.log.display(),
                    process.program.display(),
                    place.config.display()
                ))?;
            }
        }
        if processes.iter().all(|process| process.ended.is_some()) {
            return Err(Failure::failed("no daemon is left"));
        }
        tokio::select! {
            _ = child_ended.recv() => {}
            () = signals.next() => return Ok(()),
        }
    }
}

/// Stops storage nodes, then coordinators, then controllers: each still has something to tell the next.
async fn stop(processes: &mut [Process], output: &mut Output<'_>) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for role in [Role::StorageNode, Role::Coordinator, Role::Controller] {
        let of_role = |process: &&mut Process| process.place.role == role;
        processes.iter_mut().filter(of_role).for_each(|process| process.signal(Signal::TERM));
        for process in processes.iter_mut().filter(of_role) {
            failures.extend(process.stop().await.err());
        }
    }
    crate::commands::topic::first_of(failures, output)
}

fn show_ready(
    directory: &Path,
    processes: &[Process],
    seconds: f64,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let nodes = processes.iter().filter(|process| process.place.role == Role::StorageNode);
    let kafka: Vec<String> = nodes.map(|process| process.place.address.to_string()).collect();
    let bootstrap = kafka.join(",");
    if output.format == Format::Json {
        let daemons = processes.iter().map(|process| {
            json!({
                "name": process.place.name,
                "role": process.place.role.to_string(),
                "id": process.place.id,
                "pid": process.pid,
                "address": process.place.address.to_string(),
                "metrics": format!("http://{}/metrics", process.place.http),
                "config": process.place.config,
                "log": process.place.log,
            })
        });
        output.json(&json!({
            "ready": true,
            "bootstrap": bootstrap,
            "kafka": kafka,
            "data": directory,
            "daemons": daemons.collect::<Vec<Value>>(),
            "seconds": seconds,
        }))?;
        return output.flush();
    }
    output.line(&format!("Weir is ready at {bootstrap} ({seconds:.2} s)"))?;
    output.line(&format!("  data     {} (kept; --reset begins anew)", directory.display()))?;
    output.line(&format!("  logs     {}\n", directory.join(LOGS).display()))?;
    let row = |process: &Process| {
        let place = &process.place;
        let metrics = format!("http://{}/metrics", place.http);
        vec![place.name.clone(), process.pid.to_string(), place.address.to_string(), metrics]
    };
    let rows: Vec<_> = processes.iter().map(row).collect();
    output.table(&["DAEMON", "PID", "ADDRESS", "METRICS"], &rows)?;
    output.line(&format!(
        "\nIn another terminal:\n  weir -b {bootstrap} cluster status\n\
         Any Kafka client works with {bootstrap}. `weir topic create NAME --replication-factor 3` makes a topic that \
         outlives a node. Ctrl-C stops."
    ))?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: DevArgs,
    }

    fn args(options: &[&str]) -> DevArgs {
        Line::try_parse_from([&["dev"], options].concat()).unwrap().args
    }

    #[test]
    fn a_cluster_is_made_once_and_read_back_with_its_ports() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("d");
        let lock = open(&directory, false).unwrap();
        assert!(open(&directory, false).unwrap_err().to_string().contains("in use by another process"));
        let free = args(&["--kafka-port", "0", "--http-port", "0"]);
        make(&directory.join(CLUSTER), 3, &free).unwrap();
        let places = places(&directory).unwrap();
        let names: Vec<_> = places.iter().map(|place| place.name.as_str()).collect();
        assert_eq!(names[..4], ["controller-1", "controller-2", "controller-3", "storage-node-1"]);
        assert_eq!(names[8..], ["coordinator-3"]);
        let mut ports: Vec<u16> =
            places.iter().flat_map(|place| [place.address.port(), place.http.port()]).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 18, "{ports:?}");
        check(&places, 3, &free, &directory).unwrap();
        let racks = args(&["--nodes", "3", "--racks", "a,b,c"]).racks;
        let racks: Vec<_> = places.iter().map(|place| place.rack(&racks)).collect();
        let (a, b, c) = (Some("a"), Some("b"), Some("c"));
        assert_eq!(racks, [None, None, None, a, b, c, None, None, None]);
        let fewer = check(&places, 2, &free, &directory).unwrap_err();
        assert!(fewer.to_string().contains("holds a cluster of 3 nodes, not 2"), "{fewer}");
        let port = places[3].address.port();
        check(&places, 3, &args(&["--kafka-port", &port.to_string()]), &directory).unwrap();
        let other = check(&places, 3, &args(&["--kafka-port", "1"]), &directory).unwrap_err();
        assert!(other.to_string().contains(&format!("--kafka-port {port}")), "{other}");
        drop(lock);
        let _lock = open(&directory, true).unwrap();
        assert!(!directory.join(CLUSTER).exists());
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("thesis.txt"), "precious").unwrap();
        let refused = open(temporary.path(), true).unwrap_err();
        assert!(refused.to_string().contains("it holds \"thesis.txt\""), "{refused}");
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    }

    #[test]
    fn each_node_has_a_rack_or_none_has() {
        let racks = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        check_racks(&racks(&[]), 3).unwrap();
        check_racks(&racks(&["a", "a"]), 2).unwrap();
        let fewer = check_racks(&racks(&["a", "b"]), 3).unwrap_err();
        assert!(fewer.to_string().contains("names 2 racks, and there are 3 nodes"), "{fewer}");
    }

    #[test]
    fn configs_of_groups_go_to_coordinators_only() {
        let args = args(&["--config", "group.max.size=7", "--config", "num.partitions=2"]);
        let mut command = Command::new("x");
        pass_configs(&mut command, Role::Coordinator, &args).unwrap();
        let mut passed: Vec<_> = command
            .as_std()
            .get_envs()
            .map(|(name, value)| {
                (name.to_str().unwrap().to_owned(), value.unwrap().to_str().unwrap().to_owned())
            })
            .collect();
        passed.sort();
        let name = |end: &str| format!("WEIR_COORDINATOR_GROUPS__GROUP_{end}");
        let expected =
            [(name("INITIAL_REBALANCE_DELAY_MS"), "0".to_owned()), (name("MAX_SIZE"), "7".to_owned())];
        assert_eq!(passed, expected);
        let mut command = Command::new("x");
        let wrong = self::args(&["--config", "group.max.size=many"]);
        assert_eq!(pass_configs(&mut command, Role::Coordinator, &wrong).unwrap_err().exit_code(), 2);
    }
}
