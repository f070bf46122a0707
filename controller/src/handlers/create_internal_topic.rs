//! Creates an internal topic on first need; answers when the nodes know it.

use crate::api_table::{Services, check_storage_node};
use controller_core::plan;
use proto_types::controller_api::{ControllerReply, CreateInternalTopic};
use proto_types::error::ControllerError;
use quic_transport::Call;

pub(crate) async fn handle(
    services: &Services,
    call: &Call,
    request: CreateInternalTopic,
) -> Result<ControllerReply, ControllerError> {
    check_storage_node(call)?;
    let CreateInternalTopic { topic: wanted, timeout_ms } = request;
    let (topic, index) = services
        .proposer
        .propose_own(move |state, inputs| plan::create_internal_topic(state, wanted, inputs))
        .await?;
    services.wait_applied(call, index, timeout_ms).await;
    Ok(ControllerReply::InternalTopicCreated { topic })
}
