//! Forgets a node that has left for good.

use crate::api_table::{Services, check_storage_node};
use controller_core::plan;
use proto_types::controller_api::ControllerReply;
use proto_types::error::ControllerError;
use proto_types::ids::NodeId;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    node: NodeId,
) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    let ((), index) = services.proposer.propose(move |state, _| plan::unregister_node(state, node)).await?;
    tracing::info!(target: "audit", %node, %index, "node removed by request");
    Ok(ControllerReply::NodeUnregistered)
}
