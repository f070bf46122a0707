//! The configuration of a storage node: one TOML file, over it `WEIR_STORAGE_NODE_*`, over that `--set`.
//!
//! The doc comments of the fields are the manual. Unknown keys are errors. What Kafka has a name for stands in the table
//! `[kafka]` under Kafka's name (`num.partitions = 3`); everything else is Weir's own. [`Config::validate`] returns all
//! faults at once, each with the name of its field.

mod limits;

use crate::disk::scrub::ScrubLimits;
use crate::disk::{HousekeepingLimits, QueueLimits};
use crate::partition::PartitionLimits;
use crate::replication::ReplicationLimits;
use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use kafka_wire::HostPort;
use proto_types::config_schema;
use proto_types::feature::LevelRange;
use proto_types::profile::Profile;
use quic_transport::pki::CredentialFiles;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use limits::Limits;

/// What environment variables of this daemon begin with; `__` steps into a table:
/// `WEIR_STORAGE_NODE_HTTP__ADDRESS=127.0.0.1:9292`.
pub const ENV_PREFIX: &str = "WEIR_STORAGE_NODE_";

/// Retention begins its work so long after the start, as in Kafka.
const FIRST_RETENTION_WALK_MS: i64 = 30_000;

/// Node configs by which controllers elect, so that one node cannot have values of its own.
const OF_ALL_NODES: [&str; 3] = ["min.insync.replicas", "unclean.leader.election.enable", "weir.flush"];

/// What stands for a connection that may be idle for ever.
const IDLE_FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// Everything that an operator can say to a storage node at its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which defaults hold for what is not set; see `docs/profiles.md`.
    pub profile: Profile,
    /// The cluster that this node belongs to. Must be the one in its certificate and in its data directories.
    pub cluster_id: String,
    /// This node's id, what Kafka clients see as the broker id. Must be the one in its certificate.
    pub node_id: i32,
    /// The rack or zone of this node; replicas are spread over racks.
    #[serde(deserialize_with = "text_or_number")]
    pub rack: Option<String>,
    /// Directories for partitions. One for each disk.
    pub data_dirs: Vec<PathBuf>,
    /// All controllers of the cluster.
    pub controllers: Vec<ControllerAddress>,
    /// Where Kafka clients connect. Each listener has its own name; clients get addresses of the listener they asked.
    pub listeners: Vec<Listener>,
    /// The QUIC endpoint for short messages between daemons.
    pub control: ControlEndpoint,
    /// The QUIC endpoint over which storage nodes replicate partitions.
    pub data: DataEndpoint,
    /// Who this node is, to the other daemons.
    pub certificates: Certificates,
    /// `/metrics`, `/healthz`, `/readyz`.
    pub http: Http,
    /// Log lines on standard error.
    pub log: Log,
    /// Broker configs by Kafka's names: `num.partitions = 3`. Defaults of topic configs stand here too (`log.retention.ms`).
    #[serde(deserialize_with = "flat_names")]
    pub kafka: BTreeMap<String, String>,
    /// Bounds that Kafka has no name for.
    pub limits: Limits,
    /// The levels of `weir.version` that this node supports: those of its build. Not read from anywhere.
    #[serde(skip)]
    pub levels: LevelRange,
}

/// Where a controller listens for other daemons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerAddress {
    /// The controller's id; its certificate must carry it.
    pub id: u64,
    /// `host:port` of its control endpoint.
    pub address: String,
}

/// One address for Kafka clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The listener's name, the same on all nodes of a cluster. Two listeners of one node have two names.
    pub name: String,
    /// The local address; port 0 takes a free one.
    pub bind: SocketAddr,
    /// `host:port` that clients are told; the bound address if absent.
    pub advertised: Option<String>,
}

/// The QUIC endpoint for short messages between daemons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlEndpoint {
    /// The local address; port 0 takes a free one.
    pub bind: SocketAddr,
    /// `host:port` that other daemons are told; the bound address if absent.
    pub advertised: Option<String>,
}

