//! The controller's settings: a TOML file, `WEIR_CONTROLLER_*` variables over it, flags over both.
//!
//! A variable names a section by two underscores: `WEIR_CONTROLLER_RAFT__HEARTBEAT_MS=200`. Unknown keys are errors.

use controller_core::Limits;
use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use proto_types::feature::LevelRange;
use proto_types::profile::Profile;
use quic_transport::pki::CredentialFiles;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which defaults hold for what is not set; see `docs/profiles.md`.
    pub profile: Profile,
    /// This controller; never used again for another one.
    pub id: u64,
    /// The cluster. 1 to 64 characters of `A-Z a-z 0-9 _ -`.
    pub cluster_id: String,
    /// Where log and snapshots are kept; best a disk of its own.
    pub data_dir: PathBuf,
    /// Address of the endpoint for controllers, storage nodes and coordinators (UDP).
    pub listen: SocketAddr,
    /// All controllers, this one included, as they are when the quorum is formed. Later the quorum itself knows who its
    /// voters are; an address here goes before the one that it knows.
    pub voters: Vec<Voter>,
    /// Whether this controller is added to a quorum that exists, instead of forming one. `voters` then names those that
    /// are there.
    pub join: bool,
    /// Certificates.
    pub certificates: Certificates,
    /// Raft.
    pub raft: RaftConfig,
    /// Sessions of storage nodes.
    pub sessions: SessionConfig,
    /// Which replicas lead.
    pub leaders: LeadersConfig,
    /// Bounds.
    pub limits: LimitsConfig,
    /// How long things may take.
    pub timing: TimingConfig,
    /// Metrics and health.
    pub http: HttpConfig,
    /// The log.
    pub log: LogConfig,
    /// The levels of `weir.version` that this controller supports: those of its build. Not read from anywhere.
    #[serde(skip)]
    pub levels: LevelRange,
}

/// One controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Voter {
    /// Its id.
    pub id: u64,
    /// `host:port` of its endpoint.
    pub address: String,
}

/// Files of certificates, PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Certificates {
    /// The controller's certificate.
    pub certificate: PathBuf,
    /// Its private key (mode 0600).
    pub key: PathBuf,
    /// The cluster's authority.
    pub authority: PathBuf,
}

/// Raft's times and sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaftConfig {
    /// Time between heartbeats of the leader.
    pub heartbeat_ms: u64,
    /// Shortest silence after which an election begins.
    pub election_min_ms: u64,
    /// Longest.
    pub election_max_ms: u64,
    /// Size at which a file of the log is closed and the next one begun.
    pub segment_bytes: u64,
    /// A snapshot is written after so many log entries.
    pub snapshot_entries: u64,
    /// Entries kept in the log behind a snapshot, for controllers that lag a little.
    pub keep_entries: u64,
    /// How long the transfer of a snapshot may take.
    pub snapshot_timeout_ms: u64,
}

/// Sessions of storage nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionConfig {
    /// A node that is silent for so long is fenced.
    pub session_ms: u64,
    /// How often nodes are to send heartbeats.
    pub heartbeat_ms: u64,
    /// Whether a node that is silent for two heartbeats is asked, by a datagram to its data address, whether its process is
    /// there at all. If its host refuses, it is fenced at once.
    pub probe_silent: bool,
}

/// Which replicas lead, as far as the controllers decide by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeadersConfig {
    /// Whether preferred leaders get their partitions back by themselves; Kafka's `auto.leader.rebalance.enable`.
    pub auto_rebalance: bool,
    /// How often that is looked after; Kafka's `leader.imbalance.check.interval.seconds`.
    pub imbalance_check_seconds: u64,
}

