//! The life of a node from the moment its addresses are bound: serve when the cluster counts it as live, give up when the
//! cluster refuses it, stop in order when asked.

use crate::config::Config;
use crate::control_thread::ControlThread;
use crate::error::NodeFailure;
use crate::handle::Phase;
use crate::kafka::api_table::api_table;
use crate::node::Node;
use crate::replication::data_thread::DataThread;
use crate::session::SessionState;
use kafka_wire::{BoundListener, Server, WireMetrics};
use std::sync::Arc;
use std::time::Duration;
use telemetry::HttpServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long the HTTP endpoint and the internal endpoint may take to stop.
const CLOSE_GRACE: Duration = Duration::from_millis(500);
/// How often a lingering node looks whether clients are left.
const LINGER_LOOK: Duration = Duration::from_millis(20);

/// Owns the life of a node once it is bound.
pub(crate) struct Supervisor {
    pub(crate) config: Config,
    /// Of the connection loop, as far as the system allows what is configured.
    pub(crate) wire_limits: kafka_wire::Limits,
    pub(crate) node: Arc<Node>,
    pub(crate) listeners: Vec<BoundListener>,
    pub(crate) wire_metrics: Arc<WireMetrics>,
    pub(crate) http: Option<HttpServer>,
    pub(crate) control: ControlThread,
    pub(crate) data: DataThread,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) session: watch::Receiver<SessionState>,
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) stop: watch::Receiver<bool>,
    /// The tasks that follow the metadata, and tell the controllers of in-sync sets.
    pub(crate) following: Vec<JoinHandle<()>>,
}

impl Supervisor {
    /// Runs until the node is stopped, or gives up.
    pub(crate) async fn run(mut self) {
        let listeners = std::mem::take(&mut self.listeners);
        let mut server = None;
        let failure = tokio::select! {
            () = live(&self.node) => match self.serve(listeners) {
                Ok(started) => {
                    server = Some(started);
                    self.phase.send_replace(Phase::Ready);
                    tracing::info!(node = %self.node.id(), "ready");
                    tokio::select! {
                        failure = refused(&mut self.session) => Some(failure),
                        () = asked_to_stop(&mut self.stop) => None,
                    }
                }
                Err(failure) => Some(failure),
            },
            failure = refused(&mut self.session) => Some(failure),
            () = asked_to_stop(&mut self.stop) => None,
        };
        match failure {
            Some(failure) => {
                self.phase.send_replace(Phase::Failed(failure));
            }
            None => {
                if self.hand_over().await
                    && let Some(server) = &server
                {
                    self.linger(server).await;
                }
            }
        }
        if let Some(server) = server {
            server.shutdown().await;
        }
        for task in self.following {
            task.abort();
        }
        self.node.partitions().close().await;
        self.data.shutdown(CLOSE_GRACE).await;
        self.phase.send_if_modified(|phase| match phase {
            Phase::Failed(_) => false,
            Phase::Starting | Phase::Ready => {
                *phase = Phase::Failed(NodeFailure::Stopped);
                true
            }
        });
        self.control.shutdown(CLOSE_GRACE).await;
        if let Some(http) = self.http {
            http.shutdown(CLOSE_GRACE).await;
        }
        tracing::info!("stopped");
    }

    fn serve(&self, listeners: Vec<BoundListener>) -> Result<Server, NodeFailure> {
        let table =
            api_table(&self.config.cluster_id, self.node.id()).expect("the table is checked by a test");
        let node = Arc::clone(&self.node);
        let server = Server::start(
            listeners,
            Arc::new(table.with_features(move || node.features())),
            Arc::clone(&self.node),
            self.wire_limits.clone(),
            Arc::clone(&self.wire_metrics),
        );
        server.map_err(|error| NodeFailure::Door(error.to_string()))
    }

    /// Asks the controller to fence this node and to move what it leads. True if that was done.
    async fn hand_over(&mut self) -> bool {
        self.stopping.send_replace(true);
        let longest = Duration::from_millis(self.config.limits.stop_handover_ms_max);
        let done = self.session.wait_for(|state| state.may_stop || state.refused.is_some());
        match tokio::time::timeout(longest, done).await {
            Ok(state) => state.is_ok_and(|state| state.may_stop),
            Err(_elapsed) => {
                tracing::warn!(
                    "the controllers did not take over in time; leaders move when the session ends"
                );
                false
            }
        }
    }

    /// Answers clients for a moment longer. Whoever is at work hears that this node does not lead any more, and who does; a
    /// connection that just closes would leave it to search.
    async fn linger(&self, server: &Server) {
        let longest = Duration::from_millis(self.config.limits.stop_linger_ms);
        if self.node.image().live_nodes().next().is_none() {
            return;
        }
        let left = async {
            while server.connections() > 0 {
                tokio::time::sleep(LINGER_LOOK).await;
            }
        };
        // Some clients stay connected to all nodes.
        let _elapsed = tokio::time::timeout(longest, left).await;
    }
}

/// Completes when the image shows this node as live and everything up to there is open.
async fn live(node: &Node) {
    let forever = Duration::from_secs(u64::from(u32::MAX));
    let Some(image) = node.published().wait_for(forever, |image| image.is_live(node.id())).await else {
        return std::future::pending().await;
    };
    let mut applied = node.published().watch_applied();
    if applied.wait_for(|applied| *applied >= image.index()).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn refused(session: &mut watch::Receiver<SessionState>) -> NodeFailure {
    let reason = session.wait_for(|state| state.refused.is_some()).await.map(|state| state.refused.clone());
    match reason {
        Ok(reason) => NodeFailure::Refused(reason.unwrap_or_default()),
        Err(_) => std::future::pending().await,
    }
}

async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    // A handle that was dropped asks for it as well.
    let _ = stop.wait_for(|stop| *stop).await;
}
