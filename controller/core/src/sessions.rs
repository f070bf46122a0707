//! Who is alive: the sessions of storage nodes, as the quorum's leader sees them.
//!
//! Soft state: never committed, gone with the leadership, granted anew by the next leader. What follows from it (fencing
//! and unfencing) is committed. The clock is monotonic and handed in; the shell calls [`Sessions::beat`] only after it has
//! confirmed with the quorum that it still leads.

mod probes;

pub use probes::{Probe, ProbeAnswer, ProbeTarget};

use crate::caught_up::CaughtUp;
use crate::state::ClusterState;
use probes::ProbeState;
use proto_types::controller_api::Heartbeat;
use proto_types::error::{Reason, Rejection};
use proto_types::ids::{BrokerEpoch, MetadataIndex, Millis, NodeId};
use std::collections::BTreeMap;

/// What should be committed about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The node.
    pub node: NodeId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// Whether to fence it or to let it back in.
    pub fence: bool,
    /// Why, for the log.
    pub why: &'static str,
    /// A node that is given up for its silence: its last sign of life, or the beginning of the leadership that never had
    /// one. `None` for one that spoke itself.
    pub silent_since: Option<Millis>,
}

/// What a heartbeat amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Whether the node is fenced now.
    pub fenced: bool,
    /// A stopping node may go: it leads nothing, and every active node knows.
    pub may_stop: bool,
    /// What to commit, if anything.
    pub verdict: Option<Verdict>,
}

/// How far a node follows the metadata. Times are of the clock that [`Sessions`] are handed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataFollower {
    /// The node.
    pub node: NodeId,
    /// What it said that it has applied.
    pub applied: MetadataIndex,
    /// When it said so.
    pub heard: Millis,
    /// When it last had everything, if it ever had.
    pub caught_up: Option<Millis>,
}

#[derive(Debug, Clone)]
struct Session {
    broker_epoch: BrokerEpoch,
    opened: Millis,
    deadline: Millis,
    /// What the node says that it has applied.
    applied: MetadataIndex,
    /// When it last said so.
    heard: Option<Millis>,
    caught_up: CaughtUp,
    /// What it must have applied before it is unfenced.
    catch_up: MetadataIndex,
    /// A verdict is on its way to being committed.
    pending: bool,
    probes: ProbeState,
}

/// All sessions.
#[derive(Debug)]
pub struct Sessions {
    session_ms: i64,
    /// The heartbeat interval, if silent nodes are probed.
    probe_ms: Option<i64>,
    by_node: BTreeMap<NodeId, Session>,
    /// When [`Sessions::expired`] last looked.
    looked: Option<Millis>,
}

impl Sessions {
    /// No sessions; each will last `session_ms` without a heartbeat.
    pub fn new(session_ms: u64) -> Self {
        let session_ms = i64::try_from(session_ms).unwrap_or(i64::MAX / 4);
        Self { session_ms, probe_ms: None, by_node: BTreeMap::new(), looked: None }
    }

    /// The same, with nodes probed that have been silent for two intervals of `heartbeat_ms`: those whose process is
    /// provably gone lose their session at once.
    #[must_use]
    pub fn probing(mut self, heartbeat_ms: u64) -> Self {
        self.probe_ms = Some(i64::try_from(heartbeat_ms).unwrap_or(i64::MAX / 4));
        self
    }

    /// A leadership begins: every node gets a fresh session.
    pub fn begin_leadership(&mut self, now: Millis, state: &ClusterState) {
        self.by_node.clear();
        self.looked = Some(now);
        for (node, known) in state.nodes().iter() {
            self.open(now, node, known.registration.broker_epoch, state.applied());
        }
    }

    /// A registration was committed at `index`.
    pub fn registered(&mut self, now: Millis, node: NodeId, broker_epoch: BrokerEpoch, index: MetadataIndex) {
        let known = self.by_node.get(&node).is_some_and(|session| session.broker_epoch == broker_epoch);
        // A repeated request of the same incarnation changes nothing but its deadline.
        if known {
            self.extend(now, node);
        } else {
            self.open(now, node, broker_epoch, index);
        }
        if let Some(session) = self.by_node.get_mut(&node) {
            session.probes.heard(now);
        }
    }

    fn open(&mut self, now: Millis, node: NodeId, broker_epoch: BrokerEpoch, catch_up: MetadataIndex) {
        let deadline = Millis(now.0.saturating_add(self.session_ms));
        let session = Session {
            broker_epoch,
            opened: now,
            deadline,
            applied: MetadataIndex(0),
            heard: None,
            caught_up: CaughtUp::default(),
            catch_up,
            pending: false,
            probes: ProbeState::default(),
        };
        self.by_node.insert(node, session);
    }

    fn extend(&mut self, now: Millis, node: NodeId) {
        if let Some(session) = self.by_node.get_mut(&node) {
            session.deadline = session.deadline.max(Millis(now.0.saturating_add(self.session_ms)));
        }
    }

