//! Which value a config really has, and where it comes from.
//!
//! Order, the first that is set wins: the topic's own dynamic config, then for each node config that gives the topic
//! config its default (the finest unit first): dynamic for this node, dynamic for all nodes, the node's file, the
//! schema's default; last the topic config's own default. DescribeConfigs shows the whole chain, the partitions use only
//! its head, and both come from here so that they cannot disagree.

use crate::image::{ClusterImage, ConfigMap};
use proto_types::config_schema::{self, ConfigDef, NODE_CONFIGS, Synonym, TOPIC_CONFIGS};
use proto_types::ids::{NodeId, TopicId};
use proto_types::metadata::ConfigResource;

/// Where a value was set. The numbers are Kafka's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigSource {
    /// Dynamic, of the topic.
    Topic,
    /// Dynamic, of this node.
    Node,
    /// Dynamic, of all nodes.
    NodeDefault,
    /// In the node's file.
    NodeFile,
    /// Nowhere: the schema's default.
    Default,
}

impl ConfigSource {
    /// The source's number in DescribeConfigs answers.
    pub const fn wire_number(self) -> i8 {
        match self {
            ConfigSource::Topic => 1,
            ConfigSource::Node => 2,
            ConfigSource::NodeDefault => 3,
            ConfigSource::NodeFile => 4,
            ConfigSource::Default => 5,
        }
    }
}

/// One place where a value for a config is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The name under which it is set.
    pub name: &'static str,
    /// The value as set there, in the unit of that name.
    pub value: String,
    /// Where.
    pub source: ConfigSource,
}

/// A config with its effective value and everything that stands behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveConfig {
    /// Name, type, documentation.
    pub def: &'static ConfigDef,
    /// The value in force; `None` is Kafka's null.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Every place where one is set, the strongest source first.
    pub synonyms: Vec<ConfigSynonym>,
}

/// Resolves configs for one node as of one image.
#[derive(Debug, Clone, Copy)]
pub struct ConfigView<'a> {
    image: &'a ClusterImage,
    node: NodeId,
    file: &'a ConfigMap,
}

impl<'a> ConfigView<'a> {
    /// `file` holds the node configs that stand in the node's own configuration.
    pub fn new(image: &'a ClusterImage, node: NodeId, file: &'a ConfigMap) -> Self {
        Self { image, node, file }
    }

    /// All configs of a topic, in order of name.
    pub fn topic_configs(&self, topic: TopicId) -> Vec<EffectiveConfig> {
        TOPIC_CONFIGS.iter().map(|def| self.resolve_topic(Some(topic), def)).collect()
    }

    /// The value of one topic config. `topic` is `None` for a topic that does not exist yet. Unknown names have none.
    pub fn topic_value(&self, topic: Option<TopicId>, name: &str) -> Option<String> {
        self.resolve_topic(topic, config_schema::topic_config(name)?).value
    }

    /// One topic config with its sources.
    pub fn topic_config(&self, topic: TopicId, name: &str) -> Option<EffectiveConfig> {
        Some(self.resolve_topic(Some(topic), config_schema::topic_config(name)?))
    }

    /// One topic config as it would be without the topic's own setting.
    pub fn topic_default(&self, name: &str) -> Option<EffectiveConfig> {
        Some(self.resolve_topic(None, config_schema::topic_config(name)?))
    }

    /// All configs of this node, in order of name.
    pub fn node_configs(&self) -> Vec<EffectiveConfig> {
        NODE_CONFIGS.iter().map(|def| self.resolve_node(def)).collect()
    }

    /// One node config with its sources.
    pub fn node_config(&self, name: &str) -> Option<EffectiveConfig> {
        Some(self.resolve_node(config_schema::node_config(name)?))
    }

    /// The value of one node config.
    pub fn node_value(&self, name: &str) -> Option<String> {
        self.node_config(name)?.value
    }

