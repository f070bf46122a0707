//! Valid requests for every API and version: the first of each API, called `valid`, is what [`super::mutations`] spoils; the
//! others ask for what does not exist or may not be.
//!
//! All can be repeated without another answer, so that one that is taken for good by one server and not by another changes
//! nothing for those behind it: appends come from a producer that repeats itself, changes of the cluster are only validated.
//! Here are the APIs of data; groups and administration have files of their own.

use std::ops::RangeInclusive;

use bytes::Bytes;
use kafka_wire_core::messages::api_versions::ApiVersionsRequest;
use kafka_wire_core::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, ReplicaState};
use kafka_wire_core::messages::find_coordinator::FindCoordinatorRequest;
use kafka_wire_core::messages::init_producer_id::InitProducerIdRequest;
use kafka_wire_core::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use kafka_wire_core::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use kafka_wire_core::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_wire_core::messages::produce::ProduceRequest;
use kafka_wire_core::messages::sasl_authenticate::SaslAuthenticateRequest;
use kafka_wire_core::messages::sasl_handshake::SaslHandshakeRequest;
use kafka_wire_core::{Records, Request};
use records::{BatchBuilder, Compression};
use uuid::Uuid;

use super::Lines;
use super::answer;
use super::wire::framed;
use super::world::{
    self, APPEND_TIME, COMPACT, EMPTY, MANY, READ, RECORD_TIME, REFUSED, SMALL, WRITE, WRITER, World, batch,
};
use super::{requests_of_admin, requests_of_groups};

/// An id that no topic has.
pub(super) const NO_TOPIC_ID: Uuid = Uuid::from_u128(0xdead_beef);
/// A topic that does not exist and must not be created.
pub(super) const NO_TOPIC: &str = "probe-nowhere";

/// A request as bytes, and how to read its answer.
pub struct Question {
    /// `Api/what is asked`.
    pub label: String,
    /// Version of the request.
    pub version: i16,
    /// The request with its length.
    pub frame: Vec<u8>,
    /// Whether its version has tagged fields.
    pub flexible: bool,
    read: fn(&World, &Bytes, i16) -> Lines,
    read_version: i16,
}

impl Question {
    /// Asks on a connection of its own. The configs of a new topic are told once.
    pub fn ask(&self, world: &World) -> Lines {
        let mut lines = self.ask_instead(world, &self.frame);
        if self.api() == "CreateTopics" && !self.is_valid() {
            lines.retain(|path, _| !path.contains(".configs["));
        }
        lines
    }

    /// Sends other bytes and reads the answer as if they were the request.
    pub(super) fn ask_instead(&self, world: &World, frame: &[u8]) -> Lines {
        let outcome = world.open().exchange(frame);
        answer::lines(world, &outcome, |world, answer| (self.read)(world, answer, self.read_version))
    }

    /// The API's name.
    pub(super) fn api(&self) -> &str {
        self.label.split('/').next().unwrap_or_default()
    }

    /// Whether it is what mutations begin with.
    pub(super) fn is_valid(&self) -> bool {
        self.label.ends_with("/valid")
    }
}

/// Collects questions.
pub(super) struct Catalogue<'a> {
    pub(super) world: &'a World,
    questions: Vec<Question>,
}

impl Catalogue<'_> {
    /// Adds a request in all versions.
    pub(super) fn ask<R: Request>(&mut self, what: &str, make: impl Fn(i16) -> R) {
        self.ask_in(R::VERSIONS, what, make);
    }

    /// Adds a request in some versions.
    pub(super) fn ask_in<R: Request>(
        &mut self,
        versions: RangeInclusive<i16>,
        what: &str,
        make: impl Fn(i16) -> R,
    ) {
        for version in versions.filter(|version| R::VERSIONS.contains(version)) {
            let frame = world::frame(&make(version), version, Some("probe"));
            self.add::<R>(what, version, version, frame);
        }
    }

    /// Adds bytes that are answered like `R` in `read_version`.
    fn add<R: Request>(&mut self, what: &str, version: i16, read_version: i16, frame: Vec<u8>) {
        self.questions.push(Question {
            label: format!("{}/{what}", R::KEY.name()),
            version,
            frame,
            flexible: R::is_flexible(version),
            read: answer::read::<R>,
            read_version,
        });
    }
}

