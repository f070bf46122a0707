//! The Kafka door's shell: sockets in front, handlers behind, the pure codec of `kafka-wire-core` between.
//!
//! Reading order: [`ApiTable`] (what is served: one row per API) → [`Server`] (listeners and connections) → the
//! connection loop (frames in, requests in order, responses out in order) → the response writer (`sendmsg` and
//! `sendfile`). [`Client`] is the other end, small and bounded, for the command line and for tests.
//!
//! What holds here: responses leave in the order of their requests; a malformed or unknown request closes its own
//! connection and nothing else; every queue, frame, wait and count has a limit named in [`Limits`]; no async worker ever
//! waits for a disk.

mod api_versions;
mod client;
mod client_connection;
mod clock;
mod close_reason;
mod config;
mod connection;
mod connection_slots;
mod dispatch;
mod frame_reader;
mod listener;
mod log_limiter;
mod metrics;
mod request_memory;
mod response_writer;
mod warm_pages;

pub use api_versions::{ClientSoftware, Features};
pub use client::{Client, ClientConfig, ClientError, Connection, NodeAddress};
pub use config::{HostPort, HostPortError, Limits, LimitsError, ListenerConfig, ListenerInfo};
pub use dispatch::{
    ApiTable, ConnectionId, OnWritten, Reply, RequestContext, Route, TableError, route, staged,
};
pub use listener::{BindError, BoundListener, Server, bind_listeners};
pub use log_limiter::LogLimiter;
pub use metrics::WireMetrics;
