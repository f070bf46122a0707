//! A producer with several batches under way, against [`Replica::step`]: whatever is refused for now, in whatever order, it
//! never hears of a gap, and in the end each of its batches is in the log once, and in order.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, VecDeque};

use log_engine_core::{EpochHistory, ProducerBatch, ProducerStates};
use proto_types::ids::{BrokerEpoch, LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use storage_node_core::{
    Acks, Action, FlushMode, FollowerAck, Input, LogFacts, NewEpoch, OpenSession, ProduceError,
    ProducerStamp, Proposal, Replica, ReplicaConfig, SessionKey, Ticket,
};

const ME: i32 = 1;
const OTHER: i32 = 2;
const PRODUCER: i64 = 7;
const BATCHES: usize = 60;
const RECORDS: i32 = 3;
/// No batch is further ahead of the first that is not acknowledged: a log remembers as many.
const IN_FLIGHT_MAX: usize = 5;
const STEPS_MAX: usize = 50_000;

/// What a client does about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// It waits for all answers that are under way, and sends again from the first batch that was refused.
    Drains,
    /// It sends again from there at once, and listens no more to the answers that are under way.
    Rewinds,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    batch: usize,
    /// How often the client had begun again when it sent this.
    round: u32,
    answer: Option<Result<(), ProduceError>>,
}

/// The client and its connection. Answers come in the order of the requests.
struct Client {
    habit: Habit,
    first_sequence: i32,
    acknowledged: Vec<bool>,
    next: usize,
    round: u32,
    drains: bool,
    /// Not read by the node yet.
    on_the_way: VecDeque<Ticket>,
    /// Not answered to the client yet, in order.
    under_way: VecDeque<Ticket>,
    sent: BTreeMap<Ticket, Sent>,
}