    /// Takes a heartbeat that arrived at `arrived`.
    pub fn beat(
        &mut self,
        arrived: Millis,
        heartbeat: &Heartbeat,
        state: &ClusterState,
    ) -> Result<Beat, Rejection> {
        let node = heartbeat.node;
        crate::plan::check_registration(state, node, heartbeat.broker_epoch)?;
        if self.by_node.get(&node).is_none_or(|session| session.broker_epoch != heartbeat.broker_epoch) {
            // Committed, but the news of it has not come here yet.
            self.open(arrived, node, heartbeat.broker_epoch, state.applied());
        }
        self.extend(arrived, node);
        let session = self.by_node.get_mut(&node).ok_or_else(|| Rejection {
            reason: Reason::UnknownNode,
            message: format!("Node {node} has no session."),
        })?;
        session.probes.heard(arrived);
        session.applied = session.applied.max(heartbeat.applied);
        session.heard = session.heard.max(Some(arrived));
        session.caught_up.look(session.applied.0, state.applied().0, arrived);
        let fenced = !state.nodes().is_active(node);
        let why = match (heartbeat.stopping, heartbeat.healthy) {
            (true, _) => Some("it is stopping"),
            (false, false) => Some("its disks are not healthy"),
            (false, true) => None,
        };
        let verdict = match why {
            Some(why) if !fenced => session.decide(node, true, why, None),
            None if fenced && session.applied >= session.catch_up => {
                session.decide(node, false, "it has caught up", None)
            }
            _ => None,
        };
        // Its leaders have moved: it goes on serving until everybody knows where to.
        let moved = session.catch_up;
        let settled = fenced && !session.pending;
        let may_stop = heartbeat.stopping && settled && self.lagging(state, moved).is_empty();
        Ok(Beat { fenced, may_stop, verdict })
    }

    /// Nodes whose sessions have run out. If this was not called for long (the process itself was stopped), no node can
    /// be blamed for the silence: all sessions are extended instead.
    pub fn expired(&mut self, now: Millis, state: &ClusterState) -> Vec<Verdict> {
        let before = self.looked.replace(now).unwrap_or(now);
        // Nodes that were removed for good.
        self.by_node.retain(|node, _| state.nodes().get(*node).is_some());
        if now.0 - before.0 > self.session_ms / 2 {
            let nodes: Vec<NodeId> = self.by_node.keys().copied().collect();
            for node in nodes {
                self.extend(now, node);
            }
            return Vec::new();
        }
        self.by_node
            .iter_mut()
            .filter(|(node, session)| session.deadline < now && state.nodes().is_active(**node))
            .filter_map(|(node, session)| session.give_up(*node, "its session has run out"))
            .collect()
    }

    /// The nodes to be probed now, at most `max`: active ones that have been silent for two heartbeat intervals, and once
    /// in good health, to see whether refusals of theirs mean anything. Each answer goes to [`Sessions::probed`].
    pub fn to_probe(&mut self, now: Millis, state: &ClusterState, max: usize) -> Vec<Probe> {
        let Some(heartbeat_ms) = self.probe_ms else { return Vec::new() };
        let due =
            self.by_node.iter_mut().filter(|(_, session)| !session.pending).filter_map(|(node, session)| {
                let known = state.nodes().get(*node).filter(|known| !known.fenced)?;
                let target = session.probes.due(now, heartbeat_ms, &known.registration.data_address)?;
                Some((session, *node, target))
            });
        due.take(max)
            .map(|(session, node, target)| {
                session.probes.asked(now);
                Probe { node, broker_epoch: session.broker_epoch, begun: now, target }
            })
            .collect()
    }

    /// Takes the answer to a probe. A node that refused, and was not heard since it was asked, loses its session.
    pub fn probed(&mut self, probe: &Probe, answer: ProbeAnswer, state: &ClusterState) -> Option<Verdict> {
        let session = self.by_node.get_mut(&probe.node)?;
        if session.broker_epoch != probe.broker_epoch || !session.probes.answered(probe.begun, answer) {
            return None;
        }
        let active = state.nodes().is_active(probe.node);
        active.then(|| session.give_up(probe.node, "its process is gone"))?
    }

    /// A verdict was committed at `index`, or could not be (`None`) and may be tried again.
    pub fn decided(&mut self, verdict: Verdict, index: Option<MetadataIndex>) {
        let Some(session) = self.by_node.get_mut(&verdict.node) else { return };
        if session.broker_epoch != verdict.broker_epoch {
            return;
        }
        session.pending = false;
        if let (true, Some(index)) = (verdict.fence, index) {
            session.catch_up = session.catch_up.max(index);
        }
    }

    /// How far the registered nodes are that were heard from.
    pub fn followers(&self, state: &ClusterState) -> impl Iterator<Item = MetadataFollower> {
        self.by_node.iter().filter_map(|(node, session)| {
            let known = state.nodes().get(*node)?;
            let current = known.registration.broker_epoch == session.broker_epoch;
            Some(MetadataFollower {
                node: *node,
                applied: session.applied,
                heard: session.heard.filter(|_| current)?,
                caught_up: session.caught_up.at(),
            })
        })
    }

    /// Active nodes that have not applied `index` yet.
    pub fn lagging(&self, state: &ClusterState, index: MetadataIndex) -> Vec<NodeId> {
        let behind = |node: NodeId| self.by_node.get(&node).is_none_or(|session| session.applied < index);
        let active = state.nodes().iter().filter(|(_, known)| !known.fenced).map(|(node, _)| node);
        active.filter(|node| behind(*node)).collect()
    }
}

impl Session {
    fn decide(
        &mut self,
        node: NodeId,
        fence: bool,
        why: &'static str,
        silent_since: Option<Millis>,
    ) -> Option<Verdict> {
        if self.pending {
            return None;
        }
        self.pending = true;
        Some(Verdict { node, broker_epoch: self.broker_epoch, fence, why, silent_since })
    }

    fn give_up(&mut self, node: NodeId, why: &'static str) -> Option<Verdict> {
        let silent_since = self.probes.last_heard().unwrap_or(self.opened);
        self.decide(node, true, why, Some(silent_since))
    }
}
