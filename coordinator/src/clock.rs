//! The only file of the coordinator that reads clocks.

use coordinator_core::Now;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// All clocks of the daemon. Cheap to copy; handed to whoever needs the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    /// Clocks whose monotonic side begins now.
    pub(crate) fn start() -> Self {
        Self { began: Instant::now() }
    }

    /// The time for decisions: monotonic since the start, and the wall clock, in milliseconds.
    pub(crate) fn now(self) -> Now {
        Now { monotonic: millis(self.began.elapsed().as_millis()), wall: wall() }
    }

    /// The moment at which the monotonic clock will show `monotonic`.
    pub(crate) fn instant(self, monotonic: i64) -> Instant {
        self.began + std::time::Duration::from_millis(u64::try_from(monotonic).unwrap_or(0))
    }

    /// The time for leases, milliseconds: also runs while the machine sleeps.
    pub(crate) fn boot(self) -> i64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the file that reads it")]
fn wall() -> i64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis())
}

fn millis(millis: u128) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
