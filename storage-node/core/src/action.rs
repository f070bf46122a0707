//! Everything that a partition copy can ask for: the closed list of [`crate::Replica::step`]'s answers. The caller
//! performs them in order; what a slow one comes to returns as an input.

use proto_types::ids::{LeaderEpoch, Offset};
use thiserror::Error;

use crate::input::Ticket;
use crate::view::View;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Append the batch of `ticket`, its first record at `base_offset`. Answer with `Appended`, `AppendRefused` or
    /// `LogFailed` before anything else happens to this replica.
    Append { ticket: Ticket, base_offset: Offset, leader_epoch: LeaderEpoch },
    /// Note in the log that `epoch` begins at `start`.
    AssignEpoch { epoch: LeaderEpoch, start: Offset },
    /// Bring everything that the log holds to the disk. Answer with `Flushed` or `LogFailed`, in time.
    Flush,
    /// Move the log's start. Answer with `StartMoved`, `StartRefused` or `LogFailed` before anything else happens.
    MoveStart { start: Offset },
    /// Answer a producer.
    Reply { ticket: Ticket, result: Result<Produced, ProduceError> },
    /// Answer a DeleteRecords request with the log's new start.
    RecordsDeleted { ticket: Ticket, result: Result<Offset, DeleteRecordsError> },
    /// Show readers the partition's new state.
    Publish(View),
}

impl Action {
    /// Whether it tells somebody outside what came of a request. Such actions come last.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Action::Reply { .. } | Action::RecordsDeleted { .. } => true,
            Action::Append { .. }
            | Action::AssignEpoch { .. }
            | Action::Flush
            | Action::MoveStart { .. }
            | Action::Publish(_) => false,
        }
    }
}

/// Where a batch stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// The batch had been appended before and this is a repetition by an idempotent producer; `timestamp` is the
    /// original's largest one.
    pub duplicate_of: Option<Duplicate>,
    /// The log's start.
    pub log_start: Offset,
}

/// What a repeated batch's original looked like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duplicate {
    /// Largest timestamp of the original, milliseconds.
    pub timestamp: i64,
}

/// Why a batch is not in the log, or not known to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProduceError {
    /// Another node leads, or none. Retry there.
    #[error("this node does not lead the partition")]
    NotLeader,
    /// Too few replicas are in sync; nothing was appended. Retry.
    #[error("{in_sync} replicas are in sync, {needed} are needed")]
    NotEnoughReplicas { in_sync: usize, needed: usize },
    /// The batch is appended but too few replicas were in sync to commit it. Retry.
    #[error("the batch is appended, but {in_sync} replicas are in sync and {needed} are needed")]
    NotEnoughReplicasAfterAppend { in_sync: usize, needed: usize },
    /// The batch is appended but was not committed in time. Retry.
    #[error("the batch was not committed in time")]
    TimedOut,
    /// There is a gap in the producer's sequence.
    #[error("the producer's sequence is {found}, expected {expected}")]
    OutOfOrderSequence { expected: i32, found: i32 },
    /// The batch was appended long ago; where is no longer known.
    #[error("the batch was appended before, so long ago that its offset is no longer known")]
    DuplicateTooOld,
    /// The producer was fenced by a newer instance of itself.
    #[error("the producer's epoch was fenced by epoch {current}")]
    InvalidProducerEpoch { current: i16 },
    /// More producers wait than the partition allows. Retry.
    #[error("too many producers wait for this partition")]
    Busy,
    /// The disk took no more data; nothing was appended. Retry.
    #[error("the batch could not be written")]
    WriteRefused,
    /// The log failed; the partition is offline on this node.
    #[error("the partition's log has failed on this node")]
    LogFailed,
}

/// Why records were not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DeleteRecordsError {
    /// Another node leads, or none. Retry there.
    #[error("this node does not lead the partition")]
    NotLeader,
    /// Below zero, or above the high watermark.
    #[error("the offset is outside of the log or above the high watermark {high_watermark}")]
    OffsetOutOfRange { high_watermark: Offset },
    /// The disk has no room for what must be noted; nothing was deleted. Retry.
    #[error("the new start could not be written")]
    WriteRefused,
    /// The log failed; the partition is offline on this node.
    #[error("the partition's log has failed on this node")]
    LogFailed,
}
