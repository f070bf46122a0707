//! The shell's part of replication sessions: frames on lanes, pumps, credit. Sessions of all partitions of a pair of nodes
//! share a lane, which breaks for all of them.

use proto_types::ids::{BrokerEpoch, LeaderEpoch, NodeId, Offset};
use proto_types::replication_api::{Marks, SessionAnswer};
use storage_node_core::{
    FollowerAck, FromLeader, Input, LeaderBatches, OpenSession, Pump, PumpStep, Push, SessionKey, Ticket,
};

use crate::log::Batch;
use crate::network::{Lane, Side};
use crate::world::{Event, World};

/// Most bytes of one frame.
const PUSH_BYTES_MAX: u64 = 1_500;

/// A frame of a lane. At the follower a session has its replica's key; at the leader one of its own.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    Open {
        partition: usize,
        session: SessionKey,
        log: (Offset, Offset, LeaderEpoch),
        leader_epoch: LeaderEpoch,
        credit: u64,
    },
    Ack {
        partition: usize,
        session: SessionKey,
        appended: Offset,
        flushed: Offset,
        credit: u64,
    },
    LogStart {
        partition: usize,
        session: SessionKey,
        log_start: Offset,
    },
    Close {
        partition: usize,
        session: SessionKey,
    },
    Answer {
        partition: usize,
        session: SessionKey,
        answer: SessionAnswer,
    },
    Batches {
        partition: usize,
        session: SessionKey,
        from: Offset,
        marks: Marks,
        batches: Vec<Batch>,
    },
    Marks {
        partition: usize,
        session: SessionKey,
        marks: Marks,
    },
    Closed {
        partition: usize,
        session: SessionKey,
    },
}

/// A session at its follower.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) lane: u64,
    pub(crate) session: SessionKey,
    leader_epoch: i32,
    /// Bytes that have come in and for which the leader has not been granted new ones.
    owed: u64,
}

/// A session at its leader.
#[derive(Debug)]
pub(crate) struct Leading {
    pub(crate) lane: u64,
    /// The follower's key.
    session: SessionKey,
    /// Ours.
    pub(crate) key: SessionKey,
    leader_epoch: LeaderEpoch,
    log_end: Offset,
    credit: u64,
    pump: Option<Pump>,
    /// What is being read for it; it is sent nothing meanwhile.
    reading: Option<Push>,
}

impl World {
    /// A follower's replica asks for a session.
    pub(crate) fn open_session(
        &mut self,
        node: usize,
        partition: usize,
        leader: NodeId,
        session: SessionKey,
        leader_epoch: LeaderEpoch,
        log: (Offset, Offset, LeaderEpoch),
    ) {
        let leader = leader.0 as usize;
        let existing = self.lanes.between(node, leader);
        let Some(lane) = existing.or_else(|| self.open_lane(node, leader)) else {
            let run = self.nodes[node].run;
            let delay = 1 + self.rng.below(20) as i64;
            self.after(delay, Event::SessionLost { node, run, partition, session });
            return;
        };
        let live = self.nodes[node].live(partition).expect("it has just asked");
        live.following.push(Following { lane, session, leader_epoch: leader_epoch.0, owed: 0 });
        let credit = self.plan.credit_bytes;
        self.send_frame(lane, Side::Leader, Frame::Open { partition, session, log, leader_epoch, credit });
    }

    fn open_lane(&mut self, node: usize, leader: usize) -> Option<u64> {
        let broker_epoch = self.nodes[node].broker_epoch?;
        let reachable = self.cuts.until(node, leader).max(self.cuts.until(leader, node)) <= self.now;
        if !self.nodes[leader].up || !reachable {
            return None;
        }
        let runs = (self.nodes[node].run, self.nodes[leader].run);
        Some(self.lanes.add(Lane::new(node, leader, runs, broker_epoch.0)))
    }

