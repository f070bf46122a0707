//! FindCoordinator: which node to ask about a group.
//!
//! Any node forwards the requests of any group. The one that leads the partition of the group in `__consumer_offsets` is
//! named, so that the load spreads, and so that the listing of groups by node makes sense. The first question creates
//! that topic. Transactions and share groups are refused with a code that no client repeats the request on.

use crate::kafka::find_partition;
use crate::kafka::groups::{names_too_many, shard_of};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{ControllerRequest, CreateInternalTopic};
use proto_types::metadata::InternalTopic;
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::ClusterImage;

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
    node: Arc<Node>,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let mut keys = match context.api_version < BATCH_MIN {
        true => vec![request.key],
        false => request.coordinator_keys,
    };
    let too_many = names_too_many(&mut keys);
    let refused = match request.key_type {
        _ if too_many => {
            Some((ErrorCode::InvalidRequest, Str::from_static("The request has too many coordinator keys.")))
        }
        key_type::GROUP => match keys.is_empty() {
            true => None,
            false => have_offsets_topic(&node).await.err(),
        },
        other => Some(refusal(other)),
    };
    let image = node.image();
    let mut coordinators: Vec<Coordinator> = keys
        .into_iter()
        .map(|key| match &refused {
            Some((error, message)) => without_node(key, *error, message.clone()),
            None => of_group(&image, &context.listener.name, key),
        })
        .collect();
    if context.api_version >= BATCH_MIN {
        return FindCoordinatorResponse { coordinators, ..FindCoordinatorResponse::default() };
    }
    let found = coordinators.remove(0);
    FindCoordinatorResponse {
        error_code: found.error_code,
        error_message: found.error_message,
        node_id: found.node_id,
        host: found.host,
        port: found.port,
        ..FindCoordinatorResponse::default()
    }
}

/// The node that leads the partition of the group.
fn of_group(image: &ClusterImage, listener: &str, key: Str) -> Coordinator {
    let leader = shard_of(image, &key).and_then(|shard| image.partition(shard)?.leader);
    let found = leader.and_then(|leader| find_partition::endpoints(image, listener, [leader]).pop());
    match found {
        Some(at) => Coordinator {
            key,
            node_id: at.node.0,
            host: at.host,
            port: at.port,
            error_code: ErrorCode::None,
            error_message: None,
        },
        None => {
            let message = Str::from_static("The partition of the group has no leader now.");
            without_node(key, ErrorCode::CoordinatorNotAvailable, message)
        }
    }
}

fn without_node(key: Str, error_code: ErrorCode, message: Str) -> Coordinator {
    Coordinator {
        key,
        node_id: NO_NODE,
        port: NO_NODE,
        error_code,
        error_message: Some(message),
        ..Coordinator::default()
    }
}

/// Has the topic of the offsets created if it does not exist.
async fn have_offsets_topic(node: &Node) -> Result<(), (ErrorCode, Str)> {
    let exists = |image: &ClusterImage| image.topic_by_name(InternalTopic::ConsumerOffsets.name()).is_some();
    if exists(&node.image()) {
        return Ok(());
    }
    let timeout_ms = node.request_timeout_ms();
    let topic = InternalTopic::ConsumerOffsets;
    let create = CreateInternalTopic { topic, timeout_ms: u32::try_from(timeout_ms).unwrap_or(u32::MAX) };
    let timeout = Duration::from_millis(timeout_ms);
    let not_available = |message: Str| (ErrorCode::CoordinatorNotAvailable, message);
    if let Err(error) = node.ask_controller(ControllerRequest::CreateInternalTopic(create), timeout).await {
        // Whatever it is, it may be better in a moment: there may be no node that could hold the topic yet.
        return Err(not_available(error.message));
    }
    match node.published().wait_for(timeout, exists).await {
        Some(_) => Ok(()),
        None => Err(not_available(Str::from_static("The topic of the offsets is being created."))),
    }
}

fn refusal(kind: i8) -> (ErrorCode, Str) {
    let (code, message) = match kind {
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
    use crate::test_node::{TestNode, assert_encodes, live_node, topic, topic_id};
    use proto_types::controller_api::ControllerReply;

    fn request(version: i16, kind: i8) -> FindCoordinatorRequest {
        FindCoordinatorRequest {
            key: if version < BATCH_MIN { "g".into() } else { Str::default() },
            key_type: kind,
            coordinator_keys: if version < BATCH_MIN { vec![] } else { vec!["g".into(), "h".into()] },
        }
    }

    fn answers(version: i16, response: &FindCoordinatorResponse) -> Vec<(ErrorCode, i32)> {
        if version < BATCH_MIN {
            return vec![(response.error_code, response.node_id)];
        }
        response.coordinators.iter().map(|found| (found.error_code, found.node_id)).collect()
    }

    #[tokio::test]
    async fn the_leader_of_the_groups_partition_is_named() {
        let mut changes = live_node(1);
        changes.extend(live_node(2));
        changes.extend(topic(1, "__consumer_offsets", 1, &[2]));
        let test = TestNode::new(&changes);
        for version in 0..=6 {
            let asked = request(version, key_type::GROUP);
            let response = handle(Arc::clone(&test.node), test.context(version), asked).await;
            assert_encodes::<FindCoordinatorRequest>(&response, version);
            assert!(answers(version, &response).iter().all(|answer| *answer == (ErrorCode::None, 2)));
        }
    }

    #[tokio::test]
    async fn the_first_question_creates_the_topic() {
        let test = TestNode::with(&[], &live_node(1), |request| {
            assert!(matches!(request, ControllerRequest::CreateInternalTopic(_)), "{request:?}");
            Ok(ControllerReply::InternalTopicCreated { topic: topic_id(1) })
        });
        let (node, context) = (Arc::clone(&test.node), test.context(4));
        let asking = tokio::spawn(async move { handle(node, context, request(4, key_type::GROUP)).await });
        test.apply(&topic(1, "__consumer_offsets", 1, &[1]));
        let response = asking.await.expect("answered");
        assert_eq!(answers(4, &response), [(ErrorCode::None, 1); 2]);
    }

    #[tokio::test]
    async fn without_a_leader_clients_come_back() {
        let mut changes = live_node(1);
        changes.extend(topic(1, "__consumer_offsets", 1, &[]));
        let test = TestNode::new(&changes);
        let response = handle(Arc::clone(&test.node), test.context(3), request(3, key_type::GROUP)).await;
        assert_eq!(answers(3, &response), [(ErrorCode::CoordinatorNotAvailable, NO_NODE)]);
    }

    #[tokio::test]
    async fn what_is_not_served_gets_a_refusal_that_is_not_repeated() {
        let test = TestNode::new(&live_node(1));
        for version in 0..=6 {
            for kind in [key_type::TRANSACTION, key_type::SHARE, 9] {
                let response =
                    handle(Arc::clone(&test.node), test.context(version), request(version, kind)).await;
                assert_encodes::<FindCoordinatorRequest>(&response, version);
                for (code, _) in answers(version, &response) {
                    assert!(!code.is_none() && !code.is_retriable(), "{code} in version {version}");
                }
            }
        }
    }
}
