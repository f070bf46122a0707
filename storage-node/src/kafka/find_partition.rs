//! From a client's words (topic name or id, partition index) to the copy on this node, and to who leads instead.

use std::hash::{Hash, Hasher};

use kafka_wire_core::Str;
use proto_types::ids::{NodeId, PartitionIndex, TopicId, TopicPartition};
use storage_node_core::image::{ClusterImage, TopicImage};
use storage_node_core::topic_name;
use thiserror::Error;
use uuid::Uuid;

use crate::partition::{Lookup, PartitionHandle, Partitions};

/// A topic as a client names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TopicKey {
    Name(Str),
    Id(Uuid),
}

impl TopicKey {
    /// The same without the frame that it came in; for storing beyond the request.
    pub(crate) fn detach(&self) -> Self {
        match self {
            TopicKey::Name(name) => TopicKey::Name(name.detach()),
            TopicKey::Id(id) => TopicKey::Id(*id),
        }
    }
}

// A request names a topic once and then as many partitions as fit, and each is a key: a name that is longer than any topic's
// must not cost its length for each of them.
impl Hash for TopicKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            TopicKey::Name(name) => {
                let start = name.as_bytes().get(..topic_name::LENGTH_MAX).unwrap_or(name.as_bytes());
                state.write(start);
                state.write_usize(name.as_bytes().len());
            }
            TopicKey::Id(id) => id.hash(state),
        }
    }
}

/// Why there is no copy to speak to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum FindError {
    #[error("This server does not host this topic-partition.")]
    UnknownTopic,
    #[error("This server does not host this topic ID.")]
    UnknownTopicId,
    #[error("The topic has no partition of this index.")]
    UnknownPartition,
    /// The partition exists, and its copy is not open on this node.
    #[error("This node does not lead the partition.")]
    NotHere,
    /// The copy cannot be opened.
    #[error("The partition's log cannot be opened on this node.")]
    Failed,
}

/// Finds a topic.
pub(crate) fn topic<'a>(image: &'a ClusterImage, key: &TopicKey) -> Result<&'a TopicImage, FindError> {
    match key {
        TopicKey::Name(name) => {
            image.topic_by_name(name).map(|topic| &**topic).ok_or(FindError::UnknownTopic)
        }
        TopicKey::Id(id) => image.topic(TopicId(*id)).map(|topic| &**topic).ok_or(FindError::UnknownTopicId),
    }
}

/// Finds a partition of a topic on this node.
pub(crate) fn partition(
    partitions: &Partitions,
    topic: &TopicImage,
    index: i32,
) -> Result<PartitionHandle, FindError> {
    let partition = PartitionIndex(index);
    match partitions.get(TopicPartition { topic: topic.id, partition }) {
        Lookup::Open(handle) => Ok(handle),
        Lookup::Failed => Err(FindError::Failed),
        Lookup::Absent if topic.partitions.contains_key(&partition) => Err(FindError::NotHere),
        Lookup::Absent => Err(FindError::UnknownPartition),
    }
}

/// The leader of a partition and its epoch as this node knows them, for clients that asked the wrong node (KIP-951).
pub(crate) fn leader(image: &ClusterImage, topic: &TopicKey, index: i32) -> Option<(NodeId, i32)> {
    let topic = self::topic(image, topic).ok()?;
    let state = topic.partitions.get(&PartitionIndex(index))?;
    Some((state.leader?, state.leader_epoch.0))
}

/// Where clients of a listener reach a node.
pub(crate) struct Endpoint {
    pub(crate) node: NodeId,
    pub(crate) host: Str,
    pub(crate) port: i32,
    pub(crate) rack: Option<Str>,
}

/// The addresses of these nodes, each once, for clients of the listener.
pub(crate) fn endpoints(
    image: &ClusterImage,
    listener: &str,
    nodes: impl IntoIterator<Item = NodeId>,
) -> Vec<Endpoint> {
    let mut wanted: Vec<NodeId> = nodes.into_iter().collect();
    wanted.sort_unstable();
    wanted.dedup();
    let endpoint = |node: NodeId| {
        let known = image.node(node)?;
        let address = known.listener(listener)?;
        Some(Endpoint {
            node,
            host: address.host.as_str().into(),
            port: i32::from(address.port),
            rack: known.registration.rack.as_deref().map(Str::from),
        })
    };
    wanted.into_iter().filter_map(endpoint).collect()
}
