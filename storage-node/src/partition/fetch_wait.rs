//! Long-polling fetches: a reader waits until enough committed bytes have come to its partitions, all together.
//!
//! Each partition counts the bytes that became readable, for either isolation level: at the high watermark, and at the last
//! stable offset. A reader notes the count that its read saw; registering compares it with the present one, so bytes that
//! came in between are not missed. The partition's owner then adds what became readable to every registered reader of that
//! level, and wakes the one that has enough.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;
use storage_node_core::Isolation;
use tokio::sync::Notify;

/// One reader that waits for bytes from any of its partitions.
#[derive(Debug)]
pub(crate) struct FetchWait {
    /// Bytes that are still missing; zero or below: done.
    missing: AtomicI64,
    /// Something else happened that is worth an answer.
    disturbed: AtomicBool,
    wake: Notify,
}

impl FetchWait {
    /// A wait for `missing` bytes.
    pub(crate) fn new(missing: i64) -> Arc<Self> {
        Arc::new(Self {
            missing: AtomicI64::new(missing),
            disturbed: AtomicBool::new(false),
            wake: Notify::new(),
        })
    }

    /// Returns when the bytes have come, or something else is worth an answer.
    pub(crate) async fn done(&self) {
        loop {
            let woken = self.wake.notified();
            if self.missing.load(Ordering::Acquire) <= 0 || self.disturbed.load(Ordering::Acquire) {
                return;
            }
            woken.await;
        }
    }

    fn add(&self, bytes: i64) {
        if bytes > 0 && self.missing.fetch_sub(bytes, Ordering::AcqRel) <= bytes {
            self.wake.notify_one();
        }
    }

    fn disturb(&self) {
        self.disturbed.store(true, Ordering::Release);
        self.wake.notify_one();
    }
}

/// The readers that wait at one partition.
#[derive(Debug, Default)]
pub(crate) struct FetchWaiters {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that became readable since the partition was opened.
    uncommitted: i64,
    /// The same for read-committed readers.
    committed: i64,
    next_key: u64,
    waiting: HashMap<u64, Waiting>,
}

impl State {
    fn readable(&mut self, isolation: Isolation) -> &mut i64 {
        match isolation {
            Isolation::ReadUncommitted => &mut self.uncommitted,
            Isolation::ReadCommitted => &mut self.committed,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    isolation: Isolation,
    wait: Arc<FetchWait>,
    /// Bytes of this partition that may still count for the reader: it would not read more of it.
    room: i64,
}

/// Ends the registration when dropped.
#[derive(Debug)]
pub(crate) struct Registration<'a> {
    waiters: &'a FetchWaiters,
    key: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.waiters.state.lock().waiting.remove(&self.key);
    }
}

impl FetchWaiters {
    /// Bytes readable so far; to be taken before the read whose outcome leads to waiting.
    pub(crate) fn readable_bytes(&self, isolation: Isolation) -> i64 {
        *self.state.lock().readable(isolation)
    }

    /// Lets `wait` count what becomes readable here beyond `seen`, up to `room` bytes.
    pub(crate) fn register(
        &self,
        wait: &Arc<FetchWait>,
        isolation: Isolation,
        seen: i64,
        room: i64,
    ) -> Registration<'_> {
        let mut state = self.state.lock();
        let new = (*state.readable(isolation) - seen).min(room);
        wait.add(new);
        let key = state.next_key;
        state.next_key += 1;
        state.waiting.insert(key, Waiting { isolation, wait: Arc::clone(wait), room: room - new });
        Registration { waiters: self, key }
    }

    /// Called by the partition's owner when `bytes` more are readable, after the view says so.
    pub(crate) fn on_readable(&self, isolation: Isolation, bytes: i64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.state.lock();
        *state.readable(isolation) += bytes;
        for waiting in state.waiting.values_mut().filter(|waiting| waiting.isolation == isolation) {
            let counted = bytes.min(waiting.room);
            waiting.room -= counted;
            waiting.wait.add(counted);
        }
    }

    /// Called by the partition's owner when readers should look again whatever has come: the leader changed, the log's
    /// start moved, the partition is gone.
    pub(crate) fn disturb(&self) {
        for waiting in self.state.lock().waiting.values() {
            waiting.wait.disturb();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Isolation::{ReadCommitted, ReadUncommitted};
    use futures_util::FutureExt;

    fn is_done(wait: &FetchWait) -> bool {
        wait.done().now_or_never().is_some()
    }

    #[test]
    fn bytes_of_all_partitions_count_together() {
        let (one, two) = (FetchWaiters::default(), FetchWaiters::default());
        let wait = FetchWait::new(100);
        let _first = one.register(&wait, ReadUncommitted, 0, 1_000);
        let _second = two.register(&wait, ReadUncommitted, 0, 1_000);
        one.on_readable(ReadUncommitted, 60);
        assert!(!is_done(&wait));
        two.on_readable(ReadUncommitted, 40);
        assert!(is_done(&wait));
        assert!(is_done(&wait), "done stays done");
    }

    #[test]
    fn bytes_between_the_read_and_the_registration_count() {
        let partition = FetchWaiters::default();
        partition.on_readable(ReadUncommitted, 500);
        let seen = partition.readable_bytes(ReadUncommitted);
        partition.on_readable(ReadUncommitted, 7);
        let wait = FetchWait::new(7);
        let _registration = partition.register(&wait, ReadUncommitted, seen, 1_000);
        assert!(is_done(&wait));
    }

    #[test]
    fn a_partition_counts_no_more_than_would_be_read_of_it() {
        let partition = FetchWaiters::default();
        let wait = FetchWait::new(100);
        let _registration = partition.register(&wait, ReadUncommitted, 0, 30);
        partition.on_readable(ReadUncommitted, 1_000);
        partition.on_readable(ReadUncommitted, 1_000);
        assert!(!is_done(&wait));
        partition.disturb();
        assert!(is_done(&wait));
    }

    #[test]
    fn each_isolation_level_has_its_bytes() {
        let partition = FetchWaiters::default();
        let (committed, uncommitted) = (FetchWait::new(10), FetchWait::new(10));
        let _first = partition.register(&committed, ReadCommitted, 0, 100);
        let _second = partition.register(&uncommitted, ReadUncommitted, 0, 100);
        partition.on_readable(ReadUncommitted, 10);
        assert!(is_done(&uncommitted) && !is_done(&committed));
        partition.on_readable(ReadCommitted, 10);
        assert!(is_done(&committed));
        let late = FetchWait::new(10);
        let _third = partition.register(&late, ReadCommitted, 0, 100);
        assert!(is_done(&late), "what came before the registration counts");
    }

    #[test]
    fn a_dropped_registration_is_forgotten() {
        let partition = FetchWaiters::default();
        let wait = FetchWait::new(1);
        drop(partition.register(&wait, ReadUncommitted, 0, 10));
        partition.on_readable(ReadUncommitted, 10);
        assert!(!is_done(&wait));
        assert!(partition.state.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn a_waiting_reader_wakes() {
        let partition = Arc::new(FetchWaiters::default());
        let wait = FetchWait::new(1);
        let _registration = partition.register(&wait, ReadUncommitted, 0, 10);
        let owner = Arc::clone(&partition);
        let writer = std::thread::spawn(move || owner.on_readable(ReadUncommitted, 1));
        wait.done().await;
        writer.join().unwrap();
    }
}
