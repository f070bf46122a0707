//! DescribeFollowers, an API of our own: how far the followers are of the partitions that this node leads.

use crate::disk::event::LedPartition;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::describe_followers::{
    DescribeFollowersRequest, DescribeFollowersResponse, DescribedFollower, DescribedFollowersPartition,
    DescribedFollowersTopic,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage_node_core::FollowerStatus;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: DescribeFollowersRequest,
) -> DescribeFollowersResponse {
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let limit = limit.clamp(1, node.describe_partitions_max());
    let (led, is_cut_off) = node.partitions().lagging_followers(request.lag_ms_min, limit).await;
    let image = node.image();
    let mut topics: BTreeMap<String, Vec<DescribedFollowersPartition>> = BTreeMap::new();
    for partition in led {
        // A topic that was deleted just now has no name any more.
        let Some(topic) = image.topic(partition.id.topic) else { continue };
        topics.entry(topic.name.to_string()).or_default().push(described(&partition));
    }
    let topic = |(name, mut partitions): (String, Vec<DescribedFollowersPartition>)| {
        partitions.sort_unstable_by_key(|partition| partition.partition_index);
        DescribedFollowersTopic { name: name.into(), partitions }
    };
    DescribeFollowersResponse {
        is_cut_off,
        topics: topics.into_iter().map(topic).collect(),
        ..DescribeFollowersResponse::default()
    }
}

fn described(led: &LedPartition) -> DescribedFollowersPartition {
    let follower = |status: &FollowerStatus| DescribedFollower {
        node_id: status.node.0,
        in_sync: status.in_sync,
        connected: status.connected,
        end_offset: status.end.map_or(-1, |end| end.0),
        lag_ms: status.lag_ms,
    };
    DescribedFollowersPartition {
        partition_index: led.id.partition.0,
        leader_epoch: led.view.leader_epoch.0,
        high_watermark: led.view.high_watermark.0,
        log_end_offset: led.view.end.0,
        followers: led.followers.iter().map(follower).collect(),
    }
}
