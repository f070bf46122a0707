//! What the commands know of nodes, partitions and replicas, read from the cluster through Kafka's admin APIs.
//!
//! Apache Kafka answers the same questions; what an older cluster does not tell is `None` here.

use std::collections::BTreeMap;

use kafka_wire::{Client, ClientError};
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::describe_cluster::DescribeClusterRequest;
use kafka_wire_core::messages::describe_log_dirs::DescribeLogDirsRequest;
use kafka_wire_core::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic, TopicRequest,
};
use kafka_wire_core::messages::list_partition_reassignments::ListPartitionReassignmentsRequest;
use kafka_wire_core::messages::metadata::MetadataResponseTopic;
use uuid::Uuid;

use crate::failure::Failure;
use crate::output::printable;
use crate::replica_plan::{Host, Placed};

/// First version of DescribeCluster that tells of fenced nodes.
const FENCED_MIN: i16 = 2;

/// The cluster's nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterView {
    pub(crate) id: String,
    /// The node that takes requests for the controllers.
    pub(crate) admin_node: i32,
    /// In order of id.
    pub(crate) nodes: Vec<NodeView>,
}

/// A storage node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    pub(crate) id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
    pub(crate) rack: Option<String>,
    /// Known, but without a session: it leads nothing.
    pub(crate) fenced: bool,
}

/// A topic with its partitions in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TopicView {
    pub(crate) name: String,
    pub(crate) id: Uuid,
    pub(crate) internal: bool,
    pub(crate) partitions: Vec<PartitionView>,
}

/// A partition and who holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartitionView {
    pub(crate) index: i32,
    pub(crate) leader: Option<i32>,
    pub(crate) leader_epoch: i32,
    pub(crate) replicas: Vec<i32>,
    pub(crate) isr: Vec<i32>,
    /// Out of the in-sync set, but known to have all that is committed.
    pub(crate) elr: Option<Vec<i32>>,
    pub(crate) offline: Vec<i32>,
}

/// Replicas of a partition that is on the move.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) replicas: Vec<i32>,
    pub(crate) adding: Vec<i32>,
    pub(crate) removing: Vec<i32>,
}

impl UnderWay {
    /// The replicas at its end.
    pub(crate) fn target(&self) -> Vec<i32> {
        self.replicas.iter().copied().filter(|id| !self.removing.contains(id)).collect()
    }
}

impl ClusterView {
    /// The node with this id.
    pub(crate) fn node(&self, id: i32) -> Result<&NodeView, Failure> {
        self.nodes.iter().find(|node| node.id == id).ok_or_else(|| {
            Failure::not_found(format!("there is no node {id}")).hint("`weir cluster status` shows the nodes")
        })
    }

    /// The nodes that can take replicas, or those of them that are named.
    pub(crate) fn hosts(&self, named: Option<&[i32]>) -> Result<Vec<Host>, Failure> {
        let host = |node: &NodeView| Host { id: node.id, rack: node.rack.clone() };
        let Some(named) = named else {
            return Ok(self.nodes.iter().filter(|node| !node.fenced).map(host).collect());
        };
        let live = |id: &i32| match self.node(*id)? {
            node if node.fenced => {
                Err(Failure::failed(format!("node {id} is not alive and can take no replicas"))
                    .hint("start it, or name others; `weir cluster status` shows who is up"))
            }
            node => Ok(host(node)),
        };
        named.iter().map(live).collect()
    }
}

