//! The handlers that read and write records, over a real data directory: what clients see of one node.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use kafka_wire::Reply;
use kafka_wire_core::messages::{
    delete_records, describe_log_dirs, fetch, list_offsets, offset_for_leader_epoch, produce,
};
use kafka_wire_core::{ErrorCode, Part, Records, Region};
use log_engine::{Disk, RealDisk, SimDisk};
use prometheus_client::registry::Registry;
use proto_types::ids::{LeaderEpoch, NodeId, PartitionEpoch};
use proto_types::metadata::{ConfigResource, MetadataChange, PartitionState, topic_partition};
use records::{BatchBuilder, Compression};
use uuid::Uuid;

use super::handlers;
use crate::partition::stalling_disk::StallingDisk;
use crate::test_node::{TestNode, live_node, topic, topic_id};

pub(super) const TOPIC: &str = "ad-events";
/// The epoch in which [`topic`] makes its partitions led.
const EPOCH: i32 = 3;
/// Timestamps of ListOffsets that stand for ends of the log.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

pub(super) struct World {
    pub(super) test: TestNode,
    directory: tempfile::TempDir,
}

impl World {
    /// One topic of three partitions, all led here, with these configs.
    pub(super) async fn new(configs: &[(&str, &str)]) -> Self {
        Self::on(Arc::new(RealDisk), configs).await
    }

    async fn on(disk: Arc<dyn Disk>, configs: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut changes = live_node(1);
        changes.extend(topic(1, TOPIC, 3, &[1]));
        changes.extend(configs.iter().map(|(name, value)| config(name, value)));
        let test = TestNode::on(disk, directory.path(), &changes).await;
        Self { test, directory }
    }

    /// Stops the node cleanly and starts it again on the same directory, as a new incarnation with a new epoch.
    pub(super) async fn restart(self, epoch: i32) -> Self {
        let mut changes = live_node(1);
        changes.extend(topic(1, TOPIC, 3, &[1]));
        changes.extend((0..3).map(|index| led_by(1, index, epoch)));
        self.test.node.partitions().close().await;
        drop(self.test);
        let test = TestNode::on_disk(self.directory.path(), &changes).await;
        Self { test, directory: self.directory }
    }

    async fn produce_raw(
        &self,
        version: i16,
        acks: i16,
        partition: i32,
        batch: Vec<u8>,
    ) -> Reply<produce::ProduceResponse> {
        self.queue(version, acks, partition, batch).await.await
    }

    /// Queues a batch; the future of the answer.
    async fn queue(
        &self,
        version: i16,
        acks: i16,
        partition: i32,
        batch: Vec<u8>,
    ) -> impl Future<Output = Reply<produce::ProduceResponse>> {
        let data = produce::PartitionProduceData {
            index: partition,
            records: Some(Records::Bytes(Bytes::from(batch))),
        };
        let topic = produce::TopicProduceData {
            name: TOPIC.into(),
            topic_id: topic_id(1).0,
            partition_data: vec![data],
        };
        let request = produce::ProduceRequest {
            transactional_id: None,
            acks,
            timeout_ms: 10_000,
            topic_data: vec![topic],
        };
        handlers::produce::handle(Arc::clone(&self.test.node), self.test.context(version), request).await
    }

