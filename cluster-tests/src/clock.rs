//! The only file of this crate that reads a clock: waiting for a condition, with a deadline.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a condition is looked at while waiting for it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Measures how long something took.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    pub fn start() -> Self {
        Stopwatch(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Looks at `condition` until it gives a value; `None` when `limit` has passed first.
pub fn wait_until<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let watch = Stopwatch::start();
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if watch.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A number that nobody chose, for a seed that is then printed.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
pub fn unchosen_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ (since.as_secs() << 30)
}

/// Milliseconds since the Unix epoch, as the machine's clock has it.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Microseconds of the machine's monotonic clock: the same in every process, and what Java's `System.nanoTime` counts.
pub fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * 1_000_000 + nanos / 1_000
}
