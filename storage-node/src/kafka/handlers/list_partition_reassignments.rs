//! ListPartitionReassignments: which partitions are on the move (KIP-455), as this node's metadata has it.

use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, OngoingPartitionReassignment,
    OngoingTopicReassignment,
};
use proto_types::ids::{NodeId, PartitionIndex};
use proto_types::metadata::PartitionState;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage_node_core::image::TopicImage;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let image = node.image();
    let mut topics = Vec::new();
    match &request.topics {
        None => topics.extend(image.topics().filter_map(|topic| ongoing(topic, topic.partitions.iter()))),
        Some(asked) => {
            // A topic that is asked for twice is answered once: a short request must not get an answer without bound.
            let mut by_name: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
            for topic in asked {
                by_name.entry(&topic.name).or_default().extend(&topic.partition_indexes);
            }
            for (name, mut indexes) in by_name {
                // As in Kafka, what does not exist is not on the move.
                let Some(topic) = image.topic_by_name(name) else { continue };
                indexes.sort_unstable();
                indexes.dedup();
                let named = indexes
                    .iter()
                    .filter_map(|&index| topic.partitions.get_key_value(&PartitionIndex(index)));
                topics.extend(ongoing(topic, named));
            }
        }
    }
    ListPartitionReassignmentsResponse { topics, ..ListPartitionReassignmentsResponse::default() }
}

/// Those of the partitions that are on the move, if there are any.
fn ongoing<'a>(
    topic: &TopicImage,
    partitions: impl Iterator<Item = (&'a PartitionIndex, &'a Arc<PartitionState>)>,
) -> Option<OngoingTopicReassignment> {
    let ids = |nodes: &[NodeId]| -> Vec<i32> { nodes.iter().map(|node| node.0).collect() };
    let moving = partitions.filter(|(_, state)| !state.adding.is_empty() || !state.removing.is_empty());
    let partitions: Vec<_> = moving
        .map(|(index, state)| OngoingPartitionReassignment {
            partition_index: index.0,
            replicas: ids(&state.replicas),
            adding_replicas: ids(&state.adding),
            removing_replicas: ids(&state.removing),
        })
        .collect();
    (!partitions.is_empty()).then(|| OngoingTopicReassignment { name: (&*topic.name).into(), partitions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{TestNode, assert_encodes, live_node, topic, topic_id};
    use kafka_wire_core::messages::list_partition_reassignments::ListPartitionReassignmentsTopics;
    use proto_types::ids::{LeaderEpoch, PartitionEpoch};
    use proto_types::metadata::{MetadataChange, topic_partition};

    fn moving(n: u128, index: i32) -> MetadataChange {
        MetadataChange::PartitionSet {
            partition: topic_partition(topic_id(n), index),
            state: PartitionState {
                replicas: [1, 2, 3].map(NodeId).to_vec(),
                adding: vec![NodeId(3)],
                removing: vec![NodeId(1)],
                isr: vec![NodeId(1), NodeId(2)],
                elr: vec![],
                leader: Some(NodeId(1)),
                leader_epoch: LeaderEpoch(3),
                partition_epoch: PartitionEpoch(5),
            },
        }
    }

    #[tokio::test]
    async fn only_what_moves_is_listed_and_unknown_names_are_left_out() {
        let mut changes = live_node(1);
        changes.extend(topic(1, "a", 3, &[1, 2]));
        changes.extend(topic(2, "b", 1, &[1, 2]));
        changes.extend([moving(1, 0), moving(1, 2), moving(2, 0)]);
        changes.extend(topic(3, "still", 1, &[1, 2]));
        let test = TestNode::new(&changes);
        let ask = |topics: Option<Vec<(&str, Vec<i32>)>>| {
            let topics = topics.map(|topics| {
                let named = topics.into_iter().map(|(name, partition_indexes)| {
                    ListPartitionReassignmentsTopics { name: name.into(), partition_indexes }
                });
                named.collect()
            });
            let request = ListPartitionReassignmentsRequest { timeout_ms: 1, topics };
            let answer = handle(Arc::clone(&test.node), test.context(0), request);
            async {
                let response = answer.await;
                assert_encodes::<ListPartitionReassignmentsRequest>(&response, 0);
                let topics = response.topics.iter();
                let found: Vec<(String, i32)> = topics
                    .flat_map(|topic| {
                        topic.partitions.iter().map(|p| (topic.name.to_string(), p.partition_index))
                    })
                    .collect();
                (found, response)
            }
        };
        let (all, response) = ask(None).await;
        assert_eq!(all, [("a".to_owned(), 0), ("a".to_owned(), 2), ("b".to_owned(), 0)]);
        let first = &response.topics[0].partitions[0];
        assert_eq!((&first.adding_replicas[..], &first.removing_replicas[..]), (&[3][..], &[1][..]));
        assert_eq!(first.replicas, [1, 2, 3]);
        let (some, _) =
            ask(Some(vec![("b", vec![0, 9]), ("a", vec![1, 2, 2]), ("a", vec![2]), ("no", vec![0])])).await;
        assert_eq!(some, [("a".to_owned(), 2), ("b".to_owned(), 0)]);
        assert!(ask(Some(vec![])).await.0.is_empty());
    }
}
