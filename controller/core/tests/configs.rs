//! Changes of configs: both of Kafka's requests, on all kinds of resources.

mod cluster;

use cluster::{Cluster, on_topic, op, refused, topic};
use proto_types::controller_api::ConfigOpKind::{Append, Delete, Set, Subtract};
use proto_types::controller_api::{ConfigOp, ResourceRef};
use proto_types::error::Reason;
use proto_types::ids::NodeId;
use proto_types::metadata::ConfigResource;

fn pairs(configs: &[(&str, &str)]) -> Vec<(String, String)> {
    configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn incremental_changes_touch_only_what_they_name() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.create(topic("t", 1, 1)).expect("created");
    let ops = vec![op(Set, "retention.ms", "1000"), op(Set, "segment.bytes", "2000000")];
    cluster.alter(on_topic("t"), false, ops).expect("set");
    cluster
        .alter(
            on_topic("t"),
            false,
            vec![op(Delete, "retention.ms", ""), op(Append, "cleanup.policy", "compact")],
        )
        .expect("deleted and appended");
    assert_eq!(
        cluster.configs("t"),
        pairs(&[("cleanup.policy", "delete,compact"), ("segment.bytes", "2000000")]),
        "a list grows from its default"
    );
    cluster
        .alter(on_topic("t"), false, vec![op(Append, "cleanup.policy", "compact")])
        .expect("twice is once");
    cluster.alter(on_topic("t"), false, vec![op(Subtract, "cleanup.policy", "delete")]).expect("subtracted");
    assert_eq!(cluster.configs("t"), pairs(&[("cleanup.policy", "compact"), ("segment.bytes", "2000000")]));
}

#[test]
fn the_old_request_replaces_everything() {
    let mut cluster = Cluster::with_nodes(1);
    let mut wanted = topic("t", 1, 1);
    wanted.configs =
        vec![("retention.ms".into(), Some("1000".into())), ("weir.flush".into(), Some("os".into()))];
    cluster.create(wanted).expect("created");
    cluster.alter(on_topic("t"), true, vec![op(Set, "weir.flush", "os")]).expect("replaced");
    assert_eq!(cluster.configs("t"), pairs(&[("weir.flush", "os")]));
    let (_, changes) = cluster.log.last().expect("logged");
    assert_eq!(changes.len(), 1, "only the difference is committed: {changes:?}");
}

#[test]
fn refusals_name_the_config_and_change_nothing() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.create(topic("t", 1, 1)).expect("created");
    let null = ConfigOp { name: "retention.ms".into(), kind: Set, value: None };
    let cases: Vec<(Vec<ConfigOp>, Reason, &str)> = vec![
        (vec![op(Set, "nope", "1")], Reason::InvalidConfig, "Unknown topic config name: nope"),
        (vec![op(Delete, "nope", "")], Reason::InvalidConfig, "Unknown topic config name: nope"),
        (
            vec![op(Set, "retention.ms", "-5")],
            Reason::InvalidConfig,
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        (
            vec![op(Append, "retention.ms", "5")],
            Reason::InvalidConfig,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            vec![op(Append, "cleanup.policy", "x")],
            Reason::InvalidConfig,
            "String must be one of: compact, delete",
        ),
        (vec![null], Reason::InvalidRequest, "Null value not supported"),
        (
            vec![op(Set, "retention.ms", "1"), op(Delete, "retention.ms", "")],
            Reason::InvalidRequest,
            "named twice",
        ),
        (
            vec![op(Set, "min.compaction.lag.ms", "100"), op(Set, "max.compaction.lag.ms", "50")],
            Reason::InvalidConfig,
            "min.compaction.lag.ms (100) > max.compaction.lag.ms (50)",
        ),
        (vec![op(Set, "segment.bytes", "2000000"), op(Set, "nope", "1")], Reason::InvalidConfig, "nope"),
    ];
    for (ops, reason, words) in cases {
        let (got, message) = refused(cluster.alter(on_topic("t"), false, ops));
        assert_eq!(got, reason, "{message}");
        assert!(message.contains(words), "{message}");
    }
    assert!(cluster.configs("t").is_empty());
    assert_eq!(refused(cluster.alter(on_topic("u"), false, vec![])).0, Reason::UnknownTopic);
    assert_eq!(refused(cluster.alter(on_topic("__consumer_offsets"), false, vec![])).0, Reason::UnknownTopic);
}

#[test]
fn node_configs_know_where_they_may_be_changed() {
    let mut cluster = Cluster::with_nodes(1);
    let all = || ResourceRef::Resource(ConfigResource::NodeDefault);
    let one = |id| ResourceRef::Resource(ConfigResource::Node(NodeId(id)));
    cluster.alter(all(), false, vec![op(Set, "log.retention.ms", "1000")]).expect("for all");
    cluster.alter(one(1), false, vec![op(Set, "log.retention.ms", "2000")]).expect("for one");
    cluster.alter(all(), false, vec![op(Set, "num.partitions", "3")]).expect("for all");
    let (reason, message) = refused(cluster.alter(one(1), false, vec![op(Set, "num.partitions", "3")]));
    assert_eq!(reason, Reason::InvalidRequest);
    assert!(message.contains("one value for the whole cluster"), "{message}");
    let pause = || vec![op(Set, "sasl.kerberos.min.time.before.relogin", "58000")];
    cluster.alter(one(1), false, pause()).expect("for one");
    let (reason, message) = refused(cluster.alter(all(), false, pause()));
    assert_eq!(reason, Reason::InvalidRequest);
    assert!(message.starts_with("Cannot update these configs at default cluster level: sasl."), "{message}");
    let (reason, message) = refused(cluster.alter(all(), false, vec![op(Set, "log.dirs", "/x")]));
    assert_eq!(reason, Reason::InvalidRequest);
    assert!(message.starts_with("Cannot update these configs dynamically: log.dirs"), "{message}");
    assert_eq!(refused(cluster.alter(one(7), false, vec![])).0, Reason::UnknownResource);
    let (_, message) = refused(cluster.alter(all(), false, vec![op(Set, "nope", "1")]));
    assert_eq!(message, "Unknown broker config name: nope");
}
