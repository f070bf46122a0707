//! OffsetCommit, OffsetFetch, OffsetDelete, DescribeGroupOffsets.

use coordinator_core::{GroupReply, GroupRequest};
use kafka_wire_core::messages::describe_group_offsets::{
    DescribeGroupOffsetsRequest, DescribeGroupOffsetsResponse, DescribedGroupOffset,
};
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_wire_core::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic, OffsetDeleteResponse,
};
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_wire_core::{ErrorCode, Str};
use uuid::Uuid;

use crate::desk::{Asking, Desk, WALL};

pub(crate) fn commit_request(member: &Asking, topic: &str, offsets: &[(i32, i64)]) -> OffsetCommitRequest {
    let partitions = offsets.iter().map(|(partition, offset)| OffsetCommitRequestPartition {
        partition_index: *partition,
        committed_offset: *offset,
        committed_leader_epoch: 5,
        committed_metadata: Some(format!("at {offset}").into()),
    });
    OffsetCommitRequest {
        group_id: member.group.clone(),
        generation_id_or_member_epoch: member.generation,
        member_id: member.id.clone(),
        group_instance_id: member.instance_id.clone(),
        retention_time_ms: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.into(),
            topic_id: Uuid::nil(),
            partitions: partitions.collect(),
        }],
    }
}

