//! `weir group reset`: sets what a group has committed. Without `--execute` it shows the plan and changes nothing.
//!
//! A group is reset only while nobody is in it: its members keep their positions in memory and would commit them over the
//! reset. The coordinator refuses such commits too, so a member that joins between look and commit does no harm.

use std::collections::{BTreeMap, BTreeSet};

use kafka_wire::Client;
use kafka_wire_core::messages::metadata::MetadataResponseTopic;
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use serde_json::json;

use crate::clock::wall_ms;
use crate::failure::Failure;
use crate::groups::{Groups, NAMED_TOPICS_MAX, TopicPartition, unknown};
use crate::offsets::{self, EARLIEST, LATEST, find_topic};
use crate::output::{Format, Output, printable};
use crate::partition_selection::PartitionSelection;
use crate::time_text;

/// Arguments of `group reset`.
#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true), group = clap::ArgGroup::new("to").required(true))]
pub(crate) struct ResetArgs {
    /// The group
    group: String,
    /// Partitions to reset, all of a topic or those after the colon; may be repeated
    #[arg(long = "topic", short, value_name = "TOPIC[:0,1,..]", group = "which")]
    topics: Vec<PartitionSelection>,
    /// Reset all partitions that the group has committed
    #[arg(long, group = "which")]
    all_topics: bool,
    /// To the first record that is there
    #[arg(long, group = "to")]
    to_earliest: bool,
    /// To the end: only what comes from now on
    #[arg(long, group = "to")]
    to_latest: bool,
    /// To this offset
    #[arg(long, value_name = "N", group = "to", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// By so many records forward, or back with -N
    #[arg(long, value_name = "N", group = "to", allow_negative_numbers = true)]
    shift_by: Option<i64>,
    #[arg(long, value_name = "TIME", group = "to", help = time_help())]
    to_time: Option<String>,
    #[arg(long, value_name = "DURATION", group = "to", help = duration_help(), value_parser = time_text::parse_duration)]
    by_duration: Option<i64>,
    /// Do it; otherwise only the plan is shown
    #[arg(long)]
    execute: bool,
}

fn time_help() -> String {
    format!("To the first record of this time or later: {}", time_text::FORMS)
}

fn duration_help() -> String {
    format!("To the first record that is no older than this: {}", time_text::DURATION_FORMS)
}

/// Where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Earliest,
    Latest,
    Offset(i64),
    Shift(i64),
    /// Milliseconds since 1970.
    Time(i64),
}

impl ResetArgs {
    fn goal(&self, now_ms: i64) -> Result<Goal, Failure> {
        if let Some(text) = &self.to_time {
            return Ok(Goal::Time(time_text::parse(text, now_ms).map_err(Failure::usage)?.max(0)));
        }
        if let Some(ago) = self.by_duration {
            return Ok(Goal::Time(now_ms.saturating_sub(ago).max(0)));
        }
        Ok(match (self.to_offset, self.shift_by) {
            (Some(offset), _) => Goal::Offset(offset),
            (None, Some(shift)) => Goal::Shift(shift),
            (None, None) if self.to_earliest => Goal::Earliest,
            // One of the group of options is required.
            (None, None) => Goal::Latest,
        })
    }
}

/// What is there of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    start: i64,
    end: i64,
    /// The first record of the time that was asked for; none if no record is that young.
    at_time: Option<i64>,
}

/// A new offset, and what should be known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    offset: i64,
    note: Option<String>,
}

/// The new offset of a partition; none if it cannot be told.
fn target(goal: Goal, committed: Option<i64>, extent: Extent) -> Option<Target> {
    let (wanted, note) = match goal {
        Goal::Earliest => (extent.start, None),
        Goal::Latest => (extent.end, None),
        Goal::Offset(offset) => (offset, None),
        Goal::Shift(shift) => (committed?.saturating_add(shift), None),
        Goal::Time(_) => match extent.at_time {
            Some(offset) => (offset, None),
            None => (extent.end, Some("no record is that young: to the end".to_owned())),
        },
    };
    let offset = wanted.clamp(extent.start, extent.end.max(extent.start));
    let note = match wanted.cmp(&offset) {
        std::cmp::Ordering::Less => Some(format!("{wanted} is before the first record: to {offset}")),
        std::cmp::Ordering::Greater => Some(format!("{wanted} is beyond the end: to {offset}")),
        std::cmp::Ordering::Equal => note,
    };
    Some(Target { offset, note })
}

/// A partition with its old and new offset.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    partition: TopicPartition,
    from: Option<i64>,
    to: i64,
    end: i64,
    note: Option<String>,
}

