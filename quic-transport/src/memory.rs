//! The transport without a network: the same calls, streams, table, limits and bytes, in one process.
//!
//! For tests of daemons. Delay and loss come from a seed, so under tokio's paused clock a run repeats exactly. Lost means
//! what it means to a caller of the real one: a request or reply that never comes (time-out), a stream that breaks.
//! Nothing is repeated. A partition also breaks the streams between its sides, at once, where QUIC would take its idle
//! time-out to notice.

use crate::backoff::SplitMix;
use crate::config::{ConfigError, Limits, Timing};
use crate::envelope::PREFIX_LEN;
use crate::error::{CallError, FrameError, Refusal};
use crate::frames::{FrameReceiver, FrameSender, Sink, Source};
use crate::identity::Identity;
use crate::metrics::{Side, TransportMetrics};
use crate::peer::{Link, Peer, PeerTarget, Request, Transport, read_reply, request_head};
use crate::router::{BoxFuture, Caller, Router};
use crate::service::{Admitted, AdmittedStream, Reply, Service};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

/// How the network in memory behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryNetworkConfig {
    /// Decides every delay and loss.
    pub seed: u64,
    /// Shortest way of a message.
    pub delay_min: Duration,
    /// Longest way of a message.
    pub delay_max: Duration,
    /// Chance that a message is lost, 0 to 1.
    pub loss: f64,
    /// Frames on their way per stream and direction; above it sending waits.
    pub stream_frames_max: usize,
}

impl Default for MemoryNetworkConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            delay_min: Duration::ZERO,
            delay_max: Duration::ZERO,
            loss: 0.0,
            stream_frames_max: 64,
        }
    }
}

/// A network of endpoints in one process. Cheap to clone.
#[derive(Clone)]
pub struct MemoryNetwork {
    shared: Arc<Shared>,
}

struct Shared {
    config: MemoryNetworkConfig,
    random: Mutex<SplitMix>,
    map: Mutex<Map>,
    /// Counts changes of the map.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Map {
    endpoints: BTreeMap<SocketAddr, Arc<Core>>,
    /// Pairs that do not hear each other, lower address first.
    cuts: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Open streams, to be broken by a cut.
    streams: Vec<(SocketAddr, SocketAddr, CancellationToken)>,
}

/// One endpoint's answering side.
struct Core {
    identity: Identity,
    address: SocketAddr,
    service: Service,
    down: CancellationToken,
}

