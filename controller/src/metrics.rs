//! What a controller counts. Names begin with `weir_controller_`; `docs/metrics.md` explains them.

use controller_core::observe::{Election, PartitionEvent};
use controller_core::plan::{is_imbalanced, min_insync};
use controller_core::{ClusterState, observe};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
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
    deaths_proved: Counter,
    failover_seconds: Histogram,
    elections: Family<KindLabel, Counter>,
    leaders_lost: Counter,
    isr_shrinks: Counter,
    isr_expands: Counter,
    reassignments_ended: Counter,
    pub(crate) feed_followers: Gauge,
    disk_free_bytes: Gauge,
    disk_full: Gauge,
    pub(crate) leader: Gauge,
    pub(crate) term: Gauge,
    applied_index: Gauge,
    nodes: Gauge,
    nodes_fenced: Gauge,
    topics: Gauge,
    partitions: Gauge,
    partitions_without_leader: Gauge,
    partitions_under_replicated: Gauge,
    partitions_under_min_isr: Gauge,
    partitions_imbalanced: Gauge,
    partitions_reassigning: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

const fn kind(election: Election) -> KindLabel {
    let kind = match election {
        Election::InSync => "in_sync",
        Election::Eligible => "eligible",
        Election::Preferred => "preferred",
        Election::Reassigned => "reassigned",
        Election::Unclean => "unclean",
    };
    KindLabel { kind }
}

const ELECTIONS: [Election; 5] =
    [Election::InSync, Election::Eligible, Election::Preferred, Election::Reassigned, Election::Unclean];

