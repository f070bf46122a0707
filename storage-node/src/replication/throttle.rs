//! How fast replicas that are not in sync may catch up (KIP-73): a rate for each side, for the replicas that topics name.
//!
//! A leader's pump pauses a throttled session while the rate is used up; a follower withholds the credit of one. Replicas in
//! sync are never held back, so that a throttle cannot make anybody leave an in-sync set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto_types::ids::{NodeId, PartitionIndex};

use crate::clock::Clock;

/// The replicas that a topic names: Kafka's list of `partition:node`, or `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ThrottledReplicas {
    /// None.
    #[default]
    Nobody,
    /// All of the topic.
    Everybody,
    /// These; sorted.
    These(Vec<(PartitionIndex, NodeId)>),
}

impl ThrottledReplicas {
    /// Reads the value of a config, which was checked when it was set.
    pub(crate) fn parse(text: &str) -> Self {
        if text.trim() == "*" {
            return Self::Everybody;
        }
        let entry = |entry: &str| {
            let (partition, node) = entry.trim().split_once(':')?;
            Some((PartitionIndex(partition.trim().parse().ok()?), NodeId(node.trim().parse().ok()?)))
        };
        let mut these: Vec<_> = text.split(',').filter_map(entry).collect();
        these.sort_unstable();
        if these.is_empty() { Self::Nobody } else { Self::These(these) }
    }

    /// Whether the replica of `partition` on `node` is meant.
    pub(crate) fn has(&self, partition: PartitionIndex, node: NodeId) -> bool {
        match self {
            Self::Nobody => false,
            Self::Everybody => true,
            Self::These(these) => these.binary_search(&(partition, node)).is_ok(),
        }
    }
}

/// A rate that is shared by everybody who is throttled on one side.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: AtomicU64,
    clock: Clock,
    state: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Bytes that may go now; below zero when more went than there was.
    bytes: f64,
    filled: Duration,
}

impl Throttle {
    /// No limit yet.
    pub(crate) fn new(clock: Clock) -> Self {
        let state = Mutex::new(Bucket { bytes: 0.0, filled: clock.elapsed() });
        Self { bytes_per_second: AtomicU64::new(u64::MAX), clock, state }
    }

    /// Another rate.
    pub(crate) fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Whether there is a limit.
    pub(crate) fn is_set(&self) -> bool {
        self.rate().is_some()
    }

    /// How long to wait before anything may go; `None`: now.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let rate = self.rate()?;
        let now = self.clock.elapsed();
        let mut bucket = self.state.lock();
        bucket.fill(now, rate);
        (bucket.bytes < 0.0)
            .then(|| Duration::from_secs_f64((-bucket.bytes / rate).min(LONGEST.as_secs_f64())))
    }

    /// So much went.
    pub(crate) fn take(&self, bytes: u64) {
        if let Some(rate) = self.rate() {
            let now = self.clock.elapsed();
            let mut bucket = self.state.lock();
            bucket.fill(now, rate);
            bucket.bytes -= bytes as f64;
        }
    }

    fn rate(&self) -> Option<f64> {
        let rate = self.bytes_per_second.load(Ordering::Relaxed);
        // Kafka's default is the largest number; a rate of zero would be for ever.
        (rate < i64::MAX as u64).then_some((rate as f64).max(1.0))
    }
}

/// A rate may be raised while somebody waits.
const LONGEST: Duration = Duration::from_secs(1);

impl Bucket {
    fn fill(&mut self, now: Duration, rate: f64) {
        let passed = now.saturating_sub(self.filled);
        self.filled = now;
        // What was not used within a tenth of a second is not saved up.
        self.bytes = (self.bytes + passed.as_secs_f64() * rate).min(rate / 10.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_lists_are_read() {
        assert_eq!(ThrottledReplicas::parse(""), ThrottledReplicas::Nobody);
        assert_eq!(ThrottledReplicas::parse("*"), ThrottledReplicas::Everybody);
        let these = ThrottledReplicas::parse("1:3, 0:2");
        assert!(these.has(PartitionIndex(0), NodeId(2)) && these.has(PartitionIndex(1), NodeId(3)));
        assert!(!these.has(PartitionIndex(0), NodeId(3)));
        assert!(ThrottledReplicas::Everybody.has(PartitionIndex(7), NodeId(9)));
    }

    #[test]
    fn what_went_must_be_waited_for_and_a_raised_rate_counts_at_once() {
        let throttle = Throttle::new(Clock::start());
        throttle.take(u64::MAX / 4);
        assert_eq!(throttle.wait(), None, "without a rate nobody waits");
        throttle.set(1_000);
        throttle.take(100_000_000);
        assert_eq!(throttle.wait(), Some(LONGEST));
        throttle.set(1 << 50);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(throttle.wait(), None);
    }

    #[test]
    fn nothing_is_saved_up_for_long() {
        let mut bucket = Bucket { bytes: 0.0, filled: Duration::ZERO };
        bucket.fill(Duration::from_secs(3_600), 1_000.0);
        assert!((bucket.bytes - 100.0).abs() < f64::EPSILON);
        bucket.bytes -= 600.0;
        bucket.fill(Duration::from_millis(3_600_250), 1_000.0);
        assert!((bucket.bytes + 250.0).abs() < 1.0, "{bucket:?}");
    }
}
