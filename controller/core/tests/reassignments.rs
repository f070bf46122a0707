//! Reassignments: begun, changed, cancelled, completed; and the internal topics, which grow by them.

mod cluster;

use cluster::{Cluster, assigned, ids, refused};
use controller_core::plan;
use proto_types::controller_api::*;
use proto_types::error::Reason;
use proto_types::ids::*;
use proto_types::metadata::{ConfigResource, InternalTopic, PartitionState};
use std::collections::{BTreeMap, BTreeSet};

/// Topic `t` on nodes 1 to 3 of five.
fn five() -> Cluster {
    let mut cluster = Cluster::with_nodes(5);
    cluster.create(assigned("t", &[&[1, 2, 3]])).expect("created");
    cluster.write("t", 0);
    cluster
}

fn shape(partition: &PartitionState) -> [Vec<NodeId>; 4] {
    let PartitionState { replicas, adding, removing, isr, .. } = partition.clone();
    [replicas, adding, removing, isr]
}

/// T-27: it is done when all of the target are in sync, not before; then the leader goes if it is to go.
#[test]
fn t27_a_reassignment_ends_when_all_of_the_target_are_in_sync() {
    let mut cluster = five();
    cluster.reassign("t", 0, Some(&[4, 5, 3])).expect("begun");
    let partition = cluster.partition("t", 0);
    assert_eq!(shape(&partition), [ids(&[4, 5, 3, 1, 2]), ids(&[4, 5]), ids(&[1, 2]), ids(&[3, 1, 2])]);
    assert_eq!((partition.leader, partition.leader_epoch), (Some(NodeId(1)), LeaderEpoch(0)));
    cluster.propose("t", 0, &[1, 2, 3, 4]).expect("in force");
    assert_eq!(cluster.partition("t", 0).adding, ids(&[4, 5]), "not before node 5 is in sync too");
    cluster.propose("t", 0, &[1, 2, 4, 5]).expect("in force");
    assert_eq!(cluster.partition("t", 0).adding, ids(&[4, 5]), "nor while node 3 is not");
    cluster.write("t", 0);
    let done = cluster.propose("t", 0, &[1, 2, 3, 4, 5]).expect("in force");
    assert_eq!(shape(&done), [ids(&[4, 5, 3]), ids(&[]), ids(&[]), ids(&[4, 5, 3])]);
    assert_eq!((done.leader, done.leader_epoch), (Some(NodeId(4)), LeaderEpoch(1)));
    assert_eq!(cluster.ghost.elections["reassigned"], 1);
}

#[test]
fn the_last_member_may_be_admitted_by_the_change_that_completes() {
    let mut cluster = five();
    cluster.create(assigned("one", &[&[1]])).expect("created");
    cluster.write("one", 0);
    cluster.reassign("one", 0, Some(&[2])).expect("begun");
    let done = cluster.propose("one", 0, &[1, 2]).expect("in force");
    assert_eq!((shape(&done), done.leader), ([ids(&[2]), ids(&[]), ids(&[]), ids(&[2])], Some(NodeId(2))));
    assert_eq!(cluster.ghost.elections["reassigned"], 1, "which is no unclean election");
}

#[test]
fn an_order_or_fewer_replicas_need_nobody() {
    let mut cluster = five();
    cluster.reassign("t", 0, Some(&[3, 1, 2])).expect("done");
    let partition = cluster.partition("t", 0);
    assert_eq!(shape(&partition), [ids(&[3, 1, 2]), ids(&[]), ids(&[]), ids(&[3, 1, 2])]);
    assert_eq!(partition.leader, Some(NodeId(1)), "preference alone moves no leader");
    let length = cluster.log.len();
    cluster.reassign("t", 0, Some(&[3, 1, 2])).expect("nothing to do");
    assert!(cluster.log[length].1.is_empty());
    cluster.reassign("t", 0, Some(&[3, 2])).expect("done");
    let partition = cluster.partition("t", 0);
    assert_eq!(
        (shape(&partition), partition.leader),
        ([ids(&[3, 2]), ids(&[]), ids(&[]), ids(&[3, 2])], Some(NodeId(3)))
    );
}

