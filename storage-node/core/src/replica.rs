//! One copy of one partition: what it is, how far it is, and what it does next.
//!
//! [`Replica::step`] is the only way to change it. It does no I/O: the owner of the log performs the actions in their
//! order and feeds back what they came to. The producer window and the epoch history are the log's own (recovered and
//! cut with it) and are lent to `step`, so that no second copy can differ from them.

mod follower_inputs;
mod leader_inputs;

use log_engine_core::{EpochHistory, ProducerStates};
use proto_types::ids::{LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch};

use crate::action::{Action, DeleteRecordsError, ProduceError};
use crate::followers::{FollowerStatus, Followers};
use crate::following::Following;
use crate::input::{Input, LogFacts, MarkerProposal, NewEpoch, Proposal, Ticket};
use crate::leader::{Leader, leader_end};
use crate::refusals::Refusals;
use crate::view::{Standing, View};

/// What must be on how many disks before a record counts as committed (topic config `weir.flush`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushMode {
    /// The high watermark follows flushed ends.
    #[default]
    Ack,
    /// The high watermark follows appended ends, as in Kafka; the operating system writes when it likes.
    Os,
}

/// The configs of a topic that a replica acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// `min.insync.replicas`.
    pub min_insync: usize,
    /// `weir.flush`.
    pub flush: FlushMode,
    /// Producers that may wait at one partition; fixed for the life of a replica.
    pub waiters_max: usize,
    /// `replica.lag.time.max.ms`: how long an in-sync follower may lack something that the leader has.
    pub replica_lag_ms_max: i64,
}

impl ReplicaConfig {
    /// `next`, but nothing counts as committed by it that would not by `self`. When a new state of a partition and new configs
    /// come together, it is not known which of them came first: under the stricter of both, the state can be taken over.
    pub fn stricter(&self, next: &Self) -> Self {
        let flush = match (self.flush, next.flush) {
            (FlushMode::Os, FlushMode::Os) => FlushMode::Os,
            (FlushMode::Ack, _) | (_, FlushMode::Ack) => FlushMode::Ack,
        };
        Self { min_insync: self.min_insync.max(next.min_insync), flush, ..*next }
    }
}

/// Where a copy's log stands: `start ≤ high_watermark ≤ end`, `flushed ≤ end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    /// First offset that exists.
    pub start: Offset,
    /// Everything below is committed.
    pub high_watermark: Offset,
    /// Everything below is on this disk.
    pub flushed: Offset,
    /// First offset that does not exist yet.
    pub end: Offset,
}

/// What has happened since the copy was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Followers that left the in-sync set while this copy led.
    pub isr_shrinks: u64,
    /// Followers that joined it.
    pub isr_expands: u64,
    /// Cuts of the log's end, and fresh starts, as a follower.
    pub truncations: u64,
}

/// Whether enough replicas are in sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InSyncStatus {
    /// The in-sync set, the leader included.
    pub in_sync: usize,
    /// How many are needed to commit.
    pub needed: usize,
    /// How many there are to be.
    pub replicas: usize,
}

/// What a copy does.
#[derive(Debug)]
pub(crate) enum Role {
    Leader(Box<Leader>),
    Follower(Following),
    Offline(OfflineReason),
}

/// Why a copy answers nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfflineReason {
    /// Nobody leads, or this copy has no part in the partition.
    NoLeader,
    /// The log takes no more writes.
    LogFailed,
}

/// One copy of one partition.
#[derive(Debug)]
pub struct Replica {
    pub(crate) me: NodeId,
    pub(crate) config: ReplicaConfig,
    pub(crate) positions: Positions,
    /// Everything below is committed and no part of an undecided transaction.
    pub(crate) last_stable: Offset,
    pub(crate) role: Role,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) partition_epoch: PartitionEpoch,
    /// Which idempotent producers have a batch to send again.
    refusals: Refusals,
    /// A flush was asked for and has not come back.
    pub(crate) flushing: bool,
    /// What the flush under way can prove at most, if the log was cut since it began.
    flush_limit: Option<Offset>,
    /// Number of the last session that was asked for.
    last_session: u64,
    counters: Counters,
    /// See [`Self::let_epoch_go_on`].
    epoch_may_go_on: bool,
    published: Option<View>,
}

