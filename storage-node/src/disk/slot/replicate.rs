//! A partition copy's sessions with other nodes: those of its followers, and its own with the leader.
//!
//! What is decided the replica decides; here its wishes are carried to the lanes, and what the lanes bring to the replica
//! and the log.

use std::collections::HashMap;
use std::sync::Arc;

use log_engine::AppendError;
use proto_types::controller_api::ProposedIsr;
use proto_types::ids::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch};
use proto_types::replication_api::SessionAnswer;
use records::batches;
use storage_node_core::{
    Counters, FlushMode, FollowerAck, FromLeader, Input, IsrAnswered, LeaderBatches, OpenSession, Pump,
    SessionKey, Standing, Ticket,
};

use super::Slot;
use crate::disk::claim;
use crate::disk::event::{self, BatchesFromLeader, LedPartition};
use crate::replication::follower_session::LogEnds;
use crate::replication::metrics::ReplicationState;
use crate::replication::{FollowRequest, FollowerSession, LeaderSession, Replication};

/// See the module.
pub(super) struct Replicating {
    replication: Arc<Replication>,
    /// Followers' sessions, those included that were not answered yet.
    followers: HashMap<SessionKey, Arc<LeaderSession>>,
    /// Those of them that have begun.
    pumped: Vec<Arc<LeaderSession>>,
    /// This copy's own session.
    following: Option<Arc<FollowerSession>>,
    /// What the leader sent and is being decided about.
    batches: Option<(Ticket, BatchesFromLeader)>,
    /// Bytes that were worked off since the leader was given credit last.
    credit_bytes: u64,
    /// Flushed end that the leader was told last in this session; none if it was told nothing yet.
    told_flushed: Option<Offset>,
    /// What was counted of the replica's own counters.
    counted: Counters,
}

impl Replicating {
    pub(super) fn new(replication: Arc<Replication>) -> Self {
        Self {
            replication,
            followers: HashMap::new(),
            pumped: Vec::new(),
            following: None,
            batches: None,
            credit_bytes: 0,
            told_flushed: None,
            counted: Counters::default(),
        }
    }

    /// The copy is being closed.
    pub(super) fn close(&mut self) {
        for (_, session) in self.followers.drain() {
            session.close();
        }
        self.pumped.clear();
        if let Some(session) = self.following.take() {
            session.close();
        }
    }

    /// Whether anybody is sent what is appended.
    pub(super) fn has_followers(&self) -> bool {
        !self.pumped.is_empty()
    }

    /// The log or its marks have moved.
    pub(super) fn wake_followers(&self) {
        self.pumped.iter().for_each(LeaderSession::wake);
    }

    pub(super) fn close_session(&mut self, key: SessionKey) {
        if let Some(session) = self.following.take_if(|session| session.key == key) {
            session.close();
        }
    }

    /// Tells the leader how far this copy is. Where flushed ends count, and one is about to move, that is told instead of the
    /// appended end alone: twice the frames would say nothing more.
    pub(super) fn ack(&mut self, key: SessionKey, appended: Offset, flushed: Offset, mode: FlushMode) {
        let Some(session) = self.following.as_ref().filter(|session| session.key == key) else { return };
        let flush_counts = match mode {
            FlushMode::Ack => appended > flushed,
            FlushMode::Os => false,
        };
        if flush_counts && self.told_flushed == Some(flushed) && self.credit_bytes < session.credit_max / 2 {
            return;
        }
        self.told_flushed = Some(flushed);
        session.ack(appended, flushed, std::mem::take(&mut self.credit_bytes));
    }

    /// Tells the leader where this copy begins.
    pub(super) fn tell_start(&self, key: SessionKey, log_start: Offset) {
        if let Some(session) = self.following.as_ref().filter(|session| session.key == key) {
            session.tell_start(log_start);
        }
    }

    pub(super) fn end_session(&mut self, key: SessionKey) {
        if let Some(session) = self.forget_follower(key) {
            session.close();
        }
    }

