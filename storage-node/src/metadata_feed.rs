//! Follows the metadata log: a stream from any controller, an image for readers, partitions for the disks.
//!
//! Two tasks. The *reader* takes frames, applies them to its image and publishes each image at once. The *opener* makes the
//! partitions of this node match, and only when those that it leads are open does it move `applied`, which heartbeats
//! report and topic creation waits for. What was published while partitions were being opened is taken together.

use crate::controller_client::ControllerClient;
use crate::metrics::NodeMetrics;
use crate::published_image::PublishedImage;
use crate::session::SessionState;
use bytes::Bytes;
use proto_types::controller_api::{FeedFrame, FeedRequest};
use proto_types::ids::MetadataIndex;
use quic_transport::{FrameReceiver, FrameSender, MessageKind};
use std::sync::Arc;
use std::time::Duration;
use storage_node_core::image::{ClusterImage, ImageDelta};
use tokio::sync::{mpsc, watch};

/// An image and what it changed.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) image: Arc<ClusterImage>,
    pub(crate) delta: ImageDelta,
}

/// The reading side; see the module.
pub(crate) struct MetadataFeed {
    pub(crate) controller: Arc<ControllerClient>,
    pub(crate) cluster_id: String,
    pub(crate) published: Arc<PublishedImage>,
    pub(crate) session: watch::Receiver<SessionState>,
    pub(crate) opener: mpsc::Sender<Published>,
    /// How long opening a stream may take.
    pub(crate) open_max: Duration,
    /// How long a stream may lag behind the commit index of the heartbeats before another controller is asked.
    pub(crate) stall_max: Duration,
    pub(crate) metrics: Arc<NodeMetrics>,
}

/// Why one stream ended.
enum StreamEnd {
    /// The controller or the network; another controller may do better.
    Lost(String),
    /// This node is stopping.
    Stopping,
}

