//! What is counted about replication; one function per observation.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of replication on a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplicationMetrics {
    lanes_opened: Counter,
    sessions_opened: Counter,
    sent_bytes: Counter,
    received_bytes: Counter,
    cold_reads: Counter,
    failed_reads: Counter,
    bad_batches: Counter,
    proposals_failed: Counter,
    isr_shrinks: Counter,
    isr_expands: Counter,
    truncations: Counter,
    truncations_below_high_watermark: Counter,
    restarts: Counter,
    following: Gauge,
    leading: Gauge,
    under_replicated: Gauge,
    under_min_isr: Gauge,
    at_min_isr: Gauge,
    sessions: Gauge,
    lag_records_max: Gauge,
    lag_ms_max: Gauge,
    /// The newest of each data directory.
    states: Arc<Mutex<BTreeMap<usize, ReplicationState>>>,
}

/// One of a follower's sessions that are counted while they are held in memory.
pub(crate) struct CountedSession(Gauge);

impl Drop for CountedSession {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What the partitions of one data directory are like, as of a look at all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReplicationState {
    pub(crate) following: usize,
    pub(crate) leading: usize,
    pub(crate) under_replicated: usize,
    pub(crate) under_min_isr: usize,
    pub(crate) at_min_isr: usize,
    pub(crate) lag_records_max: i64,
    pub(crate) lag_ms_max: i64,
}

impl ReplicationState {
    /// Those of two directories together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            following: self.following + other.following,
            leading: self.leading + other.leading,
            under_replicated: self.under_replicated + other.under_replicated,
            under_min_isr: self.under_min_isr + other.under_min_isr,
            at_min_isr: self.at_min_isr + other.at_min_isr,
            lag_records_max: self.lag_records_max.max(other.lag_records_max),
            lag_ms_max: self.lag_ms_max.max(other.lag_ms_max),
        }
    }
}

impl ReplicationMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let sub = registry.sub_registry_with_prefix("weir_storage_node_replication");
        let counters = [
            ("lanes_opened", "Lanes to leaders' nodes that were opened", &metrics.lanes_opened),
            ("sessions_opened", "Sessions that followers opened here", &metrics.sessions_opened),
            ("sent_bytes", "Bytes of record batches sent to followers", &metrics.sent_bytes),
            ("received_bytes", "Bytes of record batches received from leaders", &metrics.received_bytes),
            ("cold_reads", "Reads for followers that had to wait for a disk", &metrics.cold_reads),
            ("failed_reads", "Reads for followers that failed", &metrics.failed_reads),
            ("bad_batches", "Record batches from leaders that were not fit to append", &metrics.bad_batches),
            ("proposals_failed", "Proposals of in-sync sets without an answer", &metrics.proposals_failed),
            (
                "truncations",
                "Times that a follower cut its log to agree with its leader",
                &metrics.truncations,
            ),
            (
                "truncations_below_high_watermark",
                "Times that a follower cut its log below what it knew to be committed: after an unclean election only",
                &metrics.truncations_below_high_watermark,
            ),
            (
                "restarts",
                "Times that a follower dropped its log and began where its leader's begins",
                &metrics.restarts,
            ),
        ];
        for (name, help, counter) in counters {
            sub.register(name, help, counter.clone());
        }
        let sub = registry.sub_registry_with_prefix("weir_storage_node");
        sub.register("isr_shrinks", "In-sync sets that lost members", metrics.isr_shrinks.clone());
        sub.register("isr_expands", "In-sync sets that gained members", metrics.isr_expands.clone());
        let gauges = [
            ("leader_partitions", "Partitions that this node leads", &metrics.leading),
            ("follower_partitions", "Partitions that this node follows", &metrics.following),
            (
                "under_replicated_partitions",
                "Partitions led here with replicas out of sync",
                &metrics.under_replicated,
            ),
            (
                "under_min_isr_partitions",
                "Partitions led here that commit nothing: too few in sync",
                &metrics.under_min_isr,
            ),
            (
                "at_min_isr_partitions",
                "Partitions led here that commit nothing if one more is lost",
                &metrics.at_min_isr,
            ),
            ("replication_sessions", "Sessions of followers that this node holds", &metrics.sessions),
            (
                "replication_lag_records_max",
                "Records that the furthest follower of this node's partitions misses",
                &metrics.lag_records_max,
            ),
            (
                "replication_lag_ms_max",
                "Time since the furthest follower was last caught up, milliseconds",
                &metrics.lag_ms_max,
            ),
        ];
        for (name, help, gauge) in gauges {
            sub.register(name, help, gauge.clone());
        }
        metrics
    }

    pub(crate) fn on_lane_opened(&self) {
        self.lanes_opened.inc();
    }

    /// A follower opens a session; it counts until the guard is dropped.
    pub(crate) fn session(&self) -> CountedSession {
        self.sessions.inc();
        CountedSession(self.sessions.clone())
    }

    #[cfg(test)]
    pub(crate) fn sessions(&self) -> i64 {
        self.sessions.get()
    }

    pub(crate) fn on_session_opened(&self) {
        self.sessions_opened.inc();
    }

    pub(crate) fn on_sent(&self, bytes: usize) {
        self.sent_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn on_received(&self, bytes: usize) {
        self.received_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn on_cold_read(&self) {
        self.cold_reads.inc();
    }

    pub(crate) fn on_failed_read(&self) {
        self.failed_reads.inc();
    }

    pub(crate) fn on_bad_batches(&self) {
        self.bad_batches.inc();
    }

    #[cfg(test)]
    pub(crate) fn bad_batches(&self) -> u64 {
        self.bad_batches.get()
    }

    #[cfg(test)]
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.get()
    }

    pub(crate) fn on_proposal_failed(&self) {
        self.proposals_failed.inc();
    }

    pub(crate) fn on_isr_changed(&self, shrinks: u64, expands: u64) {
        self.isr_shrinks.inc_by(shrinks);
        self.isr_expands.inc_by(expands);
    }

    pub(crate) fn on_truncated(&self, below_high_watermark: bool) {
        self.truncations.inc();
        self.truncations_below_high_watermark.inc_by(u64::from(below_high_watermark));
    }

    pub(crate) fn on_restarted(&self) {
        self.restarts.inc();
    }

    /// What the partitions of a data directory, given by its place, are like.
    pub(crate) fn set_state(&self, directory: usize, state: ReplicationState) {
        let mut states = self.states.lock();
        states.insert(directory, state);
        let state = states.values().copied().fold(ReplicationState::default(), ReplicationState::and);
        drop(states);
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.following.set(count(state.following));
        self.leading.set(count(state.leading));
        self.under_replicated.set(count(state.under_replicated));
        self.under_min_isr.set(count(state.under_min_isr));
        self.at_min_isr.set(count(state.at_min_isr));
        self.lag_records_max.set(state.lag_records_max);
        self.lag_ms_max.set(state.lag_ms_max);
    }
}
