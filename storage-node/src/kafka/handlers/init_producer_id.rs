//! InitProducerId: an id for an idempotent producer. Transactional producers are refused until there are transactions.

use crate::controller_port::ControllerFailure;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use std::sync::Arc;

const NO_PRODUCER_ID: i64 = -1;
const NO_PRODUCER_EPOCH: i16 = -1;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    match &request.transactional_id {
        Some(id) if id.is_empty() => return refused(ErrorCode::InvalidRequest),
        // The answer has no room for a sentence: FindCoordinator, which comes first, has given it.
        Some(_) => return refused(ErrorCode::UnsupportedVersion),
        None => {}
    }
    // An idempotent producer that lost its place comes with its old id and gets a new one.
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH) {
        return refused(ErrorCode::InvalidRequest);
    }
    match node.producer_ids().next().await {
        Ok(id) => InitProducerIdResponse {
            producer_id: id.0,
            producer_epoch: 0,
            ..InitProducerIdResponse::default()
        },
        Err(ControllerFailure::Unavailable(_) | ControllerFailure::OutcomeUnknown(_)) => {
            // Clients repeat the request after this one; a block whose allocation got lost is just never used.
            refused(ErrorCode::CoordinatorLoadInProgress)
        }
        Err(failure @ ControllerFailure::Rejected(_)) => {
            tracing::error!(%failure, "get producer ids");
            refused(ErrorCode::UnknownServerError)
        }
    }
}

fn refused(error_code: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        ..InitProducerIdResponse::default()
    }
}
