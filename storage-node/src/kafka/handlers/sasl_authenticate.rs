//! SaslAuthenticate on a listener without SASL: answered as Kafka answers it on a PLAINTEXT listener.

use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use kafka_wire_core::{ErrorCode, Str};
use std::sync::Arc;

pub(crate) async fn handle(
    _node: Arc<Node>,
    _context: RequestContext,
    _request: SaslAuthenticateRequest,
) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse {
        error_code: ErrorCode::IllegalSaslState,
        error_message: Some(Str::from_static(
            "SaslAuthenticate request received after successful authentication",
        )),
        ..SaslAuthenticateResponse::default()
    }
}
