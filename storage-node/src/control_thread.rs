//! The thread for short messages between daemons: the internal endpoint and the session's heartbeats.
//!
//! It has a runtime of its own, so that a heartbeat never waits behind clients' requests, and the operating system shares
//! the processor fairly between it and the threads that serve them.

use crate::error::StartError;
use crate::session::Session;
use parking_lot::Mutex;
use quic_transport::pki::Credentials;
use quic_transport::{Endpoint, EndpointConfig, EndpointKeys, Router, Transport, TransportMetrics};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

const THREAD_NAME: &str = "weir-control";

/// A running control thread. Dropping it ends the thread.
pub(crate) struct ControlThread {
    endpoint: Endpoint,
    session: Mutex<Option<oneshot::Sender<Session>>>,
    stop: oneshot::Sender<Duration>,
    stopped: oneshot::Receiver<()>,
}

impl ControlThread {
    /// Starts the thread and binds the endpoint on it.
    pub(crate) async fn start(
        bind: SocketAddr,
        credentials: Credentials,
        keys: EndpointKeys,
        router: Router,
        metrics: TransportMetrics,
    ) -> Result<Self, StartError> {
        let thread_error = |error| StartError::Thread { name: THREAD_NAME, error };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(thread_error)?;
        let (bound_sender, bound) = oneshot::channel();
        let (session_sender, session) = oneshot::channel::<Session>();
        let (stop_sender, stop) = oneshot::channel::<Duration>();
        let (stopped_sender, stopped) = oneshot::channel();
        let body = move || {
            runtime.block_on(async move {
                let endpoint = Endpoint::bind(EndpointConfig::new(bind, credentials, keys), router, metrics);
                let kept = endpoint.as_ref().ok().cloned();
                // Nobody waits any more: the start was given up.
                if bound_sender.send(endpoint).is_err() {
                    return;
                }
                let Some(endpoint) = kept else { return };
                let session = async move {
                    if let Ok(session) = session.await {
                        session.run().await;
                    }
                    std::future::pending::<()>().await;
                };
                let grace = tokio::select! {
                    grace = stop => grace.unwrap_or(Duration::ZERO),
                    () = session => Duration::ZERO,
                };
                endpoint.shutdown(grace).await;
                // Only a handle that was dropped does not listen.
                let _ = stopped_sender.send(());
            });
        };
        std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(body).map_err(thread_error)?;
        let endpoint = bound
            .await
            .map_err(|_| thread_error(std::io::Error::other("it ended before the endpoint was bound")))??;
        Ok(Self { endpoint, session: Mutex::new(Some(session_sender)), stop: stop_sender, stopped })
    }

    /// The internal endpoint.
    pub(crate) fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.endpoint.clone())
    }

    /// Where the endpoint is bound.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// Begins the session; only the first call counts.
    pub(crate) fn run(&self, session: Session) {
        if let Some(sender) = self.session.lock().take()
            && sender.send(session).is_err()
        {
            tracing::error!("the control thread has ended");
        }
    }

    /// Ends heartbeats and connections, and waits for the thread.
    pub(crate) async fn shutdown(self, grace: Duration) {
        if self.stop.send(grace).is_ok() {
            // An error means that the thread is gone already.
            let _ = self.stopped.await;
        }
    }
}
