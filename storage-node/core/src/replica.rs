//! One copy of one partition: what it is, how far it is, and what it does next.
//!
//! [`Replica::step`] is the only way to change it. It does no I/O: the owner of the log performs the actions in their
//! order and feeds back what they came to. The producer window is the log's own (recovered and snapshotted with it)
//! and is lent to `step`, so that no second copy can differ from it.

use log_engine_core::ProducerStates;
use proto_types::ids::{LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch};

use crate::action::{Action, DeleteRecordsError, ProduceError};
use crate::in_sync::{InSync, Progress};
use crate::input::{FollowerAck, Input, NewEpoch, Proposal, Ticket};
use crate::leader::Leader;
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

impl Positions {
    pub(crate) fn view(&self, standing: Standing, leader_epoch: LeaderEpoch) -> View {
        View {
            standing,
            leader_epoch,
            start: self.start,
            high_watermark: self.high_watermark,
            // Without transactions every committed record is decided.
            last_stable: self.high_watermark,
            end: self.end,
        }
    }
}

/// What a copy does.
#[derive(Debug)]
pub(crate) enum Role {
    Leader(Box<Leader>),
    Offline(OfflineReason),
}

/// Why a copy answers nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfflineReason {
    /// Somebody else leads, or nobody.
    NotLeader,
    /// The log takes no more writes.
    LogFailed,
}

