//! The world of one run: an event queue over nodes, lanes, the controller and clients, with faults drawn from the seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use controller_core::Chance;
use proto_types::controller_api::Heartbeat;
use proto_types::ids::{BrokerEpoch, LeaderEpoch, MetadataIndex, Millis, NodeId, Offset, PartitionEpoch};
use storage_node_core::{
    Action, Input, IsrOutcome, LogFacts, ProduceError, Produced, Proposal, SessionKey, Ticket,
};

use crate::clients::{Consumer, Producer, Wanted};
use crate::controller::Controller;
use crate::faults::Plan;
use crate::ghost::Ghost;
use crate::log::Batch;
use crate::network::{CONTROLLER, Cuts, Lanes, Side};
use crate::node::{Node, Pending, incarnation};
use crate::sessions::Frame;

/// Faults end here, milliseconds.
pub(crate) const HEAL_AT: i64 = 20_000;
/// Everything must be in order by here.
pub(crate) const END_AT: i64 = HEAL_AT + 60_000;
/// A leader waits so long for the answer to a proposal.
const PROPOSAL_MS: i64 = 500;
/// Events that a failed run shows.
const RECENT: usize = 400;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Boots {
        node: usize,
    },
    Feed {
        node: usize,
        run: u64,
    },
    Beat {
        node: usize,
        run: u64,
    },
    BeatAnswered {
        node: usize,
        run: u64,
        may_stop: bool,
    },
    Registered {
        node: usize,
        run: u64,
        epoch: BrokerEpoch,
    },
    FlushDone {
        node: usize,
        run: u64,
        partition: usize,
        generation: u64,
    },
    Tick {
        node: usize,
        run: u64,
        partition: usize,
    },
    SessionLost {
        node: usize,
        run: u64,
        partition: usize,
        session: SessionKey,
    },
    LaneArrives {
        lane: u64,
        to: Side,
    },
    LaneNoticed {
        lane: u64,
        side: Side,
    },
    FrameAgain {
        node: usize,
        run: u64,
        frame: Frame,
    },
    ColdRead {
        node: usize,
        run: u64,
        partition: usize,
        session: SessionKey,
    },
    Produce {
        node: usize,
        producer: usize,
        number: u64,
        wanted: Wanted,
    },
    ProposalAnswered {
        node: usize,
        run: u64,
        partition: usize,
        number: u64,
        epochs: (LeaderEpoch, PartitionEpoch),
        outcome: IsrOutcome,
    },
    /// From here on: not at a node.
    RegistrationAtController {
        node: usize,
        run: u64,
        unflushed_lost: bool,
    },
    HeartbeatAtController {
        node: usize,
        run: u64,
        heartbeat: Heartbeat,
    },
    ProposalAtController {
        proposal: Box<crate::node::SentProposal>,
    },
    ProducerWakes {
        producer: usize,
    },
    ProduceAnswered {
        producer: usize,
        number: u64,
        result: Result<Produced, ProduceError>,
    },
    /// A node whose log failed is restarted, or one that waits too long for its leave to stop.
    StopsAnyway {
        node: usize,
        run: u64,
    },
    LaneIdle {
        lane: u64,
    },
    ConsumerWakes {
        consumer: usize,
    },
    ControllerLooks,
    Mishap,
    Check,
    Progress,
}

impl Event {
    /// At which node it happens; a paused one comes to it later. And in which run, if it matters.
    fn at_node(&self) -> Option<(usize, Option<u64>)> {
        match self {
            Event::Feed { node, run }
            | Event::Beat { node, run }
            | Event::BeatAnswered { node, run, .. }
            | Event::Registered { node, run, .. }
            | Event::FlushDone { node, run, .. }
            | Event::Tick { node, run, .. }
            | Event::SessionLost { node, run, .. }
            | Event::FrameAgain { node, run, .. }
            | Event::ColdRead { node, run, .. }
            | Event::ProposalAnswered { node, run, .. } => Some((*node, Some(*run))),
            Event::Produce { node, .. } => Some((*node, None)),
            Event::Boots { .. }
            | Event::LaneArrives { .. }
            | Event::LaneNoticed { .. }
            | Event::RegistrationAtController { .. }
            | Event::HeartbeatAtController { .. }
            | Event::ProposalAtController { .. }
            | Event::ProducerWakes { .. }
            | Event::ProduceAnswered { .. }
            | Event::ConsumerWakes { .. }
            | Event::StopsAnyway { .. }
            | Event::LaneIdle { .. }
            | Event::ControllerLooks
            | Event::Mishap
            | Event::Check
            | Event::Progress => None,
        }
    }
}

