//! Metadata: the brokers, and topics with their partitions and leaders.
//!
//! Clients get the addresses of the listener that they asked. Unknown topics are created where both the client and the
//! configuration allow it; the answer then waits a moment for the new topic, so that it is in it.

use crate::kafka::authorize::{self, CLUSTER_OPERATIONS, TOPIC_OPERATIONS};
use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{ControllerReply, ControllerRequest, CreateTopics, NewTopic};
use proto_types::error::Reason;
use proto_types::ids::{NodeId, PartitionIndex, TopicId};
use proto_types::metadata::PartitionState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::{ClusterImage, TopicImage};
use storage_node_core::topic_name;

/// Longest that an answer waits for topics that it creates itself.
const AUTO_CREATE_TIMEOUT: Duration = Duration::from_secs(5);
/// Below this version a client cannot say that a topic must not be created.
const AUTO_CREATE_FLAG_MIN: i16 = 4;
/// From this version on topics can be asked for by id.
const TOPIC_ID_MIN: i16 = 12;
/// From this version on a client knows that a leader may lack a listener.
const LISTENER_NOT_FOUND_MIN: i16 = 6;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: MetadataRequest,
) -> MetadataResponse {
    let version = context.api_version;
    let view = View { listener: &context.listener.name, version };
    let topics = match &request.topics {
        None => all_topics(&node.image(), view),
        Some(topics) if topics.is_empty() && version == 0 => all_topics(&node.image(), view),
        Some(topics) if version < TOPIC_ID_MIN && topics.iter().any(asks_by_id) => {
            topics.iter().map(|topic| refused(topic, ErrorCode::InvalidRequest)).collect()
        }
        Some(topics) => {
            let failures = create_missing(&node, &request, topics, version).await;
            let image = node.image();
            topics.iter().map(|topic| named_topic(&image, view, topic, &failures)).collect()
        }
    };
    let image = node.image();
    let topics = topics.into_iter().map(|mut topic: MetadataResponseTopic| {
        if topic.error_code != ErrorCode::UnknownTopicId {
            let asked = request.include_topic_authorized_operations;
            topic.topic_authorized_operations = authorize::operations(asked, TOPIC_OPERATIONS);
        }
        topic
    });
    MetadataResponse {
        brokers: brokers(&image, view.listener),
        cluster_id: Some(node.cluster_id().clone()),
        controller_id: node.admin_node(&image),
        topics: topics.collect(),
        cluster_authorized_operations: authorize::operations(
            request.include_cluster_authorized_operations,
            CLUSTER_OPERATIONS,
        ),
        ..MetadataResponse::default()
    }
}

/// From where the cluster is looked at.
#[derive(Debug, Clone, Copy)]
struct View<'a> {
    listener: &'a str,
    version: i16,
}

fn asks_by_id(topic: &MetadataRequestTopic) -> bool {
    !topic.topic_id.is_nil() || topic.name.is_none()
}

fn refused(topic: &MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: code,
        // Versions without a nullable name need one.
        name: Some(topic.name.clone().unwrap_or_default()),
        topic_id: topic.topic_id,
        ..MetadataResponseTopic::default()
    }
}

fn brokers(image: &ClusterImage, listener: &str) -> Vec<MetadataResponseBroker> {
    let live = image.live_nodes().filter_map(|node| {
        let address = node.listener(listener)?;
        Some(MetadataResponseBroker {
            node_id: node.registration.node.0,
            host: address.host.as_str().into(),
            port: i32::from(address.port),
            rack: node.registration.rack.as_deref().map(Str::from),
        })
    });
    live.collect()
}

fn all_topics(image: &ClusterImage, view: View<'_>) -> Vec<MetadataResponseTopic> {
    image.topics().map(|topic| describe(image, view, topic)).collect()
}

fn named_topic(
    image: &ClusterImage,
    view: View<'_>,
    asked: &MetadataRequestTopic,
    failures: &BTreeMap<Str, ErrorCode>,
) -> MetadataResponseTopic {
    if !asked.topic_id.is_nil() {
        return match image.topic(TopicId(asked.topic_id)) {
            Some(topic) => describe(image, view, topic),
            None => MetadataResponseTopic {
                error_code: ErrorCode::UnknownTopicId,
                topic_id: asked.topic_id,
                ..MetadataResponseTopic::default()
            },
        };
    }
    let name = asked.name.clone().unwrap_or_default();
    if let Some(topic) = image.topic_by_name(&name) {
        return describe(image, view, topic);
    }
    let error_code = match failures.get(&name) {
        Some(&code) => code,
        None if !topic_name::is_valid(&name) => ErrorCode::InvalidTopicException,
        None => ErrorCode::UnknownTopicOrPartition,
    };
    let is_internal = authorize::is_internal(&name);
    MetadataResponseTopic { error_code, name: Some(name), is_internal, ..MetadataResponseTopic::default() }
}

fn describe(image: &ClusterImage, view: View<'_>, topic: &TopicImage) -> MetadataResponseTopic {
    let partitions = topic.partitions.iter();
    MetadataResponseTopic {
        name: Some((&*topic.name).into()),
        topic_id: topic.id.0,
        is_internal: authorize::is_internal(&topic.name),
        partitions: partitions.map(|(&index, state)| partition(image, view, index, state)).collect(),
        ..MetadataResponseTopic::default()
    }
}

