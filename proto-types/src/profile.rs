//! Named sets of defaults for the settings of daemons. `docs/profiles.md` says what each is for and what it costs.

use serde::{Deserialize, Serialize};

/// How soon a silent storage node is given up. A profile changes defaults only: what a file or a variable sets stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// For any network: sessions of 3 s.
    #[default]
    Default,
    /// For one quiet network of machines that never stand still for a second: sessions of 1 s.
    Fast,
}
