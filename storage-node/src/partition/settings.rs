//! The configs of one topic as its partitions on this node act on them, resolved once per change.

use log_engine::LogConfig;
use log_engine_core::retention::RetentionLimits;
use proto_types::coordinator_api::SHARD_BATCH_BYTES_MAX;
use proto_types::ids::TopicId;
use proto_types::metadata::InternalTopic;
use records::TimestampType;
use storage_node_core::effective_config::ConfigView;
use storage_node_core::{FlushMode, ReplicaConfig};

use crate::disk::cleaner::CompactionSettings;
use crate::replication::throttle::ThrottledReplicas;

/// Bounds of the partition runtime that Kafka has no name for and that are the same for all topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicLimits {
    /// Producers that may wait for the high watermark at one partition.
    pub(crate) produce_waiters_max: usize,
    /// Idempotent producers that one partition remembers.
    pub(crate) producers_per_partition_max: usize,
    /// Largest decompressed size of a batch that has to be looked into, bytes; the topic config
    /// `max.decompressed.message.bytes` can only lower it.
    pub(crate) unpacked_batch_bytes_max: usize,
}

impl Default for TopicLimits {
    fn default() -> Self {
        Self {
            produce_waiters_max: 100_000,
            producers_per_partition_max: 100_000,
            unpacked_batch_bytes_max: 128 << 20,
        }
    }
}

/// What a topic's partitions need to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicSettings {
    /// The topic's name, for answers and messages to people.
    pub(crate) topic_name: String,
    /// `max.message.bytes`: largest batch, compressed. For partitions of coordinators at least what these may append.
    pub(crate) batch_bytes_max: usize,
    /// `segment.bytes`, which no append may exceed.
    pub(crate) segment_bytes: usize,
    /// Whether `cleanup.policy` has `compact`: every record needs a key.
    pub(crate) compacted: bool,
    /// Whether `cleanup.policy` has `delete`: clients may delete records.
    pub(crate) deletable: bool,
    /// `retention.ms` and `retention.bytes`, where `cleanup.policy` has `delete`; none for partitions of coordinators.
    pub(crate) retention: RetentionLimits,
    /// `file.delete.delay.ms`: how long the files of dropped segments are kept.
    pub(crate) file_delete_delay_ms: i64,
    /// When it is compacted, if it is.
    pub(crate) compaction: CompactionSettings,
    /// `message.timestamp.type`.
    pub(crate) timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub(crate) timestamp_before_ms_max: i64,
    /// `message.timestamp.after.max.ms`.
    pub(crate) timestamp_after_ms_max: i64,
    /// Largest decompressed size of a batch that has to be looked into.
    pub(crate) unpacked_batch_bytes_max: usize,
    /// `producer.id.expiration.ms`: an idempotent producer is forgotten after so long.
    pub(crate) producer_expiration_ms: i64,
    /// `leader.replication.throttled.replicas`.
    pub(crate) leader_throttled: ThrottledReplicas,
    /// `follower.replication.throttled.replicas`.
    pub(crate) follower_throttled: ThrottledReplicas,
    /// What the replica acts on.
    pub(crate) replica: ReplicaConfig,
    /// What the log acts on.
    pub(crate) log: LogConfig,
}

impl TopicSettings {
    /// Whether its partitions are shards of coordinators.
    pub(crate) fn is_internal(&self) -> bool {
        is_internal(&self.topic_name)
    }

