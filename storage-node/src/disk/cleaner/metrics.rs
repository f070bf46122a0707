//! What is counted about compaction.

use std::sync::atomic::AtomicU64;

use log_engine::CompactionCounts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::board::SetAside;

/// Metrics named `weir_storage_node_compaction_*`.
#[derive(Debug, Clone, Default)]
pub(crate) struct CleanerMetrics {
    passes: Counter,
    failures: Counter,
    bytes_mapped: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    seconds: Counter<f64, AtomicU64>,
    dirty_ratio_max: Gauge<f64, AtomicU64>,
    uncleanable: Gauge,
    uncleanable_seconds: Gauge<f64, AtomicU64>,
}

impl CleanerMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let sub = registry.sub_registry_with_prefix("weir_storage_node_compaction");
        sub.register("passes", "Passes over a partition, finished or not", metrics.passes.clone());
        sub.register("failures", "Passes that failed; the log says why", metrics.failures.clone());
        sub.register(
            "mapped_bytes",
            "Bytes read to find the newest record of each key",
            metrics.bytes_mapped.clone(),
        );
        sub.register("in_bytes", "Bytes of segments read to be written anew", metrics.bytes_in.clone());
        sub.register("out_bytes", "Bytes of the segments that came of it", metrics.bytes_out.clone());
        sub.register(
            "seconds",
            "Time spent in passes, waits for the rate limit included",
            metrics.seconds.clone(),
        );
        sub.register(
            "dirty_ratio_max",
            "The largest share of a partition that could be compacted and is not",
            metrics.dirty_ratio_max.clone(),
        );
        sub.register(
            "uncleanable_partitions",
            "Partitions whose last pass failed; they are tried again",
            metrics.uncleanable.clone(),
        );
        sub.register(
            "uncleanable_age_seconds",
            "How long the first of those partitions has failed",
            metrics.uncleanable_seconds.clone(),
        );
        metrics
    }

    pub(super) fn on_pass(&self, counts: &CompactionCounts, ms: i64) {
        self.passes.inc();
        self.bytes_mapped.inc_by(counts.bytes_mapped);
        self.bytes_in.inc_by(counts.bytes_in);
        self.bytes_out.inc_by(counts.bytes_out);
        self.seconds.inc_by(ms.max(0) as f64 / 1e3);
    }

    pub(super) fn on_failure(&self) {
        self.failures.inc();
    }

    pub(super) fn set_dirty_ratio_max(&self, ratio: f64) {
        self.dirty_ratio_max.set(ratio);
    }

    pub(super) fn set_uncleanable(&self, aside: SetAside) {
        self.uncleanable.set(i64::try_from(aside.partitions).unwrap_or(i64::MAX));
        self.uncleanable_seconds.set(aside.oldest_ms as f64 / 1e3);
    }
}
