//! A few replicas of one partition with their logs, a network that delivers when it is told to, and a controller that does
//! what the test says. Small on purpose: a test tells a story step by step, and nothing happens behind its back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use log_engine_core::{EpochHistory, ProducerStates};
use proto_types::ids::{BrokerEpoch, LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch};
use proto_types::replication_api::{Marks, SessionAnswer};
use storage_node_core::{
    Acks, Action, DeleteRecordsError, FlushMode, FollowerAck, FromLeader, Input, IsrAnswered, IsrOutcome,
    LeaderBatches, LogFacts, NewEpoch, OpenSession, ProduceError, Proposal, Pump, PumpStep, Replica,
    ReplicaConfig, SessionKey, Ticket, View,
};

/// The longest pause after which a follower asks again; what takes longer is not waited for.
const PAUSE_MS_MAX: i64 = 1_000;
const PAUSES_MAX: usize = 20;
/// How long who deletes records waits.
pub(crate) const DELETE_MS: i64 = 500_000;
/// More than any test sends.
const CREDIT: u64 = 1 << 30;

pub(crate) const CONFIG: ReplicaConfig =
    ReplicaConfig { min_insync: 1, flush: FlushMode::Ack, waiters_max: 1_000, replica_lag_ms_max: 30_000 };

/// A batch of one record. Equal ones are the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Batch {
    pub(crate) epoch: i32,
    pub(crate) id: u64,
}

/// One copy and its log.
pub(crate) struct Node {
    pub(crate) replica: Replica,
    pub(crate) batches: VecDeque<Batch>,
    pub(crate) start: i64,
    flushed: i64,
    flush_asked: bool,
    epochs: EpochHistory,
    /// See [`LogFacts::dropped_to`].
    pub(crate) dropped_to: i64,
    pub(crate) started_over: usize,
    producers: ProducerStates,
    broker_epoch: i64,
    /// What it waits to append.
    arrived: BTreeMap<Ticket, Vec<Batch>>,
    proposed: BTreeMap<Ticket, Batch>,
    /// Its own session: the leader.
    following: Option<(SessionKey, i32)>,
    followers: BTreeMap<SessionKey, LeaderSession>,
    /// Cuts that were said to reach below the high watermark.
    pub(crate) lost_committed: usize,
    up: bool,
}

/// A follower's session at its leader.
struct LeaderSession {
    who: i32,
    /// The follower's own name of it.
    theirs: SessionKey,
    log_end: Offset,
    /// Once it has begun.
    pump: Option<Pump>,
}

enum Said {
    Open(OpenSession, SessionKey),
    Ack(SessionKey, i64, i64),
    Start(SessionKey, i64),
    Close(SessionKey),
    Answer(SessionKey, SessionAnswer),
    Batches(SessionKey, i64, Vec<Batch>, Marks),
    Marks(SessionKey, Marks),
    Ended(SessionKey),
}

struct Message {
    from: i32,
    to: i32,
    said: Said,
}

/// See the module.
pub(crate) struct World {
    pub(crate) nodes: BTreeMap<i32, Node>,
    pub(crate) state: NewEpoch,
    pub(crate) acknowledged: BTreeMap<u64, bool>,
    /// Answers to requests to delete records.
    pub(crate) deleted: BTreeMap<u64, Result<Offset, DeleteRecordsError>>,
    /// Messages between these, in either direction, stay where they are.
    pub(crate) cut: BTreeSet<(i32, i32)>,
    /// Whether disks finish flushes.
    pub(crate) disks_flush: bool,
    /// Whether the controller takes proposals.
    pub(crate) controller_accepts: bool,
    pub(crate) now: i64,
    config: ReplicaConfig,
    network: VecDeque<Message>,
    next: u64,
}

impl World {
    /// Replicas `1..=count`, none of which leads yet.
    pub(crate) fn new(count: i32, config: ReplicaConfig) -> Self {
        let ids = 1..=count;
        let nodes = ids.clone().map(|id| (id, Node::new(id, config, 1))).collect();
        let state = NewEpoch {
            leader: None,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            replicas: ids.clone().map(NodeId).collect(),
            isr: ids.map(NodeId).collect(),
        };
        Self {
            nodes,
            state,
            acknowledged: BTreeMap::new(),
            deleted: BTreeMap::new(),
            cut: BTreeSet::new(),
            disks_flush: true,
            controller_accepts: true,
            now: 0,
            config,
            network: VecDeque::new(),
            next: 0,
        }
    }