struct World {
    seed: u64,
    rng: StdRng,
    replica: Replica,
    producers: ProducerStates,
    epochs: EpochHistory,
    now: i64,
    epoch: i32,
    end: i64,
    has_room: bool,
    calm: bool,
    session: u64,
    /// The first sequence of each batch in the log.
    log: Vec<i32>,
    next_ticket: u64,
    client: Client,
    refusals: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let config = ReplicaConfig {
            min_insync: 2,
            flush: FlushMode::Os,
            waiters_max: rng.random_range(2..6),
            replica_lag_ms_max: 1_000_000,
        };
        // A log that has lost its beginning knows not all of its producers.
        let has_forgotten = rng.random_bool(0.3);
        let end = if has_forgotten { 10 } else { 0 };
        let first_sequence = match (has_forgotten, rng.random_bool(0.5)) {
            (true, _) => 40,
            // Near the end of the sequence space, where only who is known can be.
            (false, true) => i32::MAX - 50,
            (false, false) => 0,
        };
        let mut producers = ProducerStates::new(10);
        if first_sequence > 40 {
            producers.append(&batch(first_sequence - RECORDS, -1));
        }
        let client = Client {
            habit: [Habit::Drains, Habit::Rewinds][rng.random_range(0..2)],
            first_sequence,
            acknowledged: vec![false; BATCHES],
            next: 0,
            round: 0,
            drains: false,
            on_the_way: VecDeque::new(),
            under_way: VecDeque::new(),
            sent: BTreeMap::new(),
        };
        let replica = Replica::new(NodeId(ME), config, Offset(end), Offset(end), Offset(end));
        let epochs = EpochHistory::new();
        let mut world = Self {
            seed,
            rng,
            replica,
            producers,
            epochs,
            now: 10_000,
            epoch: 0,
            end,
            has_room: true,
            calm: false,
            session: 0,
            log: Vec::new(),
            next_ticket: 0,
            client,
            refusals: 0,
        };
        world.elect(ME, 2);
        world
    }

    fn step(&mut self, input: Input) {
        let log = LogFacts { producers: &self.producers, epochs: &self.epochs, dropped_to: Offset(-1) };
        for action in self.replica.step(Millis(self.now), log, input) {
            match action {
                Action::AssignEpoch { epoch, start } => {
                    self.epochs.assign(epoch.0, start.0);
                }
                Action::Append { ticket, base_offset, .. } => self.append(ticket, base_offset.0),
                Action::Reply { ticket, result } => {
                    self.client.sent.get_mut(&ticket).unwrap().answer = Some(result.map(|_| ()));
                }
                _ => {}
            }
        }
    }

    fn append(&mut self, ticket: Ticket, base_offset: i64) {
        if !self.calm && self.rng.random_bool(0.1) {
            return self.step(Input::AppendRefused);
        }
        let sequence = self.client.sequence_of(self.client.sent[&ticket].batch);
        self.end = base_offset + i64::from(RECORDS);
        self.producers.append(&batch(sequence, self.end - 1));
        self.log.push(sequence);
        self.step(Input::Appended { end: Offset(self.end) });
    }

    /// A new leadership: of this node with so many in sync, or of the other one.
    fn elect(&mut self, leader: i32, in_sync: i32) {
        self.epoch += 1;
        self.step(Input::NewEpoch(NewEpoch {
            leader: Some(NodeId(leader)),
            leader_epoch: LeaderEpoch(self.epoch),
            partition_epoch: PartitionEpoch(self.epoch),
            replicas: vec![NodeId(ME), NodeId(OTHER)],
            isr: (1..=in_sync).map(NodeId).collect(),
        }));
        if leader == ME {
            self.session += 1;
            self.step(Input::OpenSession(OpenSession {
                session: SessionKey(self.session),
                from: NodeId(OTHER),
                broker_epoch: BrokerEpoch(1),
                leader_epoch: LeaderEpoch(self.epoch),
                log_start: Offset(self.end),
                log_end: Offset(self.end),
                last_epoch: LeaderEpoch(-1),
            }));
        }
    }

    fn random_step(&mut self) {
        self.now += self.rng.random_range(0..20);
        match self.rng.random_range(0..100) {
            0..35 => self.send(),
            35..65 => self.read(),
            65..85 => self.answer(),
            85..93 => {
                let (session, end) = (SessionKey(self.session), Offset(self.end));
                self.step(Input::FollowerAck(FollowerAck { session, appended: end, flushed: end }));
            }
            93..95 => self.step(Input::Tick),
            _ if self.calm => self.has_room = true,
            95..97 => self.has_room = !self.has_room,
            97 => self.elect(OTHER, 2),
            _ => {
                let in_sync = self.rng.random_range(1..=2);
                self.elect(ME, in_sync);
            }
        }
    }

    /// The client sends the next batch, if it may.
    fn send(&mut self) {
        let client = &mut self.client;
        while client.next < BATCHES && client.acknowledged[client.next] {
            client.next += 1;
        }
        let first = client.acknowledged.iter().position(|&done| !done).unwrap_or(BATCHES);
        if client.drains || client.next >= BATCHES.min(first + IN_FLIGHT_MAX) {
            return;
        }
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        client.sent.insert(ticket, Sent { batch: client.next, round: client.round, answer: None });
        client.on_the_way.push_back(ticket);
        client.under_way.push_back(ticket);
        client.next += 1;
    }

    /// The node reads a request.
    fn read(&mut self) {
        let Some(ticket) = self.client.on_the_way.pop_front() else { return };
        let proposal = Proposal {
            ticket,
            acks: Acks::All,
            offsets: RECORDS,
            max_timestamp: self.now,
            producer: Some(ProducerStamp {
                producer_id: PRODUCER,
                producer_epoch: 0,
                base_sequence: self.client.sequence_of(self.client.sent[&ticket].batch),
                is_transactional: false,
            }),
            has_room: self.has_room,
            deadline: Millis(self.now + self.rng.random_range(1..300)),
        };
        self.step(Input::Propose(proposal));
    }

    /// The client reads an answer.
    fn answer(&mut self) {
        let client = &mut self.client;
        let Some(Sent { batch, round, answer: Some(answer) }) =
            client.under_way.front().map(|ticket| client.sent[ticket])
        else {
            return;
        };
        client.under_way.pop_front();
        match answer {
            Ok(()) => client.acknowledged[batch] = true,
            Err(ProduceError::OutOfOrderSequence { expected, found }) => {
                panic!("seed {}: batch {batch} at {found} hears of a gap at {expected}", self.seed)
            }
            Err(ProduceError::DuplicateTooOld) => {
                panic!("seed {}: batch {batch} was overtaken", self.seed)
            }
            Err(_) if round == client.round => {
                self.refusals += 1;
                match client.habit {
                    Habit::Drains => client.drains = true,
                    Habit::Rewinds => client.begin_again(),
                }
            }
            Err(_) => self.refusals += 1,
        }
        if self.client.drains && self.client.under_way.is_empty() {
            self.client.drains = false;
            self.client.begin_again();
        }
    }
}

impl Client {
    fn sequence_of(&self, batch: usize) -> i32 {
        let offset = i64::from(self.first_sequence) + i64::from(RECORDS) * batch as i64;
        (offset & i64::from(i32::MAX)) as i32
    }

    fn begin_again(&mut self) {
        self.round += 1;
        self.next = 0;
    }
}

fn batch(first_sequence: i32, last_offset: i64) -> ProducerBatch {
    ProducerBatch {
        producer_id: PRODUCER,
        producer_epoch: 0,
        first_sequence,
        offset_delta: RECORDS - 1,
        last_offset,
        timestamp: 0,
        is_transactional: false,
    }
}

#[test]
fn a_pipelining_producer_never_hears_of_a_gap() {
    let mut refusals = 0;
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..600 {
            world.random_step();
        }
        world.calm = true;
        world.elect(ME, 2);
        let mut steps = 0;
        while !world.client.acknowledged.iter().all(|&done| done) {
            world.random_step();
            steps += 1;
            assert!(steps < STEPS_MAX, "seed {seed}: the producer does not get on");
        }
        let expected: Vec<i32> = (0..BATCHES).map(|batch| world.client.sequence_of(batch)).collect();
        assert_eq!(world.log, expected, "seed {seed}: each batch once and in order");
        refusals += world.refusals;
    }
    assert!(refusals > 10_000, "only {refusals} refusals");
}
