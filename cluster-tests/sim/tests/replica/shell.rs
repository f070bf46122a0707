//! What a node does beside replication: it boots, registers, follows the metadata, answers clients and stops.

use proto_types::controller_api::{AlterPartition, Heartbeat, ProposedIsr};
use proto_types::ids::{BrokerEpoch, LeaderEpoch, Offset, PartitionEpoch};
use proto_types::metadata::PartitionState;
use storage_node_core::{
    Acks, FlushMode, Input, IsrAnswered, IsrOutcome, NewEpoch, ProduceError, Produced, Replica,
    ReplicaConfig, View,
};

use crate::clients::{KnownLeader, Verdict, Wanted};
use crate::controller::Committed;
use crate::network::CONTROLLER;
use crate::node::{Copy, Live, Pending, SentProposal};
use crate::world::{Event, World};
use controller_core::{ClusterState, plan};
use proto_types::config_schema::integer;

/// Producers that may wait at one partition.
const WAITERS_MAX: usize = 8;

pub(crate) fn new_epoch(state: &PartitionState) -> NewEpoch {
    NewEpoch {
        leader: state.leader,
        leader_epoch: state.leader_epoch,
        partition_epoch: state.partition_epoch,
        replicas: state.replicas.clone(),
        isr: state.isr.clone(),
    }
}

impl World {
    /// Something was committed: the nodes will hear of it, and the rules look at it now.
    pub(crate) fn committed(&mut self, committed: Option<Committed>) {
        let Some(committed) = committed else { return };
        if self.traced() {
            self.note(format!("  committed {}: {:?}", committed.index, committed.partitions));
        }
        for (partition, before, after) in &committed.partitions {
            self.partition_changed(*partition, before.as_ref(), after);
        }
        for node in 0..self.nodes.len() {
            self.feed(node);
        }
    }

    /// A delivery of metadata to the node sets out, unless one is under way.
    pub(crate) fn feed(&mut self, node: usize) {
        let cut = self.cuts.until(CONTROLLER, node) - self.now;
        let late = self.happens(self.plan.faults.feed_delay);
        let delay = if late { self.rng.below(1_000) } else { 1 + self.rng.below(5) } as i64;
        let owner = &mut self.nodes[node];
        if owner.feeding || !owner.up || owner.applied >= self.controller.index() {
            return;
        }
        owner.feeding = true;
        let run = owner.run;
        self.after(cut.max(0) + delay, Event::Feed { node, run });
    }

    pub(crate) fn fed(&mut self, node: usize) {
        self.nodes[node].feeding = false;
        let newest = self.controller.index();
        let applied = self.nodes[node].applied;
        if applied == newest {
            return;
        }
        let snapshot = applied == 0 || self.happens(self.plan.faults.snapshot);
        let index = if !snapshot {
            applied + 1
        } else if self.healed || self.rng.below(2) == 0 {
            newest
        } else {
            // Of a controller that lags itself.
            (applied + 1).max(newest.saturating_sub(self.rng.below(20) as u64))
        };
        if index > applied + 1 && applied > 0 {
            self.ghost.mark("metadata skipped");
        }
        self.apply(node, index);
        self.feed(node);
    }

    fn apply(&mut self, node: usize, index: u64) {
        let state = self.controller.state_at(index).clone();
        let owner = &mut self.nodes[node];
        owner.applied = index;
        let own = state.nodes().get(owner.id());
        // Planted: an earlier incarnation's leadership is taken for one's own.
        let own = own.is_some_and(|own| own.registration.incarnation == owner.incarnation());
        owner.open |= own || cfg!(weir_planted_bug = "B9");
        if !owner.open {
            return;
        }
        for partition in 0..self.plan.partitions {
            if let Some(state_of) = state.partitions().get(self.controller.at(partition)) {
                self.apply_partition(node, partition, &state, state_of);
            }
        }
    }

