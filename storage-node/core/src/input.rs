//! Everything that can happen to a partition copy: the closed list of [`crate::Replica::step`]'s inputs.

use log_engine_core::{EpochHistory, MarkerEpochRule, ProducerStates, TransactionOutcome};
use proto_types::ids::{BrokerEpoch, LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch};
use proto_types::replication_api::{Marks, SessionAnswer};

use crate::replica::ReplicaConfig;

/// Names one request that waits for an answer. Whoever calls `step` makes it unique per replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Names one session of replication. At the follower the replica chooses it, and counts up. At the leader whoever calls
/// `step` chooses it, and never uses one again for the same replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

/// What the replica's own log knows as of now, lent to [`crate::Replica::step`], so that no second copy can differ from it.
#[derive(Debug, Clone, Copy)]
pub struct LogFacts<'a> {
    /// The idempotent producers and their transactions.
    pub producers: &'a ProducerStates,
    /// Which leader epoch began where.
    pub epochs: &'a EpochHistory,
    /// The highest offset of which compaction has dropped a tombstone that was the newest of its key, or a transaction marker,
    /// here or where this log was copied from; −1 if there is none. Whoever has older records and has not copied beyond it
    /// would keep a deleted key, or an open transaction, for ever.
    pub dropped_to: Offset,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The metadata has a new state of the partition. Of a state in which this node leads, the caller makes sure that it is
    /// not older than the node's registration: an earlier incarnation's leadership is not continued.
    NewEpoch(NewEpoch),
    /// A client wants a batch appended. Its bytes stay with the caller.
    Propose(Proposal),
    /// A transaction coordinator wants a marker appended.
    ProposeMarker(MarkerProposal),
    /// The append that was asked for is in the log, whose end is now `end`.
    Appended { end: Offset },
    /// The append that was asked for did not happen, and the log is as it was before (a full disk).
    AppendRefused,
    /// The log can take no more writes (failed write or sync); what it holds above the flushed end is in doubt.
    LogFailed,
    /// Everything below `end` is on disk, and the flush that was asked for is over.
    Flushed { end: Offset },
    /// A follower wants to follow.
    OpenSession(OpenSession),
    /// A follower's session is over: it closed it, or its lane broke, or it cannot be served any more.
    SessionEnded { session: SessionKey },
    /// A follower told how far it is.
    FollowerAck(FollowerAck),
    /// A follower's log begins later than it did when it told last.
    FollowerStart { session: SessionKey, log_start: Offset },
    /// The controller answered a proposal of a new in-sync set, or will not any more.
    IsrAnswered(IsrAnswered),
    /// The leader said something in a session of ours.
    FromLeader { session: SessionKey, said: FromLeader },
    /// A session of ours is over: the leader closed it, or its lane broke, or there is no way to the leader.
    SessionLost { session: SessionKey },
    /// The log was cut as was asked for; its end is now `end`, which is lower than asked for if that lay inside a batch.
    Truncated { end: Offset },
    /// The log was dropped, and begins anew and empty at `start`, as was asked for.
    Restarted { start: Offset },
    /// A client wants everything below an offset gone (`None`: below the high watermark), and waits until `deadline` for the
    /// replicas to do so.
    DeleteRecords { ticket: Ticket, before: Option<Offset>, deadline: Millis },
    /// Records were kept long enough: those below `start` may go, as far as they are committed.
    Expire { start: Offset },
    /// The log's start is now `start`, as was asked for.
    StartMoved { start: Offset },
    /// The start that was asked for did not come about, and the log is as it was before (a full disk).
    StartRefused,
    /// Configs of the topic changed. If they come together with a new state of the partition, first
    /// [`ReplicaConfig::stricter`] than both the old and the new ones, then the state, then they.
    ConfigChanged(ReplicaConfig),
    /// Time has passed.
    Tick,
}

