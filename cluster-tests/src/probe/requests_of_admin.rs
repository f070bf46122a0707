//! Requests of administration: what is there, and changes that are only validated or meant for what is not there.

use kafka_wire_core::messages::add_raft_voter::{AddRaftVoterRequest, Listener};
use kafka_wire_core::messages::alter_configs::{AlterConfigsRequest, AlterConfigsResource, AlterableConfig};
use kafka_wire_core::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use kafka_wire_core::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use kafka_wire_core::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use kafka_wire_core::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use kafka_wire_core::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use kafka_wire_core::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use kafka_wire_core::messages::describe_cluster::DescribeClusterRequest;
use kafka_wire_core::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use kafka_wire_core::messages::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};
use kafka_wire_core::messages::describe_quorum::{
    DescribeQuorumRequest, PartitionToDescribe, TopicToDescribe,
};
use kafka_wire_core::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, TopicRequest,
};
use kafka_wire_core::messages::elect_leaders::{ElectLeadersRequest, TopicPartitions};
use kafka_wire_core::messages::incremental_alter_configs as incremental;
use kafka_wire_core::messages::list_config_resources::ListConfigResourcesRequest;
use kafka_wire_core::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsTopics,
};
use kafka_wire_core::messages::remove_raft_voter::RemoveRaftVoterRequest;
use kafka_wire_core::messages::unregister_broker::UnregisterBrokerRequest;
use kafka_wire_core::messages::update_features::{FeatureUpdateKey, UpdateFeaturesRequest};
use uuid::Uuid;

use super::requests::{Catalogue, NO_TOPIC, NO_TOPIC_ID};
use super::world::{MANY, READ};

/// Types of configs' resources.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

pub(super) fn add(catalogue: &mut Catalogue<'_>) {
    create_topics(catalogue);
    delete_topics(catalogue);
    create_partitions(catalogue);
    describe_configs(catalogue);
    alter_configs(catalogue);
    incremental_alter_configs(catalogue);
    reassignments(catalogue);
    cluster(catalogue);
    log_dirs(catalogue);
    quorum(catalogue);
    features(catalogue);
}

fn create_topics(catalogue: &mut Catalogue<'_>) {
    let topic = |name: &str, num_partitions, replication_factor| CreatableTopic {
        name: name.into(),
        num_partitions,
        replication_factor,
        ..CreatableTopic::default()
    };
    let validate =
        |topics: Vec<CreatableTopic>| CreateTopicsRequest { topics, timeout_ms: 10_000, validate_only: true };
    let long = "x".repeat(250);
    catalogue.ask("valid", |_| validate(vec![topic("probe-new", 2, 1)]));
    for (what, made) in [
        ("existing topic", topic(READ, 1, 1)),
        ("name with a slash", topic("no/slash", 1, 1)),
        ("empty name", topic("", 1, 1)),
        ("two dots", topic("..", 1, 1)),
        ("name too long", topic(&long, 1, 1)),
        ("name that collides", topic("probe.read", 1, 1)),
        ("too many replicas", topic("probe-new", 1, 9)),
        ("no replicas", topic("probe-new", 1, 0)),
        ("no partitions", topic("probe-new", 0, 1)),
        ("negative partitions", topic("probe-new", -5, 1)),
    ] {
        catalogue.ask(what, |_| validate(vec![made.clone()]));
    }
    catalogue.ask_in(4..=7, "default partitions", |_| validate(vec![topic("probe-new", -1, 1)]));
    catalogue.ask("default partitions and replicas", |_| validate(vec![topic("probe-new", -1, -1)]));
    catalogue.ask("topic twice", |_| validate(vec![topic("probe-new", 1, 1), topic("probe-new", 1, 1)]));
    catalogue.ask("good and bad topics", |_| {
        validate(vec![topic("no/slash", 1, 1), topic("probe-new", 1, 1), topic(READ, 1, 1)])
    });
    catalogue.ask("no topics", |_| validate(Vec::new()));
    let assigned = |num_partitions, replication_factor, partitions: &[(i32, &[i32])]| CreatableTopic {
        assignments: partitions
            .iter()
            .map(|(partition_index, brokers)| CreatableReplicaAssignment {
                partition_index: *partition_index,
                broker_ids: brokers.to_vec(),
            })
            .collect(),
        ..topic("probe-new", num_partitions, replication_factor)
    };
    let node = catalogue.world.node_id();
    catalogue.ask("assignment", |_| validate(vec![assigned(-1, -1, &[(0, &[node])])]));
    catalogue.ask("assignment and counts", |_| validate(vec![assigned(1, 1, &[(0, &[node])])]));
    catalogue.ask("assignment to an unknown broker", |_| validate(vec![assigned(-1, -1, &[(0, &[88])])]));
    catalogue.ask("assignment with a gap", |_| validate(vec![assigned(-1, -1, &[(1, &[node])])]));
    catalogue
        .ask("assignment with a broker twice", |_| validate(vec![assigned(-1, -1, &[(0, &[node, node])])]));
    catalogue.ask("assignment to nobody", |_| validate(vec![assigned(-1, -1, &[(0, &[])])]));
    for (what, name, value) in [
        ("config", "retention.ms", Some("5000")),
        ("unknown config", "no.such.config", Some("1")),
        ("bad value of a config", "retention.ms", Some("soon")),
        ("value of a config out of range", "retention.ms", Some("-5")),
        ("null value of a config", "retention.ms", None),
    ] {
        let configs = vec![CreatableTopicConfig { name: name.into(), value: value.map(Into::into) }];
        let made = CreatableTopic { configs, ..topic("probe-new", 1, 1) };
        catalogue.ask(what, |_| validate(vec![made.clone()]));
    }
}

