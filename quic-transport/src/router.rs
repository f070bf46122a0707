//! The table of what a daemon answers: message kind → who may ask, which versions, which handler.
//!
//! A handler is a function from a [`Call`] to a future. The future is dropped when the deadline passes, when the caller
//! gives up or when the connection ends: what must not stop half-way belongs into a task of its own, behind a queue.

use crate::envelope::TraceId;
use crate::error::Refusal;
use crate::frames::{FrameReceiver, FrameSender};
use crate::identity::{Identity, Role, Roles};
use bytes::Bytes;
use proto_types::message_kind::MessageKind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::Instant;

/// A future on the heap, as handlers and object-safe traits return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The version that every kind begins with.
pub const FIRST_VERSION: u16 = 1;

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// As the certificate says.
    pub identity: Identity,
    /// Where the connection comes from.
    pub address: SocketAddr,
}

/// A request that passed the table.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who is asking.
    pub caller: Caller,
    /// What is asked.
    pub kind: MessageKind,
    /// Version of the body.
    pub version: u16,
    /// Chosen by the caller; for logs.
    pub request_id: u64,
    /// For logs.
    pub trace: TraceId,
    /// When the caller no longer waits; for a stream, when opening it must be done.
    pub deadline: Instant,
    /// The request; for a stream, its hello.
    pub body: Bytes,
}

impl Call {
    /// Decodes the body, which must be used up.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        proto_types::decode(&self.body).map_err(|e| Refusal::Malformed(e.to_string()))
    }
}

pub(crate) type CallHandler = Arc<dyn Fn(Call) -> BoxFuture<'static, Result<Bytes, Refusal>> + Send + Sync>;
pub(crate) type StreamHandler =
    Arc<dyn Fn(Call, FrameSender, FrameReceiver) -> BoxFuture<'static, ()> + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Handler {
    Call(CallHandler),
    Stream(StreamHandler),
}

/// One row.
struct Route {
    roles: Roles,
    versions: RangeInclusive<u16>,
    handler: Handler,
}

/// The finished table. Cheap to clone.
#[derive(Clone, Default)]
pub struct Router {
    routes: Arc<BTreeMap<MessageKind, Route>>,
}

impl Router {
    /// A table without rows, for endpoints that only ask.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Begins a table.
    pub fn builder() -> RouterBuilder {
        RouterBuilder { routes: BTreeMap::new() }
    }

    /// The rows: kind and who may ask it.
    pub fn rows(&self) -> impl Iterator<Item = (MessageKind, Roles)> + '_ {
        self.routes.iter().map(|(kind, route)| (*kind, route.roles))
    }

    /// Finds the handler for what a caller wants, or says why there is none. Whether the kind exists is answered to
    /// everybody in the cluster: the table is no secret.
    pub(crate) fn find(
        &self,
        kind: u16,
        version: u16,
        role: Role,
    ) -> Result<(MessageKind, Handler), Refusal> {
        let kind = MessageKind::from_number(kind).ok_or(Refusal::UnknownKind)?;
        let route = self.routes.get(&kind).ok_or(Refusal::UnknownKind)?;
        if !route.roles.contains(role) {
            return Err(Refusal::Forbidden);
        }
        if !route.versions.contains(&version) {
            let (min, max) = (*route.versions.start(), *route.versions.end());
            return Err(Refusal::UnsupportedVersion { min, max });
        }
        Ok((kind, route.handler.clone()))
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.routes.keys()).finish()
    }
}

/// Collects rows.
pub struct RouterBuilder {
    routes: BTreeMap<MessageKind, Route>,
}

impl RouterBuilder {
    /// A short call over raw bytes.
    ///
    /// # Panics
    /// If the kind has a row already.
    pub fn call<H, F>(self, kind: MessageKind, roles: Roles, handler: H) -> Self
    where
        H: Fn(Call) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Bytes, Refusal>> + Send + 'static,
    {
        let handler: CallHandler = Arc::new(move |call| Box::pin(handler(call)));
        self.row(kind, roles, Handler::Call(handler))
    }