/// The QUIC endpoint over which storage nodes replicate partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataEndpoint {
    /// The local address; port 0 takes a free one.
    pub bind: SocketAddr,
    /// `host:port` that other storage nodes are told; the bound address if absent.
    pub advertised: Option<String>,
}

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Certificates {
    /// This node's certificate.
    pub certificate: PathBuf,
    /// Its private key (mode 0600).
    pub key: PathBuf,
    /// The certificate of the cluster's own authority.
    pub authority: PathBuf,
}

/// The HTTP endpoint for machines that watch this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Whether to serve it at all.
    pub enabled: bool,
    /// The local address; port 0 takes a free one.
    pub address: SocketAddr,
}

/// Log lines on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `text` or `json`.
    pub format: LogFormat,
    /// What to log, in the syntax of tracing's `EnvFilter`: `info,storage_node=debug`.
    pub filter: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::Default,
            cluster_id: String::new(),
            node_id: -1,
            rack: None,
            data_dirs: Vec::new(),
            controllers: Vec::new(),
            listeners: Vec::new(),
            control: ControlEndpoint::default(),
            data: DataEndpoint::default(),
            certificates: Certificates::default(),
            http: Http::default(),
            log: Log::default(),
            kafka: BTreeMap::new(),
            limits: Limits::default(),
            levels: LevelRange::of_this_build(),
        }
    }
}

impl Default for Certificates {
    fn default() -> Self {
        let CredentialFiles { certificate, key, authority } =
            CredentialFiles::in_directory(Path::new("/etc/weir/storage-node"));
        Self { certificate, key, authority }
    }
}

impl Default for ControlEndpoint {
    fn default() -> Self {
        Self { bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 9182)), advertised: None }
    }
}

impl Default for DataEndpoint {
    fn default() -> Self {
        Self { bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 9192)), advertised: None }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self { enabled: true, address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9292)) }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A key is unknown or a value has the wrong type.
    #[error("{0}")]
    Malformed(Box<figment::Error>),
    /// A `--set` argument is not `key=value`.
    #[error("--set {0:?}: expected key=value, for example node_id=2 or kafka.num.partitions=3")]
    BadSet(String),
    /// Values are out of range or contradict each other; all faults, one per line.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

impl Config {
    /// Reads the file (if given), the environment, and the `key=value` settings, later ones winning, and validates.
    pub fn load(path: Option<&Path>, settings: &[String]) -> Result<Config, ConfigError> {
        let mut set = Figment::new();
        if let Some(path) = path {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
            set = set.merge(Toml::string(&text));
        }
        set = set.merge(Env::prefixed(ENV_PREFIX).split("__"));
        for name in OF_TEXT {
            if let Ok(value) = std::env::var(format!("{ENV_PREFIX}{}", name.to_uppercase())) {
                set = set.merge((name, without_quotes(&value)));
            }
        }
        for setting in settings {
            set = set.merge(Toml::string(&setting_as_toml(setting)?));
        }
        let malformed = |error| ConfigError::Malformed(Box::new(error));
        let profile = Figment::from(Serialized::default("profile", Profile::Default)).merge(&set);
        let defaults = Config::of_profile(profile.extract_inner("profile").map_err(malformed)?);
        let figment = Figment::from(Serialized::defaults(defaults)).merge(set);
        let config: Config = figment.extract().map_err(malformed)?;
        match config.validate() {
            faults if faults.is_empty() => Ok(config),
            faults => Err(ConfigError::Invalid(faults)),
        }
    }

    /// The defaults of a profile.
    pub fn of_profile(profile: Profile) -> Self {
        let limits = match profile {
            Profile::Default => Limits::default(),
            Profile::Fast => Limits { departed_node_told_ms: 3_000, ..Limits::default() },
        };
        Self { profile, limits, ..Self::default() }
    }