#[derive(Debug)]
struct Entry(i64, u64, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

pub(crate) struct World {
    pub(crate) rng: Chance,
    pub(crate) plan: Plan,
    pub(crate) now: i64,
    sequence: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    pub(crate) controller: Controller,
    pub(crate) nodes: Vec<Node>,
    pub(crate) lanes: Lanes<Frame>,
    pub(crate) cuts: Cuts,
    pub(crate) producers: Vec<Producer>,
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) ghost: Ghost,
    pub(crate) session_keys: u64,
    pub(crate) incoming: Option<(Ticket, Vec<Batch>)>,
    proposed: Option<Wanted>,
    pub(crate) batch_ids: u64,
    pub(crate) producer_ids: i64,
    pub(crate) healed: bool,
    /// Producers begin nothing new.
    pub(crate) winding_down: bool,
    pub(crate) done_at_heal: Vec<u64>,
    pub(crate) over: bool,
    /// The set whose acceptance is being committed: it may end a reassignment, and one of them lead at once.
    pub(crate) admitting: Vec<NodeId>,
    /// The leader epoch of the session that is being answered at its follower, which may cut its log because of that.
    pub(crate) answering: Option<i32>,
    /// Records were deleted, and with them what is known of producers.
    pub(crate) deleted: bool,
    traced: bool,
    recent: VecDeque<String>,
}

impl World {
    pub(crate) fn new(seed: u64, traced: bool) -> Self {
        let mut rng = Chance::new(u128::from(seed) << 64 | 0x5eed);
        let plan = Plan::draw(&mut rng);
        let mut controller = Controller::new(&plan, seed);
        let incarnations: Vec<_> = (0..plan.nodes).map(|node| incarnation(node, 1)).collect();
        let epochs = controller.begin(&plan, &incarnations);
        let mut nodes: Vec<Node> =
            (0..plan.nodes).map(|node| Node::new(node, rng.below(1_000_000) as i64)).collect();
        for (node, epoch) in nodes.iter_mut().zip(epochs) {
            node.broker_epoch = Some(epoch);
        }
        let producers = (0..plan.producers).map(|id| Producer::new(&mut rng, plan.partitions, id as i64));
        let producers: Vec<_> = producers.collect();
        let consumers = (0..plan.consumers).map(|_| Consumer::new(&mut rng, plan.partitions)).collect();
        let mut world = World {
            rng,
            now: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            controller,
            nodes,
            lanes: Lanes::new(),
            cuts: Cuts::default(),
            producer_ids: producers.len() as i64,
            producers,
            consumers,
            ghost: Ghost::new(plan.partitions),
            session_keys: 0,
            incoming: None,
            proposed: None,
            batch_ids: 0,
            healed: false,
            winding_down: false,
            done_at_heal: Vec::new(),
            over: false,
            admitting: Vec::new(),
            answering: None,
            deleted: false,
            traced,
            recent: VecDeque::new(),
            plan,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            self.after(1, Event::Beat { node, run: 1 });
            self.feed(node);
        }
        for producer in 0..self.producers.len() {
            self.after(20, Event::ProducerWakes { producer });
        }
        for consumer in 0..self.consumers.len() {
            self.after(30, Event::ConsumerWakes { consumer });
        }
        self.after(50, Event::ControllerLooks);
        self.after(300, Event::Mishap);
        self.after(250, Event::Check);
    }

