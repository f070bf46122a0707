//! What is counted and said about data directories, each by its path.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use storage_node_core::space::Space;

/// Metrics of all data directories of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskMetrics {
    clock_doubted: Family<DirectoryLabel, Gauge>,
    offline: Family<DirectoryLabel, Gauge>,
    failures: Arc<Mutex<BTreeMap<String, String>>>,
    expired_segments: Family<DirectoryLabel, Counter>,
    total_bytes: Family<DirectoryLabel, Gauge>,
    free_bytes: Family<DirectoryLabel, Gauge>,
    full: Family<DirectoryLabel, Gauge>,
    time_to_full: Family<DirectoryLabel, Gauge<f64, AtomicU64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectoryLabel {
    directory: String,
}

/// Those of one directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct DirectoryMetrics {
    path: String,
    clock_doubted: Gauge,
    offline: Gauge,
    failures: Arc<Mutex<BTreeMap<String, String>>>,
    expired_segments: Counter,
    total_bytes: Gauge,
    free_bytes: Gauge,
    full: Gauge,
    time_to_full: Gauge<f64, AtomicU64>,
}

impl DiskMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "weir_storage_node_clock_doubted",
            "1 while the clock is not believed and no records are deleted for their age",
            metrics.clock_doubted.clone(),
        );
        registry.register(
            "weir_storage_node_directory_offline",
            "1 if a write or sync failed in the directory and its partitions are offline on this node",
            metrics.offline.clone(),
        );
        registry.register(
            "weir_storage_node_expired_segments",
            "Segments that were dropped by retention",
            metrics.expired_segments.clone(),
        );
        registry.register(
            "weir_storage_node_disk_bytes",
            "Size of the file system that holds the directory",
            metrics.total_bytes.clone(),
        );
        registry.register(
            "weir_storage_node_disk_free_bytes",
            "Bytes that are free there",
            metrics.free_bytes.clone(),
        );
        registry.register(
            "weir_storage_node_disk_full",
            "1 while producers are refused because the reserve is reached",
            metrics.full.clone(),
        );
        registry.register(
            "weir_storage_time_to_full_seconds",
            "Time until the reserve is reached if writing goes on as in the last minutes",
            metrics.time_to_full.clone(),
        );
        metrics
    }

    /// A sentence for each directory that is offline.
    pub(crate) fn failures(&self) -> Vec<String> {
        let failures = self.failures.lock();
        failures.iter().map(|(path, reason)| format!("data directory {path} is offline: {reason}")).collect()
    }

    /// Those of the directory at a path.
    pub(crate) fn of(&self, directory: &Path) -> DirectoryMetrics {
        let label = DirectoryLabel { directory: directory.display().to_string() };
        DirectoryMetrics {
            path: label.directory.clone(),
            offline: self.offline.get_or_create_owned(&label),
            failures: Arc::clone(&self.failures),
            clock_doubted: self.clock_doubted.get_or_create_owned(&label),
            expired_segments: self.expired_segments.get_or_create_owned(&label),
            total_bytes: self.total_bytes.get_or_create_owned(&label),
            free_bytes: self.free_bytes.get_or_create_owned(&label),
            full: self.full.get_or_create_owned(&label),
            time_to_full: self.time_to_full.get_or_create_owned(&label),
        }
    }
}

impl DirectoryMetrics {
    /// The directory is offline from now on.
    pub(crate) fn set_offline(&self, reason: &str) {
        self.offline.set(1);
        self.failures.lock().insert(self.path.clone(), reason.to_owned());
    }

    pub(crate) fn set_clock_doubted(&self, doubted: bool) {
        self.clock_doubted.set(i64::from(doubted));
    }

    pub(crate) fn set_space(&self, space: Space, is_full: bool, seconds_to_full: f64) {
        self.total_bytes.set(i64::try_from(space.total_bytes).unwrap_or(i64::MAX));
        self.free_bytes.set(i64::try_from(space.available_bytes).unwrap_or(i64::MAX));
        self.full.set(i64::from(is_full));
        self.time_to_full.set(seconds_to_full);
    }

    pub(crate) fn on_expired(&self, segments: usize) {
        self.expired_segments.inc_by(segments as u64);
    }
}
