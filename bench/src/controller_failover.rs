//! How long metadata stands still when the leader of three controllers is killed (or stopped cleanly): from the signal until
//! a write is accepted again.
//!
//! The write is asked for as nodes do it: of whoever is thought to lead, then of whom that one names, then of the next.

use crate::report::{print_table, spread};
use crate::{Failure, clock};
use cluster_tests::ports::free_port;
use cluster_tests::process::Process;
use cluster_tests::workspace;
use proto_types::controller_api::{
    AllocateProducerIds, ControllerReply, ControllerRequest, MayLack, RegisterNode,
};
use proto_types::error::ControllerError;
use proto_types::ids::{BrokerEpoch, DirectoryId, Incarnation, NodeId};
use proto_types::message_kind::MessageKind;
use quic_transport::pki::{CertificateAuthority, CredentialFiles, Validity};
use quic_transport::{
    Endpoint, EndpointConfig, Identity, NodeKeys, PeerTarget, Role, Router, Transport, TransportMetrics,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

const CLUSTER: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(2);

/// Options of `bench controller-failover`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many leaders are killed, one after the other; each comes back.
    #[arg(long, default_value_t = 50)]
    kills: usize,
    /// Stop them with SIGTERM instead, so that they hand over.
    #[arg(long)]
    clean: bool,
    /// Milliseconds between the return of one and the end of the next.
    #[arg(long, default_value_t = 1_500)]
    pause_ms: u64,
}

struct Controller {
    id: u64,
    address: SocketAddr,
    process: Option<Process>,
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let home = tempfile::tempdir()?;
    let authority = CertificateAuthority::create(CLUSTER, validity())?;
    let mut controllers = prepare(home.path(), &authority)?;
    for controller in &mut controllers {
        controller.start(home.path())?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(measure(args, home.path(), &authority, &mut controllers))
}

async fn measure(
    args: &Args,
    home: &Path,
    authority: &CertificateAuthority,
    controllers: &mut [Controller],
) -> Result<(), Failure> {
    let identity = Identity::new(CLUSTER, Role::StorageNode, 1)?;
    let credentials = authority.issue(&identity, validity())?;
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = EndpointConfig::new(bind, credentials, NodeKeys::random().endpoint("bench"));
    let endpoint = Endpoint::bind(config, Router::empty(), TransportMetrics::unregistered())?;
    let (_, registered) = ask(&endpoint, controllers, 0, &registration()).await?;
    let ControllerReply::Registered { broker_epoch, .. } = registered else {
        return Err(format!("not registered: {registered:?}").into());
    };
    let mut seconds = Vec::new();
    for _ in 0..args.kills {
        let (leader, _) = ask(&endpoint, controllers, 0, &write(broker_epoch)).await?;
        tokio::time::sleep(Duration::from_millis(args.pause_ms)).await;
        let process = controllers[leader].process.take();
        let mut process = process.ok_or("the leader runs")?;
        let begun = clock::now();
        let waiting = if args.clean {
            Some(tokio::task::spawn_blocking(move || process.terminate(PATIENCE)))
        } else {
            process.kill()?;
            None
        };
        ask(&endpoint, controllers, leader + 1, &write(broker_epoch)).await?;
        seconds.push(begun.elapsed().as_secs_f64());
        if let Some(waiting) = waiting {
            waiting.await??;
        }
        controllers[leader].start(home)?;
    }
    let mut sorted = seconds.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() as f64 * share) as usize).min(sorted.len() - 1)];
    let ending = if args.clean { "stopped" } else { "killed" };
    print_table(&[
        vec![
            format!("leader {ending}, {} times", args.kills),
            "seconds until a write is accepted".to_owned(),
        ],
        vec!["median (min-max)".to_owned(), spread(&seconds, 3)],
        vec!["p90".to_owned(), format!("{:.3}", at(0.9))],
        vec!["p99".to_owned(), format!("{:.3}", at(0.99))],
    ]);
    Ok(())
}

