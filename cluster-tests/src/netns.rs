//! Hosts on one machine: network namespaces that a bridge connects, and cuts between them by packet filters; also paths that
//! lose packets, swallow large ones, are slow, or do to packets what a [`Disturbance`] says.
//!
//! This needs root, `ip`, `nsenter` and `iptables`, and `tc` for slow paths. Where that is not to be had, [`Network::new`] says why, and hosts are
//! addresses of the loopback network (127.x.y.n): daemons run as well, but nothing can be cut.

mod disturbance;
mod element;

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::guard::Guard;
pub use disturbance::{COPY_WITHIN, Disturbance};
use element::Element;
pub use element::{Counts, Way};

/// Why there are no namespaces, or a command failed: a sentence.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NetworkError(pub String);

/// The network of a cluster.
#[derive(Debug)]
pub struct Network {
    kind: Kind,
    /// The first three bytes of every address.
    prefix: [u8; 3],
    hosts: Vec<Host>,
    /// Hosts whose packets wait in a shaper.
    slowed: Mutex<Vec<Host>>,
    /// At work in paths of hosts.
    elements: Mutex<Vec<Element>>,
    can_disturb: OnceLock<bool>,
}

#[derive(Debug)]
enum Kind {
    Namespaces { names: String, bridge: String, _guard: Guard },
    Loopback,
}

/// One host of a [`Network`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its address, with the default ports of every daemon free.
    pub address: Ipv4Addr,
    namespace: Option<String>,
    link: String,
}

/// Distinguishes the networks of one process.
static COUNT: AtomicU8 = AtomicU8::new(0);

