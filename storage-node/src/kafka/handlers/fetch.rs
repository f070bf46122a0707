//! Fetch: read record batches, waiting for them if the client asks for it.
//!
//! The partitions are read in the order of the request or session, each within what the ones before it left of the
//! answer's size; the first batch that is found comes whole, whatever its size (KIP-74). What is read are regions of the
//! log's files, which the connection sends by `sendfile`; nothing here looks at records. If too little is there, the
//! request waits until enough was committed, once, and then answers with what it finds.
//!
//! Followers serve consumers too (KIP-392): see [`read_replica`](crate::kafka::read_replica).

use std::sync::Arc;
use std::time::Duration;

use kafka_wire::RequestContext;
use kafka_wire_core::messages::fetch::{
    AbortedTransaction, EpochEndOffset, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse,
    ForgottenTopic, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use kafka_wire_core::{ErrorCode, Part, Records, Region};
use log_engine::{LogReader, LogSlice, ReadError, SlicePart};
use proto_types::ids::{NodeId, PartitionIndex};
use proto_types::metadata::PartitionState;
use storage_node_core::image::ClusterImage;
use storage_node_core::{Isolation, LeadershipError, Standing, View};

use crate::kafka::error_code::KafkaError;
use crate::kafka::fetch_sessions::{PartitionKey, SessionRequest, Wanted};
use crate::kafka::find_partition::{self, TopicKey};
use crate::kafka::read_replica::{self, Reader, ReplicaSelector};
use crate::node::Node;
use crate::partition::PartitionHandle;
use crate::partition::fetch_wait::FetchWait;

/// From this version on topics are named by id.
const TOPIC_ID_MIN: i16 = 13;
/// From this version on the answer names the leader to whoever asked the wrong node.
const LEADER_HINT_MIN: i16 = 16;
/// From this version on a client knows that there are followers to read from.
const FOLLOWER_MIN: i16 = 11;
/// Reads only what transactions have decided.
const READ_COMMITTED: i8 = 1;

pub(crate) async fn handle(node: Arc<Node>, context: RequestContext, request: FetchRequest) -> FetchResponse {
    let version = context.api_version;
    if request.replica_id >= 0 || request.replica_state.replica_id >= 0 {
        // Replicas of Weir do not come through this door.
        return FetchResponse {
            error_code: ErrorCode::ClusterAuthorizationFailed,
            ..FetchResponse::default()
        };
    }
    let read = Read {
        node: &node,
        bytes_max: usize::try_from(request.max_bytes).unwrap_or(0).min(node.fetch_bytes_max()),
        isolation: match request.isolation_level {
            READ_COMMITTED => Isolation::ReadCommitted,
            _ => Isolation::ReadUncommitted,
        },
        from_followers: version >= FOLLOWER_MIN,
        listener: &context.listener.name,
        rack: (node.replica_selector() == ReplicaSelector::RackAware && !request.rack_id.is_empty())
            .then(|| request.rack_id.to_string()),
    };
    let bytes_min = usize::try_from(request.min_bytes).unwrap_or(0).min(read.bytes_max);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let sessions = node.fetch_sessions();
    let session = match sessions.begin(node.clock().monotonic(), session_request(version, request)) {
        Ok(session) => session,
        Err(error_code) => return FetchResponse { error_code, ..FetchResponse::default() },
    };
    let mut found = read.all(&session.partitions).await;
    if found.bytes < bytes_min && !found.answer_now && !found.waiting_at.is_empty() && !wait.is_zero() {
        wait_for_more(&found, read.isolation, bytes_min, wait, &context).await;
        found = read.all(&session.partitions).await;
    }
    node.partitions().metrics().on_fetched(found.bytes);
    let outcome = sessions.finish(node.clock().monotonic(), session, found.partitions);
    node.partitions().metrics().set_fetch_sessions(sessions.len());
    let mut response = FetchResponse { session_id: outcome.session_id, ..FetchResponse::default() };
    if version >= LEADER_HINT_MIN {
        let mut partitions = outcome.partitions;
        response.node_endpoints = name_leaders(&node.image(), &context.listener.name, &mut partitions);
        response.responses = by_topic(partitions);
    } else {
        response.responses = by_topic(outcome.partitions);
    }
    response
}

fn session_request(version: i16, request: FetchRequest) -> SessionRequest {
    let by_id = version >= TOPIC_ID_MIN;
    let key = |topic, topic_id| match by_id {
        true => TopicKey::Id(topic_id),
        false => TopicKey::name(topic),
    };
    let mut wanted = Vec::new();
    for FetchTopic { topic, topic_id, partitions } in request.topics {
        let topic = key(topic, topic_id);
        wanted.extend(partitions.into_iter().map(|partition| {
            let key = PartitionKey { topic: topic.clone(), partition: partition.partition };
            let wanted = Wanted {
                current_leader_epoch: partition.current_leader_epoch,
                fetch_offset: partition.fetch_offset,
                last_fetched_epoch: partition.last_fetched_epoch,
                bytes_max: partition.partition_max_bytes,
            };
            (key, wanted)
        }));
    }
    let mut forgotten = Vec::new();
    for ForgottenTopic { topic, topic_id, partitions } in request.forgotten_topics_data {
        let topic = key(topic, topic_id);
        forgotten
            .extend(partitions.into_iter().map(|partition| PartitionKey { topic: topic.clone(), partition }));
    }
    let (session_id, session_epoch) = (request.session_id, request.session_epoch);
    SessionRequest { session_id, session_epoch, by_id, wanted, forgotten }
}

/// What holds for all partitions of a request.
struct Read<'a> {
    node: &'a Node,
    bytes_max: usize,
    isolation: Isolation,
    /// Whether a follower may answer.
    from_followers: bool,
    listener: &'a str,
    /// The consumer's rack, if replicas are chosen by it.
    rack: Option<String>,
}

