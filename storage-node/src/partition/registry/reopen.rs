//! Copies whose logs could not be opened for the moment, for want of space or descriptors or because the disk failed once: each
//! is opened again after a while. So are those whose logs were closed because what was written found no space on the disk, as
//! soon as there is more than the reserve.
//!
//! An open that failed in the middle is like a process that died in the middle: the next one finds what it left, and trusts
//! nothing of it that no sync has confirmed.

use std::collections::BTreeMap;

use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use proto_types::ids::{Millis, Offset, TopicPartition};
use storage_node_core::image::ClusterImage;
use storage_node_core::{FlushMode, Standing};
use tokio::sync::oneshot;

use super::{Copy, Partitions};
use crate::disk::event::{ClosedLog, DropCopy, Event};
use crate::partition::PartitionHandle;

/// A copy that could not be opened is tried again after so long, and after twice as long each further time.
const RETRY_MS_MIN: i64 = 5_000;
/// Longest such wait.
const RETRY_MS_MAX: i64 = 300_000;
/// Copies that are tried at once: changes of the metadata wait for them, unless they take long.
const REOPENS_AT_ONCE: usize = 16;

/// When a copy is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retry {
    not_before: i64,
    wait_ms: i64,
}

/// Copies that are to be tried again; never more than there are copies.
#[derive(Debug, Default)]
pub(super) struct Retries {
    waiting: Mutex<BTreeMap<TopicPartition, Retry>>,
    /// Logs that were closed for lack of space, until one has come back with all that it held.
    closed: Mutex<BTreeMap<TopicPartition, ClosedLog>>,
}

impl Retries {
    /// A copy could not be opened, again or for the first time.
    pub(super) fn put_off(&self, id: TopicPartition, Millis(now): Millis) {
        let mut retries = self.waiting.lock();
        let wait_ms = retries.get(&id).map_or(RETRY_MS_MIN, |retry| (2 * retry.wait_ms).min(RETRY_MS_MAX));
        retries.insert(id, Retry { not_before: now.saturating_add(wait_ms), wait_ms });
    }

    /// A copy was closed for lack of space.
    fn close(&self, id: TopicPartition, log: ClosedLog, now: Millis) {
        self.remember(id, log);
        self.put_off(id, now);
    }

    /// What a copy held that was closed: it must not come back with less.
    pub(super) fn remember(&self, id: TopicPartition, log: ClosedLog) {
        // What an earlier time has taken others may still have.
        let log = self.closed(id, log.flush).map_or(log, |before| ClosedLog {
            end: before.end.max(log.end),
            high_watermark: before.high_watermark.max(log.high_watermark),
            is_whole: false,
            ..before
        });
        self.closed.lock().insert(id, log);
    }

    /// A closed log was moved, all of it, up to its end there.
    pub(super) fn on_moved(&self, id: TopicPartition, end: Offset) {
        if let Some(closed) = self.closed.lock().get_mut(&id) {
            closed.is_whole = closed.end <= end;
        }
    }

    /// Whether a closed log may come back with less.
    fn may_lack(&self, id: TopicPartition) -> bool {
        self.closed.lock().get(&id).is_some_and(|closed| !closed.is_whole)
    }

    /// What the log was if it was closed for lack of space. `flush` is what its acknowledgements promise now.
    pub(super) fn closed(&self, id: TopicPartition, flush: FlushMode) -> Option<ClosedLog> {
        let closed = self.closed.lock().get(&id).copied()?;
        let is_promised = closed.flush == FlushMode::Ack && flush == FlushMode::Ack;
        Some(ClosedLog { flush: if is_promised { FlushMode::Ack } else { FlushMode::Os }, ..closed })
    }

    /// Whether a log that ends there was closed with more.
    pub(super) fn lacks(&self, id: TopicPartition, end: Offset) -> bool {
        self.closed.lock().get(&id).is_some_and(|before| before.end > end)
    }

    /// A copy is open, with a log that ends there. Answers whether it was to be tried again.
    pub(super) fn on_opened(&self, id: TopicPartition, end: Offset) -> bool {
        let was_waiting = self.waiting.lock().remove(&id).is_some();
        let mut closed = self.closed.lock();
        if closed.get(&id).is_some_and(|before| before.end <= end) {
            closed.remove(&id);
        }
        was_waiting
    }

    /// A copy is not tried any more.
    pub(super) fn forget(&self, id: TopicPartition) {
        self.waiting.lock().remove(&id);
        self.closed.lock().remove(&id);
    }

    /// Those whose turn it is of the ones that are `wanted`.
    fn due(&self, Millis(now): Millis, wanted: impl Fn(TopicPartition) -> bool) -> Vec<TopicPartition> {
        let retries = self.waiting.lock();
        let due = retries.iter().filter(|(id, retry)| retry.not_before <= now && wanted(**id));
        due.map(|(id, _)| *id).take(REOPENS_AT_ONCE).collect()
    }
}

impl Partitions {
    /// Opens copies whose logs could not be opened, and whose turn it is to be tried again. A damaged copy is none of them, and
    /// a directory that has failed stays alone until the node starts anew. Called as [`apply`](Self::apply) is, never beside
    /// it, with the image that was applied last.
    pub(crate) async fn reopen_failed(&self, image: &ClusterImage) {
        self.reopen_due(image, self.config.clock.monotonic()).await;
    }