    /// A short call over messages: decodes the request, encodes the answer. The [`Call`] keeps who asks and until when.
    ///
    /// # Panics
    /// If the kind has a row already.
    pub fn ask<Q, A, H, F>(self, kind: MessageKind, roles: Roles, handler: H) -> Self
    where
        Q: DeserializeOwned + Send + 'static,
        A: Serialize + Send + 'static,
        H: Fn(Call, Q) -> F + Send + Sync + 'static,
        F: Future<Output = Result<A, Refusal>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.call(kind, roles, move |call| {
            let handler = Arc::clone(&handler);
            async move {
                let question = call.decode::<Q>()?;
                let answer = handler(call, question).await?;
                Ok(Bytes::from(proto_types::encode(&answer)))
            }
        })
    }

    /// A long-lived stream. The call's body is the hello. The stream ends when the handler returns; what it did not finish
    /// properly ([`FrameSender::finish`]) is an error at the other side.
    ///
    /// # Panics
    /// If the kind has a row already.
    pub fn stream<H, F>(self, kind: MessageKind, roles: Roles, handler: H) -> Self
    where
        H: Fn(Call, FrameSender, FrameReceiver) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let handler: StreamHandler = Arc::new(move |call, tx, rx| Box::pin(handler(call, tx, rx)));
        self.row(kind, roles, Handler::Stream(handler))
    }

    /// Widens the versions of a row; it begins with [`FIRST_VERSION`] alone.
    ///
    /// # Panics
    /// If the kind has no row.
    pub fn versions(mut self, kind: MessageKind, versions: RangeInclusive<u16>) -> Self {
        let route = self.routes.get_mut(&kind).expect("versions are set on a row that exists");
        route.versions = versions;
        self
    }

    /// The finished table.
    pub fn build(self) -> Router {
        Router { routes: Arc::new(self.routes) }
    }

    fn row(mut self, kind: MessageKind, roles: Roles, handler: Handler) -> Self {
        let route = Route { roles, versions: FIRST_VERSION..=FIRST_VERSION, handler };
        assert!(self.routes.insert(kind, route).is_none(), "{kind:?} has two rows");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router() -> Router {
        Router::builder()
            .call(
                MessageKind::Controller,
                Roles::of(&[Role::StorageNode]),
                |call| async move { Ok(call.body) },
            )
            .versions(MessageKind::Controller, 2..=3)
            .build()
    }

    #[test]
    fn the_table_decides() {
        let router = router();
        let number = MessageKind::Controller.number();
        let find = |kind, version, role| router.find(kind, version, role).map(|(kind, _)| kind);
        assert_eq!(find(number, 2, Role::StorageNode), Ok(MessageKind::Controller));
        assert_eq!(find(number, 3, Role::StorageNode), Ok(MessageKind::Controller));
        let versions = Refusal::UnsupportedVersion { min: 2, max: 3 };
        assert_eq!(find(number, 1, Role::StorageNode), Err(versions.clone()));
        assert_eq!(find(number, 4, Role::StorageNode), Err(versions));
        assert_eq!(find(number, 2, Role::Admin), Err(Refusal::Forbidden));
        assert_eq!(find(MessageKind::RaftVote.number(), 1, Role::Controller), Err(Refusal::UnknownKind));
        assert_eq!(find(65_535, 1, Role::Controller), Err(Refusal::UnknownKind));
    }

    #[test]
    #[should_panic(expected = "two rows")]
    fn a_kind_has_one_row() {
        let roles = Roles::of(&Role::ALL);
        let builder =
            Router::builder().call(MessageKind::RaftVote, roles, |call| async move { Ok(call.body) });
        let _ = builder.call(MessageKind::RaftVote, roles, |call| async move { Ok(call.body) });
    }
}
