//! `weir group delete`: groups with all that they have committed, or only their offsets of some topics.

use std::collections::BTreeMap;

use kafka_wire_core::messages::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
use kafka_wire_core::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic, OffsetDeleteResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use serde_json::json;

use crate::commands::topic::first_of;
use crate::failure::Failure;
use crate::groups::{Groups, TopicPartition, first_code, unknown};
use crate::output::{Format, Output, printable};
use crate::partition_selection::PartitionSelection;

/// Arguments of `group delete`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Names of groups
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    /// Only delete the offsets of these partitions; may be repeated. A group that does not read them may be in use
    #[arg(long = "topic", short, value_name = "TOPIC[:0,1,..]")]
    topics: Vec<PartitionSelection>,
    /// Groups that do not exist are no error
    #[arg(long)]
    if_exists: bool,
    /// Only show what would be deleted
    #[arg(long)]
    plan: bool,
}

pub(super) async fn run(
    groups: Groups<'_>,
    args: DeleteArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for name in &args.groups {
        let deleted = if args.topics.is_empty() {
            delete_group(groups, name, args.plan, output).await
        } else {
            delete_offsets(groups, name, &args, output).await
        };
        match deleted {
            Ok(()) => {}
            Err(failure) if args.if_exists && failure.is_not_found() => {
                show(
                    name,
                    "absent",
                    args.plan,
                    0,
                    &format!("group {} does not exist", printable(name)),
                    output,
                )?;
            }
            Err(failure) => failures.push(failure),
        }
    }
    first_of(failures, output)
}

async fn delete_group(
    groups: Groups<'_>,
    name: &str,
    plan: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let what = format!("delete group {}", printable(name));
    let group = groups.describe(name).await?;
    if let Some(group) = group.as_ref().filter(|group| !group.is_without_members()) {
        return Err(group.is_active(&what));
    }
    let committed = groups.committed(name).await?;
    if group.is_none() && committed.is_empty() {
        return Err(unknown(name));
    }
    if !plan {
        let request = |_| DeleteGroupsRequest { groups_names: vec![Str::from(name)] };
        let code =
            |response: &DeleteGroupsResponse| first_code(&response.results, |result| result.error_code);
        let (_, response) = groups.call(name, i16::MAX, request, code).await?;
        let message = response.results.first().and_then(|result| result.error_message.as_deref());
        match code(&response) {
            ErrorCode::None => {}
            ErrorCode::GroupIdNotFound => return Err(unknown(name)),
            code => return Err(Failure::refused(what, code, message)),
        }
    }
    let verb = if plan { "would delete" } else { "deleted" };
    let sentence = format!("{verb} group {} with offsets of {} partitions", printable(name), committed.len());
    show(name, "delete", plan, committed.len(), &sentence, output)
}

async fn delete_offsets(
    groups: Groups<'_>,
    name: &str,
    args: &DeleteArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let committed = groups.committed(name).await?;
    if committed.is_empty() && groups.describe(name).await?.is_none() {
        return Err(unknown(name));
    }
    let wanted = |(topic, partition): &&TopicPartition| {
        args.topics.iter().any(|selection| selection.includes(topic, *partition))
    };
    let mut topics: BTreeMap<&str, Vec<OffsetDeleteRequestPartition>> = BTreeMap::new();
    for (topic, partition_index) in committed.keys().filter(wanted) {
        let partition_index = *partition_index;
        topics.entry(topic).or_default().push(OffsetDeleteRequestPartition { partition_index });
    }
    let count = topics.values().map(Vec::len).sum();
    if count == 0 {
        let name = printable(name);
        return Err(Failure::failed(format!("group {name} has committed nothing of these topics"))
            .hint(format!("`weir group describe {name}` shows what it has committed")));
    }
    if !args.plan {
        let topic = |(topic, partitions): (&&str, &Vec<OffsetDeleteRequestPartition>)| {
            OffsetDeleteRequestTopic { name: Str::from(*topic), partitions: partitions.clone() }
        };
        let request =
            |_| OffsetDeleteRequest { group_id: Str::from(name), topics: topics.iter().map(topic).collect() };
        let (_, response) = groups.call(name, i16::MAX, request, |response| response.error_code).await?;
        refuse(name, &response)?;
    }
    let verb = if args.plan { "would delete" } else { "deleted" };
    let sentence = format!("{verb} offsets of {count} partitions of group {}", printable(name));
    show(name, "delete_offsets", args.plan, count, &sentence, output)
}

/// The first refusal of an answer, if there is one.
fn refuse(group: &str, response: &OffsetDeleteResponse) -> Result<(), Failure> {
    if !response.error_code.is_none() {
        let what = format!("delete offsets of group {}", printable(group));
        return Err(Failure::refused(what, response.error_code, None));
    }
    for topic in &response.topics {
        for partition in &topic.partitions {
            let (name, index) = (printable(&topic.name), partition.partition_index);
            let group = printable(group);
            match partition.error_code {
                ErrorCode::None => {}
                ErrorCode::GroupSubscribedToTopic => {
                    return Err(Failure::failed(format!(
                        "cannot delete the offset of {name}-{index}: members of group {group} read topic {name}"
                    ))
                    .hint(format!("stop them first; `weir group describe {group}` shows who they are")));
                }
                code => {
                    let what = format!("delete the offset of {name}-{index} of group {group}");
                    return Err(Failure::refused(what, code, None));
                }
            }
        }
    }
    Ok(())
}

fn show(
    name: &str,
    action: &str,
    plan: bool,
    partitions: usize,
    sentence: &str,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    match output.format {
        Format::Json => output
            .json(&json!({ "group": name, "action": action, "planned": plan, "partitions": partitions })),
        Format::Table => output.line(sentence),
    }
}

#[cfg(test)]
mod tests {
    use kafka_wire_core::messages::offset_delete::{
        OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
    };

    use super::*;

    #[test]
    fn a_topic_that_members_read_keeps_its_offsets() {
        let response = |error_code| OffsetDeleteResponse {
            topics: vec![OffsetDeleteResponseTopic {
                name: Str::from("t"),
                partitions: vec![OffsetDeleteResponsePartition { partition_index: 3, error_code }],
            }],
            ..OffsetDeleteResponse::default()
        };
        assert_eq!(refuse("g", &response(ErrorCode::None)), Ok(()));
        let read = refuse("g", &response(ErrorCode::GroupSubscribedToTopic)).unwrap_err();
        assert!(
            read.to_string().contains("cannot delete the offset of t-3: members of group g read topic t")
        );
        let gone = refuse("g", &response(ErrorCode::UnknownTopicOrPartition)).unwrap_err();
        assert_eq!(gone.exit_code(), 4);
        let whole = OffsetDeleteResponse { error_code: ErrorCode::GroupIdNotFound, ..Default::default() };
        assert_eq!(refuse("g", &whole).unwrap_err().exit_code(), 4);
    }
}