    fn resolve_topic(&self, topic: Option<TopicId>, def: &'static ConfigDef) -> EffectiveConfig {
        let own = topic.and_then(|topic| self.image.config(&ConfigResource::Topic(topic), def.name));
        let node_names = config_schema::synonyms(def.name);
        let mut synonyms = Vec::new();
        if let Some(value) = own {
            synonyms.push(ConfigSynonym {
                name: def.name,
                value: value.to_owned(),
                source: ConfigSource::Topic,
            });
        }
        synonyms.extend(self.set_places(node_names.iter().map(|synonym| synonym.node_config)));
        if let Some(first) = node_names.first() {
            drop_coarse_defaults(first.node_config, &mut synonyms);
        }

        let inherited = || {
            node_names.iter().find_map(|synonym| {
                let place = self.strongest(synonym.node_config)?;
                Some((scaled(&place.value, synonym), place.source))
            })
        };
        let set = own.map(|value| (value.trim().to_owned(), ConfigSource::Topic)).or_else(inherited);
        let (value, source) = match set {
            Some((value, source)) => (Some(value), source),
            None => (def.default.map(str::to_owned), ConfigSource::Default),
        };
        EffectiveConfig { def, value, source, synonyms }
    }

    fn resolve_node(&self, def: &'static ConfigDef) -> EffectiveConfig {
        let strongest = self.strongest(def.name);
        let mut synonyms = self.set_places(names_behind(def.name).into_iter());
        drop_coarse_defaults(def.name, &mut synonyms);
        let (value, source) = match strongest {
            Some(place) => (Some(place.value.trim().to_owned()), place.source),
            None => (None, ConfigSource::Default),
        };
        EffectiveConfig { def, value, source, synonyms }
    }

    /// The strongest setting of one node config, the schema's default included; `None` if that is null.
    fn strongest(&self, name: &'static str) -> Option<ConfigSynonym> {
        let sources =
            [ConfigSource::Node, ConfigSource::NodeDefault, ConfigSource::NodeFile, ConfigSource::Default];
        sources.into_iter().find_map(|source| self.set_place(name, source))
    }

    /// Every setting of these node configs, by strength of the source first, then in the order of the names.
    fn set_places(&self, names: impl Iterator<Item = &'static str> + Clone) -> Vec<ConfigSynonym> {
        let sources =
            [ConfigSource::Node, ConfigSource::NodeDefault, ConfigSource::NodeFile, ConfigSource::Default];
        let of_source = |source| names.clone().filter_map(move |name| self.set_place(name, source));
        sources.into_iter().flat_map(of_source).collect()
    }

    fn set_place(&self, name: &'static str, source: ConfigSource) -> Option<ConfigSynonym> {
        let value = match source {
            ConfigSource::Topic => None,
            ConfigSource::Node => self.image.config(&ConfigResource::Node(self.node), name),
            ConfigSource::NodeDefault => self.image.config(&ConfigResource::NodeDefault, name),
            ConfigSource::NodeFile => self.file.get(name).map(String::as_str),
            ConfigSource::Default => config_schema::node_config(name).and_then(|def| def.default),
        };
        value.map(|value| ConfigSynonym { name, value: value.to_owned(), source })
    }
}

/// As in Kafka's answers, a default that stands under a coarser name is not listed; a setting is.
fn drop_coarse_defaults(name: &str, synonyms: &mut Vec<ConfigSynonym>) {
    synonyms.retain(|synonym| synonym.source != ConfigSource::Default || synonym.name == name);
}

/// A node config's value in the unit of the topic config. Checked values are numbers where the factor is not one.
fn scaled(value: &str, synonym: &Synonym) -> String {
    let value = value.trim();
    match value.parse::<i64>() {
        // -1 and below mean "no limit" in every unit.
        Ok(number) if synonym.factor != 1 && number > 0 => number.saturating_mul(synonym.factor).to_string(),
        _ => value.to_owned(),
    }
}

