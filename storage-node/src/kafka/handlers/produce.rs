//! Produce: append record batches.
//!
//! Staged: the batches of a request are validated and queued at their partitions before the next request of the
//! connection is looked at, so that a pipelining producer's order stands; the answers come when they come. Nobody gets
//! an answer to acks=0: success is silence, failure ends the connection.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kafka_wire::{OnWritten, Reply, RequestContext};
use kafka_wire_core::messages::produce::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceData,
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse,
};
use kafka_wire_core::{ErrorCode, Records, Str};
use proto_types::ids::Millis;
use storage_node_core::Acks;
use storage_node_core::image::ClusterImage;

use crate::kafka::authorize;
use crate::kafka::error_code::KafkaError;
use crate::kafka::find_partition::{self, TopicKey};
use crate::node::Node;
use crate::partition::handle::PendingProduce;
use crate::partition::validation::{self, InvalidBatch, RecordError};
use crate::partition::{BatchTimes, PartitionHandle, ProduceOutcome, ValidBatch};

/// From this version on topics are named by id.
const TOPIC_ID_MIN: i16 = 13;
/// From this version on the answer names the leader to whoever asked the wrong node.
const LEADER_HINT_MIN: i16 = 10;

pub(crate) async fn handle(
    node: Arc<Node>,
    context: RequestContext,
    request: ProduceRequest,
) -> impl Future<Output = Reply<ProduceResponse>> {
    let version = context.api_version;
    let listener = Arc::clone(&context.listener);
    let arrived = context.arrived;
    let ProduceRequest { transactional_id, acks: asked_acks, timeout_ms, topic_data } = request;
    // These are slices of the frame too. What keeps the frame keeps a batch from being patched in place.
    drop((context, transactional_id));
    let image = node.image();
    let acks = acks(asked_acks);
    let timeout_ms = i64::from(timeout_ms.max(0));
    let deadline = Millis(node.clock().monotonic().0.saturating_add(timeout_ms));
    let mut topics = Vec::with_capacity(topic_data.len());
    for topic in topic_data {
        let TopicProduceData { name: slice, topic_id, partition_data } = topic;
        let name = Str::from(slice.to_string());
        drop(slice);
        let key = match version >= TOPIC_ID_MIN {
            true => TopicKey::Id(topic_id),
            false => TopicKey::name(name.clone()),
        };
        let mut answers = Vec::with_capacity(partition_data.len());
        for partition in partition_data {
            let index = partition.index;
            let queued = match acks {
                Some(acks) => queue(&node, &image, version, &key, partition, acks, deadline).await,
                None => Err(Refusal::from(invalid_acks(asked_acks))),
            };
            answers.push((index, queued));
        }
        topics.push(QueuedTopic { name, key, answers });
    }
    async move {
        let mut response = ProduceResponse::default();
        let mut failure = None;
        let mut times = RequestTimes::default();
        for topic in topics {
            let answer = answer_topic(topic, &mut failure, &mut times).await;
            response.responses.push(answer);
        }
        match (acks, failure) {
            (Some(Acks::None), None) => Reply::Silence,
            (Some(Acks::None), Some(reason)) => Reply::Close(reason.into()),
            _ => {
                if version >= LEADER_HINT_MIN {
                    name_leaders(&node.image(), &listener.name, version, &mut response);
                }
                times.observed(node, arrived, response)
            }
        }
    }
}

struct QueuedTopic {
    name: Str,
    key: TopicKey,
    answers: Vec<(i32, Result<PendingProduce, Refusal>)>,
}

/// The times of a request's batches.
#[derive(Default)]
struct RequestTimes {
    /// Of the batch that was committed last so far.
    last: Option<BatchTimes>,
    /// A batch was not committed, or nobody waited for that.
    incomplete: bool,
}

impl RequestTimes {
    fn note(&mut self, times: Option<BatchTimes>) {
        let Some(times) = times else {
            self.incomplete = true;
            return;
        };
        if self.last.is_none_or(|last| last.committed <= times.committed) {
            self.last = Some(times);
        }
    }

    /// The response, with a look at the clock once it is written, if all of its batches were committed.
    fn observed(
        self,
        node: Arc<Node>,
        arrived: Instant,
        response: ProduceResponse,
    ) -> Reply<ProduceResponse> {
        match self.last.filter(|_| !self.incomplete) {
            Some(last) => {
                let observe = move |written| node.metrics().produce_legs().observe(arrived, &last, written);
                Reply::Observed(response, OnWritten::new(observe))
            }
            None => Reply::Response(response),
        }
    }
}

/// Why a batch was not queued.
struct Refusal {
    error: KafkaError,
    records: Vec<RecordError>,
}

impl<E: Into<KafkaError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self { error: error.into(), records: Vec::new() }
    }
}

fn acks(acks: i16) -> Option<Acks> {
    match acks {
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        -1 => Some(Acks::All),
        _ => None,
    }
}

fn invalid_acks(acks: i16) -> KafkaError {
    KafkaError::new(ErrorCode::InvalidRequiredAcks, format!("acks is {acks}; it must be -1, 0 or 1"))
}