/// Else the replica that goes, late to hear of it, could be wanted again and join with the log that it is about to delete.
#[test]
fn a_partition_that_a_replica_leaves_has_a_new_epoch_though_its_leader_stays() {
    let mut cluster = five();
    let before = cluster.partition("t", 0);
    cluster.reassign("t", 0, Some(&[1, 2])).expect("done");
    let after = cluster.partition("t", 0);
    assert_eq!((after.leader, after.replicas), (before.leader, ids(&[1, 2])));
    assert_eq!(after.leader_epoch, LeaderEpoch(before.leader_epoch.0 + 1));
}

#[test]
fn cancelling_goes_back() {
    let mut cluster = five();
    assert_eq!(refused(cluster.reassign("t", 0, None)).0, Reason::NoReassignmentInProgress);
    cluster.reassign("t", 0, Some(&[4, 5, 3])).expect("begun");
    cluster.propose("t", 0, &[1, 2, 3, 4]).expect("in force");
    cluster.reassign("t", 0, None).expect("cancelled");
    let partition = cluster.partition("t", 0);
    assert_eq!(shape(&partition), [ids(&[3, 1, 2]), ids(&[]), ids(&[]), ids(&[3, 1, 2])]);
    assert_eq!(partition.leader, Some(NodeId(1)));
}

#[test]
fn cancelling_does_not_lose_what_only_newcomers_have() {
    let mut cluster = five();
    cluster.create(assigned("one", &[&[1]])).expect("created");
    cluster.reassign("one", 0, Some(&[2, 3])).expect("begun");
    cluster.propose("one", 0, &[1, 2]).expect("in force");
    cluster.fence(1);
    cluster.write("one", 0);
    let (reason, message) = refused(cluster.reassign("one", 0, None));
    assert_eq!(reason, Reason::InvalidReplicaAssignment);
    assert!(message.contains("unclean leader election"), "{message}");
    // A new target that leaves out the only one that has everything keeps it until others have it too.
    cluster.reassign("one", 0, Some(&[4])).expect("begun");
    assert_eq!(shape(&cluster.partition("one", 0)), [ids(&[4, 2, 1]), ids(&[4]), ids(&[2, 1]), ids(&[2])]);
    let done = cluster.propose("one", 0, &[2, 4]).expect("in force");
    assert_eq!((shape(&done), done.leader), ([ids(&[4]), ids(&[]), ids(&[]), ids(&[4])], Some(NodeId(4))));
}

#[test]
fn a_new_target_replaces_an_unfinished_one() {
    let mut cluster = five();
    cluster.reassign("t", 0, Some(&[4, 2, 3])).expect("begun");
    cluster.propose("t", 0, &[1, 2, 3, 4]).expect("completes");
    assert_eq!(shape(&cluster.partition("t", 0))[0], ids(&[4, 2, 3]));
    cluster.reassign("t", 0, Some(&[1, 5, 3])).expect("begun");
    cluster.propose("t", 0, &[4, 2, 3, 1]).expect("in force");
    cluster.reassign("t", 0, Some(&[5, 2, 3])).expect("begun anew");
    let partition = cluster.partition("t", 0);
    assert_eq!(
        shape(&partition),
        [ids(&[5, 2, 3, 4]), ids(&[5]), ids(&[4]), ids(&[2, 3, 4])],
        "node 1 is dropped"
    );
    cluster.reassign("t", 0, None).expect("cancelled");
    let back: BTreeSet<NodeId> = cluster.partition("t", 0).replicas.into_iter().collect();
    assert_eq!(back, ids(&[2, 3, 4]).into_iter().collect(), "to what was before both");
}

