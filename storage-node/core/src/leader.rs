//! What only a leader does: take batches, note acks, move the high watermark, answer those who wait.
//!
//! A request to delete records is answered once no replica that could lead still has them (KIP-107, as Kafka's low watermark):
//! when its offset is committed the leader moves its own log's start, its marks take the followers along, and they tell when
//! theirs have moved. Before its offset is committed nothing goes on its behalf, so that one that ends as out of range has
//! deleted nothing. The maximal in-sync set counts, as for the high watermark, and only while enough are in sync, so that
//! nobody outside of it is eligible; who joins it later must have moved its start before. Everybody else who follows at
//! present counts as well, since clients take the answer for all replicas that are alive.

use log_engine_core::{MarkerCheck, ProducerBatch, ProducerStates, SequenceCheck, TransactionMarker};
use proto_types::controller_api::ProposedIsr;
use proto_types::ids::{LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch};
use proto_types::replication_api::SessionAnswer;

use crate::action::{Action, DeleteRecordsError, Duplicate, ProduceError, Produced};
use crate::divergence;
use crate::followers::{Followers, JoinFrom, LeaderEnd, Progress};
use crate::input::{Acks, LogFacts, MarkerProposal, OpenSession, Proposal, SessionKey, Ticket};
use crate::isr_proposal::IsrProposal;
use crate::replica::{FlushMode, Positions, ReplicaConfig};
use crate::waiters::{Waiter, Waiters};

/// The state of a leadership.
#[derive(Debug)]
pub(crate) struct Leader {
    pub(crate) epoch: LeaderEpoch,
    /// Where the epoch begins in the log: everything below, that can be committed, is committed once this is.
    pub(crate) epoch_start: Offset,
    pub(crate) followers: Followers,
    pub(crate) proposal: IsrProposal,
    pub(crate) waiters: Waiters<Produced>,
    /// Requests to delete records, below an offset or the high watermark. They wait for the low watermark.
    pub(crate) deletions: Waiters<Deletion>,
    /// The log is to begin here though nobody may wait for just that offset: it was the high watermark when somebody asked for
    /// everything below it.
    begin_at: Offset,
    /// The append that was asked for and has not come back.
    pub(crate) appending: Option<Appending>,
}

/// A request to delete records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// Below what; `None` is below what was committed, or on its way to that.
    before: Option<Offset>,
    /// Where the log began when it came.
    start: Offset,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Appending {
    proposal: Proposal,
    base_offset: Offset,
    pub(crate) end: Offset,
}

impl Leader {
    pub(crate) fn new(epoch: LeaderEpoch, epoch_start: Offset, followers: Followers) -> Self {
        Self {
            epoch,
            epoch_start,
            followers,
            proposal: IsrProposal::default(),
            waiters: Waiters::default(),
            deletions: Waiters::default(),
            begin_at: Offset(0),
            appending: None,
        }
    }

    /// Still the leader, in a new epoch: what was appended stays in this log, so who waits may go on waiting, but followers
    /// have to follow anew.
    pub(crate) fn begin_epoch(&mut self, epoch: LeaderEpoch, epoch_start: Offset, followers: Followers) {
        self.epoch = epoch;
        self.epoch_start = epoch_start;
        self.followers = followers;
        self.proposal.on_newer_state();
    }

    /// Ends all sessions, because the epoch is over.
    pub(crate) fn end_sessions(&self, actions: &mut Vec<Action>) {
        actions.extend(self.followers.sessions().map(|session| Action::EndSession { session }));
    }

    /// A follower asks for a session.
    pub(crate) fn open_session(
        &mut self,
        positions: &Positions,
        config: &ReplicaConfig,
        log: LogFacts<'_>,
        open: &OpenSession,
        now: Millis,
        actions: &mut Vec<Action>,
    ) {
        let session = open.session;
        // Planted: sessions are not bound to an epoch.
        let same_epoch = open.leader_epoch == self.epoch || cfg!(weir_planted_bug = "B2");
        if !same_epoch {
            let answer = SessionAnswer::WrongEpoch { current: self.epoch };
            actions.push(Action::AnswerSession { session, answer });
            return;
        }
        if open.log_start > open.log_end || !self.followers.may_open(open) {
            actions.push(Action::AnswerSession { session, answer: SessionAnswer::NotServed });
            return;
        }
        let ended = self.followers.end_session_of(open.from, leader_end(positions, config), now);
        actions.extend(ended.map(|session| Action::EndSession { session }));
        let answer = divergence::answer(open, positions, log.epochs, log.dropped_to);
        if answer.begins().is_some() {
            self.followers.begin_session(open, log.dropped_to);
        }
        actions.push(Action::AnswerSession { session, answer });
    }