    async fn produce(&self, acks: i16, partition: i32, batch: Vec<u8>) -> produce::PartitionProduceResponse {
        match self.produce_raw(9, acks, partition, batch).await {
            Reply::Response(mut response) | Reply::Observed(mut response, _) => {
                crate::test_node::assert_encodes::<produce::ProduceRequest>(&response, 9);
                response.responses.remove(0).partition_responses.remove(0)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Produces and expects success: the base offset.
    pub(super) async fn append(&self, partition: i32, batch: Vec<u8>) -> i64 {
        let response = self.produce(-1, partition, batch).await;
        assert_eq!(response.error_code, ErrorCode::None, "{response:?}");
        response.base_offset
    }

    pub(super) async fn fetch(&self, version: i16, request: fetch::FetchRequest) -> fetch::FetchResponse {
        let response =
            handlers::fetch::handle(Arc::clone(&self.test.node), self.test.context(version), request).await;
        crate::test_node::assert_encodes::<fetch::FetchRequest>(&response, version);
        response
    }

    /// Reads one partition from an offset without waiting.
    pub(super) async fn read(&self, partition: i32, offset: i64) -> fetch::PartitionData {
        let mut response = self.fetch(12, fetch_request(0, &[(partition, offset)])).await;
        response.responses.remove(0).partitions.remove(0)
    }

    async fn list_offset(&self, partition: i32, timestamp: i64) -> (ErrorCode, i64, i64, i32) {
        let found = self.list_offsets(partition, timestamp, 0).await;
        (found.error_code, found.offset, found.timestamp, found.leader_epoch)
    }

    /// The offset alone, at an isolation level.
    pub(super) async fn list_offset_at(&self, partition: i32, timestamp: i64, isolation_level: i8) -> i64 {
        self.list_offsets(partition, timestamp, isolation_level).await.offset
    }

    async fn list_offsets(
        &self,
        partition: i32,
        timestamp: i64,
        isolation_level: i8,
    ) -> list_offsets::ListOffsetsPartitionResponse {
        let partition = list_offsets::ListOffsetsPartition {
            partition_index: partition,
            current_leader_epoch: -1,
            timestamp,
        };
        let topic = list_offsets::ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] };
        let request =
            list_offsets::ListOffsetsRequest { topics: vec![topic], isolation_level, ..Default::default() };
        let node = Arc::clone(&self.test.node);
        let mut response = handlers::list_offsets::handle(node, self.test.context(11), request).await;
        response.topics.remove(0).partitions.remove(0)
    }

    async fn delete_records(&self, partition: i32, offset: i64) -> (ErrorCode, i64) {
        let partition = delete_records::DeleteRecordsPartition { partition_index: partition, offset };
        let topic = delete_records::DeleteRecordsTopic { name: TOPIC.into(), partitions: vec![partition] };
        let request = delete_records::DeleteRecordsRequest { topics: vec![topic], timeout_ms: 1_000 };
        let node = Arc::clone(&self.test.node);
        let mut response = handlers::delete_records::handle(node, self.test.context(2), request).await;
        let result = response.topics.remove(0).partitions.remove(0);
        (result.error_code, result.low_watermark)
    }

    fn wall(&self) -> i64 {
        self.test.node.clock().wall().0
    }
}

fn config(name: &str, value: &str) -> MetadataChange {
    MetadataChange::ConfigSet {
        resource: ConfigResource::Topic(topic_id(1)),
        name: name.to_owned(),
        value: Some(value.to_owned()),
    }
}

fn led_by(leader: i32, index: i32, epoch: i32) -> MetadataChange {
    MetadataChange::PartitionSet {
        partition: topic_partition(topic_id(1), index),
        state: PartitionState {
            replicas: vec![NodeId(1)],
            adding: vec![],
            removing: vec![],
            isr: vec![NodeId(leader)],
            elr: vec![],
            leader: Some(NodeId(leader)),
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(100 + epoch),
        },
    }
}

pub(super) fn batch(values: &[&str]) -> Vec<u8> {
    batch_at(1_000, values)
}

fn batch_at(timestamp: i64, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(timestamp, Some(b"k"), Some(value.as_bytes()), &[]).unwrap();
    }
    builder.build()
}

fn idempotent(producer: i64, sequence: i32, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(producer, 0, sequence);
    for value in values {
        builder.push(1_000, None, Some(value.as_bytes()), &[]).unwrap();
    }
    builder.build()
}

pub(super) fn fetch_request(max_wait_ms: i32, partitions: &[(i32, i64)]) -> fetch::FetchRequest {
    let partition = |&(partition, fetch_offset): &(i32, i64)| fetch::FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topic = fetch::FetchTopic {
        topic: TOPIC.into(),
        topic_id: topic_id(1).0,
        partitions: partitions.iter().map(partition).collect(),
    };
    fetch::FetchRequest { max_wait_ms, min_bytes: 1, topics: vec![topic], ..Default::default() }
}

/// The bytes of fetched records, read as the connection would.
pub(super) fn bytes_of(records: &Option<Records>) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let from_region = |region: &Region| {
        let file = Arc::clone(&region.source).downcast::<std::fs::File>().expect("regions are of files");
        let mut bytes = vec![0; region.len];
        file.read_exact_at(&mut bytes, region.offset).unwrap();
        bytes
    };
    match records {
        None => Vec::new(),
        Some(Records::Bytes(bytes)) => bytes.to_vec(),
        Some(Records::Region(region)) => from_region(region),
        Some(Records::Gather(parts)) => parts
            .iter()
            .flat_map(|part| match part {
                Part::Bytes(bytes) => bytes.to_vec(),
                Part::Region(region) => from_region(region),
            })
            .collect(),
    }
}

