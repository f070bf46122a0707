//! The asking side, as daemons see it: a transport gives peers, a peer takes calls and opens streams.
//!
//! [`Transport`] is what daemons hold, so that the same code runs over QUIC ([`Endpoint`](crate::Endpoint)) and over the
//! in-memory twin ([`MemoryEndpoint`](crate::memory::MemoryEndpoint)).

use crate::envelope::{self, HEADER_MAX, Outcome, ReplyHeader, RequestHeader, TraceId};
use crate::error::CallError;
use crate::frames::{FrameReceiver, FrameSender};
use crate::identity::Identity;
use crate::metrics::{Side, TransportMetrics, error_label};
use crate::router::{BoxFuture, FIRST_VERSION};
use bytes::Bytes;
use proto_types::message_kind::MessageKind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A daemon's end of the internal network.
pub trait Transport: Send + Sync + 'static {
    /// Who we are.
    fn identity(&self) -> &Identity;

    /// Where we listen.
    fn local_addr(&self) -> SocketAddr;

    /// A handle to a peer. Does not connect; the first call does. Handles to one target share their connection.
    fn peer(&self, target: PeerTarget) -> Peer;

    /// Refuses new calls, waits at most `grace` for those in progress, then closes everything.
    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()>;
}

/// Whom to reach, and where.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerTarget {
    /// Address of the peer's endpoint.
    pub address: SocketAddr,
    /// Who must answer there; anybody else is not talked to.
    pub identity: Identity,
    /// Targets that differ only here have connections of their own.
    pub lane: u16,
}

impl PeerTarget {
    /// The peer's only, or first, connection.
    pub fn new(address: SocketAddr, identity: Identity) -> Self {
        Self { address, identity, lane: 0 }
    }
}

/// A request before it has a peer.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) kind: u16,
    pub(crate) version: u16,
    pub(crate) trace: TraceId,
    pub(crate) body: Bytes,
}

impl Request {
    /// A request of a kind's first version.
    pub fn new(kind: MessageKind, body: Bytes) -> Self {
        Self { kind: kind.number(), version: FIRST_VERSION, trace: TraceId::default(), body }
    }

    /// Says which version of the kind the body is.
    pub fn version(self, version: u16) -> Self {
        Self { version, ..self }
    }

    /// Ties the request to what caused it.
    pub fn trace(self, trace: TraceId) -> Self {
        Self { trace, ..self }
    }

    /// A request of a kind that this version does not know, to test what peers of other versions do.
    #[cfg(any(test, feature = "testing"))]
    pub fn unknown_kind(kind: u16, body: Bytes) -> Self {
        Self { kind, version: FIRST_VERSION, trace: TraceId::default(), body }
    }
}

/// What stands behind a [`Peer`]: a QUIC connection that comes and goes, or the in-memory network.
pub(crate) trait Link: Send + Sync + 'static {
    fn target(&self) -> &PeerTarget;
    fn metrics(&self) -> &TransportMetrics;
    fn call_bytes_max(&self) -> usize;
    fn call(&self, request: Request, deadline: Instant) -> BoxFuture<'_, Result<Bytes, CallError>>;
    fn open(
        &self,
        request: Request,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<(FrameSender, FrameReceiver), CallError>>;
    fn connect(&self, deadline: Instant) -> BoxFuture<'_, Result<(), CallError>>;
    fn is_connected(&self) -> bool;
    fn disconnect(&self, reason: &str);
}

/// A handle to one peer. Cheap to clone; connects when first used and again whenever the connection was lost.
#[derive(Clone)]
pub struct Peer {
    link: Arc<dyn Link>,
}

impl Peer {
    pub(crate) fn new(link: Arc<dyn Link>) -> Self {
        Self { link }
    }

    /// Whom this handle reaches.
    pub fn target(&self) -> &PeerTarget {
        self.link.target()
    }

    /// Sends a request and waits for the answer, at most `timeout`, of which the peer is told. Giving up (dropping the
    /// future) cancels the handler at the peer.
    pub async fn call(&self, kind: MessageKind, body: Bytes, timeout: Duration) -> Result<Bytes, CallError> {
        self.send(Request::new(kind, body), timeout).await
    }

