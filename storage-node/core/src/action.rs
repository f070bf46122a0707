//! Everything that a partition copy can ask for: the closed list of [`crate::Replica::step`]'s answers. The caller
//! performs them in order; what a slow one comes to returns as an input.

use proto_types::ids::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch};
use proto_types::replication_api::SessionAnswer;
use thiserror::Error;

use crate::input::{SessionKey, Ticket};
use crate::view::View;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Append the batch of `ticket`, its first record at `base_offset`. Answer with `Appended`, `AppendRefused` or
    /// `LogFailed` before anything else happens to this replica.
    Append { ticket: Ticket, base_offset: Offset, leader_epoch: LeaderEpoch },
    /// Append the leader's batches of `ticket` as they are, offsets and epochs included. Answer with `Appended`,
    /// `AppendRefused` or `LogFailed` before anything else happens to this replica.
    AppendBatches { ticket: Ticket },
    /// Note in the log that `epoch` begins at `start`.
    AssignEpoch { epoch: LeaderEpoch, start: Offset },
    /// Bring everything that the log holds to the disk. Answer with `Flushed` or `LogFailed`, in time.
    Flush,
    /// Move the log's start. Answer with `StartMoved`, `StartRefused` or `LogFailed` before anything else happens.
    MoveStart { start: Offset },
    /// Take away all batches that reach `to` or beyond, their producers and epochs included. Answer with `Truncated` or
    /// `LogFailed` before anything else happens. `below_high_watermark` is the high watermark if records go that this
    /// copy knew to be committed: only an unclean election can lead to that, and it is worth a loud word.
    Truncate { to: Offset, below_high_watermark: Option<Offset> },
    /// Drop the whole log, producers and epochs included, and begin anew and empty at `start`. Answer with `Restarted` or
    /// `LogFailed` before anything else happens. `below_high_watermark` as with `Truncate`.
    RestartAt { start: Offset, below_high_watermark: Option<Offset> },
    /// Drop the whole log and begin anew and empty at `start`, as with `RestartAt`, because compaction has dropped what this copy
    /// would have to be told. The leader has all that is committed of what goes: nothing is lost, whatever the high watermark.
    StartOver { start: Offset },
    /// Note durably that the log, which is empty, is copied from one in which compaction has dropped something at `to`, before
    /// anything of it is appended. If that fails, the session is lost.
    NoteDropped { session: SessionKey, to: Offset },
    /// Answer a producer.
    Reply { ticket: Ticket, result: Result<Produced, ProduceError> },
    /// Answer a DeleteRecords request with the low watermark: no replica that could lead, or that follows, begins below it.
    RecordsDeleted { ticket: Ticket, result: Result<Offset, DeleteRecordsError> },
    /// Show readers the partition's new state.
    Publish(View),
    /// As a follower: ask the leader for a session. Answer with `FromLeader` or `SessionLost`, in time.
    OpenSession {
        leader: NodeId,
        session: SessionKey,
        leader_epoch: LeaderEpoch,
        log_start: Offset,
        log_end: Offset,
        /// Leader epoch of the last record, −1 without records.
        last_epoch: LeaderEpoch,
    },
    /// As a follower: the session is not wanted any more. No answer.
    CloseSession { session: SessionKey },
    /// As a follower: tell the leader how far this copy is. A newer one may take the place of one that was not sent yet.
    Ack { session: SessionKey, appended: Offset, flushed: Offset },
    /// As a follower: tell the leader that this copy's log begins later than it was told. A newer one may take the place of one
    /// that was not sent yet.
    TellStart { session: SessionKey, log_start: Offset },
    /// As a leader: answer a follower. If the session begins, a [`crate::Pump`] feeds it from the follower's end; if not, it
    /// is over.
    AnswerSession { session: SessionKey, answer: SessionAnswer },
    /// As a leader: end a session that has begun. No answer.
    EndSession { session: SessionKey },
    /// As a leader: propose a new in-sync set to the controller. Answer with `IsrAnswered`, in time. A member that has no
    /// session, the leader itself included, comes with [`proto_types::controller_api::ProposedIsr::NOT_HEARD_FROM`]: it is in the
    /// present set, and the leader does not vouch for it.
    ProposeIsr { leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch, isr: Vec<(NodeId, BrokerEpoch)> },
}