    pub(crate) fn after(&mut self, delay: i64, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse(Entry(self.now + delay, self.sequence, event)));
    }

    /// Whether a fault strikes, of a thousand times.
    pub(crate) fn happens(&mut self, of_thousand: usize) -> bool {
        !self.healed && of_thousand > 0 && self.rng.below(1_000) < of_thousand
    }

    fn transit_time(&mut self) -> i64 {
        let long = self.happens(self.plan.faults.long_delay);
        if long {
            self.rng.below(self.plan.faults.long_delay_ms) as i64
        } else {
            1 + self.rng.below(4) as i64
        }
    }

    /// Time that a call takes one way; `None` if it is lost.
    pub(crate) fn transit(&mut self, from: usize, to: usize) -> Option<i64> {
        if self.happens(self.plan.faults.loss) || self.cuts.until(from, to) > self.now {
            return None;
        }
        Some(self.transit_time())
    }

    /// Time that a frame of a lane takes one way: loss is repaired, and a cut holds it up until it is healed.
    pub(crate) fn transit_lane(&mut self, from: usize, to: usize) -> i64 {
        let repaired = if self.happens(self.plan.faults.loss) { 10 + self.rng.below(30) as i64 } else { 0 };
        let held = (self.cuts.until(from, to) - self.now).max(0);
        held + repaired + self.transit_time()
    }

    /// Runs to the end; panics when a rule is broken.
    pub(crate) fn run(&mut self) {
        while let Some(Reverse(Entry(at, sequence, event))) = self.queue.pop() {
            if at >= HEAL_AT && !self.healed {
                self.now = HEAL_AT;
                self.heal();
            }
            self.now = at;
            if self.traced {
                let fact = format!("{at} {sequence} {event:?}");
                self.note(fact);
            }
            self.happen(event);
            if self.over {
                return;
            }
        }
    }

    pub(crate) fn traced(&self) -> bool {
        self.traced
    }

    pub(crate) fn note(&mut self, fact: String) {
        self.ghost.trace(&fact);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(fact);
    }

    /// What led up to here, for a failed run.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &String> {
        self.recent.iter()
    }

    fn happen(&mut self, event: Event) {
        if let Some((node, run)) = self.node_of(&event) {
            let at = &self.nodes[node];
            if !at.up || run.is_some_and(|run| run != at.run) {
                return;
            }
            if self.now < at.paused_until {
                let delay = at.paused_until - self.now;
                self.after(delay, event);
                return;
            }
        }
        match event {
            Event::Boots { node } => self.boots(node),
            Event::Feed { node, .. } => self.fed(node),
            Event::Beat { node, .. } => self.beat(node),
            Event::BeatAnswered { node, may_stop, .. } => {
                if may_stop && self.nodes[node].stopping {
                    self.stopped(node);
                }
            }
            Event::Registered { node, epoch, .. } => {
                self.nodes[node].broker_epoch = Some(epoch);
                self.nodes[node].unflushed_lost = false;
            }
            Event::FlushDone { node, partition, generation, .. } => {
                self.flush_done(node, partition, generation)
            }
            Event::Tick { node, partition, .. } => self.tick(node, partition),
            Event::SessionLost { node, partition, session, .. } => {
                self.step(node, partition, Input::SessionLost { session });
            }
            Event::LaneArrives { lane, to } => self.lane_arrives(lane, to),
            Event::LaneNoticed { lane, side } => self.lane_noticed(lane, side),
            Event::FrameAgain { node, frame, .. } => self.frame_again(node, frame),
            Event::ColdRead { node, partition, session, .. } => {
                self.cold_read(node, partition, session);
            }
            Event::Produce { node, producer, number, wanted } => self.produce(node, producer, number, wanted),
            Event::ProposalAnswered { node, partition, number, epochs, outcome, .. } => {
                self.proposal_answered(node, partition, number, epochs, outcome);
            }
            Event::RegistrationAtController { node, run, unflushed_lost } => {
                self.registration_at_controller(node, run, unflushed_lost);
            }
            Event::HeartbeatAtController { node, run, heartbeat } => {
                self.heartbeat_at_controller(node, run, &heartbeat);
            }
            Event::ProposalAtController { proposal } => self.proposal_at_controller(*proposal),
            Event::ProducerWakes { producer } => self.producer_wakes(producer),
            Event::ProduceAnswered { producer, number, result } => {
                self.produce_answered(producer, number, result);
            }
            Event::ConsumerWakes { consumer } => self.consumer_wakes(consumer),
            Event::StopsAnyway { node, run } => {
                if self.nodes[node].run == run && !self.healed {
                    self.dies(node, false, 200);
                }
            }
            Event::LaneIdle { lane } => self.break_lane(lane),
            Event::ControllerLooks => self.controller_looks(),
            Event::Mishap => self.mishap(),
            Event::Check => {
                self.check_logs();
                self.after(250, Event::Check);
            }
            Event::Progress => self.look_for_progress(),
        }
    }

    fn node_of(&mut self, event: &Event) -> Option<(usize, Option<u64>)> {
        let (lane, side) = match event {
            Event::LaneArrives { lane, to } => (*lane, *to),
            Event::LaneNoticed { lane, side } => (*lane, *side),
            event => return event.at_node(),
        };
        let lane = self.lanes.get(lane)?;
        let (node, run) = match side {
            Side::Follower => (lane.follower, lane.follower_run),
            Side::Leader => (lane.leader, lane.leader_run),
        };
        // Of a process that is gone the lane itself must still be cleared away.
        (self.nodes[node].up && self.nodes[node].run == run).then_some((node, None))
    }

    /// The replica takes an input, and the shell does what it says.
    pub(crate) fn step(&mut self, node: usize, partition: usize, input: Input) {
        let owner = &mut self.nodes[node];
        let now = Millis(self.now + owner.clock);
        let Some(copy) = owner.copies.get_mut(&partition) else { return };
        let Some(live) = &mut copy.live else { return };
        let text = self.traced.then(|| format!("  node {node} partition {partition}: {input:?}"));
        let facts =
            LogFacts { producers: &copy.log.producers, epochs: &copy.log.epochs, dropped_to: Offset(-1) };
        let actions = live.replica.step(now, facts, input);
        if let Some(text) = text {
            self.note(format!("{text}\n     → {actions:?}"));
        }
        for action in actions {
            self.act(node, partition, action);
        }
        self.schedule_tick(node, partition);
    }

    fn schedule_tick(&mut self, node: usize, partition: usize) {
        let now = self.now;
        let owner = &mut self.nodes[node];
        let (clock, run) = (owner.clock, owner.run);
        let Some(live) = owner.live(partition) else { return };
        let due = live.replica.next_deadline().map(|at| (at.0 - clock).max(now + 1));
        if let Some(at) = due
            && live.tick_at.is_none_or(|planned| at < planned)
        {
            live.tick_at = Some(at);
            self.after(at - now, Event::Tick { node, run, partition });
        }
    }

    fn tick(&mut self, node: usize, partition: usize) {
        let now = self.now;
        let Some(live) = self.nodes[node].live(partition) else { return };
        if live.tick_at.is_some_and(|at| at <= now) {
            live.tick_at = None;
            self.step(node, partition, Input::Tick);
        }
    }

    fn act(&mut self, node: usize, partition: usize, action: Action) {
        match action {
            Action::Append { base_offset, leader_epoch, .. } => {
                let input = self.append(node, partition, base_offset, leader_epoch);
                self.step(node, partition, input);
            }
            Action::AppendBatches { ticket } => {
                let input = self.append_batches(node, partition, ticket);
                self.step(node, partition, input);
            }
            Action::AssignEpoch { epoch, start } => self.leader_begins(node, partition, epoch.0, start),
            Action::Flush => self.flush(node, partition),
            Action::MoveStart { .. } if self.happens(self.plan.faults.append_refused) => {
                self.ghost.mark("move of the start refused");
                self.step(node, partition, Input::StartRefused);
            }
            Action::MoveStart { start } => {
                self.start_moves(node, partition, start);
                self.copy(node, partition).log.set_start(start.0);
                self.ghost.mark("start moved");
                self.step(node, partition, Input::StartMoved { start });
            }
            Action::Truncate { to, below_high_watermark } => {
                self.truncates(node, partition, to, below_high_watermark);
                let end = Offset(self.copy(node, partition).log.truncate(to.0));
                self.step(node, partition, Input::Truncated { end });
            }
            Action::RestartAt { start, below_high_watermark } => {
                self.truncates(node, partition, start, below_high_watermark);
                self.copy(node, partition).log.restart_at(start.0);
                self.ghost.mark("log dropped and begun anew");
                self.step(node, partition, Input::Restarted { start });
            }
            Action::StartOver { .. } | Action::NoteDropped { .. } => {
                panic!("no log is compacted here: {action:?}")
            }
            Action::Reply { ticket, result } => self.reply(node, partition, ticket, result),
            Action::RecordsDeleted { ticket, result } => {
                self.records_deleted(node, partition, ticket, result);
            }
            Action::Publish(view) => {
                self.published(node, partition, view);
                self.run_pumps(node, partition);
            }
            Action::OpenSession { leader, session, leader_epoch, log_start, log_end, last_epoch } => {
                let log = (log_start, log_end, last_epoch);
                self.open_session(node, partition, leader, session, leader_epoch, log);
            }
            Action::CloseSession { session } => self.close_session(node, partition, session),
            Action::Ack { session, appended, flushed } => {
                self.ack(node, partition, session, appended, flushed)
            }
            Action::TellStart { session, log_start } => {
                self.tell_start(node, partition, session, log_start);
            }
            Action::AnswerSession { session, answer } => {
                self.answer_session(node, partition, session, answer)
            }
            Action::EndSession { session } => self.end_session(node, partition, session),
            Action::ProposeIsr { leader_epoch, partition_epoch, isr } => {
                self.propose(node, partition, leader_epoch, partition_epoch, isr);
            }
        }
    }

    fn append(&mut self, node: usize, partition: usize, base: Offset, epoch: LeaderEpoch) -> Input {
        let wanted = self.proposed.take().expect("only a proposal leads to an append");
        if self.happens(self.plan.faults.append_refused) {
            self.ghost.mark("append refused");
            return Input::AppendRefused;
        }
        self.check_writer(node, partition, epoch.0);
        self.batch_ids += 1;
        let end = base.0 + i64::from(wanted.records);
        let batch = Batch {
            base: base.0,
            end,
            epoch: epoch.0,
            id: self.batch_ids,
            producer: wanted.stamp,
            timestamp: self.now,
            bytes: wanted.bytes,
        };
        self.copy(node, partition).log.append(batch);
        self.ghost.mark("appended");
        Input::Appended { end: Offset(end) }
    }

    fn append_batches(&mut self, node: usize, partition: usize, ticket: Ticket) -> Input {
        let batches = self.take_incoming(ticket);
        if self.happens(self.plan.faults.append_refused) {
            self.ghost.mark("append of a follower refused");
            return Input::AppendRefused;
        }
        let log = &mut self.copy(node, partition).log;
        batches.into_iter().for_each(|batch| log.append(batch));
        Input::Appended { end: Offset(log.end()) }
    }

    fn flush(&mut self, node: usize, partition: usize) {
        let run = self.nodes[node].run;
        let generation = self.copy(node, partition).log.begin_flush();
        let slow = self.happens(self.plan.faults.slow_flush);
        let delay = if slow { self.rng.below(400) } else { self.rng.below(12) } as i64;
        self.after(delay, Event::FlushDone { node, run, partition, generation });
    }

    fn flush_done(&mut self, node: usize, partition: usize, generation: u64) {
        let Some(copy) = self.nodes[node].copies.get_mut(&partition) else { return };
        let Some(end) = copy.log.finish_flush(generation) else { return };
        self.step(node, partition, Input::Flushed { end: Offset(end) });
    }

    fn produce(&mut self, node: usize, producer: usize, number: u64, wanted: Wanted) {
        let now = self.now;
        let acks = self.producers[producer].acks;
        let owner = &mut self.nodes[node];
        let (ticket, clock) = (owner.ticket(), owner.clock);
        let Some(live) = owner.live(wanted.partition) else {
            self.answer_producer(producer, number, Err(ProduceError::NotLeader));
            return;
        };
        live.pending.insert(ticket, Pending::Produce { producer, number, acks });
        let proposal = Proposal {
            ticket,
            acks,
            offsets: wanted.records,
            max_timestamp: now,
            producer: wanted.stamp,
            has_room: true,
            deadline: Millis(now + clock + 400),
        };
        self.proposed = Some(wanted);
        self.step(node, wanted.partition, Input::Propose(proposal));
        self.proposed = None;
    }

    fn reply(
        &mut self,
        node: usize,
        partition: usize,
        ticket: Ticket,
        result: Result<Produced, ProduceError>,
    ) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let pending = live.pending.remove(&ticket);
        let Some(Pending::Produce { producer, number, acks }) = pending else {
            panic!("C5: answered twice, or somebody who did not ask: {ticket:?}")
        };
        if let Ok(produced) = &result {
            self.acknowledged(node, partition, acks, produced);
        }
        self.answer_producer(producer, number, result);
    }

    pub(crate) fn answer_producer(
        &mut self,
        producer: usize,
        number: u64,
        result: Result<Produced, ProduceError>,
    ) {
        // Clients are nowhere in the table of cuts.
        if !self.happens(self.plan.faults.loss) {
            let delay = self.transit_time();
            self.after(delay, Event::ProduceAnswered { producer, number, result });
        }
    }

    pub(crate) fn send_to_node(&mut self, event: Event) {
        if !self.happens(self.plan.faults.loss) {
            let delay = self.transit_time();
            self.after(delay, event);
        }
    }

    fn propose(
        &mut self,
        node: usize,
        partition: usize,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        isr: Vec<(NodeId, BrokerEpoch)>,
    ) {
        let owner = &mut self.nodes[node];
        owner.next_proposal += 1;
        let (run, number) = (owner.run, owner.next_proposal);
        let broker_epoch = owner.broker_epoch.expect("a node that leads is registered");
        let live = owner.live(partition).expect("it has just asked");
        live.proposing.push(number);
        let epochs = (leader_epoch, partition_epoch);
        let unknown = IsrOutcome::Unknown;
        self.after(
            PROPOSAL_MS,
            Event::ProposalAnswered { node, run, partition, number, epochs, outcome: unknown },
        );
        let Some(delay) = self.transit(node, CONTROLLER) else { return };
        let twice = self.happens(self.plan.faults.duplicate);
        let proposal =
            crate::node::SentProposal { node, run, partition, number, broker_epoch, epochs, isr, twice };
        if twice {
            let delay = delay + self.rng.below(1_500) as i64;
            self.after(delay, Event::ProposalAtController { proposal: Box::new(proposal.clone()) });
        }
        self.after(delay, Event::ProposalAtController { proposal: Box::new(proposal) });
    }

    fn beat(&mut self, node: usize) {
        let owner = &self.nodes[node];
        let run = owner.run;
        let event = match owner.broker_epoch {
            None => {
                let unflushed_lost = owner.unflushed_lost;
                Event::RegistrationAtController { node, run, unflushed_lost }
            }
            Some(broker_epoch) => {
                let heartbeat = Heartbeat {
                    node: owner.id(),
                    broker_epoch,
                    applied: MetadataIndex(if owner.open { owner.applied } else { 0 }),
                    stopping: owner.stopping,
                    healthy: owner.healthy,
                };
                Event::HeartbeatAtController { node, run, heartbeat }
            }
        };
        if let Some(delay) = self.transit(node, CONTROLLER) {
            self.after(delay, event);
        }
        let pause = self.plan.session_ms as i64 / 8;
        self.after(pause, Event::Beat { node, run });
    }

    pub(crate) fn copy(&mut self, node: usize, partition: usize) -> &mut crate::node::Copy {
        self.nodes[node].copies.get_mut(&partition).expect("the copy acts")
    }

    /// The run, in a form that a person can look at.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{:?}\n", self.plan);
        for partition in 0..self.plan.partitions {
            let ghost = &self.ghost.partitions[partition];
            let (first, high_watermark, sure) = (ghost.first, ghost.high_watermark, ghost.sure);
            let state = self.controller.partition(partition);
            text += &format!(
                "partition {partition}: committed {first}..{high_watermark} sure {sure} {state:?}\n"
            );
            for node in &self.nodes {
                let Some(copy) = node.copies.get(&partition) else { continue };
                let log = &copy.log;
                let view = copy.live.as_ref().map(|live| live.view);
                text += &format!(
                    "  node {}: up {} run {} epoch {:?} open {} applied {} [{}..{}..{}] reconciled {} {:?} {view:?}\n",
                    node.number,
                    node.up,
                    node.run,
                    node.broker_epoch,
                    node.open,
                    node.applied,
                    log.start,
                    log.flushed,
                    log.end(),
                    copy.reconciled,
                    log.epochs.entries(),
                );
            }
        }
        for node in &self.nodes {
            let known = self.controller.state().nodes().get(node.id());
            let known = known.map(|known| (known.registration.broker_epoch, known.fenced));
            text += &format!(
                "node {}: up {} paused until {} controller's {known:?}\n",
                node.number, node.up, node.paused_until
            );
        }
        text
    }
}
