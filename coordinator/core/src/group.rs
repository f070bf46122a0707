//! [`ClassicGroup`]: members of one group and what they agree on, without time-outs and records.
//!
//! Stored are only the outcomes of complete rebalances; everything else here is soft and is lost with the process, after
//! which members learn from the errors that they get to join again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kafka_wire_core::Str;
use kafka_wire_core::messages::join_group::{JoinGroupRequestProtocol, JoinGroupResponseMember};

use crate::request::Token;
use crate::stored::{GroupMetadataValue, MemberMetadata};
use crate::subscription;

/// Kind of protocols whose metadata are subscriptions.
const CONSUMER: &str = "consumer";

/// Where a group is in its rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Without members; offsets may remain.
    Empty,
    /// Waits for members to join.
    PreparingRebalance,
    /// Waits for the leader's assignment.
    CompletingRebalance,
    /// Every member has its part, or has only to ask.
    Stable,
}

impl GroupState {
    /// Kafka's name of the state.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }
}

/// A request whose reply comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) token: Token,
    pub(crate) version: i16,
}

/// A member of a classic group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) id: Str,
    pub(crate) instance_id: Option<Str>,
    pub(crate) client_id: Str,
    pub(crate) client_host: Str,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    /// Name and metadata, most wanted first, each name once.
    pub(crate) protocols: Vec<(Str, Bytes)>,
    pub(crate) assignment: Bytes,
    awaiting_join: Option<Parked>,
    pub(crate) awaiting_sync: Option<Parked>,
    /// In its first join: it knows no id yet and cannot send heartbeats.
    pub(crate) is_new: bool,
}

impl Member {
    pub(crate) fn is_awaiting_join(&self) -> bool {
        self.awaiting_join.is_some()
    }

    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }

    /// Whether silence is to be excused: the member waits for an answer of ours. A new member is not: it may have gone
    /// without anybody noticing, since it cannot send heartbeats.
    pub(crate) fn is_excused(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }

    fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    fn protocol_bytes(&self) -> usize {
        self.protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum()
    }

    /// Bytes that it takes in the record of its group, whichever protocol is chosen, at most.
    fn stored_bytes(&self) -> usize {
        let instance = self.instance_id.as_ref().map_or(0, |instance| instance.len());
        let names = self.id.len() + instance + self.client_id.len() + self.client_host.len();
        MEMBER_FRAMING_BYTES + names + self.protocol_bytes() + self.assignment.len()
    }
}

/// Lengths and time-outs of a member in the record of its group.
const MEMBER_FRAMING_BYTES: usize = 4 * 2 + 2 * 4 + 2 * 4;
/// What is put behind a name to make a member's id: a hyphen and a UUID.
const MADE_ID_BYTES: usize = 1 + 36;

/// What a join says of a member.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    pub(crate) instance_id: Option<Str>,
    pub(crate) client_id: Str,
    pub(crate) client_host: Str,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    pub(crate) protocol_type: Str,
    pub(crate) protocols: Vec<(Str, Bytes)>,
    pub(crate) parked: Parked,
}

impl Joining {
    /// What a member that joins like this takes in the record of its group, without its part, at most. Its id is made of
    /// its client id or its name and a UUID.
    pub(crate) fn stored_bytes(&self) -> usize {
        let instance = self.instance_id.as_ref().map_or(0, |instance| instance.len());
        let id = instance.max(self.client_id.len()) + MADE_ID_BYTES;
        let names = id + instance + self.client_id.len() + self.client_host.len();
        MEMBER_FRAMING_BYTES + names + self.protocol_bytes()
    }

    pub(crate) fn protocol_bytes(&self) -> usize {
        self.protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum()
    }
}

/// Protocols of a request, each name once, copied out of the frame.
pub(crate) fn distinct_protocols(protocols: &[JoinGroupRequestProtocol]) -> Vec<(Str, Bytes)> {
    let mut seen = BTreeSet::new();
    let firsts = protocols.iter().filter(|protocol| seen.insert(&protocol.name));
    firsts.map(|p| (p.name.detach(), Bytes::copy_from_slice(&p.metadata))).collect()
}