/// Bounds on what is asked and held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// New partitions in one request.
    pub partitions_per_request_max: usize,
    /// Partitions of the cluster.
    pub partitions_max: usize,
    /// Topics or config resources in one request.
    pub topics_per_request_max: usize,
    /// Voters of the quorum.
    pub voters_max: usize,
    /// Registered storage nodes, and as many coordinators.
    pub nodes_max: usize,
    /// Partitions of `__consumer_offsets`, and so shards of groups, when it is created; Kafka's
    /// `offsets.topic.num.partitions`.
    pub internal_topic_partitions: usize,
    /// Requests that wait for the proposer; further ones are told to come back.
    pub requests_queued_max: usize,
    /// Requests whose changes go into one log entry.
    pub requests_per_batch_max: usize,
    /// Bytes of changes that one request may make.
    pub request_bytes_max: usize,
    /// Changes kept in memory for the feed; a follower further behind gets a snapshot.
    pub feed_changes_max: usize,
    /// Bytes of the disk that are kept free for deletions and what the cluster does by itself, on a small disk a
    /// thirty-second of it; 0 keeps none.
    pub reserve_bytes: u64,
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimingConfig {
    /// Committing a batch; after that its outcome is called unknown.
    pub commit_ms: u64,
    /// Confirming the leadership for heartbeats.
    pub confirm_ms: u64,
    /// Longest wait of an answer for the nodes to apply a change, whatever the client asks for.
    pub propagation_ms: u64,
    /// A follower of the feed that reads nothing for so long is dropped.
    pub feed_stall_ms: u64,
    /// Calls in progress at a stop.
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
            profile: Profile::Default,
            id: 0,
            cluster_id: String::new(),
            data_dir: PathBuf::from("/var/lib/weir/controller"),
            listen: SocketAddr::from(([127, 0, 0, 1], 9183)),
            voters: Vec::new(),
            join: false,
            certificates: Certificates::default(),
            raft: RaftConfig::default(),
            sessions: SessionConfig::default(),
            leaders: LeadersConfig::default(),
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
            CredentialFiles::in_directory(Path::new("/etc/weir/controller"));
        Self { certificate, key, authority }
    }
}

impl Default for RaftConfig {
    fn default() -> Self {
        Self {
            heartbeat_ms: 100,
            election_min_ms: 250,
            election_max_ms: 450,
            segment_bytes: 16 << 20,
            snapshot_entries: 10_000,
            keep_entries: 1_000,
            snapshot_timeout_ms: 30_000,
        }
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self { session_ms: 3_000, heartbeat_ms: 300, probe_silent: true }
    }
}

impl Default for LeadersConfig {
    fn default() -> Self {
        Self { auto_rebalance: true, imbalance_check_seconds: 300 }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            partitions_per_request_max: limits.partitions_per_request_max,
            partitions_max: limits.partitions_max,
            topics_per_request_max: limits.topics_per_request_max,
            voters_max: 7,
            nodes_max: limits.nodes_max,
            internal_topic_partitions: limits.internal_topic_partitions,
            requests_queued_max: 1024,
            requests_per_batch_max: 256,
            request_bytes_max: 1 << 20,
            feed_changes_max: 100_000,
            // The largest log entries, and a snapshot beside the one that it replaces.
            reserve_bytes: 64 << 20,
        }
    }
}

impl Default for TimingConfig {
    fn default() -> Self {
        Self {
            commit_ms: 5_000,
            confirm_ms: 1_000,
            propagation_ms: 10_000,
            feed_stall_ms: 30_000,
            shutdown_ms: 2_000,
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 9293)) }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info,openraft=warn".to_owned() }
    }
}

impl Config {
    /// Reads the file, and the environment over it.
    pub fn load(file: Option<&Path>) -> Result<Self, Box<figment::Error>> {
        let set = match file {
            Some(file) => Figment::from(Toml::file_exact(file)),
            None => Figment::new(),
        };
        let set = set.merge(Env::prefixed("WEIR_CONTROLLER_").split("__"));
        let profile = Figment::from(Serialized::default("profile", Profile::Default)).merge(&set);
        let defaults = Config::of_profile(profile.extract_inner("profile").map_err(Box::new)?);
        Figment::from(Serialized::defaults(defaults)).merge(set).extract().map_err(Box::new)
    }

    /// The defaults of a profile.
    pub fn of_profile(profile: Profile) -> Self {
        let sessions = match profile {
            Profile::Default => SessionConfig::default(),
            Profile::Fast => {
                SessionConfig { session_ms: 1_000, heartbeat_ms: 100, ..SessionConfig::default() }
            }
        };
        Self { profile, sessions, ..Self::default() }
    }

