//! Chance as an argument: a small generator whose seed the shell draws from the operating system for every plan, and
//! tests choose. Not for secrets.

use proto_types::ids::TopicId;
use uuid::Builder;

/// xoroshiro128++.
#[derive(Debug, Clone)]
pub struct Chance {
    a: u64,
    b: u64,
}

impl Chance {
    /// A generator; equal seeds give equal draws.
    pub fn new(seed: u128) -> Self {
        let (a, b) = ((seed >> 64) as u64, seed as u64);
        // The all-zero state is the one that the generator cannot leave.
        if a == 0 && b == 0 { Self { a: 1, b: 0x9e37_79b9_7f4a_7c15 } } else { Self { a, b } }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let result = self.a.wrapping_add(self.b).rotate_left(17).wrapping_add(self.a);
        let mixed = self.a ^ self.b;
        self.a = self.a.rotate_left(49) ^ mixed ^ (mixed << 21);
        self.b = mixed.rotate_left(28);
        result
    }

    /// A number below `bound`, which must not be zero. The bias is far below what placement can notice.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Brings the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// A fresh topic id. As in Kafka its text never begins with a dash, so that it can be a command-line argument.
    pub fn topic_id(&mut self) -> TopicId {
        loop {
            let mut bytes = [0_u8; 16];
            bytes[..8].copy_from_slice(&self.next_u64().to_be_bytes());
            bytes[8..].copy_from_slice(&self.next_u64().to_be_bytes());
            let id = TopicId(Builder::from_random_bytes(bytes).into_uuid());
            if !id.to_string().starts_with('-') {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_draws_and_others_differ() {
        let draws = |seed| {
            let mut chance = Chance::new(seed);
            (0..8).map(|_| chance.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        assert!(draws(0).iter().any(|&draw| draw != 0), "seed zero works too");
    }

    #[test]
    fn draws_below_a_bound_reach_all_of_it() {
        let mut chance = Chance::new(1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[chance.below(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn topic_ids_are_version_4_and_never_begin_with_a_dash() {
        let mut chance = Chance::new(42);
        for _ in 0..1000 {
            let id = chance.topic_id();
            assert_eq!(id.0.get_version_num(), 4);
            assert!(!id.to_string().starts_with('-'));
        }
    }
}
