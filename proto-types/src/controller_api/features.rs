//! What is said about feature levels: who supports which, and which one the cluster is to have.

use super::{ControllerRequest, RegisterCoordinator, RegisterNode};
use crate::feature::{FeatureLevel, LevelRange};
use serde::{Deserialize, Serialize};

impl ControllerRequest {
    /// The registration of a node. What is implied is not said: controllers of builds without levels understand it.
    pub fn register_node(registration: RegisterNode, levels: LevelRange) -> Self {
        if levels == LevelRange::IMPLIED {
            Self::RegisterNode(registration)
        } else {
            Self::RegisterNodeWithLevels { registration, levels }
        }
    }

    /// The registration of a coordinator, likewise.
    pub fn register_coordinator(registration: RegisterCoordinator, levels: LevelRange) -> Self {
        if levels == LevelRange::IMPLIED {
            Self::RegisterCoordinator(registration)
        } else {
            Self::RegisterCoordinatorWithLevels { registration, levels }
        }
    }
}

/// See [`ControllerRequest::UpdateFeatures`]: all are made, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateFeatures {
    /// What to change. Of several about one feature the last one counts, as in Kafka.
    pub updates: Vec<FeatureUpdate>,
    /// Check only.
    pub validate_only: bool,
    /// How long the answer may wait for the commit to reach all nodes, milliseconds.
    pub timeout_ms: u32,
}

/// The wanted level of one feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureUpdate {
    /// Its name.
    pub feature: String,
    /// The level that it is to have; 0 stands for none.
    pub level: FeatureLevel,
    /// Which way.
    pub direction: UpgradeType,
}

/// Kafka's kinds of changes of a level. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpgradeType {
    /// Up.
    Upgrade,
    /// Down, if nothing is lost by it.
    SafeDowngrade,
    /// Down, whatever is lost.
    UnsafeDowngrade,
}
