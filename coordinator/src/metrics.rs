//! What a coordinator counts. Names begin with `weir_coordinator_`; `docs/metrics.md` explains them.

use coordinator_core::GroupRequest;
use kafka_wire_core::ApiKey;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use proto_types::coordinator_api::ForwardRefusal;
use proto_types::ids::MetadataIndex;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Api {
    api: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Counters and gauges of one coordinator. Shared behind an `Arc`.
#[derive(Debug)]
pub(crate) struct CoordinatorMetrics {
    requests: Family<Api, Counter>,
    refusals: Family<Reason, Counter>,
    answers_without_lease: Counter,
    lease_losses: Counter,
    heartbeats_failed: Counter,
    feed_losses: Counter,
    metadata_index: Gauge,
    pub(crate) requests_waiting: Gauge,
    pub(crate) streams: Gauge,
    pub(crate) shards: Gauge,
    pub(crate) shards_loading: Gauge,
    pub(crate) groups: Gauge,
    pub(crate) members: Gauge,
    reloads: Counter,
    records_skipped: Counter,
    load_seconds: Histogram,
    append_seconds: Histogram,
}

impl CoordinatorMetrics {
    /// Counters in `registry`, which is to carry the prefix `weir_coordinator`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::new();
        // Every series is there from the start, so that a rate can be told of its first event.
        for api in GroupRequest::APIS {
            metrics.requests.get_or_create(&Api { api: api.name() }).inc_by(0);
        }
        for refusal in REFUSALS {
            metrics.refusals.get_or_create(&reason_of(refusal)).inc_by(0);
        }
        let m = &metrics;
        registry.register("requests", "Forwarded requests by API", m.requests.clone());
        registry.register("refusals", "Forwarded requests that got no answer, by reason", m.refusals.clone());
        let counters = [
            (
                "answers_without_lease",
                "Answers held back because the lease had run out",
                &m.answers_without_lease,
            ),
            (
                "lease_losses",
                "Times that the controller told this coordinator it owns nothing",
                &m.lease_losses,
            ),
            ("heartbeats_failed", "Heartbeats without acknowledgement", &m.heartbeats_failed),
            ("feed_losses", "Metadata feeds that ended", &m.feed_losses),
            ("reloads", "Shards dropped and loaded again after an append of unknown outcome", &m.reloads),
            (
                "records_skipped",
                "Stored records of a newer release that loading passed over",
                &m.records_skipped,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let gauges = [
            ("metadata_index", "Index of the newest applied metadata", &m.metadata_index),
            ("requests_waiting", "Requests without an answer, the parked ones included", &m.requests_waiting),
            ("streams", "Streams of storage nodes", &m.streams),
            ("shards", "Shards owned", &m.shards),
            ("shards_loading", "Shards owned that do not answer yet", &m.shards_loading),
            ("groups", "Stored groups of the shards that are served", &m.groups),
            ("members", "Members of those groups", &m.members),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        let histograms = [
            ("load", "Time from the assignment of a shard until it answers", &m.load_seconds),
            ("append", "Time of an append to a shard's log until it is committed", &m.append_seconds),
        ];
        for (name, help, histogram) in histograms {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        }
        metrics
    }

    fn new() -> Self {
        Self {
            requests: Family::default(),
            refusals: Family::default(),
            answers_without_lease: Counter::default(),
            lease_losses: Counter::default(),
            heartbeats_failed: Counter::default(),
            feed_losses: Counter::default(),
            metadata_index: Gauge::default(),
            requests_waiting: Gauge::default(),
            streams: Gauge::default(),
            shards: Gauge::default(),
            shards_loading: Gauge::default(),
            groups: Gauge::default(),
            members: Gauge::default(),
            reloads: Counter::default(),
            records_skipped: Counter::default(),
            load_seconds: Histogram::new(exponential_buckets(0.001, 3.0, 11)),
            append_seconds: Histogram::new(exponential_buckets(0.000_1, 3.0, 11)),
        }
    }

    pub(crate) fn on_request(&self, api: ApiKey) {
        self.requests.get_or_create(&Api { api: api.name() }).inc();
    }

    pub(crate) fn on_refusal(&self, refusal: ForwardRefusal) {
        self.refusals.get_or_create(&reason_of(refusal)).inc();
    }

    pub(crate) fn on_answer_without_lease(&self) {
        self.answers_without_lease.inc();
    }

    pub(crate) fn on_heartbeat(&self, acknowledged: bool) {
        if !acknowledged {
            self.heartbeats_failed.inc();
        }
    }

    pub(crate) fn on_session(&self, live: bool) {
        if !live {
            self.lease_losses.inc();
        }
    }

    pub(crate) fn on_feed_lost(&self) {
        self.feed_losses.inc();
    }

    pub(crate) fn set_metadata_index(&self, index: MetadataIndex) {
        self.metadata_index.set(i64::try_from(index.0).unwrap_or(i64::MAX));
    }

    pub(crate) fn on_loaded(&self, took: Duration, skipped: u64) {
        self.load_seconds.observe(took.as_secs_f64());
        self.records_skipped.inc_by(skipped);
    }

    pub(crate) fn on_reload(&self) {
        self.reloads.inc();
    }

    pub(crate) fn on_append(&self, took: Duration) {
        self.append_seconds.observe(took.as_secs_f64());
    }
}

const REFUSALS: [ForwardRefusal; 6] = [
    ForwardRefusal::NotOwner,
    ForwardRefusal::Loading,
    ForwardRefusal::Busy,
    ForwardRefusal::Malformed,
    ForwardRefusal::Unsupported,
    ForwardRefusal::LogUnavailable,
];

fn reason_of(refusal: ForwardRefusal) -> Reason {
    let reason = match refusal {
        ForwardRefusal::NotOwner => "not_owner",
        ForwardRefusal::Loading => "loading",
        ForwardRefusal::Busy => "busy",
        ForwardRefusal::Malformed => "malformed",
        ForwardRefusal::Unsupported => "unsupported",
        ForwardRefusal::LogUnavailable => "log_unavailable",
    };
    Reason { reason }
}
