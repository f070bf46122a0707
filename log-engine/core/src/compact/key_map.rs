//! The map from keys to their last offsets: fixed memory, 24 bytes for each place.
//!
//! Keys are known by 128 bits of a hash whose secret the caller chooses by chance, so that nobody can make two keys meet;
//! by accident two of 10⁹ keys do so once in 10²⁰ passes.

use std::collections::TryReserveError;

/// The hash of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub u128);

/// Places are filled up to three quarters, so that a search looks at a few of them only.
const FILL: (usize, usize) = (3, 4);
const PLACE_BYTES: usize = size_of::<Place>();

/// Half of the hash, the other half, the offset plus one; 0 is an empty place.
type Place = [u64; 3];

/// See the module. The default takes no key.
#[derive(Debug, Clone, Default)]
pub struct KeyMap {
    places: Vec<Place>,
    len: usize,
    keys_max: usize,
}

impl KeyMap {
    /// A map that takes at most `bytes_max` bytes, and no more than `keys_wanted` keys need; one key always fits. An error if
    /// there is not so much memory.
    pub fn new(bytes_max: usize, keys_wanted: u64) -> Result<KeyMap, TryReserveError> {
        let affordable = bytes_max / PLACE_BYTES;
        let wanted = usize::try_from(keys_wanted.saturating_mul(FILL.1 as u64) / FILL.0 as u64 + 1);
        let places = affordable.min(wanted.unwrap_or(usize::MAX)).max(2);
        let mut empty: Vec<Place> = Vec::new();
        empty.try_reserve_exact(places)?;
        empty.resize(places, [0; 3]);
        Ok(KeyMap {
            places: empty,
            len: 0,
            keys_max: (places / FILL.1 * FILL.0 + places % FILL.1 * FILL.0 / FILL.1).max(1),
        })
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.places.len() * PLACE_BYTES
    }

    /// Notes the offset of a key, which is larger than any before. Answers `false`, and notes nothing, if the key is new
    /// and the map full.
    pub fn put(&mut self, key: KeyHash, offset: i64) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let at = self.find(key);
        let place = &mut self.places[at];
        if place[2] == 0 {
            if self.len == self.keys_max {
                return false;
            }
            self.len += 1;
        }
        *place = [key.0 as u64, (key.0 >> 64) as u64, offset as u64 + 1];
        true
    }

    /// The last offset of a key.
    pub fn get(&self, key: KeyHash) -> Option<i64> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.places[self.find(key)];
        (place[2] != 0).then(|| (place[2] - 1) as i64)
    }

    /// The place of a key, or the empty one that would take it.
    fn find(&self, key: KeyHash) -> usize {
        let (low, high) = (key.0 as u64, (key.0 >> 64) as u64);
        // The high half times the number of places is the place, as a fraction of 2^64.
        let mut at = ((u128::from(high) * self.places.len() as u128) >> 64) as usize;
        loop {
            let place = &self.places[at];
            if place[2] == 0 || (place[0] == low && place[1] == high) {
                return at;
            }
            at += 1;
            if at == self.places.len() {
                at = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_is_a_map_until_it_is_full(
            keys in prop::collection::vec((0u128..40, 0u8..3), 0..200),
            bytes in 0usize..1500,
        ) {
            let mut map = KeyMap::new(bytes, u64::MAX).unwrap();
            prop_assert!(map.bytes() <= bytes.max(48));
            let mut model = HashMap::new();
            for (offset, (key, spread)) in keys.into_iter().enumerate() {
                // Some differ in one half only, or meet at the last place.
                let key = KeyHash(match spread { 0 => key, 1 => key << 64, _ => u128::MAX - key });
                let fits = model.contains_key(&key) || model.len() < (bytes / 24).max(2) * 3 / 4;
                prop_assert_eq!(map.put(key, offset as i64), fits);
                if fits {
                    model.insert(key, offset as i64);
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.get(key), model.get(&key).copied());
            }
            for (key, offset) in model {
                prop_assert_eq!(map.get(key), Some(offset));
            }
        }
    }

    #[test]
    fn it_is_no_larger_than_what_is_wanted() {
        assert!(KeyMap::new(1 << 30, 10).unwrap().bytes() < 500);
        let mut map = KeyMap::new(1 << 30, 10).unwrap();
        assert!((0..10).all(|i| map.put(KeyHash(i), i as i64)));
        let mut smallest = KeyMap::new(0, 0).unwrap();
        assert!(smallest.put(KeyHash(7), 0) && !smallest.put(KeyHash(8), 1));
        assert!(KeyMap::new(usize::MAX, u64::MAX).is_err(), "more memory than there is");
    }
}