impl Replica {
    /// A copy whose log was just opened: nobody's leader until the metadata says so. Nothing above the log's start is
    /// known to be committed yet.
    pub fn new(me: NodeId, config: ReplicaConfig, start: Offset, flushed: Offset, end: Offset) -> Self {
        let positions = Positions { start, high_watermark: start, flushed, end };
        let replica = Self {
            me,
            config,
            positions,
            last_stable: start,
            role: Role::Offline(OfflineReason::NoLeader),
            leader_epoch: LeaderEpoch(-1),
            partition_epoch: PartitionEpoch(-1),
            refusals: Refusals::default(),
            flushing: false,
            flush_limit: None,
            last_session: 0,
            counters: Counters::default(),
            epoch_may_go_on: false,
            published: None,
        };
        replica.check_invariants();
        replica
    }

    /// The log was closed and opened again within one run of the process, and whatever others may have of it is still there:
    /// if it led in the epoch that it hears of first, that one goes on.
    pub fn let_epoch_go_on(&mut self) {
        self.epoch_may_go_on = true;
    }

    /// One thing happened; what is to be done? `log` is what the replica's own log knows as of now.
    ///
    /// # Panics
    /// If an invariant does not hold: going on would lose or duplicate records.
    pub fn step(&mut self, now: Millis, log: LogFacts<'_>, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        self.refusals.begin(now, self.positions.end > Offset(0));
        let (high_watermark_before, last_stable_before) = (self.positions.high_watermark, self.last_stable);
        let cut = matches!(input, Input::Truncated { .. } | Input::Restarted { .. });
        match input {
            Input::NewEpoch(new) => self.on_new_epoch(now, log.epochs, new, &mut actions),
            Input::Propose(proposal) => self.on_propose(now, log, proposal, &mut actions),
            Input::ProposeMarker(proposal) => self.on_propose_marker(log.producers, proposal, &mut actions),
            Input::Appended { end } => self.on_appended(now, end, &mut actions),
            Input::AppendRefused => self.on_append_refused(now, log.producers, &mut actions),
            Input::LogFailed => self.on_log_failed(&mut actions),
            Input::Flushed { end } => self.on_flushed(end),
            Input::OpenSession(open) => self.on_open_session(now, log, &open, &mut actions),
            Input::SessionEnded { session } => self.on_session_ended(now, session),
            Input::FollowerAck(ack) => self.on_follower_ack(now, ack),
            Input::FollowerStart { session, log_start } => self.on_follower_start(session, log_start),
            Input::IsrAnswered(answered) => self.on_isr_answered(now, log.epochs, answered, &mut actions),
            Input::FromLeader { session, said } => {
                self.on_from_leader(now, log, session, said, &mut actions);
            }
            Input::SessionLost { session } => self.on_session_lost(now, session),
            Input::Truncated { end } => self.on_truncated(now, end),
            Input::Restarted { start } => self.on_restarted(now, start),
            Input::DeleteRecords { ticket, before, deadline } => {
                self.on_delete_records(ticket, before, deadline, &mut actions);
            }
            Input::Expire { start } => self.on_expire(start, &mut actions),
            Input::StartMoved { start } => self.on_start_moved(start),
            Input::StartRefused => self.on_start_refused(now, &mut actions),
            Input::ConfigChanged(config) => self.on_config_changed(now, config),
            Input::Tick => {}
        }
        self.settle(now, log, &mut actions);
        assert!(
            cut || self.positions.high_watermark >= high_watermark_before,
            "the high watermark never moves back"
        );
        assert!(
            cut || self.last_stable >= last_stable_before,
            "the last stable offset never moves back: a transaction begins at the end of the log"
        );
        self.check_invariants();
        if actions.len() > 1 {
            actions.sort_by_key(Action::turn);
        }
        let awaited = actions.iter().filter(|action| action.is_awaited()).count();
        assert!(awaited <= 1, "one thing is awaited at a time: {actions:?}");
        actions
    }

    /// The partition as readers see it now.
    pub fn view(&self) -> View {
        let at = &self.positions;
        let (standing, leader_epoch) = match &self.role {
            Role::Leader(leader) => (Standing::Leader, leader.epoch),
            Role::Follower(following) => (Standing::Follower, following.epoch),
            Role::Offline(OfflineReason::NoLeader) => (Standing::NotLeader, self.leader_epoch),
            Role::Offline(OfflineReason::LogFailed) => (Standing::Failed, self.leader_epoch),
        };
        View {
            standing,
            leader_epoch,
            start: at.start,
            high_watermark: at.high_watermark,
            last_stable: self.last_stable,
            end: at.end,
            committed_to_epoch_start: match &self.role {
                Role::Leader(leader) => at.high_watermark >= leader.epoch_start,
                Role::Follower(_) | Role::Offline(_) => false,
            },
        }
    }

