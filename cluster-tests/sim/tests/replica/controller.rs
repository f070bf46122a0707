//! The controller of the run: the real state, the real plans and the real sessions, with a proposer that commits at once.
//! Every committed state stays, so that a node can stand at any of them.

use controller_core::plan::{self, Inputs};
use controller_core::sessions::Verdict;
use controller_core::{Chance, ClusterState, Limits, Sessions};
use proto_types::controller_api::{CreateTopics, Heartbeat, HeartbeatReply, MayLack, NewTopic, RegisterNode};
use proto_types::error::Rejection;
use proto_types::feature::LevelRange;
use proto_types::ids::{
    BrokerEpoch, DirectoryId, Incarnation, MetadataIndex, Millis, NodeId, PartitionIndex, TopicId,
    TopicPartition,
};
use proto_types::metadata::{MetadataChange, PartitionState};
use uuid::Uuid;

use crate::faults::Plan;

const CLUSTER: &str = "simulated";

pub(crate) struct Controller {
    /// The state at each index.
    history: Vec<ClusterState>,
    pub(crate) sessions: Sessions,
    pub(crate) inputs: Inputs,
    session_ms: u64,
    pub(crate) topic: TopicId,
}

/// What a commit changed.
pub(crate) struct Committed {
    pub(crate) index: u64,
    pub(crate) partitions: Vec<(usize, Option<PartitionState>, PartitionState)>,
}

