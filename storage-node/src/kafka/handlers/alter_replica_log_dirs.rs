//! AlterReplicaLogDirs: moves copies of this node to other data directories of it, in the background (KIP-113).

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_wire::RequestContext;
use kafka_wire_core::messages::alter_replica_log_dirs::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::metadata::topic_partition;
use storage_node_core::image::ClusterImage;

use crate::node::Node;
use crate::partition::registry::MoveRefusal;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    let image = node.image();
    // Of a partition that is named twice the last wish counts, as in Kafka.
    let mut wishes: BTreeMap<Str, BTreeMap<i32, Str>> = BTreeMap::new();
    for dir in request.dirs {
        // A topic of which nothing is to move has no answer, as in Kafka.
        for topic in dir.topics.into_iter().filter(|topic| !topic.partitions.is_empty()) {
            let of_topic = wishes.entry(topic.name).or_default();
            of_topic.extend(topic.partitions.into_iter().map(|index| (index, dir.path.clone())));
        }
    }
    let results = wishes.into_iter().map(|(topic_name, partitions)| {
        let result = |(partition_index, path): (i32, Str)| AlterReplicaLogDirPartitionResult {
            partition_index,
            error_code: begin(&node, &image, (&topic_name, partition_index), &path),
        };
        let partitions = partitions.into_iter().map(result).collect();
        AlterReplicaLogDirTopicResult { topic_name, partitions }
    });
    AlterReplicaLogDirsResponse { results: results.collect(), ..AlterReplicaLogDirsResponse::default() }
}

fn begin(node: &Node, image: &ClusterImage, (topic, index): (&str, i32), path: &str) -> ErrorCode {
    // Kafka looks at the directory first.
    if let Err(refusal) = node.partitions().directory_at(path) {
        return code(refusal);
    }
    let id = image.topic_by_name(topic).map(|topic| topic_partition(topic.id, index));
    let Some(id) = id.filter(|id| image.partition(*id).is_some()) else {
        return ErrorCode::UnknownTopicOrPartition;
    };
    match node.partitions().move_copy(id, path) {
        Ok(()) => ErrorCode::None,
        Err(refusal) => code(refusal),
    }
}

fn code(refusal: MoveRefusal) -> ErrorCode {
    match refusal {
        MoveRefusal::NoSuchDirectory => ErrorCode::LogDirNotFound,
        MoveRefusal::DirectoryOffline | MoveRefusal::CopyOffline => ErrorCode::KafkaStorageError,
        MoveRefusal::NotHere => ErrorCode::ReplicaNotAvailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{TestNode, assert_encodes, live_node, topic};
    use kafka_wire_core::messages::alter_replica_log_dirs::{AlterReplicaLogDir, AlterReplicaLogDirTopic};

    fn dir(path: &str, topics: &[(&str, &[i32])]) -> AlterReplicaLogDir {
        let topic = |(name, partitions): &(&str, &[i32])| AlterReplicaLogDirTopic {
            name: (*name).into(),
            partitions: partitions.to_vec(),
        };
        AlterReplicaLogDir { path: path.into(), topics: topics.iter().map(topic).collect() }
    }

    #[tokio::test]
    async fn each_partition_is_answered_once_and_the_last_wish_counts() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().to_str().unwrap();
        let mut changes = live_node(1);
        changes.extend(topic(1, "here", 2, &[1]));
        changes.extend(topic(2, "elsewhere", 1, &[2]));
        let test = TestNode::on_disk(directory.path(), &changes).await;
        let dirs = vec![
            dir("/nowhere", &[("here", &[0, 1]), ("none", &[0]), ("nothing", &[])]),
            dir(here, &[("here", &[1, 7]), ("elsewhere", &[0]), ("none", &[5])]),
        ];
        let request = AlterReplicaLogDirsRequest { dirs };
        let response = handle(Arc::clone(&test.node), test.context(2), request).await;
        for version in 1..=2 {
            assert_encodes::<AlterReplicaLogDirsRequest>(&response, version);
        }
        let found: Vec<_> = response
            .results
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(|p| (&*topic.topic_name, p.partition_index, p.error_code))
            })
            .collect();
        let expected = [
            ("elsewhere", 0, ErrorCode::ReplicaNotAvailable),
            ("here", 0, ErrorCode::LogDirNotFound),
            ("here", 1, ErrorCode::None),
            ("here", 7, ErrorCode::UnknownTopicOrPartition),
            ("none", 0, ErrorCode::LogDirNotFound),
            ("none", 5, ErrorCode::UnknownTopicOrPartition),
        ];
        assert_eq!(found, expected);
        assert_eq!(response.results.len(), 3, "a topic of which nothing is to move has no answer");
        assert!(test.node.partitions().moves().all().is_empty(), "it is there already");
    }
}