    pub(super) async fn reopen_due(&self, image: &ClusterImage, now: Millis) {
        self.close_full(now).await;
        let works = |id| {
            let place = self.placed.lock().get(&id).copied();
            let has_space = |place: usize| {
                self.directories[place].health.has_space() || !self.retries.closed.lock().contains_key(&id)
            };
            place.is_some_and(|place| self.failure_of(place).is_none() && has_space(place))
        };
        let opening = FuturesUnordered::new();
        // Others may have what a leader has lost, or be counted in sync by the controllers alone: it gives the leadership up
        // first, and goes on in it only where there are no others.
        let leads = |id| {
            let state = image.partition(id).filter(|_| self.retries.may_lack(id));
            state.is_some_and(|state| state.leader == Some(self.config.node) && state.replicas.len() > 1)
        };
        for id in self.retries.due(now, |id| works(id) && !leads(id) && !self.is_late(id)) {
            let is_failed = matches!(self.copies.read().get(&id), Some(Copy::Failed));
            match image.partition_on(self.config.node, id).filter(|_| is_failed) {
                Some(local) => opening.push(self.begin_open(image, &local).await),
                None => self.retries.forget(id),
            }
        }
        self.take_opened(opening).await;
    }

    /// Closes copies whose logs take no more for lack of space. What was to be on the disk may be gone, so only opening them
    /// anew tells what is left.
    pub(super) async fn close_full(&self, now: Millis) {
        let full: Vec<PartitionHandle> = {
            let (copies, damaged) = (self.copies.read(), self.damaged.lock());
            let full = copies.values().filter_map(|copy| match copy {
                Copy::Open { handle, .. } => Some(handle).filter(|handle| handle.is_closed_for_space()),
                Copy::Failed => None,
            });
            let full = full.filter(|handle| handle.view().standing == Standing::Failed);
            full.filter(|handle| !damaged.contains(&handle.id())).take(REOPENS_AT_ONCE).cloned().collect()
        };
        let mut closing = Vec::with_capacity(full.len());
        for handle in full {
            let (id, flush) = (handle.id(), handle.settings().replica.flush);
            let (end, high_watermark) = (Offset(handle.reader().end()), handle.view().high_watermark);
            let closed = ClosedLog { end, high_watermark, flush, is_whole: false };
            self.retries.close(id, closed, now);
            let (done, dropped) = oneshot::channel();
            self.send(handle.directory(), Event::Drop(DropCopy { id, delete: false, done })).await;
            self.copies.write().insert(id, Copy::Failed);
            closing.push(dropped);
        }
        for dropped in closing {
            // A thread that ended has closed it too.
            drop(dropped.await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::TopicId;
    use proto_types::metadata::topic_partition;
    use uuid::Uuid;

    #[test]
    fn each_further_try_waits_twice_as_long_up_to_a_bound() {
        let retries = Retries::default();
        let id = topic_partition(TopicId(Uuid::from_u128(1)), 0);
        let is_due = |now| retries.due(Millis(now), |_| true) == [id];
        let mut now = 0;
        for wait_ms in [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000] {
            retries.put_off(id, Millis(now));
            assert!(!is_due(now + wait_ms - 1) && is_due(now + wait_ms), "after {wait_ms} ms");
            now += wait_ms;
        }
        assert_eq!(retries.due(Millis(i64::MAX), |_| false), []);
        retries.forget(id);
        assert_eq!(retries.due(Millis(i64::MAX), |_| true), []);
    }

    #[test]
    fn what_a_closed_log_held_is_remembered_until_it_is_there_again() {
        let (ack, os) = (FlushMode::Ack, FlushMode::Os);
        let retries = Retries::default();
        let id = topic_partition(TopicId(Uuid::from_u128(1)), 0);
        let log =
            |end, flush| ClosedLog { end: Offset(end), high_watermark: Offset(3), flush, is_whole: false };
        retries.close(id, log(9, ack), Millis(0));
        assert_eq!(retries.closed(id, ack), Some(log(9, ack)));
        assert_eq!(retries.closed(id, os), Some(log(9, os)), "what is acknowledged now may be lost");
        retries.on_opened(id, Offset(7));
        retries.close(id, log(8, ack), Millis(0));
        assert_eq!(retries.closed(id, ack), Some(log(9, ack)), "others may have it");
        retries.on_opened(id, Offset(9));
        assert_eq!(retries.closed(id, ack), None);
        retries.close(id, log(9, os), Millis(0));
        assert_eq!(retries.closed(id, ack), Some(log(9, os)), "what was acknowledged then may be lost");
        retries.forget(id);
        assert_eq!((retries.closed(id, ack), retries.due(Millis(i64::MAX), |_| true)), (None, vec![]));
        retries.remember(id, log(9, ack));
        retries.on_moved(id, Offset(8));
        assert!(retries.may_lack(id), "it had less than an earlier time");
        retries.on_moved(id, Offset(9));
        assert!(!retries.may_lack(id));
        retries.close(id, log(9, ack), Millis(0));
        assert!(retries.may_lack(id), "that was another time");
    }
}
