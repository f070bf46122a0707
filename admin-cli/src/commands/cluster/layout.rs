//! Who stands where in a cluster that is described by hosts: ids, ports, and each daemon's configuration file.
//!
//! Daemons of a kind are numbered from 1 in the order in which their hosts were given. A port that was not given is the
//! daemon's usual one; further daemons of the kind on the same host take the next: Kafka's in steps of one, the others in
//! steps of ten. Daemons that come later go on with the ids and ports that are left.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use kafka_wire::HostPort;
use quic_transport::Role;
use serde_json::Value;

/// Daemons of one kind.
const DAEMONS_MAX: usize = 100;
/// Kafka's own name for a listener without encryption or login.
const LISTENER: &str = "PLAINTEXT";

/// A host as it was given, with or without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: Option<u16>,
}

/// Reads `HOST` or `HOST:PORT`.
pub(crate) fn host(text: &str) -> Result<Host, String> {
    let text = text.trim();
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok(Host { name: text.to_owned(), port: None });
    }
    let (name, port) = match text.parse::<HostPort>() {
        Ok(HostPort { port: 0, .. }) => return Err(format!("{text:?}: a port is between 1 and 65535")),
        Ok(HostPort { host, port }) => (host, Some(port)),
        // A host alone is one if it would be one with a port.
        Err(error) => match format!("{text}:1").parse::<HostPort>() {
            Ok(HostPort { host, .. }) => (host, None),
            Err(_) => return Err(error.to_string()),
        },
    };
    if name.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
        return Err(format!("{text:?} is an address to listen on; give the one that others can reach"));
    }
    Ok(Host { name, port })
}

/// What the command line says of the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) controllers: Vec<Host>,
    pub(crate) storage_nodes: Vec<Host>,
    pub(crate) coordinators: Vec<Host>,
    /// The folder above those of the daemons, on the machines where they will run.
    pub(crate) root: PathBuf,
    /// The folder above those of the daemons' data; each daemon's own folder if not given.
    pub(crate) data_root: Option<PathBuf>,
}

/// One daemon with its places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Daemon {
    pub(crate) role: Role,
    pub(crate) id: u64,
    /// Name of its folder.
    pub(crate) name: String,
    /// Where others reach it: a storage node at its client port, the others at their QUIC endpoint.
    pub(crate) address: HostPort,
    /// The QUIC endpoint of a storage node; the same as `address` for the others.
    control: HostPort,
    /// The endpoint over which storage nodes replicate; storage nodes only.
    data: Option<HostPort>,
    http_port: u16,
    /// A controller that is added to a quorum which exists.
    joins: bool,
}

impl Daemon {
    /// The program to start.
    pub(crate) fn program(&self) -> &'static str {
        program(self.role)
    }

    /// The port of its QUIC endpoint.
    pub(crate) fn control_port(&self) -> u16 {
        self.control.port
    }

    /// The port of a storage node's endpoint for replication.
    pub(crate) fn data_port(&self) -> Option<u16> {
        self.data.as_ref().map(|data| data.port)
    }

    /// Gives a storage node another port for replication.
    pub(crate) fn set_data_port(&mut self, port: u16) {
        if let Some(data) = &mut self.data {
            data.port = port;
        }
    }

    /// The port of /metrics, /healthz and /readyz.
    pub(crate) fn http_port(&self) -> u16 {
        self.http_port
    }

    /// Gives it other ports; `client` is a storage node's port for Kafka clients.
    pub(crate) fn set_ports(&mut self, client: Option<u16>, control: u16, http: u16) {
        self.control.port = control;
        self.http_port = http;
        self.address.port = client.unwrap_or(control);
    }

    /// The configuration file in its folder.
    pub(crate) fn file(&self) -> String {
        format!("{}.toml", self.role)
    }
}

/// The program of a kind of daemon.
pub(crate) fn program(role: Role) -> &'static str {
    match role {
        Role::Controller => "weir-controller",
        Role::StorageNode => "weir-storage-node",
        Role::Coordinator => "weir-coordinator",
        Role::Admin => unreachable!("a layout holds daemons only"),
    }
}