pub(crate) fn codes(desk: &mut Desk, version: i16, request: OffsetCommitRequest) -> Vec<ErrorCode> {
    match desk.answer(version, GroupRequest::Commit(request)) {
        GroupReply::Commit(response) => {
            response.topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code).collect()
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn commit(
    desk: &mut Desk,
    member: &Asking,
    topic: &str,
    offsets: &[(i32, i64)],
) -> Vec<ErrorCode> {
    codes(desk, 9, commit_request(member, topic, offsets))
}

/// Topic, partition, offset, epoch, metadata of everything that the group has.
fn everything(desk: &mut Desk, group: &str) -> Vec<(String, i32, i64, i32, String)> {
    let request = OffsetFetchRequest { group_id: group.into(), topics: None, ..Default::default() };
    let GroupReply::Fetch(response) = desk.answer(7, GroupRequest::Fetch(request)) else { panic!() };
    let topics = response.topics.into_iter();
    let partitions = topics.flat_map(|topic| {
        topic.partitions.into_iter().map(move |p| {
            assert_eq!(p.error_code, ErrorCode::None);
            let metadata = String::from(p.metadata.unwrap());
            (
                String::from(topic.name.clone()),
                p.partition_index,
                p.committed_offset,
                p.committed_leader_epoch,
                metadata,
            )
        })
    });
    partitions.collect()
}

pub(crate) fn offsets(desk: &mut Desk, group: &str) -> Vec<(String, i32, i64)> {
    everything(desk, group)
        .into_iter()
        .map(|(topic, partition, offset, ..)| (topic, partition, offset))
        .collect()
}

#[test]
fn a_consumer_without_membership_commits_and_fetches() {
    let mut desk = Desk::new();
    let alone = Asking::new("g");
    assert_eq!(commit(&mut desk, &alone, "t", &[(0, 10), (3, 30)]), [ErrorCode::None; 2]);
    let expected =
        vec![("t".to_owned(), 0, 10, 5, "at 10".to_owned()), ("t".to_owned(), 3, 30, 5, "at 30".to_owned())];
    assert_eq!(everything(&mut desk, "g"), expected);
    desk.fail_over();
    assert_eq!(everything(&mut desk, "g"), expected);
    // The empty group id is as good as any, for commits alone.
    assert_eq!(commit(&mut desk, &Asking::new(""), "t", &[(0, 1)]), [ErrorCode::None]);

    let mut request = OffsetFetchRequest { group_id: "g".into(), ..Default::default() };
    request.topics = Some(vec![OffsetFetchRequestTopic { name: "t".into(), partition_indexes: vec![1, 0] }]);
    for version in 1..=7 {
        let GroupReply::Fetch(response) = desk.answer(version, GroupRequest::Fetch(request.clone())) else {
            panic!()
        };
        let found: Vec<(i32, i64, Option<&str>, ErrorCode)> = response.topics[0]
            .partitions
            .iter()
            .map(|p| (p.partition_index, p.committed_offset, p.metadata.as_deref(), p.error_code))
            .collect();
        let none = (1, -1, Some(""), ErrorCode::None);
        assert_eq!(found, [none, (0, 10, Some("at 10"), ErrorCode::None)]);
        assert_eq!(response.error_code, ErrorCode::None);
    }
}

/// Name and id of the topic, partition, offset, error.
type Found<'a> = (&'a str, u128, i32, i64, ErrorCode);

#[test]
fn several_groups_are_fetched_at_once_by_name_and_by_id() {
    let mut desk = Desk::new();
    commit(&mut desk, &Asking::new("g"), "t", &[(0, 10)]);
    commit(&mut desk, &Asking::new("h"), "u", &[(1, 20)]);
    for version in 8..=10 {
        let by_id = version >= 10;
        let topic = |name: &str, id: u128, partition: i32| OffsetFetchRequestTopics {
            name: if by_id { Str::default() } else { name.into() },
            topic_id: if by_id { Uuid::from_u128(id) } else { Uuid::nil() },
            partition_indexes: vec![partition],
        };
        let group = |group: &str, topics| OffsetFetchRequestGroup {
            group_id: group.into(),
            topics,
            ..Default::default()
        };
        let request = OffsetFetchRequest {
            groups: vec![
                group("g", Some(vec![topic("t", 7, 0), topic("x", 99, 0)])),
                group("h", None),
                group("unknown", None),
            ],
            require_stable: true,
            ..Default::default()
        };
        let GroupReply::Fetch(response) = desk.answer(version, GroupRequest::Fetch(request)) else {
            panic!()
        };
        let found: Vec<Vec<Found<'_>>> = response
            .groups
            .iter()
            .map(|group| {
                let topics = group.topics.iter();
                topics
                    .flat_map(|topic| {
                        topic.partitions.iter().map(|p| {
                            let id = topic.topic_id.as_u128();
                            (&*topic.name, id, p.partition_index, p.committed_offset, p.error_code)
                        })
                    })
                    .collect()
            })
            .collect();
        let expected = if by_id {
            vec![
                vec![("", 7, 0, 10, ErrorCode::None), ("", 99, 0, -1, ErrorCode::UnknownTopicId)],
                vec![("", 8, 1, 20, ErrorCode::None)],
                vec![],
            ]
        } else {
            vec![
                vec![("t", 0, 0, 10, ErrorCode::None), ("x", 0, 0, -1, ErrorCode::None)],
                vec![("u", 0, 1, 20, ErrorCode::None)],
                vec![],
            ]
        };
        assert_eq!(found, expected, "version {version}");
    }
}

#[test]
fn commits_are_refused_with_kafkas_codes() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g"), Asking::new("g")];
    desk.stable(&mut members);
    let [a, b] = members;
    let at = |generation: i32| Asking { generation, ..a.clone() };
    let mut code = |member: &Asking| commit(&mut desk, member, "t", &[(0, 1)])[0];
    assert_eq!(code(&a), ErrorCode::None);
    assert_eq!(code(&at(a.generation + 1)), ErrorCode::IllegalGeneration);
    #[cfg(not(weir_planted_bug = "B26"))]
    assert_eq!(code(&at(a.generation - 1)), ErrorCode::IllegalGeneration);
    assert_eq!(code(&Asking { id: "x".into(), ..a.clone() }), ErrorCode::UnknownMemberId);
    assert_eq!(code(&Asking { instance_id: Some("i".into()), ..a.clone() }), ErrorCode::UnknownMemberId);
    // Without membership only while the group has no members.
    assert_eq!(code(&Asking::new("g")), ErrorCode::UnknownMemberId);
    // A group that does not exist has no generations.
    let elsewhere = Asking { group: "x".into(), ..a.clone() };
    assert_eq!(code(&elsewhere), ErrorCode::GroupIdNotFound);
    let request = commit_request(&elsewhere, "t", &[(0, 1)]);
    assert_eq!(codes(&mut desk, 8, request), [ErrorCode::IllegalGeneration]);
    assert_eq!(commit(&mut desk, &a, "x", &[(0, 1)]), [ErrorCode::UnknownTopicOrPartition]);
    let unknown = [ErrorCode::UnknownTopicOrPartition, ErrorCode::None, ErrorCode::UnknownTopicOrPartition];
    assert_eq!(commit(&mut desk, &a, "t", &[(4, 1), (3, 1), (-1, 1)]), unknown);
    let mut by_id = commit_request(&a, "", &[(0, 2)]);
    assert_eq!(codes(&mut desk, 10, by_id.clone()), [ErrorCode::UnknownTopicId]);
    by_id.topics[0].topic_id = Uuid::from_u128(7);
    assert_eq!(codes(&mut desk, 10, by_id), [ErrorCode::None]);
    // While members gather, the old generation may still commit; once they have, nobody may, until it is complete.
    let waits = desk.join(9, if a.leads { &a } else { &b });
    assert_eq!(commit(&mut desk, &a, "t", &[(0, 3)]), [ErrorCode::None]);
    let other = desk.join(9, if a.leads { &b } else { &a });
    let generation = desk.joined(waits).generation_id;
    assert_eq!(desk.joined(other).generation_id, generation);
    let newer = Asking { generation, ..a };
    assert_eq!(commit(&mut desk, &newer, "t", &[(0, 4)]), [ErrorCode::RebalanceInProgress]);
    assert_eq!(offsets(&mut desk, "g"), [("t".to_owned(), 0, 3), ("t".to_owned(), 3, 1)]);
}

