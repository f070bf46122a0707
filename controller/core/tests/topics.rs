//! Creating, growing and deleting topics: results and refusals.

mod cluster;

use cluster::{Cluster, assigned, ids, refused, topic};
use controller_core::plan;
use proto_types::controller_api::*;
use proto_types::error::Reason;
use proto_types::ids::*;
use proto_types::metadata::*;
use uuid::Uuid;

#[test]
fn a_topic_gets_its_partitions_and_leaders() {
    let mut cluster = Cluster::with_nodes(3);
    let created = cluster.create(topic("t", 6, 3)).expect("created");
    assert_eq!((created.partitions, created.replication_factor), (6, 3));
    assert_eq!(created.configs, [("min.insync.replicas".to_owned(), "2".to_owned())]);
    for index in 0..6 {
        let partition = cluster.partition("t", index);
        assert_eq!(partition.leader, Some(partition.replicas[0]));
        assert_eq!(partition.isr, partition.replicas);
        assert_eq!((partition.leader_epoch, partition.partition_epoch), (LeaderEpoch(0), PartitionEpoch(0)));
    }
}

#[test]
fn the_stricter_min_insync_is_fixed_only_where_nobody_chose() {
    let mut cluster = Cluster::with_nodes(3);
    let created = cluster.create(topic("two", 1, 2)).expect("created");
    assert!(created.configs.is_empty(), "fewer than three replicas");
    let mut chosen = topic("chosen", 1, 3);
    chosen.configs = vec![("min.insync.replicas".into(), Some("1".into()))];
    let created = cluster.create(chosen).expect("created");
    assert_eq!(created.configs, [("min.insync.replicas".to_owned(), "1".to_owned())]);
    let all = ResourceRef::Resource(ConfigResource::NodeDefault);
    cluster
        .alter(all, false, vec![cluster::op(ConfigOpKind::Set, "min.insync.replicas", "3")])
        .expect("altered");
    assert!(cluster.create(topic("default", 1, 3)).expect("created").configs.is_empty());
}

#[test]
fn counts_default_to_the_clusters() {
    let mut cluster = Cluster::with_nodes(2);
    let mut plain = topic("plain", 0, 0);
    (plain.partitions, plain.replication_factor) = (None, None);
    let created = cluster.create(plain.clone()).expect("created");
    assert_eq!((created.partitions, created.replication_factor), (1, 1));
    let ops = vec![
        cluster::op(ConfigOpKind::Set, "num.partitions", "4"),
        cluster::op(ConfigOpKind::Set, "default.replication.factor", "2"),
    ];
    cluster.alter(ResourceRef::Resource(ConfigResource::NodeDefault), false, ops).expect("altered");
    plain.name = "more".into();
    let created = cluster.create(plain).expect("created");
    assert_eq!((created.partitions, created.replication_factor), (4, 2));
}