fn delete_topics(catalogue: &mut Catalogue<'_>) {
    let by_name = |version: i16, names: &[&str]| {
        let names = names.iter();
        let mut request = DeleteTopicsRequest { timeout_ms: 10_000, ..DeleteTopicsRequest::default() };
        if version < 6 {
            request.topic_names = names.map(|name| (*name).into()).collect();
        } else {
            let state = |name: &&str| DeleteTopicState { name: Some((*name).into()), topic_id: Uuid::nil() };
            request.topics = names.map(state).collect();
        }
        request
    };
    let by = |name: Option<&str>, topic_id| DeleteTopicsRequest {
        topics: vec![DeleteTopicState { name: name.map(Into::into), topic_id }],
        timeout_ms: 10_000,
        ..DeleteTopicsRequest::default()
    };
    catalogue.ask("valid", |version| by_name(version, &[NO_TOPIC]));
    catalogue.ask("empty name", |version| by_name(version, &[""]));
    catalogue.ask("no topics", |version| by_name(version, &[]));
    catalogue.ask("topic twice", |version| by_name(version, &[NO_TOPIC, NO_TOPIC]));
    catalogue.ask_in(6..=6, "unknown id", |_| by(None, NO_TOPIC_ID));
    catalogue.ask_in(6..=6, "neither name nor id", |_| by(None, Uuid::nil()));
    catalogue.ask_in(6..=6, "name and id", |_| by(Some(NO_TOPIC), NO_TOPIC_ID));
    let records = |topic: &str, partition_index, offset| DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic.into(),
            partitions: vec![DeleteRecordsPartition { partition_index, offset }],
        }],
        timeout_ms: 10_000,
    };
    catalogue.ask("valid", |_| records(READ, 0, 0));
    catalogue.ask("above the end", |_| records(READ, 0, 99));
    catalogue.ask("negative offset", |_| records(READ, 0, -7));
    catalogue.ask("unknown topic", |_| records(NO_TOPIC, 0, 0));
    catalogue.ask("unknown partition", |_| records(READ, 9, 0));
    catalogue.ask("no topics", |_| DeleteRecordsRequest::default());
}

fn create_partitions(catalogue: &mut Catalogue<'_>) {
    let grow = |name: &str, count, assignments: Option<&[i32]>| CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: name.into(),
            count,
            assignments: assignments
                .map(|brokers| vec![CreatePartitionsAssignment { broker_ids: brokers.to_vec() }]),
        }],
        timeout_ms: 10_000,
        validate_only: true,
    };
    let node = catalogue.world.node_id();
    catalogue.ask("valid", |_| grow(MANY, 5, None));
    catalogue.ask("as many as there are", |_| grow(MANY, 3, None));
    catalogue.ask("fewer", |_| grow(MANY, 1, None));
    catalogue.ask("negative", |_| grow(MANY, -1, None));
    catalogue.ask("unknown topic", |_| grow(NO_TOPIC, 5, None));
    catalogue.ask("assignment", |_| grow(MANY, 4, Some(&[node])));
    catalogue.ask("assignment for too few", |_| grow(MANY, 5, Some(&[node])));
    catalogue.ask("assignment to an unknown broker", |_| grow(MANY, 4, Some(&[88])));
    catalogue.ask("topic twice", |_| {
        let mut request = grow(MANY, 5, None);
        request.topics.extend(grow(MANY, 6, None).topics);
        request
    });
}

