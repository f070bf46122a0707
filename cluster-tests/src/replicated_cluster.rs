//! A cluster of separate daemons, each on a host of its own ([`crate::netns`]), made by `weir cluster init`.
//!
//! Every daemon can be killed, stopped, paused and started again; its data may lie on a small disk of its own
//! ([`crate::disks`]) that can be full or lose its power.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::clients::all_output;
use crate::clock::wait_until;
use crate::disks::Disks;
use crate::failing_disk::{Failing, FailingDisk};
use crate::http;
use crate::memory::MemoryGroup;
use crate::netns::{Host, Network, NetworkError};
use crate::partition_view::{PartitionView, partition_views};
use crate::process::Process;
use crate::workspace;

/// How long everything may take to be ready on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const KAFKA_PORT: u16 = 9092;

/// What to start.
#[derive(Clone, Debug)]
pub struct Shape {
    /// 1, 3 or 5.
    pub controllers: usize,
    /// Storage nodes.
    pub nodes: usize,
    /// Coordinators.
    pub coordinators: usize,
    /// Size of each daemon's disk; none to lay the data into the run's folder.
    pub disk_mib: Option<u64>,
    /// Whether to use namespaces; if they are not to be had, the cluster says so and lives on loopback.
    pub namespaces: bool,
    /// Whether each storage node is in a control group of its own, so that its memory can be limited; with namespaces only.
    pub memory_groups: bool,
    /// The storage node whose data lie on a disk that can be slow and fail ([`crate::failing_disk`]); with disks only.
    pub failing_disk: Option<usize>,
    /// Settings of the controllers by environment variable, `WEIR_CONTROLLER_…`.
    pub controller_settings: Vec<(String, String)>,
    /// Settings of the storage nodes, `key=value` as `--set` takes them.
    pub node_settings: Vec<String>,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            controllers: 3,
            nodes: 3,
            coordinators: 1,
            disk_mib: None,
            namespaces: false,
            memory_groups: false,
            failing_disk: None,
            controller_settings: Vec::new(),
            node_settings: Vec::new(),
        }
    }
}

/// What a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// `weir-controller`.
    Controller,
    /// `weir-storage-node`.
    StorageNode,
    /// `weir-coordinator`.
    Coordinator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Controller => "controller",
            Role::StorageNode => "storage-node",
            Role::Coordinator => "coordinator",
        })
    }
}

/// One daemon.
#[derive(Debug)]
pub struct Daemon {
    /// What it is.
    pub role: Role,
    /// Its id within its role, from 1.
    pub id: usize,
    /// Where it runs.
    pub host: Host,
    /// Where its data lie.
    pub data: PathBuf,
    config: PathBuf,
    log: PathBuf,
    settings: Vec<(String, String)>,
    args: Vec<String>,
    process: Option<Process>,
    /// Dropped after the process.
    memory: Option<MemoryGroup>,
    /// Whether its disk lost its power and was not mounted again.
    dark: bool,
}

