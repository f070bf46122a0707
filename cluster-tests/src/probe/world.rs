//! What a server must hold before it is asked: topics with known records, a group with a commit; and the names that stand in
//! lines for what differs from cluster to cluster.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kafka_wire_core::messages::api_versions::ApiVersionsRequest;
use kafka_wire_core::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use kafka_wire_core::messages::describe_log_dirs::DescribeLogDirsRequest;
use kafka_wire_core::messages::find_coordinator::FindCoordinatorRequest;
use kafka_wire_core::messages::init_producer_id::InitProducerIdRequest;
use kafka_wire_core::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_wire_core::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kafka_wire_core::{ErrorCode, Records, Request};
use records::BatchBuilder;
use uuid::Uuid;

use super::Announced;
use super::answer;
use super::wire::{CORRELATION_ID, Outcome, Wire};
use crate::clock::wait_until;

/// How long topics and coordinators may take to be there.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// When the first record of the probe was made, in milliseconds.
pub(super) const RECORD_TIME: i64 = 1_700_000_000_000;

/// Holds two batches, of three records and of one.
pub(super) const READ: &str = "probe-read";
/// Written by the idempotent producer [`WRITER`] that repeats itself.
pub(super) const WRITE: &str = "probe-write";
/// The producer whose first batch is in [`WRITE`].
pub(super) const WRITER: i64 = 4711;
/// Three partitions with one record each.
pub(super) const MANY: &str = "probe-many";
/// Compacted.
pub(super) const COMPACT: &str = "probe-compact";
/// The server stamps the records.
pub(super) const APPEND_TIME: &str = "probe-append-time";
/// Takes batches up to 300 bytes.
pub(super) const SMALL: &str = "probe-small";
/// Nothing was ever written to it.
pub(super) const EMPTY: &str = "probe-empty";
/// A group without members that has a commit for [`READ`].
pub(super) const GROUP: &str = "probe-group";

/// One partition for each batch that a server may refuse, so that no offset depends on what was refused before.
pub(super) const REFUSED: &str = "probe-refused";

/// Topic, partitions, one config beside `retention.ms=-1`: the records of the probe are old.
const TOPICS: &[(&str, i32, (&str, &str))] = &[
    (READ, 1, ("cleanup.policy", "delete")),
    (WRITE, 1, ("cleanup.policy", "delete")),
    (MANY, 3, ("cleanup.policy", "delete")),
    (COMPACT, 1, ("cleanup.policy", "compact")),
    (APPEND_TIME, 1, ("message.timestamp.type", "LogAppendTime")),
    (SMALL, 1, ("max.message.bytes", "300")),
    (EMPTY, 1, ("cleanup.policy", "delete")),
    (REFUSED, 30, ("cleanup.policy", "delete")),
];

/// Fields whose value is the server's own affair; what is compared is whether there is one.
const OWN_NUMBERS: &[&str] = &[
    "producer_id",
    "session_id",
    "total_bytes",
    "usable_bytes",
    "cordoned",
    "log_append_time_ms",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "finalized_features_epoch",
    "broker_epoch",
];
const OWN_TEXTS: &[&str] =
    &["error_message", "documentation", "batch_index_error_message", "log_dir", "client_host"];
/// What the metadata quorum counts.
const QUORUM_NUMBERS: &[&str] = &["high_watermark", "log_end_offset", "port"];
/// Epochs count what happened before the probe.
const EPOCHS: &[&str] = &["leader_epoch", "committed_leader_epoch"];
const OWN_IDS: &[&str] = &["member_id", "leader", "replica_directory_id", "topic_id"];

/// A server that is ready to be asked.
pub struct World {
    address: String,
    topic_ids: BTreeMap<String, Uuid>,
    cluster_id: String,
    node_id: i32,
    log_dir: String,
    /// Values that stand for something: as Rust writes them, and their names.
    names: RefCell<BTreeMap<String, String>>,
}

