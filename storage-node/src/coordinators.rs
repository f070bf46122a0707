//! Forwards the requests of groups to the coordinators that own their shards.
//!
//! One long-lived stream per coordinator ([`CoordinatorStream`]) carries all requests; who owns a shard, the image says. A
//! coordinator that does not own it (any more, or not yet) is asked once; then the image has the time of
//! `recheck` to say something newer before the owner is looked up again, once. A request is given up when the shard gets
//! another owner: what became of it is not known. An answer that was given under an older
//! coordinator epoch than the image's is not passed on: a newer owner may have said otherwise.

use crate::coordinator_port::{CoordinatorPort, GroupCall, NoAnswer};
use crate::coordinator_stream::{CoordinatorStream, Target, Unsent};
use crate::metrics::NodeMetrics;
use crate::published_image::PublishedImage;
use bytes::Bytes;
use parking_lot::Mutex;
use proto_types::coordinator_api::{AnswerFrame, ForwardRefusal, Shard};
use proto_types::ids::CoordinatorId;
use quic_transport::{BoxFuture, Transport};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::{ClusterImage, ShardImage};

/// Longer than any process lives.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Bounds of [`Coordinators`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardLimits {
    /// Requests at one coordinator without an answer, the parked ones included.
    pub(crate) requests_max: usize,
    /// How long opening a stream may take.
    pub(crate) open_max: Duration,
    /// How long the image may take to tell of a new owner.
    pub(crate) recheck: Duration,
}

/// The streams to all coordinators. Shared behind an `Arc`.
pub(crate) struct Coordinators {
    transport: Arc<dyn Transport>,
    published: Arc<PublishedImage>,
    limits: ForwardLimits,
    streams: Mutex<HashMap<CoordinatorId, Arc<CoordinatorStream>>>,
    metrics: Arc<NodeMetrics>,
}

/// What one try came to.
enum Attempt {
    Answered(Bytes),
    /// The one that was asked does not own the shard.
    NotOwner(ShardImage),
    Failed(NoAnswer),
}

impl Coordinators {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        published: Arc<PublishedImage>,
        limits: ForwardLimits,
        metrics: Arc<NodeMetrics>,
    ) -> Self {
        Self { transport, published, limits, streams: Mutex::default(), metrics }
    }

    async fn forward_call(&self, call: GroupCall) -> Result<Bytes, NoAnswer> {
        let shard = call.shard;
        let asked = match self.attempt(&call).await {
            Attempt::Answered(body) => return Ok(body),
            Attempt::Failed(why) => return Err(why),
            Attempt::NotOwner(asked) => asked,
        };
        let moved = |image: &ClusterImage| image.shard(shard) != Some(asked);
        // Whether it moved or not, the owner that is known then is asked.
        let _image = self.published.wait_for(self.limits.recheck, moved).await;
        match self.attempt(&call).await {
            Attempt::Answered(body) => Ok(body),
            Attempt::Failed(why) => Err(why),
            // It will own the shard as soon as it has heard of it.
            Attempt::NotOwner(_) => Err(NoAnswer::Loading),
        }
    }

    async fn attempt(&self, call: &GroupCall) -> Attempt {
        let image = self.published.load();
        let Some((owner, target)) = owner(&image, call.shard) else {
            return Attempt::Failed(NoAnswer::NotAvailable);
        };
        let stream = self.stream(target);
        // A parked request may wait for minutes, but not at a coordinator that has lost the shard.
        let moved = |image: &ClusterImage| image.shard(call.shard) != Some(owner);
        let answer = tokio::select! {
            answer = stream.ask(call) => answer,
            _image = self.published.wait_for(FOREVER, moved) => {
                return Attempt::Failed(NoAnswer::NotAvailable);
            }
        };
        match answer {
            Ok(AnswerFrame::Answer { epoch, body, .. }) => {
                let current = self.published.load().shard(call.shard).map(|shard| shard.epoch);
                if current.is_some_and(|current| epoch < current) {
                    self.metrics.on_stale_answer();
                    return Attempt::Failed(NoAnswer::NotAvailable);
                }
                Attempt::Answered(body.into())
            }
            Ok(AnswerFrame::Refused { reason, .. }) => match reason {
                ForwardRefusal::NotOwner => Attempt::NotOwner(owner),
                ForwardRefusal::Loading => Attempt::Failed(NoAnswer::Loading),
                ForwardRefusal::Malformed => {
                    tracing::debug!(shard = %call.shard, api = call.api.name(), "a coordinator refuses a request");
                    Attempt::Failed(NoAnswer::Malformed)
                }
                ForwardRefusal::Busy | ForwardRefusal::LogUnavailable | ForwardRefusal::Unsupported => {
                    tracing::debug!(shard = %call.shard, %reason, "a coordinator does not answer");
                    Attempt::Failed(NoAnswer::NotAvailable)
                }
            },
            Err(Unsent(reason)) => {
                tracing::debug!(shard = %call.shard, reason, "forward to a coordinator");
                Attempt::Failed(NoAnswer::NotAvailable)
            }
        }
    }

    /// The stream to a coordinator; a new one for a new incarnation of it.
    fn stream(&self, target: Target) -> Arc<CoordinatorStream> {
        let mut streams = self.streams.lock();
        if let Some(stream) = streams.get(&target.coordinator)
            && *stream.target() == target
        {
            return Arc::clone(stream);
        }
        let coordinator = target.coordinator;
        let transport = Arc::clone(&self.transport);
        let stream = Arc::new(CoordinatorStream::start(transport, target, self.limits));
        streams.insert(coordinator, Arc::clone(&stream));
        stream
    }
}

impl CoordinatorPort for Coordinators {
    fn forward(&self, call: GroupCall) -> BoxFuture<'_, Result<Bytes, NoAnswer>> {
        Box::pin(async move {
            let outcome = self.forward_call(call).await;
            self.metrics.on_forward(outcome.is_ok());
            outcome
        })
    }
}

/// Who owns the shard, and where that coordinator is.
fn owner(image: &ClusterImage, shard: Shard) -> Option<(ShardImage, Target)> {
    let owned = image.shard(shard)?;
    let registration = &image.coordinator(owned.owner?)?.registration;
    let target = Target {
        coordinator: registration.coordinator,
        incarnation: registration.incarnation,
        address: registration.control_address.clone(),
    };
    Some((owned, target))
}