    /// All faults, each a sentence that names the field. Empty for a usable configuration.
    pub fn validate(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.cluster_id.is_empty() {
            faults
                .push("cluster_id is missing: give the id that the cluster's certificates carry".to_owned());
        }
        if self.node_id < 0 {
            faults.push(format!("node_id = {} must be 0 or more", self.node_id));
        }
        self.validate_directories(&mut faults);
        self.validate_addresses(&mut faults);
        for (name, value) in &self.kafka {
            match config_schema::node_config(name) {
                None => faults.push(format!("kafka.{name} is not a broker config that this version knows")),
                Some(def) => {
                    if let Err(fault) = def.check(value) {
                        faults.push(format!("kafka.{name}: {fault}"));
                    }
                    if OF_ALL_NODES.contains(&name.as_str()) {
                        faults.push(format!(
                            "kafka.{name} cannot be set for one node: the controllers elect by it; set it for all \
                             (kafka-configs --entity-type brokers --entity-default) or for a topic"
                        ));
                    }
                }
            }
        }
        self.limits.validate(&mut faults);
        if faults.is_empty()
            && let Err(fault) = self.wire_limits().validate()
        {
            faults.push(format!("kafka: {fault}"));
        }
        faults
    }

    fn validate_directories(&self, faults: &mut Vec<String>) {
        if self.data_dirs.is_empty() {
            faults.push("data_dirs is empty: give at least one directory".to_owned());
        }
        let mut seen = BTreeSet::new();
        for dir in &self.data_dirs {
            if !seen.insert(dir) {
                faults.push(format!("data_dirs names {} twice", dir.display()));
            }
        }
    }

    fn validate_addresses(&self, faults: &mut Vec<String>) {
        if self.controllers.is_empty() {
            faults.push("controllers is empty: give id and address of every controller".to_owned());
        }
        let mut ids = BTreeSet::new();
        for controller in &self.controllers {
            if !ids.insert(controller.id) {
                faults.push(format!("controllers names id {} twice", controller.id));
            }
            check_address(faults, "controllers.address", &controller.address);
        }
        if self.listeners.is_empty() {
            faults.push("listeners is empty: give at least one [[listeners]] with name and bind".to_owned());
        }
        let mut names = BTreeSet::new();
        for listener in &self.listeners {
            if listener.name.is_empty() || !names.insert(&listener.name) {
                faults.push(format!("listeners.name {:?} must be given and unique", listener.name));
            }
            if let Some(advertised) = &listener.advertised {
                check_address(faults, &format!("listeners.advertised of {}", listener.name), advertised);
            } else if listener.bind.ip().is_unspecified() {
                faults.push(format!(
                    "listeners.bind {} of {} is a wildcard: say in listeners.advertised which host:port clients are to use",
                    listener.bind, listener.name
                ));
            }
        }
        match &self.control.advertised {
            Some(advertised) => check_address(faults, "control.advertised", advertised),
            None if self.control.bind.ip().is_unspecified() => faults.push(format!(
                "control.bind {} is a wildcard: say in control.advertised which host:port other daemons are to use",
                self.control.bind
            )),
            None => {}
        }
        match &self.data.advertised {
            Some(advertised) => check_address(faults, "data.advertised", advertised),
            None if self.data.bind.ip().is_unspecified() => faults.push(format!(
                "data.bind {} is a wildcard: say in data.advertised which host:port other storage nodes are to use",
                self.data.bind
            )),
            None => {}
        }
    }

    /// A broker config: the value in `[kafka]`, else the default of the schema, else nothing.
    pub fn kafka_value(&self, name: &str) -> Option<&str> {
        match self.kafka.get(name) {
            Some(value) => Some(value),
            None => config_schema::node_config(name)?.default,
        }
    }

    /// A broker config of a number type.
    ///
    /// # Panics
    /// If the schema has no such config, or one of another type: names are literals of this program, values validated.
    pub fn kafka_number(&self, name: &str) -> i64 {
        let value = self.kafka_value(name).and_then(|value| value.trim().parse().ok());
        value.expect("the name is a number of the schema and its value was validated")
    }