/// Asks around until somebody accepts; who that was, and the answer.
async fn ask(
    endpoint: &Endpoint,
    controllers: &[Controller],
    first: usize,
    request: &ControllerRequest,
) -> Result<(usize, ControllerReply), Failure> {
    let (begun, mut at, mut last) = (clock::now(), first % controllers.len(), String::new());
    while begun.elapsed() < PATIENCE {
        let controller = &controllers[at];
        let identity = Identity::new(CLUSTER, Role::Controller, controller.id)?;
        let peer = endpoint.peer(PeerTarget::new(controller.address, identity));
        let following = (at + 1) % controllers.len();
        // Whoever is dead is passed over soon; whoever is there may take its time.
        if controller.process.is_none() || peer.connect(Duration::from_millis(100)).await.is_err() {
            at = following;
            continue;
        }
        let asked = peer.ask(MessageKind::Controller, request, Duration::from_secs(2)).await;
        let answer: Result<ControllerReply, ControllerError> = match asked {
            Ok(answer) => answer,
            Err(error) => {
                last = error.to_string();
                at = following;
                continue;
            }
        };
        match answer {
            Ok(reply) => return Ok((at, reply)),
            Err(ControllerError::NotLeader { leader: Some(leader) }) if leader.0 != controller.id => {
                at = controllers.iter().position(|one| one.id == leader.0).unwrap_or(following);
            }
            Err(error) => {
                last = error.to_string();
                at = following;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("no controller accepts a write: {last}").into())
}

fn registration() -> ControllerRequest {
    ControllerRequest::RegisterNode(RegisterNode {
        cluster_id: CLUSTER.into(),
        node: NodeId(1),
        incarnation: Incarnation(Uuid::from_u128(1)),
        directories: vec![DirectoryId(Uuid::from_u128(2))],
        listeners: vec![],
        control_address: "127.0.0.1:1".into(),
        data_address: "127.0.0.1:2".into(),
        rack: None,
        may_lack: MayLack::Nothing,
    })
}

fn write(broker_epoch: BrokerEpoch) -> ControllerRequest {
    ControllerRequest::AllocateProducerIds(AllocateProducerIds { node: NodeId(1), broker_epoch })
}

fn validity() -> Validity {
    let not_before = SystemTime::UNIX_EPOCH;
    Validity { not_before, not_after: not_before + Duration::from_secs(200 * 365 * 24 * 3600) }
}

fn prepare(home: &Path, authority: &CertificateAuthority) -> Result<Vec<Controller>, Failure> {
    let ports: Vec<(u64, u16)> = (1..=3).map(|id| (id, free_port())).collect();
    let mut controllers = Vec::new();
    for (id, port) in &ports {
        let directory = home.join(id.to_string());
        std::fs::create_dir_all(&directory)?;
        let files = CredentialFiles::in_directory(&directory);
        authority.issue(&Identity::new(CLUSTER, Role::Controller, *id)?, validity())?.store(&files)?;
        let mut config = format!(
            "id = {id}\ncluster_id = {CLUSTER:?}\ndata_dir = {:?}\nlisten = \"127.0.0.1:{port}\"\n",
            directory.join("data")
        );
        for (id, port) in &ports {
            config.push_str(&format!("[[voters]]\nid = {id}\naddress = \"127.0.0.1:{port}\"\n"));
        }
        config.push_str(&format!(
            "[certificates]\ncertificate = {:?}\nkey = {:?}\nauthority = {:?}\n[http]\naddress = \"127.0.0.1:{}\"\n",
            files.certificate,
            files.key,
            files.authority,
            free_port()
        ));
        std::fs::write(directory.join("controller.toml"), config)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        controllers.push(Controller { id: *id, address, process: None });
    }
    Ok(controllers)
}

impl Controller {
    fn start(&mut self, home: &Path) -> Result<(), Failure> {
        let directory = home.join(self.id.to_string());
        let mut command = Command::new(workspace::program("weir-controller"));
        command.arg("--config").arg(directory.join("controller.toml"));
        let name = format!("weir-controller {}", self.id);
        self.process = Some(Process::start(&name, command, &directory.join("log"))?);
        Ok(())
    }
}
