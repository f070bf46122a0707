//! Numbers of the messages that daemons exchange. On the wire: never reuse, never renumber.

/// Kind of an internal call or stream; the payload's type and version follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum MessageKind {
    /// [`crate::controller_api::ControllerRequest`] → `Result<ControllerReply, ControllerError>`.
    Controller = 1,
    /// Stream: metadata feed, [`crate::controller_api::FeedRequest`] then [`crate::controller_api::FeedFrame`]s.
    MetadataFeed = 2,
    /// Stream, storage node to coordinator: [`crate::coordinator_api::ForwardFrame`]s, answered by
    /// [`crate::coordinator_api::AnswerFrame`]s.
    Forward = 3,
    /// Coordinator to storage node: [`crate::coordinator_api::AppendShard`] →
    /// `Result<ShardAppended, ShardLogError>`.
    AppendShard = 4,
    /// Stream, coordinator to storage node: [`crate::coordinator_api::ReadShard`] then
    /// [`crate::coordinator_api::ShardFrame`]s.
    ReadShard = 5,
    /// Stream between storage nodes, on the data endpoint: [`crate::replication_api::LaneHello`], then
    /// [`crate::replication_api::FollowerFrame`]s, answered by [`crate::replication_api::LeaderFrame`]s.
    ReplicationLane = 6,
    /// Controller to controller: raft append entries.
    RaftAppend = 16,
    /// Controller to controller: raft vote.
    RaftVote = 17,
    /// Controller to controller: raft pre-vote.
    RaftPreVote = 18,
    /// Controller to controller, stream: a whole snapshot.
    RaftSnapshot = 19,
    /// Controller to controller: hand over leadership.
    RaftTransferLeader = 20,
    /// Controller to controller: which feature levels do you support; nothing is asked but that.
    ControllerLevels = 21,
}

impl MessageKind {
    /// All kinds, in order of number.
    pub const ALL: [MessageKind; 12] = [
        MessageKind::Controller,
        MessageKind::MetadataFeed,
        MessageKind::Forward,
        MessageKind::AppendShard,
        MessageKind::ReadShard,
        MessageKind::ReplicationLane,
        MessageKind::RaftAppend,
        MessageKind::RaftVote,
        MessageKind::RaftPreVote,
        MessageKind::RaftSnapshot,
        MessageKind::RaftTransferLeader,
        MessageKind::ControllerLevels,
    ];

    /// The number on the wire.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The kind of a number from the wire.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}
