//! Seeded lists of inputs against [`Replica::step`], beside a model that knows only what was appended and what is on
//! which disk. Each seed ends with a healed partition, in which nobody may be left without an answer.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed unwrap is a failed test; the seed is printed"
)]

use std::collections::{BTreeMap, BTreeSet};

use log_engine_core::{
    EpochHistory, MarkerEpochRule, ProducerBatch, ProducerStates, TransactionMarker, TransactionOutcome,
};
use proto_types::ids::{BrokerEpoch, LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use storage_node_core::{
    Acks, Action, DeleteRecordsError, FlushMode, FollowerAck, Input, IsrAnswered, IsrOutcome, LogFacts,
    MarkerProposal, NewEpoch, OpenSession, ProduceError, Produced, ProducerStamp, Proposal, Replica,
    ReplicaConfig, SessionKey, Standing, Ticket,
};

const ME: NodeId = NodeId(1);
const WAITERS_MAX: usize = 20;
const LAG_MS_MAX: i64 = 300;
const STEPS: usize = 400;

/// A batch in the model's log.
#[derive(Debug, Clone, Copy)]
struct Batch {
    base: i64,
    end: i64,
    producer: Option<ProducerStamp>,
}

/// A transaction in the model's log: who, its first offset, and the offset of its marker.
#[derive(Debug, Clone, Copy)]
struct Transaction {
    producer_id: i64,
    first: i64,
    marker: Option<i64>,
}

struct World {
    rng: StdRng,
    replica: Replica,
    producers: ProducerStates,
    epochs: EpochHistory,
    config: ReplicaConfig,
    now: i64,
    log: Vec<Batch>,
    transactions: Vec<Transaction>,
    start: i64,
    end: i64,
    flushed: i64,
    flush_asked: bool,
    failed: bool,
    leads: bool,
    epoch: i32,
    partition_epoch: i32,
    replication_factor: usize,
    isr: BTreeSet<i32>,
    /// What followers told in their present session: appended and flushed.
    followers: BTreeMap<i32, (i64, i64)>,
    /// Where followers told that they begin, in their present session.
    starts: BTreeMap<i32, i64>,
    /// Sessions that have begun, by node.
    sessions: BTreeMap<i32, SessionKey>,
    next_session: u64,
    /// Whom proposals about the present state name of which the outcome is not known.
    proposed: BTreeSet<i32>,
    /// How many such proposals there are, and whether the last one is still to be answered.
    proposals: (usize, bool),
    high_watermark: i64,
    next_ticket: u64,
    open: BTreeMap<Ticket, Open>,
    /// Up to where retention wants records gone, while it is asked.
    expiring: Option<i64>,
    answered: Counts,
}

#[derive(Debug, Clone, Copy)]
enum Open {
    Produce(Proposal),
    Marker(MarkerProposal),
    Delete(Deletion),
}

#[derive(Debug, Clone, Copy)]
struct Deletion {
    /// Before which offset; none is the high watermark.
    before: Option<Offset>,
    /// Until when the client waits.
    deadline: Millis,
    /// Where the log began when it asked.
    start: i64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    ok: usize,
    duplicate: usize,
    refused: usize,
    timed_out: usize,
    deleted: usize,
    not_deleted_in_time: usize,
    ended: usize,
    expired: usize,
    kept_above_high_watermark: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let replication_factor = [1, 1, 3][rng.random_range(0..3)];
        let flush = [FlushMode::Ack, FlushMode::Os][rng.random_range(0..2)];
        let min_insync = rng.random_range(1..=2);
        let config =
            ReplicaConfig { min_insync, flush, waiters_max: WAITERS_MAX, replica_lag_ms_max: LAG_MS_MAX };
        let end = rng.random_range(0..50);
        let (start, flushed) = (rng.random_range(0..=end), rng.random_range(0..=end));
        Self {
            replica: Replica::new(ME, config, Offset(start), Offset(flushed), Offset(end)),
            producers: ProducerStates::new(1_000),
            epochs: EpochHistory::new(),
            config,
            now: 0,
            log: Vec::new(),
            transactions: Vec::new(),
            start,
            end,
            flushed,
            flush_asked: false,
            failed: false,
            leads: false,
            epoch: 0,
            partition_epoch: 0,
            replication_factor,
            isr: BTreeSet::from([1]),
            followers: BTreeMap::new(),
            starts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_session: 0,
            proposed: BTreeSet::new(),
            proposals: (0, false),
            high_watermark: start,
            next_ticket: 0,
            open: BTreeMap::new(),
            expiring: None,
            answered: Counts::default(),
            rng,
        }
    }

    fn random_step(&mut self) {
        match self.rng.random_range(0..100) {
            0..33 => self.propose(),
            33..40 => self.propose_marker(),
            40..60 => self.flush(),
            60..70 => self.follower_ack(),
            70..73 => self.session(),
            73..75 => self.isr_answered(),
            75..80 => self.delete_records(),
            80..86 => self.metadata(),
            86..90 => self.change_config(),
            90..93 => self.expire(),
            93..99 => {
                self.now += self.rng.random_range(0..60);
                self.step(Input::Tick);
            }
            _ => {
                if self.rng.random_bool(0.02) {
                    self.failed = true;
                    self.leads = false;
                    self.flush_asked = false;
                    self.step(Input::LogFailed);
                }
            }
        }
    }

    fn propose(&mut self) {
        let (stamp, offsets) = match self.rng.random_bool(0.6) {
            true => self.some_producer(),
            false => (None, self.rng.random_range(1..5)),
        };
        self.next_ticket += 1;
        let proposal = Proposal {
            ticket: Ticket(self.next_ticket),
            acks: [Acks::None, Acks::Leader, Acks::All, Acks::All][self.rng.random_range(0..4)],
            offsets,
            max_timestamp: self.now,
            producer: stamp,
            has_room: self.rng.random_bool(0.95),
            deadline: Millis(self.now + self.rng.random_range(1..100)),
        };
        self.open.insert(proposal.ticket, Open::Produce(proposal));
        self.step(Input::Propose(proposal));
    }

    /// A coordinator ends a transaction, or one that is over, or its marker comes too late.
    fn propose_marker(&mut self) {
        let producer_id = self.rng.random_range(2..4);
        let epoch = self.producers.get(producer_id).map_or(0, |state| state.epoch);
        self.next_ticket += 1;
        let proposal = MarkerProposal {
            ticket: Ticket(self.next_ticket),
            producer_id,
            producer_epoch: (epoch + self.rng.random_range(-1..=1)).max(0),
            coordinator_epoch: self.rng.random_range(0..3),
            outcome: [TransactionOutcome::Abort, TransactionOutcome::Commit][self.rng.random_range(0..2)],
            epoch_rule: [MarkerEpochRule::NotOlder, MarkerEpochRule::Newer][self.rng.random_range(0..2)],
            timestamp: self.now,
            deadline: Millis(self.now + self.rng.random_range(1..100)),
        };
        self.open.insert(proposal.ticket, Open::Marker(proposal));
        self.step(Input::ProposeMarker(proposal));
    }

    /// The next batch of a producer, or a repetition, or one after a gap, or one of another epoch.
    fn some_producer(&mut self) -> (Option<ProducerStamp>, i32) {
        let producer_id = self.rng.random_range(0..4);
        // Two write in transactions, but for a slip.
        let is_transactional = producer_id >= 2 && self.rng.random_bool(0.95);
        let batches: Vec<Batch> = (self.log.iter().copied())
            .filter(|batch| batch.producer.is_some_and(|stamp| stamp.producer_id == producer_id))
            .collect();
        let offsets = self.rng.random_range(1..5);
        let Some(last) = batches.last().copied() else {
            return (
                Some(ProducerStamp { producer_id, producer_epoch: 0, base_sequence: 0, is_transactional }),
                offsets,
            );
        };
        let stamp = ProducerStamp { is_transactional, ..last.producer.unwrap() };
        let next = stamp.base_sequence + (last.end - last.base) as i32;
        match self.rng.random_range(0..10) {
            0..5 => (Some(ProducerStamp { base_sequence: next, ..stamp }), offsets),
            5..8 => {
                let back = self.rng.random_range(0..batches.len().min(8));
                let batch = batches[batches.len() - 1 - back];
                (batch.producer, (batch.end - batch.base) as i32)
            }
            8 => {
                (Some(ProducerStamp { base_sequence: next + self.rng.random_range(1..9), ..stamp }), offsets)
            }
            _ => {
                let producer_epoch = stamp.producer_epoch + self.rng.random_range(0..2);
                (
                    Some(ProducerStamp { producer_id, producer_epoch, base_sequence: 0, is_transactional }),
                    offsets,
                )
            }
        }
    }

    /// The disk finishes the flush that was asked for; it may have begun before the newest appends.
    fn flush(&mut self) {
        if self.flush_asked && !self.failed {
            self.flush_asked = false;
            self.flushed = self.rng.random_range(self.flushed..=self.end);
            self.step(Input::Flushed { end: Offset(self.flushed) });
        }
    }

    /// In a session, or in one that is over.
    fn follower_ack(&mut self) {
        let node = self.rng.random_range(2..5);
        let appended = self.rng.random_range(0..=self.end);
        let flushed = self.rng.random_range(0..=appended);
        let session = match self.sessions.get(&node) {
            Some(&session) if self.rng.random_bool(0.9) => {
                let known = self.followers.entry(node).or_insert((appended, flushed));
                *known = (known.0.max(appended), known.1.max(flushed));
                session
            }
            _ => SessionKey(self.next_session + 1),
        };
        let (appended, flushed) = (Offset(appended), Offset(flushed));
        self.step(Input::FollowerAck(FollowerAck { session, appended, flushed }));
    }

    /// A follower without records begins a session, or its session ends.
    fn session(&mut self) {
        let node = self.rng.random_range(2..5);
        if let Some(&session) = self.sessions.get(&node)
            && self.rng.random_bool(0.3)
        {
            self.sessions.remove(&node);
            self.starts.remove(&node);
            self.followers.remove(&node);
            self.step(Input::SessionEnded { session });
            return;
        }
        self.next_session += 1;
        let session = SessionKey(self.next_session);
        let epoch = self.epoch - i32::from(self.rng.random_bool(0.1));
        if self.leads && epoch == self.epoch && node <= self.replication_factor as i32 {
            self.sessions.insert(node, session);
            self.starts.insert(node, self.end);
            self.followers.remove(&node);
        }
        self.step(Input::OpenSession(OpenSession {
            session,
            from: NodeId(node),
            broker_epoch: BrokerEpoch(1),
            leader_epoch: LeaderEpoch(epoch),
            log_start: Offset(self.end),
            log_end: Offset(self.end),
            last_epoch: LeaderEpoch(-1),
        }));
    }

    /// The controller refuses, or its answer is lost. It accepts by way of the metadata.
    fn isr_answered(&mut self) {
        if !std::mem::take(&mut self.proposals.1) {
            return;
        }
        let outcome = match self.rng.random_bool(0.5) {
            true => IsrOutcome::Refused,
            false => IsrOutcome::Unknown,
        };
        if outcome == IsrOutcome::Refused && self.proposals.0 == 1 {
            self.proposals.0 = 0;
            self.proposed.clear();
        }
        self.step(Input::IsrAnswered(IsrAnswered {
            leader_epoch: LeaderEpoch(self.epoch),
            partition_epoch: PartitionEpoch(self.partition_epoch),
            outcome,
        }));
    }

    fn newer_state(&mut self, leadership: bool) {
        self.partition_epoch += 1;
        self.proposed.clear();
        self.proposals = (0, false);
        if leadership {
            self.epoch += 1;
            self.followers.clear();
            self.sessions.clear();
            self.starts.clear();
        }
    }

    fn delete_records(&mut self) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let deadline = Millis(self.now + self.rng.random_range(0..300));
        let before = self.rng.random_bool(0.8).then(|| Offset(self.rng.random_range(-2..=self.end + 2)));
        self.open.insert(ticket, Open::Delete(Deletion { before, deadline, start: self.start }));
        self.step(Input::DeleteRecords { ticket, before, deadline });
    }

    /// Retention finds that records up to somewhere were kept long enough, also where nothing is committed yet (T-113).
    fn expire(&mut self) {
        let wanted = self.rng.random_range(self.start - 2..=self.end + 2);
        let due = wanted.min(self.high_watermark);
        let (leads, start) = (self.leads, self.start);
        self.expiring = Some(wanted);
        self.step(Input::Expire { start: Offset(wanted) });
        // The move was asked for, or there was nothing to move, or it is not for this copy to say.
        let is_asked = self.expiring.take().is_none();
        assert_eq!(is_asked, leads && due > start, "{wanted} of {start}..{}", self.high_watermark);
        if is_asked {
            self.answered.expired += 1;
            self.answered.kept_above_high_watermark += usize::from(wanted > due);
        }
    }

    fn metadata(&mut self) {
        let new_epoch = self.rng.random_bool(0.5);
        let leader = if new_epoch { [1, 1, 1, 2][self.rng.random_range(0..4)] } else { 0 };
        self.newer_state(new_epoch);
        if new_epoch {
            self.leads = leader == 1 && !self.failed;
        }
        let leads = self.leads;
        self.isr = BTreeSet::from([1]);
        for node in 2..=self.replication_factor as i32 {
            if self.rng.random_bool(0.6) {
                self.isr.insert(node);
            }
        }
        self.step(Input::NewEpoch(NewEpoch {
            leader: Some(NodeId(if leads { 1 } else { 2 })),
            leader_epoch: LeaderEpoch(self.epoch),
            partition_epoch: PartitionEpoch(self.partition_epoch),
            replicas: self.replicas(),
            isr: self.isr.iter().copied().map(NodeId).collect(),
        }));
    }

    fn replicas(&self) -> Vec<NodeId> {
        (1..=self.replication_factor as i32).map(NodeId).collect()
    }

    fn change_config(&mut self) {
        self.config.min_insync = self.rng.random_range(1..=3);
        self.config.flush = [FlushMode::Ack, FlushMode::Os][self.rng.random_range(0..2)];
        self.step(Input::ConfigChanged(self.config));
    }

    /// Steps the replica and performs what it asks for, as the shell does.
    fn step(&mut self, input: Input) {
        let log = LogFacts { producers: &self.producers, epochs: &self.epochs, dropped_to: Offset(-1) };
        let actions = self.replica.step(Millis(self.now), log, input);
        self.check_high_watermark();
        self.check_last_stable();
        for action in actions {
            match action {
                Action::Append { ticket, base_offset, leader_epoch } => {
                    assert_eq!((leader_epoch.0, base_offset.0), (self.epoch, self.end));
                    self.append(ticket);
                }
                Action::AssignEpoch { epoch, start } => {
                    assert_eq!((epoch.0, start.0), (self.epoch, self.end));
                    self.epochs.assign(epoch.0, start.0);
                }
                Action::Flush => {
                    assert!(!self.flush_asked, "one flush at a time");
                    self.flush_asked = true;
                }
                Action::MoveStart { start } => {
                    assert!(self.leads && start.0 > self.start);
                    assert!(start.0 <= self.high_watermark, "nothing goes that is not committed");
                    let is_expired = |wanted: &mut i64| start.0 == self.high_watermark.min(*wanted);
                    let expired = self.expiring.take_if(is_expired).is_some();
                    let wanted = self.open.values().any(|open| match open {
                        Open::Delete(deletion) => deletion.before.is_none_or(|before| before == start),
                        Open::Produce(_) | Open::Marker(_) => false,
                    });
                    assert!(wanted || expired, "nothing goes that nobody wants gone: {start:?}");
                    if self.rng.random_bool(0.1) {
                        self.step(Input::StartRefused);
                        continue;
                    }
                    self.start = start.0;
                    self.step(Input::StartMoved { start });
                }
                Action::Reply { ticket, result } => self.on_reply(ticket, result),
                Action::RecordsDeleted { ticket, result } => self.on_deleted(ticket, result),
                Action::Publish(view) => assert_eq!(view.standing == Standing::Leader, self.leads),
                Action::ProposeIsr { leader_epoch, partition_epoch, isr } => {
                    assert!(self.leads && !self.proposals.1, "one proposal at a time");
                    assert_eq!((leader_epoch.0, partition_epoch.0), (self.epoch, self.partition_epoch));
                    assert!(isr.iter().any(|&(node, _)| node == ME));
                    self.proposals = (self.proposals.0 + 1, true);
                    self.proposed.extend(isr.iter().map(|(node, _)| node.0));
                }
                Action::OpenSession { session, leader, .. } => {
                    assert!(!self.leads && leader == NodeId(2));
                    if self.rng.random_bool(0.5) {
                        self.step(Input::SessionLost { session });
                    }
                }
                Action::CloseSession { .. } | Action::EndSession { .. } | Action::AnswerSession { .. } => {}
                Action::AppendBatches { .. }
                | Action::Truncate { .. }
                | Action::RestartAt { .. }
                | Action::StartOver { .. }
                | Action::NoteDropped { .. }
                | Action::Ack { .. }
                | Action::TellStart { .. } => panic!("no leader has said anything: {action:?}"),
            }
        }
    }

    fn append(&mut self, ticket: Ticket) {
        let proposal = match self.open[&ticket] {
            Open::Produce(proposal) => proposal,
            Open::Marker(marker) => return self.append_marker(&marker),
            Open::Delete(..) => panic!("{ticket:?} is no batch"),
        };
        if self.rng.random_bool(0.02) {
            self.step(Input::AppendRefused);
            return;
        }
        let base = self.end;
        self.end += i64::from(proposal.offsets);
        if let Some(stamp) = proposal.producer {
            self.check_sequence(stamp);
            self.producers.append(&ProducerBatch {
                producer_id: stamp.producer_id,
                producer_epoch: stamp.producer_epoch,
                first_sequence: stamp.base_sequence,
                offset_delta: proposal.offsets - 1,
                last_offset: self.end - 1,
                timestamp: proposal.max_timestamp,
                is_transactional: stamp.is_transactional,
            });
            let producer_id = stamp.producer_id;
            let open = self.transactions.iter().any(|t| t.producer_id == producer_id && t.marker.is_none());
            assert!(!open || stamp.is_transactional, "{stamp:?} beside an open transaction");
            if stamp.is_transactional && !open {
                self.transactions.push(Transaction { producer_id, first: base, marker: None });
            }
        }
        self.log.push(Batch { base, end: self.end, producer: proposal.producer });
        self.step(Input::Appended { end: Offset(self.end) });
    }

    fn append_marker(&mut self, proposal: &MarkerProposal) {
        let offset = self.end;
        let state = self.producers.get(proposal.producer_id);
        assert!(
            state.is_none_or(|state| proposal.producer_epoch >= state.epoch
                && proposal.coordinator_epoch >= state.coordinator_epoch),
            "{proposal:?} after {state:?}"
        );
        self.producers.complete(&TransactionMarker {
            producer_id: proposal.producer_id,
            producer_epoch: proposal.producer_epoch,
            coordinator_epoch: proposal.coordinator_epoch,
            outcome: proposal.outcome,
            offset,
            timestamp: proposal.timestamp,
        });
        let open = |t: &&mut Transaction| t.producer_id == proposal.producer_id && t.marker.is_none();
        if let Some(open) = self.transactions.iter_mut().find(open) {
            open.marker = Some(offset);
            self.answered.ended += 1;
        }
        self.end += 1;
        self.log.push(Batch { base: offset, end: self.end, producer: None });
        self.step(Input::Appended { end: Offset(self.end) });
    }

    /// Nothing of a transaction is decided before its marker is committed, and everything else that is committed is.
    fn check_last_stable(&self) {
        let view = self.replica.view();
        let undecided = self
            .transactions
            .iter()
            .filter(|t| t.marker.is_none_or(|marker| marker >= view.high_watermark.0));
        let undecided = undecided.map(|t| t.first).min().unwrap_or(i64::MAX);
        let expected = undecided.min(view.high_watermark.0).max(view.start.0);
        assert_eq!(view.last_stable.0, expected, "{:?}", self.transactions);
    }

    /// In the log, each producer's sequence has neither holes nor repetitions, and its epoch never falls.
    fn check_sequence(&self, stamp: ProducerStamp) {
        let same =
            |batch: &&Batch| batch.producer.is_some_and(|other| other.producer_id == stamp.producer_id);
        let Some(last) = self.log.iter().rev().find(same) else { return };
        let before = last.producer.unwrap();
        let expected = if before.producer_epoch == stamp.producer_epoch {
            before.base_sequence + (last.end - last.base) as i32
        } else {
            assert!(before.producer_epoch < stamp.producer_epoch, "{stamp:?} after {before:?}");
            0
        };
        assert_eq!(stamp.base_sequence, expected, "{stamp:?} after {before:?}");
    }

    /// Only what every in-sync replica has (on disk, or in its log) is committed, and it stays committed.
    fn check_high_watermark(&mut self) {
        let view = self.replica.view();
        let now = view.high_watermark.0;
        assert!(now >= self.high_watermark, "{now} is below {}", self.high_watermark);
        if now > self.high_watermark {
            assert!(self.leads, "only a leader commits");
            let needed = self.config.min_insync.min(self.replication_factor);
            assert!(self.isr.len() >= needed, "{:?} of {needed}", self.isr);
            let appending = view.end.0;
            let own = if self.config.flush == FlushMode::Ack { self.flushed } else { appending };
            assert!(now <= own);
            for node in self.isr.union(&self.proposed).filter(|&&node| node != 1) {
                let &(appended, flushed) = self.followers.get(node).expect("it told where it is");
                assert!(now <= if self.config.flush == FlushMode::Ack { flushed } else { appended });
            }
        }
        self.high_watermark = now;
    }

    fn on_reply(&mut self, ticket: Ticket, result: Result<Produced, ProduceError>) {
        let proposal = match self.open.remove(&ticket) {
            Some(Open::Produce(proposal)) => proposal,
            Some(Open::Marker(marker)) => return self.on_marker_answered(&marker, result),
            Some(Open::Delete(..)) | None => panic!("{ticket:?} was answered before, or is no batch"),
        };
        match result {
            Ok(produced) => {
                let base = produced.base_offset.0;
                let batch =
                    self.log.iter().find(|batch| batch.base == base).expect("what is answered is in the log");
                assert_eq!(batch.end - batch.base, i64::from(proposal.offsets));
                // A repetition is one by its sequence, whatever it says of transactions.
                let of = |stamp: ProducerStamp| ProducerStamp { is_transactional: false, ..stamp };
                assert_eq!(batch.producer.map(of), proposal.producer.map(of));
                if produced.duplicate_of.is_some() {
                    self.answered.duplicate += 1;
                }
                if produced.duplicate_of.is_some() || proposal.acks == Acks::All {
                    assert!(batch.end <= self.high_watermark, "{batch:?} is answered before it is committed");
                }
                self.answered.ok += 1;
            }
            Err(ProduceError::TimedOut) => {
                assert!(proposal.deadline.0 <= self.now);
                self.answered.timed_out += 1;
            }
            Err(ProduceError::NotLeader) => assert!(!self.leads),
            Err(ProduceError::LogFailed) => assert!(self.failed),
            Err(_) => self.answered.refused += 1,
        }
    }

    fn on_marker_answered(&mut self, marker: &MarkerProposal, result: Result<Produced, ProduceError>) {
        match result {
            Ok(produced) => {
                assert!(produced.base_offset.0 <= self.high_watermark, "answered before it is committed");
                let state = self.producers.get(marker.producer_id).expect("its marker is in the log");
                assert!(state.epoch >= marker.producer_epoch);
            }
            Err(ProduceError::NotLeader) => assert!(!self.leads),
            Err(ProduceError::LogFailed) => assert!(self.failed),
            Err(_) => {}
        }
    }

    fn on_deleted(&mut self, ticket: Ticket, result: Result<Offset, DeleteRecordsError>) {
        let Some(Open::Delete(Deletion { before, deadline, start })) = self.open.remove(&ticket) else {
            panic!("{ticket:?} was answered before, or deletes nothing")
        };
        match result {
            Ok(low_watermark) => {
                assert!(self.leads && low_watermark.0 <= self.start);
                assert!(before.is_none_or(|before| before <= low_watermark));
                let needed = self.config.min_insync.min(self.replication_factor);
                assert!(self.isr.len() >= needed, "somebody else may be eligible");
                for node in self.isr.union(&self.proposed).filter(|&&node| node != 1) {
                    let start = self.starts.get(node).expect("it told where it begins");
                    assert!(low_watermark.0 <= *start);
                }
                self.answered.deleted += 1;
            }
            Err(DeleteRecordsError::TimedOut) => {
                assert!(deadline.0 <= self.now || (before.is_none() && start < self.start));
                self.answered.not_deleted_in_time += 1;
            }
            Err(DeleteRecordsError::OffsetOutOfRange { .. }) => {
                let before = before.expect("the high watermark is in range").0;
                assert!(before < 0 || before > self.high_watermark);
            }
            Err(DeleteRecordsError::WriteRefused) => {
                assert!(before.map_or(start, |before| before.0 - 1) >= self.start, "nothing of it is gone");
            }
            Err(DeleteRecordsError::NotLeader) => assert!(!self.leads),
            Err(DeleteRecordsError::LogFailed) => assert!(self.failed),
            Err(_) => {}
        }
    }

    /// The faults end: the leader is alone in sync and its disk works. Everybody gets an answer.
    fn heal(&mut self) {
        self.config = ReplicaConfig { min_insync: 1, ..self.config };
        self.step(Input::ConfigChanged(self.config));
        self.newer_state(true);
        self.leads = !self.failed;
        self.isr = BTreeSet::from([1]);
        self.step(Input::NewEpoch(NewEpoch {
            leader: Some(ME),
            leader_epoch: LeaderEpoch(self.epoch),
            partition_epoch: PartitionEpoch(self.partition_epoch),
            replicas: self.replicas(),
            isr: vec![ME],
        }));
        while self.flush_asked {
            self.flush_asked = false;
            self.flushed = self.end;
            self.step(Input::Flushed { end: Offset(self.flushed) });
        }
        assert!(self.open.is_empty(), "nobody is left without an answer: {:?}", self.open);
        if !self.failed {
            assert_eq!(self.high_watermark, self.end, "everything is committed at last");
        }
    }
}