    /// Another leader, with this in-sync set; told to nobody yet.
    pub(crate) fn decide(&mut self, leader: i32, isr: &[i32]) {
        self.state.leader = Some(NodeId(leader));
        self.state.leader_epoch.0 += 1;
        self.state.partition_epoch.0 += 1;
        self.state.isr = isr.iter().copied().map(NodeId).collect();
    }

    /// Another leader that everybody hears of.
    pub(crate) fn elect(&mut self, leader: i32, isr: &[i32]) {
        self.decide(leader, isr);
        self.tell_all();
    }

    pub(crate) fn tell_all(&mut self) {
        for id in self.ids() {
            self.tell(id);
        }
    }

    pub(crate) fn ids(&self) -> Vec<i32> {
        self.nodes.keys().copied().collect()
    }

    /// The metadata reaches a node.
    pub(crate) fn tell(&mut self, id: i32) {
        self.step(id, Input::NewEpoch(self.state.clone()));
    }

    /// A producer wants a record of `id` appended at a node.
    pub(crate) fn produce(&mut self, id: i32, acks: Acks) -> u64 {
        self.next += 1;
        let record = self.next;
        let node = self.node(id);
        let batch = Batch { epoch: node.replica.view().leader_epoch.0, id: record };
        node.proposed.insert(Ticket(record), batch);
        let deadline = Millis(self.now + 1_000_000);
        let proposal = Proposal {
            ticket: Ticket(record),
            acks,
            offsets: 1,
            max_timestamp: 0,
            producer: None,
            has_room: true,
            deadline,
        };
        self.step(id, Input::Propose(proposal));
        record
    }

    /// A client wants everything below an offset gone at a node.
    pub(crate) fn delete(&mut self, id: i32, before: i64) -> u64 {
        self.next += 1;
        let (ticket, deadline) = (Ticket(self.next), Millis(self.now + DELETE_MS));
        self.step(id, Input::DeleteRecords { ticket, before: Some(Offset(before)), deadline });
        ticket.0
    }

    /// Everything that is on its way arrives, flushes end, pauses pass, until nothing moves any more or only the metadata
    /// could help.
    pub(crate) fn settle(&mut self) {
        for _ in 0..PAUSES_MAX {
            while self.deliver_one() || self.flush_one() || self.pump_one() {}
            let deadlines =
                self.nodes.values().filter(|node| node.up).filter_map(|node| node.replica.next_deadline());
            let Some(next) = deadlines.min().filter(|next| next.0 <= self.now + PAUSE_MS_MAX) else { return };
            self.now = self.now.max(next.0);
            for id in self.ids() {
                self.step(id, Input::Tick);
            }
        }
    }

    pub(crate) fn deliver_one(&mut self) -> bool {
        let cut = &self.cut;
        let passes =
            |message: &Message| !cut.contains(&(message.from.min(message.to), message.from.max(message.to)));
        let Some(at) = self.network.iter().position(passes) else { return false };
        let message = self.network.remove(at).unwrap();
        self.arrive(message);
        true
    }

    /// What is on its way between two nodes is lost, and so are their sessions.
    pub(crate) fn break_lane(&mut self, a: i32, b: i32) {
        let between = |from: i32, to: i32| (from.min(to), from.max(to)) == (a.min(b), a.max(b));
        self.network.retain(|message| !between(message.from, message.to));
        for (id, other) in [(a, b), (b, a)] {
            let node = self.node(id);
            if let Some((session, _)) = node.following.take_if(|(_, leader)| *leader == other) {
                self.step(id, Input::SessionLost { session });
            }
            let node = self.node(id);
            let lost: Vec<SessionKey> = node
                .followers
                .iter()
                .filter(|(_, session)| session.who == other)
                .map(|(&key, _)| key)
                .collect();
            for session in lost {
                self.node(id).followers.remove(&session);
                self.step(id, Input::SessionEnded { session });
            }
        }
    }

