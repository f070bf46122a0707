//! The level of `weir.version`: at which a cluster begins, who may join it, and when it may be raised.
//!
//! Raising it lets daemons write and say what older builds cannot read, so everybody must be able to follow: every
//! registered storage node, every coordinator that is alive (one that comes back is checked again), and every controller
//! of the quorum. For the same reason it is never lowered: what was written at the higher level stays.

use super::{Decision, Inputs, check_count, reject};
use crate::state::ClusterState;
use proto_types::controller_api::{FeatureUpdate, UpdateFeatures, UpgradeType};
use proto_types::error::{Reason, Rejection};
use proto_types::feature::{FeatureLevel, LevelRange, WEIR_VERSION};
use proto_types::ids::{ControllerId, FeatureEpoch};
use proto_types::metadata::MetadataChange;
use std::fmt::Display;

/// Longest name of a feature that is repeated in an answer, characters.
const NAME_CHARS_MAX: usize = 64;

/// What the controllers of the quorum support, each as it has just said itself.
pub type QuorumLevels = [(ControllerId, LevelRange)];

/// The change by which a new cluster says its level; none if this cluster has begun already, or begins at the first level:
/// that one goes without saying, and so a build without levels can read the log.
pub fn found(state: &ClusterState, inputs: &Inputs) -> Option<MetadataChange> {
    let level = founding_level(state, inputs).filter(|level| *level != FeatureLevel::FIRST)?;
    Some(set(state, level))
}

/// The level at which a new cluster begins: the highest of the controller that leads then.
fn founding_level(state: &ClusterState, inputs: &Inputs) -> Option<FeatureLevel> {
    let begun = state.features().epoch() != FeatureEpoch(0)
        || !state.controllers().voters().is_empty()
        || !state.nodes().is_empty()
        || !state.coordinators().is_empty();
    (!begun).then_some(inputs.levels.max)
}

/// Refuses a daemon that wants to join and does not support the level at which the cluster is, or begins.
pub(super) fn check_joining(
    state: &ClusterState,
    inputs: &Inputs,
    who: impl Display,
    levels: LevelRange,
) -> Result<(), Rejection> {
    let level = founding_level(state, inputs).unwrap_or_else(|| state.features().level());
    check_level(level, who, levels)
}

/// Refuses a daemon that does not support `level`, at which the cluster is.
pub fn check_level(level: FeatureLevel, who: impl Display, levels: LevelRange) -> Result<(), Rejection> {
    if levels.contains(level) {
        return Ok(());
    }
    let what_to_do = if levels.max < level {
        format!("Run a newer build there, one that supports level {level}.")
    } else {
        format!(
            "Run an older build there, one that supports level {level}, and raise the cluster to level {} before the \
             newer one comes back (`weir feature upgrade {WEIR_VERSION}={}`).",
            levels.min, levels.min
        )
    };
    let message = format!(
        "The cluster is at level {level} of {WEIR_VERSION}, and {who} supports {levels}. {what_to_do}"
    );
    reject(Reason::UnsupportedLevel, message)
}

/// Plans changes of features: all of them, or none. `quorum` must have an answer of each voter.
pub fn update_features(
    state: &ClusterState,
    request: &UpdateFeatures,
    quorum: &QuorumLevels,
    inputs: &Inputs,
) -> Result<Decision<()>, Rejection> {
    check_count(&inputs.limits, request.updates.len(), "features")?;
    if let Some(unknown) = request.updates.iter().find(|update| update.feature != WEIR_VERSION) {
        let name: String = unknown.feature.chars().take(NAME_CHARS_MAX).collect();
        return refuse(format!("There is no feature {name:?}; this cluster has {WEIR_VERSION} only."));
    }
    // Of several updates of a feature the last one counts.
    let wanted = match request.updates.last() {
        Some(update) => check_update(state, update, quorum, inputs)?,
        None => state.features().level(),
    };
    let mut changes = Vec::new();
    if wanted != state.features().level() && !request.validate_only {
        changes.push(set(state, wanted));
    }
    Ok(Decision { changes, reply: () })
}

