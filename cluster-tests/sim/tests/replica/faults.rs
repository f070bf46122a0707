//! What a seed turns on: sizes, settings and how often things go wrong. Each seed draws a random subset of the faults
//! (a swarm), so that none of them hides the others.

use controller_core::Chance;

/// What one run is like.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) partitions: usize,
    pub(crate) replication_factor: usize,
    pub(crate) min_insync: usize,
    /// The topic begins with `weir.flush=os`, which may change: a replica whose machine loses power may lack committed
    /// records, and is not eligible until it has caught up.
    pub(crate) flush_os: bool,
    pub(crate) unclean_allowed: bool,
    pub(crate) producers: usize,
    pub(crate) consumers: usize,
    /// `replica.lag.time.max.ms`.
    pub(crate) lag_max_ms: i64,
    pub(crate) session_ms: u64,
    /// Bytes that a leader may have on their way in a session.
    pub(crate) credit_bytes: u64,
    pub(crate) faults: Faults,
}

/// How often what goes wrong. Those of messages are of a thousand messages, those of mishaps are weights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: usize,
    pub(crate) duplicate: usize,
    pub(crate) long_delay: usize,
    pub(crate) long_delay_ms: usize,
    /// Of a thousand: frames of a lane after which it breaks.
    pub(crate) lane_break: usize,
    /// Of a thousand: frames of a session that is over which come again, much later.
    pub(crate) ghost_frame: usize,
    /// Of a thousand: deliveries of metadata that jump to a snapshot.
    pub(crate) snapshot: usize,
    pub(crate) feed_delay: usize,
    pub(crate) slow_flush: usize,
    /// Of a thousand: reads for a follower that wait for a disk.
    pub(crate) cold_read: usize,
    pub(crate) append_refused: usize,
    /// Weights of mishaps, by [`Mishap`].
    pub(crate) weights: [usize; MISHAPS.len()],
    /// Mean time between mishaps.
    pub(crate) mishap_ms: usize,
}

/// What happens to the cluster from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    Crash,
    CrashAll,
    Stop,
    Pause,
    Cut,
    CutOneWay,
    BreakLane,
    LogFails,
    DeleteRecords,
    Expire,
    Reassign,
    Elect,
    UncleanElection,
    ControllerMoves,
    ConfigChange,
    FenceNode,
}

pub(crate) const MISHAPS: [Mishap; 16] = [
    Mishap::Crash,
    Mishap::CrashAll,
    Mishap::Stop,
    Mishap::Pause,
    Mishap::Cut,
    Mishap::CutOneWay,
    Mishap::BreakLane,
    Mishap::LogFails,
    Mishap::DeleteRecords,
    Mishap::Expire,
    Mishap::Reassign,
    Mishap::Elect,
    Mishap::UncleanElection,
    Mishap::ControllerMoves,
    Mishap::ConfigChange,
    Mishap::FenceNode,
];

impl Plan {
    pub(crate) fn draw(rng: &mut Chance) -> Self {
        let nodes = 3 + rng.below(5);
        let replication_factor = match rng.below(20) {
            0 => 1,
            1..4 => 2,
            4..15 => 3,
            15..18 => 4,
            _ => 5,
        };
        let unclean_allowed = rng.below(4) == 0;
        let mut plan = Plan {
            nodes,
            partitions: [1, 1, 1, 2, 2, 3][rng.below(6)],
            replication_factor: replication_factor.min(nodes),
            min_insync: [1, 1, 2, 2, 3][rng.below(5)],
            flush_os: rng.below(5) == 0,
            unclean_allowed,
            producers: 1 + rng.below(4),
            consumers: 1 + rng.below(3),
            lag_max_ms: [200, 500, 1_000, 3_000][rng.below(4)],
            session_ms: [600, 1_000, 1_500][rng.below(3)],
            credit_bytes: [1, 400, 2_000, 100_000][rng.below(4)],
            faults: Faults::draw(rng),
        };
        if !unclean_allowed {
            plan.faults.weights[Mishap::UncleanElection as usize] = 0;
        }
        plan
    }
}

impl Faults {
    fn draw(rng: &mut Chance) -> Self {
        let mut sometimes = |most: usize| if rng.below(2) == 0 { 0 } else { rng.below(most + 1) };
        let mut faults = Faults {
            loss: sometimes(300),
            duplicate: sometimes(200),
            long_delay: sometimes(100),
            long_delay_ms: 1 + sometimes(1_000),
            lane_break: sometimes(10),
            ghost_frame: sometimes(30),
            snapshot: sometimes(300),
            feed_delay: sometimes(200),
            slow_flush: sometimes(200),
            append_refused: sometimes(20),
            cold_read: sometimes(600),
            weights: [0; MISHAPS.len()],
            mishap_ms: 0,
        };
        for weight in &mut faults.weights {
            *weight = sometimes(10);
        }
        for rare in [Mishap::CrashAll, Mishap::LogFails, Mishap::ConfigChange] {
            faults.weights[rare as usize] /= 3;
        }
        // Something must happen, else the seed says nothing.
        faults.weights[Mishap::Crash as usize] += 2;
        faults.mishap_ms = [30, 150, 400, 1_000][rng.below(4)] + rng.below(400);
        faults
    }

    /// Draws the next mishap by weight.
    pub(crate) fn pick(&self, rng: &mut Chance) -> Mishap {
        let mut at = rng.below(self.weights.iter().sum());
        for (mishap, weight) in MISHAPS.iter().zip(self.weights) {
            if at < weight {
                return *mishap;
            }
            at -= weight;
        }
        Mishap::Crash
    }
}