pub(super) async fn run(groups: Groups<'_>, args: ResetArgs, output: &mut Output<'_>) -> Result<(), Failure> {
    let goal = args.goal(wall_ms())?;
    let group = groups.describe(&args.group).await?;
    if let Some(group) = group.as_ref().filter(|group| !group.is_without_members()) {
        return Err(group.is_active("reset offsets"));
    }
    let committed = groups.committed(&args.group).await?;
    if args.all_topics && group.is_none() && committed.is_empty() {
        return Err(unknown(&args.group));
    }
    let chosen = choose(groups.client, &args, &committed, output).await?;
    let mut steps = Vec::new();
    for (topic, partitions) in &chosen {
        let extents = extents(groups.client, topic, partitions, goal).await?;
        for (partition, extent) in extents {
            let key = (topic.name.as_deref().unwrap_or_default().to_owned(), partition);
            let from = committed.get(&key).copied();
            match target(goal, from, extent) {
                Some(Target { offset, note }) => {
                    steps.push(Step { partition: key, from, to: offset, end: extent.end, note });
                }
                None => output.note(&format!(
                    "{}-{partition} is left alone: nothing is committed that could be shifted",
                    printable(&key.0)
                ))?,
            }
        }
    }
    if steps.is_empty() {
        return Err(Failure::failed(format!("group {} has nothing to reset", printable(&args.group)))
            .hint("`weir group describe` shows what it has committed; --topic takes partitions without an offset too"));
    }
    if args.execute {
        commit(groups, &args.group, &steps).await?;
    }
    show(&args.group, &steps, args.execute, output)
}

/// The partitions to reset, by topic.
async fn choose(
    client: &Client,
    args: &ResetArgs,
    committed: &BTreeMap<TopicPartition, i64>,
    output: &mut Output<'_>,
) -> Result<Vec<(MetadataResponseTopic, BTreeSet<i32>)>, Failure> {
    let mut chosen = Vec::new();
    if args.all_topics {
        let mut by_topic: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
        for (topic, partition) in committed.keys() {
            by_topic.entry(topic).or_default().insert(*partition);
        }
        for (name, partitions) in by_topic {
            match find_topic(client, name).await {
                Err(failure) if failure.is_not_found() => {
                    output.note(&format!("topic {} does not exist any more", printable(name)))?;
                }
                topic => chosen.push((topic?, partitions)),
            }
        }
        return Ok(chosen);
    }
    let names: BTreeSet<&str> = args.topics.iter().map(|selection| selection.topic.as_str()).collect();
    for name in names {
        let topic = find_topic(client, name).await?;
        let there: BTreeSet<i32> = topic.partitions.iter().map(|p| p.partition_index).collect();
        let of_topic = args.topics.iter().filter(|selection| selection.topic == name);
        let mut named = of_topic.filter_map(|selection| selection.partitions.as_ref()).flatten();
        if let Some(missing) = named.find(|partition| !there.contains(partition)) {
            return Err(Failure::not_found(format!(
                "topic {} has no partition {missing}; it has {}",
                printable(name),
                there.len()
            )));
        }
        let wanted = |partition: &i32| args.topics.iter().any(|s| s.includes(name, *partition));
        let partitions = there.into_iter().filter(wanted).collect();
        chosen.push((topic, partitions));
    }
    Ok(chosen)
}

/// What is there of these partitions; one that does not answer is a failure.
async fn extents(
    client: &Client,
    topic: &MetadataResponseTopic,
    partitions: &BTreeSet<i32>,
    goal: Goal,
) -> Result<BTreeMap<i32, Extent>, Failure> {
    let mut topic = topic.clone();
    topic.partitions.retain(|partition| partitions.contains(&partition.partition_index));
    let starts = offsets::all(client, &topic, EARLIEST).await?;
    let ends = offsets::all(client, &topic, LATEST).await?;
    let at_times = match goal {
        Goal::Time(timestamp) => offsets::all(client, &topic, timestamp).await?,
        Goal::Earliest | Goal::Latest | Goal::Offset(_) | Goal::Shift(_) => BTreeMap::new(),
    };
    let extent = |(partition, start): (i32, i64)| {
        let end = ends.get(&partition).copied().unwrap_or(start);
        let at_time = at_times.get(&partition).copied().filter(|offset| *offset >= 0);
        (partition, Extent { start, end, at_time })
    };
    Ok(starts.into_iter().map(extent).collect())
}

/// Commits the plan as one request, which the coordinator takes or refuses by partition.
async fn commit(groups: Groups<'_>, group: &str, steps: &[Step]) -> Result<(), Failure> {
    let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for step in steps {
        let (topic, partition_index) = &step.partition;
        topics.entry(topic).or_default().push(OffsetCommitRequestPartition {
            partition_index: *partition_index,
            committed_offset: step.to,
            committed_metadata: Some(Str::default()),
            ..Default::default()
        });
    }
    let topic = |(name, partitions): (&&str, &Vec<OffsetCommitRequestPartition>)| OffsetCommitRequestTopic {
        name: Str::from(*name),
        partitions: partitions.clone(),
        ..Default::default()
    };
    let request = |_| OffsetCommitRequest {
        group_id: Str::from(group),
        topics: topics.iter().map(topic).collect(),
        ..Default::default()
    };
    let (_, response) = groups.call(group, NAMED_TOPICS_MAX, request, commit_code).await?;
    match commit_code(&response) {
        ErrorCode::None => Ok(()),
        code @ (ErrorCode::UnknownMemberId
        | ErrorCode::IllegalGeneration
        | ErrorCode::RebalanceInProgress) => {
            // Somebody joined after the look at the group.
            match groups.describe(group).await? {
                Some(group) if !group.is_without_members() => Err(group.is_active("reset offsets")),
                _ => Err(refused(group, code)),
            }
        }
        code => Err(refused(group, code)),
    }
}