impl World {
    /// Creates the topics, writes the records, commits an offset, and waits until all of it is served.
    pub fn prepare(address: &str) -> World {
        let mut world = World {
            address: address.to_owned(),
            topic_ids: BTreeMap::new(),
            cluster_id: String::new(),
            node_id: 0,
            log_dir: String::new(),
            names: RefCell::default(),
        };
        world.create_topics();
        world.learn_ids();
        world.learn_log_dir();
        for (topic, partition, records) in
            [(READ, 0, 3), (READ, 0, 1), (MANY, 0, 1), (MANY, 1, 1), (MANY, 2, 1)]
        {
            world.produce(topic, partition, &batch(records).build());
        }
        world.produce(WRITE, 0, &batch(1).producer(WRITER, 0, 0).build());
        world.wait_for_coordinator();
        world.wait_for_transactions();
        world.wait_for_producer_ids();
        world.commit();
        world
    }

    pub(super) fn open(&self) -> Wire {
        Wire::open(&self.address)
    }

    /// The id of a topic of the probe.
    pub(super) fn topic_id(&self, topic: &str) -> Uuid {
        self.topic_ids.get(topic).copied().unwrap_or_default()
    }

    /// The cluster's id.
    pub(super) fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The node that is asked.
    pub(super) fn node_id(&self) -> i32 {
        self.node_id
    }

    /// Path of the node's only data directory.
    pub(super) fn log_dir(&self) -> &str {
        &self.log_dir
    }

