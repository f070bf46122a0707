//! One peer over QUIC: a connection that is made on demand, watched, and made again.
//!
//! A call without a connection waits for one until its deadline; attempts go on in a task of their own with exponential
//! back-off, so that short deadlines do not abort a handshake, and end when nobody has asked for a while. Calls in
//! progress when the connection ends fail as closed, at once: the transport repeats nothing that may have been sent.

use crate::backoff::Backoff;
use crate::config::{Limits, Timing};
use crate::error::{CallError, FrameError, Refusal};
use crate::frames::{FrameReader, FrameReceiver, FrameSender, Sink, Source, write_ended};
use crate::metrics::{Side, TransportMetrics};
use crate::peer::{Link, PeerTarget, Request, call_frame_max, read_reply, request_head};
use crate::router::BoxFuture;
use bytes::Bytes;
use parking_lot::Mutex;
use quinn::VarInt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Close code of a connection that is no longer wanted.
const NO_LONGER_WANTED: VarInt = VarInt::from_u32(0);
/// No meaning, but TLS wants some name; certificates are checked by identity.
const SERVER_NAME: &str = "weir.internal";

/// What the links of an endpoint share.
#[derive(Clone)]
pub(crate) struct LinkContext {
    pub(crate) endpoint: quinn::Endpoint,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
    pub(crate) metrics: TransportMetrics,
    pub(crate) stop: CancellationToken,
}

pub(crate) struct QuicLink {
    me: Weak<QuicLink>,
    target: PeerTarget,
    context: LinkContext,
    client: quinn::ClientConfig,
    state: Mutex<LinkState>,
    status: watch::Sender<Status>,
    request_ids: AtomicU64,
}

struct LinkState {
    backoff: Backoff,
    /// Whether a task is connecting.
    connecting: bool,
    connected_at: Option<Instant>,
    connected_before: bool,
    /// Until when somebody wants the connection.
    wanted_until: Instant,
}

#[derive(Clone)]
enum Status {
    Up(quinn::Connection),
    Down(Arc<str>),
}

