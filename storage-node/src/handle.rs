//! What the owner of a running node holds: where it is reached, whether it is ready, how it is stopped.

use crate::error::NodeFailure;
use kafka_wire::HostPort;
use std::net::SocketAddr;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Where Kafka clients reach a running node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaAddress {
    /// The listener's name.
    pub listener: String,
    /// The bound address, with the real port.
    pub bound: SocketAddr,
    /// What clients are told.
    pub advertised: HostPort,
}

/// How far a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Ready,
    Failed(NodeFailure),
}

/// A running node. Dropping it stops it without ceremony; [`NodeHandle::shutdown`] does it properly.
#[derive(Debug)]
pub struct NodeHandle {
    pub(crate) kafka: Vec<KafkaAddress>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) control: SocketAddr,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) supervisor: JoinHandle<()>,
}

impl NodeHandle {
    /// Where Kafka clients reach the node, in the order of the configuration.
    pub fn kafka_addresses(&self) -> &[KafkaAddress] {
        &self.kafka
    }

    /// Where `/metrics`, `/healthz` and `/readyz` are, if they are served.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where the internal control endpoint is bound.
    pub fn control_address(&self) -> SocketAddr {
        self.control
    }

    /// Waits until clients are served, or until that has become impossible.
    pub async fn ready(&self) -> Result<(), NodeFailure> {
        let mut phase = self.phase.clone();
        match phase.wait_for(|phase| *phase != Phase::Starting).await.as_deref() {
            Ok(Phase::Failed(failure)) => Err(failure.clone()),
            Ok(Phase::Ready | Phase::Starting) => Ok(()),
            Err(_) => Err(NodeFailure::Stopped),
        }
    }

    /// Waits until the node gives up by itself; never returns while it works.
    pub async fn failed(&self) -> NodeFailure {
        let mut phase = self.phase.clone();
        match phase.wait_for(|phase| matches!(phase, Phase::Failed(_))).await.as_deref() {
            Ok(Phase::Failed(failure)) => failure.clone(),
            Ok(Phase::Starting | Phase::Ready) | Err(_) => NodeFailure::Stopped,
        }
    }

    /// Hands over leaderships, lets clients finish, flushes and closes. Each step is bounded by the configuration.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.supervisor.await {
            tracing::error!(%error, "the node's supervisor did not end well");
        }
    }
}
