//! What a data directory's log thread does now and then without being asked: it ends idle segments and lets go of records
//! that were kept long enough. A walk over all copies is spread over many rounds, so that nobody waits long.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use proto_types::ids::{Millis, TopicPartition};
use storage_node_core::clock_guard::{ClockEvent, ClockGuard, ClockLimits};

use crate::clock::Clock;
use crate::disk::metrics::DirectoryMetrics;
use crate::disk::space::RESERVE_BYTES_DEFAULT;

/// Milliseconds of one look that a walk may take.
const WALK_BUDGET_MS: i64 = 20;
/// Pause between two walks where the disk is nearly full.
const HURRIED_WALK_MS: i64 = 1_000;

/// How houses are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HousekeepingLimits {
    /// `log.retention.check.interval.ms`.
    pub(crate) check_interval_ms: i64,
    /// The first walk begins so long after the start at the latest.
    pub(crate) first_walk_ms_max: i64,
    /// When the clock is not believed.
    pub(crate) clock: ClockLimits,
    /// Bytes of each disk that are kept free for what must go on when it is full; on a small disk a sixteenth.
    pub(crate) reserve_bytes: u64,
}

impl Default for HousekeepingLimits {
    fn default() -> Self {
        let clock = ClockLimits { jump_ms_max: 3_600_000, down_ms_max: 604_800_000, doubt_ms: 86_400_000 };
        Self {
            check_interval_ms: 300_000,
            first_walk_ms_max: 300_000,
            clock,
            reserve_bytes: RESERVE_BYTES_DEFAULT,
        }
    }
}

/// The time that appends are noted with. A clone tells the same time.
#[derive(Debug, Clone)]
pub(crate) struct AppendClock {
    clock: Clock,
    offset_ms: Arc<AtomicI64>,
    is_believed: Arc<AtomicBool>,
}

impl AppendClock {
    /// Milliseconds since the Unix epoch; later rather than earlier where the wall clock cannot be believed.
    pub(crate) fn now_ms(&self) -> i64 {
        let carried_on = self.clock.monotonic().0.saturating_add(self.offset_ms.load(Ordering::Relaxed));
        self.clock.wall().0.max(carried_on)
    }

    /// The wall clock, if it is believed: without it nothing is judged by its age.
    pub(crate) fn believed_ms(&self) -> Option<i64> {
        self.is_believed.load(Ordering::Relaxed).then(|| self.clock.wall().0)
    }
}

/// The time by which records are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HouseTime {
    /// Wall clock, milliseconds.
    pub(crate) now_ms: i64,
    /// Whether it is believed: if not, nothing goes by its age.
    pub(crate) is_believed: bool,
}

/// One look, which may take only so long.
pub(crate) struct Look {
    began: Millis,
}

/// See the module.
pub(crate) struct Housekeeping {
    limits: HousekeepingLimits,
    clock: Clock,
    guard: ClockGuard,
    append_clock: AppendClock,
    next_walk: Millis,
    to_visit: VecDeque<TopicPartition>,
    metrics: DirectoryMetrics,
}

impl Housekeeping {
    /// Begins now. `last_written_ms` is when the directory was last in use.
    pub(crate) fn new(
        limits: HousekeepingLimits,
        clock: Clock,
        path: &Path,
        last_written_ms: Option<i64>,
        metrics: DirectoryMetrics,
    ) -> Self {
        let (monotonic, wall) = (clock.monotonic(), clock.wall());
        let guard = ClockGuard::new(limits.clock, monotonic, wall, last_written_ms.map(Millis));
        if !guard.is_believed() {
            let by_ms = guard.jumped_by_ms(monotonic, wall);
            tracing::error!(
                path = %path.display(), by_ms,
                "the clock is far from when this directory was last in use: no records are deleted for their age; \
                 set the clock right, or wait"
            );
        }
        metrics.set_clock_doubted(!guard.is_believed());
        let offset_ms = Arc::new(AtomicI64::new(guard.append_offset_ms()));
        let is_believed = Arc::new(AtomicBool::new(guard.is_believed()));
        let first = limits.check_interval_ms.min(limits.first_walk_ms_max);
        Self {
            limits,
            clock,
            guard,
            append_clock: AppendClock { clock, offset_ms, is_believed },
            next_walk: Millis(monotonic.0.saturating_add(first)),
            to_visit: VecDeque::new(),
            metrics,
        }
    }

