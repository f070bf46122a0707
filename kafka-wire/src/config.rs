//! The limits and addresses of the door. Every bound of this crate is a field of [`Limits`], with the reason for its default.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// Bounds of a [`Server`](crate::Server). Kafka's configuration name stands behind a field that has one.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Largest request frame in bytes (`socket.request.max.bytes`). Clients are built for Kafka's 100 MiB.
    pub frame_bytes_max: usize,
    /// Bytes of all requests between arrival and answer (`queued.max.request.bytes`). At least `frame_bytes_max`; when
    /// it is used up, connections stop reading until others are answered; small frames have 16 MiB of their own then.
    pub request_memory_bytes_max: usize,
    /// How long a frame may wait for request memory before its connection is closed.
    pub memory_wait_max: Duration,
    /// Requests of one connection between arrival and answer. Java pipelines 5; librdkafka more where order is not at stake.
    pub requests_in_flight_max: usize,
    /// Bytes of encoded responses of one connection that may wait for the socket before its next request is run.
    pub response_backlog_bytes_max: usize,
    /// Open connections over all listeners (`max.connections`).
    pub connections_max: usize,
    /// Open connections from one address (`max.connections.per.ip`).
    pub connections_per_ip_max: usize,
    /// A connection without traffic and without requests in flight is closed after this (`connections.max.idle.ms`).
    pub idle_max: Duration,
    /// A frame must be whole this long after its first byte; waiting for memory is not counted.
    pub frame_read_max: Duration,
    /// A client that takes no byte of a response for this long is closed.
    pub write_stall_max: Duration,
    /// How long a handler may go on after the client has closed its sending side. Short, so that a long poll of a client
    /// that is gone frees its place; not zero, since a client may close its side and still read its answers.
    pub half_closed_grace: Duration,
    /// How long a stopping server waits for requests in flight before it cuts connections.
    pub drain_max: Duration,
    /// Threads that read file ranges which are not in memory, so that `sendfile` does not wait for the disk.
    pub warm_threads: usize,
    /// Ranges that may wait for those threads; connections beyond that wait for a place.
    pub warm_queue_max: usize,
    /// Connections that the kernel holds before they are accepted.
    pub accept_backlog: i32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 100 << 20,
            request_memory_bytes_max: 512 << 20,
            memory_wait_max: Duration::from_secs(30),
            requests_in_flight_max: 64,
            response_backlog_bytes_max: 1 << 20,
            connections_max: 10_000,
            connections_per_ip_max: 5_000,
            idle_max: Duration::from_secs(600),
            frame_read_max: Duration::from_secs(30),
            write_stall_max: Duration::from_secs(30),
            half_closed_grace: Duration::from_secs(1),
            drain_max: Duration::from_secs(5),
            warm_threads: 4,
            warm_queue_max: 64,
            accept_backlog: 1024,
        }
    }
}

/// A set of limits that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// One frame could then wait for memory for ever.
    #[error("request_memory_bytes_max ({memory}) is smaller than frame_bytes_max ({frame})")]
    MemoryBelowFrame {
        /// `request_memory_bytes_max`
        memory: usize,
        /// `frame_bytes_max`
        frame: usize,
    },
    /// Kafka's frame length is a positive 32-bit number.
    #[error("frame_bytes_max ({0}) must lie between 8 and 2147483647")]
    FrameRange(usize),
    /// A limit that must be at least one is zero.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
}

impl Limits {
    /// Finds a contradiction between the limits, if any.
    pub fn validate(&self) -> Result<(), LimitsError> {
        if self.frame_bytes_max < 8 || i32::try_from(self.frame_bytes_max).is_err() {
            return Err(LimitsError::FrameRange(self.frame_bytes_max));
        }
        if self.request_memory_bytes_max < self.frame_bytes_max {
            return Err(LimitsError::MemoryBelowFrame {
                memory: self.request_memory_bytes_max,
                frame: self.frame_bytes_max,
            });
        }
        let counts = [
            ("requests_in_flight_max", self.requests_in_flight_max),
            ("connections_max", self.connections_max),
            ("connections_per_ip_max", self.connections_per_ip_max),
            ("warm_threads", self.warm_threads),
            ("warm_queue_max", self.warm_queue_max),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(LimitsError::Zero(name)),
            None => Ok(()),
        }
    }
}

