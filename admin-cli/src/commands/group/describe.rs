//! `weir group describe`: the group, its members, and each partition's offset, lag, and time since the last commit.
//!
//! When an offset was committed, Kafka's protocol does not tell; against Apache Kafka the age is unknown.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::told;
use crate::failure::Failure;
use crate::groups::{Commit, Group, Groups, Member, TopicPartition, unknown};
use crate::offsets::{self, LATEST};
use crate::output::{Format, Output, printable};
use crate::time_text;

const HEADER: [&str; 9] =
    ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "COMMIT AGE", "MEMBER", "CLIENT", "HOST"];

/// A partition of a group, or a member without one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row<'a> {
    partition: Option<TopicPartition>,
    commit: Option<Commit>,
    end: Option<i64>,
    member: Option<&'a Member>,
}

impl Row<'_> {
    fn committed(&self) -> Option<i64> {
        self.commit.map(|commit| commit.offset)
    }

    /// Records between what is committed and the end. Less than zero if the log has lost its end since the commit.
    fn lag(&self) -> Option<i64> {
        Some(self.end? - self.committed()?)
    }
}

pub(super) async fn run(
    groups: Groups<'_>,
    name: &str,
    more: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let group = groups.describe(name).await?;
    let committed = groups.commits(name).await?;
    if group.is_none() && committed.is_empty() {
        return Err(unknown(name));
    }
    let members = group.as_ref().map_or(&[][..], |group| &group.members);
    let assigned = members.iter().filter_map(|member| member.assigned.as_ref()).flatten();
    let partitions: BTreeSet<TopicPartition> = committed.keys().chain(assigned).cloned().collect();
    let ends = ends(groups, &partitions, output).await?;
    let rows = rows(&partitions, &committed, &ends, members);
    if output.format == Format::Json {
        return output.json(&document(name, group.as_ref(), &rows));
    }
    if more {
        output.line("")?;
    }
    show_head(name, group.as_ref(), &rows, output)?;
    output.table(&HEADER, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Where the partitions end; nothing for those that are gone or do not answer, which is told.
async fn ends(
    groups: Groups<'_>,
    partitions: &BTreeSet<TopicPartition>,
    output: &mut Output<'_>,
) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let topics: BTreeSet<&str> = partitions.iter().map(|(topic, _)| topic.as_str()).collect();
    let mut ends = BTreeMap::new();
    for topic in topics {
        let found = match offsets::find_topic(groups.client, topic).await {
            Err(failure) if failure.is_not_found() => {
                output.note(&format!("topic {} does not exist any more", printable(topic)))?;
                continue;
            }
            found => offsets::list(groups.client, &found?, LATEST).await?,
        };
        for (partition, offset) in found {
            match offset {
                Ok(offset) => {
                    ends.insert((topic.to_owned(), partition), offset);
                }
                Err(code) => {
                    output.note(&format!("the end of {}-{partition}: {}", printable(topic), code.name()))?;
                }
            }
        }
    }
    Ok(ends)
}

fn rows<'a>(
    partitions: &BTreeSet<TopicPartition>,
    commits: &BTreeMap<TopicPartition, Commit>,
    ends: &BTreeMap<TopicPartition, i64>,
    members: &'a [Member],
) -> Vec<Row<'a>> {
    let mut owners: BTreeMap<&TopicPartition, &Member> = BTreeMap::new();
    for member in members {
        owners.extend(member.assigned.iter().flatten().map(|partition| (partition, member)));
    }
    let row = |partition: &TopicPartition| Row {
        partition: Some(partition.clone()),
        commit: commits.get(partition).copied(),
        end: ends.get(partition).copied(),
        member: owners.get(partition).copied(),
    };
    let idle = members.iter().filter(|member| member.assigned.as_ref().is_none_or(Vec::is_empty));
    let idle = idle.map(|member| Row { partition: None, commit: None, end: None, member: Some(member) });
    partitions.iter().map(row).chain(idle).collect()
}

/// How long ago it was committed, for people.
fn age(commit: Commit) -> String {
    commit.time.map_or_else(|| "unknown".to_owned(), |time| time_text::format_span(time.age_ms))
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let nothing = || "-".to_owned();
    let number = |number: Option<i64>| number.map_or_else(nothing, |number| number.to_string());
    let member = |text: fn(&Member) -> &str| row.member.map_or_else(nothing, |m| printable(text(m)));
    vec![
        row.partition.as_ref().map_or_else(nothing, |(topic, _)| printable(topic)),
        number(row.partition.as_ref().map(|(_, partition)| i64::from(*partition))),
        number(row.committed()),
        number(row.end),
        number(row.lag()),
        row.commit.map_or_else(nothing, age),
        member(|member| &member.id),
        member(|member| &member.client),
        member(|member| &member.host),
    ]
}

