//! InitProducerId: an id for an idempotent producer. Transactional producers are refused until there are transactions.

use crate::controller_port::ControllerFailure;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use proto_types::error::{Reason, Rejection};
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
        // It was under way while the node registered anew.
        Err(ControllerFailure::Rejected(Rejection { reason: Reason::StaleBrokerEpoch, .. })) => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{TestNode, assert_encodes, live_node};
    use proto_types::controller_api::ControllerReply;
    use proto_types::ids::ProducerId;

    async fn ask(test: &TestNode, request: InitProducerIdRequest) -> (ErrorCode, i64, i16) {
        let response = handle(Arc::clone(&test.node), test.context(5), request).await;
        for version in 0..=5 {
            assert_encodes::<InitProducerIdRequest>(&response, version);
        }
        (response.error_code, response.producer_id, response.producer_epoch)
    }

    fn test_node() -> TestNode {
        TestNode::with(&[], &live_node(1), |_| {
            Ok(ControllerReply::ProducerIds { first: ProducerId(40), count: 1000 })
        })
    }

    #[tokio::test]
    async fn idempotent_producers_get_ids_of_their_own() {
        let test = test_node();
        let fresh = InitProducerIdRequest::default();
        assert_eq!(ask(&test, fresh.clone()).await, (ErrorCode::None, 40, 0));
        assert_eq!(ask(&test, fresh.clone()).await, (ErrorCode::None, 41, 0));
        // One that lost its place brings its old id and gets another.
        let again = InitProducerIdRequest { producer_id: 40, producer_epoch: 3, ..fresh.clone() };
        assert_eq!(ask(&test, again).await, (ErrorCode::None, 42, 0));
        let half = InitProducerIdRequest { producer_id: 40, ..fresh };
        assert_eq!(ask(&test, half).await, (ErrorCode::InvalidRequest, -1, -1));
    }

    #[tokio::test]
    async fn transactional_producers_are_refused_for_good() {
        let test = test_node();
        let named = |id: &str| InitProducerIdRequest {
            transactional_id: Some(id.into()),
            ..InitProducerIdRequest::default()
        };
        assert_eq!(ask(&test, named("t")).await, (ErrorCode::UnsupportedVersion, -1, -1));
        assert_eq!(ask(&test, named("")).await, (ErrorCode::InvalidRequest, -1, -1));
    }

    #[tokio::test]
    async fn without_a_controller_clients_are_told_to_come_again() {
        let test = TestNode::with(&[], &live_node(1), |_| Err(ControllerFailure::Unavailable("x".into())));
        let (code, ..) = ask(&test, InitProducerIdRequest::default()).await;
        assert_eq!(code, ErrorCode::CoordinatorLoadInProgress);
    }

    #[tokio::test]
    async fn of_refusals_only_that_of_an_old_registration_passes() {
        for (reason, expected) in [
            (Reason::StaleBrokerEpoch, ErrorCode::CoordinatorLoadInProgress),
            (Reason::PolicyViolation, ErrorCode::UnknownServerError),
        ] {
            let rejection = Rejection { reason, message: "no".into() };
            let test = TestNode::with(&[], &live_node(1), move |_| {
                Err(ControllerFailure::Rejected(rejection.clone()))
            });
            let (code, ..) = ask(&test, InitProducerIdRequest::default()).await;
            assert_eq!(code, expected);
        }
    }
}
