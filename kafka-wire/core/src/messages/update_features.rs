//! UpdateFeatures: the levels at which the cluster's features are (KIP-584, KIP-778).
//!
//! Versions:
//! - 0: flexible
//! - 1: kinds of upgrades instead of a flag; validation only
//! - 2: no results by feature: all are changed, or none (KIP-1022)

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of UpdateFeatures.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 0.., key = UpdateFeatures, response = UpdateFeaturesResponse)]
pub struct UpdateFeaturesRequest {
    /// How long the server may take, in milliseconds.
    #[kafka(default = 60_000)]
    pub timeout_ms: i32,
    /// The wanted levels.
    pub feature_updates: Vec<FeatureUpdateKey>,
    /// Check only.
    #[kafka(versions = 1..)]
    pub validate_only: bool,
}

/// The wanted level of one feature.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct FeatureUpdateKey {
    /// Name of the feature.
    pub feature: Str,
    /// The level; below 1 asks to take the feature away.
    pub max_version_level: i16,
    /// Whether the level may become lower.
    #[kafka(versions = 0..=0)]
    pub allow_downgrade: bool,
    /// 1 raises only, 2 lowers if nothing is lost, 3 lowers whatever is lost.
    #[kafka(versions = 1.., default = 1)]
    pub upgrade_type: i8,
}

/// Response of UpdateFeatures.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 0..)]
pub struct UpdateFeaturesResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
    /// By feature, if all went well.
    #[kafka(versions = 0..=1, ignorable)]
    pub results: Vec<UpdatableFeatureResult>,
}

/// What came of one update.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct UpdatableFeatureResult {
    /// Name of the feature.
    pub feature: Str,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
}