impl Controller {
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let inputs = Inputs {
            now: Millis(0),
            chance: Chance::new(u128::from(seed) << 1 | 1),
            limits: Limits::default(),
            cluster_id: CLUSTER.to_owned(),
            levels: LevelRange::IMPLIED,
        };
        Controller {
            history: vec![ClusterState::new()],
            sessions: Sessions::new(plan.session_ms),
            inputs,
            session_ms: plan.session_ms,
            topic: TopicId(Uuid::nil()),
        }
    }

    pub(crate) fn state(&self) -> &ClusterState {
        self.history.last().expect("there is a first state")
    }

    /// The state as it was at `index`.
    pub(crate) fn state_at(&self, index: u64) -> &ClusterState {
        &self.history[index as usize]
    }

    pub(crate) fn index(&self) -> u64 {
        self.history.len() as u64 - 1
    }

    pub(crate) fn at(&self, partition: usize) -> TopicPartition {
        TopicPartition { topic: self.topic, partition: PartitionIndex(partition as i32) }
    }

    pub(crate) fn partition(&self, partition: usize) -> &PartitionState {
        self.state().partitions().get(self.at(partition)).expect("the topic is never deleted")
    }

    /// Commits and applies; `None` if there is nothing to commit.
    pub(crate) fn commit(&mut self, changes: &[MetadataChange]) -> Option<Committed> {
        if changes.is_empty() {
            return None;
        }
        let index = self.index() + 1;
        let mut next = self.state().clone();
        next.apply_batch(MetadataIndex(index), changes);
        if let Err(broken) = controller_core::invariants::check(&next) {
            panic!("the controller's state is broken: {broken}\nby {changes:?}");
        }
        let mut partitions = Vec::new();
        for change in changes {
            if let MetadataChange::PartitionSet { partition, state } = change {
                let before = self.state().partitions().get(*partition).cloned();
                partitions.push((partition.partition.0 as usize, before, state.clone()));
            }
        }
        self.history.push(next);
        Some(Committed { index, partitions })
    }

    /// All nodes have joined and the topic exists.
    pub(crate) fn begin(&mut self, plan: &Plan, incarnations: &[Incarnation]) -> Vec<BrokerEpoch> {
        let mut epochs = Vec::new();
        for (node, incarnation) in incarnations.iter().enumerate() {
            let (epoch, _) = self.register(0, node, *incarnation, false).expect("a new node may join");
            let changes = plan::unfence_node(self.state(), NodeId(node as i32), epoch).expect("just joined");
            self.commit(&changes.changes);
            epochs.push(epoch);
        }
        let mut configs = vec![
            ("min.insync.replicas".to_owned(), Some(plan.min_insync.to_string())),
            ("weir.flush".to_owned(), Some(if plan.flush_os { "os" } else { "ack" }.to_owned())),
        ];
        if plan.unclean_allowed {
            configs.push(("unclean.leader.election.enable".to_owned(), Some("true".to_owned())));
        }
        let topic = NewTopic {
            name: "t".to_owned(),
            partitions: Some(plan.partitions as i32),
            replication_factor: Some(plan.replication_factor as i16),
            assignments: Vec::new(),
            configs,
        };
        let request = CreateTopics { topics: vec![topic], validate_only: false, timeout_ms: 0 };
        let state = self.state().clone();
        let decision = plan::create_topics(&state, &request, &mut self.inputs).expect("a right request");
        self.topic = decision.reply[0].as_ref().expect("a right topic").topic;
        self.commit(&decision.changes);
        self.sessions.begin_leadership(Millis(0), &self.history[self.history.len() - 1]);
        epochs
    }

    pub(crate) fn register(
        &mut self,
        now: i64,
        node: usize,
        incarnation: Incarnation,
        unflushed_lost: bool,
    ) -> Result<(BrokerEpoch, Option<Committed>), Rejection> {
        let request = RegisterNode {
            cluster_id: CLUSTER.to_owned(),
            node: NodeId(node as i32),
            incarnation,
            directories: vec![DirectoryId(Uuid::from_u128(1_000 + node as u128))],
            listeners: Vec::new(),
            control_address: String::new(),
            data_address: String::new(),
            rack: None,
            may_lack: if unflushed_lost { MayLack::Unflushed } else { MayLack::Nothing },
        };
        let decision = plan::register_node(self.state(), &request, LevelRange::IMPLIED, &self.inputs)?;
        let committed = self.commit(&decision.changes);
        let index = MetadataIndex(self.index());
        self.sessions.registered(Millis(now), NodeId(node as i32), decision.reply, index);
        Ok((decision.reply, committed))
    }

    pub(crate) fn beat(
        &mut self,
        now: i64,
        heartbeat: &Heartbeat,
    ) -> Result<(HeartbeatReply, Option<Committed>), Rejection> {
        let state = self.state().clone();
        let beat = self.sessions.beat(Millis(now), heartbeat, &state)?;
        let committed = beat.verdict.and_then(|verdict| self.carry_out(verdict));
        let reply = HeartbeatReply {
            committed: MetadataIndex(self.index()),
            fenced: beat.fenced,
            may_stop: beat.may_stop,
        };
        Ok((reply, committed))
    }

    /// Who was silent for too long.
    pub(crate) fn expired(&mut self, now: i64) -> Vec<Verdict> {
        let state = self.state().clone();
        self.sessions.expired(Millis(now), &state)
    }

    pub(crate) fn carry_out(&mut self, verdict: Verdict) -> Option<Committed> {
        let Verdict { node, broker_epoch, fence, .. } = verdict;
        let decide = if fence { plan::fence_node } else { plan::unfence_node };
        let committed = match decide(self.state(), node, broker_epoch) {
            Ok(decision) => self.commit(&decision.changes),
            Err(_) => None,
        };
        self.sessions.decided(verdict, committed.as_ref().map(|committed| MetadataIndex(committed.index)));
        committed
    }

    /// Another controller takes over: the state comes from a snapshot, and who is alive it has yet to learn.
    pub(crate) fn move_leadership(&mut self, now: i64) {
        let index = MetadataIndex(self.index());
        let rebuilt = ClusterState::from_changes(index, &self.state().to_changes());
        assert!(rebuilt == *self.state(), "C3: a snapshot rebuilds the state");
        self.sessions = Sessions::new(self.session_ms);
        self.sessions.begin_leadership(Millis(now), &rebuilt);
    }
}
