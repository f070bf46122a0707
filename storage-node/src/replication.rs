//! Replication of partitions between storage nodes: lanes, sessions, pumps.
//!
//! ```text
//!  follower's node                                                    leader's node
//!  log thread ── OpenSession ─▶ follower_lanes ══ lane (QUIC) ══▶ lane_server ── Event::OpenSession ─▶ log thread
//!     ▲                             │    ▲                          │   ▲                                 │
//!     └── Event::FromLeader ◀───────┘    ╚══════ batches, marks ════╝   └── wakes the pumps ◀── publishes ─┘
//! ```
//!
//! A lane is one stream with a connection of its own; it carries the sessions of the partitions that hash to it. What is
//! decided, `storage_node_core` decides in the log threads; here frames are moved, checked and bounded:
//!
//! - The follower's credit bounds what a leader sends ahead in one session, and a budget per leader's node bounds what
//!   waits to be appended here.
//! - The leader reads its log for a follower only when there is credit, without waiting while the bytes are in memory;
//!   reads that have to wait for a disk go to the read threads, a few at a time, and nothing waits behind them.
//! - A session that is written to is woken by its log thread when the log or its marks have moved; there is no polling.

pub(crate) mod batches_from_leader;
pub(crate) mod data_thread;
pub(crate) mod follower_lanes;
pub(crate) mod follower_session;
pub(crate) mod isr_proposer;
pub(crate) mod lane_pump;
pub(crate) mod lane_server;
pub(crate) mod leader_session;
pub(crate) mod metrics;
pub(crate) mod throttle;
#[cfg(test)]
mod two_nodes_tests;

use std::sync::Arc;
use std::time::Duration;

use proto_types::ids::TopicPartition;

use crate::clock::Clock;
use crate::partition::tail::TailBudget;

pub(crate) use follower_lanes::{FollowRequest, FollowerLanes};
pub(crate) use follower_session::FollowerSession;
pub(crate) use isr_proposer::IsrProposals;
pub(crate) use leader_session::LeaderSession;
pub(crate) use metrics::ReplicationMetrics;
pub(crate) use throttle::Throttle;

/// Bounds of replication; the configuration has their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicationLimits {
    pub(crate) lanes: u16,
    pub(crate) connect_max: Duration,
    pub(crate) credit_bytes_max: usize,
    pub(crate) credit_bytes_min: usize,
    pub(crate) peer_bytes_max: usize,
    pub(crate) push_bytes_max: usize,
    pub(crate) catch_up_reads_max: usize,
    pub(crate) sessions_max: usize,
    pub(crate) tail_bytes_max: usize,
}

/// What the log threads know of replication.
pub(crate) struct Replication {
    /// Where this node follows others.
    pub(crate) lanes: FollowerLanes,
    /// Where proposals of in-sync sets go.
    pub(crate) proposals: Arc<IsrProposals>,
    pub(crate) metrics: ReplicationMetrics,
    pub(crate) throttles: Arc<Throttles>,
    /// Memory for what followers are about to be sent.
    pub(crate) tails: Arc<TailBudget>,
}

/// How fast replicas that are not in sync may catch up.
#[derive(Debug)]
pub(crate) struct Throttles {
    /// From this node as a leader.
    pub(crate) leader: Throttle,
    /// By this node as a follower.
    pub(crate) follower: Throttle,
    /// Of copies that move to another data directory.
    pub(crate) moves: Throttle,
}

impl Throttles {
    /// Without limits.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { leader: Throttle::new(clock), follower: Throttle::new(clock), moves: Throttle::new(clock) }
    }
}

impl std::fmt::Debug for Replication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replication({} sessions at leaders)", self.lanes.session_count())
    }
}

/// Which lane carries a partition: the same at both ends and after every restart.
pub(crate) fn lane_of(partition: TopicPartition, lanes: u16) -> u16 {
    let (high, low) = partition.topic.0.as_u64_pair();
    // The partitions of one topic go round the lanes.
    let spread = (high ^ low).wrapping_add(u64::from(partition.partition.0.cast_unsigned()));
    u16::try_from(spread % u64::from(lanes.max(1))).expect("a remainder is below its divisor")
}

#[cfg(test)]
impl Replication {
    /// For a node that is alone in its world.
    pub(crate) fn alone() -> Arc<Self> {
        use proto_types::ids::BrokerEpoch;
        use quic_transport::memory::{MemoryNetwork, MemoryNetworkConfig};
        use quic_transport::{Identity, Limits, Role, Router, TransportMetrics};

        let network = MemoryNetwork::new(MemoryNetworkConfig::default());
        let me = Identity::new("test-cluster", Role::StorageNode, 1).expect("well formed");
        let metrics = TransportMetrics::register(&mut prometheus_client::registry::Registry::default());
        let address = (std::net::Ipv4Addr::LOCALHOST, 1).into();
        let endpoint = network.endpoint(me, address, Router::empty(), Limits::default(), metrics);
        let parts = follower_lanes::LaneParts {
            transport: Arc::new(endpoint.expect("the limits are the usual ones")),
            published: Arc::default(),
            broker_epoch: tokio::sync::watch::Sender::new(Some(BrokerEpoch(1))).subscribe(),
            limits: crate::config::Config::default().replication_limits(),
            metrics: ReplicationMetrics::default(),
            throttles: Arc::new(Throttles::new(Clock::start())),
        };
        let throttles = Arc::clone(&parts.throttles);
        // Some tests have no runtime of their own; theirs runs nothing.
        let runtime = tokio::runtime::Handle::try_current().unwrap_or_else(|_| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be made");
            let handle = runtime.handle().clone();
            std::mem::forget(runtime);
            handle
        });
        Arc::new(Self {
            lanes: FollowerLanes::new(parts, runtime),
            proposals: Arc::default(),
            metrics: ReplicationMetrics::default(),
            throttles,
            tails: TailBudget::new(1 << 20),
        })
    }
}