/// Gives ids and ports. The error is a sentence.
pub(crate) fn lay_out(description: &Description) -> Result<Vec<Daemon>, String> {
    if !matches!(description.controllers.len(), 1 | 3 | 5) {
        return Err(format!(
            "{} controllers: a quorum has 1, 3 or 5, so that a majority of them decides",
            description.controllers.len()
        ));
    }
    place(description, &[])
}

/// Gives ids and ports to daemons that are added to `existing` ones.
pub(crate) fn lay_out_more(description: &Description, existing: &[Daemon]) -> Result<Vec<Daemon>, String> {
    let mut added = place(description, existing)?;
    added.iter_mut().for_each(|daemon| daemon.joins = daemon.role == Role::Controller);
    Ok(added)
}

fn place(description: &Description, existing: &[Daemon]) -> Result<Vec<Daemon>, String> {
    let mut taken = Taken::of(existing);
    let mut daemons = Vec::new();
    for (role, hosts) in [
        (Role::Controller, &description.controllers),
        (Role::StorageNode, &description.storage_nodes),
        (Role::Coordinator, &description.coordinators),
    ] {
        if hosts.len() > DAEMONS_MAX {
            return Err(format!("{} daemons of one kind; {DAEMONS_MAX} can be described", hosts.len()));
        }
        let of_role = existing.iter().filter(|daemon| daemon.role == role);
        let first = of_role.map(|daemon| daemon.id).max().unwrap_or(0) + 1;
        for (id, host) in (first..).zip(hosts) {
            let (control, http) = usual_ports(role);
            let (address, control) = if role == Role::StorageNode {
                let address = taken.take(Wire::Tcp, host, 9092, 1)?;
                (address, taken.take(Wire::Udp, &Host { port: None, ..host.clone() }, control, 10)?)
            } else {
                let address = taken.take(Wire::Udp, host, control, 10)?;
                (address.clone(), address)
            };
            let any_port = Host { port: None, ..host.clone() };
            let data = match role {
                Role::StorageNode => Some(taken.take(Wire::Udp, &any_port, DATA_PORT, 10)?),
                Role::Controller | Role::Coordinator | Role::Admin => None,
            };
            let http = taken.take(Wire::Tcp, &any_port, http, 10)?;
            let name = format!("{role}-{id}");
            daemons.push(Daemon {
                role,
                id,
                name,
                address,
                control,
                data,
                http_port: http.port,
                joins: false,
            });
        }
    }
    Ok(daemons)
}

/// The usual port for replication between storage nodes.
const DATA_PORT: u16 = 9192;

