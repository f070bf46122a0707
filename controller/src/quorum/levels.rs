//! Which feature levels the other controllers support: each is asked when the level is to be raised, and before a new one
//! gets a vote.
//!
//! Controllers do not register, so nothing about it is kept. One that comes back later with another build sees for itself
//! whether it supports the level of the log that it applies ([`StateMachine`](super::state_machine::StateMachine)).

use super::network::{Carrier, Conduit, Lane, QuicCarrier};
use super::wire::LevelsReply;
use bytes::Bytes;
use futures_util::future::join_all;
use proto_types::feature::LevelRange;
use proto_types::ids::ControllerId;
use proto_types::message_kind::MessageKind;
use proto_types::metadata::ControllerAddress;
use proto_types::{decode, encode};
use quic_transport::{CallError, Role, Roles, RouterBuilder, Transport};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

const CONTROLLERS: Roles = Roles::of(&[Role::Controller]);

/// Asks the others, and knows our own.
pub(crate) struct ControllerLevels {
    me: ControllerId,
    ours: LevelRange,
    /// Only as long as others hold it: its router holds whoever asks.
    transport: Weak<dyn Transport>,
    cluster_id: String,
    /// As our own config says; wins over what the quorum knows.
    addresses: BTreeMap<u64, String>,
    /// How long one may take to be found and to answer.
    patience: Duration,
}

impl ControllerLevels {
    pub(crate) fn new(
        me: ControllerId,
        ours: LevelRange,
        transport: &Arc<dyn Transport>,
        cluster_id: String,
        addresses: BTreeMap<u64, String>,
        patience: Duration,
    ) -> Self {
        Self { me, ours, transport: Arc::downgrade(transport), cluster_id, addresses, patience }
    }

    /// Those of `voters` that answer, with what they support.
    pub(crate) async fn of_voters(&self, voters: &[ControllerAddress]) -> Vec<(ControllerId, LevelRange)> {
        let answers = voters
            .iter()
            .map(|voter| async { self.of(voter.id, &voter.address).await.map(|levels| (voter.id, levels)) });
        join_all(answers).await.into_iter().flatten().collect()
    }

    /// What one controller supports, if it says so.
    pub(crate) async fn of(&self, id: ControllerId, address: &str) -> Option<LevelRange> {
        if id == self.me {
            return Some(self.ours);
        }
        let address = self.addresses.get(&id.0).map_or(address, String::as_str).to_owned();
        let carrier = QuicCarrier::new(self.transport.upgrade()?, self.cluster_id.clone());
        let mut conduit = carrier.conduit(id.0, address, Lane::Heartbeat);
        let question = Bytes::from(encode(&()));
        let asked = conduit.ask(MessageKind::ControllerLevels, question, self.patience);
        // To find out where it is may take long, too.
        let answer = tokio::time::timeout(self.patience, asked).await;
        match answer.unwrap_or(Err(CallError::Timeout)) {
            Ok(answer) => match decode::<LevelsReply>(&answer) {
                Ok(LevelsReply { levels }) => Some(levels),
                Err(error) => {
                    tracing::warn!(%id, %error, "a controller's answer about its feature levels is not readable");
                    None
                }
            },
            Err(error) => {
                tracing::info!(%id, %error, "a controller does not say which feature levels it supports");
                None
            }
        }
    }
}

/// Answers the others.
pub(crate) fn add_routes(builder: RouterBuilder, ours: LevelRange) -> RouterBuilder {
    builder.ask(MessageKind::ControllerLevels, CONTROLLERS, move |_call, (): ()| async move {
        Ok(LevelsReply { levels: ours })
    })
}
