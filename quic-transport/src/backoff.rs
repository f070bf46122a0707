//! Pauses between attempts to connect: exponential, bounded, spread by jitter from a seed. Pure.

use std::time::Duration;

/// A small generator of pseudo-random numbers (splitmix64). Not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; zero if `bound` is zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `chance`.
    pub(crate) fn happens(&mut self, chance: f64) -> bool {
        (self.next() >> 11) as f64 / ((1_u64 << 53) as f64) < chance
    }

    /// A duration from `from` up to and including `to`, to the microsecond.
    pub(crate) fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = to.saturating_sub(from).as_micros() as u64;
        from + Duration::from_micros(self.below(span.saturating_add(1)))
    }
}

/// Counts failed attempts and says how long to pause before the next.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
    random: SplitMix,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration, seed: u64) -> Self {
        Self { first, max, failures: 0, random: SplitMix::new(seed) }
    }

    pub(crate) fn on_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn on_success(&mut self) {
        self.failures = 0;
    }

    /// Nothing before the first attempt; then half to all of a span that doubles from `first` up to `max`.
    pub(crate) fn pause(&mut self) -> Duration {
        let Some(doublings) = self.failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let span = self.first.saturating_mul(factor).min(self.max);
        self.random.between(span / 2, span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(seed: u64) -> Vec<Duration> {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1), seed);
        (0..40)
            .map(|_| {
                let pause = backoff.pause();
                backoff.on_failure();
                pause
            })
            .collect()
    }

    #[test]
    fn pauses_double_within_jitter_up_to_the_bound() {
        let pauses = pauses(1);
        assert_eq!(pauses[0], Duration::ZERO);
        for (n, pause) in pauses.iter().enumerate().skip(1) {
            let span = Duration::from_millis(20 * (1 << (n - 1).min(10))).min(Duration::from_secs(1));
            assert!(*pause >= span / 2 && *pause <= span, "pause {n} is {pause:?}");
        }
    }

    #[test]
    fn the_seed_decides_the_jitter_and_success_starts_over() {
        assert_eq!(pauses(7), pauses(7));
        assert_ne!(pauses(7), pauses(8));
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1), 1);
        backoff.on_failure();
        backoff.on_success();
        assert_eq!(backoff.pause(), Duration::ZERO);
    }
}
