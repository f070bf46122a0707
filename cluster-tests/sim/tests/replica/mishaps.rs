//! What goes wrong, and what operators do meanwhile.

use controller_core::plan;
use proto_types::controller_api::{
    AlterConfigs, AlterReassignments, AlterResource, ConfigOp, ConfigOpKind, ElectLeaders, ElectionKind,
    Reassignment, ResourceRef,
};
use proto_types::ids::{Millis, NodeId, Offset, PartitionIndex};
use storage_node_core::{Input, Standing};

use crate::faults::Mishap;
use crate::network::CONTROLLER;
use crate::node::Pending;
use crate::world::{Event, World};

impl World {
    pub(crate) fn mishap(&mut self) {
        if self.healed {
            return;
        }
        let pause = 1 + self.rng.below(2 * self.plan.faults.mishap_ms) as i64;
        self.after(pause, Event::Mishap);
        let node = self.rng.below(self.nodes.len());
        let partition = self.rng.below(self.plan.partitions);
        match self.plan.faults.pick(&mut self.rng) {
            Mishap::Crash => self.crash(node),
            Mishap::CrashAll => self.crash_all(),
            Mishap::Stop => {
                if self.nodes[node].up {
                    self.nodes[node].stopping = true;
                    // It does not wait for ever.
                    let run = self.nodes[node].run;
                    self.after(3_000, Event::StopsAnyway { node, run });
                }
            }
            Mishap::Pause => {
                let until = self.now + self.rng.below(500 + 2 * self.plan.session_ms as usize) as i64;
                self.nodes[node].paused_until = until.max(self.nodes[node].paused_until);
                self.ghost.mark("paused");
            }
            Mishap::Cut => self.cut(true),
            Mishap::CutOneWay => self.cut(false),
            Mishap::BreakLane => {
                let alive = self.lanes.alive(|_| true);
                if !alive.is_empty() {
                    let lane = alive[self.rng.below(alive.len())];
                    self.break_lane(lane);
                }
            }
            Mishap::LogFails => self.log_fails(node, partition),
            Mishap::DeleteRecords => self.delete_records(partition),
            Mishap::Expire => self.expire(node, partition),
            Mishap::Reassign => self.reassign(partition),
            Mishap::Elect => self.elect(partition, ElectionKind::Preferred),
            Mishap::UncleanElection => self.elect(partition, ElectionKind::Unclean),
            Mishap::ControllerMoves => {
                let now = self.now;
                self.controller.move_leadership(now);
                self.ghost.mark("controller moved");
            }
            Mishap::ConfigChange => self.change_config(),
            Mishap::FenceNode => self.fence(node),
        }
    }

    fn crash(&mut self, node: usize) {
        let losing = self.rng.below(3) > 0;
        let away = 20 + self.rng.below(3_000) as i64;
        self.ghost.mark(if losing { "power lost" } else { "process killed" });
        self.dies(node, losing, away);
    }

    fn crash_all(&mut self) {
        self.ghost.mark("power lost everywhere");
        for node in 0..self.nodes.len() {
            let away = 20 + self.rng.below(1_500) as i64;
            self.dies(node, true, away);
        }
    }

    fn cut(&mut self, both_ways: bool) {
        let places = self.nodes.len() + 1;
        let place = |index: usize| if index + 1 == places { CONTROLLER } else { index };
        let from = place(self.rng.below(places));
        let to = place(self.rng.below(places));
        let until = self.now + self.rng.below(3_000) as i64;
        self.cuts.cut(from, to, until);
        if both_ways {
            self.cuts.cut(to, from, until);
        }
        self.ghost.mark("cut");
        // A lane on which nothing moves is given up after a while.
        if self.rng.below(2) == 0 {
            for lane in
                self.lanes.alive(|lane| [(from, to), (to, from)].contains(&(lane.follower, lane.leader)))
            {
                self.after(400, Event::LaneIdle { lane });
            }
        }
    }

    fn log_fails(&mut self, node: usize, partition: usize) {
        let owner = &mut self.nodes[node];
        let run = owner.run;
        let Some(copy) = owner.copies.get_mut(&partition) else { return };
        if copy.live.is_none() || copy.log.failed {
            return;
        }
        copy.log.failed = true;
        owner.healthy = false;
        self.ghost.mark("log failed");
        self.step(node, partition, Input::LogFailed);
        // Somebody restarts it.
        let delay = 300 + self.rng.below(2_000) as i64;
        self.after(delay, Event::StopsAnyway { node, run });
    }

    fn delete_records(&mut self, partition: usize) {
        let Some(leader) = self.controller.partition(partition).leader else { return };
        let node = leader.0 as usize;
        if !self.nodes[node].up || self.nodes[node].paused_until > self.now {
            return;
        }
        let ticket = self.nodes[node].ticket();
        let Some(live) = self.nodes[node].live(partition) else { return };
        let (start, high_watermark) = (live.view.start.0, live.view.high_watermark.0);
        live.pending.insert(ticket, Pending::Delete);
        let before = match self.rng.below(3) {
            0 => None,
            _ => Some(Offset(start + self.rng.below((high_watermark - start + 2) as usize) as i64)),
        };
        self.deleted = true;
        let deadline = Millis(self.now + self.nodes[node].clock + self.rng.below(2_000) as i64);
        self.step(node, partition, Input::DeleteRecords { ticket, before, deadline });
    }