#[test]
fn metadata_is_kept_up_to_its_limit() {
    let mut desk = Desk::new();
    let mut with = |text: String| {
        let mut request = commit_request(&Asking::new("g"), "t", &[(0, 1)]);
        request.topics[0].partitions[0].committed_metadata = Some(text.into());
        codes(&mut desk, 9, request)
    };
    assert_eq!(with("é".repeat(4_096)), [ErrorCode::None]);
    assert_eq!(with("x".repeat(4_097)), [ErrorCode::OffsetMetadataTooLarge]);
    // Kafka counts as Java does: this is two.
    assert_eq!(with("🦀".repeat(2_049)), [ErrorCode::OffsetMetadataTooLarge]);
    assert_eq!(everything(&mut desk, "g")[0].4, "é".repeat(4_096));
    let mut null = commit_request(&Asking::new("g"), "t", &[(0, 2)]);
    null.topics[0].partitions[0].committed_metadata = None;
    assert_eq!(codes(&mut desk, 9, null), [ErrorCode::None]);
    assert_eq!(everything(&mut desk, "g")[0].4, "");
}

/// T-97: offsets of a topic that was deleted are not those of a new one with its name.
#[test]
fn a_new_topic_of_an_old_name_begins_without_offsets() {
    let mut desk = Desk::new();
    commit(&mut desk, &Asking::new("g"), "t", &[(0, 10)]);
    desk.image.topics.insert("t".to_owned(), (70, 4));
    assert_eq!(offsets(&mut desk, "g"), []);
    commit(&mut desk, &Asking::new("g"), "t", &[(0, 1)]);
    // Word of the old topic's end comes late and spares the new one.
    let decision = desk.shard.topic_deleted(desk.time(), &"t".into(), Uuid::from_u128(7));
    desk.take_in(decision);
    assert_eq!(offsets(&mut desk, "g"), [("t".to_owned(), 0, 1)]);
    let decision = desk.shard.topic_deleted(desk.time(), &"t".into(), Uuid::from_u128(70));
    desk.take_in(decision);
    assert_eq!(desk.log.last().unwrap().value, None);
    assert_eq!(desk.shard.group_overview("g"), None);
}

