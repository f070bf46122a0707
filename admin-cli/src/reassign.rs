//! Carries out moves of replicas: shows what would be done, throttles, asks the cluster (KIP-455), waits.
//!
//! A throttle is Kafka's: a rate on each node that takes part, and the replicas that it holds for, on each topic. It stays
//! until it is taken away, since other moves may be under it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_wire::Client;
use kafka_wire_core::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::cluster_view::{self, ClusterView, CopySizes, TopicView, UnderWay, partition_name};
use crate::commands::config::{self, Resource};
use crate::failure::Failure;
use crate::output::{Format, Output, count_of, id_list};
use crate::partition_selection::{byte_rate, bytes_text};
use crate::replica_plan::Move;

/// Pause between two looks at moves that are waited for.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Kafka's names of the rates on nodes, bytes a second.
const RATES: [&str; 2] = ["leader.replication.throttled.rate", "follower.replication.throttled.rate"];
/// Kafka's names of the replicas under throttle, on topics: those that are read from, and those that are filled.
const THROTTLED_LEADERS: &str = "leader.replication.throttled.replicas";
const THROTTLED_FOLLOWERS: &str = "follower.replication.throttled.replicas";

/// How moves are carried out.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct MoveOptions {
    /// Copy at most so many bytes a second to and from each node, such as 50MiB
    #[arg(long, value_name = "RATE", value_parser = byte_rate)]
    pub(crate) throttle: Option<u64>,
    /// Wait until the moves are done, then take the throttle away
    #[arg(long)]
    pub(crate) wait: bool,
    /// Only show what would be moved
    #[arg(long)]
    pub(crate) plan: bool,
}

/// Does what `moves` say, or shows it.
pub(crate) async fn carry_out(
    global: &Global,
    client: &Client,
    topics: &[TopicView],
    moves: &[Move],
    options: &MoveOptions,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    if options.plan || moves.is_empty() {
        let sizes = leader_sizes(client, topics, moves).await;
        return show(moves, &sizes, options, false, output);
    }
    let cluster = cluster_view::cluster(client).await?;
    if let Some(rate) = options.throttle {
        throttle(client, &cluster, moves, rate).await?;
    }
    let sizes = leader_sizes(client, topics, moves).await;
    let targets = moves.iter().map(|m| (m.topic.as_str(), m.partition, Some(m.to.clone())));
    submit(global, client, targets, output).await?;
    if options.wait {
        wait_for(global, client, moves, output).await?;
        if options.throttle.is_some() {
            end_throttle(client, &cluster, &moved_topics(moves)).await?;
        }
    }
    show(moves, &sizes, options, options.wait, output)?;
    if !options.wait {
        output.note("the moves are under way; `weir partition moves` shows how far they are")?;
        if options.throttle.is_some() {
            output
                .note("`weir partition moves --end-throttle` takes the throttle away when they are done")?;
        }
    }
    Ok(())
}

/// Asks for reassignments; no replicas cancel what is under way.
pub(crate) async fn submit<'a>(
    global: &Global,
    client: &Client,
    targets: impl Iterator<Item = (&'a str, i32, Option<Vec<i32>>)>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let mut topics: BTreeMap<&str, Vec<ReassignablePartition>> = BTreeMap::new();
    for (topic, partition_index, replicas) in targets {
        topics.entry(topic).or_default().push(ReassignablePartition { partition_index, replicas });
    }
    let topic = |(name, partitions): (&str, _)| ReassignableTopic { name: name.into(), partitions };
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: global.change_timeout_ms(),
        topics: topics.into_iter().map(topic).collect(),
        ..AlterPartitionReassignmentsRequest::default()
    };
    let response = client.call(&request).await?;
    if !response.error_code.is_none() {
        let message = response.error_message.as_deref();
        return Err(Failure::refused("move partitions", response.error_code, message));
    }
    let mut failures = Vec::new();
    for topic in &response.responses {
        for partition in topic.partitions.iter().filter(|partition| !partition.error_code.is_none()) {
            let what = format!("move {}", partition_name(&topic.name, partition.partition_index));
            failures.push(Failure::refused(what, partition.error_code, partition.error_message.as_deref()));
        }
    }
    crate::commands::topic::first_of(failures, output)
}

fn moved_topics(moves: &[Move]) -> BTreeSet<String> {
    moves.iter().map(|m| m.topic.clone()).collect()
}

