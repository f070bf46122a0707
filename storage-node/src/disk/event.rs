//! Everything that a log thread can be told.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use log_engine::{
    CompactedSegment, Compaction, CompactionRequest, FinishedCompaction, FlushDone, Installed, Log,
    RecoveryReport,
};
use log_engine_core::{MarkerEpochRule, TransactionOutcome};
use proto_types::coordinator_api::{ShardAppended, ShardLogError};
use proto_types::ids::{CoordinatorEpoch, Millis, Offset, TopicPartition};
use proto_types::replication_api::{Marks, SessionAnswer};
use records::BatchHeader;
use storage_node_core::{
    Acks, DeleteRecordsError, FlushMode, FollowerStatus, IsrAnswered, NewEpoch, ProduceError, View,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::disk::event_queue::Permit;
use crate::partition::{PartitionHandle, ProduceOutcome, TopicSettings};
use crate::replication::{FollowerSession, LeaderSession};

/// One thing for the log thread to do.
#[derive(Debug)]
pub(crate) enum Event {
    /// Open a copy, or make a new one.
    Open(Open),
    /// A log is open, or cannot be opened.
    Opened(Box<Opened>),
    /// Close a copy, and remove its files if `delete` says so.
    Drop(DropCopy),
    /// The metadata has a new state of the partition. `done` when the replica follows it.
    NewEpoch { id: TopicPartition, epoch: NewEpoch, done: oneshot::Sender<()> },
    /// Configs of the topic changed.
    Settings { id: TopicPartition, settings: Arc<TopicSettings>, done: oneshot::Sender<()> },
    /// Append a batch.
    Produce(Produce),
    /// Append a transaction marker.
    WriteMarker(WriteMarker),
    /// Move the log's start.
    DeleteRecords(DeleteRecords),
    /// Tell how far followers are.
    DescribeFollowers(DescribeFollowers),
    /// Append what a coordinator wants in the log of its shard.
    AppendToShard(AppendToShard),
    /// A follower wants to follow this copy.
    OpenSession { session: Arc<LeaderSession> },
    /// A follower told how far it is: the session has the newest that it told.
    FollowerAck { session: Arc<LeaderSession> },
    /// A follower told where its log begins: the session has the newest that it told.
    FollowerStart { session: Arc<LeaderSession> },
    /// A follower's session is over.
    SessionEnded { session: Arc<LeaderSession> },
    /// The leader said something in a session of this copy.
    FromLeader(FromLeader),
    /// A session of this copy is over.
    SessionLost { session: Arc<FollowerSession> },
    /// What came of a proposal of an in-sync set.
    IsrAnswered { id: TopicPartition, answered: IsrAnswered },
    /// A thread that compacts wants something of a copy.
    Compaction { id: TopicPartition, step: CompactionStep },
    /// A flush is over.
    Flushed(FlushDone),
    /// A segment of the copy is damaged.
    Damaged { id: TopicPartition, reason: String },
    /// Flush and close everything, then end.
    Stop,
}

/// See [`Event::Open`].
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) id: TopicPartition,
    pub(crate) settings: Arc<TopicSettings>,
    pub(crate) epoch: NewEpoch,
    /// If this process had it open and closed it for lack of space.
    pub(crate) closed: Option<ClosedLog>,
    /// The log is new, or this process had it open: there is little to recover.
    pub(crate) is_short: bool,
    pub(crate) done: oneshot::Sender<Result<PartitionHandle, OpenFailure>>,
}

/// A log that took no more appends for lack of space, or was closed to be moved, as it was when it was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClosedLog {
    /// Where it ended. No sync may have confirmed that, but others may have what it held.
    pub(crate) end: Offset,
    /// Below it everything was committed.
    pub(crate) high_watermark: Offset,
    /// What its acknowledgements have promised, now or then.
    pub(crate) flush: FlushMode,
    /// It was moved: all of it is on the disk.
    pub(crate) is_whole: bool,
}

/// Why a copy is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFailure {
    /// A sentence.
    pub(crate) reason: String,
    /// Records are gone or wrong; else it may be for the moment.
    pub(crate) damaged: bool,
}

impl OpenFailure {
    /// It may be for the moment.
    pub(crate) fn for_now(reason: &str) -> Self {
        Self { reason: reason.to_owned(), damaged: false }
    }
}

/// See [`Event::Opened`].
pub(crate) struct Opened {
    pub(crate) open: Open,
    pub(crate) result: Result<OpenedLog, OpenFailure>,
}

/// A log that is open.
pub(crate) struct OpenedLog {
    pub(crate) log: Log,
    pub(crate) report: RecoveryReport,
    /// The newest claim of a coordinator in a log of an internal topic, or why it cannot be read.
    pub(crate) claim: Result<Option<CoordinatorEpoch>, String>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({}, {:?})", self.open.id, self.result.as_ref().map(|opened| &opened.report))
    }
}

/// See [`Event::Drop`].
#[derive(Debug)]
pub(crate) struct DropCopy {
    pub(crate) id: TopicPartition,
    pub(crate) delete: bool,
    /// Whether the log was closed cleanly, or nothing is left of it if it was to be deleted.
    pub(crate) done: oneshot::Sender<bool>,
}

