//! G5: what a member of an older generation asks is refused, once some member was told its part of a newer one.

use kafka_wire_core::Str;

use crate::ghost::Ghost;

/// A request of `generation`, sent at `sent_at`, succeeded.
pub(crate) fn check(ghost: &Ghost, what: &str, group: &Str, generation: i32, sent_at: i64) {
    if let Some(newest) = ghost.newest_generation(group, sent_at) {
        assert!(
            generation >= newest,
            "G5: {group}: {what} of generation {generation} succeeded after generation {newest}"
        );
    }
}
