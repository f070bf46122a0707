//! `log.cleaner.io.max.bytes.per.second`: one allowance for all threads that compact.

use std::time::Duration;

use log_engine::Pace;
use parking_lot::Mutex;

use super::Shared;
use crate::clock::Clock;
use crate::partition::PartitionHandle;

/// Shorter waits are left to add up.
const WAIT_MIN: Duration = Duration::from_millis(20);
/// The longest wait at a stretch: the rate may have changed meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// When the bytes that were taken so far are paid for, on the clock's monotonic side.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<Duration>);

impl Throttle {
    /// Takes so many bytes at a rate; answers how long to wait.
    fn take(&self, bytes: u64, bytes_per_second: f64, clock: &Clock) -> Duration {
        let now = clock.elapsed();
        let mut paid = self.0.lock();
        // A rate of next to nothing would take longer than a duration can say.
        let cost =
            Duration::try_from_secs_f64(bytes as f64 / bytes_per_second.max(1.0)).unwrap_or(Duration::MAX);
        *paid = (*paid).max(now).saturating_add(cost);
        paid.saturating_sub(now)
    }
}

/// The pace of one pass.
pub(super) struct CleanerPace<'a> {
    shared: &'a Shared,
    handle: &'a PartitionHandle,
}

impl<'a> CleanerPace<'a> {
    pub(super) fn new(shared: &'a Shared, handle: &'a PartitionHandle) -> Self {
        Self { shared, handle }
    }
}

impl Pace for CleanerPace<'_> {
    fn spend(&mut self, bytes: u64) -> bool {
        let shared = self.shared;
        shared.look_around_again();
        let rate = shared.settings.load().bytes_per_second;
        let mut wait = shared.throttle.take(bytes, rate, &shared.clock);
        while wait >= WAIT_MIN {
            let step = wait.min(WAIT_MAX);
            if !shared.board.sleep(step) {
                return false;
            }
            wait -= step;
            if shared.settings.load().bytes_per_second > rate {
                *shared.throttle.0.lock() = Duration::ZERO;
                break;
            }
        }
        !shared.board.is_stopping()
    }

    fn has_room(&mut self, bytes: u64) -> bool {
        self.handle.space().has_room(bytes)
    }

    fn now_ms(&mut self) -> Option<i64> {
        self.handle.believed_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_paid_for_in_time() {
        let (throttle, clock) = (Throttle::default(), Clock::start());
        assert!(throttle.take(1 << 30, f64::MAX, &clock) < WAIT_MIN);
        let first = throttle.take(1000, 10.0, &clock);
        assert!(first > Duration::from_secs(99) && first <= Duration::from_secs(100));
        assert!(throttle.take(1000, 10.0, &clock) > Duration::from_secs(199));
        assert!(throttle.take(u64::MAX, 0.0, &clock) > Duration::from_secs(1 << 40));
    }
}
