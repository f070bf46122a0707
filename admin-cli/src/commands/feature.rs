//! `weir feature`: the levels of features that the cluster's daemons have agreed on (KIP-584, KIP-778).

use clap::Subcommand;
use kafka_wire::Client;
use kafka_wire_core::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_wire_core::messages::update_features::{FeatureUpdateKey, UpdateFeaturesRequest};
use serde_json::json;
use std::str::FromStr;

use crate::cli::Global;
use crate::failure::Failure;
use crate::output::{Format, Output};

/// Raise only; see UpdateFeatures.
const UPGRADE: i8 = 1;
/// What this program calls itself to the cluster.
const SOFTWARE: &str = "weir";

/// What to do with features.
#[derive(Debug, Subcommand)]
pub(crate) enum FeatureCommand {
    /// Show the features, which levels of them the node that answers supports, and at which level the cluster is
    Describe,
    /// Raise the levels of features, all or none; there is no way back
    Upgrade {
        /// A feature and its new level
        #[arg(required = true, value_name = "FEATURE=LEVEL")]
        levels: Vec<WantedLevel>,
        /// Only check whether it could be done
        #[arg(long)]
        plan: bool,
    },
}

/// `FEATURE=LEVEL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedLevel {
    feature: String,
    level: i16,
}

impl FromStr for WantedLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (feature, level) = text.split_once('=').ok_or("it must be FEATURE=LEVEL")?;
        let level = level.parse().ok().filter(|level| *level >= 1).ok_or("a level is a number from 1 on")?;
        if feature.is_empty() {
            return Err("the name of the feature is missing".to_owned());
        }
        Ok(Self { feature: feature.to_owned(), level })
    }
}

pub(crate) async fn run(
    global: &Global,
    command: FeatureCommand,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let client = global.connect().await?;
    match command {
        FeatureCommand::Describe => describe(&features(&client).await?, output),
        FeatureCommand::Upgrade { levels, plan } => upgrade(global, &client, levels, plan, output).await,
    }
}

/// A feature as the cluster tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Feature {
    name: String,
    supported: Option<(i16, i16)>,
    /// 0 stands for none.
    level: i16,
}

/// All features in order of name, and the epoch of the last change, if it is known.
struct Features {
    all: Vec<Feature>,
    epoch: Option<i64>,
}

