//! Hands a block of producer ids to a storage node.

use crate::api_table::{Services, check_caller};
use controller_core::plan;
use controller_core::plan::allocate_producer_ids::BLOCK;
use proto_types::controller_api::{AllocateProducerIds, ControllerReply};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: AllocateProducerIds,
) -> Result<ControllerReply, ControllerError> {
    check_caller(call, request.node)?;
    let (first, _) =
        services.proposer.propose(move |state, _| plan::allocate_producer_ids(state, &request)).await?;
    Ok(ControllerReply::ProducerIds { first, count: BLOCK })
}
