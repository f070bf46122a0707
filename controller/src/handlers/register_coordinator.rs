//! A coordinator joins, or joins again as a new incarnation.

use crate::api_table::{Services, check_coordinator};
use controller_core::plan;
use proto_types::controller_api::{ControllerReply, RegisterCoordinator};
use proto_types::error::ControllerError;
use proto_types::feature::LevelRange;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: RegisterCoordinator,
    levels: LevelRange,
) -> Result<ControllerReply, ControllerError> {
    check_coordinator(call, request.coordinator)?;
    let coordinator = request.coordinator;
    let incarnation = request.incarnation;
    // What follows from a registration (new epochs of its shards) is the cluster's own doing, whatever its size.
    let (epoch, index) = services
        .proposer
        .propose_own(move |state, inputs| plan::register_coordinator(state, &request, levels, inputs))
        .await?;
    tracing::info!(%coordinator, %epoch, %index, ?incarnation, %levels, "coordinator registered");
    services.liveness.coordinator_registered(coordinator, epoch).await;
    Ok(ControllerReply::CoordinatorRegistered {
        epoch,
        session_ms: services.session_ms,
        heartbeat_ms: services.heartbeat_ms,
    })
}
