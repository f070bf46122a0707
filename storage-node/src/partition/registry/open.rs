//! Copies that are being opened: each is taken in as it comes up, whatever the others do.
//!
//! A copy that takes long is *late*: the node goes on without it, as without one that has failed, so that the others are led and
//! served and the metadata is followed. When it comes up it is taken in as the metadata wants it by then.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use proto_types::ids::{Millis, Offset, TopicPartition};
use storage_node_core::image::{ClusterImage, LocalPartition};
use tokio::sync::oneshot;

use super::{Copy, Partitions, new_epoch};
use crate::disk::event::{DropCopy, Event, Open, OpenFailure};
use crate::partition::{PartitionHandle, TopicSettings};

/// How many times the longest wait for the next copy all of them may take together before the node goes on.
const WAITS_MAX: u32 = 6;

/// A copy that is being opened. Completes when it is open, or cannot be.
#[derive(Debug)]
pub(super) struct Opening {
    id: TopicPartition,
    settings: Arc<TopicSettings>,
    opened: oneshot::Receiver<Result<PartitionHandle, OpenFailure>>,
}

/// What came of an [`Opening`].
#[derive(Debug)]
pub(crate) struct OpenEnd {
    pub(super) id: TopicPartition,
    pub(super) settings: Arc<TopicSettings>,
    /// `None` if the thread that was to open it has ended.
    pub(super) result: Option<Result<PartitionHandle, OpenFailure>>,
}

impl Future for Opening {
    type Output = OpenEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<OpenEnd> {
        let result = ready!(Pin::new(&mut self.opened).poll(cx)).ok();
        Poll::Ready(OpenEnd { id: self.id, settings: Arc::clone(&self.settings), result })
    }
}

/// Copies that take long to open; none of them more than once.
#[derive(Debug, Default)]
pub(super) struct Late {
    ids: Mutex<BTreeSet<TopicPartition>>,
    opening: Mutex<FuturesUnordered<Opening>>,
}

impl Partitions {
    /// Has a copy opened, or made.
    pub(super) async fn begin_open(&self, image: &ClusterImage, local: &LocalPartition) -> Opening {
        let is_new = !self.placed.lock().contains_key(&local.id);
        self.open_log(image, local, is_new).await
    }

    /// Has a copy made where there is none.
    pub(super) async fn begin_new(&self, image: &ClusterImage, local: &LocalPartition) -> Opening {
        self.open_log(image, local, true).await
    }

    async fn open_log(&self, image: &ClusterImage, local: &LocalPartition, is_new: bool) -> Opening {
        let settings = Arc::new(self.settings(image, local));
        let closed = self.retries.closed(local.id, settings.replica.flush);
        let (done, opened) = oneshot::channel();
        let open = Open {
            id: local.id,
            settings: Arc::clone(&settings),
            epoch: new_epoch(&local.state),
            closed,
            is_short: is_new || closed.is_some(),
            done,
        };
        self.send(self.place(local.id), Event::Open(open)).await;
        Opening { id: local.id, settings, opened }
    }

    /// Takes in copies as they come up, until all have, or none has for a while, or it has taken long altogether: then those
    /// that are left are late.
    pub(super) async fn take_opened(&self, mut opening: FuturesUnordered<Opening>) {
        self.config.metrics.opening().begin(opening.len());
        let mut wait = Duration::from_millis(self.config.limits.open_wait_ms);
        if !self.late.ids.lock().is_empty() {
            // The metadata has waited already, and may have to each time.
            wait /= 10;
        }
        let clock = self.config.clock;
        let Millis(began) = clock.monotonic();
        let in_all = wait * WAITS_MAX;
        let left =
            || in_all.saturating_sub(Duration::from_millis((clock.monotonic().0 - began).unsigned_abs()));
        while let Ok(Some(end)) = tokio::time::timeout(wait.min(left()), opening.next()).await {
            self.take(end);
        }
        for opening in opening {
            let (id, topic) = (opening.id, &opening.settings.topic_name);
            tracing::warn!(partition = %id, %topic, "the log takes long to open; the node goes on without it meanwhile");
            // Whoever finds it failed must find it late.
            self.late.ids.lock().insert(id);
            self.copies.write().insert(id, Copy::Failed);
            self.late.opening.lock().push(opening);
        }
    }

