//! UnregisterBroker: forget a node that has left for good; asked of the controller.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::unregister_broker::{UnregisterBrokerRequest, UnregisterBrokerResponse};
use proto_types::controller_api::{ControllerReply, ControllerRequest};
use proto_types::ids::NodeId;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse {
    let question = ControllerRequest::UnregisterNode { node: NodeId(request.broker_id) };
    let timeout = Duration::from_millis(node.request_timeout_ms());
    let error = match node.ask_controller(question, timeout).await {
        Ok(ControllerReply::NodeUnregistered) => return UnregisterBrokerResponse::default(),
        Ok(other) => Node::unexpected_reply(&other),
        Err(error) => error,
    };
    let KafkaError { code, message } = error;
    UnregisterBrokerResponse {
        error_code: code,
        error_message: Some(message),
        ..UnregisterBrokerResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_port::ControllerFailure;
    use crate::test_node::{TestNode, assert_encodes, live_node};
    use kafka_wire_core::ErrorCode;
    use proto_types::error::{Reason, Rejection};

    #[tokio::test]
    async fn a_node_is_forgotten_or_it_is_said_why_not() {
        let test = TestNode::with(&[], &live_node(1), |request| {
            let reject = |reason, message: &str| {
                Err(ControllerFailure::Rejected(Rejection { reason, message: message.to_owned() }))
            };
            match request {
                ControllerRequest::UnregisterNode { node: NodeId(3) } => {
                    Ok(ControllerReply::NodeUnregistered)
                }
                ControllerRequest::UnregisterNode { node: NodeId(1) } => {
                    reject(Reason::NodeInUse, "Node 1 holds 4 replicas; drain it first.")
                }
                _ => reject(Reason::UnknownNode, "Node 9 is not registered."),
            }
        });
        for (broker_id, code) in
            [(3, ErrorCode::None), (1, ErrorCode::InvalidRequest), (9, ErrorCode::BrokerIdNotRegistered)]
        {
            let request = UnregisterBrokerRequest { broker_id };
            let response = handle(Arc::clone(&test.node), test.context(0), request).await;
            assert_encodes::<UnregisterBrokerRequest>(&response, 0);
            assert_eq!(response.error_code, code);
            assert_eq!(response.error_message.is_some(), code != ErrorCode::None);
        }
    }
}
