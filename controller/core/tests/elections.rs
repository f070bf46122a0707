//! Elections: unclean ones only with permission, preferred ones by request and by themselves.

mod cluster;

use cluster::{Cluster, assigned, ids, on_topic, op, refused, topic};
use controller_core::observe::{Election, partition_event};
use controller_core::plan;
use proto_types::controller_api::ElectionKind::{Preferred, Unclean};
use proto_types::controller_api::*;
use proto_types::error::Reason;
use proto_types::ids::*;
use proto_types::metadata::ConfigResource;

/// Topic `t` on nodes 1 to 3; only node 3, which is gone, has everything.
fn offline() -> Cluster {
    let mut cluster = Cluster::with_nodes(3);
    cluster.create(assigned("t", &[&[1, 2, 3]])).expect("created");
    cluster.write("t", 0);
    cluster.fence(1);
    cluster.write("t", 0);
    cluster.fence(2);
    let lower = vec![op(ConfigOpKind::Set, "min.insync.replicas", "1")];
    cluster.alter(on_topic("t"), false, lower).expect("altered");
    cluster.write("t", 0);
    cluster.fence(3);
    cluster.unfence(1);
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.leader, partition.isr, partition.elr), (None, ids(&[3]), ids(&[])));
    cluster
}

fn enable() -> Vec<ConfigOp> {
    vec![op(ConfigOpKind::Set, "unclean.leader.election.enable", "true")]
}

/// T-26, without permission: nothing but the right node, or a request, brings the partition back.
#[test]
fn t26_no_unclean_election_by_itself() {
    let mut cluster = offline();
    cluster.unfence(2);
    assert_eq!(cluster.partition("t", 0).leader, None);
    let (reason, message) = refused(cluster.elect(Preferred, "t", 0));
    assert_eq!(reason, Reason::PreferredLeaderNotAvailable);
    assert!(message.contains("start one of brokers 3.") && message.contains("--unclean"), "{message}");
    cluster.unfence(3);
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(3)));
}

/// T-26, by request: it happens, and can be told from every other election.
#[test]
fn t26_unclean_election_by_request_is_visible() {
    let mut cluster = offline();
    let before = cluster.state.clone();
    cluster.elect(Unclean, "t", 0).expect("elected");
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.leader, partition.isr.clone()), (Some(NodeId(1)), ids(&[1])));
    let (_, changes) = cluster.log.last().expect("committed");
    let event = partition_event(&before, &changes[0]).expect("of a partition");
    assert_eq!(event.elected, Some((NodeId(1), partition.leader_epoch, Election::Unclean)));
    cluster.unfence(3);
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(1)), "node 3 follows the new truth");
    assert_eq!(refused(cluster.elect(Unclean, "t", 0)).0, Reason::ElectionNotNeeded);
}

/// T-26, by config: at once, when the config comes, when a node comes, and when the last in-sync one goes.
#[test]
fn t26_unclean_election_by_config() {
    let mut cluster = offline();
    cluster.alter(on_topic("t"), false, enable()).expect("altered");
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(1)));
    cluster.unfence(2);
    cluster.fence(1);
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.leader, partition.isr), (Some(NodeId(2)), ids(&[2])));
    cluster.fence(2);
    assert_eq!(cluster.partition("t", 0).leader, None);
    cluster.unfence(3);
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(3)));
    assert_eq!(cluster.ghost.elections["unclean"], 3);

    let mut cluster = offline();
    let all = ResourceRef::Resource(ConfigResource::NodeDefault);
    cluster.alter(all, false, enable()).expect("altered");
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(1)), "the default of all nodes counts too");
}

#[test]
fn an_unclean_election_needs_somebody_alive() {
    let mut cluster = offline();
    cluster.fence(1);
    let (reason, message) = refused(cluster.elect(Unclean, "t", 0));
    assert_eq!(reason, Reason::EligibleLeadersNotAvailable);
    assert!(message.contains("start one of brokers 1, 2, 3."), "{message}");
    assert_eq!(refused(cluster.elect(Unclean, "t", 7)).0, Reason::UnknownPartition);
    assert_eq!(refused(cluster.elect(Preferred, "nix", 0)).0, Reason::UnknownTopic);
}