impl MetadataFeed {
    /// Follows until the opener is gone.
    pub(crate) async fn run(mut self) {
        let mut image = ClusterImage::empty();
        let mut target = self.controller.leader();
        let mut failures = 0_u32;
        loop {
            let before = image.index();
            match self.follow(target, &mut image).await {
                StreamEnd::Stopping => return,
                StreamEnd::Lost(reason) => {
                    if image.index() > before {
                        failures = 0;
                    }
                    if failures == 0 {
                        tracing::warn!(reason, index = %image.index(), "the metadata feed ended; open another");
                    } else {
                        tracing::debug!(reason, failures, "the metadata feed ended; open another");
                    }
                    self.metrics.on_feed_lost();
                }
            }
            self.controller.forget_address(target);
            target = (target + 1) % self.controller.count();
            tokio::time::sleep(self.controller.pause(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    async fn follow(&mut self, target: usize, image: &mut ClusterImage) -> StreamEnd {
        // The sending half says that we still want the stream; nothing is sent on it after the hello.
        let (_open, mut frames) = match self.open(target, image.index()).await {
            Ok(stream) => stream,
            Err(reason) => return StreamEnd::Lost(reason),
        };
        let mut building = None;
        loop {
            let frame = tokio::select! {
                frame = frames.recv_message::<FeedFrame>() => frame,
                () = lags(&mut self.session, image.index(), self.stall_max) => {
                    return StreamEnd::Lost(format!("it stands at {} and the quorum is further", image.index()));
                }
            };
            let published = match frame {
                Ok(Some(frame)) => take(image, &mut building, frame),
                Ok(None) => return StreamEnd::Lost("the controller ended it".to_owned()),
                Err(error) => return StreamEnd::Lost(error.to_string()),
            };
            match published {
                Err(reason) => return StreamEnd::Lost(reason),
                Ok(None) => {}
                Ok(Some(delta)) => {
                    self.controller.learn(image.controllers());
                    self.published.publish(image.clone());
                    self.metrics.set_metadata_index(image.index());
                    let published = Published { image: Arc::new(image.clone()), delta };
                    if self.opener.send(published).await.is_err() {
                        return StreamEnd::Stopping;
                    }
                }
            }
        }
    }

    async fn open(
        &self,
        target: usize,
        index: MetadataIndex,
    ) -> Result<(FrameSender, FrameReceiver), String> {
        let after = (index > MetadataIndex(0)).then_some(index);
        let hello = FeedRequest { cluster_id: self.cluster_id.clone(), after };
        let peer = self.controller.peer(target).await?;
        peer.open_stream(MessageKind::MetadataFeed, Bytes::from(proto_types::encode(&hello)), self.open_max)
            .await
            .map_err(|error| error.to_string())
    }
}

/// Applies one frame. Returns what it changed once an image is whole.
fn take(
    image: &mut ClusterImage,
    building: &mut Option<ClusterImage>,
    frame: FeedFrame,
) -> Result<Option<ImageDelta>, String> {
    match frame {
        FeedFrame::Snapshot { index, first, last, changes } => {
            if first {
                *building = Some(ClusterImage::empty());
            }
            let Some(next) = building.as_mut() else {
                return Err("a snapshot began in its middle".to_owned());
            };
            next.apply(index, &changes);
            if !last {
                return Ok(None);
            }
            let next = building.take().expect("it was there a moment ago");
            // Going back would undo what clients have seen: a controller that is behind is not for us.
            if next.index() < image.index() {
                return Err(format!(
                    "its snapshot stands at {}, this node at {}",
                    next.index(),
                    image.index()
                ));
            }
            let delta = ImageDelta::between(image, &next);
            *image = next;
            Ok(Some(delta))
        }
        FeedFrame::Delta { .. } if building.is_some() => Err("a snapshot broke off".to_owned()),
        FeedFrame::Delta { index, changes } => {
            if index <= image.index() {
                return Err(format!("index {index} came after {}", image.index()));
            }
            Ok(Some(image.apply(index, &changes)))
        }
    }
}

/// Completes when the quorum has been ahead of `index` for `stall_max`.
async fn lags(session: &mut watch::Receiver<SessionState>, index: MetadataIndex, stall_max: Duration) {
    if session.wait_for(|state| state.committed > index).await.is_err() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(stall_max).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::TopicId;
    use proto_types::metadata::MetadataChange;
    use uuid::Uuid;

    fn created(n: u128) -> MetadataChange {
        MetadataChange::TopicCreated { topic: TopicId(Uuid::from_u128(n)), name: format!("t{n}") }
    }

    fn snapshot(index: u64, first: bool, last: bool, changes: Vec<MetadataChange>) -> FeedFrame {
        FeedFrame::Snapshot { index: MetadataIndex(index), first, last, changes }
    }

    fn delta(index: u64, changes: Vec<MetadataChange>) -> FeedFrame {
        FeedFrame::Delta { index: MetadataIndex(index), changes }
    }

    /// The names in the image after these frames, and its index; or the complaint about the first bad frame.
    fn check(frames: Vec<FeedFrame>) -> Result<(Vec<String>, u64), String> {
        let (mut image, mut building) = (ClusterImage::empty(), None);
        for frame in frames {
            take(&mut image, &mut building, frame)?;
        }
        Ok((image.topics().map(|topic| topic.name.to_string()).collect(), image.index().0))
    }

    #[test]
    fn a_snapshot_in_parts_then_deltas() {
        let frames = vec![
            snapshot(5, true, false, vec![created(1)]),
            snapshot(5, false, true, vec![created(2)]),
            delta(6, vec![created(3)]),
            delta(9, vec![]),
        ];
        assert_eq!(check(frames), Ok((vec!["t1".into(), "t2".into(), "t3".into()], 9)));
    }

    #[test]
    fn a_second_snapshot_replaces_the_first() {
        let frames =
            vec![snapshot(5, true, true, vec![created(1)]), snapshot(7, true, true, vec![created(2)])];
        assert_eq!(check(frames), Ok((vec!["t2".into()], 7)));
    }

    #[test]
    fn an_image_is_not_shown_before_its_snapshot_is_whole() {
        let frames = vec![snapshot(5, true, false, vec![created(1)])];
        assert_eq!(check(frames), Ok((vec![], 0)));
    }

    #[test]
    fn frames_out_of_order_end_the_stream() {
        assert!(check(vec![snapshot(5, false, true, vec![])]).is_err());
        assert!(check(vec![snapshot(5, true, false, vec![]), delta(6, vec![])]).is_err());
        assert!(check(vec![delta(6, vec![]), delta(6, vec![])]).is_err());
        assert!(check(vec![delta(6, vec![]), snapshot(5, true, true, vec![])]).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_that_stands_still_behind_the_quorum_is_given_up() {
        let (sender, mut receiver) = watch::channel(SessionState::default());
        let stall = Duration::from_secs(2);
        let current = lags(&mut receiver, MetadataIndex(0), stall);
        assert!(tokio::time::timeout(Duration::from_secs(60), current).await.is_err(), "it is not behind");
        sender.send_modify(|state| state.committed = MetadataIndex(3));
        let behind = lags(&mut receiver, MetadataIndex(2), stall);
        assert!(tokio::time::timeout(Duration::from_secs(3), behind).await.is_ok());
    }
}
