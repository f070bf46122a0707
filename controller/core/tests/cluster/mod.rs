//! A cluster for tests: plans, commits at the next index, applies, and keeps the whole log.

#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod ghost;

use controller_core::plan::{self, Decision, Inputs};
use controller_core::{Chance, ClusterState, Limits, invariants};
use ghost::{Cause, Ghost};
use proto_types::controller_api::*;
use proto_types::error::{Reason, Rejection};
use proto_types::feature::LevelRange;
use proto_types::ids::*;
use proto_types::metadata::*;
use uuid::Uuid;

pub(crate) struct Cluster {
    pub(crate) state: ClusterState,
    pub(crate) ghost: Ghost,
    pub(crate) cause: Cause,
    pub(crate) log: Vec<(MetadataIndex, Vec<MetadataChange>)>,
    pub(crate) inputs: Inputs,
}

impl Cluster {
    pub(crate) fn new(seed: u128) -> Self {
        let inputs = Inputs {
            now: Millis(0),
            chance: Chance::new(seed),
            limits: Limits::default(),
            cluster_id: "c".into(),
            levels: LevelRange::IMPLIED,
        };
        Self {
            state: ClusterState::new(),
            ghost: Ghost::default(),
            cause: Cause::Own,
            log: Vec::new(),
            inputs,
        }
    }

    /// A cluster of active nodes `1..=count`.
    pub(crate) fn with_nodes(count: i32) -> Self {
        let mut cluster = Self::new(7);
        for id in 1..=count {
            cluster.join(id, 1);
        }
        cluster
    }

    pub(crate) fn commit<R>(&mut self, decision: Decision<R>) -> R {
        let index = MetadataIndex(self.state.applied().0 + 1);
        let mut scratch = self.state.clone();
        let cause = std::mem::take(&mut self.cause);
        for change in &decision.changes {
            self.ghost.change(&scratch, change, &cause);
            scratch.apply(index, change);
        }
        self.ghost.check(&scratch);
        drop(scratch);
        self.state.apply_batch(index, &decision.changes);
        if let Err(broken) = invariants::check(&self.state) {
            panic!("after {:?}: {broken}", decision.changes);
        }
        self.log.push((index, decision.changes));
        decision.reply
    }

    pub(crate) fn register(&mut self, id: i32, incarnation: u128) -> Result<BrokerEpoch, Rejection> {
        let decision = plan::register_node(
            &self.state,
            &registration(id, incarnation),
            LevelRange::IMPLIED,
            &self.inputs,
        )?;
        Ok(self.commit(decision))
    }

    /// Registers and unfences.
    pub(crate) fn join(&mut self, id: i32, incarnation: u128) {
        self.register(id, incarnation).expect("registration is right");
        self.unfence(id);
    }

    pub(crate) fn epoch(&self, id: i32) -> BrokerEpoch {
        self.state.nodes().get(NodeId(id)).expect("registered").registration.broker_epoch
    }

    pub(crate) fn fence(&mut self, id: i32) {
        let decision = plan::fence_node(&self.state, NodeId(id), self.epoch(id)).expect("current epoch");
        self.commit(decision);
    }

    pub(crate) fn unfence(&mut self, id: i32) {
        let decision = plan::unfence_node(&self.state, NodeId(id), self.epoch(id)).expect("current epoch");
        self.commit(decision);
    }

    pub(crate) fn create_all(&mut self, topics: Vec<NewTopic>) -> Vec<Result<CreatedTopic, Rejection>> {
        let request = CreateTopics { topics, validate_only: false, timeout_ms: 0 };
        let decision = plan::create_topics(&self.state, &request, &mut self.inputs).expect("within bounds");
        self.commit(decision)
    }

    pub(crate) fn create(&mut self, topic: NewTopic) -> Result<CreatedTopic, Rejection> {
        self.create_all(vec![topic]).remove(0)
    }

    pub(crate) fn grow(
        &mut self,
        name: &str,
        count: i32,
        assignments: Vec<Vec<NodeId>>,
    ) -> Result<(), Rejection> {
        let topics = vec![MorePartitions { name: name.into(), count, assignments }];
        let request = CreatePartitions { topics, validate_only: false, timeout_ms: 0 };
        let decision =
            plan::create_partitions(&self.state, &request, &mut self.inputs).expect("within bounds");
        self.commit(decision).remove(0)
    }