#[test]
fn refused_reassignments() {
    let mut cluster = five();
    cluster.join(6, 1);
    cluster.fence(6);
    let cases: [(&str, i32, &[i32], Reason, &str); 7] = [
        ("nix", 0, &[1], Reason::UnknownTopic, "does not exist"),
        ("t", 5, &[1], Reason::UnknownPartition, "t:5"),
        ("t", 0, &[], Reason::InvalidReplicaAssignment, "empty replica list"),
        (
            "t",
            0,
            &[1, 2, 9],
            Reason::InvalidReplicaAssignment,
            "broker 9, but no such broker is registered. Choose among",
        ),
        ("t", 0, &[1, 2, 2], Reason::InvalidReplicaAssignment, "broker 2 more than once"),
        ("t", 0, &[1, 2, 6], Reason::InvalidReplicaAssignment, "broker 6, which is fenced"),
        ("t", 0, &[1, 2], Reason::InvalidReplicationFactor, "changed from 3 to 2"),
    ];
    for (topic, index, target, reason, words) in cases {
        let (got, message) = refused(cluster.reassign_with(topic, index, Some(target), false));
        assert_eq!(got, reason, "{message}");
        assert!(message.contains(words), "{message}");
    }
    cluster.fence(3);
    cluster.reassign_with("t", 0, Some(&[3, 1, 4]), false).expect("a fenced node may keep what it has");
    let twice =
        (0..2).map(|_| Reassignment { topic: "t".into(), partition: PartitionIndex(0), replicas: None });
    let request =
        AlterReassignments { partitions: twice.collect(), allow_factor_change: true, timeout_ms: 0 };
    let decision =
        plan::alter_reassignments(&cluster.state, &request, &cluster.inputs).expect("within bounds");
    assert_eq!(refused(decision.reply[1].clone()).0, Reason::InvalidRequest);
}

#[test]
fn internal_topics_grow_with_the_cluster() {
    let mut cluster = Cluster::with_nodes(1);
    let topic = cluster.create_internal(InternalTopic::ConsumerOffsets).expect("created");
    let name = InternalTopic::ConsumerOffsets.name();
    assert!(!plan::internal_topics_lack_replicas(&cluster.state), "one node, one replica");
    let count = cluster.inputs.limits.internal_topic_partitions as i32;
    for id in 2..=3 {
        cluster.join(id, 1);
        assert!(plan::internal_topics_lack_replicas(&cluster.state));
        assert_eq!(cluster.raise(), plan::Raised { partitions: 50, minimums: 0 });
        assert!(!plan::internal_topics_lack_replicas(&cluster.state), "it is under way");
        for index in 0..count {
            let partition = cluster.partition(name, index);
            assert_eq!((partition.leader, partition.adding), (Some(NodeId(1)), ids(&[id])));
            cluster.propose(name, index, &(1..=id).collect::<Vec<_>>()).expect("in force");
        }
    }
    let minimum = |cluster: &Cluster| {
        cluster.state.configs().get(&ConfigResource::Topic(topic), "min.insync.replicas").map(str::to_owned)
    };
    assert_eq!(minimum(&cluster), None, "nothing had to wait for followers so far");
    assert_eq!(cluster.raise(), plan::Raised { partitions: 0, minimums: 1 });
    assert_eq!(minimum(&cluster).as_deref(), Some("2"));
    cluster.join(4, 1);
    assert!(!plan::internal_topics_lack_replicas(&cluster.state), "three are enough");

    let mut preferred: BTreeMap<NodeId, usize> = BTreeMap::new();
    for index in 0..count {
        *preferred.entry(cluster.partition(name, index).replicas[0]).or_default() += 1;
    }
    assert!(preferred.values().all(|count| (12..=25).contains(count)), "{preferred:?}");
    let decision = plan::balance_leaders(&cluster.state, 1000).expect("cannot be refused");
    assert!(cluster.commit(decision) >= 25, "leaders spread over the new replicas");
}

#[test]
fn internal_topics_begin_with_all_replicas_where_there_are_nodes() {
    let mut cluster = Cluster::with_nodes(4);
    let topic = cluster.create_internal(InternalTopic::ConsumerOffsets).expect("created");
    assert_eq!(cluster.partition(InternalTopic::ConsumerOffsets.name(), 0).replicas.len(), 3);
    let minimum = cluster.state.configs().get(&ConfigResource::Topic(topic), "min.insync.replicas");
    assert_eq!(minimum, Some("2"));
    assert!(!plan::internal_topics_lack_replicas(&cluster.state));
}