/// Looks again and again until none of the moves is under way.
async fn wait_for(
    global: &Global,
    client: &Client,
    moves: &[Move],
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let ours: BTreeSet<(&str, i32)> = moves.iter().map(|m| (m.topic.as_str(), m.partition)).collect();
    loop {
        let mut left = cluster_view::under_way(client, global.change_timeout_ms()).await?;
        left.retain(|m| ours.contains(&(m.topic.as_str(), m.partition)));
        if output.notes_to_terminal {
            output.progress(&format!("{} of {} moves are done", ours.len() - left.len(), ours.len()))?;
        }
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    if output.notes_to_terminal { output.note("") } else { Ok(()) }
}

/// The sizes of what the moves copy, at the leaders.
async fn leader_sizes(client: &Client, topics: &[TopicView], moves: &[Move]) -> CopySizes {
    let mut sizes = CopySizes::default();
    let leaders = moves.iter().filter_map(|m| leader_of(topics, &m.topic, m.partition));
    let found = cluster_view::copy_sizes(client, leaders.collect::<BTreeSet<_>>()).await;
    for m in moves {
        let Some(leader) = leader_of(topics, &m.topic, m.partition) else { continue };
        if let Some(bytes) = found.get(&m.topic, m.partition, leader) {
            sizes.insert(&m.topic, m.partition, leader, bytes);
            for node in m.adding() {
                sizes.insert(&m.topic, m.partition, node, bytes);
            }
        }
    }
    sizes
}

fn leader_of(topics: &[TopicView], topic: &str, partition: i32) -> Option<i32> {
    let topic = topics.iter().find(|known| known.name == topic)?;
    topic.partitions.iter().find(|known| known.index == partition)?.leader
}

/// Bytes that a move copies; none if the leader did not tell.
fn copied_bytes(m: &Move, sizes: &CopySizes) -> Option<u64> {
    m.adding().map(|node| sizes.get(&m.topic, m.partition, node)).sum()
}

fn show(
    moves: &[Move],
    sizes: &CopySizes,
    options: &MoveOptions,
    finished: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let total: Option<u64> = moves.iter().map(|m| copied_bytes(m, sizes)).sum();
    if output.format == Format::Json {
        let list = moves.iter().map(|m| {
            json!({
                "topic": m.topic, "partition": m.partition, "from": m.from, "to": m.to,
                "bytes": copied_bytes(m, sizes),
            })
        });
        return output.json(&json!({
            "action": "move", "planned": options.plan, "finished": finished,
            "throttle": options.throttle, "bytes": total, "moves": list.collect::<Value>(),
        }));
    }
    if moves.is_empty() {
        return output.line("nothing to move: everything is where it shall be");
    }
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), bytes_text);
    let rows: Vec<_> = moves
        .iter()
        .map(|m| {
            let name = partition_name(&m.topic, m.partition);
            vec![name, id_list(&m.from), id_list(&m.to), size(copied_bytes(m, sizes))]
        })
        .collect();
    output.table(&["PARTITION", "FROM", "TO", "COPIES"], &rows)?;
    let verb = match (options.plan, finished) {
        (true, _) => "would move",
        (false, true) => "moved",
        (false, false) => "moving",
    };
    let throttled = match options.throttle {
        Some(rate) => format!(", at most {} a second at each node", bytes_text(rate)),
        None => String::new(),
    };
    output.line(&format!("{verb} {}: {} to copy{throttled}", count_of(moves.len(), "partition"), size(total)))
}

/// Puts the moves under a throttle.
async fn throttle(client: &Client, cluster: &ClusterView, moves: &[Move], rate: u64) -> Result<(), Failure> {
    for (topic, (leaders, followers)) in throttled_replicas(moves) {
        let set = vec![
            (THROTTLED_LEADERS.to_owned(), leaders.join(",")),
            (THROTTLED_FOLLOWERS.to_owned(), followers.join(",")),
        ];
        config::alter(client, &Resource::Topic(topic), &config::changes(set, vec![])?, false).await?;
    }
    let involved: BTreeSet<i32> = moves.iter().flat_map(|m| m.from.iter().chain(&m.to).copied()).collect();
    let set = RATES.map(|name| (name.to_owned(), rate.to_string())).to_vec();
    let changes = config::changes(set, vec![])?;
    // A node that is down takes no changes; it copies nothing either.
    for node in cluster.nodes.iter().filter(|node| !node.fenced && involved.contains(&node.id)) {
        config::alter(client, &Resource::Node(node.id), &changes, false).await?;
    }
    Ok(())
}

