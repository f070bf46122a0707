//! The API table: one row per API with its versions and handler; everything that is the same for all happens here once.
//!
//! A row is made from a plain async function: `route` for a request that is answered before the next of its connection
//! runs, `staged` for one whose *queueing* finishes first (in order) while its answer comes later (still sent in order).
//! Version check, decoding, encoding, panics and metrics are here; a handler holds only the meaning of its request.
//! ApiVersions is answered from the table itself.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kafka_wire_core::{Gathered, Reader, Request, RequestHeader, Str};
use tokio_util::sync::CancellationToken;

use crate::api_versions::{self, ClientSoftware, Features, ServerIdentity};
use crate::clock::monotonic_now;
use crate::close_reason::CloseReason;
use crate::config::ListenerInfo;

/// Identifies a connection for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Where a request came from and in which version.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The version in which the request came and its response goes.
    pub api_version: i16,
    /// The client's number for this request.
    pub correlation_id: i32,
    /// When the last byte of the request was here.
    pub arrived: Instant,
    /// The client's name for itself; any text, to be escaped in logs.
    pub client_id: Option<Str>,
    /// The client's address, IPv4-mapped ones as IPv4.
    pub client_host: IpAddr,
    /// The client's port.
    pub client_port: u16,
    /// The listener that took the connection; Metadata answers with its advertised address.
    pub listener: Arc<ListenerInfo>,
    /// The connection, equal for all its requests.
    pub connection: ConnectionId,
    /// Name and version of the client's software, once it has told them by ApiVersions (v3+).
    pub software: Option<Arc<ClientSoftware>>,
    /// Cancelled when the server begins to stop: a long poll should then answer with what it has.
    pub draining: CancellationToken,
}

impl RequestContext {
    pub(crate) fn new(
        peer: SocketAddr,
        listener: Arc<ListenerInfo>,
        connection: ConnectionId,
        draining: CancellationToken,
    ) -> Self {
        Self {
            api_version: 0,
            correlation_id: 0,
            arrived: monotonic_now(),
            client_id: None,
            client_host: peer.ip().to_canonical(),
            client_port: peer.port(),
            listener,
            connection,
            software: None,
            draining,
        }
    }
}

/// What a handler gives back. A bare response converts into [`Reply::Response`].
#[derive(Debug, Clone, PartialEq)]
pub enum Reply<T> {
    /// Send this response.
    Response(T),
    /// Send this response, and tell when it was written.
    Observed(T, OnWritten),
    /// Send nothing: a Produce with acks=0 that went well.
    Silence,
    /// Close the connection, with a reason for the log: a Produce with acks=0 that failed, a failed login.
    Close(Cow<'static, str>),
}

/// Told when the last byte of a response is in the socket's buffer, or in the kernel's hands by `sendfile`; never if the
/// connection ends before.
#[derive(Clone)]
pub struct OnWritten(Arc<dyn Fn(Instant) + Send + Sync>);

impl OnWritten {
    /// Calls `observe` with that time. It runs on the connection's task and must not wait.
    pub fn new(observe: impl Fn(Instant) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    /// The response was written at `at`.
    pub fn on_written(&self, at: Instant) {
        (self.0)(at);
    }
}

impl PartialEq for OnWritten {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for OnWritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnWritten")
    }
}

impl<T> From<T> for Reply<T> {
    fn from(response: T) -> Self {
        Self::Response(response)
    }
}

/// What remains to be done for a request once its handler is through.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The response frame, and who wants to know when it was written.
    Respond(Gathered, Option<OnWritten>),
    /// No response.
    Silence,
    /// The connection ends.
    Close(CloseReason),
}

impl Outcome {
    /// Bytes that go to the socket.
    pub(crate) fn response_bytes(&self) -> usize {
        match self {
            Self::Respond(frame, _) => frame.len,
            Self::Silence | Self::Close(_) => 0,
        }
    }
}