fn refused(group: &str, code: ErrorCode) -> Failure {
    Failure::refused(format!("reset offsets of group {}", printable(group)), code, None)
}

/// The first refusal of a partition.
fn commit_code(response: &OffsetCommitResponse) -> ErrorCode {
    let mut codes = response.topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code);
    codes.find(|code| !code.is_none()).unwrap_or(ErrorCode::None)
}

fn show(group: &str, steps: &[Step], executed: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    if output.format == Format::Json {
        let partitions = steps.iter().map(|step| {
            json!({
                "topic": step.partition.0,
                "partition": step.partition.1,
                "from": step.from,
                "to": step.to,
                "end": step.end,
                "lag": step.end - step.to,
                "note": step.note,
            })
        });
        return output.json(&json!({
            "group": group,
            "action": "reset",
            "planned": !executed,
            "partitions": partitions.collect::<Vec<_>>(),
        }));
    }
    let verb = if executed { "reset" } else { "would reset" };
    output.line(&format!("{verb} offsets of group {}", printable(group)))?;
    let noted = steps.iter().any(|step| step.note.is_some());
    let row = |step: &Step| {
        let from = step.from.map_or_else(|| "-".to_owned(), |from| from.to_string());
        let (topic, partition) = &step.partition;
        let numbers = [partition.to_string(), from, step.to.to_string(), (step.end - step.to).to_string()];
        let note = noted.then(|| step.note.clone().unwrap_or_default());
        std::iter::once(printable(topic)).chain(numbers).chain(note).collect()
    };
    let header = ["TOPIC", "PARTITION", "FROM", "TO", "LAG", "NOTE"];
    let rows: Vec<Vec<String>> = steps.iter().map(row).collect();
    output.table(&header[..if noted { 6 } else { 5 }], &rows)?;
    if executed { Ok(()) } else { output.note("nothing was changed; --execute does it") }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::output::captured;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ResetArgs,
    }

    fn goal(options: &[&str]) -> Goal {
        let line = Line::try_parse_from([&["reset", "g", "--all-topics"], options].concat()).unwrap();
        line.args.goal(1_000_000).unwrap()
    }

    #[test]
    fn goals_are_read_from_the_options() {
        assert_eq!(goal(&["--to-earliest"]), Goal::Earliest);
        assert_eq!(goal(&["--to-latest"]), Goal::Latest);
        assert_eq!(goal(&["--to-offset", "7"]), Goal::Offset(7));
        assert_eq!(goal(&["--shift-by", "-7"]), Goal::Shift(-7));
        assert_eq!(goal(&["--to-time", "@5"]), Goal::Time(5000));
        assert_eq!(goal(&["--by-duration", "PT10M"]), Goal::Time(400_000));
        assert_eq!(goal(&["--by-duration", "1w"]), Goal::Time(0));
    }

    #[test]
    fn targets_stay_within_the_log_and_say_so() {
        let extent = Extent { start: 10, end: 20, at_time: Some(13) };
        let plain = |goal, committed| target(goal, committed, extent).map(|t| (t.offset, t.note.is_some()));
        assert_eq!(plain(Goal::Earliest, None), Some((10, false)));
        assert_eq!(plain(Goal::Latest, Some(3)), Some((20, false)));
        assert_eq!(plain(Goal::Offset(15), None), Some((15, false)));
        assert_eq!(plain(Goal::Offset(9), None), Some((10, true)));
        assert_eq!(plain(Goal::Offset(21), None), Some((20, true)));
        assert_eq!(plain(Goal::Shift(-3), Some(15)), Some((12, false)));
        assert_eq!(plain(Goal::Shift(i64::MIN), Some(15)), Some((10, true)));
        assert_eq!(plain(Goal::Shift(i64::MAX), Some(15)), Some((20, true)));
        assert_eq!(plain(Goal::Shift(1), None), None);
        assert_eq!(plain(Goal::Time(5), None), Some((13, false)));
        let old = Extent { at_time: None, ..extent };
        assert_eq!(target(Goal::Time(5), None, old).unwrap().offset, 20);
        let beyond = target(Goal::Offset(21), None, extent).unwrap();
        assert_eq!(beyond.note.as_deref(), Some("21 is beyond the end: to 20"));
    }

    #[test]
    fn a_plan_says_that_it_is_one() {
        let mut step = Step { partition: ("t".to_owned(), 0), from: None, to: 10, end: 20, note: None };
        let text = |step: &Step, executed| {
            captured(Format::Table, |output| show("g", std::slice::from_ref(step), executed, output).unwrap())
        };
        assert_eq!(
            text(&step, false),
            "would reset offsets of group g\nTOPIC  PARTITION  FROM  TO  LAG\nt              0     -  10   10\n"
        );
        step.note = Some("why".to_owned());
        assert!(text(&step, true).starts_with("reset offsets of group g\n"));
        assert!(text(&step, true).ends_with("10   10  why\n"));
    }
}
