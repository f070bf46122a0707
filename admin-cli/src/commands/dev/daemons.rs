//! Starts and stops the daemons of `weir dev` in one process.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use controller::{ControllerHandle, Voter};
use storage_node::NodeHandle;
use storage_node::config::{Certificates, ControllerAddress, Http, Listener};
use telemetry::{HttpConfig, HttpServer, Registry};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::DevArgs;
use super::data_directory::{CONTROLLER_ID, DataDirectory, NODE_ID};
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
    /// Starts controller and storage node and waits until clients are served.
    pub(super) async fn start(data: &DataDirectory, args: &DevArgs) -> Result<Self, Failure> {
        let (node_http, controller_http) = http_addresses(args.http_port)?;
        let listeners = kafka_listeners(args.kafka_port)?;
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
        let node = match start_node(config).await {
            Ok(node) => node,
            Err(failure) => {
                stop_controller(controller_runtime, controller, controller_http).await;
                return Err(failure);
            }
        };
        let http = node.http_address().into_iter().chain([controller_http.local_addr()]).collect();
        let kafka = node.kafka_addresses().iter().map(|address| address.bound).collect();
        Ok(Self {
            addresses: Addresses { kafka, http },
            node,
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
            reason = self.controller.failed() => {
                Failure::failed(format!("the controller cannot go on: {reason}"))
            }
        }
    }

    /// Stops the daemons, the storage node first: it still has something to tell the controller.
    pub(super) async fn shutdown(self) {
        self.node.shutdown().await;
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

async fn stop_controller(runtime: OwnRuntime, controller: ControllerHandle, http: HttpServer) {
    let stopped = runtime.spawn(async move {
        controller.shutdown().await;
        http.shutdown(HTTP_GRACE).await;
    });
    if let Err(error) = stopped.await {
        tracing::error!(%error, "stop the controller");
    }
}

/// Addresses for the storage node's and the controller's HTTP endpoints.
fn http_addresses(port: Option<u16>) -> Result<(SocketAddr, SocketAddr), Failure> {
    let loopback = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match port {
        Some(0) => Ok((loopback(0), loopback(0))),
        Some(port) => match port.checked_add(1) {
            Some(next) => Ok((loopback(port), loopback(next))),
            None => Err(Failure::usage("--http-port must be below 65535: the controller takes the next one")),
        },
        None => {
            let (node, controller) = (loopback(HTTP_PORT), loopback(HTTP_PORT + 1));
            let free = is_free(node) && is_free(controller);
            Ok(if free { (node, controller) } else { (loopback(0), loopback(0)) })
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
    let auto_create = (!args.no_auto_create).to_string();
    config.kafka.insert("auto.create.topics.enable".to_owned(), auto_create);
    config.kafka.extend(args.configs.iter().cloned());
    config
}