impl Features {
    fn of(response: ApiVersionsResponse) -> Self {
        let mut all: Vec<Feature> = response
            .supported_features
            .iter()
            .map(|feature| Feature {
                name: feature.name.to_string(),
                supported: Some((feature.min_version, feature.max_version)),
                level: 0,
            })
            .collect();
        for finalized in &response.finalized_features {
            let level = finalized.max_version_level;
            match all.iter_mut().find(|feature| feature.name == *finalized.name) {
                Some(feature) => feature.level = level,
                None => all.push(Feature { name: finalized.name.to_string(), supported: None, level }),
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let epoch = response.finalized_features_epoch;
        Self { all, epoch: (epoch >= 0).then_some(epoch) }
    }

    fn level(&self, name: &str) -> i16 {
        self.all.iter().find(|feature| feature.name == name).map_or(0, |feature| feature.level)
    }
}

async fn features(client: &Client) -> Result<Features, Failure> {
    let request = ApiVersionsRequest {
        client_software_name: SOFTWARE.into(),
        client_software_version: env!("CARGO_PKG_VERSION").into(),
        ..ApiVersionsRequest::default()
    };
    let response = client.call(&request).await?;
    match response.error_code.is_none() {
        true => Ok(Features::of(response)),
        false => Err(Failure::refused("look at the features", response.error_code, None)),
    }
}

fn describe(features: &Features, output: &mut Output<'_>) -> Result<(), Failure> {
    match output.format {
        Format::Json => {
            let one = |feature: &Feature| {
                json!({
                    "feature": feature.name,
                    "supported_min": feature.supported.map(|(min, _)| min),
                    "supported_max": feature.supported.map(|(_, max)| max),
                    "level": feature.level,
                })
            };
            let all: Vec<_> = features.all.iter().map(one).collect();
            output.json(&json!({ "features": all, "epoch": features.epoch }))
        }
        Format::Table => {
            let rows: Vec<_> = features.all.iter().map(row).collect();
            output.table(&["FEATURE", "LEVEL", "SUPPORTED"], &rows)
        }
    }
}

fn row(feature: &Feature) -> Vec<String> {
    let supported = match feature.supported {
        Some((min, max)) if min == max => max.to_string(),
        Some((min, max)) => format!("{min} to {max}"),
        None => "-".to_owned(),
    };
    let level = if feature.level == 0 { "-".to_owned() } else { feature.level.to_string() };
    vec![feature.name.clone(), level, supported]
}

async fn upgrade(
    global: &Global,
    client: &Client,
    levels: Vec<WantedLevel>,
    plan: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    check_names(&levels)?;
    let before = features(client).await?;
    let update = |wanted: &WantedLevel| FeatureUpdateKey {
        feature: wanted.feature.as_str().into(),
        max_version_level: wanted.level,
        upgrade_type: UPGRADE,
        ..FeatureUpdateKey::default()
    };
    let request = UpdateFeaturesRequest {
        timeout_ms: global.change_timeout_ms(),
        feature_updates: levels.iter().map(update).collect(),
        validate_only: plan,
    };
    let response = client.call(&request).await?;
    if !response.error_code.is_none() {
        let message = response.error_message.as_deref();
        let failure = Failure::refused("raise the level", response.error_code, message);
        return Err(failure.hint("`weir feature describe` shows what there is"));
    }
    if let Some(failed) = response.results.iter().find(|result| !result.error_code.is_none()) {
        let what = format!("raise the level of {}", failed.feature);
        return Err(Failure::refused(what, failed.error_code, failed.error_message.as_deref()));
    }
    for WantedLevel { feature, level } in &levels {
        let from = before.level(feature);
        match output.format {
            Format::Json => output.json(&json!({
                "feature": feature, "action": "upgrade", "from": from, "to": level, "planned": plan,
            }))?,
            Format::Table => output.line(&sentence(feature, from, *level, plan))?,
        }
    }
    Ok(())
}

/// Of two levels of one feature the cluster would take one.
fn check_names(levels: &[WantedLevel]) -> Result<(), Failure> {
    for (at, wanted) in levels.iter().enumerate() {
        if levels[..at].iter().any(|other| other.feature == wanted.feature) {
            return Err(Failure::usage(format!("{} is named twice", wanted.feature)));
        }
    }
    Ok(())
}

fn sentence(feature: &str, from: i16, to: i16, plan: bool) -> String {
    if from == to {
        return format!("{feature} is at level {to} already");
    }
    let verb = if plan { "would raise" } else { "raised" };
    match from {
        0 => format!("{verb} {feature} to level {to}"),
        _ => format!("{verb} {feature} from level {from} to {to}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_wire_core::messages::api_versions::{FinalizedFeatureKey, SupportedFeatureKey};

    #[test]
    fn levels_are_read_and_shown() {
        let wanted: WantedLevel = "weir.version=2".parse().expect("it is right");
        assert_eq!(wanted, WantedLevel { feature: "weir.version".to_owned(), level: 2 });
        for wrong in ["weir.version", "weir.version=", "weir.version=x", "=2", "weir.version=0", "a=70000"] {
            assert!(wrong.parse::<WantedLevel>().is_err(), "{wrong}");
        }
        assert!(check_names(&[wanted.clone(), wanted]).is_err());
        assert_eq!(sentence("f", 1, 2, true), "would raise f from level 1 to 2");
        assert_eq!(sentence("f", 0, 2, false), "raised f to level 2");
        assert_eq!(sentence("f", 2, 2, true), "f is at level 2 already");
    }

    #[test]
    fn what_is_supported_and_what_is_in_force_come_together() {
        let supported = |name: &str, min_version, max_version| SupportedFeatureKey {
            name: name.into(),
            min_version,
            max_version,
        };
        let finalized = |name: &str, level| FinalizedFeatureKey {
            name: name.into(),
            max_version_level: level,
            min_version_level: level,
        };
        let features = Features::of(ApiVersionsResponse {
            supported_features: vec![supported("z", 1, 1), supported("b", 1, 3)],
            finalized_features: vec![finalized("a", 4), finalized("b", 2)],
            finalized_features_epoch: 7,
            ..ApiVersionsResponse::default()
        });
        let rows: Vec<_> = features.all.iter().map(row).collect();
        assert_eq!(rows, [["a", "4", "-"], ["b", "2", "1 to 3"], ["z", "-", "1"]]);
        assert_eq!((features.epoch, features.level("b"), features.level("x")), (Some(7), 2, 0));
        assert_eq!(
            Features::of(ApiVersionsResponse { finalized_features_epoch: -1, ..Default::default() }).epoch,
            None
        );
    }
}
