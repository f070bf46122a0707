//! The only file of the controller that reads clocks.

use proto_types::ids::Millis;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A monotonic clock that began when it was made. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now() }
    }

    /// Milliseconds since the clock began.
    pub(crate) fn now(self) -> Millis {
        Millis(i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}

/// The wall clock, milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads it")]
pub(crate) fn wall_clock() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