/// Who leads, and who is in sync. Older and equal ones (by leader epoch, then partition epoch) are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEpoch {
    /// The leader, if there is one.
    pub leader: Option<NodeId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// All replicas, those included that are being added or removed: who may follow, and how many copies there are to be.
    pub replicas: Vec<NodeId>,
    /// The in-sync replicas.
    pub isr: Vec<NodeId>,
}

/// When a producer wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// `acks=0`: nobody listens, but the caller still learns the outcome once the batch is appended.
    None,
    /// `acks=1`: once the leader has appended.
    Leader,
    /// `acks=all`: once the high watermark covers the batch.
    All,
}

/// A validated batch, by what decides about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    pub ticket: Ticket,
    pub acks: Acks,
    /// Offsets that the batch takes, at least 1.
    pub offsets: i32,
    /// Largest timestamp of the batch, milliseconds.
    pub max_timestamp: i64,
    /// Who wrote it, if an idempotent producer did.
    pub producer: Option<ProducerStamp>,
    /// Whether the disk has room for it besides what is reserved.
    pub has_room: bool,
    /// Until when a producer with `acks=all` waits.
    pub deadline: Millis,
}

/// What makes a batch of an idempotent producer unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerStamp {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    /// The batch is part of a transaction.
    pub is_transactional: bool,
}

/// The marker that ends a producer's transaction: one record in a control batch, which the caller keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkerProposal {
    pub ticket: Ticket,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// Epoch of the coordinator that wants it.
    pub coordinator_epoch: i32,
    pub outcome: TransactionOutcome,
    /// Which epoch it must have.
    pub epoch_rule: MarkerEpochRule,
    /// Of the control batch, milliseconds.
    pub timestamp: i64,
    /// Until when the coordinator waits.
    pub deadline: Millis,
}

/// A follower that wants to follow this leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenSession {
    pub session: SessionKey,
    /// Who asks, as its certificate says.
    pub from: NodeId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// The leadership that it wants to follow.
    pub leader_epoch: LeaderEpoch,
    /// First offset of its log.
    pub log_start: Offset,
    /// First offset that it does not have.
    pub log_end: Offset,
    /// Leader epoch of its last record, −1 if it has none.
    pub last_epoch: LeaderEpoch,
}

/// A follower's position. Only acks of a session that has begun, and has not ended, count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerAck {
    pub session: SessionKey,
    /// First offset that it has not appended.
    pub appended: Offset,
    /// First offset that it has not on disk.
    pub flushed: Offset,
}

/// What came of the [`crate::Action::ProposeIsr`] with the same epochs. Each gets one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IsrAnswered {
    pub leader_epoch: LeaderEpoch,
    /// The state that the proposal was about.
    pub partition_epoch: PartitionEpoch,
    pub outcome: IsrOutcome,
}

/// See [`IsrAnswered`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IsrOutcome {
    /// The controller answered with the state that is in force. A state that drops a member waits for the metadata.
    Accepted(NewEpoch),
    /// The controller refused the proposal, and no copy of it can still be on its way. If one can, the outcome is unknown.
    Refused,
    /// No answer came in time. The proposal may have been accepted, or may still be.
    Unknown,
}

/// What a leader says in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromLeader {
    /// What comes of the session.
    Answer(SessionAnswer),
    /// More of the log.
    Batches(LeaderBatches),
    /// The leader's marks have moved.
    Marks(Marks),
}

/// Whole batches from the leader, valid by their checksums. Their bytes stay with the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderBatches {
    pub ticket: Ticket,
    /// First offset that the leader means to be new here; what precedes it in the first batch is here already.
    pub from: Offset,
    /// First offset after the last batch.
    pub end: Offset,
    /// Leader epoch of the first batch.
    pub first_epoch: LeaderEpoch,
    /// Leader epoch of the last batch; between the two they do not fall.
    pub last_epoch: LeaderEpoch,
    /// The leader's marks at the time of sending.
    pub marks: Marks,
}
