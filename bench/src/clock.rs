//! The only file here that reads the clock.

use std::time::Instant;

/// Now, on the monotonic clock.
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    Instant::now()
}
