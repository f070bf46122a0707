//! When a batch of a producer with `acks=all` came where on its way to be committed.

use std::time::Instant;

/// The stations of one batch, in their order. A batch that has passed all of them is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchTimes {
    /// Validated; from now on it waits for room in the queue of its log thread, and then in the queue.
    pub(crate) offered: Instant,
    /// The log thread took it out.
    pub(crate) taken: Instant,
    /// It is in the log.
    pub(crate) appended: Instant,
    /// It is on this node's disk; the same as `appended` where nobody waits for that (`weir.flush=os`).
    pub(crate) flushed: Instant,
    /// The high watermark was seen to cover it: every member of the in-sync set has it, by what `weir.flush` asks of them.
    pub(crate) committed: Instant,
}
