//! Why a connection ended: the closed list behind the log line and the `reason` label of the metrics.
//!
//! Kafka answers a request that it cannot read by closing the connection; the reason is seen only here, so it says what
//! came and what was expected. Text from the client is escaped and cut.

use std::borrow::Cow;
use std::time::Duration;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloseReason {
    #[error("the client closed the connection")]
    ClientClosed,
    #[error("the server is stopping")]
    Draining,
    #[error("nothing came for {0:?} (connections.max.idle.ms)")]
    Idle(Duration),
    #[error(
        "a frame announces {announced} bytes; between 0 and {max} are accepted (socket.request.max.bytes)"
    )]
    FrameSize { announced: i32, max: usize },
    #[error("a frame did not arrive whole within {0:?}")]
    FrameSlow(Duration),
    #[error("no memory for a request of {bytes} bytes within {waited:?} (queued.max.request.bytes)")]
    MemoryFull { bytes: usize, waited: Duration },
    #[error("the client took no byte of a response for {0:?}")]
    WriteStalled(Duration),
    #[error("API key {key} version {version} is not served")]
    UnknownApi { key: i16, version: i16 },
    #[error("malformed request header: {0}")]
    MalformedHeader(String),
    #[error("malformed {api} request, version {version}: {error}")]
    Malformed { api: &'static str, version: i16, error: String },
    #[error("the {api} response, version {version}, cannot be encoded: {error}")]
    EncodeFailed { api: &'static str, version: i16, error: String },
    #[error("the {api} handler asked to close: {reason}")]
    Handler { api: &'static str, reason: Cow<'static, str> },
    #[error("the {api} handler panicked")]
    Panicked { api: &'static str },
    #[error("a file ended {missing} bytes before the end of the region being sent")]
    FileShort { missing: usize },
    #[error("a region of a response is not backed by a file")]
    RegionSource,
    #[error("reading a file for a response failed: {0}")]
    FileRead(std::io::Error),
    #[error("socket error: {0}")]
    Socket(#[from] std::io::Error),
}

impl CloseReason {
    /// The value of the `reason` label: one word per variant, never text from outside.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::ClientClosed => "client_closed",
            Self::Draining => "draining",
            Self::Idle(_) => "idle",
            Self::FrameSize { .. } => "frame_size",
            Self::FrameSlow(_) => "frame_slow",
            Self::MemoryFull { .. } => "memory_full",
            Self::WriteStalled(_) => "write_stalled",
            Self::UnknownApi { .. } => "unknown_api",
            Self::MalformedHeader(_) => "malformed_header",
            Self::Malformed { .. } => "malformed",
            Self::EncodeFailed { .. } => "encode_failed",
            Self::Handler { .. } => "handler",
            Self::Panicked { .. } => "panicked",
            Self::FileShort { .. } => "file_short",
            Self::RegionSource => "region_source",
            Self::FileRead(_) => "file_read",
            Self::Socket(_) => "socket",
        }
    }

    /// How loud the end is: our own fault, the client's fault, or everyday life.
    pub(crate) fn severity(&self) -> Severity {
        match self {
            Self::ClientClosed | Self::Draining | Self::Idle(_) | Self::Socket(_) => Severity::Normal,
            Self::FrameSize { .. }
            | Self::FrameSlow(_)
            | Self::MemoryFull { .. }
            | Self::WriteStalled(_)
            | Self::UnknownApi { .. }
            | Self::MalformedHeader(_)
            | Self::Malformed { .. }
            | Self::Handler { .. } => Severity::Client,
            Self::EncodeFailed { .. }
            | Self::Panicked { .. }
            | Self::FileShort { .. }
            | Self::RegionSource
            | Self::FileRead(_) => Severity::Server,
        }
    }
}

/// Who should look at the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Nobody: connections come and go.
    Normal,
    /// The owner of the client: a warning, rate-limited since the client decides how often.
    Client,
    /// The operator: an error of ours.
    Server,
}
