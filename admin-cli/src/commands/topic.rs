//! `weir topic`: create, list, describe, alter, delete.

use std::collections::BTreeMap;

use clap::Subcommand;
use kafka_wire::Client;
use kafka_wire_core::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use kafka_wire_core::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreatableTopicResult, CreateTopicsRequest,
};
use kafka_wire_core::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use kafka_wire_core::messages::metadata::MetadataResponseTopic;
use kafka_wire_core::{ErrorCode, Str};
use serde_json::{Value, json};

use crate::cli::{Global, config_pair};
use crate::cluster_view;
use crate::commands::config::{self, ConfigChange, Resource};
use crate::failure::Failure;
use crate::offsets::{self, EARLIEST, Found, LATEST, find_topic};
use crate::output::{Format, Output, id_list, id_text, printable, thousands};

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Create topics
    Create(CreateArgs),
    /// List topics
    List {
        /// Internal topics too
        #[arg(long)]
        internal: bool,
    },
    /// Show partitions, leaders, offsets and configs of topics
    Describe {
        /// Names of topics
        #[arg(required = true, value_name = "TOPIC")]
        topics: Vec<String>,
    },
    /// Add partitions to a topic, or change its configs
    Alter(AlterArgs),
    /// Delete topics with all their records
    Delete {
        /// Names of topics
        #[arg(required = true, value_name = "TOPIC")]
        topics: Vec<String>,
        /// Topics that do not exist are no error
        #[arg(long)]
        if_exists: bool,
        /// Only show what would be deleted
        #[arg(long)]
        plan: bool,
    },
}

/// Arguments of `topic create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Names of topics
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Number of partitions; the cluster's default if not given
    #[arg(long, short, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Copies of each partition; the cluster's default if not given
    #[arg(long, short, value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// A topic config, may be repeated
    #[arg(long = "config", short, value_name = "NAME=VALUE", value_parser = config_pair)]
    configs: Vec<(String, String)>,
    /// Topics that exist are no error
    #[arg(long)]
    if_not_exists: bool,
    /// Only check and show what would be created
    #[arg(long)]
    plan: bool,
}

/// Arguments of `topic alter`.
#[derive(Debug, clap::Args)]
pub(crate) struct AlterArgs {
    /// Name of the topic
    topic: String,
    /// New number of partitions; keys go to other partitions from then on
    #[arg(long, short, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// A topic config to set, may be repeated
    #[arg(long = "config", short, value_name = "NAME=VALUE", value_parser = config_pair)]
    configs: Vec<(String, String)>,
    /// A topic config to set back to its default, may be repeated
    #[arg(long = "delete-config", value_name = "NAME")]
    delete_configs: Vec<String>,
    /// Only check and show what would change
    #[arg(long)]
    plan: bool,
}

pub(crate) async fn run(
    global: &Global,
    command: TopicCommand,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let client = global.connect().await?;
    match command {
        TopicCommand::Create(args) => create(global, &client, args, output).await,
        TopicCommand::List { internal } => list(&client, internal, output).await,
        TopicCommand::Describe { topics } => {
            for (index, name) in topics.iter().enumerate() {
                describe(&client, name, index > 0, output).await?;
            }
            Ok(())
        }
        TopicCommand::Alter(args) => alter(global, &client, args, output).await,
        TopicCommand::Delete { topics, if_exists, plan } => {
            delete(global, &client, topics, if_exists, plan, output).await
        }
    }
}

async fn create(
    global: &Global,
    client: &Client,
    args: CreateArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let config = |(name, value): &(String, String)| CreatableTopicConfig {
        name: name.into(),
        value: Some(value.into()),
    };
    let topic = |name: &String| CreatableTopic {
        name: name.into(),
        num_partitions: args.partitions.unwrap_or(-1),
        replication_factor: args.replication_factor.unwrap_or(-1),
        configs: args.configs.iter().map(config).collect(),
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: args.topics.iter().map(topic).collect(),
        timeout_ms: global.change_timeout_ms(),
        validate_only: args.plan,
    };
    let response = client.call(&request).await?;
    let mut failures = Vec::new();
    for result in &response.topics {
        match result.error_code {
            ErrorCode::None => show_created(result, args.plan, output)?,
            ErrorCode::TopicAlreadyExists if args.if_not_exists => {
                show_action(&result.name, "exists", args.plan, "topic {} exists", output)?;
            }
            code => failures.push(Failure::refused(
                format!("create topic {}", printable(&result.name)),
                code,
                result.error_message.as_deref(),
            )),
        }
    }
    first_of(failures, output)
}

