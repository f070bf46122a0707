//! The handlers as a client sees them where a partition has several copies: reading from a follower, asking a leader that
//! is new, and what a leader tells of its followers.

use std::sync::Arc;

use bytes::Bytes;
use kafka_wire::Reply;
use kafka_wire_core::messages::{describe_followers, fetch, list_offsets, produce};
use kafka_wire_core::{ErrorCode, Records};
use proto_types::ids::{LeaderEpoch, NodeId, PartitionEpoch};
use proto_types::metadata::{MetadataChange, PartitionState, topic_partition};
use records::BatchBuilder;

use super::handlers;
use crate::test_node::{TestNode, assert_encodes, fence, live_node, topic, topic_id};

const TOPIC: &str = "copies";

struct World {
    test: TestNode,
    _directory: tempfile::TempDir,
}

/// Partition 0 in a later state.
fn state(leader: i32, replicas: &[i32], isr: &[i32], epoch: i32) -> MetadataChange {
    let nodes = |ids: &[i32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
    MetadataChange::PartitionSet {
        partition: topic_partition(topic_id(1), 0),
        state: PartitionState {
            replicas: nodes(replicas),
            adding: vec![],
            removing: vec![],
            isr: nodes(isr),
            elr: vec![],
            leader: Some(NodeId(leader)),
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(100 + epoch),
        },
    }
}

impl World {
    /// Node 1 leads alone, and has committed three records.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let changes = [live_node(1), live_node(2), live_node(3), topic(1, TOPIC, 1, &[1])].concat();
        let test = TestNode::on_disk(directory.path(), &changes).await;
        let world = Self { test, _directory: directory };
        world.produce(-1).await;
        world
    }

    async fn produce(&self, acks: i16) {
        let mut batch = BatchBuilder::new();
        for value in ["a", "b", "c"] {
            batch.push(1_000, None, Some(value.as_bytes()), &[]).unwrap();
        }
        let records = Some(Records::Bytes(Bytes::from(batch.build())));
        let request = produce::ProduceRequest {
            transactional_id: None,
            acks,
            timeout_ms: 10_000,
            topic_data: vec![produce::TopicProduceData {
                name: TOPIC.into(),
                partition_data: vec![produce::PartitionProduceData { index: 0, records }],
                ..Default::default()
            }],
        };
        let node = Arc::clone(&self.test.node);
        let answer = handlers::produce::handle(node, self.test.context(9), request).await.await;
        let (Reply::Response(response) | Reply::Observed(response, _)) = answer else { panic!("{answer:?}") };
        assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::None);
    }

    async fn read(&self, version: i16, offset: i64, last_fetched_epoch: i32) -> fetch::PartitionData {
        let partition = fetch::FetchPartition {
            fetch_offset: offset,
            last_fetched_epoch,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        };
        let topic =
            fetch::FetchTopic { topic: TOPIC.into(), topic_id: topic_id(1).0, partitions: vec![partition] };
        let request =
            fetch::FetchRequest { rack_id: "rack-2".into(), topics: vec![topic], ..Default::default() };
        let node = Arc::clone(&self.test.node);
        let mut response = handlers::fetch::handle(node, self.test.context(version), request).await;
        assert_encodes::<fetch::FetchRequest>(&response, version);
        response.responses.remove(0).partitions.remove(0)
    }

    async fn list_offset(&self, version: i16, timestamp: i64) -> (ErrorCode, i64) {
        let partition = list_offsets::ListOffsetsPartition { timestamp, ..Default::default() };
        let topic = list_offsets::ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] };
        let request = list_offsets::ListOffsetsRequest { topics: vec![topic], ..Default::default() };
        let node = Arc::clone(&self.test.node);
        let mut response = handlers::list_offsets::handle(node, self.test.context(version), request).await;
        let found = response.topics.remove(0).partitions.remove(0);
        (found.error_code, found.offset)
    }

    async fn followers(&self, lag_ms_min: i64) -> describe_followers::DescribeFollowersResponse {
        let request = describe_followers::DescribeFollowersRequest { lag_ms_min, ..Default::default() };
        let node = Arc::clone(&self.test.node);
        let response = handlers::describe_followers::handle(node, self.test.context(0), request).await;
        assert_encodes::<describe_followers::DescribeFollowersRequest>(&response, 0);
        response
    }
}

fn has_records(data: &fetch::PartitionData) -> bool {
    data.records.as_ref().is_some_and(|records| !records.is_empty())
}