    /// A follower's session is over.
    pub(crate) fn on_session_ended(
        &mut self,
        positions: &Positions,
        config: &ReplicaConfig,
        session: SessionKey,
        now: Millis,
    ) {
        self.followers.on_session_ended(session, leader_end(positions, config), now);
    }

    /// Proposes another in-sync set, if one is wanted.
    pub(crate) fn propose_isr(
        &mut self,
        me: NodeId,
        partition_epoch: PartitionEpoch,
        positions: &Positions,
        config: &ReplicaConfig,
        now: Millis,
    ) -> Option<Action> {
        let from = JoinFrom {
            high_watermark: positions.high_watermark,
            epoch_start: self.epoch_start,
            log_start: positions.start,
        };
        let leader = leader_end(positions, config);
        let mut isr = self.proposal.propose(&mut self.followers, config, leader, from, now)?;
        isr.push((me, ProposedIsr::NOT_HEARD_FROM));
        Some(Action::ProposeIsr { leader_epoch: self.epoch, partition_epoch, isr })
    }

    /// When time alone makes a difference.
    pub(crate) fn next_deadline(&self, positions: &Positions, config: &ReplicaConfig) -> Option<Millis> {
        let waiters = self.waiters.next_deadline();
        let deletions = self.deletions.next_deadline();
        let proposal = self.proposal.next_deadline(&self.followers, config, leader_end(positions, config));
        [waiters, deletions, proposal].into_iter().flatten().min()
    }

    /// Decides whether a batch goes into the log, and at which offset. `None`: a repetition that waits.
    pub(crate) fn propose(
        &mut self,
        config: &ReplicaConfig,
        positions: &Positions,
        producers: &ProducerStates,
        proposal: Proposal,
    ) -> Option<Action> {
        assert!(self.appending.is_none(), "the caller finishes one append before the next proposal");
        assert!(proposal.offsets > 0, "a validated batch takes at least one offset");
        let refuse = |error| Some(Action::Reply { ticket: proposal.ticket, result: Err(error) });
        let base_offset = positions.end;
        let gap = match check_sequence(producers, &proposal, base_offset, positions.start) {
            Ok(SequenceCheck::Accept) => None,
            Ok(SequenceCheck::OutOfOrderSequence { expected, found }) => {
                Some(ProduceError::OutOfOrderSequence { expected, found })
            }
            // Whatever forbids appends: if it were refused, so many batches could come in behind it that it would not be
            // remembered any more when it comes again.
            Ok(SequenceCheck::Duplicate { first_offset, last_offset, timestamp }) => {
                let original = (first_offset, last_offset + 1);
                return self.answer_committed(config, positions, &proposal, original, timestamp);
            }
            Ok(SequenceCheck::DuplicateTooOld) => return refuse(ProduceError::DuplicateTooOld),
            Ok(SequenceCheck::InvalidProducerEpoch { current }) => {
                return refuse(ProduceError::InvalidProducerEpoch { current });
            }
            Ok(SequenceCheck::InvalidTxnState { txn_first_offset }) => {
                return refuse(ProduceError::InvalidTxnState { txn_first_offset });
            }
            Ok(SequenceCheck::TooManyTransactions { open }) => {
                return refuse(ProduceError::TooManyTransactions { open });
            }
            Err(OffsetsExhausted) => return refuse(ProduceError::WriteRefused),
        };
        // A gap comes last: what is missing was refused for the same reason, and comes again.
        if let Some(error) = self.refusal(config, &proposal).or(gap) {
            return refuse(error);
        }
        let end = Offset(base_offset.0 + i64::from(proposal.offsets));
        self.appending = Some(Appending { proposal, base_offset, end });
        Some(Action::Append { ticket: proposal.ticket, base_offset, leader_epoch: self.epoch })
    }