    /// Where the log stands.
    pub fn positions(&self) -> Positions {
        self.positions
    }

    /// What has happened since the copy was opened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// As a leader: how many replicas are in sync.
    pub fn in_sync(&self) -> Option<InSyncStatus> {
        let Role::Leader(leader) = &self.role else { return None };
        Some(InSyncStatus {
            in_sync: leader.followers.in_sync(),
            needed: leader.followers.needed(self.config.min_insync),
            replicas: leader.followers.iter().count() + 1,
        })
    }

    /// As a leader: how the other replicas do. Nothing if this copy does not lead.
    pub fn followers(&self, now: Millis) -> impl Iterator<Item = FollowerStatus> {
        let leader = match &self.role {
            Role::Leader(leader) => Some(leader),
            Role::Follower(_) | Role::Offline(_) => None,
        };
        let end = leader_end(&self.positions, &self.config);
        leader.into_iter().flat_map(move |leader| leader.followers.statuses(end, now))
    }

    /// As a leader: nothing at or above this may be dropped by compaction that whoever copies it now would have to be told;
    /// `None` if nobody does.
    pub fn copied_to(&self) -> Option<Offset> {
        match &self.role {
            Role::Leader(leader) => leader.followers.copied_to(),
            Role::Follower(_) | Role::Offline(_) => None,
        }
    }

    /// When the next `Tick` is needed at the latest.
    pub fn next_deadline(&self) -> Option<Millis> {
        match &self.role {
            Role::Leader(leader) => leader.next_deadline(&self.positions, &self.config),
            Role::Follower(following) => following.next_deadline(),
            Role::Offline(_) => None,
        }
    }

    /// What follows from the new state, whatever the input was: high watermark, answers, proposals, sessions, flush,
    /// publication.
    fn settle(&mut self, now: Millis, log: LogFacts<'_>, actions: &mut Vec<Action>) {
        match &mut self.role {
            Role::Leader(leader) => {
                let end = leader_end(&self.positions, &self.config);
                let outdated = leader.followers.end_outdated_sessions(log.dropped_to, end, now);
                actions.extend(outdated.into_iter().map(|session| Action::EndSession { session }));
                self.positions.high_watermark = leader.high_watermark(&self.config, &self.positions);
                leader.answer_reached(self.positions.high_watermark, actions);
                leader.answer_uncommittable(&self.config, actions);
                leader.answer_expired(&self.config, now, actions);
                leader.settle_deletions(&self.config, &self.positions, now, actions);
                let proposal =
                    leader.propose_isr(self.me, self.partition_epoch, &self.positions, &self.config, now);
                actions.extend(proposal);
            }
            Role::Follower(following) => {
                following.settle(now, &self.positions, log.epochs, &mut self.last_session, actions);
            }
            Role::Offline(_) => {}
        }
        let at = &self.positions;
        // Records of an open transaction may have been deleted meanwhile.
        self.last_stable = Offset(log.producers.last_stable(at.high_watermark.0)).max(at.start);
        let failed = matches!(self.role, Role::Offline(OfflineReason::LogFailed));
        let unflushed = self.positions.flushed < self.positions.end;
        if self.config.flush == FlushMode::Ack && unflushed && !self.flushing && !failed {
            self.flushing = true;
            actions.push(Action::Flush);
        }
        let view = self.view();
        if self.published != Some(view) {
            self.published = Some(view);
            actions.push(Action::Publish(view));
        }
    }

    fn on_new_epoch(&mut self, now: Millis, epochs: &EpochHistory, new: NewEpoch, actions: &mut Vec<Action>) {
        if (new.leader_epoch, new.partition_epoch) <= (self.leader_epoch, self.partition_epoch) {
            return;
        }
        let newer_leadership = new.leader_epoch > self.leader_epoch;
        let goes_on = std::mem::take(&mut self.epoch_may_go_on);
        self.leader_epoch = new.leader_epoch;
        self.partition_epoch = new.partition_epoch;
        if matches!(self.role, Role::Offline(OfflineReason::LogFailed)) {
            return;
        }
        match new.leader {
            Some(leader) if leader == self.me => {
                // A log that knows the epoch already led in it, before the process ended and maybe lost the log's tail.
                // Others may have what was lost, so the epoch is not continued: the controller gives this incarnation its own.
                let led_before = epochs.latest().is_some_and(|latest| latest.epoch >= new.leader_epoch.0);
                // Planted: it is continued.
                let is_over = led_before && !goes_on && !cfg!(weir_planted_bug = "B9");
                self.lead(now, &new, newer_leadership, is_over, actions);
            }
            Some(leader) if new.replicas.contains(&self.me) => {
                self.follow(now, leader, newer_leadership, actions);
            }
            Some(_) | None => self.retire(actions),
        }
    }

