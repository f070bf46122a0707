//! Histories of a few partitions on five nodes: leaders propose, requests and answers are late, lost or come twice, nodes
//! restart without what nobody counts on, partitions move, minimums change.

use crate::cluster::{Cluster, assigned, ids, on_topic, op};
use crate::{check_ids, check_replay, check_snapshots};
use controller_core::{Chance, plan};
use proto_types::controller_api::*;
use proto_types::error::Reason;
use proto_types::ids::*;
use proto_types::metadata::{ConfigResource, InternalTopic};
use std::collections::{BTreeMap, BTreeSet};

const STEPS: usize = 400;
const NODES: i32 = 5;
/// A node that comes and goes without ever holding anything.
const SPARE: i32 = 9;
const TOPICS: [&str; 3] = ["a", "b", "c"];

/// What happened in some histories, with counts.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    counts: BTreeMap<String, usize>,
}

impl Seen {
    fn mark(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    fn result<T>(&mut self, what: &str, result: &Result<T, proto_types::error::Rejection>) {
        match result {
            Ok(_) => self.mark(what),
            Err(rejection) => self.mark(format!("{what}: {:?}", rejection.reason)),
        }
    }

    pub(crate) fn add(&mut self, other: Seen) {
        for (what, count) in other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    pub(crate) fn check(&self) {
        let wanted = [
            "propose".to_owned(),
            "withdraw".to_owned(),
            "elected in sync".to_owned(),
            "elected eligible".to_owned(),
            "elected preferred".to_owned(),
            "elected reassigned".to_owned(),
            "elected unclean".to_owned(),
            "cancel".to_owned(),
            "reassign".to_owned(),
            "raise".to_owned(),
            "resign".to_owned(),
            "unregister".to_owned(),
            format!("propose: {:?}", Reason::IneligibleReplica),
            format!("propose: {:?}", Reason::StalePartitionEpoch),
            format!("propose: {:?}", Reason::FencedLeaderEpoch),
            format!("cancel: {:?}", Reason::InvalidReplicaAssignment),
            format!("reassign: {:?}", Reason::InvalidReplicaAssignment),
            format!("unregister: {:?}", Reason::NodeInUse),
        ];
        for what in wanted {
            assert!(self.counts.contains_key(&what), "never seen: {what}; seen: {:#?}", self.counts);
        }
    }
}

struct World {
    cluster: Cluster,
    chance: Chance,
    /// The proposal that each leader has under way; its members have acknowledged everything so far.
    pending: BTreeMap<TopicPartition, AlterPartition>,
    /// Requests that were sent once and may come again at any time.
    sent: Vec<AlterPartition>,
    incarnation: u128,
    seen: Seen,
}

pub(crate) fn history(seed: u64) -> Seen {
    let mut cluster = Cluster::new(u128::from(seed) << 64 | 3);
    for id in 1..=NODES {
        cluster.join(id, 1);
    }
    for (index, replicas) in [&[1, 2, 3][..], &[3, 4], &[5, 1, 2, 4]].into_iter().enumerate() {
        cluster.create(assigned(TOPICS[index], &[replicas, replicas])).expect("created");
    }
    cluster.inputs.limits.internal_topic_partitions = 2;
    let (pending, sent) = (BTreeMap::new(), Vec::new());
    let chance = Chance::new(u128::from(seed) | 1 << 100);
    let mut world = World { cluster, chance, pending, sent, incarnation: 1, seen: Seen::default() };
    for _ in 0..STEPS {
        world.step();
    }
    check_replay(&world.cluster);
    check_snapshots(&world.cluster, &mut world.chance);
    check_ids(&world.cluster);
    for (kind, count) in &world.cluster.ghost.elections {
        *world.seen.counts.entry(format!("elected {kind}")).or_default() += count;
    }
    world.seen
}

impl World {
    fn step(&mut self) {
        let node = 1 + self.chance.below(NODES as usize) as i32;
        let topic = TOPICS[self.chance.below(TOPICS.len())];
        let index = self.chance.below(2) as i32;
        let at = self.cluster.at(topic, index);
        let registered = self.cluster.state.nodes().get(NodeId(node)).is_some();
        match self.chance.below(40) {
            0..=7 => self.cluster.ghost.write(&self.cluster.state, at, self.pending.get(&at)),
            8..=13 => self.propose(topic, index),
            14..=19 => self.deliver(at),
            20 => self.deliver_again(),
            21 => self.learn(at),
            22 => self.withdraw(topic, index),
            23..=24 if registered => self.cluster.fence(node),
            25..=28 if registered => self.cluster.unfence(node),
            29..=30 => {
                self.incarnation += 1;
                self.cluster.register(node, self.incarnation).expect("right directories");
            }
            31..=33 => self.reassign(topic, index),
            34 => {
                let result = self.cluster.reassign(topic, index, None);
                self.seen.result("cancel", &result);
            }
            35 => {
                let kind = [ElectionKind::Preferred, ElectionKind::Unclean][self.chance.below(2)];
                if self.chance.below(2) == 0 {
                    let _elected = self.cluster.elect_all(kind, None);
                } else {
                    let _elected = self.cluster.elect(kind, topic, index);
                }
            }
            36..=37 => self.alter(topic),
            38 if self.chance.below(2) == 0 => self.resign(topic, index),
            38 => self.keep_house(),
            _ => {
                let node = if self.chance.below(2) == 0 { node } else { SPARE };
                let result = self.cluster.unregister(node);
                self.seen.result("unregister", &result);
            }
        }
    }

    /// The leader proposes itself and some of the living, who have everything.
    fn propose(&mut self, topic: &str, index: i32) {
        let at = self.cluster.at(topic, index);
        let partition = self.cluster.partition(topic, index);
        let Some(leader) = partition.leader else { return };
        if self.pending.contains_key(&at) {
            return;
        }
        let eager = self.chance.below(3) > 0;
        let mut isr = vec![leader.0];
        for node in &partition.replicas {
            let wanted = eager || self.chance.below(2) == 0;
            // The leader hears from fenced nodes too.
            if *node != leader
                && wanted
                && (self.cluster.state.nodes().is_active(*node) || self.chance.below(8) == 0)
            {
                isr.push(node.0);
                self.cluster.ghost.catch_up(at, *node);
            }
        }
        self.pending.insert(at, self.cluster.proposal(topic, index, &isr));
    }

    fn deliver(&mut self, at: TopicPartition) {
        let Some(request) = self.pending.get(&at).cloned() else { return };
        let first = !self.sent.contains(&request);
        let answered = self.chance.below(3) > 0;
        let result = self.cluster.send(&request);
        self.seen.result("propose", &result);
        // A refusal of the only copy is the end of it. Without an answer, or with other copies on their way, the leader
        // goes on with both sets until the partition has a newer state.
        let refused = result.as_ref().err().map(|rejection| rejection.reason);
        let ended = answered && (first || refused != Some(Reason::IneligibleReplica));
        if !(ended && refused == Some(Reason::IneligibleReplica)) {
            self.sent.push(request);
        }
        if ended {
            self.pending.remove(&at);
        }
    }

    /// The leader takes back what it has proposed: it asks for a newer state with the present set.
    fn withdraw(&mut self, topic: &str, index: i32) {
        let at = self.cluster.at(topic, index);
        let partition = self.cluster.partition(topic, index);
        let Some(request) = self.pending.get(&at) else { return };
        let mut back = request.clone();
        back.partitions[0].isr =
            partition.isr.iter().map(|node| (*node, ProposedIsr::NOT_HEARD_FROM)).collect();
        if back.partitions[0].partition_epoch == partition.partition_epoch && self.cluster.send(&back).is_ok()
        {
            self.seen.mark("withdraw");
            self.pending.remove(&at);
        }
    }

    /// The leader's log fails: it leaves the partition to the others, whatever it has proposed before.
    fn resign(&mut self, topic: &str, index: i32) {
        let partition = self.cluster.partition(topic, index);
        let Some(leader) = partition.leader else { return };
        let others: Vec<i32> =
            partition.isr.iter().filter(|node| **node != leader).map(|node| node.0).collect();
        let proposal = self.cluster.proposal(topic, index, &others);
        let result = self.cluster.send(&proposal);
        self.seen.result("resign", &result);
        if result.is_ok() {
            self.pending.remove(&self.cluster.at(topic, index));
        }
    }

    /// A request comes once more, whatever has become of it.
    fn deliver_again(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let request = self.sent[self.chance.below(self.sent.len())].clone();
        let result = self.cluster.send(&request);
        self.seen.result("propose", &result);
    }

    /// The leader learns from the metadata that its proposal is about an older state.
    fn learn(&mut self, at: TopicPartition) {
        let current = self.cluster.state.partitions().get(at).map(|partition| partition.partition_epoch);
        let about = self.pending.get(&at).map(|request| request.partitions[0].partition_epoch);
        if about.is_some() && about != current {
            self.pending.remove(&at);
        }
    }

    fn reassign(&mut self, topic: &str, index: i32) {
        let mut nodes: Vec<i32> = (1..=NODES).collect();
        self.chance.shuffle(&mut nodes);
        nodes.truncate(1 + self.chance.below(4));
        let result = self.cluster.reassign(topic, index, Some(&nodes));
        self.seen.result("reassign", &result);
        let distinct: BTreeSet<NodeId> = ids(&nodes).into_iter().collect();
        let replicas = self.cluster.partition(topic, index).replicas;
        assert!(result.is_err() || distinct.iter().all(|node| replicas.contains(node)));
    }

    fn alter(&mut self, topic: &str) {
        let resource = match self.chance.below(3) {
            0 => ResourceRef::Resource(ConfigResource::NodeDefault),
            _ => on_topic(topic),
        };
        let kind = [ConfigOpKind::Set, ConfigOpKind::Delete][self.chance.below(2)];
        let minimum = (1 + self.chance.below(3)).to_string();
        let change = if self.chance.below(6) == 0 {
            op(
                kind,
                "unclean.leader.election.enable",
                ["true", "false", "false", "false"][self.chance.below(4)],
            )
        } else {
            op(kind, "min.insync.replicas", &minimum)
        };
        self.cluster.alter(resource, false, vec![change]).expect("valid");
    }

    fn keep_house(&mut self) {
        self.incarnation += 1;
        self.cluster.register(SPARE, self.incarnation).expect("right directories");
        let topic = InternalTopic::ConsumerOffsets;
        if self.cluster.state.nodes().active().next().is_some() {
            self.cluster.create_internal(topic).expect("there is a node");
        }
        if plan::internal_topics_lack_replicas(&self.cluster.state) {
            self.cluster.raise();
            self.seen.mark("raise");
        }
        let decision = plan::balance_leaders(&self.cluster.state, 3).expect("cannot be refused");
        self.cluster.commit(decision);
    }
}