/// Every question, in the order of asking.
pub(super) fn all(world: &World) -> Vec<Question> {
    let mut catalogue = Catalogue { world, questions: Vec::new() };
    api_versions(&mut catalogue);
    metadata(&mut catalogue);
    produce(&mut catalogue);
    refused_batches(&mut catalogue);
    fetch(&mut catalogue);
    refused_fetches(&mut catalogue);
    list_offsets(&mut catalogue);
    offset_for_leader_epoch(&mut catalogue);
    init_producer_id(&mut catalogue);
    sasl(&mut catalogue);
    find_coordinator(&mut catalogue);
    requests_of_groups::add(&mut catalogue);
    requests_of_admin::add(&mut catalogue);
    catalogue.questions
}

/// CRC-32C of all requests with the ids of topics and of the cluster, and the path of the data directory, left out.
pub(super) fn crc(world: &World, questions: &[Question]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for question in questions {
        let mut frame = question.frame.clone();
        // Its length differs, and with it that of the request.
        if let Some(at) = position(&frame, world.log_dir().as_bytes()) {
            frame = [question.label.as_bytes(), &frame[at + world.log_dir().len()..]].concat();
        }
        for (_, id) in world.topic_ids() {
            blank(&mut frame, id.as_bytes());
        }
        blank(&mut frame, world.cluster_id().as_bytes());
        digest.update(&frame);
    }
    u32::try_from(digest.finalize()).expect("the checksum has 32 bits")
}

fn blank(bytes: &mut [u8], needle: &[u8]) {
    while let Some(at) = position(bytes, needle) {
        bytes[at..at + needle.len()].fill(0);
    }
}