/// For each topic, `PARTITION:NODE` of the copies that are read from, and of those that are filled.
fn throttled_replicas(moves: &[Move]) -> BTreeMap<String, (Vec<String>, Vec<String>)> {
    let mut topics: BTreeMap<String, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for m in moves {
        let (leaders, followers) = topics.entry(m.topic.clone()).or_default();
        leaders.extend(m.from.iter().map(|node| format!("{}:{node}", m.partition)));
        followers.extend(m.adding().map(|node| format!("{}:{node}", m.partition)));
    }
    topics
}

/// Takes throttles away: the replicas of these topics, and the rates of all nodes that are up.
pub(crate) async fn end_throttle(
    client: &Client,
    cluster: &ClusterView,
    topics: &BTreeSet<String>,
) -> Result<(), Failure> {
    let of_topic =
        config::changes(vec![], vec![THROTTLED_LEADERS.to_owned(), THROTTLED_FOLLOWERS.to_owned()])?;
    for topic in topics {
        config::alter(client, &Resource::Topic(topic.clone()), &of_topic, false).await?;
    }
    let of_node = config::changes(vec![], RATES.map(str::to_owned).to_vec())?;
    for node in cluster.nodes.iter().filter(|node| !node.fenced) {
        config::alter(client, &Resource::Node(node.id), &of_node, false).await?;
    }
    Ok(())
}

/// How far a move is: bytes that the new copies have, and bytes that they will have.
pub(crate) fn progress(m: &UnderWay, leader: Option<i32>, sizes: &CopySizes) -> Option<(u64, u64)> {
    let whole = sizes.get(&m.topic, m.partition, leader?)?;
    let copied = |node: &i32| sizes.get(&m.topic, m.partition, *node).unwrap_or(0).min(whole);
    let count = u64::try_from(m.adding.len()).unwrap_or(0);
    Some((m.adding.iter().map(copied).sum(), whole.saturating_mul(count)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::captured;

    fn a_move() -> Move {
        Move { topic: "t".to_owned(), partition: 4, from: vec![1, 2], to: vec![2, 3] }
    }

    fn options(plan: bool) -> MoveOptions {
        MoveOptions { throttle: Some(1 << 20), wait: false, plan }
    }

    #[test]
    fn a_plan_says_what_would_be_copied_where() {
        let mut sizes = CopySizes::default();
        sizes.insert("t", 4, 3, 3 << 20);
        let text = captured(Format::Table, |output| {
            show(&[a_move()], &sizes, &options(true), false, output).unwrap();
        });
        assert_eq!(
            text,
            "PARTITION  FROM  TO   COPIES\n\
             t-4        1,2   2,3  3.0 MiB\n\
             would move 1 partition: 3.0 MiB to copy, at most 1.0 MiB a second at each node\n"
        );
        let text = captured(Format::Json, |output| {
            show(&[a_move()], &CopySizes::default(), &options(false), true, output).unwrap();
        });
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["planned"], &value["finished"]), (&json!(false), &json!(true)));
        assert_eq!(
            value["moves"][0],
            json!({
                "topic": "t", "partition": 4, "from": [1, 2], "to": [2, 3], "bytes": null
            })
        );
    }

    #[test]
    fn throttled_replicas_are_named_as_kafka_names_them() {
        let found = throttled_replicas(&[a_move()]);
        let lists = |leaders: &[&str], followers: &[&str]| {
            let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
            (own(leaders), own(followers))
        };
        assert_eq!(found["t"], lists(&["4:1", "4:2"], &["4:3"]));
    }

    #[test]
    fn progress_counts_the_new_copies_against_the_leader() {
        let mut sizes = CopySizes::default();
        sizes.insert("t", 0, 1, 100);
        sizes.insert("t", 0, 3, 40);
        let moving = UnderWay { topic: "t".to_owned(), adding: vec![3, 4], ..UnderWay::default() };
        assert_eq!(progress(&moving, Some(1), &sizes), Some((40, 200)));
        assert_eq!(progress(&moving, None, &sizes), None);
        assert_eq!(progress(&moving, Some(9), &sizes), None);
    }
}