#[test]
fn preferred_leaders_by_request() {
    let mut cluster = Cluster::with_nodes(3);
    cluster.create(assigned("t", &[&[1, 2, 3], &[2, 3, 1]])).expect("created");
    assert_eq!(refused(cluster.elect(Preferred, "t", 0)).0, Reason::ElectionNotNeeded);
    cluster.fence(1);
    let (_, message) = refused(cluster.elect(Preferred, "t", 0));
    assert!(message.contains("Broker 1 is fenced: start it"), "{message}");
    cluster.unfence(1);
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(2)));
    let (reason, message) = refused(cluster.elect(Preferred, "t", 0));
    assert_eq!(reason, Reason::PreferredLeaderNotAvailable);
    assert!(message.contains("Broker 1 is not in sync yet"), "{message}");
    let elected = cluster.elect_all(Preferred, None);
    assert_eq!(elected.len(), 1, "partition 1 needs nothing and is not told of");
    assert_eq!(refused(elected[0].result.clone()).0, Reason::PreferredLeaderNotAvailable);
    cluster.propose("t", 0, &[1, 2, 3]).expect("in force");
    let epoch = cluster.partition("t", 0).leader_epoch;
    let elected = cluster.elect_all(Preferred, None);
    assert_eq!((elected.len(), &elected[0].result), (1, &Ok(())));
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.leader, partition.isr), (Some(NodeId(1)), ids(&[1, 2, 3])));
    assert_eq!(partition.leader_epoch, LeaderEpoch(epoch.0 + 1));
    assert_eq!(cluster.ghost.elections["preferred"], 1);
    let twice = Some(vec![("t".to_owned(), PartitionIndex(0)), ("t".to_owned(), PartitionIndex(0))]);
    assert_eq!(refused(cluster.elect_all(Preferred, twice).remove(1).result).0, Reason::InvalidRequest);
}

#[test]
fn leaders_go_back_in_steps() {
    let mut cluster = Cluster::with_nodes(3);
    cluster.create(topic("t", 30, 3)).expect("created");
    cluster.fence(1);
    cluster.unfence(1);
    let imbalanced = |cluster: &Cluster| {
        cluster.state.partitions().iter().filter(|(_, p)| plan::is_imbalanced(&cluster.state, p)).count()
    };
    assert_eq!(imbalanced(&cluster), 0, "a leader that is not in sync cannot be preferred");
    for index in 0..30 {
        cluster.propose("t", index, &[1, 2, 3]).expect("in force");
    }
    assert_eq!(imbalanced(&cluster), 10);
    for (moved, left) in [(6, 4), (4, 0), (0, 0)] {
        let decision = plan::balance_leaders(&cluster.state, 6).expect("cannot be refused");
        assert_eq!(cluster.commit(decision), moved);
        assert_eq!(imbalanced(&cluster), left);
    }
}

/// A leader that restarts leads under a new epoch, also when it is the only one who can (B9).
#[test]
fn every_incarnation_of_a_leader_has_an_epoch_of_its_own() {
    let mut cluster = Cluster::with_nodes(2);
    cluster.create(assigned("t", &[&[1]])).expect("created");
    cluster.create(assigned("u", &[&[1, 2]])).expect("created");
    cluster.propose("u", 0, &[1]).expect("in force");
    let mut last = [LeaderEpoch(-1); 2];
    for incarnation in 2..10 {
        for (topic, last) in ["t", "u"].into_iter().zip(&mut last) {
            let partition = cluster.partition(topic, 0);
            assert_eq!(partition.leader, Some(NodeId(1)));
            assert!(partition.leader_epoch > *last);
            *last = partition.leader_epoch;
        }
        cluster.join(1, incarnation);
    }
}

#[test]
fn a_stopping_node_leaves_its_partitions_to_those_in_sync() {
    let mut cluster = Cluster::with_nodes(3);
    cluster.create(assigned("t", &[&[1, 2, 3]])).expect("created");
    cluster.create(assigned("one", &[&[1]])).expect("created");
    cluster.fence(1);
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(2)));
    assert_eq!(cluster.partition("one", 0).leader, None, "nobody else has it");
}
