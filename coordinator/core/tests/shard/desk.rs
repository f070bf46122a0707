//! [`Desk`]: a shard with a clock that the test moves, and members that ask it things.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use coordinator_core::{
    Completion, Config, Decision, GroupReply, GroupRequest, Now, RequestContext, Shard, StoredRecord, Token,
    Topic, TopicImage,
};
use kafka_wire_core::ErrorCode;
use kafka_wire_core::Str;
use kafka_wire_core::messages::heartbeat::HeartbeatRequest;
use kafka_wire_core::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use kafka_wire_core::messages::sync_group::{
    SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse,
};
use uuid::Uuid;

pub(crate) const WALL: i64 = 1_700_000_000_000;

/// Topics "t" (id 7) and "u" (id 8) with four partitions each, but for those that a test takes away.
#[derive(Default)]
pub(crate) struct Image {
    pub(crate) topics: BTreeMap<String, (u128, i32)>,
}

impl Image {
    pub(crate) fn usual() -> Self {
        Image { topics: BTreeMap::from([("t".to_owned(), (7, 4)), ("u".to_owned(), (8, 4))]) }
    }
}

impl TopicImage for Image {
    fn by_name(&self, name: &str) -> Option<Topic> {
        let (id, partitions) = *self.topics.get(name)?;
        Some(Topic { name: name.into(), id: Uuid::from_u128(id), partitions })
    }

    fn by_id(&self, id: Uuid) -> Option<Topic> {
        let name = self.topics.iter().find(|(_, (known, _))| Uuid::from_u128(*known) == id)?.0;
        self.by_name(name)
    }
}

pub(crate) struct Desk {
    pub(crate) config: Arc<Config>,
    pub(crate) shard: Shard,
    pub(crate) image: Image,
    pub(crate) now: i64,
    /// Every record so far.
    pub(crate) log: Vec<StoredRecord>,
    /// Completions that nobody has picked up, by token.
    pub(crate) done: BTreeMap<Token, Completion>,
    next_token: u64,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Desk::with(Config { group_initial_rebalance_delay_ms: 0, ..Config::default() })
    }

    pub(crate) fn with(config: Config) -> Self {
        let config = Arc::new(config);
        let mut desk = Desk {
            shard: Shard::new(Arc::clone(&config)),
            config,
            image: Image::usual(),
            now: 0,
            log: Vec::new(),
            done: BTreeMap::new(),
            next_token: 0,
        };
        let opened = desk.shard.open(desk.time());
        desk.take_in(opened);
        desk
    }

    pub(crate) fn time(&self) -> Now {
        Now { monotonic: self.now, wall: WALL + self.now }
    }

    pub(crate) fn take_in(&mut self, decision: Decision) {
        self.log.extend(decision.records);
        for completion in decision.completions {
            completion.reply.encode(completion.version).expect("every reply can be written");
            let twice = self.done.insert(completion.token, completion);
            assert_eq!(twice, None, "a request has one reply");
        }
        self.shard.check().unwrap();
    }

    /// Asks in a version; the reply, if it comes at once, is in `done`.
    pub(crate) fn ask(&mut self, version: i16, request: GroupRequest) -> Token {
        self.next_token += 1;
        let context = RequestContext {
            token: Token(self.next_token),
            api_version: version,
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            fresh_id: Uuid::from_u128(u128::from(self.next_token)),
        };
        let decision = self.shard.handle(self.time(), &context, &request, &self.image);
        self.take_in(decision);
        Token(self.next_token)
    }

    /// Asks something that is answered at once.
    pub(crate) fn answer(&mut self, version: i16, request: GroupRequest) -> GroupReply {
        let token = self.ask(version, request);
        self.done.remove(&token).expect("answered at once").reply
    }

    /// Lets time pass, deadline by deadline.
    pub(crate) fn pass(&mut self, ms: i64) {
        let until = self.now + ms;
        while let Some(at) = self.shard.next_deadline().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            while let Some(decision) = self.shard.tick(self.time()) {
                self.take_in(decision);
            }
        }
        self.now = until;
    }

    /// The same shard, at another coordinator.
    pub(crate) fn fail_over(&mut self) {
        self.shard = Shard::new(Arc::clone(&self.config));
        for record in &self.log {
            self.shard.replay(&record.key, record.value.as_ref()).unwrap();
        }
        self.done.clear();
        let opened = self.shard.open(self.time());
        self.take_in(opened);
    }

    pub(crate) fn join(&mut self, version: i16, member: &Asking) -> Token {
        self.ask(version, GroupRequest::Join(member.join()))
    }

    pub(crate) fn joined(&mut self, token: Token) -> JoinGroupResponse {
        match self.done.remove(&token).expect("answered").reply {
            GroupReply::Join(response) => response,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn synced(&mut self, token: Token) -> SyncGroupResponse {
        match self.done.remove(&token).expect("answered").reply {
            GroupReply::Sync(response) => response,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn sync(&mut self, member: &Asking, parts: &[(&Str, &str)]) -> Token {
        self.ask(5, GroupRequest::Sync(member.sync(parts)))
    }

    pub(crate) fn beat(&mut self, member: &Asking) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: member.group.clone(),
            generation_id: member.generation,
            member_id: member.id.clone(),
            group_instance_id: member.instance_id.clone(),
        };
        match self.answer(4, GroupRequest::Heartbeat(request)) {
            GroupReply::Heartbeat(response) => response.error_code,
            other => panic!("{other:?}"),
        }
    }

    /// Joins a new dynamic member of version 3, which needs no id first.
    pub(crate) fn enter(&mut self, member: &Asking) -> Token {
        self.join(3, member)
    }

    /// A group of these members, stable; the first one leads.
    pub(crate) fn stable(&mut self, members: &mut [Asking]) {
        let tokens: Vec<Token> = members
            .iter()
            .map(|member| self.join(if member.instance_id.is_some() { 9 } else { 3 }, member))
            .collect();
        self.pass(0);
        for (member, token) in members.iter_mut().zip(&tokens) {
            if self.done.contains_key(token) {
                let response = self.joined(*token);
                member.take(&response);
            }
        }
        // All but the first came while it was the whole group: they join again with it.
        if members.len() > 1 {
            let again: Vec<Token> = members.iter().map(|member| self.join(9, member)).collect();
            for (member, token) in members.iter_mut().zip(again) {
                let response = self.joined(token);
                member.take(&response);
            }
        }
        let leader = members.iter().position(|member| member.leads).unwrap();
        let parts: Vec<(Str, String)> =
            members.iter().map(|member| (member.id.clone(), format!("part of {}", member.id))).collect();
        let parts: Vec<(&Str, &str)> = parts.iter().map(|(id, part)| (id, part.as_str())).collect();
        let token = self.sync(&members[leader], &parts);
        assert_eq!(self.synced(token).error_code, ErrorCode::None);
        for index in (0..members.len()).filter(|index| *index != leader) {
            let token = self.sync(&members[index], &[]);
            assert_eq!(self.synced(token).error_code, ErrorCode::None);
        }
    }
}

/// A member as the test plays it.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) group: Str,
    pub(crate) id: Str,
    pub(crate) instance_id: Option<Str>,
    pub(crate) generation: i32,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) protocol_type: Str,
    pub(crate) protocols: Vec<(Str, Bytes)>,
    pub(crate) leads: bool,
}