impl Daemon {
    /// `storage-node-2`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.role, self.id)
    }

    /// Gives a storage node another setting, `key=value` as `--set` takes it, for its next start.
    pub fn set(&mut self, setting: &str) {
        self.args.extend(["--set".to_owned(), setting.to_owned()]);
    }

    /// Where metrics and health are served.
    pub fn http(&self) -> SocketAddr {
        let port = match self.role {
            Role::Controller => 9293,
            Role::StorageNode => 9292,
            Role::Coordinator => 9294,
        };
        SocketAddrV4::new(self.host.address, port).into()
    }

    /// Where Kafka clients connect to a storage node.
    pub fn kafka(&self) -> String {
        format!("{}:{KAFKA_PORT}", self.host.address)
    }

    /// The process, if it was started and not killed or stopped since.
    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// Whether it was started and has not been killed or stopped since.
    pub fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// All that it has ever logged.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Starts it; nothing if it runs, or has no power.
    pub fn start(&mut self) {
        if self.process.is_some() || self.dark {
            return;
        }
        let mut command = self.host.command(workspace::program(&format!("weir-{}", self.role)));
        command.arg("--config").arg(&self.config).args(&self.args);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        let process = Process::start(&self.name(), command, &self.log);
        let process = process.unwrap_or_else(|error| panic!("{} cannot be started: {error}", self.name()));
        if let Some(memory) = &self.memory {
            memory.take(&process).unwrap_or_else(|error| panic!("{error}"));
        }
        self.process = Some(process);
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap_or_else(|error| panic!("{} cannot be killed: {error}", self.name()));
        }
    }

    /// SIGTERM, and waits; the daemon must end well.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let status = process.terminate(STOP_LIMIT).unwrap_or_else(|error| panic!("{error}"));
            assert!(status.success(), "{} ended with {status}; see {}", self.name(), self.log.display());
        }
    }

    /// From now on its data lie on a file system over `disk` that can be slow and fail.
    fn lay_on_failing(&mut self, disk: &Path) -> Result<FailingDisk, NetworkError> {
        let mut shown = disk.as_os_str().to_owned();
        shown.push("-failing");
        let failing = FailingDisk::mount(disk, Path::new(&shown))?;
        // Of a mount of its own a node may sync all at once, and the system hands that on to nobody.
        self.data = failing.path().join("data");
        self.args.extend(["--set".to_owned(), format!("data_dirs=[{:?}]", self.data)]);
        Ok(failing)
    }

    /// Whether its memory can be limited.
    pub fn has_memory_group(&self) -> bool {
        self.memory.is_some()
    }

    /// Takes its memory away until the kernel kills it, which is said; after so long it gets it back.
    pub fn squeeze(&mut self, patience: Duration) -> Result<String, NetworkError> {
        let name = self.name();
        let (Some(memory), Some(process)) = (&self.memory, self.process.as_mut()) else {
            return Ok(format!("{name} does not run, or has no memory group: nothing is taken from it"));
        };
        let killed_at = memory.squeeze(process, patience)?;
        memory.relax()?;
        let Some(kib) = killed_at else {
            return Ok(format!(
                "{name} lives with as little memory as the kernel leaves it for {patience:?}"
            ));
        };
        let status = process.ended().ok().flatten();
        if status.and_then(|status| status.signal()) != Some(Signal::KILL.as_raw()) {
            // Whoever looks after the daemons finds it so.
            return Ok(format!("{name} ended by itself when it had {kib} KiB of memory"));
        }
        self.process = None;
        Ok(format!("{name} is killed by the kernel when {kib} KiB of memory are left to it"))
    }

    /// SIGSTOP.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal).unwrap_or_else(|error| panic!("signal {}: {error}", self.name()));
        }
    }

    /// How it ended, if it did so by itself.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.process.as_mut()?.ended().ok()??;
        Some(format!("{} ended by itself with {status}; see {}", self.name(), self.log.display()))
    }

    /// Whether it says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.is_started() && http::get(self.http(), "/readyz").is_some_and(|(status, _)| status == 200)
    }
}

/// The cluster. Everything is ended and taken away when it is dropped.
#[derive(Debug)]
pub struct ReplicatedCluster {
    daemons: Vec<Daemon>,
    disks: Option<Disks>,
    /// The one that can fail, and its storage node.
    failing: Option<(usize, FailingDisk)>,
    /// Names of the daemons whose disks stand still.
    stalled: Vec<String>,
    /// The host of the clients.
    pub clients: Host,
    // Dropped after the daemons: its guard takes away the namespaces and the mounts.
    network: Network,
    /// Why there are no namespaces though they were asked for.
    pub without_namespaces: Option<String>,
    /// Why there are no memory groups though they were asked for.
    pub without_memory_groups: Option<String>,
    /// Why there is no disk that can fail though it was asked for.
    pub without_failing_disk: Option<String>,
}

impl ReplicatedCluster {
    /// Makes the cluster's files in `dir` and starts everything.
    pub fn start(dir: &Path, shape: &Shape) -> Result<ReplicatedCluster, NetworkError> {
        let mut cluster = ReplicatedCluster::prepare(dir, shape)?;
        cluster.daemons.iter_mut().for_each(Daemon::start);
        cluster.wait_ready();
        Ok(cluster)
    }

