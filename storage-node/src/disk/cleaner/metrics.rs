//! What is counted about compaction.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use log_engine::CompactionCounts;
use log_engine_core::compact::Dirtiness;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::board::SetAside;
use crate::partition::PartitionHandle;

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
    dirty_bytes: Gauge,
    dirty_ratio_max: Gauge<f64, AtomicU64>,
    /// So many partitions are told by name: the dirtiest.
    partitions_max: usize,
    dirty_ratio: Family<PartitionLabel, Gauge<f64, AtomicU64>>,
    /// Those that have a series in it.
    dirtiest: Arc<Mutex<HashSet<PartitionLabel>>>,
    uncleanable: Gauge,
    uncleanable_seconds: Gauge<f64, AtomicU64>,
}

impl CleanerMetrics {
    /// Registers all of them. Of so many partitions it is told how dirty each is.
    pub(crate) fn register(registry: &mut Registry, partitions_max: usize) -> Self {
        let metrics = Self { partitions_max, ..Self::default() };
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
            "dirty_bytes",
            "Bytes that could be compacted and are not, of all partitions",
            metrics.dirty_bytes.clone(),
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
    pub(super) fn set_dirtiness<'a>(&self, all: impl Iterator<Item = (&'a PartitionHandle, &'a Dirtiness)>) {
        let label = |handle: &&PartitionHandle| PartitionLabel {
            topic: handle.settings().topic_name.clone(),
            partition: handle.id().partition.0,
        };
        self.set_dirtiest(all.collect(), |handle| handle.id(), label);
    }

    fn set_dirtiest<P, I: Ord>(
        &self,
        mut all: Vec<(P, &Dirtiness)>,
        id: impl Fn(&P) -> I,
        label: impl Fn(&P) -> PartitionLabel,
    ) {
        let bytes = all.iter().map(|(_, dirtiness)| dirtiness.dirty_bytes).sum::<u64>();
        self.dirty_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        // Of equally dirty ones always the same have a series.
        all.sort_unstable_by(|a, b| {
            b.1.ratio().total_cmp(&a.1.ratio()).then_with(|| id(&a.0).cmp(&id(&b.0)))
        });
        self.dirty_ratio_max.set(all.first().map_or(0.0, |first| first.1.ratio()));
        all.truncate(self.partitions_max);
        let mut before = self.dirtiest.lock();
        let now: HashSet<PartitionLabel> = all
            .iter()
            .map(|(partition, dirtiness)| {
                let label = label(partition);
                self.dirty_ratio.get_or_create(&label).set(dirtiness.ratio());
                label
            })
            .collect();
        for gone in before.difference(&now) {
            self.dirty_ratio.remove(gone);
        }
        *before = now;
    }

    pub(super) fn set_uncleanable(&self, aside: SetAside) {
        self.uncleanable.set(i64::try_from(aside.partitions).unwrap_or(i64::MAX));
        self.uncleanable_seconds.set(aside.oldest_ms as f64 / 1e3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirtiness(clean_bytes: u64, dirty_bytes: u64) -> Dirtiness {
        Dirtiness { from: 0, until: 0, segments: 0, clean_bytes, dirty_bytes, due: false }
    }

    #[test]
    fn so_many_of_the_dirtiest_have_a_series_and_all_together_have_one() {
        let mut registry = Registry::default();
        let metrics = CleanerMetrics::register(&mut registry, 2);
        let label = |partition: &i32| PartitionLabel { topic: "t".into(), partition: *partition };
        metrics.set_dirtiest(vec![(0, &dirtiness(1, 1)), (1, &dirtiness(3, 1))], |id| *id, label);
        let all = [dirtiness(7, 1), dirtiness(99, 1), dirtiness(1, 3)];
        metrics.set_dirtiest(vec![(0, &all[0]), (1, &all[1]), (2, &all[2])], |id| *id, label);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let of = |name: &str| -> Vec<&str> {
            let name = format!("weir_storage_node_compaction_{name}");
            let mut series: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&name)).collect();
            series.sort_unstable();
            series
        };
        let expected = ["{topic=\"t\",partition=\"0\"} 0.125", "{topic=\"t\",partition=\"2\"} 0.75"];
        assert_eq!(of("dirty_ratio{").len(), 2, "{text}");
        assert!(expected.iter().all(|series| of("dirty_ratio").contains(series)), "{text}");
        assert_eq!((of("dirty_ratio_max "), of("dirty_bytes ")), (vec!["0.75"], vec!["5"]));
    }

    #[test]
    fn of_equally_dirty_ones_always_the_same_have_a_series() {
        let metrics = CleanerMetrics::register(&mut Registry::default(), 2);
        let label = |partition: &i32| PartitionLabel { topic: "t".into(), partition: *partition };
        let same = dirtiness(1, 1);
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            metrics.set_dirtiest(order.map(|id| (id, &same)).into(), |id| *id, label);
            assert_eq!(*metrics.dirtiest.lock(), HashSet::from([label(&0), label(&1)]), "{order:?}");
        }
    }
}