/// Offset and value of every record, checksums checked.
fn records_of(data: &fetch::PartitionData) -> Vec<(i64, String)> {
    let bytes = bytes_of(&data.records);
    let mut found = Vec::new();
    for view in records::batches(&bytes) {
        let view = view.unwrap();
        view.check_crc().unwrap();
        for record in view.records(1 << 20).unwrap().iter() {
            let record = record.unwrap();
            found.push((record.offset, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
        }
    }
    found
}

fn values(data: &fetch::PartitionData) -> Vec<String> {
    records_of(data).into_iter().map(|(_, value)| value).collect()
}

/// A client that was answered before the flush looks for the end of its log. A disk that stands still holds nobody up for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_replica_tells_its_end_once_what_it_holds_is_flushed() {
    // Its syncs take no time once they are let go.
    let disk = StallingDisk::over(SimDisk::new(1));
    let world = World::on(Arc::clone(&disk) as Arc<dyn Disk>, &[]).await;
    assert_eq!(world.append(0, batch(&["flushed"])).await, 0);
    disk.stall(".log");
    assert_eq!(world.produce(1, 0, batch(&["soon"])).await.error_code, ErrorCode::None);
    let waits = || disk.waiting() > 0;
    let released = async {
        let waiting = async {
            while !waits() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok(), "nothing is flushed");
        disk.release();
    };
    let (end, ()) = tokio::join!(world.list_offset_at(0, LATEST, 0), released);
    assert_eq!(end, 2);
    disk.stall(".log");
    assert_eq!(world.produce(1, 0, batch(&["later"])).await.error_code, ErrorCode::None);
    assert_eq!(world.list_offset_at(0, LATEST, 0).await, 2);
    assert_eq!(world.list_offset_at(0, EARLIEST, 0).await, 0);
    disk.release();
}

#[tokio::test]
async fn what_is_produced_is_fetched_with_offsets_and_epoch() {
    let world = World::new(&[]).await;
    for codec in Compression::ALL {
        let mut builder = BatchBuilder::new().compression(codec);
        builder.push(1_000, Some(b"k"), Some(codec.name().as_bytes()), &[]).unwrap();
        world.append(0, builder.build()).await;
    }
    let data = world.read(0, 0).await;
    assert_eq!((data.high_watermark, data.last_stable_offset, data.log_start_offset), (5, 5, 0));
    let expected: Vec<_> = (0..).zip(Compression::ALL.map(|codec| codec.name().to_owned())).collect();
    assert_eq!(records_of(&data), expected);
    for view in records::batches(&bytes_of(&data.records)) {
        assert_eq!(view.unwrap().header().partition_leader_epoch, EPOCH);
    }
    assert_eq!(values(&world.read(0, 3).await), ["lz4", "zstd"]);
    assert_eq!(records_of(&world.read(0, 5).await), []);
    assert_eq!(world.read(0, 6).await.error_code, ErrorCode::OffsetOutOfRange);
    assert_eq!(world.read(0, -1).await.error_code, ErrorCode::OffsetOutOfRange);
    assert_eq!(values(&world.read(1, 0).await), [] as [&str; 0]);
}

#[tokio::test]
async fn every_kind_of_acks() {
    let world = World::new(&[]).await;
    assert_eq!(world.produce(1, 0, batch(&["one"])).await.base_offset, 0);
    assert_eq!(world.produce(-1, 0, batch(&["all", "two"])).await.base_offset, 1);
    assert_eq!(world.produce_raw(9, 0, 0, batch(&["none"])).await, Reply::Silence);
    assert_eq!(world.produce(-1, 0, batch(&["last"])).await.base_offset, 4);
    assert_eq!(values(&world.read(0, 0).await), ["one", "all", "two", "none", "last"]);
    let refused = world.produce(2, 0, batch(&["x"])).await;
    assert_eq!((refused.error_code, refused.base_offset), (ErrorCode::InvalidRequiredAcks, -1));
    let damaged = world.produce_raw(9, 0, 0, vec![7; 100]).await;
    assert!(matches!(damaged, Reply::Close(_)), "{damaged:?}");
}

/// Of a metric's text: what stands behind `series`.
fn metric(text: &str, series: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{series} is not in {text}")).parse().unwrap()
}

#[tokio::test]
async fn the_legs_of_committed_requests_count_each_once_and_add_up() {
    let world = World::new(&[]).await;
    let node = &world.test.node;
    for n in 0..5 {
        let answer = world.produce_raw(9, -1, n % 3, batch(&["measured"])).await;
        let Reply::Observed(_, on_written) = answer else { panic!("{answer:?}") };
        on_written.on_written(node.clock().now());
    }
    world.append(0, idempotent(7, 0, &["x"])).await;
    // Not those that nobody waits for, that are here already, or that were refused.
    for (acks, batch) in [(1, batch(&["one"])), (-1, idempotent(7, 0, &["x"])), (-1, vec![7; 100])] {
        let answer = world.produce_raw(9, acks, 0, batch).await;
        assert!(matches!(answer, Reply::Response(_)), "{answer:?}");
    }
    let mut registry = Registry::default();
    node.metrics().produce_legs().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let mut sum = 0.0;
    for leg in ["receive", "queue", "append", "flush", "followers", "answer"] {
        assert_eq!(metric(&text, &format!("produce_leg_seconds_count{{leg=\"{leg}\"}}")), 5.0, "{leg}");
        sum += metric(&text, &format!("produce_leg_seconds_sum{{leg=\"{leg}\"}}"));
    }
    assert_eq!(metric(&text, "produce_seconds_count"), 5.0);
    let whole = metric(&text, "produce_seconds_sum");
    assert!(whole > 0.0 && (sum - whole).abs() < 1e-6, "legs {sum}, whole {whole}");
}

#[tokio::test]
async fn pipelined_batches_keep_their_order() {
    let world = World::new(&[]).await;
    let mut answers = Vec::new();
    for n in 0..200 {
        answers.push(world.queue(9, -1, 0, batch(&[&n.to_string()])).await);
    }
    for (n, answer) in answers.into_iter().enumerate() {
        let Reply::Observed(response, _) = answer.await else { panic!() };
        assert_eq!(response.responses[0].partition_responses[0].base_offset, n as i64);
    }
    let expected: Vec<_> = (0..200).map(|n| n.to_string()).collect();
    assert_eq!(values(&world.read(0, 0).await), expected);
}

#[tokio::test]
async fn what_a_batch_may_not_be() {
    let world = World::new(&[("max.message.bytes", "300")]).await;
    let mut damaged = batch(&["x"]);
    *damaged.last_mut().unwrap() ^= 1;
    let large = "y".repeat(300);
    let transactional = {
        let mut builder = BatchBuilder::new().producer(1, 0, 0).transactional();
        builder.push(1, None, None, &[]).unwrap();
        builder.build()
    };
    let cases = [
        (damaged, ErrorCode::CorruptMessage),
        (batch(&[&large]), ErrorCode::MessageTooLarge),
        ([batch(&["a"]), batch(&["b"])].concat(), ErrorCode::InvalidRecord),
        (vec![], ErrorCode::InvalidRecord),
        (transactional, ErrorCode::InvalidTxnState),
        (batch_at(world.wall() + 4_000_000, &["future"]), ErrorCode::InvalidTimestamp),
    ];
    for (bytes, code) in cases {
        let response = world.produce(-1, 0, bytes).await;
        assert_eq!((response.error_code, response.base_offset), (code, -1));
        assert!(response.error_message.is_some());
    }
    assert_eq!(records_of(&world.read(0, 0).await), []);
    assert_eq!(world.produce(-1, 3, batch(&["x"])).await.error_code, ErrorCode::UnknownTopicOrPartition);
}

#[tokio::test]
async fn repetitions_get_the_original_offset_and_gaps_are_refused() {
    let world = World::new(&[]).await;
    world.append(0, batch(&["other"])).await;
    assert_eq!(world.append(0, idempotent(7, 0, &["a", "b"])).await, 1);
    assert_eq!(world.append(0, idempotent(7, 2, &["c"])).await, 3);
    assert_eq!(world.append(0, idempotent(7, 0, &["a", "b"])).await, 1);
    let gap = world.produce(-1, 0, idempotent(7, 9, &["z"])).await;
    assert_eq!(gap.error_code, ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(values(&world.read(0, 0).await), ["other", "a", "b", "c"]);
    // The window survives a restart.
    let world = world.restart(EPOCH + 1).await;
    assert_eq!(world.append(0, idempotent(7, 2, &["c"])).await, 3);
    assert_eq!(world.append(0, idempotent(7, 3, &["d"])).await, 4);
    assert_eq!(values(&world.read(0, 0).await), ["other", "a", "b", "c", "d"]);
}

#[tokio::test]
async fn append_time_comes_from_the_broker() {
    let world = World::new(&[("message.timestamp.type", "LogAppendTime")]).await;
    let before = world.wall();
    let response = world.produce(-1, 0, idempotent(7, 0, &["x"])).await;
    let stamped = response.log_append_time_ms;
    assert!((before..=world.wall()).contains(&stamped), "{response:?}");
    let bytes = bytes_of(&world.read(0, 0).await.records);
    let view = records::batches(&bytes).next().unwrap().unwrap();
    view.check_crc().unwrap();
    assert_eq!(view.records(1 << 20).unwrap().iter().next().unwrap().unwrap().timestamp, stamped);
    let repeated = world.produce(-1, 0, idempotent(7, 0, &["x"])).await;
    assert_eq!((repeated.base_offset, repeated.log_append_time_ms), (0, stamped));
}

#[tokio::test]
async fn compacted_topics_refuse_records_without_a_key_one_by_one() {
    let world = World::new(&[("cleanup.policy", "compact")]).await;
    world.append(0, batch(&["with key"])).await;
    let refused = world.produce(-1, 0, idempotent(7, 0, &["a", "b"])).await;
    assert_eq!(refused.error_code, ErrorCode::InvalidRecord);
    let indexes: Vec<_> = refused.record_errors.iter().map(|error| error.batch_index).collect();
    assert_eq!(indexes, [0, 1]);
    assert_eq!(world.delete_records(0, 1).await.0, ErrorCode::PolicyViolation);
    world.test.apply_and_open(&[config("cleanup.policy", "delete")]).await;
    world.append(0, idempotent(7, 0, &["a", "b"])).await;
}

#[tokio::test]
async fn a_long_poll_wakes_for_the_bytes_it_waits_for() {
    let world = World::new(&[]).await;
    let asked = fetch_request(60_000, &[(0, 0), (1, 0)]);
    let (response, _) = tokio::join!(world.fetch(12, asked), async {
        tokio::task::yield_now().await;
        world.append(1, batch(&["late"])).await
    });
    assert_eq!(values(&response.responses[0].partitions[1]), ["late"]);
    // More bytes than one batch: it waits for the second.
    let one = batch(&["x"]).len() as i32;
    let asked = fetch::FetchRequest { min_bytes: 2 * one, ..fetch_request(60_000, &[(2, 0)]) };
    let (response, _) = tokio::join!(world.fetch(12, asked), async {
        for value in ["x", "y"] {
            world.append(2, batch(&[value])).await;
        }
    });
    assert_eq!(values(&response.responses[0].partitions[0]), ["x", "y"]);
}

#[tokio::test]
async fn a_long_poll_ends_in_time_and_when_the_server_stops() {
    let world = World::new(&[]).await;
    let response = world.fetch(12, fetch_request(5, &[(0, 0)])).await;
    assert_eq!(response.responses[0].partitions[0].error_code, ErrorCode::None);
    let context = world.test.context(12);
    let draining = context.draining.clone();
    let node = Arc::clone(&world.test.node);
    let fetch = handlers::fetch::handle(node, context, fetch_request(60_000, &[(0, 0)]));
    let (response, ()) = tokio::join!(fetch, async {
        tokio::task::yield_now().await;
        draining.cancel();
    });
    assert_eq!(response.responses[0].partitions[0].high_watermark, 0);
}

#[tokio::test]
async fn a_long_poll_ends_when_the_leader_changes() {
    let world = World::new(&[]).await;
    let (response, ()) = tokio::join!(world.fetch(12, fetch_request(60_000, &[(0, 0)])), async {
        tokio::task::yield_now().await;
        world.test.apply_and_open(&[led_by(2, 0, EPOCH + 1)]).await;
    });
    assert_eq!(response.responses[0].partitions[0].error_code, ErrorCode::NotLeaderOrFollower);
}

#[tokio::test]
async fn limits_are_kept_but_the_first_batch_comes_whole() {
    let world = World::new(&[]).await;
    let large = "v".repeat(1_000);
    for partition in 0..3 {
        for _ in 0..3 {
            world.append(partition, batch(&[&large])).await;
        }
    }
    let size = batch(&[&large]).len() as i32;
    let asked = |max_bytes, partition_max| {
        let mut request = fetch_request(0, &[(2, 0), (0, 0), (1, 0)]);
        request.max_bytes = max_bytes;
        request.topics[0].partitions.iter_mut().for_each(|p| p.partition_max_bytes = partition_max);
        request
    };
    let counts = |response: &fetch::FetchResponse| -> Vec<(i32, usize)> {
        let partitions = &response.responses[0].partitions;
        partitions.iter().map(|data| (data.partition_index, records_of(data).len())).collect()
    };
    assert_eq!(counts(&world.fetch(12, asked(1, 1)).await), [(2, 1), (0, 0), (1, 0)]);
    assert_eq!(counts(&world.fetch(12, asked(4 * size, 10 * size)).await), [(2, 3), (0, 1), (1, 0)]);
    assert_eq!(counts(&world.fetch(12, asked(10 * size, 2 * size)).await), [(2, 2), (0, 2), (1, 2)]);
}

#[tokio::test]
async fn sessions_send_what_is_new() {
    let world = World::new(&[]).await;
    let mut request = fetch_request(0, &[(0, 0), (1, 0)]);
    request.session_epoch = 0;
    let first = world.fetch(12, request).await;
    assert!(first.session_id > 0);
    let incremental = |epoch, partitions: &[(i32, i64)]| fetch::FetchRequest {
        session_id: first.session_id,
        session_epoch: epoch,
        topics: if partitions.is_empty() { vec![] } else { fetch_request(0, partitions).topics },
        ..fetch_request(0, &[])
    };
    assert!(world.fetch(12, incremental(1, &[])).await.responses.is_empty());
    world.append(1, batch(&["new"])).await;
    let news = world.fetch(12, incremental(2, &[])).await;
    assert_eq!(news.responses[0].partitions.len(), 1);
    assert_eq!(values(&news.responses[0].partitions[0]), ["new"]);
    assert!(world.fetch(12, incremental(3, &[(1, 1)])).await.responses.is_empty());
    let stale = world.fetch(12, incremental(3, &[])).await;
    assert_eq!(stale.error_code, ErrorCode::InvalidFetchSessionEpoch);
}

#[tokio::test]
async fn topics_are_found_by_id_from_version_thirteen() {
    let world = World::new(&[]).await;
    let (Reply::Response(response) | Reply::Observed(response, _)) =
        world.produce_raw(13, -1, 0, batch(&["x"])).await
    else {
        panic!()
    };
    crate::test_node::assert_encodes::<produce::ProduceRequest>(&response, 13);
    assert_eq!(response.responses[0].topic_id, topic_id(1).0);
    assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::None);
    let mut request = fetch_request(0, &[(0, 0)]);
    let found = world.fetch(18, request.clone()).await;
    assert_eq!(found.responses[0].topic_id, topic_id(1).0);
    assert_eq!(values(&found.responses[0].partitions[0]), ["x"]);
    request.topics[0].topic_id = Uuid::from_u128(99);
    let unknown = world.fetch(18, request).await;
    assert_eq!(unknown.responses[0].partitions[0].error_code, ErrorCode::UnknownTopicId);
}

#[tokio::test]
async fn who_asks_the_wrong_node_is_told_the_leader() {
    let world = World::new(&[]).await;
    let mut changes = live_node(2);
    changes.push(led_by(2, 0, EPOCH + 1));
    world.test.apply_and_open(&changes).await;
    let Reply::Response(response) = world.produce_raw(10, 1, 0, batch(&["x"])).await else { panic!() };
    let partition = &response.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, ErrorCode::NotLeaderOrFollower);
    assert_eq!((partition.current_leader.leader_id, partition.current_leader.leader_epoch), (2, EPOCH + 1));
    assert_eq!((response.node_endpoints[0].node_id, response.node_endpoints[0].port), (2, 9092));
    let response = world.fetch(16, fetch_request(0, &[(0, 0)])).await;
    assert_eq!(response.responses[0].partitions[0].current_leader.leader_id, 2);
    assert_eq!(response.node_endpoints.len(), 1);
}

