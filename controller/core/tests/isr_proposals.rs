//! What a leader that does not know everything may still propose about its in-sync set.

mod cluster;

use cluster::{Cluster, topic};
use proto_types::error::Reason;
use proto_types::ids::*;
use proto_types::metadata::PartitionState;

/// As the leader of "t": the set with the registrations that it has heard from.
fn propose(
    cluster: &mut Cluster,
    about: &PartitionState,
    isr: &[(i32, i64)],
) -> Result<PartitionState, Reason> {
    let members: Vec<i32> = isr.iter().map(|&(node, _)| node).collect();
    let mut proposal = cluster.proposal("t", 0, &members);
    for node in members {
        cluster.ghost.catch_up(cluster.at("t", 0), NodeId(node));
    }
    let proposed = &mut proposal.partitions[0];
    proposed.partition_epoch = about.partition_epoch;
    proposed.isr = isr.iter().map(|&(node, epoch)| (NodeId(node), BrokerEpoch(epoch))).collect();
    cluster.send(&proposal).map_err(|rejection| rejection.reason)
}

fn others(state: &PartitionState) -> (i32, i32, i32) {
    let leader = state.leader.expect("somebody leads");
    let others: Vec<i32> = state.replicas.iter().filter(|&&node| node != leader).map(|node| node.0).collect();
    (leader.0, others[0], others[1])
}

#[test]
fn the_present_set_takes_back_what_was_proposed_about_it() {
    let mut cluster = Cluster::with_nodes(3);
    cluster.create(topic("t", 1, 3)).expect("created");
    let first = cluster.partition("t", 0);
    let (leader, a, b) = others(&first);
    let epoch = |cluster: &Cluster, node| (node, cluster.epoch(node).0);
    let all = [epoch(&cluster, leader), epoch(&cluster, a), epoch(&cluster, b)];
    let taken_back = propose(&mut cluster, &first, &all).expect("accepted");
    assert_eq!((&taken_back.isr, taken_back.leader_epoch), (&first.isr, first.leader_epoch));
    assert_eq!(taken_back.partition_epoch.0, first.partition_epoch.0 + 1);
    assert_eq!(
        propose(&mut cluster, &first, &all[..2]),
        Err(Reason::StalePartitionEpoch),
        "it was on its way"
    );
    let asked_again = propose(&mut cluster, &first, &all);
    assert_eq!(asked_again.as_ref(), Ok(&taken_back), "the first answer was lost");
    assert_eq!(cluster.partition("t", 0), taken_back);
}

#[test]
fn a_member_that_was_not_heard_from_can_stay_but_not_join() {
    let mut cluster = Cluster::with_nodes(3);
    cluster.create(topic("t", 1, 3)).expect("created");
    let first = cluster.partition("t", 0);
    let (leader, a, b) = others(&first);
    let shrunk = propose(&mut cluster, &first, &[(leader, -1), (a, -1)]).expect("accepted");
    assert_eq!(shrunk.isr.len(), 2);
    let joined = propose(&mut cluster, &shrunk, &[(leader, -1), (a, -1), (b, -1)]);
    assert_eq!(joined, Err(Reason::IneligibleReplica));
    let heard = cluster.epoch(b).0;
    let joined = propose(&mut cluster, &shrunk, &[(leader, -1), (a, -1), (b, heard)]).expect("accepted");
    assert_eq!(joined.isr.len(), 3);
}
