//! From a client's words (topic name or id, partition index) to the copy on this node, and to who leads instead.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use kafka_wire_core::Str;
use proto_types::ids::{NodeId, PartitionIndex, TopicId, TopicPartition};
use storage_node_core::image::{ClusterImage, TopicImage};
use storage_node_core::topic_name;
use thiserror::Error;
use uuid::Uuid;

use crate::partition::{Lookup, PartitionHandle, Partitions};

/// A topic as a client names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum TopicKey {
    Name(HashedName),
    Id(Uuid),
}

impl TopicKey {
    /// A topic by its name, which is hashed here, once for all partitions of the topic.
    pub(crate) fn name(name: Str) -> Self {
        TopicKey::Name(HashedName { hash: NAME_HASHER.hash_one(&name), name })
    }

    /// The same without the frame that it came in; for storing beyond the request.
    pub(crate) fn detach(&self) -> Self {
        match self {
            TopicKey::Name(HashedName { hash, name }) => {
                TopicKey::Name(HashedName { hash: *hash, name: name.detach() })
            }
            TopicKey::Id(id) => TopicKey::Id(*id),
        }
    }
}

/// Keyed anew in each process, so that nobody can choose names that collide.
static NAME_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A name with its hash. A request names a topic once and then as many partitions as fit, and each is a key: the length of the
/// name must not count for each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HashedName {
    // Compared first.
    hash: u64,
    name: Str,
}

impl HashedName {
    pub(crate) fn text(&self) -> &Str {
        &self.name
    }
}

impl Hash for HashedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
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
        TopicKey::Name(name) => topic_named(image, name.text()),
        TopicKey::Id(id) => image.topic(TopicId(*id)).map(|topic| &**topic).ok_or(FindError::UnknownTopicId),
    }
}

/// Finds a topic by its name. No topic has a longer one than may be, so that is not even looked for: it is asked once for each
/// partition.
pub(crate) fn topic_named<'a>(image: &'a ClusterImage, name: &str) -> Result<&'a TopicImage, FindError> {
    let known = (name.len() <= topic_name::LENGTH_MAX).then(|| image.topic_by_name(name)).flatten();
    known.map(|topic| &**topic).ok_or(FindError::UnknownTopic)
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