/// Validates one batch and queues it at its partition.
async fn queue(
    node: &Node,
    image: &ClusterImage,
    version: i16,
    key: &TopicKey,
    data: PartitionProduceData,
    acks: Acks,
    deadline: Millis,
) -> Result<PendingProduce, Refusal> {
    let topic = find_partition::topic(image, key)?;
    if authorize::is_internal(&topic.name) {
        let message = Str::from_static("Cannot append to an internal topic.");
        return Err(KafkaError::new(ErrorCode::InvalidTopicException, message).into());
    }
    let handle = find_partition::partition(node.partitions(), topic, data.index)?;
    let bytes = in_one_piece(data.records);
    let header = match validate(node, &handle, version, &bytes).await? {
        Ok(header) => header,
        Err(invalid) => {
            let error = KafkaError::from(&invalid);
            let records = match invalid {
                InvalidBatch::Records(records) | InvalidBatch::Timestamps(records) => records,
                _ => Vec::new(),
            };
            return Err(Refusal { error, records });
        }
    };
    Ok(handle.produce(ValidBatch { bytes, header }, acks, deadline).await?)
}

/// The outer error is not the batch's fault.
async fn validate(
    node: &Node,
    handle: &PartitionHandle,
    version: i16,
    bytes: &Bytes,
) -> Result<Result<records::BatchHeader, InvalidBatch>, KafkaError> {
    let settings = handle.settings();
    let now_ms = node.clock().wall().0;
    if !validation::needs_unpacking(&settings, bytes, now_ms) {
        return Ok(validation::validate(&settings, version, bytes, now_ms));
    }
    let bytes = bytes.clone();
    let pool = node.partitions().read_pool();
    let validated = pool.run(move || validation::validate(&settings, version, &bytes, now_ms)).await;
    validated.map_err(|error| KafkaError::new(ErrorCode::UnknownServerError, error.to_string()))
}

/// Requests are decoded from one frame, so their records are one piece of it.
fn in_one_piece(records: Option<Records>) -> Bytes {
    match records {
        Some(Records::Bytes(bytes)) => bytes,
        Some(Records::Region(_) | Records::Gather(_)) | None => Bytes::new(),
    }
}

/// Waits for the answers of a topic's partitions. The first failure is noted in words.
async fn answer_topic(
    topic: QueuedTopic,
    failure: &mut Option<String>,
    times: &mut RequestTimes,
) -> TopicProduceResponse {
    let mut partition_responses = Vec::with_capacity(topic.answers.len());
    for (index, queued) in topic.answers {
        let outcome = match queued {
            Ok(pending) => pending.outcome().await.map_err(Refusal::from),
            Err(refusal) => Err(refusal),
        };
        times.note(outcome.as_ref().ok().and_then(|outcome| outcome.times));
        if let Err(Refusal { error: KafkaError { code, message }, .. }) = &outcome {
            tracing::debug!(topic = %topic.name, partition = index, ?code, %message, "a batch is refused");
            failure.get_or_insert_with(|| {
                format!("acks=0, and {}-{index} refused a batch: {code:?}: {message}", topic.name)
            });
        }
        partition_responses.push(partition_response(index, outcome));
    }
    let topic_id = match topic.key {
        TopicKey::Id(id) => id,
        TopicKey::Name(_) => uuid::Uuid::nil(),
    };
    TopicProduceResponse { name: topic.name, topic_id, partition_responses }
}

fn partition_response(index: i32, outcome: Result<ProduceOutcome, Refusal>) -> PartitionProduceResponse {
    match outcome {
        Ok(outcome) => PartitionProduceResponse {
            index,
            base_offset: outcome.base_offset.0,
            log_append_time_ms: outcome.log_append_time,
            log_start_offset: outcome.log_start.0,
            ..PartitionProduceResponse::default()
        },
        Err(Refusal { error, records }) => PartitionProduceResponse {
            index,
            error_code: error.code,
            base_offset: -1,
            error_message: Some(error.message),
            record_errors: records.into_iter().map(record_error).collect(),
            ..PartitionProduceResponse::default()
        },
    }
}

fn record_error(error: RecordError) -> BatchIndexAndErrorMessage {
    BatchIndexAndErrorMessage {
        batch_index: error.index,
        batch_index_error_message: Some(error.message.into()),
    }
}

/// Tells whoever asked the wrong node who leads, and where that node is.
fn name_leaders(image: &ClusterImage, listener: &str, version: i16, response: &mut ProduceResponse) {
    let mut leaders = Vec::new();
    for topic in &mut response.responses {
        let key = match version >= TOPIC_ID_MIN {
            true => TopicKey::Id(topic.topic_id),
            false => TopicKey::name(topic.name.clone()),
        };
        for partition in &mut topic.partition_responses {
            if partition.error_code == ErrorCode::NotLeaderOrFollower
                && let Some((leader, leader_epoch)) = find_partition::leader(image, &key, partition.index)
            {
                partition.current_leader = LeaderIdAndEpoch { leader_id: leader.0, leader_epoch };
                leaders.push(leader);
            }
        }
    }
    response.node_endpoints = find_partition::endpoints(image, listener, leaders)
        .into_iter()
        .map(|at| NodeEndpoint { node_id: at.node.0, host: at.host, port: at.port, rack: at.rack })
        .collect();
}