/// A request that is decoded and ready to run.
pub(crate) enum Call {
    /// Answered here and now.
    Done(Outcome),
    /// To be run to its end before the next request.
    Plain(BoxFuture<'static, Outcome>),
    /// To be queued before the next request; the inner future is the answer.
    Staged(BoxFuture<'static, Result<BoxFuture<'static, Outcome>, CloseReason>>),
}

type Run<S> = Box<dyn Fn(&Arc<S>, RequestContext, Reader) -> Result<Call, CloseReason> + Send + Sync>;

/// A row of the API table over the shared state `S` of the handlers.
pub struct Route<S> {
    key: i16,
    name: &'static str,
    versions: RangeInclusive<i16>,
    codec_versions: RangeInclusive<i16>,
    run: Run<S>,
}

impl<S> std::fmt::Debug for Route<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("name", &self.name).field("versions", &self.versions).finish()
    }
}

impl<S> Route<S> {
    /// The API's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The versions that this row serves.
    pub fn versions(&self) -> RangeInclusive<i16> {
        self.versions.clone()
    }
}

/// A row whose requests are answered before the next request of their connection runs.
///
/// The handler returns the response, or a [`Reply`] where it may also close.
pub fn route<S, R, F, Fut, O>(versions: RangeInclusive<i16>, handler: F) -> Route<S>
where
    S: Send + Sync + 'static,
    R: Request + Send + 'static,
    R::Response: Send,
    F: Fn(Arc<S>, RequestContext, R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = O> + Send + 'static,
    O: Into<Reply<R::Response>>,
{
    let run: Run<S> = Box::new(move |state, context, body| {
        let place = Place::of::<R>(&context);
        let request = decode::<R>(body, place)?;
        let answer = handler(Arc::clone(state), context, request);
        Ok(Call::Plain(Box::pin(async move { answered::<R, O>(answer, place).await })))
    });
    row::<S, R>(versions, run)
}

/// A row whose requests are queued in order while their answers come later: the handler's future does the queueing and
/// gives back the future of the answer. Answers are sent in the order of the requests.
pub fn staged<S, R, F, Queue, Fut, O>(versions: RangeInclusive<i16>, handler: F) -> Route<S>
where
    S: Send + Sync + 'static,
    R: Request + Send + 'static,
    R::Response: Send,
    F: Fn(Arc<S>, RequestContext, R) -> Queue + Send + Sync + 'static,
    Queue: Future<Output = Fut> + Send + 'static,
    Fut: Future<Output = O> + Send + 'static,
    O: Into<Reply<R::Response>>,
{
    let run: Run<S> = Box::new(move |state, context, body| {
        let place = Place::of::<R>(&context);
        let request = decode::<R>(body, place)?;
        let queueing = handler(Arc::clone(state), context, request);
        Ok(Call::Staged(Box::pin(async move {
            match AssertUnwindSafe(queueing).catch_unwind().await {
                Ok(answer) => {
                    let answer: BoxFuture<'static, Outcome> =
                        Box::pin(async move { answered::<R, O>(answer, place).await });
                    Ok(answer)
                }
                Err(_panic) => Err(CloseReason::Panicked { api: place.api }),
            }
        })))
    });
    row::<S, R>(versions, run)
}

fn row<S, R: Request>(versions: RangeInclusive<i16>, run: Run<S>) -> Route<S> {
    Route { key: R::KEY.code(), name: R::KEY.name(), versions, codec_versions: R::VERSIONS, run }
}

/// Names a request in reasons and headers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) api: &'static str,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

impl Place {
    fn of<R: Request>(context: &RequestContext) -> Self {
        Self { api: R::KEY.name(), version: context.api_version, correlation_id: context.correlation_id }
    }
}

/// Decodes a body. Bytes left over in the frame are ignored, as Kafka does: librdkafka 2.16 asks for all topics by
/// Metadata 13 with three bytes too many.
pub(crate) fn decode<R: Request>(mut body: Reader, place: Place) -> Result<R, CloseReason> {
    R::decode(&mut body, place.version).map_err(|error| CloseReason::Malformed {
        api: place.api,
        version: place.version,
        error: error.to_string(),
    })
}

async fn answered<R: Request, O: Into<Reply<R::Response>>>(
    answer: impl Future<Output = O>,
    place: Place,
) -> Outcome {
    match AssertUnwindSafe(answer).catch_unwind().await.map(Into::into) {
        Ok(Reply::Response(response)) => encode::<R>(&response, place),
        Ok(Reply::Observed(response, on_written)) => match encode::<R>(&response, place) {
            Outcome::Respond(frame, _) => Outcome::Respond(frame, Some(on_written)),
            outcome @ (Outcome::Silence | Outcome::Close(_)) => outcome,
        },
        Ok(Reply::Silence) => Outcome::Silence,
        Ok(Reply::Close(reason)) => Outcome::Close(CloseReason::Handler { api: place.api, reason }),
        Err(_panic) => Outcome::Close(CloseReason::Panicked { api: place.api }),
    }
}

/// Encodes a response frame: length, header, body.
pub(crate) fn encode<R: Request>(response: &R::Response, place: Place) -> Outcome {
    match R::response_frame(response, place.version, place.correlation_id) {
        Ok(frame) => Outcome::Respond(frame, None),
        Err(error) => Outcome::Close(CloseReason::EncodeFailed {
            api: place.api,
            version: place.version,
            error: error.to_string(),
        }),
    }
}

/// A table that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Two rows serve the same API.
    #[error("{0} has two rows")]
    Duplicate(&'static str),
    /// Rows stand in the order of their keys, so that the table reads like Kafka's list.
    #[error("{0} stands after an API with a higher key")]
    Unsorted(&'static str),
    /// A row offers a version that the codec does not have.
    #[error("{name} {versions:?} goes beyond what the codec knows ({codec:?})")]
    Versions {
        /// The API's name.
        name: &'static str,
        /// What the row offers.
        versions: RangeInclusive<i16>,
        /// What the codec knows.
        codec: RangeInclusive<i16>,
    },
    /// ApiVersions is answered by the table and has no row.
    #[error("ApiVersions is computed from the table; it has no row of its own")]
    ApiVersionsRow,
}

/// Asked at each ApiVersions.
#[derive(Clone)]
struct FeatureSource(Arc<dyn Fn() -> Features + Send + Sync>);

impl std::fmt::Debug for FeatureSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FeatureSource")
    }
}

