//! What members of a group say to their coordinator, with members that are connections of the probe.

use std::time::Duration;

use bytes::Bytes;
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::delete_groups::DeleteGroupsRequest;
use kafka_wire_core::messages::describe_groups::DescribeGroupsRequest;
use kafka_wire_core::messages::heartbeat::HeartbeatRequest;
use kafka_wire_core::messages::join_group::{JoinGroupRequest, JoinGroupResponse};
use kafka_wire_core::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_wire_core::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_wire_core::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestTopic};
use kafka_wire_core::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};

use super::requests_of_groups::join_request;
use super::scripts::Script;
use super::wire::Wire;
use super::world::{self, READ};
use crate::clock::wait_until;

/// How long a member may take to hear of another one.
const TURN_LIMIT: Duration = Duration::from_secs(20);

fn beat(group: &str, member: &str, generation_id: i32) -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: group.into(),
        generation_id,
        member_id: member.into(),
        ..HeartbeatRequest::default()
    }
}

fn commit(group: &str, member: &str, generation: i32) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: generation,
        member_id: member.into(),
        topics: vec![OffsetCommitRequestTopic {
            name: READ.into(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 3,
                committed_leader_epoch: 0,
                committed_metadata: Some("by a member".into()),
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    }
}

/// The leader's, with an assignment for itself.
fn sync(group: &str, member: &str, generation_id: i32) -> SyncGroupRequest {
    assigning(group, member, generation_id, &[member])
}

/// The leader's, with an assignment for each member that tells the members apart; a follower's with none.
fn assigning(group: &str, member: &str, generation_id: i32, members: &[&str]) -> SyncGroupRequest {
    let assignment = |(index, member): (u8, &&str)| SyncGroupRequestAssignment {
        member_id: (*member).into(),
        assignment: Bytes::copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0, 0, index]),
    };
    SyncGroupRequest {
        group_id: group.into(),
        generation_id,
        member_id: member.into(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: (0..).zip(members).map(assignment).collect(),
        ..SyncGroupRequest::default()
    }
}

fn learn(script: &Script<'_>, response: &JoinGroupResponse, name: &str) {
    script.world.learn(format!("{:?}", &*response.member_id), name);
}

/// A member that joins, commits, makes mistakes, joins again and leaves; the group then is deleted.
pub(super) fn one_member(script: &mut Script<'_>) {
    const GROUP: &str = "probe-one-member";
    let mut wire = script.world.open();
    let Some(first) = script.ask(&mut wire, "01 first join", 9, &join_request(GROUP, "")) else { return };
    learn(script, &first, "member");
    let member = first.member_id.to_string();
    script.ask(&mut wire, "02 heartbeat before the join", 4, &beat(GROUP, &member, 0));
    let joined = script.ask(&mut wire, "03 join", 9, &join_request(GROUP, &member));
    let generation = joined.map_or(-1, |joined| joined.generation_id);
    script.ask(&mut wire, "04 heartbeat before the sync", 4, &beat(GROUP, &member, generation));
    script.ask(&mut wire, "05 commit before the sync", 8, &commit(GROUP, &member, generation));
    let mut odd = sync(GROUP, &member, generation);
    odd.protocol_name = Some("roundrobin".into());
    script.ask(&mut wire, "06 sync with another protocol", 5, &odd);
    script.ask(&mut wire, "07 sync of an old generation", 5, &sync(GROUP, &member, generation - 1));
    script.ask(&mut wire, "08 sync", 5, &sync(GROUP, &member, generation));
    script.ask(&mut wire, "09 sync again", 5, &sync(GROUP, &member, generation));
    script.ask(&mut wire, "10 heartbeat", 4, &beat(GROUP, &member, generation));
    script.ask(&mut wire, "11 heartbeat of the next generation", 4, &beat(GROUP, &member, generation + 1));
    script.ask(&mut wire, "12 heartbeat of a stranger", 4, &beat(GROUP, "stranger", generation));
    script.ask(&mut wire, "13 commit", 8, &commit(GROUP, &member, generation));
    script.ask(&mut wire, "14 commit of an old generation", 8, &commit(GROUP, &member, generation - 1));
    script.ask(&mut wire, "15 commit of a stranger", 8, &commit(GROUP, "stranger", generation));
    script.ask(&mut wire, "16 commit without a member", 8, &commit(GROUP, "", -1));
    let fetch = OffsetFetchRequest {
        group_id: GROUP.into(),
        topics: Some(vec![OffsetFetchRequestTopic { name: READ.into(), partition_indexes: vec![0, 1] }]),
        ..OffsetFetchRequest::default()
    };
    script.ask(&mut wire, "17 offsets", 7, &fetch);
    let describe = DescribeGroupsRequest { groups: vec![GROUP.into()], ..DescribeGroupsRequest::default() };
    script.ask(&mut wire, "18 described", 5, &describe);
    wrong_joins(script, &mut wire, GROUP, &member);
    let delete = DeleteGroupsRequest { groups_names: vec![GROUP.into()] };
    script.ask(&mut wire, "23 deleted while there is a member", 2, &delete);
    let forget = OffsetDeleteRequest {
        group_id: GROUP.into(),
        topics: vec![OffsetDeleteRequestTopic {
            name: READ.into(),
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        }],
    };
    script.ask(&mut wire, "24 offsets deleted while there is a member", 0, &forget);
    script.ask(&mut wire, "25 join again", 9, &join_request(GROUP, &member));
    let leave = |members: &[&str]| LeaveGroupRequest {
        group_id: GROUP.into(),
        members: members
            .iter()
            .map(|member| MemberIdentity { member_id: (*member).into(), ..MemberIdentity::default() })
            .collect(),
        ..LeaveGroupRequest::default()
    };
    script.ask(&mut wire, "26 left", 5, &leave(&["stranger", &member]));
    script.ask(&mut wire, "27 left again", 5, &leave(&[&member]));
    script.ask(&mut wire, "28 described when empty", 5, &describe);
    script.ask(&mut wire, "29 offsets when empty", 7, &fetch);
    script.ask(&mut wire, "30 deleted", 2, &delete);
    script.ask(&mut wire, "31 deleted again", 2, &delete);
    script.ask(&mut wire, "32 described when gone", 5, &describe);
    script.ask(&mut wire, "33 offsets when gone", 7, &fetch);
}

