//! This node's membership: registers, then keeps the session by heartbeats.
//!
//! Runs on a thread of its own with the internal endpoint, so that neither clients nor disks can hold a heartbeat up. A
//! heartbeat goes out every `heartbeat_ms`, and at once when more of the metadata is applied, when the node begins to
//! stop, or when its opinion of its disks changes.

use crate::controller_client::ControllerClient;
use crate::controller_port::{ControllerFailure, ControllerPort};
use crate::metrics::NodeMetrics;
use proto_types::controller_api::{
    ControllerReply, ControllerRequest, Heartbeat, HeartbeatReply, RegisterNode,
};
use proto_types::error::Reason;
use proto_types::feature::LevelRange;
use proto_types::ids::{BrokerEpoch, MetadataIndex, NodeId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What the rest of the node may know of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionState {
    /// The node does not serve: it is not registered, has not caught up, or lost its session.
    pub(crate) fenced: bool,
    /// The leader's commit index as of the last heartbeat.
    pub(crate) committed: MetadataIndex,
    /// A stopping node may go.
    pub(crate) may_stop: bool,
    /// The cluster refuses this node for good; it must stop and say why.
    pub(crate) refused: Option<String>,
}

impl Default for SessionState {
    fn default() -> Self {
        Self { fenced: true, committed: MetadataIndex(0), may_stop: false, refused: None }
    }
}

/// Runs the session until it is dropped or refused.
pub(crate) struct Session {
    pub(crate) controller: Arc<ControllerClient>,
    pub(crate) registration: RegisterNode,
    /// The feature levels that this node supports.
    pub(crate) levels: LevelRange,
    /// Longest that one question to the controllers may take.
    pub(crate) call_max: Duration,
    pub(crate) applied: watch::Receiver<MetadataIndex>,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) healthy: watch::Receiver<bool>,
    pub(crate) broker_epoch: watch::Sender<Option<BrokerEpoch>>,
    pub(crate) state: watch::Sender<SessionState>,
    pub(crate) metrics: Arc<NodeMetrics>,
}

/// The node may not go on under this id.
struct Refused(String);

impl Session {
    /// Registers and beats for as long as the node lives. Returns only when the cluster refuses the node.
    pub(crate) async fn run(mut self) {
        loop {
            let result = match self.register().await {
                Ok((epoch, pause)) => self.beat(epoch, pause).await,
                Err(refused) => Err(refused),
            };
            if let Err(Refused(reason)) = result {
                tracing::error!(reason, "the cluster refuses this node");
                self.state.send_modify(|state| {
                    state.fenced = true;
                    state.refused = Some(reason);
                });
                return;
            }
        }
    }

    /// Asks until the registration is committed. Returns its epoch and the pause between heartbeats.
    async fn register(&mut self) -> Result<(BrokerEpoch, Duration), Refused> {
        let mut last_logged = String::new();
        loop {
            let request = ControllerRequest::register_node(self.registration.clone(), self.levels);
            match self.controller.ask(request, self.call_max).await {
                Ok(ControllerReply::Registered { broker_epoch, session_ms, heartbeat_ms }) => {
                    tracing::info!(%broker_epoch, session_ms, heartbeat_ms, "registered");
                    self.broker_epoch.send_replace(Some(broker_epoch));
                    return Ok((broker_epoch, Duration::from_millis(heartbeat_ms.max(1))));
                }
                Ok(other) => {
                    tracing::error!(?other, "register: unexpected answer");
                    tokio::time::sleep(self.call_max).await;
                }
                Err(ControllerFailure::Rejected(rejection)) => return Err(Refused(rejection.message)),
                Err(failure) => {
                    // Once for each reason: a cluster that is down for an hour is not an hour of log lines.
                    let reason = failure.to_string();
                    if reason != last_logged {
                        tracing::warn!(reason, "register with the controllers");
                        last_logged = reason;
                    }
                }
            }
        }
    }

    /// Sends heartbeats. Returns `Ok` when the node has to register again.
    async fn beat(&mut self, broker_epoch: BrokerEpoch, pause: Duration) -> Result<(), Refused> {
        let mut failing = false;
        loop {
            let heartbeat = Heartbeat {
                node: self.registration.node,
                broker_epoch,
                applied: *self.applied.borrow_and_update(),
                stopping: *self.stopping.borrow_and_update(),
                healthy: *self.healthy.borrow_and_update(),
            };
            match self.controller.ask(ControllerRequest::Heartbeat(heartbeat), self.call_max).await {
                Ok(ControllerReply::Heartbeat(reply)) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("heartbeats are answered again");
                    }
                    self.metrics.on_heartbeat(true);
                    self.on_reply(self.registration.node, &reply);
                }
                Ok(other) => tracing::error!(?other, "heartbeat: unexpected answer"),
                Err(ControllerFailure::Rejected(rejection)) if rejection.reason == Reason::UnknownNode => {
                    tracing::warn!(reason = rejection.message, "the cluster has forgotten this node");
                    return Ok(());
                }
                Err(ControllerFailure::Rejected(rejection)) => return Err(Refused(rejection.message)),
                Err(failure) => {
                    self.metrics.on_heartbeat(false);
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%failure, "heartbeat");
                    }
                }
            }
            // A sender that is gone means that the node is being torn down: the timer alone goes on.
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Ok(()) = self.applied.changed() => {}
                Ok(()) = self.stopping.changed() => {}
                Ok(()) = self.healthy.changed() => {}
            }
        }
    }

    fn on_reply(&self, node: NodeId, reply: &HeartbeatReply) {
        self.state.send_if_modified(|state| {
            let before = state.clone();
            if before.fenced != reply.fenced {
                tracing::info!(%node, fenced = reply.fenced, "session");
            }
            state.fenced = reply.fenced;
            state.committed = state.committed.max(reply.committed);
            state.may_stop = reply.may_stop;
            *state != before
        });
        self.metrics.set_fenced(reply.fenced);
    }
}