    fn lead(
        &mut self,
        now: Millis,
        new: &NewEpoch,
        newer_leadership: bool,
        is_over: bool,
        actions: &mut Vec<Action>,
    ) {
        let (epoch, start) = (new.leader_epoch, self.positions.end);
        match &mut self.role {
            Role::Leader(leader) if !newer_leadership => {
                let change = leader.followers.change(self.me, &new.replicas, &new.isr, now);
                leader.proposal.on_newer_state();
                self.counters.isr_expands += change.joined as u64;
                self.counters.isr_shrinks += change.left as u64;
                actions.extend(change.ended.into_iter().map(|session| Action::EndSession { session }));
                return;
            }
            Role::Leader(leader) => {
                leader.end_sessions(actions);
                let followers = Followers::new(self.me, &new.replicas, &new.isr, now);
                leader.begin_epoch(epoch, start, followers);
            }
            Role::Follower(_) | Role::Offline(_) => {
                self.retire(actions);
                if is_over {
                    return;
                }
                let followers = Followers::new(self.me, &new.replicas, &new.isr, now);
                self.role = Role::Leader(Box::new(Leader::new(epoch, start, followers)));
            }
        }
        actions.push(Action::AssignEpoch { epoch, start });
    }

    fn follow(&mut self, now: Millis, leader: NodeId, newer_leadership: bool, actions: &mut Vec<Action>) {
        if let Role::Follower(following) = &self.role
            && following.leader == leader
            && !newer_leadership
        {
            return;
        }
        self.retire(actions);
        self.role = Role::Follower(Following::new(leader, self.leader_epoch, now));
        // Planted: whatever is not known to be committed is cut.
        if cfg!(weir_planted_bug = "B1") && self.positions.high_watermark < self.positions.end {
            let to = self.positions.high_watermark;
            if let Role::Follower(following) = &mut self.role {
                following.stage = crate::following::Stage::Cutting;
            }
            actions.push(Action::Truncate { to, below_high_watermark: None });
        }
    }

    /// Leaves whatever role it has.
    fn retire(&mut self, actions: &mut Vec<Action>) {
        match &mut self.role {
            Role::Leader(leader) => {
                leader.end_sessions(actions);
                leader.answer_all(ProduceError::NotLeader, actions);
                leader.refuse_deletions(DeleteRecordsError::NotLeader, actions);
            }
            Role::Follower(following) => {
                actions.extend(following.session().map(|session| Action::CloseSession { session }));
            }
            Role::Offline(_) => {}
        }
        self.role = Role::Offline(OfflineReason::NoLeader);
    }

    fn on_propose(&mut self, now: Millis, log: LogFacts<'_>, proposal: Proposal, actions: &mut Vec<Action>) {
        let Proposal { ticket, producer, .. } = proposal;
        let refuse = |error| Some(Action::Reply { ticket, result: Err(error) });
        let decided = match &mut self.role {
            Role::Leader(leader) => {
                if self.refusals.is_behind(now, log.producers, producer) {
                    actions.extend(refuse(ProduceError::BehindRefused));
                    return;
                }
                leader.propose(&self.config, &self.positions, log.producers, proposal)
            }
            Role::Follower(_) => refuse(ProduceError::NotLeader),
            Role::Offline(reason) => refuse(reason.produce_error()),
        };
        match decided {
            Some(Action::Reply { result: Err(error), .. }) => {
                let error = self.refusals.refused(now, log.producers, producer, error);
                actions.extend(refuse(error));
            }
            Some(action) => {
                self.refusals.passed(producer);
                actions.push(action);
            }
            None => self.refusals.passed(producer),
        }
    }

    fn on_propose_marker(
        &mut self,
        producers: &ProducerStates,
        proposal: MarkerProposal,
        actions: &mut Vec<Action>,
    ) {
        let refuse = |error| Some(Action::Reply { ticket: proposal.ticket, result: Err(error) });
        actions.extend(match &mut self.role {
            Role::Leader(leader) => {
                leader.propose_marker(&self.config, &self.positions, producers, &proposal)
            }
            Role::Follower(_) => refuse(ProduceError::NotLeader),
            Role::Offline(reason) => refuse(reason.produce_error()),
        });
    }