    pub(crate) fn send_frame(&mut self, id: u64, to: Side, frame: Frame) {
        let Some(lane) = self.lanes.get(id) else { return };
        if lane.broken || !lane.is_seen_by(to.other()) {
            return;
        }
        let (from, target) = match to {
            Side::Leader => (lane.follower, lane.leader),
            Side::Follower => (lane.leader, lane.follower),
        };
        let delay = self.transit_lane(from, target);
        let now = self.now;
        let lane = self.lanes.get(id).expect("seen above");
        let arrival = lane.send(to, now + delay, frame);
        self.after(arrival - now, Event::LaneArrives { lane: id, to });
        if self.happens(self.plan.faults.lane_break) {
            self.break_lane(id);
        }
    }

    /// The lane dies: each end gets a prefix of what is under way, and notices some time later.
    pub(crate) fn break_lane(&mut self, id: u64) {
        let now = self.now;
        let cut = [self.rng.below(50) as i64, self.rng.below(50) as i64];
        let notice = [self.rng.below(600) as i64, self.rng.below(600) as i64];
        let Some(lane) = self.lanes.get(id) else { return };
        if lane.broken {
            return;
        }
        lane.break_at(now + cut[0], now + cut[1]);
        self.ghost.mark("lane broke");
        self.after(1 + cut[0] + notice[0], Event::LaneNoticed { lane: id, side: Side::Leader });
        self.after(1 + cut[1] + notice[1], Event::LaneNoticed { lane: id, side: Side::Follower });
    }

    pub(crate) fn lane_noticed(&mut self, id: u64, side: Side) {
        let Some(lane) = self.lanes.get(id) else { return };
        lane.notice(side);
        let (node, run) = match side {
            Side::Follower => (lane.follower, lane.follower_run),
            Side::Leader => (lane.leader, lane.leader_run),
        };
        self.lanes.forget_dead();
        if !self.nodes[node].up || self.nodes[node].run != run {
            return;
        }
        let partitions: Vec<usize> = self.nodes[node].copies.keys().copied().collect();
        for partition in partitions {
            let Some(live) = self.nodes[node].live(partition) else { continue };
            let inputs: Vec<Input> = match side {
                Side::Follower => {
                    let lost = live.following.extract_if(.., |following| following.lane == id);
                    lost.map(|following| Input::SessionLost { session: following.session }).collect()
                }
                Side::Leader => {
                    let lost = live.leading.extract_if(.., |leading| leading.lane == id);
                    lost.map(|leading| Input::SessionEnded { session: leading.key }).collect()
                }
            };
            for input in inputs {
                self.step(node, partition, input);
            }
        }
    }

    pub(crate) fn lane_arrives(&mut self, id: u64, to: Side) {
        let now = self.now;
        let Some(lane) = self.lanes.get(id) else { return };
        let (node, run) = match to {
            Side::Follower => (lane.follower, lane.follower_run),
            Side::Leader => (lane.leader, lane.leader_run),
        };
        let (from, broker_epoch) = (NodeId(lane.follower as i32), BrokerEpoch(lane.broker_epoch));
        let frame = lane.receive(to, now);
        self.lanes.forget_dead();
        let Some(frame) = frame else { return };
        if !self.nodes[node].up || self.nodes[node].run != run {
            return;
        }
        match to {
            Side::Leader => self.follower_said(node, id, from, broker_epoch, frame),
            Side::Follower => {
                if self.happens(self.plan.faults.ghost_frame) {
                    let delay = 200 + self.rng.below(2_000) as i64;
                    self.after(delay, Event::FrameAgain { node, run, frame: frame.clone() });
                }
                self.leader_said(node, frame);
            }
        }
    }

    /// A frame comes a second time, long after: only sessions that are over hear such.
    pub(crate) fn frame_again(&mut self, node: usize, frame: Frame) {
        let (Frame::Answer { partition, session, .. }
        | Frame::Batches { partition, session, .. }
        | Frame::Marks { partition, session, .. }) = &frame
        else {
            return;
        };
        let Some(live) = self.nodes[node].live(*partition) else { return };
        if live.following.iter().any(|following| following.session == *session) {
            return;
        }
        self.ghost.mark("frame of a session that is over");
        self.leader_said(node, frame);
    }

