//! [`Shard`]: one partition of `__consumer_offsets`. Requests, deadlines and deleted topics go in one at a time; each turn
//! ends in a [`Decision`], whose records are already part of the state.
//!
//! One file per family of requests: `join` (JoinGroup), `rebalance` (the phases that joins, departures and deadlines
//! drive), `membership` (SyncGroup, Heartbeat, LeaveGroup), `offsets` (commit, fetch, describe, delete), `admin` (describe, list,
//! delete groups), `expiry`.

mod admin;
mod expiry;
mod join;
mod membership;
mod offsets;
mod rebalance;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kafka_wire_core::messages::join_group::JoinGroupResponse;
use kafka_wire_core::messages::sync_group::SyncGroupResponse;
use kafka_wire_core::{ErrorCode, Str};
use uuid::Uuid;

use crate::config::Config;
use crate::deadlines::{Deadline, Deadlines};
use crate::group::{ClassicGroup, GroupState, Parked};
use crate::request::{
    Completion, Decision, GroupReply, GroupRequest, Now, RequestContext, StoredRecord, TopicImage,
    refuse_join, refuse_sync,
};
use crate::state::{Replayed, State};
use crate::stored::{GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, Record, Unreadable};

/// Bytes that a text can have in a stored record.
const STORED_TEXT_MAX: usize = i16::MAX as usize;
/// Bytes that a client's name for itself can have: a new member's id is that name and a UUID.
const NAME_MAX: usize = STORED_TEXT_MAX - 64;

/// Groups and offsets of one partition of `__consumer_offsets`, while a coordinator serves it.
#[derive(Debug)]
pub struct Shard {
    config: Arc<Config>,
    state: State,
    /// Groups with members, or with joins on the way. Others are in `state` alone.
    live: BTreeMap<Str, ClassicGroup>,
    deadlines: Deadlines,
    /// Members of all groups that were given an id and have not come back with it.
    pending_members: usize,
    expiry_cursor: Option<Str>,
    skipped: u64,
}

/// One turn: the parts of a shard that a decision about one group needs, and what it leads to.
struct Turn<'a> {
    now: Now,
    config: &'a Config,
    state: &'a mut State,
    deadlines: &'a mut Deadlines,
    pending_members: &'a mut usize,
    decision: Decision,
}

