//! Listeners and the server: accept, limit and drain connections.
//!
//! Binding is a step of its own, since a node has to know its real port before it can tell the cluster about it. Dropping
//! the server cuts everything at once; [`Server::shutdown`] lets requests in flight finish first, for a bounded time.

use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::monotonic_now;
use crate::close_reason::{CloseReason, Severity};
use crate::config::{Limits, LimitsError, ListenerConfig, ListenerInfo};
use crate::connection::{Shared, serve};
use crate::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::dispatch::{ApiTable, ConnectionId, RequestContext};
use crate::log_limiter::LogLimiter;
use crate::metrics::WireMetrics;
use crate::request_memory::RequestMemory;
use crate::warm_pages::WarmPool;

/// Pause after a failed accept (out of descriptors), so that the loop does not spin.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A peer that answers no keep-alive probe is gone after about this much more than the first interval.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// A server that could not start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// An address cannot be bound.
    #[error("listener {name} cannot bind {address}: {source}")]
    Address {
        /// The listener's name.
        name: String,
        /// What was to be bound.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// No listener is configured.
    #[error("no listener is configured")]
    NoListener,
    /// The limits contradict themselves.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The warming threads cannot start.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}

/// A listener that is bound and does not accept yet.
#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    info: Arc<ListenerInfo>,
}

impl BoundListener {
    /// Name, bound and advertised address.
    pub fn info(&self) -> &Arc<ListenerInfo> {
        &self.info
    }
}

/// Binds all listeners or none. Must run inside a tokio runtime.
pub fn bind_listeners(configs: &[ListenerConfig], limits: &Limits) -> Result<Vec<BoundListener>, BindError> {
    if configs.is_empty() {
        return Err(BindError::NoListener);
    }
    configs
        .iter()
        .map(|config| {
            bind(config.bind, limits.accept_backlog)
                .map(|(listener, bound)| BoundListener {
                    listener,
                    info: Arc::new(ListenerInfo::resolve(config, bound)),
                })
                .map_err(|source| BindError::Address {
                    name: config.name.clone(),
                    address: config.bind,
                    source,
                })
        })
        .collect()
}

fn bind(address: SocketAddr, backlog: i32) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // So that 0.0.0.0 and [::] can be two listeners.
        socket.set_only_v6(true)?;
    }
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)?;
    // Accepted sockets inherit it. The host's default may be BBR, which costs a quarter more on a local network; where
    // cubic is not to be had the default stays.
    if let Err(error) = socket.set_tcp_congestion(b"cubic") {
        tracing::debug!(%error, "set TCP congestion control");
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    let listener = TcpListener::from_std(socket.into())?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// A running door: listeners, and the connections that they accepted.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Arc<ListenerInfo>>,
    tasks: TaskTracker,
    draining: CancellationToken,
    cut: CancellationToken,
    drain_max: Duration,
}

impl Server {
    /// Binds and starts in one step.
    pub fn bind<S: Send + Sync + 'static>(
        configs: &[ListenerConfig],
        table: Arc<ApiTable<S>>,
        state: Arc<S>,
        limits: Limits,
        metrics: Arc<WireMetrics>,
    ) -> Result<Self, BindError> {
        Self::start(bind_listeners(configs, &limits)?, table, state, limits, metrics)
    }

    /// Starts accepting on listeners that are bound.
    pub fn start<S: Send + Sync + 'static>(
        listeners: Vec<BoundListener>,
        table: Arc<ApiTable<S>>,
        state: Arc<S>,
        limits: Limits,
        metrics: Arc<WireMetrics>,
    ) -> Result<Self, BindError> {
        limits.validate()?;
        let drain_max = limits.drain_max;
        let warm = WarmPool::start(limits.warm_threads, limits.warm_queue_max).map_err(BindError::Threads)?;
        let draining = CancellationToken::new();
        let routes = table.names().map(|name| metrics.route(name)).collect();
        let acceptor = Arc::new(Acceptor {
            slots: ConnectionSlots::new(limits.connections_max, limits.connections_per_ip_max),
            next_id: AtomicU64::new(1),
            refusals: LogLimiter::new(monotonic_now()),
            closes: LogLimiter::new(monotonic_now()),
            tasks: TaskTracker::new(),
            cut: CancellationToken::new(),
            shared: Shared {
                memory: RequestMemory::new(limits.request_memory_bytes_max),
                draining: draining.clone(),
                table,
                state,
                limits,
                metrics,
                routes,
                warm,
            },
        });
        let infos = listeners.iter().map(|bound| Arc::clone(&bound.info)).collect();
        for bound in listeners {
            acceptor.tasks.spawn(Arc::clone(&acceptor).accept(bound));
        }
        Ok(Self {
            listeners: infos,
            tasks: acceptor.tasks.clone(),
            draining,
            cut: acceptor.cut.clone(),
            drain_max,
        })
    }

    /// The listeners, in the order of their configuration.
    pub fn listeners(&self) -> &[Arc<ListenerInfo>] {
        &self.listeners
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        // While the server accepts, each listener has a task of its own.
        self.tasks.len().saturating_sub(self.listeners.len())
    }

    /// Cancelled when the server begins to stop.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Stops accepting and reading, lets requests in flight be answered for at most `drain_max`, then cuts what is left.
    pub async fn shutdown(self) {
        self.draining.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.drain_max, self.tasks.wait()).await.is_err() {
            tracing::info!(tasks = self.tasks.len(), "cut connections at the end of the drain");
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.draining.cancel();
        self.cut.cancel();
    }
}

