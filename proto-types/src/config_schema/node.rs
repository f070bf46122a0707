//! Configs that a storage node shows and, where Kafka lets it, changes at run time: those of Kafka's broker
//! configs that mean something here.

use super::Allowed::{Any, Between, EachOf, Min, OneOf, Range, RangeOr};
use super::ConfigDef;
use super::ConfigKind::{Boolean, Double, Int, List, Long, Short, String};

/// All node configs, sorted by name.
pub static NODE_CONFIGS: &[ConfigDef] = rows! {
    "advertised.listeners", List, None, Any, read_only_row =>
        "Addresses that clients are told to connect to, by listener name.";
    "auto.create.topics.enable", Boolean, Some("false"), Any, read_only_row =>
        "Whether asking for the metadata of an unknown topic, or producing to it, creates it. `weir dev` \
         switches it on.";
    "auto.leader.rebalance.enable", Boolean, Some("true"), Any, read_only_row =>
        "Whether preferred leaders get their partitions back by themselves.";
    "broker.heartbeat.interval.ms", Int, Some("300"), Any, read_only_row =>
        "How often a storage node tells the controller that it lives.";
    "broker.id", Int, Some("-1"), Any, read_only_row =>
        "The storage node's id.";
    "broker.rack", String, None, Any, read_only_row =>
        "The storage node's rack or zone; replicas are spread over racks.";
    "broker.session.timeout.ms", Int, Some("3000"), Any, read_only_row =>
        "A storage node that sends no heartbeat for so long is fenced and loses its leaderships.";
    "compression.gzip.level", Int, Some("-1"), RangeOr { min: 1, max: 9, or: -1 }, later =>
        "Default of the topic config of the same name.";
    "compression.lz4.level", Int, Some("9"), Range { min: 1, max: 17 }, later =>
        "Default of the topic config of the same name.";
    "compression.type", String, Some("producer"), OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), later =>
        "Default of the topic config of the same name.";
    "compression.zstd.level", Int, Some("3"), Range { min: -131_072, max: 22 }, later =>
        "Default of the topic config of the same name.";
    "connections.max.idle.ms", Long, Some("600000"), Any, read_only_row =>
        "A client connection without traffic for so long is closed.";
    "controlled.shutdown.enable", Boolean, Some("true"), Any, read_only_row =>
        "Whether a stopping node hands over its leaderships first. Always so in Weir.";
    "default.replication.factor", Int, Some("1"), Any, cluster_only =>
        "Replicas of a topic that is created without saying how many. One value for the whole cluster.";
    "delete.topic.enable", Boolean, Some("true"), Any, later, read_only_row =>
        "Whether topics may be deleted at all.";
    "fetch.max.bytes", Int, Some("57671680"), Min(1024), read_only_row =>
        "Most bytes that one fetch answer carries, whatever the client asks for.";
    "follower.replication.throttled.rate", Long, Some("9223372036854775807"), Min(0) =>
        "Bytes per second for throttled replicas, follower's side.";
    "group.consumer.assignors", List, Some("uniform,range"), Any, later, read_only_row =>
        "Assignors that the server offers to consumer groups.";
    "group.consumer.heartbeat.interval.ms", Int, Some("5000"), Min(1), later, read_only_row =>
        "How often members of consumer groups send heartbeats.";
    "group.consumer.max.heartbeat.interval.ms", Int, Some("15000"), Min(1), later, read_only_row =>
        "Largest heartbeat interval that a group may be given.";
    "group.consumer.max.session.timeout.ms", Int, Some("60000"), Min(1), later, read_only_row =>
        "Largest session time-out that a group may be given.";
    "group.consumer.max.size", Int, Some("2147483647"), Min(1), later, read_only_row =>
        "Most members of a consumer group.";
    "group.consumer.min.heartbeat.interval.ms", Int, Some("5000"), Min(1), later, read_only_row =>
        "Smallest heartbeat interval that a group may be given.";
    "group.consumer.min.session.timeout.ms", Int, Some("45000"), Min(1), later, read_only_row =>
        "Smallest session time-out that a group may be given.";
    "group.consumer.session.timeout.ms", Int, Some("45000"), Min(1), later, read_only_row =>
        "A member of a consumer group that is silent for so long is removed.";
    "group.initial.rebalance.delay.ms", Int, Some("3000"), Any, later, read_only_row =>
        "How long the first rebalance of an empty classic group waits for more members.";
    "group.max.session.timeout.ms", Int, Some("1800000"), Any, later, read_only_row =>
        "Largest session time-out that a classic member may ask for.";
    "group.max.size", Int, Some("2147483647"), Min(1), later, read_only_row =>
        "Most members of a classic group.";
    "group.min.session.timeout.ms", Int, Some("6000"), Any, later, read_only_row =>
        "Smallest session time-out that a classic member may ask for.";
    "leader.imbalance.check.interval.seconds", Long, Some("300"), Min(1), read_only_row =>
        "How often the controller looks for partitions that are not led by their preferred leader.";
    "leader.replication.throttled.rate", Long, Some("9223372036854775807"), Min(0) =>
        "Bytes per second for throttled replicas, leader's side.";
    "listener.security.protocol.map", String, Some("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"), Any, read_only_row =>
        "Which security protocol each listener name speaks.";
    "listeners", List, Some("PLAINTEXT://:9092"), Any, read_only_row =>
        "Addresses that the node listens on for clients.";
    "log.cleaner.backoff.ms", Long, Some("15000"), Range { min: 100, max: 86_400_000 } =>
        "Pause of compaction when there is nothing to do.";
    "log.cleaner.dedupe.buffer.size", Long, Some("134217728"), Min(1048576) =>
        "Memory for the key maps of compaction, of all threads together.";
    "log.cleaner.delete.retention.ms", Long, Some("86400000"), Min(0) =>
        "Default of the topic config `delete.retention.ms`.";
    "log.cleaner.enable", Boolean, Some("true"), Any, read_only_row =>
        "Whether compaction runs at all.";
    "log.cleaner.io.max.bytes.per.second", Double, Some("1.7976931348623157E308"), Between(1.0, f64::MAX) =>
        "Most bytes per second that compaction reads and writes.";
    "log.cleaner.max.compaction.lag.ms", Long, Some("9223372036854775807"), Min(1) =>
        "Default of the topic config `max.compaction.lag.ms`.";
    "log.cleaner.min.cleanable.ratio", Double, Some("0.5"), Between(0.0, 1.0) =>
        "Default of the topic config `min.cleanable.dirty.ratio`.";
    "log.cleaner.min.compaction.lag.ms", Long, Some("0"), Min(0) =>
        "Default of the topic config `min.compaction.lag.ms`.";
    "log.cleaner.threads", Int, Some("1"), Range { min: 0, max: 64 } =>
        "Threads that compact.";
    "log.cleanup.policy", List, Some("delete"), EachOf(&["compact", "delete"]) =>
        "Default of the topic config `cleanup.policy`.";
    "log.dir", List, None, Any, read_only_row =>
        "Data directory, if `log.dirs` is not set.";
    "log.dirs", List, None, Any, read_only_row =>
        "Data directories.";
    "log.flush.interval.messages", Long, Some("9223372036854775807"), Min(1), later =>
        "Default of the topic config `flush.messages`.";
    "log.flush.interval.ms", Long, None, Any, later =>
        "Default of the topic config `flush.ms`.";
    "log.flush.scheduler.interval.ms", Long, Some("9223372036854775807"), Any, later, read_only_row =>
        "Default of `log.flush.interval.ms`.";
    "log.index.interval.bytes", Int, Some("4096"), Min(0) =>
        "Default of the topic config `index.interval.bytes`.";
    "log.index.size.max.bytes", Int, Some("10485760"), Min(4) =>
        "Default of the topic config `segment.index.bytes`.";
    "log.local.retention.bytes", Long, Some("-2"), Min(-2), later =>
        "Default of the topic config `local.retention.bytes`.";
    "log.local.retention.ms", Long, Some("-2"), Min(-2), later =>
        "Default of the topic config `local.retention.ms`.";
    "log.message.timestamp.after.max.ms", Long, Some("3600000"), Min(0) =>
        "Default of the topic config `message.timestamp.after.max.ms`.";
    "log.message.timestamp.before.max.ms", Long, Some("9223372036854775807"), Min(0) =>
        "Default of the topic config `message.timestamp.before.max.ms`.";
    "log.message.timestamp.type", String, Some("CreateTime"), OneOf(&["CreateTime", "LogAppendTime"]) =>
        "Default of the topic config `message.timestamp.type`.";
    "log.preallocate", Boolean, Some("false"), Any, later =>
        "Default of the topic config `preallocate`.";
    "log.remote.copy.lag.bytes", Long, Some("-1"), Min(-1), later =>
        "Default of the topic config `remote.copy.lag.bytes`.";
    "log.remote.copy.lag.ms", Long, Some("0"), Min(-1), later =>
        "Default of the topic config `remote.copy.lag.ms`.";
    "log.retention.bytes", Long, Some("-1"), Any =>
        "Default of the topic config `retention.bytes`.";
    "log.retention.check.interval.ms", Long, Some("300000"), Min(1), read_only_row =>
        "How often retention looks for segments to drop.";
    "log.retention.hours", Int, Some("168"), RangeOr { min: 1, max: i32::MAX as i64, or: -1 }, read_only_row =>
        "Default of the topic config `retention.ms` in hours, if the finer ones are not set.";
    "log.retention.minutes", Int, None, RangeOr { min: 1, max: i32::MAX as i64, or: -1 }, read_only_row =>
        "Default of the topic config `retention.ms` in minutes, if `log.retention.ms` is not set.";
    "log.retention.ms", Long, None, RangeOr { min: 1, max: i64::MAX, or: -1 } =>
        "Default of the topic config `retention.ms`.";
    "log.roll.hours", Int, Some("168"), Min(1), read_only_row =>
        "Default of the topic config `segment.ms` in hours, if `log.roll.ms` is not set.";
    "log.roll.jitter.hours", Int, Some("0"), Min(0), read_only_row =>
        "Default of the topic config `segment.jitter.ms` in hours, if `log.roll.jitter.ms` is not set.";
    "log.roll.jitter.ms", Long, None, Min(0) =>
        "Default of the topic config `segment.jitter.ms`.";
    "log.roll.ms", Long, None, Min(1) =>
        "Default of the topic config `segment.ms`.";
    "log.segment.bytes", Int, Some("1073741824"), Min(1_048_576) =>
        "Default of the topic config `segment.bytes`.";
    "log.segment.delete.delay.ms", Long, Some("60000"), Min(0) =>
        "Default of the topic config `file.delete.delay.ms`.";
    "max.connections", Int, Some("10000"), Min(1), read_only_row =>
        "Most client connections of a node.";
    "max.connections.per.ip", Int, Some("2000"), Min(1), read_only_row =>
        "Most client connections of a node from one address.";
    "max.decompressed.message.bytes", Int, Some("2147483639"), Range { min: 1, max: 2_147_483_639 } =>
        "Default of the topic config of the same name.";
    "max.incremental.fetch.session.cache.slots", Int, Some("1000"), Min(0), read_only_row =>
        "Most fetch sessions that a node remembers.";
    "max.request.partition.size.limit", Int, Some("2000"), Min(1), read_only_row =>
        "Most partitions that one DescribeTopicPartitions answer lists.";
    "message.max.bytes", Int, Some("1048588"), Min(0) =>
        "Default of the topic config `max.message.bytes`.";
    "min.insync.replicas", Int, Some("1"), Min(1), cluster_only =>
        "Default of the topic config of the same name. One value for the whole cluster: the controllers decide by it \
         who is eligible to lead.";
    "node.id", Int, None, Min(0), read_only_row =>
        "The storage node's id.";
    "num.partitions", Int, Some("1"), Min(1), cluster_only =>
        "Partitions of a topic that is created without saying how many. One value for the whole cluster.";
    "offset.metadata.max.bytes", Int, Some("4096"), Any, later, read_only_row =>
        "Longest note that a consumer may commit with an offset.";
    "offsets.retention.check.interval.ms", Long, Some("600000"), Min(1), later, read_only_row =>
        "How often expired offsets are looked for.";
    "offsets.retention.minutes", Int, Some("10080"), Min(1), later, read_only_row =>
        "How long the offsets of a dead group are kept.";
    "offsets.topic.num.partitions", Int, Some("50"), Min(1), later, read_only_row =>
        "Partitions of `__consumer_offsets`, and so shards of the groups. Fixed once the topic exists.";
    "offsets.topic.replication.factor", Short, Some("3"), Min(1), later, read_only_row =>
        "Replicas of `__consumer_offsets`.";
    "process.roles", List, Some("broker"), EachOf(&["broker", "controller"]), read_only_row =>
        "What this process is. Always `broker`: the metadata quorum is made of other processes.";
    "producer.id.expiration.ms", Int, Some("86400000"), Min(1) =>
        "The state of an idle producer is forgotten after so long.";
    "queued.max.request.bytes", Long, Some("-1"), Any, read_only_row =>
        "Most bytes of requests in flight in a node; it stops reading beyond.";
    "replica.alter.log.dirs.io.max.bytes.per.second", Long, Some("9223372036854775807"), Min(0) =>
        "Bytes per second for moves between data directories.";
    "replica.fetch.max.bytes", Int, Some("1048576"), Min(0), later, read_only_row =>
        "Most bytes of one partition in one replication message.";
    "replica.lag.time.max.ms", Long, Some("30000"), Min(1), read_only_row =>
        "A follower that has not been caught up for so long leaves the ISR.";
    "replica.selector.class", String, None, OneOf(&["org.apache.kafka.common.replica.LeaderSelector", "org.apache.kafka.common.replica.RackAwareReplicaSelector"]), read_only_row =>
        "How a consumer's nearest replica is chosen.";
    "request.timeout.ms", Int, Some("30000"), Min(1), read_only_row =>
        "How long a request may wait inside the cluster.";
    "sasl.enabled.mechanisms", List, Some(""), Any, later, read_only_row =>
        "SASL mechanisms that clients may use.";
    "sasl.kerberos.min.time.before.relogin", Long, Some("60000"), Any, later, node_only =>
        "How long a Kerberos login that needs to be renewed waits between two tries.";
    "security.inter.broker.protocol", String, Some("PLAINTEXT"), OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), read_only_row =>
        "Kafka's name for how brokers talk. Weir's daemons always use mutual TLS over QUIC of their own.";
    "socket.request.max.bytes", Int, Some("104857600"), Min(1), read_only_row =>
        "Largest request frame that is accepted from clients.";
    "transaction.max.timeout.ms", Int, Some("900000"), Min(1), later, read_only_row =>
        "Largest transaction time-out that a producer may ask for.";
    "transaction.partition.verification.enable", Boolean, Some("true"), Any, later =>
        "Whether partitions are verified with the coordinator before transactional appends.";
    "transaction.state.log.min.isr", Int, Some("2"), Min(1), later, read_only_row =>
        "`min.insync.replicas` of `__transaction_state`.";
    "transaction.state.log.num.partitions", Int, Some("50"), Min(1), later, read_only_row =>
        "Partitions of `__transaction_state`. Fixed once the topic exists.";
    "transaction.state.log.replication.factor", Short, Some("3"), Min(1), later, read_only_row =>
        "Replicas of `__transaction_state`.";
    "transactional.id.expiration.ms", Int, Some("604800000"), Min(1), later, read_only_row =>
        "An unused transactional id is forgotten after so long.";
    "unclean.leader.election.enable", Boolean, Some("false"), Any, cluster_only =>
        "Default of the topic config of the same name. One value for the whole cluster: the controllers elect.";
    "weir.flush", String, Some("ack"), OneOf(&["ack", "os"]), cluster_only =>
        "Default of the topic config of the same name. One value for the whole cluster: the controllers must know it.";
};
