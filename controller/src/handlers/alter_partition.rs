//! A leader proposes in-sync sets; the answer is what is in force.

use crate::api_table::{Services, check_caller};
use controller_core::plan;
use proto_types::controller_api::{AlterPartition, ControllerReply};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: AlterPartition,
) -> Result<ControllerReply, ControllerError> {
    check_caller(call, request.node)?;
    // A node that lost its peers proposes for all that it leads at once: the cluster's own doing, whatever its size.
    let (results, _) = services
        .proposer
        .propose_own(move |state, inputs| plan::alter_partition(state, &request, inputs))
        .await?;
    Ok(ControllerReply::IsrAltered(results))
}
