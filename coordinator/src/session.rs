//! This coordinator's membership: registers, then keeps the session, and with it the lease, by heartbeats.
//!
//! A heartbeat goes out every `heartbeat_ms`, and at once when more of the metadata is applied or the coordinator begins
//! to stop: a shard goes to its next owner only when we have said that we no longer answer for it.

use crate::clock::Clock;
use crate::controllers::{Controllers, Failure, Pauses};
use crate::lease::SharedLease;
use crate::metrics::CoordinatorMetrics;
use proto_types::controller_api::{
    ControllerReply, ControllerRequest, CoordinatorHeartbeat, CoordinatorHeartbeatReply, RegisterCoordinator,
};
use proto_types::error::Reason;
use proto_types::feature::LevelRange;
use proto_types::ids::{MetadataIndex, RegistrationEpoch};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What the rest of the daemon may know of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionState {
    /// The registration; none before the first.
    pub(crate) epoch: Option<RegistrationEpoch>,
    /// The controller counts on us.
    pub(crate) live: bool,
    /// The leader's commit index as of the last heartbeat.
    pub(crate) committed: MetadataIndex,
    /// A stopping coordinator may go.
    pub(crate) may_stop: bool,
    /// The cluster refuses this coordinator for good; it must stop and say why.
    pub(crate) refused: Option<String>,
}

impl Default for SessionState {
    fn default() -> Self {
        Self { epoch: None, live: false, committed: MetadataIndex(0), may_stop: false, refused: None }
    }
}

/// Runs the session until it is dropped or refused.
pub(crate) struct Session {
    pub(crate) controllers: Arc<Controllers>,
    pub(crate) registration: RegisterCoordinator,
    /// The feature levels that this coordinator supports.
    pub(crate) levels: LevelRange,
    pub(crate) retry: Pauses,
    pub(crate) applied: watch::Receiver<MetadataIndex>,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) state: watch::Sender<SessionState>,
    pub(crate) lease: Arc<SharedLease>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<CoordinatorMetrics>,
}

/// The coordinator may not go on under this id.
struct Refused(String);

impl Session {
    /// Registers and beats for as long as the daemon lives. Returns only when the cluster refuses it.
    pub(crate) async fn run(mut self) {
        loop {
            let result = match self.register().await {
                Ok((epoch, pause)) => self.beat(epoch, pause).await,
                Err(refused) => Err(refused),
            };
            if let Err(Refused(reason)) = result {
                tracing::error!(reason, "the cluster refuses this coordinator");
                self.lease.lost();
                self.state.send_modify(|state| {
                    state.live = false;
                    state.refused = Some(reason);
                });
                return;
            }
        }
    }

    /// Asks until the registration is committed. Returns its epoch and the pause between heartbeats.
    async fn register(&mut self) -> Result<(RegistrationEpoch, Duration), Refused> {
        let mut last_logged = String::new();
        for failures in 0.. {
            let request = ControllerRequest::register_coordinator(self.registration.clone(), self.levels);
            let reason = match self.controllers.ask(&request).await {
                Ok(ControllerReply::CoordinatorRegistered { epoch, session_ms, heartbeat_ms }) => {
                    tracing::info!(%epoch, session_ms, heartbeat_ms, "registered");
                    self.lease.begin(session_ms);
                    self.state.send_modify(|state| state.epoch = Some(epoch));
                    return Ok((epoch, Duration::from_millis(heartbeat_ms.max(1))));
                }
                Ok(other) => format!("unexpected answer {other:?}"),
                Err(Failure::Rejected(rejection)) => return Err(Refused(rejection.message)),
                Err(failure @ Failure::Unavailable(_)) => failure.to_string(),
            };
            // Once for each reason: a cluster that is down for an hour is not an hour of log lines.
            if reason != last_logged {
                tracing::warn!(reason, "register with the controllers");
                last_logged = reason;
            }
            tokio::time::sleep(self.retry.after(failures)).await;
        }
        Err(Refused("no controller answered for as long as can be counted".to_owned()))
    }

    /// Sends heartbeats. Returns `Ok` when the coordinator has to register again.
    async fn beat(&mut self, epoch: RegistrationEpoch, pause: Duration) -> Result<(), Refused> {
        let mut failures = 0_u32;
        loop {
            let heartbeat = CoordinatorHeartbeat {
                coordinator: self.registration.coordinator,
                epoch,
                applied: *self.applied.borrow_and_update(),
                stopping: *self.stopping.borrow_and_update(),
            };
            let sent_at = self.clock.boot();
            let answer = self.controllers.ask(&ControllerRequest::CoordinatorHeartbeat(heartbeat)).await;
            self.metrics.on_heartbeat(answer.is_ok());
            let wait = match answer {
                Ok(ControllerReply::CoordinatorHeartbeat(reply)) => {
                    if std::mem::take(&mut failures) > 0 {
                        tracing::info!("heartbeats are answered again");
                    }
                    self.on_reply(sent_at, &reply);
                    pause
                }
                Ok(other) => {
                    tracing::error!(?other, "heartbeat: unexpected answer");
                    pause
                }
                Err(Failure::Rejected(rejection)) if rejection.reason == Reason::UnknownNode => {
                    tracing::warn!(reason = rejection.message, "the cluster has forgotten this coordinator");
                    return Ok(());
                }
                Err(Failure::Rejected(rejection)) => return Err(Refused(rejection.message)),
                Err(failure @ Failure::Unavailable(_)) => {
                    if failures == 0 {
                        tracing::warn!(%failure, "heartbeat");
                    }
                    failures = failures.saturating_add(1);
                    self.retry.after(failures - 1).min(pause)
                }
            };
            // A sender that is gone means that the daemon is being torn down: the timer alone goes on.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                Ok(()) = self.applied.changed(), if failures == 0 => {}
                Ok(()) = self.stopping.changed() => {}
            }
        }
    }

    fn on_reply(&self, sent_at: i64, reply: &CoordinatorHeartbeatReply) {
        if reply.fenced {
            self.lease.lost();
        } else {
            self.lease.acknowledged(sent_at, reply.committed);
        }
        self.state.send_if_modified(|state| {
            let before = state.clone();
            if before.live == reply.fenced {
                tracing::info!(live = !reply.fenced, "session");
                self.metrics.on_session(!reply.fenced);
            }
            state.live = !reply.fenced;
            state.committed = state.committed.max(reply.committed);
            state.may_stop = reply.may_stop;
            *state != before
        });
    }
}
