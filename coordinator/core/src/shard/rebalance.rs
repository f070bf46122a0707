//! The phases of a rebalance: gather members, begin a generation, wait for its assignment.

use kafka_wire_core::messages::join_group::JoinGroupResponse;
use kafka_wire_core::messages::sync_group::SyncGroupResponse;
use kafka_wire_core::{ErrorCode, Str};

use super::Turn;
use crate::deadlines::Deadline;
use crate::group::{ClassicGroup, GroupState};
use crate::request::refuse_sync;

impl Turn<'_> {
    /// Members changed: begins a rebalance, or goes on with the one under way.
    pub(super) fn rebalance(&mut self, group: &mut ClassicGroup) {
        match group.state {
            GroupState::Empty | GroupState::CompletingRebalance | GroupState::Stable => {
                self.prepare_rebalance(group);
            }
            GroupState::PreparingRebalance => self.maybe_complete_join(group),
        }
    }

    /// Asks all members to join again.
    pub(super) fn prepare_rebalance(&mut self, group: &mut ClassicGroup) {
        if group.state == GroupState::CompletingRebalance {
            self.refuse_syncs(group, ErrorCode::RebalanceInProgress);
        }
        self.deadlines.cancel(Deadline::Sync(group.id.clone()));
        group.initial = group.state == GroupState::Empty;
        group.transition(GroupState::PreparingRebalance, self.now.wall);
        if group.initial {
            let delay = i64::from(self.config.group_initial_rebalance_delay_ms);
            group.new_member_added = false;
            group.initial_remaining_ms = Some((group.rebalance_timeout_ms() - delay).max(0));
            self.set_join_deadline(group, delay);
        } else if group.all_joined() {
            self.complete_joins(group);
        } else {
            self.set_join_deadline(group, group.rebalance_timeout_ms());
        }
    }

    fn set_join_deadline(&mut self, group: &ClassicGroup, delay_ms: i64) {
        self.deadlines.set(Deadline::Join(group.id.clone()), self.now.monotonic + delay_ms);
    }

    /// Begins the generation if nobody is missing. A group that was empty gathers for its whole delay.
    pub(super) fn maybe_complete_join(&mut self, group: &mut ClassicGroup) {
        if group.state == GroupState::PreparingRebalance && group.all_joined() && !group.initial {
            self.complete_joins(group);
        }
    }

    pub(super) fn join_deadline(&mut self, group: &mut ClassicGroup) {
        if group.state != GroupState::PreparingRebalance {
            return;
        }
        match group.initial_remaining_ms {
            Some(remaining) if group.new_member_added && remaining != 0 => {
                let delay = i64::from(self.config.group_initial_rebalance_delay_ms);
                group.new_member_added = false;
                group.initial_remaining_ms = Some((remaining - delay).max(0));
                self.set_join_deadline(group, delay.min(remaining));
            }
            Some(_) | None => self.complete_joins(group),
        }
    }

    /// Begins the next generation with the members that have joined. Static members that have not stay (KIP-345).
    fn complete_joins(&mut self, group: &mut ClassicGroup) {
        self.deadlines.cancel(Deadline::Join(group.id.clone()));
        group.initial_remaining_ms = None;
        let absent = group.members().filter(|m| m.instance_id.is_none() && !m.is_awaiting_join());
        let absent: Vec<Str> = absent.map(|member| member.id.clone()).collect();
        for member_id in absent {
            self.remove_member(group, &member_id);
        }
        if group.member_count() > 0 && !group.elect_joined_leader() {
            // Only static members, and none has joined: their sessions decide.
            self.set_join_deadline(group, group.rebalance_timeout_ms().max(1));
            return;
        }
        group.next_generation(self.now.wall);
        if group.state == GroupState::Empty {
            self.write_group(&group.id, Some(group.to_stored()));
            return;
        }
        for member_id in group.member_ids() {
            let response = self.joined(group, &member_id, false);
            if let Some(parked) = group.take_join(&member_id) {
                self.complete_join(&group.id, parked, response);
            }
            if let Some(member) = group.member_mut(&member_id) {
                member.is_new = false;
            }
            self.renew_session(group, &member_id);
            group.pending_syncs.insert(member_id);
        }
        let timeout = group.rebalance_timeout_ms();
        self.deadlines.set(Deadline::Sync(group.id.clone()), self.now.monotonic + timeout);
    }

    /// The answer that makes a member part of the current generation.
    pub(super) fn joined(
        &self,
        group: &ClassicGroup,
        member_id: &Str,
        skip_assignment: bool,
    ) -> JoinGroupResponse {
        let members = if group.is_leader(member_id) { group.member_list() } else { Vec::new() };
        JoinGroupResponse {
            throttle_time_ms: 0,
            error_code: ErrorCode::None,
            generation_id: group.generation,
            protocol_type: group.protocol_type.clone(),
            protocol_name: Some(group.protocol.clone().unwrap_or_default()),
            leader: group.leader.clone().unwrap_or_default(),
            skip_assignment,
            member_id: member_id.clone(),
            members,
        }
    }

    /// The generation has its assignment, which is stored: members that asked get their part.
    pub(super) fn answer_syncs(&mut self, group: &mut ClassicGroup) {
        for member_id in group.member_ids() {
            let parked = group.member_mut(&member_id).and_then(|member| member.awaiting_sync.take());
            if let Some(parked) = parked {
                let response = synced(group, &member_id);
                self.complete_sync(&group.id, parked, response);
                self.renew_session(group, &member_id);
            }
        }
    }

    pub(super) fn refuse_syncs(&mut self, group: &mut ClassicGroup, error: ErrorCode) {
        for member_id in group.member_ids() {
            let parked = group.member_mut(&member_id).and_then(|member| member.awaiting_sync.take());
            if let Some(parked) = parked {
                self.complete_sync(&group.id, parked, refuse_sync(error));
                self.renew_session(group, &member_id);
            }
        }
    }

    /// Members that never asked for their part hold everybody up: they are out.
    pub(super) fn sync_deadline(&mut self, group: &mut ClassicGroup) {
        match group.state {
            GroupState::CompletingRebalance | GroupState::Stable => {}
            GroupState::Empty | GroupState::PreparingRebalance => return,
        }
        let missing = std::mem::take(&mut group.pending_syncs);
        if missing.is_empty() {
            return;
        }
        for member_id in missing {
            self.remove_member(group, &member_id);
        }
        self.prepare_rebalance(group);
    }

    pub(super) fn session_deadline(&mut self, group: &mut ClassicGroup, member_id: &Str) {
        if group.is_pending(member_id) {
            self.remove_pending(group, member_id);
            self.maybe_complete_join(group);
            return;
        }
        let Some(member) = group.member(member_id) else { return };
        if !member.is_excused() {
            self.remove_member(group, member_id);
            self.rebalance(group);
        }
    }
}

/// A member's part of the current generation.
pub(super) fn synced(group: &ClassicGroup, member_id: &Str) -> SyncGroupResponse {
    SyncGroupResponse {
        throttle_time_ms: 0,
        error_code: ErrorCode::None,
        protocol_type: group.protocol_type.clone(),
        protocol_name: group.protocol.clone(),
        assignment: group.member(member_id).map(|member| member.assignment.clone()).unwrap_or_default(),
    }
}
