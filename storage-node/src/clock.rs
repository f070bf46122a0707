//! The only file of this daemon that reads a clock.

use proto_types::ids::Millis;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The daemon's two clocks. Cheap to copy; handed to whoever needs the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic side begins now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Milliseconds since this clock was started; never goes back.
    pub(crate) fn monotonic(&self) -> Millis {
        // Planted: the wall clock says for how long a replica lags.
        if cfg!(weir_planted_bug = "B27") {
            return self.wall();
        }
        Millis(millis(self.elapsed()))
    }

    /// Now, for measuring how long something takes.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    /// Time since this clock was started; never goes back.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
    pub(crate) fn elapsed(&self) -> Duration {
        Instant::now().duration_since(self.start)
    }

    /// Milliseconds since the Unix epoch, as the machine's clock has it.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub(crate) fn wall(&self) -> Millis {
        Millis(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
