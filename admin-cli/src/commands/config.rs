//! `weir config`: configs of topics and nodes, and the parts of it that `weir topic` shares.

use clap::Subcommand;
use kafka_wire::Client;
use kafka_wire_core::Str;
use kafka_wire_core::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
};
use kafka_wire_core::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use serde_json::json;

use crate::cli::{Global, config_pair};
use crate::failure::Failure;
use crate::output::{Format, Output, printable};

/// Kafka's numbers of resource types.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// What to do with configs.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the configs of a topic or node
    Describe {
        /// `topic:NAME`, `node:ID`, or `nodes` for the defaults of all nodes
        #[arg(value_name = "RESOURCE")]
        resource: Resource,
        /// Those at their defaults too
        #[arg(long)]
        all: bool,
    },
    /// Set configs of a topic or node, or set them back
    Set {
        /// `topic:NAME`, `node:ID`, or `nodes` for the defaults of all nodes
        #[arg(value_name = "RESOURCE")]
        resource: Resource,
        /// What to set
        #[arg(value_name = "NAME=VALUE", value_parser = config_pair)]
        configs: Vec<(String, String)>,
        /// A config to set back to its default, may be repeated
        #[arg(long = "delete", value_name = "NAME")]
        delete: Vec<String>,
        /// Only check and show what would change
        #[arg(long)]
        plan: bool,
    },
}

/// Whose configs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resource {
    Topic(String),
    Node(i32),
    /// The defaults of all nodes.
    Nodes,
}

impl std::str::FromStr for Resource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("{text:?} is not topic:NAME, node:ID or nodes");
        match text.split_once(':') {
            Some(("topic", name)) if !name.is_empty() => Ok(Self::Topic(name.to_owned())),
            Some(("node", id)) => id.parse().ok().filter(|id| *id >= 0).map(Self::Node).ok_or_else(error),
            None if text == "nodes" => Ok(Self::Nodes),
            _ => Err(error()),
        }
    }
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic {}", printable(name)),
            Self::Node(id) => write!(f, "node {id}"),
            Self::Nodes => f.write_str("all nodes"),
        }
    }
}

impl Resource {
    fn kafka_type(&self) -> i8 {
        match self {
            Self::Topic(_) => TOPIC,
            Self::Node(_) | Self::Nodes => BROKER,
        }
    }

    fn kafka_name(&self) -> Str {
        match self {
            Self::Topic(name) => Str::from(name),
            Self::Node(id) => Str::from(id.to_string()),
            Self::Nodes => Str::default(),
        }
    }
}

/// A config as the cluster shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigEntry {
    pub(crate) name: String,
    /// None if it is secret or not set.
    pub(crate) value: Option<String>,
    sensitive: bool,
    read_only: bool,
    source: i8,
}

impl ConfigEntry {
    /// Kafka's number of the source.
    fn source_name(&self) -> &'static str {
        match self.source {
            1 => "topic",
            2 => "node",
            3 => "nodes",
            4 => "file",
            5 => "default",
            _ => "other",
        }
    }

    fn is_default(&self) -> bool {
        self.source == 5
    }

    pub(crate) fn is_set_on_topic(&self) -> bool {
        self.source == 1
    }

    pub(crate) fn shown_value(&self) -> &str {
        match &self.value {
            Some(value) => value,
            None if self.sensitive => "(secret)",
            None => "(none)",
        }
    }
}

impl From<DescribeConfigsResourceResult> for ConfigEntry {
    fn from(result: DescribeConfigsResourceResult) -> Self {
        Self {
            name: result.name.into(),
            value: result.value.map(String::from),
            sensitive: result.is_sensitive,
            read_only: result.read_only,
            source: result.config_source,
        }
    }
}

/// A change of one config: to a value, or back to its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigChange {
    name: String,
    to: Option<String>,
}

/// Puts changes together; a name may be there once.
pub(crate) fn changes(set: Vec<(String, String)>, delete: Vec<String>) -> Result<Vec<ConfigChange>, Failure> {
    let set = set.into_iter().map(|(name, value)| ConfigChange { name, to: Some(value) });
    let delete = delete.into_iter().map(|name| ConfigChange { name, to: None });
    let mut changes: Vec<_> = set.chain(delete).collect();
    changes.sort_by(|a, b| a.name.cmp(&b.name));
    match changes.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(Failure::usage(format!("config {} is given twice", pair[0].name))),
        None => Ok(changes),
    }
}

pub(crate) async fn run(
    global: &Global,
    command: ConfigCommand,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let client = global.connect().await?;
    match command {
        ConfigCommand::Describe { resource, all } => {
            let mut entries = describe(&client, resource).await?;
            entries.retain(|entry| all || !entry.is_default());
            show(&entries, output)
        }
        ConfigCommand::Set { resource, configs, delete, plan } => {
            let changes = changes(configs, delete)?;
            if changes.is_empty() {
                return Err(Failure::usage("nothing to change").hint("give NAME=VALUE or --delete NAME"));
            }
            let before = describe(&client, resource.clone()).await?;
            alter(&client, &resource, &changes, plan).await?;
            show_changes(&resource, &before, &changes, plan, output)
        }
    }
}

