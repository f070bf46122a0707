//! The one place of this crate that reads clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, UTC.
#[expect(clippy::disallowed_methods, reason = "this is the clock of this crate")]
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Monotonic now.
#[expect(clippy::disallowed_methods, reason = "this is the clock of this crate")]
pub(crate) fn monotonic_now() -> Instant {
    Instant::now()
}
