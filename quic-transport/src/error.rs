//! What can go wrong between two daemons, as values.

use serde::{Deserialize, Serialize};

/// Why a peer did not run a request, or could not finish it. Travels on the wire: append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The peer does not know this kind of message (an older version, or the wrong daemon).
    #[error("unknown kind of message")]
    UnknownKind,
    /// A call was sent to a kind that is a stream, or the reverse.
    #[error("a call to a stream, or a stream to a call")]
    WrongShape,
    /// The caller's role may not ask this.
    #[error("forbidden to this role")]
    Forbidden,
    /// The peer speaks other versions of this kind.
    #[error("version not supported, only {min} to {max}")]
    UnsupportedVersion {
        /// Lowest version that it speaks.
        min: u16,
        /// Highest.
        max: u16,
    },
    /// The request could not be read.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// The request is larger than the peer takes.
    #[error("request larger than {limit} bytes")]
    TooLarge {
        /// The peer's limit, bytes.
        limit: u64,
    },
    /// The peer has as much to do as it allows. Try again later.
    #[error("busy")]
    Busy,
    /// The deadline passed at the peer; whether anything was done is unknown.
    #[error("deadline passed at the peer")]
    DeadlinePassed,
    /// The peer is going down.
    #[error("shutting down")]
    ShuttingDown,
    /// The peer tried and failed, for a reason that no caller can act on.
    #[error("failed: {0}")]
    Failed(String),
}

/// A call, or the opening of a stream, that brought no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The request was sent and no answer came in time. Whether it was carried out is unknown.
    #[error("no answer in time")]
    Timeout,
    /// There was no connection until the deadline. The request was not sent.
    #[error("unreachable: {reason}")]
    Unreachable {
        /// The last failure to connect.
        reason: String,
    },
    /// The peer answered that it did not run the request.
    #[error("refused: {refusal}")]
    Refused {
        /// Why.
        refusal: Refusal,
    },
    /// Request or reply are above the limit. A request was not sent.
    #[error("{length} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Size of the message.
        length: usize,
        /// Largest size allowed.
        limit: usize,
    },
    /// The connection ended before the answer. Whether the request was carried out is unknown.
    #[error("connection closed: {reason}")]
    Closed {
        /// How it ended.
        reason: String,
    },
    /// The peer tried and failed, or its answer cannot be read.
    #[error("peer failed: {0}")]
    Remote(String),
}

impl CallError {
    /// Whether the request may have been carried out although no answer came.
    pub fn may_have_run(&self) -> bool {
        match self {
            CallError::Timeout | CallError::Closed { .. } | CallError::Remote(_) => true,
            CallError::Refused { refusal } => {
                matches!(refusal, Refusal::DeadlinePassed | Refusal::Failed(_))
            }
            CallError::Unreachable { .. } | CallError::TooLarge { .. } => false,
        }
    }

    pub(crate) fn closed(reason: impl Into<String>) -> Self {
        CallError::Closed { reason: reason.into() }
    }

    pub(crate) fn from_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Failed(reason) => CallError::Remote(reason),
            refusal @ (Refusal::UnknownKind
            | Refusal::WrongShape
            | Refusal::Forbidden
            | Refusal::UnsupportedVersion { .. }
            | Refusal::Malformed(_)
            | Refusal::TooLarge { .. }
            | Refusal::Busy
            | Refusal::DeadlinePassed
            | Refusal::ShuttingDown) => CallError::Refused { refusal },
        }
    }
}

/// A long-lived stream that cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The connection ended, or the other side gave the stream up.
    #[error("stream closed: {reason}")]
    Closed {
        /// How it ended.
        reason: String,
    },
    /// A frame above the limit.
    #[error("frame of {length} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Size of the frame.
        length: usize,
        /// Largest size allowed.
        limit: usize,
    },
    /// The stream ended inside a frame.
    #[error("stream ended inside a frame")]
    Truncated,
    /// A frame is whole, but is not a message of the expected type.
    #[error("malformed frame: {0}")]
    Malformed(String),
    /// An earlier send was given up half-way; the stream can only be dropped.
    #[error("an earlier send was given up half-way")]
    Abandoned,
}

impl FrameError {
    pub(crate) fn closed(reason: impl Into<String>) -> Self {
        FrameError::Closed { reason: reason.into() }
    }
}
