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
        for topic in dir.topics {
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