    fn take(&self, OpenEnd { id, settings, result }: OpenEnd) {
        let copy = match result {
            Some(Ok(handle)) => {
                self.remove_left(id);
                if self.retries.on_opened(id, Offset(handle.reader().end())) {
                    tracing::info!(partition = %id, topic = %settings.topic_name, "the log could be opened now");
                    self.config.metrics.on_copy_reopened();
                }
                Copy::Open { handle, settings }
            }
            Some(Err(failure)) => self.on_open_failed(id, &failure),
            // The node is stopping.
            None => Copy::Failed,
        };
        self.copies.write().insert(id, copy);
        if let Some((copies, took_ms)) = self.config.metrics.opening().on_opened() {
            tracing::info!(copies, took_ms, "opened partition copies");
        }
    }

    async fn send_settings(
        &self,
        handle: &PartitionHandle,
        settings: Arc<TopicSettings>,
    ) -> oneshot::Receiver<()> {
        let (done, changed) = oneshot::channel();
        self.send(handle.directory(), Event::Settings { id: handle.id(), settings, done }).await;
        changed
    }

    /// The copies that take long to open.
    pub(crate) fn late(&self) -> BTreeSet<TopicPartition> {
        self.late.ids.lock().clone()
    }

    /// Whether the copy takes long to open.
    pub(crate) fn is_late(&self, id: TopicPartition) -> bool {
        self.late.ids.lock().contains(&id)
    }

    /// Waits for the next copy that is late; for ever if none is. It goes to [`take_late`](Self::take_late).
    pub(crate) async fn late_end(&self) -> OpenEnd {
        std::future::poll_fn(|cx| match self.late.opening.lock().poll_next_unpin(cx) {
            Poll::Ready(Some(end)) => Poll::Ready(end),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Takes in a copy that was late as the metadata wants it now. Called as [`apply`](Self::apply) is, never beside it, with
    /// the image that was applied last.
    pub(crate) async fn take_late(&self, image: &ClusterImage, mut end: OpenEnd) {
        let id = end.id;
        let wanted = image.partition_on(self.config.node, id);
        if let (Some(local), Some(Ok(handle))) = (&wanted, &end.result)
            && local.state.leader == Some(self.config.node)
            && local.state.replicas.len() > 1
            && self.retries.lacks(id, Offset(handle.reader().end()))
        {
            // As when it is opened again: others may have what it lacks, so it gives the leadership up first.
            let (done, dropped) = oneshot::channel();
            self.send(handle.directory(), Event::Drop(DropCopy { id, delete: false, done })).await;
            drop(dropped.await);
            end.result = Some(Err(OpenFailure::for_now("it leads, and others may have what it has lost")));
        }
        if let (Some(local), Some(Ok(handle))) = (&wanted, &end.result) {
            let settings = self.settings(image, local);
            // As in `apply`: what was decided in the old epoch must not be carried out under a smaller minimum.
            let replica = end.settings.replica.stricter(&settings.replica);
            let stricter = TopicSettings { replica, ..settings.clone() };
            let before = self.send_settings(handle, Arc::new(stricter)).await;
            let follows = self.change_epoch(handle, local).await;
            end.settings = Arc::new(settings);
            let after = self.send_settings(handle, Arc::clone(&end.settings)).await;
            // A thread that has ended changes nothing any more.
            drop((before.await, follows.await, after.await));
        }
        self.take(end);
        self.late.ids.lock().remove(&id);
        if wanted.is_none()
            && let Some(dropping) = self.begin_drop(id, image).await
        {
            self.finish_drop(dropping).await;
        }
    }
}