/// Joins that the group of one member must refuse.
fn wrong_joins(script: &mut Script<'_>, wire: &mut Wire, group: &str, member: &str) {
    let odd_type = JoinGroupRequest { protocol_type: "connect".into(), ..join_request(group, "") };
    script.ask(wire, "19 join with another type", 9, &odd_type);
    let mut odd_protocol = join_request(group, "");
    odd_protocol.protocols[0].name = "roundrobin".into();
    script.ask(wire, "20 join without a common protocol", 9, &odd_protocol);
    script.ask(wire, "21 join of a stranger", 9, &join_request(group, "stranger"));
    let odd_instance =
        JoinGroupRequest { group_instance_id: Some("nobody".into()), ..join_request(group, member) };
    script.ask(wire, "22 join as an instance", 9, &odd_instance);
}

/// KIP-345: a restarted instance takes its place back without a rebalance, and its former self is fenced.
pub(super) fn static_member(script: &mut Script<'_>) {
    const GROUP: &str = "probe-static-member";
    let mut wire = script.world.open();
    let as_instance = |member: &str| JoinGroupRequest {
        group_instance_id: Some("instance".into()),
        ..join_request(GROUP, member)
    };
    let Some(first) = script.ask(&mut wire, "1 join", 9, &as_instance("")) else { return };
    learn(script, &first, "first id");
    let old = first.member_id.to_string();
    let of_instance = |member: &str, generation_id| SyncGroupRequest {
        group_instance_id: Some("instance".into()),
        ..sync(GROUP, member, generation_id)
    };
    script.ask(&mut wire, "2 sync", 5, &of_instance(&old, first.generation_id));
    let Some(second) = script.ask(&mut wire, "3 restarted", 9, &as_instance("")) else { return };
    learn(script, &second, "second id");
    let new = second.member_id.to_string();
    script.note("ids differ", (old != new).to_string());
    let beat_as = |member: &str, instance: Option<&str>| HeartbeatRequest {
        group_instance_id: instance.map(Into::into),
        ..beat(GROUP, member, second.generation_id)
    };
    script.ask(&mut wire, "4 heartbeat of the old one", 4, &beat_as(&old, Some("instance")));
    script.ask(&mut wire, "5 heartbeat of the old one without its instance", 4, &beat_as(&old, None));
    script.ask(&mut wire, "6 sync of the old one", 5, &of_instance(&old, second.generation_id));
    script.ask(&mut wire, "7 sync of the new one", 5, &of_instance(&new, second.generation_id));
    script.ask(&mut wire, "8 heartbeat of the new one", 4, &beat_as(&new, Some("instance")));
    let commit_as = |member: &str| OffsetCommitRequest {
        group_instance_id: Some("instance".into()),
        ..commit(GROUP, member, second.generation_id)
    };
    script.ask(&mut wire, "9 commit of the old one", 8, &commit_as(&old));
    script.ask(&mut wire, "10 commit of the new one", 8, &commit_as(&new));
    script.ask(&mut wire, "11 join of the old one", 9, &as_instance(&old));
    let leave = |member: &str| LeaveGroupRequest {
        group_id: GROUP.into(),
        members: vec![MemberIdentity {
            member_id: member.into(),
            group_instance_id: Some("instance".into()),
            ..MemberIdentity::default()
        }],
        ..LeaveGroupRequest::default()
    };
    script.ask(&mut wire, "12 leave of the old one", 5, &leave(&old));
    script.ask(&mut wire, "13 leave by instance alone", 5, &leave(""));
    script.ask(&mut wire, "14 leave again", 5, &leave(""));
}

