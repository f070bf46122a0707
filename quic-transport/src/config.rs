//! Every number of an endpoint, with its name and the reason for its default.

use crate::node_keys::EndpointKeys;
use crate::pki::Credentials;
use std::net::SocketAddr;
use std::time::Duration;

/// Largest datagram that survives segmentation offload: the kernel refuses a batch of ten above 65,507 bytes in all, and
/// the QUIC stack takes that for loss and stalls.
pub const MTU_MAX_WITH_OFFLOAD: u16 = 6550;
/// Smallest datagram size that QUIC allows.
pub const MTU_MIN: u16 = 1200;
/// Largest datagram size of the loopback profile.
pub const MTU_MAX: u16 = 65_000;

/// How datagrams are cut for the network below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathProfile {
    /// Largest UDP payload, bytes.
    pub mtu: u16,
    /// Whether the kernel segments batches of datagrams (GSO).
    pub segmentation_offload: bool,
}

impl PathProfile {
    /// Loopback: huge datagrams, no offload (0.62 CPU seconds per GB against 2.0 with [`LAN`](Self::LAN)).
    pub const LOOPBACK: Self = Self { mtu: MTU_MAX, segmentation_offload: false };
    /// An Ethernet of 1,500 bytes, with offload (0.93 GB/s per core; a quarter of that without).
    pub const LAN: Self = Self { mtu: 1452, segmentation_offload: true };

    /// The profile for an endpoint that is bound to `address`.
    pub fn for_address(address: SocketAddr) -> Self {
        if address.ip().is_loopback() { Self::LOOPBACK } else { Self::LAN }
    }

    pub(crate) fn is_jumbo(self) -> bool {
        self.mtu > MTU_MAX_WITH_OFFLOAD
    }
}

/// What one endpoint takes from all its peers, and what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest body of a call or of its reply, bytes. Metadata calls are small; raft batches are cut below it.
    pub call_bytes_max: usize,
    /// Largest frame of a long-lived stream, bytes: several replication batches.
    pub frame_bytes_max: usize,
    /// Calls in progress per identity, over all its connections, so that one peer cannot take everybody's share. Together with
    /// the next it is also the number of QUIC streams that each connection may have open.
    pub calls_per_peer: u32,
    /// Long-lived streams per identity, over all its connections.
    pub streams_per_peer: u32,
    /// Calls in progress in all; above it they are answered [`Busy`](crate::Refusal::Busy).
    pub calls_total: u32,
    /// Long-lived streams in all; above it they are answered [`Busy`](crate::Refusal::Busy).
    pub streams_total: u32,
    /// Bytes of requests held in memory in all; above it reading waits.
    pub call_memory_bytes: usize,
    /// Accepted connections in all.
    pub connections_total: usize,
    /// Accepted connections per identity: control, data lanes, and a dead one or two.
    pub connections_per_peer: usize,
    /// Handshakes in progress; above it attempts are refused.
    pub handshakes_total: usize,
    /// Handshakes in progress above which a peer must first prove its address (retry).
    pub handshakes_before_retry: usize,
    /// Bytes in flight towards us per connection. The stack's own default is unlimited.
    pub receive_window_bytes: u32,
    /// Bytes in flight towards us per stream.
    pub stream_window_bytes: u32,
    /// Bytes that we keep until they are acknowledged, per connection.
    pub send_window_bytes: u32,
    /// Kernel buffer of the socket, each direction, bytes. The system's default loses packets under load.
    pub socket_buffer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            call_bytes_max: 4 << 20,
            frame_bytes_max: 8 << 20,
            calls_per_peer: 256,
            streams_per_peer: 64,
            calls_total: 1024,
            streams_total: 1024,
            call_memory_bytes: 64 << 20,
            connections_total: 512,
            connections_per_peer: 16,
            handshakes_total: 64,
            handshakes_before_retry: 16,
            receive_window_bytes: 16 << 20,
            stream_window_bytes: 2 << 20,
            send_window_bytes: 16 << 20,
            socket_buffer_bytes: 4 << 20,
        }
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// One attempt to connect.
    pub connect: Duration,
    /// Silence after which a connection is dead.
    pub idle: Duration,
    /// How often an idle connection is kept alive; well below `idle`.
    pub keep_alive: Duration,
    /// Reading a request, or writing a reply, once it has begun.
    pub transfer: Duration,
    /// Longest deadline that a caller may ask for.
    pub call_max: Duration,
    /// Pause after the first failed attempt to connect; doubles with each further one.
    pub backoff_first: Duration,
    /// Longest pause between attempts.
    pub backoff_max: Duration,
    /// How long attempts go on after the last call that wanted the peer.
    pub demand: Duration,
    /// Least time between two stateless resets, which bounds what floods of junk can make us send.
    pub reset_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            idle: Duration::from_secs(5),
            keep_alive: Duration::from_secs(1),
            transfer: Duration::from_secs(5),
            call_max: Duration::from_secs(300),
            backoff_first: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            demand: Duration::from_secs(10),
            reset_interval: Duration::from_millis(1),
        }
    }
}

