//! Asks the controllers over the internal network: finds the leader, follows it, and opens the metadata feed of any.
//!
//! Everything that a coordinator asks may be asked again (a registration of the same incarnation, a heartbeat), so a lost
//! answer is only another failed try.

use crate::config::ControllerAddress;
use bytes::Bytes;
use parking_lot::Mutex;
use proto_types::controller_api::{ControllerReply, ControllerRequest, FeedRequest};
use proto_types::error::{ControllerError, Rejection};
use proto_types::ids::ControllerId;
use quic_transport::{
    FrameReceiver, FrameSender, Identity, IdentityError, MessageKind, Peer, PeerTarget, Role, Transport,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Why a question brought no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The controller refuses; asking again is useless.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Another try, perhaps at another controller, may do better.
    #[error("no controller answers: {0}")]
    Unavailable(String),
}

/// Knows all controllers and guesses which one leads. Shared behind an `Arc`.
pub(crate) struct Controllers {
    transport: Arc<dyn Transport>,
    controllers: Vec<Controller>,
    /// Index of the controller that led when we last heard.
    leader: AtomicUsize,
    call_max: Duration,
}

struct Controller {
    id: ControllerId,
    address: String,
    identity: Identity,
    /// The address in use; asked of the resolver again after a failure.
    resolved: Mutex<Option<SocketAddr>>,
}

impl Controllers {
    /// `controllers` must not be empty. No single try takes longer than `call_max`.
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        controllers: &[ControllerAddress],
        call_max: Duration,
    ) -> Result<Self, IdentityError> {
        let cluster = transport.identity().cluster_id().to_owned();
        let controllers = controllers
            .iter()
            .map(|controller| {
                Ok(Controller {
                    id: ControllerId(controller.id),
                    address: controller.address.clone(),
                    identity: Identity::new(&cluster, Role::Controller, controller.id)?,
                    resolved: Mutex::new(None),
                })
            })
            .collect::<Result<Vec<_>, IdentityError>>()?;
        assert!(!controllers.is_empty(), "the configuration was validated: there is a controller");
        Ok(Self { transport, controllers, leader: AtomicUsize::new(0), call_max })
    }

    /// How many controllers there are.
    pub(crate) fn count(&self) -> usize {
        self.controllers.len()
    }

    /// Index of the controller that is thought to lead.
    pub(crate) fn leader(&self) -> usize {
        self.leader.load(Ordering::Relaxed)
    }

    /// Asks the one that is thought to lead, once. After a failure the next question goes elsewhere.
    pub(crate) async fn ask(&self, request: &ControllerRequest) -> Result<ControllerReply, Failure> {
        // Following a hint costs no pause, but two controllers must not send us back and forth.
        for _hop in 0..=self.controllers.len() {
            let at = self.leader();
            let following = (at + 1) % self.controllers.len();
            let peer =
                self.peer(at).await.inspect_err(|_| self.leader.store(following, Ordering::Relaxed))?;
            let asked = peer
                .ask::<_, Result<ControllerReply, ControllerError>>(
                    MessageKind::Controller,
                    request,
                    self.call_max,
                )
                .await;
            let (next, reason) = match asked {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(ControllerError::Rejected(rejection))) => return Err(Failure::Rejected(rejection)),
                Ok(Err(ControllerError::NotLeader { leader })) => {
                    let known = leader.and_then(|id| self.controllers.iter().position(|c| c.id == id));
                    if let Some(leader) = known.filter(|leader| *leader != at) {
                        self.leader.store(leader, Ordering::Relaxed);
                        continue;
                    }
                    (following, "it does not lead the quorum".to_owned())
                }
                Ok(Err(ControllerError::Busy(reason))) => (at, reason),
                Ok(Err(error @ (ControllerError::Shutdown | ControllerError::TimedOut))) => {
                    (following, error.to_string())
                }
                Err(error) => {
                    self.forget_address(at);
                    (following, error.to_string())
                }
            };
            self.leader.store(next, Ordering::Relaxed);
            return Err(Failure::Unavailable(format!("{}: {reason}", self.controllers[at].address)));
        }
        Err(Failure::Unavailable("the controllers do not agree on who leads".to_owned()))
    }

    /// Opens the metadata feed of one controller; `index` counts round the list.
    pub(crate) async fn open_feed(
        &self,
        index: usize,
        request: &FeedRequest,
    ) -> Result<(FrameSender, FrameReceiver), Failure> {
        let peer = self.peer(index).await?;
        let hello = Bytes::from(proto_types::encode(request));
        let opened = peer.open_stream(MessageKind::MetadataFeed, hello, self.call_max).await;
        opened.map_err(|error| {
            self.forget_address(index);
            Failure::Unavailable(error.to_string())
        })
    }

    async fn peer(&self, index: usize) -> Result<Peer, Failure> {
        let controller = &self.controllers[index % self.controllers.len()];
        let known = *controller.resolved.lock();
        let address = match known {
            Some(address) => address,
            None => {
                let address = resolve(&controller.address).await.map_err(Failure::Unavailable)?;
                *controller.resolved.lock() = Some(address);
                address
            }
        };
        Ok(self.transport.peer(PeerTarget::new(address, controller.identity.clone())))
    }

    fn forget_address(&self, index: usize) {
        *self.controllers[index % self.controllers.len()].resolved.lock() = None;
    }
}

/// Pauses between tries, which double.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pauses {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Pauses {
    /// The pause after so many failures in a row, from 0.
    pub(crate) fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.min(16)).min(self.longest)
    }
}

/// The first address of `host:port`.
pub(crate) async fn resolve(address: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    let mut found = tokio::net::lookup_host(address)
        .await
        .map_err(|error| format!("cannot resolve {address}: {error}"))?;
    found.next().ok_or_else(|| format!("cannot resolve {address}: no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let millis = Duration::from_millis;
        let pauses = Pauses { first: millis(20), longest: millis(500) };
        let after: Vec<Duration> = [0, 1, 4, 5, u32::MAX].map(|failures| pauses.after(failures)).to_vec();
        assert_eq!(after, [20, 40, 320, 500, 500].map(millis));
    }
}