    /// Retention finds at a leader, or one that still takes itself for one, that batches were kept long enough, also such as
    /// are not committed yet because a follower stands still (T-113).
    fn expire(&mut self, node: usize, partition: usize) {
        let owner = &self.nodes[node];
        if !owner.up || owner.paused_until > self.now {
            return;
        }
        let Some(copy) = owner.copies.get(&partition) else { return };
        let Some(live) = copy.live.as_ref().filter(|live| live.view.standing == Standing::Leader) else {
            return;
        };
        let high_watermark = live.view.high_watermark.0;
        let ends: Vec<i64> = copy.log.batches.iter().map(|batch| batch.end).collect();
        if ends.is_empty() {
            return;
        }
        let wanted = ends[self.rng.below(ends.len())];
        self.ghost.mark(match wanted > high_watermark {
            true => "expired above the high watermark",
            false => "expired",
        });
        self.deleted = true;
        self.step(node, partition, Input::Expire { start: Offset(wanted) });
    }

    fn reassign(&mut self, partition: usize) {
        let mut nodes: Vec<i32> = (0..self.nodes.len() as i32).collect();
        self.rng.shuffle(&mut nodes);
        let count = if self.rng.below(3) == 0 {
            1 + self.rng.below(self.nodes.len().min(5))
        } else {
            self.plan.replication_factor
        };
        let target = nodes[..count].iter().map(|node| NodeId(*node)).collect();
        let cancel = self.rng.below(5) == 0;
        self.reassign_to(partition, (!cancel).then_some(target));
    }

    pub(crate) fn reassign_to(&mut self, partition: usize, replicas: Option<Vec<NodeId>>) {
        let wanted =
            Reassignment { topic: "t".to_owned(), partition: PartitionIndex(partition as i32), replicas };
        let request =
            AlterReassignments { partitions: vec![wanted], allow_factor_change: true, timeout_ms: 0 };
        let state = self.controller.state().clone();
        let Ok(decision) = plan::alter_reassignments(&state, &request, &self.controller.inputs) else {
            return;
        };
        let committed = self.controller.commit(&decision.changes);
        if committed.is_some() {
            self.ghost.mark("reassignment begun or cancelled");
        }
        self.committed(committed);
    }

    fn elect(&mut self, partition: usize, kind: ElectionKind) {
        let at = ("t".to_owned(), PartitionIndex(partition as i32));
        let request = ElectLeaders { kind, partitions: Some(vec![at]), timeout_ms: 0 };
        let state = self.controller.state().clone();
        let Ok(decision) = plan::elect_leaders(&state, &request, &self.controller.inputs) else { return };
        let committed = self.controller.commit(&decision.changes);
        if committed.is_some() {
            self.ghost.mark("election by request");
        }
        self.committed(committed);
    }

    fn change_config(&mut self) {
        let (name, value) = match self.rng.below(3) {
            0 if self.plan.flush_os => ("weir.flush", ["ack", "os"][self.rng.below(2)].to_owned()),
            _ => ("min.insync.replicas", (1 + self.rng.below(3)).to_string()),
        };
        let op = ConfigOp { name: name.to_owned(), kind: ConfigOpKind::Set, value: Some(value) };
        let resource = ResourceRef::Topic("t".to_owned());
        let altered = AlterResource { resource, replace_all: false, ops: vec![op] };
        let request = AlterConfigs { resources: vec![altered], validate_only: false, timeout_ms: 0 };
        let decision = plan::alter_configs(self.controller.state(), &request, &self.controller.inputs);
        let committed = decision.ok().and_then(|decision| self.controller.commit(&decision.changes));
        self.committed(committed);
    }

    /// The controller loses sight of a node that lives.
    fn fence(&mut self, node: usize) {
        let id = NodeId(node as i32);
        let Some(known) = self.controller.state().nodes().get(id) else { return };
        let epoch = known.registration.broker_epoch;
        let Ok(decision) = plan::fence_node(self.controller.state(), id, epoch) else { return };
        let committed = self.controller.commit(&decision.changes);
        self.ghost.mark("fenced though alive");
        self.committed(committed);
    }

    /// The faults end.
    pub(crate) fn heal(&mut self) {
        self.healed = true;
        // Who is behind by all of a run, and gets one batch at a time, must be able to catch up.
        self.producers.iter_mut().for_each(|producer| producer.pause_ms = 400);
        self.cuts.heal();
        self.done_at_heal = self.producers.iter().map(|producer| producer.done).collect();
        for node in 0..self.nodes.len() {
            let now = self.now;
            let owner = &mut self.nodes[node];
            owner.paused_until = owner.paused_until.min(now);
            if owner.up && (owner.stopping || !owner.healthy) {
                self.dies(node, false, 100);
            }
        }
        self.after(500, Event::Progress);
    }
}
