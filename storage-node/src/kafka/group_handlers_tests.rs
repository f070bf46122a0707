//! The handlers of groups against coordinators that the test plays.

use crate::coordinator_port::{GroupCall, NoAnswer};
use crate::kafka::groups::{GroupApi, shard_of};
use crate::kafka::handlers::{
    delete_groups, describe_groups, list_groups, offset_commit, offset_fetch, sync_group,
};
use crate::test_node::{TestNode, assert_encodes, live_node, topic};
use bytes::Bytes;
use kafka_wire_core::messages::delete_groups::DeleteGroupsRequest;
use kafka_wire_core::messages::describe_group_offsets::DescribeGroupOffsetsRequest;
use kafka_wire_core::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup,
};
use kafka_wire_core::messages::heartbeat::HeartbeatRequest;
use kafka_wire_core::messages::join_group::JoinGroupRequest;
use kafka_wire_core::messages::leave_group::LeaveGroupRequest;
use kafka_wire_core::messages::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use kafka_wire_core::messages::offset_delete::OffsetDeleteRequest;
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic,
};
use kafka_wire_core::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use kafka_wire_core::{ApiKey, ErrorCode, Message, Writer};
use std::sync::Arc;

/// Node 1 leads all 50 shards.
fn node() -> TestNode {
    let mut changes = live_node(1);
    changes.extend(topic(1, "__consumer_offsets", 50, &[1]));
    TestNode::new(&changes)
}

fn answer(test: &TestNode, answer: impl Fn(&GroupCall) -> Result<Bytes, NoAnswer> + Send + Sync + 'static) {
    *test.coordinators.answer.lock() = Some(Box::new(answer));
}

fn encoded<M: Message>(message: &M, version: i16) -> Result<Bytes, NoAnswer> {
    let mut writer = Writer::new();
    message.encode(&mut writer, version).expect("encodes");
    Ok(writer.finish().into_bytes().expect("no regions"))
}

#[tokio::test]
async fn a_request_goes_to_the_shard_of_its_group_in_its_version() {
    let test = node();
    answer(&test, |call| {
        encoded(&OffsetCommitResponse { throttle_time_ms: 7, topics: vec![] }, call.api_version)
    });
    for version in OffsetCommitRequest::VERSIONS {
        let request = OffsetCommitRequest { group_id: "g".into(), ..Default::default() };
        let response =
            offset_commit::handle(Arc::clone(&test.node), test.context(version), request.clone()).await;
        assert_eq!(response.throttle_time_ms, if version >= 3 { 7 } else { 0 });
        let call = test.coordinators.asked.lock().pop().expect("forwarded");
        assert_eq!(Some(call.shard), shard_of(&test.node.image(), "g"));
        assert_eq!((call.api, call.api_version), (ApiKey::OffsetCommit, version));
        assert_eq!(call.client_host, "/127.0.0.1");
        assert_eq!(OffsetCommitRequest::decode_exact(call.body, version), Ok(request));
    }
}

#[tokio::test]
async fn groups_of_several_shards_are_asked_apart_and_put_together_in_order() {
    let test = node();
    answer(&test, |call| {
        let request =
            DescribeGroupsRequest::decode_exact(call.body.clone(), call.api_version).expect("readable");
        let [group] = &request.groups[..] else { panic!("one group at a time: {request:?}") };
        if &**group == "away" {
            return Err(NoAnswer::NotAvailable);
        }
        let group = DescribedGroup { group_id: group.clone(), ..Default::default() };
        encoded(&DescribeGroupsResponse { throttle_time_ms: 0, groups: vec![group] }, call.api_version)
    });
    let groups = vec!["a".into(), "away".into(), "b".into()];
    let request = DescribeGroupsRequest { groups, include_authorized_operations: false };
    let response = describe_groups::handle(Arc::clone(&test.node), test.context(5), request).await;
    let told: Vec<(&str, ErrorCode)> =
        response.groups.iter().map(|group| (&*group.group_id, group.error_code)).collect();
    let expected =
        [("a", ErrorCode::None), ("away", ErrorCode::CoordinatorNotAvailable), ("b", ErrorCode::None)];
    assert_eq!(told, expected);
    // Not asked for, or not known: the smallest number.
    let operations = |response: DescribeGroupsResponse| -> Vec<i32> {
        response.groups.iter().map(|group| group.authorized_operations).collect()
    };
    assert_eq!(operations(response), [i32::MIN; 3]);
    let groups = vec!["a".into(), "away".into()];
    let request = DescribeGroupsRequest { groups, include_authorized_operations: true };
    let response = describe_groups::handle(Arc::clone(&test.node), test.context(5), request).await;
    assert_eq!(operations(response), [3400, i32::MIN]);
}

#[tokio::test]
async fn a_member_says_which_protocol_its_group_has() {
    let test = node();
    answer(&test, |call| encoded(&SyncGroupResponse::default(), call.api_version));
    let nameless = SyncGroupRequest { protocol_type: Some("consumer".into()), ..Default::default() };
    for (version, expected) in [(4, ErrorCode::None), (5, ErrorCode::InconsistentGroupProtocol)] {
        let request = match version {
            4 => SyncGroupRequest::default(),
            _ => nameless.clone(),
        };
        let response = sync_group::handle(Arc::clone(&test.node), test.context(version), request).await;
        assert_eq!(response.error_code, expected, "version {version}");
    }
}