/// All configs of the resource, by name.
pub(crate) async fn describe(client: &Client, resource: Resource) -> Result<Vec<ConfigEntry>, Failure> {
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: resource.kafka_type(),
            resource_name: resource.kafka_name(),
            configuration_keys: None,
        }],
        ..DescribeConfigsRequest::default()
    };
    // A node's own configs are known to that node only.
    let response = match &resource {
        Resource::Node(id) => client.call_node(*id, &request).await?,
        Resource::Topic(_) | Resource::Nodes => client.call(&request).await?,
    };
    let mut entries = Vec::new();
    for result in response.results {
        if !result.error_code.is_none() {
            let what = format!("read the configs of {resource}");
            return Err(Failure::refused(what, result.error_code, result.error_message.as_deref()));
        }
        entries.extend(result.configs.into_iter().map(ConfigEntry::from));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Makes the changes, or only has them checked.
pub(crate) async fn alter(
    client: &Client,
    resource: &Resource,
    changes: &[ConfigChange],
    validate_only: bool,
) -> Result<(), Failure> {
    let alteration = |change: &ConfigChange| AlterableConfig {
        name: Str::from(&change.name),
        config_operation: i8::from(change.to.is_none()),
        value: change.to.as_ref().map(Str::from),
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: resource.kafka_type(),
            resource_name: resource.kafka_name(),
            configs: changes.iter().map(alteration).collect(),
        }],
        validate_only,
    };
    let response = match resource {
        Resource::Node(id) => client.call_node(*id, &request).await?,
        Resource::Topic(_) | Resource::Nodes => client.call(&request).await?,
    };
    match response.responses.iter().find(|response| !response.error_code.is_none()) {
        None => Ok(()),
        Some(refused) => {
            let what = format!("change the configs of {resource}");
            Err(Failure::refused(what, refused.error_code, refused.error_message.as_deref()))
        }
    }
}

fn show(entries: &[ConfigEntry], output: &mut Output<'_>) -> Result<(), Failure> {
    match output.format {
        Format::Json => {
            let list = entries.iter().map(|entry| {
                json!({
                    "name": entry.name,
                    "value": entry.value,
                    "source": entry.source_name(),
                    "read_only": entry.read_only,
                    "sensitive": entry.sensitive,
                })
            });
            output.json(&list.collect())
        }
        Format::Table => {
            let rows: Vec<_> = entries
                .iter()
                .map(|entry| {
                    let source = entry.source_name().to_owned();
                    vec![entry.name.clone(), printable(entry.shown_value()), source]
                })
                .collect();
            output.table(&["NAME", "VALUE", "SOURCE"], &rows)
        }
    }
}

/// Shows what changed, or would.
pub(crate) fn show_changes(
    resource: &Resource,
    before: &[ConfigEntry],
    changes: &[ConfigChange],
    plan: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    for change in changes {
        let old = before.iter().find(|entry| entry.name == change.name);
        match output.format {
            Format::Json => output.json(&json!({
                "resource": resource.to_string(),
                "action": "config",
                "planned": plan,
                "name": change.name,
                "from": old.and_then(|entry| entry.value.clone()),
                "to": change.to,
            }))?,
            Format::Table => {
                let verb = if plan { "would change" } else { "changed" };
                let from = old.map_or("(none)", ConfigEntry::shown_value);
                let to = change.to.as_deref().unwrap_or("(default)");
                output.line(&format!(
                    "{verb} {resource}: {} {} -> {}",
                    change.name,
                    printable(from),
                    printable(to)
                ))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::captured;

    #[test]
    fn resources_are_read_from_arguments() {
        assert_eq!("topic:a:b".parse(), Ok(Resource::Topic("a:b".to_owned())));
        assert_eq!("node:3".parse(), Ok(Resource::Node(3)));
        assert_eq!("nodes".parse(), Ok(Resource::Nodes));
        for bad in ["topic:", "node:x", "node:-1", "broker:1", "a"] {
            assert!(bad.parse::<Resource>().is_err(), "{bad}");
        }
    }

    #[test]
    fn changes_are_shown_from_old_to_new() {
        let entry = ConfigEntry {
            name: "retention.ms".to_owned(),
            value: Some("604800000".to_owned()),
            sensitive: false,
            read_only: false,
            source: 5,
        };
        let changes =
            changes(vec![("retention.ms".to_owned(), "1".to_owned())], vec!["segment.ms".to_owned()])
                .unwrap();
        let resource = Resource::Topic("a".to_owned());
        let text = captured(Format::Table, |output| {
            show_changes(&resource, std::slice::from_ref(&entry), &changes, true, output).unwrap();
        });
        assert_eq!(
            text,
            "would change topic a: retention.ms 604800000 -> 1\nwould change topic a: segment.ms (none) -> (default)\n"
        );
        let twice = super::changes(vec![("a".into(), "1".into())], vec!["a".into()]).unwrap_err();
        assert_eq!(twice.exit_code(), 2);
    }
}
