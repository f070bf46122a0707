//! AddRaftVoter: a controller that runs gets a vote in the quorum (KIP-853); asked of the quorum's leader.
//!
//! Kafka tells a controller's directories apart by ids; in Weir a controller that lost its directory gets a new id, so
//! the directory of the request says nothing. The answer comes when the new set of voters is committed, whatever
//! `ack_when_committed` says.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::add_raft_voter::{AddRaftVoterRequest, AddRaftVoterResponse};
use proto_types::controller_api::{AlterVoters, ControllerReply, ControllerRequest};
use proto_types::ids::ControllerId;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn handle(
    node: Arc<Node>,
    _context: RequestContext,
    request: AddRaftVoterRequest,
) -> AddRaftVoterResponse {
    match add(&node, &request).await {
        Ok(()) => AddRaftVoterResponse::default(),
        Err(KafkaError { code, message }) => AddRaftVoterResponse {
            error_code: code,
            error_message: Some(message),
            ..AddRaftVoterResponse::default()
        },
    }
}

async fn add(node: &Node, request: &AddRaftVoterRequest) -> Result<(), KafkaError> {
    let Some(listener) = request.listeners.first() else {
        let message = "The request names no address at which the other controllers reach the new voter.";
        return Err(KafkaError::new(ErrorCode::InvalidRequest, message));
    };
    let host = match listener.host.contains(':') {
        true => format!("[{}]", listener.host),
        false => listener.host.to_string(),
    };
    let change = AlterVoters::Add {
        id: controller_id(request.voter_id)?,
        address: format!("{host}:{}", listener.port),
    };
    let timeout = node.admin_timeout(request.timeout_ms);
    alter_voters(node, request.cluster_id.as_deref(), change, timeout).await
}

/// The controller that a client means.
pub(super) fn controller_id(id: i32) -> Result<ControllerId, KafkaError> {
    let message = || format!("{id} is no id of a controller; ids are 1 and above.");
    match u64::try_from(id) {
        Ok(id @ 1..) => Ok(ControllerId(id)),
        Ok(0) | Err(_) => Err(KafkaError::new(ErrorCode::InvalidRequest, message())),
    }
}

/// Asks for a change of the voters, if the client means this cluster.
pub(super) async fn alter_voters(
    node: &Node,
    cluster_id: Option<&str>,
    change: AlterVoters,
    timeout: Duration,
) -> Result<(), KafkaError> {
    if let Some(asked) = cluster_id.filter(|asked| *asked != &**node.cluster_id()) {
        let message = format!("This is cluster {}, the request means {asked}.", &**node.cluster_id());
        return Err(KafkaError::new(ErrorCode::InconsistentClusterId, message));
    }
    match node.ask_controller(ControllerRequest::AlterVoters(change), timeout).await? {
        ControllerReply::VotersAltered => Ok(()),
        other => Err(Node::unexpected_reply(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_port::ControllerFailure;
    use crate::test_node::{CLUSTER, TestNode, assert_encodes, live_node};
    use kafka_wire_core::messages::add_raft_voter::Listener;
    use proto_types::error::{Reason, Rejection};

    fn request(cluster: Option<&str>, voter_id: i32, hosts: &[&str]) -> AddRaftVoterRequest {
        let listener = |&host: &&str| Listener { name: "CONTROLLER".into(), host: host.into(), port: 9183 };
        AddRaftVoterRequest {
            cluster_id: cluster.map(Into::into),
            timeout_ms: 100,
            voter_id,
            listeners: hosts.iter().map(listener).collect(),
            ..AddRaftVoterRequest::default()
        }
    }

    #[tokio::test]
    async fn a_voter_is_added_under_its_address() {
        let test = TestNode::with(&[], &live_node(1), |request| match request {
            ControllerRequest::AlterVoters(AlterVoters::Add { id: ControllerId(1), .. }) => {
                let message = "Controller 1 is a voter.".to_owned();
                Err(ControllerFailure::Rejected(Rejection { reason: Reason::DuplicateVoter, message }))
            }
            ControllerRequest::AlterVoters(_) => Ok(ControllerReply::VotersAltered),
            other => panic!("{other:?}"),
        });
        let cases = [
            (request(None, 4, &["c4", "other"]), ErrorCode::None),
            (request(Some(CLUSTER), 5, &["::1"]), ErrorCode::None),
            (request(None, 1, &["c1"]), ErrorCode::DuplicateVoter),
            (request(Some("another"), 6, &["c6"]), ErrorCode::InconsistentClusterId),
            (request(None, 6, &[]), ErrorCode::InvalidRequest),
            (request(None, -6, &["c6"]), ErrorCode::InvalidRequest),
        ];
        for (request, code) in cases {
            let response = handle(Arc::clone(&test.node), test.context(1), request).await;
            for version in 0..=1 {
                assert_encodes::<AddRaftVoterRequest>(&response, version);
            }
            assert_eq!(response.error_code, code, "{response:?}");
        }
        let asked = test.controller.asked.lock();
        let add = |id, address: &str| {
            let (id, address) = (ControllerId(id), address.to_owned());
            ControllerRequest::AlterVoters(AlterVoters::Add { id, address })
        };
        assert_eq!(asked[..2], [add(4, "c4:9183"), add(5, "[::1]:9183")]);
        assert_eq!(asked.len(), 3, "what is wrong in itself is not asked for");
    }
}
