//! Random messages by seed, for tests: every field that a version carries gets values, nulls and defaults alike.
//!
//! Only with the feature `testing`.

use bytes::Bytes;
use uuid::Uuid;

use crate::error_code::ErrorCode;
use crate::message::Message;
use crate::record_data::Records;
use crate::text::Str;
use crate::wire::WireVersion;

/// Deterministic randomness (SplitMix64): the same seed gives the same messages on every machine.
#[derive(Clone, Debug)]
pub struct Sampler {
    state: u64,
}

impl Sampler {
    /// Begins at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Sampler { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.bits() as u8).collect()
    }

    /// A random message that `version` can carry; `None` if the codec does not know the version.
    pub fn message<M: Message + Sample>(&mut self, version: i16) -> Option<M> {
        M::wire_version(version).map(|v| M::sample(self, v))
    }
}

/// A type with random values that `v` can carry.
pub trait Sample {
    /// A random value.
    fn sample(s: &mut Sampler, v: WireVersion) -> Self;
}

impl Sample for bool {
    fn sample(s: &mut Sampler, _: WireVersion) -> Self {
        s.one_in(2)
    }
}

macro_rules! sample_numbers {
    ($($ty:ty)*) => {$(
        impl Sample for $ty {
            fn sample(s: &mut Sampler, _: WireVersion) -> Self {
                match s.below(4) {
                    0 => [<$ty>::MIN, <$ty>::MAX, 0][s.below(3)],
                    1 => s.below(100) as $ty,
                    _ => s.bits() as $ty,
                }
            }
        }
    )*};
}

sample_numbers!(i8 i16 u16 i32 u32 i64);

impl Sample for f64 {
    fn sample(s: &mut Sampler, _: WireVersion) -> Self {
        s.bits() as f64 / 3.0
    }
}

impl Sample for Uuid {
    fn sample(s: &mut Sampler, _: WireVersion) -> Self {
        if s.one_in(4) { Uuid::nil() } else { Uuid::from_u64_pair(s.bits(), s.bits()) }
    }
}

impl Sample for ErrorCode {
    fn sample(s: &mut Sampler, _: WireVersion) -> Self {
        ErrorCode::ALL[s.below(ErrorCode::ALL.len())]
    }
}

impl Sample for Str {
    fn sample(s: &mut Sampler, _: WireVersion) -> Self {
        const LETTERS: [char; 8] = ['a', 'Z', '0', '-', '.', 'é', '日', '🦀'];
        // Once in a while long enough for a compact length of two bytes.
        let length = if s.one_in(8) { s.below(200) } else { s.below(8) };
        let text: String = (0..length).map(|_| LETTERS[s.below(8)]).collect();
        text.into()
    }
}

impl Sample for Bytes {
    fn sample(s: &mut Sampler, _: WireVersion) -> Self {
        // Once in a while too long for the writer to copy.
        let length = if s.one_in(8) { s.below(2000) } else { s.below(40) };
        s.bytes(length).into()
    }
}

impl Sample for Records {
    fn sample(s: &mut Sampler, v: WireVersion) -> Self {
        Records::Bytes(Bytes::sample(s, v))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(s: &mut Sampler, v: WireVersion) -> Self {
        let length = if s.one_in(16) { s.below(20) } else { s.below(4) };
        (0..length).map(|_| T::sample(s, v)).collect()
    }
}
