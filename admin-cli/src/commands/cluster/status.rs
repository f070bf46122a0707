//! `weir cluster status`: nodes, controllers, and what is not well.

use kafka_wire::{Client, ClientError};
use kafka_wire_core::messages::describe_followers::{DescribeFollowersRequest, DescribeFollowersResponse};
use kafka_wire_core::messages::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::cluster_view::{self, NodeView, TopicView, address_text, partition_name};
use crate::commands::config::{self, Resource};
use crate::failure::Failure;
use crate::output::{Format, Output, count_of, printable, thousands};
use crate::quorum_view::{self, QuorumView};

/// A follower that lacks something for less is not worth a line: on a busy partition every one lacks something.
const LAG_SHOWN_MS: i64 = 1_000;
/// Names of partitions shown at most; their number is always exact.
const NAMES_SHOWN_MAX: usize = 10;
/// Topics whose `min.insync.replicas` is asked for at most.
const TOPICS_ASKED_MAX: usize = 100;

/// A node with what it does.
struct NodeRow<'a> {
    node: &'a NodeView,
    leads: usize,
    holds: usize,
    /// Copies that are not in sync.
    out_of_sync: usize,
}

/// Counts over all partitions, and the names of those that are not well.
#[derive(Debug, Default, PartialEq, Eq)]
struct Health {
    topics: usize,
    partitions: usize,
    leaderless: Vec<String>,
    under_replicated: Vec<String>,
    below_min_isr: Vec<String>,
    /// Some copies are on nodes that are away.
    with_offline_replicas: usize,
}

/// A follower that lags.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lagging {
    partition: String,
    leader: i32,
    node: i32,
    in_sync: bool,
    connected: bool,
    /// Records that it lacks; none if it has not told how far it is.
    records: Option<i64>,
    ms: i64,
}

/// A data directory that its node cannot use.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OfflineDirectory {
    node: i32,
    path: String,
}

pub(super) async fn run(global: &Global, client: &Client, output: &mut Output<'_>) -> Result<(), Failure> {
    let cluster = cluster_view::cluster(client).await?;
    let topics = cluster_view::topics(client, None).await?;
    let mut health = health(&topics);
    health.below_min_isr = below_min_isr(client, &topics).await?;
    // Older clusters tell neither; without a quorum nothing else of this command fails.
    let quorum = quorum_view::quorum(client).await;
    let moves =
        cluster_view::under_way(client, global.change_timeout_ms()).await.map_or(0, |moves| moves.len());
    let lagging = lagging(client, &cluster.nodes).await?;
    let directories = offline_directories(client, &cluster.nodes).await?;
    let rows: Vec<_> = cluster.nodes.iter().map(|node| node_row(node, &topics)).collect();
    if output.format == Format::Json {
        return output.json(&json!({
            "cluster_id": cluster.id,
            "controller": cluster.admin_node,
            "quorum": quorum.as_ref().ok().map(QuorumView::to_json),
            "nodes": rows.iter().map(node_json).collect::<Value>(),
            "topics": health.topics,
            "partitions": health.partitions,
            "leaderless": health.leaderless,
            "under_replicated": health.under_replicated,
            "below_min_isr": health.below_min_isr,
            "with_offline_replicas": health.with_offline_replicas,
            "offline_directories": directories.iter().map(directory_json).collect::<Value>(),
            "moves": moves,
            "lagging": lagging.as_ref().map(|list| list.iter().map(lagging_json).collect::<Value>()),
        }));
    }
    output.line(&format!("cluster     {}", printable(&cluster.id)))?;
    output.line(&format!("controller  {}", controller_text(&quorum)))?;
    output.line(&format!("topics      {}", health.topics))?;
    output.line(&format!("partitions  {}", health.partitions))?;
    show_unwell("without leader", &health.leaderless, output)?;
    show_unwell("below min.insync.replicas", &health.below_min_isr, output)?;
    show_unwell("under-replicated", &health.under_replicated, output)?;
    for OfflineDirectory { node, path } in directories.iter().take(NAMES_SHOWN_MAX) {
        output.line(&format!("data directory {} of node {node} is offline", printable(path)))?;
    }
    if moves > 0 {
        let moves = count_of(moves, "partition");
        output.line(&format!("{moves} on the move: `weir partition moves` shows what is copied"))?;
    }
    output.line("")?;
    let table: Vec<_> = rows.iter().map(node_cells).collect();
    output.table(&["NODE", "ADDRESS", "RACK", "STATE", "LEADS", "HOLDS", "OUT OF SYNC"], &table)?;
    if let Ok(quorum) = &quorum {
        output.line("")?;
        output.table(&QuorumView::HEADER, &quorum.rows())?;
    }
    if let Some(lagging) = lagging.filter(|lagging| !lagging.is_empty()) {
        output.line("")?;
        let table: Vec<_> = lagging.iter().map(lagging_cells).collect();
        output.table(&["LAGGING", "LEADER", "FOLLOWER", "STATE", "RECORDS", "SECONDS"], &table)?;
    }
    Ok(())
}