/// Reads the nodes.
pub(crate) async fn cluster(client: &Client) -> Result<ClusterView, Failure> {
    let fenced_known = client.any().await?.version::<DescribeClusterRequest>()? >= FENCED_MIN;
    let request =
        DescribeClusterRequest { include_fenced_brokers: fenced_known, ..DescribeClusterRequest::default() };
    let response = client.call(&request).await?;
    if !response.error_code.is_none() {
        let message = response.error_message.as_deref();
        return Err(Failure::refused("describe the cluster", response.error_code, message));
    }
    let mut nodes: Vec<_> = response
        .brokers
        .into_iter()
        .map(|broker| NodeView {
            id: broker.broker_id,
            host: broker.host.into(),
            port: broker.port,
            rack: broker.rack.map(String::from),
            fenced: broker.is_fenced,
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    Ok(ClusterView { id: response.cluster_id.into(), admin_node: response.controller_id, nodes })
}

/// Reads these topics, or all of them with `None`, in order of name. A topic that does not exist is a failure.
pub(crate) async fn topics(client: &Client, names: Option<&[String]>) -> Result<Vec<TopicView>, Failure> {
    let mut request = DescribeTopicPartitionsRequest {
        topics: names.iter().copied().flatten().map(|name| TopicRequest { name: name.into() }).collect(),
        ..DescribeTopicPartitionsRequest::default()
    };
    if names.is_some_and(<[String]>::is_empty) {
        return Ok(Vec::new());
    }
    let connection = client.any().await?;
    if let Err(ClientError::UnsupportedVersion { .. }) =
        connection.version::<DescribeTopicPartitionsRequest>()
    {
        return topics_by_metadata(client, names).await;
    }
    let mut topics: BTreeMap<String, TopicView> = BTreeMap::new();
    loop {
        let response = connection.call(&request).await?;
        for topic in response.topics {
            let view = described(topic)?;
            // A topic may go on in the next answer.
            match topics.get_mut(&view.name) {
                Some(known) => known.partitions.extend(view.partitions),
                None => _ = topics.insert(view.name.clone(), view),
            }
        }
        match response.next_cursor {
            Some(next) if Some(&next) != request.cursor.as_ref() => request.cursor = Some(next),
            Some(_) | None => break,
        }
    }
    Ok(topics.into_values().map(in_order).collect())
}

fn in_order(mut topic: TopicView) -> TopicView {
    topic.partitions.sort_by_key(|partition| partition.index);
    topic
}

fn unknown(name: &str, code: ErrorCode) -> Failure {
    Failure::refused(format!("find topic {}", printable(name)), code, None)
}

fn described(topic: DescribeTopicPartitionsResponseTopic) -> Result<TopicView, Failure> {
    let name = String::from(topic.name.unwrap_or_default());
    if !topic.error_code.is_none() {
        return Err(unknown(&name, topic.error_code));
    }
    let partition = |partition: DescribeTopicPartitionsResponsePartition| PartitionView {
        index: partition.partition_index,
        leader: (partition.leader_id >= 0).then_some(partition.leader_id),
        leader_epoch: partition.leader_epoch,
        replicas: partition.replica_nodes,
        isr: partition.isr_nodes,
        elr: Some(partition.eligible_leader_replicas.unwrap_or_default()),
        offline: partition.offline_replicas,
    };
    Ok(TopicView {
        name,
        id: topic.topic_id,
        internal: topic.is_internal,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    })
}

async fn topics_by_metadata(client: &Client, names: Option<&[String]>) -> Result<Vec<TopicView>, Failure> {
    let names: Option<Vec<&str>> = names.map(|names| names.iter().map(String::as_str).collect());
    let response = client.metadata(names.as_deref()).await?;
    let view = |topic: MetadataResponseTopic| {
        let name = String::from(topic.name.unwrap_or_default());
        if !topic.error_code.is_none() {
            return Err(unknown(&name, topic.error_code));
        }
        let partitions = topic.partitions.into_iter().map(|partition| PartitionView {
            index: partition.partition_index,
            leader: (partition.leader_id >= 0).then_some(partition.leader_id),
            leader_epoch: partition.leader_epoch,
            replicas: partition.replica_nodes,
            isr: partition.isr_nodes,
            elr: None,
            offline: partition.offline_replicas,
        });
        let partitions = partitions.collect();
        Ok(in_order(TopicView { name, id: topic.topic_id, internal: topic.is_internal, partitions }))
    };
    let mut topics = response.topics.into_iter().map(view).collect::<Result<Vec<_>, _>>()?;
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(topics)
}

/// The partitions that are on the move.
pub(crate) async fn under_way(client: &Client, timeout_ms: i32) -> Result<Vec<UnderWay>, Failure> {
    let request = ListPartitionReassignmentsRequest { timeout_ms, topics: None };
    let response = client.call(&request).await?;
    if !response.error_code.is_none() {
        let message = response.error_message.as_deref();
        return Err(Failure::refused("list moves", response.error_code, message));
    }
    let mut moves: Vec<_> = response
        .topics
        .into_iter()
        .flat_map(|topic| {
            let name = topic.name;
            topic.partitions.into_iter().map(move |partition| UnderWay {
                topic: name.to_string(),
                partition: partition.partition_index,
                replicas: partition.replicas,
                adding: partition.adding_replicas,
                removing: partition.removing_replicas,
            })
        })
        .collect();
    moves.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Ok(moves)
}

/// Sizes of copies in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CopySizes(BTreeMap<(String, i32, i32), u64>);

impl CopySizes {
    /// The size of the copy of a partition on a node, if the node has told.
    pub(crate) fn get(&self, topic: &str, partition: i32, node: i32) -> Option<u64> {
        self.0.get(&(topic.to_owned(), partition, node)).copied()
    }

    /// Notes a size.
    pub(crate) fn insert(&mut self, topic: &str, partition: i32, node: i32, bytes: u64) {
        self.0.insert((topic.to_owned(), partition, node), bytes);
    }
}

/// Asks these nodes how large their copies are. A node that does not answer is left out: sizes are for information.
pub(crate) async fn copy_sizes(client: &Client, nodes: impl IntoIterator<Item = i32>) -> CopySizes {
    let mut sizes = CopySizes::default();
    for node in nodes {
        let request = DescribeLogDirsRequest { topics: None };
        let Ok(response) = client.call_node(node, &request).await else { continue };
        for topic in response.results.into_iter().flat_map(|directory| directory.topics) {
            for partition in topic.partitions.iter().filter(|partition| !partition.is_future_key) {
                let bytes = u64::try_from(partition.partition_size).unwrap_or(0);
                sizes.insert(&topic.name, partition.partition_index, node, bytes);
            }
        }
    }
    sizes
}

/// All partitions as a plan takes them. What is on the move counts as it will be.
pub(crate) fn placed(topics: &[TopicView], moving: &[UnderWay]) -> Vec<Placed> {
    let replicas = |topic: &TopicView, partition: &PartitionView| {
        let under_way = moving.iter().find(|m| m.topic == topic.name && m.partition == partition.index);
        under_way.map_or_else(|| partition.replicas.clone(), UnderWay::target)
    };
    let all = topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(move |partition| Placed {
            topic: topic.name.clone(),
            partition: partition.index,
            replicas: replicas(topic, partition),
        })
    });
    all.collect()
}

