//! Registration, fencing, and who leads afterwards.

mod cluster;

use cluster::{Cluster, assigned, ids, refused, registration, topic};
use controller_core::plan;
use proto_types::controller_api::{AllocateProducerIds, MayLack};
use proto_types::error::Reason;
use proto_types::feature::LevelRange;
use proto_types::ids::*;
use uuid::Uuid;

#[test]
fn a_new_incarnation_supersedes_at_once() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.create(topic("t", 1, 1)).expect("created");
    let old = cluster.epoch(1);
    assert_eq!(cluster.register(1, 1), Ok(old), "the same incarnation keeps its epoch");
    assert!(cluster.state.nodes().is_active(NodeId(1)), "and is not fenced by asking twice");

    let new = cluster.register(1, 2).expect("registered");
    assert!(new > old);
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.leader, partition.isr), (None, ids(&[1])), "fenced until it has caught up");
    assert_eq!(
        refused(plan::fence_node(&cluster.state, NodeId(1), old)).0,
        Reason::StaleBrokerEpoch,
        "the old incarnation is out"
    );
    cluster.unfence(1);
    let partition = cluster.partition("t", 0);
    assert_eq!(partition.leader, Some(NodeId(1)));
    assert!(partition.leader_epoch > LeaderEpoch(0), "a new incarnation leads under a new epoch");
}

#[test]
fn refused_registrations() {
    let mut cluster = Cluster::with_nodes(2);
    let dir = |n| DirectoryId(Uuid::from_u128(n));
    let mut other_cluster = registration(3, 1);
    other_cluster.cluster_id = "d".into();
    let mut other_disk = registration(1, 9);
    other_disk.directories = vec![dir(100)];
    let mut copied_disk = registration(3, 1);
    copied_disk.directories = vec![dir(3), dir(2)];
    let mut none = registration(3, 1);
    none.directories.clear();
    let mut twice = registration(3, 1);
    twice.directories = vec![dir(3), dir(3)];
    let mut long = registration(3, 1);
    long.rack = Some("r".repeat(5000));
    let cases = [
        (other_cluster, Reason::InconsistentClusterId, "belongs to cluster \"d\", this is cluster \"c\""),
        (other_disk, Reason::DuplicateNodeId, "unused node id"),
        (copied_disk, Reason::DuplicateNodeId, "which belongs to node 2"),
        (none, Reason::InvalidRequest, "names 0 data directories"),
        (twice, Reason::InvalidRequest, "names a data directory twice"),
        (long, Reason::InvalidRequest, "longer than 1024 bytes"),
        (registration(-1, 1), Reason::InvalidRequest, "negative"),
    ];
    for (request, reason, words) in cases {
        let (got, message) =
            refused(plan::register_node(&cluster.state, &request, LevelRange::IMPLIED, &cluster.inputs));
        assert_eq!(got, reason, "{message}");
        assert!(message.contains(words), "{message}");
    }
    let mut one_more_disk = registration(1, 9);
    one_more_disk.directories.push(dir(101));
    plan::register_node(&cluster.state, &one_more_disk, LevelRange::IMPLIED, &cluster.inputs)
        .expect("a node may get more disks");
    cluster.inputs.limits.nodes_max = 2;
    let refusal =
        plan::register_node(&cluster.state, &registration(3, 1), LevelRange::IMPLIED, &cluster.inputs);
    assert!(refused(refusal).1.contains("(nodes_max)"));
}

