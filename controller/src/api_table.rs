//! What a controller answers to storage nodes: the list of requests, and who may ask what.
//!
//! A request that names a node must come from that node: the certificate says who it is.

use crate::change_feed;
use crate::handlers::{
    allocate_producer_ids, alter_configs, alter_partition, alter_reassignments, alter_voters,
    coordinator_heartbeat, create_internal_topic, create_partitions, create_topics, delete_topics,
    describe_quorum, elect_leaders, heartbeat, lose_copies, register_coordinator, register_node,
    unregister_node, update_features,
};
use crate::liveness::Liveness;
use crate::metrics::ControllerMetrics;
use crate::proposer::Proposer;
use crate::quorum::levels::ControllerLevels;
use crate::quorum::state_machine::StateView;
use crate::quorum::type_config::TypeConfig;
use crate::quorum::voters::Voters;
use crate::room::Room;
use proto_types::controller_api::{ControllerReply, ControllerRequest, FeedRequest};
use proto_types::error::{ControllerError, Reason, Rejection};
use proto_types::feature::LevelRange;
use proto_types::ids::{CoordinatorId, MetadataIndex, NodeId};
use proto_types::message_kind::MessageKind;
use quic_transport::{Call, FrameReceiver, FrameSender, Refusal, Role, Roles, RouterBuilder};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Who may ask the leader.
const ASKING: Roles = Roles::of(&[Role::StorageNode, Role::Coordinator]);
/// Who may follow the metadata.
const FOLLOWING: Roles = Roles::of(&[Role::StorageNode, Role::Coordinator]);
/// Kept back from a caller's deadline for the way of the answer.
const WAY_BACK: Duration = Duration::from_millis(100);

/// What handlers work with.
pub(crate) struct Services {
    pub(crate) proposer: Proposer,
    pub(crate) liveness: Liveness,
    pub(crate) voters: Voters<TypeConfig>,
    pub(crate) levels: ControllerLevels,
    pub(crate) view: StateView,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) room: Room,
    pub(crate) cluster_id: String,
    pub(crate) session_ms: u64,
    pub(crate) heartbeat_ms: u64,
    pub(crate) propagation: Duration,
    pub(crate) feed_stall: Duration,
}

/// Where the table finds the services, which are made after it.
pub(crate) type ServicesSlot = Arc<OnceLock<Services>>;

/// Carries out one request.
async fn answer(
    services: &Services,
    call: &Call,
    request: ControllerRequest,
) -> Result<ControllerReply, ControllerError> {
    match request {
        ControllerRequest::RegisterNode(request) => {
            register_node::handle(services, call, request, LevelRange::IMPLIED).await
        }
        ControllerRequest::RegisterNodeWithLevels { registration, levels } => {
            register_node::handle(services, call, registration, levels).await
        }
        ControllerRequest::Heartbeat(request) => heartbeat::handle(services, call, request).await,
        ControllerRequest::CreateTopics(request) => create_topics::handle(services, call, request).await,
        ControllerRequest::DeleteTopics(request) => delete_topics::handle(services, call, request).await,
        ControllerRequest::CreatePartitions(request) => {
            create_partitions::handle(services, call, request).await
        }
        ControllerRequest::AlterConfigs(request) => alter_configs::handle(services, call, request).await,
        ControllerRequest::AllocateProducerIds(request) => {
            allocate_producer_ids::handle(services, call, request).await
        }
        ControllerRequest::RegisterCoordinator(request) => {
            register_coordinator::handle(services, call, request, LevelRange::IMPLIED).await
        }
        ControllerRequest::RegisterCoordinatorWithLevels { registration, levels } => {
            register_coordinator::handle(services, call, registration, levels).await
        }
        ControllerRequest::CoordinatorHeartbeat(request) => {
            coordinator_heartbeat::handle(services, call, request).await
        }
        ControllerRequest::CreateInternalTopic(request) => {
            create_internal_topic::handle(services, call, request).await
        }
        ControllerRequest::AlterPartition(request) => alter_partition::handle(services, call, request).await,
        ControllerRequest::ElectLeaders(request) => elect_leaders::handle(services, call, request).await,
        ControllerRequest::UnregisterNode { node } => unregister_node::handle(services, call, node).await,
        ControllerRequest::AlterReassignments(request) => {
            alter_reassignments::handle(services, call, request).await
        }
        ControllerRequest::DescribeQuorum => describe_quorum::handle(services, call).await,
        ControllerRequest::DescribeMetadataFollowers => describe_quorum::followers(services, call).await,
        ControllerRequest::AlterVoters(request) => alter_voters::handle(services, call, request).await,
        ControllerRequest::UpdateFeatures(request) => update_features::handle(services, call, request).await,
        ControllerRequest::LoseCopies(request) => lose_copies::handle(services, call, request).await,
    }
}

