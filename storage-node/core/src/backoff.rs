//! How long to wait before something is tried again that has failed.

use proto_types::ids::Millis;

/// The first pause. Short, because after an election leader and followers learn of it within milliseconds of each other.
const PAUSE_MS_MIN: i64 = 20;
/// The longest pause.
const PAUSE_MS_MAX: i64 = 1_000;

/// Pauses that double with each failure in a row.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It failed: the next try may be made at the returned time.
    pub(crate) fn on_failure(&mut self, now: Millis) -> Millis {
        let pause = PAUSE_MS_MIN << self.failures.min(16);
        self.failures += 1;
        Millis(now.0 + pause.min(PAUSE_MS_MAX))
    }

    /// It worked.
    pub(crate) fn on_success(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<i64> = (0..8).map(|_| backoff.on_failure(Millis(0)).0).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_000, 1_000]);
        backoff.on_success();
        assert_eq!(backoff.on_failure(Millis(5)), Millis(25));
    }
}