impl Network {
    /// A bridge in namespaces of its own; `mounts` is the folder below which the run mounts file systems.
    pub fn new(mounts: &Path) -> Result<Network, NetworkError> {
        let (id, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (names, bridge) = (format!("wn{id:x}{count:x}"), format!("wb{id:x}{count:x}"));
        let guard = Guard::start(&names, &bridge, mounts)
            .map_err(|error| NetworkError(format!("sh cannot be started: {error}")))?;
        let network = Network {
            prefix: prefix(10, id, count),
            hosts: Vec::new(),
            slowed: Mutex::default(),
            elements: Mutex::default(),
            can_disturb: OnceLock::new(),
            kind: Kind::Namespaces { names, bridge: bridge.clone(), _guard: guard },
        };
        for tool in ["nsenter", "iptables"] {
            run(Command::new(tool).arg("--version"))?;
        }
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", network.address(254)), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        Ok(network)
    }

    /// Addresses on loopback, for machines without namespaces and for measurements that need none.
    pub fn loopback() -> Network {
        let (id, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Network {
            kind: Kind::Loopback,
            prefix: prefix(127, id, count),
            hosts: Vec::new(),
            slowed: Mutex::default(),
            elements: Mutex::default(),
            can_disturb: OnceLock::new(),
        }
    }

    /// Whether hosts can be cut from each other.
    pub fn can_cut(&self) -> bool {
        matches!(self.kind, Kind::Namespaces { .. })
    }

    /// What the names of all that belongs to this network begin with, and of nothing else; none on loopback.
    pub fn names(&self) -> Option<&str> {
        match &self.kind {
            Kind::Namespaces { names, .. } => Some(names),
            Kind::Loopback => None,
        }
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, last)
    }

    /// Adds a host.
    pub fn add_host(&mut self) -> Result<Host, NetworkError> {
        let number = u8::try_from(self.hosts.len() + 1).ok().filter(|number| *number < 250);
        let number = number.ok_or_else(|| NetworkError("a network has fewer than 250 hosts".to_owned()))?;
        let address = self.address(number);
        let host = match &self.kind {
            Kind::Loopback => Host { address, namespace: None, link: String::new() },
            Kind::Namespaces { names, bridge, .. } => {
                let namespace = format!("{names}-{number}");
                let link = format!("{}n{number}", names.replacen("wn", "wv", 1));
                ip(&["netns", "add", &namespace])?;
                let peer = ["peer", "name", "eth0", "netns", &namespace];
                ip(&[&["link", "add", &link, "type", "veth"][..], &peer].concat())?;
                ip(&["link", "set", &link, "master", bridge, "up"])?;
                ip(&["-n", &namespace, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
                ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
                ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
                Host { address, namespace: Some(namespace), link }
            }
        };
        self.hosts.push(host.clone());
        Ok(host)
    }

    /// Drops every packet from one host to another, and only in this direction.
    pub fn cut(&self, from: &Host, to: &Host) -> Result<(), NetworkError> {
        let rule = ["-w", "-A", "INPUT", "-s", &from.address.to_string(), "-j", "DROP"].map(str::to_owned);
        run(to.command("iptables").args(rule))
    }

    /// Whether this machine's packet filter can lose packets by chance and by their size.
    pub fn can_lose(&self) -> bool {
        let Some(host) = self.hosts.first().filter(|_| self.can_cut()) else { return false };
        let works = |rule: &[String]| {
            let change = |how: &str| run(host.command("iptables").args(["-w", how, "INPUT"]).args(rule));
            change("-A").and_then(|()| change("-D")).is_ok()
        };
        works(&losing(1)) && works(&swallowing(u16::MAX))
    }

    /// Loses so many of a hundred packets to a host.
    pub fn lose(&self, to: &Host, percent: u8) -> Result<(), NetworkError> {
        run(to.command("iptables").args(["-w", "-A", "INPUT"]).args(losing(percent)))
    }

    /// Loses every UDP packet to a host that is larger than `bytes`, headers included, without telling anybody.
    pub fn swallow(&self, to: &Host, bytes: u16) -> Result<(), NetworkError> {
        run(to.command("iptables").args(["-w", "-A", "INPUT"]).args(swallowing(bytes)))
    }

    /// Whether this machine can make a path slow.
    pub fn can_slow(&self) -> bool {
        let Some(host) = self.hosts.first().filter(|_| self.can_cut()) else { return false };
        self.slow(host, 1_000).and_then(|()| self.unslow()).is_ok()
    }

    /// Lets a host send no more than so many megabits a second; what does not fit waits, and then is lost.
    pub fn slow(&self, from: &Host, megabits: u32) -> Result<(), NetworkError> {
        let rate = format!("{megabits}mbit");
        let shaper = ["qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", &rate];
        run(from.command("tc").args(shaper).args(["burst", "64kb", "latency", "300ms"]))?;
        self.slowed.lock().unwrap_or_else(PoisonError::into_inner).push(from.clone());
        Ok(())
    }

    fn unslow(&self) -> Result<(), NetworkError> {
        let mut slowed = std::mem::take(&mut *self.slowed.lock().unwrap_or_else(PoisonError::into_inner));
        slowed.sort_by_key(|host| host.address);
        slowed.dedup();
        let free = |host: &Host| run(host.command("tc").args(["qdisc", "del", "dev", "eth0", "root"]));
        slowed.iter().try_for_each(free)
    }

    /// Whether this machine lets us disturb packets; if not, it is told why.
    pub fn can_disturb(&self) -> bool {
        *self.can_disturb.get_or_init(|| {
            let Some(host) = self.hosts.first().filter(|_| self.can_cut()) else { return false };
            let tried = Element::start(host, Way::To, Disturbance::default(), 0).and_then(Element::finish);
            if let Err(error) = &tried {
                eprintln!("NO DELAYED, REORDERED, DOUBLED OR DAMAGED PACKETS, because {error}");
            }
            tried.is_ok()
        })
    }

    /// Does this to the packets to a host or from it, and what was done to them already goes on.
    pub fn disturb(
        &self,
        host: &Host,
        way: Way,
        disturbance: Disturbance,
        seed: u64,
    ) -> Result<(), NetworkError> {
        let mut elements = self.elements.lock().unwrap_or_else(PoisonError::into_inner);
        match elements.iter().find(|element| element.is_at(host, way)) {
            Some(element) => element.add(disturbance),
            None => elements.push(Element::start(host, way, disturbance, seed)?),
        }
        Ok(())
    }

    /// Takes back every disturbance and tells how many packets it had.
    pub fn calm(&self) -> Result<Vec<Counts>, NetworkError> {
        let elements = std::mem::take(&mut *self.elements.lock().unwrap_or_else(PoisonError::into_inner));
        elements.into_iter().map(Element::finish).collect()
    }

    /// Takes back every cut, loss, slowness and disturbance.
    pub fn heal(&self) -> Result<(), NetworkError> {
        self.calm()?;
        self.unslow()?;
        for host in self.hosts.iter().filter(|host| host.namespace.is_some()) {
            run(host.command("iptables").args(["-w", "-F", "INPUT"]))?;
            ip(&["link", "set", &host.link, "up"])?;
        }
        Ok(())
    }

    /// Takes a host off the network without a word to its peers, as when it loses its power.
    pub fn unplug(&self, host: &Host) -> Result<(), NetworkError> {
        if host.namespace.is_none() {
            return Ok(());
        }
        ip(&["link", "set", &host.link, "down"])
    }
}

impl Host {
    /// A command that runs on this host.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match &self.namespace {
            None => Command::new(program),
            Some(namespace) => {
                // Of all namespaces only that of the network: mounts are shared with everybody.
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}")).arg("--").arg(program);
                command
            }
        }
    }