    /// Checks everything that can be checked without touching the system; all faults at once.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let mut faults = Vec::new();
        let mut expect = |holds: bool, fault: &str| {
            if !holds {
                faults.push(fault.to_owned());
            }
        };
        let named =
            quic_transport::Identity::new(&self.cluster_id, quic_transport::Role::Controller, self.id);
        expect(named.is_ok(), "cluster_id must be 1 to 64 characters of A-Z a-z 0-9 _ -");
        let mut ids: Vec<u64> = self.voters.iter().map(|voter| voter.id).collect();
        expect(
            self.join || ids.contains(&self.id),
            "voters must contain this controller's id, or join be true",
        );
        ids.sort_unstable();
        ids.dedup();
        expect(ids.len() == self.voters.len(), "voters names an id twice");
        let count = self.voters.len();
        expect(self.join || [1, 3, 5].contains(&count), "voters must be 1, 3 or 5 to form a quorum");
        expect(
            !self.join || ids.iter().any(|id| *id != self.id),
            "voters must name those that this one joins",
        );
        expect(
            self.voters.iter().all(|voter| voter.address.contains(':')),
            "a voter's address must be host:port",
        );
        let raft = &self.raft;
        expect(raft.heartbeat_ms > 0, "raft.heartbeat_ms must not be 0");
        expect(
            raft.heartbeat_ms * 2 <= raft.election_min_ms && raft.election_min_ms < raft.election_max_ms,
            "raft.election_min_ms must be at least twice raft.heartbeat_ms and below raft.election_max_ms",
        );
        expect(raft.segment_bytes >= 4096, "raft.segment_bytes must be at least 4096");
        expect(raft.snapshot_entries > 0, "raft.snapshot_entries must not be 0");
        let sessions = &self.sessions;
        expect(
            sessions.heartbeat_ms > 0 && sessions.heartbeat_ms * 3 <= sessions.session_ms,
            "sessions.session_ms must be at least three times sessions.heartbeat_ms, which must not be 0",
        );
        expect(self.leaders.imbalance_check_seconds > 0, "leaders.imbalance_check_seconds must not be 0");
        let limits = &self.limits;
        let bounds = [
            limits.partitions_per_request_max,
            limits.partitions_max,
            limits.topics_per_request_max,
            limits.voters_max,
            limits.nodes_max,
            limits.internal_topic_partitions,
            limits.requests_queued_max,
            limits.requests_per_batch_max,
            limits.request_bytes_max,
            limits.feed_changes_max,
        ];
        expect(!bounds.contains(&0), "no limit may be 0");
        expect(limits.request_bytes_max <= 4 << 20, "limits.request_bytes_max must be at most 4194304");
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// The settings as a TOML file. They hold paths of secrets, never secrets.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("our settings have a TOML form")
    }

    pub(crate) fn plan_limits(&self) -> Limits {
        Limits {
            partitions_per_request_max: self.limits.partitions_per_request_max,
            partitions_max: self.limits.partitions_max,
            topics_per_request_max: self.limits.topics_per_request_max,
            nodes_max: self.limits.nodes_max,
            internal_topic_partitions: self.limits.internal_topic_partitions,
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
        let path = dir.path().join("controller.toml");
        std::fs::write(&path, text).expect("write");
        Config::load(Some(&path))
    }

    fn usable() -> Config {
        Config {
            id: 1,
            cluster_id: "c".into(),
            voters: vec![Voter { id: 1, address: "127.0.0.1:9183".into() }],
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
    fn a_profile_changes_defaults_only() {
        let fast = load("profile = \"fast\"").expect("readable");
        assert_eq!((fast.sessions.session_ms, fast.sessions.heartbeat_ms), (1_000, 100));
        assert_eq!(load(&fast.to_toml()).expect("readable"), fast);
        let own = load("profile = \"fast\"\n[sessions]\nsession_ms = 900").expect("readable");
        assert_eq!((own.sessions.session_ms, own.sessions.heartbeat_ms), (900, 100));
        assert!(load("profile = \"faster\"").expect_err("no such profile").to_string().contains("faster"));
    }

    #[test]
    fn unknown_keys_and_missing_files_are_errors() {
        assert!(load("idd = 1").expect_err("unknown key").to_string().contains("idd"));
        assert!(load("[raft]\nheart = 1").expect_err("unknown key").to_string().contains("heart"));
        assert!(Config::load(Some(Path::new("/no/such/file.toml"))).is_err());
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let mut config = usable();
        config.cluster_id = "a b".into();
        config.id = 4;
        config.raft.election_min_ms = 150;
        config.sessions.session_ms = 100;
        config.limits.nodes_max = 0;
        assert_eq!(config.validate().expect_err("faults").len(), 5);
    }
}
