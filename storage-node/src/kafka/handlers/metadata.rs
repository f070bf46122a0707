//! Metadata: the brokers, and topics with their partitions and leaders.
//!
//! Clients get the addresses of the listener that they asked. Unknown topics are created where both the client and the
//! configuration allow it; as in Kafka the answer does not wait for them: they are unknown until clients ask again.

use crate::kafka::authorize::{self, CLUSTER_OPERATIONS, TOPIC_OPERATIONS};
use crate::kafka::first_use;
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_wire_core::{ErrorCode, Str};
use proto_types::ids::{NodeId, PartitionIndex, TopicId};
use proto_types::metadata::PartitionState;
use std::collections::HashSet;
use std::sync::Arc;
use storage_node_core::image::{ClusterImage, TopicImage};
use storage_node_core::topic_name;

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
            let image = node.image();
            create_missing(&node, &image, &request, topics, version);
            each_once(topics).map(|topic| named_topic(&image, view, topic)).collect()
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
        brokers: brokers(&node, &image, view.listener),
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

/// Repetitions left out, as Kafka does: a short request must not get an answer without bound.
fn each_once(topics: &[MetadataRequestTopic]) -> impl Iterator<Item = &MetadataRequestTopic> {
    let mut seen = HashSet::new();
    // Beside an id a name means nothing.
    let key = |topic: &MetadataRequestTopic| {
        let name = topic.topic_id.is_nil().then(|| topic.name.clone()).flatten();
        (topic.topic_id, name)
    };
    topics.iter().filter(move |topic| seen.insert(key(topic)))
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

fn brokers(node: &Node, image: &ClusterImage, listener: &str) -> Vec<MetadataResponseBroker> {
    let told = node.told_nodes(image).filter_map(|node| {
        let address = node.listener(listener)?;
        Some(MetadataResponseBroker {
            node_id: node.registration.node.0,
            host: address.host.as_str().into(),
            port: i32::from(address.port),
            rack: node.registration.rack.as_deref().map(Str::from),
        })
    });
    told.collect()
}

fn all_topics(image: &ClusterImage, view: View<'_>) -> Vec<MetadataResponseTopic> {
    image.topics().map(|topic| describe(image, view, topic)).collect()
}

fn named_topic(image: &ClusterImage, view: View<'_>, asked: &MetadataRequestTopic) -> MetadataResponseTopic {
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
    let error_code = match topic_name::is_valid(&name) {
        true => ErrorCode::UnknownTopicOrPartition,
        false => ErrorCode::InvalidTopicException,
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

/// Begins to create the topics that are asked for by name and do not exist, where that is allowed.
fn create_missing(
    node: &Arc<Node>,
    image: &ClusterImage,
    request: &MetadataRequest,
    topics: &[MetadataRequestTopic],
    version: i16,
) {
    let allowed = version < AUTO_CREATE_FLAG_MIN || request.allow_auto_topic_creation;
    if !allowed || !node.auto_create_topics() {
        return;
    }
    let by_name = topics.iter().filter(|topic| topic.topic_id.is_nil());
    let missing = by_name
        .filter_map(|topic| topic.name.clone())
        .filter(|name| image.topic_by_name(name).is_none() && topic_name::is_valid(name));
    first_use::begin(node, missing.collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{self, TestNode, context_on, fence, live_node, topic, topic_id};
    use proto_types::controller_api::{ControllerReply, ControllerRequest, CreatedTopic};
    use proto_types::error::{Reason, Rejection};
    use proto_types::metadata::{InternalTopic, MetadataChange};
    use std::sync::Arc;
    use std::time::Duration;
    use uuid::Uuid;

    /// More than anything takes here.
    const MOMENT: Duration = Duration::from_secs(30);

    fn cluster() -> Vec<MetadataChange> {
        [live_node(1), live_node(2), topic(1, "a", 2, &[1, 2]), topic(2, "b", 1, &[2])].concat()
    }

    fn by_name(name: &str) -> MetadataRequestTopic {
        MetadataRequestTopic { name: Some(name.into()), ..MetadataRequestTopic::default() }
    }

    fn by_id(id: Uuid) -> MetadataRequestTopic {
        MetadataRequestTopic { topic_id: id, name: None }
    }

    async fn ask(
        test: &TestNode,
        version: i16,
        topics: Option<Vec<MetadataRequestTopic>>,
    ) -> MetadataResponse {
        let request = MetadataRequest { topics, ..MetadataRequest::default() };
        let response = handle(Arc::clone(&test.node), test.context(version), request).await;
        test_node::assert_encodes::<MetadataRequest>(&response, version);
        response
    }

    fn names(response: &MetadataResponse) -> Vec<(String, ErrorCode)> {
        let name = |topic: &MetadataResponseTopic| topic.name.as_deref().unwrap_or("?").to_owned();
        response.topics.iter().map(|topic| (name(topic), topic.error_code)).collect()
    }

    fn fine(names: &[&str]) -> Vec<(String, ErrorCode)> {
        names.iter().map(|&name| (name.to_owned(), ErrorCode::None)).collect()
    }

    #[tokio::test]
    async fn null_asks_for_all_and_empty_for_none() {
        let test = TestNode::new(&cluster());
        assert_eq!(names(&ask(&test, 0, Some(vec![])).await), fine(&["a", "b"]));
        for version in 1..=13 {
            assert_eq!(names(&ask(&test, version, None).await), fine(&["a", "b"]), "version {version}");
            assert_eq!(names(&ask(&test, version, Some(vec![])).await), fine(&[]), "version {version}");
        }
    }

    #[tokio::test]
    async fn topics_by_name_and_id_keep_their_order_and_their_own_errors() {
        let test = TestNode::new(&cluster());
        let asked = vec![by_name("b"), by_name("nope"), by_name("no pe"), by_name("a")];
        for version in 0..=13 {
            let expected = [
                ("b", ErrorCode::None),
                ("nope", ErrorCode::UnknownTopicOrPartition),
                ("no pe", ErrorCode::InvalidTopicException),
                ("a", ErrorCode::None),
            ];
            let response = ask(&test, version, Some(asked.clone())).await;
            assert_eq!(names(&response), expected.map(|(name, code)| (name.to_owned(), code)));
        }
        let asked = vec![by_id(topic_id(2).0), by_id(Uuid::from_u128(99))];
        let response = ask(&test, 12, Some(asked.clone())).await;
        let codes = [("b".to_owned(), ErrorCode::None), ("?".to_owned(), ErrorCode::UnknownTopicId)];
        assert_eq!(names(&response), codes);
        let response = ask(&test, 11, Some(asked)).await;
        assert!(response.topics.iter().all(|topic| topic.error_code == ErrorCode::InvalidRequest));
    }

    #[tokio::test]
    async fn a_topic_that_is_asked_for_again_is_answered_once() {
        let test = TestNode::new(&cluster());
        let asked = [by_name("b"), by_name("a"), by_name("b"), by_name("nope"), by_name("nope")];
        let response = ask(&test, 9, Some(asked.to_vec())).await;
        let expected =
            [("b", ErrorCode::None), ("a", ErrorCode::None), ("nope", ErrorCode::UnknownTopicOrPartition)];
        assert_eq!(names(&response), expected.map(|(name, code)| (name.to_owned(), code)));
        let response = ask(&test, 12, Some(vec![by_id(topic_id(2).0); 1000])).await;
        assert_eq!(names(&response), fine(&["b"]));
    }

    #[tokio::test]
    async fn clients_get_addresses_of_their_own_listener() {
        let test = TestNode::new(&cluster());
        let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
        let response = handle(Arc::clone(&test.node), context_on("EXTRA", 9), request.clone()).await;
        let hosts: Vec<&str> = response.brokers.iter().map(|broker| &*broker.host).collect();
        assert_eq!(hosts, ["EXTRA-1", "EXTRA-2"]);
        assert_eq!(response.controller_id, 1);
        assert_eq!(response.cluster_id.as_deref(), Some(test_node::CLUSTER));
        // Nobody has this listener: the leaders exist, but not for this client.
        let response = handle(Arc::clone(&test.node), context_on("OTHER", 9), request).await;
        assert!(response.brokers.is_empty());
        assert_eq!(response.topics[0].partitions[0].error_code, ErrorCode::ListenerNotFound);
    }

    #[tokio::test]
    async fn a_fenced_node_leads_nothing_and_is_told_a_moment_longer() {
        let test = TestNode::new(&[cluster(), vec![fence(2)]].concat());
        assert_eq!(ask(&test, 9, None).await.brokers.len(), 1, "clients were never told of it");
        let test = TestNode::new(&cluster());
        test.apply(&[fence(2)]);
        let response = ask(&test, 9, None).await;
        assert_eq!(response.brokers.len(), 2);
        let a = &response.topics[0].partitions[0];
        assert_eq!((a.leader_id, a.error_code), (1, ErrorCode::None));
        assert_eq!((&a.replica_nodes[..], &a.offline_replicas[..]), (&[1, 2][..], &[2][..]));
        let b = &response.topics[1].partitions[0];
        assert_eq!((b.leader_id, b.leader_epoch, b.error_code), (-1, 3, ErrorCode::LeaderNotAvailable));
        // Version 0 hides what is offline and says so.
        let old = ask(&test, 0, Some(vec![by_name("a")])).await;
        let a = &old.topics[0].partitions[0];
        assert_eq!((&a.replica_nodes[..], a.error_code), (&[1][..], ErrorCode::ReplicaNotAvailable));
        // The controller that clients are told is one that lives.
        test.apply(&[live_node(2), vec![fence(1)]].concat());
        assert_eq!(ask(&test, 9, None).await.controller_id, 2);
    }

    #[tokio::test]
    async fn operations_are_told_only_when_asked() {
        let test = TestNode::new(&cluster());
        let request = MetadataRequest {
            topics: Some(vec![by_name("a"), by_name("nope")]),
            include_cluster_authorized_operations: true,
            include_topic_authorized_operations: true,
            ..MetadataRequest::default()
        };
        let response = handle(Arc::clone(&test.node), test.context(8), request).await;
        assert_eq!(response.cluster_authorized_operations, 8096);
        assert!(response.topics.iter().all(|topic| topic.topic_authorized_operations == 3576));
        let response = ask(&test, 8, None).await;
        assert_eq!(response.cluster_authorized_operations, i32::MIN);
        assert!(response.topics.iter().all(|topic| topic.topic_authorized_operations == i32::MIN));
    }

    /// A node that creates topics on first use; its controller does so at once, but for a topic named `refused`.
    fn creating() -> TestNode {
        let shared: Arc<Mutex<Option<Arc<crate::published_image::PublishedImage>>>> = Arc::default();
        let seen = Arc::clone(&shared);
        let file = [("auto.create.topics.enable", "true"), ("num.partitions", "3")];
        let test = TestNode::with(&file, &cluster(), move |request| {
            let published = seen.lock().clone().expect("set before the first question");
            let create = match request {
                ControllerRequest::CreateTopics(create) => create,
                ControllerRequest::CreateInternalTopic(create) => {
                    test_node::apply(&published, &topic(8, create.topic.name(), 50, &[1]));
                    return Ok(ControllerReply::InternalTopicCreated { topic: topic_id(8) });
                }
                other => panic!("{other:?}"),
            };
            let results = create.topics.iter().map(|new| {
                if new.name == "refused" {
                    let message = "no".to_owned();
                    return Err(Rejection { reason: Reason::InvalidReplicationFactor, message });
                }
                let partitions = new.partitions.unwrap_or(1);
                test_node::apply(&published, &topic(7, &new.name, partitions, &[1]));
                Ok(CreatedTopic { topic: topic_id(7), partitions, replication_factor: 1, configs: vec![] })
            });
            Ok(ControllerReply::TopicsCreated(results.collect()))
        });
        *shared.lock() = Some(Arc::clone(&test.published));
        test
    }

    async fn wait_for_topic(test: &TestNode, name: &str) {
        let made = test.published.wait_for(MOMENT, |image| image.topic_by_name(name).is_some()).await;
        assert!(made.is_some(), "{name} was not made");
    }

    /// The names that the controller was asked to create, request by request.
    fn asked_for(test: &TestNode) -> Vec<Vec<String>> {
        let asked = test.controller.asked.lock();
        let names = asked.iter().map(|request| match request {
            ControllerRequest::CreateTopics(create) => {
                create.topics.iter().map(|topic| topic.name.clone()).collect()
            }
            ControllerRequest::CreateInternalTopic(create) => vec![create.topic.name().to_owned()],
            other => panic!("{other:?}"),
        });
        names.collect()
    }

    use parking_lot::Mutex;

    #[tokio::test]
    async fn an_unknown_topic_is_unknown_until_it_is_asked_for_again() {
        for version in [0, 1, 3, 4, 9, 13] {
            let test = creating();
            let asked = vec![by_name("new"), by_name("no pe"), by_name("refused"), by_name("a")];
            let expected = [
                ("new", ErrorCode::UnknownTopicOrPartition),
                ("no pe", ErrorCode::InvalidTopicException),
                ("refused", ErrorCode::UnknownTopicOrPartition),
                ("a", ErrorCode::None),
            ];
            // The second one comes while the topics are in creation.
            for _ in 0..2 {
                let response = ask(&test, version, Some(asked.clone())).await;
                assert_eq!(names(&response), expected.map(|(name, code)| (name.to_owned(), code)));
            }
            wait_for_topic(&test, "new").await;
            let response = ask(&test, version, Some(vec![by_name("new")])).await;
            assert_eq!(names(&response), fine(&["new"]));
            assert_eq!(response.topics[0].partitions.len(), 3);
            assert_eq!(asked_for(&test), [["new", "refused"]], "invalid and known names are not asked for");
        }
    }

    #[tokio::test]
    async fn what_was_refused_is_asked_for_again() {
        let test = creating();
        for attempt in 1..=2 {
            ask(&test, 9, Some(vec![by_name("refused")])).await;
            let other = format!("other-{attempt}");
            ask(&test, 9, Some(vec![by_name(&other)])).await;
            wait_for_topic(&test, &other).await;
        }
        let refused = asked_for(&test).into_iter().filter(|names| names[..] == ["refused"]);
        assert_eq!(refused.count(), 2);
    }

    #[tokio::test]
    async fn the_topic_of_the_offsets_is_made_as_coordinators_want_it() {
        let test = creating();
        let offsets = InternalTopic::ConsumerOffsets.name();
        let response = ask(&test, 9, Some(vec![by_name(offsets), by_name("new")])).await;
        assert!(response.topics.iter().all(|topic| topic.error_code == ErrorCode::UnknownTopicOrPartition));
        assert!(response.topics[0].is_internal);
        wait_for_topic(&test, "new").await;
        assert_eq!(asked_for(&test), [[offsets], ["new"]]);
    }

    #[tokio::test]
    async fn nothing_is_created_where_client_or_configuration_do_not_want_it() {
        let test = creating();
        let request = MetadataRequest {
            topics: Some(vec![by_name("new")]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let response = handle(Arc::clone(&test.node), test.context(4), request).await;
        assert_eq!(response.topics[0].error_code, ErrorCode::UnknownTopicOrPartition);
        assert!(test.controller.asked.lock().is_empty());
        // All topics were asked for: there is no name to create.
        ask(&test, 4, None).await;
        assert!(test.controller.asked.lock().is_empty());
        // Off by default.
        let test = TestNode::new(&cluster());
        let response = ask(&test, 0, Some(vec![by_name("new")])).await;
        assert_eq!(response.topics[0].error_code, ErrorCode::UnknownTopicOrPartition);
    }
}
