//! What is counted about compaction.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use log_engine::CompactionCounts;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::board::SetAside;
use crate::partition::PartitionHandle;

/// Partitions that are told by name: the dirtiest.
const DIRTIEST_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartitionLabel {
    topic: String,
    partition: i32,
}

/// Metrics named `weir_storage_node_compaction_*`.
#[derive(Debug, Clone, Default)]
pub(crate) struct CleanerMetrics {
    passes: Counter,
    failures: Counter,
    void: Counter,
    opaque_batches: Counter,
    bytes_mapped: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    seconds: Counter<f64, AtomicU64>,
    dirty_ratio_max: Gauge<f64, AtomicU64>,
    dirty_ratio: Family<PartitionLabel, Gauge<f64, AtomicU64>>,
    /// Those that have a series in it.
    dirtiest: Arc<Mutex<Vec<PartitionLabel>>>,
    uncleanable: Gauge,
    uncleanable_seconds: Gauge<f64, AtomicU64>,
}

impl CleanerMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let sub = registry.sub_registry_with_prefix("weir_storage_node_compaction");
        sub.register("passes", "Passes over a partition, finished or not", metrics.passes.clone());
        sub.register(
            "void",
            "Passes that came to nothing, since the log or its policy changed",
            metrics.void.clone(),
        );
        sub.register(
            "opaque_batches",
            "Batches that were left as they are since they cannot be unpacked",
            metrics.opaque_batches.clone(),
        );
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
            "dirty_ratio",
            "The share of a partition that could be compacted and is not, for those where it is largest",
            metrics.dirty_ratio.clone(),
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
        self.opaque_batches.inc_by(counts.opaque_batches);
        self.seconds.inc_by(ms.max(0) as f64 / 1e3);
    }

    pub(super) fn on_void(&self) {
        self.void.inc();
    }

    pub(super) fn on_failure(&self) {
        self.failures.inc();
    }

    /// Tells how dirty partitions are: of all that are compacted, in any order.
    pub(super) fn set_dirty_ratios<'a>(&self, all: impl Iterator<Item = (&'a PartitionHandle, f64)>) {
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
        self.dirty_ratio_max.set(all.first().map_or(0.0, |first| first.1));
        all.truncate(DIRTIEST_MAX);
        let label = |handle: &PartitionHandle| PartitionLabel {
            topic: handle.settings().topic_name.clone(),
            partition: handle.id().partition.0,
        };
        self.set_dirtiest(all.into_iter().map(|(handle, ratio)| (label(handle), ratio)).collect());
    }

    fn set_dirtiest(&self, now: Vec<(PartitionLabel, f64)>) {
        let mut before = self.dirtiest.lock();
        for (label, ratio) in &now {
            self.dirty_ratio.get_or_create(label).set(*ratio);
        }
        for gone in before.iter().filter(|before| !now.iter().any(|(label, _)| label == *before)) {
            self.dirty_ratio.remove(gone);
        }
        *before = now.into_iter().map(|(label, _)| label).collect();
    }

    pub(super) fn set_uncleanable(&self, aside: SetAside) {
        self.uncleanable.set(i64::try_from(aside.partitions).unwrap_or(i64::MAX));
        self.uncleanable_seconds.set(aside.oldest_ms as f64 / 1e3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_dirtiest_have_a_series() {
        let mut registry = Registry::default();
        let metrics = CleanerMetrics::register(&mut registry);
        let label = |partition| PartitionLabel { topic: "t".into(), partition };
        metrics.set_dirtiest(vec![(label(0), 0.5), (label(1), 0.25)]);
        metrics.set_dirtiest(vec![(label(2), 0.75), (label(0), 0.125)]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let mut series: Vec<&str> = text.lines().filter(|line| line.contains("partition=")).collect();
        series.sort_unstable();
        let name = "weir_storage_node_compaction_dirty_ratio";
        let expected = [(0, "0.125"), (2, "0.75")]
            .map(|(partition, ratio)| format!("{name}{{topic=\"t\",partition=\"{partition}\"}} {ratio}"));
        assert_eq!(series, expected);
    }
}
