//! Bytes that must never change, and the rules of writing: what is dropped, what is refused, what is skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use kafka_wire_core::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse,
};
use kafka_wire_core::messages::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey,
};
use kafka_wire_core::messages::describe_followers::{
    DescribeFollowersRequest, DescribeFollowersResponse, DescribedFollower, DescribedFollowersPartition,
    DescribedFollowersTopic,
};
use kafka_wire_core::messages::describe_group_offsets::{
    DescribeGroupOffsetsRequest, DescribeGroupOffsetsResponse, DescribedGroupOffset,
    DescribedGroupOffsetsTopic,
};
use kafka_wire_core::messages::describe_topic_partitions::{Cursor, DescribeTopicPartitionsRequest};
use kafka_wire_core::messages::fetch::{
    FetchRequest, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use kafka_wire_core::messages::find_coordinator::FindCoordinatorRequest;
use kafka_wire_core::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use kafka_wire_core::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kafka_wire_core::messages::sasl_handshake::SaslHandshakeResponse;
use kafka_wire_core::messages::update_features::{
    FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use kafka_wire_core::{
    ApiKey, DecodeErrorKind, EncodeErrorKind, ErrorCode, Message, Reader, Request, Writer,
};
use uuid::Uuid;

fn bytes<M: Message>(message: &M, version: i16) -> Vec<u8> {
    let mut writer = Writer::new();
    message.encode(&mut writer, version).unwrap();
    writer.finish().into_bytes().unwrap().to_vec()
}

fn refused<M: Message>(message: &M, version: i16) -> (EncodeErrorKind, &'static str) {
    let error = message.encode(&mut Writer::new(), version).unwrap_err();
    (error.kind, error.field)
}

/// Encodes to these bytes, and decodes from them.
#[track_caller]
fn golden<M: Message>(message: &M, version: i16, parts: &[&[u8]]) {
    let expected = parts.concat();
    assert_eq!(bytes(message, version), expected, "{} v{version}", M::NAME);
    assert_eq!(&M::decode_exact(expected.into(), version).unwrap(), message);
}

#[test]
fn api_versions() {
    let mut response = ApiVersionsResponse {
        api_keys: vec![ApiVersion { api_key: 18, min_version: 0, max_version: 5 }],
        ..Default::default()
    };
    let keys: &[u8] = &[0, 0, 0, 1, 0, 18, 0, 0, 0, 5];
    golden(&response, 0, &[&[0, 0], keys]);
    golden(&response, 1, &[&[0, 0], keys, &[0, 0, 0, 0]]);
    // Compact array, element with its tagged section, throttle time, and not one tagged field that has its default.
    let flexible: &[u8] = &[0, 0, 2, 0, 18, 0, 0, 0, 5, 0, 0, 0, 0, 0];
    for version in 3..=5 {
        golden(&response, version, &[flexible, &[0]]);
    }
    response.finalized_features_epoch = 7;
    response.finalized_features =
        vec![FinalizedFeatureKey { name: "f".into(), max_version_level: 2, min_version_level: 1 }];
    let epoch: &[u8] = &[1, 8, 0, 0, 0, 0, 0, 0, 0, 7];
    let features: &[u8] = &[2, 8, 2, 2, b'f', 0, 2, 0, 1, 0];
    golden(&response, 4, &[flexible, &[2], epoch, features]);
    // Version 2 has no place for them, and they may be dropped.
    assert_eq!(bytes(&response, 2), [&[0, 0], keys, &[0, 0, 0, 0]].concat());
}

#[test]
fn the_answer_of_api_versions_has_header_v0_in_every_version() {
    let response = ApiVersionsResponse { error_code: ErrorCode::UnsupportedVersion, ..Default::default() };
    for version in ApiVersionsResponse::VERSIONS {
        let frame =
            ApiVersionsRequest::response_frame(&response, version, 258).unwrap().into_bytes().unwrap();
        assert_eq!(frame[4..10], [0, 0, 1, 2, 0, 35], "v{version}");
    }
}

#[test]
fn update_features() {
    let update = FeatureUpdateKey { feature: "f".into(), max_version_level: 2, ..Default::default() };
    let lowered = FeatureUpdateKey { allow_downgrade: true, ..update.clone() };
    let request = |update, validate_only| UpdateFeaturesRequest {
        timeout_ms: 258,
        feature_updates: vec![update],
        validate_only,
    };
    // Timeout; an array of one; its name, level, and flag or type; whether to validate only; tagged sections.
    golden(&request(lowered.clone(), false), 0, &[&[0, 0, 1, 2], &[2, 2, b'f', 0, 2, 1, 0], &[0]]);
    for version in 1..=2 {
        golden(&request(update.clone(), true), version, &[&[0, 0, 1, 2], &[2, 2, b'f', 0, 2, 1, 0], &[1, 0]]);
    }
    let unsafe_downgrade = FeatureUpdateKey { upgrade_type: 3, ..update.clone() };
    golden(&request(unsafe_downgrade, false), 2, &[&[0, 0, 1, 2], &[2, 2, b'f', 0, 2, 3, 0], &[0, 0]]);
    assert_eq!(refused(&request(lowered, false), 1).1, "allow_downgrade");
    assert_eq!(refused(&request(update, true), 0).1, "validate_only");

    let result = UpdatableFeatureResult { feature: "f".into(), ..Default::default() };
    let response = UpdateFeaturesResponse { results: vec![result], ..Default::default() };
    for version in 0..=1 {
        golden(&response, version, &[&[0, 0, 0, 0, 0, 0, 0], &[2, 2, b'f', 0, 0, 0, 0], &[0]]);
    }
    assert_eq!(bytes(&response, 2), [0, 0, 0, 0, 0, 0, 0, 0], "no results by feature");
    let refused = UpdateFeaturesResponse {
        error_code: ErrorCode::InvalidUpdateVersion,
        error_message: Some("m".into()),
        ..Default::default()
    };
    golden(&refused, 2, &[&[0, 0, 0, 0, 0, 95], &[2, b'm', 0]]);
}

#[test]
fn alter_replica_log_dirs() {
    let topic = AlterReplicaLogDirTopic { name: "t".into(), partitions: vec![1, 258] };
    let dir = AlterReplicaLogDir { path: "/d".into(), topics: vec![topic] };
    let request = AlterReplicaLogDirsRequest { dirs: vec![dir] };
    // Directories, each with its path and topics, each with its name and partitions.
    let partitions: &[u8] = &[0, 0, 0, 1, 0, 0, 1, 2];
    let head: &[u8] = &[0, 0, 0, 1, 0, 2, b'/', b'd', 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2];
    golden(&request, 1, &[head, partitions]);
    golden(&request, 2, &[&[2, 3, b'/', b'd', 2, 2, b't', 3], partitions, &[0, 0, 0]]);

    let result =
        AlterReplicaLogDirPartitionResult { partition_index: 258, error_code: ErrorCode::LogDirNotFound };
    let results = vec![AlterReplicaLogDirTopicResult { topic_name: "t".into(), partitions: vec![result] }];
    let response = AlterReplicaLogDirsResponse { throttle_time_ms: 7, results };
    let result: &[u8] = &[0, 0, 1, 2, 0, 57];
    golden(&response, 1, &[&[0, 0, 0, 7, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1], result]);
    golden(&response, 2, &[&[0, 0, 0, 7, 2, 2, b't', 2], result, &[0, 0, 0]]);
}

#[test]
fn metadata() {
    let topic = MetadataRequestTopic { name: Some("t".into()), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
    golden(&request, 0, &[&[0, 0, 0, 1, 0, 1, b't']]);
    golden(&request, 4, &[&[0, 0, 0, 1, 0, 1, b't', 1]]);
    golden(&request, 12, &[&[2], &[0; 16], &[2, b't', 0, 1, 0, 0]]);
    let everything = MetadataRequest::default();
    golden(&everything, 1, &[&[0xff; 4]]);
    golden(&everything, 9, &[&[0, 1, 0, 0, 0]]);
    // Version 0 has no null: it asks for everything by an empty list.
    assert_eq!(refused(&everything, 0), (EncodeErrorKind::Null, "topics"));
    let error = MetadataRequest::decode_exact(Bytes::from_static(&[0xff; 4]), 0).unwrap_err();
    assert_eq!(
        (error.kind, error.message, error.field),
        (DecodeErrorKind::Null, "MetadataRequest", "topics")
    );
}

#[test]
fn produce() {
    let partition = PartitionProduceData { index: 3, records: Some(Bytes::from_static(b"abc").into()) };
    let by_name =
        TopicProduceData { name: "t".into(), partition_data: vec![partition.clone()], ..Default::default() };
    let mut request =
        ProduceRequest { acks: -1, timeout_ms: 1000, topic_data: vec![by_name], ..Default::default() };
    let head: &[u8] = &[0xff, 0xff, 0, 0, 3, 0xe8];
    let topic: &[u8] = &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 3, b'a', b'b', b'c'];
    golden(&request, 3, &[&[0xff, 0xff], head, topic]);
    let compact: &[u8] = &[2, 2, b't', 2, 0, 0, 0, 3, 4, b'a', b'b', b'c', 0, 0, 0];
    golden(&request, 9, &[&[0], head, compact]);
    request.topic_data = vec![TopicProduceData {
        topic_id: Uuid::from_u128(5),
        partition_data: vec![partition],
        ..Default::default()
    }];
    let id: &[u8] = &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    golden(&request, 13, &[&[0], head, id, &[2, 0, 0, 0, 3, 4, b'a', b'b', b'c', 0, 0, 0]]);
    // Kafka 4 has no versions 0 to 2, though it announces them.
    assert!(ProduceRequest::decode_exact(Bytes::new(), 2).is_err());
}

#[test]
fn fetch() {
    let partition = PartitionData {
        partition_index: 1,
        error_code: ErrorCode::NotLeaderOrFollower,
        high_watermark: -1,
        current_leader: LeaderIdAndEpoch { leader_id: 2, leader_epoch: 9 },
        ..Default::default()
    };
    let topic = FetchableTopicResponse {
        topic_id: Uuid::from_u128(5),
        partitions: vec![partition],
        ..Default::default()
    };
    let response = FetchResponse { responses: vec![topic], ..Default::default() };
    let id: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    let tagged: &[u8] = &[1, 1, 9, 0, 0, 0, 2, 0, 0, 0, 9, 0];
    golden(
        &response,
        13,
        &[
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            id,
            &[2, 0, 0, 0, 1, 0, 6],
            // High watermark, last stable offset, log start; no aborted transactions; no preferred replica; no records.
            &[0xff; 24],
            &[0, 0xff, 0xff, 0xff, 0xff, 1],
            tagged,
            &[0, 0],
        ],
    );
    // The leader has no place in version 11 and must not get lost.
    assert_eq!(refused(&response, 11), (EncodeErrorKind::NotInVersion(11), "current_leader"));
}

#[test]
fn nullable_structs() {
    let mut request = DescribeTopicPartitionsRequest { response_partition_limit: 7, ..Default::default() };
    golden(&request, 0, &[&[1, 0, 0, 0, 7, 0xff, 0]]);
    request.cursor = Some(Cursor { topic_name: "t".into(), partition_index: 2 });
    golden(&request, 0, &[&[1, 0, 0, 0, 7, 1, 2, b't', 0, 0, 0, 2, 0, 0]]);
}

#[test]
fn sasl_handshake_never_becomes_flexible() {
    let response = SaslHandshakeResponse {
        error_code: ErrorCode::UnsupportedSaslMechanism,
        mechanisms: vec!["PLAIN".into()],
    };
    golden(&response, 1, &[&[0, 33, 0, 0, 0, 1, 0, 5], b"PLAIN"]);
}

#[test]
fn what_a_version_lacks_is_dropped_only_if_it_may_be() {
    // Ignorable: an old client just does not learn the throttle time.
    let response = MetadataResponse { throttle_time_ms: 5, ..Default::default() };
    assert_eq!(bytes(&response, 0), bytes(&MetadataResponse::default(), 0));
    // Not ignorable: a key of another kind would be looked up as a group.
    let request = FindCoordinatorRequest { key: "tx".into(), key_type: 1, ..Default::default() };
    assert_eq!(refused(&request, 0), (EncodeErrorKind::NotInVersion(0), "key_type"));
    assert_eq!(refused(&request, 4), (EncodeErrorKind::NotInVersion(4), "key"));
    assert_eq!(refused(&request, 99), (EncodeErrorKind::UnknownVersion(99), "version"));
}

#[test]
fn unknown_tagged_fields_are_skipped() {
    let request = FetchRequest { rack_id: "r".into(), ..Default::default() };
    let mut extended = bytes(&request, 12);
    assert_eq!(extended.pop(), Some(0));
    // Two fields of a newer version: tag 5 with three bytes, tag 300 with none.
    extended.extend_from_slice(&[2, 5, 3, 1, 2, 3, 0xac, 2, 0]);
    assert_eq!(FetchRequest::decode_exact(extended.into(), 12), Ok(request));
}

#[test]
fn text_that_is_not_utf8_is_replaced() {
    let body = Bytes::from_static(&[0, 0, 0, 1, 0, 1, 0xe9]);
    let request = MetadataRequest::decode_exact(body, 1).unwrap();
    assert_eq!(request.topics.unwrap()[0].name.as_deref(), Some("\u{fffd}"));
}

#[test]
fn errors_name_the_field() {
    // The second element of `topics` is cut off.
    let body = Bytes::from_static(&[0, 0, 0, 2, 0, 1, b't', 0, 3, b'a']);
    let error = MetadataRequest::decode(&mut Reader::new(body), 0).unwrap_err();
    assert_eq!(error.to_string(), "MetadataRequestTopic.name: 3 bytes needed, 1 left");
    let long = Bytes::from_static(&[0, 0, 0, 0, 9]);
    let error = MetadataRequest::decode_exact(long, 0).unwrap_err();
    assert_eq!(error.to_string(), "MetadataRequest.end: 1 bytes after the end of the message");
    assert_eq!(ApiKey::Metadata.to_string(), "Metadata");
}

/// Nobody else's classes hold the bytes of an API of our own.
#[test]
fn describe_group_offsets() {
    golden(&DescribeGroupOffsetsRequest { group_id: "g".into() }, 0, &[&[2, b'g', 0]]);
    let offset = DescribedGroupOffset { partition_index: 1, committed_offset: 2, commit_time_ms: 3 };
    let topic = DescribedGroupOffsetsTopic { name: "t".into(), partitions: vec![offset] };
    let response = DescribeGroupOffsetsResponse {
        throttle_time_ms: 5,
        error_code: ErrorCode::GroupIdNotFound,
        current_time_ms: 4,
        topics: vec![topic],
    };
    let head: &[u8] = &[0, 0, 0, 5, 0, 69, 0, 0, 0, 0, 0, 0, 0, 4, 2, 2, b't', 2];
    let offset: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0];
    golden(&response, 0, &[head, offset, &[0, 0]]);
    let request = DescribeGroupOffsetsRequest::default().to_frame(0, 7, None).unwrap();
    let frame = request.into_bytes().unwrap();
    assert_eq!(&frame[..], [0, 0, 0, 13, 0x27, 0x10, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0, 1, 0]);
}

#[test]
fn describe_followers() {
    let request = DescribeFollowersRequest { lag_ms_min: 1, response_partition_limit: 2 };
    golden(&request, 0, &[&[0, 0, 0, 0, 0, 0, 0, 1], &[0, 0, 0, 2], &[0]]);
    let follower =
        DescribedFollower { node_id: 3, in_sync: true, connected: false, end_offset: -1, lag_ms: 9 };
    let partition = DescribedFollowersPartition {
        partition_index: 1,
        leader_epoch: 4,
        high_watermark: 5,
        log_end_offset: 6,
        followers: vec![follower],
    };
    let topics = vec![DescribedFollowersTopic { name: "t".into(), partitions: vec![partition] }];
    let response = DescribeFollowersResponse {
        throttle_time_ms: 7,
        error_code: ErrorCode::None,
        is_cut_off: true,
        topics,
    };
    let head: &[u8] = &[0, 0, 0, 7, 0, 0, 1, 2, 2, b't', 2];
    let partition: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 2];
    let follower: &[u8] =
        &[0, 0, 0, 3, 1, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 9, 0];
    golden(&response, 0, &[head, partition, follower, &[0, 0, 0]]);
}
