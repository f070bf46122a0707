//! One UDP socket that answers calls and makes them.
//!
//! A daemon has two: control and data, so that a heartbeat never queues behind bulk. Each accepted connection is one
//! identity, proven in the handshake; each of its streams is one request, served in a task of its own.

use crate::config::{ConfigError, EndpointConfig, Limits, PathProfile, Timing};
use crate::error::{FrameError, Refusal};
use crate::frames::{FrameReader, FrameReceiver, FrameSender, Sink, Source};
use crate::identity::Identity;
use crate::link::{LinkContext, QuicLink};
use crate::metrics::{Side, TransportMetrics};
use crate::peer::{Peer, PeerTarget, Transport, call_frame_max};
use crate::router::{BoxFuture, Caller, Router};
use crate::service::{Admitted, AdmittedStream, Reply, Service};
use crate::socket::DatagramSocket;
use crate::tls::{Tls, TlsError};
use bytes::Bytes;
use parking_lot::Mutex;
use quinn::{TokioRuntime, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use rustls_pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const SHUT_DOWN: VarInt = VarInt::from_u32(1);
const TOO_MANY_CONNECTIONS: VarInt = VarInt::from_u32(2);
/// Stop code for a request that is not read to its end.
const NOT_READ: VarInt = VarInt::from_u32(3);
/// Shortest time between two log lines about refused connections.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(1);
/// First congestion window of the jumbo profile: it must hold several datagrams or the handshake hangs.
const JUMBO_INITIAL_WINDOW: u64 = 4 << 20;
/// Round trip that is assumed before one was measured; decides how fast a lost first packet is repeated.
const INITIAL_RTT: Duration = Duration::from_millis(50);
/// What is kept of packets that come in before a connection is accepted: one attempt, all attempts.
const INCOMING_BUFFER: (u64, u64) = (64 << 10, 4 << 20);

/// An endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A setting that cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Certificates that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The socket.
    #[error("UDP {address}: {source}")]
    Socket {
        /// Where it should have been bound.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A QUIC endpoint. Cheap to clone; dropping the last clone closes everything.
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<EndpointInner>,
}

struct EndpointInner {
    identity: Identity,
    local_addr: SocketAddr,
    tls: Tls,
    path: PathProfile,
    seed: u64,
    context: LinkContext,
    server: Arc<Server>,
    links: Mutex<BTreeMap<PeerTarget, Weak<QuicLink>>>,
}

impl Endpoint {
    /// Opens the socket and begins to answer what `router` knows. Needs a tokio runtime.
    pub fn bind(
        config: EndpointConfig,
        router: Router,
        metrics: TransportMetrics,
    ) -> Result<Self, BindError> {
        config.validate()?;
        let socket = DatagramSocket::udp(config.bind, config.path, &config.limits)
            .map_err(|source| BindError::Socket { address: config.bind, source })?;
        Self::bind_on(socket, config, router, metrics)
    }

    /// The same on a socket that exists already; `config.bind` is not looked at.
    pub fn bind_on(
        socket: DatagramSocket,
        config: EndpointConfig,
        router: Router,
        metrics: TransportMetrics,
    ) -> Result<Self, BindError> {
        config.validate()?;
        let tls = Tls::new(config.credentials.clone())?;
        let identity = config.credentials.identity().clone();
        // Fails here rather than at the first call.
        tls.client(identity.clone())?;
        let mut server_config = quinn::ServerConfig::with_crypto(Arc::new(tls.server()?));
        server_config
            .transport_config(Arc::new(server_transport(&config)))
            .migration(false)
            .max_incoming(config.limits.handshakes_total)
            .incoming_buffer_size(INCOMING_BUFFER.0)
            .incoming_buffer_size_total(INCOMING_BUFFER.1);
        let at_socket = |source| BindError::Socket { address: config.bind, source };
        let local_addr = socket.socket.local_addr().map_err(at_socket)?;
        let endpoint = quinn::Endpoint::new_with_abstract_socket(
            endpoint_config(&config, socket.random_seed),
            Some(server_config),
            socket.socket,
            Arc::new(TokioRuntime),
        )
        .map_err(at_socket)?;
        let stop = CancellationToken::new();
        let service = Service::new(router, config.limits, &config.timing, metrics.clone());
        let server = Arc::new(Server {
            service,
            limits: config.limits,
            timing: config.timing,
            stop: stop.clone(),
            tasks: TaskTracker::new(),
            handshakes: Arc::new(Semaphore::new(config.limits.handshakes_total)),
            connections: Mutex::default(),
            refusals: Mutex::default(),
        });
        tokio::spawn(Arc::clone(&server).accept(endpoint.clone()));
        let context = LinkContext { endpoint, limits: config.limits, timing: config.timing, metrics, stop };
        let inner = EndpointInner {
            identity,
            local_addr,
            tls,
            path: config.path,
            seed: config.seed,
            context,
            server,
            links: Mutex::new(BTreeMap::new()),
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Transport for Endpoint {
    fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr
    }

    fn peer(&self, target: PeerTarget) -> Peer {
        let inner = &self.inner;
        let mut links = inner.links.lock();
        if let Some(link) = links.get(&target).and_then(Weak::upgrade) {
            return Peer::new(link);
        }
        links.retain(|_, link| link.strong_count() > 0);
        let crypto = inner.tls.client(target.identity.clone());
        let crypto = crypto.expect("the same certificates made a client at bind");
        let mut client = quinn::ClientConfig::new(Arc::new(crypto));
        let mut transport = common_transport(inner.path, &inner.context.limits, &inner.context.timing);
        // We ask; nobody asks us on a connection that we made.
        transport.max_concurrent_bidi_streams(VarInt::from_u32(0));
        client.transport_config(Arc::new(transport));
        // Peers get different jitter from one seed.
        let salt = u64::from(target.address.port()) << 16 | u64::from(target.lane);
        let seed = inner.seed ^ salt ^ target.identity.node_id().rotate_left(40);
        let link = QuicLink::new(target.clone(), inner.context.clone(), client, seed);
        links.insert(target, Arc::downgrade(&link));
        Peer::new(link)
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let inner = &self.inner;
            inner.server.service.drain(grace).await;
            inner.context.stop.cancel();
            inner.context.endpoint.close(SHUT_DOWN, b"shutting down");
            inner.server.tasks.close();
            // Both end by themselves now; the bound is for a network that swallows the goodbyes.
            let goodbye = async {
                inner.server.tasks.wait().await;
                inner.context.endpoint.wait_idle().await;
            };
            let _late = timeout(inner.context.timing.transfer, goodbye).await;
        })
    }
}

impl Drop for EndpointInner {
    fn drop(&mut self) {
        self.context.stop.cancel();
        self.context.endpoint.close(SHUT_DOWN, b"closed");
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = &self.inner;
        f.debug_struct("Endpoint")
            .field("identity", &inner.identity)
            .field("local_addr", &inner.local_addr)
            .finish_non_exhaustive()
    }
}

fn endpoint_config(config: &EndpointConfig, random_seed: Option<[u8; 32]>) -> quinn::EndpointConfig {
    let mut endpoint = quinn::EndpointConfig::new(Arc::new(config.keys.reset.clone()));
    let payload_max = if config.path.is_jumbo() { 65_527 } else { config.path.mtu.max(1472) };
    endpoint.max_udp_payload_size(payload_max).expect("the MTU was validated");
    let key = config.keys.connection_ids;
    endpoint.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(key)));
    endpoint.min_reset_interval(config.timing.reset_interval);
    endpoint.rng_seed(random_seed);
    endpoint
}

