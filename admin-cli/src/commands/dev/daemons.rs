//! Starts and stops the daemons of `weir dev` in one process.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use controller::{ControllerHandle, Voter};
use coordinator::CoordinatorHandle;
use storage_node::NodeHandle;
use storage_node::config::{Certificates, ControllerAddress, Http, Listener};
use telemetry::{HttpConfig, HttpServer, Registry};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::data_directory::{CONTROLLER_ID, COORDINATOR_ID, DataDirectory, NODE_ID};
use super::{DevArgs, KAFKA_PORT};
use crate::failure::Failure;

/// The storage node's HTTP port, unless it is taken.
const HTTP_PORT: u16 = 9292;
/// A quorum of one has its leader within milliseconds, unless the disk is very slow.
const CONTROLLER_READY_MAX: Duration = Duration::from_secs(30);
/// Requests of probes in progress at a stop.
const HTTP_GRACE: Duration = Duration::from_millis(200);

/// Where the cluster can be reached.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    pub(super) kafka: Vec<SocketAddr>,
    pub(super) http: Vec<SocketAddr>,
}

/// The running daemons.
pub(super) struct Daemons {
    pub(super) addresses: Addresses,
    node: NodeHandle,
    coordinator: CoordinatorHandle,
    coordinator_http: HttpServer,
    controller: ControllerHandle,
    controller_http: HttpServer,
    /// The controller's own.
    controller_runtime: OwnRuntime,
}

/// A runtime that may be dropped by a task of another one: a second signal drops everything where it stands.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.as_ref().expect("it is taken only by drop").spawn(future)
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Daemons {
    /// Starts controller, coordinator and storage node and waits until clients are served.
    pub(super) async fn start(data: &DataDirectory, args: &DevArgs) -> Result<Self, Failure> {
        let [node_http, controller_http, coordinator_http] = http_addresses(args.http_port)?;
        let listeners = kafka_listeners(args.kafka_port.unwrap_or(KAFKA_PORT))?;
        let controller_runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("weir-controller")
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("cannot start threads: {error}")))?;
        let controller_runtime = OwnRuntime(Some(controller_runtime));
        let config = controller_config(data, controller_http);
        let credentials = data.controller_credentials()?;
        let starting = controller_runtime.spawn(async move {
            let mut registry = Registry::default();
            let controller = controller::start(config, credentials, &mut registry)
                .await
                .map_err(|error| Failure::failed(format!("the controller cannot start: {error}")))?;
            let http = HttpServer::bind(HttpConfig::at(controller_http), registry, controller.readiness())
                .await
                .map_err(|error| Failure::failed(error.to_string()))?;
            if !controller.ready(CONTROLLER_READY_MAX).await {
                let seconds = CONTROLLER_READY_MAX.as_secs();
                return Err(Failure::failed(format!("the controller is not ready after {seconds} s")));
            }
            Ok((controller, http))
        });
        let started = starting.await.map_err(|error| Failure::failed(error.to_string()))?;
        let (controller, controller_http) = started?;
        let config = node_config(data, args, controller.address(), listeners, node_http);
        // The door opens last: whoever comes through it finds everything running.
        let address = controller.address();
        let (coordinator, coordinator_http) =
            match start_coordinator(data, args, address, coordinator_http).await {
                Ok(started) => started,
                Err(failure) => {
                    stop_controller(controller_runtime, controller, controller_http).await;
                    return Err(failure);
                }
            };
        let node = match start_node(config).await {
            Ok(node) => node,
            Err(failure) => {
                coordinator.shutdown().await;
                coordinator_http.shutdown(HTTP_GRACE).await;
                stop_controller(controller_runtime, controller, controller_http).await;
                return Err(failure);
            }
        };
        let others = [controller_http.local_addr(), coordinator_http.local_addr()];
        let http = node.http_address().into_iter().chain(others).collect();
        let kafka = node.kafka_addresses().iter().map(|address| address.bound).collect();
        Ok(Self {
            addresses: Addresses { kafka, http },
            node,
            coordinator,
            coordinator_http,
            controller,
            controller_http,
            controller_runtime,
        })
    }

    /// Completes when a daemon cannot go on.
    pub(super) async fn failed(&self) -> Failure {
        tokio::select! {
            failure = self.node.failed() => {
                Failure::failed(format!("the storage node cannot go on: {failure}"))
            }
            failure = self.coordinator.failed() => {
                Failure::failed(format!("the coordinator cannot go on: {failure}"))
            }
            reason = self.controller.failed() => {
                Failure::failed(format!("the controller cannot go on: {reason}"))
            }
        }
    }

    /// Stops the daemons, the controller last: the others still have something to tell it.
    pub(super) async fn shutdown(self) {
        // Parked requests of groups end with the door.
        self.node.shutdown().await;
        self.coordinator.shutdown().await;
        self.coordinator_http.shutdown(HTTP_GRACE).await;
        stop_controller(self.controller_runtime, self.controller, self.controller_http).await;
    }
}

async fn start_node(config: storage_node::Config) -> Result<NodeHandle, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::failed(format!("the storage node cannot start: {error}"));
    let node = storage_node::start(config).await.map_err(|error| failed(&error))?;
    let ready = node.ready().await;
    match ready {
        Ok(()) => Ok(node),
        Err(failure) => {
            node.shutdown().await;
            Err(failed(&failure))
        }
    }
}