#[tokio::test]
async fn leader_epochs_are_checked() {
    let world = World::new(&[]).await;
    let with_epoch = |epoch| {
        let mut request = fetch_request(0, &[(0, 0)]);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        request
    };
    let cases = [
        (EPOCH, ErrorCode::None),
        (EPOCH - 1, ErrorCode::FencedLeaderEpoch),
        (EPOCH + 1, ErrorCode::UnknownLeaderEpoch),
        (-1, ErrorCode::None),
    ];
    for (epoch, code) in cases {
        let response = world.fetch(12, with_epoch(epoch)).await;
        assert_eq!(response.responses[0].partitions[0].error_code, code, "epoch {epoch}");
    }
}

#[tokio::test]
async fn offsets_are_found_by_time_and_by_both_ends() {
    let world = World::new(&[]).await;
    assert_eq!(world.list_offset(0, -1).await, (ErrorCode::None, 0, -1, EPOCH));
    assert_eq!(world.list_offset(0, -3).await, (ErrorCode::None, -1, -1, -1));
    for (timestamp, value) in [(1_000, "a"), (3_000, "b"), (2_000, "c")] {
        world.append(0, batch_at(timestamp, &[value, value])).await;
    }
    let found = |offset, timestamp| (ErrorCode::None, offset, timestamp, EPOCH);
    assert_eq!(world.list_offset(0, -1).await, found(6, -1));
    assert_eq!(world.list_offset(0, -2).await, found(0, -1));
    assert_eq!(world.list_offset(0, -3).await, found(2, 3_000));
    assert_eq!(world.list_offset(0, -4).await, found(0, -1));
    assert_eq!(world.list_offset(0, -5).await, (ErrorCode::None, -1, -1, -1));
    assert_eq!(world.list_offset(0, 500).await, found(0, 1_000));
    assert_eq!(world.list_offset(0, 1_500).await, found(2, 3_000));
    assert_eq!(world.list_offset(0, 3_001).await, (ErrorCode::None, -1, -1, -1));
    assert_eq!(world.list_offset(0, -9).await.0, ErrorCode::UnsupportedVersion);
    assert_eq!(world.list_offset(9, -1).await.0, ErrorCode::UnknownTopicOrPartition);
}