impl MemoryNetwork {
    /// An empty network.
    pub fn new(config: MemoryNetworkConfig) -> Self {
        let shared = Shared {
            config,
            random: Mutex::new(SplitMix::new(config.seed)),
            map: Mutex::default(),
            changes: watch::Sender::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Puts an endpoint at `address`, in place of the one that was there.
    pub fn endpoint(
        &self,
        identity: Identity,
        address: SocketAddr,
        router: Router,
        limits: Limits,
        metrics: TransportMetrics,
    ) -> Result<MemoryEndpoint, ConfigError> {
        limits.validate()?;
        let core = Arc::new(Core {
            identity,
            address,
            service: Service::new(router, limits, &Timing::default(), metrics.clone()),
            down: CancellationToken::new(),
        });
        let before = self.shared.map.lock().endpoints.insert(address, Arc::clone(&core));
        if let Some(before) = before {
            before.down.cancel();
        }
        self.shared.changed();
        Ok(MemoryEndpoint { core, shared: Arc::clone(&self.shared), limits, metrics })
    }

    /// Makes two addresses deaf to each other.
    pub fn partition(&self, a: SocketAddr, b: SocketAddr) {
        let mut map = self.shared.map.lock();
        map.cuts.insert(ordered(a, b));
        for (from, to, broken) in &map.streams {
            if ordered(*from, *to) == ordered(a, b) {
                broken.cancel();
            }
        }
        drop(map);
        self.shared.changed();
    }

    /// Ends a partition.
    pub fn heal(&self, a: SocketAddr, b: SocketAddr) {
        self.shared.map.lock().cuts.remove(&ordered(a, b));
        self.shared.changed();
    }

    /// Takes an endpoint off the network as `kill -9` would: its calls and streams end, nothing is answered.
    pub fn crash(&self, address: SocketAddr) {
        let gone = self.shared.map.lock().endpoints.remove(&address);
        if let Some(gone) = gone {
            gone.down.cancel();
        }
        self.shared.changed();
    }
}

fn ordered(a: SocketAddr, b: SocketAddr) -> (SocketAddr, SocketAddr) {
    (a.min(b), a.max(b))
}

impl Shared {
    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn delay(&self) -> Duration {
        self.random.lock().between(self.config.delay_min, self.config.delay_max)
    }

    fn loses(&self) -> bool {
        self.random.lock().happens(self.config.loss)
    }

    fn is_cut(&self, a: SocketAddr, b: SocketAddr) -> bool {
        self.map.lock().cuts.contains(&ordered(a, b))
    }

    /// Who answers there for us now, or why nobody does.
    fn lookup(&self, from: &Core, target: &PeerTarget) -> Result<Arc<Core>, String> {
        let map = self.map.lock();
        if map.cuts.contains(&ordered(from.address, target.address)) {
            return Err("partitioned".to_owned());
        }
        let core = map.endpoints.get(&target.address).ok_or("nobody there")?;
        if core.identity != target.identity {
            return Err(format!("the peer is {}, expected {}", core.identity, target.identity));
        }
        if core.identity.cluster_id() != from.identity.cluster_id() {
            return Err(format!("the peer is of cluster {}", core.identity.cluster_id()));
        }
        Ok(Arc::clone(core))
    }
}

/// An endpoint of a [`MemoryNetwork`]. Dropping it takes it off the network.
pub struct MemoryEndpoint {
    core: Arc<Core>,
    shared: Arc<Shared>,
    limits: Limits,
    metrics: TransportMetrics,
}

impl Transport for MemoryEndpoint {
    fn identity(&self) -> &Identity {
        &self.core.identity
    }

    fn local_addr(&self) -> SocketAddr {
        self.core.address
    }

    fn peer(&self, target: PeerTarget) -> Peer {
        Peer::new(Arc::new(MemoryLink {
            target,
            from: Arc::clone(&self.core),
            shared: Arc::clone(&self.shared),
            limits: self.limits,
            metrics: self.metrics.clone(),
            request_ids: AtomicU64::new(1),
            connection: Mutex::new(CancellationToken::new()),
        }))
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.core.service.drain(grace).await;
            self.leave();
        })
    }
}

impl MemoryEndpoint {
    fn leave(&self) {
        self.core.down.cancel();
        let mut map = self.shared.map.lock();
        if map.endpoints.get(&self.core.address).is_some_and(|there| Arc::ptr_eq(there, &self.core)) {
            map.endpoints.remove(&self.core.address);
        }
        drop(map);
        self.shared.changed();
    }
}

impl Drop for MemoryEndpoint {
    fn drop(&mut self) {
        self.leave();
    }
}

struct MemoryLink {
    target: PeerTarget,
    from: Arc<Core>,
    shared: Arc<Shared>,
    limits: Limits,
    metrics: TransportMetrics,
    request_ids: AtomicU64,
    /// Cancelled and replaced by a disconnect.
    connection: Mutex<CancellationToken>,
}

