//! `weir partition elect`: elections by request (KIP-460).

use std::collections::BTreeMap;

use kafka_wire::Client;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::elect_leaders::{ElectLeadersRequest, ElectLeadersResponse, TopicPartitions};
use serde_json::json;

use crate::cli::Global;
use crate::cluster_view::{self, ClusterView, PartitionView, TopicView, partition_name};
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::partition_selection::{PartitionSelection, select, topic_names};

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

/// Arguments of `partition elect`.
#[derive(Debug, clap::Args)]
pub(crate) struct ElectArgs {
    /// Where: TOPIC for all of it, or TOPIC:0,2
    #[arg(value_name = "TOPIC[:PARTITIONS]", required_unless_present = "all")]
    partitions: Vec<PartitionSelection>,
    /// Every partition where it makes a difference
    #[arg(long, conflicts_with_all = ["partitions", "unclean"])]
    all: bool,
    /// Let any live replica lead where none that is in sync is left. RECORDS THAT WERE ACKNOWLEDGED MAY BE LOST
    #[arg(long)]
    unclean: bool,
    /// Only show what would be elected
    #[arg(long)]
    plan: bool,
}

/// What an election would do at a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Forecast {
    /// Nothing to do.
    NotNeeded(&'static str),
    /// This node would lead.
    Leader(i32),
    /// A live replica would lead; the controllers choose which.
    AnyOf(Vec<i32>),
    /// It would be refused.
    Refused(String),
}

pub(super) async fn run(
    global: &Global,
    client: &Client,
    args: ElectArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let names = topic_names(&args.partitions);
    let topics = cluster_view::topics(client, if args.all { None } else { Some(&names) }).await?;
    let all = topics.iter().flat_map(|topic| topic.partitions.iter().map(move |p| (topic, p)));
    let selected: Vec<_> = if args.all { all.collect() } else { select(&topics, &args.partitions)? };
    let cluster = cluster_view::cluster(client).await?;
    if args.plan {
        for (topic, partition) in selected {
            let forecast = forecast(&cluster, partition, args.unclean);
            if args.all && matches!(forecast, Forecast::NotNeeded(_)) {
                continue;
            }
            show_forecast(topic, partition, &forecast, args.unclean, output)?;
        }
        return Ok(());
    }
    let wanted: Vec<_> = selected
        .into_iter()
        .filter(|(_, partition)| {
            !args.all || !matches!(forecast(&cluster, partition, false), Forecast::NotNeeded(_))
        })
        .collect();
    if wanted.is_empty() {
        return output.line("nothing to elect: the preferred replicas lead");
    }
    let response = client.call(&request(global, &wanted, args.unclean)).await?;
    if !response.error_code.is_none() {
        return Err(Failure::refused("elect leaders", response.error_code, None));
    }
    let names: Vec<String> = wanted.iter().map(|(topic, _)| topic.name.clone()).collect();
    let now = cluster_view::topics(client, Some(&names)).await?;
    show_elected(&response, &topics, &now, args.unclean, output)
}

fn request(global: &Global, wanted: &[(&TopicView, &PartitionView)], unclean: bool) -> ElectLeadersRequest {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in wanted {
        topics.entry(&topic.name).or_default().push(partition.index);
    }
    let topic = |(topic, partitions): (&str, _)| TopicPartitions { topic: topic.into(), partitions };
    ElectLeadersRequest {
        election_type: if unclean { UNCLEAN } else { PREFERRED },
        topic_partitions: Some(topics.into_iter().map(topic).collect()),
        timeout_ms: global.change_timeout_ms(),
    }
}

fn forecast(cluster: &ClusterView, partition: &PartitionView, unclean: bool) -> Forecast {
    let live = |id: &i32| cluster.nodes.iter().any(|node| node.id == *id && !node.fenced);
    if unclean {
        if partition.leader.is_some() {
            return Forecast::NotNeeded("it has a leader");
        }
        let candidates: Vec<i32> = partition.replicas.iter().copied().filter(live).collect();
        return match candidates.is_empty() {
            true => Forecast::Refused("no replica is alive".to_owned()),
            false => Forecast::AnyOf(candidates),
        };
    }
    let Some(preferred) = partition.replicas.first() else {
        return Forecast::Refused("it has no replicas".to_owned());
    };
    if partition.leader == Some(*preferred) {
        Forecast::NotNeeded("its preferred replica leads")
    } else if !live(preferred) {
        Forecast::Refused(format!("its preferred node, {preferred}, is not alive"))
    } else if !partition.isr.contains(preferred) {
        Forecast::Refused(format!("its preferred node, {preferred}, is not in sync"))
    } else {
        Forecast::Leader(*preferred)
    }
}

fn leader_text(leader: Option<i32>) -> String {
    leader.map_or_else(|| "none".to_owned(), |id| id.to_string())
}

