//! DescribeTopicPartitions: topics page by page in order of name, with their eligible leader replicas (KIP-966).

use super::metadata;
use crate::kafka::authorize::{self, TOPIC_OPERATIONS};
use crate::node::Node;
use kafka_wire::{Reply, RequestContext};
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use proto_types::ids::{NodeId, PartitionIndex};
use proto_types::metadata::PartitionState;
use std::collections::BTreeSet;
use std::sync::Arc;
use storage_node_core::image::{ClusterImage, TopicImage};
use storage_node_core::topic_name;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> Reply<DescribeTopicPartitionsResponse> {
    if let Some(cursor) = &request.cursor
        && cursor.partition_index < 0
    {
        return Reply::Close("DescribeTopicPartitions with a negative cursor".into());
    }
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let image = node.image();
    let mut page = Page {
        image: &image,
        listener: &context.listener.name,
        left: limit.clamp(1, node.describe_partitions_max()),
        topics: Vec::new(),
        next: None,
    };
    let (first_topic, first_partition) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.as_str(), cursor.partition_index),
        None => ("", 0),
    };
    let start = |name: &str| if name == first_topic { first_partition } else { 0 };
    if request.topics.is_empty() {
        for topic in image.topics_from(first_topic) {
            if !page.add(topic, start(&topic.name)) {
                break;
            }
        }
    } else {
        let names: BTreeSet<&str> = request.topics.iter().map(|topic| topic.name.as_str()).collect();
        for name in names.range(first_topic..) {
            let more = match image.topic_by_name(name) {
                Some(topic) => page.add(topic, start(name)),
                None => page.add_unknown(name),
            };
            if !more {
                break;
            }
        }
    }
    let (topics, next_cursor) = (page.topics, page.next);
    DescribeTopicPartitionsResponse { topics, next_cursor, ..DescribeTopicPartitionsResponse::default() }
        .into()
}

/// An answer that is being filled.
struct Page<'a> {
    image: &'a ClusterImage,
    listener: &'a str,
    /// Partitions that still fit.
    left: usize,
    topics: Vec<DescribeTopicPartitionsResponseTopic>,
    next: Option<Cursor>,
}