/// What one pass over the partitions found.
#[derive(Default)]
struct Found {
    partitions: Vec<(PartitionKey, PartitionData)>,
    bytes: usize,
    /// An error, or anything else that must not wait.
    answer_now: bool,
    /// Partitions where more may come.
    waiting_at: Vec<WaitingAt>,
}

struct WaitingAt {
    handle: PartitionHandle,
    /// The partition's count of readable bytes before it was read.
    seen: i64,
    /// Bytes that would still be read of it.
    room: i64,
}

impl Read<'_> {
    async fn all(&self, partitions: &[(PartitionKey, Wanted)]) -> Found {
        let image = self.node.image();
        let mut found = Found::default();
        for (key, wanted) in partitions {
            let mut data = match self.partition(&image, key, wanted, &mut found).await {
                Ok(data) => data,
                Err(error) => {
                    found.answer_now = true;
                    failed(error.code)
                }
            };
            data.partition_index = key.partition;
            if self.isolation == Isolation::ReadCommitted && data.error_code == ErrorCode::None {
                data.aborted_transactions.get_or_insert_default();
            }
            found.partitions.push((key.clone(), data));
        }
        found
    }

    async fn partition(
        &self,
        image: &ClusterImage,
        key: &PartitionKey,
        wanted: &Wanted,
        found: &mut Found,
    ) -> Result<PartitionData, KafkaError> {
        let topic = find_partition::topic(image, &key.topic)?;
        let handle = find_partition::partition(self.node.partitions(), topic, key.partition)?;
        // Taken before the view: what is committed in between counts once more, and never too little.
        let seen = handle.fetch_waiters().readable_bytes(self.isolation);
        let view = handle.view();
        let state = topic.partitions.get(&PartitionIndex(key.partition));
        self.check_reader(image, state, &view, wanted.current_leader_epoch)?;
        let mut data = PartitionData {
            high_watermark: view.high_watermark.0,
            last_stable_offset: view.last_stable.0,
            log_start_offset: view.start.0,
            ..PartitionData::default()
        };
        let diverging = match divergence(&handle, wanted) {
            // A follower may not know yet where its leader's epochs end.
            Ok(Some(_)) | Err(_) if view.standing != Standing::Leader => {
                return Err(LeadershipError::NotLeader.into());
            }
            diverging => diverging?,
        };
        if let Some(diverging) = diverging {
            found.answer_now = true;
            data.diverging_epoch = diverging;
            return Ok(data);
        }
        if let Some(near) = self.nearest(image, state, &handle, &view, wanted.fetch_offset).await {
            found.answer_now = true;
            data.preferred_read_replica = near.0;
            return Ok(data);
        }
        let bytes_max = usize::try_from(wanted.bytes_max).unwrap_or(0);
        let left = self.bytes_max.saturating_sub(found.bytes);
        let min_one = found.bytes == 0;
        let found_here =
            match self.read(&handle, &view, wanted.fetch_offset, bytes_max.min(left), min_one).await {
                Ok(found_here) => found_here,
                Err(error) => {
                    found.answer_now = true;
                    data.error_code = read_error(self.node, &handle, &error);
                    return Ok(data);
                }
            };
        let len = found_here.slice.len();
        found.bytes += len;
        let room = bytes_max.saturating_sub(len) as i64;
        found.waiting_at.push(WaitingAt { handle, seen, room: room.max(1) });
        data.records = Some(to_records(found_here.slice));
        data.aborted_transactions = found_here.aborted;
        Ok(data)
    }

    /// Refuses a client whose idea of the leader is another one, and one that should ask another node.
    fn check_reader(
        &self,
        image: &ClusterImage,
        state: Option<&Arc<PartitionState>>,
        view: &View,
        requested_epoch: i32,
    ) -> Result<(), LeadershipError> {
        match view.check_leader(requested_epoch) {
            Err(LeadershipError::NotLeader)
                if self.from_followers
                    && view.standing == Standing::Follower
                    && state.is_some_and(|state| read_replica::serves(image, self.node.id(), state)) =>
            {
                Ok(())
            }
            checked => checked,
        }
    }

    /// A replica that is nearer to the consumer, if it wants one and this node is the one to say so.
    async fn nearest(
        &self,
        image: &ClusterImage,
        state: Option<&Arc<PartitionState>>,
        handle: &PartitionHandle,
        view: &View,
        fetch_offset: i64,
    ) -> Option<NodeId> {
        let (rack, state) = (self.rack.as_deref()?, state?);
        if view.standing != Standing::Leader {
            return None;
        }
        let reader = Reader { listener: self.listener, rack, fetch_offset };
        read_replica::nearest(image, self.node.id(), state, handle, reader).await
    }

    /// Reads at once if nothing has to be waited for, else on a thread that may wait. Everything of one answer is by the same
    /// view: records by a later one could be of a transaction that the answer's list of aborted ones does not know.
    async fn read(
        &self,
        handle: &PartitionHandle,
        view: &View,
        offset: i64,
        bytes_max: usize,
        min_one: bool,
    ) -> Result<FoundInLog, ReadError> {
        // Planted: the last stable offset is read a second time.
        let view = if cfg!(weir_planted_bug = "B20") { &handle.view() } else { view };
        let range = Range { offset, bytes_max, bound: view.readable_end(self.isolation).0, min_one };
        let isolation = self.isolation;
        if let Some(read) = range.try_read_warm(handle.reader(), isolation) {
            return read;
        }
        let partitions = self.node.partitions();
        partitions.metrics().on_cold_read();
        let reader = handle.reader().clone();
        let read = partitions.read_pool().run(move || range.read(&reader, isolation)).await;
        read.unwrap_or_else(|failed| {
            self.node.log_read_failure(handle.id(), &failed);
            let slice = LogSlice { parts: Vec::new(), next_offset: offset };
            Ok(FoundInLog { slice, aborted: None })
        })
    }
}

