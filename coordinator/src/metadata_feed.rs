//! Follows the metadata log: a stream from any controller, an image for readers.

use crate::controllers::{Controllers, Pauses};
use crate::image::Image;
use crate::metrics::CoordinatorMetrics;
use crate::session::SessionState;
use coordinator_core::Topic;
use proto_types::controller_api::{FeedFrame, FeedRequest};
use proto_types::ids::MetadataIndex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// An image, and the topics that are gone since the one before it.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) image: Arc<Image>,
    pub(crate) deleted: Vec<Topic>,
}

/// Follows one controller after the other.
pub(crate) struct MetadataFeed {
    pub(crate) controllers: Arc<Controllers>,
    pub(crate) cluster_id: String,
    pub(crate) session: watch::Receiver<SessionState>,
    pub(crate) images: mpsc::Sender<Published>,
    pub(crate) retry: Pauses,
    /// How long a stream may lag behind the commit index of the heartbeats before another controller is asked.
    pub(crate) stall_max: Duration,
    pub(crate) metrics: Arc<CoordinatorMetrics>,
}

/// Why one stream ended.
enum StreamEnd {
    /// The controller or the network; another controller may do better.
    Lost(String),
    /// The daemon is stopping.
    Stopping,
}

impl MetadataFeed {
    /// Follows until nobody wants the images.
    pub(crate) async fn run(mut self) {
        let mut image = Image::default();
        let mut target = self.controllers.leader();
        let mut last_logged = String::new();
        let mut failures = 0_u32;
        loop {
            let before = image.index();
            match self.follow(target, &mut image).await {
                StreamEnd::Stopping => return,
                StreamEnd::Lost(reason) => {
                    if image.index() > before {
                        failures = 0;
                    }
                    if image.index() > before || reason != last_logged {
                        tracing::warn!(reason, index = %image.index(), "the metadata feed ended; open another");
                        last_logged = reason;
                    }
                    self.metrics.on_feed_lost();
                }
            }
            target = (target + 1) % self.controllers.count();
            tokio::time::sleep(self.retry.after(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    async fn follow(&mut self, target: usize, image: &mut Image) -> StreamEnd {
        let after = (image.index() > MetadataIndex(0)).then_some(image.index());
        let request = FeedRequest { cluster_id: self.cluster_id.clone(), after };
        // The sending half says that we still want the stream; nothing is sent on it after the hello.
        let (_open, mut frames) = match self.controllers.open_feed(target, &request).await {
            Ok(stream) => stream,
            Err(failure) => return StreamEnd::Lost(failure.to_string()),
        };
        let mut building = None;
        loop {
            let frame = tokio::select! {
                frame = frames.recv_message::<FeedFrame>() => frame,
                () = lags(&mut self.session, image.index(), self.stall_max) => {
                    return StreamEnd::Lost(format!("it stands at {} and the quorum is further", image.index()));
                }
            };
            let taken = match frame {
                Ok(Some(frame)) => take(image, &mut building, frame),
                Ok(None) => return StreamEnd::Lost("the controller ended it".to_owned()),
                Err(error) => return StreamEnd::Lost(error.to_string()),
            };
            match taken {
                Err(reason) => return StreamEnd::Lost(reason),
                Ok(None) => {}
                Ok(Some(deleted)) => {
                    self.metrics.set_metadata_index(image.index());
                    let published = Published { image: Arc::new(image.clone()), deleted };
                    if self.images.send(published).await.is_err() {
                        return StreamEnd::Stopping;
                    }
                }
            }
        }
    }
}

/// Applies one frame. Returns the topics that it deleted once an image is whole.
fn take(
    image: &mut Image,
    building: &mut Option<Image>,
    frame: FeedFrame,
) -> Result<Option<Vec<Topic>>, String> {
    match frame {
        FeedFrame::Snapshot { index, first, last, changes } => {
            if first {
                *building = Some(Image::default());
            }
            let Some(mut next) = building.take() else {
                return Err("a snapshot began in its middle".to_owned());
            };
            next.apply(index, &changes);
            if !last {
                *building = Some(next);
                return Ok(None);
            }
            // Going back would bring shards back that others own: a controller that is behind is not for us.
            if next.index() < image.index() {
                return Err(format!("its snapshot stands at {}, ours at {}", next.index(), image.index()));
            }
            let deleted = next.topics_missing_from(image);
            *image = next;
            Ok(Some(deleted))
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
    use coordinator_core::TopicImage;
    use proto_types::ids::TopicId;
    use proto_types::metadata::MetadataChange;
    use uuid::Uuid;

    fn created(n: u128) -> Vec<MetadataChange> {
        vec![MetadataChange::TopicCreated { topic: TopicId(Uuid::from_u128(n)), name: format!("t{n}") }]
    }

    fn snapshot(index: u64, first: bool, last: bool, changes: Vec<MetadataChange>) -> FeedFrame {
        FeedFrame::Snapshot { index: MetadataIndex(index), first, last, changes }
    }

    fn delta(index: u64, changes: Vec<MetadataChange>) -> FeedFrame {
        FeedFrame::Delta { index: MetadataIndex(index), changes }
    }

    /// Which of `t1`, `t2` and `t3` are there after these frames, and how many topics were told to be deleted.
    fn check(frames: Vec<FeedFrame>) -> Result<(Vec<String>, usize), String> {
        let (mut image, mut building, mut gone) = (Image::default(), None, 0);
        for frame in frames {
            gone += take(&mut image, &mut building, frame)?.map_or(0, |deleted| deleted.len());
        }
        let names = (1..=3).map(|n| format!("t{n}"));
        Ok((names.filter(|name| crate::image::Topics(&image).by_name(name).is_some()).collect(), gone))
    }

    #[test]
    fn a_snapshot_replaces_and_tells_what_is_gone() {
        let frames = vec![
            snapshot(5, true, false, created(1)),
            snapshot(5, false, true, created(2)),
            delta(6, created(3)),
            snapshot(9, true, true, created(3)),
        ];
        assert_eq!(check(frames), Ok((vec!["t3".into()], 2)));
    }

    #[test]
    fn an_image_is_not_shown_before_its_snapshot_is_whole() {
        assert_eq!(check(vec![snapshot(5, true, false, created(1))]), Ok((vec![], 0)));
    }

    #[test]
    fn frames_out_of_order_end_the_stream() {
        assert!(check(vec![snapshot(5, false, true, vec![])]).is_err());
        assert!(check(vec![snapshot(5, true, false, vec![]), delta(6, vec![])]).is_err());
        assert!(check(vec![delta(6, vec![]), delta(6, vec![])]).is_err());
        assert!(check(vec![delta(6, vec![]), snapshot(5, true, true, vec![])]).is_err());
    }
}
