//! A model consumer: joins, syncs, reads from the committed offset on, commits, sends heartbeats; eager or keeping its
//! partitions through a rebalance; static or not; in whatever versions it was built for.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use coordinator_core::{GroupReply, GroupRequest};
use kafka_wire_core::messages::heartbeat::HeartbeatRequest;
use kafka_wire_core::messages::join_group::{
    JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember,
};
use kafka_wire_core::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_wire_core::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use kafka_wire_core::sample::Sampler;
use kafka_wire_core::{ApiKey, ErrorCode, Str};
use uuid::Uuid;

/// The only topic.
pub(crate) const TOPIC: &str = "t";
/// Id of the only topic.
pub(crate) const TOPIC_ID: Uuid = Uuid::from_u128(7);
/// Partitions of the only topic.
pub(crate) const PARTITIONS: i32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Join,
    Sync,
    FetchOffsets,
    Stable,
    /// Fenced, or left: takes no part any more.
    Out,
}

#[derive(Clone, Debug)]
pub(crate) struct Outstanding {
    pub(crate) number: u64,
    pub(crate) sent_at: i64,
    pub(crate) deadline: i64,
    pub(crate) request: GroupRequest,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Versions {
    join: i16,
    sync: i16,
    heartbeat: i16,
    leave: i16,
    commit: i16,
    fetch: i16,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: Str,
    pub(crate) group: Str,
    pub(crate) instance_id: Option<Str>,
    pub(crate) versions: Versions,
    cooperative: bool,
    session_timeout_ms: i32,
    rebalance_timeout_ms: i32,
    /// Counts restarts; word for an earlier process is lost.
    pub(crate) incarnation: u64,
    pub(crate) alive: bool,
    pub(crate) paused_until: i64,
    pub(crate) door: usize,
    pub(crate) phase: Phase,
    pub(crate) member_id: Str,
    pub(crate) generation: i32,
    protocol: Option<Str>,
    /// As leader: the members to assign to.
    members: Vec<JoinGroupResponseMember>,
    pub(crate) owned: BTreeSet<i32>,
    positions: BTreeMap<i32, i64>,
    pub(crate) outstanding: Option<Outstanding>,
    next_number: u64,
    pub(crate) wake: u64,
    pub(crate) not_before: i64,
    next_heartbeat: i64,
    next_commit: i64,
    /// A join of this process or an earlier one ran out of time, so it may still take effect, later than a newer one.
    pub(crate) join_in_doubt: bool,
    user_data: u8,
    pub(crate) commits: u64,
}

impl Client {
    pub(crate) fn new(rng: &mut Sampler, number: usize, group: &str, is_static: bool, doors: usize) -> Self {
        let at_least =
            |rng: &mut Sampler, low: i16, high: i16| low + rng.below((high - low + 1) as usize) as i16;
        // The first version with static members.
        let lowest = |version: i16| if is_static { version } else { 0 };
        let versions = Versions {
            join: at_least(rng, lowest(5), 9),
            sync: at_least(rng, lowest(3), 5),
            heartbeat: at_least(rng, lowest(3), 4),
            leave: at_least(rng, lowest(3), 5),
            commit: at_least(rng, if is_static { 7 } else { 2 }, 10),
            fetch: at_least(rng, 1, 10),
        };
        Client {
            name: format!("c{number}").into(),
            group: group.into(),
            instance_id: is_static.then(|| format!("i{number}").into()),
            versions,
            cooperative: rng.one_in(2),
            session_timeout_ms: 2_000 + rng.below(4_000) as i32,
            rebalance_timeout_ms: 2_000 + rng.below(5_000) as i32,
            incarnation: 0,
            alive: true,
            paused_until: 0,
            door: rng.below(doors),
            phase: Phase::Join,
            member_id: Str::default(),
            generation: -1,
            protocol: None,
            members: Vec::new(),
            owned: BTreeSet::new(),
            positions: BTreeMap::new(),
            outstanding: None,
            next_number: 0,
            wake: 0,
            not_before: 0,
            next_heartbeat: 0,
            next_commit: 0,
            join_in_doubt: false,
            user_data: 0,
            commits: 0,
        }
    }