fn describe_configs(catalogue: &mut Catalogue<'_>) {
    let of = |resource_type, name: &str, keys: Option<&[&str]>| DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type,
            resource_name: name.into(),
            configuration_keys: keys.map(|keys| keys.iter().map(|key| (*key).into()).collect()),
        }],
        ..DescribeConfigsRequest::default()
    };
    const SOME: Option<&[&str]> = Some(&["retention.ms", "max.message.bytes", "cleanup.policy"]);
    catalogue.ask("valid", |_| of(TOPIC, "probe-small", SOME));
    catalogue.ask_in(1..=1, "all of a topic", |_| of(TOPIC, READ, None));
    catalogue.ask_in(4..=4, "all of a topic", |_| of(TOPIC, READ, None));
    catalogue.ask("synonyms", |_| DescribeConfigsRequest {
        include_synonyms: true,
        ..of(TOPIC, "probe-small", SOME)
    });
    catalogue.ask_in(3..=4, "documentation", |_| DescribeConfigsRequest {
        include_documentation: true,
        ..of(TOPIC, READ, Some(&["retention.ms"]))
    });
    catalogue.ask("unknown keys", |_| of(TOPIC, READ, Some(&["no.such.config"])));
    catalogue.ask_in(4..=4, "no keys", |_| of(TOPIC, READ, Some(&[])));
    catalogue.ask("unknown topic", |_| of(TOPIC, NO_TOPIC, SOME));
    catalogue.ask("invalid topic", |_| of(TOPIC, "no/slash", SOME));
    catalogue.ask("empty topic", |_| of(TOPIC, "", SOME));
    let node = catalogue.world.node_id().to_string();
    catalogue.ask("broker", |_| of(BROKER, &node, Some(&["num.io.threads", "log.retention.ms", "node.id"])));
    catalogue.ask("all brokers", |_| of(BROKER, "", Some(&["log.retention.ms"])));
    catalogue.ask("unknown broker", |_| of(BROKER, "88", SOME));
    catalogue.ask("broker that is no number", |_| of(BROKER, "one", SOME));
    catalogue.ask("unknown type", |_| of(0, "x", None));
    catalogue.ask("type out of range", |_| of(99, "x", None));
    catalogue.ask("no resources", |_| DescribeConfigsRequest::default());
}

fn alter_configs(catalogue: &mut Catalogue<'_>) {
    let set = |resource_type, resource: &str, configs: &[(&str, Option<&str>)]| AlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type,
            resource_name: resource.into(),
            configs: configs
                .iter()
                .map(|(name, value)| AlterableConfig { name: (*name).into(), value: value.map(Into::into) })
                .collect(),
        }],
        validate_only: true,
    };
    let good = ("retention.ms", Some("5000"));
    catalogue.ask("valid", |_| set(TOPIC, READ, &[good]));
    catalogue.ask("unknown config", |_| set(TOPIC, READ, &[("no.such.config", Some("1"))]));
    catalogue.ask("bad value", |_| set(TOPIC, READ, &[("retention.ms", Some("soon"))]));
    catalogue.ask("null value", |_| set(TOPIC, READ, &[("retention.ms", None)]));
    catalogue.ask("config twice", |_| set(TOPIC, READ, &[good, good]));
    catalogue.ask("unknown topic", |_| set(TOPIC, NO_TOPIC, &[good]));
    catalogue.ask("unknown type", |_| set(0, "x", &[good]));
    catalogue.ask("type out of range", |_| set(99, "x", &[good]));
    catalogue.ask("unknown broker", |_| set(BROKER, "88", &[("log.retention.ms", Some("5000"))]));
    // Kafka answers nothing, not even to what comes after.
    catalogue.ask_in(2..=2, "resource twice", |_| {
        let mut request = set(TOPIC, READ, &[good]);
        request.resources.extend(set(TOPIC, READ, &[good]).resources);
        request
    });
    catalogue.ask("no resources", |_| AlterConfigsRequest { validate_only: true, ..Default::default() });
}

