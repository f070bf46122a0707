//! A hundred thousand partitions: what the cluster is designed for must be plannable and applicable in reasonable time,
//! also without optimization.

mod cluster;

use cluster::{Cluster, topic};
use controller_core::{ClusterState, invariants, plan};
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
