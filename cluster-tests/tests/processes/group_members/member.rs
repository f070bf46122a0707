//! One member of the group, written on the plain client so that the test knows what it was told, and when: it joins, assigns
//! as leader, consumes, commits what it has read, and tells the ledger everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_wire::{Client, ClientConfig};
use kafka_wire_core::consumer_protocol::ConsumerAssignment;
use kafka_wire_core::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use kafka_wire_core::messages::heartbeat::HeartbeatRequest;
use kafka_wire_core::messages::join_group::{
    JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponseMember,
};
use kafka_wire_core::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_wire_core::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use kafka_wire_core::{ErrorCode, Records, Request, Str};
use tokio::sync::watch;

use super::ledger::{Ledger, Offsets};
use super::{GROUP, PARTITIONS, REBALANCE_TIMEOUT, SESSION, TOPIC};

const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(300);
/// Between two tries, when nobody answers.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long a fetch waits for records; it paces the member.
const FETCH_WAIT_MS: i32 = 100;
/// Longer than any take-over, so that what became of a request is for the cluster to say.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Tries to leave well; then the session ends it.
const LEAVE_TRIES: usize = 100;

/// What the test wants of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Stay,
    Leave,
    /// Say nothing for so long, keep the partitions, then go on as if nothing had been.
    Stall(Duration),
}

/// Why a member does not go on in its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setback {
    /// No answer, or one that says to come back.
    Retry,
    /// The group rebalances, or is in another generation.
    Rejoin(ErrorCode),
    /// The group does not know the member.
    Forgotten,
    /// The test wants the member to leave.
    Leaving,
}

/// What a member has in a generation.
struct Share {
    generation: i32,
    partitions: BTreeSet<i32>,
}

pub(super) struct Member {
    number: usize,
    ledger: Arc<Ledger>,
    orders: watch::Receiver<Order>,
    /// For the requests of the group, so that no fetch is in their way.
    group: Client,
    log: Client,
    id: Str,
    leaving: bool,
    /// The generation of the last hold, and what was committed in it.
    past: Option<(i32, Offsets)>,
}

pub(super) fn client_config(bootstrap: &str, client_id: &str) -> ClientConfig {
    let mut config = ClientConfig::new(vec![bootstrap.parse().expect("an address")]);
    config.request_timeout = REQUEST_TIMEOUT;
    config.client_id = client_id.to_owned();
    config
}

impl Member {
    /// Joins, works until it is told to leave, and leaves.
    pub(super) async fn run(
        number: usize,
        bootstrap: String,
        ledger: Arc<Ledger>,
        orders: watch::Receiver<Order>,
    ) {
        let config = client_config(&bootstrap, &format!("member-{number}"));
        let group = Client::connect(config.clone()).await.expect("the node is up");
        let log = Client::connect(config).await.expect("the node is up");
        let id = Str::default();
        let mut member = Self { number, ledger, orders, group, log, id, leaving: false, past: None };
        while !member.leaving {
            match member.join().await {
                Ok(share) => member.hold(&share).await,
                Err(setback) => member.step_back(setback).await,
            }
            member.look_for_orders().await;
        }
        member.leave().await;
        member.ledger.quits(number);
    }

    async fn step_back(&mut self, setback: Setback) {
        match setback {
            Setback::Retry => tokio::time::sleep(RETRY_PAUSE).await,
            Setback::Forgotten => self.id = Str::default(),
            Setback::Rejoin(_) | Setback::Leaving => {}
        }
    }

    /// The order to stall, if there is one now.
    async fn look_for_orders(&mut self) -> Option<Duration> {
        match self.orders.has_changed() {
            Ok(false) => None,
            Ok(true) => match *self.orders.borrow_and_update() {
                Order::Stay => None,
                Order::Stall(time) => Some(time),
                Order::Leave => {
                    self.leaving = true;
                    None
                }
            },
            Err(_test_is_over) => {
                self.leaving = true;
                None
            }
        }
    }

    async fn call<R: Request>(&self, client: &Client, request: &R) -> Result<R::Response, Setback> {
        client.call(request).await.map_err(|error| {
            self.ledger.note(format!("member {}: {}: {error}", self.number, R::KEY.name()));
            Setback::Retry
        })
    }