impl QuicLink {
    pub(crate) fn new(
        target: PeerTarget,
        context: LinkContext,
        client: quinn::ClientConfig,
        seed: u64,
    ) -> Arc<Self> {
        let timing = &context.timing;
        let state = LinkState {
            backoff: Backoff::new(timing.backoff_first, timing.backoff_max, seed),
            connecting: false,
            connected_at: None,
            connected_before: false,
            wanted_until: Instant::now(),
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            target,
            context,
            client,
            state: Mutex::new(state),
            status: watch::Sender::new(Status::Down("not connected yet".into())),
            request_ids: AtomicU64::new(seed),
        })
    }

    /// The connection, waiting for it until `deadline`.
    async fn connection(&self, deadline: Instant) -> Result<quinn::Connection, CallError> {
        let mut status = self.status.subscribe();
        loop {
            if let Some(connection) = live(&status.borrow_and_update()) {
                return Ok(connection);
            }
            if self.context.stop.is_cancelled() {
                return Err(CallError::Unreachable { reason: "the endpoint is shut down".to_owned() });
            }
            self.want(deadline);
            tokio::select! {
                changed = timeout_at(deadline, status.changed()) => {
                    if changed.is_err() {
                        let reason = down_reason(&status.borrow());
                        return Err(CallError::Unreachable { reason });
                    }
                }
                () = self.context.stop.cancelled() => {}
            }
        }
    }

    /// Makes sure that a task is connecting.
    fn want(&self, until: Instant) {
        let mut state = self.state.lock();
        state.wanted_until = state.wanted_until.max(until).max(Instant::now() + self.context.timing.demand);
        if state.connecting || live(&self.status.borrow()).is_some() {
            return;
        }
        state.connecting = true;
        if let Some(at) = state.connected_at.take() {
            // A peer that accepts and then throws us out is a failure; one that was lost after a while is not.
            if at.elapsed() < self.context.timing.backoff_max {
                state.backoff.on_failure();
            } else {
                state.backoff.on_success();
            }
        }
        tokio::spawn(keep_connecting(Weak::clone(&self.me), self.context.stop.clone()));
    }

    /// One attempt.
    async fn attempt(&self) -> Result<quinn::Connection, String> {
        let endpoint = &self.context.endpoint;
        let connecting = endpoint
            .connect_with(self.client.clone(), self.target.address, SERVER_NAME)
            .map_err(|e| e.to_string())?;
        match tokio::time::timeout(self.context.timing.connect, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_elapsed) => Err(format!("no answer within {:?}", self.context.timing.connect)),
        }
    }

    fn on_connected(&self, connection: quinn::Connection) {
        let mut state = self.state.lock();
        self.context.metrics.connected(state.connected_before);
        tracing::debug!(peer = %self.target.identity, address = %self.target.address, "connected");
        state.connecting = false;
        state.connected_at = Some(Instant::now());
        state.connected_before = true;
        self.status.send_replace(Status::Up(connection));
    }

    fn on_failed(&self, reason: String) {
        self.context.metrics.connect_failed();
        tracing::debug!(peer = %self.target.identity, address = %self.target.address, reason, "cannot connect");
        self.state.lock().backoff.on_failure();
        self.status.send_replace(Status::Down(reason.into()));
    }

    fn on_lost(&self, connection: &quinn::Connection, reason: String) {
        self.status.send_if_modified(|status| match status {
            Status::Up(current) if current.stable_id() == connection.stable_id() => {
                *status = Status::Down(reason.into());
                true
            }
            Status::Up(_) | Status::Down(_) => false,
        });
    }

    /// Whether the connecting task should end because nobody waits.
    fn gives_up(&self) -> bool {
        let mut state = self.state.lock();
        let unwanted = state.wanted_until < Instant::now();
        if unwanted {
            state.connecting = false;
        }
        unwanted
    }

    /// Opens a QUIC stream. As nothing is sent before, a connection that turns out to be dead is simply replaced.
    async fn open_bi(&self, deadline: Instant) -> Result<(quinn::SendStream, quinn::RecvStream), CallError> {
        loop {
            let connection = self.connection(deadline).await?;
            match timeout_at(deadline, connection.open_bi()).await {
                Ok(Ok(streams)) => return Ok(streams),
                Ok(Err(error)) => self.on_lost(&connection, error.to_string()),
                // All streams that the peer grants are in use.
                Err(_elapsed) => return Err(CallError::Refused { refusal: Refusal::Busy }),
            }
        }
    }

    async fn exchange(&self, request: Request, deadline: Instant) -> Result<Bytes, CallError> {
        let (mut send, recv) = self.open_bi(deadline).await?;
        let request_id = self.request_ids.fetch_add(1, Ordering::Relaxed);
        let head = request_head(&request, false, request_id, deadline);
        let work = async {
            let sent = request.body.len();
            write_request(&mut send, head, request.body).await?;
            // Fails only if the peer has stopped reading; its reply says why.
            let _stopped = send.finish();
            self.context.metrics.sent().inc_by(sent as u64);
            let mut reader = FrameReader::new(recv, call_frame_max(self.context.limits.call_bytes_max));
            let body = first_reply(&mut reader, request_id).await?;
            if !reader.at_end().await.map_err(reply_error)? {
                return Err(CallError::Remote("bytes left over after the reply".to_owned()));
            }
            self.context.metrics.received().inc_by(body.len() as u64);
            Ok(body)
        };
        timeout_at(deadline, work).await.unwrap_or(Err(CallError::Timeout))
    }

    async fn open_frames(
        &self,
        request: Request,
        deadline: Instant,
    ) -> Result<(FrameSender, FrameReceiver), CallError> {
        let (mut send, recv) = self.open_bi(deadline).await?;
        let request_id = self.request_ids.fetch_add(1, Ordering::Relaxed);
        let (kind, limits) = (request.kind, &self.context.limits);
        let head = request_head(&request, true, request_id, deadline);
        let work = async {
            write_request(&mut send, head, request.body).await?;
            let mut reader = FrameReader::new(recv, call_frame_max(limits.call_bytes_max));
            first_reply(&mut reader, request_id).await?;
            reader.set_limit(limits.frame_bytes_max);
            Ok(reader)
        };
        let reader = timeout_at(deadline, work).await.unwrap_or(Err(CallError::Timeout))?;
        let metrics = &self.context.metrics;
        let open = metrics.stream(Side::Client, kind);
        let sender = FrameSender::new(Sink::Quic(send), limits.frame_bytes_max, metrics.sent(), open);
        let receiver = FrameReceiver::new(Source::Quic(reader), metrics.received());
        let link: Arc<dyn Link> = self.me.upgrade().expect("a method of the link is running");
        Ok((sender.keeping(Arc::clone(&link)), receiver.keeping(link)))
    }
}

