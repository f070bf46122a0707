//! `weir partition move` and `moves`: other replicas for partitions (KIP-455).

use std::collections::BTreeSet;

use kafka_wire::Client;
use serde_json::{Value, json};

use crate::cli::Global;
use crate::cluster_view::{self, CopySizes, PartitionView, TopicView, UnderWay, partition_name};
use crate::failure::Failure;
use crate::output::{Format, Output, id_list};
use crate::partition_selection::{NodeList, PartitionSelection, bytes_text, select, topic_names};
use crate::reassign::{self, MoveOptions};
use crate::replica_plan::{self, Move};

/// Arguments of `partition move`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("target").required(true)))]
pub(crate) struct MoveArgs {
    /// What to move: TOPIC for all of it, or TOPIC:0,2
    #[arg(value_name = "TOPIC[:PARTITIONS]", required_unless_present = "cancel")]
    partitions: Vec<PartitionSelection>,
    /// Exactly these nodes for each partition, the preferred leader first
    #[arg(long, value_name = "NODES", group = "target")]
    replicas: Option<NodeList>,
    /// Spread evenly over these nodes, with as few copies as possible
    #[arg(long, value_name = "NODES", group = "target")]
    onto: Option<NodeList>,
    /// Cancel moves that are under way, those of all partitions if none are named
    #[arg(long, group = "target", conflicts_with_all = ["throttle", "wait"])]
    cancel: bool,
    #[command(flatten)]
    options: MoveOptions,
}

/// Arguments of `partition moves`.
#[derive(Debug, clap::Args)]
pub(crate) struct MovesArgs {
    /// Take throttles of moves away, from all topics and nodes
    #[arg(long)]
    end_throttle: bool,
}

pub(super) async fn run(
    global: &Global,
    client: &Client,
    args: MoveArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    if args.cancel {
        return cancel(global, client, &args, output).await;
    }
    let topics = cluster_view::topics(client, Some(&topic_names(&args.partitions))).await?;
    let moving = cluster_view::under_way(client, global.change_timeout_ms()).await?;
    let selected = select(&topics, &args.partitions)?;
    let cluster = cluster_view::cluster(client).await?;
    let moves = match (&args.replicas, &args.onto) {
        (Some(NodeList(replicas)), _) => {
            cluster.hosts(Some(replicas))?;
            exactly(&selected, replicas)
        }
        (None, Some(NodeList(onto))) => {
            let hosts = cluster.hosts(Some(onto))?;
            let mut placed = cluster_view::placed(&topics, &moving);
            placed.retain(|p| selected.iter().any(|(t, s)| (&t.name, s.index) == (&p.topic, p.partition)));
            replica_plan::spread(&placed, &hosts)
                .map_err(|error| Failure::failed(error.to_string()).hint("name more nodes with --onto"))?
        }
        (None, None) => return Err(Failure::usage("give --replicas, --onto or --cancel")),
    };
    reassign::carry_out(global, client, &topics, &moves, &args.options, output).await
}

fn exactly(selected: &[(&TopicView, &PartitionView)], replicas: &[i32]) -> Vec<Move> {
    let changed = selected.iter().filter(|(_, partition)| partition.replicas != replicas);
    changed
        .map(|(topic, partition)| Move {
            topic: topic.name.clone(),
            partition: partition.index,
            from: partition.replicas.clone(),
            to: replicas.to_vec(),
        })
        .collect()
}

async fn cancel(
    global: &Global,
    client: &Client,
    args: &MoveArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let mut moving = cluster_view::under_way(client, global.change_timeout_ms()).await?;
    if !args.partitions.is_empty() {
        let topics = cluster_view::topics(client, Some(&topic_names(&args.partitions))).await?;
        let selected = select(&topics, &args.partitions)?;
        moving.retain(|m| selected.iter().any(|(t, p)| (&t.name, p.index) == (&m.topic, m.partition)));
    }
    if !args.options.plan && !moving.is_empty() {
        let targets = moving.iter().map(|m| (m.topic.as_str(), m.partition, None));
        reassign::submit(global, client, targets, output).await?;
    }
    show_cancelled(&moving, args.options.plan, output)
}

fn show_cancelled(moving: &[UnderWay], plan: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    if output.format == Format::Json {
        let list = moving.iter().map(|m| json!({ "topic": m.topic, "partition": m.partition }));
        let list = list.collect::<Value>();
        return output.json(&json!({ "action": "cancel", "planned": plan, "partitions": list }));
    }
    let verb = if plan { "would cancel" } else { "cancelled" };
    for m in moving {
        let name = partition_name(&m.topic, m.partition);
        output.line(&format!("{verb} the move of {name} to {}", id_list(&m.target())))?;
    }
    if moving.is_empty() { output.line("nothing is on the move") } else { Ok(()) }
}