    /// The settings of `topic` as of the view's image. Values were checked when they were set; one that cannot be read
    /// all the same (set by a newer version) counts as the built-in default.
    pub(crate) fn resolve(
        view: &ConfigView<'_>,
        topic: TopicId,
        topic_name: &str,
        limits: &TopicLimits,
    ) -> Self {
        let text = |name| view.topic_value(Some(topic), name).unwrap_or_default();
        let number = |name, default: i64| text(name).trim().parse::<i64>().unwrap_or(default);
        let size = |name, default: usize| usize::try_from(number(name, default as i64)).unwrap_or(default);
        let node = |name| view.node_value(name).unwrap_or_default();
        let (expiration, lag) = (node("producer.id.expiration.ms"), node("replica.lag.time.max.ms"));
        let (policy, defaults) = (text("cleanup.policy"), LogConfig::default());
        let has_policy = |wanted: &str| policy.split(',').any(|item| item.trim() == wanted);
        let unpacked =
            size("max.decompressed.message.bytes", usize::MAX).min(limits.unpacked_batch_bytes_max);
        let (deletable, internal) = (has_policy("delete"), is_internal(topic_name));
        let is_kept = !deletable || internal;
        // Negative values mean no limit.
        let limit = |name, default| Some(number(name, default)).filter(|&value| value >= 0 && !is_kept);
        let compaction = CompactionSettings::resolve(text);
        let segment_ms = number("segment.ms", defaults.segment_ms);
        // What must be compacted in time must be in a segment that takes no more appends.
        let segment_ms =
            if has_policy("compact") { segment_ms.min(compaction.max_lag_ms) } else { segment_ms };
        // What does not fit in a shard makes its coordinator load it for ever.
        let batch_bytes_min = usize::from(internal) * SHARD_BATCH_BYTES_MAX;
        let segment_bytes = size("segment.bytes", defaults.segment_bytes as usize).max(batch_bytes_min);
        Self {
            topic_name: topic_name.to_owned(),
            batch_bytes_max: size("max.message.bytes", 1_048_588).max(batch_bytes_min),
            segment_bytes,
            compacted: has_policy("compact"),
            deletable,
            retention: RetentionLimits {
                ms: limit("retention.ms", 604_800_000),
                bytes: limit("retention.bytes", -1).map(i64::unsigned_abs),
            },
            file_delete_delay_ms: number("file.delete.delay.ms", 60_000),
            compaction,
            timestamp_type: match text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_ms_max: number("message.timestamp.before.max.ms", i64::MAX),
            timestamp_after_ms_max: number("message.timestamp.after.max.ms", 3_600_000),
            unpacked_batch_bytes_max: unpacked,
            producer_expiration_ms: expiration.trim().parse().unwrap_or(86_400_000),
            leader_throttled: ThrottledReplicas::parse(&text("leader.replication.throttled.replicas")),
            follower_throttled: ThrottledReplicas::parse(&text("follower.replication.throttled.replicas")),
            replica: ReplicaConfig {
                min_insync: size("min.insync.replicas", 1),
                flush: match text("weir.flush").as_str() {
                    "os" => FlushMode::Os,
                    _ => FlushMode::Ack,
                },
                waiters_max: limits.produce_waiters_max,
                replica_lag_ms_max: lag.trim().parse().unwrap_or(30_000),
            },
            log: LogConfig {
                segment_bytes: segment_bytes as u64,
                segment_ms,
                segment_jitter_ms: number("segment.jitter.ms", 0),
                index_interval_bytes: number("index.interval.bytes", 4096).unsigned_abs(),
                index_bytes_max: number("segment.index.bytes", 10 << 20).unsigned_abs(),
                producers_max: limits.producers_per_partition_max,
                unpacked_batch_bytes_max: unpacked,
                ..defaults
            },
        }
    }
}

