//! A cluster of separate processes: one or three `weir-controller`, one `weir-storage-node`, any number of
//! `weir-coordinator`, with certificates of its own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use cluster_tests::local_cluster::wait_for_answer;
use cluster_tests::ports::free_port;
use cluster_tests::process::Process;
use cluster_tests::run_dir::RunDir;
use cluster_tests::workspace;
use quic_transport::pki::{CertificateAuthority, CredentialFiles, Validity};
use quic_transport::{Identity, Role};
use rustix::process::Signal;

use crate::daemons::get;

const STOP_LIMIT: Duration = Duration::from_secs(60);

/// One daemon: how to start it, and the running process.
pub(crate) struct Daemon {
    program: &'static str,
    config: PathBuf,
    log: PathBuf,
    /// Where `/metrics`, `/healthz` and `/readyz` are.
    pub(crate) http_port: u16,
    environment: Vec<(String, String)>,
    process: Option<Process>,
}

impl Daemon {
    /// Sets variables of the environment, for the next start.
    pub(crate) fn set_environment<'a>(&mut self, variables: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let owned = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.environment.extend(owned);
    }

    /// Adds tables to the configuration file, for the next start.
    pub(crate) fn configure(&mut self, tables: &str) {
        let mut config = fs::read_to_string(&self.config).expect("the file was written");
        config.push_str(tables);
        fs::write(&self.config, config).expect("the run folder can be written");
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(workspace::program(self.program));
        command.arg("--config").arg(&self.config);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.process =
            Some(Process::start(self.program, command, &self.log).expect("the program can be started"));
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it was started")
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process().kill().expect("the process can be killed");
    }

    /// Any other signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it was started");
        process.signal(signal).expect("the process takes signals");
    }

    /// The value of a metric without labels, or with those that `name` ends with, as `/metrics` tells it now; the process
    /// must not stand still.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let (_, metrics) = get(self.http_port, "/metrics")?;
        metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// SIGTERM; the daemon must end well.
    pub(crate) fn stop(&mut self) {
        let process = self.process();
        let status =
            process.terminate(STOP_LIMIT).unwrap_or_else(|error| panic!("{error}\n{}", process.output()));
        assert!(status.success(), "{} ended with {status}:\n{}", process.name(), process.output());
    }
}

pub(crate) struct Daemons {
    pub(crate) controllers: Vec<Daemon>,
    pub(crate) node: Daemon,
    pub(crate) coordinators: Vec<Daemon>,
    kafka_port: u16,
    // Dropped after the processes that write into it.
    pub(crate) run_dir: RunDir,
}

impl Daemons {
    /// Starts the cluster and waits until clients are served.
    pub(crate) fn start(test: &str, controllers: u64) -> Daemons {
        let mut cluster = Daemons::prepare(test, controllers);
        for controller in &mut cluster.controllers {
            controller.start();
        }
        cluster.node.start();
        cluster.wait_ready();
        cluster
    }

    /// Certificates and configuration files, nothing running.
    pub(crate) fn prepare(test: &str, controllers: u64) -> Daemons {
        let run_dir = RunDir::new(test);
        let authority = CertificateAuthority::create(test, validity()).expect("the id is well formed");
        let ports: Vec<(u64, u16)> = (1..=controllers).map(|id| (id, free_port())).collect();
        let daemons =
            ports.iter().map(|(id, port)| controller(&run_dir, &authority, *id, *port, &ports)).collect();
        let kafka_port = free_port();
        let node = storage_node(&run_dir, &authority, 1, kafka_port, &ports);
        Daemons { controllers: daemons, node, coordinators: Vec::new(), kafka_port, run_dir }
    }

    /// The same with one controller and running coordinators.
    pub(crate) fn start_with_coordinators(test: &str, coordinators: u64) -> Daemons {
        let run_dir = RunDir::new(test);
        let authority = CertificateAuthority::create(test, validity()).expect("the id is well formed");
        let ports = [(1, free_port())];
        let controller = controller(&run_dir, &authority, 1, ports[0].1, &ports);
        let kafka_port = free_port();
        let node = storage_node(&run_dir, &authority, 1, kafka_port, &ports);
        let coordinators =
            (1..=coordinators).map(|id| coordinator(&run_dir, &authority, id, &ports)).collect();
        let mut cluster = Daemons { controllers: vec![controller], node, coordinators, kafka_port, run_dir };
        cluster.controllers[0].start();
        cluster.node.start();
        cluster.coordinators.iter_mut().for_each(Daemon::start);
        cluster.wait_ready();
        cluster
    }

    pub(crate) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.kafka_port)
    }

    /// Where the node keeps its data.
    pub(crate) fn node_data(&self) -> PathBuf {
        self.run_dir.join("storage-node-1/data")
    }

    pub(crate) fn wait_ready(&mut self) {
        wait_for_answer(self.node.process(), self.kafka_port);
    }
}

