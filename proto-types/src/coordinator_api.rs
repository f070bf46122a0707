//! Storage node ⇄ coordinator.
//!
//! Storage node → coordinator: one long-lived stream per pair carries [`ForwardFrame`]s and brings [`AnswerFrame`]s back
//! in any order. A parked JoinGroup may wait for minutes, so no call, permit or stream is held per request.
//!
//! Coordinator → storage node: short calls append to a shard's log, a stream reads it. The shard's log is a partition of
//! an internal topic; the fence is its coordinator epoch, kept by the partition itself.

use crate::ids::{CoordinatorEpoch, Offset, TopicPartition};
use serde::{Deserialize, Serialize};

/// A partition of an internal topic: the unit that one coordinator owns at a time.
pub type Shard = TopicPartition;

/// Largest batch that a coordinator appends to a shard's log, bytes. Storage nodes take it whatever `max.message.bytes` says,
/// since a coordinator that cannot append cannot serve; it is below what fits in one call.
pub const SHARD_BATCH_BYTES_MAX: usize = 3 << 20;

/// Storage node → coordinator, on the forwarding stream. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForwardFrame {
    /// A client's request, as it came.
    Request(ForwardedRequest),
    /// The client of this request has gone: no answer is wanted, and a parked request may be dropped.
    Abandon {
        /// The request's id.
        id: u64,
    },
}

/// A client's group or transaction request in its envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedRequest {
    /// Unique on its stream.
    pub id: u64,
    /// The shard that the group or transactional id belongs to.
    pub shard: Shard,
    /// Kafka's API key.
    pub api_key: i16,
    /// The request's version.
    pub api_version: i16,
    /// The client's id, as it says.
    pub client_id: Option<String>,
    /// The client's address, as text.
    pub client_host: String,
    /// The listener that the client came through.
    pub listener: String,
    /// Who the client is.
    pub principal: String,
    /// The request's body (without header), in Kafka's encoding of that version.
    pub body: Vec<u8>,
}

/// Coordinator → storage node, on the forwarding stream. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnswerFrame {
    /// The answer to a request.
    Answer {
        /// The request's id.
        id: u64,
        /// The coordinator epoch under which it was given: an image that knows a newer one drops it.
        epoch: CoordinatorEpoch,
        /// The response's body (without header), in Kafka's encoding of the request's version.
        body: Vec<u8>,
    },
    /// No answer can be given.
    Refused {
        /// The request's id.
        id: u64,
        /// Why.
        reason: ForwardRefusal,
    },
}

/// Why a coordinator does not answer a forwarded request. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum ForwardRefusal {
    /// Another coordinator owns the shard, or none. Look again who does.
    #[error("this coordinator does not own the shard")]
    NotOwner,
    /// The shard's log is being read. Retry after a pause.
    #[error("the shard is loading")]
    Loading,
    /// Too many requests wait. Retry after a pause.
    #[error("the coordinator is busy")]
    Busy,
    /// The body is not a valid request of that version.
    #[error("the request is malformed")]
    Malformed,
    /// The API is not one that coordinators answer.
    #[error("the request is not for a coordinator")]
    Unsupported,
    /// Its records could not be committed, or it is not known whether they were. Retry after a pause.
    #[error("the shard's log is not available")]
    LogUnavailable,
}

/// Coordinator → the storage node that leads the shard's partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendShard {
    /// Where.
    pub shard: Shard,
    /// The appender's coordinator epoch. Older than the partition's fence: refused.
    pub epoch: CoordinatorEpoch,
    /// Where the appender believes that the log ends. Elsewhere: refused, so a repeated append is not appended twice.
    /// `None` only for a claim.
    pub expected_end: Option<Offset>,
    /// What to append.
    pub content: ShardContent,
}

/// What an append holds. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShardContent {
    /// The claim of `epoch`: the storage node writes the control batch; it raises the fence.
    Claim,
    /// Whole record batches (v2), base offsets to be set by the leader.
    Batches(Vec<u8>),
}

/// The answer once the high watermark covers the append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardAppended {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// The log's end after the append.
    pub end: Offset,
}

/// Why an append or a read of a shard's log is refused. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ShardLogError {
    /// This node does not lead the partition.
    #[error("this node does not lead the shard's partition")]
    NotLeader,
    /// A newer coordinator has claimed the shard.
    #[error("the shard is claimed by coordinator epoch {current}")]
    Fenced {
        /// The fence.
        current: CoordinatorEpoch,
    },
    /// The log does not end where the appender believes.
    #[error("the log ends at {end}")]
    UnexpectedEnd {
        /// Where it ends.
        end: Offset,
    },
    /// Nothing was appended; retry after a pause.
    #[error("not available: {0}")]
    Unavailable(String),
    /// It may or may not be appended.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The request makes no sense (not an internal topic, malformed batches).
    #[error("refused: {0}")]
    Invalid(String),
}

/// Opens a stream that reads a shard's log from `from` up to (excluding) `to`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadShard {
    /// Which.
    pub shard: Shard,
    /// The reader's coordinator epoch.
    pub epoch: CoordinatorEpoch,
    /// First offset wanted; below the log's start means its start.
    pub from: Offset,
    /// Where to stop.
    pub to: Offset,
}

/// A frame of a shard's log. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShardFrame {
    /// Whole record batches, in order.
    Batches(Vec<u8>),
    /// Everything below the asked end was sent.
    End,
    /// The read cannot go on.
    Failed(ShardLogError),
}