    /// The machine loses its power: what is not flushed is gone.
    pub(crate) fn crash(&mut self, id: i32) {
        for other in self.ids().into_iter().filter(|&other| other != id) {
            self.break_lane(id, other);
        }
        let config = self.config;
        let node = self.node(id);
        let (kept, start, broker_epoch) = (node.flushed, node.start, node.broker_epoch + 1);
        let dropped_to = node.dropped_to;
        let mut batches = std::mem::take(&mut node.batches);
        batches.truncate((kept - start) as usize);
        let mut epochs = std::mem::take(&mut node.epochs);
        epochs.truncate_from_end(kept);
        let mut replica = Node::new(id, config, broker_epoch);
        replica.replica = Replica::new(NodeId(id), config, Offset(start), Offset(kept), Offset(kept));
        *node = Node { batches, start, flushed: kept, epochs, dropped_to, up: false, ..replica };
    }

    /// It comes back; the metadata is told when the test says so.
    pub(crate) fn start(&mut self, id: i32) {
        self.node(id).up = true;
    }

    pub(crate) fn flush_one(&mut self) -> bool {
        let wants = |(_, node): &(&i32, &Node)| node.up && node.flush_asked;
        let Some((&id, _)) = self.nodes.iter().find(wants).filter(|_| self.disks_flush) else { return false };
        let node = self.node(id);
        node.flush_asked = false;
        node.flushed = node.end();
        let end = Offset(node.flushed);
        self.step(id, Input::Flushed { end });
        true
    }

    /// A leader sends something.
    pub(crate) fn pump_one(&mut self) -> bool {
        for id in self.ids() {
            let node = self.node(id);
            if !node.up {
                continue;
            }
            let view: View = node.replica.view();
            let (start, batches) = (node.start, node.batches.clone());
            let mut found = None;
            for LeaderSession { who, theirs, pump, .. } in node.followers.values_mut() {
                let Some(pump) = pump else { continue };
                match pump.next(&view, 3) {
                    PumpStep::Idle | PumpStep::Over => {}
                    PumpStep::Marks(marks) => found = Some((*who, Said::Marks(*theirs, marks))),
                    PumpStep::Push(push) => {
                        let first = (push.from.0 - start) as usize;
                        let sent: Vec<Batch> =
                            batches.range(first..).take(push.bytes_max as usize).copied().collect();
                        pump.pushed(Offset(push.from.0 + sent.len() as i64), sent.len() as u64, push.marks);
                        found = Some((*who, Said::Batches(*theirs, push.from.0, sent, push.marks)));
                    }
                }
                if found.is_some() {
                    break;
                }
            }
            if let Some((to, said)) = found {
                self.network.push_back(Message { from: id, to, said });
                return true;
            }
        }
        false
    }

    pub(crate) fn node(&mut self, id: i32) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    fn arrive(&mut self, message: Message) {
        let Message { from, to, said } = message;
        if !self.node(to).up {
            return;
        }
        match said {
            Said::Open(open, theirs) => {
                let session = LeaderSession { who: from, theirs, log_end: open.log_end, pump: None };
                self.node(to).followers.insert(open.session, session);
                self.step(to, Input::OpenSession(open));
            }
            Said::Ack(session, appended, flushed) => {
                let (appended, flushed) = (Offset(appended), Offset(flushed));
                self.step(to, Input::FollowerAck(FollowerAck { session, appended, flushed }));
            }
            Said::Start(session, log_start) => {
                let log_start = Offset(log_start);
                self.step(to, Input::FollowerStart { session, log_start });
            }
            Said::Close(session) => {
                self.node(to).followers.remove(&session);
                self.step(to, Input::SessionEnded { session });
            }
            Said::Answer(session, answer) => {
                self.step(to, Input::FromLeader { session, said: FromLeader::Answer(answer) });
            }
            Said::Batches(session, from, batches, marks) => {
                self.next += 1;
                let ticket = Ticket(self.next);
                let epochs = (batches[0].epoch, batches[batches.len() - 1].epoch);
                let said = LeaderBatches {
                    ticket,
                    from: Offset(from),
                    end: Offset(from + batches.len() as i64),
                    first_epoch: LeaderEpoch(epochs.0),
                    last_epoch: LeaderEpoch(epochs.1),
                    marks,
                };
                self.node(to).arrived.insert(ticket, batches);
                self.step(to, Input::FromLeader { session, said: FromLeader::Batches(said) });
                self.node(to).arrived.remove(&ticket);
            }
            Said::Marks(session, marks) => {
                self.step(to, Input::FromLeader { session, said: FromLeader::Marks(marks) });
            }
            Said::Ended(session) => {
                self.node(to).following.take_if(|(own, _)| *own == session);
                self.step(to, Input::SessionLost { session });
            }
        }
    }

