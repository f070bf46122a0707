//! SaslHandshake on a listener without SASL: answered as Kafka answers it on a PLAINTEXT listener.

use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use std::sync::Arc;

pub(crate) async fn handle(
    _node: Arc<Node>,
    _context: RequestContext,
    _request: SaslHandshakeRequest,
) -> SaslHandshakeResponse {
    SaslHandshakeResponse { error_code: ErrorCode::IllegalSaslState, ..SaslHandshakeResponse::default() }
}