fn show_head(
    name: &str,
    group: Option<&Group>,
    rows: &[Row<'_>],
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    output.line(&format!("group     {}", printable(name)))?;
    match group {
        Some(group) => {
            let shown = |text: &str| printable(told(text).unwrap_or("-"));
            output.line(&format!("state     {}", shown(&group.state)))?;
            output.line(&format!(
                "protocol  {} / {}",
                shown(&group.protocol_type),
                shown(&group.protocol)
            ))?;
            output.line(&format!("node      {}", group.node))?;
            output.line(&format!("members   {}", group.members.len()))?;
        }
        None => output.line("members   cannot be shown: it is no group of the classic protocol")?,
    }
    let lag: i64 = rows.iter().filter_map(Row::lag).fold(0, i64::saturating_add);
    output.line(&format!("lag       {lag}"))
}

fn document(name: &str, group: Option<&Group>, rows: &[Row<'_>]) -> Value {
    let partitions = rows.iter().filter_map(|row| {
        let (topic, partition) = row.partition.as_ref()?;
        let time = row.commit.and_then(|commit| commit.time);
        Some(json!({
            "topic": topic,
            "partition": partition,
            "committed": row.committed(),
            "committed_at_ms": time.map(|time| time.at_ms),
            "commit_age_ms": time.map(|time| time.age_ms),
            "end": row.end,
            "lag": row.lag(),
            "member": row.member.map(|member| &member.id),
            "client": row.member.map(|member| &member.client),
            "host": row.member.map(|member| &member.host),
        }))
    });
    let member = |member: &Member| {
        json!({
            "member": member.id,
            "instance": member.instance,
            "client": member.client,
            "host": member.host,
            "partitions": member.assigned.as_ref().map(|list| {
                list.iter()
                    .map(|(topic, partition)| json!({ "topic": topic, "partition": partition }))
                    .collect::<Vec<_>>()
            }),
        })
    };
    json!({
        "group": name,
        "state": group.map(|group| &group.state),
        "protocol_type": group.map(|group| &group.protocol_type),
        "protocol": group.map(|group| &group.protocol),
        "node": group.map(|group| group.node),
        "members": group.map(|group| group.members.iter().map(member).collect::<Vec<_>>()),
        "partitions": partitions.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::CommitTime;
    use crate::output::captured;

    fn member(id: &str, assigned: &[(&str, i32)]) -> Member {
        let assigned = assigned.iter().map(|(topic, partition)| ((*topic).to_owned(), *partition));
        Member {
            id: id.to_owned(),
            instance: None,
            client: "app".to_owned(),
            host: "/10.0.0.1".to_owned(),
            assigned: Some(assigned.collect()),
        }
    }

    #[test]
    fn partitions_are_shown_with_lag_and_owner_and_idle_members_follow() {
        let key = |partition| ("t".to_owned(), partition);
        let partitions: BTreeSet<_> = [key(0), key(1), key(2)].into();
        let time = CommitTime { at_ms: 1_700_000_000_000, age_ms: 65_000 };
        let told = Commit { offset: 5, time: Some(time) };
        let commits: BTreeMap<_, _> = [(key(0), told), (key(2), Commit { offset: 9, time: None })].into();
        let ends: BTreeMap<_, _> = [(key(0), 8), (key(1), 4)].into();
        let members = [member("a", &[("t", 0), ("t", 1)]), member("b", &[])];
        let rows = rows(&partitions, &commits, &ends, &members);
        let lags: Vec<_> = rows.iter().map(Row::lag).collect();
        assert_eq!(lags, [Some(3), None, None, None]);
        let text = captured(Format::Table, |output| {
            output
                .table(
                    &["T", "P", "C", "E", "L", "A", "M", "CL", "H"],
                    &rows.iter().map(cells).collect::<Vec<_>>(),
                )
                .unwrap();
        });
        assert_eq!(
            text,
            "T  P  C  E  L  A        M  CL   H\n\
             t  0  5  8  3  1m 5s    a  app  /10.0.0.1\n\
             t  1  -  4  -  -        a  app  /10.0.0.1\n\
             t  2  9  -  -  unknown  -  -    -\n\
             -  -  -  -  -  -        b  app  /10.0.0.1\n"
        );
        let shown = document("g", None, &rows);
        assert_eq!(shown["partitions"].as_array().unwrap().len(), 3);
        assert_eq!(shown["partitions"][0]["lag"], 3);
        assert_eq!(shown["partitions"][0]["commit_age_ms"], 65_000);
        assert_eq!(shown["partitions"][0]["committed_at_ms"], 1_700_000_000_000_i64);
        assert!(shown["partitions"][2]["commit_age_ms"].is_null());
        assert!(shown["state"].is_null());
    }
}