/// A node whose disk is lost: its id is free again when nothing is expected on it any more.
#[test]
fn an_id_with_lost_directories_is_free_after_removal() {
    let mut cluster = Cluster::with_nodes(4);
    cluster.create(assigned("t", &[&[1, 2, 3]])).expect("created");
    cluster.fence(3);
    let mut new_disk = registration(3, 9);
    new_disk.directories = vec![DirectoryId(Uuid::from_u128(300))];
    let (reason, message) =
        refused(plan::register_node(&cluster.state, &new_disk, LevelRange::IMPLIED, &cluster.inputs));
    assert_eq!(reason, Reason::DuplicateNodeId);
    assert!(message.contains("reassign what node 3 holds and remove it"), "{message}");
    let lost = cluster.state.nodes().get(NodeId(3)).expect("registered").registration.directories.clone();
    assert!(lost.iter().all(|dir| message.contains(&dir.0.to_string())), "it names them: {message}");
    // The operator gives the old ones up: it is the same node, with nothing that counts.
    let mut replaced = new_disk.clone();
    replaced.directories.extend(lost);
    replaced.may_lack = MayLack::Anything;
    plan::register_node(&cluster.state, &replaced, LevelRange::IMPLIED, &cluster.inputs)
        .expect("it names all that it had");
    cluster.reassign("t", 0, Some(&[1, 2, 4])).expect("begun");
    cluster.propose("t", 0, &[1, 2, 4]).expect("completes without node 3");
    let old = cluster.epoch(3);
    cluster.unregister(3).expect("it holds nothing");
    let decision = plan::register_node(&cluster.state, &new_disk, LevelRange::IMPLIED, &cluster.inputs)
        .expect("as a new one");
    assert!(cluster.commit(decision) > old, "and no epoch comes twice");
}

#[test]
fn leaders_move_within_the_isr() {
    let mut cluster = Cluster::with_nodes(3);
    cluster.create(assigned("t", &[&[1, 2, 3]])).expect("created");
    cluster.fence(1);
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.leader, partition.isr.clone()), (Some(NodeId(2)), ids(&[2, 3])));
    assert!(partition.elr.is_empty(), "two in sync are enough for min.insync.replicas 2");
    assert_eq!((partition.leader_epoch, partition.partition_epoch), (LeaderEpoch(1), PartitionEpoch(1)));
    cluster.unfence(1);
    assert_eq!(cluster.partition("t", 0), partition, "coming back alone changes nothing");
}

#[test]
fn below_the_minimum_members_stay_eligible_and_can_lead_again() {
    let mut cluster = Cluster::with_nodes(3);
    cluster.create(assigned("t", &[&[1, 2, 3]])).expect("created");
    cluster.fence(1);
    cluster.fence(2);
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.leader, partition.isr), (Some(NodeId(3)), ids(&[3])));
    assert_eq!(partition.elr, ids(&[2]));
    cluster.fence(3);
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.leader, partition.isr, partition.elr), (None, ids(&[3]), ids(&[2])));
    cluster.unfence(1);
    assert_eq!(cluster.partition("t", 0).leader, None, "node 1 may lack records");
    cluster.unfence(2);
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.leader, partition.isr, partition.elr), (Some(NodeId(2)), ids(&[2]), ids(&[3])));
}

#[test]
fn a_lone_replica_keeps_its_place_and_gets_a_new_epoch() {
    let mut cluster = Cluster::with_nodes(2);
    cluster.create(assigned("t", &[&[1]])).expect("created");
    cluster.fence(1);
    let gone = cluster.partition("t", 0);
    assert_eq!((gone.leader, gone.isr, gone.leader_epoch), (None, ids(&[1]), LeaderEpoch(1)));
    cluster.unfence(1);
    let back = cluster.partition("t", 0);
    assert_eq!((back.leader, back.isr, back.leader_epoch), (Some(NodeId(1)), ids(&[1]), LeaderEpoch(2)));
    let length = cluster.log.len();
    cluster.unfence(1);
    assert!(cluster.log[length].1.is_empty(), "unfencing twice changes nothing");
}

#[test]
fn producer_ids_come_in_blocks_to_registered_nodes() {
    let mut cluster = Cluster::with_nodes(1);
    let ask = |cluster: &Cluster, epoch| {
        let request = AllocateProducerIds { node: NodeId(1), broker_epoch: epoch };
        plan::allocate_producer_ids(&cluster.state, &request)
    };
    let epoch = cluster.epoch(1);
    for block in 0..3 {
        let decision = ask(&cluster, epoch).expect("allocated");
        assert_eq!(cluster.commit(decision), ProducerId(block * 1000));
    }
    assert_eq!(refused(ask(&cluster, BrokerEpoch(epoch.0 + 1))).0, Reason::StaleBrokerEpoch);
    let stranger = AllocateProducerIds { node: NodeId(5), broker_epoch: epoch };
    assert_eq!(refused(plan::allocate_producer_ids(&cluster.state, &stranger)).0, Reason::UnknownNode);
}
