//! Everything that can happen to a partition copy: the closed list of [`crate::Replica::step`]'s inputs.

use proto_types::ids::{LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch};

use crate::replica::ReplicaConfig;

/// Names one request that waits for an answer. Whoever calls `step` makes it unique per replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The metadata has a new state of the partition.
    NewEpoch(NewEpoch),
    /// A client wants a batch appended. Its bytes stay with the caller.
    Propose(Proposal),
    /// The append that was asked for is in the log, whose end is now `end`.
    Appended { end: Offset },
    /// The append that was asked for did not happen, and the log is as it was before (a full disk).
    AppendRefused,
    /// The log can take no more writes (failed write or sync); what it holds above the flushed end is in doubt.
    LogFailed,
    /// Everything below `end` is on disk, and the flush that was asked for is over.
    Flushed { end: Offset },
    /// A follower told how far it is.
    FollowerAck(FollowerAck),
    /// A client wants everything below an offset gone (`None`: below the high watermark).
    DeleteRecords { ticket: Ticket, before: Option<Offset> },
    /// The log's start is now `start`, as was asked for.
    StartMoved { start: Offset },
    /// The start that was asked for did not come about, and the log is as it was before (a full disk).
    StartRefused,
    /// Configs of the topic changed.
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
    /// How many replicas the partition is to have.
    pub replication_factor: usize,
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
    /// Until when a producer with `acks=all` waits.
    pub deadline: Millis,
}

/// What makes a batch of an idempotent producer unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerStamp {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
}

/// A follower's position. Only acks of the leader's current epoch count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerAck {
    pub node: NodeId,
    pub leader_epoch: LeaderEpoch,
    /// First offset that it has not appended.
    pub appended: Offset,
    /// First offset that it has not on disk.
    pub flushed: Offset,
}
