//! What can happen to a cluster. A fault begins here; [`ReplicatedCluster::heal`] takes all of them back.

use std::net::TcpStream;
use std::time::Duration;

use crate::chaos::{Storm, TOPIC, operator, paths};
use crate::moments::Moments;
use crate::netns::{Host, NetworkError};
use crate::replicated_cluster::{Daemon, ReplicatedCluster, Role};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9` of the node that leads partition 0.
    KillLeader,
    /// `kill -9` of any daemon.
    KillAny,
    /// `kill -9` of the controller that leads the quorum.
    KillController,
    /// `kill -9` of one storage node and one controller.
    KillMinority,
    /// The node that leads partition 0 stands still.
    PauseLeader,
    /// Any daemon stands still.
    PauseAny,
    /// The controller that leads the quorum stands still.
    PauseController,
    /// One storage node reaches nobody, and nobody reaches it.
    Isolate,
    /// Two storage nodes do not reach each other.
    CutTwoWay,
    /// Nothing gets from one storage node to another, but back.
    CutOneWay,
    /// A storage node does not reach the controllers, or they not it.
    CutControllers,
    /// One storage node and one controller reach each other only, and the others each other only.
    Halves,
    /// The same, but for one daemon that reaches both sides.
    Bridge,
    /// The daemons stand in a ring and reach their neighbours only.
    Ring,
    /// A part of all packets to one storage node is lost.
    Loss,
    /// What is larger than QUIC's smallest datagram does not get to one storage node.
    BlackHole,
    /// One storage node sends slowly.
    Slow,
    /// Packets to or from one storage node come late.
    Delay,
    /// Some of them are overtaken by others,
    Reorder,
    /// come twice,
    Duplicate,
    /// or have bits turned over.
    Corrupt,
    /// The disk of a storage node is full.
    DiskFull,
    /// A storage node loses its power.
    PowerCut,
    /// Every storage node and controller loses its power at the same time.
    PowerCutAll,
    /// `kill -9` of a storage node, and damage to its files before it starts again (`damage.rs` has the rule).
    Damage,
    /// A storage node gets ever less memory, until the kernel kills it.
    MemorySqueeze,
    /// The syncs of one storage node's disk take up to ten seconds.
    SlowDisk,
    /// The reads, the writes or the syncs of one storage node's disk fail, until it is repaired and the node starts again.
    IoErrors,
    /// Every storage node is stopped cleanly and started again, one after the other.
    RollingRestart,
    /// An operator gives a partition another preferred leader, and has it elected.
    Reassign,
    /// An operator changes `min.insync.replicas` and `segment.bytes`.
    Configs,
    /// Very many clients connect at once, and leave.
    Connections,
    /// An operator takes every copy from a storage node, as far as two are left, and later gives them back.
    Drain,
    /// `kill -9` of a producer or a follower; later another one takes its place.
    KillClient,
}

/// An IP packet that carries 1,200 bytes of UDP, which is as little as QUIC can do with.
const SMALLEST_PACKET: u16 = 1_228;
/// So long a node may live with the least memory that there is.
const SQUEEZE_MAX: Duration = Duration::from_secs(30);
/// Connections of [`Fault::Connections`].
const CONNECTIONS: usize = 500;

impl Fault {
    /// Every kind.
    pub const ALL: [Fault; 34] = [
        Fault::KillLeader,
        Fault::KillAny,
        Fault::KillController,
        Fault::KillMinority,
        Fault::PauseLeader,
        Fault::PauseAny,
        Fault::PauseController,
        Fault::Isolate,
        Fault::CutTwoWay,
        Fault::CutOneWay,
        Fault::CutControllers,
        Fault::Halves,
        Fault::Bridge,
        Fault::Ring,
        Fault::Loss,
        Fault::BlackHole,
        Fault::Slow,
        Fault::Delay,
        Fault::Reorder,
        Fault::Duplicate,
        Fault::Corrupt,
        Fault::DiskFull,
        Fault::PowerCut,
        Fault::PowerCutAll,
        Fault::Damage,
        Fault::MemorySqueeze,
        Fault::SlowDisk,
        Fault::IoErrors,
        Fault::RollingRestart,
        Fault::Reassign,
        Fault::Configs,
        Fault::Connections,
        Fault::Drain,
        Fault::KillClient,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::KillLeader => "kill-leader",
            Fault::KillAny => "kill-any",
            Fault::KillController => "kill-controller",
            Fault::KillMinority => "kill-minority",
            Fault::PauseLeader => "pause-leader",
            Fault::PauseAny => "pause-any",
            Fault::PauseController => "pause-controller",
            Fault::Isolate => "isolate",
            Fault::CutTwoWay => "cut-two-way",
            Fault::CutOneWay => "cut-one-way",
            Fault::CutControllers => "cut-controllers",
            Fault::Halves => "halves",
            Fault::Bridge => "bridge",
            Fault::Ring => "ring",
            Fault::Loss => "loss",
            Fault::BlackHole => "black-hole",
            Fault::Slow => "slow",
            Fault::Delay => "delay",
            Fault::Reorder => "reorder",
            Fault::Duplicate => "duplicate",
            Fault::Corrupt => "corrupt",
            Fault::DiskFull => "disk-full",
            Fault::PowerCut => "power-cut",
            Fault::PowerCutAll => "power-cut-all",
            Fault::Damage => "damage",
            Fault::MemorySqueeze => "memory-squeeze",
            Fault::SlowDisk => "slow-disk",
            Fault::IoErrors => "io-errors",
            Fault::RollingRestart => "rolling-restart",
            Fault::Reassign => "reassign",
            Fault::Configs => "configs",
            Fault::Connections => "connections",
            Fault::Drain => "drain",
            Fault::KillClient => "kill-client",
        }
    }

    /// The fault of a name.
    pub fn from_name(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Whether this machine can do it to this cluster.
    pub fn is_possible(self, cluster: &ReplicatedCluster) -> bool {
        match self {
            Fault::KillLeader
            | Fault::KillAny
            | Fault::KillController
            | Fault::KillMinority
            | Fault::PauseLeader
            | Fault::PauseAny
            | Fault::PauseController
            | Fault::Damage
            | Fault::RollingRestart
            | Fault::Reassign
            | Fault::Configs
            | Fault::Connections
            | Fault::Drain
            | Fault::KillClient => true,
            Fault::Isolate
            | Fault::CutTwoWay
            | Fault::CutOneWay
            | Fault::CutControllers
            | Fault::Halves
            | Fault::Bridge
            | Fault::Ring => cluster.network().can_cut(),
            Fault::Loss | Fault::BlackHole => cluster.network().can_lose(),
            Fault::Slow => cluster.network().can_slow(),
            Fault::SlowDisk | Fault::IoErrors => cluster.failing_disk().is_some(),
            Fault::MemorySqueeze => cluster.daemons().iter().any(Daemon::has_memory_group),
            Fault::Delay | Fault::Reorder | Fault::Duplicate | Fault::Corrupt => {
                cluster.network().can_disturb()
            }
            Fault::DiskFull | Fault::PowerCut | Fault::PowerCutAll => cluster.disks().is_some(),
        }
    }

    /// How long it lasts.
    pub fn hold(self, chance: &mut Moments) -> Duration {
        let seconds = |least: u64, spread: u64, chance: &mut Moments| {
            Duration::from_secs(least) + chance.within(Duration::from_secs(spread))
        };
        match self {
            Fault::PauseLeader | Fault::PauseAny | Fault::PauseController => seconds(1, 29, chance),
            Fault::Isolate
            | Fault::CutTwoWay
            | Fault::CutOneWay
            | Fault::CutControllers
            | Fault::Halves
            | Fault::Bridge
            | Fault::Ring
            | Fault::Loss
            | Fault::BlackHole
            | Fault::Slow
            | Fault::SlowDisk
            | Fault::IoErrors
            | Fault::Delay
            | Fault::Reorder
            | Fault::Duplicate
            | Fault::Corrupt
            | Fault::Drain => seconds(1, 19, chance),
            Fault::KillLeader
            | Fault::KillAny
            | Fault::KillController
            | Fault::KillMinority
            | Fault::PowerCut
            | Fault::Damage
            | Fault::MemorySqueeze
            | Fault::KillClient => chance.within(Duration::from_secs(10)),
            Fault::DiskFull => seconds(2, 8, chance),
            Fault::PowerCutAll => chance.within(Duration::from_secs(3)),
            Fault::RollingRestart => Duration::ZERO,
            Fault::Reassign | Fault::Configs | Fault::Connections => chance.within(Duration::from_secs(2)),
        }
    }

    /// Whether a daemon may say that its disk is full.
    pub fn fills_disks(self) -> bool {
        self == Fault::DiskFull
    }

    /// Whether everything is in sync before, and no other fault is on meanwhile.
    pub fn comes_alone(self) -> bool {
        matches!(self, Fault::Damage | Fault::IoErrors)
    }

    /// Whether one node's disk must be one that can fail.
    pub fn needs_failing_disk(self) -> bool {
        matches!(self, Fault::SlowDisk | Fault::IoErrors)
    }

    /// Begins it and says what was done.
    pub(super) fn begin(self, storm: &mut Storm<'_>) -> Result<String, NetworkError> {
        let Storm { cluster, load, drained, damages, chance, .. } = storm;
        let node = self.node(cluster, chance);
        let name = format!("storage-node-{node}");
        match self {
            Fault::KillLeader => {
                cluster.node(node).kill();
                Ok(format!("kill -9 {name}, which leads partition 0"))
            }
            Fault::KillAny => {
                let daemon = any(cluster, chance);
                daemon.kill();
                Ok(format!("kill -9 {}", daemon.name()))
            }
            Fault::KillController => {
                let id = active_controller(cluster, chance);
                cluster.daemon(Role::Controller, id).kill();
                Ok(format!("kill -9 controller-{id}, which leads the quorum"))
            }
            Fault::KillMinority => Ok(kill_minority(cluster, node, chance)),
            Fault::PauseLeader => {
                cluster.node(node).pause();
                Ok(format!("{name}, which leads partition 0, stands still"))
            }
            Fault::PauseAny => {
                let daemon = any(cluster, chance);
                daemon.pause();
                Ok(format!("{} stands still", daemon.name()))
            }
            Fault::PauseController => {
                let id = active_controller(cluster, chance);
                cluster.daemon(Role::Controller, id).pause();
                Ok(format!("controller-{id}, which leads the quorum, stands still"))
            }
            Fault::Isolate => isolate(cluster, node),
            Fault::CutTwoWay => cut_nodes(cluster, node, true, chance),
            Fault::CutOneWay => cut_nodes(cluster, node, false, chance),
            Fault::CutControllers => cut_controllers(cluster, node, chance),
            Fault::Halves => cut_halves(cluster, node, None, chance),
            Fault::Bridge => cut_to_a_bridge(cluster, node, chance),
            Fault::Ring => cut_to_a_ring(cluster, chance),
            Fault::Loss => lose(cluster, node, chance),
            Fault::BlackHole => swallow(cluster, node),
            Fault::Slow => slow(cluster, node, chance),
            Fault::Delay => paths::delay(cluster, node, chance),
            Fault::Reorder => paths::reorder(cluster, node, chance),
            Fault::Duplicate => paths::duplicate(cluster, node, chance),
            Fault::Corrupt => paths::corrupt(cluster, node, chance),
            Fault::Reassign => Ok(operator::reassign(cluster, running_node(cluster, chance), chance)),
            Fault::Configs => Ok(operator::change_configs(cluster, chance)),
            Fault::Drain => Ok(drained.drain(cluster, node)),
            Fault::KillClient => Ok(load.kill_one(chance)),
            Fault::Connections => Ok(connect_often(cluster, node)),
            Fault::DiskFull => fill_disk(cluster, &name),
            Fault::PowerCut => {
                cluster.cut_power(Role::StorageNode, node)?;
                Ok(format!("{name} loses its power"))
            }
            Fault::PowerCutAll => {
                power_cut_all(cluster)?;
                Ok("every storage node and controller loses its power".to_owned())
            }
            Fault::MemorySqueeze => cluster.node(node).squeeze(SQUEEZE_MAX),
            Fault::SlowDisk => damages.slow_down(cluster, chance),
            Fault::IoErrors => damages.fail(cluster, chance),
            Fault::Damage => damages.strike(cluster, node, chance),
            Fault::RollingRestart => Ok(rolling_restart(cluster)),
        }
    }

    /// The storage node that it is about: the leader of partition 0 for some, any one that runs for others.
    fn node(self, cluster: &mut ReplicatedCluster, chance: &mut Moments) -> usize {
        let any = running_node(cluster, chance);
        match self {
            Fault::KillLeader | Fault::PauseLeader | Fault::KillMinority => {
                let leader = cluster
                    .partitions(any, TOPIC)
                    .and_then(|partitions| partitions.first().and_then(|partition| partition.leader));
                leader.unwrap_or(any)
            }
            Fault::KillAny
            | Fault::KillController
            | Fault::PauseAny
            | Fault::PauseController
            | Fault::Isolate
            | Fault::CutTwoWay
            | Fault::CutOneWay
            | Fault::CutControllers
            | Fault::Halves
            | Fault::Bridge
            | Fault::Ring
            | Fault::Loss
            | Fault::BlackHole
            | Fault::Slow
            | Fault::Delay
            | Fault::Reorder
            | Fault::Duplicate
            | Fault::Corrupt
            | Fault::DiskFull
            | Fault::PowerCut
            | Fault::PowerCutAll
            | Fault::Damage
            | Fault::MemorySqueeze
            | Fault::SlowDisk
            | Fault::IoErrors
            | Fault::RollingRestart
            | Fault::Reassign
            | Fault::Configs
            | Fault::Connections
            | Fault::Drain
            | Fault::KillClient => any,
        }
    }
}

pub(super) fn index(chance: &mut Moments, count: usize) -> usize {
    usize::try_from(chance.next_number() % count.max(1) as u64).expect("a small number")
}

/// Any daemon; one that was killed already stays so.
fn any<'a>(cluster: &'a mut ReplicatedCluster, chance: &mut Moments) -> &'a mut Daemon {
    let count = cluster.daemons().len();
    &mut cluster.daemons_mut()[index(chance, count)]
}

fn running_node(cluster: &ReplicatedCluster, chance: &mut Moments) -> usize {
    let nodes = cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode);
    let running: Vec<usize> = nodes.filter(|daemon| daemon.is_started()).map(|daemon| daemon.id).collect();
    running.get(index(chance, running.len())).copied().unwrap_or(1)
}

fn other_node(cluster: &ReplicatedCluster, node: usize, chance: &mut Moments) -> usize {
    let nodes = cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode);
    let others: Vec<usize> = nodes.map(|daemon| daemon.id).filter(|id| *id != node).collect();
    others[index(chance, others.len())]
}

fn active_controller(cluster: &ReplicatedCluster, chance: &mut Moments) -> usize {
    let controllers = cluster.daemons().iter().filter(|daemon| daemon.role == Role::Controller).count();
    cluster.active_controller().unwrap_or_else(|| 1 + index(chance, controllers))
}

fn hosts(cluster: &ReplicatedCluster, which: impl Fn(&Daemon) -> bool) -> Vec<Host> {
    cluster.daemons().iter().filter(|daemon| which(daemon)).map(|daemon| daemon.host.clone()).collect()
}

fn isolate(cluster: &mut ReplicatedCluster, node: usize) -> Result<String, NetworkError> {
    let isolated = cluster.node(node).host.clone();
    let mut others = hosts(cluster, |daemon| daemon.host != isolated);
    others.push(cluster.clients.clone());
    for other in others {
        cluster.network().cut(&isolated, &other)?;
        cluster.network().cut(&other, &isolated)?;
    }
    Ok(format!("storage-node-{node} is cut from everybody"))
}

fn cut_nodes(
    cluster: &mut ReplicatedCluster,
    node: usize,
    both_ways: bool,
    chance: &mut Moments,
) -> Result<String, NetworkError> {
    let other = other_node(cluster, node, chance);
    let (one, two) = (cluster.node(node).host.clone(), cluster.node(other).host.clone());
    cluster.network().cut(&one, &two)?;
    if !both_ways {
        return Ok(format!("nothing gets from storage-node-{node} to storage-node-{other}"));
    }
    cluster.network().cut(&two, &one)?;
    Ok(format!("storage-node-{node} and storage-node-{other} are cut from each other"))
}

fn kill_minority(cluster: &mut ReplicatedCluster, node: usize, chance: &mut Moments) -> String {
    let id = active_controller(cluster, chance);
    cluster.daemon(Role::Controller, id).kill();
    cluster.node(node).kill();
    format!("kill -9 storage-node-{node} and controller-{id}")
}

fn fill_disk(cluster: &ReplicatedCluster, name: &str) -> Result<String, NetworkError> {
    if let Some(disks) = cluster.disks() {
        disks.fill(name)?;
    }
    Ok(format!("the disk of {name} is full"))
}

fn lose(cluster: &mut ReplicatedCluster, node: usize, chance: &mut Moments) -> Result<String, NetworkError> {
    let percent = [2, 5, 10, 20][index(chance, 4)];
    let host = cluster.node(node).host.clone();
    cluster.network().lose(&host, percent)?;
    Ok(format!("{percent} of 100 packets to storage-node-{node} are lost"))
}

fn swallow(cluster: &mut ReplicatedCluster, node: usize) -> Result<String, NetworkError> {
    let host = cluster.node(node).host.clone();
    cluster.network().swallow(&host, SMALLEST_PACKET)?;
    Ok(format!("datagrams of more than {SMALLEST_PACKET} bytes do not get to storage-node-{node}"))
}

fn slow(cluster: &mut ReplicatedCluster, node: usize, chance: &mut Moments) -> Result<String, NetworkError> {
    let megabits = [2, 5, 20][index(chance, 3)];
    let host = cluster.node(node).host.clone();
    cluster.network().slow(&host, megabits)?;
    Ok(format!("storage-node-{node} sends {megabits} Mbit/s"))
}

/// One way, in either direction.
fn cut_controllers(
    cluster: &mut ReplicatedCluster,
    node: usize,
    chance: &mut Moments,
) -> Result<String, NetworkError> {
    let one = cluster.node(node).host.clone();
    let to_them = chance.next_number().is_multiple_of(2);
    for controller in hosts(cluster, |daemon| daemon.role == Role::Controller) {
        let (from, to) = if to_them { (&one, &controller) } else { (&controller, &one) };
        cluster.network().cut(from, to)?;
    }
    let name = format!("storage-node-{node}");
    let (from, to) = if to_them { (name.as_str(), "controllers") } else { ("controllers", name.as_str()) };
    Ok(format!("nothing gets from {from} to {to}"))
}

/// Cuts every two hosts from each other that `reach` does not join.
fn cut_but_for(
    cluster: &ReplicatedCluster,
    hosts: &[Host],
    reach: impl Fn(usize, usize) -> bool,
) -> Result<(), NetworkError> {
    for (i, from) in hosts.iter().enumerate() {
        for (j, to) in hosts.iter().enumerate() {
            if i != j && !reach(i, j) {
                cluster.network().cut(from, to)?;
            }
        }
    }
    Ok(())
}

/// A storage node and a controller on one side, everybody else on the other, perhaps with one storage node on both. Clients reach
/// all of them.
fn cut_halves(
    cluster: &mut ReplicatedCluster,
    node: usize,
    bridge: Option<usize>,
    chance: &mut Moments,
) -> Result<String, NetworkError> {
    let controllers = cluster.daemons().iter().filter(|daemon| daemon.role == Role::Controller).count();
    let controller = 1 + index(chance, controllers);
    let daemons: Vec<(Role, usize)> = cluster.daemons().iter().map(|d| (d.role, d.id)).collect();
    let on_small_side = |at: usize| {
        let (role, id) = daemons[at];
        (role, id) == (Role::StorageNode, node) || (role, id) == (Role::Controller, controller)
    };
    let is_bridge = |at: usize| daemons[at].0 == Role::StorageNode && Some(daemons[at].1) == bridge;
    let hosts = hosts(cluster, |_| true);
    cut_but_for(cluster, &hosts, |i, j| {
        is_bridge(i) || is_bridge(j) || on_small_side(i) == on_small_side(j)
    })?;
    let but =
        bridge.map_or(String::new(), |bridge| format!(", but storage-node-{bridge} reaches both sides"));
    Ok(format!("storage-node-{node} and controller-{controller} are cut from all others{but}"))
}

fn cut_to_a_bridge(
    cluster: &mut ReplicatedCluster,
    node: usize,
    chance: &mut Moments,
) -> Result<String, NetworkError> {
    let bridge = other_node(cluster, node, chance);
    cut_halves(cluster, node, Some(bridge), chance)
}

fn cut_to_a_ring(cluster: &mut ReplicatedCluster, chance: &mut Moments) -> Result<String, NetworkError> {
    let mut ring: Vec<(String, Host)> =
        cluster.daemons().iter().map(|daemon| (daemon.name(), daemon.host.clone())).collect();
    for at in (1..ring.len()).rev() {
        ring.swap(at, index(chance, at + 1));
    }
    let (names, hosts): (Vec<String>, Vec<Host>) = ring.into_iter().unzip();
    let next = |i: usize| (i + 1) % hosts.len();
    cut_but_for(cluster, &hosts, |i, j| next(i) == j || next(j) == i)?;
    Ok(format!("everybody reaches two neighbours only: {}", names.join(", ")))
}

fn connect_often(cluster: &mut ReplicatedCluster, node: usize) -> String {
    let address = cluster.node(node).kafka().parse();
    let Ok(address) = address else { return "a node has no address".to_owned() };
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let open: Vec<TcpStream> = (0..CONNECTIONS).map_while(connect).collect();
    format!("{} clients connect to storage-node-{node} at once, and leave", open.len())
}

/// All stop at one instant, before the first of them can notice that another one is gone.
fn power_cut_all(cluster: &mut ReplicatedCluster) -> Result<(), NetworkError> {
    let struck: Vec<(Role, usize)> = cluster
        .daemons()
        .iter()
        .filter(|daemon| daemon.role != Role::Coordinator)
        .map(|daemon| (daemon.role, daemon.id))
        .collect();
    cluster.daemons().iter().filter(|daemon| daemon.role != Role::Coordinator).for_each(Daemon::pause);
    struck.into_iter().try_for_each(|(role, id)| cluster.cut_power(role, id))
}

/// Each node that runs comes back and is ready before the next one goes. One that another fault holds down stays down.
fn rolling_restart(cluster: &mut ReplicatedCluster) -> String {
    let nodes = cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode);
    let running: Vec<usize> = nodes.filter(|daemon| daemon.is_started()).map(|daemon| daemon.id).collect();
    for &id in &running {
        let node = cluster.node(id);
        // As a second fault: the first one may have done something to it.
        node.resume();
        node.stop();
        node.start();
        let ready = crate::clock::wait_until(Duration::from_secs(60), || {
            (node.is_ready() || node.ended().is_some()).then_some(())
        });
        if ready.is_none() {
            eprintln!("storage-node-{id} is not ready after its restart; the other fault may forbid it");
        }
    }
    let names: Vec<String> = running.into_iter().map(|id| format!("storage-node-{id}")).collect();
    format!("stopped cleanly and started again, one by one: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_of_its_own() {
        for fault in Fault::ALL {
            assert_eq!(Fault::from_name(fault.name()), Some(fault));
        }
        assert_eq!(Fault::from_name("earthquake"), None);
    }
}
