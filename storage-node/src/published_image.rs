//! The image that everybody reads: one writer publishes, readers take a snapshot without waiting.

use crate::clock::Clock;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use proto_types::ids::{MetadataIndex, NodeId};
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::Departed;
use storage_node_core::image::ClusterImage;
use tokio::sync::watch;

/// Holds the newest image and how far it is applied. Shared behind an `Arc`.
#[derive(Debug)]
pub(crate) struct PublishedImage {
    current: ArcSwap<ClusterImage>,
    departed: Mutex<Departed>,
    clock: Clock,
    published: watch::Sender<MetadataIndex>,
    applied: watch::Sender<MetadataIndex>,
}

impl Default for PublishedImage {
    fn default() -> Self {
        Self {
            current: ArcSwap::from_pointee(ClusterImage::empty()),
            departed: Mutex::default(),
            clock: Clock::start(),
            published: watch::Sender::new(MetadataIndex(0)),
            applied: watch::Sender::new(MetadataIndex(0)),
        }
    }
}

impl PublishedImage {
    /// The newest image.
    pub(crate) fn load(&self) -> Arc<ClusterImage> {
        self.current.load_full()
    }

    /// Replaces the image; called by the metadata feed alone.
    pub(crate) fn publish(&self, image: ClusterImage) {
        let index = image.index();
        self.departed.lock().observe(&self.load(), &image, self.clock.monotonic());
        self.current.store(Arc::new(image));
        self.published.send_replace(index);
    }

    /// The nodes that were live less than `age` ago and are not any more.
    pub(crate) fn departed(&self, age: Duration) -> Vec<NodeId> {
        let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        self.departed.lock().within(self.clock.monotonic(), age_ms)
    }

    /// Says that the partitions led by this node are open as of `index`; called by the metadata feed alone.
    pub(crate) fn set_applied(&self, index: MetadataIndex) {
        self.applied.send_replace(index);
    }

    /// Follows the index up to which everything is applied: the image shows it, and the partitions led here are open.
    pub(crate) fn watch_applied(&self) -> watch::Receiver<MetadataIndex> {
        self.applied.subscribe()
    }

    /// Waits until an image satisfies `condition`, and returns it; `None` when the time is over.
    pub(crate) async fn wait_for(
        &self,
        timeout: Duration,
        condition: impl Fn(&ClusterImage) -> bool,
    ) -> Option<Arc<ClusterImage>> {
        let mut published = self.published.subscribe();
        let waiting = async {
            loop {
                published.borrow_and_update();
                let image = self.load();
                if condition(&image) {
                    return image;
                }
                if published.changed().await.is_err() {
                    // The sender lives in `self`, so this cannot end; waiting on is the honest answer.
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(timeout, waiting).await.ok()
    }
}