    /// All ids of topics, with their names.
    pub(super) fn topic_ids(&self) -> impl Iterator<Item = (&str, Uuid)> {
        self.topic_ids.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Lets `name` stand for a value in all lines from here on.
    pub(super) fn learn(&self, value: String, name: &str) {
        self.names.borrow_mut().insert(value, format!("<{name}>"));
    }

    /// A value as it stands in lines.
    pub(super) fn name(&self, api: &str, field: &str, value: String) -> String {
        if let Some(name) = self.names.borrow().get(&value) {
            return name.clone();
        }
        let is = |fields: &[&str]| fields.contains(&field);
        match value.as_str() {
            "None" | "-1" | "0" | "\"\"" | "00000000-0000-0000-0000-000000000000" => value,
            _ if api == "DescribeQuorum" && is(QUORUM_NUMBERS) => "<number>".to_owned(),
            _ if is(OWN_NUMBERS) || (is(EPOCHS) && value != "99") => "<number>".to_owned(),
            _ if is(OWN_TEXTS) => "<text>".to_owned(),
            _ if is(OWN_IDS) && value.len() > 12 => "<id>".to_owned(),
            _ => value,
        }
    }

    /// What the server announces.
    pub fn announced(&self) -> Vec<Announced> {
        let response = self.call(&ApiVersionsRequest::default(), 0);
        response.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version)).collect()
    }

    /// Asks on a connection of its own and takes the answer for granted.
    pub(super) fn call<R: Request>(&self, request: &R, version: i16) -> R::Response {
        let outcome = self.open().exchange(&frame(request, version, Some("probe")));
        match outcome {
            Outcome::Answered(answer, _) => {
                let (response, _) = answer::decode::<R>(&answer, version)
                    .unwrap_or_else(|error| panic!("answer to {}: {error}", R::NAME));
                response
            }
            Outcome::Closed | Outcome::Silence | Outcome::Nothing => panic!("{} got {outcome:?}", R::NAME),
        }
    }

    fn create_topics(&self) {
        let config = |(name, value): (&str, &str)| CreatableTopicConfig {
            name: name.into(),
            value: Some(value.into()),
        };
        let topics = TOPICS.iter().map(|(name, partitions, other)| CreatableTopic {
            name: (*name).into(),
            num_partitions: *partitions,
            replication_factor: 1,
            configs: vec![config(("retention.ms", "-1")), config(*other)],
            ..CreatableTopic::default()
        });
        let request =
            CreateTopicsRequest { topics: topics.collect(), timeout_ms: 30_000, ..Default::default() };
        for topic in self.call(&request, 7).topics {
            assert_eq!(topic.error_code, ErrorCode::None, "{topic:?}");
        }
    }

    /// Waits until every partition has a leader, and takes ids, cluster and node from the same answer.
    fn learn_ids(&mut self) {
        let topics = TOPICS.iter().map(|(name, ..)| MetadataRequestTopic {
            name: Some((*name).into()),
            ..MetadataRequestTopic::default()
        });
        let request = MetadataRequest { topics: Some(topics.collect()), ..MetadataRequest::default() };
        let led = wait_until(READY_LIMIT, || {
            let response = self.call(&request, 12);
            let ready = response.topics.iter().all(|topic| {
                topic.error_code == ErrorCode::None
                    && topic.partitions.iter().all(|partition| partition.error_code == ErrorCode::None)
            });
            ready.then_some(response)
        });
        let response = led.expect("the topics of the probe get leaders");
        for topic in &response.topics {
            let name = topic.name.as_ref().expect("asked by name").to_string();
            self.learn(format!("{:?}", topic.topic_id), &format!("id of {name}"));
            self.topic_ids.insert(name, topic.topic_id);
        }
        self.cluster_id = response.cluster_id.as_ref().expect("told from version 2 on").to_string();
        self.node_id = response.brokers[0].node_id;
        self.learn(format!("{:?}", self.cluster_id), "cluster id");
        self.learn(response.brokers[0].port.to_string(), "port");
    }

    fn learn_log_dir(&mut self) {
        let none = DescribeLogDirsRequest { topics: Some(Vec::new()) };
        let response = self.call(&none, 4);
        let [dir] = &response.results[..] else { panic!("one data directory, not {:?}", response.results) };
        self.log_dir = dir.log_dir.to_string();
    }

    /// Appends, once the leader that the metadata names knows of it.
    fn produce(&self, topic: &str, partition: i32, batch: &[u8]) {
        let request = produce_request(topic, self.topic_id(topic), partition, -1, batch.to_vec());
        let done = wait_until(READY_LIMIT, || {
            let response = self.call(&request, 9);
            (response.responses[0].partition_responses[0].error_code == ErrorCode::None).then_some(())
        });
        done.expect("the topics of the probe can be written to");
    }

    fn wait_for_coordinator(&self) {
        let request = FindCoordinatorRequest { key: GROUP.into(), ..FindCoordinatorRequest::default() };
        let found =
            wait_until(READY_LIMIT, || (self.call(&request, 1).error_code == ErrorCode::None).then_some(()));
        found.expect("the group gets a coordinator");
    }

    /// Kafka makes the topic of transactions when one is asked about. Who has none says so at once.
    fn wait_for_transactions(&self) {
        let request =
            FindCoordinatorRequest { key: "probe".into(), key_type: 1, ..FindCoordinatorRequest::default() };
        let made = wait_until(READY_LIMIT, || {
            (self.call(&request, 1).error_code != ErrorCode::CoordinatorNotAvailable).then_some(())
        });
        made.expect("transactions get a coordinator, or are refused");
    }

    fn wait_for_producer_ids(&self) {
        let request = InitProducerIdRequest::default();
        let given =
            wait_until(READY_LIMIT, || (self.call(&request, 1).error_code == ErrorCode::None).then_some(()));
        given.expect("producers get ids");
    }

    fn commit(&self) {
        let partition = OffsetCommitRequestPartition {
            partition_index: 0,
            committed_offset: 2,
            committed_metadata: Some("note".into()),
            ..OffsetCommitRequestPartition::default()
        };
        let request = OffsetCommitRequest {
            group_id: GROUP.into(),
            topics: vec![OffsetCommitRequestTopic {
                name: READ.into(),
                partitions: vec![partition],
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        let done = wait_until(READY_LIMIT, || {
            let response = self.call(&request, 8);
            (response.topics[0].partitions[0].error_code == ErrorCode::None).then_some(())
        });
        done.expect("an offset can be committed");
    }
}

/// A whole frame as bytes.
pub(super) fn frame<R: Request>(request: &R, version: i16, client_id: Option<&str>) -> Vec<u8> {
    let frame = request
        .to_frame(version, CORRELATION_ID, client_id.map(Into::into))
        .unwrap_or_else(|error| panic!("{} version {version}: {error}", R::NAME));
    frame.into_bytes().expect("requests hold bytes only").to_vec()
}

/// A batch of `records` records with fixed times.
pub(super) fn batch(records: i64) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    for index in 0..records {
        let value = format!("value {index}");
        builder.push(RECORD_TIME + index, Some(b"key"), Some(value.as_bytes()), &[]).expect("small");
    }
    builder
}

/// A request to append `batch`, by name and by id.
pub(super) fn produce_request(
    topic: &str,
    topic_id: Uuid,
    partition: i32,
    acks: i16,
    batch: Vec<u8>,
) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            topic_id,
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Records::Bytes(Bytes::from(batch))),
            }],
        }],
        ..ProduceRequest::default()
    }
}
