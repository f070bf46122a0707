//! Who reaches whom, and the lanes between nodes. A lane delivers frames in order while it lives; it may break at any
//! time, the two ends notice at different times, and until then a prefix of what was under way still arrives.

use std::collections::{BTreeMap, VecDeque};

/// The controller's place in the table of cuts; nodes have their own number.
pub(crate) const CONTROLLER: usize = 7;
const PLACES: usize = CONTROLLER + 1;

/// One-way cuts.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    until: [[i64; PLACES]; PLACES],
}

impl Cuts {
    pub(crate) fn cut(&mut self, from: usize, to: usize, until: i64) {
        let cell = &mut self.until[from][to];
        *cell = until.max(*cell);
    }

    /// Until when nothing passes.
    pub(crate) fn until(&self, from: usize, to: usize) -> i64 {
        self.until[from][to]
    }

    pub(crate) fn heal(&mut self) {
        self.until = Default::default();
    }
}

/// Which end of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Follower,
    Leader,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Side::Follower => Side::Leader,
            Side::Leader => Side::Follower,
        }
    }
}

/// One direction of a lane.
#[derive(Debug)]
struct Direction<F> {
    /// When the last frame arrives: none overtakes another.
    last_arrival: i64,
    /// Frames that arrive later than this never do.
    lost_after: i64,
    /// Frames under way, in order.
    under_way: VecDeque<F>,
}

impl<F> Default for Direction<F> {
    fn default() -> Self {
        Direction { last_arrival: 0, lost_after: i64::MAX, under_way: VecDeque::new() }
    }
}

/// A lane from a follower's node to a leader's node; `F` is a frame.
#[derive(Debug)]
pub(crate) struct Lane<F> {
    pub(crate) follower: usize,
    pub(crate) leader: usize,
    /// The runs of the two processes.
    pub(crate) follower_run: u64,
    pub(crate) leader_run: u64,
    /// The registration that the follower's hello named.
    pub(crate) broker_epoch: i64,
    follower_sees: bool,
    leader_sees: bool,
    pub(crate) broken: bool,
    to_leader: Direction<F>,
    to_follower: Direction<F>,
}

impl<F> Lane<F> {
    pub(crate) fn new(follower: usize, leader: usize, runs: (u64, u64), broker_epoch: i64) -> Self {
        Lane {
            follower,
            leader,
            follower_run: runs.0,
            leader_run: runs.1,
            broker_epoch,
            follower_sees: true,
            leader_sees: true,
            broken: false,
            to_leader: Direction::default(),
            to_follower: Direction::default(),
        }
    }

    fn direction(&mut self, to: Side) -> &mut Direction<F> {
        match to {
            Side::Leader => &mut self.to_leader,
            Side::Follower => &mut self.to_follower,
        }
    }

    /// Whether this end believes that the lane lives.
    pub(crate) fn is_seen_by(&self, side: Side) -> bool {
        match side {
            Side::Follower => self.follower_sees,
            Side::Leader => self.leader_sees,
        }
    }

    /// This end notices that the lane is gone.
    pub(crate) fn notice(&mut self, side: Side) {
        match side {
            Side::Follower => self.follower_sees = false,
            Side::Leader => self.leader_sees = false,
        }
    }

    /// Takes a frame; answers when it arrives.
    pub(crate) fn send(&mut self, to: Side, arrival: i64, frame: F) -> i64 {
        let direction = self.direction(to);
        direction.last_arrival = direction.last_arrival.max(arrival);
        direction.under_way.push_back(frame);
        direction.last_arrival
    }

    /// The next frame for this end, unless it is lost or the end has given the lane up.
    pub(crate) fn receive(&mut self, to: Side, now: i64) -> Option<F> {
        let seen = self.is_seen_by(to);
        let direction = self.direction(to);
        let frame = direction.under_way.pop_front();
        frame.filter(|_| seen && now <= direction.lost_after)
    }

    /// Breaks the lane: what arrives later than the given times is lost.
    pub(crate) fn break_at(&mut self, leader_gets_until: i64, follower_gets_until: i64) {
        self.broken = true;
        self.to_leader.lost_after = leader_gets_until;
        self.to_follower.lost_after = follower_gets_until;
    }
}

/// All lanes by number; broken ones stay until both ends have noticed.
#[derive(Debug)]
pub(crate) struct Lanes<F> {
    lanes: BTreeMap<u64, Lane<F>>,
    next: u64,
}

impl<F> Lanes<F> {
    pub(crate) fn new() -> Self {
        Lanes { lanes: BTreeMap::new(), next: 0 }
    }

    pub(crate) fn get(&mut self, lane: u64) -> Option<&mut Lane<F>> {
        self.lanes.get_mut(&lane)
    }

    pub(crate) fn add(&mut self, lane: Lane<F>) -> u64 {
        self.next += 1;
        self.lanes.insert(self.next, lane);
        self.next
    }

    /// The lane that the follower would use to the leader.
    pub(crate) fn between(&self, follower: usize, leader: usize) -> Option<u64> {
        let usable =
            |lane: &Lane<F>| lane.follower == follower && lane.leader == leader && lane.follower_sees;
        self.lanes.iter().find(|(_, lane)| usable(lane)).map(|(id, _)| *id)
    }

    /// Lanes that are not broken and that `touches` says.
    pub(crate) fn alive(&self, touches: impl Fn(&Lane<F>) -> bool) -> Vec<u64> {
        self.lanes.iter().filter(|(_, lane)| !lane.broken && touches(lane)).map(|(id, _)| *id).collect()
    }

    /// Forgets lanes that both ends have given up and on which nothing is under way.
    pub(crate) fn forget_dead(&mut self) {
        self.lanes.retain(|_, lane| {
            lane.follower_sees
                || lane.leader_sees
                || !lane.to_leader.under_way.is_empty()
                || !lane.to_follower.under_way.is_empty()
        });
    }
}
