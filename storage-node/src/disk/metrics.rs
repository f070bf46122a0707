//! What is counted about data directories, each by its path.

use std::path::Path;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of all data directories of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskMetrics {
    clock_doubted: Family<DirectoryLabel, Gauge>,
    expired_segments: Family<DirectoryLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectoryLabel {
    directory: String,
}

/// Those of one directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct DirectoryMetrics {
    clock_doubted: Gauge,
    expired_segments: Counter,
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
            "weir_storage_node_expired_segments",
            "Segments that were dropped by retention",
            metrics.expired_segments.clone(),
        );
        metrics
    }

    /// Those of the directory at a path.
    pub(crate) fn of(&self, directory: &Path) -> DirectoryMetrics {
        let label = DirectoryLabel { directory: directory.display().to_string() };
        DirectoryMetrics {
            clock_doubted: self.clock_doubted.get_or_create_owned(&label),
            expired_segments: self.expired_segments.get_or_create_owned(&label),
        }
    }
}

impl DirectoryMetrics {
    pub(crate) fn set_clock_doubted(&self, doubted: bool) {
        self.clock_doubted.set(i64::from(doubted));
    }

    pub(crate) fn on_expired(&self, segments: usize) {
        self.expired_segments.inc_by(segments as u64);
    }
}
