//! What is counted about partitions; one function per observation.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of all partitions of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartitionMetrics {
    appended_batches: Counter,
    appended_bytes: Counter,
    append_refusals: Counter,
    flushes: Counter,
    failed_logs: Counter,
    fetched_bytes: Counter,
    cold_reads: Counter,
    open: Gauge,
    fetch_sessions: Gauge,
}

impl PartitionMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let mut add =
            |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        add("weir_storage_node_appended_batches", "Record batches appended", &metrics.appended_batches);
        add("weir_storage_node_appended_bytes", "Bytes of record batches appended", &metrics.appended_bytes);
        add(
            "weir_storage_node_refused_batches",
            "Record batches refused by a partition",
            &metrics.append_refusals,
        );
        add("weir_storage_node_log_flushes", "Flushes of logs that succeeded", &metrics.flushes);
        add("weir_storage_node_failed_logs", "Logs that failed and went offline", &metrics.failed_logs);
        add(
            "weir_storage_node_fetched_bytes",
            "Bytes of record batches sent to readers",
            &metrics.fetched_bytes,
        );
        add("weir_storage_node_cold_reads", "Reads that had to wait for a disk", &metrics.cold_reads);
        registry.register(
            "weir_storage_node_open_partitions",
            "Partition copies that are open",
            metrics.open.clone(),
        );
        registry.register(
            "weir_storage_node_fetch_sessions",
            "Fetch sessions that are remembered",
            metrics.fetch_sessions.clone(),
        );
        metrics
    }

    pub(crate) fn on_append(&self, bytes: usize) {
        self.appended_batches.inc();
        self.appended_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn on_refusal(&self) {
        self.append_refusals.inc();
    }

    pub(crate) fn on_flush(&self) {
        self.flushes.inc();
    }

    pub(crate) fn on_log_failed(&self) {
        self.failed_logs.inc();
    }

    pub(crate) fn on_fetched(&self, bytes: usize) {
        self.fetched_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn on_cold_read(&self) {
        self.cold_reads.inc();
    }

    pub(crate) fn set_open(&self, partitions: usize) {
        self.open.set(i64::try_from(partitions).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_fetch_sessions(&self, sessions: usize) {
        self.fetch_sessions.set(i64::try_from(sessions).unwrap_or(i64::MAX));
    }
}
