//! The dynamic configs: what was set at run time, as text, by resource.

use super::topics::Topics;
use proto_types::config_schema::{node_config, synonyms, topic_config};
use proto_types::ids::TopicId;
use proto_types::metadata::{ConfigResource, MetadataChange};
use std::collections::{BTreeMap, BTreeSet};

/// The config that says whether an acknowledged record is on disk.
const FLUSH: &str = "weir.flush";
/// Its value for topics whose acknowledged records may only be with the operating system.
const UNFLUSHED: &str = "os";

type OfResource = BTreeMap<String, String>;

/// All dynamic configs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configs {
    by_resource: BTreeMap<ConfigResource, OfResource>,
    /// Topics that had `weir.flush=os` and have it no more.
    once_unflushed: BTreeSet<TopicId>,
}

impl Configs {
    /// One value that was set on exactly this resource.
    pub fn get(&self, resource: &ConfigResource, name: &str) -> Option<&str> {
        self.by_resource.get(resource)?.get(name).map(String::as_str)
    }

    /// Everything that was set on a resource, in order of name.
    pub fn of(&self, resource: &ConfigResource) -> impl Iterator<Item = (&str, &str)> {
        self.by_resource
            .get(resource)
            .into_iter()
            .flat_map(|all| all.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// Everything that was set anywhere.
    pub fn iter(&self) -> impl Iterator<Item = (&ConfigResource, &str, &str)> {
        self.by_resource.iter().flat_map(|(resource, all)| {
            all.iter().map(move |(name, value)| (resource, name.as_str(), value.as_str()))
        })
    }

    /// A cluster-wide value: what was set for all nodes, else the default of the schema.
    pub fn cluster_value(&self, name: &str) -> Option<&str> {
        self.get(&ConfigResource::NodeDefault, name).or_else(|| node_config(name).and_then(|def| def.default))
    }

    /// A topic's value as the controller sees it: the topic's own, else what was set for all nodes, else the default.
    /// Values of single nodes do not count here, since the question is about the topic.
    pub fn topic_value(&self, topic: TopicId, name: &str) -> Option<&str> {
        self.get(&ConfigResource::Topic(topic), name)
            .or_else(|| {
                synonyms(name)
                    .iter()
                    .filter(|synonym| synonym.factor == 1)
                    .find_map(|synonym| self.get(&ConfigResource::NodeDefault, synonym.node_config))
            })
            .or_else(|| topic_config(name).and_then(|def| def.default))
    }

    /// Whether everything that was ever acknowledged in the topic is on the disks of those who were in sync. It is not if the
    /// topic has or had `weir.flush=os`, for whatever `ack` says today: leaders and followers hear of it later than we do, one by
    /// one, and what was committed until then may still wait for the operating system to write it.
    pub fn flushed_when_acknowledged(&self, topic: TopicId) -> bool {
        // Planted: the new value is believed at once.
        let once_unflushed = self.once_unflushed.contains(&topic) && !cfg!(weir_planted_bug = "B31");
        !self.is_unflushed(topic) && !once_unflushed
    }

    fn is_unflushed(&self, topic: TopicId) -> bool {
        self.topic_value(topic, FLUSH) == Some(UNFLUSHED)
    }

    /// Sets a value, or takes it back. `topics` are all that there are.
    pub(super) fn set(
        &mut self,
        resource: ConfigResource,
        name: String,
        value: Option<String>,
        topics: &Topics,
    ) {
        let mut unflushed: Vec<TopicId> = match (&resource, name == FLUSH) {
            (ConfigResource::Topic(topic), true) => vec![*topic],
            (ConfigResource::NodeDefault, true) => topics.iter().map(|(_, topic)| topic).collect(),
            (ConfigResource::Node(_), true) | (_, false) => Vec::new(),
        };
        unflushed.retain(|topic| self.is_unflushed(*topic));
        self.put(resource, name, value);
        unflushed.retain(|topic| !self.is_unflushed(*topic));
        self.once_unflushed.extend(unflushed);
    }

    fn put(&mut self, resource: ConfigResource, name: String, value: Option<String>) {
        match value {
            Some(value) => {
                self.by_resource.entry(resource).or_default().insert(name, value);
            }
            None => {
                if let Some(all) = self.by_resource.get_mut(&resource) {
                    all.remove(&name);
                    if all.is_empty() {
                        self.by_resource.remove(&resource);
                    }
                }
            }
        }
    }

    pub(super) fn remove_resource(&mut self, resource: &ConfigResource) {
        self.by_resource.remove(resource);
        if let ConfigResource::Topic(topic) = resource {
            self.once_unflushed.remove(topic);
        }
    }

    /// First what topics once had, before any default could hide that they have it no more.
    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        for topic in &self.once_unflushed {
            changes.extend([Some(UNFLUSHED.to_owned()), None].map(|value| MetadataChange::ConfigSet {
                resource: ConfigResource::Topic(*topic),
                name: FLUSH.to_owned(),
                value,
            }));
        }
        changes.extend(self.iter().map(|(resource, name, value)| MetadataChange::ConfigSet {
            resource: resource.clone(),
            name: name.to_owned(),
            value: Some(value.to_owned()),
        }));
    }
}