    fn forget_follower(&mut self, key: SessionKey) -> Option<Arc<LeaderSession>> {
        self.pumped.retain(|session| session.key != key);
        self.followers.remove(&key)
    }

    /// Whether it is this copy's present session that something is about.
    fn follows_by(&self, session: &Arc<FollowerSession>) -> bool {
        self.following.as_ref().is_some_and(|following| Arc::ptr_eq(following, session))
    }
}

impl Slot {
    /// A follower wants to follow.
    pub(crate) fn on_open_session(&mut self, session: Arc<LeaderSession>) {
        let open = &session.open;
        let input = OpenSession {
            session: session.key,
            from: session.from,
            broker_epoch: session.broker_epoch,
            leader_epoch: open.leader_epoch,
            log_start: open.log_start,
            log_end: open.log_end,
            last_epoch: open.last_epoch,
        };
        self.replicating.followers.insert(session.key, session);
        self.step(Input::OpenSession(input));
    }

    /// A follower told how far it is.
    pub(crate) fn on_follower_ack(&mut self, session: &LeaderSession) {
        if let Some((appended, flushed)) = session.take_ack() {
            self.step(Input::FollowerAck(FollowerAck { session: session.key, appended, flushed }));
        }
    }

    /// A follower told where its log begins.
    pub(crate) fn on_follower_start(&mut self, session: &LeaderSession) {
        if let Some(log_start) = session.take_log_start() {
            self.step(Input::FollowerStart { session: session.key, log_start });
        }
    }

    /// A follower's session is over.
    pub(crate) fn on_session_ended(&mut self, session: &LeaderSession) {
        if self.replicating.forget_follower(session.key).is_some() {
            self.step(Input::SessionEnded { session: session.key });
        }
    }

    /// The leader said something.
    pub(crate) fn on_from_leader(&mut self, from: event::FromLeader) {
        if !self.replicating.follows_by(from.session()) {
            return;
        }
        let session = from.session().key;
        let said = match from {
            event::FromLeader::Answer { answer, .. } => FromLeader::Answer(answer),
            event::FromLeader::Marks { session } => match session.take_marks() {
                Some(marks) => FromLeader::Marks(marks),
                None => return,
            },
            event::FromLeader::Batches(batches) => return self.on_batches(session, batches),
        };
        self.step(Input::FromLeader { session, said });
    }

    fn on_batches(&mut self, session: SessionKey, batches: BatchesFromLeader) {
        let ticket = self.new_ticket();
        let [first, .., last] = &batches.headers[..] else {
            let only = batches.headers[0];
            return self.decide_about(session, ticket, batches, &only, &only);
        };
        let (first, last) = (*first, *last);
        self.decide_about(session, ticket, batches, &first, &last);
    }

    fn decide_about(
        &mut self,
        session: SessionKey,
        ticket: Ticket,
        batches: BatchesFromLeader,
        first: &records::BatchHeader,
        last: &records::BatchHeader,
    ) {
        let said = LeaderBatches {
            ticket,
            from: batches.from,
            end: Offset(last.last_offset() + 1),
            first_epoch: LeaderEpoch(first.partition_leader_epoch),
            last_epoch: LeaderEpoch(last.partition_leader_epoch),
            marks: batches.marks,
        };
        self.replicating.credit_bytes += batches.bytes.len() as u64;
        self.replicating.batches = Some((ticket, batches));
        self.step(Input::FromLeader { session, said: FromLeader::Batches(said) });
        // What was not appended is not wanted.
        self.replicating.batches = None;
    }

    /// This copy's session is over.
    pub(crate) fn on_session_lost(&mut self, session: &Arc<FollowerSession>) {
        if self.replicating.follows_by(session) {
            self.replicating.following = None;
            self.step(Input::SessionLost { session: session.key });
        }
    }

    /// What came of a proposal of an in-sync set.
    pub(crate) fn on_isr_answered(&mut self, answered: IsrAnswered) {
        self.step(Input::IsrAnswered(answered));
    }

