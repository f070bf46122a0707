//! Begins, changes or cancels reassignments; answers when the nodes know them, not when they are done.

use crate::api_table::{Services, check_storage_node};
use controller_core::plan;
use proto_types::controller_api::{AlterReassignments, ControllerReply};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: AlterReassignments,
) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    let timeout_ms = request.timeout_ms;
    let (results, index) = services
        .proposer
        .propose(move |state, inputs| plan::alter_reassignments(state, &request, inputs))
        .await?;
    if results.iter().any(Result::is_ok) {
        services.wait_applied(call, index, timeout_ms).await;
    }
    Ok(ControllerReply::ReassignmentsAltered(results))
}