/// The APIs that a server serves.
#[derive(Debug)]
pub struct ApiTable<S> {
    routes: Vec<Route<S>>,
    identity: Option<ServerIdentity>,
    features: Option<FeatureSource>,
}

impl<S> ApiTable<S> {
    /// Checks the rows: sorted by key, each API once, versions within the codec's.
    pub fn new(routes: Vec<Route<S>>) -> Result<Self, TableError> {
        for pair in routes.windows(2) {
            if pair[0].key == pair[1].key {
                return Err(TableError::Duplicate(pair[1].name));
            }
            if pair[0].key > pair[1].key {
                return Err(TableError::Unsorted(pair[1].name));
            }
        }
        for route in &routes {
            if route.key == api_versions::KEY {
                return Err(TableError::ApiVersionsRow);
            }
            let (versions, codec) = (route.versions.clone(), route.codec_versions.clone());
            if versions.is_empty() || versions.start() < codec.start() || versions.end() > codec.end() {
                return Err(TableError::Versions { name: route.name, versions, codec });
            }
        }
        Ok(Self { routes, identity: None, features: None })
    }

    /// Lets ApiVersions (v5) refuse clients that mean to talk to another cluster or node (KIP-1242).
    #[must_use]
    pub fn with_identity(mut self, cluster_id: impl Into<String>, node_id: i32) -> Self {
        self.identity = Some(ServerIdentity { cluster_id: cluster_id.into(), node_id });
        self
    }

