//! FindCoordinator: refused, since there are no groups and transactions yet.
//!
//! The code is one that no client repeats the request on, and the message says what works instead. Consumers that assign
//! partitions themselves and store no offsets never ask.

use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use std::sync::Arc;

/// From this version on several keys are asked for at once.
const BATCH_MIN: i16 = 4;
const NO_NODE: i32 = -1;

/// Kafka's numbers of key types.
mod key_type {
    pub(super) const GROUP: i8 = 0;
    pub(super) const TRANSACTION: i8 = 1;
    pub(super) const SHARE: i8 = 2;
}

pub(crate) async fn handle(
    _node: Arc<Node>,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let (error_code, message) = refusal(request.key_type);
    if context.api_version < BATCH_MIN {
        return FindCoordinatorResponse {
            error_code,
            error_message: Some(message),
            node_id: NO_NODE,
            port: NO_NODE,
            ..FindCoordinatorResponse::default()
        };
    }
    let coordinator = |key: Str| Coordinator {
        key,
        node_id: NO_NODE,
        port: NO_NODE,
        error_code,
        error_message: Some(message.clone()),
        ..Coordinator::default()
    };
    FindCoordinatorResponse {
        coordinators: request.coordinator_keys.into_iter().map(coordinator).collect(),
        ..FindCoordinatorResponse::default()
    }
}

fn refusal(kind: i8) -> (ErrorCode, Str) {
    let (code, message) = match kind {
        key_type::GROUP => (
            ErrorCode::UnsupportedVersion,
            "This version of Weir has no consumer groups yet: assign partitions instead of subscribing, and start \
             from an offset or time of your own.",
        ),
        key_type::TRANSACTION => (
            ErrorCode::UnsupportedVersion,
            "This version of Weir has no transactions yet: use an idempotent producer without transactional.id.",
        ),
        key_type::SHARE => (ErrorCode::UnsupportedVersion, "This version of Weir has no share groups yet."),
        _ => (ErrorCode::InvalidRequest, "Unknown type of coordinator key."),
    };
    (code, Str::from_static(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{TestNode, assert_encodes, live_node};

    #[tokio::test]
    async fn every_version_gets_a_refusal_that_is_not_repeated() {
        let test = TestNode::new(&live_node(1));
        for version in 0..=6 {
            for kind in [key_type::GROUP, key_type::TRANSACTION, key_type::SHARE, 9] {
                let request = FindCoordinatorRequest {
                    key: if version < BATCH_MIN { "g".into() } else { Str::default() },
                    key_type: kind,
                    coordinator_keys: if version < BATCH_MIN { vec![] } else { vec!["g".into(), "h".into()] },
                };
                let response = handle(Arc::clone(&test.node), test.context(version), request).await;
                assert_encodes::<FindCoordinatorRequest>(&response, version);
                let codes: Vec<ErrorCode> = if version < BATCH_MIN {
                    vec![response.error_code]
                } else {
                    response.coordinators.iter().map(|coordinator| coordinator.error_code).collect()
                };
                assert_eq!(codes.len(), if version < BATCH_MIN { 1 } else { 2 });
                for code in codes {
                    assert!(!code.is_none() && !code.is_retriable(), "{code} in version {version}");
                }
            }
        }
    }
}
