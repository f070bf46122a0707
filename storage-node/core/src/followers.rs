//! A leader's picture of the other replicas: who follows, how far each is, who is in sync, and what that makes of the high
//! watermark.
//!
//! The set that counts for the high watermark is the *maximal* in-sync set: whoever the metadata says is in sync, plus
//! whoever a proposal names that may have been accepted without our knowing. The leader itself is always a member of it.

use proto_types::controller_api::ProposedIsr;
use proto_types::ids::{BrokerEpoch, Millis, NodeId, Offset};

use crate::input::{FollowerAck, OpenSession, SessionKey};
use crate::lag_clock::LagClock;
use crate::replica::{FlushMode, ReplicaConfig};

/// How far a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Progress {
    pub(crate) appended: Offset,
    pub(crate) flushed: Offset,
}

impl Progress {
    /// The end that counts for the high watermark.
    pub(crate) fn counted(self, mode: FlushMode) -> Offset {
        match mode {
            FlushMode::Ack => self.flushed,
            FlushMode::Os => self.appended,
        }
    }
}

/// Another replica, as its leader sees it.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) node: NodeId,
    /// In sync by the metadata.
    pub(crate) in_sync: bool,
    /// A proposal that may have been accepted, or may still be, has it in the in-sync set.
    pub(crate) proposed: bool,
    /// The newest registration that it followed under.
    broker_epoch: Option<BrokerEpoch>,
    pub(crate) session: Option<SessionKey>,
    /// What it told in its present session, which is of the leader's present epoch.
    pub(crate) acked: Option<Progress>,
    /// Where its log begins, as far as it has told in its present session.
    start: Option<Offset>,
    /// Where its log ended when its session began, and what it was told, at most, of what compaction has dropped.
    began: (Offset, Offset),
    lag: LagClock,
}

impl Follower {
    fn new(node: NodeId, in_sync: bool, now: Millis) -> Self {
        Self {
            node,
            in_sync,
            proposed: false,
            broker_epoch: None,
            session: None,
            acked: None,
            start: None,
            began: (Offset(0), Offset(-1)),
            lag: LagClock::new(now),
        }
    }

    /// A member of the maximal in-sync set.
    pub(crate) fn counts(&self) -> bool {
        // Planted: only the set that the metadata names, not who may have joined it since.
        if cfg!(weir_planted_bug = "B4") {
            return self.in_sync;
        }
        self.in_sync || self.proposed
    }

    /// The registration that the leader vouches for: who is out of sight may have another one by now.
    fn vouched_for(&self) -> BrokerEpoch {
        self.session.and(self.broker_epoch).unwrap_or(ProposedIsr::NOT_HEARD_FROM)
    }

    fn position(&self, mode: FlushMode) -> Option<Offset> {
        self.acked.map(|progress| progress.counted(mode))
    }

    /// First offset that it is not known to have appended.
    fn appended(&self) -> Offset {
        self.acked.map_or(self.began.0, |progress| progress.appended)
    }

    fn is_at(&self, end: Offset, mode: FlushMode) -> bool {
        self.position(mode).is_some_and(|position| position >= end)
    }

    /// For how long it has lacked something that the leader has.
    fn lag_ms(&self, leader: &LeaderEnd, now: Millis) -> i64 {
        match self.is_at(leader.end, leader.mode) {
            true => 0,
            false => now.0.saturating_sub(self.lag.caught_up().0).max(0),
        }
    }

    fn end_session(&mut self, leader: &LeaderEnd, now: Millis) -> Option<SessionKey> {
        if self.is_at(leader.end, leader.mode) {
            self.lag.on_lost_sight(now);
        }
        self.acked = None;
        self.start = None;
        self.session.take()
    }
}

/// The leader's end, and which positions are compared with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaderEnd {
    pub(crate) end: Offset,
    pub(crate) mode: FlushMode,
}

/// What a follower must have, beside everything that is committed, to be in sync.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinFrom {
    pub(crate) high_watermark: Offset,
    pub(crate) epoch_start: Offset,
    /// Its log must not begin below: a client may have been told that what lies there is deleted.
    pub(crate) log_start: Offset,
}

/// One follower as it is shown to people and to readers that look for a near replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerStatus {
    pub node: NodeId,
    /// In sync by the metadata.
    pub in_sync: bool,
    /// It follows at present.
    pub connected: bool,
    /// First offset that it is not known to have (on disk, with `weir.flush=ack`); `None` until it has told.
    pub end: Option<Offset>,
    /// For how long it has lacked something that the leader has; 0 at the leader's end.
    pub lag_ms: i64,
}

/// All other replicas.
#[derive(Debug)]
pub(crate) struct Followers {
    list: Vec<Follower>,
    replication_factor: usize,
}

impl Followers {
    pub(crate) fn new(me: NodeId, replicas: &[NodeId], isr: &[NodeId], now: Millis) -> Self {
        let others = replicas.iter().filter(|&&node| node != me);
        let list = others.map(|&node| Follower::new(node, isr.contains(&node), now)).collect();
        Self { list, replication_factor: replicas.len() }
    }