    /// A broker config of type boolean; see [`Config::kafka_number`].
    pub fn kafka_flag(&self, name: &str) -> bool {
        self.kafka_value(name).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
    }

    /// The limits of the connection loop.
    pub fn wire_limits(&self) -> kafka_wire::Limits {
        let defaults = kafka_wire::Limits::default();
        let count = |name: &str| usize::try_from(self.kafka_number(name)).unwrap_or(0);
        let frame_bytes_max = count("socket.request.max.bytes");
        // Kafka's -1 means no bound; here it means the built-in one, which grows with the largest frame.
        let request_memory_bytes_max = match usize::try_from(self.kafka_number("queued.max.request.bytes")) {
            Ok(bytes) => bytes,
            Err(_) => defaults.request_memory_bytes_max.max(frame_bytes_max),
        };
        let idle_ms = u64::try_from(self.kafka_number("connections.max.idle.ms"));
        kafka_wire::Limits {
            frame_bytes_max,
            request_memory_bytes_max,
            connections_max: count("max.connections"),
            connections_per_ip_max: count("max.connections.per.ip"),
            // Kafka's -1 is "never".
            idle_max: idle_ms.map_or(IDLE_FOR_EVER, Duration::from_millis),
            drain_max: Duration::from_millis(self.limits.stop_drain_ms_max),
            ..defaults
        }
    }

    /// The bounds of the partition runtime.
    pub(crate) fn partition_limits(&self) -> PartitionLimits {
        let limits = PartitionLimits::default();
        PartitionLimits {
            queue: QueueLimits {
                bytes_max: self.limits.write_queue_bytes_max,
                events_max: self.limits.write_queue_events_max,
            },
            read_threads: self.limits.read_threads,
            read_queue_max: self.limits.read_queue_max,
            disk_stall_ms: i64::try_from(self.limits.disk_stall_ms_max).unwrap_or(i64::MAX),
            open_wait_ms: self.limits.copy_open_wait_ms_max,
            scrub: ScrubLimits {
                bytes_per_second: self.limits.scrub_bytes_per_second,
                period_ms: i64::try_from(self.limits.scrub_period_ms).unwrap_or(i64::MAX),
            },
            housekeeping: HousekeepingLimits {
                check_interval_ms: self.kafka_number("log.retention.check.interval.ms"),
                first_walk_ms_max: FIRST_RETENTION_WALK_MS,
                clock: self.limits.clock(),
                reserve_bytes: self.limits.disk_reserve_bytes,
            },
            ..limits
        }
    }

    /// The bounds of replication.
    pub(crate) fn replication_limits(&self) -> ReplicationLimits {
        let limits = &self.limits;
        ReplicationLimits {
            lanes: limits.replication_lanes,
            connect_max: Duration::from_millis(limits.replication_connect_ms_max),
            credit_bytes_max: limits.replication_credit_bytes_max,
            credit_bytes_min: limits.replication_credit_bytes_min,
            peer_bytes_max: limits.replication_peer_bytes_max,
            push_bytes_max: limits.replication_push_bytes_max,
            catch_up_reads_max: limits.replication_catch_up_reads_max,
            sessions_max: limits.replication_sessions_max,
            tail_bytes_max: limits.replication_tail_bytes_max,
        }
    }

    /// The configuration as TOML, without secrets.
    pub fn print_redacted(&self) -> Result<String, toml::ser::Error> {
        let mut shown = self.clone();
        for (name, value) in &mut shown.kafka {
            if config_schema::node_config(name).is_none_or(|def| def.sensitive()) {
                *value = "[hidden]".to_owned();
            }
        }
        toml::to_string_pretty(&shown)
    }
}

fn check_address(faults: &mut Vec<String>, field: &str, text: &str) {
    if let Err(error) = text.parse::<HostPort>() {
        faults.push(format!("{field}: {error}"));
    }
}

