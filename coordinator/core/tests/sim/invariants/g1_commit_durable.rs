//! G1: a fetch that was sent after a commit was acknowledged returns that commit or a later one.

use kafka_wire_core::Str;

use crate::ghost::{Ghost, Place, commit_offsets};
use crate::log::ModelLog;

/// `label` is what the fetch returned, empty for no offset.
pub(crate) fn check(ghost: &Ghost, log: &ModelLog, place: &Place, label: &Str, fetch_sent_at: i64) {
    let Some(acknowledged) = ghost.acknowledged.get(place) else { return };
    let at = |label: &Str| commit_offsets(log, place, label, log.high_watermark).into_iter().max();
    let before = acknowledged.iter().filter(|(told_at, _)| *told_at < fetch_sent_at);
    let Some((latest, which)) = before
        .map(|(_, label)| {
            let offset = at(label).unwrap_or_else(|| panic!("G1: {place:?}: acknowledged {label} is lost"));
            (offset, label)
        })
        .max()
    else {
        return;
    };
    let found = at(label).unwrap_or(-1);
    assert!(
        found >= latest,
        "G1: {place:?}: {which} at {latest} was acknowledged, but {label:?} at {found} was fetched"
    );
}
