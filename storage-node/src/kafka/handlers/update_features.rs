//! UpdateFeatures: raises the feature level of the cluster (KIP-584, KIP-778); asked of the controller.
//!
//! All updates are made, or none: a refusal is that of the whole request, in every version, as in Kafka.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::update_features::{
    FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use proto_types::controller_api::{
    ControllerReply, ControllerRequest, FeatureUpdate, UpdateFeatures, UpgradeType,
};
use proto_types::feature::FeatureLevel;
use std::sync::Arc;

/// First version without results by feature.
const WHOLE_VERSION_MIN: i16 = 2;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse {
    match update(&node, context.api_version, &request).await {
        Ok(()) => UpdateFeaturesResponse {
            results: done(context.api_version, request.feature_updates),
            ..UpdateFeaturesResponse::default()
        },
        Err(KafkaError { code, message }) => UpdateFeaturesResponse {
            error_code: code,
            error_message: Some(message),
            ..UpdateFeaturesResponse::default()
        },
    }
}

async fn update(node: &Node, version: i16, request: &UpdateFeaturesRequest) -> Result<(), KafkaError> {
    let timeout = node.admin_timeout(request.timeout_ms);
    let updates = request.feature_updates.iter().map(|update| wanted(version, update));
    let question = ControllerRequest::UpdateFeatures(UpdateFeatures {
        updates: updates.collect::<Result<_, _>>()?,
        validate_only: request.validate_only,
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    });
    match node.ask_controller(question, timeout).await? {
        ControllerReply::FeaturesUpdated => Ok(()),
        other => Err(Node::unexpected_reply(&other)),
    }
}

fn wanted(version: i16, update: &FeatureUpdateKey) -> Result<FeatureUpdate, KafkaError> {
    let direction = match update.upgrade_type {
        _ if version == 0 && update.allow_downgrade => UpgradeType::SafeDowngrade,
        1 => UpgradeType::Upgrade,
        2 => UpgradeType::SafeDowngrade,
        3 => UpgradeType::UnsafeDowngrade,
        other => {
            let message = format!(
                "{other} is no type of an upgrade; 1 raises a level, 2 lowers it safely, 3 lowers it whatever is lost. \
                 Nothing was changed."
            );
            return Err(KafkaError::new(ErrorCode::InvalidUpdateVersion, message));
        }
    };
    let level = FeatureLevel(update.max_version_level);
    Ok(FeatureUpdate { feature: update.feature.to_string(), level, direction })
}

fn done(version: i16, updates: Vec<FeatureUpdateKey>) -> Vec<UpdatableFeatureResult> {
    if version >= WHOLE_VERSION_MIN {
        return Vec::new();
    }
    let result =
        |update: FeatureUpdateKey| UpdatableFeatureResult { feature: update.feature, ..Default::default() };
    updates.into_iter().map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_port::ControllerFailure;
    use crate::test_node::{TestNode, apply, assert_encodes, live_node};
    use kafka_wire::Features;
    use proto_types::error::{Reason, Rejection};
    use proto_types::ids::FeatureEpoch;
    use proto_types::metadata::MetadataChange;

    fn asked(feature: &str, level: i16, upgrade_type: i8) -> UpdateFeaturesRequest {
        let update = FeatureUpdateKey {
            feature: feature.into(),
            max_version_level: level,
            upgrade_type,
            ..FeatureUpdateKey::default()
        };
        UpdateFeaturesRequest { feature_updates: vec![update], timeout_ms: 100, validate_only: true }
    }

    #[tokio::test]
    async fn what_was_done_is_told_by_feature_in_old_versions() {
        let test = TestNode::with(&[], &live_node(1), |request| {
            let ControllerRequest::UpdateFeatures(_) = request else { panic!("{request:?}") };
            Ok(ControllerReply::FeaturesUpdated)
        });
        for (version, told) in [(0, 1), (1, 1), (2, 0)] {
            let request = asked("weir.version", 2, 1);
            let response = handle(Arc::clone(&test.node), test.context(version), request).await;
            assert_encodes::<UpdateFeaturesRequest>(&response, version);
            assert_eq!((response.error_code, response.results.len()), (ErrorCode::None, told));
            assert!(response.results.iter().all(|result| &*result.feature == "weir.version"));
        }
        let asked = test.controller.asked.lock();
        let expected = UpdateFeatures {
            updates: vec![FeatureUpdate {
                feature: "weir.version".to_owned(),
                level: FeatureLevel(2),
                direction: UpgradeType::Upgrade,
            }],
            validate_only: true,
            timeout_ms: 100,
        };
        assert!(asked.iter().all(|asked| *asked == ControllerRequest::UpdateFeatures(expected.clone())));
    }

    #[tokio::test]
    async fn a_refusal_is_that_of_the_whole_request() {
        let test = TestNode::with(&[], &live_node(1), |_| {
            let message = "There is no feature \"x\".".to_owned();
            Err(ControllerFailure::Rejected(Rejection { reason: Reason::InvalidFeatureLevel, message }))
        });
        for version in 0..=2 {
            let response = handle(Arc::clone(&test.node), test.context(version), asked("x", 1, 1)).await;
            assert_encodes::<UpdateFeaturesRequest>(&response, version);
            assert_eq!((response.error_code, response.results.len()), (ErrorCode::InvalidUpdateVersion, 0));
        }
        for upgrade_type in [0, 4, -1] {
            let request = asked("weir.version", 1, upgrade_type);
            let response = handle(Arc::clone(&test.node), test.context(2), request).await;
            assert_eq!(response.error_code, ErrorCode::InvalidUpdateVersion);
        }
        assert_eq!(test.controller.asked.lock().len(), 3, "types that there are not go no further");
    }

    #[tokio::test]
    async fn clients_are_told_the_level_of_the_newest_image() {
        let test = TestNode::with(&[], &live_node(1), |_| Err(ControllerFailure::Unavailable("gone".into())));
        let told = |level, epoch| Features {
            supported: vec![("weir.version".to_owned(), 1, 1)],
            finalized: vec![("weir.version".to_owned(), level)],
            epoch,
        };
        assert_eq!(test.node.features(), told(1, 0), "a log that says no level");
        let raised = MetadataChange::FeatureLevelSet { level: FeatureLevel(2), epoch: FeatureEpoch(7) };
        apply(test.node.published(), &[raised]);
        assert_eq!(test.node.features(), told(2, 7));
    }

    #[test]
    fn the_flag_of_version_0_asks_for_a_safe_downgrade() {
        let flagged = FeatureUpdateKey { allow_downgrade: true, upgrade_type: 1, ..Default::default() };
        assert_eq!(wanted(0, &flagged).map(|wanted| wanted.direction), Ok(UpgradeType::SafeDowngrade));
        let direction = |upgrade_type| {
            let update = FeatureUpdateKey { upgrade_type, ..Default::default() };
            wanted(1, &update).map(|wanted| wanted.direction)
        };
        assert_eq!(direction(2), Ok(UpgradeType::SafeDowngrade));
        assert_eq!(direction(3), Ok(UpgradeType::UnsafeDowngrade));
    }
}
