//! The one place of this crate that reads clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "this is the clock of this crate")]
pub(crate) fn wall_time() -> SystemTime {
    SystemTime::now()
}

/// Milliseconds since 1970, UTC.
pub(crate) fn wall_ms() -> i64 {
    let since = wall_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Monotonic now.
#[expect(clippy::disallowed_methods, reason = "this is the clock of this crate")]
pub(crate) fn monotonic_now() -> Instant {
    Instant::now()
}