fn incremental_alter_configs(catalogue: &mut Catalogue<'_>) {
    let change = |resource_type, resource: &str, configs: &[(&str, i8, Option<&str>)]| {
        incremental::IncrementalAlterConfigsRequest {
            resources: vec![incremental::AlterConfigsResource {
                resource_type,
                resource_name: resource.into(),
                configs: configs
                    .iter()
                    .map(|(name, operation, value)| incremental::AlterableConfig {
                        name: (*name).into(),
                        config_operation: *operation,
                        value: value.map(Into::into),
                    })
                    .collect(),
            }],
            validate_only: true,
        }
    };
    const SET: i8 = 0;
    const DELETE: i8 = 1;
    const APPEND: i8 = 2;
    const SUBTRACT: i8 = 3;
    catalogue.ask("valid", |_| change(TOPIC, READ, &[("retention.ms", SET, Some("5000"))]));
    for (what, name, operation, value) in [
        ("delete", "retention.ms", DELETE, None),
        ("append", "cleanup.policy", APPEND, Some("compact")),
        ("subtract", "cleanup.policy", SUBTRACT, Some("delete")),
        ("append to what is no list", "retention.ms", APPEND, Some("5")),
        ("unknown operation", "retention.ms", 9, Some("5")),
        ("unknown config", "no.such.config", SET, Some("1")),
        ("deleting an unknown config", "no.such.config", DELETE, None),
        ("bad value", "retention.ms", SET, Some("soon")),
        ("null value", "retention.ms", SET, None),
        ("bad word in a list", "cleanup.policy", SET, Some("delete,burn")),
    ] {
        catalogue.ask(what, |_| change(TOPIC, READ, &[(name, operation, value)]));
    }
    let good = ("retention.ms", SET, Some("5000"));
    catalogue.ask("config twice", |_| change(TOPIC, READ, &[good, good]));
    catalogue.ask("unknown topic", |_| change(TOPIC, NO_TOPIC, &[good]));
    catalogue.ask("unknown type", |_| change(0, "x", &[good]));
    catalogue.ask("unknown broker", |_| change(BROKER, "88", &[("log.retention.ms", SET, Some("5000"))]));
    let node = catalogue.world.node_id().to_string();
    catalogue.ask("broker", |_| change(BROKER, &node, &[("log.retention.ms", SET, Some("5000"))]));
    catalogue.ask("read-only config of a broker", |_| change(BROKER, &node, &[("node.id", SET, Some("5"))]));
}

fn reassignments(catalogue: &mut Catalogue<'_>) {
    let move_to =
        |name: &str, partition_index, replicas: Option<&[i32]>| AlterPartitionReassignmentsRequest {
            timeout_ms: 10_000,
            topics: vec![ReassignableTopic {
                name: name.into(),
                partitions: vec![ReassignablePartition {
                    partition_index,
                    replicas: replicas.map(<[i32]>::to_vec),
                }],
            }],
            ..AlterPartitionReassignmentsRequest::default()
        };
    let node = catalogue.world.node_id();
    catalogue.ask("valid", |_| move_to(READ, 0, Some(&[node])));
    catalogue.ask("cancel nothing", |_| move_to(READ, 0, None));
    catalogue.ask("unknown topic", |_| move_to(NO_TOPIC, 0, Some(&[node])));
    catalogue.ask("unknown partition", |_| move_to(READ, 9, Some(&[node])));
    catalogue.ask("unknown broker", |_| move_to(READ, 0, Some(&[88])));
    catalogue.ask("broker twice", |_| move_to(READ, 0, Some(&[node, node])));
    catalogue.ask("nobody", |_| move_to(READ, 0, Some(&[])));
    catalogue.ask("no topics", |_| AlterPartitionReassignmentsRequest::default());
    let list = |topics: Option<&[&str]>| ListPartitionReassignmentsRequest {
        timeout_ms: 10_000,
        topics: topics.map(|topics| {
            let topic = |name: &&str| ListPartitionReassignmentsTopics {
                name: (*name).into(),
                partition_indexes: vec![0],
            };
            topics.iter().map(topic).collect()
        }),
    };
    catalogue.ask("valid", |_| list(Some(&[READ])));
    catalogue.ask("all", |_| list(None));
    catalogue.ask("unknown topic", |_| list(Some(&[NO_TOPIC])));
    let elect = |election_type, topic: &str, partition| ElectLeadersRequest {
        election_type,
        topic_partitions: Some(vec![TopicPartitions { topic: topic.into(), partitions: vec![partition] }]),
        timeout_ms: 10_000,
    };
    catalogue.ask("valid", |_| elect(0, READ, 0));
    catalogue.ask_in(1..=2, "unclean", |_| elect(1, READ, 0));
    catalogue.ask_in(1..=2, "unknown type", |_| elect(9, READ, 0));
    catalogue.ask("unknown topic", |_| elect(0, NO_TOPIC, 0));
    catalogue.ask("unknown partition", |_| elect(0, READ, 9));
    catalogue.ask("no topics", |_| ElectLeadersRequest {
        topic_partitions: Some(Vec::new()),
        ..ElectLeadersRequest::default()
    });
}