    /// Who owns what it owns: a static member keeps its name through restarts.
    pub(crate) fn identity(&self) -> Str {
        self.instance_id.clone().unwrap_or_else(|| self.member_id.clone())
    }

    pub(crate) fn restart(&mut self) {
        // What the earlier process sent may still come in.
        self.join_in_doubt |=
            self.outstanding.as_ref().is_some_and(|o| matches!(o.request, GroupRequest::Join(_)));
        self.incarnation += 1;
        self.alive = true;
        self.phase = Phase::Join;
        self.member_id = Str::default();
        self.generation = -1;
        self.protocol = None;
        self.owned.clear();
        self.outstanding = None;
    }

    /// Joins again because what it reads has changed.
    pub(crate) fn resubscribe(&mut self) {
        if self.phase == Phase::Stable && self.outstanding.is_none() {
            self.user_data = self.user_data.wrapping_add(1);
            self.rejoin();
        }
    }

    fn rejoin(&mut self) {
        self.phase = Phase::Join;
        if !self.cooperative {
            self.owned.clear();
        }
    }

    fn subscription(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_slice(b"\0\0\0\0\0\x01\0\x01t\0\0\0\x01");
        bytes.put_u8(self.user_data);
        bytes.freeze()
    }

    fn protocols(&self) -> Vec<JoinGroupRequestProtocol> {
        let names = if self.cooperative { ["sticky", "range"] } else { ["range", "sticky"] };
        let protocol =
            |name: &str| JoinGroupRequestProtocol { name: name.into(), metadata: self.subscription() };
        names.into_iter().map(protocol).collect()
    }

    /// What it would send now, and the API and version of it.
    pub(crate) fn next_request(&mut self, now: i64) -> Option<(ApiKey, i16, GroupRequest)> {
        if let Some(outstanding) = &self.outstanding {
            if now < outstanding.deadline {
                return None;
            }
            self.timed_out();
        }
        if now < self.not_before {
            return None;
        }
        let v = self.versions;
        match self.phase {
            Phase::Out => None,
            Phase::Join => Some((ApiKey::JoinGroup, v.join, self.join())),
            Phase::Sync => Some((ApiKey::SyncGroup, v.sync, self.sync())),
            Phase::FetchOffsets => Some((ApiKey::OffsetFetch, v.fetch, self.fetch())),
            Phase::Stable if now >= self.next_heartbeat => {
                self.next_heartbeat = now + i64::from(self.session_timeout_ms) / 3;
                Some((ApiKey::Heartbeat, v.heartbeat, self.heartbeat()))
            }
            Phase::Stable if now >= self.next_commit && !self.owned.is_empty() => {
                self.next_commit = now + 1_500;
                Some((ApiKey::OffsetCommit, v.commit, self.commit()))
            }
            Phase::Stable => None,
        }
    }

    fn timed_out(&mut self) {
        let request = self.outstanding.take().map(|outstanding| outstanding.request);
        match request {
            Some(GroupRequest::Join(_)) => self.join_in_doubt = true,
            Some(GroupRequest::Sync(_)) => self.rejoin(),
            _ => {}
        }
    }

    pub(crate) fn sent(&mut self, now: i64, request: GroupRequest) -> u64 {
        self.next_number += 1;
        let patience = match request {
            GroupRequest::Join(_) => i64::from(self.rebalance_timeout_ms) + 5_000,
            GroupRequest::Sync(_) => i64::from(self.rebalance_timeout_ms) + 1_000,
            _ => 1_500,
        };
        let number = self.next_number;
        let deadline = now + patience;
        self.outstanding = Some(Outstanding { number, sent_at: now, deadline, request });
        number
    }