/// Two members on two connections: what the leader is told and what the other, and for whom the coordinator lets them wait.
pub(super) fn two_members(script: &mut Script<'_>) {
    const GROUP: &str = "probe-two-members";
    let world = script.world;
    let (mut leader, mut follower) = (world.open(), world.open());
    let Some(id) = script.ask(&mut leader, "01 A gets an id", 9, &join_request(GROUP, "")) else { return };
    learn(script, &id, "A");
    let a = id.member_id.to_string();
    let joined = script.ask(&mut leader, "02 A joins", 9, &join_request(GROUP, &a));
    let first = joined.map_or(-1, |joined| joined.generation_id);
    script.ask(&mut leader, "03 A syncs", 5, &sync(GROUP, &a, first));
    let Some(id) = script.ask(&mut follower, "04 B gets an id", 9, &join_request(GROUP, "")) else { return };
    learn(script, &id, "B");
    let b = id.member_id.to_string();
    follower.begin(&world::frame(&join_request(GROUP, &b), 9, Some("probe")));
    let told = wait_until(TURN_LIMIT, || {
        let error = world.call(&beat(GROUP, &a, first), 4).error_code;
        (error == ErrorCode::RebalanceInProgress).then_some(())
    });
    script.note("05 A learns that B joins", told.is_some().to_string());
    script.ask(&mut leader, "06 heartbeat of A", 4, &beat(GROUP, &a, first));
    script.ask(&mut leader, "07 sync of A", 5, &sync(GROUP, &a, first));
    script.ask(&mut leader, "08 commit of A", 8, &commit(GROUP, &a, first));
    script.note("09 B waits for A", follower.is_quiet().to_string());
    let joined = join_as_leader(script, &mut leader, "10 A joins again", &join_request(GROUP, &a));
    let second = joined.map_or(-1, |joined| joined.generation_id);
    let outcome = follower.outcome();
    script.answered::<JoinGroupRequest>("11 B has joined", 9, outcome);
    follower.begin(&world::frame(&assigning(GROUP, &b, second, &[]), 5, Some("probe")));
    script.note("12 B waits for the assignment", follower.is_quiet().to_string());
    script.ask(&mut leader, "13 heartbeat of A before the sync", 4, &beat(GROUP, &a, second));
    script.ask(&mut leader, "14 commit of A before the sync", 8, &commit(GROUP, &a, second));
    script.ask(&mut leader, "15 A syncs for both", 5, &assigning(GROUP, &a, second, &[&a, &b]));
    let outcome = follower.outcome();
    script.answered::<SyncGroupRequest>("16 B has its assignment", 5, outcome);
    script.ask(&mut follower, "17 B syncs again", 5, &assigning(GROUP, &b, second, &[]));
    let leave = |member: &str| LeaveGroupRequest {
        group_id: GROUP.into(),
        members: vec![MemberIdentity { member_id: member.into(), ..MemberIdentity::default() }],
        ..LeaveGroupRequest::default()
    };
    script.ask(&mut leader, "18 A leaves", 5, &leave(&a));
    script.ask(&mut follower, "19 heartbeat of B", 4, &beat(GROUP, &b, second));
    script.ask(&mut follower, "20 sync of B", 5, &assigning(GROUP, &b, second, &[]));
    let joined = script.ask(&mut follower, "21 B joins again, alone", 9, &join_request(GROUP, &b));
    let third = joined.map_or(-1, |joined| joined.generation_id);
    script.ask(&mut follower, "22 B syncs as the leader", 5, &sync(GROUP, &b, third));
    script.ask(&mut follower, "23 B leaves", 5, &leave(&b));
}

/// Joins; the members that the leader is told of come in any order.
fn join_as_leader(
    script: &mut Script<'_>,
    wire: &mut Wire,
    step: &str,
    request: &JoinGroupRequest,
) -> Option<JoinGroupResponse> {
    let response = script.ask(wire, step, 9, request)?;
    script.forget(step, "members[");
    let mut members: Vec<String> = response
        .members
        .iter()
        .map(|member| {
            let name = script.world.name("JoinGroup", "member_id", format!("{:?}", &*member.member_id));
            format!("{name} {:?} {:02x?}", member.group_instance_id, &member.metadata[..])
        })
        .collect();
    members.sort();
    script.note(&format!("{step}: members"), members.join(", "));
    Some(response)
}