fn cluster(catalogue: &mut Catalogue<'_>) {
    catalogue.ask("valid", |_| DescribeClusterRequest::default());
    catalogue.ask("authorized operations", |_| DescribeClusterRequest {
        include_cluster_authorized_operations: true,
        ..DescribeClusterRequest::default()
    });
    catalogue.ask_in(1..=2, "unknown kind of endpoints", |_| DescribeClusterRequest {
        endpoint_type: 9,
        ..DescribeClusterRequest::default()
    });
    catalogue.ask_in(2..=2, "with fenced brokers", |_| DescribeClusterRequest {
        include_fenced_brokers: true,
        ..DescribeClusterRequest::default()
    });
    let pages = |names: &[&str], limit, cursor: Option<(&str, i32)>| DescribeTopicPartitionsRequest {
        topics: names.iter().map(|name| TopicRequest { name: (*name).into() }).collect(),
        response_partition_limit: limit,
        cursor: cursor.map(|(topic, partition_index)| Cursor { topic_name: topic.into(), partition_index }),
    };
    catalogue.ask("valid", |_| pages(&[READ, MANY], 100, None));
    catalogue.ask("page of two", |_| pages(&[MANY, READ], 2, None));
    catalogue.ask("next page", |_| pages(&[MANY, READ], 2, Some((MANY, 2))));
    catalogue.ask("limit of 0", |_| pages(&[MANY], 0, None));
    catalogue.ask("negative cursor", |_| pages(&[MANY], 2, Some((MANY, -2))));
    catalogue.ask("cursor behind all", |_| pages(&[MANY], 2, Some(("zzz", 0))));
    catalogue.ask("unknown topic", |_| pages(&[NO_TOPIC], 2, None));
    catalogue.ask("invalid topic", |_| pages(&["no/slash"], 2, None));
}

fn log_dirs(catalogue: &mut Catalogue<'_>) {
    let dirs = |topics: Option<&[(&str, i32)]>| DescribeLogDirsRequest {
        topics: topics.map(|topics| {
            let topic = |(topic, partition): &(&str, i32)| DescribableLogDirTopic {
                topic: (*topic).into(),
                partitions: vec![*partition],
            };
            topics.iter().map(topic).collect()
        }),
    };
    catalogue.ask("valid", |_| dirs(Some(&[(READ, 0)])));
    catalogue.ask("unknown topic", |_| dirs(Some(&[(NO_TOPIC, 0)])));
    catalogue.ask("no topics", |_| dirs(Some(&[])));
    let into = |path: &str, topics: &[(&str, &[i32])]| AlterReplicaLogDir {
        path: path.into(),
        topics: topics
            .iter()
            .map(|(name, partitions)| AlterReplicaLogDirTopic {
                name: (*name).into(),
                partitions: partitions.to_vec(),
            })
            .collect(),
    };
    // What is spoiled must have the same length everywhere: a directory that neither has.
    const NO_DIR: &str = "/probe-nowhere";
    let here = catalogue.world.log_dir();
    let alter = |dirs| AlterReplicaLogDirsRequest { dirs };
    catalogue.ask("valid", |_| alter(vec![into(NO_DIR, &[(READ, &[0])])]));
    catalogue.ask("where it is", |_| alter(vec![into(here, &[(READ, &[0])])]));
    catalogue.ask("path that is not absolute", |_| alter(vec![into("probe-nowhere", &[(READ, &[0])])]));
    catalogue.ask("empty path", |_| alter(vec![into("", &[(READ, &[0])])]));
    catalogue.ask("unknown topic", |_| alter(vec![into(here, &[(NO_TOPIC, &[0])])]));
    catalogue.ask("unknown topic and directory", |_| alter(vec![into(NO_DIR, &[(NO_TOPIC, &[0])])]));
    catalogue.ask("unknown partition", |_| alter(vec![into(here, &[(READ, &[9])])]));
    catalogue.ask("negative partition", |_| alter(vec![into(here, &[(READ, &[-1])])]));
    catalogue.ask("partition twice", |_| alter(vec![into(here, &[(READ, &[0, 0])])]));
    catalogue.ask("into two directories", |_| {
        alter(vec![into(NO_DIR, &[(READ, &[0])]), into(here, &[(READ, &[0])])])
    });
    catalogue.ask("no partitions", |_| alter(vec![into(here, &[(READ, &[])])]));
    catalogue.ask("no topics", |_| alter(vec![into(here, &[])]));
    catalogue.ask("no directories", |_| alter(Vec::new()));
}

