//! Feature levels: what the daemons of a cluster have agreed to do (KIP-584, KIP-778), under a name of our own.
//!
//! There is one feature, `weir.version`. A build supports a range of its levels, a cluster is at one level, and nobody
//! does what belongs to a higher one: so daemons of two builds work together while a cluster is upgraded, and what the
//! older one cannot read is only written once all are new and somebody has raised the level. Kafka's own names
//! (`metadata.version`, `transaction.version`) are not used: clients would conclude from them on what is not there.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The feature's name, as clients are told.
pub const WEIR_VERSION: &str = "weir.version";

/// The levels that this build supports, in order and without gaps, and what each brought.
pub const LEVELS: [(FeatureLevel, &str); 1] = [(FeatureLevel::FIRST, "the first level")];

/// A level of `weir.version`; they count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FeatureLevel(pub i16);

impl FeatureLevel {
    /// Where everything began: the level of a metadata log that names none.
    pub const FIRST: FeatureLevel = FeatureLevel(1);
}

impl fmt::Display for FeatureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Levels from one to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LevelRange {
    /// The lowest.
    pub min: FeatureLevel,
    /// The highest.
    pub max: FeatureLevel,
}

impl LevelRange {
    /// What a daemon supports that says nothing about it: those of builds without levels do not.
    pub const IMPLIED: LevelRange = LevelRange { min: FeatureLevel::FIRST, max: FeatureLevel::FIRST };

    /// What this build supports.
    pub const fn of_this_build() -> Self {
        Self { min: LEVELS[0].0, max: LEVELS[LEVELS.len() - 1].0 }
    }

    /// Whether `level` is one of them.
    pub fn contains(&self, level: FeatureLevel) -> bool {
        (self.min..=self.max).contains(&level)
    }
}

impl Default for LevelRange {
    fn default() -> Self {
        Self::of_this_build()
    }
}

impl fmt::Display for LevelRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "level {} only", self.min)
        } else {
            write!(f, "levels {} to {}", self.min, self.max)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_of_this_build_have_no_gaps_and_hold_the_implied_one() {
        for (at, (level, _)) in LEVELS.iter().enumerate() {
            assert_eq!(usize::try_from(level.0 - LEVELS[0].0.0), Ok(at));
        }
        let ours = LevelRange::of_this_build();
        assert!(LEVELS.iter().all(|(level, _)| ours.contains(*level)));
        assert!(!ours.contains(FeatureLevel(0)) && !ours.contains(FeatureLevel(ours.max.0 + 1)));
        assert_eq!(LevelRange::IMPLIED.to_string(), "level 1 only");
        assert_eq!(LevelRange { max: FeatureLevel(3), ..LevelRange::IMPLIED }.to_string(), "levels 1 to 3");
    }
}