fn position(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

fn api_versions(catalogue: &mut Catalogue<'_>) {
    let named = |name: &str, version: &str| ApiVersionsRequest {
        client_software_name: name.into(),
        client_software_version: version.into(),
        ..ApiVersionsRequest::default()
    };
    catalogue.ask("valid", |_| named("probe", "1.0"));
    for (what, name, version) in [
        ("software name empty", "", "1"),
        ("software version empty", "probe", ""),
        ("software name with a space", "a b", "1"),
        ("software name that ends with a dash", "a-", "1"),
        ("software name with a line break", "a\nb", "1"),
    ] {
        catalogue.ask_in(3..=5, what, |_| named(name, version));
    }
    let world = catalogue.world;
    let addressed = |cluster: Option<&str>, node_id| ApiVersionsRequest {
        cluster_id: cluster.map(Into::into),
        node_id,
        ..named("probe", "1")
    };
    catalogue
        .ask_in(5..=5, "right cluster and node", |_| addressed(Some(world.cluster_id()), world.node_id()));
    catalogue.ask_in(5..=5, "wrong cluster", |_| addressed(Some("elsewhere"), world.node_id()));
    catalogue.ask_in(5..=5, "wrong node", |_| addressed(Some(world.cluster_id()), 77));
    catalogue.ask_in(5..=5, "node without cluster", |_| addressed(None, world.node_id()));
    // Nobody can know the body of a version from the future: it is not looked at.
    for version in [-1, 6, 99, i16::MAX] {
        for (what, body) in [("unknown version", &[0_u8, 1, 0][..]), ("unknown version without a body", &[])]
        {
            let header = [&[0, 18][..], &version.to_be_bytes(), &[0, 0, 0, 41, 0, 1, b'p']].concat();
            let frame = framed(&[&header, body].concat());
            catalogue.add::<ApiVersionsRequest>(what, version, 0, frame);
        }
    }
}

fn metadata(catalogue: &mut Catalogue<'_>) {
    let by = |name: Option<&str>, id: Uuid| MetadataRequestTopic { name: name.map(Into::into), topic_id: id };
    let ask = |topics: Option<Vec<MetadataRequestTopic>>| MetadataRequest {
        topics,
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let by_name = |names: &[&str]| ask(Some(names.iter().map(|name| by(Some(name), Uuid::nil())).collect()));
    let id = catalogue.world.topic_id(READ);
    catalogue.ask_in(4..=13, "valid", |_| by_name(&[READ, MANY]));
    // Before version 4 a request cannot forbid creation.
    let creating = |names: &[&str]| MetadataRequest { allow_auto_topic_creation: true, ..by_name(names) };
    catalogue.ask_in(0..=3, "valid", |_| creating(&[READ, MANY]));
    catalogue.ask_in(0..=3, "invalid name", |_| creating(&["no/slash"]));
    catalogue.ask_in(4..=13, "invalid name", |_| by_name(&["no/slash"]));
    catalogue.ask_in(4..=13, "empty name", |_| by_name(&[""]));
    catalogue.ask_in(4..=13, "unknown topic", |_| by_name(&[NO_TOPIC, READ]));
    catalogue.ask_in(4..=13, "topic twice", |_| by_name(&[READ, READ]));
    // Everything: no list, and in version 0, which cannot say that, an empty one.
    let everything = |topics| MetadataRequest { topics, ..MetadataRequest::default() };
    catalogue.ask_in(0..=0, "all", |_| everything(Some(Vec::new())));
    catalogue.ask_in(1..=3, "all", |_| everything(None));
    catalogue.ask_in(4..=13, "all", |_| ask(None));
    catalogue.ask_in(4..=13, "no topics", |_| by_name(&[]));
    catalogue
        .ask_in(1..=3, "no topics", |_| MetadataRequest { allow_auto_topic_creation: true, ..by_name(&[]) });
    catalogue.ask_in(8..=13, "authorized operations", |version| MetadataRequest {
        include_cluster_authorized_operations: version <= 10,
        include_topic_authorized_operations: true,
        ..by_name(&[READ])
    });
    catalogue.ask_in(10..=13, "by id", |_| ask(Some(vec![by(None, id)])));
    catalogue.ask_in(10..=13, "unknown id", |_| ask(Some(vec![by(None, NO_TOPIC_ID)])));
    catalogue.ask_in(10..=13, "neither name nor id", |_| ask(Some(vec![by(None, Uuid::nil())])));
    catalogue.ask_in(10..=13, "name and id", |_| ask(Some(vec![by(Some(READ), id)])));
    catalogue.ask_in(10..=13, "some by name, some by id", |_| {
        ask(Some(vec![by(None, id), by(Some(MANY), Uuid::nil())]))
    });
}

/// The first batch of a producer; sent again it gets the same answer.
fn repeated(producer: i64) -> BatchBuilder {
    batch(1).producer(producer, 0, 0)
}

fn append(world: &World, topic: &str, partition: i32, acks: i16, batch: Vec<u8>) -> ProduceRequest {
    world::produce_request(topic, world.topic_id(topic), partition, acks, batch)
}

fn produce(catalogue: &mut Catalogue<'_>) {
    let world = catalogue.world;
    let good = || repeated(WRITER).build();
    catalogue.ask("valid", |_| append(world, WRITE, 0, -1, good()));
    catalogue.ask("acks=1", |_| append(world, WRITE, 0, 1, good()));
    catalogue.ask("acks=0", |_| append(world, WRITE, 0, 0, good()));
    catalogue.ask("acks=0 for an unknown partition", |_| append(world, WRITE, 9, 0, good()));
    catalogue.ask("acks=5", |_| append(world, WRITE, 0, 5, good()));
    catalogue.ask("acks=-2", |_| append(world, WRITE, 0, -2, good()));
    catalogue.ask("unknown topic", |_| world::produce_request(NO_TOPIC, NO_TOPIC_ID, 0, -1, good()));
    catalogue.ask("neither name nor id", |_| world::produce_request("", Uuid::nil(), 0, -1, good()));
    catalogue.ask("unknown partition", |_| append(world, WRITE, 9, -1, good()));
    catalogue.ask("negative partition", |_| append(world, WRITE, -1, -1, good()));
    catalogue.ask("no topics", |_| ProduceRequest {
        acks: -1,
        timeout_ms: 1000,
        ..ProduceRequest::default()
    });
    let with_records = |records: Option<Records>| {
        let mut request = append(world, WRITE, 0, -1, Vec::new());
        request.topic_data[0].partition_data[0].records = records;
        request
    };
    // Kafka answers nothing, not even to what comes after: each costs the whole limit.
    for version in [3, 13] {
        catalogue.ask_in(version..=version, "null records", |_| with_records(None));
    }
    catalogue.ask("empty records", |_| with_records(Some(Records::default())));
    catalogue.ask("log append time", |_| append(world, APPEND_TIME, 0, -1, repeated(4712).build()));
    catalogue.ask("partition twice", |_| {
        let mut request = append(world, WRITE, 0, -1, good());
        let again = request.topic_data[0].partition_data[0].clone();
        request.topic_data[0].partition_data.push(again);
        request
    });
    catalogue.ask("good and bad partitions", |_| {
        let mut request = append(world, WRITE, 9, -1, good());
        request.topic_data.push(append(world, REFUSED, 29, -1, repeated(4713).build()).topic_data.remove(0));
        request
    });
    catalogue.ask("transactional id without a transaction", |_| ProduceRequest {
        transactional_id: Some("probe-none".into()),
        ..append(world, WRITE, 0, -1, good())
    });
}

fn refused_batches(catalogue: &mut Catalogue<'_>) {
    let world = catalogue.world;
    let good = repeated(4713).build();
    let changed = |at: usize, bits: u8, reseal: bool| {
        let mut bytes = good.clone();
        bytes[at] ^= bits;
        if reseal {
            let crc = records::compute_crc(&bytes);
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        bytes
    };
    let mut keyless = BatchBuilder::new();
    keyless.push(RECORD_TIME, None, Some(b"value"), &[]).expect("small");
    // Positions in a batch: length 8, magic 16, checksum 17, attributes 21, last offset delta 23, record count 57.
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("flipped bit", changed(good.len() - 2, 1, false)),
        ("cut batch", good[..good.len() - 3].to_vec()),
        ("two batches", [good.clone(), good.clone()].concat()),
        ("bytes behind the batch", [&good[..], &[0; 7]].concat()),
        ("magic 1", changed(16, 3, false)),
        ("magic 3", changed(16, 1, false)),
        ("length too small", changed(11, 0x70, false)),
        ("record count too large", changed(60, 4, true)),
        ("last offset delta too large", changed(26, 4, true)),
        ("unknown codec", changed(22, 7, true)),
        ("claims append time", changed(22, 8, true)),
        ("with a delete horizon", changed(22, 0x40, true)),
        ("control batch", batch(1).control().build()),
        ("transactional batch", batch(1).producer(4714, 0, 0).transactional().build()),
        ("first sequence above 0", batch(1).producer(4799, 0, 5).build()),
        ("negative epoch", batch(1).producer(4716, -2, 0).build()),
        ("negative sequence", batch(1).producer(4717, 0, -1).build()),
        ("no records", BatchBuilder::new().build()),
        ("zstd", repeated(4715).compression(Compression::Zstd).build()),
    ];
    for (partition, (what, bytes)) in (0..).zip(cases) {
        catalogue.ask(what, |_| append(world, REFUSED, partition, -1, bytes.clone()));
    }
    for (what, topic, bytes) in [
        ("sequence gap", WRITE, batch(1).producer(WRITER, 0, 77).build()),
        ("without key to a compacted topic", COMPACT, keyless.build()),
        ("too large", SMALL, batch(30).build()),
    ] {
        catalogue.ask(what, |_| append(world, topic, 0, -1, bytes.clone()));
    }
}

/// A request for partitions of one topic; `wait_ms` for one byte.
pub(super) fn fetch_request(world: &World, topic: &str, reads: &[(i32, i64)], wait_ms: i32) -> FetchRequest {
    FetchRequest {
        max_wait_ms: wait_ms,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: vec![FetchTopic {
            topic: topic.into(),
            topic_id: world.topic_id(topic),
            partitions: reads
                .iter()
                .map(|(partition, fetch_offset)| FetchPartition {
                    partition: *partition,
                    fetch_offset: *fetch_offset,
                    partition_max_bytes: 1 << 20,
                    ..FetchPartition::default()
                })
                .collect(),
        }],
        ..FetchRequest::default()
    }
}

fn fetch(catalogue: &mut Catalogue<'_>) {
    let world = catalogue.world;
    let read = |reads: &[(i32, i64)]| fetch_request(world, READ, reads, 20);
    let many = |reads: &[(i32, i64)]| fetch_request(world, MANY, reads, 20);
    catalogue.ask("valid", |_| read(&[(0, 0)]));
    catalogue.ask("inside a batch", |_| read(&[(0, 1)]));
    catalogue.ask("second batch", |_| read(&[(0, 3)]));
    catalogue.ask("at the end", |_| read(&[(0, 4)]));
    catalogue.ask("of an empty topic", |_| fetch_request(world, EMPTY, &[(0, 0)], 20));
    catalogue.ask("partitions in odd order", |_| many(&[(2, 0), (0, 0), (1, 0)]));
    catalogue.ask("partition twice", |_| many(&[(2, 0), (2, 0)]));
    catalogue.ask("read committed", |_| FetchRequest { isolation_level: 1, ..read(&[(0, 0)]) });
    catalogue.ask("no topics", |_| FetchRequest { topics: Vec::new(), ..read(&[]) });
    catalogue.ask("limit of one byte for the answer", |_| FetchRequest {
        max_bytes: 1,
        ..many(&[(1, 0), (0, 0), (2, 0)])
    });
    catalogue.ask("limit of one byte for each partition", |_| {
        let mut request = many(&[(1, 0), (0, 0)]);
        request.topics[0].partitions.iter_mut().for_each(|partition| partition.partition_max_bytes = 1);
        request
    });
    catalogue.ask("limit of nothing for the answer", |_| FetchRequest { max_bytes: 0, ..read(&[(0, 0)]) });
    catalogue.ask_in(7..=18, "new session", |_| FetchRequest { session_epoch: 0, ..read(&[(0, 0)]) });
    catalogue.ask_in(11..=18, "with a rack", |_| FetchRequest { rack_id: "r".into(), ..read(&[(0, 0)]) });
}

fn refused_fetches(catalogue: &mut Catalogue<'_>) {
    let world = catalogue.world;
    let read = |reads: &[(i32, i64)]| fetch_request(world, READ, reads, 20);
    let elsewhere = || {
        let mut request = read(&[(0, 0)]);
        request.topics[0].topic = NO_TOPIC.into();
        request.topics[0].topic_id = NO_TOPIC_ID;
        request
    };
    catalogue.ask("above the end", |_| read(&[(0, 5)]));
    catalogue.ask("negative offset", |_| read(&[(0, -3)]));
    catalogue.ask("unknown topic", |_| elsewhere());
    catalogue.ask("unknown partition", |_| read(&[(9, 0)]));
    catalogue.ask("negative partition", |_| read(&[(-1, 0)]));
    catalogue.ask("unknown and good topic", |_| {
        let mut request = elsewhere();
        request.topics.extend(read(&[(0, 0)]).topics);
        request
    });
    catalogue.ask("unknown isolation level", |_| FetchRequest { isolation_level: 7, ..read(&[(0, 0)]) });
    catalogue.ask_in(9..=18, "leader epoch from the future", |_| {
        let mut request = read(&[(0, 0)]);
        request.topics[0].partitions[0].current_leader_epoch = 99;
        request
    });
    catalogue.ask_in(7..=18, "unknown session", |_| FetchRequest {
        session_id: 77_777,
        session_epoch: 5,
        ..read(&[(0, 0)])
    });
    catalogue.ask_in(4..=14, "as a replica", |_| FetchRequest { replica_id: 5, ..read(&[(0, 0)]) });
    catalogue.ask_in(15..=18, "as a replica", |_| FetchRequest {
        replica_state: ReplicaState { replica_id: 5, replica_epoch: 1 },
        ..read(&[(0, 0)])
    });
}

fn list_offsets(catalogue: &mut Catalogue<'_>) {
    let ask = |topic: &str, partition_index, timestamp| ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: topic.into(),
            partitions: vec![ListOffsetsPartition {
                partition_index,
                timestamp,
                ..ListOffsetsPartition::default()
            }],
        }],
        timeout_ms: 1000,
        ..ListOffsetsRequest::default()
    };
    catalogue.ask("valid", |_| ask(READ, 0, -1));
    for (what, timestamp) in [
        ("earliest", -2),
        ("largest timestamp", -3),
        ("earliest local", -4),
        ("latest tiered", -5),
        ("earliest pending upload", -6),
        ("unknown negative timestamp", -77),
        ("time of the second record", RECORD_TIME + 1),
        ("time between", RECORD_TIME - 5),
        ("time after all", RECORD_TIME + 1_000_000),
    ] {
        catalogue.ask(what, |_| ask(READ, 0, timestamp));
    }
    catalogue.ask("largest timestamp of an empty topic", |_| ask(EMPTY, 0, -3));
    catalogue.ask("time in an empty topic", |_| ask(EMPTY, 0, RECORD_TIME));
    catalogue.ask("unknown topic", |_| ask(NO_TOPIC, 0, -1));
    catalogue.ask("unknown partition", |_| ask(READ, 9, -1));
    catalogue.ask("no topics", |_| ListOffsetsRequest { topics: Vec::new(), ..ask(READ, 0, -1) });
    catalogue.ask("as a replica", |_| ListOffsetsRequest { replica_id: 5, ..ask(READ, 0, -1) });
    catalogue.ask("as the debugging replica", |_| ListOffsetsRequest { replica_id: -2, ..ask(READ, 0, -1) });
    catalogue
        .ask_in(2..=11, "read committed", |_| ListOffsetsRequest { isolation_level: 1, ..ask(READ, 0, -1) });
    catalogue.ask_in(2..=11, "unknown isolation level", |_| ListOffsetsRequest {
        isolation_level: 7,
        ..ask(READ, 0, -1)
    });
    catalogue.ask_in(4..=11, "leader epoch from the future", |_| {
        let mut request = ask(READ, 0, -1);
        request.topics[0].partitions[0].current_leader_epoch = 99;
        request
    });
    catalogue.ask("partition twice", |_| {
        let mut request = ask(READ, 0, -1);
        let again = request.topics[0].partitions[0].clone();
        request.topics[0].partitions.push(again);
        request
    });
}

