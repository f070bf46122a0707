//! Who leads and who votes in the quorum, who follows it, and how far each of them is.

use crate::api_table::{Services, check_storage_node};
use proto_types::controller_api::ControllerReply;
use proto_types::error::ControllerError;
use quic_transport::Call;

/// The storage nodes that follow the metadata.
pub(crate) async fn followers(services: &Services, call: &Call) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    // Who does not lead hears no heartbeats, or did so long ago.
    services.voters.confirm().await?;
    Ok(ControllerReply::MetadataFollowers(services.liveness.followers()))
}

pub(crate) async fn handle(services: &Services, call: &Call) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    services.voters.describe().await.map(ControllerReply::Quorum)
}
