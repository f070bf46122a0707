//! Creates topics; answers when the nodes know them.

use crate::api_table::{Services, check_storage_node};
use controller_core::plan;
use proto_types::controller_api::{ControllerReply, CreateTopics};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: CreateTopics,
) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    let timeout_ms = if request.validate_only { 0 } else { request.timeout_ms };
    let room = services.room.clone();
    let (results, index) = services
        .proposer
        .propose(move |state, inputs| {
            room.check()?;
            plan::create_topics(state, &request, inputs)
        })
        .await?;
    if results.iter().any(Result::is_ok) {
        services.wait_applied(call, index, timeout_ms).await;
    }
    Ok(ControllerReply::TopicsCreated(results))
}