    fn apply_partition(&mut self, node: usize, partition: usize, state: &ClusterState, new: &PartitionState) {
        let id = self.nodes[node].id();
        if !new.replicas.contains(&id) {
            self.drop_copy(node, partition);
            return;
        }
        let config = self.config(state);
        let copy = self.nodes[node].copies.entry(partition).or_insert_with(Copy::new);
        if copy.live.is_none() {
            let (start, flushed, end) = (copy.log.start, copy.log.flushed, copy.log.end());
            let replica = Replica::new(id, config, Offset(start), Offset(flushed), Offset(end));
            let view = replica.view();
            copy.live = Some(Live::new(replica, view, config));
        }
        let live = copy.live.as_mut().expect("just opened");
        let before = std::mem::replace(&mut live.config, config);
        if before != config {
            self.ghost.mark("config changed");
            self.step(node, partition, Input::ConfigChanged(before.stricter(&config)));
        }
        self.step(node, partition, Input::NewEpoch(new_epoch(new)));
        if before != config {
            self.step(node, partition, Input::ConfigChanged(config));
        }
    }

    fn config(&self, state: &ClusterState) -> ReplicaConfig {
        let value = |name: &str| state.configs().topic_value(self.controller.topic, name);
        let min_insync = value("min.insync.replicas").and_then(integer).unwrap_or(1);
        ReplicaConfig {
            min_insync: min_insync as usize,
            flush: if value("weir.flush") == Some("os") { FlushMode::Os } else { FlushMode::Ack },
            waiters_max: WAITERS_MAX,
            replica_lag_ms_max: self.plan.lag_max_ms,
        }
    }

    /// The node holds no replica any more: its sessions end, its log goes.
    fn drop_copy(&mut self, node: usize, partition: usize) {
        let Some(live) = self.nodes[node].live(partition) else {
            self.nodes[node].copies.remove(&partition);
            return;
        };
        let followed: Vec<_> = live.following.iter().map(|following| following.session).collect();
        let led: Vec<_> = live.leading.iter().map(|leading| leading.key).collect();
        for session in followed {
            self.close_session(node, partition, session);
        }
        for key in led {
            self.end_session(node, partition, key);
        }
        self.ghost.mark("replica dropped");
        self.forget_waiting(node, partition);
        self.nodes[node].copies.remove(&partition);
    }