fn show_created(result: &CreatableTopicResult, plan: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    match output.format {
        Format::Json => output.json(&json!({
            "topic": &*result.name,
            "action": "create",
            "planned": plan,
            "id": (!result.topic_id.is_nil()).then(|| id_text(result.topic_id)),
            "partitions": result.num_partitions,
            "replication_factor": result.replication_factor,
        })),
        Format::Table => {
            let verb = if plan { "would create" } else { "created" };
            let shape = match (result.num_partitions, result.replication_factor) {
                // Versions before 5 do not tell.
                (-1, _) => String::new(),
                (partitions, factor) => {
                    format!(": {partitions} partitions, replication factor {factor}")
                }
            };
            output.line(&format!("{verb} topic {}{shape}", printable(&result.name)))
        }
    }
}

/// Shows one thing that was done, or would be, to a topic; `{}` in the sentence is its name.
fn show_action(
    name: &str,
    action: &str,
    plan: bool,
    sentence: &str,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    match output.format {
        Format::Json => output.json(&json!({ "topic": name, "action": action, "planned": plan })),
        Format::Table => output.line(&sentence.replace("{}", &printable(name))),
    }
}

/// Ends with the first of several failures, after the others have been told.
pub(crate) fn first_of(failures: Vec<Failure>, output: &mut Output<'_>) -> Result<(), Failure> {
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else { return Ok(()) };
    for other in failures {
        output.note(other.to_string().trim_end())?;
    }
    Err(first)
}

async fn list(client: &Client, internal: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    let mut topics = client.metadata(None).await?.topics;
    topics.retain(|topic| internal || !topic.is_internal);
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    let factor =
        |topic: &MetadataResponseTopic| topic.partitions.first().map_or(0, |p| p.replica_nodes.len());
    match output.format {
        Format::Json => {
            let list = topics.iter().map(|topic| {
                json!({
                    "topic": topic.name.as_deref(),
                    "id": id_text(topic.topic_id),
                    "partitions": topic.partitions.len(),
                    "replication_factor": factor(topic),
                    "internal": topic.is_internal,
                })
            });
            output.json(&list.collect())
        }
        Format::Table => {
            let rows: Vec<_> = topics
                .iter()
                .map(|topic| {
                    let name = printable(topic.name.as_deref().unwrap_or("-"));
                    vec![name, topic.partitions.len().to_string(), factor(topic).to_string()]
                })
                .collect();
            output.table(&["TOPIC", "PARTITIONS", "REPLICAS"], &rows)
        }
    }
}

async fn describe(client: &Client, name: &str, more: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    let topic = find_topic(client, name).await?;
    let eligible = eligible_leaders(client, name).await?;
    let starts = offsets::list(client, &topic, EARLIEST).await?;
    let ends = offsets::list(client, &topic, LATEST).await?;
    let configs = config::describe(client, Resource::Topic(name.to_owned())).await?;
    let changed: Vec<_> = configs.iter().filter(|entry| entry.is_set_on_topic()).collect();
    let offset = |found: Option<&Found>| found.and_then(|offset| offset.ok());
    if output.format == Format::Json {
        let partitions = topic.partitions.iter().map(|partition| {
            json!({
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replica_nodes,
                "isr": partition.isr_nodes,
                "elr": eligible.get(&partition.partition_index),
                "offline": partition.offline_replicas,
                "start": offset(starts.get(&partition.partition_index)),
                "end": offset(ends.get(&partition.partition_index)),
            })
        });
        return output.json(&json!({
            "topic": name,
            "id": id_text(topic.topic_id),
            "internal": topic.is_internal,
            "partitions": partitions.collect::<Value>(),
            "configs": changed
                .iter()
                .map(|entry| (entry.name.clone(), Value::from(entry.value.clone())))
                .collect::<serde_json::Map<_, _>>(),
        }));
    }
    if more {
        output.line("")?;
    }
    output.line(&format!("topic    {}", printable(name)))?;
    output.line(&format!("id       {}", id_text(topic.topic_id)))?;
    for entry in changed {
        output.line(&format!("config   {}={}", entry.name, printable(entry.shown_value())))?;
    }
    let shown = |found: Option<&Found>| match found {
        Some(Ok(offset)) => offset.to_string(),
        Some(Err(code)) => code.name().to_owned(),
        None => "-".to_owned(),
    };
    let rows: Vec<_> = topic
        .partitions
        .iter()
        .map(|partition| {
            let index = partition.partition_index;
            vec![
                index.to_string(),
                leader_text(partition.leader_id),
                partition.leader_epoch.to_string(),
                id_list(&partition.replica_nodes),
                id_list(&partition.isr_nodes),
                eligible.get(&index).map_or_else(|| "-".to_owned(), |ids| id_list(ids)),
                id_list(&partition.offline_replicas),
                shown(starts.get(&index)),
                shown(ends.get(&index)),
            ]
        })
        .collect();
    let header = ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR", "OFFLINE", "START", "END"];
    output.table(&header, &rows)
}

fn leader_text(leader: i32) -> String {
    if leader < 0 { "none".to_owned() } else { leader.to_string() }
}