    fn follower_said(
        &mut self,
        node: usize,
        lane: u64,
        from: NodeId,
        broker_epoch: BrokerEpoch,
        frame: Frame,
    ) {
        match frame {
            Frame::Open { partition, session, log, leader_epoch, credit } => {
                self.session_keys += 1;
                let key = SessionKey(self.session_keys);
                let Some(live) = self.nodes[node].live(partition) else {
                    let answer = SessionAnswer::NotServed;
                    self.send_frame(lane, Side::Follower, Frame::Answer { partition, session, answer });
                    return;
                };
                let leading = Leading {
                    lane,
                    session,
                    key,
                    leader_epoch,
                    log_end: log.1,
                    credit,
                    pump: None,
                    reading: None,
                };
                live.leading.push(leading);
                let open = OpenSession {
                    session: key,
                    from,
                    broker_epoch,
                    leader_epoch,
                    log_start: log.0,
                    log_end: log.1,
                    last_epoch: log.2,
                };
                self.step(node, partition, Input::OpenSession(open));
            }
            Frame::Ack { partition, session, appended, flushed, credit } => {
                let Some(live) = self.nodes[node].live(partition) else { return };
                let of = |leading: &&mut Leading| leading.lane == lane && leading.session == session;
                let Some(leading) = live.leading.iter_mut().find(of) else { return };
                let key = leading.key;
                if let Some(pump) = &mut leading.pump {
                    pump.add_credit(credit);
                }
                if credit > 0 && leading.reading.is_some() {
                    self.ghost.mark("credit came during a read");
                }
                self.step(
                    node,
                    partition,
                    Input::FollowerAck(FollowerAck { session: key, appended, flushed }),
                );
                self.run_pumps(node, partition);
            }
            Frame::LogStart { partition, session, log_start } => {
                let Some(live) = self.nodes[node].live(partition) else { return };
                let of = |leading: &&Leading| leading.lane == lane && leading.session == session;
                let Some(key) = live.leading.iter().find(of).map(|leading| leading.key) else { return };
                self.step(node, partition, Input::FollowerStart { session: key, log_start });
            }
            Frame::Close { partition, session } => {
                let Some(live) = self.nodes[node].live(partition) else { return };
                let of = |leading: &mut Leading| leading.lane == lane && leading.session == session;
                let closed: Vec<Leading> = live.leading.extract_if(.., of).collect();
                for leading in closed {
                    self.step(node, partition, Input::SessionEnded { session: leading.key });
                }
            }
            Frame::Answer { .. } | Frame::Batches { .. } | Frame::Marks { .. } | Frame::Closed { .. } => {
                panic!("a leader's frame at a leader")
            }
        }
    }

