//! A shard's log on the storage node that leads its partition.

use super::{GroupLog, Page};
use crate::controllers::resolve;
use crate::image::Image;
use arc_swap::ArcSwap;
use bytes::Bytes;
use proto_types::coordinator_api::{
    AppendShard, ReadShard, Shard, ShardAppended, ShardContent, ShardFrame, ShardLogError,
};
use proto_types::ids::{CoordinatorEpoch, Offset};
use quic_transport::{BoxFuture, CallError, Identity, MessageKind, Peer, PeerTarget, Role, Transport};
use records::BatchHeader;
use std::sync::Arc;
use std::time::Duration;

/// The logs of all shards, found by the image.
pub(crate) struct RemoteLog {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) image: Arc<ArcSwap<Image>>,
    /// Longest that one call, or one page, may take.
    pub(crate) call_max: Duration,
    /// Bytes of one page; one frame may exceed it.
    pub(crate) page_bytes: usize,
}

impl RemoteLog {
    async fn leader(&self, shard: Shard) -> Result<Peer, ShardLogError> {
        let unavailable = |reason: String| ShardLogError::Unavailable(reason);
        let found = self.image.load().leader(shard);
        let (node, address) = found.ok_or_else(|| unavailable("the partition has no leader".to_owned()))?;
        let number = u64::try_from(node.0).map_err(|_| unavailable(format!("node {node} is no node")))?;
        let cluster = self.transport.identity().cluster_id();
        let identity = Identity::new(cluster, Role::StorageNode, number)
            .map_err(|error| unavailable(error.to_string()))?;
        let address = resolve(&address).await.map_err(unavailable)?;
        Ok(self.transport.peer(PeerTarget::new(address, identity)))
    }

    async fn append_content(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
        expected_end: Option<Offset>,
        content: ShardContent,
    ) -> Result<ShardAppended, ShardLogError> {
        let peer = self.leader(shard).await?;
        let request = AppendShard { shard, epoch, expected_end, content };
        let asked = peer.ask::<_, Result<ShardAppended, ShardLogError>>(
            MessageKind::AppendShard,
            &request,
            self.call_max,
        );
        asked.await.unwrap_or_else(|error| Err(outcome_of(&error)))
    }

    async fn read_page(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
        from: Offset,
        to: Offset,
    ) -> Result<Page, ShardLogError> {
        let unavailable = |error: &dyn std::fmt::Display| ShardLogError::Unavailable(error.to_string());
        let peer = self.leader(shard).await?;
        let hello = Bytes::from(proto_types::encode(&ReadShard { shard, epoch, from, to }));
        let (_open, mut frames) = peer
            .open_stream(MessageKind::ReadShard, hello, self.call_max)
            .await
            .map_err(|error| unavailable(&error))?;
        let (mut page, mut bytes) = (Page { batches: Vec::new(), next: from }, 0);
        while bytes < self.page_bytes {
            match frames.recv_message::<ShardFrame>().await {
                Ok(Some(ShardFrame::Batches(batches))) => {
                    page.next = end_of(&batches).map_err(|error| unavailable(&error))?;
                    bytes += batches.len();
                    page.batches.push(Bytes::from(batches));
                }
                Ok(Some(ShardFrame::End)) => {
                    page.next = to;
                    return Ok(page);
                }
                Ok(Some(ShardFrame::Failed(error))) => return Err(error),
                Ok(None) => return Err(unavailable(&"the stream ended early")),
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Ok(page)
    }
}

/// The offset behind the last batch.
fn end_of(bytes: &[u8]) -> Result<Offset, records::BatchError> {
    let mut end = 0;
    for batch in records::batches(bytes) {
        let header: BatchHeader = *batch?.header();
        end = header.last_offset() + 1;
    }
    Ok(Offset(end))
}

fn outcome_of(error: &CallError) -> ShardLogError {
    if error.may_have_run() {
        ShardLogError::Unknown(error.to_string())
    } else {
        ShardLogError::Unavailable(error.to_string())
    }
}

impl GroupLog for RemoteLog {
    fn claim(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
    ) -> BoxFuture<'_, Result<ShardAppended, ShardLogError>> {
        Box::pin(self.append_content(shard, epoch, None, ShardContent::Claim))
    }

    fn append(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
        expected_end: Offset,
        batches: Vec<u8>,
    ) -> BoxFuture<'_, Result<ShardAppended, ShardLogError>> {
        let content = ShardContent::Batches(batches);
        Box::pin(self.append_content(shard, epoch, Some(expected_end), content))
    }

    fn read(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
        from: Offset,
        to: Offset,
    ) -> BoxFuture<'_, Result<Page, ShardLogError>> {
        Box::pin(async move {
            let reading = self.read_page(shard, epoch, from, to);
            let late = |_| Err(ShardLogError::Unavailable("no page in time".to_owned()));
            tokio::time::timeout(self.call_max, reading).await.unwrap_or_else(late)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_log::memory::{MemoryLog, serve};
    use crate::group_log::suite;
    use proto_types::ids::{NodeId, TopicId};
    use proto_types::metadata::topic_partition;
    use quic_transport::memory::{MemoryEndpoint, MemoryNetwork, MemoryNetworkConfig};
    use quic_transport::{Limits, Router, TransportMetrics};
    use std::net::SocketAddr;
    use uuid::Uuid;

    /// A remote log over the network in memory, whose storage node keeps its logs in memory.
    fn remote(page_bytes: usize) -> (RemoteLog, MemoryEndpoint) {
        let network = MemoryNetwork::new(MemoryNetworkConfig::default());
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let identity = |role, id| Identity::new("c", role, id).expect("a name");
        let metrics = TransportMetrics::unregistered;
        let router = serve(Router::builder(), Arc::new(MemoryLog::default())).build();
        let node = network
            .endpoint(identity(Role::StorageNode, 1), at(1), router, Limits::default(), metrics())
            .expect("bound");
        let ours = network
            .endpoint(identity(Role::Coordinator, 1), at(2), Router::empty(), Limits::default(), metrics())
            .expect("bound");
        let shards = (0..4).map(|index| topic_partition(TopicId(Uuid::from_u128(1)), index));
        let image = Image::for_test(shards, NodeId(1), at(1));
        let log = RemoteLog {
            transport: Arc::new(ours),
            image: Arc::new(ArcSwap::from_pointee(image)),
            call_max: Duration::from_secs(5),
            page_bytes,
        };
        (log, node)
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_the_contract() {
        let (log, _node) = remote(1 << 20);
        suite::run(&log).await;
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_the_contract_page_by_page() {
        let (log, _node) = remote(1);
        suite::run(&log).await;
    }

    #[tokio::test]
    async fn a_shard_without_leader_is_unavailable() {
        let (log, _node) = remote(1 << 20);
        let elsewhere = topic_partition(TopicId(Uuid::from_u128(2)), 0);
        let claimed = log.claim(elsewhere, CoordinatorEpoch(1)).await;
        assert!(matches!(claimed, Err(ShardLogError::Unavailable(_))), "{claimed:?}");
    }
}