fn offset_for_leader_epoch(catalogue: &mut Catalogue<'_>) {
    let ask = |topic: &str, partition, current, leader_epoch| OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: topic.into(),
            partitions: vec![OffsetForLeaderPartition {
                partition,
                current_leader_epoch: current,
                leader_epoch,
            }],
        }],
    };
    catalogue.ask("valid", |_| ask(READ, 0, -1, 0));
    catalogue.ask("epoch from the future", |_| ask(READ, 0, -1, 99));
    catalogue.ask("leader epoch from the future", |_| ask(READ, 0, 99, 0));
    catalogue.ask("negative epoch", |_| ask(READ, 0, -1, -1));
    catalogue.ask("of an empty topic", |_| ask(EMPTY, 0, -1, 0));
    catalogue.ask("unknown topic", |_| ask(NO_TOPIC, 0, -1, 0));
    catalogue.ask("unknown partition", |_| ask(READ, 9, -1, 0));
}

fn init_producer_id(catalogue: &mut Catalogue<'_>) {
    let ask = |producer_id, producer_epoch| InitProducerIdRequest {
        transaction_timeout_ms: 60_000,
        producer_id,
        producer_epoch,
        ..InitProducerIdRequest::default()
    };
    catalogue.ask("valid", |_| ask(-1, -1));
    let transactional = |id: &str, timeout_ms| InitProducerIdRequest {
        transactional_id: Some(id.into()),
        transaction_timeout_ms: timeout_ms,
        ..ask(-1, -1)
    };
    catalogue.ask("empty transactional id", |_| transactional("", 60_000));
    catalogue.ask("transaction without time", |_| transactional("probe-timeout", 0));
    catalogue.ask("transaction with too much time", |_| transactional("probe-timeout", i32::MAX));
    catalogue.ask_in(3..=6, "producer id without epoch", |_| ask(5, -1));
    catalogue.ask_in(3..=6, "epoch without producer id", |_| ask(-1, 5));
    catalogue.ask_in(3..=6, "producer id and epoch", |_| ask(5, 5));
}

