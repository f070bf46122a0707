//! JoinGroup.

use kafka_wire_core::messages::join_group::JoinGroupRequest;
use kafka_wire_core::{ErrorCode, Str};
use uuid::Uuid;

use super::{NAME_MAX, STORED_TEXT_MAX, Shard, Turn, reply};
use crate::group::{ClassicGroup, GroupState, Joining, Parked, distinct_protocols};
use crate::request::{Decision, GroupReply, Now, RequestContext, refuse_join};
use crate::stored::GroupMetadataValue;

/// From this version a new member first gets its id alone, and joins when it comes back with it (KIP-394).
const KNOWN_MEMBER_ID: i16 = 4;
/// From this version a static leader can be told not to assign (KIP-814).
const SKIP_ASSIGNMENT: i16 = 9;

impl Shard {
    pub(super) fn join_group(
        &mut self,
        now: Now,
        context: &RequestContext,
        request: &JoinGroupRequest,
    ) -> Decision {
        let refused = |error| {
            let response = refuse_join(context.api_version, request.member_id.clone(), error);
            reply(context, Some(request.group_id.clone()), GroupReply::Join(response))
        };
        if let Err(error) = self.check_join(context, request) {
            return refused(error);
        }
        let is_new = request.member_id.is_empty();
        if !self.knows(&request.group_id) {
            if !is_new {
                return refused(ErrorCode::UnknownMemberId);
            }
            if self.live.len().max(self.state.group_count()) >= self.config.groups_max {
                return refused(ErrorCode::PolicyViolation);
            }
        }
        if is_new && self.pending_members >= self.config.shard_pending_members_max {
            return refused(ErrorCode::CoordinatorNotAvailable);
        }
        let joining = joining(context, request);
        self.turn(now, &request.group_id, |turn, group| {
            turn.join(group, &request.member_id.detach(), joining, context.fresh_id);
        })
    }

    fn check_join(&self, context: &RequestContext, request: &JoinGroupRequest) -> Result<(), ErrorCode> {
        let config = &self.config;
        let session = request.session_timeout_ms;
        let instance_length = request.group_instance_id.as_ref().map_or(0, |name| name.len());
        let texts = [&*request.protocol_type, &*request.member_id, &*context.client_host];
        let names = request.protocols.iter().map(|protocol| &*protocol.name);
        if request.group_id.is_empty() || request.group_id.len() > STORED_TEXT_MAX {
            Err(ErrorCode::InvalidGroupId)
        } else if session < config.group_min_session_timeout_ms
            || session > config.group_max_session_timeout_ms
        {
            Err(ErrorCode::InvalidSessionTimeout)
        } else if context.client_id.len().max(instance_length) > NAME_MAX
            || texts.into_iter().chain(names).any(|text| text.len() > STORED_TEXT_MAX)
        {
            Err(ErrorCode::InvalidRequest)
        } else if request.protocols.len() > config.member_protocols_max {
            Err(ErrorCode::InconsistentGroupProtocol)
        } else {
            Ok(())
        }
    }
}

fn joining(context: &RequestContext, request: &JoinGroupRequest) -> Joining {
    let rebalance_timeout_ms = match (context.api_version, request.rebalance_timeout_ms) {
        (0, _) | (_, -1) => request.session_timeout_ms,
        (_, timeout) => timeout,
    };
    Joining {
        instance_id: request.group_instance_id.as_ref().map(Str::detach),
        client_id: context.client_id.detach(),
        client_host: context.client_host.detach(),
        rebalance_timeout_ms,
        session_timeout_ms: request.session_timeout_ms,
        protocol_type: request.protocol_type.detach(),
        protocols: distinct_protocols(&request.protocols),
        parked: Parked { token: context.token, version: context.api_version },
    }
}