/// `host:port`, with IPv6 addresses in brackets. The host may be a name: it is what clients are told, not what is bound.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A host name or an address without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl HostPort {
    /// Pairs a host with a port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Text that is not `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not host:port (an IPv6 address stands in brackets: [::1]:9092)")]
pub struct HostPortError(pub String);

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        let error = || HostPortError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let port = port.parse().map_err(|_| error())?;
        let host = match host.strip_prefix('[') {
            Some(inner) => {
                let inner = inner.strip_suffix(']').ok_or_else(error)?;
                inner.parse::<std::net::Ipv6Addr>().map_err(|_| error())?;
                inner
            }
            None if host.contains(':') => return Err(error()),
            None => host,
        };
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(error());
        }
        Ok(Self::new(host, port))
    }
}

/// One address to listen on.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// The listener's name as Kafka has it (`PLAINTEXT`, `INTERNAL` …).
    pub name: String,
    /// The local address. Port 0 takes a free one.
    pub bind: SocketAddr,
    /// What Metadata tells clients of this listener; a port of 0 becomes the bound port, an absent value the bound address.
    pub advertised: Option<HostPort>,
}

/// A listener that is bound: what handlers need to know of where a request came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerInfo {
    /// The listener's name.
    pub name: String,
    /// The bound address, with the real port.
    pub bound: SocketAddr,
    /// The address that clients of this listener are told.
    pub advertised: HostPort,
}

impl ListenerInfo {
    /// Fills in what the configuration left to the moment of binding.
    pub(crate) fn resolve(config: &ListenerConfig, bound: SocketAddr) -> Self {
        let mut advertised =
            config.advertised.clone().unwrap_or_else(|| HostPort::new(reachable(bound.ip()), bound.port()));
        if advertised.port == 0 {
            advertised.port = bound.port();
        }
        Self { name: config.name.clone(), bound, advertised }
    }
}

/// A wildcard address means nothing to a client: the loopback address of the same family at least works on this machine.
fn reachable(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(v6) if v6.is_unspecified() => "::1".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_port_parses_and_prints() {
        for text in ["localhost:9092", "[::1]:9092", "10.0.0.1:1", "a-b.c:65535"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        for text in ["", "host", ":9092", "host:", "host:65536", "::1:9092", "[::1:9092", "[host]:1", "a b:1"]
        {
            assert_eq!(text.parse::<HostPort>(), Err(HostPortError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn advertised_address_falls_back_to_what_is_bound() {
        let bound: SocketAddr = "[::]:9092".parse().unwrap();
        let config = ListenerConfig { name: "A".into(), bind: bound, advertised: None };
        assert_eq!(ListenerInfo::resolve(&config, bound).advertised, HostPort::new("::1", 9092));
        let named = ListenerConfig { advertised: Some(HostPort::new("broker.example", 0)), ..config };
        assert_eq!(ListenerInfo::resolve(&named, bound).advertised, HostPort::new("broker.example", 9092));
    }

    #[test]
    fn contradicting_limits_are_found() {
        assert_eq!(Limits::default().validate(), Ok(()));
        let limits = Limits { request_memory_bytes_max: 1, ..Limits::default() };
        assert!(matches!(limits.validate(), Err(LimitsError::MemoryBelowFrame { memory: 1, .. })));
        let limits = Limits { requests_in_flight_max: 0, ..Limits::default() };
        assert_eq!(limits.validate(), Err(LimitsError::Zero("requests_in_flight_max")));
        let limits = Limits { frame_bytes_max: 1 << 31, ..Limits::default() };
        assert_eq!(limits.validate(), Err(LimitsError::FrameRange(1 << 31)));
    }
}
