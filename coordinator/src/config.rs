//! The coordinator's settings: a TOML file, `WEIR_COORDINATOR_*` variables over it, flags over both.
//!
//! A variable names a section by two underscores: `WEIR_COORDINATOR_GROUPS__GROUP_MAX_SIZE=500`. Unknown keys are errors.

use coordinator_core::Config as CoreConfig;
use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use proto_types::coordinator_api::SHARD_BATCH_BYTES_MAX;
use proto_types::feature::LevelRange;
use quic_transport::pki::CredentialFiles;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// This coordinator, unique among the cluster's coordinators.
    pub id: i32,
    /// The cluster. 1 to 64 characters of `A-Z a-z 0-9 _ -`.
    pub cluster_id: String,
    /// Address of the endpoint for storage nodes (UDP).
    pub listen: SocketAddr,
    /// `host:port` under which storage nodes reach the endpoint; port 0 stands for the bound one. The bound address if it
    /// is not set.
    pub advertised: Option<String>,
    /// All controllers.
    pub controllers: Vec<ControllerAddress>,
    /// File of the secret of the endpoint; made at the first start.
    pub keys_file: PathBuf,
    /// Certificates.
    pub certificates: Certificates,
    /// Groups and offsets.
    pub groups: GroupsConfig,
    /// Bounds.
    pub limits: LimitsConfig,
    /// How long things may take.
    pub timing: TimingConfig,
    /// Metrics and health.
    pub http: HttpConfig,
    /// The log.
    pub log: LogConfig,
    /// The levels of `weir.version` that this coordinator supports: those of its build. Not read from anywhere.
    #[serde(skip)]
    pub levels: LevelRange,
}

/// One controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerAddress {
    /// Its id.
    pub id: u64,
    /// `host:port` of its endpoint.
    pub address: String,
}

/// Files of certificates, PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Certificates {
    /// The coordinator's certificate.
    pub certificate: PathBuf,
    /// Its private key (mode 0600).
    pub key: PathBuf,
    /// The cluster's authority.
    pub authority: PathBuf,
}

/// Groups and offsets: Kafka's settings with underscores for dots, and bounds of our own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupsConfig {
    /// `group.min.session.timeout.ms`: a shorter session time-out is refused.
    pub group_min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`: a longer session time-out is refused.
    pub group_max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`: how long an empty group waits for more members.
    pub group_initial_rebalance_delay_ms: i32,
    /// `group.max.size`: members of one group.
    pub group_max_size: usize,
    /// `offset.metadata.max.bytes`: length of the text that a client may store with an offset.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.retention.minutes`: how long a group without members keeps its offsets.
    pub offsets_retention_minutes: i64,
    /// `offsets.retention.check.interval.ms`: pause between two looks for expired offsets.
    pub offsets_retention_check_interval_ms: i64,
    /// Groups of one shard.
    pub shard_groups_max: usize,
    /// Offsets of one group.
    pub group_offsets_max: usize,
    /// Bytes of the subscriptions, and of the assignments, of one group.
    pub group_metadata_bytes_max: usize,
    /// Bytes of the record that holds one group: names of members, their subscriptions and assignments.
    pub group_record_bytes_max: usize,
    /// Protocols that one member offers.
    pub member_protocols_max: usize,
    /// Members of one group that were given an id and have not come back with it.
    pub pending_members_max: usize,
    /// The same over all groups of a shard.
    pub shard_pending_members_max: usize,
}

/// Largest append, with head room for the names of a group, its protocol and its leader, which are not counted.
const BATCH_BYTES_MAX: usize = SHARD_BATCH_BYTES_MAX - (256 << 10);