    /// Does something on a thread that is on this host; sockets that it opens stay there.
    pub fn inside<T: Send>(&self, job: impl FnOnce() -> io::Result<T> + Send) -> Result<T, NetworkError> {
        let enter = || {
            let Some(namespace) = &self.namespace else { return Ok(()) };
            let namespace = File::open(format!("/run/netns/{namespace}"))?;
            Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
        };
        let done = std::thread::scope(|scope| scope.spawn(|| enter().and_then(|()| job())).join());
        let done = done.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        done.map_err(|error| NetworkError(format!("on the host {}: {error}", self.address)))
    }

    /// The same command on this host.
    pub fn on(&self, command: &Command) -> Command {
        let mut inside = self.command(command.get_program());
        inside.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            inside.current_dir(dir);
        }
        inside
    }
}

/// What follows `iptables -A INPUT` to lose packets by chance.
fn losing(percent: u8) -> Vec<String> {
    let probability = format!("{:.2}", f64::from(percent) / 100.0);
    let rule = ["-m", "statistic", "--mode", "random", "--probability", &probability, "-j", "DROP"];
    rule.map(str::to_owned).to_vec()
}

/// The same for UDP packets of more than `bytes`.
fn swallowing(bytes: u16) -> Vec<String> {
    let larger = format!("{}:", bytes.saturating_add(1));
    ["-p", "udp", "-m", "length", "--length", &larger, "-j", "DROP"].map(str::to_owned).to_vec()
}

/// Differs for each process and each network of it, as far as two bytes can.
fn prefix(first: u8, id: u32, count: u8) -> [u8; 3] {
    let mixed = id.wrapping_mul(251).wrapping_add(u32::from(count) * 97);
    // Away from the ranges that machines use by default.
    let [third, second, ..] = mixed.to_le_bytes();
    [first, 64 + second % 128, third]
}

fn ip(args: &[&str]) -> Result<(), NetworkError> {
    run(Command::new("ip").args(args))
}

/// Runs a command that says nothing if it went well.
pub(crate) fn run(command: &mut Command) -> Result<(), NetworkError> {
    let line = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    };
    let line = line();
    match command.output() {
        Err(error) => Err(NetworkError(format!("`{line}` cannot be started: {error}"))),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(NetworkError(format!("`{line}` failed: {why}")))
        }
    }
}
