//! The configs of compaction: those of the node (`log.cleaner.*`), and those of a topic.

use log_engine_core::compact::CompactionPolicy;
use storage_node_core::effective_config::ConfigView;

/// What a node's configs say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CleanerSettings {
    /// `log.cleaner.threads`; 0 if `log.cleaner.enable` is false.
    pub(crate) threads: usize,
    /// `log.cleaner.dedupe.buffer.size`: memory for the key maps of all threads, bytes.
    pub(crate) dedupe_bytes: usize,
    /// `log.cleaner.io.max.bytes.per.second`, reading and writing together.
    pub(crate) bytes_per_second: f64,
    /// `log.cleaner.backoff.ms`.
    pub(crate) backoff_ms: u64,
}

impl Default for CleanerSettings {
    /// Nothing runs.
    fn default() -> Self {
        Self { threads: 0, dedupe_bytes: 128 << 20, bytes_per_second: f64::MAX, backoff_ms: 15_000 }
    }
}

impl CleanerSettings {
    /// The settings of the view's node. Values were checked when they were set.
    pub(crate) fn resolve(view: &ConfigView<'_>) -> Self {
        let text = |name| view.node_value(name).unwrap_or_default().trim().to_owned();
        let default = Self::default();
        let enabled = !text("log.cleaner.enable").eq_ignore_ascii_case("false");
        let threads = text("log.cleaner.threads").parse().unwrap_or(1);
        let rate = text("log.cleaner.io.max.bytes.per.second").parse();
        Self {
            threads: if enabled { threads } else { 0 },
            dedupe_bytes: text("log.cleaner.dedupe.buffer.size").parse().unwrap_or(default.dedupe_bytes),
            bytes_per_second: rate.ok().filter(|rate: &f64| *rate >= 1.0).unwrap_or(f64::MAX),
            backoff_ms: text("log.cleaner.backoff.ms").parse().unwrap_or(default.backoff_ms),
        }
    }

    /// The share of one thread.
    pub(crate) fn map_bytes_max(&self) -> usize {
        self.dedupe_bytes / self.threads.max(1)
    }
}

/// What a topic's configs say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompactionSettings {
    /// `min.cleanable.dirty.ratio`, in millionths.
    pub(crate) min_dirty_millionths: u32,
    /// `min.compaction.lag.ms`.
    pub(crate) min_lag_ms: i64,
    /// `max.compaction.lag.ms`.
    pub(crate) max_lag_ms: i64,
    /// `delete.retention.ms`.
    pub(crate) delete_retention_ms: i64,
}

impl CompactionSettings {
    /// From the values of a topic's configs.
    pub(crate) fn resolve(text: impl Fn(&'static str) -> String) -> Self {
        let number = |name, default: i64| text(name).trim().parse().unwrap_or(default);
        let ratio: f64 = text("min.cleanable.dirty.ratio").trim().parse().unwrap_or(0.5);
        Self {
            min_dirty_millionths: (ratio.clamp(0.0, 1.0) * 1e6) as u32,
            min_lag_ms: number("min.compaction.lag.ms", 0),
            max_lag_ms: number("max.compaction.lag.ms", i64::MAX),
            delete_retention_ms: number("delete.retention.ms", 86_400_000),
        }
    }

    /// As the engine takes it.
    pub(crate) fn policy(&self) -> CompactionPolicy {
        CompactionPolicy {
            min_dirty_ratio: f64::from(self.min_dirty_millionths) / 1e6,
            min_lag_ms: self.min_lag_ms,
            max_lag_ms: self.max_lag_ms,
        }
    }
}
