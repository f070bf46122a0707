//! Elects leaders by request; answers when the nodes know them.

use crate::api_table::{Services, check_storage_node};
use controller_core::plan;
use proto_types::controller_api::{ControllerReply, ElectLeaders};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: ElectLeaders,
) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    let timeout_ms = request.timeout_ms;
    // An election at every partition of the cluster is one request, whatever its size.
    let (elected, index) = services
        .proposer
        .propose_own(move |state, inputs| plan::elect_leaders(state, &request, inputs))
        .await?;
    if elected.iter().any(|elected| elected.result.is_ok()) {
        services.wait_applied(call, index, timeout_ms).await;
    }
    Ok(ControllerReply::LeadersElected(elected))
}
