//! What a storage node counts about itself, beside the door, the partitions and the transport.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use proto_types::ids::MetadataIndex;

use crate::produce_legs::ProduceLegs;

/// Metrics named `weir_storage_node_*`.
#[derive(Debug, Default)]
pub(crate) struct NodeMetrics {
    heartbeats: Family<OutcomeLabel, Counter>,
    fenced: Gauge,
    metadata_index: Gauge,
    applied_index: Gauge,
    feed_losses: Counter,
    admin_requests: Family<OutcomeLabel, Counter>,
    forwards: Family<OutcomeLabel, Counter>,
    stale_answers: Counter,
    produce_legs: ProduceLegs,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

const OK: OutcomeLabel = OutcomeLabel { outcome: "ok" };
const FAILED: OutcomeLabel = OutcomeLabel { outcome: "failed" };

impl NodeMetrics {
    /// Registers everything.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.fenced.set(1);
        for outcome in [&OK, &FAILED] {
            metrics.forwards.get_or_create(outcome).inc_by(0);
        }
        let sub = registry.sub_registry_with_prefix("weir_storage_node");
        sub.register("heartbeats", "Heartbeats to the controllers by outcome", metrics.heartbeats.clone());
        sub.register("fenced", "1 while the node is fenced or not registered", metrics.fenced.clone());
        sub.register(
            "metadata_published_index",
            "Index of the metadata log that the image shows",
            metrics.metadata_index.clone(),
        );
        sub.register(
            "metadata_applied_index",
            "Index of the metadata log up to which the partitions led here are open",
            metrics.applied_index.clone(),
        );
        sub.register(
            "metadata_feed_losses",
            "Times that the metadata feed ended and was opened again",
            metrics.feed_losses.clone(),
        );
        sub.register(
            "admin_requests",
            "Questions to the controllers for clients, by outcome",
            metrics.admin_requests.clone(),
        );
        sub.register(
            "forwarded_requests",
            "Requests of groups forwarded to coordinators, by outcome",
            metrics.forwards.clone(),
        );
        sub.register(
            "stale_answers",
            "Answers of coordinators dropped because the shard had a newer owner",
            metrics.stale_answers.clone(),
        );
        metrics.produce_legs.register(sub);
        metrics
    }

    /// Where producers' time goes.
    pub(crate) fn produce_legs(&self) -> &ProduceLegs {
        &self.produce_legs
    }

    pub(crate) fn on_heartbeat(&self, answered: bool) {
        self.heartbeats.get_or_create(if answered { &OK } else { &FAILED }).inc();
    }

    pub(crate) fn set_fenced(&self, fenced: bool) {
        self.fenced.set(i64::from(fenced));
    }

    pub(crate) fn set_metadata_index(&self, index: MetadataIndex) {
        self.metadata_index.set(index.0.cast_signed());
    }

    pub(crate) fn set_applied_index(&self, index: MetadataIndex) {
        self.applied_index.set(index.0.cast_signed());
    }

    pub(crate) fn on_feed_lost(&self) {
        self.feed_losses.inc();
    }

    pub(crate) fn on_forward(&self, answered: bool) {
        self.forwards.get_or_create(if answered { &OK } else { &FAILED }).inc();
    }

    pub(crate) fn on_stale_answer(&self) {
        self.stale_answers.inc();
    }

    pub(crate) fn on_admin_request(&self, answered: bool) {
        self.admin_requests.get_or_create(if answered { &OK } else { &FAILED }).inc();
    }
}
