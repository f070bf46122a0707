//! What readers see of a partition copy: a small value that is published after each change and checked without
//! asking the owner.

use proto_types::ids::{LeaderEpoch, Offset};
use thiserror::Error;

/// A partition copy at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    pub standing: Standing,
    /// The newest leader epoch that the copy knows.
    pub leader_epoch: LeaderEpoch,
    /// First offset that exists.
    pub start: Offset,
    /// Below it everything is committed; consumers read no further.
    pub high_watermark: Offset,
    /// Below it no transaction is undecided; read-committed consumers read no further.
    pub last_stable: Offset,
    /// First offset that does not exist yet.
    pub end: Offset,
    /// It leads, and its high watermark has come to the start of its leader epoch. Before, its predecessor may have committed,
    /// and shown to consumers, more than it knows of (KIP-207).
    pub committed_to_epoch_start: bool,
}

/// What a consumer wants to see (`isolation.level`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Everything that is committed to the log.
    ReadUncommitted,
    /// Nothing of transactions that are open or were aborted.
    ReadCommitted,
}

/// Whether the copy answers clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Leader,
    /// It follows the leader of its epoch. Consumers may read what is committed (KIP-392); everything else is the leader's.
    Follower,
    /// Nobody leads, or the copy has no part in the partition any more.
    NotLeader,
    /// The log has failed on this node.
    Failed,
}

/// Why a request does not fit the partition's leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LeadershipError {
    #[error("this node does not lead the partition")]
    NotLeader,
    #[error("the partition's log has failed on this node")]
    LogFailed,
    /// The client's metadata is older than ours.
    #[error("leader epoch {requested} is older than the current one, {current}")]
    FencedLeaderEpoch { requested: i32, current: LeaderEpoch },
    /// The client's metadata is newer than ours.
    #[error("leader epoch {requested} is newer than the current one, {current}")]
    UnknownLeaderEpoch { requested: i32, current: LeaderEpoch },
}

impl View {
    /// The first offset that a consumer may not read.
    pub fn readable_end(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::ReadUncommitted => self.high_watermark,
            Isolation::ReadCommitted => self.last_stable,
        }
    }

    /// Checks that the copy leads, in the epoch that the client believes in (−1: it does not say).
    pub fn check_leader(&self, requested_epoch: i32) -> Result<(), LeadershipError> {
        let current = self.leader_epoch;
        if requested_epoch >= 0 && requested_epoch < current.0 {
            return Err(LeadershipError::FencedLeaderEpoch { requested: requested_epoch, current });
        }
        if requested_epoch > current.0 {
            return Err(LeadershipError::UnknownLeaderEpoch { requested: requested_epoch, current });
        }
        match self.standing {
            Standing::Leader => Ok(()),
            Standing::Follower | Standing::NotLeader => Err(LeadershipError::NotLeader),
            Standing::Failed => Err(LeadershipError::LogFailed),
        }
    }
}