/// The name of a node config, then the coarser names that stand in for it where it is not set (ms, minutes, hours).
fn names_behind(name: &'static str) -> Vec<&'static str> {
    for def in TOPIC_CONFIGS {
        let family = config_schema::synonyms(def.name);
        if let Some(at) = family.iter().position(|synonym| synonym.node_config == name) {
            return family[at..].iter().map(|synonym| synonym.node_config).collect();
        }
    }
    vec![name]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::MetadataIndex;
    use proto_types::metadata::MetadataChange;
    use uuid::Uuid;

    const NODE: NodeId = NodeId(1);

    fn topic() -> TopicId {
        TopicId(Uuid::from_u128(7))
    }

    /// An image in which the given dynamic configs are set.
    fn image(settings: &[(ConfigResource, &str, &str)]) -> ClusterImage {
        let mut image = ClusterImage::empty();
        let mut changes = vec![MetadataChange::TopicCreated { topic: topic(), name: "t".into() }];
        changes.extend(settings.iter().map(|(resource, name, value)| MetadataChange::ConfigSet {
            resource: resource.clone(),
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        }));
        image.apply(MetadataIndex(1), &changes);
        image
    }

    /// The effective value and source of a topic config, and how many synonyms stand behind it.
    fn check(
        settings: &[(ConfigResource, &str, &str)],
        file: &[(&str, &str)],
        name: &str,
        expected: (&str, ConfigSource, usize),
    ) {
        let image = image(settings);
        let file = file.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let config = ConfigView::new(&image, NODE, &file).topic_config(topic(), name).unwrap();
        let found = (config.value.as_deref().unwrap(), config.source, config.synonyms.len());
        assert_eq!(found, expected, "{config:?}");
    }

    #[test]
    fn the_strongest_source_wins() {
        let own = (ConfigResource::Topic(topic()), "max.message.bytes", "1");
        let node = (ConfigResource::Node(NODE), "message.max.bytes", "2");
        let other_node = (ConfigResource::Node(NodeId(2)), "message.max.bytes", "9");
        let all = (ConfigResource::NodeDefault, "message.max.bytes", "3");
        let file = ("message.max.bytes", "4");
        let name = "max.message.bytes";
        check(&[own, node.clone(), all.clone()], &[file], name, ("1", ConfigSource::Topic, 5));
        check(&[node, all.clone()], &[file], name, ("2", ConfigSource::Node, 4));
        check(&[all, other_node], &[file], name, ("3", ConfigSource::NodeDefault, 3));
        check(&[], &[file], name, ("4", ConfigSource::NodeFile, 2));
        check(&[], &[], name, ("1048588", ConfigSource::Default, 1));
    }

    #[test]
    fn coarse_units_count_only_where_the_finer_are_not_set() {
        let name = "retention.ms";
        check(&[], &[], name, ("604800000", ConfigSource::Default, 0));
        check(&[], &[("log.retention.hours", "2")], name, ("7200000", ConfigSource::NodeFile, 1));
        let minutes = [("log.retention.hours", "2"), ("log.retention.minutes", "3")];
        check(&[], &minutes, name, ("180000", ConfigSource::NodeFile, 2));
        let ms = (ConfigResource::NodeDefault, "log.retention.ms", "5");
        check(&[ms], &minutes, name, ("5", ConfigSource::NodeDefault, 3));
        check(&[], &[("log.retention.hours", "-1")], name, ("-1", ConfigSource::NodeFile, 1));
    }

    #[test]
    fn a_config_without_a_node_config_has_its_own_default() {
        check(&[], &[], "follower.replication.throttled.replicas", ("", ConfigSource::Default, 0));
    }

    #[test]
    fn a_node_config_shows_what_stands_in_for_it() {
        let image = image(&[]);
        let file = ConfigMap::from([("log.retention.hours".to_owned(), "5".to_owned())]);
        let view = ConfigView::new(&image, NODE, &file);
        let all = view.node_configs();
        let of = |name| all.iter().find(|config| config.def.name == name).unwrap();
        assert_eq!(of("log.retention.ms").value, None);
        assert_eq!(of("log.retention.ms").synonyms.len(), 1);
        assert_eq!(of("log.retention.hours").synonyms.len(), 2);
        assert_eq!(of("log.retention.hours").value.as_deref(), Some("5"));
        assert_eq!(view.node_value("num.partitions").as_deref(), Some("1"));
    }

    #[test]
    fn every_default_of_the_schema_agrees_with_the_node_configs_behind_it() {
        let image = ClusterImage::empty();
        let file = ConfigMap::new();
        let view = ConfigView::new(&image, NODE, &file);
        for def in TOPIC_CONFIGS {
            let value = view.topic_default(def.name).unwrap().value;
            assert_eq!(value.as_deref(), def.default, "{}", def.name);
        }
    }
}
