//! Names, types, defaults and ranges of the configs that topics and storage nodes have.
//!
//! Two static tables, sorted by name: [`TOPIC_CONFIGS`] and [`NODE_CONFIGS`]. The controller checks changes against
//! them, storage nodes resolve and describe values with them. Names, types, defaults and ranges are those of Apache
//! Kafka 4.4; what differs is said in `docs/differences.md`. A value is kept as the text that the client sent.

/// A table of configs: `name, kind, default, allowed, marks... => doc;` per row.
macro_rules! rows {
    ($($name:literal, $kind:expr, $default:expr, $allowed:expr $(, $mark:ident)* => $doc:literal;)*) => {
        &[$(super::row($name, $kind, $default, $allowed, $doc)$(.$mark())*),*]
    };
}

mod node;
mod topic;

pub use node::NODE_CONFIGS;
pub use topic::TOPIC_CONFIGS;

/// Longest value of one config, bytes.
pub const VALUE_BYTES_MAX: usize = 32_767;

/// Kafka's types of config values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigKind {
    /// `true` or `false`, in any case.
    Boolean,
    /// Text.
    String,
    /// 32-bit integer.
    Int,
    /// 16-bit integer.
    Short,
    /// 64-bit integer.
    Long,
    /// Floating point.
    Double,
    /// Texts separated by commas.
    List,
    /// Name of a Java class; shown for completeness only.
    Class,
    /// Text that is never shown.
    Password,
}

impl ConfigKind {
    /// The type's number in DescribeConfigs answers.
    pub const fn wire_number(self) -> i8 {
        match self {
            ConfigKind::Boolean => 1,
            ConfigKind::String => 2,
            ConfigKind::Int => 3,
            ConfigKind::Short => 4,
            ConfigKind::Long => 5,
            ConfigKind::Double => 6,
            ConfigKind::List => 7,
            ConfigKind::Class => 8,
            ConfigKind::Password => 9,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            ConfigKind::Boolean => "BOOLEAN",
            ConfigKind::String => "STRING",
            ConfigKind::Int => "INT",
            ConfigKind::Short => "SHORT",
            ConfigKind::Long => "LONG",
            ConfigKind::Double => "DOUBLE",
            ConfigKind::List => "LIST",
            ConfigKind::Class => "CLASS",
            ConfigKind::Password => "PASSWORD",
        }
    }
}

/// Which values of its type a config takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Allowed {
    /// All.
    Any,
    /// Integers from this one on.
    Min(i64),
    /// Integers from `min` to `max`, both included.
    Range {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// Integers from `min` to `max`, or one other.
    RangeOr {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
        /// The other one.
        or: i64,
    },
    /// Floating point from the first to the second, both included.
    Between(f64, f64),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A list of these texts.
    EachOf(&'static [&'static str]),
    /// `*`, or a list of `partition:node`.
    ThrottledReplicas,
}

/// Where a node config may be changed while the cluster runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// For one node and for all.
    Dynamic,
    /// Only for all nodes at once.
    ClusterOnly,
    /// Only for one node: nodes may have to differ in it.
    NodeOnly,
    /// Only in the node's own config file.
    ReadOnly,
}

/// One config.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConfigDef {
    /// Kafka's name, or one that begins with `weir.`.
    pub name: &'static str,
    /// Type of its values.
    pub kind: ConfigKind,
    /// Default as text; `None` is Kafka's null.
    pub default: Option<&'static str>,
    /// Which values it takes.
    pub allowed: Allowed,
    /// What it is for.
    pub doc: &'static str,
    /// Where it may be changed.
    pub update: Update,
    /// Whether this version acts on it. If not, it is accepted, stored and shown all the same.
    pub enforced: bool,
}

impl ConfigDef {
    /// Whether clients may not change it.
    pub const fn read_only(&self) -> bool {
        matches!(self.update, Update::ReadOnly)
    }

    /// Whether its value is never shown.
    pub const fn sensitive(&self) -> bool {
        matches!(self.kind, ConfigKind::Password)
    }