    pub(super) fn open_session(
        &mut self,
        leader: NodeId,
        key: SessionKey,
        leader_epoch: LeaderEpoch,
        ends: LogEnds,
    ) {
        let request = FollowRequest { partition: Arc::clone(&self.shared), key, leader, leader_epoch, ends };
        let session = self.replicating.replication.lanes.open(request);
        self.replicating.credit_bytes = 0;
        self.replicating.told_flushed = None;
        if let Some(before) = self.replicating.following.replace(session) {
            before.close();
        }
    }

    /// Appends what the leader sent, as it is.
    pub(super) fn append_batches(&mut self, ticket: Ticket) -> Input {
        let taken = self.replicating.batches.take().filter(|(of, _)| *of == ticket);
        let (_, batches) =
            taken.expect("only batches lead to an append of such, and they are kept until then");
        if !self.has_room_for(batches.bytes.len()) {
            return Input::AppendRefused;
        }
        self.log.limit_space_ahead(self.space.ahead_bytes_max());
        match self.log.append(&batches.bytes, &batches.headers, self.append_clock.now_ms()) {
            Ok(appended) => {
                self.metrics.on_append(batches.bytes.len());
                self.space.on_written(batches.bytes.len());
                self.flush_wanted |= appended.rolled;
                self.note_uncommitted(Offset(appended.end), batches.bytes.len());
                self.share_epochs();
                self.note_claims(&batches.bytes);
                Input::Appended { end: Offset(appended.end) }
            }
            Err(error @ (AppendError::DiskFull(_) | AppendError::TooLarge { .. })) => {
                tracing::warn!(partition = %self.shared.id, %error, "cannot append what the leader sent");
                self.share_epochs();
                Input::AppendRefused
            }
            Err(
                error @ (AppendError::Poisoned { .. }
                | AppendError::OutOfOrder { .. }
                | AppendError::Mismatch { .. }),
            ) => {
                self.note_failure(&error);
                Input::LogFailed
            }
        }
    }

    /// Takes away what the leader does not have.
    pub(super) fn truncate(&mut self, to: Offset, below_high_watermark: Option<Offset>) -> Input {
        self.note_cut("cut the log to agree with its leader", to, below_high_watermark);
        match self.log.truncate_to(to.0) {
            Ok(end) => {
                self.after_cut(Offset(end));
                Input::Truncated { end: Offset(end) }
            }
            Err(error) => self.log_failed(&error),
        }
    }

    /// Drops everything that the log holds.
    pub(super) fn restart_at(&mut self, start: Offset, below_high_watermark: Option<Offset>) -> Input {
        self.note_cut("drop the log and begin where its leader's does", start, below_high_watermark);
        self.begin_anew(start)
    }

    /// The same because compaction has dropped, at the leader, what this log would have to be told: nothing is lost.
    pub(super) fn start_over(&mut self, start: Offset) -> Input {
        let (partition, topic) = (self.shared.id, &self.settings.topic_name);
        tracing::warn!(
            %partition, %topic, %start, end = self.log.end(),
            "this copy was away for longer than tombstones and transaction markers are kept: it is copied anew from its leader"
        );
        self.replicating.replication.metrics.on_truncated(false);
        self.begin_anew(start)
    }

    /// Notes what was dropped of the log that this one is a copy of. If that cannot be written, nothing must be copied.
    pub(super) fn note_dropped(&mut self, to: Offset) -> bool {
        let noted = self.log.note_dropped(to.0);
        if let Err(error) = &noted {
            tracing::warn!(partition = %self.shared.id, %error, "cannot begin to copy the log; it is tried again");
        }
        noted.is_ok()
    }

    fn begin_anew(&mut self, start: Offset) -> Input {
        self.replicating.replication.metrics.on_restarted();
        match self.log.restart_at(start.0, self.append_clock.now_ms()) {
            Ok(dropped) => {
                self.dropped_logs.push(dropped);
                self.after_cut(start);
                Input::Restarted { start }
            }
            Err(error) => self.log_failed(&error),
        }
    }