/// Long enough to need no clock.
pub(crate) fn validity() -> Validity {
    let two_centuries = Duration::from_secs(200 * 365 * 24 * 3600);
    Validity { not_before: SystemTime::UNIX_EPOCH, not_after: SystemTime::UNIX_EPOCH + two_centuries }
}

fn issue(run_dir: &RunDir, authority: &CertificateAuthority, role: Role, id: u64) -> CredentialFiles {
    let identity = Identity::new(authority.cluster_id(), role, id).expect("the id is well formed");
    let dir = run_dir.join(&format!("{role}-{id}"));
    fs::create_dir_all(&dir).expect("the run folder can be written");
    let files = CredentialFiles::in_directory(&dir);
    let credentials = authority.issue(&identity, validity()).expect("same cluster");
    credentials.store(&files).expect("the run folder can be written");
    files
}

pub(crate) fn controller(
    run_dir: &RunDir,
    authority: &CertificateAuthority,
    id: u64,
    port: u16,
    ports: &[(u64, u16)],
) -> Daemon {
    let files = issue(run_dir, authority, Role::Controller, id);
    let http_port = free_port();
    let mut config = format!(
        "id = {id}\ncluster_id = {:?}\ndata_dir = {:?}\nlisten = \"127.0.0.1:{port}\"\n",
        authority.cluster_id(),
        run_dir.join(&format!("controller-{id}/data")),
    );
    for (id, port) in ports {
        config.push_str(&format!("[[voters]]\nid = {id}\naddress = \"127.0.0.1:{port}\"\n"));
    }
    config.push_str(&format!(
        "[certificates]\ncertificate = {:?}\nkey = {:?}\nauthority = {:?}\n[http]\naddress = \"127.0.0.1:{http_port}\"\n",
        files.certificate, files.key, files.authority,
    ));
    daemon(run_dir, "weir-controller", &format!("controller-{id}"), &config, http_port)
}

pub(crate) fn storage_node(
    run_dir: &RunDir,
    authority: &CertificateAuthority,
    id: u64,
    kafka_port: u16,
    controllers: &[(u64, u16)],
) -> Daemon {
    let files = issue(run_dir, authority, Role::StorageNode, id);
    let (http_port, control_port, data_port) = (free_port(), free_port(), free_port());
    let mut config = format!(
        "cluster_id = {:?}\nnode_id = {id}\ndata_dirs = [{:?}]\n",
        authority.cluster_id(),
        run_dir.join(&format!("storage-node-{id}/data")),
    );
    for (id, port) in controllers {
        config.push_str(&format!("[[controllers]]\nid = {id}\naddress = \"127.0.0.1:{port}\"\n"));
    }
    config.push_str(&format!(
        "[[listeners]]\nname = \"clients\"\nbind = \"127.0.0.1:{kafka_port}\"\n\
         [control]\nbind = \"127.0.0.1:{control_port}\"\n[data]\nbind = \"127.0.0.1:{data_port}\"\n\
         [certificates]\nauthority = {:?}\ncertificate = {:?}\nkey = {:?}\n[http]\naddress = \"127.0.0.1:{http_port}\"\n",
        files.authority, files.certificate, files.key,
    ));
    daemon(run_dir, "weir-storage-node", &format!("storage-node-{id}"), &config, http_port)
}

fn coordinator(
    run_dir: &RunDir,
    authority: &CertificateAuthority,
    id: u64,
    controllers: &[(u64, u16)],
) -> Daemon {
    let files = issue(run_dir, authority, Role::Coordinator, id);
    let (http_port, port) = (free_port(), free_port());
    let mut config = format!(
        "id = {id}\ncluster_id = {:?}\nlisten = \"127.0.0.1:{port}\"\nkeys_file = {:?}\n",
        authority.cluster_id(),
        run_dir.join(&format!("coordinator-{id}/transport.keys")),
    );
    for (id, port) in controllers {
        config.push_str(&format!("[[controllers]]\nid = {id}\naddress = \"127.0.0.1:{port}\"\n"));
    }
    config.push_str(&format!(
        "[groups]\ngroup_initial_rebalance_delay_ms = 0\n\
         [certificates]\ncertificate = {:?}\nkey = {:?}\nauthority = {:?}\n[http]\naddress = \"127.0.0.1:{http_port}\"\n",
        files.certificate, files.key, files.authority,
    ));
    daemon(run_dir, "weir-coordinator", &format!("coordinator-{id}"), &config, http_port)
}

fn daemon(run_dir: &RunDir, program: &'static str, name: &str, config: &str, http_port: u16) -> Daemon {
    let path = run_dir.join(&format!("{name}.toml"));
    fs::write(&path, config).expect("the run folder can be written");
    let log = run_dir.join(&format!("{name}.log"));
    Daemon { program, config: path, log, http_port, environment: Vec::new(), process: None }
}