#[test]
fn refusals_of_new_topics() {
    let mut cluster = Cluster::with_nodes(1);
    cluster.create(topic("a.b", 1, 1)).expect("created");
    let mut bad_config = topic("t", 1, 1);
    bad_config.configs = vec![("retention.ms".into(), Some("-5".into()))];
    let mut null_config = topic("t", 1, 1);
    null_config.configs = vec![("retention.ms".into(), None)];
    let mut unknown_config = topic("t", 1, 1);
    unknown_config.configs = vec![("retention".into(), Some("1".into()))];
    let mut remote = topic("t", 1, 1);
    remote.configs = vec![("remote.storage.enable".into(), Some("true".into()))];
    let mut both = assigned("t", &[&[1]]);
    both.partitions = Some(1);
    let mut both_factor = assigned("t", &[&[1]]);
    both_factor.replication_factor = Some(1);
    let mut gap = assigned("t", &[&[1]]);
    gap.assignments[0].0 = PartitionIndex(1);
    let cases = [
        (topic("a.b", 1, 1), Reason::TopicExists, "Topic 'a.b' already exists."),
        (topic("a_b", 1, 1), Reason::InvalidTopicName, "Topic 'a_b' collides with existing topic: a.b"),
        (topic("", 1, 1), Reason::InvalidTopicName, "the empty string is not allowed"),
        (topic("__consumer_offsets", 1, 1), Reason::ClosedTopic, "internal to the cluster"),
        (topic("t", 0, 1), Reason::InvalidPartitions, "invalid non-positive value"),
        (topic("t", -2, 1), Reason::InvalidPartitions, "invalid non-positive value"),
        (topic("t", 1, 0), Reason::InvalidReplicationFactor, "must be larger than 0"),
        (
            topic("t", 1, 2),
            Reason::InvalidReplicationFactor,
            "only 1 broker(s) are registered. Start 1 more,",
        ),
        (bad_config, Reason::InvalidConfig, "Invalid value -5 for configuration retention.ms: Value must be"),
        (null_config, Reason::InvalidConfig, "Null value not supported for topic configs: retention.ms"),
        (unknown_config, Reason::InvalidConfig, "Unknown topic config name: retention"),
        (remote, Reason::InvalidConfig, "remote.storage.enable"),
        (both, Reason::InvalidRequest, "numPartitions was not set to -1"),
        (both_factor, Reason::InvalidRequest, "replication factor was not set to -1"),
        (gap, Reason::InvalidReplicaAssignment, "consecutive 0-based integer sequence"),
        (assigned("t", &[&[]]), Reason::InvalidReplicaAssignment, "empty replica list"),
        (
            assigned("t", &[&[9]]),
            Reason::InvalidReplicaAssignment,
            "broker 9, but no such broker is registered. Choose among",
        ),
        (assigned("t", &[&[1, 1]]), Reason::InvalidReplicaAssignment, "the broker 1 more than once"),
        (assigned("t", &[&[1], &[]]), Reason::InvalidReplicaAssignment, "empty replica list"),
    ];
    for (request, reason, words) in cases {
        let (got, message) = refused(cluster.create(request.clone()));
        assert_eq!(got, reason, "{request:?}: {message}");
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(cluster.state.topics().len(), 1, "refusals leave nothing behind");
}

#[test]
fn one_refused_topic_does_not_disturb_the_others() {
    let mut cluster = Cluster::with_nodes(1);
    let topics =
        vec![topic("a", 1, 1), topic("b", 0, 1), topic("c", 1, 1), topic("d", 1, 1), topic("d", 1, 1)];
    let results = cluster.create_all(topics);
    let created: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(created, [true, false, true, false, false]);
    assert_eq!(refused(results[4].clone()), (Reason::InvalidRequest, "Duplicate topic name.".to_owned()));
    let collide = cluster.create_all(vec![topic("x.y", 1, 1), topic("x_y", 1, 1)]);
    assert!(collide[0].is_ok());
    assert_eq!(refused(collide[1].clone()).0, Reason::InvalidTopicName, "the second sees the first");
}

/// T-54: one of them.
#[test]
fn a_request_that_is_too_large_is_refused_as_a_whole() {
    let mut cluster = Cluster::with_nodes(1);
    let create = |count: i32| CreateTopics {
        topics: vec![topic("t", count, 1), topic("u", 1, 1)],
        validate_only: false,
        timeout_ms: 0,
    };
    let refusal = plan::create_topics(&cluster.state, &create(10_000), &mut cluster.inputs);
    let (reason, message) = refused(refusal);
    assert_eq!(reason, Reason::PolicyViolation);
    assert!(message.contains("10001, at most 10000"), "{message}");
    let refusal = plan::create_topics(&cluster.state, &create(i32::MAX), &mut cluster.inputs);
    assert_eq!(refused(refusal).0, Reason::PolicyViolation);
    plan::create_topics(&cluster.state, &create(9_999), &mut cluster.inputs).expect("just fits");

    cluster.inputs.limits.partitions_max = 5;
    let refusal = plan::create_topics(&cluster.state, &create(5), &mut cluster.inputs);
    assert!(refused(refusal).1.contains("(partitions_max)"));

    let topics = (0..10_001).map(|n| topic(&format!("t{n}"), 1, 1)).collect();
    let request = CreateTopics { topics, validate_only: false, timeout_ms: 0 };
    let refusal = plan::create_topics(&cluster.state, &request, &mut cluster.inputs);
    assert!(refused(refusal).1.contains("names 10001 topics"));
}

#[test]
fn validation_alone_changes_nothing() {
    let mut cluster = Cluster::with_nodes(1);
    let request = CreateTopics { topics: vec![topic("t", 3, 1)], validate_only: true, timeout_ms: 0 };
    let decision = plan::create_topics(&cluster.state, &request, &mut cluster.inputs).expect("fine");
    assert!(decision.changes.is_empty());
    let created = decision.reply[0].clone().expect("valid");
    assert_eq!((created.topic, created.partitions), (TopicId(Uuid::nil()), 3));
}

#[test]
fn manual_assignments_are_taken_as_they_are() {
    let mut cluster = Cluster::with_nodes(3);
    cluster.fence(3);
    cluster.create(assigned("t", &[&[3, 1], &[2, 1]])).expect("created");
    let first = cluster.partition("t", 0);
    assert_eq!(first.replicas, ids(&[3, 1]));
    assert_eq!((first.isr, first.leader), (ids(&[1]), Some(NodeId(1))), "a fenced replica is not in sync");
    assert_eq!(cluster.partition("t", 1).leader, Some(NodeId(2)));
    let refusal = cluster.create(assigned("u", &[&[3]]));
    assert!(refused(refusal).1.contains("are fenced"));
}

#[test]
fn topics_grow_but_never_shrink() {
    let mut cluster = Cluster::with_nodes(2);
    cluster.create(topic("t", 3, 2)).expect("created");
    cluster.grow("t", 5, vec![]).expect("grown");
    assert_eq!(cluster.partition("t", 4).replicas.len(), 2);
    let cases = [
        (cluster.grow("t", 5, vec![]), Reason::InvalidPartitions, "Topic already has 5 partition(s)."),
        (
            cluster.grow("t", 2, vec![]),
            Reason::InvalidPartitions,
            "The topic t currently has 5 partition(s); 2 would not be an increase.",
        ),
        (cluster.grow("t", -1, vec![]), Reason::InvalidPartitions, "-1 would not be an increase"),
        (cluster.grow("no", 2, vec![]), Reason::UnknownTopic, "The topic 'no' does not exist."),
        (
            cluster.grow("t", 7, vec![ids(&[1, 2])]),
            Reason::InvalidReplicaAssignment,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (cluster.grow("t", 6, vec![ids(&[1])]), Reason::InvalidReplicaAssignment, "not consistent"),
    ];
    for (result, reason, words) in cases {
        let (got, message) = refused(result);
        assert_eq!(got, reason, "{message}");
        assert!(message.contains(words), "{message}");
    }
    cluster.grow("t", 6, vec![ids(&[2, 1])]).expect("grown as assigned");
    assert_eq!(cluster.partition("t", 5).replicas, ids(&[2, 1]));
}

#[test]
fn deleted_topics_leave_nothing_and_a_new_one_gets_a_new_id() {
    let mut cluster = Cluster::with_nodes(1);
    let mut wanted = topic("t", 3, 1);
    wanted.configs = vec![("retention.ms".into(), Some("1000".into()))];
    let first = cluster.create(wanted.clone()).expect("created");
    let deleted = cluster.delete(TopicRef::Name("t".into())).expect("deleted");
    assert_eq!(deleted, DeletedTopic { topic: first.topic, name: "t".into() });
    assert!(cluster.state.partitions().is_empty() && cluster.state.configs().iter().next().is_none());
    let second = cluster.create(wanted).expect("created again");
    assert_ne!(first.topic, second.topic);
    assert_eq!(refused(cluster.delete(TopicRef::Id(first.topic))).0, Reason::UnknownTopicId);
    assert_eq!(refused(cluster.delete(TopicRef::Name("u".into()))).0, Reason::UnknownTopic);
    cluster.delete(TopicRef::Id(second.topic)).expect("deleted by id");
}