    /// Why nothing can be appended now.
    fn refusal(&self, config: &ReplicaConfig, proposal: &Proposal) -> Option<ProduceError> {
        if proposal.acks == Acks::All && self.lacks_replicas(config) {
            return Some(self.not_enough_replicas(config));
        }
        if self.waiters.len() >= config.waiters_max {
            return Some(ProduceError::Busy);
        }
        (!proposal.has_room).then_some(ProduceError::DiskFull)
    }

    /// Decides whether a coordinator's marker goes into the log. It is answered once it is committed.
    pub(crate) fn propose_marker(
        &mut self,
        config: &ReplicaConfig,
        positions: &Positions,
        producers: &ProducerStates,
        proposal: &MarkerProposal,
    ) -> Option<Action> {
        let &MarkerProposal { ticket, timestamp, deadline, .. } = proposal;
        let append = Proposal {
            ticket,
            acks: Acks::All,
            offsets: 1,
            max_timestamp: timestamp,
            producer: None,
            has_room: true,
            deadline,
        };
        let refuse = |error| Some(Action::Reply { ticket, result: Err(error) });
        let marker = TransactionMarker {
            producer_id: proposal.producer_id,
            producer_epoch: proposal.producer_epoch,
            coordinator_epoch: proposal.coordinator_epoch,
            outcome: proposal.outcome,
            offset: positions.end.0,
            timestamp,
        };
        match producers.check_marker(&marker, proposal.epoch_rule) {
            MarkerCheck::Accept => {}
            // Where it stands is not remembered, only that it is here.
            MarkerCheck::Repeated => {
                let end = positions.end.0;
                return self.answer_committed(config, positions, &append, (end, end), timestamp);
            }
            MarkerCheck::InvalidProducerEpoch { current } => {
                return refuse(ProduceError::InvalidProducerEpoch { current });
            }
            MarkerCheck::CoordinatorFenced { current } => {
                return refuse(ProduceError::TransactionCoordinatorFenced { current });
            }
        }
        self.propose(config, positions, producers, append)
    }

    /// A repetition is answered once its original is committed, whatever the acks: until then it could still vanish.
    fn answer_committed(
        &mut self,
        config: &ReplicaConfig,
        positions: &Positions,
        proposal: &Proposal,
        (first_offset, end): (i64, i64),
        timestamp: i64,
    ) -> Option<Action> {
        let &Proposal { ticket, deadline, .. } = proposal;
        let produced = Produced {
            base_offset: Offset(first_offset),
            duplicate_of: Some(Duplicate { timestamp }),
            log_start: positions.start,
        };
        if Offset(end) <= positions.high_watermark {
            return Some(Action::Reply { ticket, result: Ok(produced) });
        }
        if self.waiters.len() >= config.waiters_max {
            return Some(Action::Reply { ticket, result: Err(ProduceError::Busy) });
        }
        self.waiters.add(Offset(end), Waiter { ticket, answer: produced, deadline });
        // A flush of the original is on its way, or its followers' acks are: nothing else is to be done.
        None
    }

    /// The append came back. The producer is answered now, or waits for the high watermark.
    pub(crate) fn on_appended(&mut self, log_start: Offset, end: Offset) -> Option<Action> {
        let appending = self.appending.take().expect("an append was asked for");
        assert_eq!(appending.end, end, "the log appended what it was asked to");
        let Proposal { ticket, acks, deadline, .. } = appending.proposal;
        let produced = Produced { base_offset: appending.base_offset, duplicate_of: None, log_start };
        match acks {
            Acks::None | Acks::Leader => Some(Action::Reply { ticket, result: Ok(produced) }),
            Acks::All => {
                self.waiters.add(end, Waiter { ticket, answer: produced, deadline });
                None
            }
        }
    }

    /// The append did not happen; the log is as before. Who wanted it, and what it is told.
    pub(crate) fn on_append_refused(&mut self) -> (Proposal, ProduceError) {
        let appending = self.appending.take().expect("an append was asked for");
        (appending.proposal, ProduceError::WriteRefused)
    }

    /// The high watermark as the in-sync set's positions have it. Never below the present one: a change of the flush
    /// mode, or a member that joined, must not take back what was shown. It stands still while too few are in sync.
    pub(crate) fn high_watermark(&self, config: &ReplicaConfig, positions: &Positions) -> Offset {
        // Planted: nothing holds the high watermark back while too few are in sync.
        if self.lacks_replicas(config) && !cfg!(weir_planted_bug = "B5") {
            return positions.high_watermark;
        }
        let own = Progress { appended: positions.end, flushed: positions.flushed };
        match self.followers.committed_end(own, config.flush) {
            Some(end) => end.max(positions.high_watermark),
            None => positions.high_watermark,
        }
    }