    pub(crate) fn step(&mut self, id: i32, input: Input) {
        let now = Millis(self.now);
        let node = self.node(id);
        if !node.up {
            return;
        }
        let log = LogFacts {
            producers: &node.producers,
            epochs: &node.epochs,
            dropped_to: Offset(node.dropped_to),
        };
        for action in node.replica.step(now, log, input) {
            self.perform(id, action);
        }
    }

    fn perform(&mut self, id: i32, action: Action) {
        let node = self.node(id);
        match action {
            Action::Append { ticket, base_offset, leader_epoch } => {
                assert_eq!(base_offset.0, node.end());
                let batch = Batch { epoch: leader_epoch.0, ..node.proposed[&ticket] };
                let end = node.append(&[batch]);
                self.step(id, Input::Appended { end });
            }
            Action::AppendBatches { ticket } => {
                let batches = node.arrived.remove(&ticket).unwrap();
                let end = node.append(&batches);
                self.step(id, Input::Appended { end });
            }
            Action::AssignEpoch { epoch, start } => {
                assert_eq!(start.0, node.end());
                node.epochs.assign(epoch.0, start.0);
            }
            Action::Flush => node.flush_asked = true,
            Action::MoveStart { start } => {
                node.batches.drain(..(start.0 - node.start) as usize);
                node.start = start.0;
                node.epochs.truncate_from_start(start.0);
                self.step(id, Input::StartMoved { start });
            }
            Action::Truncate { to, below_high_watermark } => {
                node.lost_committed += usize::from(below_high_watermark.is_some());
                node.batches.truncate((to.0 - node.start) as usize);
                node.flushed = node.flushed.min(to.0);
                node.epochs.truncate_from_end(to.0);
                self.step(id, Input::Truncated { end: to });
            }
            Action::RestartAt { start, below_high_watermark } => {
                node.lost_committed += usize::from(below_high_watermark.is_some());
                (node.start, node.flushed) = (start.0, start.0);
                node.batches.clear();
                node.epochs = EpochHistory::new();
                node.dropped_to = -1;
                self.step(id, Input::Restarted { start });
            }
            Action::StartOver { start } => {
                node.started_over += 1;
                (node.start, node.flushed, node.dropped_to) = (start.0, start.0, -1);
                node.batches.clear();
                node.epochs = EpochHistory::new();
                self.step(id, Input::Restarted { start });
            }
            Action::NoteDropped { to, .. } => {
                assert!(node.batches.is_empty());
                node.dropped_to = node.dropped_to.max(to.0);
            }
            Action::Reply { ticket, result } => {
                let told = match result {
                    Ok(_) => Some(true),
                    Err(ProduceError::TimedOut | ProduceError::NotLeader) => Some(false),
                    Err(_) => None,
                };
                self.acknowledged.extend(told.map(|told| (ticket.0, told)));
            }
            Action::RecordsDeleted { ticket, result } => {
                self.deleted.insert(ticket.0, result);
            }
            Action::Publish(view) => assert_eq!(view, node.replica.view()),
            Action::OpenSession { leader, session, leader_epoch, log_start, log_end, last_epoch } => {
                node.following = Some((session, leader.0));
                let open = OpenSession {
                    session: SessionKey(
                        id as u64 * 1_000_000 + node.broker_epoch as u64 * 10_000 + session.0,
                    ),
                    from: NodeId(id),
                    broker_epoch: BrokerEpoch(node.broker_epoch),
                    leader_epoch,
                    log_start,
                    log_end,
                    last_epoch,
                };
                self.send(id, leader.0, Said::Open(open, session));
            }
            Action::CloseSession { session } => {
                if let Some((_, leader)) = node.following.take_if(|(own, _)| *own == session) {
                    let key = self.key_of(id, session);
                    self.send(id, leader, Said::Close(key));
                }
            }
            Action::Ack { session, appended, flushed } => {
                let leader = node.following.filter(|(own, _)| *own == session).map(|(_, leader)| leader);
                let key = self.key_of(id, session);
                self.send(id, leader.unwrap(), Said::Ack(key, appended.0, flushed.0));
            }
            Action::TellStart { session, log_start } => {
                let leader = node.following.filter(|(own, _)| *own == session).map(|(_, leader)| leader);
                let key = self.key_of(id, session);
                self.send(id, leader.unwrap(), Said::Start(key, log_start.0));
            }
            Action::AnswerSession { session, answer } => self.answer_session(id, session, answer),
            Action::EndSession { session } => {
                if let Some(session) = node.followers.remove(&session) {
                    self.send(id, session.who, Said::Ended(session.theirs));
                }
            }
            Action::ProposeIsr { leader_epoch, partition_epoch, isr } => {
                let current =
                    (leader_epoch, partition_epoch) == (self.state.leader_epoch, self.state.partition_epoch);
                let outcome = match current && self.controller_accepts {
                    true => {
                        self.state.partition_epoch.0 += 1;
                        self.state.isr = isr.iter().map(|&(node, _)| node).collect();
                        IsrOutcome::Accepted(self.state.clone())
                    }
                    false => IsrOutcome::Refused,
                };
                self.step(id, Input::IsrAnswered(IsrAnswered { leader_epoch, partition_epoch, outcome }));
            }
        }
    }