#[tokio::test]
async fn a_follower_in_sync_serves_what_it_knows_to_be_committed() {
    let world = World::new().await;
    world.test.apply_and_open(&[state(2, &[2, 1], &[2, 1], 4)]).await;
    let data = world.read(11, 0, -1).await;
    assert_eq!((data.error_code, data.high_watermark), (ErrorCode::None, 3));
    assert!(has_records(&data));
    assert_eq!(data.preferred_read_replica, -1);
    // Clients before KIP-392 know of no followers.
    assert_eq!(world.read(10, 0, -1).await.error_code, ErrorCode::NotLeaderOrFollower);
    // Beyond its end the consumer has to ask the leader.
    assert_eq!(world.read(11, 4, -1).await.error_code, ErrorCode::OffsetOutOfRange);
    // Where logs part is for the leader to say.
    assert_eq!(world.read(12, 3, 9).await.error_code, ErrorCode::NotLeaderOrFollower);
    // Everything but reading is the leader's.
    assert_eq!(world.list_offset(11, -1).await.0, ErrorCode::NotLeaderOrFollower);
}

#[tokio::test]
async fn a_follower_that_is_out_of_sync_or_fenced_sends_its_consumers_back() {
    let world = World::new().await;
    world.test.apply_and_open(&[state(2, &[2, 1], &[2], 4)]).await;
    let data = world.read(16, 0, -1).await;
    assert_eq!(data.error_code, ErrorCode::NotLeaderOrFollower);
    assert_eq!((data.current_leader.leader_id, data.current_leader.leader_epoch), (2, 4));
    world.test.apply_and_open(&[state(2, &[2, 1], &[2, 1], 5)]).await;
    assert_eq!(world.read(16, 0, -1).await.error_code, ErrorCode::None);
    world.test.apply_and_open(&[fence(1)]).await;
    assert_eq!(world.read(16, 0, -1).await.error_code, ErrorCode::NotLeaderOrFollower);
}

#[tokio::test]
async fn a_new_leader_tells_no_end_before_it_knows_what_was_committed() {
    let world = World::new().await;
    world.test.apply_and_open(&[state(2, &[1, 2], &[1, 2], 4)]).await;
    assert_eq!(world.list_offset(11, -1).await.0, ErrorCode::NotLeaderOrFollower);
    world.test.apply_and_open(&[state(1, &[1, 2], &[1, 2], 5)]).await;
    // Its own epoch begins at its end, which is committed: nothing is uncertain.
    assert_eq!(world.list_offset(11, -1).await, (ErrorCode::None, 3));
    world.produce(1).await;
    assert_eq!(world.list_offset(11, -1).await, (ErrorCode::None, 3));
    // The next leadership begins above what is known to be committed.
    world.test.apply_and_open(&[state(2, &[1, 2], &[1, 2], 6)]).await;
    world.test.apply_and_open(&[state(1, &[1, 2], &[1, 2], 7)]).await;
    assert_eq!(world.list_offset(11, -1).await.0, ErrorCode::OffsetNotAvailable);
    assert_eq!(world.list_offset(4, -1).await.0, ErrorCode::LeaderNotAvailable);
    assert_eq!(world.list_offset(11, -2).await, (ErrorCode::None, 0));
    assert_eq!(world.list_offset(11, 1_000).await, (ErrorCode::None, 0));
    assert_eq!(world.list_offset(11, 9_000).await.0, ErrorCode::OffsetNotAvailable);
    // Alone in sync, it knows.
    world.test.apply_and_open(&[state(1, &[1, 2], &[1], 8)]).await;
    let committed = async {
        while world.list_offset(11, -1).await != (ErrorCode::None, 6) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), committed).await.unwrap();
}

#[tokio::test]
async fn a_leader_tells_how_far_its_followers_are() {
    let world = World::new().await;
    assert!(world.followers(0).await.topics.is_empty(), "it has none");
    world.test.apply_and_open(&[state(1, &[1, 2, 3], &[1, 2], 4)]).await;
    world.produce(1).await;
    let response = world.followers(0).await;
    assert_eq!((&*response.topics[0].name, response.is_cut_off), (TOPIC, false));
    let partition = &response.topics[0].partitions[0];
    assert_eq!((partition.leader_epoch, partition.log_end_offset), (4, 6));
    let known: Vec<_> = partition
        .followers
        .iter()
        .map(|follower| (follower.node_id, follower.in_sync, follower.connected, follower.end_offset))
        .collect();
    assert_eq!(known, [(2, true, false, -1), (3, false, false, -1)]);
    assert!(world.followers(3_600_000).await.topics.is_empty(), "none lags for an hour");
    world.test.apply_and_open(&[state(2, &[1, 2, 3], &[2], 5)]).await;
    assert!(world.followers(0).await.topics.is_empty(), "who does not lead knows nothing");
}