/// See [`Event::Produce`].
#[derive(Debug)]
pub(crate) struct Produce {
    pub(crate) id: TopicPartition,
    /// Exactly one validated batch.
    pub(crate) bytes: Bytes,
    pub(crate) header: BatchHeader,
    pub(crate) acks: Acks,
    /// Monotonic; until when a producer with `acks=all` waits.
    pub(crate) deadline: Millis,
    /// When it was validated.
    pub(crate) offered: Instant,
    pub(crate) reply: oneshot::Sender<Result<ProduceOutcome, ProduceError>>,
    pub(crate) permit: Permit,
}

/// See [`Event::WriteMarker`].
#[derive(Debug)]
pub(crate) struct WriteMarker {
    pub(crate) id: TopicPartition,
    pub(crate) marker: MarkerToWrite,
    /// Monotonic; until when the coordinator waits.
    pub(crate) deadline: Millis,
    pub(crate) reply: oneshot::Sender<Result<ProduceOutcome, ProduceError>>,
    pub(crate) permit: Permit,
}

/// What a transaction coordinator wants in the log of a partition that a transaction wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MarkerToWrite {
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) coordinator_epoch: i32,
    pub(crate) outcome: TransactionOutcome,
    /// Which epoch it must have.
    pub(crate) epoch_rule: MarkerEpochRule,
}

/// See [`Event::DeleteRecords`].
#[derive(Debug)]
pub(crate) struct DeleteRecords {
    pub(crate) id: TopicPartition,
    /// `None`: up to the high watermark.
    pub(crate) before: Option<Offset>,
    /// Monotonic; until when the client waits for the replicas.
    pub(crate) deadline: Millis,
    pub(crate) reply: oneshot::Sender<Result<Offset, DeleteRecordsError>>,
    pub(crate) permit: Permit,
}

/// See [`Event::DescribeFollowers`].
#[derive(Debug)]
pub(crate) struct DescribeFollowers {
    pub(crate) of: FollowersOf,
    pub(crate) reply: oneshot::Sender<Vec<LedPartition>>,
    pub(crate) permit: Permit,
}

/// Whose followers are to be described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowersOf {
    /// All of one partition.
    Partition(TopicPartition),
    /// Of all partitions those that have lacked something for at least `lag_ms_min`, of at most so many partitions.
    Lagging { lag_ms_min: i64, partitions_max: usize },
}

/// A partition that this node leads, with followers of it.
#[derive(Debug, Clone)]
pub(crate) struct LedPartition {
    pub(crate) id: TopicPartition,
    pub(crate) view: View,
    pub(crate) followers: Vec<FollowerStatus>,
}

/// See [`Event::AppendToShard`].
#[derive(Debug)]
pub(crate) struct AppendToShard {
    pub(crate) id: TopicPartition,
    /// The coordinator's epoch.
    pub(crate) epoch: CoordinatorEpoch,
    /// Where the batch must come to stand; not looked at for a claim.
    pub(crate) expected_end: Option<Offset>,
    /// Exactly one validated batch; `None` claims the shard.
    pub(crate) batch: Option<(Bytes, BatchHeader)>,
    /// Monotonic; until when the coordinator waits.
    pub(crate) deadline: Millis,
    pub(crate) reply: oneshot::Sender<Result<ShardAppended, ShardLogError>>,
    pub(crate) permit: Permit,
}

/// See [`Event::Compaction`].
#[derive(Debug)]
pub(crate) enum CompactionStep {
    /// Tell what a pass needs to know, if there is something to do.
    Begin { request: CompactionRequest, reply: oneshot::Sender<Option<Compaction>> },
    /// Put a new segment in its place.
    Install { segment: Box<CompactedSegment>, reply: oneshot::Sender<Result<Installed, String>> },
    /// The pass is at its end.
    Finish { finished: FinishedCompaction, reply: oneshot::Sender<bool> },
}

/// See [`Event::FromLeader`].
#[derive(Debug)]
pub(crate) enum FromLeader {
    /// What comes of the session.
    Answer { session: Arc<FollowerSession>, answer: SessionAnswer },
    /// More of the log.
    Batches(BatchesFromLeader),
    /// Marks have moved: the session has the newest.
    Marks { session: Arc<FollowerSession> },
}

/// Whole batches that passed [`check_batches`](crate::replication::batches_from_leader::check_batches).
#[derive(Debug)]
pub(crate) struct BatchesFromLeader {
    pub(crate) session: Arc<FollowerSession>,
    /// First offset that the leader means to be new here.
    pub(crate) from: Offset,
    pub(crate) marks: Marks,
    pub(crate) bytes: Bytes,
    /// One for each batch; at least one.
    pub(crate) headers: Vec<BatchHeader>,
    /// Its share of the memory for what waits to be appended.
    pub(crate) _memory: OwnedSemaphorePermit,
}

impl FromLeader {
    /// In which session.
    pub(crate) fn session(&self) -> &Arc<FollowerSession> {
        match self {
            FromLeader::Answer { session, .. } | FromLeader::Marks { session } => session,
            FromLeader::Batches(batches) => &batches.session,
        }
    }
}
