//! Copies whose logs could not be opened for the moment, for want of space or descriptors or because the disk failed once: each
//! is opened again after a while.
//!
//! An open that failed in the middle is like a process that died in the middle: the next one finds what it left, and trusts
//! nothing of it that no sync has confirmed.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use proto_types::ids::{Millis, TopicPartition};
use storage_node_core::image::ClusterImage;

use super::{Copy, Partitions};

/// A copy that could not be opened is tried again after so long, and after twice as long each further time.
const RETRY_MS_MIN: i64 = 5_000;
/// Longest such wait.
const RETRY_MS_MAX: i64 = 300_000;
/// Copies that are tried at once: changes of the metadata wait for them.
const REOPENS_AT_ONCE: usize = 16;

/// When a copy is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retry {
    not_before: i64,
    wait_ms: i64,
}

/// Copies that are to be tried again; never more than there are copies.
#[derive(Debug, Default)]
pub(super) struct Retries(Mutex<BTreeMap<TopicPartition, Retry>>);

impl Retries {
    /// A copy could not be opened, again or for the first time.
    pub(super) fn put_off(&self, id: TopicPartition, Millis(now): Millis) {
        let mut retries = self.0.lock();
        let wait_ms = retries.get(&id).map_or(RETRY_MS_MIN, |retry| (2 * retry.wait_ms).min(RETRY_MS_MAX));
        retries.insert(id, Retry { not_before: now.saturating_add(wait_ms), wait_ms });
    }

    /// A copy is not tried any more.
    pub(super) fn forget(&self, id: TopicPartition) {
        self.0.lock().remove(&id);
    }

    /// Those whose turn it is of the ones that are `wanted`.
    fn due(&self, Millis(now): Millis, wanted: impl Fn(TopicPartition) -> bool) -> Vec<TopicPartition> {
        let retries = self.0.lock();
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
        let works = |id| {
            let place = self.placed.lock().get(&id).copied();
            place.is_some_and(|place| self.failure_of(place).is_none())
        };
        let mut opening = Vec::new();
        for id in self.retries.due(now, works) {
            let is_failed = matches!(self.copies.read().get(&id), Some(Copy::Failed));
            match image.partition_on(self.config.node, id).filter(|_| is_failed) {
                Some(local) => opening.extend(self.begin_open(image, &local).await),
                None => self.retries.forget(id),
            }
        }
        for (id, settings, opened) in opening {
            let copy = match opened.await {
                Ok(Ok(handle)) => {
                    tracing::info!(partition = %id, topic = %settings.topic_name, "the log could be opened now");
                    self.retries.forget(id);
                    Copy::Open { handle, settings }
                }
                Ok(Err(failure)) => self.on_open_failed(id, &failure),
                // The node is stopping.
                Err(_) => continue,
            };
            self.copies.write().insert(id, copy);
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
}