fn controller_text(quorum: &Result<QuorumView, Failure>) -> String {
    match quorum {
        Ok(QuorumView { leader: Some(leader), members, .. }) => {
            let voters = members.iter().filter(|member| member.voter).count();
            format!("{leader} leads{}", if voters == 1 { String::new() } else { format!(" {voters} voters") })
        }
        Ok(_) => "no controller leads".to_owned(),
        Err(failure) => failure.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

fn health(topics: &[TopicView]) -> Health {
    let mut health = Health { topics: topics.len(), ..Health::default() };
    for topic in topics {
        for partition in &topic.partitions {
            let name = || partition_name(&topic.name, partition.index);
            health.partitions += 1;
            health.with_offline_replicas += usize::from(!partition.offline.is_empty());
            if partition.leader.is_none() {
                health.leaderless.push(name());
            } else if partition.isr.len() < partition.replicas.len() {
                health.under_replicated.push(name());
            }
        }
    }
    health
}

/// Partitions that take no records with acks=all now.
async fn below_min_isr(client: &Client, topics: &[TopicView]) -> Result<Vec<String>, Failure> {
    let thin = |topic: &&TopicView| topic.partitions.iter().any(|p| p.isr.len() < p.replicas.len());
    let mut names = Vec::new();
    for topic in topics.iter().filter(thin).take(TOPICS_ASKED_MAX) {
        let configs = match config::describe(client, Resource::Topic(topic.name.clone())).await {
            Ok(configs) => configs,
            // It was deleted meanwhile.
            Err(failure) if failure.is_not_found() => continue,
            Err(failure) => return Err(failure),
        };
        let value = configs.iter().find(|entry| entry.name == "min.insync.replicas");
        let min = value.and_then(|entry| entry.shown_value().parse().ok()).unwrap_or(1);
        names.extend(below(topic, min));
    }
    Ok(names)
}

fn below(topic: &TopicView, min: usize) -> impl Iterator<Item = String> {
    // A partition never needs more than it has replicas.
    let few = topic.partitions.iter().filter(move |p| p.isr.len() < min.min(p.replicas.len()));
    few.map(|partition| partition_name(&topic.name, partition.index))
}

/// The followers that lag, as their leaders know it; none if the cluster does not tell.
async fn lagging(client: &Client, nodes: &[NodeView]) -> Result<Option<Vec<Lagging>>, Failure> {
    let mut all = Vec::new();
    for node in nodes.iter().filter(|node| !node.fenced) {
        let request = DescribeFollowersRequest { lag_ms_min: LAG_SHOWN_MS, ..Default::default() };
        match client.call_node(node.id, &request).await {
            Ok(response) => all.extend(lagging_of(node.id, response)),
            Err(ClientError::UnsupportedVersion { .. }) => return Ok(None),
            // It is going just now: what it led is led by others in a moment.
            Err(error) if error.is_unreachable() || matches!(error, ClientError::UnknownNode(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    all.sort_by(|a, b| (&a.partition, a.node).cmp(&(&b.partition, b.node)));
    Ok(Some(all))
}

fn lagging_of(leader: i32, response: DescribeFollowersResponse) -> Vec<Lagging> {
    let mut all = Vec::new();
    for topic in response.topics {
        for partition in topic.partitions {
            all.extend(partition.followers.iter().map(|follower| {
                Lagging {
                    partition: partition_name(&topic.name, partition.partition_index),
                    leader,
                    node: follower.node_id,
                    in_sync: follower.in_sync,
                    connected: follower.connected,
                    records: (follower.end_offset >= 0)
                        .then(|| (partition.log_end_offset - follower.end_offset).max(0)),
                    ms: follower.lag_ms,
                }
            }));
        }
    }
    all
}

/// The data directories that do not work, as their nodes say.
async fn offline_directories(client: &Client, nodes: &[NodeView]) -> Result<Vec<OfflineDirectory>, Failure> {
    let mut all = Vec::new();
    for node in nodes.iter().filter(|node| !node.fenced) {
        // No topic: of the directories alone.
        let request = DescribeLogDirsRequest { topics: Some(Vec::new()) };
        match client.call_node(node.id, &request).await {
            Ok(response) => all.extend(offline_of(node.id, response)),
            Err(error) if error.is_unreachable() || matches!(error, ClientError::UnknownNode(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

fn offline_of(node: i32, response: DescribeLogDirsResponse) -> impl Iterator<Item = OfflineDirectory> {
    let offline = response.results.into_iter().filter(|directory| !directory.error_code.is_none());
    offline.map(move |directory| OfflineDirectory { node, path: directory.log_dir.to_string() })
}

fn directory_json(directory: &OfflineDirectory) -> Value {
    json!({ "node": directory.node, "directory": directory.path })
}

fn lagging_json(lagging: &Lagging) -> Value {
    json!({
        "partition": lagging.partition, "leader": lagging.leader, "follower": lagging.node,
        "in_sync": lagging.in_sync, "connected": lagging.connected,
        "records": lagging.records, "ms": lagging.ms,
    })
}

fn lagging_cells(lagging: &Lagging) -> Vec<String> {
    let state = match (lagging.connected, lagging.in_sync) {
        (true, true) => "in sync",
        (true, false) => "catching up",
        (false, _) => "away",
    };
    let records = |records: i64| thousands(u64::try_from(records).unwrap_or(0));
    vec![
        lagging.partition.clone(),
        lagging.leader.to_string(),
        lagging.node.to_string(),
        state.to_owned(),
        lagging.records.map_or_else(|| "-".to_owned(), records),
        format!("{:.1}", lagging.ms as f64 / 1_000.0),
    ]
}

fn node_row<'a>(node: &'a NodeView, topics: &[TopicView]) -> NodeRow<'a> {
    let partitions = || topics.iter().flat_map(|topic| &topic.partitions);
    NodeRow {
        leads: partitions().filter(|p| p.leader == Some(node.id)).count(),
        holds: partitions().filter(|p| p.replicas.contains(&node.id)).count(),
        out_of_sync: partitions()
            .filter(|p| p.replicas.contains(&node.id) && !p.isr.contains(&node.id))
            .count(),
        node,
    }
}

fn node_json(row: &NodeRow<'_>) -> Value {
    json!({
        "node": row.node.id,
        "host": row.node.host,
        "port": row.node.port,
        "rack": row.node.rack,
        "fenced": row.node.fenced,
        "leads": row.leads,
        "holds": row.holds,
        "out_of_sync": row.out_of_sync,
    })
}

fn node_cells(row: &NodeRow<'_>) -> Vec<String> {
    let node = row.node;
    vec![
        node.id.to_string(),
        address_text(&node.host, node.port),
        node.rack.as_deref().map_or_else(|| "-".to_owned(), printable),
        if node.fenced { "fenced" } else { "up" }.to_owned(),
        row.leads.to_string(),
        row.holds.to_string(),
        row.out_of_sync.to_string(),
    ]
}

fn show_unwell(what: &str, names: &[String], output: &mut Output<'_>) -> Result<(), Failure> {
    if names.is_empty() {
        return Ok(());
    }
    let shown = names[..names.len().min(NAMES_SHOWN_MAX)].join(" ");
    let more = if names.len() > NAMES_SHOWN_MAX { " …" } else { "" };
    output.line(&format!("{} {what}: {shown}{more}", count_of(names.len(), "partition")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_view::PartitionView;
    use kafka_wire_core::ErrorCode;
    use kafka_wire_core::messages::describe_followers::{
        DescribedFollower, DescribedFollowersPartition, DescribedFollowersTopic,
    };
    use kafka_wire_core::messages::describe_log_dirs::DescribeLogDirsResult;

    fn topic() -> TopicView {
        let partition = |index, leader, isr: &[i32]| PartitionView {
            index,
            leader,
            replicas: vec![1, 2],
            isr: isr.to_vec(),
            ..PartitionView::default()
        };
        TopicView {
            name: "t".to_owned(),
            partitions: vec![
                partition(0, Some(1), &[1, 2]),
                partition(1, Some(1), &[1]),
                partition(2, None, &[2]),
            ],
            ..TopicView::default()
        }
    }

    #[test]
    fn partitions_that_are_not_well_are_named() {
        let health = health(&[topic()]);
        assert_eq!((health.topics, health.partitions), (1, 3));
        assert_eq!(health.leaderless, ["t-2"]);
        assert_eq!(health.under_replicated, ["t-1"]);
        assert_eq!(below(&topic(), 2).collect::<Vec<_>>(), ["t-1", "t-2"]);
        // A minimum above the number of replicas is the number of replicas.
        assert_eq!(below(&topic(), 9).count(), 2);
        assert_eq!(below(&topic(), 1).count(), 0);
        let node = NodeView { id: 2, ..NodeView::default() };
        let row = node_row(&node, &[topic()]);
        assert_eq!((row.leads, row.holds, row.out_of_sync), (0, 3, 1));
    }

    #[test]
    fn a_directory_that_does_not_work_is_named() {
        let directory = |path: &str, error_code| DescribeLogDirsResult {
            log_dir: path.into(),
            error_code,
            ..DescribeLogDirsResult::default()
        };
        let results = vec![directory("/a", ErrorCode::None), directory("/b", ErrorCode::KafkaStorageError)];
        let response = DescribeLogDirsResponse { results, ..DescribeLogDirsResponse::default() };
        let found: Vec<_> = offline_of(2, response).collect();
        assert_eq!(found, [OfflineDirectory { node: 2, path: "/b".to_owned() }]);
        assert_eq!(directory_json(&found[0]), json!({ "node": 2, "directory": "/b" }));
    }

    #[test]
    fn lagging_followers_are_told_in_records_and_seconds() {
        let follower = |node_id, end_offset, connected| DescribedFollower {
            node_id,
            in_sync: false,
            connected,
            end_offset,
            lag_ms: 2_340,
        };
        let partition = DescribedFollowersPartition {
            log_end_offset: 5_000,
            followers: vec![follower(2, 3_000, true), follower(3, -1, false)],
            ..DescribedFollowersPartition::default()
        };
        let topics = vec![DescribedFollowersTopic { name: "t".into(), partitions: vec![partition] }];
        let found = lagging_of(1, DescribeFollowersResponse { topics, ..Default::default() });
        let cells: Vec<_> = found.iter().map(|lagging| lagging_cells(lagging).join(" ")).collect();
        assert_eq!(cells, ["t-0 1 2 catching up 2,000 2.3", "t-0 1 3 away - 2.3"]);
        assert_eq!(lagging_json(&found[1])["records"], Value::Null);
    }
}
