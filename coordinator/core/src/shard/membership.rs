//! SyncGroup, Heartbeat, LeaveGroup: what members of a generation ask.

use std::collections::HashMap;

use bytes::Bytes;
use kafka_wire_core::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use kafka_wire_core::messages::leave_group::{
    LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse,
};
use kafka_wire_core::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use kafka_wire_core::{ErrorCode, Str};

use super::join::check_member;
use super::rebalance::synced;
use super::{Shard, Turn, reply};
use crate::deadlines::Deadline;
use crate::group::{ClassicGroup, GroupState, Parked};
use crate::request::{Decision, GroupReply, Now, RequestContext, refuse_sync};

/// From this version several members can leave at once, and each gets its own error (KIP-345).
const SEVERAL_LEAVE: i16 = 3;

impl Shard {
    pub(super) fn sync_group(
        &mut self,
        now: Now,
        context: &RequestContext,
        request: &SyncGroupRequest,
    ) -> Decision {
        if let Err(error) = self.check_known(&request.group_id) {
            let group = Some(request.group_id.clone());
            return reply(context, group, GroupReply::Sync(refuse_sync(error)));
        }
        let parked = Parked { token: context.token, version: context.api_version };
        self.turn(now, &request.group_id, |turn, group| turn.sync(group, request, parked))
    }

    pub(super) fn heartbeat(
        &mut self,
        now: Now,
        context: &RequestContext,
        request: &HeartbeatRequest,
    ) -> Decision {
        let answer = |error_code| {
            GroupReply::Heartbeat(HeartbeatResponse { error_code, ..HeartbeatResponse::default() })
        };
        if let Err(error) = self.check_known(&request.group_id) {
            return reply(context, Some(request.group_id.clone()), answer(error));
        }
        let parked = Parked { token: context.token, version: context.api_version };
        self.turn(now, &request.group_id, |turn, group| {
            let error = turn.beat(group, request);
            turn.complete(&group.id, parked, answer(error));
        })
    }

    pub(super) fn leave_group(
        &mut self,
        now: Now,
        context: &RequestContext,
        request: &LeaveGroupRequest,
    ) -> Decision {
        if let Err(error_code) = self.check_known(&request.group_id) {
            let response = refuse_leave(context.api_version, request, error_code);
            return reply(context, Some(request.group_id.clone()), GroupReply::Leave(response));
        }
        let parked = Parked { token: context.token, version: context.api_version };
        self.turn(now, &request.group_id, |turn, group| turn.leave(group, request, parked))
    }

    fn check_known(&self, group: &Str) -> Result<(), ErrorCode> {
        if group.is_empty() {
            Err(ErrorCode::InvalidGroupId)
        } else if !self.knows(group) {
            Err(ErrorCode::UnknownMemberId)
        } else {
            Ok(())
        }
    }
}

/// That nobody is a member of the group is said of each member, where the version can.
fn refuse_leave(version: i16, request: &LeaveGroupRequest, error_code: ErrorCode) -> LeaveGroupResponse {
    if version < SEVERAL_LEAVE || error_code != ErrorCode::UnknownMemberId {
        return LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() };
    }
    let members = request.members.iter().map(|member| MemberResponse {
        member_id: member.member_id.clone(),
        group_instance_id: member.group_instance_id.clone(),
        error_code,
    });
    LeaveGroupResponse { members: members.collect(), ..LeaveGroupResponse::default() }
}

