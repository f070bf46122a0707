//! Three storage nodes, three controllers and a coordinator as processes on loopback, for the measurements of replication.

use crate::{Failure, clock};
use cluster_tests::partition_view::PartitionView;
use cluster_tests::replicated_cluster::{ReplicatedCluster, Role, Shape};
use std::path::Path;
use std::time::Duration;

/// How long in-sync sets may take to be full.
pub(crate) const SYNC_LIMIT: Duration = Duration::from_secs(300);
/// How often that is looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const NODES: usize = 3;

/// How soon a silent node is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// As Weir comes: sessions of 3 s.
    Default,
    /// The profile `fast` of docs/profiles.md: sessions of 1 s.
    Fast,
}

/// Starts the cluster in `home`.
pub(crate) fn start(home: &Path, profile: Profile) -> Result<ReplicatedCluster, Failure> {
    let settings: &[(&str, &str)] = match profile {
        Profile::Default => &[],
        Profile::Fast => &[("WEIR_CONTROLLER_PROFILE", "fast")],
    };
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let node_settings: &[&str] = match profile {
        Profile::Default => &[],
        Profile::Fast => &["profile=fast"],
    };
    let shape = Shape {
        controller_settings: settings.iter().map(owned).collect(),
        node_settings: node_settings.iter().map(|&setting| setting.to_owned()).collect(),
        ..Shape::default()
    };
    Ok(ReplicatedCluster::start(home, &shape)?)
}

/// Process ids of the storage nodes.
pub(crate) fn node_ids(cluster: &mut ReplicatedCluster) -> Vec<u32> {
    let nodes = cluster.daemons_mut().iter_mut().filter(|daemon| daemon.role == Role::StorageNode);
    nodes.filter_map(|node| node.process().map(|process| process.id())).collect()
}

/// The partitions of `topic` as any node that runs tells them.
pub(crate) fn partitions(cluster: &ReplicatedCluster, topic: &str) -> Option<Vec<PartitionView>> {
    let nodes = cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode);
    let running = nodes.filter(|daemon| daemon.is_started()).map(|daemon| daemon.id);
    running.into_iter().find_map(|node| cluster.partitions(node, topic))
}

/// Waits until all partitions have all their copies in sync, as all nodes tell it; gives the leader of partition 0.
pub(crate) fn wait_in_sync(cluster: &ReplicatedCluster, topic: &str) -> Result<usize, Failure> {
    let start = clock::now();
    loop {
        let told: Option<Vec<Vec<PartitionView>>> =
            (1..=NODES).map(|node| cluster.partitions(node, topic)).collect();
        if let Some(told) = told
            && let Some(leader) = told[0].first().and_then(|partition| partition.leader)
            && told.iter().flatten().all(|p| p.isr.len() == NODES && p.leader.is_some())
            && told.iter().all(|partitions| partitions[0].leader == Some(leader))
        {
            return Ok(leader);
        }
        if start.elapsed() > SYNC_LIMIT {
            return Err(format!("not in sync: {:?}", partitions(cluster, topic)).into());
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}
