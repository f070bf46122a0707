//! ApiVersions: which APIs and versions a server speaks; the first question of every client.
//!
//! Versions:
//! - 3: flexible; the client names itself, the answer names features (KIP-584)
//! - 4: a supported feature may begin at level 0
//! - 5: the client says which cluster and node it expects (KIP-1242)
//!
//! The answer has header v0 in every version. To a version that is too new the server answers in v0 with UNSUPPORTED_VERSION.

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of ApiVersions.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=5, flexible = 3.., key = ApiVersions, response = ApiVersionsResponse)]
pub struct ApiVersionsRequest {
    /// Name of the client library.
    #[kafka(versions = 3.., ignorable)]
    pub client_software_name: Str,
    /// Its version.
    #[kafka(versions = 3.., ignorable)]
    pub client_software_version: Str,
    /// Cluster that the client believes to talk to (KIP-1242), or null.
    #[kafka(versions = 5.., ignorable)]
    pub cluster_id: Option<Str>,
    /// Node that the client believes to talk to (KIP-1242), or -1.
    #[kafka(versions = 5.., default = -1, ignorable)]
    pub node_id: i32,
}

/// Response of ApiVersions.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=5, flexible = 3..)]
pub struct ApiVersionsResponse {
    /// UNSUPPORTED_VERSION when the request's version is too new; the answer is then v0.
    pub error_code: ErrorCode,
    /// The APIs that are served.
    pub api_keys: Vec<ApiVersion>,
    /// How long the client should wait because of a quota, in milliseconds.
    #[kafka(versions = 1.., ignorable)]
    pub throttle_time_ms: i32,
    /// Features that the broker could enable.
    #[kafka(versions = 3.., tag = 0, ignorable)]
    pub supported_features: Vec<SupportedFeatureKey>,
    /// Epoch of the finalized features, or -1 while unknown.
    #[kafka(versions = 3.., tag = 1, default = -1, ignorable)]
    pub finalized_features_epoch: i64,
    /// Features that the cluster has enabled.
    #[kafka(versions = 3.., tag = 2, ignorable)]
    pub finalized_features: Vec<FinalizedFeatureKey>,
    /// Left over from the migration off ZooKeeper; always false.
    #[kafka(versions = 3.., tag = 3, ignorable)]
    pub zk_migration_ready: bool,
}

/// An API and the versions that are served.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct ApiVersion {
    /// The API, as its number: it may be one that we do not have.
    pub api_key: i16,
    /// First version that is served.
    pub min_version: i16,
    /// Last version that is served.
    pub max_version: i16,
}

/// A feature that could be enabled.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct SupportedFeatureKey {
    /// Name of the feature.
    pub name: Str,
    /// First level.
    pub min_version: i16,
    /// Last level.
    pub max_version: i16,
}

/// A feature that is enabled.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct FinalizedFeatureKey {
    /// Name of the feature.
    pub name: Str,
    /// Level that is in force.
    pub max_version_level: i16,
    /// Lowest level that is in force.
    pub min_version_level: i16,
}