    fn note_cut(&self, what: &'static str, to: Offset, below_high_watermark: Option<Offset>) {
        self.replicating.replication.metrics.on_truncated(below_high_watermark.is_some());
        let (partition, topic) = (self.shared.id, &self.settings.topic_name);
        let end = self.log.end();
        match below_high_watermark {
            None => tracing::info!(%partition, %topic, %to, end, what),
            Some(high_watermark) => tracing::error!(
                %partition, %topic, %to, end, %high_watermark,
                "committed records are lost by an unclean election: {what}"
            ),
        }
    }

    fn after_cut(&mut self, end: Offset) {
        self.uncommitted.cut(end);
        self.undecided.cut(end);
        *self.shared.epochs.write() = self.log.epochs().clone();
        self.shard.forget_last();
    }

    /// Shows readers the epochs, if there are more.
    fn share_epochs(&self) {
        if self.shared.epochs.read().latest() != self.log.epochs().latest() {
            *self.shared.epochs.write() = self.log.epochs().clone();
        }
    }

    /// A coordinator's claim raises the fence wherever it is appended.
    fn note_claims(&mut self, bytes: &[u8]) {
        if !self.settings.is_internal() {
            return;
        }
        self.shard.forget_last();
        for batch in batches(bytes).flatten().filter(|batch| batch.header().is_control()) {
            self.shared.fence.raise(claim::decode(&batch));
        }
    }

    pub(super) fn answer_session(&mut self, key: SessionKey, answer: SessionAnswer) {
        if answer.begins().is_none() {
            if let Some(session) = self.replicating.forget_follower(key) {
                session.answer(answer, None);
            }
            return;
        }
        let Some(session) = self.replicating.followers.get(&key).cloned() else { return };
        let open = &session.open;
        let pump = Pump::new(open.leader_epoch, open.log_end, open.credit_bytes);
        self.replicating.pumped.push(Arc::clone(&session));
        session.answer(answer, Some(pump));
    }

    pub(super) fn propose_isr(
        &self,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        isr: Vec<(NodeId, BrokerEpoch)>,
    ) {
        let proposal = ProposedIsr { partition: self.shared.id, leader_epoch, partition_epoch, isr };
        self.replicating.replication.proposals.propose(proposal, &self.shared.queue);
    }

    /// The partition with those of its followers that have lacked something for at least so long, if this copy leads it.
    pub(crate) fn led(&self, lag_ms_min: i64) -> Option<LedPartition> {
        let view = self.replica.view();
        if view.standing != Standing::Leader {
            return None;
        }
        let followers = self.replica.followers(self.clock.monotonic());
        let followers = followers.filter(|follower| follower.lag_ms >= lag_ms_min).collect();
        Some(LedPartition { id: self.shared.id, view, followers })
    }

    /// What this copy adds to the metrics.
    pub(crate) fn replication_state(&mut self) -> ReplicationState {
        let now = self.clock.monotonic();
        let counters = self.replica.counters();
        let counted = std::mem::replace(&mut self.replicating.counted, counters);
        self.replicating.replication.metrics.on_isr_changed(
            counters.isr_shrinks - counted.isr_shrinks,
            counters.isr_expands - counted.isr_expands,
        );
        let Some(in_sync) = self.replica.in_sync() else {
            let following = usize::from(self.replica.view().standing == Standing::Follower);
            return ReplicationState { following, ..ReplicationState::default() };
        };
        let end = self.replica.positions().end;
        let mut state = ReplicationState {
            leading: 1,
            under_replicated: usize::from(in_sync.in_sync < in_sync.replicas),
            under_min_isr: usize::from(in_sync.in_sync < in_sync.needed),
            at_min_isr: usize::from(in_sync.in_sync == in_sync.needed && in_sync.replicas > in_sync.needed),
            ..ReplicationState::default()
        };
        for follower in self.replica.followers(now) {
            let missing = follower.end.map_or(0, |has| end.0 - has.0);
            state.lag_records_max = state.lag_records_max.max(missing);
            state.lag_ms_max = state.lag_ms_max.max(follower.lag_ms);
        }
        state
    }
}
