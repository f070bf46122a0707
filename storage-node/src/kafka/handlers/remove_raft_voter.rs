//! RemoveRaftVoter: a controller loses its vote in the quorum (KIP-853); asked of the quorum's leader.

use super::add_raft_voter::{alter_voters, controller_id};
use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::remove_raft_voter::{RemoveRaftVoterRequest, RemoveRaftVoterResponse};
use proto_types::controller_api::AlterVoters;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: RemoveRaftVoterRequest,
) -> RemoveRaftVoterResponse {
    match remove(&node, &request).await {
        Ok(()) => RemoveRaftVoterResponse::default(),
        Err(KafkaError { code, message }) => RemoveRaftVoterResponse {
            error_code: code,
            error_message: Some(message),
            ..RemoveRaftVoterResponse::default()
        },
    }
}

async fn remove(node: &Node, request: &RemoveRaftVoterRequest) -> Result<(), KafkaError> {
    let change = AlterVoters::Remove { id: controller_id(request.voter_id)? };
    let timeout = Duration::from_millis(node.request_timeout_ms());
    alter_voters(node, request.cluster_id.as_deref(), change, timeout).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_port::ControllerFailure;
    use crate::test_node::{TestNode, assert_encodes, live_node};
    use kafka_wire_core::ErrorCode;
    use proto_types::controller_api::{ControllerReply, ControllerRequest};
    use proto_types::error::{Reason, Rejection};
    use proto_types::ids::ControllerId;

    #[tokio::test]
    async fn a_voter_is_removed_or_it_is_said_why_not() {
        let test = TestNode::with(&[], &live_node(1), |request| match request {
            ControllerRequest::AlterVoters(AlterVoters::Remove { id: ControllerId(3) }) => {
                Ok(ControllerReply::VotersAltered)
            }
            ControllerRequest::AlterVoters(_) => {
                let message = "No controller 9 has a vote.".to_owned();
                Err(ControllerFailure::Rejected(Rejection { reason: Reason::VoterNotFound, message }))
            }
            other => panic!("{other:?}"),
        });
        let cases = [
            (None, 3, ErrorCode::None),
            (None, 9, ErrorCode::VoterNotFound),
            (None, 0, ErrorCode::InvalidRequest),
            (Some("another"), 3, ErrorCode::InconsistentClusterId),
        ];
        for (cluster, voter_id, code) in cases {
            let cluster_id = cluster.map(Into::into);
            let request = RemoveRaftVoterRequest { cluster_id, voter_id, ..Default::default() };
            let response = handle(Arc::clone(&test.node), test.context(0), request).await;
            assert_encodes::<RemoveRaftVoterRequest>(&response, 0);
            assert_eq!(response.error_code, code);
        }
    }
}
