//! Two or three ends of Weir's transport on loopback, in one process.

use crate::Failure;
use quic_transport::pki::{CertificateAuthority, Credentials, Validity};
use quic_transport::{Endpoint, EndpointConfig, Identity, Limits, NodeKeys, Role, Router, TransportMetrics};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

/// Longest wait for a stream to be opened.
pub(crate) const OPEN_MAX: Duration = Duration::from_secs(10);

const CLUSTER: &str = "bench";

/// Who vouches for the ends.
pub(crate) fn authority() -> Result<CertificateAuthority, Failure> {
    Ok(CertificateAuthority::create(CLUSTER, validity())?)
}

/// An endpoint on a free port of loopback, with windows that hold what these measurements have on their way.
pub(crate) fn bind(credentials: Credentials, router: Router) -> Result<Endpoint, String> {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let keys = NodeKeys::random().endpoint("data");
    let limits = Limits {
        streams_per_peer: 10_000,
        streams_total: 10_000,
        receive_window_bytes: 8 << 20,
        stream_window_bytes: 8 << 20,
        send_window_bytes: 4 << 20,
        ..Limits::default()
    };
    let config = EndpointConfig { limits, ..EndpointConfig::new(bind, credentials, keys) };
    Endpoint::bind(config, router, TransportMetrics::unregistered()).map_err(|error| error.to_string())
}

/// Runs the work on a runtime of this thread.
pub(crate) fn on_runtime<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work)
}

/// For as long as any measurement takes.
fn validity() -> Validity {
    let two_centuries = Duration::from_hours(24 * 365 * 200);
    Validity { not_before: SystemTime::UNIX_EPOCH, not_after: SystemTime::UNIX_EPOCH + two_centuries }
}

/// What a storage node of this number shows.
pub(crate) fn credentials(authority: &CertificateAuthority, node: u64) -> Result<Credentials, Failure> {
    let identity = identity(node)?;
    Ok(authority.issue(&identity, validity())?)
}

/// How a storage node of this number is called.
pub(crate) fn identity(node: u64) -> Result<Identity, Failure> {
    Ok(Identity::new(CLUSTER, Role::StorageNode, node)?)
}