impl Turn<'_> {
    fn join(&mut self, group: &mut ClassicGroup, member_id: &Str, joining: Joining, fresh_id: Uuid) {
        let parked = joining.parked;
        if !self.has_room(group, member_id) {
            self.remove_member(group, member_id);
            self.remove_pending(group, member_id);
            self.refuse_join(&group.id, parked, Str::default(), ErrorCode::GroupMaxSizeReached);
            self.maybe_complete_join(group);
            return;
        }
        if !group.supports(&joining.protocol_type, &joining.protocols) {
            let error = ErrorCode::InconsistentGroupProtocol;
            self.refuse_join(&group.id, parked, member_id.clone(), error);
            return;
        }
        let others = group.protocol_bytes_without(member_id);
        let record = group.stored_bytes_without(member_id) + joining.stored_bytes();
        if others + joining.protocol_bytes() > self.config.group_metadata_bytes_max
            || record > self.config.group_record_bytes_max
        {
            // The answer that Kafka gives when the group does not fit in a record.
            self.refuse_join(&group.id, parked, member_id.clone(), ErrorCode::UnknownServerError);
            return;
        }
        if member_id.is_empty() {
            self.join_new(group, joining, fresh_id);
        } else {
            self.join_known(group, member_id, joining);
        }
    }

    /// Whether `group.max.size` lets the member in. While members gather, those that have joined count, so that the last
    /// ones of a group that is too large stay out.
    fn has_room(&self, group: &ClassicGroup, member_id: &Str) -> bool {
        let max = self.config.group_max_size;
        match group.state {
            GroupState::Empty => true,
            GroupState::PreparingRebalance => {
                group.member(member_id).is_some_and(|member| member.is_awaiting_join())
                    || group.awaiting_joins() < max
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                group.member(member_id).is_some() || group.member_count() < max
            }
        }
    }

    fn join_new(&mut self, group: &mut ClassicGroup, joining: Joining, fresh_id: Uuid) {
        let name = joining.instance_id.as_ref().unwrap_or(&joining.client_id);
        let member_id = Str::from(format!("{name}-{fresh_id}"));
        if let Some(instance_id) = &joining.instance_id {
            match group.static_member(instance_id).cloned() {
                Some(old) => self.rejoin_static(group, &old, member_id, joining),
                None => {
                    self.store_new_id(group, instance_id, &member_id);
                    self.add_member(group, member_id, joining);
                }
            }
            return;
        }
        if joining.parked.version < KNOWN_MEMBER_ID {
            self.add_member(group, member_id, joining);
            return;
        }
        while group.pending_count() >= self.config.pending_members_max.max(1) {
            let Some(oldest) = group.oldest_pending() else { break };
            self.remove_pending(group, &oldest);
        }
        group.add_pending(member_id.clone());
        *self.pending_members += 1;
        self.set_session(group, &member_id, i64::from(joining.session_timeout_ms));
        self.refuse_join(&group.id, joining.parked, member_id, ErrorCode::MemberIdRequired);
    }

    fn join_known(&mut self, group: &mut ClassicGroup, member_id: &Str, joining: Joining) {
        if group.is_pending(member_id) {
            if joining.instance_id.is_some() {
                let error = ErrorCode::UnknownMemberId;
                self.refuse_join(&group.id, joining.parked, member_id.clone(), error);
                return;
            }
            self.remove_pending(group, member_id);
            self.add_member(group, member_id.clone(), joining);
            return;
        }
        if let Err(error) = check_member(group, member_id, joining.instance_id.as_ref()) {
            self.refuse_join(&group.id, joining.parked, member_id.clone(), error);
            return;
        }
        let same = group.member(member_id).is_some_and(|member| member.protocols == joining.protocols);
        let answer_at_once = match group.state {
            GroupState::Empty | GroupState::PreparingRebalance => false,
            // It did not get the answer to its first join.
            GroupState::CompletingRebalance => same,
            // The leader may know of more partitions, and then asks for a rebalance by joining.
            GroupState::Stable => same && !group.is_leader(member_id),
        };
        if answer_at_once {
            let response = self.joined(group, member_id, false);
            self.renew_session(group, member_id);
            self.complete_join(&group.id, joining.parked, response);
        } else {
            self.update_member(group, member_id, joining);
            self.rebalance(group);
        }
    }

    fn add_member(&mut self, group: &mut ClassicGroup, member_id: Str, joining: Joining) {
        if group.state == GroupState::PreparingRebalance && group.initial {
            group.new_member_added = true;
        }
        group.add(member_id.clone(), joining);
        // It does not know its id yet and cannot send heartbeats; if its client has gone, nobody will say so.
        self.set_session(group, &member_id, self.config.new_member_join_timeout_ms);
        self.rebalance(group);
    }

    /// Parks a join of a member; one that was parked before is answered, since its client has moved on.
    fn update_member(&mut self, group: &mut ClassicGroup, member_id: &Str, joining: Joining) {
        if let Some(superseded) = group.update(member_id, joining) {
            let error = ErrorCode::RebalanceInProgress;
            self.refuse_join(&group.id, superseded, member_id.clone(), error);
        }
    }

    /// A static member came back without its id: it keeps its place under a new one, and its old self is fenced.
    fn rejoin_static(&mut self, group: &mut ClassicGroup, old: &Str, new: Str, joining: Joining) {
        let was_led_by = group.leader.clone();
        self.cancel_session(group, old);
        let parked = group.replace_static(old, new.clone());
        self.refuse_parked(&group.id, old, parked, ErrorCode::FencedInstanceId);
        let version = joining.parked.version;
        let instance_id = joining.instance_id.clone();
        self.update_member(group, &new, joining);
        self.renew_session(group, &new);
        let keeps_protocol = group.select_protocol() == group.protocol;
        if group.state != GroupState::Stable || !keeps_protocol {
            if let Some(instance_id) = instance_id {
                self.store_new_id(group, &instance_id, &new);
            }
            self.rebalance(group);
            return;
        }
        self.write_group(&group.id, Some(group.to_stored()));
        let leads = group.is_leader(&new);
        let mut response = self.joined(group, &new, version >= SKIP_ASSIGNMENT && leads);
        if version < SKIP_ASSIGNMENT {
            // An old client that hears that it leads would assign; under the old leader's name it does not.
            response.leader = was_led_by.unwrap_or_default();
            response.members = Vec::new();
        }
        if let Some(parked) = group.take_join(&new) {
            self.complete_join(&group.id, parked, response);
        }
    }

    /// In the middle of a rebalance nothing of it is stored; only the new id of a static member is, under the last stored
    /// generation. Else a coordinator that takes over would fence the living member in favour of its former self.
    fn store_new_id(&mut self, group: &ClassicGroup, instance_id: &Str, new: &Str) {
        let Some(stored) = self.state.group(&group.id) else { return };
        if let Some(renamed) = renamed(stored, instance_id, new) {
            self.write_group(&group.id, Some(renamed));
        }
    }
}

fn renamed(stored: &GroupMetadataValue, instance_id: &Str, new: &Str) -> Option<GroupMetadataValue> {
    let mut stored = stored.clone();
    let mut members = stored.members.iter_mut();
    let member = members.find(|member| member.group_instance_id.as_ref() == Some(instance_id))?;
    let old = std::mem::replace(&mut member.member_id, new.clone());
    if stored.leader.as_ref() == Some(&old) {
        stored.leader = Some(new.clone());
    }
    stored.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
    Some(stored)
}

/// Whether the member is in the group, and, if it is static, is the one that holds the name.
pub(super) fn check_member(
    group: &ClassicGroup,
    member_id: &Str,
    instance_id: Option<&Str>,
) -> Result<(), ErrorCode> {
    if let Some(instance_id) = instance_id {
        match group.static_member(instance_id) {
            None => return Err(ErrorCode::UnknownMemberId),
            Some(holder) if holder != member_id => return Err(ErrorCode::FencedInstanceId),
            Some(_) => {}
        }
    }
    match group.member(member_id) {
        Some(_) => Ok(()),
        None => Err(ErrorCode::UnknownMemberId),
    }
}
