//! Which copies of partitions a node opens, goes on with and drops when the metadata changes.
//!
//! A copy belongs to a topic's id, never to its name: whoever deletes a topic and creates another one of the same name must
//! not lose the new one when a node hears of it late, twice or all at once. And a copy goes only if the node holds it and
//! the metadata that it has now places it elsewhere or does not know its topic: what was left on a disk by an earlier run is
//! no copy that is held, and nothing here touches it.

use crate::image::{ClusterImage, ImageDelta, LocalPartition};
use proto_types::ids::{NodeId, TopicPartition};
use std::collections::{BTreeSet, HashMap};

/// What a node does with one copy.
#[derive(Debug, Clone, PartialEq)]
pub enum CopyChange {
    /// It belongs here now: open it, from what is on the disk or empty.
    Open(LocalPartition),
    /// It belongs here as before; perhaps in another epoch.
    GoOn(LocalPartition),
    /// It does not belong here any more, and its files go.
    Drop(TopicPartition),
}

/// What node `node`, which holds the copies `held`, does after `delta` has led to `image`; each copy once, in order.
///
/// A delta may name what has not changed: it only says where to look.
pub fn copy_changes<C>(
    image: &ClusterImage,
    delta: &ImageDelta,
    node: NodeId,
    held: &HashMap<TopicPartition, C>,
) -> Vec<CopyChange> {
    let of_topics = held.keys().filter(|id| delta.topics.contains(&id.topic));
    let touched: BTreeSet<TopicPartition> = delta.partitions.iter().chain(of_topics).copied().collect();
    let change = |id: TopicPartition| match (image.partition_on(node, id), held.contains_key(&id)) {
        (Some(local), false) => Some(CopyChange::Open(local)),
        (Some(local), true) => Some(CopyChange::GoOn(local)),
        (None, true) => Some(CopyChange::Drop(id)),
        // Planted: the topic's id is not looked at.
        (None, false) if cfg!(weir_planted_bug = "B7") => {
            let same_number = held.keys().filter(|other| other.partition == id.partition);
            same_number.min().copied().map(CopyChange::Drop)
        }
        (None, false) => None,
    };
    touched.into_iter().filter_map(change).collect()
}