pub(super) async fn under_way(
    global: &Global,
    client: &Client,
    args: &MovesArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let moving = cluster_view::under_way(client, global.change_timeout_ms()).await?;
    if args.end_throttle {
        let cluster = cluster_view::cluster(client).await?;
        let topics = cluster_view::topics(client, None).await?;
        let names: BTreeSet<String> =
            topics.into_iter().filter(|topic| !topic.internal).map(|topic| topic.name).collect();
        reassign::end_throttle(client, &cluster, &names).await?;
        output.note("took the throttles away")?;
    }
    let names: BTreeSet<String> = moving.iter().map(|m| m.topic.clone()).collect();
    let names: Vec<String> = names.into_iter().collect();
    let topics = cluster_view::topics(client, Some(&names)).await?;
    let leader = |m: &UnderWay| {
        let topic = topics.iter().find(|topic| topic.name == m.topic)?;
        topic.partitions.iter().find(|partition| partition.index == m.partition)?.leader
    };
    let nodes: BTreeSet<i32> =
        moving.iter().flat_map(|m| m.adding.iter().copied().chain(leader(m))).collect();
    let sizes = cluster_view::copy_sizes(client, nodes).await;
    show_moves(&moving, leader, &sizes, output)
}

fn show_moves(
    moving: &[UnderWay],
    leader: impl Fn(&UnderWay) -> Option<i32>,
    sizes: &CopySizes,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    if output.format == Format::Json {
        let list = moving.iter().map(|m| {
            let progress = reassign::progress(m, leader(m), sizes);
            json!({
                "topic": m.topic, "partition": m.partition, "replicas": m.replicas,
                "adding": m.adding, "removing": m.removing,
                "bytes_copied": progress.map(|(copied, _)| copied),
                "bytes": progress.map(|(_, whole)| whole),
            })
        });
        return output.json(&list.collect());
    }
    if moving.is_empty() {
        return output.line("nothing is on the move");
    }
    let rows: Vec<_> = moving
        .iter()
        .map(|m| {
            let progress = match reassign::progress(m, leader(m), sizes) {
                Some((copied, whole)) => format!("{} of {}", bytes_text(copied), bytes_text(whole)),
                None => "-".to_owned(),
            };
            let name = partition_name(&m.topic, m.partition);
            vec![name, id_list(&m.target()), id_list(&m.adding), id_list(&m.removing), progress]
        })
        .collect();
    output.table(&["PARTITION", "TO", "ADDING", "REMOVING", "COPIED"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::captured;

    fn moving() -> UnderWay {
        UnderWay {
            topic: "t".to_owned(),
            partition: 1,
            replicas: vec![1, 2, 3],
            adding: vec![3],
            removing: vec![1],
        }
    }

    #[test]
    fn moves_under_way_are_shown_with_what_is_copied() {
        let mut sizes = CopySizes::default();
        sizes.insert("t", 1, 2, 2048);
        sizes.insert("t", 1, 3, 1024);
        let show =
            |format| captured(format, |output| show_moves(&[moving()], |_| Some(2), &sizes, output).unwrap());
        assert_eq!(
            show(Format::Table),
            "PARTITION  TO   ADDING  REMOVING  COPIED\n\
             t-1        2,3       3         1  1.0 KiB of 2.0 KiB\n"
        );
        let value: Value = serde_json::from_str(&show(Format::Json)).unwrap();
        assert_eq!((&value[0]["bytes_copied"], &value[0]["bytes"]), (&json!(1024), &json!(2048)));
        let text = captured(Format::Table, |output| show_moves(&[], |_| None, &sizes, output).unwrap());
        assert_eq!(text, "nothing is on the move\n");
    }

    #[test]
    fn a_cancelled_move_is_named() {
        let text = captured(Format::Table, |output| show_cancelled(&[moving()], true, output).unwrap());
        assert_eq!(text, "would cancel the move of t-1 to 2,3\n");
    }

    #[test]
    fn partitions_that_are_there_already_do_not_move() {
        let partition = |index, replicas: &[i32]| PartitionView {
            index,
            replicas: replicas.to_vec(),
            ..PartitionView::default()
        };
        let topic = TopicView { name: "t".to_owned(), ..TopicView::default() };
        let (stays, goes) = (partition(0, &[2, 3]), partition(1, &[3, 2]));
        let moves = exactly(&[(&topic, &stays), (&topic, &goes)], &[2, 3]);
        assert_eq!(moves.len(), 1);
        assert_eq!((moves[0].partition, &moves[0].to[..]), (1, &[2, 3][..]));
    }
}
