//! Copies that are being opened: each is taken in as it comes up, whatever the others do.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use proto_types::ids::TopicPartition;
use storage_node_core::image::{ClusterImage, LocalPartition};
use tokio::sync::oneshot;

use super::{Copy, Partitions, new_epoch};
use crate::disk::event::{Event, Open, OpenFailure};
use crate::partition::{PartitionHandle, TopicSettings};

/// What comes of an open. `None` if the thread that was to do it has ended.
pub(super) type Answer = Option<Result<PartitionHandle, OpenFailure>>;

/// A copy that is being opened.
pub(super) struct Opening {
    id: TopicPartition,
    settings: Arc<TopicSettings>,
    opened: oneshot::Receiver<Result<PartitionHandle, OpenFailure>>,
}

impl Opening {
    /// Waits for it.
    pub(super) async fn answer(self) -> (TopicPartition, Arc<TopicSettings>, Answer) {
        (self.id, self.settings, self.opened.await.ok())
    }
}

impl Partitions {
    /// Has a copy opened, or made.
    pub(super) async fn begin_open(&self, image: &ClusterImage, local: &LocalPartition) -> Opening {
        let settings = Arc::new(self.settings(image, local));
        let closed = self.retries.closed(local.id, settings.replica.flush);
        let (done, opened) = oneshot::channel();
        let open = Open {
            id: local.id,
            settings: Arc::clone(&settings),
            epoch: new_epoch(&local.state),
            closed,
            done,
        };
        self.send(self.place(local.id), Event::Open(open)).await;
        Opening { id: local.id, settings, opened }
    }

    /// Waits for copies and takes in each when it comes.
    pub(super) async fn take_opened(&self, opening: Vec<Opening>) {
        let progress = self.config.metrics.opening();
        progress.begin(opening.len());
        let mut opening: FuturesUnordered<_> = opening.into_iter().map(Opening::answer).collect();
        while let Some((id, settings, answer)) = opening.next().await {
            let copy = match answer {
                Some(Ok(handle)) => Copy::Open { handle, settings },
                Some(Err(failure)) => self.on_open_failed(id, &failure),
                None => Copy::Failed,
            };
            self.copies.write().insert(id, copy);
            progress.on_opened();
        }
        if let Some((copies, took_ms)) = progress.end() {
            tracing::info!(copies, took_ms, "opened partition copies");
        }
    }
}