/// Seconds: sessions are configured to some of them.
const FAILOVER_BUCKETS: [f64; 14] =
    [0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 30.0, 60.0];

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
            deaths_proved: Counter::default(),
            failover_seconds: Histogram::new(FAILOVER_BUCKETS),
            elections: Family::default(),
            leaders_lost: Counter::default(),
            isr_shrinks: Counter::default(),
            isr_expands: Counter::default(),
            reassignments_ended: Counter::default(),
            feed_followers: Gauge::default(),
            disk_free_bytes: Gauge::default(),
            disk_full: Gauge::default(),
            leader: Gauge::default(),
            term: Gauge::default(),
            applied_index: Gauge::default(),
            nodes: Gauge::default(),
            nodes_fenced: Gauge::default(),
            topics: Gauge::default(),
            partitions: Gauge::default(),
            partitions_without_leader: Gauge::default(),
            partitions_under_replicated: Gauge::default(),
            partitions_under_min_isr: Gauge::default(),
            partitions_imbalanced: Gauge::default(),
            partitions_reassigning: Gauge::default(),
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
        registry.register_with_unit(
            "failover",
            "Time from a node's last sign of life until others are elected for what it led",
            Unit::Seconds,
            m.failover_seconds.clone(),
        );
        registry.register("heartbeats", "Heartbeats of nodes acknowledged", m.heartbeats.clone());
        registry.register("fencings", "Decisions to fence a node", m.fencings.clone());
        registry.register("unfencings", "Decisions to let a node back in", m.unfencings.clone());
        for election in ELECTIONS {
            // Shown as 0 before the first one: a rate needs a beginning.
            let _shown = m.elections.get_or_create(&kind(election));
        }
        registry.register("elections", "Leaders elected", m.elections.clone());
        let counters = [
            ("deaths_proved", "Storage nodes whose process was found to be gone", &m.deaths_proved),
            ("leaders_lost", "Times that a partition was left without leader", &m.leaders_lost),
            ("isr_shrinks", "Times that an in-sync set became smaller", &m.isr_shrinks),
            ("isr_expands", "Times that an in-sync set became larger", &m.isr_expands),
            ("reassignments_ended", "Reassignments completed or cancelled", &m.reassignments_ended),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        m.register_gauges(registry);
        metrics
    }

    fn register_gauges(&self, registry: &mut Registry) {
        let m = self;
        let gauges = [
            ("feed_followers", "Nodes that follow the metadata here", &m.feed_followers),
            ("disk_free_bytes", "Bytes that are free on the controller's disk", &m.disk_free_bytes),
            ("disk_full", "1 while the reserve is reached and nothing is created", &m.disk_full),
            ("leader", "1 if this controller leads the quorum", &m.leader),
            ("term", "Raft's term", &m.term),
            ("applied_index", "Index of the newest applied metadata", &m.applied_index),
            ("nodes", "Registered storage nodes", &m.nodes),
            ("nodes_fenced", "Registered storage nodes that are fenced", &m.nodes_fenced),
            ("topics", "Topics", &m.topics),
            ("partitions", "Partitions", &m.partitions),
            ("partitions_without_leader", "Partitions without leader", &m.partitions_without_leader),
            (
                "partitions_under_replicated",
                "Partitions with replicas that are not in sync",
                &m.partitions_under_replicated,
            ),
            (
                "partitions_under_min_isr",
                "Partitions with fewer replicas in sync than needed to commit",
                &m.partitions_under_min_isr,
            ),
            (
                "partitions_imbalanced",
                "Partitions led by another than their preferred leader, which could lead",
                &m.partitions_imbalanced,
            ),
            ("partitions_reassigning", "Partitions that are being reassigned", &m.partitions_reassigning),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
    }

    /// Shows the state as gauges.
    pub(crate) fn show(&self, state: &ClusterState) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.applied_index.set(i64::try_from(state.applied().0).unwrap_or(i64::MAX));
        self.nodes.set(count(state.nodes().len()));
        self.nodes_fenced.set(count(state.nodes().iter().filter(|(_, node)| node.fenced).count()));
        self.topics.set(count(state.topics().len()));
        self.partitions.set(count(state.partitions().len()));
        let (mut leaderless, mut under_replicated, mut under_min, mut imbalanced, mut moving) =
            (0, 0, 0, 0, 0);
        for (_, topic) in state.topics().iter() {
            // One look at the config for all partitions of the topic.
            let configured = min_insync(state, topic, usize::MAX);
            for (_, partition) in state.partitions().of_topic(topic) {
                let wanted = observe::target_replicas(partition);
                let in_sync = partition.isr.len();
                leaderless += usize::from(partition.leader.is_none());
                under_replicated += usize::from(partition.leader.is_none() || in_sync < wanted);
                let needed = configured.min(partition.replicas.len());
                under_min += usize::from(partition.leader.is_none() || in_sync < needed);
                imbalanced += usize::from(is_imbalanced(state, partition));
                moving += usize::from(observe::is_reassigned(partition));
            }
        }
        self.partitions_without_leader.set(count(leaderless));
        self.partitions_under_replicated.set(count(under_replicated));
        self.partitions_under_min_isr.set(count(under_min));
        self.partitions_imbalanced.set(count(imbalanced));
        self.partitions_reassigning.set(count(moving));
    }

    /// Shows how much room the disk has.
    pub(crate) fn show_room(&self, free_bytes: u64, is_low: bool) {
        self.disk_free_bytes.set(i64::try_from(free_bytes).unwrap_or(i64::MAX));
        self.disk_full.set(i64::from(is_low));
    }

    /// Counts what happened at partitions.
    pub(crate) fn partition_events(&self, events: &[PartitionEvent]) {
        for event in events {
            if let Some((_, _, election)) = event.elected {
                self.elections.get_or_create(&kind(election)).inc();
            }
            self.leaders_lost.inc_by(u64::from(event.leader_lost));
            self.isr_shrinks.inc_by(u64::from(event.isr_left > event.isr_joined));
            self.isr_expands.inc_by(u64::from(event.isr_joined > event.isr_left));
            self.reassignments_ended.inc_by(u64::from(event.reassignment_ended));
        }
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

    pub(crate) fn death_proved(&self) {
        self.deaths_proved.inc();
    }

    /// A node was given up, and others lead what it led, `millis` after its last sign of life.
    pub(crate) fn failed_over(&self, millis: i64) {
        self.failover_seconds.observe(Duration::from_millis(millis.try_into().unwrap_or(0)).as_secs_f64());
    }

    pub(crate) fn verdict(&self, fence: bool) {
        if fence {
            self.fencings.inc()
        } else {
            self.unfencings.inc()
        };
    }
}
