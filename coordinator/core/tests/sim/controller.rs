//! The controller: sessions of coordinators by heartbeat, and one owner of the shard at a time. A shard is taken from a
//! living coordinator in two steps: it is told to let go, and only when it says that it has, or its session is over, is
//! the shard given to another.

use coordinator_core::Epoch;
use kafka_wire_core::sample::Sampler;

/// Milliseconds without a heartbeat after which a coordinator's shards go to others.
pub(crate) const SESSION_MS: i64 = 3_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Heartbeat {
    pub(crate) coordinator: usize,
    pub(crate) incarnation: u64,
    pub(crate) sent_at: i64,
    /// The highest epoch under which it has stopped to own the shard.
    pub(crate) released: Epoch,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledgement {
    pub(crate) sent_at: i64,
    /// The epoch under which the coordinator is to own the shard.
    pub(crate) assigned: Option<Epoch>,
    /// The epoch that it is to let go of, whether it has heard of it or not.
    pub(crate) revoked: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    incarnation: u64,
    heard_at: i64,
}

#[derive(Debug)]
pub(crate) struct Controller {
    sessions: Vec<Option<Session>>,
    /// Owner, its incarnation, its epoch.
    pub(crate) assigned: Option<(usize, u64, Epoch)>,
    revoking: bool,
    pub(crate) last_epoch: Epoch,
}

impl Controller {
    pub(crate) fn new(coordinators: usize) -> Self {
        Controller {
            sessions: vec![None; coordinators],
            assigned: None,
            revoking: false,
            last_epoch: Epoch(0),
        }
    }

    pub(crate) fn heard(&mut self, now: i64, heartbeat: Heartbeat) -> Option<Acknowledgement> {
        let session = &mut self.sessions[heartbeat.coordinator];
        match session {
            Some(known) if known.incarnation > heartbeat.incarnation => return None,
            Some(known) => *known = Session { incarnation: heartbeat.incarnation, heard_at: now },
            None => *session = Some(Session { incarnation: heartbeat.incarnation, heard_at: now }),
        }
        let is_owner = |(owner, _, _): &(usize, u64, Epoch)| *owner == heartbeat.coordinator;
        if let Some((_, incarnation, epoch)) = self.assigned.filter(is_owner)
            && (incarnation < heartbeat.incarnation || epoch <= heartbeat.released)
        {
            self.assigned = None;
            self.revoking = false;
        }
        let epoch = self.assigned.filter(is_owner).map(|(_, _, epoch)| epoch);
        let (assigned, revoked) = if self.revoking { (None, epoch) } else { (epoch, None) };
        Some(Acknowledgement { sent_at: heartbeat.sent_at, assigned, revoked })
    }

    /// Ends sessions and gives the shard away.
    pub(crate) fn tick(&mut self, now: i64, rng: &mut Sampler) {
        for (coordinator, session) in self.sessions.iter_mut().enumerate() {
            if session.is_some_and(|session| now - session.heard_at > SESSION_MS) {
                *session = None;
                if self.assigned.is_some_and(|(owner, _, _)| owner == coordinator) {
                    self.assigned = None;
                    self.revoking = false;
                }
            }
        }
        let living: Vec<usize> = (0..self.sessions.len()).filter(|c| self.sessions[*c].is_some()).collect();
        if self.assigned.is_none() && !living.is_empty() {
            let owner = living[rng.below(living.len())];
            self.last_epoch = Epoch(self.last_epoch.0 + 1);
            let incarnation = self.sessions[owner].map_or(0, |session| session.incarnation);
            self.assigned = Some((owner, incarnation, self.last_epoch));
        }
    }

    /// Begins to take the shard from its owner.
    pub(crate) fn revoke(&mut self) {
        self.revoking = self.assigned.is_some();
    }
}