    fn answer_session(&mut self, id: i32, session: SessionKey, answer: SessionAnswer) {
        let node = self.node(id);
        let epoch = node.replica.view().leader_epoch;
        let Some(asked) = node.followers.get_mut(&session) else { return };
        let (who, theirs) = (asked.who, asked.theirs);
        if answer.begins().is_some() {
            asked.pump = Some(Pump::new(epoch, asked.log_end, CREDIT));
        } else {
            node.followers.remove(&session);
        }
        self.send(id, who, Said::Answer(theirs, answer));
    }

    fn key_of(&mut self, id: i32, session: SessionKey) -> SessionKey {
        let broker_epoch = self.node(id).broker_epoch;
        SessionKey(id as u64 * 1_000_000 + broker_epoch as u64 * 10_000 + session.0)
    }

    fn send(&mut self, from: i32, to: i32, said: Said) {
        self.network.push_back(Message { from, to, said });
    }

    /// Everybody has what the leader has, and knows that it is committed.
    pub(crate) fn check_healed(&self) {
        let leader = &self.nodes[&self.state.leader.unwrap().0];
        for (id, node) in &self.nodes {
            assert_eq!((node.start, &node.batches), (leader.start, &leader.batches), "node {id}");
            assert_eq!(node.replica.view().high_watermark.0, node.end(), "node {id}");
        }
    }

    pub(crate) fn records(&self, id: i32) -> Vec<u64> {
        self.nodes[&id].batches.iter().map(|batch| batch.id).collect()
    }
}

impl Node {
    fn new(id: i32, config: ReplicaConfig, broker_epoch: i64) -> Self {
        Self {
            replica: Replica::new(NodeId(id), config, Offset(0), Offset(0), Offset(0)),
            batches: VecDeque::new(),
            start: 0,
            flushed: 0,
            flush_asked: false,
            epochs: EpochHistory::new(),
            producers: ProducerStates::new(10),
            broker_epoch,
            arrived: BTreeMap::new(),
            proposed: BTreeMap::new(),
            following: None,
            followers: BTreeMap::new(),
            lost_committed: 0,
            dropped_to: -1,
            started_over: 0,
            up: true,
        }
    }

    pub(crate) fn end(&self) -> i64 {
        self.start + self.batches.len() as i64
    }

    pub(crate) fn high_watermark(&self) -> i64 {
        self.replica.view().high_watermark.0
    }

    fn append(&mut self, batches: &[Batch]) -> Offset {
        for batch in batches {
            let base = self.end();
            if self.epochs.epoch_of(base) != Some(batch.epoch) {
                self.epochs.assign(batch.epoch, base);
            }
            self.batches.push_back(*batch);
        }
        Offset(self.end())
    }
}
