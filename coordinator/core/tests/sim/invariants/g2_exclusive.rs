//! G2: within one generation a partition has one owner.

use kafka_wire_core::Str;

use crate::ghost::Ghost;

/// A member was told its part.
pub(crate) fn check(
    ghost: &mut Ghost,
    group: &Str,
    generation: i32,
    owner: &Str,
    partitions: impl Iterator<Item = i32>,
) {
    for partition in partitions {
        let place = (group.clone(), generation, partition);
        let known = ghost.owners.entry(place).or_insert_with(|| owner.clone());
        assert_eq!(known, owner, "G2: {group} generation {generation}: partition {partition} has two owners");
    }
}
