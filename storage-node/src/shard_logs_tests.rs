//! Logs of shards over a real directory, asked by a coordinator over the network in memory.

use crate::disk::claim;
use crate::shard_logs::{ShardLogs, ShardLogsSlot, add_routes};
use crate::test_node::{TestNode, live_node, topic, topic_id};
use bytes::Bytes;
use proto_types::coordinator_api::{
    AppendShard, ReadShard, Shard, ShardAppended, ShardContent, ShardFrame, ShardLogError,
};
use proto_types::ids::{CoordinatorEpoch, Offset};
use proto_types::metadata::{MetadataChange, topic_partition};
use quic_transport::memory::{MemoryEndpoint, MemoryNetwork, MemoryNetworkConfig};
use quic_transport::{
    Identity, Limits, MessageKind, Peer, PeerTarget, Role, Router, Transport, TransportMetrics,
};
use records::{BatchBuilder, batches};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// A node with shard 0, and an ordinary topic; and a coordinator that speaks to it.
struct World {
    test: TestNode,
    peer: Peer,
    _endpoints: [MemoryEndpoint; 2],
}

fn changes() -> Vec<MetadataChange> {
    let mut changes = live_node(1);
    changes.extend(topic(1, "__consumer_offsets", 1, &[1]));
    changes.extend(topic(2, "ordinary", 1, &[1]));
    changes
}

fn shard() -> Shard {
    topic_partition(topic_id(1), 0)
}

impl World {
    async fn open(directory: &Path) -> Self {
        Self::open_again(directory, 0).await
    }

    /// A later incarnation of the node: it leads in newer epochs.
    async fn open_again(directory: &Path, times: i32) -> Self {
        let mut changes = changes();
        for change in &mut changes {
            if let MetadataChange::PartitionSet { state, .. } = change {
                state.leader_epoch.0 += times;
            }
        }
        let test = TestNode::on_disk(directory, &changes).await;
        let slot = ShardLogsSlot::default();
        let router = add_routes(Router::builder(), &slot).build();
        let partitions = Arc::clone(test.node.partitions());
        assert!(slot.set(ShardLogs { partitions, clock: test.node.clock() }).is_ok());
        let network = MemoryNetwork::new(MemoryNetworkConfig::default());
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let identity = |role| Identity::new("c", role, 1).expect("a name");
        let endpoint = |role, port, router| {
            let metrics = TransportMetrics::unregistered();
            network.endpoint(identity(role), at(port), router, Limits::default(), metrics).expect("bound")
        };
        let node = endpoint(Role::StorageNode, 1, router);
        let coordinator = endpoint(Role::Coordinator, 2, Router::empty());
        let peer = coordinator.peer(PeerTarget::new(at(1), identity(Role::StorageNode)));
        Self { test, peer, _endpoints: [node, coordinator] }
    }

    async fn close(self) {
        self.test.node.partitions().close().await;
    }

    async fn ask(
        &self,
        shard: Shard,
        epoch: i32,
        expected_end: Option<i64>,
        content: ShardContent,
    ) -> Result<ShardAppended, ShardLogError> {
        let expected_end = expected_end.map(Offset);
        let request = AppendShard { shard, epoch: CoordinatorEpoch(epoch), expected_end, content };
        self.peer.ask(MessageKind::AppendShard, &request, LONG).await.expect("answered")
    }

    async fn claim(&self, epoch: i32) -> Result<ShardAppended, ShardLogError> {
        self.ask(shard(), epoch, None, ShardContent::Claim).await
    }

    async fn append(&self, epoch: i32, at: i64, key: &str) -> Result<ShardAppended, ShardLogError> {
        self.ask(shard(), epoch, Some(at), ShardContent::Batches(batch(key))).await
    }

    /// Offsets of all batches in the range, and whether each is a claim.
    async fn read(&self, epoch: i32, from: i64, to: i64) -> Result<Vec<(i64, bool)>, ShardLogError> {
        let epoch = CoordinatorEpoch(epoch);
        let request = ReadShard { shard: shard(), epoch, from: Offset(from), to: Offset(to) };
        let hello = Bytes::from(proto_types::encode(&request));
        let (_open, mut frames) =
            self.peer.open_stream(MessageKind::ReadShard, hello, LONG).await.expect("opened");
        let mut found = Vec::new();
        loop {
            match frames.recv_message::<ShardFrame>().await.expect("readable").expect("ends by a frame") {
                ShardFrame::Batches(bytes) => found.extend(batches(&bytes).map(|batch| {
                    let batch = batch.expect("whole");
                    (batch.header().base_offset, claim::decode(&batch).is_some())
                })),
                ShardFrame::End => return Ok(found),
                ShardFrame::Failed(error) => return Err(error),
            }
        }
    }
}

