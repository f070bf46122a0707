//! The only file of this package that reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Measures how long something took.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    pub(crate) fn start() -> Self {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The time since 1970; of a clock that is before, none.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
