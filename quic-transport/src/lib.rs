//! How daemons talk to each other: short calls and long-lived streams over QUIC, with certificates on both sides.
//!
//! A call travels so: [`Peer::call`] → a connection, made when needed ([`Endpoint`]) → one bidirectional stream with one
//! length-prefixed envelope → the other side's [`Router`]: kind known? role allowed? limits? → handler → one reply. A
//! stream begins the same way and goes on with frames in both directions ([`FrameSender`], [`FrameReceiver`]).
//!
//! What holds: everything is bounded ([`Limits`], [`Timing`]); a deadline is kept at both ends; who a peer is, is what its
//! certificate says ([`Identity`]); an error says whether the request may have run ([`CallError::may_have_run`]); nothing
//! that may have been sent is repeated. [`memory`] is the same without a network, for tests. This is the only crate that
//! knows QUIC.

pub mod memory;
pub mod pki;

mod backoff;
mod config;
mod endpoint;
#[cfg(test)]
mod endpoint_tests;
mod envelope;
mod error;
mod frame_buffer;
mod frames;
mod identity;
mod link;
mod metrics;
mod node_keys;
mod peer;
mod private_file;
mod router;
mod service;
#[cfg(feature = "turmoil")]
mod simulated_socket;
mod socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;

pub use config::{
    ConfigError, EndpointConfig, Limits, MTU_MAX, MTU_MAX_WITH_OFFLOAD, MTU_MIN, PathProfile, Timing,
};
pub use endpoint::{BindError, Endpoint};
pub use envelope::TraceId;
pub use error::{CallError, FrameError, Refusal};
pub use frames::{FrameReceiver, FrameSender};
pub use identity::{Identity, IdentityError, Role, Roles};
pub use metrics::TransportMetrics;
pub use node_keys::{EndpointKeys, NodeKeys, NodeKeysError};
pub use peer::{Peer, PeerTarget, Request, Transport};
pub use proto_types::message_kind::MessageKind;
pub use router::{BoxFuture, Call, Caller, FIRST_VERSION, Router, RouterBuilder};
pub use socket::DatagramSocket;
pub use tls::{ALPN, TlsError};