/// Bounds on what is asked and held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Requests of one storage node without an answer, the parked ones included; further ones are told to come back.
    pub requests_per_stream_max: usize,
    /// Requests in the queue of one shard; further ones are told to come back.
    pub requests_per_shard_max: usize,
    /// Bytes of one append to a shard's log, unless a single record is larger.
    pub append_bytes_max: usize,
    /// Bytes of records of one shard that wait for an append.
    pub queue_bytes_max: usize,
    /// Replies of one shard that wait for an append.
    pub waiting_max: usize,
    /// Bytes of a shard's log that are read before they are replayed.
    pub load_page_bytes: usize,
    /// Bytes that the records of one batch of a shard's log may have after decompression.
    pub batch_output_bytes_max: usize,
    /// Shards that load at a time.
    pub loads_max: usize,
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimingConfig {
    /// A question to the controllers, and opening a stream.
    pub call_ms: u64,
    /// One try to append to, or read from, a shard's log.
    pub log_call_ms: u64,
    /// How long an append may stay without an outcome; then the shard is dropped and loaded again.
    pub append_timeout_ms: u64,
    /// Shortest pause between tries.
    pub retry_ms_min: u64,
    /// Longest pause between tries.
    pub retry_ms_max: u64,
    /// What the lease ends before the session, for clocks that run at different speeds and for the answer's way out.
    pub lease_margin_ms: u64,
    /// How long a metadata feed may lag behind the quorum before another controller is asked.
    pub metadata_stall_ms: u64,
    /// Handing the shards over at a stop.
    pub shutdown_ms: u64,
}

/// Metrics and health over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Where to listen.
    pub address: SocketAddr,
}

/// The log on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// `text` or `json`.
    pub format: LogFormat,
    /// Levels by target.
    pub filter: String,
}

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            id: 0,
            cluster_id: String::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 9184)),
            advertised: None,
            controllers: Vec::new(),
            keys_file: PathBuf::from("/var/lib/weir/coordinator/transport.keys"),
            certificates: Certificates::default(),
            groups: GroupsConfig::default(),
            limits: LimitsConfig::default(),
            timing: TimingConfig::default(),
            http: HttpConfig::default(),
            log: LogConfig::default(),
            levels: LevelRange::of_this_build(),
        }
    }
}

impl Default for Certificates {
    fn default() -> Self {
        let CredentialFiles { certificate, key, authority } =
            CredentialFiles::in_directory(Path::new("/etc/weir/coordinator"));
        Self { certificate, key, authority }
    }
}

impl Default for GroupsConfig {
    fn default() -> Self {
        let core = CoreConfig::default();
        Self {
            group_min_session_timeout_ms: core.group_min_session_timeout_ms,
            group_max_session_timeout_ms: core.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms: core.group_initial_rebalance_delay_ms,
            group_max_size: core.group_max_size,
            offset_metadata_max_bytes: core.offset_metadata_max_bytes,
            offsets_retention_minutes: core.offsets_retention_ms / 60_000,
            offsets_retention_check_interval_ms: core.offsets_retention_check_interval_ms,
            shard_groups_max: core.groups_max,
            group_offsets_max: core.group_offsets_max,
            group_metadata_bytes_max: core.group_metadata_bytes_max,
            group_record_bytes_max: core.group_record_bytes_max,
            member_protocols_max: core.member_protocols_max,
            pending_members_max: core.pending_members_max,
            shard_pending_members_max: core.shard_pending_members_max,
        }
    }
}

impl GroupsConfig {
    /// Sets one of Kafka's settings by Kafka's name; names of other things are not looked at. The error says what is wrong
    /// with the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
            into: &mut T,
            value: &str,
        ) -> Result<(), String> {
            *into = value.trim().parse().map_err(|error| format!("{value:?}: {error}"))?;
            Ok(())
        }
        match name {
            "group.min.session.timeout.ms" => parsed(&mut self.group_min_session_timeout_ms, value),
            "group.max.session.timeout.ms" => parsed(&mut self.group_max_session_timeout_ms, value),
            "group.initial.rebalance.delay.ms" => parsed(&mut self.group_initial_rebalance_delay_ms, value),
            "group.max.size" => parsed(&mut self.group_max_size, value),
            "offset.metadata.max.bytes" => parsed(&mut self.offset_metadata_max_bytes, value),
            "offsets.retention.minutes" => parsed(&mut self.offsets_retention_minutes, value),
            "offsets.retention.check.interval.ms" => {
                parsed(&mut self.offsets_retention_check_interval_ms, value)
            }
            _ => Ok(()),
        }
    }
}