    /// The files and the network, nothing running.
    pub fn prepare(dir: &Path, shape: &Shape) -> Result<ReplicatedCluster, NetworkError> {
        let mounts = dir.join("disks");
        let (mut network, without_namespaces) = match shape.namespaces {
            false => (Network::loopback(), None),
            true => match Network::new(&mounts) {
                Ok(network) => (network, None),
                Err(error) => (Network::loopback(), Some(error.to_string())),
            },
        };
        let disk_mib = shape.disk_mib.filter(|_| network.can_cut());
        let disks = disk_mib.map(|_| Disks::new(&dir.join("images"), &mounts));
        let mut without_memory_groups = without_namespaces.clone().filter(|_| shape.memory_groups);
        let mut without_failing_disk = without_namespaces.clone().filter(|_| shape.failing_disk.is_some());
        let mut failing = None;
        let mut daemons = Vec::new();
        for (role, count) in [
            (Role::Controller, shape.controllers),
            (Role::StorageNode, shape.nodes),
            (Role::Coordinator, shape.coordinators),
        ] {
            for id in 1..=count {
                let host = network.add_host()?;
                let mut daemon = daemon(role, id, host, dir, shape);
                if let (Role::StorageNode, true, Some(names)) = (role, shape.memory_groups, network.names()) {
                    match MemoryGroup::make(&format!("{names}-{}", daemon.name())) {
                        Ok(group) => daemon.memory = Some(group),
                        Err(error) => without_memory_groups = Some(error.to_string()),
                    }
                }
                if let (Some(disks), Some(mib)) = (&disks, disk_mib) {
                    let disk = disks.make(&daemon.name(), mib)?;
                    if role == Role::StorageNode && shape.failing_disk == Some(id) {
                        match daemon.lay_on_failing(&disk) {
                            Ok(disk) => failing = Some((id, disk)),
                            Err(error) => without_failing_disk = Some(error.to_string()),
                        }
                    }
                }
                daemons.push(daemon);
            }
        }
        init(dir, &daemons, &mounts);
        let clients = network.add_host()?;
        Ok(ReplicatedCluster {
            daemons,
            disks,
            failing,
            stalled: Vec::new(),
            clients,
            network,
            without_namespaces,
            without_memory_groups,
            without_failing_disk,
        })
    }

    /// Waits until every daemon says that it is ready.
    pub fn wait_ready(&mut self) {
        for daemon in &mut self.daemons {
            let ready = wait_until(READY_LIMIT, || {
                assert_eq!(daemon.ended(), None);
                daemon.is_ready().then_some(())
            });
            assert!(ready.is_some(), "{} is not ready; see {}", daemon.name(), daemon.log.display());
        }
    }

    /// All daemons.
    pub fn daemons(&self) -> &[Daemon] {
        &self.daemons
    }

    /// All daemons, to do something to them.
    pub fn daemons_mut(&mut self) -> &mut [Daemon] {
        &mut self.daemons
    }

    /// The daemon of a role and id, which must exist.
    pub fn daemon(&mut self, role: Role, id: usize) -> &mut Daemon {
        let found = self.daemons.iter_mut().find(|daemon| daemon.role == role && daemon.id == id);
        found.unwrap_or_else(|| panic!("there is no {role}-{id}"))
    }

    /// A storage node, by id.
    pub fn node(&mut self, id: usize) -> &mut Daemon {
        self.daemon(Role::StorageNode, id)
    }

    /// `host:port` of every storage node.
    pub fn bootstrap(&self) -> String {
        let nodes = self.daemons.iter().filter(|daemon| daemon.role == Role::StorageNode);
        nodes.map(Daemon::kafka).collect::<Vec<_>>().join(",")
    }

    /// Whether there is a network that can be cut.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The disks, if each daemon has one.
    pub fn disks(&self) -> Option<&Disks> {
        self.disks.as_ref()
    }