impl Action {
    /// In which order the actions of a step are performed. Whoever gets an answer must find what it says, so readers are
    /// shown the new state before; and what comes back as an input, before anything else happens, comes last.
    pub(crate) fn turn(&self) -> u8 {
        match self {
            Action::AssignEpoch { .. }
            | Action::NoteDropped { .. }
            | Action::Flush
            | Action::Publish(_)
            | Action::OpenSession { .. }
            | Action::CloseSession { .. }
            | Action::EndSession { .. }
            | Action::ProposeIsr { .. } => 0,
            Action::Reply { .. }
            | Action::RecordsDeleted { .. }
            | Action::Ack { .. }
            | Action::TellStart { .. }
            | Action::AnswerSession { .. } => 1,
            Action::Append { .. }
            | Action::AppendBatches { .. }
            | Action::MoveStart { .. }
            | Action::Truncate { .. }
            | Action::RestartAt { .. }
            | Action::StartOver { .. } => 2,
        }
    }

    /// Whether its outcome comes back before anything else may happen.
    pub fn is_awaited(&self) -> bool {
        self.turn() == 2
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
    /// An earlier batch of the producer was refused and has not come again; nothing was appended. Retry both.
    #[error("an earlier batch of this producer was refused and has to come first")]
    BehindRefused,
    /// The batch is older than the producer's batches that are remembered: it cannot be told whether it was appended.
    #[error("the batch is older than the batches of its producer that are remembered")]
    DuplicateTooOld,
    /// The producer was fenced by a newer instance of itself.
    #[error("the producer's epoch was fenced by epoch {current}")]
    InvalidProducerEpoch { current: i16 },
    /// The producer has a transaction open, of which the batch is no part.
    #[error(
        "the producer has had a transaction open since offset {txn_first_offset}, and the batch is not part of it"
    )]
    InvalidTxnState { txn_first_offset: i64 },
    /// As many producers as the partition may have in memory have a transaction open. Retry.
    #[error("{open} transactions are open in this partition, as many as it may have")]
    TooManyTransactions { open: usize },
    /// A newer coordinator has written a marker of the producer.
    #[error("the transaction coordinator's epoch was fenced by epoch {current}")]
    TransactionCoordinatorFenced { current: i32 },
    /// More producers wait than the partition allows. Retry.
    #[error("too many producers wait for this partition")]
    Busy,
    /// The disk took no more data; nothing was appended. Retry.
    #[error(
        "nothing was written: the broker's disk had no room for the batch; make room, or delete topics or records"
    )]
    WriteRefused,
    /// The disk is nearly full, and what is left is reserved; nothing was appended. Retry.
    #[error(
        "the broker's disk is nearly full: records are refused until topics or records are deleted or there is more space"
    )]
    DiskFull,
    /// The log failed; the partition is offline on this node.
    #[error("the partition's log has failed on this node")]
    LogFailed,
}

impl ProduceError {
    /// Nothing was appended, and the client is to send the same batch again.
    pub(crate) fn is_passing_refusal(self) -> bool {
        match self {
            Self::NotLeader
            | Self::NotEnoughReplicas { .. }
            | Self::TooManyTransactions { .. }
            | Self::Busy
            | Self::BehindRefused
            | Self::WriteRefused
            | Self::DiskFull
            | Self::LogFailed => true,
            Self::NotEnoughReplicasAfterAppend { .. }
            | Self::TimedOut
            | Self::OutOfOrderSequence { .. }
            | Self::DuplicateTooOld
            | Self::InvalidProducerEpoch { .. }
            | Self::InvalidTxnState { .. }
            | Self::TransactionCoordinatorFenced { .. } => false,
        }
    }
}

/// Why records were not deleted. Where nothing else is said, nothing of what was asked for was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DeleteRecordsError {
    /// Another node leads, or none; what this one had deleted before, the new leader may still have. Retry there.
    #[error("this node does not lead the partition")]
    NotLeader,
    /// Below zero, or above the high watermark.
    #[error("the offset is outside of the log or above the high watermark {high_watermark}")]
    OffsetOutOfRange { high_watermark: Offset },
    /// Not all replicas have deleted the records in time, or too few are in sync to be sure of it; some may have deleted
    /// them, or some of them. Retry.
    #[error(
        "not all replicas that could lead have deleted the records in time; they go on with it: ask again to learn when they have"
    )]
    TimedOut,
    /// More requests wait than the partition allows. Retry.
    #[error("too many requests to delete records wait for this partition")]
    Busy,
    /// The disk has no room for what must be noted; nothing was deleted. Retry.
    #[error(
        "nothing was deleted: the broker's disk had no room to note the new start; make room, or delete topics"
    )]
    WriteRefused,
    /// The log failed, maybe in the middle of it; the partition is offline on this node.
    #[error("the partition's log has failed on this node")]
    LogFailed,
}