impl Shard {
    /// A shard without state, to be filled by [`Shard::replay`] and then opened.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Shard {
            config,
            state: State::default(),
            live: BTreeMap::new(),
            deadlines: Deadlines::default(),
            pending_members: 0,
            expiry_cursor: None,
            skipped: 0,
        }
    }

    /// Applies a record of the log, before the shard is opened. An error is damage: the shard must not serve.
    pub fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<Replayed, Unreadable> {
        let replayed = self.state.replay(key, value)?;
        self.skipped += u64::from(replayed == Replayed::Skipped);
        Ok(replayed)
    }

    /// Records of a newer release that replay passed over.
    #[must_use]
    pub fn skipped_records(&self) -> u64 {
        self.skipped
    }

    /// What is stored.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Begins to serve: members of loaded groups get a fresh session, and groups that are too large for a lowered
    /// `group.max.size` rebalance.
    pub fn open(&mut self, now: Now) -> Decision {
        let with_members: Vec<Str> = self
            .state
            .groups()
            .filter(|(_, stored)| !stored.members.is_empty())
            .map(|(id, _)| id.clone())
            .collect();
        let interval = self.config.offsets_retention_check_interval_ms;
        self.deadlines.set(Deadline::Expiry, now.monotonic + interval);
        let mut decision = Decision::default();
        for id in with_members {
            let opened = self.turn(now, &id, |turn, group| {
                for member in group.member_ids() {
                    turn.renew_session(group, &member);
                }
                if group.member_count() > turn.config.group_max_size {
                    turn.prepare_rebalance(group);
                }
            });
            decision.records.extend(opened.records);
            decision.completions.extend(opened.completions);
        }
        decision
    }

    /// Decides a request.
    pub fn handle(
        &mut self,
        now: Now,
        context: &RequestContext,
        request: &GroupRequest,
        topics: &dyn TopicImage,
    ) -> Decision {
        match request {
            GroupRequest::Join(request) => self.join_group(now, context, request),
            GroupRequest::Sync(request) => self.sync_group(now, context, request),
            GroupRequest::Heartbeat(request) => self.heartbeat(now, context, request),
            GroupRequest::Leave(request) => self.leave_group(now, context, request),
            GroupRequest::Commit(request) => self.offset_commit(now, context, request, topics),
            GroupRequest::Fetch(request) => self.offset_fetch(context, request, topics),
            GroupRequest::OffsetDelete(request) => self.offset_delete(now, context, request, topics),
            GroupRequest::Describe(request) => self.describe_groups(context, request),
            GroupRequest::List(request) => self.list_groups(context, request),
            GroupRequest::DeleteGroups(request) => self.delete_groups(now, context, request),
            GroupRequest::DescribeOffsets(request) => {
                self.describe_group_offsets(now, context, request, topics)
            }
        }
    }

    /// When [`Shard::tick`] is next due, on the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<i64> {
        self.deadlines.next()
    }

    /// Acts on the earliest deadline that has come; `None` if none has. To be called until it says so.
    pub fn tick(&mut self, now: Now) -> Option<Decision> {
        let deadline = self.deadlines.pop_due(now.monotonic)?;
        Some(match deadline {
            Deadline::Join(id) => self.turn(now, &id, |turn, group| turn.join_deadline(group)),
            Deadline::Sync(id) => self.turn(now, &id, |turn, group| turn.sync_deadline(group)),
            Deadline::Session(id, member) => {
                self.turn(now, &id, |turn, group| turn.session_deadline(group, &member))
            }
            Deadline::Expiry => self.expire(now),
        })
    }

    /// Removes the offsets of a topic that was deleted. `id` spares those of a new topic with the same name.
    pub fn topic_deleted(&mut self, now: Now, name: &Str, id: Uuid) -> Decision {
        let groups: Vec<Str> = self.state.groups_with_offsets().cloned().collect();
        let mut decision = Decision::default();
        for group in groups {
            let offsets = self.state.offsets(&group);
            let of_topic = offsets.filter(|((topic, _), value)| {
                topic == name && (value.topic_id == id || value.topic_id.is_nil() || id.is_nil())
            });
            let partitions: Vec<i32> = of_topic.map(|((_, partition), _)| *partition).collect();
            for partition in partitions {
                let key = OffsetCommitKey { group: group.clone(), topic: name.clone(), partition };
                write(&mut self.state, &mut decision, now, Record::Offset(key, None));
            }
        }
        decision
    }

    /// Answers everything that is parked with `error`: the shard goes elsewhere, or is loaded anew.
    pub fn close(self, error: ErrorCode) -> Vec<Completion> {
        let mut completions = Vec::new();
        for mut group in self.live.into_values() {
            let id = group.id.clone();
            for member in group.member_ids() {
                let sync = group.member_mut(&member).and_then(|member| member.awaiting_sync.take());
                if let Some(parked) = group.take_join(&member) {
                    let reply = GroupReply::Join(refuse_join(parked.version, member, error));
                    completions.push(completion(&id, parked, reply));
                }
                if let Some(parked) = sync {
                    let reply = GroupReply::Sync(refuse_sync(error));
                    completions.push(completion(&id, parked, reply));
                }
            }
        }
        completions
    }

    /// State, generation and number of members of a group, for metrics and tests.
    #[must_use]
    pub fn group_overview(&self, id: &str) -> Option<(GroupState, i32, usize)> {
        if let Some(group) = self.live.get(id) {
            return Some((group.state, group.generation, group.member_count()));
        }
        let stored = self.state.group(id);
        self.state.knows(id).then(|| (GroupState::Empty, stored.map_or(0, |group| group.generation), 0))
    }

    /// Checks what must hold between turns; an error names the rule that is broken.
    pub fn check(&self) -> Result<(), String> {
        let mut pending = 0;
        for group in self.live.values() {
            group.check()?;
            pending += group.pending_count();
            if group.is_abandoned() {
                return Err(format!("group {}: kept in memory without need", group.id));
            }
            if group.state == GroupState::Stable && self.state.group(&group.id) != Some(&group.to_stored()) {
                return Err(format!("group {}: stable, but not as stored", group.id));
            }
        }
        if pending != self.pending_members {
            return Err(format!("{pending} pending members, counted {}", self.pending_members));
        }
        Ok(())
    }

    /// Whether the group exists, with members or without.
    fn knows(&self, id: &str) -> bool {
        self.live.contains_key(id) || self.state.knows(id)
    }

    /// Runs a turn about one group, which is made from its stored form, or new, if it is not live.
    fn turn(&mut self, now: Now, id: &str, f: impl FnOnce(&mut Turn<'_>, &mut ClassicGroup)) -> Decision {
        let mut group = self.live.remove(id).unwrap_or_else(|| match self.state.group(id) {
            Some(stored) => ClassicGroup::from_stored(Str::from(id), stored),
            None => ClassicGroup::new(Str::from(id)),
        });
        let mut turn = Turn {
            now,
            config: &self.config,
            state: &mut self.state,
            deadlines: &mut self.deadlines,
            pending_members: &mut self.pending_members,
            decision: Decision::default(),
        };
        f(&mut turn, &mut group);
        let decision = turn.decision;
        if !group.is_abandoned() {
            self.live.insert(group.id.clone(), group);
        }
        debug_assert_eq!(self.live.get(id).map_or(Ok(()), ClassicGroup::check), Ok(()));
        decision
    }
}