    fn on_appended(&mut self, now: Millis, end: Offset, actions: &mut Vec<Action>) {
        match &mut self.role {
            Role::Leader(leader) => {
                leader.followers.on_leader_end(leader_end(&self.positions, &self.config), end, now);
                actions.extend(leader.on_appended(self.positions.start, end));
                self.positions.end = end;
            }
            Role::Follower(following) => {
                let marks = following.on_appended(end);
                following.on_progress();
                self.positions.end = end;
                self.take_over(marks, actions);
            }
            Role::Offline(_) => panic!("{AWAITED}"),
        }
    }

    fn on_append_refused(&mut self, now: Millis, producers: &ProducerStates, actions: &mut Vec<Action>) {
        match &mut self.role {
            Role::Leader(leader) => {
                let (Proposal { ticket, producer, .. }, error) = leader.on_append_refused();
                let error = self.refusals.refused(now, producers, producer, error);
                actions.push(Action::Reply { ticket, result: Err(error) });
            }
            Role::Follower(following) => following.give_up(now, actions),
            Role::Offline(_) => panic!("{AWAITED}"),
        }
    }

    fn on_flushed(&mut self, end: Offset) {
        self.flushing = false;
        let end = self.flush_limit.take().map_or(end, |limit| end.min(limit));
        assert!(end <= self.positions.end, "what is on disk was appended before");
        self.positions.flushed = self.positions.flushed.max(end);
    }

    fn on_delete_records(
        &mut self,
        ticket: Ticket,
        before: Option<Offset>,
        deadline: Millis,
        actions: &mut Vec<Action>,
    ) {
        let refuse = |error| Some(Action::RecordsDeleted { ticket, result: Err(error) });
        actions.extend(match &mut self.role {
            Role::Leader(leader) => {
                leader.delete_records(&self.config, &self.positions, ticket, before, deadline)
            }
            Role::Follower(_) => refuse(DeleteRecordsError::NotLeader),
            Role::Offline(reason) => refuse(reason.delete_records_error()),
        });
    }

    /// Only the leader decides what goes; its marks take the start of the others along.
    fn on_expire(&mut self, start: Offset, actions: &mut Vec<Action>) {
        let at = &self.positions;
        let start = start.min(at.high_watermark);
        if matches!(self.role, Role::Leader(_)) && start > at.start {
            actions.push(Action::MoveStart { start });
        }
    }

    fn on_start_moved(&mut self, start: Offset) {
        assert!(start >= self.positions.start, "the log's start never moves back");
        self.positions.start = start;
    }

    fn on_start_refused(&mut self, now: Millis, actions: &mut Vec<Action>) {
        match &mut self.role {
            Role::Leader(leader) => leader.on_start_refused(&self.positions, actions),
            Role::Follower(following) => following.on_start_refused(now),
            Role::Offline(_) => {}
        }
    }

    fn on_config_changed(&mut self, now: Millis, config: ReplicaConfig) {
        if let Role::Leader(leader) = &mut self.role
            && config.flush != self.config.flush
        {
            leader.followers.on_mode_change(leader_end(&self.positions, &self.config), now);
        }
        self.config = ReplicaConfig { waiters_max: self.config.waiters_max, ..config };
    }

    fn on_log_failed(&mut self, actions: &mut Vec<Action>) {
        self.flushing = false;
        self.flush_limit = None;
        if let Role::Leader(leader) = &mut self.role {
            leader.answer_log_failed(actions);
        }
        self.retire(actions);
        self.role = Role::Offline(OfflineReason::LogFailed);
    }
}

/// Why an answer to something that was never asked for cannot come.
const AWAITED: &str = "only who asks for such gets it, and before anything else happens";

impl OfflineReason {
    fn produce_error(self) -> ProduceError {
        match self {
            Self::NoLeader => ProduceError::NotLeader,
            Self::LogFailed => ProduceError::LogFailed,
        }
    }

    fn delete_records_error(self) -> DeleteRecordsError {
        match self {
            Self::NoLeader => DeleteRecordsError::NotLeader,
            Self::LogFailed => DeleteRecordsError::LogFailed,
        }
    }
}

#[cfg(test)]
#[path = "replica_tests.rs"]
mod tests;
