//! What one request, and the cluster as a whole, may ask of the metadata.

/// Bounds with their names in the controller's config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `partitions_per_request_max`: new partitions in one request; Kafka's number. It keeps a metadata batch, and so the
    /// time for which others wait behind it, small.
    pub partitions_per_request_max: usize,
    /// `partitions_max`: partitions of the whole cluster.
    pub partitions_max: usize,
    /// `topics_per_request_max`: topics, or config resources, in one request.
    pub topics_per_request_max: usize,
    /// `nodes_max`: registered storage nodes, and as many coordinators.
    pub nodes_max: usize,
    /// `internal_topic_partitions`: partitions of a new internal topic, and so shards of groups or transactions; Kafka's
    /// `offsets.topic.num.partitions`. Fixed once the topic exists.
    pub internal_topic_partitions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            partitions_per_request_max: 10_000,
            partitions_max: 200_000,
            topics_per_request_max: 10_000,
            nodes_max: 1_000,
            internal_topic_partitions: 50,
        }
    }
}
