//! Who leads and who votes in the quorum, and how far each member is.

use crate::api_table::{Services, check_storage_node};
use proto_types::controller_api::ControllerReply;
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(services: &Services, call: &Call) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    services.voters.describe().await.map(ControllerReply::Quorum)
}