    pub(crate) fn delete(&mut self, topic: TopicRef) -> Result<DeletedTopic, Rejection> {
        let request = DeleteTopics { topics: vec![topic], timeout_ms: 0 };
        let decision = plan::delete_topics(&self.state, &request, &self.inputs).expect("within bounds");
        self.commit(decision).remove(0)
    }

    pub(crate) fn alter(
        &mut self,
        resource: ResourceRef,
        replace_all: bool,
        ops: Vec<ConfigOp>,
    ) -> Result<(), Rejection> {
        let resources = vec![AlterResource { resource, replace_all, ops }];
        let request = AlterConfigs { resources, validate_only: false, timeout_ms: 0 };
        let decision = plan::alter_configs(&self.state, &request, &self.inputs).expect("within bounds");
        self.commit(decision).remove(0)
    }

    /// A proposal as the leader of the partition would make it now: `isr` as registered now.
    pub(crate) fn proposal(&self, topic: &str, index: i32, isr: &[i32]) -> AlterPartition {
        let at = self.at(topic, index);
        let partition = self.partition(topic, index);
        let node = partition.leader.expect("the partition has a leader");
        let isr = isr.iter().map(|node| (NodeId(*node), self.epoch(*node))).collect();
        let (leader_epoch, partition_epoch) = (partition.leader_epoch, partition.partition_epoch);
        let proposed = ProposedIsr { partition: at, leader_epoch, partition_epoch, isr };
        AlterPartition { node, broker_epoch: self.epoch(node.0), partitions: vec![proposed] }
    }

    /// The leader, whose log has failed, leaves itself and all that it knows of out.
    pub(crate) fn resign(&mut self, topic: &str, index: i32) -> Result<PartitionState, Rejection> {
        let proposal = self.proposal(topic, index, &[]);
        self.send(&proposal)
    }

    /// `node` has lost its copy.
    pub(crate) fn lose(&mut self, node: i32, topic: &str, index: i32) -> Result<PartitionState, Rejection> {
        let partitions = vec![self.at(topic, index)];
        let request = LoseCopies { node: NodeId(node), broker_epoch: self.epoch(node), partitions };
        let decision = plan::lose_copies(&self.state, &request, &self.inputs)?;
        self.commit(decision).remove(0)
    }

    /// Plans and commits a proposal about one partition.
    pub(crate) fn send(&mut self, proposal: &AlterPartition) -> Result<PartitionState, Rejection> {
        self.send_all(proposal)?.remove(0)
    }

    /// The same about many.
    pub(crate) fn send_all(
        &mut self,
        proposal: &AlterPartition,
    ) -> Result<Vec<Result<PartitionState, Rejection>>, Rejection> {
        let decision = plan::alter_partition(&self.state, proposal, &self.inputs)?;
        self.cause = Cause::Proposal;
        Ok(self.commit(decision))
    }

    /// The leader proposes `isr`, whose members have everything.
    pub(crate) fn propose(
        &mut self,
        topic: &str,
        index: i32,
        isr: &[i32],
    ) -> Result<PartitionState, Rejection> {
        let proposal = self.proposal(topic, index, isr);
        for node in isr {
            self.ghost.catch_up(self.at(topic, index), NodeId(*node));
        }
        self.send(&proposal)
    }

    pub(crate) fn write(&mut self, topic: &str, index: i32) {
        let at = self.at(topic, index);
        self.ghost.write(&self.state, at, None);
    }

    pub(crate) fn elect(&mut self, kind: ElectionKind, topic: &str, index: i32) -> Result<(), Rejection> {
        let partitions = Some(vec![(topic.to_owned(), PartitionIndex(index))]);
        self.elect_all(kind, partitions).remove(0).result
    }

    pub(crate) fn elect_all(
        &mut self,
        kind: ElectionKind,
        partitions: Option<Vec<(String, PartitionIndex)>>,
    ) -> Vec<ElectedLeader> {
        let request = ElectLeaders { kind, partitions, timeout_ms: 0 };
        let decision = plan::elect_leaders(&self.state, &request, &self.inputs).expect("within bounds");
        if kind == ElectionKind::Unclean {
            self.cause = Cause::UncleanRequest;
        }
        self.commit(decision)
    }

