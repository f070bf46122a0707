//! The thread for replication between storage nodes: the data endpoint and all lanes.
//!
//! It has a runtime and a socket of its own, so that bulk never stands before heartbeats, and clients' requests not before
//! either.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quic_transport::pki::Credentials;
use quic_transport::{Endpoint, EndpointConfig, EndpointKeys, Limits, Router, Transport, TransportMetrics};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::StartError;

const THREAD_NAME: &str = "weir-data";

/// A running data thread. Dropping it ends the thread.
pub(crate) struct DataThread {
    endpoint: Endpoint,
    runtime: Handle,
    stop: oneshot::Sender<Duration>,
    stopped: oneshot::Receiver<()>,
}

impl DataThread {
    /// Starts the thread and binds the endpoint on it. `frame_bytes_max` is the largest batch.
    pub(crate) async fn start(
        bind: SocketAddr,
        credentials: Credentials,
        keys: EndpointKeys,
        frame_bytes_max: usize,
        router: Router,
        metrics: TransportMetrics,
    ) -> Result<Self, StartError> {
        let thread_error = |error| StartError::Thread { name: THREAD_NAME, error };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(thread_error)?;
        let handle = runtime.handle().clone();
        let (bound_sender, bound) = oneshot::channel();
        let (stop_sender, stop) = oneshot::channel::<Duration>();
        let (stopped_sender, stopped) = oneshot::channel();
        let body = move || {
            runtime.block_on(async move {
                let config = EndpointConfig {
                    limits: limits(frame_bytes_max),
                    ..EndpointConfig::new(bind, credentials, keys)
                };
                let endpoint = Endpoint::bind(config, router, metrics);
                let kept = endpoint.as_ref().ok().cloned();
                // Nobody waits any more: the start was given up.
                if bound_sender.send(endpoint).is_err() {
                    return;
                }
                let Some(endpoint) = kept else { return };
                let grace = stop.await.unwrap_or(Duration::ZERO);
                endpoint.shutdown(grace).await;
                // Only a handle that was dropped does not listen.
                let _ = stopped_sender.send(());
            });
        };
        std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(body).map_err(thread_error)?;
        let endpoint = bound
            .await
            .map_err(|_| thread_error(std::io::Error::other("it ended before the endpoint was bound")))?
            .map_err(StartError::Data)?;
        Ok(Self { endpoint, runtime: handle, stop: stop_sender, stopped })
    }

    /// The data endpoint.
    pub(crate) fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.endpoint.clone())
    }

    /// Where tasks run that use it.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Where the endpoint is bound.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// Ends connections, and waits for the thread.
    pub(crate) async fn shutdown(self, grace: Duration) {
        if self.stop.send(grace).is_ok() {
            // An error means that the thread is gone already.
            let _ = self.stopped.await;
        }
    }
}

/// A lane has its connection for itself, so the stream may use all of it. What a sender keeps until it is acknowledged stands
/// before everything that is written later, so it is kept small.
pub(super) fn limits(frame_bytes_max: usize) -> Limits {
    let defaults = Limits::default();
    Limits {
        frame_bytes_max: frame_bytes_max.max(defaults.frame_bytes_max),
        receive_window_bytes: 8 << 20,
        stream_window_bytes: 8 << 20,
        send_window_bytes: 4 << 20,
        ..defaults
    }
}
