//! Changes of dynamic configs: of a topic, of one node, of all nodes.
//!
//! Both of Kafka's requests come here: the old one that replaces everything that is set on a resource, and the newer one
//! (KIP-339) with set, delete, append and subtract. The changes of one resource are taken together or not at all.

use super::delete_topics::unknown_topic;
use super::partition_change::{Settler, Unclean};
use super::{Decision, Draft, Inputs, check_count, reject};
use crate::state::ClusterState;
use crate::topic_name;
use proto_types::config_schema::{
    ConfigDef, ConfigKind, Update, boolean, integer, list, node_config, topic_config,
};
use proto_types::controller_api::{AlterConfigs, AlterResource, ConfigOp, ConfigOpKind, ResourceRef};
use proto_types::error::{Reason, Rejection};
use proto_types::ids::TopicPartition;
use proto_types::metadata::{ConfigResource, MetadataChange};
use std::collections::{BTreeMap, BTreeSet};

/// One result per resource, in the request's order.
pub type Results = Vec<Result<(), Rejection>>;

/// Plans changes of configs.
pub fn alter_configs(
    state: &ClusterState,
    request: &AlterConfigs,
    inputs: &Inputs,
) -> Result<Decision<Results>, Rejection> {
    check_count(&inputs.limits, request.resources.len(), "config resources")?;
    let mut draft = Draft::new(state);
    let mut seen = BTreeSet::new();
    let results = request
        .resources
        .iter()
        .map(|altered| {
            let resource = resolve(&draft.scratch, &altered.resource)?;
            if !seen.insert(resource.clone()) {
                return reject(Reason::InvalidRequest, "Each resource must appear at most once.");
            }
            let changes = plan_resource(&draft.scratch, &resource, altered)?;
            let matters = ["min.insync.replicas", "unclean.leader.election.enable"]
                .map(|config| changes.iter().any(|change| sets(change, config)));
            draft.add(changes);
            let follows = after_change(&draft.scratch, &resource, matters);
            draft.add(follows);
            Ok(())
        })
        .collect();
    Ok(draft.into_decision(request.validate_only, results))
}

fn sets(change: &MetadataChange, config: &str) -> bool {
    matches!(change, MetadataChange::ConfigSet { name, .. } if name == config)
}

/// What the new values mean to partitions. With another minimum of in-sync replicas records may be committed without those
/// who were eligible until now; and where any replica may lead, partitions without leader get one.
fn after_change(
    state: &ClusterState,
    resource: &ConfigResource,
    [minimum, unclean]: [bool; 2],
) -> Vec<MetadataChange> {
    if !minimum && !unclean {
        return Vec::new();
    }
    let settler = Settler::new(state);
    let topics = state.topics().iter().map(|(_, topic)| topic).filter(|topic| match resource {
        ConfigResource::Topic(only) => topic == only,
        ConfigResource::NodeDefault => true,
        ConfigResource::Node(_) => false,
    });
    let mut changes = Vec::new();
    for topic in topics {
        let own = |name| state.configs().get(&ConfigResource::Topic(topic), name).is_some();
        let of_topic = matches!(resource, ConfigResource::Topic(_));
        // A value of the topic itself hides that of all nodes.
        let minimum = minimum && (of_topic || !own("min.insync.replicas"));
        for (partition, before) in state.partitions().of_topic(topic) {
            let at = TopicPartition { topic, partition };
            if minimum && !before.elr.is_empty() {
                changes.push(settler.without_elr(at, before));
            } else if unclean && before.leader.is_none() {
                changes.extend(settler.change(at, before, before.clone(), Unclean::ByConfig));
            }
        }
    }
    changes
}

fn resolve(state: &ClusterState, resource: &ResourceRef) -> Result<ConfigResource, Rejection> {
    match resource {
        ResourceRef::Topic(name) => {
            let Some(topic) = state.topics().id(name) else {
                return reject(Reason::UnknownTopic, unknown_topic(name));
            };
            topic_name::check_open(name)?;
            Ok(ConfigResource::Topic(topic))
        }
        ResourceRef::Resource(ConfigResource::Topic(topic)) => {
            let Some(name) = state.topics().name(*topic) else {
                return reject(Reason::UnknownTopicId, format!("There is no topic with id {topic}."));
            };
            topic_name::check_open(name)?;
            Ok(ConfigResource::Topic(*topic))
        }
        ResourceRef::Resource(ConfigResource::Node(node)) => {
            if state.nodes().get(*node).is_none() {
                return reject(Reason::UnknownResource, format!("No broker with id {node} found."));
            }
            Ok(ConfigResource::Node(*node))
        }
        ResourceRef::Resource(ConfigResource::NodeDefault) => Ok(ConfigResource::NodeDefault),
    }
}

fn plan_resource(
    state: &ClusterState,
    resource: &ConfigResource,
    altered: &AlterResource,
) -> Result<Vec<MetadataChange>, Rejection> {
    let before: BTreeMap<String, String> =
        state.configs().of(resource).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut after = if altered.replace_all { BTreeMap::new() } else { before.clone() };
    let mut seen = BTreeSet::new();
    for op in &altered.ops {
        if !seen.insert(op.name.as_str()) {
            let message = format!("Config {} is named twice.", op.name.escape_debug());
            return reject(Reason::InvalidRequest, message);
        }
        let def = find(resource, &op.name)?;
        // A read-only value may be repeated by clients that send back what they have read, but not changed.
        check_updatable(resource, def)?;
        apply_op(&mut after, def, op)?;
    }
    if let ConfigResource::Topic(_) = resource {
        check_topic_configs(&after)?;
    } else {
        check_values(&after, node_config)?;
        check_lags(
            &after,
            "broker",
            "log.cleaner.min.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
        )?;
    }
    let removed = before.keys().filter(|name| !after.contains_key(*name)).map(|name| (name.clone(), None));
    let set = after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(value))
        .map(|(name, value)| (name.clone(), Some(value.clone())));
    Ok(removed
        .chain(set)
        .map(|(name, value)| MetadataChange::ConfigSet { resource: resource.clone(), name, value })
        .collect())
}