async fn start_coordinator(
    data: &DataDirectory,
    args: &DevArgs,
    controller: SocketAddr,
    http: SocketAddr,
) -> Result<(CoordinatorHandle, HttpServer), Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::failed(format!("the coordinator cannot start: {error}"));
    let mut registry = Registry::default();
    let config = coordinator_config(data, args, controller, http)?;
    let coordinator = coordinator::start(config, data.coordinator_credentials()?, &mut registry)
        .map_err(|error| failed(&error))?;
    let served = HttpServer::bind(HttpConfig::at(http), registry, coordinator.readiness()).await;
    let ready = coordinator.ready().await;
    let failure = match (served, ready) {
        (Ok(http), Ok(())) => return Ok((coordinator, http)),
        (Ok(http), Err(failure)) => {
            http.shutdown(HTTP_GRACE).await;
            failed(&failure)
        }
        (Err(error), _) => failed(&error),
    };
    coordinator.shutdown().await;
    Err(failure)
}

async fn stop_controller(runtime: OwnRuntime, controller: ControllerHandle, http: HttpServer) {
    let stopped = runtime.spawn(async move {
        controller.shutdown().await;
        http.shutdown(HTTP_GRACE).await;
    });
    if let Err(error) = stopped.await {
        tracing::error!(%error, "stop the controller");
    }
}

/// Addresses for the HTTP endpoints of storage node, controller and coordinator, in this order.
fn http_addresses(port: Option<u16>) -> Result<[SocketAddr; 3], Failure> {
    let loopback = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let from = |port: u16| [port, port + 1, port + 2].map(loopback);
    match port {
        Some(0) => Ok([0; 3].map(loopback)),
        Some(port) if port <= u16::MAX - 2 => Ok(from(port)),
        Some(_) => Err(Failure::usage(
            "--http-port must be at most 65533: controller and coordinator take the next two",
        )),
        None => {
            let standard = from(HTTP_PORT);
            Ok(if standard.into_iter().all(is_free) { standard } else { [0; 3].map(loopback) })
        }
    }
}

fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

/// One listener for each family of addresses that this machine has: names like `localhost` mean either.
fn kafka_listeners(port: u16) -> Result<Vec<Listener>, Failure> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let listener = |name: &str, bind| Listener { name: name.to_owned(), bind, advertised: None };
    if port != 0 && !is_free(v4) {
        return Err(Failure::failed(format!("{v4} is taken by another process"))
            .hint("stop it (another `weir dev`, or Apache Kafka?), or give another port by --kafka-port"));
    }
    let mut listeners = vec![listener("PLAINTEXT", v4)];
    let has_v6 = is_free(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)));
    if has_v6 {
        if port != 0 && !is_free(v6) {
            return Err(Failure::failed(format!("{v6} is taken by another process"))
                .hint("stop it, or give another port by --kafka-port"));
        }
        listeners.push(listener("PLAINTEXT_V6", v6));
    }
    Ok(listeners)
}

fn controller_config(data: &DataDirectory, http: SocketAddr) -> controller::Config {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = controller::Config {
        id: CONTROLLER_ID,
        cluster_id: data.cluster_id.clone(),
        data_dir: data.controller(),
        listen,
        // Nobody else votes, so nobody dials this address.
        voters: vec![Voter { id: CONTROLLER_ID, address: listen.to_string() }],
        ..controller::Config::default()
    };
    config.http.address = http;
    config
}

fn node_config(
    data: &DataDirectory,
    args: &DevArgs,
    controller: SocketAddr,
    listeners: Vec<Listener>,
    http: SocketAddr,
) -> storage_node::Config {
    let files = data.storage_node_files();
    let mut config = storage_node::Config {
        cluster_id: data.cluster_id.clone(),
        node_id: NODE_ID,
        data_dirs: vec![data.storage_node()],
        controllers: vec![ControllerAddress { id: CONTROLLER_ID, address: controller.to_string() }],
        listeners,
        certificates: Certificates {
            authority: files.authority,
            certificate: files.certificate,
            key: files.key,
        },
        http: Http { enabled: true, address: http },
        ..storage_node::Config::default()
    };
    config.control.bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    config.data.bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let auto_create = (!args.no_auto_create).to_string();
    config.kafka.insert("auto.create.topics.enable".to_owned(), auto_create);
    config.kafka.extend(args.configs.iter().cloned());
    config
}

fn coordinator_config(
    data: &DataDirectory,
    args: &DevArgs,
    controller: SocketAddr,
    http: SocketAddr,
) -> Result<coordinator::Config, Failure> {
    let mut config = coordinator::Config {
        id: COORDINATOR_ID,
        cluster_id: data.cluster_id.clone(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        controllers: vec![coordinator::ControllerAddress {
            id: CONTROLLER_ID,
            address: controller.to_string(),
        }],
        keys_file: data.coordinator()?.join("transport.keys"),
        ..coordinator::Config::default()
    };
    // As in the configuration that Kafka ships for trying it out: nobody waits for members that will not come.
    config.groups.group_initial_rebalance_delay_ms = 0;
    for (name, value) in &args.configs {
        config
            .groups
            .set(name, value)
            .map_err(|fault| Failure::usage(format!("--config {name}: {fault}")))?;
    }
    config.http.address = http;
    Ok(config)
}
