//! A storage node joins, or joins again as a new incarnation.

use crate::api_table::{Services, check_caller};
use controller_core::plan;
use proto_types::controller_api::{ControllerReply, RegisterNode};
use proto_types::error::ControllerError;
use proto_types::feature::LevelRange;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: RegisterNode,
    levels: LevelRange,
) -> Result<ControllerReply, ControllerError> {
    check_caller(call, request.node)?;
    let node = request.node;
    let incarnation = request.incarnation;
    // What follows from a registration (elections) is the cluster's own doing, whatever its size.
    let (broker_epoch, index) = services
        .proposer
        .propose_own(move |state, inputs| plan::register_node(state, &request, levels, inputs))
        .await?;
    tracing::info!(%node, %broker_epoch, %index, ?incarnation, %levels, "node registered");
    services.liveness.registered(node, broker_epoch, index).await;
    Ok(ControllerReply::Registered {
        broker_epoch,
        session_ms: services.session_ms,
        heartbeat_ms: services.heartbeat_ms,
    })
}