/// The usual ports of QUIC and of HTTP.
fn usual_ports(role: Role) -> (u16, u16) {
    match role {
        Role::StorageNode => (9182, 9292),
        Role::Controller => (9183, 9293),
        Role::Coordinator => (9184, 9294),
        Role::Admin => unreachable!("a layout holds daemons only"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wire {
    Tcp,
    Udp,
}

/// Ports that are given away, by host.
#[derive(Debug, Default)]
struct Taken(BTreeSet<(Wire, String, u16)>);

impl Taken {
    /// The ports of daemons that are there.
    fn of(existing: &[Daemon]) -> Self {
        let mut taken = BTreeSet::new();
        for daemon in existing {
            let host = || daemon.address.host.clone();
            taken.insert((Wire::Tcp, host(), daemon.http_port));
            taken.insert((Wire::Udp, daemon.control.host.clone(), daemon.control.port));
            if daemon.role == Role::StorageNode {
                taken.insert((Wire::Tcp, host(), daemon.address.port));
            }
            taken.extend(daemon.data.iter().map(|data| (Wire::Udp, data.host.clone(), data.port)));
        }
        Self(taken)
    }

    fn take(&mut self, wire: Wire, host: &Host, usual: u16, step: u16) -> Result<HostPort, String> {
        let mut insert = |port| self.0.insert((wire, host.name.clone(), port));
        let port = match host.port {
            Some(port) if insert(port) => Some(port),
            Some(port) => return Err(format!("port {port} of {} is given twice", host.name)),
            None => (0..).map_while(|n| usual.checked_add(step.checked_mul(n)?)).find(|port| insert(*port)),
        };
        let port = port.ok_or_else(|| format!("too many daemons on {}", host.name))?;
        Ok(HostPort::new(host.name.clone(), port))
    }
}

/// The text of a daemon's configuration file.
pub(crate) fn config_text(
    daemon: &Daemon,
    daemons: &[Daemon],
    cluster_id: &str,
    description: &Description,
) -> String {
    let folder = description.root.join(&daemon.name);
    let data = match &description.data_root {
        Some(root) => root.join(&daemon.name),
        None => folder.join("data"),
    };
    let bind = bind(&daemon.control);
    let mut text = format!(
        "# {} {} of the cluster {cluster_id}. `{} --print-config` shows every setting.\n\ncluster_id = {}\n",
        daemon.role,
        daemon.id,
        daemon.program(),
        quoted(cluster_id),
    );
    match daemon.role {
        Role::Controller => {
            text.push_str(&format!(
                "id = {}\ndata_dir = {}\nlisten = {}\n",
                daemon.id,
                path(&data),
                quoted(&bind)
            ));
            if daemon.joins {
                text.push_str("# It waits for its vote: `weir controller add` gives it.\njoin = true\n");
            }
            text.push_str(&controllers("voters", daemons));
        }
        Role::StorageNode => text.push_str(&storage_node_text(daemon, daemons, &data)),
        Role::Coordinator => {
            text.push_str(&format!(
                "id = {}\nlisten = {}\nadvertised = {}\nkeys_file = {}\n",
                daemon.id,
                quoted(&bind),
                quoted(&daemon.control.to_string()),
                path(&folder.join("transport.keys")),
            ));
            text.push_str(&controllers("controllers", daemons));
        }
        Role::Admin => unreachable!("a layout holds daemons only"),
    }
    let files = quic_transport::pki::CredentialFiles::in_directory(&folder);
    text.push_str(&format!(
        "\n[certificates]\ncertificate = {}\nkey = {}\nauthority = {}\n\n\
         # /metrics, /healthz and /readyz\n[http]\naddress = \"127.0.0.1:{}\"\n",
        path(&files.certificate),
        path(&files.key),
        path(&files.authority),
        daemon.http_port,
    ));
    text
}

/// What only a storage node has in its file.
fn storage_node_text(daemon: &Daemon, daemons: &[Daemon], data: &Path) -> String {
    let mut text =
        format!("node_id = {}\n# One directory for each disk.\ndata_dirs = [{}]\n", daemon.id, path(data));
    text.push_str(&controllers("controllers", daemons));
    text.push_str(&format!(
        "\n# Where Kafka clients connect, and the address that they are told.\n[[listeners]]\n\
         name = \"{LISTENER}\"\nbind = {}\nadvertised = {}\n\n\
         [control]\nbind = {}\nadvertised = {}\n",
        quoted(&bind(&daemon.address)),
        quoted(&daemon.address.to_string()),
        quoted(&bind(&daemon.control)),
        quoted(&daemon.control.to_string()),
    ));
    if let Some(data) = &daemon.data {
        text.push_str(&format!(
            "\n# Where other storage nodes replicate.\n[data]\nbind = {}\nadvertised = {}\n",
            quoted(&bind(data)),
            quoted(&data.to_string()),
        ));
    }
    text
}

/// Reads a daemon back from the configuration file that [`config_text`] wrote into its folder.
pub(crate) fn read_back(role: Role, id: u64, file: &Path) -> Result<Daemon, String> {
    let failed = |what: String| format!("{}: {what}", file.display());
    let address = |text: Option<&str>| -> Result<HostPort, String> {
        let text = text.ok_or_else(|| failed("an advertised address is missing".to_owned()))?;
        text.parse().map_err(|error| failed(format!("{error}")))
    };
    let (address, control, data, http_port) = match role {
        Role::Controller => {
            let config = controller::Config::load(Some(file)).map_err(|error| failed(error.to_string()))?;
            let own = config.voters.iter().find(|voter| voter.id == id);
            let own = address(own.map(|voter| voter.address.as_str()))?;
            (own.clone(), own, None, config.http.address.port())
        }
        Role::StorageNode => {
            let config = storage_node::config::Config::load(Some(file), &[])
                .map_err(|error| failed(error.to_string()))?;
            let client = config.listeners.first().and_then(|listener| listener.advertised.as_deref());
            let data = address(config.data.advertised.as_deref())?;
            let control = address(config.control.advertised.as_deref())?;
            (address(client)?, control, Some(data), config.http.address.port())
        }
        Role::Coordinator => {
            let config = coordinator::Config::load(Some(file)).map_err(|error| failed(error.to_string()))?;
            let own = address(config.advertised.as_deref())?;
            (own.clone(), own, None, config.http.address.port())
        }
        Role::Admin => unreachable!("a layout holds daemons only"),
    };
    let name = format!("{role}-{id}");
    Ok(Daemon { role, id, name, address, control, data, http_port, joins: false })
}

fn controllers(table: &str, daemons: &[Daemon]) -> String {
    let controllers = daemons.iter().filter(|daemon| daemon.role == Role::Controller);
    controllers
        .map(|daemon| {
            let address = quoted(&daemon.address.to_string());
            format!("\n[[{table}]]\nid = {}\naddress = {address}\n", daemon.id)
        })
        .collect()
}

/// The address to listen on: the host itself if it is an address, else all of them.
fn bind(address: &HostPort) -> String {
    let ip = address.host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    SocketAddr::new(ip, address.port).to_string()
}

/// A string of TOML: JSON's form is one, without control characters.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Whether the path can be written into a configuration file.
pub(crate) fn writable_in_config(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &[&str]) -> Vec<Host> {
        list.iter().map(|text| host(text).unwrap()).collect()
    }

    fn described(controllers: &[&str], nodes: &[&str], coordinators: &[&str]) -> Description {
        Description {
            controllers: hosts(controllers),
            storage_nodes: hosts(nodes),
            coordinators: hosts(coordinators),
            root: PathBuf::from("/etc/we ir\"x"),
            data_root: None,
        }
    }

    #[test]
    fn hosts_are_names_or_addresses_with_or_without_port() {
        let read = |text: &str| host(text).map(|host| (host.name, host.port));
        assert_eq!(read("a.example"), Ok(("a.example".to_owned(), None)));
        assert_eq!(read("10.0.0.1:7"), Ok(("10.0.0.1".to_owned(), Some(7))));
        assert_eq!(read("::1"), Ok(("::1".to_owned(), None)));
        assert_eq!(read("[::1]"), Ok(("::1".to_owned(), None)));
        assert_eq!(read("[::1]:7"), Ok(("::1".to_owned(), Some(7))));
        for wrong in ["", ":1", "a:0", "a b", "a:x", "0.0.0.0", "[::]:1"] {
            assert!(host(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn daemons_on_one_host_get_ports_of_their_own() {
        let local = ["127.0.0.1"; 3];
        let daemons = lay_out(&described(&local, &local, &local)).unwrap();
        let ports: Vec<_> = daemons
            .iter()
            .map(|daemon| (daemon.address.port, daemon.control.port, daemon.http_port))
            .collect();
        assert_eq!(ports[..3], [(9183, 9183, 9293), (9193, 9193, 9303), (9203, 9203, 9313)]);
        assert_eq!(ports[3..6], [(9092, 9182, 9292), (9093, 9202, 9302), (9094, 9222, 9312)]);
        let data: Vec<_> = daemons.iter().filter_map(Daemon::data_port).collect();
        assert_eq!(data, [9192, 9212, 9232]);
        assert_eq!(ports[6..], [(9184, 9184, 9294), (9194, 9194, 9304), (9204, 9204, 9314)]);
        let apart = lay_out(&described(&["a"], &["b", "c"], &["a"])).unwrap();
        assert!(apart[1..3].iter().all(|node| node.address.port == 9092 && node.http_port == 9292));
        assert_eq!(apart[2].name, "storage-node-2");
    }

    #[test]
    fn daemons_that_come_later_take_what_is_left() {
        let description = described(&["127.0.0.1"], &["127.0.0.1", "b"], &["127.0.0.1"]);
        let first = lay_out(&description).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let read: Vec<Daemon> = first
            .iter()
            .map(|daemon| {
                let file = folder.path().join(daemon.file());
                std::fs::write(&file, config_text(daemon, &first, "cl", &description)).unwrap();
                read_back(daemon.role, daemon.id, &file).unwrap()
            })
            .collect();
        assert_eq!(read, first, "what was written is read back");
        let more = described(&["127.0.0.1"], &["127.0.0.1"], &[]);
        let added = lay_out_more(&more, &read).unwrap();
        let [controller, node] = &added[..] else { panic!("{added:?}") };
        assert_eq!((controller.name.as_str(), node.name.as_str()), ("controller-2", "storage-node-3"));
        assert_eq!((controller.address.port, node.address.port, node.data_port()), (9193, 9093, Some(9212)));
        let all = [&read[..], std::slice::from_ref(controller)].concat();
        let file = folder.path().join("joins.toml");
        std::fs::write(&file, config_text(controller, &all, "cl", &more)).unwrap();
        let config = controller::Config::load(Some(&file)).unwrap();
        assert_eq!((config.join, config.voters.len(), config.validate()), (true, 2, Ok(())));
    }

    #[test]
    fn what_cannot_be_a_cluster_is_refused_with_a_sentence() {
        let refused = |controllers: &[&str], nodes: &[&str]| {
            lay_out(&described(controllers, nodes, &["a"])).unwrap_err()
        };
        assert!(refused(&["a", "b"], &["a"]).contains("1, 3 or 5"));
        assert_eq!(refused(&["a:1", "a:1", "b"], &["a"]), "port 1 of a is given twice");
        assert!(refused(&["a"], &["b"; 101]).contains("101 daemons"));
    }

    #[test]
    fn each_daemon_takes_its_file() {
        let description = described(&["c1", "::1", "10.0.0.3"], &["n1.example", "127.0.0.1"], &["g"]);
        let daemons = lay_out(&description).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (mut controllers, mut nodes, mut coordinators) = (Vec::new(), Vec::new(), Vec::new());
        for daemon in &daemons {
            let text = config_text(daemon, &daemons, "cl", &description);
            let file = folder.path().join("config.toml");
            std::fs::write(&file, &text).unwrap();
            match daemon.role {
                Role::Controller => {
                    let config =
                        controller::Config::load(Some(&file)).unwrap_or_else(|e| panic!("{e}\n{text}"));
                    assert_eq!(config.validate(), Ok(()), "{text}");
                    controllers.push(config);
                }
                Role::StorageNode => nodes.push(
                    storage_node::config::Config::load(Some(&file), &[])
                        .unwrap_or_else(|e| panic!("{e}\n{text}")),
                ),
                Role::Coordinator => {
                    let config =
                        coordinator::Config::load(Some(&file)).unwrap_or_else(|e| panic!("{e}\n{text}"));
                    assert_eq!(config.validate(), Ok(()), "{text}");
                    coordinators.push(config);
                }
                Role::Admin => unreachable!(),
            }
        }
        assert_eq!(controllers[0].listen.to_string(), "0.0.0.0:9183");
        assert_eq!(controllers[1].listen.to_string(), "[::1]:9183");
        assert_eq!(controllers[2].voters[1].address, "[::1]:9183");
        assert_eq!(controllers[0].data_dir, Path::new("/etc/we ir\"x/controller-1/data"));
        assert_eq!((nodes[0].node_id, nodes[1].node_id), (1, 2));
        assert_eq!(nodes[0].listeners[0].advertised.as_deref(), Some("n1.example:9092"));
        assert_eq!(nodes[0].listeners[0].bind.to_string(), "0.0.0.0:9092");
        assert_eq!(nodes[1].control.bind.to_string(), "127.0.0.1:9182");
        assert_eq!(nodes[1].data.bind.to_string(), "127.0.0.1:9192");
        assert_eq!(nodes[0].data.advertised.as_deref(), Some("n1.example:9192"));
        assert_eq!(nodes[1].controllers.len(), 3);
        assert_eq!(coordinators[0].advertised.as_deref(), Some("g:9184"));
    }
}