fn sasl(catalogue: &mut Catalogue<'_>) {
    catalogue.ask("valid", |_| SaslHandshakeRequest { mechanism: "PLAIN".into() });
    catalogue.ask("unknown mechanism", |_| SaslHandshakeRequest { mechanism: "NONE".into() });
    catalogue
        .ask("valid", |_| SaslAuthenticateRequest { auth_bytes: Bytes::from_static(b"\0user\0password") });
    catalogue.ask("nothing", |_| SaslAuthenticateRequest { auth_bytes: Bytes::new() });
}

fn find_coordinator(catalogue: &mut Catalogue<'_>) {
    let ask = |key_type, keys: &[&str], version| FindCoordinatorRequest {
        key: if version < 4 { keys.first().copied().unwrap_or_default().into() } else { "".into() },
        key_type,
        coordinator_keys: match version {
            ..4 => Vec::new(),
            _ => keys.iter().map(|key| (*key).into()).collect(),
        },
    };
    catalogue.ask("valid", |version| ask(0, &[world::GROUP], version));
    catalogue.ask("empty key", |version| ask(0, &[""], version));
    catalogue.ask_in(1..=6, "unknown type", |version| ask(7, &["x"], version));
    catalogue.ask_in(1..=6, "negative type", |version| ask(-1, &["x"], version));
    catalogue.ask_in(1..=6, "of a share group, badly named", |version| ask(2, &["x"], version));
    catalogue.ask_in(1..=6, "of a transaction", |version| ask(1, &["probe-transaction"], version));
    catalogue.ask_in(1..=6, "of a transaction, empty key", |version| ask(1, &[""], version));
    catalogue.ask_in(4..=6, "several keys", |version| ask(0, &["a", "b", "a"], version));
    catalogue.ask_in(4..=6, "no keys", |version| ask(0, &[], version));
}
