//! Forwarded requests: one long-lived stream per storage node brings them, and takes the answers in any order.
//!
//! A parked JoinGroup waits for minutes, so a request holds nothing but a place among the stream's answers, which is given
//! back when it is answered or abandoned. The lease is asked at the moment at which an answer is written.

use crate::lease::SharedLease;
use crate::metrics::CoordinatorMetrics;
use crate::runtime::OwnedShards;
use crate::shard_task::{Event, ShardRequest};
use bytes::Bytes;
use coordinator_core::GroupRequest;
use kafka_wire_core::{ApiKey, Str};
use parking_lot::Mutex;
use proto_types::coordinator_api::{AnswerFrame, ForwardFrame, ForwardRefusal, ForwardedRequest};
use proto_types::ids::CoordinatorEpoch;
use quic_transport::{Call, FrameReceiver, FrameSender, MessageKind, Role, Roles, RouterBuilder};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;

/// Answers that are written together.
const ANSWERS_PER_WRITE: usize = 64;

/// What the streams work with.
pub(crate) struct ForwardServices {
    pub(crate) shards: Arc<OwnedShards>,
    pub(crate) lease: Arc<SharedLease>,
    pub(crate) metrics: Arc<CoordinatorMetrics>,
    pub(crate) requests_per_stream_max: usize,
}

/// Where the table finds the services, which are made after it.
pub(crate) type ForwardSlot = Arc<OnceLock<ForwardServices>>;

/// Adds the row to the table of the endpoint.
pub(crate) fn add_route(builder: RouterBuilder, slot: &ForwardSlot) -> RouterBuilder {
    let slot = Arc::clone(slot);
    builder.stream(MessageKind::Forward, Roles::of(&[Role::StorageNode]), move |call, sender, receiver| {
        let slot = Arc::clone(&slot);
        async move {
            if let Some(services) = slot.get() {
                serve(services, &call, sender, receiver).await;
            }
        }
    })
}

async fn serve(services: &ForwardServices, call: &Call, sender: FrameSender, receiver: FrameReceiver) {
    services.metrics.streams.inc();
    tracing::debug!(node = %call.caller.identity, "forwarding begins");
    let (answers, answered) = mpsc::channel(services.requests_per_stream_max);
    let (refusals, refused) = mpsc::channel(ANSWERS_PER_WRITE);
    let stream = Stream { services, answers, refusals, open: HashMap::new() };
    // Either half that ends takes the other with it.
    tokio::select! {
        ended = stream.read(receiver) => tracing::debug!(node = %call.caller.identity, ended, "forwarding ends"),
        () = write(sender, answered, refused, &services.lease, &services.metrics) => {}
    }
    services.metrics.streams.dec();
}

/// The reading half of one stream.
struct Stream<'a> {
    services: &'a ForwardServices,
    answers: mpsc::Sender<AnswerFrame>,
    /// Requests that found no place among the answers.
    refusals: mpsc::Sender<AnswerFrame>,
    /// Requests that may still be abandoned, by id.
    open: HashMap<u64, Weak<Place>>,
}

impl Stream<'_> {
    /// Reads until the stream ends; why it did.
    async fn read(mut self, mut receiver: FrameReceiver) -> String {
        loop {
            match receiver.recv_message::<ForwardFrame>().await {
                Ok(Some(ForwardFrame::Request(request))) => {
                    let (id, shard_request) = (request.id, self.take(request));
                    if let Err(reason) = shard_request {
                        self.services.metrics.on_refusal(reason);
                        // Waits for room: a storage node that does not read its answers is not read either.
                        if self.refusals.send(AnswerFrame::Refused { id, reason }).await.is_err() {
                            return "answers are not wanted any more".to_owned();
                        }
                    }
                }
                Ok(Some(ForwardFrame::Abandon { id })) => {
                    if let Some(place) = self.open.remove(&id).and_then(|place| place.upgrade()) {
                        place.permit.lock().take();
                    }
                }
                Ok(None) => return "the storage node ended it".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Brings a request on its way to its shard.
    fn take(&mut self, request: ForwardedRequest) -> Result<(), ForwardRefusal> {
        let services = self.services;
        let api = ApiKey::try_from(request.api_key).map_err(|_| ForwardRefusal::Unsupported)?;
        if !GroupRequest::APIS.contains(&api) {
            return Err(ForwardRefusal::Unsupported);
        }
        services.metrics.on_request(api);
        let handle = services.shards.get(request.shard).ok_or(ForwardRefusal::NotOwner)?;
        let version = request.api_version;
        let body = GroupRequest::decode(api, version, Bytes::from(request.body)).map_err(|error| {
            tracing::debug!(api = api.name(), version, %error, "a malformed request was forwarded");
            ForwardRefusal::Malformed
        })?;
        let permit = self.answers.clone().try_reserve_owned().map_err(|_| ForwardRefusal::Busy)?;
        services.metrics.requests_waiting.inc();
        let metrics = Arc::clone(&services.metrics);
        let place = Arc::new(Place { id: request.id, permit: Mutex::new(Some(permit)), metrics });
        self.remember(request.id, &place);
        let shard_request = ShardRequest {
            api_version: version,
            client_id: Str::from(request.client_id.unwrap_or_default()),
            client_host: Str::from(request.client_host),
            request: body,
            slot: ReplySlot { place: Arc::clone(&place) },
        };
        let (returned, reason) = match handle.try_send(Event::Request(Box::new(shard_request))) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Full(event)) => (event, ForwardRefusal::Busy),
            Err(mpsc::error::TrySendError::Closed(event)) => (event, ForwardRefusal::NotOwner),
        };
        if let Event::Request(returned) = returned {
            returned.slot.refuse(reason);
        }
        Ok(())
    }

    fn remember(&mut self, id: u64, place: &Arc<Place>) {
        if self.open.len() >= self.services.requests_per_stream_max.saturating_mul(2) {
            self.open.retain(|_, place| place.strong_count() > 0);
        }
        self.open.insert(id, Arc::downgrade(place));
    }
}