    /// Whoever waits at a copy that is closed is told to go elsewhere.
    fn forget_waiting(&mut self, node: usize, partition: usize) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        for (_, pending) in std::mem::take(&mut live.pending) {
            if let Pending::Produce { producer, number, .. } = pending {
                self.answer_producer(producer, number, Err(ProduceError::NotLeader));
            }
        }
    }

    pub(crate) fn boots(&mut self, node: usize) {
        let owner = &mut self.nodes[node];
        if owner.up {
            return;
        }
        owner.up = true;
        owner.run += 1;
        owner.paused_until = 0;
        owner.broker_epoch = None;
        owner.applied = 0;
        owner.feeding = false;
        owner.open = false;
        owner.stopping = false;
        owner.healthy = true;
        let run = owner.run;
        self.nodes[node].clock = self.rng.below(1_000_000) as i64;
        self.after(1, Event::Beat { node, run });
        self.feed(node);
    }

    /// The process ends. `losing`: the machine does, and what was not synced may be gone.
    pub(crate) fn dies(&mut self, node: usize, losing: bool, away: i64) {
        let owner = &mut self.nodes[node];
        if !owner.up {
            return;
        }
        owner.up = false;
        if losing {
            owner.lost_in = owner.run;
            owner.unflushed_lost = true;
        }
        for (partition, copy) in &mut owner.copies {
            copy.live = None;
            // Where a log begins, its high watermark is at least, also where an unclean leader has less.
            let unclean = self.ghost.partitions[*partition].unclean_epoch >= 0;
            copy.shown = if unclean { copy.log.start } else { -1 };
            let before = copy.log.end();
            copy.log.crash(&mut self.rng, losing);
            if copy.log.end() < before {
                self.ghost.mark("unsynced records lost");
            }
        }
        for lane in self.lanes.alive(|lane| lane.follower == node || lane.leader == node) {
            self.break_lane(lane);
        }
        self.after(away, Event::Boots { node });
        for partition in 0..self.plan.partitions {
            self.check_eligible(partition);
        }
    }

    /// The controller lets a stopping node go.
    pub(crate) fn stopped(&mut self, node: usize) {
        self.ghost.mark("clean stop");
        let partitions: Vec<usize> = self.nodes[node].copies.keys().copied().collect();
        for partition in partitions {
            self.forget_waiting(node, partition);
        }
        let away = 50 + self.rng.below(1_500) as i64;
        self.dies(node, false, away);
    }

    pub(crate) fn registration_at_controller(&mut self, node: usize, run: u64, unflushed_lost: bool) {
        let incarnation = crate::node::incarnation(node, run);
        if self.nodes[node].run != run {
            // An old process cannot speak any more; what it said late would look like a newer one's.
            return;
        }
        let now = self.now;
        let known = self.controller.state().nodes().get(self.nodes[node].id());
        let (before, again) = known.map_or((BrokerEpoch(-1), false), |known| {
            (known.registration.broker_epoch, known.registration.incarnation == incarnation)
        });
        let (epoch, committed) =
            self.controller.register(now, node, incarnation, unflushed_lost).expect("a node may come back");
        let right = if again { epoch == before } else { epoch > before };
        assert!(right, "R6: node {node} was registered as {before} and is as {epoch}");
        self.nodes[node].registered_run = run;
        if unflushed_lost && !again {
            self.registered_after_loss(node);
        }
        self.committed(committed);
        if let Some(delay) = self.transit(CONTROLLER, node) {
            self.after(delay, Event::Registered { node, run, epoch });
        }
    }

    pub(crate) fn heartbeat_at_controller(&mut self, node: usize, run: u64, heartbeat: &Heartbeat) {
        let now = self.now;
        // A heartbeat of an earlier registration is refused, and nobody hears the refusal.
        let Ok((reply, committed)) = self.controller.beat(now, heartbeat) else { return };
        self.committed(committed);
        if let Some(delay) = self.transit(CONTROLLER, node) {
            self.after(delay, Event::BeatAnswered { node, run, may_stop: reply.may_stop });
        }
    }

    pub(crate) fn controller_looks(&mut self) {
        let now = self.now;
        for verdict in self.controller.expired(now) {
            self.ghost.mark("session ran out");
            let committed = self.controller.carry_out(verdict);
            self.committed(committed);
        }
        // What a feed has not brought, because the node was cut off, it brings later.
        for node in 0..self.nodes.len() {
            self.feed(node);
        }
        self.after(50, Event::ControllerLooks);
    }

    pub(crate) fn proposal_at_controller(&mut self, sent: SentProposal) {
        let SentProposal { node, run, partition, number, broker_epoch, epochs, isr, twice } = sent;
        let (leader_epoch, partition_epoch) = epochs;
        let at = self.controller.at(partition);
        let proposed = ProposedIsr { partition: at, leader_epoch, partition_epoch, isr: isr.clone() };
        let leader = proto_types::ids::NodeId(node as i32);
        let request = AlterPartition { node: leader, broker_epoch, partitions: vec![proposed] };
        let decision = plan::alter_partition(self.controller.state(), &request, &self.controller.inputs);
        let result = decision.and_then(|mut decision| {
            let committed = self.controller.commit(&decision.changes);
            if committed.is_some() {
                self.check_admitted(partition, &isr);
            }
            self.admitting = isr.iter().map(|(node, _)| *node).collect();
            self.committed(committed);
            self.admitting.clear();
            decision.reply.remove(0)
        });
        let outcome = match result {
            Ok(state) => {
                self.ghost.mark("in-sync set accepted");
                IsrOutcome::Accepted(new_epoch(&state))
            }
            // The other copy may be on its way.
            Err(_) if twice => IsrOutcome::Unknown,
            Err(rejection) => {
                self.ghost.mark("in-sync set refused");
                if self.traced() {
                    self.note(format!("  refused: {rejection:?}"));
                }
                IsrOutcome::Refused
            }
        };
        if let Some(delay) = self.transit(CONTROLLER, node) {
            self.after(delay, Event::ProposalAnswered { node, run, partition, number, epochs, outcome });
        }
    }

    pub(crate) fn proposal_answered(
        &mut self,
        node: usize,
        partition: usize,
        number: u64,
        epochs: (LeaderEpoch, PartitionEpoch),
        outcome: IsrOutcome,
    ) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let Some(at) = live.proposing.iter().position(|proposing| *proposing == number) else { return };
        live.proposing.remove(at);
        if outcome == IsrOutcome::Unknown {
            self.ghost.mark("outcome of a proposal unknown");
        }
        let (leader_epoch, partition_epoch) = epochs;
        let answered = IsrAnswered { leader_epoch, partition_epoch, outcome };
        self.step(node, partition, Input::IsrAnswered(answered));
    }

    /// Who leads, as some node sees it.
    fn ask_metadata(&mut self, partition: usize) -> Option<KnownLeader> {
        let node = self.rng.below(self.nodes.len());
        let asked = &self.nodes[node];
        if !asked.up || asked.paused_until > self.now || asked.applied == 0 {
            return None;
        }
        let state = self.controller.state_at(asked.applied);
        let known = state.partitions().get(self.controller.at(partition))?;
        Some(KnownLeader {
            epoch: known.leader_epoch.0,
            leader: known.leader.map(|leader| leader.0 as usize),
        })
    }

    pub(crate) fn producer_wakes(&mut self, number: usize) {
        let pause = 1 + self.rng.below(self.producers[number].pause_ms) as i64;
        self.after(pause, Event::ProducerWakes { producer: number });
        let wanted = match self.producers[number].outstanding {
            Some(outstanding) if self.now < outstanding.deadline => return,
            Some(outstanding) => outstanding.wanted,
            None if self.winding_down => return,
            None => self.producers[number].next_batch(&mut self.rng, self.plan.partitions),
        };
        if let Some(known) = self.ask_metadata(wanted.partition) {
            self.producers[number].learn(wanted.partition, known);
        }
        self.send_batch(number, wanted);
    }

    fn send_batch(&mut self, number: usize, wanted: Wanted) {
        let producer = &mut self.producers[number];
        // Without a leader it asks again soon.
        let patience = if producer.known[wanted.partition].leader.is_some() { 600 } else { 50 };
        let deadline = self.now + patience;
        let request = producer.sent(wanted, deadline);
        if let Some(node) = producer.known[wanted.partition].leader {
            self.send_to_node(Event::Produce { node, producer: number, number: request, wanted });
        }
    }

    pub(crate) fn produce_answered(
        &mut self,
        number: usize,
        request: u64,
        result: Result<Produced, ProduceError>,
    ) {
        let producer = &mut self.producers[number];
        let Some(outstanding) = producer.outstanding.filter(|outstanding| outstanding.number == request)
        else {
            return;
        };
        if let Err(error) = &result {
            self.ghost.mark(crate::rules::mark_of(error));
        } else if result.as_ref().is_ok_and(|produced| produced.duplicate_of.is_some()) {
            self.ghost.mark("repetition recognised");
        }
        let producer = &mut self.producers[number];
        match producer.answered(&outstanding.wanted, result) {
            Verdict::Done => {}
            Verdict::Again => {
                // Asked again when it wakes.
                if let Some(outstanding) = &mut producer.outstanding {
                    outstanding.deadline = self.now + 20;
                }
            }
            Verdict::Gap => {
                self.check_gap(outstanding.wanted.partition);
                self.producer_ids += 1;
                let fresh = self.producer_ids;
                self.producers[number].begin_anew(fresh);
            }
        }
    }

    pub(crate) fn consumer_wakes(&mut self, number: usize) {
        let pause = 1 + self.rng.below(self.consumers[number].pause_ms) as i64;
        self.after(pause, Event::ConsumerWakes { consumer: number });
        let partition = self.rng.below(self.plan.partitions);
        let node = if self.consumers[number].anywhere {
            self.rng.below(self.nodes.len())
        } else {
            match self.ask_metadata(partition).and_then(|known| known.leader) {
                Some(leader) => leader,
                None => return,
            }
        };
        if self.nodes[node].up && self.nodes[node].paused_until <= self.now {
            self.consume(number, node, partition);
        }
    }
}

impl Live {
    fn new(replica: Replica, view: View, config: ReplicaConfig) -> Self {
        Live {
            replica,
            view,
            config,
            pending: Default::default(),
            following: Vec::new(),
            leading: Vec::new(),
            tick_at: None,
            cut_below: false,
            proposing: Vec::new(),
        }
    }
}

/// Whether a producer's answer is a promise.
pub(crate) fn is_promise(acks: Acks) -> bool {
    match acks {
        Acks::All => true,
        Acks::None | Acks::Leader => false,
    }
}
