//! DescribeGroups, ListGroups, DeleteGroups: what operators ask.

use bytes::Bytes;
use kafka_wire_core::messages::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
use kafka_wire_core::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use kafka_wire_core::messages::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};
use kafka_wire_core::{ErrorCode, Str};

use super::{Shard, reply, write};
use crate::group::{ClassicGroup, GroupState};
use crate::request::{Decision, GroupReply, Now, RequestContext, refused_deletion};
use crate::stored::{GroupMetadataKey, OffsetCommitKey, Record};

/// From this version an unknown group is an error; before, it is a dead one (KIP-1043).
const UNKNOWN_IS_ERROR: i16 = 6;
/// Kafka's name of the state of a group that does not exist.
const DEAD: Str = Str::from_static("Dead");
/// Kafka's name of the type of the groups here.
const CLASSIC: Str = Str::from_static("classic");

impl Shard {
    pub(super) fn describe_groups(
        &self,
        context: &RequestContext,
        request: &DescribeGroupsRequest,
    ) -> Decision {
        let groups = request.groups.iter().map(|id| self.describe(id, context.api_version));
        let response = DescribeGroupsResponse { throttle_time_ms: 0, groups: groups.collect() };
        let group = match request.groups.as_slice() {
            [group] => Some(group.clone()),
            _ => None,
        };
        reply(context, group, GroupReply::Describe(response))
    }

    fn describe(&self, id: &Str, version: i16) -> DescribedGroup {
        let described = DescribedGroup { group_id: id.clone(), ..DescribedGroup::default() };
        if let Some(group) = self.live.get(id) {
            let stable = group.state == GroupState::Stable;
            let protocol = group.protocol.clone().filter(|_| stable);
            return DescribedGroup {
                group_state: Str::from_static(group.state.name()),
                protocol_type: group.protocol_type.clone().unwrap_or_default(),
                members: describe_members(group, protocol.as_ref()),
                protocol_data: protocol.unwrap_or_default(),
                ..described
            };
        }
        if self.state.knows(id) {
            let stored = self.state.group(id);
            return DescribedGroup {
                group_state: Str::from_static(GroupState::Empty.name()),
                protocol_type: stored.map(|group| group.protocol_type.clone()).unwrap_or_default(),
                ..described
            };
        }
        if version < UNKNOWN_IS_ERROR {
            return DescribedGroup { group_state: DEAD, ..described };
        }
        DescribedGroup {
            error_code: ErrorCode::GroupIdNotFound,
            error_message: Some(Str::from(format!("Group {id} not found."))),
            group_state: DEAD,
            ..described
        }
    }

    pub(super) fn list_groups(&self, context: &RequestContext, request: &ListGroupsRequest) -> Decision {
        let admits = |filter: &[Str], value: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
        };
        let mut groups = Vec::new();
        let mut add = |id: &Str, protocol_type: Str, state: GroupState| {
            if admits(&request.states_filter, state.name()) && admits(&request.types_filter, &CLASSIC) {
                groups.push(ListedGroup {
                    group_id: id.clone(),
                    protocol_type,
                    group_state: Str::from_static(state.name()),
                    group_type: CLASSIC,
                });
            }
        };
        for (id, group) in &self.live {
            add(id, group.protocol_type.clone().unwrap_or_default(), group.state);
        }
        for (id, stored) in self.state.groups().filter(|(id, _)| !self.live.contains_key(*id)) {
            add(id, stored.protocol_type.clone(), GroupState::Empty);
        }
        let with_offsets = self.state.groups_with_offsets();
        for id in with_offsets.filter(|id| !self.live.contains_key(*id) && self.state.group(id).is_none()) {
            add(id, Str::default(), GroupState::Empty);
        }
        groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        let response = ListGroupsResponse { throttle_time_ms: 0, error_code: ErrorCode::None, groups };
        reply(context, None, GroupReply::List(response))
    }

    pub(super) fn delete_groups(
        &mut self,
        now: Now,
        context: &RequestContext,
        request: &DeleteGroupsRequest,
    ) -> Decision {
        let mut decision = Decision::default();
        let mut results = Vec::with_capacity(request.groups_names.len());
        for id in &request.groups_names {
            let error = if !self.knows(id) {
                ErrorCode::GroupIdNotFound
            } else if self.live.get(id).is_some_and(|group| group.state != GroupState::Empty) {
                ErrorCode::NonEmptyGroup
            } else {
                self.forget(now, id, &mut decision);
                ErrorCode::None
            };
            results.push(refused_deletion(id, error));
        }
        let response = DeleteGroupsResponse { throttle_time_ms: 0, results };
        let done = reply(context, None, GroupReply::DeleteGroups(response));
        decision.completions = done.completions;
        decision
    }

    /// Removes a group without members: its offsets and its record. Joins on the way go on in a new group.
    pub(super) fn forget(&mut self, now: Now, id: &Str, decision: &mut Decision) {
        let offsets: Vec<(Str, i32)> = self.state.offsets(id).map(|(key, _)| key.clone()).collect();
        for (topic, partition) in offsets {
            let key = OffsetCommitKey { group: id.clone(), topic, partition };
            write(&mut self.state, decision, now, Record::Offset(key, None));
        }
        if self.state.group(id).is_some() {
            let key = GroupMetadataKey { group: id.clone() };
            write(&mut self.state, decision, now, Record::Group(key, None));
        }
    }
}

/// Members; what they said and their parts only of a stable group.
fn describe_members(group: &ClassicGroup, protocol: Option<&Str>) -> Vec<DescribedGroupMember> {
    let members = group.members().map(|member| DescribedGroupMember {
        member_id: member.id.clone(),
        group_instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        member_metadata: protocol.map(|protocol| member.metadata(protocol)).unwrap_or_default(),
        member_assignment: protocol.map_or_else(Bytes::new, |_| member.assignment.clone()),
    });
    members.collect()
}