    pub(crate) fn reassign(
        &mut self,
        topic: &str,
        index: i32,
        target: Option<&[i32]>,
    ) -> Result<(), Rejection> {
        self.reassign_with(topic, index, target, true)
    }

    pub(crate) fn reassign_with(
        &mut self,
        topic: &str,
        index: i32,
        target: Option<&[i32]>,
        allow_factor_change: bool,
    ) -> Result<(), Rejection> {
        let replicas = target.map(ids);
        let wanted = Reassignment { topic: topic.into(), partition: PartitionIndex(index), replicas };
        let request = AlterReassignments { partitions: vec![wanted], allow_factor_change, timeout_ms: 0 };
        let decision = plan::alter_reassignments(&self.state, &request, &self.inputs).expect("within bounds");
        self.commit(decision).remove(0)
    }

    pub(crate) fn create_internal(&mut self, topic: InternalTopic) -> Result<TopicId, Rejection> {
        let decision = plan::create_internal_topic(&self.state, topic, &mut self.inputs)?;
        Ok(self.commit(decision))
    }

    pub(crate) fn raise(&mut self) -> plan::Raised {
        let decision = plan::raise_internal_topics(&self.state, &mut self.inputs).expect("cannot be refused");
        self.commit(decision)
    }

    pub(crate) fn unregister(&mut self, node: i32) -> Result<(), Rejection> {
        let decision = plan::unregister_node(&self.state, NodeId(node))?;
        self.commit(decision);
        Ok(())
    }

    pub(crate) fn at(&self, topic: &str, index: i32) -> TopicPartition {
        topic_partition(self.state.topics().id(topic).expect("topic exists"), index)
    }

    pub(crate) fn partition(&self, topic: &str, index: i32) -> PartitionState {
        let topic = self.state.topics().id(topic).expect("topic exists");
        self.state.partitions().get(topic_partition(topic, index)).expect("partition exists").clone()
    }

    pub(crate) fn configs(&self, topic: &str) -> Vec<(String, String)> {
        let topic = self.state.topics().id(topic).expect("topic exists");
        let resource = ConfigResource::Topic(topic);
        let all = self.state.configs().of(&resource);
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

pub(crate) fn registration(id: i32, incarnation: u128) -> RegisterNode {
    RegisterNode {
        cluster_id: "c".into(),
        node: NodeId(id),
        incarnation: Incarnation(Uuid::from_u128(incarnation)),
        directories: vec![DirectoryId(Uuid::from_u128(id as u128))],
        listeners: vec![Listener { name: "PLAINTEXT".into(), host: "h".into(), port: 9092 }],
        control_address: "h:1".into(),
        data_address: "h:2".into(),
        rack: None,
        may_lack: MayLack::Nothing,
    }
}

pub(crate) fn topic(name: &str, partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic {
        name: name.into(),
        partitions: Some(partitions),
        replication_factor: Some(replication_factor),
        assignments: vec![],
        configs: vec![],
    }
}

pub(crate) fn assigned(name: &str, replicas: &[&[i32]]) -> NewTopic {
    let assignments = (0..)
        .map(PartitionIndex)
        .zip(replicas.iter().map(|nodes| nodes.iter().copied().map(NodeId).collect()))
        .collect();
    NewTopic { name: name.into(), partitions: None, replication_factor: None, assignments, configs: vec![] }
}

pub(crate) fn op(kind: ConfigOpKind, name: &str, value: &str) -> ConfigOp {
    let value = (kind != ConfigOpKind::Delete).then(|| value.to_owned());
    ConfigOp { name: name.into(), kind, value }
}

pub(crate) fn on_topic(name: &str) -> ResourceRef {
    ResourceRef::Topic(name.into())
}

pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Rejection>) -> (Reason, String) {
    let rejection = result.expect_err("must be refused");
    (rejection.reason, rejection.message)
}

pub(crate) fn ids(nodes: &[i32]) -> Vec<NodeId> {
    nodes.iter().copied().map(NodeId).collect()
}
