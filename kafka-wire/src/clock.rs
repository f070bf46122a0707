//! The one place of this crate that reads a clock: monotonic time for latency and log limits.

use std::time::Instant;

/// Monotonic now.
#[expect(clippy::disallowed_methods, reason = "this is the clock of this crate")]
pub(crate) fn monotonic_now() -> Instant {
    Instant::now()
}
