//! Looks up topics, and offsets of their partitions by time, at the nodes that lead them.

use std::collections::BTreeMap;

use kafka_wire::{Client, ClientError};
use kafka_wire_core::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use kafka_wire_core::messages::metadata::MetadataResponseTopic;
use kafka_wire_core::{ErrorCode, Str};

use crate::failure::Failure;
use crate::output::printable;

/// The timestamp that stands for the first offset.
pub(crate) const EARLIEST: i64 = -2;
/// The timestamp that stands for the end.
pub(crate) const LATEST: i64 = -1;

/// The topic with this name, its partitions in order.
pub(crate) async fn find_topic(client: &Client, name: &str) -> Result<MetadataResponseTopic, Failure> {
    let response = client.metadata(Some(&[name])).await?;
    let found = response.topics.into_iter().find(|topic| topic.name.as_deref() == Some(name));
    let refused = |code| Failure::refused(format!("find topic {name}"), code, None);
    let mut topic = found.ok_or_else(|| refused(ErrorCode::UnknownTopicOrPartition))?;
    if !topic.error_code.is_none() {
        return Err(refused(topic.error_code));
    }
    topic.partitions.sort_by_key(|partition| partition.partition_index);
    Ok(topic)
}

/// What one partition answered: an offset (-1 if no record is that young), or why not.
pub(crate) type Found = Result<i64, ErrorCode>;

/// For each partition the offset of the first record with a timestamp of at least `timestamp`, or [`EARLIEST`] or [`LATEST`].
pub(crate) async fn list(
    client: &Client,
    topic: &MetadataResponseTopic,
    timestamp: i64,
) -> Result<BTreeMap<i32, Found>, Failure> {
    let name = topic.name.clone().unwrap_or_default();
    let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for partition in &topic.partitions {
        if partition.leader_id < 0 {
            found.insert(partition.partition_index, Err(ErrorCode::LeaderNotAvailable));
        } else {
            by_leader.entry(partition.leader_id).or_default().push(partition.partition_index);
        }
    }
    for (leader, partitions) in by_leader {
        let request = request(name.clone(), &partitions, timestamp);
        let response = match client.call_node(leader, &request).await {
            // A leader that has just died is still named for a moment; that is no reason to tell nothing of the others.
            Err(error) if error.is_unreachable() || matches!(error, ClientError::UnknownNode(_)) => {
                let away = |partition| (partition, Err(ErrorCode::BrokerNotAvailable));
                found.extend(partitions.into_iter().map(away));
                continue;
            }
            response => response?,
        };
        for partition in response.topics.into_iter().flat_map(|topic| topic.partitions) {
            let offset = match partition.error_code {
                ErrorCode::None => Ok(partition.offset),
                code => Err(code),
            };
            found.insert(partition.partition_index, offset);
        }
    }
    Ok(found)
}

/// As [`list`]; a partition that does not answer is a failure.
pub(crate) async fn all(
    client: &Client,
    topic: &MetadataResponseTopic,
    timestamp: i64,
) -> Result<BTreeMap<i32, i64>, Failure> {
    let name = printable(topic.name.as_deref().unwrap_or_default());
    let offset = |(partition, offset): (i32, Found)| match offset {
        Ok(offset) => Ok((partition, offset)),
        Err(code) => Err(Failure::refused(format!("find an offset of {name}-{partition}"), code, None)),
    };
    list(client, topic, timestamp).await?.into_iter().map(offset).collect()
}

fn request(name: Str, partitions: &[i32], timestamp: i64) -> ListOffsetsRequest {
    let asked = |partition_index: &i32| ListOffsetsPartition {
        partition_index: *partition_index,
        timestamp,
        ..ListOffsetsPartition::default()
    };
    ListOffsetsRequest {
        topics: vec![ListOffsetsTopic { name, partitions: partitions.iter().map(asked).collect() }],
        timeout_ms: 30_000,
        ..ListOffsetsRequest::default()
    }
}