    /// Answers everybody whom the high watermark has reached.
    pub(crate) fn answer_reached(&mut self, high_watermark: Offset, actions: &mut Vec<Action>) {
        for waiter in self.waiters.take_reached(high_watermark) {
            actions.push(Action::Reply { ticket: waiter.ticket, result: Ok(waiter.answer) });
        }
    }

    /// Answers everybody whose time is up.
    pub(crate) fn answer_expired(&mut self, config: &ReplicaConfig, now: Millis, actions: &mut Vec<Action>) {
        let error = self.after_append_error(config).unwrap_or(ProduceError::TimedOut);
        for waiter in self.waiters.take_expired(now) {
            actions.push(Action::Reply { ticket: waiter.ticket, result: Err(error) });
        }
    }

    /// If too few replicas are in sync, nothing that waits can be committed soon: says so at once.
    pub(crate) fn answer_uncommittable(&mut self, config: &ReplicaConfig, actions: &mut Vec<Action>) {
        if let Some(error) = self.after_append_error(config) {
            self.answer_all(error, actions);
        }
    }

    /// Answers everybody with one error, whatever they wait for.
    pub(crate) fn answer_all(&mut self, error: ProduceError, actions: &mut Vec<Action>) {
        for waiter in self.waiters.take_all() {
            actions.push(Action::Reply { ticket: waiter.ticket, result: Err(error) });
        }
    }

    /// The log has failed: also what was under way comes to nothing.
    pub(crate) fn answer_log_failed(&mut self, actions: &mut Vec<Action>) {
        if let Some(appending) = self.appending.take() {
            let ticket = appending.proposal.ticket;
            actions.push(Action::Reply { ticket, result: Err(ProduceError::LogFailed) });
        }
        self.refuse_deletions(DeleteRecordsError::LogFailed, actions);
        self.answer_all(ProduceError::LogFailed, actions);
    }

    /// Takes a DeleteRecords request. Where disks are waited for, so is the high watermark: a client that was answered with
    /// `acks=1` may delete what it has just written, as it may where memory is enough. And "up to the high watermark" means what
    /// every replica in sync is known to have in memory; of that, what can go goes at once, since it may be what a full disk
    /// needs to go on.
    pub(crate) fn delete_records(
        &mut self,
        config: &ReplicaConfig,
        positions: &Positions,
        ticket: Ticket,
        before: Option<Offset>,
        deadline: Millis,
    ) -> Option<Action> {
        let in_memory = ReplicaConfig { flush: FlushMode::Os, ..*config };
        let needed = before.unwrap_or_else(|| self.high_watermark(&in_memory, positions));
        let high_watermark = positions.high_watermark;
        let limit = match config.flush {
            FlushMode::Ack => positions.end,
            FlushMode::Os => high_watermark,
        };
        let refuse = |error| Some(Action::RecordsDeleted { ticket, result: Err(error) });
        if needed < Offset(0) || needed > limit {
            return refuse(DeleteRecordsError::OffsetOutOfRange { high_watermark });
        }
        if self.deletions.len() >= config.waiters_max {
            return refuse(DeleteRecordsError::Busy);
        }
        if before.is_none() {
            self.begin_at = self.begin_at.max(needed.min(high_watermark));
        }
        let deletion = Deletion { before, start: positions.start };
        self.deletions.add(needed, Waiter { ticket, answer: deletion, deadline });
        None
    }

