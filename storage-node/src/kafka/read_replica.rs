//! Which replica a consumer reads from (KIP-392).
//!
//! Every follower that is in sync serves what it knows to be committed. With `replica.selector.class` set to Kafka's
//! rack-aware selector a leader sends consumers that name their rack to a follower there: one that is in sync, follows
//! just now, and has what the consumer wants. A follower that is not in sync any more, or fenced, sends its consumers
//! back to the leader.

use proto_types::ids::NodeId;
use proto_types::metadata::PartitionState;
use storage_node_core::FollowerStatus;
use storage_node_core::image::ClusterImage;

use crate::partition::PartitionHandle;

/// Kafka's name of the selector by rack.
pub(crate) const RACK_AWARE_CLASS: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// How a leader chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicaSelector {
    /// Always itself: Kafka's default.
    Leader,
    /// A replica in the consumer's rack.
    RackAware,
}

impl ReplicaSelector {
    /// The selector behind a value of `replica.selector.class`.
    pub(crate) fn of_class(class: Option<&str>) -> Self {
        match class.map(str::trim) {
            Some(RACK_AWARE_CLASS) => Self::RackAware,
            Some(_) | None => Self::Leader,
        }
    }
}

/// The consumer that asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// The listener that it came by: a replica that it cannot reach is of no use.
    pub(crate) listener: &'a str,
    pub(crate) rack: &'a str,
    pub(crate) fetch_offset: i64,
}

/// Whether a follower may serve consumers, as far as its node's metadata knows.
pub(crate) fn serves(image: &ClusterImage, me: NodeId, state: &PartitionState) -> bool {
    state.isr.contains(&me) && image.is_live(me)
}

/// The replica to which the leader, `me`, sends a consumer; none if it reads here.
pub(crate) async fn nearest(
    image: &ClusterImage,
    me: NodeId,
    state: &PartitionState,
    handle: &PartitionHandle,
    reader: Reader<'_>,
) -> Option<NodeId> {
    let near = |node: &NodeId| {
        image.node(*node).is_some_and(|node| {
            !node.fenced
                && node.registration.rack.as_deref() == Some(reader.rack)
                && node.listener(reader.listener).is_some()
        })
    };
    if near(&me) {
        return None;
    }
    let candidates: Vec<NodeId> =
        state.isr.iter().copied().filter(|node| *node != me && near(node)).collect();
    if candidates.is_empty() {
        return None;
    }
    let led = handle.followers().await?;
    choose(&led.followers, &candidates, reader.fetch_offset)
}

/// Of the candidates that can serve the offset the one that has most, then the one that lacks least long.
fn choose(followers: &[FollowerStatus], candidates: &[NodeId], fetch_offset: i64) -> Option<NodeId> {
    let fit = followers.iter().filter_map(|follower| {
        let end = follower.end?.0;
        let fits = follower.in_sync
            && follower.connected
            && end >= fetch_offset
            && candidates.contains(&follower.node);
        fits.then_some((std::cmp::Reverse(end), follower.lag_ms, follower.node))
    });
    fit.min().map(|(_, _, node)| node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::Offset;

    fn follower(id: i32, end: Option<i64>, lag_ms: i64) -> FollowerStatus {
        let end = end.map(Offset);
        FollowerStatus { node: NodeId(id), in_sync: true, connected: true, end, lag_ms }
    }

    #[test]
    fn the_follower_with_most_is_chosen_among_those_that_can_serve() {
        let nodes = [NodeId(2), NodeId(3), NodeId(4)];
        let all = [follower(2, Some(10), 0), follower(3, Some(12), 5), follower(4, Some(12), 3)];
        assert_eq!(choose(&all, &nodes, 10), Some(NodeId(4)));
        assert_eq!(choose(&all, &nodes[..2], 10), Some(NodeId(3)));
        assert_eq!(choose(&all, &nodes[..1], 11), None, "it does not have the offset");
        assert_eq!(choose(&[follower(2, None, 0)], &nodes, 0), None, "it has told nothing");
        let gone = FollowerStatus { connected: false, ..follower(2, Some(10), 0) };
        let out = FollowerStatus { in_sync: false, ..follower(3, Some(10), 0) };
        assert_eq!(choose(&[gone, out], &nodes, 0), None);
    }

    #[test]
    fn only_kafkas_class_looks_at_racks() {
        assert_eq!(ReplicaSelector::of_class(None), ReplicaSelector::Leader);
        assert_eq!(ReplicaSelector::of_class(Some(RACK_AWARE_CLASS)), ReplicaSelector::RackAware);
    }
}
