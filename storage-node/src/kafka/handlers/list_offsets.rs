//! ListOffsets: the ends of a log, and the first record of a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_wire::RequestContext;
use kafka_wire_core::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use log_engine::{ReadError, TimestampOffset};
use proto_types::ids::PartitionIndex;
use storage_node_core::image::{ClusterImage, TopicImage};
use storage_node_core::{Isolation, Standing, View};
use tokio::time::Instant;

use crate::kafka::error_code::KafkaError;
use crate::kafka::find_partition;
use crate::node::Node;
use crate::partition::PartitionHandle;
use crate::partition::fetch_wait::FetchWait;

/// Reads only what transactions have decided.
const READ_COMMITTED: i8 = 1;

/// Older versions have no place for the epoch.
const LEADER_EPOCH_MIN: i16 = 4;

/// From this version on clients know OFFSET_NOT_AVAILABLE.
const NOT_AVAILABLE_MIN: i16 = 5;

/// Longest that a request waits for this node's disks, for all its partitions together.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(1);

/// What a timestamp field asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The first record at or after it.
    Time(i64),
    /// One past the last readable record.
    Latest,
    /// The first record, on this disk or anywhere: without remote storage they are the same.
    Earliest,
    /// The record with the largest timestamp.
    MaxTimestamp,
    /// Something of remote storage, which there is none of.
    Remote,
}

/// The question behind a timestamp, if the version has it.
fn asked(timestamp: i64, version: i16) -> Option<Asked> {
    let (asked, version_min) = match timestamp {
        0.. => (Asked::Time(timestamp), 1),
        -1 => (Asked::Latest, 1),
        -2 => (Asked::Earliest, 1),
        -3 => (Asked::MaxTimestamp, 7),
        -4 => (Asked::Earliest, 8),
        -5 => (Asked::Remote, 9),
        -6 => (Asked::Remote, 11),
        _ => return None,
    };
    (version >= version_min).then_some(asked)
}

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let image = node.image();
    let version = context.api_version;
    let isolation = match request.isolation_level {
        READ_COMMITTED => Isolation::ReadCommitted,
        _ => Isolation::ReadUncommitted,
    };
    let twice = asked_twice(&request);
    let mut response = ListOffsetsResponse::default();
    for (topic, twice) in request.topics.into_iter().zip(twice) {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let answer = match asked(partition.timestamp, version) {
                _ if twice.contains(&partition.partition_index) => {
                    Err(KafkaError::new(ErrorCode::InvalidRequest, "the partition is asked for twice"))
                }
                None => {
                    Err(KafkaError::new(ErrorCode::UnsupportedVersion, "this version has no such timestamp"))
                }
                Some(asked) => {
                    look_up(&node, &image, &context, &topic.name, &partition, asked, isolation).await
                }
            };
            let mut answer = answer.unwrap_or_else(|error| ListOffsetsPartitionResponse {
                error_code: match error.code {
                    // Older clients repeat the request after this one.
                    ErrorCode::OffsetNotAvailable if version < NOT_AVAILABLE_MIN => {
                        ErrorCode::LeaderNotAvailable
                    }
                    code => code,
                },
                ..ListOffsetsPartitionResponse::default()
            });
            answer.partition_index = partition.partition_index;
            if version < LEADER_EPOCH_MIN {
                answer.leader_epoch = -1;
            }
            partitions.push(answer);
        }
        response.topics.push(ListOffsetsTopicResponse { name: topic.name, partitions });
    }
    response
}

/// For each topic of the request the partitions that it, or another part of the request under the same name, names again.
fn asked_twice(request: &ListOffsetsRequest) -> Vec<Arc<HashSet<i32>>> {
    // By name once for each topic, not once for each partition.
    let mut counts: HashMap<&Str, HashMap<i32, bool>> = HashMap::new();
    for topic in &request.topics {
        let again = counts.entry(&topic.name).or_default();
        for partition in &topic.partitions {
            again.entry(partition.partition_index).and_modify(|again| *again = true).or_insert(false);
        }
    }
    let twice = |again: HashMap<i32, bool>| -> Arc<HashSet<i32>> {
        Arc::new(again.into_iter().filter_map(|(partition, again)| again.then_some(partition)).collect())
    };
    let twice: HashMap<&Str, Arc<HashSet<i32>>> =
        counts.into_iter().map(|(name, again)| (name, twice(again))).collect();
    request.topics.iter().map(|topic| Arc::clone(&twice[&topic.name])).collect()
}