    /// Takes over a new state within the same leader epoch; what followers told stays. Proposals about older states can
    /// not be accepted any more. Sessions of those who are no replicas any more are over.
    pub(crate) fn change(
        &mut self,
        me: NodeId,
        replicas: &[NodeId],
        isr: &[NodeId],
        now: Millis,
    ) -> IsrChange {
        let before = std::mem::take(&mut self.list);
        *self = Self::new(me, replicas, isr, now);
        let mut change = IsrChange::default();
        for old in before {
            match self.list.iter_mut().find(|follower| follower.node == old.node) {
                Some(follower) => {
                    change.note(old.in_sync, follower.in_sync);
                    *follower = Follower { in_sync: follower.in_sync, proposed: false, ..old };
                }
                None => {
                    change.note(old.in_sync, false);
                    change.ended.extend(old.session);
                }
            }
        }
        change
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Follower> {
        self.list.iter()
    }

    pub(crate) fn statuses(&self, leader: LeaderEnd, now: Millis) -> impl Iterator<Item = FollowerStatus> {
        self.list.iter().map(move |follower| FollowerStatus {
            node: follower.node,
            in_sync: follower.in_sync,
            connected: follower.session.is_some(),
            end: follower.position(leader.mode),
            lag_ms: follower.lag_ms(&leader, now),
        })
    }

    /// Whether `isr` lacks somebody who is in sync or may have become so.
    pub(crate) fn lacks_a_member(&self, isr: &[NodeId]) -> bool {
        self.list
            .iter()
            .any(|follower| (follower.in_sync || follower.proposed) && !isr.contains(&follower.node))
    }

    /// Members of the in-sync set by the metadata, the leader included.
    pub(crate) fn in_sync(&self) -> usize {
        self.list.iter().filter(|follower| follower.in_sync).count() + 1
    }

    /// Members that are needed to commit: `min.insync.replicas`, but never more than the partition has replicas.
    pub(crate) fn needed(&self, min_insync: usize) -> usize {
        min_insync.min(self.replication_factor).max(1)
    }

    /// Where every member of the maximal in-sync set is, by what `mode` counts. `None` while one has not been heard of.
    pub(crate) fn committed_end(&self, own: Progress, mode: FlushMode) -> Option<Offset> {
        let members = self.list.iter().filter(|follower| follower.counts());
        members
            .map(|follower| follower.position(mode))
            .try_fold(own.counted(mode), |least, position| Some(least.min(position?)))
    }

    /// Whether a session may be opened: by a replica, in no older registration than one that was heard from.
    pub(crate) fn may_open(&self, open: &OpenSession) -> bool {
        let follower = self.list.iter().find(|follower| follower.node == open.from);
        follower.is_some_and(|follower| follower.broker_epoch.is_none_or(|known| known <= open.broker_epoch))
    }

    /// Whoever asks anew has given up its old session.
    pub(crate) fn end_session_of(
        &mut self,
        node: NodeId,
        leader: LeaderEnd,
        now: Millis,
    ) -> Option<SessionKey> {
        self.find(node)?.end_session(&leader, now)
    }

    /// The session has begun. What counts is what the follower tells in it.
    /// `dropped_to`: what compaction has dropped of the leader's log by now, of which the follower is told.
    pub(crate) fn begin_session(&mut self, open: &OpenSession, dropped_to: Offset) {
        if let Some(follower) = self.find(open.from) {
            follower.session = Some(open.session);
            follower.broker_epoch = Some(open.broker_epoch);
            follower.acked = None;
            follower.start = Some(open.log_start);
            follower.began = (open.log_end, dropped_to);
        }
    }

    /// Ends the sessions of followers that have not copied what compaction has dropped since they began: they ask again, and
    /// learn of it.
    pub(crate) fn end_outdated_sessions(
        &mut self,
        dropped_to: Offset,
        leader: LeaderEnd,
        now: Millis,
    ) -> Vec<SessionKey> {
        let outdated = |follower: &&mut Follower| {
            follower.session.is_some() && follower.began.1 < dropped_to && follower.appended() <= dropped_to
        };
        let outdated = self.list.iter_mut().filter(outdated);
        outdated.filter_map(|follower| follower.end_session(&leader, now)).collect()
    }

    /// How far the slowest follower with a session has copied, if there is one.
    pub(crate) fn copied_to(&self) -> Option<Offset> {
        self.list.iter().filter(|follower| follower.session.is_some()).map(Follower::appended).min()
    }

    pub(crate) fn on_session_ended(&mut self, session: SessionKey, leader: LeaderEnd, now: Millis) {
        if let Some(follower) = self.list.iter_mut().find(|follower| follower.session == Some(session)) {
            follower.end_session(&leader, now);
        }
    }

    /// The leadership's epoch is over.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionKey> {
        self.list.iter().filter_map(|follower| follower.session)
    }