fn quorum(catalogue: &mut Catalogue<'_>) {
    let describe = |topic: &str, partition_index| DescribeQuorumRequest {
        topics: vec![TopicToDescribe {
            topic_name: topic.into(),
            partitions: vec![PartitionToDescribe { partition_index }],
        }],
    };
    catalogue.ask("valid", |_| describe("__cluster_metadata", 0));
    catalogue.ask("another topic", |_| describe(READ, 0));
    catalogue.ask("another partition", |_| describe("__cluster_metadata", 1));
    catalogue.ask("no topics", |_| DescribeQuorumRequest::default());
    catalogue.ask("valid", |_| UnregisterBrokerRequest { broker_id: 88 });
    catalogue.ask("negative id", |_| UnregisterBrokerRequest { broker_id: -4 });
    catalogue.ask("valid", |_| ListConfigResourcesRequest::default());
    for (what, kind) in [("topics", TOPIC), ("brokers", BROKER), ("groups", 32), ("unknown type", 99)] {
        catalogue.ask_in(1..=1, what, |_| ListConfigResourcesRequest { resource_types: vec![kind] });
    }
    let elsewhere = || Some("elsewhere".into());
    catalogue.ask("valid", |_| AddRaftVoterRequest {
        cluster_id: elsewhere(),
        timeout_ms: 1000,
        voter_id: 77,
        voter_directory_id: NO_TOPIC_ID,
        listeners: vec![Listener { name: "CONTROLLER".into(), host: "localhost".into(), port: 1 }],
        ..AddRaftVoterRequest::default()
    });
    catalogue.ask("valid", |_| RemoveRaftVoterRequest {
        cluster_id: elsewhere(),
        voter_id: 77,
        voter_directory_id: NO_TOPIC_ID,
    });
}

/// Of a feature that neither has: what Kafka has, Weir has not.
fn features(catalogue: &mut Catalogue<'_>) {
    let update = |max_version_level, upgrade_type| FeatureUpdateKey {
        feature: "probe.version".into(),
        max_version_level,
        upgrade_type,
        ..FeatureUpdateKey::default()
    };
    let request = |feature_updates| UpdateFeaturesRequest {
        timeout_ms: 1000,
        feature_updates,
        ..UpdateFeaturesRequest::default()
    };
    catalogue.ask("valid", |_| request(vec![update(1, 1)]));
    catalogue.ask("no features", |_| request(vec![]));
    catalogue.ask("level 0", |_| request(vec![update(0, 1)]));
    catalogue.ask("negative level", |_| request(vec![update(-1, 1)]));
    catalogue.ask("feature twice", |_| request(vec![update(1, 1), update(2, 1)]));
    catalogue.ask_in(1..=2, "downgrade", |_| request(vec![update(1, 2)]));
    catalogue.ask_in(1..=2, "unknown type of an upgrade", |_| request(vec![update(1, 9)]));
    catalogue.ask_in(1..=2, "validation only", |_| UpdateFeaturesRequest {
        validate_only: true,
        ..request(vec![update(1, 1)])
    });
    let lowered = FeatureUpdateKey { allow_downgrade: true, ..update(1, 1) };
    catalogue.ask_in(0..=0, "downgrade allowed", |_| request(vec![lowered.clone()]));
}