    /// Lets ApiVersions tell the cluster's features as they are at that moment (KIP-584). `features` must not wait.
    #[must_use]
    pub fn with_features(mut self, features: impl Fn() -> Features + Send + Sync + 'static) -> Self {
        self.features = Some(FeatureSource(Arc::new(features)));
        self
    }

    pub(crate) fn features(&self) -> Option<Features> {
        self.features.as_ref().map(|source| (source.0)())
    }

    pub(crate) fn identity(&self) -> Option<&ServerIdentity> {
        self.identity.as_ref()
    }

    /// The rows, by ascending key, without ApiVersions.
    pub fn routes(&self) -> &[Route<S>] {
        &self.routes
    }

    /// Key and versions of every row and of ApiVersions, by ascending key.
    pub(crate) fn ranges(&self) -> Vec<(i16, RangeInclusive<i16>)> {
        let mut ranges: Vec<_> =
            self.routes.iter().map(|route| (route.key, route.versions.clone())).collect();
        ranges.push((api_versions::KEY, api_versions::versions(self.identity())));
        ranges.sort_by_key(|(key, _)| *key);
        ranges
    }

    /// The place of a key in [`names`](Self::names).
    pub(crate) fn index(&self, key: i16) -> Option<usize> {
        if key == api_versions::KEY {
            return Some(self.routes.len());
        }
        self.routes.binary_search_by_key(&key, |route| route.key).ok()
    }

    /// Names of the rows in their order, ApiVersions last.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.routes.iter().map(|route| route.name).chain([api_versions::NAME])
    }

    /// Turns a frame into a call. `context` is the connection's own: it learns the client's software here.
    pub(crate) fn call(
        &self,
        state: &Arc<S>,
        connection: &mut RequestContext,
        frame: Bytes,
    ) -> Result<(usize, Call), CloseReason> {
        let (key, version) = peek(&frame)?;
        let unknown = CloseReason::UnknownApi { key, version };
        if key == api_versions::KEY {
            let call = api_versions::answer(self, connection, frame, version)?;
            return Ok((self.routes.len(), Call::Done(call)));
        }
        let index = self.index(key).ok_or(unknown)?;
        let route = &self.routes[index];
        if !route.versions.contains(&version) {
            return Err(CloseReason::UnknownApi { key, version });
        }
        let mut body = Reader::new(frame);
        let header = RequestHeader::decode(&mut body)
            .map_err(|error| CloseReason::MalformedHeader(error.to_string()))?;
        let context = RequestContext {
            api_version: version,
            correlation_id: header.correlation_id,
            client_id: header.client_id,
            ..connection.clone()
        };
        (route.run)(state, context, body).map(|call| (index, call))
    }
}

/// Key and version, the first four bytes of every request.
fn peek(frame: &[u8]) -> Result<(i16, i16), CloseReason> {
    match frame {
        [k0, k1, v0, v1, ..] => Ok((i16::from_be_bytes([*k0, *k1]), i16::from_be_bytes([*v0, *v1]))),
        _ => Err(CloseReason::MalformedHeader(format!("a frame of {} bytes has no header", frame.len()))),
    }
}

#[cfg(test)]
mod tests {
    use kafka_wire_core::messages::metadata::MetadataRequest;

    use super::*;

    fn metadata(body: &'static [u8]) -> Result<MetadataRequest, CloseReason> {
        let place = Place { api: "Metadata", version: 13, correlation_id: 1 };
        decode(Reader::new(Bytes::from_static(body)), place)
    }

    #[test]
    fn librdkafkas_request_for_all_topics_is_understood() {
        // The number of topics has four bytes here, where this version has one.
        let request = metadata(&[0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(request.map(|request| request.topics).ok(), Some(None));
    }

    #[test]
    fn a_body_that_is_too_short_is_malformed() {
        assert!(matches!(metadata(&[0, 0, 0]), Err(CloseReason::Malformed { version: 13, .. })));
    }
}