    /// Checks a value. The error is a sentence like Kafka's, which names value, config and rule.
    pub fn check(&self, value: &str) -> Result<(), String> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!(
                "Invalid value for configuration {}: it has {} bytes, and at most {VALUE_BYTES_MAX} are allowed",
                self.name,
                value.len()
            ));
        }
        match self.kind {
            ConfigKind::Boolean => match boolean(value) {
                Some(_) => Ok(()),
                None => self.refuse(value, "Expected value to be either true or false"),
            },
            ConfigKind::Int => self.check_integer(value, i64::from(i32::MIN), i64::from(i32::MAX)),
            ConfigKind::Short => self.check_integer(value, i64::from(i16::MIN), i64::from(i16::MAX)),
            ConfigKind::Long => self.check_integer(value, i64::MIN, i64::MAX),
            ConfigKind::Double => self.check_double(value),
            ConfigKind::List => self.check_list(value),
            ConfigKind::String | ConfigKind::Class | ConfigKind::Password => self.check_text(value),
        }
    }

    fn check_integer(&self, value: &str, lowest: i64, highest: i64) -> Result<(), String> {
        let Some(number) = integer(value).filter(|number| (lowest..=highest).contains(number)) else {
            let rule = format!("Not a number of type {} (from {lowest} to {highest})", self.kind.name());
            return self.refuse(value, &rule);
        };
        match self.allowed {
            Allowed::Min(min) if number < min => {
                self.refuse(number, &format!("Value must be at least {min}"))
            }
            Allowed::Range { min, max } if number < min => {
                self.refuse(number, &format!("Value must be at least {min}, and no more than {max}"))
            }
            Allowed::Range { min, max } if number > max => {
                self.refuse(number, &format!("Value must be no more than {max}, and at least {min}"))
            }
            Allowed::RangeOr { min, max, or } if !(min..=max).contains(&number) && number != or => {
                self.refuse(number, &format!("Value must be between {min} and {max} or equal to {or}"))
            }
            _ => Ok(()),
        }
    }

    fn check_double(&self, value: &str) -> Result<(), String> {
        let Some(number) = value.trim().parse::<f64>().ok().filter(|number| number.is_finite()) else {
            return self.refuse(value, "Not a number of type DOUBLE");
        };
        match self.allowed {
            Allowed::Between(min, max) if number < min => self.refuse(
                double_text(number),
                &format!("Value must be at least {}, and no more than {}", bound(min), bound(max)),
            ),
            Allowed::Between(min, max) if number > max => self.refuse(
                double_text(number),
                &format!("Value must be no more than {}, and at least {}", bound(max), bound(min)),
            ),
            _ => Ok(()),
        }
    }

    fn check_list(&self, value: &str) -> Result<(), String> {
        match self.allowed {
            Allowed::EachOf(names) => match list(value).find(|item| !names.contains(item)) {
                Some(item) => self.refuse(item, &format!("String must be one of: {}", names.join(", "))),
                None => Ok(()),
            },
            Allowed::ThrottledReplicas => {
                if value.trim() == "*" || list(value).all(is_partition_and_node) {
                    return Ok(());
                }
                let rule = format!(
                    "{} must be the literal '*' or a list of replicas in the following format: \
                     [partitionId]:[brokerId],[partitionId]:[brokerId],...",
                    self.name
                );
                self.refuse(format!("[{}]", list(value).collect::<Vec<_>>().join(", ")), &rule)
            }
            _ => Ok(()),
        }
    }

    fn check_text(&self, value: &str) -> Result<(), String> {
        let value = value.trim();
        match self.allowed {
            Allowed::OneOf(names) if !names.contains(&value) => {
                self.refuse(value, &format!("String must be one of: {}", names.join(", ")))
            }
            _ => Ok(()),
        }
    }

    fn refuse(&self, value: impl std::fmt::Display, rule: &str) -> Result<(), String> {
        Err(format!("Invalid value {value} for configuration {}: {rule}", self.name))
    }

    const fn later(mut self) -> Self {
        self.enforced = false;
        self
    }

    const fn read_only_row(mut self) -> Self {
        self.update = Update::ReadOnly;
        self
    }

    const fn cluster_only(mut self) -> Self {
        self.update = Update::ClusterOnly;
        self
    }

    const fn node_only(mut self) -> Self {
        self.update = Update::NodeOnly;
        self
    }
}

const fn row(
    name: &'static str,
    kind: ConfigKind,
    default: Option<&'static str>,
    allowed: Allowed,
    doc: &'static str,
) -> ConfigDef {
    ConfigDef { name, kind, default, allowed, doc, update: Update::Dynamic, enforced: true }
}

/// The topic config of that name.
pub fn topic_config(name: &str) -> Option<&'static ConfigDef> {
    find(TOPIC_CONFIGS, name)
}

/// The node config of that name.
pub fn node_config(name: &str) -> Option<&'static ConfigDef> {
    find(NODE_CONFIGS, name)
}

fn find(table: &'static [ConfigDef], name: &str) -> Option<&'static ConfigDef> {
    table.binary_search_by(|def| def.name.cmp(name)).ok().map(|at| &table[at])
}

/// A node config that gives a topic config its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synonym {
    /// Name of the node config.
    pub node_config: &'static str,
    /// The topic config's value is the node config's, times this (hours and minutes against milliseconds).
    pub factor: i64,
}