fn show_forecast(
    topic: &TopicView,
    partition: &PartitionView,
    forecast: &Forecast,
    unclean: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let name = partition_name(&topic.name, partition.index);
    let from = leader_text(partition.leader);
    let (to, refused, sentence) = match forecast {
        Forecast::NotNeeded(why) => (partition.leader, None, format!("{name} would stay as it is: {why}")),
        Forecast::Leader(id) => (Some(*id), None, format!("would elect a leader of {name}: {from} -> {id}")),
        Forecast::AnyOf(ids) => {
            let ids: Vec<_> = ids.iter().map(i32::to_string).collect();
            let sentence = format!(
                "would elect a leader of {name} uncleanly: {from} -> one of {}; records may be lost",
                ids.join(", ")
            );
            (None, None, sentence)
        }
        Forecast::Refused(why) => (None, Some(why), format!("{name} would be refused: {why}")),
    };
    match output.format {
        Format::Table => output.line(&sentence),
        Format::Json => output.json(&json!({
            "topic": topic.name, "partition": partition.index, "action": "elect", "planned": true,
            "unclean": unclean, "from": partition.leader, "to": to, "refused": refused,
        })),
    }
}

fn show_elected(
    response: &ElectLeadersResponse,
    before: &[TopicView],
    now: &[TopicView],
    unclean: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let leader = |topics: &[TopicView], name: &str, index: i32| {
        let topic = topics.iter().find(|topic| topic.name == name)?;
        topic.partitions.iter().find(|partition| partition.index == index)?.leader
    };
    let mut failures = Vec::new();
    for topic in &response.replica_election_results {
        for result in &topic.partition_result {
            let name = partition_name(&topic.topic, result.partition_id);
            let from = leader(before, &topic.topic, result.partition_id);
            let to = leader(now, &topic.topic, result.partition_id);
            let elected = match result.error_code {
                ErrorCode::None => true,
                ErrorCode::ElectionNotNeeded => false,
                code => {
                    let what = format!("elect a leader of {name}");
                    failures.push(Failure::refused(what, code, result.error_message.as_deref()));
                    continue;
                }
            };
            match output.format {
                Format::Json => output.json(&json!({
                    "topic": &*topic.topic, "partition": result.partition_id, "action": "elect",
                    "planned": false, "unclean": unclean, "elected": elected, "from": from, "to": to,
                }))?,
                Format::Table if elected => {
                    let (from, to) = (leader_text(from), leader_text(to));
                    output.line(&format!("elected a leader of {name}: {from} -> {to}"))?;
                }
                Format::Table => output.line(&format!("{name} needs no election"))?,
            }
        }
    }
    crate::commands::topic::first_of(failures, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_view::NodeView;
    use crate::output::captured;
    use kafka_wire_core::messages::elect_leaders::{PartitionResult, ReplicaElectionResult};

    fn cluster() -> ClusterView {
        let node = |id, fenced| NodeView { id, fenced, ..NodeView::default() };
        ClusterView { nodes: vec![node(1, false), node(2, false), node(3, true)], ..ClusterView::default() }
    }

    fn partition(leader: Option<i32>, replicas: &[i32], isr: &[i32]) -> PartitionView {
        PartitionView { leader, replicas: replicas.to_vec(), isr: isr.to_vec(), ..PartitionView::default() }
    }

    #[test]
    fn a_plan_foresees_what_the_controllers_would_do() {
        let see = |partition: &PartitionView, unclean| forecast(&cluster(), partition, unclean);
        assert_eq!(see(&partition(Some(2), &[1, 2], &[1, 2]), false), Forecast::Leader(1));
        assert!(matches!(see(&partition(Some(1), &[1, 2], &[1]), false), Forecast::NotNeeded(_)));
        assert!(matches!(see(&partition(Some(2), &[1, 2], &[2]), false), Forecast::Refused(_)));
        assert!(matches!(see(&partition(Some(2), &[3, 2], &[2, 3]), false), Forecast::Refused(_)));
        assert_eq!(see(&partition(None, &[3, 2, 1], &[3]), true), Forecast::AnyOf(vec![2, 1]));
        assert!(matches!(see(&partition(None, &[3], &[3]), true), Forecast::Refused(_)));
        assert!(matches!(see(&partition(Some(2), &[3, 2], &[2]), true), Forecast::NotNeeded(_)));
    }

    #[test]
    fn results_tell_the_old_and_the_new_leader() {
        let topic = |leader| TopicView {
            name: "t".to_owned(),
            partitions: vec![partition(Some(leader), &[1, 2], &[1, 2])],
            ..TopicView::default()
        };
        let result = |partition_id, error_code| PartitionResult {
            partition_id,
            error_code,
            ..PartitionResult::default()
        };
        let response = ElectLeadersResponse {
            replica_election_results: vec![ReplicaElectionResult {
                topic: "t".into(),
                partition_result: vec![result(0, ErrorCode::None), result(1, ErrorCode::ElectionNotNeeded)],
            }],
            ..ElectLeadersResponse::default()
        };
        let text = captured(Format::Table, |output| {
            show_elected(&response, &[topic(2)], &[topic(1)], false, output).unwrap();
        });
        assert_eq!(text, "elected a leader of t-0: 2 -> 1\nt-1 needs no election\n");
        let mut refused = response;
        refused.replica_election_results[0].partition_result[0].error_code =
            ErrorCode::PreferredLeaderNotAvailable;
        let mut output = Output::new(Format::Table, std::io::sink(), std::io::sink(), false);
        let failure = show_elected(&refused, &[topic(2)], &[topic(2)], false, &mut output).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
    }
}