    /// Notes what a follower told. Positions of one session never move back, and none is beyond the leader's end.
    pub(crate) fn on_ack(&mut self, ack: FollowerAck, leader: LeaderEnd, now: Millis) {
        let Some(follower) = self.list.iter_mut().find(|follower| follower.session == Some(ack.session))
        else {
            return;
        };
        let appended = ack.appended.min(leader.end);
        let told = Progress { appended, flushed: ack.flushed.min(appended) };
        let known = follower.acked.get_or_insert(told);
        known.appended = known.appended.max(told.appended);
        known.flushed = known.flushed.max(told.flushed);
        follower.lag.on_ack(known.counted(leader.mode), leader.end, now);
    }

    /// Notes where a follower's log begins.
    pub(crate) fn on_start(&mut self, session: SessionKey, log_start: Offset) {
        if let Some(follower) = self.list.iter_mut().find(|follower| follower.session == Some(session)) {
            follower.start = follower.start.max(Some(log_start));
        }
    }

    /// The least log start of the leader, whose own is `own`, the maximal in-sync set, and everybody else who follows. `None`
    /// while it is not known of one of them.
    pub(crate) fn low_watermark(&self, own: Offset) -> Option<Offset> {
        let asked = self.list.iter().filter(|follower| follower.counts() || follower.session.is_some());
        asked.map(|follower| follower.start).try_fold(own, |least, start| Some(least.min(start?)))
    }

    /// The leader's end moves from `leader.end` to `end`.
    pub(crate) fn on_leader_end(&mut self, leader: LeaderEnd, end: Offset, now: Millis) {
        for follower in &mut self.list {
            let was_at_end = follower.is_at(leader.end, leader.mode);
            follower.lag.on_leader_end(was_at_end, end, now);
        }
    }

    /// Other positions count from now on.
    pub(crate) fn on_mode_change(&mut self, leader: LeaderEnd, now: Millis) {
        self.on_leader_end(leader, leader.end, now);
    }

    /// The in-sync set that the leader wants, if it is another one than the metadata's: without whoever lags for longer
    /// than it may, with whoever has caught up.
    pub(crate) fn wanted(
        &self,
        config: &ReplicaConfig,
        leader: LeaderEnd,
        from: JoinFrom,
        now: Millis,
    ) -> Option<Vec<(NodeId, BrokerEpoch)>> {
        let stays = |follower: &Follower| {
            let lags = follower.lag_ms(&leader, now) > config.replica_lag_ms_max;
            let joins = || {
                follower.position(leader.mode).is_some_and(|position| position >= from.offset())
                    && follower.start >= Some(from.log_start)
            };
            !lags && (follower.in_sync || joins())
        };
        if self.list.iter().all(|follower| stays(follower) == follower.in_sync) {
            return None;
        }
        Some(self.set(stays))
    }

    /// The in-sync set of the metadata, as a proposal.
    pub(crate) fn present(&self) -> Vec<(NodeId, BrokerEpoch)> {
        self.set(|follower| follower.in_sync)
    }

    fn set(&self, member: impl Fn(&Follower) -> bool) -> Vec<(NodeId, BrokerEpoch)> {
        let members = self.list.iter().filter(|follower| member(follower));
        members.map(|follower| (follower.node, follower.vouched_for())).collect()
    }

    /// `members` were proposed: they count until the outcome is known.
    pub(crate) fn on_proposed(&mut self, members: &[(NodeId, BrokerEpoch)]) {
        for follower in &mut self.list {
            follower.proposed |= members.iter().any(|&(node, _)| node == follower.node);
        }
    }

    /// No proposal about the present state was accepted, or will be.
    pub(crate) fn on_refused(&mut self) {
        self.list.iter_mut().for_each(|follower| follower.proposed = false);
    }

    /// When the first in-sync follower that is behind will lag for longer than it may.
    pub(crate) fn next_lag(&self, config: &ReplicaConfig, leader: LeaderEnd) -> Option<Millis> {
        let behind = |follower: &&Follower| follower.in_sync && !follower.is_at(leader.end, leader.mode);
        let times = self.list.iter().filter(behind).map(|follower| follower.lag.caught_up());
        times.min().map(|time| Millis(time.0.saturating_add(config.replica_lag_ms_max).saturating_add(1)))
    }

    fn find(&mut self, node: NodeId) -> Option<&mut Follower> {
        self.list.iter_mut().find(|follower| follower.node == node)
    }
}

impl JoinFrom {
    fn offset(&self) -> Offset {
        // Planted: a new leader's high watermark may lag behind what its predecessor committed; only from the start of its
        // own epoch on does it know.
        if cfg!(weir_planted_bug = "B3") {
            return self.high_watermark;
        }
        self.high_watermark.max(self.epoch_start)
    }
}

/// What a new state did to the in-sync set.
#[derive(Debug, Default)]
pub(crate) struct IsrChange {
    pub(crate) joined: usize,
    pub(crate) left: usize,
    pub(crate) ended: Vec<SessionKey>,
}

impl IsrChange {
    fn note(&mut self, before: bool, after: bool) {
        self.joined += usize::from(!before && after);
        self.left += usize::from(before && !after);
    }
}