fn run(seed: u64) -> Counts {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.random_step();
    }
    world.heal();
    world.answered
}

#[test]
fn replicas_keep_their_promises_under_any_order_of_inputs() {
    if let Some(seed) = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()) {
        println!("{:?}", run(seed));
        return;
    }
    let mut total = Counts::default();
    for seed in 0..2_000 {
        let counts = std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|panic| {
            println!("repeat with: WEIR_SEED={seed} cargo test -p storage-node-core --test fuzz_step");
            std::panic::resume_unwind(panic)
        });
        total.ok += counts.ok;
        total.duplicate += counts.duplicate;
        total.refused += counts.refused;
        total.timed_out += counts.timed_out;
        total.deleted += counts.deleted;
        total.not_deleted_in_time += counts.not_deleted_in_time;
        total.ended += counts.ended;
        total.expired += counts.expired;
        total.kept_above_high_watermark += counts.kept_above_high_watermark;
    }
    println!("{total:?}");
    let reached = [
        total.ok,
        total.duplicate,
        total.refused,
        total.timed_out,
        total.deleted,
        total.not_deleted_in_time,
        total.ended,
        total.expired,
        total.kept_above_high_watermark,
    ];
    assert!(reached.iter().all(|&count| count > 1_000), "every kind of answer is reached often: {total:?}");
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    for seed in 0..20 {
        assert_eq!(format!("{:?}", run(seed)), format!("{:?}", run(seed)));
    }
}
