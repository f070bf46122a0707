//! What a controller counts. Names begin with `weir_controller_`; `docs/metrics.md` explains them.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Counters and gauges of one controller. Cheap to clone; all clones count together.
#[derive(Clone)]
pub(crate) struct ControllerMetrics {
    requests: Counter,
    changes: Counter,
    commits_failed: Counter,
    commit_seconds: Histogram,
    heartbeats: Counter,
    fencings: Counter,
    unfencings: Counter,
    pub(crate) feed_followers: Gauge,
    pub(crate) leader: Gauge,
    pub(crate) term: Gauge,
    pub(crate) applied_index: Gauge,
    pub(crate) nodes: Gauge,
    pub(crate) nodes_fenced: Gauge,
    pub(crate) topics: Gauge,
    pub(crate) partitions: Gauge,
    pub(crate) partitions_without_leader: Gauge,
}

impl ControllerMetrics {
    /// Counters in `registry`, which is to carry the prefix `weir_controller`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Counter::default(),
            changes: Counter::default(),
            commits_failed: Counter::default(),
            commit_seconds: Histogram::new(exponential_buckets(0.000_1, 3.0, 11)),
            heartbeats: Counter::default(),
            fencings: Counter::default(),
            unfencings: Counter::default(),
            feed_followers: Gauge::default(),
            leader: Gauge::default(),
            term: Gauge::default(),
            applied_index: Gauge::default(),
            nodes: Gauge::default(),
            nodes_fenced: Gauge::default(),
            topics: Gauge::default(),
            partitions: Gauge::default(),
            partitions_without_leader: Gauge::default(),
        };
        let m = &metrics;
        registry.register("requests", "Requests whose changes were proposed", m.requests.clone());
        registry.register("changes", "Metadata changes proposed", m.changes.clone());
        registry.register("commits_failed", "Metadata batches that failed", m.commits_failed.clone());
        registry.register_with_unit(
            "commit",
            "Time from proposing a batch until it is applied",
            Unit::Seconds,
            m.commit_seconds.clone(),
        );
        registry.register("heartbeats", "Heartbeats of nodes acknowledged", m.heartbeats.clone());
        registry.register("fencings", "Decisions to fence a node", m.fencings.clone());
        registry.register("unfencings", "Decisions to let a node back in", m.unfencings.clone());
        let gauges = [
            ("feed_followers", "Nodes that follow the metadata here", &m.feed_followers),
            ("leader", "1 if this controller leads the quorum", &m.leader),
            ("term", "Raft's term", &m.term),
            ("applied_index", "Index of the newest applied metadata", &m.applied_index),
            ("nodes", "Registered storage nodes", &m.nodes),
            ("nodes_fenced", "Registered storage nodes that are fenced", &m.nodes_fenced),
            ("topics", "Topics", &m.topics),
            ("partitions", "Partitions", &m.partitions),
            ("partitions_without_leader", "Partitions without leader", &m.partitions_without_leader),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        metrics
    }

    pub(crate) fn proposed(&self, requests: usize, changes: usize) {
        self.requests.inc_by(requests as u64);
        self.changes.inc_by(changes as u64);
    }

    pub(crate) fn committed(&self, took: Duration, succeeded: bool) {
        self.commit_seconds.observe(took.as_secs_f64());
        if !succeeded {
            self.commits_failed.inc();
        }
    }

    pub(crate) fn heartbeat(&self) {
        self.heartbeats.inc();
    }

    pub(crate) fn verdict(&self, fence: bool) {
        if fence {
            self.fencings.inc()
        } else {
            self.unfencings.inc()
        };
    }
}
