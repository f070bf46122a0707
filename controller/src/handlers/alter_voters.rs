//! A controller gets a vote, or loses it (KIP-853).

use crate::api_table::{Services, check_storage_node};
use proto_types::controller_api::{AlterVoters, ControllerReply};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: AlterVoters,
) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    services.voters.alter(request, services.time_left(call)).await?;
    Ok(ControllerReply::VotersAltered)
}
