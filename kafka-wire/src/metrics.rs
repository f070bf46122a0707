//! What the door counts. Labels are bounded: API names of the table, and the words of closed enums.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::close_reason::CloseReason;
use crate::connection_slots::Refusal;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabel {
    api: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Seconds: from a warm answer to a long poll.
const LATENCY_BUCKETS: [f64; 12] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// The metrics of a [`Server`](crate::Server), named `weir_storage_node_kafka_…`.
#[derive(Debug)]
pub struct WireMetrics {
    connections_open: Gauge,
    connections_accepted: Counter,
    connections_refused: Family<ReasonLabel, Counter>,
    connections_closed: Family<ReasonLabel, Counter>,
    requests: Family<ApiLabel, Counter>,
    request_bytes: Family<ApiLabel, Counter>,
    response_bytes: Family<ApiLabel, Counter>,
    request_failures: Family<ApiLabel, Counter>,
    request_seconds: Family<ApiLabel, Histogram, fn() -> Histogram>,
    handler_panics: Counter,
    cold_reads: Counter,
}

/// The metrics of one row of the table, looked up once.
#[derive(Debug, Clone)]
pub(crate) struct RouteMetrics {
    pub(crate) requests: Counter,
    pub(crate) request_bytes: Counter,
    pub(crate) response_bytes: Counter,
    pub(crate) failures: Counter,
    pub(crate) seconds: Histogram,
}

impl WireMetrics {
    /// Registers the metrics.
    pub fn new(registry: &mut Registry) -> Arc<Self> {
        let registry = registry.sub_registry_with_prefix("weir_storage_node_kafka");
        let metrics = Self::unregistered();
        let m = &metrics;
        registry.register("connections_open", "Open client connections", m.connections_open.clone());
        registry.register(
            "connections_accepted",
            "Client connections accepted",
            m.connections_accepted.clone(),
        );
        registry.register(
            "connections_refused",
            "Client connections refused by a limit",
            m.connections_refused.clone(),
        );
        registry.register(
            "connections_closed",
            "Client connections ended, by reason",
            m.connections_closed.clone(),
        );
        registry.register("requests", "Requests read, by API", m.requests.clone());
        registry.register_with_unit("request", "Bytes of requests", Unit::Bytes, m.request_bytes.clone());
        registry.register_with_unit("response", "Bytes of responses", Unit::Bytes, m.response_bytes.clone());
        registry.register(
            "request_failures",
            "Requests that ended their connection instead of being answered",
            m.request_failures.clone(),
        );
        registry.register_with_unit(
            "request",
            "From the whole request to the response on the socket",
            Unit::Seconds,
            m.request_seconds.clone(),
        );
        registry.register("handler_panics", "Panics caught in request handlers", m.handler_panics.clone());
        registry.register(
            "cold_reads",
            "File ranges read from disk before they were sent",
            m.cold_reads.clone(),
        );
        Arc::new(metrics)
    }

    /// Metrics that nobody scrapes, for servers inside tests and tools.
    pub fn detached() -> Arc<Self> {
        Arc::new(Self::unregistered())
    }

    fn unregistered() -> Self {
        Self {
            connections_open: Gauge::default(),
            connections_accepted: Counter::default(),
            connections_refused: Family::default(),
            connections_closed: Family::default(),
            requests: Family::default(),
            request_bytes: Family::default(),
            response_bytes: Family::default(),
            request_failures: Family::default(),
            request_seconds: Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS)),
            handler_panics: Counter::default(),
            cold_reads: Counter::<u64, AtomicU64>::default(),
        }
    }

    pub(crate) fn route(&self, api: &'static str) -> RouteMetrics {
        let label = ApiLabel { api };
        RouteMetrics {
            requests: self.requests.get_or_create(&label).clone(),
            request_bytes: self.request_bytes.get_or_create(&label).clone(),
            response_bytes: self.response_bytes.get_or_create(&label).clone(),
            failures: self.request_failures.get_or_create(&label).clone(),
            seconds: self.request_seconds.get_or_create(&label).clone(),
        }
    }

    pub(crate) fn on_accepted(&self) {
        self.connections_accepted.inc();
        self.connections_open.inc();
    }

    pub(crate) fn on_refused(&self, refusal: Refusal) {
        self.connections_refused.get_or_create(&ReasonLabel { reason: refusal.label() }).inc();
    }

    pub(crate) fn on_closed(&self, reason: &CloseReason) {
        self.on_cut(reason.label());
    }

    /// A connection ended without a reason of its own (cut at the end of a drain, or its task panicked).
    pub(crate) fn on_cut(&self, reason: &'static str) {
        self.connections_open.dec();
        self.connections_closed.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(crate) fn on_panic(&self) {
        self.handler_panics.inc();
    }

    pub(crate) fn on_cold_read(&self) {
        self.cold_reads.inc();
    }

    /// Panics caught in handlers so far.
    pub fn handler_panics(&self) -> u64 {
        self.handler_panics.get()
    }

    /// Connections open now.
    pub fn connections_open(&self) -> i64 {
        self.connections_open.get()
    }

    /// File ranges that had to be read from disk before they could be sent.
    pub fn cold_reads(&self) -> u64 {
        self.cold_reads.get()
    }
}
