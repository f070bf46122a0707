//! Requests about groups that have no members, or do not exist. What members say to each other is in
//! [`super::scripts_of_groups`].

use bytes::Bytes;
use kafka_wire_core::messages::delete_groups::DeleteGroupsRequest;
use kafka_wire_core::messages::describe_groups::DescribeGroupsRequest;
use kafka_wire_core::messages::heartbeat::HeartbeatRequest;
use kafka_wire_core::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use kafka_wire_core::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use kafka_wire_core::messages::list_groups::ListGroupsRequest;
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_wire_core::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_wire_core::messages::sync_group::SyncGroupRequest;

use super::requests::{Catalogue, NO_TOPIC, NO_TOPIC_ID};
use super::world::{EMPTY, GROUP, READ, World};

/// A group that nobody ever joined.
const NO_GROUP: &str = "probe-no-group";

pub(super) fn add(catalogue: &mut Catalogue<'_>) {
    list_and_describe(catalogue);
    commit(catalogue);
    offset_fetch(catalogue);
    members(catalogue);
    join(catalogue);
    delete(catalogue);
}

fn list_and_describe(catalogue: &mut Catalogue<'_>) {
    catalogue.ask("valid", |_| ListGroupsRequest::default());
    let in_state =
        |state: &str| ListGroupsRequest { states_filter: vec![state.into()], ..ListGroupsRequest::default() };
    catalogue.ask_in(4..=5, "stable", |_| in_state("Stable"));
    catalogue.ask_in(4..=5, "empty, in small letters", |_| in_state("empty"));
    catalogue.ask_in(4..=5, "unknown state", |_| in_state("Nonsense"));
    for kind in ["classic", "Consumer", "nonsense"] {
        catalogue.ask_in(5..=5, &format!("of type {kind}"), |_| ListGroupsRequest {
            types_filter: vec![kind.into()],
            ..ListGroupsRequest::default()
        });
    }
    let describe = |groups: &[&str]| DescribeGroupsRequest {
        groups: groups.iter().map(|group| (*group).into()).collect(),
        ..DescribeGroupsRequest::default()
    };
    catalogue.ask("valid", |_| describe(&[GROUP]));
    catalogue.ask("unknown group", |_| describe(&[NO_GROUP]));
    catalogue.ask("empty name", |_| describe(&[""]));
    catalogue.ask("no groups", |_| describe(&[]));
    catalogue.ask("good and unknown", |_| describe(&[NO_GROUP, GROUP]));
    catalogue.ask_in(3..=6, "authorized operations", |_| DescribeGroupsRequest {
        include_authorized_operations: true,
        ..describe(&[GROUP])
    });
}

fn commit_request(world: &World, group: &str, topic: &str, partition: i32) -> OffsetCommitRequest {
    let id = if topic == READ { world.topic_id(READ) } else { NO_TOPIC_ID };
    OffsetCommitRequest {
        group_id: group.into(),
        topics: vec![OffsetCommitRequestTopic {
            name: topic.into(),
            topic_id: id,
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: 2,
                committed_metadata: Some("note".into()),
                ..OffsetCommitRequestPartition::default()
            }],
        }],
        ..OffsetCommitRequest::default()
    }
}

