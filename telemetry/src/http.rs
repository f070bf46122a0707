//! `/metrics`, `/healthz` and `/readyz` of one daemon.
//!
//! Only GET, no bodies, few connections, short time-outs: this port is for probes and scrapers, on loopback unless
//! configured otherwise.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Media type of what the registry prints.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Pause after a failed accept, which is nearly always a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where and how to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpConfig {
    /// Address to bind; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Connections at a time; further ones wait in the kernel's queue.
    pub connections_max: usize,
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// Headers of a request.
    pub headers_max: usize,
    /// Time for a request's head to arrive.
    pub head_timeout: Duration,
    /// Longest life of a connection.
    pub connection_timeout: Duration,
}

impl HttpConfig {
    /// Loopback at `port` with default limits.
    pub fn loopback(port: u16) -> Self {
        Self::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// `address` with default limits.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            connections_max: 32,
            head_bytes_max: 16 << 10,
            headers_max: 64,
            head_timeout: Duration::from_secs(5),
            connection_timeout: Duration::from_secs(300),
        }
    }
}

/// The server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be bound.
    #[error("HTTP {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// Whether a daemon can do its work now.
pub trait Readiness: Send + Sync + 'static {
    /// What is missing, a sentence each; empty means ready. Must not block.
    fn missing(&self) -> Vec<String>;
}

impl<F: Fn() -> Vec<String> + Send + Sync + 'static> Readiness for F {
    fn missing(&self) -> Vec<String> {
        self()
    }
}

#[derive(Clone)]
struct Shown {
    registry: Arc<Registry>,
    readiness: Arc<dyn Readiness>,
}

/// A running server. Dropping it stops it at once.
#[derive(Debug)]
pub struct HttpServer {
    local_addr: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl HttpServer {
    /// Binds and serves. Needs a tokio runtime. Everything must be registered in `registry` before.
    pub async fn bind(
        config: HttpConfig,
        registry: impl Into<Arc<Registry>>,
        readiness: impl Readiness,
    ) -> Result<Self, HttpError> {
        let at_address = |source| HttpError::Bind { address: config.address, source };
        let listener = TcpListener::bind(config.address).await.map_err(at_address)?;
        let local_addr = listener.local_addr().map_err(at_address)?;
        let shown = Shown { registry: registry.into(), readiness: Arc::new(readiness) };
        let routes = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .with_state(shown);
        let server = Self { local_addr, stop: CancellationToken::new(), tasks: TaskTracker::new() };
        server.tasks.spawn(accept(listener, config, routes, server.stop.clone(), server.tasks.clone()));
        Ok(server)
    }

    /// Where the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops listening and waits, at most `grace`, for requests in progress.
    pub async fn shutdown(self, grace: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::debug!("HTTP connections still open after the grace period");
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    config: HttpConfig,
    routes: Router,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let connections = Arc::new(Semaphore::new(config.connections_max));
    while let Some(Ok(permit)) = stop.run_until_cancelled(Arc::clone(&connections).acquire_owned()).await {
        match stop.run_until_cancelled(listener.accept()).await {
            Some(Ok((stream, _))) => {
                tasks.spawn(serve(stream, config, routes.clone(), stop.clone(), permit));
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                stop.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await;
            }
            None => return,
        }
    }
}

async fn serve(
    stream: TcpStream,
    config: HttpConfig,
    routes: Router,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_headers(config.headers_max)
        .max_buf_size(config.head_bytes_max)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let served = timeout(config.connection_timeout, async {
        tokio::select! {
            served = connection.as_mut() => served,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    });
    match served.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "HTTP connection ended"),
        Err(_elapsed) => tracing::debug!("HTTP connection lived too long"),
    }
}

async fn metrics(State(shown): State<Shown>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &shown.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be encoded");
            (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be encoded\n").into_response()
        }
    }
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(shown): State<Shown>) -> Response {
    let missing = shown.readiness.missing();
    if missing.is_empty() {
        return "ready\n".into_response();
    }
    let mut text = String::from("not ready\n");
    for reason in missing {
        text.push_str(&reason);
        text.push('\n');
    }
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn raw(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(request).await.expect("writes");
        let mut answer = Vec::new();
        // A server that refuses may reset after its answer.
        let _reset = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn ask(address: SocketAddr, path: &str) -> (String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = raw(address, request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
        (head.to_owned(), body.to_owned())
    }

    #[tokio::test]
    async fn the_three_pages() {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        registry.register("weir_test_things", "Things", counter.clone());
        let missing =
            Arc::new(Mutex::new(vec!["no controller".to_owned(), "2 partitions closed".to_owned()]));
        let readiness = {
            let missing = Arc::clone(&missing);
            move || missing.lock().expect("not poisoned").clone()
        };
        let server = HttpServer::bind(HttpConfig::loopback(0), registry, readiness).await.expect("binds");
        let address = server.local_addr();
        assert_ne!(address.port(), 0);

        counter.inc_by(3);
        let (head, body) = ask(address, "/metrics").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains(METRICS_TYPE), "{head}");
        assert!(body.contains("weir_test_things_total 3\n") && body.ends_with("# EOF\n"), "{body}");

        assert_eq!(ask(address, "/healthz").await.1, "ok\n");
        let (head, body) = ask(address, "/readyz").await;
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        assert_eq!(body, "not ready\nno controller\n2 partitions closed\n");
        missing.lock().expect("not poisoned").clear();
        let (head, body) = ask(address, "/readyz").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(body, "ready\n");

        assert!(ask(address, "/other").await.0.starts_with("HTTP/1.1 404"));
        server.shutdown(Duration::from_secs(5)).await;
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn bad_requests_are_refused_and_harm_nobody() {
        let server = HttpServer::bind(HttpConfig::loopback(0), Registry::default(), Vec::new).await;
        let server = server.expect("binds");
        let address = server.local_addr();
        let head = b"GET /healthz HTTP/1.1\r\nhost: x\r\n".to_vec();
        let many: Vec<u8> = (0..100).flat_map(|n| format!("h{n}: x\r\n").into_bytes()).collect();
        let long = format!("long: {}\r\n", "x".repeat(64 << 10)).into_bytes();
        for extra in [many, long] {
            let answer = raw(address, &[head.as_slice(), &extra, b"\r\n"].concat()).await;
            assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        }
        assert!(raw(address, b"\x16\x03\x01garbage\r\n\r\n").await.starts_with("HTTP/1.1 400"));
        let post = b"POST /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert!(raw(address, post).await.starts_with("HTTP/1.1 405"));
        assert_eq!(ask(address, "/healthz").await.1, "ok\n");
    }

    #[tokio::test]
    async fn a_slow_head_is_cut_off() {
        let config = HttpConfig { head_timeout: Duration::from_millis(50), ..HttpConfig::loopback(0) };
        let server = HttpServer::bind(config, Registry::default(), Vec::new).await.expect("binds");
        let mut stream = TcpStream::connect(server.local_addr()).await.expect("connects");
        stream.write_all(b"GET /healthz HT").await.expect("writes");
        let mut answer = Vec::new();
        let read = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "the connection stayed open");
        assert!(!String::from_utf8_lossy(&answer).contains("200"));
    }

    #[tokio::test]
    async fn a_taken_address_is_named() {
        let server = HttpServer::bind(HttpConfig::loopback(0), Registry::default(), Vec::new).await;
        let server = server.expect("binds");
        let config = HttpConfig::at(server.local_addr());
        let error = HttpServer::bind(config, Registry::default(), Vec::new).await.expect_err("taken");
        assert!(error.to_string().contains(&server.local_addr().to_string()), "{error}");
    }
}