fn server_transport(config: &EndpointConfig) -> quinn::TransportConfig {
    let mut transport = common_transport(config.path, &config.limits, &config.timing);
    let streams = config.limits.calls_per_peer.saturating_add(config.limits.streams_per_peer);
    transport.max_concurrent_bidi_streams(VarInt::from_u32(streams));
    transport
}

pub(crate) fn common_transport(
    path: PathProfile,
    limits: &Limits,
    timing: &Timing,
) -> quinn::TransportConfig {
    let mut transport = quinn::TransportConfig::default();
    let idle = quinn::IdleTimeout::try_from(timing.idle).expect("a time-out of years is not configured");
    transport
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .receive_window(VarInt::from_u32(limits.receive_window_bytes))
        .stream_receive_window(VarInt::from_u32(limits.stream_window_bytes))
        .send_window(u64::from(limits.send_window_bytes))
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(timing.keep_alive))
        .initial_rtt(INITIAL_RTT)
        .allow_spin(false)
        .enable_segmentation_offload(path.segmentation_offload);
    let mut congestion = quinn::congestion::CubicConfig::default();
    if path.is_jumbo() {
        congestion.initial_window(JUMBO_INITIAL_WINDOW);
        transport.initial_mtu(path.mtu).mtu_discovery_config(None);
    } else {
        // A network that carries less than its name is found out instead of losing every large datagram.
        let mut discovery = quinn::MtuDiscoveryConfig::default();
        discovery.upper_bound(path.mtu);
        transport.mtu_discovery_config(Some(discovery));
    }
    transport.congestion_controller_factory(Arc::new(congestion));
    transport
}

