//! `weir node`: takes storage nodes out of the cluster. Adding one is starting it: it registers itself.

use clap::Subcommand;
use kafka_wire::Client;
use kafka_wire_core::messages::unregister_broker::UnregisterBrokerRequest;
use serde_json::json;

use crate::cli::Global;
use crate::cluster_view::{self, ClusterView, TopicView, partition_name};
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::partition_selection::NodeList;
use crate::reassign::{self, MoveOptions};
use crate::replica_plan;

/// Partitions named in a sentence.
const NAMED_MAX: usize = 5;

/// What to do with nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Move everything off a node, so that it can go
    Drain(DrainArgs),
    /// Forget a node that is stopped and holds nothing any more
    Remove {
        /// Id of the node
        node: i32,
        /// Only show what would be done
        #[arg(long)]
        plan: bool,
    },
}

/// Arguments of `node drain`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    /// Id of the node
    node: i32,
    /// Move to these nodes only; to all others that are up if not given
    #[arg(long, value_name = "NODES")]
    onto: Option<NodeList>,
    #[command(flatten)]
    options: MoveOptions,
}

pub(crate) async fn run(
    global: &Global,
    command: NodeCommand,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let client = global.connect().await?;
    match command {
        NodeCommand::Drain(args) => drain(global, &client, args, output).await,
        NodeCommand::Remove { node, plan } => remove(&client, node, plan, output).await,
    }
}

async fn drain(
    global: &Global,
    client: &Client,
    args: DrainArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let cluster = cluster_view::cluster(client).await?;
    cluster.node(args.node)?;
    let named = args.onto.as_ref().map(|NodeList(ids)| ids.as_slice());
    let mut hosts = cluster.hosts(named)?;
    if named.is_some_and(|ids| ids.contains(&args.node)) {
        return Err(Failure::usage(format!("node {} cannot be drained onto itself", args.node)));
    }
    hosts.retain(|host| host.id != args.node);
    let topics = cluster_view::topics(client, None).await?;
    let moving = cluster_view::under_way(client, global.change_timeout_ms()).await?;
    let placed = cluster_view::placed(&topics, &moving);
    let moves = replica_plan::drain(&placed, args.node, &hosts).map_err(|error| {
        Failure::failed(format!("cannot drain node {}: {error}", args.node))
            .hint("start another node, or give the topic fewer replicas by `weir partition move --replicas`")
    })?;
    reassign::carry_out(global, client, &topics, &moves, &args.options, output).await?;
    if !args.options.plan && (args.options.wait || moves.is_empty()) {
        output.note(&format!(
            "node {0} holds nothing any more: stop it, then `weir node remove {0}`",
            args.node
        ))?;
    }
    Ok(())
}

async fn remove(client: &Client, node: i32, plan: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    let cluster = cluster_view::cluster(client).await?;
    let topics = cluster_view::topics(client, None).await?;
    check_removable(&cluster, &topics, node)?;
    if !plan {
        let response = client.call(&UnregisterBrokerRequest { broker_id: node }).await?;
        if !response.error_code.is_none() {
            let message = response.error_message.as_deref();
            return Err(Failure::refused(format!("remove node {node}"), response.error_code, message));
        }
    }
    match output.format {
        Format::Json => output.json(&json!({ "node": node, "action": "remove", "planned": plan })),
        Format::Table => {
            let verb = if plan { "would remove" } else { "removed" };
            output.line(&format!("{verb} node {node}"))
        }
    }
}

/// Says what has to be done before the node can be forgotten. The controllers check it again.
fn check_removable(cluster: &ClusterView, topics: &[TopicView], node: i32) -> Result<(), Failure> {
    let alive = !cluster.node(node)?.fenced;
    let held: Vec<String> = topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |partition| (topic, partition)))
        .filter(|(_, partition)| partition.replicas.contains(&node))
        .map(|(topic, partition)| partition_name(&topic.name, partition.index))
        .collect();
    if !held.is_empty() {
        let more = held.len().saturating_sub(NAMED_MAX);
        let mut names = held[..held.len().min(NAMED_MAX)].join(", ");
        if more > 0 {
            names.push_str(&format!(" and {more} more"));
        }
        return Err(Failure::failed(format!("cannot remove node {node}: it holds replicas of {names}"))
            .hint(format!("`weir node drain {node} --wait` moves them to the other nodes")));
    }
    if alive {
        return Err(Failure::failed(format!("cannot remove node {node}: it is up"))
            .hint("stop its daemon first, and wait until `weir cluster status` calls it fenced"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_view::{NodeView, PartitionView};

    #[test]
    fn only_a_stopped_and_empty_node_goes() {
        let node = |id, fenced| NodeView { id, fenced, ..NodeView::default() };
        let cluster =
            ClusterView { nodes: vec![node(1, false), node(2, true), node(3, true)], ..Default::default() };
        let partition = |index| PartitionView { index, replicas: vec![1, 2], ..PartitionView::default() };
        let topics = [TopicView {
            name: "t".to_owned(),
            partitions: (0..7).map(partition).collect(),
            ..TopicView::default()
        }];
        let check = |topics: &[TopicView], node| check_removable(&cluster, topics, node);
        assert_eq!(check(&topics, 3), Ok(()));
        let holds = check(&topics, 2).unwrap_err().to_string();
        assert!(holds.contains("t-0, t-1, t-2, t-3, t-4 and 2 more"), "{holds}");
        assert!(holds.contains("weir node drain 2"), "{holds}");
        assert!(check(&[], 1).unwrap_err().to_string().contains("it is up"));
        assert_eq!(check(&[], 9).unwrap_err().exit_code(), 4);
    }
}
