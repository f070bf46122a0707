//! A controller gets a vote, or loses it (KIP-853).

use crate::api_table::{Services, check_storage_node};
use controller_core::plan;
use proto_types::controller_api::{AlterVoters, ControllerReply};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: AlterVoters,
) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    services.voters.confirm().await?;
    if let AlterVoters::Add { id, address } = &request
        && let Some(levels) = services.levels.of(*id, address).await
    {
        // One that does not answer is waited for; it sees for itself when it applies the log.
        let level = services.view.state().features().level();
        plan::check_level(level, format_args!("controller {id}"), levels)?;
    }
    services.voters.alter(request, services.time_left(call)).await?;
    Ok(ControllerReply::VotersAltered)
}