#[tokio::test]
async fn a_list_of_groups_is_whole_or_an_error() {
    let test = node();
    answer(&test, |call| {
        let group = ListedGroup { group_id: call.shard.to_string().into(), ..Default::default() };
        encoded(&ListGroupsResponse { groups: vec![group], ..Default::default() }, call.api_version)
    });
    let list = || list_groups::handle(Arc::clone(&test.node), test.context(5), ListGroupsRequest::default());
    assert_eq!(list().await.groups.len(), 50);
    answer(&test, |call| match call.shard.partition.0 {
        13 => Err(NoAnswer::Loading),
        _ => encoded(&ListGroupsResponse::default(), call.api_version),
    });
    let response = list().await;
    assert_eq!((response.error_code, response.groups.len()), (ErrorCode::CoordinatorLoadInProgress, 0));
}

#[tokio::test]
async fn without_the_topic_there_are_no_groups_and_no_coordinators() {
    let test = TestNode::new(&live_node(1));
    let list = list_groups::handle(Arc::clone(&test.node), test.context(5), ListGroupsRequest::default());
    assert_eq!(list.await, ListGroupsResponse::default());
    let request = DeleteGroupsRequest { groups_names: vec!["g".into()] };
    let response = delete_groups::handle(Arc::clone(&test.node), test.context(2), request).await;
    assert_eq!(response.results[0].error_code, ErrorCode::CoordinatorNotAvailable);
    assert!(test.coordinators.asked.lock().is_empty());
}

#[tokio::test]
async fn several_groups_offsets_without_an_answer_are_worth_a_retry() {
    let test = node();
    let group = |id: &str| OffsetFetchRequestGroup { group_id: id.into(), ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group("a"), group("b")], ..Default::default() };
    let response = offset_fetch::handle(Arc::clone(&test.node), test.context(8), request).await;
    let codes: Vec<ErrorCode> = response.groups.iter().map(|group| group.error_code).collect();
    assert_eq!(codes, [ErrorCode::CoordinatorLoadInProgress; 2]);
}

/// Every refusal has its place in every version, and retriable ones are retriable.
fn check_refusals<R: GroupApi>(request: &R) {
    for version in R::VERSIONS {
        for why in [NoAnswer::Loading, NoAnswer::NotAvailable] {
            assert!(R::code(why).is_retriable(), "{} {why}", R::NAME);
        }
        assert_eq!(R::code(NoAnswer::Malformed), ErrorCode::InvalidRequest);
        let refusal = request.refuse(version, ErrorCode::CoordinatorNotAvailable);
        assert_encodes::<R>(&refusal, version);
        assert!(format!("{refusal:?}").contains("CoordinatorNotAvailable"), "{} {version}", R::NAME);
    }
}

#[test]
fn refusals_fit_every_version() {
    check_refusals(&JoinGroupRequest::default());
    check_refusals(&SyncGroupRequest::default());
    check_refusals(&HeartbeatRequest::default());
    check_refusals(&LeaveGroupRequest::default());
    let partitions = vec![OffsetCommitRequestPartition::default()];
    let topics = vec![OffsetCommitRequestTopic { partitions, ..Default::default() }];
    check_refusals(&OffsetCommitRequest { topics, ..Default::default() });
    check_refusals(&OffsetDeleteRequest::default());
    check_refusals(&DescribeGroupOffsetsRequest::default());
    check_refusals(&DescribeGroupsRequest { groups: vec!["g".into()], ..Default::default() });
    check_refusals(&DeleteGroupsRequest { groups_names: vec!["g".into()] });
    check_refusals(&ListGroupsRequest::default());
    let topics = Some(vec![OffsetFetchRequestTopic { name: "t".into(), partition_indexes: vec![0] }]);
    let fetch = OffsetFetchRequest { topics, ..Default::default() };
    for version in 1..=7 {
        let refusal = fetch.refuse(version, ErrorCode::CoordinatorLoadInProgress);
        assert_encodes::<OffsetFetchRequest>(&refusal, version);
        assert_eq!(refusal.topics[0].partitions[0].error_code, ErrorCode::CoordinatorLoadInProgress);
    }
}

#[tokio::test]
async fn a_group_that_is_named_twice_is_deleted_once() {
    let test = node();
    answer(&test, |call| {
        let request =
            DeleteGroupsRequest::decode_exact(call.body.clone(), call.api_version).expect("readable");
        encoded(&request.refuse(call.api_version, ErrorCode::None), call.api_version)
    });
    let request = DeleteGroupsRequest { groups_names: vec!["a".into(), "b".into(), "a".into()] };
    let response = delete_groups::handle(Arc::clone(&test.node), test.context(2), request).await;
    let told: Vec<&str> = response.results.iter().map(|result| &*result.group_id).collect();
    assert_eq!(told, ["a", "b"]);
    assert_eq!(test.coordinators.asked.lock().len(), 2);
}

#[tokio::test]
async fn too_many_groups_are_refused_without_asking_for_one() {
    let test = node();
    let groups = vec!["a".into(); 100_001];
    let request = DescribeGroupsRequest { groups, include_authorized_operations: false };
    let response = describe_groups::handle(Arc::clone(&test.node), test.context(5), request).await;
    assert_eq!(response.groups.len(), 100_000);
    assert!(response.groups.iter().all(|group| group.error_code == ErrorCode::InvalidRequest));
    assert!(test.coordinators.asked.lock().is_empty());
}