const fn same(node_config: &'static str) -> Synonym {
    Synonym { node_config, factor: 1 }
}

const fn minutes(node_config: &'static str) -> Synonym {
    Synonym { node_config, factor: 60_000 }
}

const fn hours(node_config: &'static str) -> Synonym {
    Synonym { node_config, factor: 3_600_000 }
}

/// The node configs that give a topic config its default, the one that wins first. A synonym without a value (null
/// default and not set) is passed over. Empty where only the topic's own default counts.
pub fn synonyms(topic_config: &str) -> &'static [Synonym] {
    macro_rules! table {
        ($($topic:literal => [$($synonym:expr),+],)+) => {
            match topic_config {
                $($topic => {
                    const ROW: &[Synonym] = &[$($synonym),+];
                    ROW
                })+
                _ => &[],
            }
        };
    }
    table! {
        "cleanup.policy" => [same("log.cleanup.policy")],
        "compression.gzip.level" => [same("compression.gzip.level")],
        "compression.lz4.level" => [same("compression.lz4.level")],
        "compression.type" => [same("compression.type")],
        "compression.zstd.level" => [same("compression.zstd.level")],
        "delete.retention.ms" => [same("log.cleaner.delete.retention.ms")],
        "file.delete.delay.ms" => [same("log.segment.delete.delay.ms")],
        "flush.messages" => [same("log.flush.interval.messages")],
        "flush.ms" => [same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")],
        "index.interval.bytes" => [same("log.index.interval.bytes")],
        "local.retention.bytes" => [same("log.local.retention.bytes")],
        "local.retention.ms" => [same("log.local.retention.ms")],
        "max.compaction.lag.ms" => [same("log.cleaner.max.compaction.lag.ms")],
        "max.decompressed.message.bytes" => [same("max.decompressed.message.bytes")],
        "max.message.bytes" => [same("message.max.bytes")],
        "message.timestamp.after.max.ms" => [same("log.message.timestamp.after.max.ms")],
        "message.timestamp.before.max.ms" => [same("log.message.timestamp.before.max.ms")],
        "message.timestamp.type" => [same("log.message.timestamp.type")],
        "min.cleanable.dirty.ratio" => [same("log.cleaner.min.cleanable.ratio")],
        "min.compaction.lag.ms" => [same("log.cleaner.min.compaction.lag.ms")],
        "min.insync.replicas" => [same("min.insync.replicas")],
        "preallocate" => [same("log.preallocate")],
        "remote.copy.lag.bytes" => [same("log.remote.copy.lag.bytes")],
        "remote.copy.lag.ms" => [same("log.remote.copy.lag.ms")],
        "retention.bytes" => [same("log.retention.bytes")],
        "retention.ms" => [same("log.retention.ms"), minutes("log.retention.minutes"), hours("log.retention.hours")],
        "segment.bytes" => [same("log.segment.bytes")],
        "segment.index.bytes" => [same("log.index.size.max.bytes")],
        "segment.jitter.ms" => [same("log.roll.jitter.ms"), hours("log.roll.jitter.hours")],
        "segment.ms" => [same("log.roll.ms"), hours("log.roll.hours")],
        "unclean.leader.election.enable" => [same("unclean.leader.election.enable")],
        "weir.flush" => [same("weir.flush")],
    }
}

