//! Raises the feature level; answers when the nodes know the new one.

use crate::api_table::{Services, check_storage_node};
use controller_core::plan;
use proto_types::controller_api::{ControllerReply, UpdateFeatures};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: UpdateFeatures,
) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    services.voters.confirm().await?;
    let state = services.view.state();
    let voters = state.controllers().voters();
    if voters.is_empty() {
        return Err(ControllerError::Busy("the quorum has not written down its voters yet".to_owned()));
    }
    let quorum = services.levels.of_voters(voters).await;
    let before = state.features().level();
    let timeout_ms = if request.validate_only { 0 } else { request.timeout_ms };
    let ((), index) = services
        .proposer
        .propose(move |state, inputs| plan::update_features(state, &request, &quorum, inputs))
        .await?;
    let level = services.view.state().features().level();
    if level != before {
        tracing::warn!(target: "audit", %before, %level, %index, "the feature level of the cluster was raised");
    }
    services.wait_applied(call, index, timeout_ms).await;
    Ok(ControllerReply::FeaturesUpdated)
}
