//! A hundred thousand partitions: what the cluster is designed for must be plannable and applicable in reasonable time,
//! also without optimization.

mod cluster;

use cluster::{Cluster, topic};
use controller_core::{ClusterState, invariants, plan};
use proto_types::controller_api::{AlterPartition, ProposedIsr};
use proto_types::encode;
use proto_types::ids::{MetadataIndex, NodeId};
use std::collections::BTreeMap;

const TOPICS: usize = 20;
const PARTITIONS: i32 = 5_000;

#[test]
fn a_hundred_thousand_partitions() {
    let mut cluster = Cluster::with_nodes(5);
    for n in 0..TOPICS {
        cluster.create(topic(&format!("t{n}"), PARTITIONS, 3)).expect("created");
    }
    let state = &cluster.state;
    assert_eq!(state.partitions().len(), TOPICS * PARTITIONS as usize);

    let mut leads: BTreeMap<NodeId, usize> = BTreeMap::new();
    for (_, partition) in state.partitions().iter() {
        *leads.entry(partition.leader.expect("all are alive")).or_default() += 1;
    }
    assert!(leads.values().all(|count| *count == 20_000), "leaders are spread evenly: {leads:?}");

    let fenced = plan::fence_node(state, NodeId(1), cluster.epoch(1)).expect("current epoch");
    let bytes = encode(&fenced.changes).len();
    println!("fencing a node moves {} partitions, {bytes} bytes in one entry", fenced.changes.len());
    assert!(bytes < 8 << 20, "the largest entry stays within the bounds of log and wire");
    cluster.commit(fenced);
    assert!(cluster.state.partitions().iter().all(|(_, partition)| partition.leader != Some(NodeId(1))));

    let snapshot = cluster.state.to_changes();
    let restored = ClusterState::from_changes(MetadataIndex(cluster.state.applied().0), &snapshot);
    assert_eq!(invariants::check(&restored), Ok(()));
    assert_eq!(restored, cluster.state);
}

/// A node restarts: 12,000 partitions lose it, and their leaders take it back in as few requests as there are leaders.
#[test]
fn a_restart_among_many_partitions() {
    let mut cluster = Cluster::with_nodes(3);
    for n in 0..4 {
        cluster.create(topic(&format!("t{n}"), 3_000, 3)).expect("created");
    }
    let before = cluster.log.len();
    cluster.fence(1);
    assert_eq!(cluster.log.len(), before + 1, "one batch");
    assert_eq!(cluster.log[before].1.len(), 12_001, "with a change of each partition");
    cluster.join(1, 2);
    for leader in [2, 3] {
        let led = cluster.state.partitions().iter().filter(|(_, p)| p.leader == Some(NodeId(leader)));
        let partitions: Vec<ProposedIsr> = led
            .map(|(partition, state)| ProposedIsr {
                partition,
                leader_epoch: state.leader_epoch,
                partition_epoch: state.partition_epoch,
                isr: (1..=3).map(|node| (NodeId(node), cluster.epoch(node))).collect(),
            })
            .collect();
        for proposed in &partitions {
            cluster.ghost.catch_up(proposed.partition, NodeId(1));
        }
        let request =
            AlterPartition { node: NodeId(leader), broker_epoch: cluster.epoch(leader), partitions };
        let results = cluster.send_all(&request).expect("within bounds");
        assert!(results.iter().all(Result::is_ok));
    }
    assert!(cluster.state.partitions().iter().all(|(_, partition)| partition.isr.len() == 3));
    let decision = plan::balance_leaders(&cluster.state, 1_000).expect("cannot be refused");
    assert_eq!(cluster.commit(decision), 1_000);
}