/// A group of the classic protocol.
#[derive(Clone, Debug)]
pub(crate) struct ClassicGroup {
    pub(crate) id: Str,
    pub(crate) state: GroupState,
    /// In the first rebalance since the group was empty: members gather for a while even if all have joined.
    pub(crate) initial: bool,
    /// Milliseconds by which the first rebalance may still be put off.
    pub(crate) initial_remaining_ms: Option<i64>,
    pub(crate) new_member_added: bool,
    /// Wall clock of the last change of state, or -1.
    pub(crate) state_timestamp: i64,
    pub(crate) protocol_type: Option<Str>,
    pub(crate) protocol: Option<Str>,
    pub(crate) generation: i32,
    pub(crate) leader: Option<Str>,
    members: BTreeMap<Str, Member>,
    static_members: BTreeMap<Str, Str>,
    /// Were given an id and have not come back with it; with the order in which they were.
    pending_joins: BTreeMap<Str, u64>,
    next_pending: u64,
    /// Have joined the generation and have not asked for their part.
    pub(crate) pending_syncs: BTreeSet<Str>,
    awaiting_joins: usize,
    /// How many members support each protocol.
    supported: BTreeMap<Str, usize>,
    /// Topics that the members subscribe to; `None` if that cannot be told.
    subscribed: Option<BTreeSet<Str>>,
}

impl ClassicGroup {
    pub(crate) fn new(id: Str) -> Self {
        ClassicGroup {
            id,
            state: GroupState::Empty,
            initial: false,
            initial_remaining_ms: None,
            new_member_added: false,
            state_timestamp: -1,
            protocol_type: None,
            protocol: None,
            generation: 0,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_joins: BTreeMap::new(),
            next_pending: 0,
            pending_syncs: BTreeSet::new(),
            awaiting_joins: 0,
            supported: BTreeMap::new(),
            subscribed: None,
        }
    }

    /// The group as the log has it: stable with its members, or empty.
    pub(crate) fn from_stored(id: Str, stored: &GroupMetadataValue) -> Self {
        let mut group = ClassicGroup::new(id);
        group.generation = stored.generation;
        group.protocol = stored.protocol.clone();
        group.state_timestamp = stored.current_state_timestamp;
        group.protocol_type = (!stored.protocol_type.is_empty()).then(|| stored.protocol_type.clone());
        for member in &stored.members {
            let protocol = stored.protocol.clone().unwrap_or_default();
            let rebalance_timeout_ms = match member.rebalance_timeout {
                -1 => member.session_timeout,
                timeout => timeout,
            };
            group.insert(Member {
                id: member.member_id.clone(),
                instance_id: member.group_instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout,
                protocols: vec![(protocol, member.subscription.clone())],
                assignment: member.assignment.clone(),
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
            });
        }
        if !group.members.is_empty() {
            group.state = GroupState::Stable;
            group.protocol.get_or_insert_default();
        }
        group.leader = stored.leader.clone().filter(|leader| group.members.contains_key(leader));
        if group.leader.is_none() {
            group.leader = group.members.keys().next().cloned();
        }
        group.compute_subscribed();
        group
    }