/// One copy of one partition.
#[derive(Debug)]
pub struct Replica {
    pub(crate) me: NodeId,
    pub(crate) config: ReplicaConfig,
    pub(crate) positions: Positions,
    pub(crate) role: Role,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) partition_epoch: PartitionEpoch,
    /// A flush was asked for and has not come back.
    pub(crate) flushing: bool,
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
            role: Role::Offline(OfflineReason::NotLeader),
            leader_epoch: LeaderEpoch(-1),
            partition_epoch: PartitionEpoch(-1),
            flushing: false,
            published: None,
        };
        replica.check_invariants();
        replica
    }

    /// One thing happened; what is to be done? `producers` is the window of the replica's own log.
    ///
    /// # Panics
    /// If an invariant does not hold: going on would lose or duplicate records.
    pub fn step(&mut self, now: Millis, producers: &ProducerStates, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        let high_watermark_before = self.positions.high_watermark;
        match input {
            Input::NewEpoch(new) => self.on_new_epoch(new, &mut actions),
            Input::Propose(proposal) => self.on_propose(producers, proposal, &mut actions),
            Input::Appended { end } => self.on_appended(end, &mut actions),
            Input::AppendRefused => actions.push(self.leader_mut().on_append_refused()),
            Input::LogFailed => self.on_log_failed(&mut actions),
            Input::Flushed { end } => self.on_flushed(end),
            Input::FollowerAck(ack) => self.on_follower_ack(ack),
            Input::DeleteRecords { ticket, before } => self.on_delete_records(ticket, before, &mut actions),
            Input::StartMoved { start } => self.on_start_moved(start, &mut actions),
            Input::StartRefused => actions.push(self.leader_mut().on_start_refused()),
            Input::ConfigChanged(config) => {
                self.config = ReplicaConfig { waiters_max: self.config.waiters_max, ..config };
            }
            Input::Tick => {}
        }
        self.settle(now, &mut actions);
        assert!(
            self.positions.high_watermark >= high_watermark_before,
            "the high watermark never moves back"
        );
        self.check_invariants();
        // Whoever gets an answer must find what it says: readers are shown the new state first.
        actions.sort_by_key(Action::is_answer);
        actions
    }

    /// The partition as readers see it now.
    pub fn view(&self) -> View {
        match &self.role {
            Role::Leader(leader) => self.positions.view(Standing::Leader, leader.epoch),
            Role::Offline(OfflineReason::NotLeader) => {
                self.positions.view(Standing::NotLeader, self.leader_epoch)
            }
            Role::Offline(OfflineReason::LogFailed) => {
                self.positions.view(Standing::Failed, self.leader_epoch)
            }
        }
    }

    /// Where the log stands.
    pub fn positions(&self) -> Positions {
        self.positions
    }

    /// When the next `Tick` is needed at the latest.
    pub fn next_deadline(&self) -> Option<Millis> {
        match &self.role {
            Role::Leader(leader) => leader.waiters.next_deadline(),
            Role::Offline(_) => None,
        }
    }

    /// What follows from the new state, whatever the input was: high watermark, answers, flush, publication.
    fn settle(&mut self, now: Millis, actions: &mut Vec<Action>) {
        if let Role::Leader(leader) = &mut self.role {
            self.positions.high_watermark = leader.high_watermark(&self.config, &self.positions);
            leader.answer_reached(self.positions.high_watermark, actions);
            leader.answer_uncommittable(&self.config, actions);
            leader.answer_expired(&self.config, now, actions);
        }
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

    fn on_new_epoch(&mut self, new: NewEpoch, actions: &mut Vec<Action>) {
        if (new.leader_epoch, new.partition_epoch) <= (self.leader_epoch, self.partition_epoch) {
            return;
        }
        let newer_leadership = new.leader_epoch > self.leader_epoch;
        self.leader_epoch = new.leader_epoch;
        self.partition_epoch = new.partition_epoch;
        if matches!(self.role, Role::Offline(OfflineReason::LogFailed)) {
            return;
        }
        if new.leader != Some(self.me) {
            self.resign(ProduceError::NotLeader, OfflineReason::NotLeader, actions);
            return;
        }
        match &mut self.role {
            Role::Leader(leader) if !newer_leadership => {
                leader.in_sync.change(self.me, new.replication_factor, &new.isr);
            }
            Role::Leader(leader) => {
                // Still the leader, in a new epoch: what was appended stays in this log, so who waits may go on
                // waiting, but followers have to tell anew where they are.
                leader.epoch = new.leader_epoch;
                leader.in_sync = InSync::new(self.me, new.replication_factor, &new.isr);
                actions.push(Action::AssignEpoch { epoch: new.leader_epoch, start: self.positions.end });
            }
            Role::Offline(_) => {
                let in_sync = InSync::new(self.me, new.replication_factor, &new.isr);
                self.role = Role::Leader(Box::new(Leader::new(new.leader_epoch, in_sync)));
                actions.push(Action::AssignEpoch { epoch: new.leader_epoch, start: self.positions.end });
            }
        }
    }

    fn on_propose(&mut self, producers: &ProducerStates, proposal: Proposal, actions: &mut Vec<Action>) {
        actions.extend(match &mut self.role {
            Role::Leader(leader) => leader.propose(&self.config, &self.positions, producers, proposal),
            Role::Offline(reason) => {
                Some(Action::Reply { ticket: proposal.ticket, result: Err(reason.produce_error()) })
            }
        });
    }

    fn on_appended(&mut self, end: Offset, actions: &mut Vec<Action>) {
        let start = self.positions.start;
        let reply = self.leader_mut().on_appended(start, end);
        self.positions.end = end;
        actions.extend(reply);
    }

    fn on_flushed(&mut self, end: Offset) {
        self.flushing = false;
        assert!(end <= self.positions.end, "what is on disk was appended before");
        self.positions.flushed = self.positions.flushed.max(end);
    }

    fn on_follower_ack(&mut self, ack: FollowerAck) {
        if let Role::Leader(leader) = &mut self.role
            && ack.leader_epoch == leader.epoch
        {
            // A follower of this epoch cannot be ahead of its leader; if it claims so, only what we have counts.
            let appended = ack.appended.min(self.positions.end);
            let progress = Progress { appended, flushed: ack.flushed.min(appended) };
            leader.in_sync.on_ack(ack.node, progress);
        }
    }

    fn on_delete_records(&mut self, ticket: Ticket, before: Option<Offset>, actions: &mut Vec<Action>) {
        actions.push(match &mut self.role {
            Role::Leader(leader) => leader.delete_records(&self.positions, ticket, before),
            Role::Offline(reason) => {
                Action::RecordsDeleted { ticket, result: Err(reason.delete_records_error()) }
            }
        });
    }

    fn on_start_moved(&mut self, start: Offset, actions: &mut Vec<Action>) {
        assert!(start >= self.positions.start, "the log's start never moves back");
        self.positions.start = start;
        if let Role::Leader(leader) = &mut self.role {
            actions.extend(leader.on_start_moved(start));
        }
    }

    fn on_log_failed(&mut self, actions: &mut Vec<Action>) {
        self.flushing = false;
        if let Role::Leader(leader) = &mut self.role {
            leader.answer_log_failed(actions);
        }
        self.role = Role::Offline(OfflineReason::LogFailed);
    }

    fn resign(&mut self, error: ProduceError, reason: OfflineReason, actions: &mut Vec<Action>) {
        if let Role::Leader(leader) = &mut self.role {
            leader.answer_all(error, actions);
        }
        self.role = Role::Offline(reason);
    }

    /// For inputs that answer what only a leader asks for.
    fn leader_mut(&mut self) -> &mut Leader {
        match &mut self.role {
            Role::Leader(leader) => leader,
            Role::Offline(_) => {
                panic!("only a leader asks for such, and it comes back before anything else")
            }
        }
    }
}

impl OfflineReason {
    fn produce_error(self) -> ProduceError {
        match self {
            Self::NotLeader => ProduceError::NotLeader,
            Self::LogFailed => ProduceError::LogFailed,
        }
    }

    fn delete_records_error(self) -> DeleteRecordsError {
        match self {
            Self::NotLeader => DeleteRecordsError::NotLeader,
            Self::LogFailed => DeleteRecordsError::LogFailed,
        }
    }
}

#[cfg(test)]
#[path = "replica_tests.rs"]
mod tests;
