//! A storage node lives, and tells how far it has applied the metadata.

use crate::api_table::{Services, check_caller};
use proto_types::controller_api::{ControllerReply, Heartbeat};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: Heartbeat,
) -> Result<ControllerReply, ControllerError> {
    check_caller(call, request.node)?;
    services.liveness.beat(request).await.map(ControllerReply::Heartbeat)
}