impl TimingConfig {
    /// All that must not be 0.
    fn all(&self) -> [u64; 5] {
        let Self { call_ms, log_call_ms, append_timeout_ms, retry_ms_min, metadata_stall_ms, .. } = *self;
        [call_ms, log_call_ms, append_timeout_ms, retry_ms_min, metadata_stall_ms]
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let core = CoreConfig::default();
        Self {
            requests_per_stream_max: 20_000,
            requests_per_shard_max: 10_000,
            append_bytes_max: core.append_bytes_max,
            queue_bytes_max: core.queue_bytes_max,
            waiting_max: core.waiting_max,
            load_page_bytes: 4 << 20,
            batch_output_bytes_max: 64 << 20,
            loads_max: 8,
        }
    }
}

impl Default for TimingConfig {
    fn default() -> Self {
        Self {
            call_ms: 1_000,
            log_call_ms: 3_000,
            append_timeout_ms: 5_000,
            retry_ms_min: 20,
            retry_ms_max: 500,
            lease_margin_ms: 300,
            metadata_stall_ms: 2_000,
            shutdown_ms: 5_000,
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 9294)) }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

impl Config {
    /// Reads the file, and the environment over it.
    pub fn load(file: Option<&Path>) -> Result<Self, Box<figment::Error>> {
        let mut figment = Figment::from(Serialized::defaults(Config::default()));
        if let Some(file) = file {
            figment = figment.merge(Toml::file_exact(file));
        }
        figment.merge(Env::prefixed("WEIR_COORDINATOR_").split("__")).extract().map_err(Box::new)
    }

    /// Checks everything that can be checked without touching the system; all faults at once.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let mut faults = Vec::new();
        let mut expect = |holds: bool, fault: &str| {
            if !holds {
                faults.push(fault.to_owned());
            }
        };
        expect(self.id >= 0, "id must not be negative");
        let named = quic_transport::Identity::new(&self.cluster_id, quic_transport::Role::Coordinator, 0);
        expect(named.is_ok(), "cluster_id must be 1 to 64 characters of A-Z a-z 0-9 _ -");
        expect(!self.controllers.is_empty(), "controllers must name at least one controller");
        let mut ids: Vec<u64> = self.controllers.iter().map(|controller| controller.id).collect();
        ids.sort_unstable();
        ids.dedup();
        expect(ids.len() == self.controllers.len(), "controllers names an id twice");
        let addresses = self.controllers.iter().map(|controller| &controller.address);
        expect(addresses.chain(&self.advertised).all(|at| at.contains(':')), "an address must be host:port");
        expect(
            self.advertised.is_some() || !self.listen.ip().is_unspecified(),
            "advertised must be set when listen is every address",
        );
        let groups = &self.groups;
        expect(
            0 < groups.group_min_session_timeout_ms
                && groups.group_min_session_timeout_ms <= groups.group_max_session_timeout_ms,
            "groups.group_min_session_timeout_ms must be positive and at most group_max_session_timeout_ms",
        );
        expect(groups.group_initial_rebalance_delay_ms >= 0, "groups.group_initial_rebalance_delay_ms < 0");
        expect(groups.offsets_retention_minutes > 0, "groups.offsets_retention_minutes must be positive");
        expect(
            groups.offsets_retention_check_interval_ms > 0,
            "groups.offsets_retention_check_interval_ms must be positive",
        );
        let limits = &self.limits;
        let bounds = [
            groups.group_max_size,
            groups.shard_groups_max,
            groups.group_offsets_max,
            groups.group_metadata_bytes_max,
            groups.group_record_bytes_max,
            groups.member_protocols_max,
            groups.pending_members_max,
            groups.shard_pending_members_max,
            limits.requests_per_stream_max,
            limits.requests_per_shard_max,
            limits.append_bytes_max,
            limits.queue_bytes_max,
            limits.waiting_max,
            limits.load_page_bytes,
            limits.batch_output_bytes_max,
            limits.loads_max,
        ];
        expect(!bounds.contains(&0), "no limit may be 0");
        expect(
            limits.append_bytes_max.max(groups.group_record_bytes_max) <= BATCH_BYTES_MAX,
            "limits.append_bytes_max and groups.group_record_bytes_max must be at most 2883584",
        );
        let timing = &self.timing;
        expect(!timing.all().contains(&0), "no time may be 0");
        expect(
            timing.retry_ms_min <= timing.retry_ms_max,
            "timing.retry_ms_min must be at most retry_ms_max",
        );
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// The settings as a TOML file. They hold paths of secrets, never secrets.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("our settings have a TOML form")
    }

    /// The settings of the shards.
    pub(crate) fn core(&self) -> CoreConfig {
        let (groups, limits) = (&self.groups, &self.limits);
        CoreConfig {
            group_min_session_timeout_ms: groups.group_min_session_timeout_ms,
            group_max_session_timeout_ms: groups.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms: groups.group_initial_rebalance_delay_ms,
            group_max_size: groups.group_max_size,
            offset_metadata_max_bytes: groups.offset_metadata_max_bytes,
            offsets_retention_ms: groups.offsets_retention_minutes.saturating_mul(60_000),
            offsets_retention_check_interval_ms: groups.offsets_retention_check_interval_ms,
            groups_max: groups.shard_groups_max,
            group_offsets_max: groups.group_offsets_max,
            group_metadata_bytes_max: groups.group_metadata_bytes_max,
            group_record_bytes_max: groups.group_record_bytes_max,
            member_protocols_max: groups.member_protocols_max,
            pending_members_max: groups.pending_members_max,
            shard_pending_members_max: groups.shard_pending_members_max,
            append_bytes_max: limits.append_bytes_max,
            queue_bytes_max: limits.queue_bytes_max,
            waiting_max: limits.waiting_max,
            append_timeout_ms: i64::try_from(self.timing.append_timeout_ms).unwrap_or(i64::MAX),
            ..CoreConfig::default()
        }
    }
}