/// The eligible leader replicas (KIP-966) by partition, as far as the cluster tells.
async fn eligible_leaders(client: &Client, name: &str) -> Result<BTreeMap<i32, Vec<i32>>, Failure> {
    let topics = cluster_view::topics(client, Some(&[name.to_owned()])).await?;
    let partitions = topics.into_iter().flat_map(|topic| topic.partitions);
    Ok(partitions.filter_map(|partition| Some((partition.index, partition.elr?))).collect())
}

async fn alter(
    global: &Global,
    client: &Client,
    args: AlterArgs,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let name = &args.topic;
    let changes: Vec<ConfigChange> = config::changes(args.configs, args.delete_configs)?;
    if args.partitions.is_none() && changes.is_empty() {
        return Err(Failure::usage("nothing to change")
            .hint("give --partitions, --config NAME=VALUE or --delete-config NAME"));
    }
    let topic = find_topic(client, name).await?;
    // Both are checked before either is done: a refusal then changes nothing.
    let resource = Resource::Topic(name.clone());
    let before = config::describe(client, resource.clone()).await?;
    if !changes.is_empty() {
        config::alter(client, &resource, &changes, true).await?;
    }
    if let Some(count) = args.partitions {
        add_partitions(global, client, name, count, true).await?;
        if !args.plan {
            add_partitions(global, client, name, count, false).await?;
        }
        let now = topic.partitions.len();
        match output.format {
            Format::Json => output.json(&json!({
                "topic": name, "action": "add_partitions", "planned": args.plan, "from": now, "to": count,
            }))?,
            Format::Table => {
                let verb = if args.plan { "would grow" } else { "grew" };
                output.line(&format!("{verb} topic {}: {now} -> {count} partitions", printable(name)))?;
            }
        }
    }
    if !changes.is_empty() {
        if !args.plan {
            config::alter(client, &resource, &changes, false).await?;
        }
        config::show_changes(&resource, &before, &changes, args.plan, output)?;
    }
    Ok(())
}

async fn add_partitions(
    global: &Global,
    client: &Client,
    name: &str,
    count: i32,
    validate_only: bool,
) -> Result<(), Failure> {
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: Str::from(name), count, assignments: None }],
        timeout_ms: global.change_timeout_ms(),
        validate_only,
    };
    let response = client.call(&request).await?;
    match response.results.iter().find(|result| !result.error_code.is_none()) {
        None => Ok(()),
        Some(result) => {
            let what = format!("give topic {name} {count} partitions");
            Err(Failure::refused(what, result.error_code, result.error_message.as_deref()))
        }
    }
}

async fn delete(
    global: &Global,
    client: &Client,
    topics: Vec<String>,
    if_exists: bool,
    plan: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    if plan {
        for name in topics {
            plan_delete(client, &name, if_exists, output).await?;
        }
        return Ok(());
    }
    let by_id = client.any().await?.version::<DeleteTopicsRequest>()? >= 6;
    let states = |name: &String| DeleteTopicState { name: Some(name.into()), ..DeleteTopicState::default() };
    let request = DeleteTopicsRequest {
        topics: if by_id { topics.iter().map(states).collect() } else { Vec::new() },
        topic_names: if by_id { Vec::new() } else { topics.iter().map(Str::from).collect() },
        timeout_ms: global.change_timeout_ms(),
    };
    let response = client.call(&request).await?;
    let mut failures = Vec::new();
    for result in &response.responses {
        let name = result.name.as_deref().unwrap_or_default();
        match result.error_code {
            ErrorCode::None => show_action(name, "delete", false, "deleted topic {}", output)?,
            ErrorCode::UnknownTopicOrPartition if if_exists => {
                show_action(name, "absent", false, "topic {} does not exist", output)?;
            }
            code => failures.push(Failure::refused(
                format!("delete topic {}", printable(name)),
                code,
                result.error_message.as_deref(),
            )),
        }
    }
    first_of(failures, output)
}

async fn plan_delete(
    client: &Client,
    name: &str,
    if_exists: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let topic = match find_topic(client, name).await {
        Err(failure) if if_exists && failure.is_not_found() => {
            return show_action(name, "absent", true, "topic {} does not exist", output);
        }
        found => found?,
    };
    let starts = offsets::list(client, &topic, EARLIEST).await?;
    let ends = offsets::list(client, &topic, LATEST).await?;
    let total = |found: &BTreeMap<i32, Found>| found.values().filter_map(|offset| offset.ok()).sum::<i64>();
    let records = u64::try_from(total(&ends) - total(&starts)).unwrap_or(0);
    match output.format {
        Format::Json => output.json(&json!({
            "topic": name, "action": "delete", "planned": true,
            "partitions": topic.partitions.len(), "records_max": records,
        })),
        Format::Table => output.line(&format!(
            "would delete topic {}: {} partitions, at most {} records",
            printable(name),
            topic.partitions.len(),
            thousands(records)
        )),
    }
}