fn described(desk: &mut Desk, group: &str) -> DescribeGroupOffsetsResponse {
    let request = DescribeGroupOffsetsRequest { group_id: group.into() };
    match desk.answer(0, GroupRequest::DescribeOffsets(request)) {
        GroupReply::DescribeOffsets(response) => response,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_offset_is_described_with_the_time_of_its_commit() {
    let mut desk = Desk::new();
    let alone = Asking::new("g");
    commit(&mut desk, &alone, "t", &[(0, 10), (3, 30)]);
    desk.pass(1_000);
    commit(&mut desk, &alone, "t", &[(0, 11)]);
    commit(&mut desk, &alone, "u", &[(1, 5)]);
    // The time is that of the commit, not that of the load.
    desk.pass(2_000);
    desk.fail_over();
    desk.image.topics.insert("u".to_owned(), (80, 4));
    let response = described(&mut desk, "g");
    assert_eq!((response.error_code, response.current_time_ms), (ErrorCode::None, WALL + 3_000));
    let found = response.topics.iter().flat_map(|topic| {
        let offset = |p: &_| {
            let DescribedGroupOffset { partition_index, committed_offset, commit_time_ms } = p;
            (&*topic.name, *partition_index, *committed_offset, commit_time_ms - WALL)
        };
        topic.partitions.iter().map(offset)
    });
    // Those of a topic that is gone are not those of the new one.
    assert_eq!(found.collect::<Vec<_>>(), [("t", 0, 11, 1_000), ("t", 3, 30, 0)]);
    let unknown = described(&mut desk, "x");
    assert_eq!((unknown.error_code, unknown.topics), (ErrorCode::GroupIdNotFound, Vec::new()));
}

fn delete(desk: &mut Desk, group: &str, topic: &str, partitions: &[i32]) -> OffsetDeleteResponse {
    let partitions = partitions.iter().map(|index| OffsetDeleteRequestPartition { partition_index: *index });
    let topic = OffsetDeleteRequestTopic { name: topic.into(), partitions: partitions.collect() };
    let request = OffsetDeleteRequest { group_id: group.into(), topics: vec![topic] };
    match desk.answer(0, GroupRequest::OffsetDelete(request)) {
        GroupReply::OffsetDelete(response) => response,
        other => panic!("{other:?}"),
    }
}

#[test]
fn offsets_are_deleted_unless_their_topic_is_subscribed() {
    let mut desk = Desk::new();
    let mut members = [Asking::new("g")];
    desk.stable(&mut members);
    commit(&mut desk, &members[0], "t", &[(0, 1)]);
    commit(&mut desk, &members[0], "u", &[(0, 2), (1, 3)]);
    let code =
        |response: OffsetDeleteResponse| (response.error_code, response.topics[0].partitions[0].error_code);
    let subscribed = delete(&mut desk, "g", "t", &[0]);
    assert_eq!(code(subscribed), (ErrorCode::None, ErrorCode::GroupSubscribedToTopic));
    assert_eq!(code(delete(&mut desk, "g", "u", &[0])), (ErrorCode::None, ErrorCode::None));
    // Nothing was committed for partition 3; topics have four partitions.
    assert_eq!(code(delete(&mut desk, "g", "u", &[3])), (ErrorCode::None, ErrorCode::None));
    for (topic, partition) in [("u", 4), ("u", -1), ("t", 4), ("x", 0)] {
        let unknown = delete(&mut desk, "g", topic, &[partition]);
        assert_eq!(
            code(unknown),
            (ErrorCode::None, ErrorCode::UnknownTopicOrPartition),
            "{topic}-{partition}"
        );
    }
    assert_eq!(offsets(&mut desk, "g"), [("t".to_owned(), 0, 1), ("u".to_owned(), 1, 3)]);
    assert_eq!(delete(&mut desk, "x", "t", &[0]).error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(delete(&mut desk, "", "t", &[0]).error_code, ErrorCode::InvalidGroupId);
    let mut connect = [Asking { protocol_type: "connect".into(), ..Asking::new("c") }];
    desk.stable(&mut connect);
    assert_eq!(delete(&mut desk, "c", "t", &[0]).error_code, ErrorCode::NonEmptyGroup);
}
