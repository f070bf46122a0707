//! Random numbers for what a test writes: the same at every run.

/// xorshift64*.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// `seed` must not be 0.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number below `n`, which must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }

    /// Letters, of which no codec makes much less.
    pub fn word(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from(b'a' + u8::try_from(self.below(26)).expect("a letter"))).collect()
    }
}
