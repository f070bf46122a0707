//! Storage node ⇄ storage node: replication of partitions over lanes.
//!
//! A lane is a long-lived stream that a follower's node opens to a leader's node; a few of them carry the sessions of all
//! partitions that the two share (partition → lane by hash). A session is one follower's copy following one leadership
//! of one partition. The follower opens it and acknowledges; the leader answers where the logs agree and then pushes
//! batches as they are appended. Credit is the follower's pull: a leader never has more bytes on their way in a session
//! than the follower has granted, but one batch always fits.
//!
//! Logs are compared by leader epoch (KIP-101, KIP-279, KIP-320), never by high watermark.

use crate::ids::{BrokerEpoch, LeaderEpoch, Offset, TopicPartition};
use serde::{Deserialize, Serialize};

/// Opens a lane: the first frame from the follower's node, answered by nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneHello {
    /// The follower's cluster; must be the leader's.
    pub cluster_id: String,
    /// The follower's registration; who it is, its certificate says.
    pub broker_epoch: BrokerEpoch,
}

/// Names a session on its lane. Chosen by the follower, never reused on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// Follower → leader. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FollowerFrame {
    /// Begin a session, or ask again after a truncation (with a new session).
    Open(OpenSession),
    /// How far the follower is.
    Ack(SessionAck),
    /// The follower does not want the session any more.
    Close {
        /// Which.
        session: SessionId,
    },
    /// The follower's log begins later than it did when the session was opened, or when this was told last.
    LogStart {
        /// In which session.
        session: SessionId,
        /// First offset of the follower's log: what is deleted below it does not come back.
        log_start: Offset,
    },
}

/// See [`FollowerFrame::Open`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    /// The new session.
    pub session: SessionId,
    /// Of which partition.
    pub partition: TopicPartition,
    /// The leadership that the follower wants to follow; the leader refuses any other than its own.
    pub leader_epoch: LeaderEpoch,
    /// First offset of the follower's log.
    pub log_start: Offset,
    /// First offset that the follower does not have.
    pub log_end: Offset,
    /// Leader epoch of the follower's last record, −1 if it has none.
    pub last_epoch: LeaderEpoch,
    /// Bytes that the leader may send before it hears more.
    pub credit_bytes: u64,
}

/// See [`FollowerFrame::Ack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionAck {
    /// In which session.
    pub session: SessionId,
    /// First offset that the follower has not appended.
    pub appended: Offset,
    /// First offset that the follower has not on disk.
    pub flushed: Offset,
    /// Further bytes that the leader may send.
    pub credit_bytes: u64,
}

/// Leader → follower. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaderFrame {
    /// Answer to [`FollowerFrame::Open`].
    Answer {
        /// To which session.
        session: SessionId,
        /// What comes of it. If it does not begin ([`SessionAnswer::begins`]), the session is over.
        answer: SessionAnswer,
    },
    /// More of the log: the records follow as a frame of their own.
    Batches(Batches),
    /// The leader's marks have moved, without records.
    Marks {
        /// In which session.
        session: SessionId,
        /// The marks.
        marks: Marks,
    },
    /// The leader ends the session: its leadership is over, or it cannot read its log.
    Closed {
        /// Which.
        session: SessionId,
    },
}

/// What comes of an open session. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionAnswer {
    /// The logs agree up to the follower's end: batches follow from there.
    Begins {
        /// The leader's marks.
        marks: Marks,
    },
    /// The logs differ. The largest epoch that the leader has and that is not above the follower's last one ends at
    /// `end`: the follower cuts its log to what it shares with that (KIP-279) and opens anew.
    Diverged {
        /// That epoch; −1: the leader has none so low.
        epoch: LeaderEpoch,
        /// Where it ends in the leader's log.
        end: Offset,
    },
    /// The follower's log ends before the leader's begins: it drops all that it has, begins at `start` and opens anew.
    StartsLater {
        /// First offset of the leader's log.
        start: Offset,
    },
    /// The answering node does not lead in the epoch that was asked for.
    WrongEpoch {
        /// The newest epoch that it knows.
        current: LeaderEpoch,
    },
    /// The answering node does not count the asking one among the replicas, or has no such partition (yet), or its log has
    /// failed.
    NotServed,
    /// As [`SessionAnswer::Begins`], but compaction has dropped tombstones or transaction markers that the follower would have
    /// had to copy. Whoever has records from before that, and did not begin to copy after it, must begin anew and empty.
    BeginsCompacted {
        /// The leader's marks.
        marks: Marks,
        /// The highest offset of which one was dropped; not below the follower's end.
        dropped_to: Offset,
    },
}

impl SessionAnswer {
    /// The leader's marks, if the session begins.
    pub fn begins(&self) -> Option<Marks> {
        match *self {
            Self::Begins { marks } | Self::BeginsCompacted { marks, .. } => Some(marks),
            Self::Diverged { .. } | Self::StartsLater { .. } | Self::WrongEpoch { .. } | Self::NotServed => {
                None
            }
        }
    }
}

/// The leader's marks, which a follower takes over as far as its own log reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// First offset of the leader's log.
    pub log_start: Offset,
    /// Everything below is committed.
    pub high_watermark: Offset,
}

/// Whole batches, in order and without gap after what was sent before. The batches themselves, in Kafka's record format v2
/// with offsets and leader epochs set by the leader, are the next frame of the lane, as they are: neither side copies
/// them through an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batches {
    /// In which session.
    pub session: SessionId,
    /// First offset that the follower expects next: what precedes it in the first batch it has already.
    pub from: Offset,
    /// The marks at the time of sending.
    pub marks: Marks,
}