/// The accepting side.
struct Server {
    service: Service,
    limits: Limits,
    timing: Timing,
    stop: CancellationToken,
    tasks: TaskTracker,
    handshakes: Arc<Semaphore>,
    /// Accepted connections by identity.
    connections: Mutex<BTreeMap<Identity, usize>>,
    refusals: Mutex<Refusals>,
}

/// What was logged of refused connections.
#[derive(Default)]
struct Refusals {
    last_logged: Option<Instant>,
    /// Refusals since then.
    unlogged: u64,
}

impl Server {
    async fn accept(self: Arc<Self>, endpoint: quinn::Endpoint) {
        while let Some(Some(incoming)) = self.stop.run_until_cancelled(endpoint.accept()).await {
            let in_progress = self.limits.handshakes_total - self.handshakes.available_permits();
            if in_progress >= self.limits.handshakes_before_retry && !incoming.remote_address_validated() {
                // Whoever cannot prove the address costs us one small packet.
                self.service.metrics.retried();
                if incoming.retry().is_err() {
                    tracing::debug!("an attempt to connect cannot be retried");
                }
                continue;
            }
            match Arc::clone(&self.handshakes).try_acquire_owned() {
                Ok(permit) => {
                    let server = Arc::clone(&self);
                    self.tasks.spawn(async move { server.serve_connection(incoming, permit).await });
                }
                Err(_) => {
                    self.service.metrics.connection_refused();
                    incoming.refuse();
                }
            }
        }
    }

    async fn serve_connection(self: Arc<Self>, incoming: quinn::Incoming, handshake: OwnedSemaphorePermit) {
        let address = incoming.remote_address();
        let connection = match self.handshake(incoming).await {
            Ok(connection) => connection,
            Err(reason) => {
                self.on_refused(address, &reason);
                return;
            }
        };
        drop(handshake);
        let Some(identity) = identity_of(&connection) else {
            tracing::warn!(%address, "a verified certificate names nobody");
            return;
        };
        let caller = Caller { identity, address };
        let Some(_counted) = Counted::new(Arc::clone(&self), &caller.identity) else {
            self.on_refused(address, &format!("too many connections of {}", caller.identity));
            connection.close(TOO_MANY_CONNECTIONS, b"too many connections");
            return;
        };
        let _open = self.service.metrics.connection(Side::Server);
        tracing::debug!(peer = %caller.identity, %address, "connection accepted");
        while let Some(Ok((send, recv))) = self.stop.run_until_cancelled(connection.accept_bi()).await {
            let (server, caller) = (Arc::clone(&self), caller.clone());
            self.tasks.spawn(async move { server.serve_stream(&caller, send, recv).await });
        }
        let reason = connection.close_reason().map(|reason| reason.to_string());
        tracing::debug!(peer = %caller.identity, %address, reason, "connection ended");
    }

    /// Strangers cause these, so they must not be able to fill the log: one line per interval, the rest is counted.
    fn on_refused(&self, address: SocketAddr, reason: &str) {
        self.service.metrics.connection_refused();
        let mut refusals = self.refusals.lock();
        match refusals.last_logged {
            Some(at) if at.elapsed() < REFUSAL_LOG_INTERVAL => refusals.unlogged += 1,
            Some(_) | None => {
                let unlogged = std::mem::take(&mut refusals.unlogged);
                refusals.last_logged = Some(Instant::now());
                tracing::warn!(%address, reason, unlogged, "connection refused");
            }
        }
    }