impl Page<'_> {
    /// Adds the partitions of a topic from `first` on. Returns whether there is room for more.
    fn add(&mut self, topic: &TopicImage, first: i32) -> bool {
        if self.is_full(&topic.name) {
            return false;
        }
        let mut rest = topic.partitions.range(PartitionIndex(first)..);
        let partitions: Vec<_> =
            rest.by_ref().take(self.left).map(|(&index, state)| self.partition(index, state)).collect();
        self.left -= partitions.len();
        self.topics.push(DescribeTopicPartitionsResponseTopic {
            name: Some((&*topic.name).into()),
            topic_id: topic.id.0,
            is_internal: authorize::is_internal(&topic.name),
            partitions,
            topic_authorized_operations: TOPIC_OPERATIONS,
            ..DescribeTopicPartitionsResponseTopic::default()
        });
        match rest.next() {
            Some((next, _)) => {
                self.next = Some(Cursor { topic_name: (&*topic.name).into(), partition_index: next.0 });
                false
            }
            None => true,
        }
    }

    fn add_unknown(&mut self, name: &str) -> bool {
        if self.is_full(name) {
            return false;
        }
        let error_code = if topic_name::is_valid(name) {
            ErrorCode::UnknownTopicOrPartition
        } else {
            ErrorCode::InvalidTopicException
        };
        self.topics.push(DescribeTopicPartitionsResponseTopic {
            error_code,
            name: Some(name.into()),
            is_internal: authorize::is_internal(name),
            topic_authorized_operations: TOPIC_OPERATIONS,
            ..DescribeTopicPartitionsResponseTopic::default()
        });
        true
    }

    /// Whether the next topic has to wait for the next answer; that one then begins with it.
    fn is_full(&mut self, next_topic: &str) -> bool {
        if self.left == 0 {
            self.next = Some(Cursor { topic_name: next_topic.into(), partition_index: 0 });
        }
        self.left == 0
    }

    fn partition(
        &self,
        index: PartitionIndex,
        state: &PartitionState,
    ) -> DescribeTopicPartitionsResponsePartition {
        let ids = |nodes: &[NodeId]| -> Vec<i32> { nodes.iter().map(|node| node.0).collect() };
        let (leader_id, error_code) = metadata::leader(self.image, self.listener, state);
        DescribeTopicPartitionsResponsePartition {
            error_code,
            partition_index: index.0,
            leader_id,
            leader_epoch: state.leader_epoch.0,
            replica_nodes: ids(&state.replicas),
            isr_nodes: ids(&state.isr),
            eligible_leader_replicas: Some(ids(&state.elr)),
            last_known_elr: Some(Vec::new()),
            offline_replicas: metadata::offline(self.image, self.listener, state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{TestNode, assert_encodes, live_node, topic};
    use kafka_wire_core::messages::describe_topic_partitions::TopicRequest;

    fn test_node() -> TestNode {
        let topics = [topic(1, "a", 3, &[1]), topic(2, "b", 1, &[1]), topic(3, "c", 2, &[1])];
        TestNode::new(&[live_node(1), topics.concat()].concat())
    }

    async fn page(
        test: &TestNode,
        names: &[&str],
        limit: i32,
        cursor: Option<Cursor>,
    ) -> Reply<DescribeTopicPartitionsResponse> {
        let request = DescribeTopicPartitionsRequest {
            topics: names.iter().map(|&name| TopicRequest { name: name.into() }).collect(),
            response_partition_limit: limit,
            cursor,
        };
        handle(Arc::clone(&test.node), test.context(0), request).await
    }

    /// Follows the cursors to the end; what was found in order, and how many pages it took.
    async fn walk(test: &TestNode, names: &[&str], limit: i32) -> (Vec<String>, usize) {
        let (mut found, mut pages, mut cursor) = (Vec::new(), 0, None);
        loop {
            let Reply::Response(response) = page(test, names, limit, cursor).await else { panic!("closed") };
            assert_encodes::<DescribeTopicPartitionsRequest>(&response, 0);
            pages += 1;
            for topic in &response.topics {
                let name = topic.name.as_deref().unwrap_or("?");
                if topic.error_code != ErrorCode::None {
                    found.push(format!("{name}!{}", topic.error_code));
                }
                found.extend(topic.partitions.iter().map(|p| format!("{name}-{}", p.partition_index)));
            }
            cursor = response.next_cursor;
            if cursor.is_none() {
                return (found, pages);
            }
        }
    }

    #[tokio::test]
    async fn every_partition_comes_once_whatever_the_page_size() {
        let test = test_node();
        let all = ["a-0", "a-1", "a-2", "b-0", "c-0", "c-1"];
        for (limit, pages) in [(1, 6), (2, 3), (3, 2), (4, 2), (5, 2), (6, 1), (100, 1), (0, 6), (-7, 6)] {
            assert_eq!(
                walk(&test, &[], limit).await,
                (all.map(str::to_owned).to_vec(), pages),
                "limit {limit}"
            );
        }
    }

    #[tokio::test]
    async fn named_topics_come_in_order_of_name_and_unknown_ones_say_so() {
        let test = test_node();
        let expected = ["a b!INVALID_TOPIC_EXCEPTION", "b-0", "c-0", "c-1", "x!UNKNOWN_TOPIC_OR_PARTITION"];
        for limit in [1, 2, 10] {
            let (found, _) = walk(&test, &["x", "c", "b", "a b"], limit).await;
            assert_eq!(found, expected, "limit {limit}");
        }
    }

    #[tokio::test]
    async fn a_cursor_that_cannot_be_ours_closes_the_connection() {
        let test = test_node();
        let cursor = Cursor { topic_name: "a".into(), partition_index: -1 };
        assert!(matches!(page(&test, &[], 1, Some(cursor)).await, Reply::Close(_)));
        // The topic of the cursor may have been deleted meanwhile: the listing goes on after it.
        let cursor = Cursor { topic_name: "aa".into(), partition_index: 5 };
        let Reply::Response(response) = page(&test, &[], 10, Some(cursor)).await else { panic!("closed") };
        let names: Vec<&str> = response.topics.iter().filter_map(|topic| topic.name.as_deref()).collect();
        assert_eq!(names, ["b", "c"]);
    }
}