/// All that an endpoint needs to know.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Where to listen; port 0 lets the system choose.
    pub bind: SocketAddr,
    /// Who we are and whom we trust.
    pub credentials: Credentials,
    /// Keys that outlive a restart.
    pub keys: EndpointKeys,
    /// How datagrams are cut.
    pub path: PathProfile,
    /// See [`Limits`].
    pub limits: Limits,
    /// See [`Timing`].
    pub timing: Timing,
    /// Seed of the jitter between attempts to connect, and of request ids.
    pub seed: u64,
}

/// A setting that cannot work, found at start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Out of QUIC's range.
    #[error("mtu {0} is not between {MTU_MIN} and {MTU_MAX}")]
    MtuOutOfRange(u16),
    /// Would stall: see [`MTU_MAX_WITH_OFFLOAD`].
    #[error(
        "mtu {0} is above {MTU_MAX_WITH_OFFLOAD} with segmentation offload on: lower it or turn the offload off"
    )]
    MtuTooLargeForOffload(u16),
    /// A limit or time of zero would refuse everything.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// The connection would die between two signs of life.
    #[error("keep_alive must be at most half of idle")]
    KeepAliveTooRare,
    /// A stream's window within the connection's.
    #[error("stream_window_bytes must not be above receive_window_bytes")]
    StreamWindowTooLarge,
    /// More than the length prefix or the memory budget can hold.
    #[error("{0} is too large")]
    TooLarge(&'static str),
}

impl EndpointConfig {
    /// A config with default limits and the path profile that fits `bind`.
    pub fn new(bind: SocketAddr, credentials: Credentials, keys: EndpointKeys) -> Self {
        Self {
            bind,
            credentials,
            keys,
            path: PathProfile::for_address(bind),
            limits: Limits::default(),
            timing: Timing::default(),
            seed: 0,
        }
    }

    /// Checks what can be checked before the socket is opened.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mtu = self.path.mtu;
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
            return Err(ConfigError::MtuOutOfRange(mtu));
        }
        if self.path.segmentation_offload && mtu > MTU_MAX_WITH_OFFLOAD {
            return Err(ConfigError::MtuTooLargeForOffload(mtu));
        }
        self.limits.validate()?;
        self.timing.validate()
    }
}

impl Limits {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let counts = [
            ("call_bytes_max", self.call_bytes_max),
            ("frame_bytes_max", self.frame_bytes_max),
            ("calls_per_peer", self.calls_per_peer as usize),
            ("streams_per_peer", self.streams_per_peer as usize),
            ("calls_total", self.calls_total as usize),
            ("streams_total", self.streams_total as usize),
            ("connections_total", self.connections_total),
            ("connections_per_peer", self.connections_per_peer),
            ("handshakes_total", self.handshakes_total),
            ("receive_window_bytes", self.receive_window_bytes as usize),
            ("stream_window_bytes", self.stream_window_bytes as usize),
            ("send_window_bytes", self.send_window_bytes as usize),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::Zero(name));
        }
        if self.stream_window_bytes > self.receive_window_bytes {
            return Err(ConfigError::StreamWindowTooLarge);
        }
        if self.frame_bytes_max > 1 << 30 {
            return Err(ConfigError::TooLarge("frame_bytes_max"));
        }
        // A single request must fit the budget, else it would wait for ever.
        if self.call_bytes_max > (1 << 30).min(self.call_memory_bytes) {
            return Err(ConfigError::TooLarge("call_bytes_max"));
        }
        Ok(())
    }
}

impl Timing {
    fn validate(&self) -> Result<(), ConfigError> {
        let times = [
            ("connect", self.connect),
            ("idle", self.idle),
            ("keep_alive", self.keep_alive),
            ("transfer", self.transfer),
            ("call_max", self.call_max),
            ("backoff_first", self.backoff_first),
            ("backoff_max", self.backoff_max),
        ];
        if let Some((name, _)) = times.into_iter().find(|(_, value)| value.is_zero()) {
            return Err(ConfigError::Zero(name));
        }
        if self.keep_alive * 2 > self.idle {
            return Err(ConfigError::KeepAliveTooRare);
        }
        Ok(())
    }
}
