//! Random moments from a seed, so that a failing run can be repeated as far as real processes allow.

use std::time::Duration;

use crate::clock;

/// A seeded source of delays (splitmix64).
#[derive(Clone, Debug)]
pub struct Moments(u64);

impl Moments {
    /// The seed from `WEIR_SEED`, else from the clock; printed with the command that repeats it.
    pub fn from_env(test: &str) -> Moments {
        let seed = match std::env::var("WEIR_SEED") {
            Ok(seed) => seed.parse().expect("WEIR_SEED is a number"),
            Err(_) => clock::unchosen_number(),
        };
        eprintln!("seed {seed}: WEIR_SEED={seed} cargo xtask test -p cluster-tests {test}");
        Moments(seed)
    }

    /// A source with a fixed seed.
    pub fn new(seed: u64) -> Moments {
        Moments(seed)
    }

    /// The next random number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random time below `limit`.
    pub fn within(&mut self, limit: Duration) -> Duration {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(self.next_number() % micros)
    }
}