fn batch(key: &str) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.push(1_000, Some(key.as_bytes()), Some(b"value"), &[]).expect("small");
    builder.build()
}

fn at(base_offset: i64) -> ShardAppended {
    ShardAppended { base_offset: Offset(base_offset), end: Offset(base_offset + 1) }
}

#[tokio::test]
async fn what_an_owner_appends_its_successor_reads() {
    let directory = tempfile::tempdir().expect("a directory");
    let world = World::open(directory.path()).await;
    assert_eq!(world.claim(3).await, Ok(at(0)));
    assert_eq!(world.append(3, 1, "a").await, Ok(at(1)));
    assert_eq!(world.claim(4).await, Ok(at(2)));
    assert_eq!(world.read(4, 0, 3).await, Ok(vec![(0, true), (1, false), (2, true)]));
    let fenced = ShardLogError::Fenced { current: CoordinatorEpoch(4) };
    assert_eq!(world.append(3, 3, "late").await, Err(fenced.clone()));
    assert_eq!(world.claim(3).await, Err(fenced.clone()));
    assert_eq!(world.read(3, 0, 3).await, Err(fenced));
    assert_eq!(world.claim(4).await, Ok(at(3)), "a claim is the barrier of a new load too");
    world.close().await;
}

#[tokio::test]
async fn the_fence_survives_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let world = World::open(directory.path()).await;
    world.claim(7).await.expect("claimed");
    // More than one step of the search, so that the claim lies far behind the end.
    for offset in 1..1_200 {
        assert_eq!(world.append(7, offset, "k").await, Ok(at(offset)));
    }
    world.close().await;
    let world = World::open_again(directory.path(), 1).await;
    let fenced = Err(ShardLogError::Fenced { current: CoordinatorEpoch(7) });
    assert_eq!(world.append(6, 1_200, "late").await, fenced);
    assert_eq!(world.append(7, 1_200, "k").await, Ok(at(1_200)));
    world.close().await;
}

#[tokio::test]
async fn a_repeated_append_is_appended_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let world = World::open(directory.path()).await;
    world.claim(1).await.expect("claimed");
    assert_eq!(world.append(1, 1, "a").await, Ok(at(1)));
    assert_eq!(world.append(1, 1, "a").await, Ok(at(1)), "the answer was lost");
    let unexpected = Err(ShardLogError::UnexpectedEnd { end: Offset(2) });
    assert_eq!(world.append(1, 1, "b").await, unexpected, "something else stands there");
    assert_eq!(world.append(1, 5, "a").await, unexpected);
    assert_eq!(world.append(1, 2, "b").await, Ok(at(2)));
    assert!(matches!(world.append(1, 1, "a").await, Err(ShardLogError::UnexpectedEnd { .. })));
    // Behind a newer claim it is not known any more what came before.
    world.claim(1).await.expect("claimed");
    assert!(matches!(world.append(1, 2, "b").await, Err(ShardLogError::UnexpectedEnd { .. })));
    world.close().await;
}

#[tokio::test]
async fn only_whole_batches_in_partitions_of_internal_topics() {
    let directory = tempfile::tempdir().expect("a directory");
    let world = World::open(directory.path()).await;
    let ordinary = topic_partition(topic_id(2), 0);
    let refused = world.ask(ordinary, 1, None, ShardContent::Claim).await;
    assert!(matches!(refused, Err(ShardLogError::Invalid(_))), "{refused:?}");
    let elsewhere = topic_partition(topic_id(3), 0);
    assert_eq!(world.ask(elsewhere, 1, None, ShardContent::Claim).await, Err(ShardLogError::NotLeader));
    world.claim(1).await.expect("claimed");
    let mut damaged = batch("a");
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    for bytes in [damaged, Vec::new(), [batch("a"), batch("b")].concat()] {
        let refused = world.ask(shard(), 1, Some(1), ShardContent::Batches(bytes)).await;
        assert!(matches!(refused, Err(ShardLogError::Invalid(_))), "{refused:?}");
    }
    let unread = world.read(1, 0, 99).await;
    assert!(matches!(unread, Err(ShardLogError::Unavailable(_))), "beyond the high watermark: {unread:?}");
    world.close().await;
}
