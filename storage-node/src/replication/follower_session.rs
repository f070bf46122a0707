//! One session as the follower's node holds it: what its log thread and its lane share.
//!
//! Acknowledgements, and starts of the log, are folded into the newest that was not sent yet, and marks without records into the newest that was
//! not worked off yet.

use std::sync::Arc;

use parking_lot::Mutex;
use proto_types::ids::{LeaderEpoch, NodeId, Offset, TopicPartition};
use proto_types::replication_api::{FollowerFrame, Marks, OpenSession, SessionAck, SessionId};
use storage_node_core::SessionKey;

use super::batches_from_leader::Expected;
use super::follower_lanes::FollowerLane;
use crate::disk::event::Event;
use crate::partition::handle::Shared;

/// See the module.
pub(crate) struct FollowerSession {
    /// The replica's name for it.
    pub(crate) key: SessionKey,
    /// Its name on the lane.
    pub(crate) wire: SessionId,
    pub(crate) id: TopicPartition,
    pub(crate) leader: NodeId,
    pub(crate) lane: Arc<FollowerLane>,
    pub(crate) partition: Arc<Shared>,
    /// Bytes that the leader may have on their way.
    pub(crate) credit_max: u64,
    state: Mutex<State>,
}

struct State {
    /// The first frame, until it is sent.
    open: Option<OpenSession>,
    expected: Expected,
    ack: Option<(Offset, Offset)>,
    /// Where the log begins, until it is told.
    log_start: Option<Offset>,
    credit_bytes: u64,
    /// What the leader was told last.
    told: (Offset, Offset),
    /// Credit that is withheld because the session catches up too fast.
    withheld_bytes: u64,
    /// Credit that was withheld and that the next acknowledgement gives.
    let_go_bytes: u64,
    marks: Option<Marks>,
    /// It waits in the lane's queue.
    queued: bool,
    closed: bool,
}

impl std::fmt::Debug for FollowerSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FollowerSession({:?} of {} at node {})", self.key, self.id, self.leader)
    }
}

/// Why a log is opened for a leader: what the replica asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogEnds {
    pub(crate) log_start: Offset,
    pub(crate) log_end: Offset,
    pub(crate) last_epoch: LeaderEpoch,
}

impl FollowerSession {
    pub(crate) fn new(
        key: SessionKey,
        leader: NodeId,
        open: OpenSession,
        lane: Arc<FollowerLane>,
        partition: Arc<Shared>,
    ) -> Self {
        let expected = Expected {
            next: open.log_end.0,
            empty: open.log_start == open.log_end,
            epoch_max: open.leader_epoch,
            epoch_min: open.last_epoch,
        };
        let state = State {
            open: None,
            expected,
            ack: None,
            log_start: None,
            credit_bytes: 0,
            told: (open.log_start, open.log_start),
            withheld_bytes: 0,
            let_go_bytes: 0,
            marks: None,
            queued: true,
            closed: false,
        };
        let (wire, id, credit_max) = (open.session, open.partition, open.credit_bytes);
        Self {
            key,
            wire,
            id,
            leader,
            lane,
            partition,
            credit_max,
            state: Mutex::new(State { open: Some(open), ..state }),
        }
    }

    /// Tells the leader how far the log is, and gives back credit of what was appended.
    pub(crate) fn ack(self: &Arc<Self>, appended: Offset, flushed: Offset, credit_bytes: u64) {
        self.say(|state| {
            state.ack = Some((appended, flushed));
            state.credit_bytes += credit_bytes;
        });
    }

    /// Tells the leader where the log begins.
    pub(crate) fn tell_start(self: &Arc<Self>, log_start: Offset) {
        self.say(|state| state.log_start = Some(log_start));
    }

    fn say(self: &Arc<Self>, note: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        note(&mut state);
        let first = !std::mem::replace(&mut state.queued, true);
        drop(state);
        if first {
            self.lane.queue(self);
        }
    }

    /// The replica does not want it any more.
    pub(crate) fn close(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.state.lock().closed, true) {
            self.lane.close(self);
        }
    }

    /// It was lost. True for the first to say so.
    pub(crate) fn lose(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().closed, true)
    }

    /// What is to be sent of it now, in order. True if credit was withheld for the first time.
    pub(crate) fn take_frames(&self, withhold: bool, frames: &mut Vec<FollowerFrame>) -> bool {
        let mut state = self.state.lock();
        state.queued = false;
        if state.closed {
            return false;
        }
        frames.extend(state.open.take().map(FollowerFrame::Open));
        let log_start = state.log_start.take();
        frames.extend(log_start.map(|log_start| FollowerFrame::LogStart { session: self.wire, log_start }));
        let Some((appended, flushed)) = state.ack.take() else { return false };
        state.told = (appended, flushed);
        let mut credit_bytes = std::mem::take(&mut state.credit_bytes);
        let first = withhold && state.withheld_bytes == 0 && credit_bytes > 0;
        if withhold {
            state.withheld_bytes += std::mem::take(&mut credit_bytes);
        }
        // What was let go is not withheld again.
        credit_bytes += std::mem::take(&mut state.let_go_bytes);
        frames.push(FollowerFrame::Ack(SessionAck { session: self.wire, appended, flushed, credit_bytes }));
        first
    }

    /// Gives back the credit that was withheld; how much that was.
    pub(crate) fn let_go(&self) -> u64 {
        let mut state = self.state.lock();
        let bytes = std::mem::take(&mut state.withheld_bytes);
        state.let_go_bytes += bytes;
        let told = state.told;
        state.ack.get_or_insert(told);
        bytes
    }

    /// What it expects next.
    pub(crate) fn expected(&self) -> Expected {
        self.state.lock().expected
    }

    /// Batches came.
    pub(crate) fn expect(&self, expected: Expected) {
        self.state.lock().expected = expected;
    }

    /// Marks came without records. True if the log thread has to be told; else it is about to look anyway.
    pub(crate) fn note_marks(&self, marks: Marks) -> bool {
        self.state.lock().marks.replace(marks).is_none()
    }

    /// The newest marks that came without records.
    pub(crate) fn take_marks(&self) -> Option<Marks> {
        self.state.lock().marks.take()
    }

    /// Tells the log thread. A queue that is closed belongs to a node that is stopping.
    pub(crate) fn tell(&self, event: Event) {
        drop(self.partition.queue.push(event));
    }
}
