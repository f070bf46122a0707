//! One follower's session as the leader's node holds it: what its log thread and its lane share.
//!
//! Acknowledgements are folded into the newest, and a session waits at most once in the ready queue of its lane, so
//! neither queue grows with traffic. Nor do they grow with sessions that are opened and closed, or asked for in vain, by a
//! follower that takes no answers: whatever of a session is still held somewhere counts as one, and so does a refusal that
//! was not sent yet.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
    /// Sessions that somebody still holds, those included that are over: each has at most one word of each kind.
    held: AtomicUsize,
}

/// Why a lane takes no more sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneFull {
    /// As many are open as may be.
    Open,
    /// As many more are over, but not forgotten yet by everybody.
    Ending,
    /// As many refusals wait to be sent.
    Refusals,
}

impl std::fmt::Display for LaneFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "it has as many sessions open as it may have",
            Self::Ending => "it opens and closes sessions faster than they are forgotten",
            Self::Refusals => "it asks for sessions and does not take the answers",
        })
    }
}

#[derive(Debug, Default)]
struct LaneState {
    /// Bounded by the sessions that are held, and by the refusals.
    words: VecDeque<LeaderWord>,
    /// How many of the words are refusals.
    refusals: usize,
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
        lane.held.fetch_add(1, Ordering::Relaxed);
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

impl Drop for LeaderSession {
    fn drop(&mut self) {
        self.lane.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LeaderLane {
    /// Whether one more session may be opened, if so many may be open at a time.
    pub(crate) fn check_room(&self, sessions_max: usize) -> Result<(), LaneFull> {
        if self.state.lock().sessions.len() >= sessions_max {
            return Err(LaneFull::Open);
        }
        // All may be closed and opened again at once, as when leaders move.
        match self.held.load(Ordering::Relaxed) < sessions_max.saturating_mul(2) {
            true => Ok(()),
            false => Err(LaneFull::Ending),
        }
    }

    /// Refuses a session, unless `refusals_max` refusals wait to be sent already.
    pub(crate) fn refuse(
        &self,
        session: SessionId,
        answer: SessionAnswer,
        refusals_max: usize,
    ) -> Result<(), LaneFull> {
        if self.state.lock().refusals >= refusals_max {
            return Err(LaneFull::Refusals);
        }
        self.push(LeaderWord::Refuse { session, answer });
        Ok(())
    }

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
        state.refusals = 0;
        state.sessions.drain().map(|(_, session)| session).collect()
    }

    fn push(&self, word: LeaderWord) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.refusals += usize::from(matches!(word, LeaderWord::Refuse { .. }));
        state.words.push_back(word);
        let first = state.words.len() == 1;
        drop(state);
        if first {
            self.wake.notify_one();
        }
    }

    /// The next thing to do.
    pub(crate) fn take(&self) -> Option<LeaderWord> {
        let mut state = self.state.lock();
        let word = state.words.pop_front();
        state.refusals -= usize::from(matches!(word, Some(LeaderWord::Refuse { .. })));
        word
    }

    /// Returns when there may be something to do.
    pub(crate) async fn wait(&self) {
        let woken = self.wake.notified();
        if self.state.lock().words.is_empty() {
            woken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_nobody_takes_are_bounded() {
        let lane = LeaderLane::default();
        let refuse = |id: u64| lane.refuse(SessionId(id), SessionAnswer::NotServed, 2);
        assert_eq!([refuse(1), refuse(2), refuse(3)], [Ok(()), Ok(()), Err(LaneFull::Refusals)]);
        assert!(matches!(lane.take(), Some(LeaderWord::Refuse { session: SessionId(1), .. })));
        assert_eq!([refuse(4), refuse(5)], [Ok(()), Err(LaneFull::Refusals)]);
        while lane.take().is_some() {}
        assert_eq!(refuse(6), Ok(()));
        lane.end();
        assert_eq!((refuse(7), refuse(8)), (Ok(()), Ok(())), "a lane that is over keeps nothing");
        assert!(lane.take().is_none());
    }
}