/// Applies a record and puts it into the decision.
fn write(state: &mut State, decision: &mut Decision, now: Now, record: Record) {
    let (key, value) = record.encode();
    decision.records.push(StoredRecord { group: record.group().clone(), key, value, timestamp: now.wall });
    state.apply(record);
}

fn completion(group: &Str, parked: Parked, reply: GroupReply) -> Completion {
    Completion { token: parked.token, version: parked.version, reply, group: Some(group.clone()) }
}

/// A decision that is a reply and nothing else.
fn reply(context: &RequestContext, group: Option<Str>, reply: GroupReply) -> Decision {
    let completion = Completion { token: context.token, version: context.api_version, reply, group };
    Decision { records: Vec::new(), completions: vec![completion] }
}

impl Turn<'_> {
    fn write(&mut self, record: Record) {
        write(self.state, &mut self.decision, self.now, record);
    }

    fn write_group(&mut self, id: &Str, value: Option<GroupMetadataValue>) {
        self.write(Record::Group(GroupMetadataKey { group: id.clone() }, value));
    }

    fn complete(&mut self, group: &Str, parked: Parked, reply: GroupReply) {
        self.decision.completions.push(completion(group, parked, reply));
    }

    fn complete_join(&mut self, group: &Str, parked: Parked, response: JoinGroupResponse) {
        self.complete(group, parked, GroupReply::Join(response));
    }

    fn refuse_join(&mut self, group: &Str, parked: Parked, member_id: Str, error: ErrorCode) {
        self.complete_join(group, parked, refuse_join(parked.version, member_id, error));
    }

    fn complete_sync(&mut self, group: &Str, parked: Parked, response: SyncGroupResponse) {
        self.complete(group, parked, GroupReply::Sync(response));
    }

    /// Answers what a member was waiting for with an error.
    fn refuse_parked(
        &mut self,
        group: &Str,
        member_id: &Str,
        parked: (Option<Parked>, Option<Parked>),
        error: ErrorCode,
    ) {
        let (join, sync) = parked;
        if let Some(parked) = join {
            self.refuse_join(group, parked, member_id.clone(), error);
        }
        if let Some(parked) = sync {
            self.complete_sync(group, parked, refuse_sync(error));
        }
    }

    /// The member was heard: it may be silent for a session time-out again.
    fn renew_session(&mut self, group: &ClassicGroup, member_id: &Str) {
        let Some(member) = group.member(member_id) else { return };
        let timeout = i64::from(member.session_timeout_ms);
        self.set_session(group, member_id, timeout);
    }

    fn set_session(&mut self, group: &ClassicGroup, member_id: &Str, timeout_ms: i64) {
        let deadline = Deadline::Session(group.id.clone(), member_id.clone());
        self.deadlines.set(deadline, self.now.monotonic + timeout_ms);
    }

    fn cancel_session(&mut self, group: &ClassicGroup, member_id: &Str) {
        self.deadlines.cancel(Deadline::Session(group.id.clone(), member_id.clone()));
    }

    /// Takes a member out and answers what it was waiting for.
    fn remove_member(&mut self, group: &mut ClassicGroup, member_id: &Str) {
        self.cancel_session(group, member_id);
        if let Some(removed) = group.remove(member_id) {
            let parked = ClassicGroup::parked_of(&removed);
            self.refuse_parked(&group.id, member_id, parked, ErrorCode::UnknownMemberId);
        }
    }

    fn remove_pending(&mut self, group: &mut ClassicGroup, member_id: &Str) {
        if group.remove_pending(member_id) {
            *self.pending_members -= 1;
            self.cancel_session(group, member_id);
        }
    }
}
