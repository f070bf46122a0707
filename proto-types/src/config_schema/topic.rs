//! Configs that a topic can have: all of Kafka 4.4's, and Weir's own.

use super::Allowed::{Any, Between, EachOf, Min, OneOf, Range, RangeOr, ThrottledReplicas};
use super::ConfigDef;
use super::ConfigKind::{Boolean, Double, Int, List, Long, String};

/// All topic configs, sorted by name.
pub static TOPIC_CONFIGS: &[ConfigDef] = rows! {
    "cleanup.policy", List, Some("delete"), EachOf(&["compact", "delete"]) =>
        "What happens to old segments: `delete` drops them by age and size, `compact` keeps the newest \
         record of each key, both together do both.";
    "compression.gzip.level", Int, Some("-1"), RangeOr { min: 1, max: 9, or: -1 }, later =>
        "Level used where the broker itself compresses with gzip.";
    "compression.lz4.level", Int, Some("9"), Range { min: 1, max: 17 }, later =>
        "Level used where the broker itself compresses with lz4.";
    "compression.type", String, Some("producer"), OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), later =>
        "Codec of stored batches; `producer` keeps each batch as its producer sent it.";
    "compression.zstd.level", Int, Some("3"), Range { min: -131_072, max: 22 }, later =>
        "Level used where the broker itself compresses with zstd.";
    "delete.retention.ms", Long, Some("86400000"), Min(0) =>
        "How long compaction keeps a tombstone, so that a reader who started from the beginning still \
         sees the deletion.";
    "errors.deadletterqueue.group.enable", Boolean, Some("false"), Any, later =>
        "Whether share groups may use this topic as their dead letter queue.";
    "file.delete.delay.ms", Long, Some("60000"), Min(0) =>
        "Pause between dropping a segment and removing its files.";
    "flush.messages", Long, Some("9223372036854775807"), Min(1), later =>
        "Flush after so many records. Weir flushes every acknowledged byte unless `weir.flush=os`.";
    "flush.ms", Long, Some("9223372036854775807"), Min(0), later =>
        "Flush after so long. Weir flushes every acknowledged byte unless `weir.flush=os`.";
    "follower.replication.throttled.replicas", List, Some(""), ThrottledReplicas =>
        "Replicas whose catching up is throttled on the follower's side, or `*` for all.";
    "index.interval.bytes", Int, Some("4096"), Min(0) =>
        "An offset index entry is written about every so many bytes of log.";
    "leader.replication.throttled.replicas", List, Some(""), ThrottledReplicas =>
        "Replicas whose catching up is throttled on the leader's side, or `*` for all.";
    "local.retention.bytes", Long, Some("-2"), Min(-2), later =>
        "With remote storage: bytes kept on local disk per partition; -2 means `retention.bytes`.";
    "local.retention.ms", Long, Some("-2"), Min(-2), later =>
        "With remote storage: time kept on local disk; -2 means `retention.ms`.";
    "max.compaction.lag.ms", Long, Some("9223372036854775807"), Min(1) =>
        "A record becomes compactable at the latest after so long.";
    "max.decompressed.message.bytes", Int, Some("2147483639"), Range { min: 1, max: 2_147_483_639 } =>
        "Largest size of one batch after decompression, where the broker must decompress it.";
    "max.message.bytes", Int, Some("1048588"), Min(0) =>
        "Largest record batch that producers may write, after compression.";
    "message.timestamp.after.max.ms", Long, Some("3600000"), Min(0) =>
        "How far a record's timestamp may lie ahead of the broker's clock.";
    "message.timestamp.before.max.ms", Long, Some("9223372036854775807"), Min(0) =>
        "How far a record's timestamp may lie behind the broker's clock.";
    "message.timestamp.type", String, Some("CreateTime"), OneOf(&["CreateTime", "LogAppendTime"]) =>
        "Whose clock stamps records: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).";
    "min.cleanable.dirty.ratio", Double, Some("0.5"), Between(0.0, 1.0) =>
        "Share of a log that must be uncompacted before compaction looks at it.";
    "min.compaction.lag.ms", Long, Some("0"), Min(0) =>
        "A record stays uncompacted at least so long.";
    "min.insync.replicas", Int, Some("1"), Min(1) =>
        "A write with acks=all succeeds only while at least so many replicas are in sync. Topics created \
         with three or more replicas get 2 unless told otherwise.";
    "preallocate", Boolean, Some("false"), Any, later =>
        "Whether segment files are allocated at full size when created.";
    "remote.copy.lag.bytes", Long, Some("-1"), Min(-1), later =>
        "With remote storage: bytes of the newest sealed segments that are not copied yet; -1 follows the \
         local retention.";
    "remote.copy.lag.ms", Long, Some("0"), Min(-1), later =>
        "With remote storage: age below which a sealed segment is not copied yet; -1 follows the local \
         retention.";
    "remote.log.copy.disable", Boolean, Some("false"), Any, later =>
        "With remote storage: stop copying, keep reading.";
    "remote.log.delete.on.disable", Boolean, Some("false"), Any, later =>
        "With remote storage: delete the remote data when it is switched off.";
    "remote.storage.enable", Boolean, Some("false"), Any, later =>
        "Whether old segments move to remote storage. Not available: only `false` is accepted.";
    "retention.bytes", Long, Some("-1"), Any =>
        "Bytes kept per partition before the oldest segments go; -1 is no limit.";
    "retention.ms", Long, Some("604800000"), Min(-1) =>
        "How long records are kept before their segments go; -1 is for ever.";
    "segment.bytes", Int, Some("1073741824"), Min(1_048_576) =>
        "Size at which a segment is sealed and the next one begun.";
    "segment.index.bytes", Int, Some("10485760"), Min(4) =>
        "Largest size of a segment's index; a full index seals the segment.";
    "segment.jitter.ms", Long, Some("0"), Min(0) =>
        "Random reduction of `segment.ms`, so that not all partitions roll at once.";
    "segment.ms", Long, Some("604800000"), Min(1) =>
        "Age at which a segment is sealed even if it is not full.";
    "unclean.leader.election.enable", Boolean, Some("false"), Any =>
        "Whether a replica outside ISR and ELR may lead when nobody else is left, losing acknowledged \
         records.";
    "weir.flush", String, Some("ack"), OneOf(&["ack", "os"]) =>
        "When a record counts as written: `ack` = on disk before it is acknowledged or read, `os` = left \
         to the operating system, as Kafka does.";
};