    pub(crate) fn clock_is_believed(&self) -> bool {
        self.guard.is_believed()
    }

    pub(crate) fn append_clock(&self) -> AppendClock {
        self.append_clock.clone()
    }

    /// The disk is nearly full: the next walk comes soon.
    pub(crate) fn hurry(&mut self) {
        let soon = Millis(self.clock.monotonic().0.saturating_add(HURRIED_WALK_MS));
        self.next_walk = self.next_walk.min(soon);
    }

    /// Begins a look; `copies` are all that there are, in any order. [`next_visit`](Self::next_visit) says whose turn it is.
    pub(crate) fn begin_look(&mut self, copies: impl Iterator<Item = TopicPartition>) -> Look {
        self.watch_clock();
        let began = self.clock.monotonic();
        if self.to_visit.is_empty() && began >= self.next_walk {
            self.to_visit.extend(copies);
            self.next_walk = Millis(began.0.saturating_add(self.limits.check_interval_ms));
        }
        Look { began }
    }

    /// The next copy to look after in this look, if there is one and time is left.
    pub(crate) fn next_visit(&mut self, look: &Look) -> Option<(TopicPartition, HouseTime)> {
        if self.clock.monotonic().0 - look.began.0 >= WALK_BUDGET_MS {
            return None;
        }
        let id = self.to_visit.pop_front()?;
        Some((id, HouseTime { now_ms: self.clock.wall().0, is_believed: self.guard.is_believed() }))
    }

    fn watch_clock(&mut self) {
        let event = self.guard.look(self.clock.monotonic(), self.clock.wall());
        self.append_clock.offset_ms.store(self.guard.append_offset_ms(), Ordering::Relaxed);
        self.append_clock.is_believed.store(self.guard.is_believed(), Ordering::Relaxed);
        self.metrics.set_clock_doubted(!self.guard.is_believed());
        let doubt_ms = self.limits.clock.doubt_ms;
        match event {
            None => {}
            Some(ClockEvent::Jumped { by_ms }) => tracing::error!(
                by_ms,
                doubt_ms,
                "the clock has jumped: no records are deleted for their age until it comes back, or has stayed so for \
                 limits.clock_doubt_ms; set it right"
            ),
            Some(ClockEvent::CameBack) => {
                tracing::info!("the clock is right again: records are deleted for their age")
            }
            Some(ClockEvent::Accepted { by_ms }) => {
                tracing::warn!(by_ms, "the clock stays where it jumped to: it is believed from now on");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::{PartitionIndex, TopicId};

    fn id(partition: i32) -> TopicPartition {
        TopicPartition { topic: TopicId(uuid::Uuid::from_u128(1)), partition: PartitionIndex(partition) }
    }

    #[test]
    fn every_copy_is_visited_once_in_a_walk_and_a_slow_one_ends_a_look() {
        let limits = HousekeepingLimits { check_interval_ms: 1, ..HousekeepingLimits::default() };
        let clock = Clock::start();
        let mut house =
            Housekeeping::new(limits, clock, Path::new("data"), None, DirectoryMetrics::default());
        let mut visited = Vec::new();
        let mut looks = 0;
        while visited.len() < 5 {
            looks += 1;
            let look = house.begin_look((0..5).map(id));
            while let Some((id, time)) = house.next_visit(&look) {
                assert!(time.is_believed);
                visited.push(id);
                let began = clock.monotonic();
                while clock.monotonic().0 - began.0 < WALK_BUDGET_MS {
                    std::thread::yield_now();
                }
            }
        }
        assert_eq!(visited, (0..5).map(id).collect::<Vec<_>>());
        assert!(looks >= 5, "{looks}");
    }

    #[test]
    fn a_clock_that_is_far_off_tells_no_age() {
        let clock = Clock::start();
        let house = |last_written_ms| {
            let (limits, metrics) = (HousekeepingLimits::default(), DirectoryMetrics::default());
            Housekeeping::new(limits, clock, Path::new("data"), last_written_ms, metrics).append_clock()
        };
        let now = clock.wall().0;
        assert!(house(Some(now)).believed_ms().is_some_and(|told| told >= now));
        assert_eq!(house(Some(now + 30 * 86_400_000)).believed_ms(), None);
    }
}
