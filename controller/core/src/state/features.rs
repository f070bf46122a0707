//! The level of `weir.version` at which the cluster is.

use proto_types::feature::FeatureLevel;
use proto_types::ids::FeatureEpoch;
use proto_types::metadata::MetadataChange;

/// The finalised level, as Kafka calls it: what nobody goes beyond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    level: FeatureLevel,
    epoch: FeatureEpoch,
}

impl Default for Features {
    /// What a log stands for that says nothing about it.
    fn default() -> Self {
        Self { level: FeatureLevel::FIRST, epoch: FeatureEpoch(0) }
    }
}

impl Features {
    /// The level.
    pub fn level(&self) -> FeatureLevel {
        self.level
    }

    /// Grows with every change; 0 if the log has never said a level.
    pub fn epoch(&self) -> FeatureEpoch {
        self.epoch
    }

    pub(super) fn set(&mut self, level: FeatureLevel, epoch: FeatureEpoch) {
        *self = Self { level, epoch };
    }

    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        if *self != Self::default() {
            changes.push(MetadataChange::FeatureLevelSet { level: self.level, epoch: self.epoch });
        }
    }
}
