//! Which coordinators are alive, and how far each has applied the metadata, as the quorum's leader sees it.
//!
//! Soft state like the storage nodes' [`Sessions`](crate::Sessions): never committed, granted anew by the next leader. A
//! session outlasts the coordinator's own lease, which runs from the sending of what we acknowledge: when a session is
//! over here, the coordinator has stopped answering.

use crate::plan;
use crate::state::ClusterState;
use proto_types::controller_api::CoordinatorHeartbeat;
use proto_types::error::Rejection;
use proto_types::ids::{CoordinatorId, MetadataIndex, Millis, RegistrationEpoch};
use std::collections::BTreeMap;

/// What should be committed about a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinatorVerdict {
    /// The coordinator.
    pub coordinator: CoordinatorId,
    /// Its registration.
    pub epoch: RegistrationEpoch,
    /// Whether to fence it or to let it back in.
    pub fence: bool,
    /// Why, for the log.
    pub why: &'static str,
}

/// What a heartbeat amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinatorBeat {
    /// Whether the coordinator is fenced now.
    pub fenced: bool,
    /// A stopping coordinator may go.
    pub may_stop: bool,
    /// What to commit, if anything.
    pub verdict: Option<CoordinatorVerdict>,
}

#[derive(Debug, Clone)]
struct Session {
    epoch: RegistrationEpoch,
    deadline: Millis,
    applied: MetadataIndex,
    /// A verdict is on its way to being committed.
    pending: bool,
}

/// All sessions.
#[derive(Debug)]
pub struct CoordinatorSessions {
    session_ms: i64,
    by_coordinator: BTreeMap<CoordinatorId, Session>,
    /// When [`CoordinatorSessions::expired`] last looked.
    looked: Option<Millis>,
    /// Index of the newest release of shards.
    released: MetadataIndex,
}

impl CoordinatorSessions {
    /// No sessions; each will last `session_ms` without a heartbeat.
    pub fn new(session_ms: u64) -> Self {
        let session_ms = i64::try_from(session_ms).unwrap_or(i64::MAX / 4);
        Self { session_ms, by_coordinator: BTreeMap::new(), looked: None, released: MetadataIndex(0) }
    }

    /// A leadership begins: every coordinator gets a fresh session. What an earlier leader released may be unknown to them.
    pub fn begin_leadership(&mut self, now: Millis, state: &ClusterState) {
        self.by_coordinator.clear();
        self.looked = Some(now);
        self.released = state.applied();
        for (coordinator, known) in state.coordinators().iter() {
            self.open(now, coordinator, known.registration.epoch);
        }
    }

    /// A registration was committed.
    pub fn registered(&mut self, now: Millis, coordinator: CoordinatorId, epoch: RegistrationEpoch) {
        let known = self.by_coordinator.get(&coordinator).is_some_and(|session| session.epoch == epoch);
        // A repeated request of the same incarnation changes nothing but its deadline.
        if known {
            self.extend(now, coordinator);
        } else {
            self.open(now, coordinator, epoch);
        }
    }

    fn open(&mut self, now: Millis, coordinator: CoordinatorId, epoch: RegistrationEpoch) {
        let deadline = Millis(now.0.saturating_add(self.session_ms));
        let session = Session { epoch, deadline, applied: MetadataIndex(0), pending: false };
        self.by_coordinator.insert(coordinator, session);
    }

    fn extend(&mut self, now: Millis, coordinator: CoordinatorId) {
        if let Some(session) = self.by_coordinator.get_mut(&coordinator) {
            session.deadline = session.deadline.max(Millis(now.0.saturating_add(self.session_ms)));
        }
    }

    /// Takes a heartbeat that arrived at `arrived`.
    pub fn beat(
        &mut self,
        arrived: Millis,
        heartbeat: &CoordinatorHeartbeat,
        state: &ClusterState,
    ) -> Result<CoordinatorBeat, Rejection> {
        let (coordinator, epoch) = (heartbeat.coordinator, heartbeat.epoch);
        plan::check_coordinator(state, coordinator, epoch)?;
        if self.by_coordinator.get(&coordinator).is_none_or(|session| session.epoch != epoch) {
            // Committed, but the news of it has not come here yet.
            self.open(arrived, coordinator, epoch);
        }
        self.extend(arrived, coordinator);
        let fenced = !state.coordinators().is_active(coordinator);
        if fenced
            && !heartbeat.stopping
            && let Some(known) = state.coordinators().get(coordinator)
        {
            // The cluster went on without it: it cannot be let back in, and is told why.
            let level = state.features().level();
            plan::check_level(level, format_args!("coordinator {coordinator}"), known.levels)?;
        }
        let verdict = self.by_coordinator.get_mut(&coordinator).and_then(|session| {
            session.applied = session.applied.max(heartbeat.applied);
            match (heartbeat.stopping, fenced) {
                (true, false) => session.decide(coordinator, true, "it is stopping"),
                (false, true) => session.decide(coordinator, false, "it is back"),
                (true, true) | (false, false) => None,
            }
        });
        Ok(CoordinatorBeat { fenced, may_stop: heartbeat.stopping && fenced, verdict })
    }

    /// Coordinators whose sessions have run out. If this was not called for long (the process itself was stopped), nobody
    /// can be blamed for the silence: all sessions are extended instead.
    pub fn expired(&mut self, now: Millis, state: &ClusterState) -> Vec<CoordinatorVerdict> {
        let before = self.looked.replace(now).unwrap_or(now);
        if now.0 - before.0 > self.session_ms / 2 {
            let coordinators: Vec<CoordinatorId> = self.by_coordinator.keys().copied().collect();
            for coordinator in coordinators {
                self.extend(now, coordinator);
            }
            return Vec::new();
        }
        self.by_coordinator
            .iter_mut()
            .filter(|(coordinator, session)| {
                session.deadline < now && state.coordinators().is_active(**coordinator)
            })
            .filter_map(|(coordinator, session)| {
                session.decide(*coordinator, true, "its session has run out")
            })
            .collect()
    }

    /// A verdict was committed, or could not be and may be tried again.
    pub fn decided(&mut self, verdict: CoordinatorVerdict) {
        if let Some(session) = self.by_coordinator.get_mut(&verdict.coordinator)
            && session.epoch == verdict.epoch
        {
            session.pending = false;
        }
    }

    /// Shards were released at `index`.
    pub fn released(&mut self, index: MetadataIndex) {
        self.released = self.released.max(index);
    }

    /// Whether every active coordinator has applied all releases: what has no owner is answered for by nobody.
    pub fn all_released(&self, state: &ClusterState) -> bool {
        let knows = |id: CoordinatorId| {
            self.by_coordinator.get(&id).is_some_and(|session| session.applied >= self.released)
        };
        state.coordinators().active().all(knows)
    }
}

impl Session {
    fn decide(
        &mut self,
        coordinator: CoordinatorId,
        fence: bool,
        why: &'static str,
    ) -> Option<CoordinatorVerdict> {
        if self.pending {
            return None;
        }
        self.pending = true;
        Some(CoordinatorVerdict { coordinator, epoch: self.epoch, fence, why })
    }
}