/// What the accepting tasks share.
struct Acceptor<S> {
    slots: Arc<ConnectionSlots>,
    next_id: AtomicU64,
    refusals: LogLimiter,
    closes: LogLimiter,
    tasks: TaskTracker,
    cut: CancellationToken,
    shared: Shared<S>,
}

impl<S: Send + Sync + 'static> Acceptor<S> {
    async fn accept(self: Arc<Self>, bound: BoundListener) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.shared.draining.cancelled() => return,
                accepted = bound.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.admit(&bound.info, stream, peer),
                Err(error) => {
                    if let Some(suppressed) = self.refusals.admit(monotonic_now()) {
                        tracing::warn!(listener = %bound.info.name, %error, suppressed, "accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Starts a connection, or closes it at once when a limit is reached.
    fn admit(self: &Arc<Self>, info: &Arc<ListenerInfo>, stream: TcpStream, peer: SocketAddr) {
        match self.slots.take(peer.ip()) {
            Ok(slot) => {
                self.shared.metrics.on_accepted();
                let task = Arc::clone(self).run(Arc::clone(info), stream, peer, slot);
                self.tasks.spawn(task);
            }
            Err(refusal) => {
                self.shared.metrics.on_refused(refusal);
                if let Some(suppressed) = self.refusals.admit(monotonic_now()) {
                    let limit = refusal.label();
                    tracing::warn!(listener = %info.name, %peer, limit, suppressed, "refuse a connection");
                }
            }
        }
    }

    /// One connection from accept to end.
    async fn run(
        self: Arc<Self>,
        info: Arc<ListenerInfo>,
        stream: TcpStream,
        peer: SocketAddr,
        slot: ConnectionSlot,
    ) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "set TCP_NODELAY");
        }
        let id = ConnectionId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let context = RequestContext::new(peer, info, id, self.shared.draining.clone());
        let serving = AssertUnwindSafe(serve(&self.shared, &stream, context)).catch_unwind();
        tokio::select! {
            end = serving => match end {
                Ok(reason) => self.on_end(id, peer, &reason),
                Err(_panic) => {
                    self.shared.metrics.on_cut("panicked");
                    self.shared.metrics.on_panic();
                    tracing::error!(connection = id.0, %peer, "a connection task panicked");
                }
            },
            () = self.cut.cancelled() => self.shared.metrics.on_cut("cut"),
        }
        drop(stream);
        drop(slot);
    }

    fn on_end(&self, id: ConnectionId, peer: SocketAddr, reason: &CloseReason) {
        self.shared.metrics.on_closed(reason);
        if matches!(reason, CloseReason::Panicked { .. }) {
            self.shared.metrics.on_panic();
        }
        match reason.severity() {
            Severity::Normal => tracing::debug!(connection = id.0, %peer, %reason, "connection closed"),
            Severity::Client => {
                if let Some(suppressed) = self.closes.admit(monotonic_now()) {
                    tracing::warn!(connection = id.0, %peer, %reason, suppressed, "connection closed");
                }
            }
            Severity::Server => tracing::error!(connection = id.0, %peer, %reason, "connection closed"),
        }
    }
}
