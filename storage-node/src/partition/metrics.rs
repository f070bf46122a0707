//! What is counted about partitions; one function per observation.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::opening::OpeningProgress;
use crate::disk::metrics::DiskMetrics;

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
    sealed_segments: Counter,
    scrubbed_bytes: Counter,
    damaged_segments: Counter,
    restarted_copies: Counter,
    reopened_copies: Counter,
    moved_copies: Counter,
    failed_moves: Counter,
    opening: Arc<OpeningProgress>,
    open: Gauge,
    fetch_sessions: Gauge,
    disks: DiskMetrics,
}

impl PartitionMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self { disks: DiskMetrics::register(registry), ..Self::default() };
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
        add("weir_storage_node_sealed_segments", "Segments that got a seal", &metrics.sealed_segments);
        add("weir_storage_node_scrubbed_bytes", "Bytes that the scrub has read", &metrics.scrubbed_bytes);
        add("weir_storage_node_damaged_segments", "Segments found damaged", &metrics.damaged_segments);
        add(
            "weir_storage_node_restarted_copies",
            "Copies that were dropped for damage and began anew",
            &metrics.restarted_copies,
        );
        add(
            "weir_storage_node_reopened_copies",
            "Copies that were offline for the moment and were opened again",
            &metrics.reopened_copies,
        );
        add(
            "weir_storage_node_moved_copies",
            "Copies that were moved to another data directory",
            &metrics.moved_copies,
        );
        add(
            "weir_storage_node_failed_moves",
            "Copies that could not be moved to another data directory",
            &metrics.failed_moves,
        );
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

    /// How far the opening of copies has got.
    pub(crate) fn opening(&self) -> &Arc<OpeningProgress> {
        &self.opening
    }

    /// Those of data directories.
    pub(crate) fn disks(&self) -> &DiskMetrics {
        &self.disks
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

    pub(crate) fn on_sealed(&self) {
        self.sealed_segments.inc();
    }

    pub(crate) fn on_scrubbed(&self, bytes: u64) {
        self.scrubbed_bytes.inc_by(bytes);
    }

    #[cfg(test)]
    pub(crate) fn scrubbed_bytes(&self) -> u64 {
        self.scrubbed_bytes.get()
    }

    pub(crate) fn on_damaged_segment(&self) {
        self.damaged_segments.inc();
    }

    pub(crate) fn on_copy_restarted(&self) {
        self.restarted_copies.inc();
    }

    pub(crate) fn on_copy_reopened(&self) {
        self.reopened_copies.inc();
    }

    pub(crate) fn on_copy_moved(&self) {
        self.moved_copies.inc();
    }

    pub(crate) fn on_move_failed(&self) {
        self.failed_moves.inc();
    }

    pub(crate) fn set_open(&self, partitions: usize) {
        self.open.set(i64::try_from(partitions).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_fetch_sessions(&self, sessions: usize) {
        self.fetch_sessions.set(i64::try_from(sessions).unwrap_or(i64::MAX));
    }
}