/// What is wanted of a log.
#[derive(Clone, Copy)]
struct Range {
    offset: i64,
    bytes_max: usize,
    /// First offset that may not be read.
    bound: i64,
    min_one: bool,
}

/// Records, and for read-committed consumers the aborted transactions among them.
struct FoundInLog {
    slice: LogSlice,
    aborted: Option<Vec<AbortedTransaction>>,
}

impl Range {
    /// Without ever waiting: `None` if something is not in memory.
    fn try_read_warm(
        self,
        reader: &LogReader,
        isolation: Isolation,
    ) -> Option<Result<FoundInLog, ReadError>> {
        let Self { offset, bytes_max, bound, min_one } = self;
        Some(match isolation {
            Isolation::ReadUncommitted => {
                reader.try_read_warm(offset, bytes_max, bound, min_one)?.map(FoundInLog::uncommitted)
            }
            Isolation::ReadCommitted => {
                reader.try_read_committed_warm(offset, bytes_max, bound, min_one)?.map(FoundInLog::committed)
            }
        })
    }

    /// Waits for the disk, and checks what it brings.
    fn read(self, reader: &LogReader, isolation: Isolation) -> Result<FoundInLog, ReadError> {
        let Self { offset, bytes_max, bound, min_one } = self;
        match isolation {
            Isolation::ReadUncommitted => {
                reader.read_checked(offset, bytes_max, bound, min_one).map(FoundInLog::uncommitted)
            }
            Isolation::ReadCommitted => {
                reader.read_committed(offset, bytes_max, bound, min_one).map(FoundInLog::committed)
            }
        }
    }
}

impl FoundInLog {
    fn uncommitted(slice: LogSlice) -> Self {
        Self { slice, aborted: None }
    }