impl Link for QuicLink {
    fn target(&self) -> &PeerTarget {
        &self.target
    }

    fn metrics(&self) -> &TransportMetrics {
        &self.context.metrics
    }

    fn call_bytes_max(&self) -> usize {
        self.context.limits.call_bytes_max
    }

    fn call(&self, request: Request, deadline: Instant) -> BoxFuture<'_, Result<Bytes, CallError>> {
        Box::pin(self.exchange(request, deadline))
    }

    fn open(
        &self,
        request: Request,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<(FrameSender, FrameReceiver), CallError>> {
        Box::pin(self.open_frames(request, deadline))
    }

    fn connect(&self, deadline: Instant) -> BoxFuture<'_, Result<(), CallError>> {
        Box::pin(async move { self.connection(deadline).await.map(drop) })
    }

    fn is_connected(&self) -> bool {
        live(&self.status.borrow()).is_some()
    }

    fn disconnect(&self, reason: &str) {
        if let Some(connection) = live(&self.status.borrow()) {
            connection.close(NO_LONGER_WANTED, reason.as_bytes());
        }
    }
}

impl Drop for QuicLink {
    fn drop(&mut self) {
        self.disconnect("no longer used");
    }
}

/// The connecting task: attempts with pauses until one succeeds or nobody wants it; then watches the connection.
async fn keep_connecting(link: Weak<QuicLink>, stop: CancellationToken) {
    loop {
        let Some(pause) = link.upgrade().map(|link| link.state.lock().backoff.pause()) else {
            return;
        };
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        let Some(this) = link.upgrade() else {
            return;
        };
        if this.gives_up() {
            return;
        }
        match stop.run_until_cancelled(this.attempt()).await {
            None => return,
            Some(Err(reason)) => this.on_failed(reason),
            Some(Ok(connection)) => {
                let _open = this.context.metrics.connection(Side::Client);
                this.on_connected(connection.clone());
                drop(this);
                let reason = connection.closed().await.to_string();
                tracing::debug!(reason, "connection lost");
                if let Some(this) = link.upgrade() {
                    this.on_lost(&connection, reason);
                }
                return;
            }
        }
    }
}

fn live(status: &Status) -> Option<quinn::Connection> {
    match status {
        Status::Up(connection) if connection.close_reason().is_none() => Some(connection.clone()),
        Status::Up(_) | Status::Down(_) => None,
    }
}

fn down_reason(status: &Status) -> String {
    match status {
        Status::Down(reason) => reason.to_string(),
        Status::Up(connection) => {
            connection.close_reason().map_or_else(|| "lost".to_owned(), |reason| reason.to_string())
        }
    }
}

async fn write_request(send: &mut quinn::SendStream, head: Bytes, body: Bytes) -> Result<(), CallError> {
    match send.write_all_chunks(&mut [head, body]).await {
        // A peer that stops reading has refused, and its reply says why.
        Ok(()) | Err(quinn::WriteError::Stopped(_)) => Ok(()),
        Err(error) => Err(CallError::closed(write_ended(error))),
    }
}

async fn first_reply(reader: &mut FrameReader, request_id: u64) -> Result<Bytes, CallError> {
    match reader.next().await {
        Ok(Some(frame)) => read_reply(&frame, request_id),
        Ok(None) => Err(CallError::closed("the stream ended without a reply")),
        Err(error) => Err(reply_error(error)),
    }
}

fn reply_error(error: FrameError) -> CallError {
    match error {
        FrameError::Closed { reason } => CallError::Closed { reason },
        FrameError::TooLarge { length, limit } => CallError::TooLarge { length, limit },
        FrameError::Truncated => CallError::closed("the reply was cut short"),
        FrameError::Malformed(reason) => CallError::Remote(reason),
        FrameError::Abandoned => CallError::closed("the stream was given up"),
    }
}