    /// A [`call`](Self::call) over messages: encodes the question, decodes the answer, which must be used up.
    pub async fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        kind: MessageKind,
        question: &Q,
        timeout: Duration,
    ) -> Result<A, CallError> {
        let body = Bytes::from(proto_types::encode(question));
        let answer = self.call(kind, body, timeout).await?;
        proto_types::decode(&answer).map_err(|e| CallError::Remote(format!("unreadable answer: {e}")))
    }

    /// A [`call`](Self::call) with version and trace.
    pub async fn send(&self, request: Request, timeout: Duration) -> Result<Bytes, CallError> {
        let (kind, begun) = (request.kind, Instant::now());
        let metrics = self.link.metrics();
        metrics.call_begun(Side::Client, kind);
        let outcome = match self.check_size(&request) {
            Ok(()) => self.link.call(request, begun + timeout).await,
            Err(error) => Err(error),
        };
        let error = outcome.as_ref().err().map(error_label);
        metrics.call_ended(Side::Client, kind, begun.elapsed(), error);
        outcome
    }

    /// Opens a long-lived stream; `timeout` bounds only the opening.
    pub async fn open_stream(
        &self,
        kind: MessageKind,
        hello: Bytes,
        timeout: Duration,
    ) -> Result<(FrameSender, FrameReceiver), CallError> {
        self.open_stream_with(Request::new(kind, hello), timeout).await
    }

    /// [`open_stream`](Self::open_stream) with version and trace.
    pub async fn open_stream_with(
        &self,
        request: Request,
        timeout: Duration,
    ) -> Result<(FrameSender, FrameReceiver), CallError> {
        let (kind, deadline) = (request.kind, Instant::now() + timeout);
        let outcome = match self.check_size(&request) {
            Ok(()) => self.link.open(request, deadline).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &outcome {
            self.link.metrics().failed(Side::Client, kind, error_label(error));
        }
        outcome
    }

    /// Waits for a connection, making one if there is none, and sends nothing. For a caller that has others to turn to:
    /// with a call's deadline alone it could not tell a peer that is away from one that is slow.
    pub async fn connect(&self, timeout: Duration) -> Result<(), CallError> {
        self.link.connect(Instant::now() + timeout).await
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Drops the connection: calls and streams in progress fail as closed, the next call connects anew. For a peer that is
    /// known to have a new incarnation or to be gone.
    pub fn disconnect(&self, reason: &str) {
        self.link.disconnect(reason);
    }

    fn check_size(&self, request: &Request) -> Result<(), CallError> {
        let (length, limit) = (request.body.len(), self.link.call_bytes_max());
        if length > limit { Err(CallError::TooLarge { length, limit }) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Peer").field(self.target()).finish()
    }
}

/// Header of a request that is about to be written: what is left of its time is read at the last moment.
pub(crate) fn request_head(request: &Request, stream: bool, request_id: u64, deadline: Instant) -> Bytes {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    let header = RequestHeader {
        kind: request.kind,
        version: request.version,
        stream,
        request_id,
        deadline_ms: u32::try_from(left).unwrap_or(u32::MAX),
        trace: request.trace,
    };
    envelope::head(&header, request.body.len())
}

/// Reads a reply's frame.
pub(crate) fn read_reply(frame: &Bytes, request_id: u64) -> Result<Bytes, CallError> {
    let unreadable = |reason: String| CallError::Remote(format!("unreadable reply: {reason}"));
    let (header, body) = envelope::open::<ReplyHeader>(frame).map_err(unreadable)?;
    match header.outcome {
        Outcome::Done if header.request_id == request_id => Ok(body),
        Outcome::Done => {
            Err(unreadable(format!("it answers request {}, not {request_id}", header.request_id)))
        }
        Outcome::Refused(refusal) => Err(CallError::from_refusal(refusal)),
    }
}

/// Largest frame of a request or reply whose body is within `call_bytes_max`.
pub(crate) const fn call_frame_max(call_bytes_max: usize) -> usize {
    call_bytes_max + HEADER_MAX
}