/// Settings that are text though they may look like a number.
const OF_TEXT: [&str; 2] = ["cluster_id", "rack"];

/// `key=value` as a line of TOML: a value that is no TOML is taken as text.
fn setting_as_toml(setting: &str) -> Result<String, ConfigError> {
    let bad = || ConfigError::BadSet(setting.to_owned());
    let (key, value) = setting.split_once('=').ok_or_else(bad)?;
    let key = key.trim();
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        return Err(bad());
    }
    let line = format!("{key} = {value}");
    let is_right = |table: toml::Table| !OF_TEXT.contains(&key) || table.values().all(toml::Value::is_str);
    if line.parse().is_ok_and(is_right) {
        return Ok(line);
    }
    Ok(format!("{key} = {}", toml::Value::String(value.to_owned())))
}

/// The value of an environment variable that is text whatever it looks like.
fn without_quotes(value: &str) -> &str {
    let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    quoted.unwrap_or(value)
}

/// Reads a name that is not quoted.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Text(String),
        Number(i64),
    }

    Ok(Option::<Value>::deserialize(deserializer)?.map(|value| match value {
        Value::Text(text) => text,
        Value::Number(number) => number.to_string(),
    }))
}

/// Reads the `[kafka]` table. TOML takes the dots of `num.partitions` for nested tables, and environment variables can only
/// have underscores; both become Kafka's dotted name again. Numbers and booleans become text, lists are joined by commas.
fn flat_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Bool(bool),
        Int(i64),
        Float(f64),
        Text(String),
        List(Vec<Value>),
        Table(BTreeMap<String, Value>),
    }

    fn flatten(prefix: &str, value: Value, flat: &mut BTreeMap<String, String>) {
        let text = match value {
            Value::Table(table) => {
                for (key, value) in table {
                    let key = key.replace('_', ".");
                    let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                    flatten(&name, value, flat);
                }
                return;
            }
            Value::List(values) => {
                let mut items = BTreeMap::new();
                for (i, value) in values.into_iter().enumerate() {
                    flatten(&format!("{i:06}"), value, &mut items);
                }
                items.into_values().collect::<Vec<_>>().join(",")
            }
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(value) => value,
        };
        flat.insert(prefix.to_owned(), text);
    }

    let mut flat = BTreeMap::new();
    flatten("", Value::Table(BTreeMap::deserialize(deserializer)?), &mut flat);
    Ok(flat)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
        cluster_id = "c"
        node_id = 1
        data_dirs = ["/data/a"]
        controllers = [{ id = 1, address = "127.0.0.1:9183" }]

        [[listeners]]
        name = "PLAINTEXT"
        bind = "127.0.0.1:9092"
    "#;

    fn load(text: &str, settings: &[&str]) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.toml");
        std::fs::write(&path, text).unwrap();
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Config::load(Some(&path), &settings)
    }

    fn faults(text: &str, settings: &[&str]) -> String {
        load(text, settings).unwrap_err().to_string()
    }

    #[test]
    fn a_minimal_file_is_enough() {
        let config = load(MINIMAL, &[]).unwrap();
        assert_eq!(config.node_id, 1);
        assert_eq!(config.control.bind.port(), 9182);
        assert_eq!(config.http.address.to_string(), "127.0.0.1:9292");
        assert!(!config.kafka_flag("auto.create.topics.enable"));
        assert_eq!(config.wire_limits().frame_bytes_max, 100 << 20);
    }

    #[test]
    fn a_profile_changes_defaults_only() {
        assert_eq!(load(MINIMAL, &[]).unwrap().limits.departed_node_told_ms, 0);
        let fast = load(MINIMAL, &["profile=fast"]).unwrap();
        assert_eq!((fast.profile, fast.limits.departed_node_told_ms), (Profile::Fast, 3_000));
        let own = load(MINIMAL, &["profile=fast", "limits.departed_node_told_ms=1"]).unwrap();
        assert_eq!(own.limits.departed_node_told_ms, 1);
        assert!(faults(MINIMAL, &["profile=faster"]).contains("faster"));
    }

    #[test]
    fn unknown_keys_are_errors_that_name_the_key() {
        assert!(faults(MINIMAL, &["nod_id=2"]).contains("nod_id"));
        assert!(faults(MINIMAL, &["http.bnd=\"127.0.0.1:1\""]).contains("bnd"));
        assert!(faults(MINIMAL, &["kafka.num.partitoins=2"]).contains("kafka.num.partitoins"));
    }

    #[test]
    fn kafka_names_keep_their_dots_and_are_checked() {
        let text = format!(
            "{MINIMAL}\n[kafka]\nnum.partitions = 4\nauto.create.topics.enable = true\n\"log.retention.ms\" = 5000\n"
        );
        let config = load(&text, &[]).unwrap();
        assert_eq!(config.kafka_number("num.partitions"), 4);
        assert!(config.kafka_flag("auto.create.topics.enable"));
        assert_eq!(config.kafka_value("log.retention.ms"), Some("5000"));
        let fault = faults(&text, &["kafka.weir.flush=os"]);
        assert!(fault.contains("kafka.weir.flush cannot be set for one node"), "{fault}");
        let fault = faults(&text, &["kafka.num.partitions=many"]);
        assert!(fault.contains("kafka.num.partitions") && fault.contains("many"), "{fault}");
    }

    #[test]
    fn settings_win_over_the_file() {
        let config = load(MINIMAL, &["node_id=7", "rack=a", "kafka.num.partitions=2"]).unwrap();
        assert_eq!((config.node_id, config.rack.as_deref()), (7, Some("a")));
        assert_eq!(config.kafka_number("num.partitions"), 2);
        assert!(matches!(load(MINIMAL, &["node_id"]), Err(ConfigError::BadSet(_))));
        assert!(matches!(load(MINIMAL, &["a b=1"]), Err(ConfigError::BadSet(_))));
    }

    #[test]
    fn a_rack_may_look_like_a_number() {
        for (setting, rack) in
            [("3", "3"), ("\"3\"", "3"), ("007", "007"), ("0x10", "0x10"), ("true", "true")]
        {
            let config = load(MINIMAL, &[&format!("rack={setting}")]).unwrap();
            assert_eq!(config.rack.as_deref(), Some(rack), "{setting}");
        }
        assert_eq!(["007", "\"007\"", "\""].map(without_quotes), ["007", "007", "\""]);
        // Without quotes in a file.
        let config = load(&format!("rack = 3\n{MINIMAL}"), &[]).unwrap();
        assert_eq!(config.rack.as_deref(), Some("3"));
    }

    #[test]
    fn all_faults_come_at_once_and_name_their_fields() {
        let text = faults(
            "node_id = -3\n[[listeners]]\nname = \"A\"\nbind = \"0.0.0.0:9092\"\n[limits]\nadmin_request_ms_max = 0\n",
            &[],
        );
        let fields = [
            "cluster_id",
            "node_id",
            "data_dirs",
            "controllers",
            "listeners.advertised",
            "limits.admin_request_ms_max",
        ];
        for field in fields {
            assert!(text.contains(field), "{field} is missing in:\n{text}");
        }
    }

    #[test]
    fn what_is_printed_is_what_was_read() {
        let config = load(MINIMAL, &["kafka.num.partitions=2", "rack=a"]).unwrap();
        let printed = config.print_redacted().unwrap();
        assert_eq!(load(&printed, &[]).unwrap(), config, "{printed}");
    }

    #[test]
    fn a_larger_frame_needs_no_second_setting() {
        let config = load(MINIMAL, &["kafka.socket.request.max.bytes=1073741824"]).unwrap();
        assert_eq!(config.wire_limits().validate(), Ok(()));
        assert_eq!(config.wire_limits().request_memory_bytes_max, 1 << 30);
    }
}