/// Adds the rows to the table of the endpoint.
pub(crate) fn add_routes(builder: RouterBuilder, slot: &ServicesSlot) -> RouterBuilder {
    let (calls, feeds) = (Arc::clone(slot), Arc::clone(slot));
    builder
        .ask(MessageKind::Controller, ASKING, move |call, request: ControllerRequest| {
            let slot = Arc::clone(&calls);
            async move {
                let services = slot.get().ok_or(Refusal::Busy)?;
                Ok(answer(services, &call, request).await)
            }
        })
        .stream(MessageKind::MetadataFeed, FOLLOWING, move |call, sender, receiver| {
            let slot = Arc::clone(&feeds);
            async move {
                if let Some(services) = slot.get() {
                    follow(services, &call, sender, receiver).await;
                }
            }
        })
}

async fn follow(services: &Services, call: &Call, sender: FrameSender, receiver: FrameReceiver) {
    let request = match call.decode::<FeedRequest>() {
        Ok(request) => request,
        Err(refusal) => {
            tracing::warn!(caller = %call.caller.identity, %refusal, "unreadable request for the metadata feed");
            return;
        }
    };
    if request.cluster_id != services.cluster_id {
        tracing::warn!(caller = %call.caller.identity, "a node of another cluster wants the metadata feed");
        return;
    }
    services.metrics.feed_followers.inc();
    tracing::info!(follower = %call.caller.identity, after = ?request.after, "metadata feed begins");
    let ended =
        change_feed::serve(services.view.clone(), request, sender, receiver, services.feed_stall).await;
    services.metrics.feed_followers.dec();
    let error = ended.err().map(|error| error.to_string());
    tracing::info!(follower = %call.caller.identity, error, "metadata feed ends");
}

/// Refuses requests that a node makes in another's name.
pub(crate) fn check_caller(call: &Call, node: NodeId) -> Result<(), ControllerError> {
    check_storage_node(call)?;
    check_number(call, "node", i64::from(node.0))
}

/// Refuses requests that a coordinator makes in another's name.
pub(crate) fn check_coordinator(call: &Call, coordinator: CoordinatorId) -> Result<(), ControllerError> {
    check_role(call, Role::Coordinator)?;
    check_number(call, "coordinator", i64::from(coordinator.0))
}

/// Refuses requests that only storage nodes make.
pub(crate) fn check_storage_node(call: &Call) -> Result<(), ControllerError> {
    check_role(call, Role::StorageNode)
}

fn check_role(call: &Call, role: Role) -> Result<(), ControllerError> {
    let caller = &call.caller.identity;
    if caller.role() == role {
        return Ok(());
    }
    let message = format!("Only a {role} may ask this, but the certificate is that of {caller}.");
    Err(ControllerError::Rejected(Rejection { reason: Reason::InvalidRequest, message }))
}

fn check_number(call: &Call, what: &str, number: i64) -> Result<(), ControllerError> {
    let caller = &call.caller.identity;
    if u64::try_from(number).is_ok_and(|number| number == caller.node_id()) {
        return Ok(());
    }
    let message =
        format!("The request is made for {what} {number}, but the certificate is that of {caller}.");
    Err(ControllerError::Rejected(Rejection { reason: Reason::InvalidRequest, message }))
}

impl Services {
    /// How long the caller still waits, less the way of the answer.
    pub(crate) fn time_left(&self, call: &Call) -> Duration {
        call.deadline.saturating_duration_since(Instant::now()).saturating_sub(WAY_BACK)
    }

    /// Waits until the active nodes have applied what was committed at `index`, but neither longer than the client wants
    /// nor than it can still hear the answer.
    pub(crate) async fn wait_applied(&self, call: &Call, index: MetadataIndex, timeout_ms: u32) {
        let wanted = Duration::from_millis(u64::from(timeout_ms)).min(self.propagation);
        let latest = call.deadline.checked_sub(WAY_BACK).unwrap_or(call.deadline);
        let deadline = (Instant::now() + wanted).min(latest);
        // Committed it is in any case, so the answer is the same.
        let _in_time = self.liveness.wait_applied(index, deadline).await;
    }
}
