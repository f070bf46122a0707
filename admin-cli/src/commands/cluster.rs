//! `weir cluster`: who is there, and what is wrong; and the files of a new cluster.

pub(crate) mod init;
pub(crate) mod layout;

use clap::Subcommand;
use kafka_wire::Client;
use kafka_wire_core::messages::describe_cluster::{DescribeClusterBroker, DescribeClusterRequest};
use kafka_wire_core::messages::metadata::MetadataResponseTopic;
use serde_json::{Value, json};

use crate::cli::Global;
use crate::failure::Failure;
use crate::output::{Format, Output, printable};

/// What to show of the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Nodes, what they lead, and partitions that are not well
    Status,
    /// Make the files of a new cluster: id, certificates, and a configuration file for each daemon
    Init(init::InitArgs),
}

pub(crate) async fn run(
    global: &Global,
    command: ClusterCommand,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    match command {
        ClusterCommand::Status => status(&global.connect().await?, output).await,
        ClusterCommand::Init(arguments) => init::run(arguments, output),
    }
}

/// A node with what Metadata says of its partitions.
struct NodeRow {
    broker: DescribeClusterBroker,
    leads: usize,
    holds: usize,
}

/// Counts over all partitions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Health {
    topics: usize,
    partitions: usize,
    leaderless: Vec<String>,
    under_replicated: Vec<String>,
}

impl Health {
    fn of(topics: &[MetadataResponseTopic]) -> Self {
        let mut health = Self { topics: topics.len(), ..Self::default() };
        for topic in topics {
            for partition in &topic.partitions {
                let name =
                    || format!("{}-{}", topic.name.as_deref().unwrap_or("?"), partition.partition_index);
                health.partitions += 1;
                if partition.leader_id < 0 {
                    health.leaderless.push(name());
                } else if partition.isr_nodes.len() < partition.replica_nodes.len() {
                    health.under_replicated.push(name());
                }
            }
        }
        health
    }
}

async fn status(client: &Client, output: &mut Output<'_>) -> Result<(), Failure> {
    let fenced_known = client.any().await?.version::<DescribeClusterRequest>()? >= 2;
    let request =
        DescribeClusterRequest { include_fenced_brokers: fenced_known, ..DescribeClusterRequest::default() };
    let cluster = client.call(&request).await?;
    if !cluster.error_code.is_none() {
        let message = cluster.error_message.as_deref();
        return Err(Failure::refused("describe the cluster", cluster.error_code, message));
    }
    let topics = client.metadata(None).await?.topics;
    let health = Health::of(&topics);
    let partitions = || topics.iter().flat_map(|topic| &topic.partitions);
    let mut nodes: Vec<_> = cluster
        .brokers
        .into_iter()
        .map(|broker| NodeRow {
            leads: partitions().filter(|p| p.leader_id == broker.broker_id).count(),
            holds: partitions().filter(|p| p.replica_nodes.contains(&broker.broker_id)).count(),
            broker,
        })
        .collect();
    nodes.sort_by_key(|node| node.broker.broker_id);
    match output.format {
        Format::Json => output.json(&json!({
            "cluster_id": &*cluster.cluster_id,
            "controller": cluster.controller_id,
            "nodes": nodes.iter().map(node_json).collect::<Value>(),
            "topics": health.topics,
            "partitions": health.partitions,
            "leaderless": health.leaderless,
            "under_replicated": health.under_replicated,
        })),
        Format::Table => {
            output.line(&format!("cluster     {}", printable(&cluster.cluster_id)))?;
            output.line(&format!("controller  node {}", cluster.controller_id))?;
            output.line(&format!("topics      {}", health.topics))?;
            output.line(&format!("partitions  {}", health.partitions))?;
            show_unwell("without leader", &health.leaderless, output)?;
            show_unwell("under-replicated", &health.under_replicated, output)?;
            output.line("")?;
            let rows: Vec<_> = nodes.iter().map(node_row).collect();
            output.table(&["NODE", "ADDRESS", "RACK", "STATE", "LEADS", "HOLDS"], &rows)
        }
    }
}

fn node_json(node: &NodeRow) -> Value {
    json!({
        "node": node.broker.broker_id,
        "host": &*node.broker.host,
        "port": node.broker.port,
        "rack": node.broker.rack.as_deref(),
        "fenced": node.broker.is_fenced,
        "leads": node.leads,
        "holds": node.holds,
    })
}

fn node_row(node: &NodeRow) -> Vec<String> {
    let broker = &node.broker;
    vec![
        broker.broker_id.to_string(),
        printable(&format!("{}:{}", &*broker.host, broker.port)),
        broker.rack.as_deref().map_or_else(|| "-".to_owned(), printable),
        if broker.is_fenced { "fenced" } else { "up" }.to_owned(),
        node.leads.to_string(),
        node.holds.to_string(),
    ]
}

/// Names of partitions shown at most; their number is always exact.
const UNWELL_SHOWN_MAX: usize = 10;

fn show_unwell(what: &str, names: &[String], output: &mut Output<'_>) -> Result<(), Failure> {
    if names.is_empty() {
        return Ok(());
    }
    let shown: Vec<_> = names.iter().take(UNWELL_SHOWN_MAX).map(|name| printable(name)).collect();
    let more = if names.len() > UNWELL_SHOWN_MAX { " …" } else { "" };
    output.line(&format!("{} partitions {what}: {}{more}", names.len(), shown.join(" ")))
}

#[cfg(test)]
mod tests {
    use kafka_wire_core::Str;
    use kafka_wire_core::messages::metadata::MetadataResponsePartition;

    use super::*;

    #[test]
    fn partitions_that_are_not_well_are_named() {
        let partition = |index, leader, isr: &[i32]| MetadataResponsePartition {
            partition_index: index,
            leader_id: leader,
            replica_nodes: vec![1, 2],
            isr_nodes: isr.to_vec(),
            ..MetadataResponsePartition::default()
        };
        let topic = MetadataResponseTopic {
            name: Some(Str::from("t")),
            partitions: vec![partition(0, 1, &[1, 2]), partition(1, 1, &[1]), partition(2, -1, &[2])],
            ..MetadataResponseTopic::default()
        };
        let health = Health::of(&[topic]);
        assert_eq!((health.topics, health.partitions), (1, 3));
        assert_eq!(health.leaderless, ["t-2"]);
        assert_eq!(health.under_replicated, ["t-1"]);
    }
}
