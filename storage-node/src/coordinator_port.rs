//! What the handlers see of the coordinators: one request of a client, one answer, and the ways in which it can fail.

use bytes::Bytes;
use kafka_wire_core::ApiKey;
use proto_types::coordinator_api::Shard;
use quic_transport::BoxFuture;

/// A client's request for a coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupCall {
    /// The shard that the group belongs to.
    pub(crate) shard: Shard,
    pub(crate) api: ApiKey,
    pub(crate) api_version: i16,
    pub(crate) client_id: Option<String>,
    /// In Kafka's form `/127.0.0.1`.
    pub(crate) client_host: String,
    pub(crate) listener: String,
    pub(crate) principal: String,
    /// The request's body in Kafka's encoding of its version.
    pub(crate) body: Bytes,
}

/// Why there is no answer. The client is told to come back, or what is wrong with its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The owner is known and does not answer for the shard yet.
    #[error("the coordinator of the group is loading")]
    Loading,
    /// No coordinator owns the shard, or the one that does cannot be reached, or what became of the request is not known.
    #[error("the coordinator of the group is not available")]
    NotAvailable,
    /// The coordinator cannot read the request.
    #[error("the request is malformed")]
    Malformed,
}

/// Forwards to the coordinators, wherever a shard's owner is. Dropping the future gives the request up.
pub(crate) trait CoordinatorPort: Send + Sync + 'static {
    /// The answer's body, in the request's version.
    fn forward(&self, call: GroupCall) -> BoxFuture<'_, Result<Bytes, NoAnswer>>;
}