async fn look_up(
    node: &Node,
    image: &ClusterImage,
    context: &RequestContext,
    topic: &Str,
    partition: &ListOffsetsPartition,
    asked: Asked,
    isolation: Isolation,
) -> Result<ListOffsetsPartitionResponse, KafkaError> {
    let topic = find_partition::topic_named(image, topic)?;
    let handle = find_partition::partition(node.partitions(), topic, partition.partition_index)?;
    let view = match asked {
        Asked::Earliest | Asked::Remote => handle.view(),
        Asked::Latest | Asked::Time(_) | Asked::MaxTimestamp if has_one_replica(topic, partition) => {
            once_flushed(&handle, context).await
        }
        Asked::Latest | Asked::Time(_) | Asked::MaxTimestamp => handle.view(),
    };
    view.check_leader(partition.current_leader_epoch)?;
    let bound = view.readable_end(isolation);
    let found = match asked {
        Asked::Latest if !view.committed_to_epoch_start => return Err(not_available()),
        Asked::Latest => Some(at(bound.0, view.leader_epoch.0)),
        Asked::Earliest => Some(at(view.start.0, epoch_at_start(&handle, &view))),
        Asked::Remote => None,
        Asked::Time(timestamp) => {
            search(node, &handle, move |reader| reader.offset_for_timestamp(timestamp, bound.0)).await?
        }
        Asked::MaxTimestamp => search(node, &handle, move |reader| reader.max_timestamp(bound.0)).await?,
    };
    let incomplete = match asked {
        Asked::Time(_) => found.is_none(),
        Asked::MaxTimestamp => true,
        Asked::Latest | Asked::Earliest | Asked::Remote => false,
    };
    if incomplete && !view.committed_to_epoch_start {
        return Err(not_available());
    }
    Ok(found.map_or_else(ListOffsetsPartitionResponse::default, |found| ListOffsetsPartitionResponse {
        timestamp: found.timestamp,
        offset: found.offset,
        leader_epoch: found.leader_epoch,
        ..ListOffsetsPartitionResponse::default()
    }))
}

fn has_one_replica(topic: &TopicImage, partition: &ListOffsetsPartition) -> bool {
    let state = topic.partitions.get(&PartitionIndex(partition.partition_index));
    state.is_some_and(|state| state.replicas.len() == 1)
}

/// The copy once it shows all that it holds now. The only replica waits for nothing but its disk, and Kafka's does not even do that:
/// a client that was answered with acks=1 finds its records there at once. Among several replicas it would not find them in Kafka
/// either before the others have them.
async fn once_flushed(handle: &PartitionHandle, context: &RequestContext) -> View {
    let (waiters, isolation) = (handle.fetch_waiters(), Isolation::ReadUncommitted);
    let deadline = Instant::from_std(context.arrived + FLUSH_WAIT_MAX);
    let end = handle.view().end;
    loop {
        let seen = waiters.readable_bytes(isolation);
        let view = handle.view();
        if view.standing != Standing::Leader || view.high_watermark >= end {
            return view;
        }
        let more = FetchWait::new(1);
        let _registration = waiters.register(&more, isolation, seen, 1);
        tokio::select! {
            () = more.done() => {}
            () = tokio::time::sleep_until(deadline) => return handle.view(),
            () = context.draining.cancelled() => return handle.view(),
        }
    }
}

/// A new leader may know of less than its predecessor had committed and shown: what it says now could be less than what
/// was said before (KIP-207).
fn not_available() -> KafkaError {
    let message = "The leader is new and does not know yet how far its predecessor had committed.";
    KafkaError::new(ErrorCode::OffsetNotAvailable, Str::from_static(message))
}

fn at(offset: i64, leader_epoch: i32) -> TimestampOffset {
    TimestampOffset { offset, timestamp: -1, leader_epoch }
}

fn epoch_at_start(handle: &PartitionHandle, view: &View) -> i32 {
    handle.epoch_of(view.start).map_or(-1, |epoch| epoch.0)
}

/// Looks into the log on a thread that may wait for the disk.
async fn search(
    node: &Node,
    handle: &PartitionHandle,
    look: impl FnOnce(log_engine::LogReader) -> Result<Option<TimestampOffset>, ReadError> + Send + 'static,
) -> Result<Option<TimestampOffset>, KafkaError> {
    let reader = handle.reader().clone();
    let failed = |error: &dyn std::fmt::Display| {
        node.log_read_failure(handle.id(), error);
        KafkaError::new(ErrorCode::KafkaStorageError, error.to_string())
    };
    match node.partitions().read_pool().run(move || look(reader)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => {
            handle.on_read_error(&error);
            Err(failed(&error))
        }
        Err(error) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_is_named_again_anywhere_in_the_request_is_known() {
        use kafka_wire_core::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
        let topic = |name: &str, partitions: &[i32]| {
            let partition = |&partition_index| ListOffsetsPartition { partition_index, ..Default::default() };
            ListOffsetsTopic { name: name.into(), partitions: partitions.iter().map(partition).collect() }
        };
        let topics = vec![topic("a", &[0, 1, 1]), topic("b", &[0]), topic("a", &[2, 0])];
        let twice = asked_twice(&ListOffsetsRequest { topics, ..Default::default() });
        let expected = [HashSet::from([0, 1]), HashSet::new(), HashSet::from([0, 1])];
        assert_eq!(twice.iter().map(|twice| (**twice).clone()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn special_timestamps_have_their_versions() {
        assert_eq!(asked(0, 1), Some(Asked::Time(0)));
        assert_eq!(asked(-1, 1), Some(Asked::Latest));
        assert_eq!(asked(-2, 1), Some(Asked::Earliest));
        assert_eq!((asked(-3, 6), asked(-3, 7)), (None, Some(Asked::MaxTimestamp)));
        assert_eq!((asked(-4, 7), asked(-4, 8)), (None, Some(Asked::Earliest)));
        assert_eq!((asked(-5, 8), asked(-5, 9)), (None, Some(Asked::Remote)));
        assert_eq!((asked(-6, 10), asked(-6, 11)), (None, Some(Asked::Remote)));
        assert_eq!(asked(-7, 11), None);
    }
}