    /// Data directories of the controllers and, by id, of the storage nodes.
    pub fn data(&self) -> (Vec<PathBuf>, BTreeMap<i32, PathBuf>) {
        let of = |role| self.daemons.iter().filter(move |daemon| daemon.role == role);
        let controllers = of(Role::Controller).map(|daemon| daemon.data.clone()).collect();
        let nodes = of(Role::StorageNode)
            .map(|daemon| (i32::try_from(daemon.id).expect("few nodes"), daemon.data.clone()));
        (controllers, nodes.collect())
    }

    /// The controller that leads the quorum, as it says itself.
    pub fn active_controller(&self) -> Option<usize> {
        let mut controllers = self.daemons.iter().filter(|daemon| daemon.role == Role::Controller);
        let leads = |daemon: &&Daemon| {
            daemon.is_started() && http::metric(daemon.http(), "weir_controller_leader") == Some(1.0)
        };
        controllers.find(leads).map(|daemon| daemon.id)
    }

    /// The partitions of a topic as the storage node `from` tells it; none if it does not answer.
    pub fn partitions(&self, from: usize, topic: &str) -> Option<Vec<PartitionView>> {
        let node = self.daemons.iter().find(|d| d.role == Role::StorageNode && d.id == from)?;
        let output = Command::new("kcat")
            .args(["-b", &node.kafka(), "-L", "-J", "-m", "3", "-t", topic])
            .output()
            .expect("kcat is installed");
        partition_views(&serde_json::from_slice(&output.stdout).ok()?, topic)
    }

    /// The partitions of all topics as the storage node `from` tells them; none if it does not answer.
    pub fn all_partitions(&self, from: usize) -> Option<Vec<PartitionView>> {
        let node = self.daemons.iter().find(|d| d.role == Role::StorageNode && d.id == from)?;
        let mut command = Command::new("kcat");
        command.args(["-b", &node.kafka(), "-L", "-J", "-m", "3"]);
        let json = serde_json::from_slice(&command.output().expect("kcat is installed").stdout).ok()?;
        let json: serde_json::Value = json;
        let topics = json["topics"].as_array()?.iter().filter_map(|topic| topic["topic"].as_str());
        topics.map(|topic| partition_views(&json, topic)).collect::<Option<Vec<_>>>().map(|all| all.concat())
    }

    /// Takes the power from a daemon's host: it stops in the middle of what it does, says nothing to anybody, and what was not
    /// synced is lost. Nothing if it has none.
    pub fn cut_power(&mut self, role: Role, id: usize) -> Result<(), NetworkError> {
        let disks = self.disks.clone().ok_or_else(|| NetworkError("there are no disks".to_owned()))?;
        let network = &self.network;
        let daemon = self.daemons.iter_mut().find(|daemon| daemon.role == role && daemon.id == id);
        let daemon = daemon.ok_or_else(|| NetworkError(format!("there is no {role}-{id}")))?;
        if daemon.dark {
            return Ok(());
        }
        network.unplug(&daemon.host)?;
        daemon.pause();
        disks.cut_power(&daemon.name())?;
        daemon.kill();
        daemon.dark = true;
        Ok(())
    }

    /// Gives their power back to those that lost it, and takes back every cut. Starts nothing.
    pub fn restore_power(&mut self) -> Result<(), NetworkError> {
        self.network.heal()?;
        if let Some(disks) = &self.disks {
            for daemon in self.daemons.iter_mut().filter(|daemon| daemon.dark) {
                disks.restore_power(&daemon.name())?;
                daemon.dark = false;
            }
        }
        Ok(())
    }

    /// Lets a daemon's disk stand still: whatever it writes or syncs waits. It cannot be killed before [`ReplicatedCluster::heal`].
    pub fn stall_disk(&mut self, role: Role, id: usize) -> Result<(), NetworkError> {
        let disks = self.disks.as_ref().ok_or_else(|| NetworkError("there are no disks".to_owned()))?;
        let name = format!("{role}-{id}");
        disks.stall(&name)?;
        self.stalled.push(name);
        Ok(())
    }

    /// The disk that can fail, and its storage node.
    pub fn failing_disk(&self) -> Option<(usize, &FailingDisk)> {
        self.failing.as_ref().map(|(node, disk)| (*node, disk))
    }

