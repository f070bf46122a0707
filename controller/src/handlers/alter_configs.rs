//! Changes configs; answers when the nodes know the new values.

use crate::api_table::{Services, check_storage_node};
use controller_core::plan;
use proto_types::controller_api::{AlterConfigs, ControllerReply};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: AlterConfigs,
) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    let timeout_ms = if request.validate_only { 0 } else { request.timeout_ms };
    let (results, index) =
        services.proposer.propose(move |state, inputs| plan::alter_configs(state, &request, inputs)).await?;
    if results.iter().any(Result::is_ok) {
        services.wait_applied(call, index, timeout_ms).await;
    }
    Ok(ControllerReply::ConfigsAltered(results))
}