/// Reads a boolean as Kafka does: surrounding blanks and case do not matter.
pub fn boolean(value: &str) -> Option<bool> {
    let value = value.trim();
    if value.eq_ignore_ascii_case("true") {
        Some(true)
    } else if value.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

/// Reads an integer as Kafka does: surrounding blanks do not matter.
pub fn integer(value: &str) -> Option<i64> {
    value.trim().parse().ok()
}

/// The items of a list, without surrounding blanks; an empty text is an empty list.
pub fn list(value: &str) -> impl Iterator<Item = &str> {
    let empty = value.trim().is_empty();
    value.split(',').map(str::trim).filter(move |_| !empty)
}

/// A number as Java writes it.
fn double_text(number: f64) -> String {
    if number == 0.0 || (1e-3..1e7).contains(&number.abs()) {
        return format!("{number:?}");
    }
    let text = format!("{number:E}");
    if text.contains('.') { text } else { text.replace('E', ".0E") }
}

/// An end of a range: whole numbers without a fraction, unless that takes hundreds of digits.
fn bound(number: f64) -> String {
    if number.abs() < 1e15 { number.to_string() } else { double_text(number) }
}

fn is_partition_and_node(item: &str) -> bool {
    item.split_once(':').is_some_and(|(partition, node)| {
        [partition, node].iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str) -> String {
        match topic_config(name).expect("a topic config").check(value) {
            Ok(()) => "ok".to_owned(),
            Err(message) => message,
        }
    }

    #[test]
    fn ends_of_ranges_are_short() {
        assert_eq!([0.5, 1.0, f64::MAX].map(bound), ["0.5", "1", "1.7976931348623157E308"]);
    }

    #[test]
    fn tables_are_sorted_and_their_defaults_are_valid() {
        for table in [TOPIC_CONFIGS, NODE_CONFIGS] {
            assert!(table.is_sorted_by(|a, b| a.name < b.name));
            for def in table {
                assert!(!def.doc.is_empty() && def.doc.ends_with('.'), "{}", def.name);
                if let Some(default) = def.default {
                    assert_eq!(def.check(default), Ok(()), "{}", def.name);
                }
            }
        }
    }

    #[test]
    fn every_synonym_exists_and_its_default_is_the_topic_configs() {
        for def in TOPIC_CONFIGS {
            let found = synonyms(def.name).iter().find_map(|synonym| {
                let node = node_config(synonym.node_config).expect("synonyms are node configs");
                assert_eq!(node.enforced, def.enforced, "{}", node.name);
                let value = node.default?;
                Some(match integer(value) {
                    Some(number) if synonym.factor != 1 => (number * synonym.factor).to_string(),
                    _ => value.to_owned(),
                })
            });
            if let Some(found) = found {
                assert_eq!(Some(found.as_str()), def.default, "{}", def.name);
            }
        }
    }

    #[test]
    fn no_default_of_nodes_takes_what_its_topic_config_refuses() {
        let numbers = [i64::MIN, -(1 << 40), -5, -2, -1, 0, 1, 2, 5, 1 << 20, 1 << 31, i64::MAX];
        for def in TOPIC_CONFIGS.iter().filter(|def| def.enforced) {
            for synonym in synonyms(def.name) {
                let node = node_config(synonym.node_config).expect("synonyms are node configs");
                for number in numbers.iter().filter(|number| node.check(&number.to_string()).is_ok()) {
                    // -1 is for ever in every unit.
                    let value = if *number > 0 { number.saturating_mul(synonym.factor) } else { *number };
                    let value = value.to_string();
                    assert_eq!(def.check(&value), Ok(()), "{} = {number}", node.name);
                }
            }
        }
    }

    #[test]
    fn refusals_read_like_kafkas() {
        let cases = [
            (
                "retention.ms",
                "-5",
                "Invalid value -5 for configuration retention.ms: Value must be at least -1",
            ),
            (
                "retention.ms",
                "abc",
                "Invalid value abc for configuration retention.ms: Not a number of type LONG \
                 (from -9223372036854775808 to 9223372036854775807)",
            ),
            ("retention.ms", " 10 ", "ok"),
            (
                "cleanup.policy",
                "delete,foo",
                "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
            ),
            ("cleanup.policy", "", "ok"),
            ("cleanup.policy", "compact, delete", "ok"),
            (
                "min.cleanable.dirty.ratio",
                "2",
                "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1, and at least 0",
            ),
            (
                "preallocate",
                "yes",
                "Invalid value yes for configuration preallocate: Expected value to be either true or false",
            ),
            ("preallocate", " TRUE ", "ok"),
            (
                "segment.bytes",
                "10",
                "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576",
            ),
            (
                "segment.bytes",
                "99999999999",
                "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT \
                 (from -2147483648 to 2147483647)",
            ),
            (
                "compression.gzip.level",
                "0",
                "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
            ),
            ("compression.gzip.level", "-1", "ok"),
            (
                "message.timestamp.type",
                "x",
                "Invalid value x for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime",
            ),
            ("leader.replication.throttled.replicas", "*", "ok"),
            ("leader.replication.throttled.replicas", "0:1,1:2", "ok"),
            ("weir.flush", "os", "ok"),
        ];
        for (name, value, expected) in cases {
            assert_eq!(check(name, value), expected, "{name}={value}");
        }
        assert!(check("leader.replication.throttled.replicas", "abc").contains("must be the literal '*'"));
        assert!(check("weir.flush", &"x".repeat(40_000)).contains("at most 32767"));
    }

    #[test]
    fn unknown_names_are_not_found() {
        assert_eq!(topic_config("retention.m"), None);
        assert_eq!(node_config(""), None);
        assert_eq!(synonyms("no.such.config"), &[]);
    }
}