impl From<&Certificates> for CredentialFiles {
    fn from(files: &Certificates) -> Self {
        Self {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            authority: files.authority.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, Box<figment::Error>> {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("coordinator.toml");
        std::fs::write(&path, text).expect("write");
        Config::load(Some(&path))
    }

    fn usable() -> Config {
        Config {
            id: 1,
            cluster_id: "c".into(),
            advertised: Some("localhost:0".into()),
            controllers: vec![ControllerAddress { id: 1, address: "127.0.0.1:9183".into() }],
            ..Config::default()
        }
    }

    #[test]
    fn a_printed_config_is_read_back_the_same() {
        let config = usable();
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(load(&config.to_toml()).expect("readable"), config);
    }

    #[test]
    fn kafkas_names_are_understood() {
        let mut groups = GroupsConfig::default();
        assert_eq!(groups.set("group.max.size", "7"), Ok(()));
        assert_eq!(groups.group_max_size, 7);
        assert!(groups.set("group.max.size", "many").expect_err("no number").contains("many"));
        let before = groups.clone();
        assert_eq!(groups.set("num.partitions", "3"), Ok(()));
        assert_eq!(groups, before, "it is no setting of groups");
    }

    #[test]
    fn unknown_keys_and_missing_files_are_errors() {
        assert!(load("idd = 1").expect_err("unknown key").to_string().contains("idd"));
        assert!(load("[groups]\nsize = 1").expect_err("unknown key").to_string().contains("size"));
        assert!(Config::load(Some(Path::new("/no/such/file.toml"))).is_err());
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let mut config = usable();
        config.cluster_id = "a b".into();
        config.id = -1;
        config.controllers.clear();
        config.groups.group_max_session_timeout_ms = 1;
        config.limits.waiting_max = 0;
        config.limits.append_bytes_max = SHARD_BATCH_BYTES_MAX;
        assert_eq!(config.validate().expect_err("faults").len(), 6);
    }
}