fn partition(
    image: &ClusterImage,
    view: View<'_>,
    index: PartitionIndex,
    state: &PartitionState,
) -> MetadataResponsePartition {
    let reachable = |node: &NodeId| is_reachable(image, view.listener, *node);
    // Version 0 lists only live replicas and says so by an error.
    let shown = |nodes: &[NodeId]| -> Vec<i32> {
        nodes.iter().filter(|node| view.version > 0 || reachable(node)).map(|node| node.0).collect()
    };
    let replica_nodes = shown(&state.replicas);
    let isr_nodes = shown(&state.isr);
    let (leader_id, mut error_code) = leader(image, view.listener, state);
    if error_code == ErrorCode::ListenerNotFound && view.version < LISTENER_NOT_FOUND_MIN {
        error_code = ErrorCode::LeaderNotAvailable;
    }
    let hidden = replica_nodes.len() < state.replicas.len() || isr_nodes.len() < state.isr.len();
    if error_code.is_none() && hidden {
        error_code = ErrorCode::ReplicaNotAvailable;
    }
    MetadataResponsePartition {
        error_code,
        partition_index: index.0,
        leader_id,
        leader_epoch: state.leader_epoch.0,
        replica_nodes,
        isr_nodes,
        offline_replicas: offline(image, view.listener, state),
    }
}

fn is_reachable(image: &ClusterImage, listener: &str, node: NodeId) -> bool {
    image.node(node).is_some_and(|node| !node.fenced && node.listener(listener).is_some())
}

/// The leader as clients of `listener` see it, and why there is none.
pub(super) fn leader(image: &ClusterImage, listener: &str, state: &PartitionState) -> (i32, ErrorCode) {
    match state.leader {
        Some(leader) if is_reachable(image, listener, leader) => (leader.0, ErrorCode::None),
        Some(leader) if image.is_live(leader) => (-1, ErrorCode::ListenerNotFound),
        Some(_) | None => (-1, ErrorCode::LeaderNotAvailable),
    }
}

/// The replicas that clients of `listener` cannot reach now.
pub(super) fn offline(image: &ClusterImage, listener: &str, state: &PartitionState) -> Vec<i32> {
    let replicas = state.replicas.iter().filter(|node| !is_reachable(image, listener, **node));
    replicas.map(|node| node.0).collect()
}

/// Creates the topics that are asked for by name and do not exist, where that is allowed. Returns the codes of those that
/// could not be created.
async fn create_missing(
    node: &Node,
    request: &MetadataRequest,
    topics: &[MetadataRequestTopic],
    version: i16,
) -> BTreeMap<Str, ErrorCode> {
    let allowed = version < AUTO_CREATE_FLAG_MIN || request.allow_auto_topic_creation;
    if !allowed || !node.auto_create_topics() {
        return BTreeMap::new();
    }
    let image = node.image();
    let names: BTreeSet<Str> = topics
        .iter()
        .filter(|topic| topic.topic_id.is_nil())
        .filter_map(|topic| topic.name.clone())
        .filter(|name| image.topic_by_name(name).is_none() && topic_name::is_valid(name))
        .collect();
    if names.is_empty() {
        return BTreeMap::new();
    }
    let names: Vec<Str> = names.into_iter().collect();
    match create(node, &names).await {
        Ok(failures) => failures,
        // It may still come: clients ask again after this one.
        Err(_) => names.into_iter().map(|name| (name, ErrorCode::LeaderNotAvailable)).collect(),
    }
}

async fn create(node: &Node, names: &[Str]) -> Result<BTreeMap<Str, ErrorCode>, KafkaError> {
    let (partitions, replication_factor) = node.new_topic_counts();
    let topic = |name: &Str| NewTopic {
        name: name.to_string(),
        partitions,
        replication_factor,
        assignments: Vec::new(),
        configs: Vec::new(),
    };
    let request = ControllerRequest::CreateTopics(CreateTopics {
        topics: names.iter().map(topic).collect(),
        validate_only: false,
        timeout_ms: u32::try_from(AUTO_CREATE_TIMEOUT.as_millis()).unwrap_or(u32::MAX),
    });
    let results = match node.ask_controller(request, AUTO_CREATE_TIMEOUT).await? {
        ControllerReply::TopicsCreated(results) => results,
        other => return Err(Node::unexpected_reply(&other)),
    };
    let mut failures = BTreeMap::new();
    for (name, result) in names.iter().zip(results) {
        match result {
            Ok(created) => {
                // The controller has waited for all nodes that live; a node that is just joining waits for itself.
                node.published().wait_for(AUTO_CREATE_TIMEOUT, |image| image.topic(created.topic).is_some()).await;
            }
            // Another client was faster: the topic is there, or will be in a moment.
            Err(rejection) if rejection.reason == Reason::TopicExists => {
                failures.insert(name.clone(), ErrorCode::LeaderNotAvailable);
            }
            Err(rejection) => {
                tracing::info!(topic = %name.escape_debug(), error = %rejection.message, "create a topic on first use");
                failures.insert(name.clone(), KafkaError::from(rejection).code);
            }
        }
    }
    Ok(failures)
}