fn commit(catalogue: &mut Catalogue<'_>) {
    let world = catalogue.world;
    let good = |group: &str| commit_request(world, group, READ, 0);
    catalogue.ask("valid", |_| good(GROUP));
    catalogue.ask("empty group", |_| good(""));
    catalogue.ask("unknown topic", |_| commit_request(world, GROUP, NO_TOPIC, 0));
    catalogue.ask("unknown partition", |_| commit_request(world, GROUP, READ, 9));
    catalogue.ask("no topics", |_| OffsetCommitRequest { topics: Vec::new(), ..good(GROUP) });
    catalogue.ask("member of a group that is not there", |_| OffsetCommitRequest {
        member_id: "nobody".into(),
        generation_id_or_member_epoch: 3,
        ..good(NO_GROUP)
    });
    catalogue.ask("unknown member", |_| OffsetCommitRequest {
        member_id: "nobody".into(),
        generation_id_or_member_epoch: 3,
        ..good(GROUP)
    });
    catalogue.ask("generation without a member", |_| OffsetCommitRequest {
        generation_id_or_member_epoch: 3,
        ..good(GROUP)
    });
    let with_partition = |change: fn(&mut OffsetCommitRequestPartition)| {
        let mut request = good(GROUP);
        change(&mut request.topics[0].partitions[0]);
        request
    };
    catalogue.ask("metadata too long", |_| {
        with_partition(|partition| partition.committed_metadata = Some("m".repeat(5000).into()))
    });
    catalogue.ask("null metadata", |_| {
        let mut request = with_partition(|partition| partition.committed_metadata = None);
        request.group_id = "probe-null-metadata".into();
        request
    });
    catalogue.ask("negative offset", |_| {
        let mut request = with_partition(|partition| partition.committed_offset = -5);
        request.group_id = "probe-negative-offset".into();
        request
    });
    catalogue.ask_in(7..=10, "unknown instance", |_| OffsetCommitRequest {
        member_id: "nobody".into(),
        group_instance_id: Some("nobody".into()),
        generation_id_or_member_epoch: 3,
        ..good(GROUP)
    });
}

/// Asks for commits of `group`; all of them for `None`.
fn fetch_request(
    world: &World,
    version: i16,
    group: &str,
    topics: Option<&[(&str, i32)]>,
) -> OffsetFetchRequest {
    if version < 8 {
        let topic = |(name, index): &(&str, i32)| OffsetFetchRequestTopic {
            name: (*name).into(),
            partition_indexes: vec![*index],
        };
        return OffsetFetchRequest {
            group_id: group.into(),
            topics: topics.map(|topics| topics.iter().map(topic).collect()),
            ..OffsetFetchRequest::default()
        };
    }
    let topic = |(name, index): &(&str, i32)| OffsetFetchRequestTopics {
        name: (*name).into(),
        topic_id: if *name == READ { world.topic_id(READ) } else { NO_TOPIC_ID },
        partition_indexes: vec![*index],
    };
    OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.into(),
            topics: topics.map(|topics| topics.iter().map(topic).collect()),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    }
}

fn offset_fetch(catalogue: &mut Catalogue<'_>) {
    let world = catalogue.world;
    catalogue.ask("valid", |version| fetch_request(world, version, GROUP, Some(&[(READ, 0)])));
    catalogue.ask_in(2..=10, "all", |version| fetch_request(world, version, GROUP, None));
    catalogue.ask("no topics", |version| fetch_request(world, version, GROUP, Some(&[])));
    catalogue.ask("nothing committed", |version| fetch_request(world, version, GROUP, Some(&[(READ, 9)])));
    catalogue.ask("unknown topic", |version| fetch_request(world, version, GROUP, Some(&[(NO_TOPIC, 0)])));
    catalogue.ask("unknown group", |version| fetch_request(world, version, NO_GROUP, Some(&[(READ, 0)])));
    catalogue
        .ask_in(2..=10, "all of an unknown group", |version| fetch_request(world, version, NO_GROUP, None));
    catalogue.ask("empty group", |version| fetch_request(world, version, "", Some(&[(READ, 0)])));
    catalogue.ask_in(7..=10, "only stable ones", |version| OffsetFetchRequest {
        require_stable: true,
        ..fetch_request(world, version, GROUP, Some(&[(READ, 0)]))
    });
    catalogue.ask_in(8..=10, "several groups", |version| {
        let mut request = fetch_request(world, version, GROUP, Some(&[(READ, 0)]));
        request.groups.extend(fetch_request(world, version, NO_GROUP, None).groups);
        request
    });
    catalogue.ask_in(8..=10, "no groups", |_| OffsetFetchRequest::default());
    catalogue.ask_in(9..=10, "unknown member", |version| {
        let mut request = fetch_request(world, version, GROUP, Some(&[(READ, 0)]));
        request.groups[0].member_id = Some("nobody".into());
        request.groups[0].member_epoch = 3;
        request
    });
}

