//! Three storage nodes that keep every partition three times: a leader dies, another leads, the dead one comes back and is in
//! sync again. Nothing that was acknowledged is lost or doubled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_tests::clients::{kafka_tool, kcat, kcat_read};
use cluster_tests::clock::wait_until;
use cluster_tests::load::{Load, check_promises};
use cluster_tests::local_cluster::wait_for_answer;
use cluster_tests::ports::free_port;
use cluster_tests::run_dir::RunDir;
use quic_transport::pki::CertificateAuthority;

use crate::separate_daemons::{Daemon, controller, storage_node, validity};

const NODES: u64 = 3;
pub(crate) const PARTITIONS: u32 = 3;
pub(crate) const IN_FLIGHT: u32 = 200;
pub(crate) const PROGRESS: usize = 200;
/// How long in-sync sets may take to change on a busy machine. (What it should take is a matter of `bench`.)
const ISR_LIMIT: Duration = Duration::from_secs(60);

/// One controller and three storage nodes.
pub(crate) struct Replicated {
    pub(crate) controller: Daemon,
    pub(crate) nodes: BTreeMap<i32, Daemon>,
    ports: BTreeMap<i32, u16>,
    // Dropped after the processes that write into it.
    pub(crate) run_dir: RunDir,
}

/// Leader and in-sync set of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) leader: i32,
    pub(crate) in_sync: BTreeSet<i32>,
}

impl Replicated {
    fn start(test: &str) -> Self {
        let mut cluster = Self::prepare(test);
        cluster.start_all();
        cluster
    }

    /// Certificates and configuration files, nothing running.
    pub(crate) fn prepare(test: &str) -> Self {
        let run_dir = RunDir::new(test);
        let authority = CertificateAuthority::create(test, validity()).expect("the id is well formed");
        let controllers = [(1, free_port())];
        let controller = controller(&run_dir, &authority, 1, controllers[0].1, &controllers);
        let (mut nodes, mut ports) = (BTreeMap::new(), BTreeMap::new());
        for id in 1..=NODES {
            let port = free_port();
            let number = i32::try_from(id).expect("small");
            nodes.insert(number, storage_node(&run_dir, &authority, id, port, &controllers));
            ports.insert(number, port);
        }
        Self { controller, nodes, ports, run_dir }
    }

    /// Starts everything and waits until clients are served.
    pub(crate) fn start_all(&mut self) {
        self.controller.start();
        self.nodes.values_mut().for_each(Daemon::start);
        for (id, node) in &mut self.nodes {
            wait_for_answer(node.process(), self.ports[id]);
        }
    }

    pub(crate) fn bootstrap(&self) -> String {
        let addresses: Vec<_> = self.ports.values().map(|port| format!("127.0.0.1:{port}")).collect();
        addresses.join(",")
    }

    /// What the nodes say of the topic's partitions, in order.
    pub(crate) fn partitions(&self, topic: &str) -> Vec<Shown> {
        let text = kcat(&self.bootstrap(), &["-L", "-J", "-t", topic], b"");
        let json: serde_json::Value = serde_json::from_str(&text).expect("kcat writes JSON");
        let id =
            |value: &serde_json::Value| value.as_i64().and_then(|id| i32::try_from(id).ok()).unwrap_or(-1);
        let shown = |partition: &serde_json::Value| Shown {
            leader: id(&partition["leader"]),
            in_sync: partition["isrs"].as_array().into_iter().flatten().map(|isr| id(&isr["id"])).collect(),
        };
        json["topics"][0]["partitions"].as_array().into_iter().flatten().map(shown).collect()
    }

    /// Waits until every partition has a leader and exactly these nodes in sync.
    pub(crate) fn wait_in_sync(&self, topic: &str, nodes: &BTreeSet<i32>) {
        let mut last = Vec::new();
        let reached = wait_until(ISR_LIMIT, || {
            last = self.partitions(topic);
            let all = last.len() == PARTITIONS as usize
                && last.iter().all(|shown| shown.in_sync == *nodes && nodes.contains(&shown.leader));
            all.then_some(())
        });
        assert!(reached.is_some(), "{nodes:?} should be in sync everywhere: {last:?}");
    }
}

#[test]
fn a_dead_leader_is_replaced_and_catches_up_when_it_is_back() {
    let mut cluster = Replicated::start("replication");
    let bootstrap = cluster.bootstrap();
    let all: BTreeSet<i32> = cluster.nodes.keys().copied().collect();
    let partitions = PARTITIONS.to_string();
    let create = ["--create", "--topic", "kept", "--partitions", &partitions, "--replication-factor", "3"];
    kafka_tool("kafka-topics", &bootstrap, &create, b"");
    cluster.wait_in_sync("kept", &all);
    let load = Load::start(&bootstrap, "kept", PARTITIONS, IN_FLIGHT);
    for partition in 0..2 {
        load.wait_for_progress(load.acknowledged(), PROGRESS);
        let dead = cluster.partitions("kept")[partition].leader;
        cluster.nodes.get_mut(&dead).expect("the leader is one of ours").kill();
        load.wait_for_progress(load.acknowledged(), PROGRESS);
        let left: BTreeSet<i32> = all.iter().copied().filter(|id| *id != dead).collect();
        cluster.wait_in_sync("kept", &left);
        cluster.nodes.get_mut(&dead).expect("it is one of ours").start();
        cluster.wait_in_sync("kept", &all);
    }
    load.wait_for_progress(load.acknowledged(), PROGRESS);
    let answers = load.finish();
    check_promises(&answers, &kcat_read(&bootstrap, "kept"));
}
