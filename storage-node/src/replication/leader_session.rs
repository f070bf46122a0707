//! One follower's session as the leader's node holds it: what its log thread and its lane share.
//!
//! Acknowledgements are folded into the newest, and a session waits at most once in the ready queue of its lane, so
//! neither queue grows with traffic.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proto_types::ids::{BrokerEpoch, NodeId, Offset};
use proto_types::replication_api::{OpenSession, SessionAck, SessionAnswer, SessionId};
use storage_node_core::{Pump, SessionKey};
use tokio::sync::Notify;

use super::metrics::CountedSession;
use crate::partition::PartitionHandle;

/// See the module.
pub(crate) struct LeaderSession {
    /// Names it to the replica; unique on this node.
    pub(crate) key: SessionKey,
    /// Who follows.
    pub(crate) from: NodeId,
    /// Its registration.
    pub(crate) broker_epoch: BrokerEpoch,
    /// What it asked for.
    pub(crate) open: OpenSession,
    pub(crate) partition: PartitionHandle,
    lane: Arc<LeaderLane>,
    _counted: CountedSession,
    /// It waits in the lane's queue.
    ready: AtomicBool,
    heard: Mutex<Heard>,
}

/// What the follower told and nobody has taken yet.
#[derive(Debug, Default)]
struct Heard {
    ack: Option<(Offset, Offset)>,
    log_start: Option<Offset>,
    credit_bytes: u64,
}

impl std::fmt::Debug for LeaderSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeaderSession({:?} of {} from node {})", self.key, self.open.partition, self.from)
    }
}

/// What the writer of a lane has to do.
#[derive(Debug)]
pub(crate) enum LeaderWord {
    /// Answer an open session; it may be pumped from now on if there is a pump.
    Answer { session: Arc<LeaderSession>, answer: SessionAnswer, pump: Option<Box<Pump>> },
    /// The request is not worth a session.
    Refuse { session: SessionId, answer: SessionAnswer },
    /// The leader ends the session.
    Close { session: Arc<LeaderSession> },
    /// There may be something to send.
    Ready { session: Arc<LeaderSession> },
}

/// What the reader and the writer of a lane, and the log threads, share.
#[derive(Debug, Default)]
pub(crate) struct LeaderLane {
    state: Mutex<LaneState>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct LaneState {
    /// Bounded by the sessions: each has at most one of each kind in it.
    words: VecDeque<LeaderWord>,
    sessions: HashMap<SessionId, Arc<LeaderSession>>,
    /// The lane is over.
    closed: bool,
}

impl LeaderSession {
    pub(crate) fn new(
        key: SessionKey,
        from: NodeId,
        broker_epoch: BrokerEpoch,
        open: OpenSession,
        partition: PartitionHandle,
        lane: Arc<LeaderLane>,
        counted: CountedSession,
    ) -> Self {
        Self {
            key,
            from,
            broker_epoch,
            open,
            partition,
            lane,
            _counted: counted,
            ready: AtomicBool::new(false),
            heard: Mutex::default(),
        }
    }

    /// Something may have to be sent: the log or its marks have moved, or credit has come.
    pub(crate) fn wake(self: &Arc<Self>) {
        if !self.ready.swap(true, Ordering::AcqRel) {
            self.lane.push(LeaderWord::Ready { session: Arc::clone(self) });
        }
    }

    /// The writer takes it up: what moves from now on wakes it again.
    pub(crate) fn take_up(&self) {
        self.ready.store(false, Ordering::Release);
    }

    /// Answers the follower.
    pub(crate) fn answer(self: &Arc<Self>, answer: SessionAnswer, pump: Option<Pump>) {
        let session = Arc::clone(self);
        self.lane.push(LeaderWord::Answer { session, answer, pump: pump.map(Box::new) });
    }

    /// Ends it.
    pub(crate) fn close(self: &Arc<Self>) {
        self.lane.push(LeaderWord::Close { session: Arc::clone(self) });
    }

    /// The follower told how far it is. True if the replica has to be told; else it is about to look anyway.
    pub(crate) fn on_ack(&self, ack: &SessionAck) -> bool {
        let mut heard = self.heard.lock();
        heard.credit_bytes = heard.credit_bytes.saturating_add(ack.credit_bytes);
        heard.ack.replace((ack.appended, ack.flushed)).is_none()
    }

    /// The follower told where its log begins. True if the replica has to be told; else it is about to look anyway.
    pub(crate) fn on_log_start(&self, log_start: Offset) -> bool {
        self.heard.lock().log_start.replace(log_start).is_none()
    }

    /// The newest acknowledgement: appended and flushed end.
    pub(crate) fn take_ack(&self) -> Option<(Offset, Offset)> {
        self.heard.lock().ack.take()
    }

    /// Where the follower's log begins, if that is news.
    pub(crate) fn take_log_start(&self) -> Option<Offset> {
        self.heard.lock().log_start.take()
    }

    /// Credit that has come since it was taken last.
    pub(crate) fn take_credit(&self) -> u64 {
        std::mem::take(&mut self.heard.lock().credit_bytes)
    }
}

impl LeaderLane {
    /// Adds a session. False if its id is in use.
    pub(crate) fn add(&self, session: &Arc<LeaderSession>) -> bool {
        let mut state = self.state.lock();
        let id = session.open.session;
        if state.sessions.contains_key(&id) {
            return false;
        }
        state.sessions.insert(id, Arc::clone(session));
        true
    }

    /// How many sessions there are.
    pub(crate) fn session_count(&self) -> usize {
        self.state.lock().sessions.len()
    }

    /// A session by the follower's name for it.
    pub(crate) fn get(&self, id: SessionId) -> Option<Arc<LeaderSession>> {
        self.state.lock().sessions.get(&id).cloned()
    }

    /// Forgets a session.
    pub(crate) fn remove(&self, id: SessionId) -> Option<Arc<LeaderSession>> {
        self.state.lock().sessions.remove(&id)
    }

    /// Ends the lane; the sessions that were left.
    pub(crate) fn end(&self) -> Vec<Arc<LeaderSession>> {
        let mut state = self.state.lock();
        state.closed = true;
        state.words.clear();
        state.sessions.drain().map(|(_, session)| session).collect()
    }

    pub(crate) fn push(&self, word: LeaderWord) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.words.push_back(word);
        let first = state.words.len() == 1;
        drop(state);
        if first {
            self.wake.notify_one();
        }
    }

    /// The next thing to do.
    pub(crate) fn take(&self) -> Option<LeaderWord> {
        self.state.lock().words.pop_front()
    }

    /// Returns when there may be something to do.
    pub(crate) async fn wait(&self) {
        let woken = self.wake.notified();
        if self.state.lock().words.is_empty() {
            woken.await;
        }
    }
}