    async fn handshake(&self, incoming: quinn::Incoming) -> Result<quinn::Connection, String> {
        let connecting = incoming.accept().map_err(|e| e.to_string())?;
        match timeout(self.timing.connect, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_elapsed) => Err("handshake not completed in time".to_owned()),
        }
    }

    async fn serve_stream(&self, caller: &Caller, mut send: quinn::SendStream, recv: quinn::RecvStream) {
        let mut reader = FrameReader::new(recv, call_frame_max(self.limits.call_bytes_max));
        let read = timeout(self.timing.transfer, self.read_request(caller, &mut reader)).await;
        let (admitted, memory) = match read {
            Ok(Ok(admitted)) => admitted,
            Ok(Err(Some(reply))) => {
                reader.stop(NOT_READ);
                return self.write(&mut send, reply).await;
            }
            // Gone, or too slow: nobody to answer.
            Ok(Err(None)) | Err(_) => return,
        };
        match admitted {
            Admitted::Call(call) => {
                let (reply, delivering) = tokio::select! {
                    ended = self.service.run(call) => ended,
                    _gone = send.stopped() => return,
                    () = self.stop.cancelled() => return,
                };
                drop(memory);
                self.write(&mut send, reply).await;
                // Until the reply has arrived, or nobody wants it any more.
                let _late = timeout(self.timing.transfer, send.stopped()).await;
                drop(delivering);
            }
            Admitted::Stream(stream) => {
                drop(memory);
                self.serve_frames(stream, send, reader).await;
            }
        }
    }

    /// Reads and admits a request; `Err(None)` if there is nobody to answer.
    async fn read_request(
        &self,
        caller: &Caller,
        reader: &mut FrameReader,
    ) -> Result<(Admitted, OwnedSemaphorePermit), Option<Reply>> {
        let refuse = |error| self.unread(caller, error);
        let length = reader.next_len().await.map_err(refuse)?.ok_or(None)?;
        let memory = self.service.reserve(length).await;
        let frame = reader.next().await.map_err(refuse)?.ok_or(None)?;
        let admitted = self.service.admit(caller, &frame).map_err(Some)?;
        if matches!(admitted, Admitted::Call(_)) && !reader.at_end().await.map_err(refuse)? {
            let left_over = Refusal::Malformed("bytes left over after the request".to_owned());
            return Err(Some(self.service.refuse(0, 0, left_over)));
        }
        Ok((admitted, memory))
    }

    /// The answer to a request that could not be read, if there is one.
    fn unread(&self, caller: &Caller, error: FrameError) -> Option<Reply> {
        tracing::debug!(peer = %caller.identity, %error, "unreadable request");
        match error {
            FrameError::TooLarge { .. } => {
                let limit = self.limits.call_bytes_max as u64;
                Some(self.service.refuse(0, 0, Refusal::TooLarge { limit }))
            }
            FrameError::Truncated | FrameError::Malformed(_) => {
                Some(self.service.refuse(0, 0, Refusal::Malformed(error.to_string())))
            }
            FrameError::Closed { .. } | FrameError::Abandoned => None,
        }
    }

    async fn serve_frames(
        &self,
        admitted: AdmittedStream,
        mut send: quinn::SendStream,
        mut reader: FrameReader,
    ) {
        let AdmittedStream { call, handler, permit: _permit } = admitted;
        let agreed = Reply::done(call.request_id, Bytes::new());
        match timeout(self.timing.transfer, send.write_all_chunks(&mut [agreed.head])).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
        reader.set_limit(self.limits.frame_bytes_max);
        let metrics = &self.service.metrics;
        let open = metrics.stream(Side::Server, call.kind.number());
        let sender = FrameSender::new(Sink::Quic(send), self.limits.frame_bytes_max, metrics.sent(), open);
        let receiver = FrameReceiver::new(Source::Quic(reader), metrics.received());
        self.stop.run_until_cancelled(handler(call, sender, receiver)).await;
    }

    async fn write(&self, send: &mut quinn::SendStream, reply: Reply) {
        let mut pieces = [reply.head, reply.body];
        // Whoever does not read the reply loses it; the reset tells that it is not whole.
        match timeout(self.timing.transfer, send.write_all_chunks(&mut pieces)).await {
            Ok(Ok(())) => {
                let _over = send.finish();
            }
            Ok(Err(_)) | Err(_) => {
                let _over = send.reset(NOT_READ);
            }
        }
    }
}

/// One of the connections of an identity, counted as long as it lives.
struct Counted {
    server: Arc<Server>,
    identity: Identity,
}

impl Counted {
    fn new(server: Arc<Server>, identity: &Identity) -> Option<Self> {
        let mut connections = server.connections.lock();
        let total: usize = connections.values().sum();
        let own = connections.get(identity).copied().unwrap_or(0);
        if total >= server.limits.connections_total || own >= server.limits.connections_per_peer {
            return None;
        }
        connections.insert(identity.clone(), own + 1);
        drop(connections);
        Some(Self { server, identity: identity.clone() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut connections = self.server.connections.lock();
        match connections.get_mut(&self.identity) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => {
                connections.remove(&self.identity);
            }
        }
    }
}

/// Who proved to be at the other end.
fn identity_of(connection: &quinn::Connection) -> Option<Identity> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    Identity::from_certificate(chain.first()?).ok()
}