    /// Lets a disk that can fail do so.
    pub fn fail_disk(&self, failing: Failing) -> Result<(), NetworkError> {
        let (node, disk) =
            self.failing_disk().ok_or_else(|| NetworkError("there is no such disk".to_owned()))?;
        disk.fail(failing);
        if failing == Failing::Reads {
            let data = &self.daemons.iter().find(|d| d.role == Role::StorageNode && d.id == node);
            // What the system has in memory is read no more.
            disk.forget(data.map_or(Path::new(""), |daemon| &daemon.data))?;
        }
        Ok(())
    }

    fn release_disks(&mut self) -> Result<(), NetworkError> {
        let Some(disks) = &self.disks else { return Ok(()) };
        std::mem::take(&mut self.stalled).iter().try_for_each(|name| disks.release(name))
    }

    /// Takes back everything that was done to the cluster, and starts what does not run.
    pub fn heal(&mut self) -> Result<(), NetworkError> {
        self.release_disks()?;
        if let Some((node, disk)) = &self.failing
            && disk.mend()
        {
            // As a person would do after he has repaired the disk.
            let node = self.daemons.iter_mut().find(|d| d.role == Role::StorageNode && d.id == *node);
            node.into_iter().for_each(Daemon::kill);
        }
        self.restore_power()?;
        for daemon in &mut self.daemons {
            daemon.resume();
            if let Some(disks) = &self.disks {
                disks.free(&daemon.name())?;
            }
            daemon.start();
        }
        Ok(())
    }

    /// Stops everything cleanly: storage nodes, coordinators, controllers.
    pub fn stop(&mut self) {
        for role in [Role::StorageNode, Role::Coordinator, Role::Controller] {
            self.daemons.iter_mut().filter(|daemon| daemon.role == role).for_each(Daemon::stop);
        }
    }
}

impl Drop for ReplicatedCluster {
    fn drop(&mut self) {
        if let Err(error) = self.release_disks() {
            eprintln!("{error}");
        }
        // A process that stands still holds its file system: the guard could not take it away.
        for daemon in &mut self.daemons {
            if let Some(process) = daemon.process.as_mut()
                && let Err(error) = process.kill()
            {
                eprintln!("could not end {}: {error}", daemon.name());
            }
        }
    }
}

fn daemon(role: Role, id: usize, host: Host, dir: &Path, shape: &Shape) -> Daemon {
    let name = format!("{role}-{id}");
    let mut daemon = Daemon {
        role,
        id,
        host,
        data: dir.join("disks").join(&name),
        config: dir.join("cluster").join(&name).join(format!("{role}.toml")),
        log: dir.join(format!("{name}.log")),
        settings: Vec::new(),
        args: Vec::new(),
        process: None,
        memory: None,
        dark: false,
    };
    let http = daemon.http();
    match role {
        Role::StorageNode => {
            daemon.set(&format!("http.address={http}"));
            shape.node_settings.iter().for_each(|setting| daemon.set(setting));
        }
        Role::Controller => {
            daemon.args.extend(["--http".to_owned(), http.to_string()]);
            daemon.settings.extend(shape.controller_settings.iter().cloned());
        }
        Role::Coordinator => daemon.args.extend(["--http".to_owned(), http.to_string()]),
    }
    daemon
}

fn init(dir: &Path, daemons: &[Daemon], data: &Path) {
    let hosts = |role: Role| {
        let of_role = daemons.iter().filter(|daemon| daemon.role == role);
        of_role.map(|daemon| daemon.host.address.to_string()).collect::<Vec<_>>().join(",")
    };
    let mut command = Command::new(workspace::program("weir"));
    command.args(["cluster", "init"]).arg(dir.join("cluster")).arg("--data").arg(data);
    command.args(["--controllers", &hosts(Role::Controller)]);
    command.args(["--storage-nodes", &hosts(Role::StorageNode)]);
    command.args(["--coordinators", &hosts(Role::Coordinator)]);
    let output = command.output().expect("weir is built");
    assert!(output.status.success(), "weir cluster init failed:\n{}", all_output(&output));
}