/// A place among the answers of a stream.
struct Place {
    id: u64,
    /// Taken by the answer, or by the storage node that does not want it any more.
    permit: Mutex<Option<OwnedPermit<AnswerFrame>>>,
    metrics: Arc<CoordinatorMetrics>,
}

impl Place {
    fn send(&self, frame: AnswerFrame) {
        if let Some(permit) = self.permit.lock().take() {
            permit.send(frame);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.requests_waiting.dec();
    }
}

/// Answers one request, exactly once: dropped without an answer, it says that the shard does not answer.
pub(crate) struct ReplySlot {
    place: Arc<Place>,
}

impl ReplySlot {
    /// Gives the answer, valid under `epoch`.
    pub(crate) fn answer(self, epoch: CoordinatorEpoch, body: Vec<u8>) {
        self.place.send(AnswerFrame::Answer { id: self.place.id, epoch, body });
    }

    /// Says that there is none.
    pub(crate) fn refuse(self, reason: ForwardRefusal) {
        if self.place.permit.lock().is_some() {
            self.place.metrics.on_refusal(reason);
            self.place.send(AnswerFrame::Refused { id: self.place.id, reason });
        }
    }
}

impl Drop for ReplySlot {
    fn drop(&mut self) {
        let reason = ForwardRefusal::LogUnavailable;
        self.place.send(AnswerFrame::Refused { id: self.place.id, reason });
    }
}

/// The writing half: what was decided under a lease that has run out meanwhile is not said.
async fn write(
    mut sender: FrameSender,
    mut answered: mpsc::Receiver<AnswerFrame>,
    mut refused: mpsc::Receiver<AnswerFrame>,
    lease: &SharedLease,
    metrics: &CoordinatorMetrics,
) {
    let mut frames = Vec::with_capacity(ANSWERS_PER_WRITE);
    loop {
        tokio::select! {
            count = answered.recv_many(&mut frames, ANSWERS_PER_WRITE) => if count == 0 { return },
            Some(frame) = refused.recv() => frames.push(frame),
        }
        if !lease.holds() {
            for frame in &mut frames {
                if let AnswerFrame::Answer { id, .. } = frame {
                    metrics.on_answer_without_lease();
                    *frame = AnswerFrame::Refused { id: *id, reason: ForwardRefusal::LogUnavailable };
                }
            }
        }
        let limit = sender.frame_bytes_max();
        let encoded = frames.drain(..).map(|frame| fitting(frame, limit)).collect();
        if let Err(error) = sender.send_all(encoded).await {
            tracing::debug!(%error, "an answer could not be sent");
            return;
        }
    }
}

/// The frame's bytes. An answer that does not fit is replaced by a refusal that no client repeats the request on: sent, it
/// would end the stream with all other requests of the storage node.
fn fitting(frame: AnswerFrame, limit: usize) -> Bytes {
    let encoded = proto_types::encode(&frame);
    let (AnswerFrame::Answer { id, .. } | AnswerFrame::Refused { id, .. }) = frame;
    if encoded.len() <= limit {
        return Bytes::from(encoded);
    }
    tracing::warn!(
        id,
        bytes = encoded.len(),
        limit,
        "an answer is too large for a storage node; ask for less"
    );
    Bytes::from(proto_types::encode(&AnswerFrame::Refused { id, reason: ForwardRefusal::Malformed }))
}