    fn join(&self) -> GroupRequest {
        GroupRequest::Join(JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: if self.versions.join == 0 { -1 } else { self.rebalance_timeout_ms },
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: "consumer".into(),
            protocols: self.protocols(),
            reason: None,
        })
    }

    fn sync(&self) -> GroupRequest {
        let ids: Vec<&Str> = self.members.iter().map(|member| &member.member_id).collect();
        let assignments = ids.iter().enumerate().map(|(index, id)| {
            let mut assignment = BytesMut::new();
            let mine = (0..PARTITIONS).filter(|p| *p as usize % ids.len() == index);
            mine.for_each(|partition| assignment.put_i32(partition));
            SyncGroupRequestAssignment { member_id: (*id).clone(), assignment: assignment.freeze() }
        });
        let named = self.versions.sync >= 5;
        GroupRequest::Sync(SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: named.then(|| "consumer".into()),
            protocol_name: self.protocol.clone().filter(|_| named),
            assignments: assignments.collect(),
        })
    }

    fn heartbeat(&self) -> GroupRequest {
        GroupRequest::Heartbeat(HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
        })
    }

    pub(crate) fn leave(&self) -> (ApiKey, i16, GroupRequest) {
        let version = self.versions.leave;
        let several = version >= 3;
        let identity = MemberIdentity {
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            reason: None,
        };
        let request = LeaveGroupRequest {
            group_id: self.group.clone(),
            member_id: if several { Str::default() } else { self.member_id.clone() },
            members: if several { vec![identity] } else { Vec::new() },
        };
        (ApiKey::LeaveGroup, version, GroupRequest::Leave(request))
    }

    fn commit(&mut self) -> GroupRequest {
        let by_id = self.versions.commit >= 10;
        self.commits += 1;
        // Names the commit, so that what is fetched tells where it comes from.
        let label = Str::from(format!("{}/{}/{}", self.name, self.incarnation, self.commits));
        let partitions = self.owned.iter().map(|partition| {
            let position = self.positions.entry(*partition).or_default();
            *position += 1;
            OffsetCommitRequestPartition {
                partition_index: *partition,
                committed_offset: *position,
                committed_leader_epoch: -1,
                committed_metadata: Some(label.clone()),
            }
        });
        let partitions = partitions.collect();
        GroupRequest::Commit(OffsetCommitRequest {
            group_id: self.group.clone(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            retention_time_ms: -1,
            topics: vec![OffsetCommitRequestTopic {
                name: if by_id { Str::default() } else { TOPIC.into() },
                topic_id: if by_id { TOPIC_ID } else { Uuid::nil() },
                partitions,
            }],
        })
    }

    fn fetch(&self) -> GroupRequest {
        let version = self.versions.fetch;
        let indexes: Vec<i32> = self.owned.iter().copied().collect();
        let mut request = OffsetFetchRequest::default();
        if version < 8 {
            let topic = OffsetFetchRequestTopic { name: TOPIC.into(), partition_indexes: indexes };
            request.group_id = self.group.clone();
            request.topics = Some(vec![topic]);
            return GroupRequest::Fetch(request);
        }
        let by_id = version >= 10;
        let topic = OffsetFetchRequestTopics {
            name: if by_id { Str::default() } else { TOPIC.into() },
            topic_id: if by_id { TOPIC_ID } else { Uuid::nil() },
            partition_indexes: indexes,
        };
        let group = OffsetFetchRequestGroup {
            group_id: self.group.clone(),
            topics: Some(vec![topic]),
            ..Default::default()
        };
        request.groups = vec![group];
        GroupRequest::Fetch(request)
    }

    /// Acts on the reply to what it asked; returns the error that it was told, if any.
    pub(crate) fn answered(&mut self, now: i64, reply: &GroupReply) -> ErrorCode {
        let error = error_of(reply);
        match error {
            ErrorCode::None => self.succeeded(now, reply),
            ErrorCode::MemberIdRequired => {
                if let GroupReply::Join(response) = reply {
                    self.member_id = response.member_id.clone();
                }
            }
            ErrorCode::UnknownMemberId => {
                self.member_id = Str::default();
                self.generation = -1;
                self.owned.clear();
                self.rejoin();
            }
            ErrorCode::IllegalGeneration => {
                self.generation = -1;
                self.owned.clear();
                self.rejoin();
            }
            ErrorCode::RebalanceInProgress => {
                // Kafka's clients join again, also when it was a commit that told them.
                self.rejoin();
            }
            ErrorCode::FencedInstanceId => self.phase = Phase::Out,
            ErrorCode::NotCoordinator
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress => {
                self.not_before = now + 100;
                if matches!(reply, GroupReply::Sync(_)) {
                    self.rejoin();
                }
            }
            other => panic!("{}: unexpected {other:?} in {reply:?}", self.name),
        }
        error
    }

    fn succeeded(&mut self, now: i64, reply: &GroupReply) {
        match reply {
            GroupReply::Join(response) => self.joined(response),
            GroupReply::Sync(response) => {
                let mut parts = response.assignment.chunks_exact(4);
                let partition = |part: &[u8]| i32::from_be_bytes(part.try_into().expect("four bytes"));
                self.owned = parts.by_ref().map(partition).collect();
                assert!(parts.remainder().is_empty(), "assignments come back as they were");
                self.phase = Phase::FetchOffsets;
                self.next_heartbeat = now + 500;
                self.next_commit = now + 700;
            }
            GroupReply::Fetch(_) => {
                for (partition, offset, _) in fetched(reply) {
                    self.positions.insert(partition, offset.max(0));
                }
                self.phase = Phase::Stable;
            }
            GroupReply::Leave(_) => self.phase = Phase::Out,
            _ => {}
        }
    }

    fn joined(&mut self, response: &JoinGroupResponse) {
        self.member_id = response.member_id.clone();
        self.generation = response.generation_id;
        self.protocol = response.protocol_name.clone();
        let leads = response.leader == response.member_id && !response.skip_assignment;
        assert!(!leads || !response.members.is_empty(), "a leader is told its members");
        self.members = if leads { response.members.clone() } else { Vec::new() };
        self.phase = Phase::Sync;
    }
}