#[tokio::test]
async fn records_are_deleted_up_to_the_high_watermark() {
    let world = World::new(&[]).await;
    for value in ["a", "b", "c"] {
        world.append(0, batch(&[value])).await;
    }
    assert_eq!(world.delete_records(0, 4).await, (ErrorCode::OffsetOutOfRange, -1));
    assert_eq!(world.delete_records(0, 2).await, (ErrorCode::None, 2));
    assert_eq!(world.read(0, 1).await.error_code, ErrorCode::OffsetOutOfRange);
    assert_eq!(world.read(0, 2).await.log_start_offset, 2);
    assert_eq!(world.list_offset(0, -2).await.1, 2);
    assert_eq!(world.delete_records(0, -1).await, (ErrorCode::None, 3));
    let world = world.restart(EPOCH + 1).await;
    assert_eq!(world.list_offset(0, -2).await.1, 3);
    assert_eq!(world.append(0, batch(&["d"])).await, 3);
}

#[tokio::test]
async fn epochs_end_where_the_next_begins() {
    let world = World::new(&[]).await;
    world.append(0, batch(&["a", "b"])).await;
    let world = world.restart(EPOCH + 2).await;
    world.append(0, batch(&["c"])).await;
    let ask = |leader_epoch| {
        let partition = offset_for_leader_epoch::OffsetForLeaderPartition {
            partition: 0,
            current_leader_epoch: EPOCH + 2,
            leader_epoch,
        };
        let topic = offset_for_leader_epoch::OffsetForLeaderTopic {
            topic: TOPIC.into(),
            partitions: vec![partition],
        };
        let request =
            offset_for_leader_epoch::OffsetForLeaderEpochRequest { replica_id: -1, topics: vec![topic] };
        let node = Arc::clone(&world.test.node);
        handlers::offset_for_leader_epoch::handle(node, world.test.context(4), request).map(|mut response| {
            let end = response.topics.remove(0).partitions.remove(0);
            (end.error_code, end.leader_epoch, end.end_offset)
        })
    };
    assert_eq!(ask(EPOCH).await, (ErrorCode::None, EPOCH, 2));
    assert_eq!(ask(EPOCH + 1).await, (ErrorCode::None, EPOCH, 2));
    assert_eq!(ask(EPOCH + 2).await, (ErrorCode::None, EPOCH + 2, 3));
    assert_eq!(ask(EPOCH + 3).await, (ErrorCode::None, -1, -1));
    assert_eq!(world.list_offset(0, -2).await.3, EPOCH);
    // A reader of an epoch that ended earlier here is told where.
    let mut request = fetch_request(0, &[(0, 3)]);
    request.topics[0].partitions[0].last_fetched_epoch = EPOCH;
    let response = world.fetch(12, request).await;
    let diverging = &response.responses[0].partitions[0].diverging_epoch;
    assert_eq!((diverging.epoch, diverging.end_offset), (EPOCH, 2));
}