/// The level that an update of `weir.version` asks for, if it may be.
fn check_update(
    state: &ClusterState,
    update: &FeatureUpdate,
    quorum: &QuorumLevels,
    inputs: &Inputs,
) -> Result<FeatureLevel, Rejection> {
    let (current, wanted) = (state.features().level(), update.level);
    if wanted.0 < 1 {
        return refuse(format!(
            "{WEIR_VERSION} cannot be at level {wanted}: levels count from 1, and the feature cannot be taken away."
        ));
    }
    if let Some(who) = who_lacks(state, wanted, quorum, inputs) {
        return refuse(who);
    }
    if wanted < current {
        return refuse(match update.direction {
            UpgradeType::Upgrade => {
                format!("{WEIR_VERSION} is at level {current}, and an upgrade does not lower it to {wanted}.")
            }
            UpgradeType::SafeDowngrade | UpgradeType::UnsafeDowngrade => format!(
                "{WEIR_VERSION} is at level {current} and stays there: what was written since may be unknown at level \
                 {wanted}. To go back, restore the cluster from a backup that was made before."
            ),
        });
    }
    if wanted > current && update.direction != UpgradeType::Upgrade {
        return refuse(format!(
            "Level {wanted} of {WEIR_VERSION} is above the present one, {current}: that is an upgrade, not a downgrade."
        ));
    }
    Ok(wanted)
}

/// Who does not support the level, and what to do about it.
fn who_lacks(
    state: &ClusterState,
    wanted: FeatureLevel,
    quorum: &QuorumLevels,
    inputs: &Inputs,
) -> Option<String> {
    if !inputs.levels.contains(wanted) {
        return Some(format!(
            "The controller that leads supports {} of {WEIR_VERSION}, not level {wanted}. Run a build that supports it on \
             all daemons first, the controllers before the others.",
            inputs.levels
        ));
    }
    let mut voters = state.controllers().voters().iter().map(|voter| voter.id);
    if let Some(id) = voters.find(|id| quorum.iter().all(|(known, _)| known != id)) {
        return Some(format!(
            "Controller {id} has not said whether it supports level {wanted} of {WEIR_VERSION}. Ask again when it is up, \
             with a build that does, or take its vote away (`weir controller remove {id}`)."
        ));
    }
    let controllers = quorum.iter().map(|(id, levels)| {
        (format!("Controller {id}"), *levels, format!("take its vote away (`weir controller remove {id}`)"))
    });
    let nodes = state.nodes().iter().map(|(id, node)| {
        let or_else = format!("take it out of the cluster (`weir node drain {id}`, `weir node remove {id}`)");
        (format!("Node {id}"), node.levels, or_else)
    });
    let alive = state.coordinators().iter().filter(|(_, coordinator)| !coordinator.fenced);
    let coordinators =
        alive.map(|(id, known)| (format!("Coordinator {id}"), known.levels, "stop it".to_owned()));
    let (who, levels, or_else) =
        controllers.chain(nodes).chain(coordinators).find(|(_, levels, _)| !levels.contains(wanted))?;
    Some(format!(
        "{who} supports {levels} of {WEIR_VERSION}, not level {wanted}. Run a build there that supports it, or {or_else}."
    ))
}

fn refuse<T>(message: String) -> Result<T, Rejection> {
    reject(Reason::InvalidFeatureLevel, format!("{message} Nothing was changed."))
}

/// The change to `level`, under an epoch that is above the last one and above the index of every change so far.
fn set(state: &ClusterState, level: FeatureLevel) -> MetadataChange {
    let after_all = i64::try_from(state.applied().0).expect("indexes count committed entries") + 1;
    let epoch = FeatureEpoch(after_all.max(state.features().epoch().0 + 1));
    MetadataChange::FeatureLevelSet { level, epoch }
}