fn first(mut errors: impl Iterator<Item = ErrorCode>) -> ErrorCode {
    errors.find(|error| *error != ErrorCode::None).unwrap_or(ErrorCode::None)
}

/// The first error in a reply.
pub(crate) fn error_of(reply: &GroupReply) -> ErrorCode {
    match reply {
        GroupReply::Join(r) => r.error_code,
        GroupReply::Sync(r) => r.error_code,
        GroupReply::Heartbeat(r) => r.error_code,
        GroupReply::Leave(r) => {
            let members = r.members.iter().map(|member| member.error_code);
            first(std::iter::once(r.error_code).chain(members))
        }
        GroupReply::Commit(r) => {
            first(r.topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code))
        }
        GroupReply::Fetch(r) => {
            let single = r.topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code);
            let several = r.groups.iter().map(|group| group.error_code);
            first(std::iter::once(r.error_code).chain(single).chain(several))
        }
        other => panic!("no client asks for {other:?}"),
    }
}

/// Partition, offset and metadata of what was fetched.
pub(crate) fn fetched(reply: &GroupReply) -> Vec<(i32, i64, Str)> {
    let GroupReply::Fetch(response) = reply else { return Vec::new() };
    let single = response.topics.iter().flat_map(|topic| &topic.partitions);
    let single = single.map(|p| (p.partition_index, p.committed_offset, p.metadata.clone()));
    let several = response.groups.iter().flat_map(|group| &group.topics).flat_map(|topic| &topic.partitions);
    let several = several.map(|p| (p.partition_index, p.committed_offset, p.metadata.clone()));
    single.chain(several).map(|(p, offset, metadata)| (p, offset, metadata.unwrap_or_default())).collect()
}
