//! A node has lost what it held of some partitions; the answer says from when on nobody counts on it.

use crate::api_table::{Services, check_caller};
use controller_core::plan;
use proto_types::controller_api::{ControllerReply, LoseCopies};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: LoseCopies,
) -> Result<ControllerReply, ControllerError> {
    check_caller(call, request.node)?;
    let (results, _) = services
        .proposer
        .propose_own(move |state, inputs| plan::lose_copies(state, &request, inputs))
        .await?;
    Ok(ControllerReply::CopiesLost(results))
}
