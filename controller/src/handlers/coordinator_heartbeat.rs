//! A coordinator lives, and tells how far it has applied the metadata.

use crate::api_table::{Services, check_coordinator};
use proto_types::controller_api::{ControllerReply, CoordinatorHeartbeat};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: CoordinatorHeartbeat,
) -> Result<ControllerReply, ControllerError> {
    check_coordinator(call, request.coordinator)?;
    services.liveness.coordinator_beat(request).await.map(ControllerReply::CoordinatorHeartbeat)
}