/// A partition's name for people.
pub(crate) fn partition_name(topic: &str, partition: i32) -> String {
    format!("{}-{partition}", printable(topic))
}

/// A host name or address and its port.
pub(crate) fn address_text(host: &str, port: impl std::fmt::Display) -> String {
    let host = printable(host);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_live_nodes_take_replicas() {
        let node = |id, fenced| NodeView { id, fenced, ..NodeView::default() };
        let view = ClusterView { nodes: vec![node(1, false), node(2, true)], ..ClusterView::default() };
        let ids = |hosts: Vec<Host>| hosts.into_iter().map(|host| host.id).collect::<Vec<_>>();
        assert_eq!(ids(view.hosts(None).unwrap()), [1]);
        assert_eq!(view.hosts(Some(&[2])).unwrap_err().exit_code(), 1);
        assert_eq!(view.hosts(Some(&[3])).unwrap_err().exit_code(), 4);
    }

    #[test]
    fn a_moving_partition_counts_where_it_will_be() {
        let partition = PartitionView { index: 0, replicas: vec![1, 2, 3], ..PartitionView::default() };
        let topic = TopicView { name: "t".to_owned(), partitions: vec![partition], ..TopicView::default() };
        let moving = UnderWay {
            topic: "t".to_owned(),
            replicas: vec![1, 2, 3],
            adding: vec![3],
            removing: vec![1],
            ..UnderWay::default()
        };
        assert_eq!(placed(std::slice::from_ref(&topic), &[moving])[0].replicas, [2, 3]);
        assert_eq!(placed(&[topic], &[])[0].replicas, [1, 2, 3]);
    }
}