    /// The group as it is to be stored.
    pub(crate) fn to_stored(&self) -> GroupMetadataValue {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = self.members.values().map(|member| MemberMetadata {
            member_id: member.id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout: member.rebalance_timeout_ms,
            session_timeout: member.session_timeout_ms,
            subscription: member.metadata(protocol),
            assignment: member.assignment.clone(),
        });
        GroupMetadataValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            current_state_timestamp: self.state_timestamp,
            members: members.collect(),
        }
    }

    pub(crate) fn transition(&mut self, state: GroupState, wall: i64) {
        self.state = state;
        self.state_timestamp = wall;
    }

    pub(crate) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    pub(crate) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub(crate) fn member_ids(&self) -> Vec<Str> {
        self.members.keys().cloned().collect()
    }

    pub(crate) fn member_count(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn static_member(&self, instance_id: &str) -> Option<&Str> {
        self.static_members.get(instance_id)
    }

    pub(crate) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    pub(crate) fn awaiting_joins(&self) -> usize {
        self.awaiting_joins
    }

    pub(crate) fn all_joined(&self) -> bool {
        self.members.len() == self.awaiting_joins && self.pending_joins.is_empty()
    }

    /// Nobody is in it or on the way into it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.state == GroupState::Empty && self.members.is_empty() && self.pending_joins.is_empty()
    }

    /// The longest rebalance time-out of the members, in milliseconds.
    pub(crate) fn rebalance_timeout_ms(&self) -> i64 {
        self.members.values().map(|member| i64::from(member.rebalance_timeout_ms)).max().unwrap_or(0).max(0)
    }

    pub(crate) fn is_pending(&self, id: &str) -> bool {
        self.pending_joins.contains_key(id)
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending_joins.len()
    }

    pub(crate) fn add_pending(&mut self, id: Str) {
        self.pending_joins.insert(id, self.next_pending);
        self.next_pending += 1;
    }

    pub(crate) fn remove_pending(&mut self, id: &str) -> bool {
        self.pending_joins.remove(id).is_some()
    }

    pub(crate) fn oldest_pending(&self) -> Option<Str> {
        self.pending_joins.iter().min_by_key(|(_, order)| **order).map(|(id, _)| id.clone())
    }

    fn insert(&mut self, member: Member) {
        if let Some(instance_id) = &member.instance_id {
            self.static_members.insert(instance_id.clone(), member.id.clone());
        }
        for (name, _) in &member.protocols {
            *self.supported.entry(name.clone()).or_default() += 1;
        }
        self.awaiting_joins += usize::from(member.is_awaiting_join());
        self.members.insert(member.id.clone(), member);
    }

    fn take(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        if let Some(instance_id) = &member.instance_id {
            self.static_members.remove(instance_id);
        }
        for (name, _) in &member.protocols {
            match self.supported.get_mut(name) {
                Some(count) if *count > 1 => *count -= 1,
                Some(_) | None => drop(self.supported.remove(name)),
            }
        }
        self.awaiting_joins -= usize::from(member.is_awaiting_join());
        Some(member)
    }

    /// Adds a member that waits for its first answer.
    pub(crate) fn add(&mut self, id: Str, joining: Joining) {
        if self.members.is_empty() {
            self.protocol_type = Some(joining.protocol_type);
            self.leader = None;
        }
        self.leader.get_or_insert_with(|| id.clone());
        self.pending_joins.remove(&id);
        self.insert(Member {
            id,
            instance_id: joining.instance_id,
            client_id: joining.client_id,
            client_host: joining.client_host,
            rebalance_timeout_ms: joining.rebalance_timeout_ms,
            session_timeout_ms: joining.session_timeout_ms,
            protocols: joining.protocols,
            assignment: Bytes::new(),
            awaiting_join: Some(joining.parked),
            awaiting_sync: None,
            is_new: true,
        });
    }

    /// Takes over what a member says in a new join; returns the join of it that was parked before, if any.
    pub(crate) fn update(&mut self, id: &str, joining: Joining) -> Option<Parked> {
        let mut member = self.take(id)?;
        let superseded = member.awaiting_join.replace(joining.parked);
        member.protocols = joining.protocols;
        member.rebalance_timeout_ms = joining.rebalance_timeout_ms;
        member.session_timeout_ms = joining.session_timeout_ms;
        member.client_id = joining.client_id;
        member.client_host = joining.client_host;
        self.insert(member);
        superseded
    }

    /// Gives a static member a new id; returns what its old self was waiting for: a join, a sync.
    pub(crate) fn replace_static(&mut self, old: &str, new: Str) -> (Option<Parked>, Option<Parked>) {
        let Some(mut member) = self.take(old) else { return (None, None) };
        let parked = (member.awaiting_join.take(), member.awaiting_sync.take());
        member.id = new.clone();
        self.insert(member);
        if self.is_leader(old) {
            self.leader = Some(new.clone());
        }
        if self.pending_syncs.remove(old) {
            self.pending_syncs.insert(new);
        }
        parked
    }

    /// Takes a member out; the lead goes to another.
    pub(crate) fn remove(&mut self, id: &str) -> Option<Member> {
        self.pending_syncs.remove(id);
        let member = self.take(id)?;
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// The join that a member waits for, taken out to be answered.
    pub(crate) fn take_join(&mut self, id: &str) -> Option<Parked> {
        let parked = self.members.get_mut(id)?.awaiting_join.take()?;
        self.awaiting_joins -= 1;
        Some(parked)
    }

    /// Parked requests that `removed` leaves behind: a join, a sync.
    pub(crate) fn parked_of(removed: &Member) -> (Option<Parked>, Option<Parked>) {
        (removed.awaiting_join, removed.awaiting_sync)
    }

    /// Whether a member with these protocols can be in the group.
    pub(crate) fn supports(&self, protocol_type: &str, protocols: &[(Str, Bytes)]) -> bool {
        if self.members.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|(name, _)| self.supported.get(name) == Some(&self.members.len()))
    }

    /// The protocol that most members prefer among those that all support.
    pub(crate) fn select_protocol(&self) -> Option<Str> {
        let all = self.members.len();
        let candidates: BTreeSet<&Str> =
            self.supported.iter().filter(|(_, count)| **count == all).map(|(name, _)| name).collect();
        let mut votes: BTreeMap<&Str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let vote = member.protocols.iter().find(|(name, _)| candidates.contains(name));
            if let Some((name, _)) = vote {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.clone())
    }

    /// Whether the leader has joined; if it has not, another that has takes the lead.
    pub(crate) fn elect_joined_leader(&mut self) -> bool {
        let Some(leader) = &self.leader else { return false };
        if self.members.get(leader).is_some_and(Member::is_awaiting_join) {
            return true;
        }
        match self.members.values().find(|member| member.is_awaiting_join()) {
            Some(member) => self.leader = Some(member.id.clone()),
            None => return false,
        }
        true
    }

    /// Begins the next generation with the members that there are.
    pub(crate) fn next_generation(&mut self, wall: i64) {
        // Kafka's counter would overflow into refusing everybody; after 2^31 rebalances it begins anew.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.initial = false;
        self.initial_remaining_ms = None;
        self.new_member_added = false;
        self.pending_syncs.clear();
        if self.members.is_empty() {
            self.protocol = None;
            self.leader = None;
            self.transition(GroupState::Empty, wall);
        } else {
            self.protocol = self.select_protocol();
            self.transition(GroupState::CompletingRebalance, wall);
        }
        self.compute_subscribed();
    }

    fn compute_subscribed(&mut self) {
        self.subscribed = match &self.protocol {
            _ if !self.is_consumer_group() => None,
            _ if self.members.is_empty() => Some(BTreeSet::new()),
            None => None,
            Some(protocol) => {
                let topics = self.members.values().map(|m| subscription::topics(&m.metadata(protocol)));
                topics.collect::<Option<Vec<_>>>().map(|sets| sets.into_iter().flatten().collect())
            }
        };
    }

    pub(crate) fn is_consumer_group(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// Topics that the members subscribe to, if they are known.
    pub(crate) fn subscribed(&self) -> Option<&BTreeSet<Str>> {
        self.subscribed.as_ref()
    }

    /// Whether some member may be subscribed to the topic.
    pub(crate) fn may_subscribe(&self, topic: &Str) -> bool {
        self.subscribed.as_ref().map_or_else(|| self.is_consumer_group(), |topics| topics.contains(topic))
    }

    /// What the leader needs to assign.
    pub(crate) fn member_list(&self) -> Vec<JoinGroupResponseMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = self.members.values().map(|member| JoinGroupResponseMember {
            member_id: member.id.clone(),
            group_instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol),
        });
        members.collect()
    }

    /// Bytes of what members have said in all their protocols, without that of `except`.
    pub(crate) fn protocol_bytes_without(&self, except: &str) -> usize {
        self.members.values().filter(|m| m.id != *except).map(Member::protocol_bytes).sum()
    }

    /// Bytes that members take in the group's record, whichever protocol is chosen, at most; without `except`, but with
    /// the part that it has.
    pub(crate) fn stored_bytes_without(&self, except: &str) -> usize {
        let of = |m: &Member| if m.id == *except { m.assignment.len() } else { m.stored_bytes() };
        self.members.values().map(of).sum()
    }

    /// The same of all members, had they parts of together `parts` bytes.
    pub(crate) fn stored_bytes_with_parts(&self, parts: usize) -> usize {
        self.members.values().map(|m| m.stored_bytes() - m.assignment.len()).sum::<usize>() + parts
    }

    /// Checks what must hold between turns.
    pub(crate) fn check(&self) -> Result<(), String> {
        let awaiting = self.members.values().filter(|member| member.is_awaiting_join()).count();
        let statics = self.members.values().filter(|member| member.instance_id.is_some()).count();
        let checks = [
            (awaiting == self.awaiting_joins, "counted joins"),
            (statics == self.static_members.len(), "static members are unique"),
            ((self.state == GroupState::Empty) <= self.members.is_empty(), "an empty group has no members"),
            (
                self.members.is_empty() || self.leader.as_ref().is_some_and(|l| self.members.contains_key(l)),
                "the leader is a member",
            ),
            (self.pending_syncs.iter().all(|id| self.members.contains_key(id)), "who must sync is a member"),
            (
                self.pending_joins.keys().all(|id| !self.members.contains_key(id)),
                "who is pending is no member",
            ),
            (
                self.state == GroupState::PreparingRebalance || awaiting == 0,
                "nobody waits to join outside of a rebalance",
            ),
            (
                self.state == GroupState::CompletingRebalance
                    || self.members.values().all(|member| member.awaiting_sync.is_none()),
                "nobody waits for a part outside of a rebalance",
            ),
            (
                self.state == GroupState::Empty
                    || self.state == GroupState::PreparingRebalance
                    || self.protocol.as_ref().is_some_and(|p| self.members.values().all(|m| m.supports(p))),
                "all members support the protocol",
            ),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(format!("group {}: {rule}", self.id)),
            None => Ok(()),
        }
    }
}