    fn committed((slice, aborted): (LogSlice, Vec<log_engine_core::AbortedTransaction>)) -> Self {
        let aborted = aborted.into_iter();
        let aborted =
            aborted.map(|a| AbortedTransaction { producer_id: a.producer_id, first_offset: a.first_offset });
        Self { slice, aborted: Some(aborted.collect()) }
    }
}

/// Waits until enough is committed, something else happens, the time is over, or the server stops.
async fn wait_for_more(
    found: &Found,
    isolation: Isolation,
    bytes_min: usize,
    wait: Duration,
    context: &RequestContext,
) {
    let missing = bytes_min.saturating_sub(found.bytes) as i64;
    let more = FetchWait::new(missing);
    let _registrations: Vec<_> = found
        .waiting_at
        .iter()
        .map(|at| at.handle.fetch_waiters().register(&more, isolation, at.seen, at.room))
        .collect();
    tokio::select! {
        () = more.done() => {}
        () = tokio::time::sleep(wait) => {}
        () = context.draining.cancelled() => {}
    }
}

/// Where the client's log leaves ours, if it says which epoch it read last (KIP-595).
fn divergence(handle: &PartitionHandle, wanted: &Wanted) -> Result<Option<EpochEndOffset>, KafkaError> {
    if wanted.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let Some((epoch, end)) = handle.epoch_end(wanted.last_fetched_epoch) else {
        let message = format!("no leader epoch as new as {} is known", wanted.last_fetched_epoch);
        return Err(KafkaError::new(ErrorCode::OffsetOutOfRange, message));
    };
    let parts = epoch.0 < wanted.last_fetched_epoch || end.0 < wanted.fetch_offset;
    Ok(parts.then_some(EpochEndOffset { epoch: epoch.0, end_offset: end.0 }))
}

fn read_error(node: &Node, handle: &PartitionHandle, error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Damaged { .. } | ReadError::Io(_) => {
            handle.on_read_error(error);
            node.log_read_failure(handle.id(), error);
            ErrorCode::KafkaStorageError
        }
    }
}

fn failed(error_code: ErrorCode) -> PartitionData {
    PartitionData { error_code, high_watermark: -1, ..PartitionData::default() }
}

fn to_records(slice: LogSlice) -> Records {
    let mut parts: Vec<Part> = slice
        .parts
        .into_iter()
        .map(|part| match part {
            SlicePart::File { file, offset, len } => Part::Region(Region { source: file, offset, len }),
            SlicePart::Bytes(bytes) => Part::Bytes(bytes),
        })
        .collect();
    match parts.pop() {
        None => Records::default(),
        Some(Part::Bytes(bytes)) if parts.is_empty() => Records::Bytes(bytes),
        Some(Part::Region(region)) if parts.is_empty() => Records::Region(region),
        Some(last) => {
            parts.push(last);
            Records::Gather(parts)
        }
    }
}

/// Neighbours of one topic share an entry; the order of the partitions stays.
fn by_topic(partitions: Vec<(PartitionKey, PartitionData)>) -> Vec<FetchableTopicResponse> {
    let mut topics: Vec<FetchableTopicResponse> = Vec::new();
    let mut last_key = None;
    for (key, data) in partitions {
        match topics.last_mut() {
            Some(topic) if last_key.as_ref() == Some(&key.topic) => topic.partitions.push(data),
            _ => {
                let mut topic = FetchableTopicResponse { partitions: vec![data], ..Default::default() };
                match &key.topic {
                    TopicKey::Name(name) => topic.topic = name.text().clone(),
                    TopicKey::Id(id) => topic.topic_id = *id,
                }
                topics.push(topic);
                last_key = Some(key.topic);
            }
        }
    }
    topics
}

/// Tells whoever asked the wrong node who leads, and where that node is (KIP-951).
fn name_leaders(
    image: &ClusterImage,
    listener: &str,
    partitions: &mut [(PartitionKey, PartitionData)],
) -> Vec<NodeEndpoint> {
    let mut leaders = Vec::new();
    for (key, data) in partitions {
        let asked_wrong =
            matches!(data.error_code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
        if asked_wrong && let Some((leader, epoch)) = find_partition::leader(image, &key.topic, key.partition)
        {
            data.current_leader = LeaderIdAndEpoch { leader_id: leader.0, leader_epoch: epoch };
            leaders.push(leader);
        }
    }
    find_partition::endpoints(image, listener, leaders)
        .into_iter()
        .map(|at| NodeEndpoint { node_id: at.node.0, host: at.host, port: at.port, rack: at.rack })
        .collect()
}