impl MemoryLink {
    async fn reach(&self, deadline: Instant) -> Result<Arc<Core>, CallError> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            if self.from.down.is_cancelled() {
                return Err(CallError::Unreachable { reason: "the endpoint is shut down".to_owned() });
            }
            match self.shared.lookup(&self.from, &self.target) {
                Ok(core) => return Ok(core),
                Err(reason) => {
                    if timeout_at(deadline, changes.changed()).await.is_err() {
                        return Err(CallError::Unreachable { reason });
                    }
                }
            }
        }
    }

    /// Carries one message over the network, or loses it until the deadline.
    async fn travel(&self, deadline: Instant) -> Result<(), CallError> {
        sleep(self.shared.delay()).await;
        if self.shared.loses() || self.shared.is_cut(self.from.address, self.target.address) {
            sleep_until(deadline).await;
            return Err(CallError::Timeout);
        }
        Ok(())
    }

    fn caller(&self) -> Caller {
        Caller { identity: self.from.identity.clone(), address: self.from.address }
    }

    /// Runs `work` until the deadline, or until one of the ends goes away.
    async fn connected<T>(
        &self,
        core: &Core,
        deadline: Instant,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let disconnected = self.connection.lock().clone();
        tokio::select! {
            biased;
            () = core.down.cancelled() => Err(CallError::closed("the peer went away")),
            () = self.from.down.cancelled() => Err(CallError::closed("the endpoint is shut down")),
            () = disconnected.cancelled() => Err(CallError::closed("disconnected")),
            outcome = timeout_at(deadline, work) => outcome.unwrap_or(Err(CallError::Timeout)),
        }
    }

    async fn exchange(&self, request: Request, deadline: Instant) -> Result<Bytes, CallError> {
        let core = self.reach(deadline).await?;
        let request_id = self.request_ids.fetch_add(1, Ordering::Relaxed);
        let head = request_head(&request, false, request_id, deadline);
        self.metrics.sent().inc_by(request.body.len() as u64);
        let work = async {
            self.travel(deadline).await?;
            let (reply, _delivering) = match admit(&core, &self.caller(), &head, &request.body).await {
                Ok(Admitted::Call(call)) => {
                    let (reply, delivering) = core.service.run(call).await;
                    (reply, Some(delivering))
                }
                // The header says that this is a call, and the table was asked.
                Ok(Admitted::Stream(_)) => (Reply::refused(request_id, Refusal::WrongShape), None),
                Err(reply) => (reply, None),
            };
            self.travel(deadline).await?;
            let body = read_reply(&frame(&reply.head, &reply.body), request_id)?;
            self.metrics.received().inc_by(body.len() as u64);
            Ok(body)
        };
        self.connected(&core, deadline, work).await
    }

    async fn open_frames(
        &self,
        request: Request,
        deadline: Instant,
    ) -> Result<(FrameSender, FrameReceiver), CallError> {
        let core = self.reach(deadline).await?;
        let request_id = self.request_ids.fetch_add(1, Ordering::Relaxed);
        let head = request_head(&request, true, request_id, deadline);
        let work = async {
            self.travel(deadline).await?;
            let admitted = match admit(&core, &self.caller(), &head, &request.body).await {
                Ok(Admitted::Stream(stream)) => Ok(stream),
                Ok(Admitted::Call(_)) => Err(Reply::refused(request_id, Refusal::WrongShape)),
                Err(reply) => Err(reply),
            };
            self.travel(deadline).await?;
            match admitted {
                Ok(stream) => Ok(stream),
                Err(reply) => Err(read_reply(&frame(&reply.head, &reply.body), request_id)
                    .err()
                    .unwrap_or_else(|| CallError::closed("refused"))),
            }
        };
        let admitted = self.connected(&core, deadline, work).await?;
        Ok(self.connect_stream(&core, admitted, request.kind))
    }

    /// Two pipes, and the handler at the far end in a task of its own.
    fn connect_stream(
        &self,
        core: &Arc<Core>,
        admitted: AdmittedStream,
        kind: u16,
    ) -> (FrameSender, FrameReceiver) {
        let broken = CancellationToken::new();
        let mut map = self.shared.map.lock();
        map.streams.retain(|(_, _, token)| !token.is_cancelled());
        map.streams.push((self.from.address, core.address, broken.clone()));
        drop(map);
        let (near_pipe, far_source) = pipe(&self.shared, &broken);
        let (far_pipe, near_source) = pipe(&self.shared, &broken);
        let AdmittedStream { call, handler, permit } = admitted;
        let limit = self.limits.frame_bytes_max;
        let server = &core.service.metrics;
        let open = server.stream(Side::Server, kind);
        let far_sender = FrameSender::new(Sink::Memory(far_pipe), limit, server.sent(), open);
        let far_receiver = FrameReceiver::new(Source::Memory(far_source), server.received());
        let (down, away, disconnected) =
            (core.down.clone(), self.from.down.clone(), self.connection.lock().clone());
        tokio::spawn(async move {
            let _permit = permit;
            let work = async {
                handler(call, far_sender, far_receiver).await;
                // The streams outlive their handler: what it finished is still on its way.
                broken.cancelled().await;
            };
            tokio::select! {
                () = work => {}
                () = down.cancelled() => {}
                () = away.cancelled() => {}
                () = disconnected.cancelled() => {}
            }
            broken.cancel();
        });
        let open = self.metrics.stream(Side::Client, kind);
        let sender = FrameSender::new(Sink::Memory(near_pipe), limit, self.metrics.sent(), open);
        (sender, FrameReceiver::new(Source::Memory(near_source), self.metrics.received()))
    }
}