/// A subscription to these topics.
pub(crate) fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0];
    bytes.extend_from_slice(&(topics.len() as i32).to_be_bytes());
    for topic in topics {
        bytes.extend_from_slice(&(topic.len() as i16).to_be_bytes());
        bytes.extend_from_slice(topic.as_bytes());
    }
    bytes.extend_from_slice(&[0xff; 4]);
    bytes.into()
}

impl Asking {
    pub(crate) fn new(group: &str) -> Self {
        Asking {
            group: group.into(),
            id: Str::default(),
            instance_id: None,
            generation: -1,
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 30_000,
            protocol_type: "consumer".into(),
            protocols: vec![("range".into(), subscription(&["t"]))],
            leads: false,
        }
    }

    pub(crate) fn named(group: &str, instance_id: &str) -> Self {
        Asking { instance_id: Some(instance_id.into()), ..Asking::new(group) }
    }

    pub(crate) fn take(&mut self, response: &JoinGroupResponse) {
        self.id = response.member_id.clone();
        self.generation = response.generation_id;
        self.leads = response.leader == response.member_id;
    }

    pub(crate) fn join(&self) -> JoinGroupRequest {
        let protocols = self.protocols.iter().map(|(name, metadata)| JoinGroupRequestProtocol {
            name: name.clone(),
            metadata: metadata.clone(),
        });
        JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            member_id: self.id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: self.protocol_type.clone(),
            protocols: protocols.collect(),
            reason: None,
        }
    }

    pub(crate) fn sync(&self, parts: &[(&Str, &str)]) -> SyncGroupRequest {
        let assignments = parts.iter().map(|(id, part)| SyncGroupRequestAssignment {
            member_id: (*id).clone(),
            assignment: Bytes::copy_from_slice(part.as_bytes()),
        });
        SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: None,
            protocol_name: None,
            assignments: assignments.collect(),
        }
    }
}
