//! Keeps a log line that clients can provoke from flooding the log: a few per second, and a count of those left out.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines per window.
const LINES_MAX: u32 = 5;
/// The window.
const WINDOW: Duration = Duration::from_secs(1);

/// A fixed-window limiter for one kind of log line.
#[derive(Debug)]
pub struct LogLimiter(Mutex<Window>);

#[derive(Debug)]
struct Window {
    start: Instant,
    lines: u32,
    suppressed: u64,
}

impl LogLimiter {
    /// A limiter whose first window begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new(Window { start: now, lines: 0, suppressed: 0 }))
    }

    /// Whether a line may be written now; if so, how many were left out since the last one.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock();
        if now.saturating_duration_since(window.start) >= WINDOW {
            window.start = now;
            window.lines = 0;
        }
        if window.lines < LINES_MAX {
            window.lines += 1;
            Some(std::mem::take(&mut window.suppressed))
        } else {
            window.suppressed += 1;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_over_the_limit_are_counted_and_told_later() {
        let start = crate::clock::monotonic_now();
        let limiter = LogLimiter::new(start);
        for _ in 0..LINES_MAX {
            assert_eq!(limiter.admit(start), Some(0));
        }
        assert_eq!(limiter.admit(start), None);
        assert_eq!(limiter.admit(start), None);
        assert_eq!(limiter.admit(start + WINDOW), Some(2));
        assert_eq!(limiter.admit(start + WINDOW), Some(0));
    }
}