    /// Moves the start for those who wait for that, answers whom all replicas have followed, and those whose time is up.
    pub(crate) fn settle_deletions(
        &mut self,
        config: &ReplicaConfig,
        positions: &Positions,
        now: Millis,
        actions: &mut Vec<Action>,
    ) {
        if let Some(low_watermark) = self.low_watermark(config, positions) {
            for deletion in self.deletions.take_reached(low_watermark) {
                let (ticket, result) = (deletion.ticket, Ok(low_watermark));
                actions.push(Action::RecordsDeleted { ticket, result });
            }
        }
        if actions.iter().any(Action::is_awaited) {
            // Its outcome comes at once, and then it is the turn of the rest.
            return;
        }
        if let Some(start) = self.start_to_move_to(positions) {
            actions.push(Action::MoveStart { start });
            return;
        }
        let high_watermark = positions.high_watermark;
        for Waiter { ticket, answer: deletion, .. } in self.deletions.take_expired(now) {
            let error = match deletion.before.is_some_and(|before| before > high_watermark) {
                true => DeleteRecordsError::OffsetOutOfRange { high_watermark },
                false => DeleteRecordsError::TimedOut,
            };
            actions.push(Action::RecordsDeleted { ticket, result: Err(error) });
        }
    }

    /// Nobody who could lead begins below it. With too few in sync, somebody outside of the set could be elected.
    fn low_watermark(&self, config: &ReplicaConfig, positions: &Positions) -> Option<Offset> {
        match self.lacks_replicas(config) {
            true => None,
            false => self.followers.low_watermark(positions.start),
        }
    }

    /// Where the log is to begin, if it does not begin there yet. A request moves it once its whole offset is committed.
    fn start_to_move_to(&self, positions: &Positions) -> Option<Offset> {
        let committed = self.deletions.last_needed_to(positions.high_watermark);
        let wanted = committed.map_or(self.begin_at, |committed| committed.max(self.begin_at));
        (wanted > positions.start).then_some(wanted)
    }

    /// The start stays where it is: whoever waits for its move is told. Of what one of them asked for a part may be gone
    /// before, which is no refusal: asked again, it goes on.
    pub(crate) fn on_start_refused(&mut self, positions: &Positions, actions: &mut Vec<Action>) {
        self.begin_at = positions.start;
        for Waiter { ticket, answer: deletion, .. } in self.deletions.take_above(positions.start) {
            let error = match deletion.before.is_none() && deletion.start < positions.start {
                true => DeleteRecordsError::TimedOut,
                false => DeleteRecordsError::WriteRefused,
            };
            actions.push(Action::RecordsDeleted { ticket, result: Err(error) });
        }
    }

    /// Answers everybody who waits for records to be deleted with one error.
    pub(crate) fn refuse_deletions(&mut self, error: DeleteRecordsError, actions: &mut Vec<Action>) {
        for Waiter { ticket, .. } in self.deletions.take_all() {
            actions.push(Action::RecordsDeleted { ticket, result: Err(error) });
        }
    }

    /// Whether too few are in sync to commit anything, by the metadata: who is only proposed does not count here.
    fn lacks_replicas(&self, config: &ReplicaConfig) -> bool {
        self.followers.in_sync() < self.followers.needed(config.min_insync)
    }

    fn not_enough_replicas(&self, config: &ReplicaConfig) -> ProduceError {
        let needed = self.followers.needed(config.min_insync);
        ProduceError::NotEnoughReplicas { in_sync: self.followers.in_sync(), needed }
    }

    fn after_append_error(&self, config: &ReplicaConfig) -> Option<ProduceError> {
        let needed = self.followers.needed(config.min_insync);
        let in_sync = self.followers.in_sync();
        (in_sync < needed).then_some(ProduceError::NotEnoughReplicasAfterAppend { in_sync, needed })
    }
}

/// What followers are measured by.
pub(crate) fn leader_end(positions: &Positions, config: &ReplicaConfig) -> LeaderEnd {
    LeaderEnd { end: positions.end, mode: config.flush }
}

/// No offset is left in 63 bits.
struct OffsetsExhausted;

fn check_sequence(
    producers: &ProducerStates,
    proposal: &Proposal,
    base_offset: Offset,
    log_start: Offset,
) -> Result<SequenceCheck, OffsetsExhausted> {
    let end = base_offset.0.checked_add(i64::from(proposal.offsets)).ok_or(OffsetsExhausted)?;
    let Some(stamp) = proposal.producer else { return Ok(SequenceCheck::Accept) };
    let batch = ProducerBatch {
        producer_id: stamp.producer_id,
        producer_epoch: stamp.producer_epoch,
        first_sequence: stamp.base_sequence,
        offset_delta: proposal.offsets - 1,
        last_offset: end - 1,
        timestamp: proposal.max_timestamp,
        is_transactional: stamp.is_transactional,
    };
    Ok(producers.check_append(&batch, log_start.0))
}
