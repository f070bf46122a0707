//! The lease as the whole daemon shares it: extended by the session, asked by every answer that is written.
//!
//! An acknowledged heartbeat says that the controller still counts on us, as of an index of the metadata. It says nothing
//! about shards that we have yet to learn were taken from us: so it extends the lease only once that index is applied
//! here, which includes that the tasks of lost shards no longer answer.

use crate::clock::Clock;
use coordinator_core::Lease;
use parking_lot::Mutex;
use proto_types::ids::MetadataIndex;
use std::collections::VecDeque;

/// Acknowledgements that wait for the metadata to catch up; the newest ones count.
const WAITING_MAX: usize = 64;

/// Shared behind an `Arc`.
#[derive(Debug)]
pub(crate) struct SharedLease {
    clock: Clock,
    margin_ms: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    lease: Lease,
    applied: MetadataIndex,
    /// When the heartbeat was sent, and the index that must be applied.
    waiting: VecDeque<(i64, MetadataIndex)>,
}

impl SharedLease {
    /// No right to answer yet.
    pub(crate) fn new(clock: Clock, margin_ms: u64) -> Self {
        let inner = Inner { lease: Lease::new(0, 0), applied: MetadataIndex(0), waiting: VecDeque::new() };
        Self { clock, margin_ms, inner: Mutex::new(inner) }
    }

    /// A registration begins: whatever was acknowledged before is void, and sessions last `session_ms`.
    pub(crate) fn begin(&self, session_ms: u64) {
        let millis = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX / 4);
        let mut inner = self.inner.lock();
        inner.lease = Lease::new(millis(session_ms), millis(self.margin_ms));
        inner.waiting.clear();
    }

    /// The controller acknowledged what was sent at `sent_at` (boot clock), as of `committed`.
    pub(crate) fn acknowledged(&self, sent_at: i64, committed: MetadataIndex) {
        let mut inner = self.inner.lock();
        if committed <= inner.applied {
            inner.lease.acknowledged(sent_at);
            return;
        }
        if inner.waiting.len() == WAITING_MAX {
            inner.waiting.pop_front();
        }
        inner.waiting.push_back((sent_at, committed));
    }

    /// Everything up to `index` is applied: shards that others own are dropped.
    pub(crate) fn applied(&self, index: MetadataIndex) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.applied = inner.applied.max(index);
        let (lease, applied) = (&mut inner.lease, inner.applied);
        inner.waiting.retain(|(sent_at, committed)| {
            let waits = *committed > applied;
            if !waits {
                lease.acknowledged(*sent_at);
            }
            waits
        });
    }

    /// The controller says that we own nothing.
    pub(crate) fn lost(&self) {
        let mut inner = self.inner.lock();
        inner.waiting.clear();
        inner.lease.lost();
    }

    /// Whether an answer may be written now.
    pub(crate) fn holds(&self) -> bool {
        let now = self.clock.boot();
        self.inner.lock().lease.holds(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(index: u64) -> MetadataIndex {
        MetadataIndex(index)
    }

    #[tokio::test]
    async fn an_acknowledgement_counts_when_its_metadata_is_applied() {
        let clock = Clock::start();
        let lease = SharedLease::new(clock, 100);
        lease.begin(60_000);
        assert!(!lease.holds(), "nothing was acknowledged");
        lease.acknowledged(clock.boot(), index(7));
        assert!(!lease.holds(), "shards may have been taken up to index 7");
        lease.applied(index(6));
        assert!(!lease.holds());
        lease.applied(index(7));
        assert!(lease.holds());
        lease.lost();
        assert!(!lease.holds());
        lease.acknowledged(clock.boot(), index(5));
        assert!(lease.holds(), "index 5 was applied long ago");
    }

    #[tokio::test]
    async fn it_runs_from_the_sending_and_ends_before_the_session() {
        let clock = Clock::start();
        let lease = SharedLease::new(clock, 100);
        lease.begin(1_000);
        lease.applied(index(1));
        lease.acknowledged(clock.boot() - 950, index(1));
        assert!(!lease.holds());
        lease.acknowledged(clock.boot() - 100, index(1));
        assert!(lease.holds());
        lease.begin(1_000);
        assert!(!lease.holds(), "a new registration begins without right");
    }
}
