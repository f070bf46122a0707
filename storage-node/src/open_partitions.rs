//! Brings the partitions of this node in line with the metadata, and says how far that has got; takes in copies that took long
//! to open, opens those again that could not be opened, begins those anew that were given up, and takes those that are moved to
//! their new place.

use crate::metadata_feed::Published;
use crate::metrics::NodeMetrics;
use crate::node::Node;
use proto_types::ids::{Incarnation, TopicPartition};
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::{ClusterImage, ImageDelta};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// Pause between two looks for copies that are to be opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// Makes the partitions of this node match what the feed publishes, and moves `applied`.
pub(crate) async fn open_partitions(
    node: Arc<Node>,
    mut to_open: mpsc::Receiver<Published>,
    mut lost: mpsc::Receiver<TopicPartition>,
    incarnation: Incarnation,
    metrics: Arc<NodeMetrics>,
) {
    // Before this incarnation's registration the log speaks of the one before: its leaderships are not ours.
    let joined = |image: &ClusterImage| {
        image.node(node.id()).is_some_and(|own| own.registration.incarnation == incarnation)
    };
    let mut reopen = tokio::time::interval(REOPEN_PAUSE);
    reopen.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<ImageDelta> = None;
    let mut applied: Option<Arc<ClusterImage>> = None;
    loop {
        let mut next = tokio::select! {
            next = to_open.recv() => match next {
                Some(next) => next,
                None => return,
            },
            Some(id) = lost.recv() => {
                if let Some(image) = &applied
                    && let Err(reason) = node.partitions().restart_copy(image, id).await
                {
                    tracing::error!(partition = %id, reason, "a copy that was given up cannot begin anew");
                }
                continue;
            }
            late = node.partitions().late_end() => {
                if let Some(image) = &applied {
                    node.partitions().take_late(image, late).await;
                }
                continue;
            }
            copied = node.partitions().moves().copied() => {
                node.partitions().finish_move(applied.as_deref(), copied).await;
                continue;
            }
            _ = reopen.tick() => {
                if let Some(image) = &applied {
                    node.partitions().reopen_failed(image).await;
                }
                continue;
            }
        };
        while let Ok(later) = to_open.try_recv() {
            next.delta.merge(later.delta);
            next.image = later.image;
        }
        if let Some(mut delta) = before.take() {
            delta.merge(next.delta);
            next.delta = delta;
        }
        if !joined(&next.image) {
            before = Some(next.delta);
            continue;
        }
        node.partitions().apply(&next.image, &next.delta).await;
        node.published().set_applied(next.image.index());
        metrics.set_applied_index(next.image.index());
        applied = Some(next.image);
    }
}