fn members(catalogue: &mut Catalogue<'_>) {
    for (what, group, member) in [
        ("valid", GROUP, "nobody"),
        ("unknown group", NO_GROUP, "nobody"),
        ("empty group", "", "nobody"),
        ("empty member", GROUP, ""),
    ] {
        let beat = HeartbeatRequest {
            group_id: group.into(),
            generation_id: 3,
            member_id: member.into(),
            ..HeartbeatRequest::default()
        };
        catalogue.ask(what, |_| beat.clone());
        catalogue.ask(what, |_| SyncGroupRequest {
            group_id: group.into(),
            generation_id: 3,
            member_id: member.into(),
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            ..SyncGroupRequest::default()
        });
        catalogue.ask_in(0..=2, what, |_| LeaveGroupRequest {
            group_id: group.into(),
            member_id: member.into(),
            ..LeaveGroupRequest::default()
        });
        catalogue.ask_in(3..=5, what, |_| LeaveGroupRequest {
            group_id: group.into(),
            members: vec![MemberIdentity { member_id: member.into(), ..MemberIdentity::default() }],
            ..LeaveGroupRequest::default()
        });
    }
    catalogue.ask_in(3..=4, "unknown instance", |_| HeartbeatRequest {
        group_id: GROUP.into(),
        member_id: "nobody".into(),
        group_instance_id: Some("nobody".into()),
        ..HeartbeatRequest::default()
    });
    catalogue.ask_in(3..=5, "no members", |_| LeaveGroupRequest {
        group_id: GROUP.into(),
        ..LeaveGroupRequest::default()
    });
    catalogue.ask_in(5..=5, "no protocol", |_| SyncGroupRequest {
        group_id: GROUP.into(),
        member_id: "nobody".into(),
        ..SyncGroupRequest::default()
    });
}

/// A first or repeated JoinGroup with one protocol.
pub(super) fn join_request(group: &str, member: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        member_id: member.into(),
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from_static(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        }],
        ..JoinGroupRequest::default()
    }
}

fn join(catalogue: &mut Catalogue<'_>) {
    catalogue.ask("valid", |_| join_request(GROUP, "nobody"));
    catalogue.ask("unknown group", |_| join_request(NO_GROUP, "nobody"));
    catalogue.ask("empty group", |_| join_request("", ""));
    // The member that is awaited keeps the group in the lists until the end of the probe.
    catalogue.ask_in(4..=9, "first", |_| JoinGroupRequest {
        session_timeout_ms: 1_200_000,
        ..join_request("probe-join-first", "")
    });
    for (what, session_timeout_ms) in [("session too short", 5), ("session too long", i32::MAX)] {
        catalogue.ask(what, |_| JoinGroupRequest { session_timeout_ms, ..join_request(NO_GROUP, "") });
    }
    catalogue.ask("no protocols", |_| JoinGroupRequest {
        protocols: Vec::new(),
        ..join_request("probe-join-refused", "")
    });
    catalogue.ask("empty protocol type", |_| JoinGroupRequest {
        protocol_type: "".into(),
        ..join_request("probe-join-refused", "")
    });
    catalogue.ask_in(5..=9, "unknown member with an instance", |_| JoinGroupRequest {
        group_instance_id: Some("probe-instance".into()),
        ..join_request("probe-join-static", "nobody")
    });
}

fn delete(catalogue: &mut Catalogue<'_>) {
    let delete = |groups: &[&str]| DeleteGroupsRequest {
        groups_names: groups.iter().map(|group| (*group).into()).collect(),
    };
    catalogue.ask("valid", |_| delete(&[NO_GROUP]));
    catalogue.ask("empty name", |_| delete(&[""]));
    catalogue.ask("no groups", |_| delete(&[]));
    let of = |group: &str, topic: &str, partition_index| OffsetDeleteRequest {
        group_id: group.into(),
        topics: vec![OffsetDeleteRequestTopic {
            name: topic.into(),
            partitions: vec![OffsetDeleteRequestPartition { partition_index }],
        }],
    };
    catalogue.ask("valid", |_| of(GROUP, READ, 9));
    catalogue.ask("nothing committed", |_| of(GROUP, EMPTY, 0));
    catalogue.ask("negative partition", |_| of(GROUP, READ, -1));
    catalogue.ask("unknown group", |_| of(NO_GROUP, READ, 0));
    catalogue.ask("unknown topic", |_| of(GROUP, NO_TOPIC, 0));
    catalogue.ask("empty group", |_| of("", READ, 0));
}