fn find(resource: &ConfigResource, name: &str) -> Result<&'static ConfigDef, Rejection> {
    let (def, what) = match resource {
        ConfigResource::Topic(_) => (topic_config(name), "topic"),
        ConfigResource::Node(_) | ConfigResource::NodeDefault => (node_config(name), "broker"),
    };
    match def {
        Some(def) => Ok(def),
        None => reject(Reason::InvalidConfig, unknown_config(what, name)),
    }
}

fn unknown_config(what: &str, name: &str) -> String {
    let shown: String = name.chars().take(200).collect();
    format!("Unknown {what} config name: {}", shown.escape_debug())
}

fn check_updatable(resource: &ConfigResource, def: &ConfigDef) -> Result<(), Rejection> {
    match (resource, def.update) {
        (ConfigResource::Topic(_), _) | (_, Update::Dynamic) => Ok(()),
        (ConfigResource::NodeDefault, Update::ClusterOnly) | (ConfigResource::Node(_), Update::NodeOnly) => {
            Ok(())
        }
        (ConfigResource::NodeDefault, Update::NodeOnly) => {
            let message = format!(
                "Cannot update these configs at default cluster level: {}. It belongs to single nodes; change it for \
                 each.",
                def.name
            );
            reject(Reason::InvalidRequest, message)
        }
        (_, Update::ClusterOnly) => {
            let message = format!(
                "Cannot update this config for one broker: {}. It has one value for the whole cluster; change it \
                 for the default broker entity.",
                def.name
            );
            reject(Reason::InvalidRequest, message)
        }
        (_, Update::ReadOnly) => {
            let message = format!(
                "Cannot update these configs dynamically: {}. It belongs into the config file of the node.",
                def.name
            );
            reject(Reason::InvalidRequest, message)
        }
    }
}

fn apply_op(after: &mut BTreeMap<String, String>, def: &ConfigDef, op: &ConfigOp) -> Result<(), Rejection> {
    let value = match (op.kind, &op.value) {
        (ConfigOpKind::Delete, _) => {
            after.remove(&op.name);
            return Ok(());
        }
        (_, None) => {
            let message = format!("Null value not supported for config {}.", def.name);
            return reject(Reason::InvalidRequest, message);
        }
        (_, Some(value)) => value,
    };
    let value = match op.kind {
        ConfigOpKind::Append | ConfigOpKind::Subtract => change_list(after, def, op.kind, value)?,
        ConfigOpKind::Set | ConfigOpKind::Delete => value.clone(),
    };
    after.insert(op.name.clone(), value);
    Ok(())
}

fn change_list(
    after: &BTreeMap<String, String>,
    def: &ConfigDef,
    kind: ConfigOpKind,
    value: &str,
) -> Result<String, Rejection> {
    if def.kind != ConfigKind::List {
        let verb = if kind == ConfigOpKind::Append { "APPEND" } else { "SUBTRACT" };
        let message = format!("Can't {verb} to key {} because its type is not LIST.", def.name);
        return reject(Reason::InvalidConfig, message);
    }
    let current = after.get(def.name).map(String::as_str).or(def.default).unwrap_or("");
    let mut items: Vec<&str> = list(current).collect();
    for item in list(value) {
        if kind == ConfigOpKind::Append {
            if !items.contains(&item) {
                items.push(item);
            }
        } else {
            items.retain(|known| *known != item);
        }
    }
    Ok(items.join(","))
}

/// Checks all explicit configs of a topic: names, values, and values against each other.
pub(super) fn check_topic_configs(configs: &BTreeMap<String, String>) -> Result<(), Rejection> {
    check_values(configs, topic_config)?;
    check_lags(configs, "topic", "min.compaction.lag.ms", "max.compaction.lag.ms")?;
    if configs.get("remote.storage.enable").map(String::as_str).and_then(boolean) == Some(true) {
        let message = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with \
                       remote log storage (remote.storage.enable).";
        return reject(Reason::InvalidConfig, message);
    }
    Ok(())
}

/// Nothing could ever be compacted in time if the shortest lag were above the longest.
fn check_lags(
    configs: &BTreeMap<String, String>,
    what: &str,
    min_name: &str,
    max_name: &str,
) -> Result<(), Rejection> {
    let number = |name: &str| configs.get(name).map(String::as_str).and_then(integer);
    match (number(min_name), number(max_name)) {
        (Some(min), Some(max)) if min > max => reject(
            Reason::InvalidConfig,
            format!("conflict {what} config setting {min_name} ({min}) > {max_name} ({max})"),
        ),
        _ => Ok(()),
    }
}

fn check_values(
    configs: &BTreeMap<String, String>,
    find: impl Fn(&str) -> Option<&'static ConfigDef>,
) -> Result<(), Rejection> {
    for (name, value) in configs {
        let Some(def) = find(name) else {
            return reject(Reason::InvalidConfig, unknown_config("topic", name));
        };
        if let Err(message) = def.check(value) {
            return reject(Reason::InvalidConfig, message);
        }
    }
    Ok(())
}