    fn leader_said(&mut self, node: usize, frame: Frame) {
        match frame {
            Frame::Answer { partition, session, answer } => {
                let copies = &mut self.nodes[node].copies;
                let Some(copy) = copies.get_mut(&partition) else { return };
                let Some(live) = &mut copy.live else { return };
                if let Some(at) = live.following.iter().position(|following| following.session == session) {
                    self.answering = Some(live.following[at].leader_epoch);
                    if answer.begins().is_some() {
                        if copy.reconciled < self.ghost.partitions[partition].unclean_epoch {
                            copy.shown = live.replica.positions().high_watermark.0;
                        }
                        copy.reconciled = copy.reconciled.max(live.following[at].leader_epoch);
                    } else {
                        live.following.remove(at);
                    }
                }
                self.mark_answer(&answer);
                self.step(node, partition, Input::FromLeader { session, said: FromLeader::Answer(answer) });
                self.answering = None;
            }
            Frame::Batches { partition, session, from, marks, batches } => {
                let ticket = self.nodes[node].ticket();
                let Some(live) = self.nodes[node].live(partition) else { return };
                let bytes: u64 = batches.iter().map(|batch| batch.bytes).sum();
                let of = |following: &&mut Following| following.session == session;
                if let Some(following) = live.following.iter_mut().find(of) {
                    following.owed += bytes;
                }
                let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
                    panic!("a frame of batches has one")
                };
                let said = LeaderBatches {
                    ticket,
                    from,
                    end: Offset(last.end),
                    first_epoch: LeaderEpoch(first.epoch),
                    last_epoch: LeaderEpoch(last.epoch),
                    marks,
                };
                self.incoming = Some((ticket, batches));
                let said = FromLeader::Batches(said);
                self.step(node, partition, Input::FromLeader { session, said });
                self.incoming = None;
            }
            Frame::Marks { partition, session, marks } => {
                let said = FromLeader::Marks(marks);
                self.step(node, partition, Input::FromLeader { session, said });
            }
            Frame::Closed { partition, session } => {
                let Some(live) = self.nodes[node].live(partition) else { return };
                live.following.retain(|following| following.session != session);
                self.step(node, partition, Input::SessionLost { session });
            }
            Frame::Open { .. } | Frame::Ack { .. } | Frame::LogStart { .. } | Frame::Close { .. } => {
                panic!("a follower's frame at a follower")
            }
        }
    }

    fn mark_answer(&mut self, answer: &SessionAnswer) {
        self.ghost.mark(match answer {
            SessionAnswer::Begins { .. } => "session began",
            SessionAnswer::BeginsCompacted { .. } => "session began behind compaction",
            SessionAnswer::Diverged { .. } => "logs diverged",
            SessionAnswer::StartsLater { .. } => "leader starts later",
            SessionAnswer::WrongEpoch { .. } => "session of a wrong epoch",
            SessionAnswer::NotServed => "session not served",
        });
    }

    /// The batches of the frame that is being handled.
    pub(crate) fn take_incoming(&mut self, ticket: Ticket) -> Vec<Batch> {
        let (of, batches) = self.incoming.take().expect("batches come with their ticket");
        assert!(of == ticket, "batches are appended when they come");
        batches
    }

    pub(crate) fn ack(
        &mut self,
        node: usize,
        partition: usize,
        session: SessionKey,
        appended: Offset,
        flushed: Offset,
    ) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let of = |following: &&mut Following| following.session == session;
        let Some(following) = live.following.iter_mut().find(of) else { return };
        let credit = std::mem::take(&mut following.owed);
        let lane = following.lane;
        let frame = Frame::Ack { partition, session, appended, flushed, credit };
        self.send_frame(lane, Side::Leader, frame);
    }

    pub(crate) fn tell_start(
        &mut self,
        node: usize,
        partition: usize,
        session: SessionKey,
        log_start: Offset,
    ) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let found = live.following.iter().find(|following| following.session == session);
        if let Some(lane) = found.map(|following| following.lane) {
            self.send_frame(lane, Side::Leader, Frame::LogStart { partition, session, log_start });
        }
    }

    pub(crate) fn close_session(&mut self, node: usize, partition: usize, session: SessionKey) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let of = |following: &mut Following| following.session == session;
        let closed: Vec<Following> = live.following.extract_if(.., of).collect();
        for following in closed {
            self.send_frame(following.lane, Side::Leader, Frame::Close { partition, session });
        }
    }

    pub(crate) fn answer_session(
        &mut self,
        node: usize,
        partition: usize,
        key: SessionKey,
        answer: SessionAnswer,
    ) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let Some(at) = live.leading.iter().position(|leading| leading.key == key) else { return };
        let (lane, session) = (live.leading[at].lane, live.leading[at].session);
        if answer.begins().is_some() {
            let leading = &mut live.leading[at];
            leading.pump = Some(Pump::new(leading.leader_epoch, leading.log_end, leading.credit));
        } else {
            live.leading.remove(at);
        }
        self.send_frame(lane, Side::Follower, Frame::Answer { partition, session, answer });
        self.run_pumps(node, partition);
    }

    pub(crate) fn end_session(&mut self, node: usize, partition: usize, key: SessionKey) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let of = |leading: &mut Leading| leading.key == key;
        let ended: Vec<Leading> = live.leading.extract_if(.., of).collect();
        for leading in ended {
            let frame = Frame::Closed { partition, session: leading.session };
            self.send_frame(leading.lane, Side::Follower, frame);
        }
    }

    /// Sends what the sessions of a partition have to send.
    pub(crate) fn run_pumps(&mut self, node: usize, partition: usize) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let keys: Vec<SessionKey> = live.leading.iter().map(|leading| leading.key).collect();
        for key in keys {
            self.run_pump(node, partition, key);
        }
    }

    /// Sends what one session has to send.
    pub(crate) fn run_pump(&mut self, node: usize, partition: usize, key: SessionKey) {
        loop {
            let Some(live) = self.nodes[node].live(partition) else { return };
            let Some(leading) = live.leading.iter_mut().find(|leading| leading.key == key) else { return };
            let (lane, session) = (leading.lane, leading.session);
            if leading.reading.is_some() {
                return;
            }
            let Some(pump) = &mut leading.pump else { return };
            match pump.next(&live.view, PUSH_BYTES_MAX) {
                PumpStep::Idle => return,
                PumpStep::Push(push) => {
                    leading.reading = Some(push);
                    if self.happens(self.plan.faults.cold_read) {
                        let (run, delay) = (self.nodes[node].run, 1 + self.rng.below(40) as i64);
                        self.after(delay, Event::ColdRead { node, run, partition, session: key });
                        return;
                    }
                    self.read_done(node, partition, key);
                }
                PumpStep::Marks(marks) => {
                    self.send_frame(lane, Side::Follower, Frame::Marks { partition, session, marks });
                }
                PumpStep::Over => {
                    self.ghost.mark("pump ended a session");
                    return self.session_over(node, partition, key);
                }
            }
        }
    }

    /// A disk has brought what a session's push was waiting for.
    pub(crate) fn cold_read(&mut self, node: usize, partition: usize, key: SessionKey) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let Some(leading) = live.leading.iter_mut().find(|leading| leading.key == key) else { return };
        let Some(push) = leading.reading else { return };
        // What was read belongs to the leadership only while that lasts; and it may have been deleted.
        if live.view.leader_epoch != leading.leader_epoch || live.view.start > push.from {
            return self.session_over(node, partition, key);
        }
        self.read_done(node, partition, key);
        self.run_pump(node, partition, key);
    }

    fn read_done(&mut self, node: usize, partition: usize, key: SessionKey) {
        let Some(copy) = self.nodes[node].copies.get_mut(&partition) else { return };
        let Some(live) = &mut copy.live else { return };
        let Some(leading) = live.leading.iter_mut().find(|leading| leading.key == key) else { return };
        let (lane, session) = (leading.lane, leading.session);
        let (Some(push), Some(pump)) = (leading.reading.take(), &mut leading.pump) else { return };
        let batches = copy.log.read(push.from.0, push.bytes_max, push.at_least_one);
        let Some(last) = batches.last() else { return pump.on_nothing_fits() };
        let bytes = batches.iter().map(|batch| batch.bytes).sum();
        pump.pushed(Offset(last.end), bytes, push.marks);
        let frame = Frame::Batches { partition, session, from: push.from, marks: push.marks, batches };
        self.send_frame(lane, Side::Follower, frame);
    }

    fn session_over(&mut self, node: usize, partition: usize, key: SessionKey) {
        self.end_session(node, partition, key);
        self.step(node, partition, Input::SessionEnded { session: key });
    }
}