impl Link for MemoryLink {
    fn target(&self) -> &PeerTarget {
        &self.target
    }

    fn metrics(&self) -> &TransportMetrics {
        &self.metrics
    }

    fn call_bytes_max(&self) -> usize {
        self.limits.call_bytes_max
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
        Box::pin(async move { self.reach(deadline).await.map(drop) })
    }

    fn is_connected(&self) -> bool {
        self.shared.lookup(&self.from, &self.target).is_ok()
    }

    fn disconnect(&self, _reason: &str) {
        std::mem::take(&mut *self.connection.lock()).cancel();
    }
}

async fn admit(core: &Core, caller: &Caller, head: &Bytes, body: &Bytes) -> Result<Admitted, Reply> {
    let frame = frame(head, body);
    let _memory = core.service.reserve(frame.len()).await;
    core.service.admit(caller, &frame)
}

/// A frame as the other side would read it: without its length prefix.
fn frame(head: &Bytes, body: &Bytes) -> Bytes {
    let mut frame = BytesMut::from(&head[PREFIX_LEN..]);
    frame.extend_from_slice(body);
    frame.freeze()
}

enum Item {
    Frame(Bytes),
    End,
}

fn pipe(shared: &Arc<Shared>, stream: &CancellationToken) -> (PipeSender, PipeReceiver) {
    let (tx, rx) = mpsc::channel(shared.config.stream_frames_max);
    let broken = stream.child_token();
    let sender = PipeSender {
        shared: Arc::clone(shared),
        stream: stream.clone(),
        broken: broken.clone(),
        tx,
        last_at: Instant::now(),
    };
    (sender, PipeReceiver { broken, rx, next: None, ended: false })
}

/// One direction of a stream in memory.
pub(crate) struct PipeSender {
    shared: Arc<Shared>,
    /// The stream, both directions.
    stream: CancellationToken,
    /// This direction.
    broken: CancellationToken,
    tx: mpsc::Sender<(Instant, Item)>,
    /// When the frame before arrives: order is kept.
    last_at: Instant,
}

impl PipeSender {
    pub(crate) async fn send(&mut self, frame: Bytes) -> Result<(), FrameError> {
        if self.shared.loses() {
            self.stream.cancel();
        }
        self.put(Item::Frame(frame)).await
    }

    pub(crate) async fn finish(&mut self) -> Result<(), FrameError> {
        self.put(Item::End).await
    }

    pub(crate) fn abandon(&mut self) {
        self.broken.cancel();
    }

    pub(crate) async fn closed(&self) {
        tokio::select! {
            () = self.broken.cancelled() => {}
            () = self.tx.closed() => {}
        }
    }

    async fn put(&mut self, item: Item) -> Result<(), FrameError> {
        self.last_at = self.last_at.max(Instant::now() + self.shared.delay());
        let sent = self.broken.run_until_cancelled(self.tx.send((self.last_at, item))).await;
        match sent {
            Some(Ok(())) if !self.broken.is_cancelled() => Ok(()),
            Some(Ok(()) | Err(_)) | None => Err(FrameError::closed("the stream is broken")),
        }
    }
}

pub(crate) struct PipeReceiver {
    broken: CancellationToken,
    rx: mpsc::Receiver<(Instant, Item)>,
    /// Taken out of the channel, not yet arrived.
    next: Option<(Instant, Item)>,
    ended: bool,
}

impl PipeReceiver {
    /// Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.ended {
            return Ok(None);
        }
        let broken = self.broken.clone();
        let arrived = broken.run_until_cancelled(self.arrive()).await;
        match arrived.flatten() {
            Some(Item::Frame(frame)) => Ok(Some(frame)),
            Some(Item::End) => {
                self.ended = true;
                Ok(None)
            }
            None => Err(FrameError::closed("the stream is broken")),
        }
    }

    async fn arrive(&mut self) -> Option<Item> {
        if self.next.is_none() {
            self.next = self.rx.recv().await;
        }
        let at = self.next.as_ref()?.0;
        sleep_until(at).await;
        self.next.take().map(|(_, item)| item)
    }
}