    /// What an error of the group means to the member.
    fn checked(&self, api: &str, code: ErrorCode) -> Result<(), Setback> {
        let setback = match code {
            ErrorCode::None => return Ok(()),
            ErrorCode::UnknownMemberId => Setback::Forgotten,
            ErrorCode::IllegalGeneration | ErrorCode::RebalanceInProgress => Setback::Rejoin(code),
            _ if code.is_retriable() => Setback::Retry,
            _ => {
                self.ledger.fault(format!("member {}: {api} is answered with {code}", self.number));
                Setback::Retry
            }
        };
        self.ledger.note(format!("member {}: {api}: {code}", self.number));
        Err(setback)
    }

    async fn join(&mut self) -> Result<Share, Setback> {
        let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: subscription() };
        let mut request = JoinGroupRequest {
            group_id: GROUP.into(),
            session_timeout_ms: SESSION.as_millis() as i32,
            rebalance_timeout_ms: REBALANCE_TIMEOUT.as_millis() as i32,
            member_id: self.id.clone(),
            protocol_type: "consumer".into(),
            protocols: vec![protocol],
            ..JoinGroupRequest::default()
        };
        let mut joined = self.call(&self.group, &request).await?;
        if joined.error_code == ErrorCode::MemberIdRequired {
            self.id = joined.member_id.clone();
            request.member_id = joined.member_id;
            joined = self.call(&self.group, &request).await?;
        }
        self.checked("JoinGroup", joined.error_code)?;
        self.id = joined.member_id.clone();
        let leads = joined.leader == joined.member_id;
        let sync = SyncGroupRequest {
            group_id: GROUP.into(),
            generation_id: joined.generation_id,
            member_id: self.id.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: if leads { assign(&joined.members) } else { Vec::new() },
            ..SyncGroupRequest::default()
        };
        let synced = self.call(&self.group, &sync).await?;
        self.checked("SyncGroup", synced.error_code)?;
        let assignment = ConsumerAssignment::decode(synced.assignment).expect("we wrote it ourselves");
        let partitions = assignment.topics.into_iter().flat_map(|topic| topic.partitions).collect();
        Ok(Share { generation: joined.generation_id, partitions })
    }

    /// Works in one generation until that is over.
    async fn hold(&mut self, share: &Share) {
        self.ledger.holds(self.number, &self.id, share.generation, &share.partitions);
        // A coordinator that dies in the middle of a rebalance leaves the generation before it, which goes on.
        if let Some((generation, positions)) = self.past.take().filter(|(past, _)| *past != share.generation)
        {
            self.commit_in_the_past(generation, &positions).await;
        }
        let (mut positions, mut heartbeat_due) = (None, Duration::ZERO);
        let setback = loop {
            match self.turn(share, &mut positions, &mut heartbeat_due).await {
                Ok(()) => {}
                Err(Setback::Retry) => tokio::time::sleep(RETRY_PAUSE).await,
                Err(over) => break over,
            }
        };
        if let (Setback::Rejoin(ErrorCode::RebalanceInProgress) | Setback::Leaving, Some(positions)) =
            (setback, &positions)
        {
            // As clients do before they give partitions up; the group may go on without it.
            let _refused = self.commit(share, positions).await;
        }
        self.ledger.releases(self.number, &format!("{setback:?}"));
        self.past = positions.map(|positions| (share.generation, positions));
        self.step_back(setback).await;
    }

    async fn turn(
        &mut self,
        share: &Share,
        positions: &mut Option<Offsets>,
        heartbeat_due: &mut Duration,
    ) -> Result<(), Setback> {
        if let Some(time) = self.look_for_orders().await {
            self.stall(share, positions.as_ref(), time).await?;
        }
        if self.leaving {
            return Err(Setback::Leaving);
        }
        if self.ledger.now() >= *heartbeat_due {
            self.heartbeat(share).await?;
            *heartbeat_due = self.ledger.now() + HEARTBEAT_INTERVAL;
        }
        let positions = match positions {
            Some(positions) => positions,
            None => {
                let who = format!("member {}", self.number);
                let told = fetch_committed(&self.group, &self.ledger, &who, &share.partitions).await;
                let told = told.ok_or(Setback::Retry)?;
                // Nothing committed yet: from the beginning.
                positions.insert(told.into_iter().map(|(partition, told)| (partition, told.max(0))).collect())
            }
        };
        if positions.is_empty() {
            tokio::time::sleep(RETRY_PAUSE).await;
            return Ok(());
        }
        self.consume(positions).await?;
        self.commit(share, positions).await
    }

    async fn stall(&self, share: &Share, positions: Option<&Offsets>, time: Duration) -> Result<(), Setback> {
        self.ledger.note(format!("member {} stalls", self.number));
        tokio::time::sleep(time).await;
        self.ledger.note(format!("member {} goes on", self.number));
        let Some(positions) = positions.filter(|positions| !positions.is_empty()) else { return Ok(()) };
        loop {
            match self.commit(share, positions).await {
                Ok(()) => {
                    self.ledger.fault(format!("member {} may commit after {time:?} of silence", self.number));
                    return Ok(());
                }
                Err(Setback::Retry) => tokio::time::sleep(RETRY_PAUSE).await,
                Err(setback) => return Err(setback),
            }
        }
    }

    async fn heartbeat(&self, share: &Share) -> Result<(), Setback> {
        let request = HeartbeatRequest {
            group_id: GROUP.into(),
            generation_id: share.generation,
            member_id: self.id.clone(),
            group_instance_id: None,
        };
        let sent = self.ledger.now();
        let answer = self.call(&self.group, &request).await?;
        self.checked("Heartbeat", answer.error_code)?;
        self.ledger.heartbeat_accepted(self.number, sent);
        Ok(())
    }

    /// Reads on; the log must go on exactly where the position is.
    async fn consume(&self, positions: &mut Offsets) -> Result<(), Setback> {
        let partition = |(partition, position): (&i32, &i64)| FetchPartition {
            partition: *partition,
            fetch_offset: *position,
            partition_max_bytes: 1 << 16,
            ..FetchPartition::default()
        };
        let partitions = positions.iter().map(partition).collect();
        let topic = FetchTopic { topic: TOPIC.into(), partitions, ..FetchTopic::default() };
        let request = FetchRequest {
            max_wait_ms: FETCH_WAIT_MS,
            min_bytes: 1 << 12,
            max_bytes: 1 << 20,
            topics: vec![topic],
            ..FetchRequest::default()
        };
        let connection = self.log.any().await.map_err(|_| Setback::Retry)?;
        // The last version that names topics.
        let response = connection.call_version(&request, 12).await.map_err(|_| Setback::Retry)?;
        for read in response.responses.iter().flat_map(|topic| &topic.partitions) {
            self.checked("Fetch", read.error_code)?;
            let Some(Records::Bytes(bytes)) = &read.records else { continue };
            let position = positions.get_mut(&read.partition_index).expect("it was asked for");
            // The last batch may be cut off.
            for batch in records::batches(bytes).map_while(Result::ok) {
                if batch.header().base_offset != *position {
                    let found = batch.header().base_offset;
                    self.ledger.fault(format!(
                        "partition {} goes on at {found} instead of {position}",
                        read.partition_index
                    ));
                }
                *position = batch.header().last_offset() + 1;
            }
        }
        Ok(())
    }

    async fn commit(&self, share: &Share, positions: &Offsets) -> Result<(), Setback> {
        let (floors, sent) = (self.ledger.floors(), self.ledger.now());
        self.ledger.commit_begins(positions);
        let codes = self.send_commit(share.generation, positions).await?;
        let mut accepted = positions.clone();
        accepted.retain(|partition, _| codes.get(partition) == Some(&ErrorCode::None));
        if !accepted.is_empty() {
            self.ledger.commit_accepted(self.number, sent, &accepted, &floors);
        }
        if codes.len() != positions.len() {
            self.ledger.fault(format!("member {}: {codes:?} answers {positions:?}", self.number));
        }
        codes.values().try_for_each(|code| self.checked("OffsetCommit", *code))
    }

    /// Commits in the generation before, as a delayed request would: it must be refused.
    async fn commit_in_the_past(&self, generation: i32, positions: &Offsets) {
        let Ok(codes) = self.send_commit(generation, positions).await else { return };
        if codes.values().any(|code| code.is_none()) {
            let number = self.number;
            self.ledger
                .fault(format!("member {number} may commit in generation {generation}, which is over"));
        }
    }

    /// Error codes by partition.
    async fn send_commit(
        &self,
        generation: i32,
        positions: &Offsets,
    ) -> Result<BTreeMap<i32, ErrorCode>, Setback> {
        let partition = |(partition, position): (&i32, &i64)| OffsetCommitRequestPartition {
            partition_index: *partition,
            committed_offset: *position,
            committed_metadata: Some(Str::default()),
            ..OffsetCommitRequestPartition::default()
        };
        let topic = OffsetCommitRequestTopic {
            name: TOPIC.into(),
            partitions: positions.iter().map(partition).collect(),
            ..OffsetCommitRequestTopic::default()
        };
        let request = OffsetCommitRequest {
            group_id: GROUP.into(),
            generation_id_or_member_epoch: generation,
            member_id: self.id.clone(),
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        };
        let connection = self.group.any().await.map_err(|_| Setback::Retry)?;
        // The last version that names topics.
        let response = connection.call_version(&request, 9).await.map_err(|error| {
            self.ledger.note(format!("member {}: OffsetCommit: {error}", self.number));
            Setback::Retry
        })?;
        let answers = response.topics.iter().flat_map(|topic| &topic.partitions);
        Ok(answers.map(|answer| (answer.partition_index, answer.error_code)).collect())
    }

    async fn leave(&self) {
        let identity = MemberIdentity { member_id: self.id.clone(), ..MemberIdentity::default() };
        let request = LeaveGroupRequest {
            group_id: GROUP.into(),
            members: vec![identity],
            ..LeaveGroupRequest::default()
        };
        for _ in 0..LEAVE_TRIES {
            if let Ok(answer) = self.call(&self.group, &request).await {
                let code = answer.members.first().map_or(answer.error_code, |member| member.error_code);
                let code = if answer.error_code.is_none() { code } else { answer.error_code };
                match self.checked("LeaveGroup", code) {
                    Ok(()) | Err(Setback::Forgotten) => return,
                    Err(_) => {}
                }
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

/// Asks for committed offsets and has the ledger check them; none if the answer is to come back later.
pub(super) async fn fetch_committed(
    client: &Client,
    ledger: &Ledger,
    who: &str,
    partitions: &BTreeSet<i32>,
) -> Option<Offsets> {
    let topic = OffsetFetchRequestTopics {
        name: TOPIC.into(),
        partition_indexes: partitions.iter().copied().collect(),
        ..OffsetFetchRequestTopics::default()
    };
    let asked = OffsetFetchRequestGroup {
        group_id: GROUP.into(),
        topics: Some(vec![topic]),
        ..OffsetFetchRequestGroup::default()
    };
    let request = OffsetFetchRequest { groups: vec![asked], require_stable: true, ..Default::default() };
    let floors = ledger.floors();
    let connection = client.any().await.ok()?;
    let response = connection.call_version(&request, 8).await.ok()?;
    let group = response.groups.first()?;
    if !group.error_code.is_none() {
        if !group.error_code.is_retriable() {
            ledger.fault(format!("{who}: OffsetFetch is answered with {}", group.error_code));
        }
        return None;
    }
    let answers = group.topics.iter().flat_map(|topic| &topic.partitions);
    let answer: Offsets = answers.map(|part| (part.partition_index, part.committed_offset)).collect();
    if answer.len() != partitions.len() {
        ledger.fault(format!("{who}: OffsetFetch for {partitions:?} is answered with {answer:?}"));
    }
    ledger.told(who, &floors, &answer);
    Some(answer)
}

/// Kafka's `ConsumerProtocolSubscription`, version 0: one topic, no user data.
fn subscription() -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(0);
    bytes.put_i32(1);
    put_name(&mut bytes, TOPIC);
    bytes.put_i32(-1);
    bytes.freeze()
}

/// Neighbouring partitions to each member, in the order of their ids, as the range assignor does.
fn assign(members: &[JoinGroupResponseMember]) -> Vec<SyncGroupRequestAssignment> {
    let ids: BTreeSet<&str> = members.iter().map(|member| &*member.member_id).collect();
    let count = ids.len() as i32;
    let mut next = 0;
    let mut parts = Vec::new();
    for (index, id) in ids.into_iter().enumerate() {
        let size = PARTITIONS / count + i32::from((index as i32) < PARTITIONS % count);
        let assignment = assignment(next..next + size);
        parts.push(SyncGroupRequestAssignment { member_id: id.into(), assignment });
        next += size;
    }
    parts
}

/// Kafka's `ConsumerProtocolAssignment`, version 0.
fn assignment(partitions: std::ops::Range<i32>) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(0);
    bytes.put_i32(1);
    put_name(&mut bytes, TOPIC);
    bytes.put_i32(partitions.len() as i32);
    partitions.for_each(|partition| bytes.put_i32(partition));
    bytes.put_i32(-1);
    bytes.freeze()
}

fn put_name(bytes: &mut BytesMut, name: &str) {
    bytes.put_i16(name.len() as i16);
    bytes.put_slice(name.as_bytes());
}