#[tokio::test]
async fn records_survive_a_restart() {
    let world = World::new(&[]).await;
    for n in 0..50 {
        world.append(n % 3, batch(&[&n.to_string()])).await;
    }
    let world = world.restart(EPOCH + 1).await;
    let expected: Vec<_> = (0..50).filter(|n| n % 3 == 1).map(|n: i32| n.to_string()).collect();
    let data = world.read(1, 0).await;
    assert_eq!(values(&data), expected);
    assert_eq!(data.high_watermark, expected.len() as i64);
}

#[tokio::test]
async fn deleted_topics_leave_nothing_behind() {
    let world = World::new(&[]).await;
    world.append(0, batch(&["x"])).await;
    world.test.apply_and_open(&[MetadataChange::TopicDeleted { topic: topic_id(1) }]).await;
    assert_eq!(world.read(0, 0).await.error_code, ErrorCode::UnknownTopicOrPartition);
    let left = || -> Vec<_> {
        let entries = std::fs::read_dir(world.directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    // The logs are gone at once, their files soon.
    assert!(left().iter().all(|path| path.extension().is_some_and(|suffix| suffix == "deleted")));
    let deadline = std::time::Duration::from_secs(20);
    let removed = async {
        while !left().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(deadline, removed).await.unwrap();
}

#[tokio::test]
async fn log_directories_are_described() {
    let world = World::new(&[]).await;
    world.append(1, batch(&["x"])).await;
    let node = Arc::clone(&world.test.node);
    let request = describe_log_dirs::DescribeLogDirsRequest { topics: None };
    let response = handlers::describe_log_dirs::handle(node, world.test.context(4), request).await;
    let directory = &response.results[0];
    assert_eq!(&*directory.log_dir, world.directory.path().to_str().unwrap());
    assert!(directory.total_bytes > 0 && directory.usable_bytes > 0);
    let sizes: Vec<_> =
        directory.topics[0].partitions.iter().map(|p| (p.partition_index, p.partition_size)).collect();
    assert_eq!(sizes, [(0, 0), (1, batch(&["x"]).len() as i64), (2, 0)]);
}

#[tokio::test]
async fn a_full_log_answers_every_reader_from_every_offset() {
    let world = World::new(&[("segment.bytes", "1048576")]).await;
    let value = "v".repeat(20_000);
    for n in 0..150 {
        world.append(0, batch(&[&format!("{n}{value}"), "second"])).await;
    }
    for offset in 0..300 {
        let data = world.read(0, offset).await;
        let first = records_of(&data)[0].0;
        assert_eq!(first, offset - offset % 2, "the batch that holds the offset comes whole");
    }
    let mut at = 0;
    while at < 300 {
        let records = records_of(&world.read(0, at).await);
        assert_eq!(records.first().unwrap().0, at);
        at = records.last().unwrap().0 + 1;
    }
}

#[tokio::test]
async fn producers_and_readers_at_once_see_one_order() {
    let world = Arc::new(World::new(&[]).await);
    let writer = |producer: i64| {
        let world = Arc::clone(&world);
        async move {
            for n in 0..100 {
                world.append(0, idempotent(producer, n, &[&format!("{producer}:{n}")])).await;
            }
        }
    };
    let reader = || {
        let world = Arc::clone(&world);
        async move {
            let (mut at, mut seen) = (0, Vec::new());
            while at < 300 {
                let response = world.fetch(12, fetch_request(10_000, &[(0, at)])).await;
                let records = records_of(&response.responses[0].partitions[0]);
                at = records.last().map_or(at, |(offset, _)| offset + 1);
                seen.extend(records);
            }
            seen
        }
    };
    let all = async { tokio::join!(writer(1), writer(2), writer(3), reader(), reader()) };
    let (_, _, _, one, two) = tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
    assert_eq!(one, two);
    assert_eq!(one.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), (0..300).collect::<Vec<_>>());
    for producer in 1..=3 {
        let prefix = format!("{producer}:");
        let own: Vec<_> = one.iter().filter_map(|(_, value)| value.strip_prefix(&prefix)).collect();
        assert_eq!(own, (0..100).map(|n: i32| n.to_string()).collect::<Vec<_>>());
    }
}
