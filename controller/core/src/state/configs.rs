//! The dynamic configs: what was set at run time, as text, by resource.

use proto_types::config_schema::{node_config, synonyms, topic_config};
use proto_types::ids::TopicId;
use proto_types::metadata::{ConfigResource, MetadataChange};
use std::collections::BTreeMap;

type OfResource = BTreeMap<String, String>;

/// All dynamic configs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configs {
    by_resource: BTreeMap<ConfigResource, OfResource>,
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

    pub(super) fn set(&mut self, resource: ConfigResource, name: String, value: Option<String>) {
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
    }

    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        changes.extend(self.iter().map(|(resource, name, value)| MetadataChange::ConfigSet {
            resource: resource.clone(),
            name: name.to_owned(),
            value: Some(value.to_owned()),
        }));
    }
}