fn is_internal(topic_name: &str) -> bool {
    let internal = [InternalTopic::ConsumerOffsets, InternalTopic::TransactionState];
    internal.iter().any(|topic| topic.name() == topic_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::{MetadataIndex, NodeId};
    use proto_types::metadata::{ConfigResource, MetadataChange};
    use std::collections::BTreeMap;
    use storage_node_core::image::ClusterImage;
    use uuid::Uuid;

    fn resolve(configs: &[(&str, &str)]) -> TopicSettings {
        resolve_named("t", configs)
    }

    fn resolve_named(name: &str, configs: &[(&str, &str)]) -> TopicSettings {
        let topic = TopicId(Uuid::from_u128(1));
        let mut image = ClusterImage::empty();
        let mut changes = vec![MetadataChange::TopicCreated { topic, name: name.into() }];
        changes.extend(configs.iter().map(|&(name, value)| MetadataChange::ConfigSet {
            resource: ConfigResource::Topic(topic),
            name: name.to_owned(),
            value: Some(value.to_owned()),
        }));
        image.apply(MetadataIndex(1), &changes);
        let file = BTreeMap::new();
        TopicSettings::resolve(
            &ConfigView::new(&image, NodeId(1), &file),
            topic,
            name,
            &TopicLimits::default(),
        )
    }

    #[test]
    fn defaults_are_kafkas() {
        let settings = resolve(&[]);
        assert_eq!(settings.batch_bytes_max, 1_048_588);
        assert_eq!(settings.segment_bytes, 1 << 30);
        assert_eq!((settings.compacted, settings.deletable), (false, true));
        assert_eq!(settings.timestamp_type, TimestampType::CreateTime);
        assert_eq!(settings.timestamp_before_ms_max, i64::MAX);
        assert_eq!(settings.timestamp_after_ms_max, 3_600_000);
        assert_eq!((settings.replica.min_insync, settings.replica.flush), (1, FlushMode::Ack));
    }

    #[test]
    fn retention_is_where_the_policy_says_so() {
        let week = RetentionLimits { ms: Some(604_800_000), bytes: None };
        assert_eq!((resolve(&[]).retention, resolve(&[]).file_delete_delay_ms), (week, 60_000));
        let set = [("retention.ms", "-1"), ("retention.bytes", "5"), ("file.delete.delay.ms", "7")];
        let settings = resolve(&set);
        assert_eq!(settings.retention, RetentionLimits { ms: None, bytes: Some(5) });
        assert_eq!(settings.file_delete_delay_ms, 7);
        assert_eq!(resolve(&[("cleanup.policy", "compact")]).retention, RetentionLimits::default());
        let both = [("cleanup.policy", "compact,delete"), ("segment.ms", "9"), ("segment.jitter.ms", "8")];
        assert_eq!(resolve(&both).retention, week);
        assert_eq!((resolve(&both).log.segment_ms, resolve(&both).log.segment_jitter_ms), (9, 8));
    }

    #[test]
    fn a_shard_takes_what_its_coordinator_appends_whatever_is_set() {
        let name = InternalTopic::ConsumerOffsets.name();
        let small = [("max.message.bytes", "1000"), ("segment.bytes", "1048576")];
        for settings in [resolve_named(name, &[]), resolve_named(name, &small)] {
            assert!(settings.batch_bytes_max >= SHARD_BATCH_BYTES_MAX);
            assert!(settings.segment_bytes >= SHARD_BATCH_BYTES_MAX);
            assert_eq!(settings.log.segment_bytes, settings.segment_bytes as u64);
        }
        let large = resolve_named(name, &[("max.message.bytes", "9000000")]);
        assert_eq!(large.batch_bytes_max, 9_000_000);
    }

    #[test]
    fn what_is_set_counts() {
        let settings = resolve(&[
            ("cleanup.policy", "compact,delete"),
            ("max.message.bytes", "2000"),
            ("segment.bytes", "1048576"),
            ("message.timestamp.type", "LogAppendTime"),
            ("message.timestamp.before.max.ms", "5"),
            ("min.insync.replicas", "2"),
            ("weir.flush", "os"),
        ]);
        assert_eq!((settings.batch_bytes_max, settings.segment_bytes), (2_000, 1 << 20));
        assert_eq!((settings.compacted, settings.deletable), (true, true));
        assert_eq!(settings.timestamp_type, TimestampType::LogAppendTime);
        assert_eq!(settings.timestamp_before_ms_max, 5);
        assert_eq!((settings.replica.min_insync, settings.replica.flush), (2, FlushMode::Os));
        assert_eq!(settings.log.segment_bytes, 1 << 20);
    }
}