impl Turn<'_> {
    fn sync(&mut self, group: &mut ClassicGroup, request: &SyncGroupRequest, parked: Parked) {
        if let Err(error) = check_sync(group, request) {
            self.complete_sync(&group.id, parked, refuse_sync(error));
            return;
        }
        let member_id = request.member_id.detach();
        match group.state {
            GroupState::Empty => {
                self.complete_sync(&group.id, parked, refuse_sync(ErrorCode::UnknownMemberId));
            }
            GroupState::PreparingRebalance => {
                self.complete_sync(&group.id, parked, refuse_sync(ErrorCode::RebalanceInProgress));
            }
            GroupState::CompletingRebalance => {
                self.synced_by(group, &member_id);
                let superseded =
                    group.member_mut(&member_id).and_then(|member| member.awaiting_sync.replace(parked));
                if let Some(superseded) = superseded {
                    let error = ErrorCode::RebalanceInProgress;
                    self.complete_sync(&group.id, superseded, refuse_sync(error));
                }
                if group.is_leader(&member_id) {
                    self.assign(group, request);
                }
            }
            GroupState::Stable => {
                self.synced_by(group, &member_id);
                self.renew_session(group, &member_id);
                let response: SyncGroupResponse = synced(group, &member_id);
                self.complete_sync(&group.id, parked, response);
            }
        }
    }

    fn synced_by(&mut self, group: &mut ClassicGroup, member_id: &Str) {
        group.pending_syncs.remove(member_id);
        if group.pending_syncs.is_empty() {
            self.deadlines.cancel(Deadline::Sync(group.id.clone()));
        }
    }

    /// The leader's plan makes the generation complete: it is stored, and members get their parts.
    fn assign(&mut self, group: &mut ClassicGroup, request: &SyncGroupRequest) {
        let parts: HashMap<&Str, &Bytes> =
            request.assignments.iter().map(|part| (&part.member_id, &part.assignment)).collect();
        let of = |member_id: &Str| parts.get(member_id).map(|bytes| Bytes::copy_from_slice(bytes));
        let member_ids = group.member_ids();
        let size: usize = member_ids.iter().filter_map(|id| parts.get(id)).map(|part| part.len()).sum();
        let stored = group.stored_bytes_with_parts(size);
        if size > self.config.group_metadata_bytes_max || stored > self.config.group_record_bytes_max {
            // The answer that Kafka gives when the group does not fit in a record.
            self.refuse_syncs(group, ErrorCode::UnknownServerError);
            self.prepare_rebalance(group);
            return;
        }
        for member_id in &member_ids {
            if let Some(member) = group.member_mut(member_id) {
                member.assignment = of(member_id).unwrap_or_default();
            }
        }
        group.transition(GroupState::Stable, self.now.wall);
        self.write_group(&group.id, Some(group.to_stored()));
        self.answer_syncs(group);
    }

    fn beat(&mut self, group: &mut ClassicGroup, request: &HeartbeatRequest) -> ErrorCode {
        if let Err(error) = check_member(group, &request.member_id, request.group_instance_id.as_ref()) {
            return error;
        }
        if request.generation_id != group.generation {
            return ErrorCode::IllegalGeneration;
        }
        match group.state {
            GroupState::Empty => ErrorCode::UnknownMemberId,
            GroupState::PreparingRebalance => {
                self.renew_session(group, &request.member_id.detach());
                ErrorCode::RebalanceInProgress
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.renew_session(group, &request.member_id.detach());
                ErrorCode::None
            }
        }
    }

    fn leave(&mut self, group: &mut ClassicGroup, request: &LeaveGroupRequest, parked: Parked) {
        let several = parked.version >= SEVERAL_LEAVE;
        let single = [MemberIdentity { member_id: request.member_id.clone(), ..MemberIdentity::default() }];
        let leaving: &[MemberIdentity] = if several { &request.members } else { &single };
        let before = group.member_count();
        let mut members = Vec::with_capacity(leaving.len());
        for identity in leaving {
            members.push(MemberResponse {
                member_id: identity.member_id.clone(),
                group_instance_id: identity.group_instance_id.clone(),
                error_code: self.leave_one(group, identity),
            });
        }
        match group.state {
            GroupState::Empty => {}
            GroupState::PreparingRebalance => self.maybe_complete_join(group),
            GroupState::CompletingRebalance | GroupState::Stable if group.member_count() < before => {
                self.prepare_rebalance(group);
            }
            // Who was only given an id leaves no gap.
            GroupState::CompletingRebalance | GroupState::Stable => {}
        }
        let response = if several {
            LeaveGroupResponse { throttle_time_ms: 0, error_code: ErrorCode::None, members }
        } else {
            let error_code = members.first().map_or(ErrorCode::None, |member| member.error_code);
            LeaveGroupResponse { throttle_time_ms: 0, error_code, members: Vec::new() }
        };
        self.complete(&group.id, parked, GroupReply::Leave(response));
    }

    fn leave_one(&mut self, group: &mut ClassicGroup, identity: &MemberIdentity) -> ErrorCode {
        let instance_id = identity.group_instance_id.as_ref();
        if identity.member_id.is_empty() {
            // An operator removes a static member by its name.
            let holder = instance_id.and_then(|name| group.static_member(name)).cloned();
            let Some(holder) = holder else { return ErrorCode::UnknownMemberId };
            self.remove_member(group, &holder);
            return ErrorCode::None;
        }
        if group.is_pending(&identity.member_id) {
            if instance_id.is_some() {
                return ErrorCode::UnknownMemberId;
            }
            self.remove_pending(group, &identity.member_id);
            return ErrorCode::None;
        }
        match check_member(group, &identity.member_id, instance_id) {
            Ok(()) => {
                self.remove_member(group, &identity.member_id.detach());
                ErrorCode::None
            }
            Err(error) => error,
        }
    }
}

fn check_sync(group: &ClassicGroup, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
    check_member(group, &request.member_id, request.group_instance_id.as_ref())?;
    let differs =
        |theirs: &Option<Str>, ours: &Option<Str>| theirs.is_some() && theirs != ours && ours.is_some();
    if request.generation_id != group.generation {
        Err(ErrorCode::IllegalGeneration)
    } else if differs(&request.protocol_type, &group.protocol_type)
        || differs(&request.protocol_name, &group.protocol)
    {
        Err(ErrorCode::InconsistentGroupProtocol)
    } else {
        Ok(())
    }
}
