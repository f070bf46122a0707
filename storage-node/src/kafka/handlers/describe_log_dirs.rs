//! DescribeLogDirs: the data directories, the copies in each, and the space on their volumes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use kafka_wire::RequestContext;
use kafka_wire_core::messages::describe_log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_wire_core::{ErrorCode, Str};
use storage_node_core::image::ClusterImage;

use crate::node::Node;
use crate::partition::registry::{CopySize, Lookup};

/// The partitions that are asked for, by topic.
type Asked<'a> = HashMap<&'a str, HashSet<i32>>;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let image = node.image();
    let asked = request.topics.as_deref().map(asked_for);
    let mut response = DescribeLogDirsResponse::default();
    let paths: Vec<_> = node.partitions().directories().map(|data| data.path().to_owned()).collect();
    for (place, path) in paths.into_iter().enumerate() {
        let copies = node.partitions().copies_in(place);
        let topics = by_topic(&image, copies, moves_to(&node, place), asked.as_ref());
        let log_dir = Str::from(path.display().to_string());
        // A disk that does not answer must not hold up a worker.
        let volume = match node.partitions().failure_of(place) {
            Some(_) => None,
            None => node.partitions().read_pool().run(move || volume(&path)).await.ok().flatten(),
        };
        let (error_code, total_bytes, usable_bytes) = match volume {
            Some((total, usable)) => (ErrorCode::None, total, usable),
            None => (ErrorCode::KafkaStorageError, -1, -1),
        };
        let result = DescribeLogDirsResult {
            error_code,
            log_dir,
            topics,
            total_bytes,
            usable_bytes,
            is_cordoned: false,
        };
        response.results.push(result);
    }
    response.results.extend(node.partitions().offline_directories().iter().map(|directory| {
        DescribeLogDirsResult {
            error_code: ErrorCode::KafkaStorageError,
            log_dir: Str::from(directory.path.display().to_string()),
            topics: Vec::new(),
            total_bytes: -1,
            usable_bytes: -1,
            is_cordoned: false,
        }
    }));
    response
}

fn asked_for(topics: &[DescribableLogDirTopic]) -> Asked<'_> {
    let mut asked = Asked::new();
    for topic in topics {
        asked.entry(topic.topic.as_str()).or_default().extend(&topic.partitions);
    }
    asked
}

/// The copies that are being moved to the directory, or wait for that, each with its lag.
fn moves_to(node: &Node, place: usize) -> Vec<(CopySize, i64)> {
    let moves = node.partitions().moves().all();
    let here = moves.iter().filter(|asked| asked.target == place);
    let copy = here.filter_map(|asked| match node.partitions().get(asked.id) {
        Lookup::Open(handle) => {
            let (bytes, copied_to) = asked.progress();
            let lag = handle.reader().end().saturating_sub(copied_to.0).max(0);
            Some((CopySize { id: asked.id, bytes }, lag))
        }
        Lookup::Failed | Lookup::Absent => None,
    });
    copy.collect()
}

fn by_topic(
    image: &ClusterImage,
    copies: Vec<CopySize>,
    moves: Vec<(CopySize, i64)>,
    asked: Option<&Asked<'_>>,
) -> Vec<DescribeLogDirsTopic> {
    let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    let present = copies.into_iter().map(|copy| (copy, 0, false));
    let moving = moves.into_iter().map(|(copy, lag)| (copy, lag, true));
    for (copy, offset_lag, is_future_key) in present.chain(moving) {
        let Some(topic) = image.topic(copy.id.topic) else { continue };
        let index = copy.id.partition.0;
        let is_asked = |asked: &Asked| asked.get(&*topic.name).is_some_and(|all| all.contains(&index));
        if !asked.is_none_or(is_asked) {
            continue;
        }
        topics.entry(topic.name.to_string()).or_default().push(DescribeLogDirsPartition {
            partition_index: index,
            partition_size: i64::try_from(copy.bytes).unwrap_or(i64::MAX),
            offset_lag,
            is_future_key,
        });
    }
    let topic = |(name, mut partitions): (String, Vec<DescribeLogDirsPartition>)| {
        partitions.sort_unstable_by_key(|partition| partition.partition_index);
        DescribeLogDirsTopic { name: name.into(), partitions }
    };
    topics.into_iter().map(topic).collect()
}

/// Size and free bytes of the volume that holds the directory.
fn volume(path: &Path) -> Option<(i64, i64)> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX);
    Some((bytes(stat.f_blocks), bytes(stat.f_bavail)))
}
