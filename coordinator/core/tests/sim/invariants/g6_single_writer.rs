//! G6: epochs in the log never go down, and nobody answers after a newer owner has begun to.

use coordinator_core::Epoch;

use crate::ghost::Ghost;
use crate::log::ModelLog;

/// Looks at what was appended last.
pub(crate) fn check_log(log: &ModelLog) {
    if let [.., before, last] = log.history.as_slice() {
        assert!(
            before.writer <= last.writer,
            "G6: {last:?} was appended after {before:?} at {}",
            log.end() - 1
        );
    }
}

/// An owner writes a reply.
pub(crate) fn check_reply(ghost: &Ghost, epoch: Epoch) {
    if let Some(newest) = ghost.served.last() {
        assert!(epoch >= *newest, "G6: {epoch:?} answers after {newest:?} has begun to");
    }
}
