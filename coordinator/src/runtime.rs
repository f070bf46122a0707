//! Starts and stops the tasks of shards as the metadata says.
//!
//! One task owns all of them: it takes an image, stops what others own now, starts what we own, and only then calls the
//! image applied, which the next heartbeat reports and the lease waits for.

use crate::image::Image;
use crate::metadata_feed::Published;
use crate::shard_task::{Event, ShardServices, own};
use coordinator_core::Topic;
use parking_lot::RwLock;
use proto_types::coordinator_api::Shard;
use proto_types::ids::{CoordinatorEpoch, CoordinatorId, Incarnation, MetadataIndex};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Where requests find the tasks of shards. Shared behind an `Arc`.
#[derive(Debug, Default)]
pub(crate) struct OwnedShards {
    queues: RwLock<HashMap<Shard, mpsc::Sender<Event>>>,
}

impl OwnedShards {
    /// The queue of a shard that we own.
    pub(crate) fn get(&self, shard: Shard) -> Option<mpsc::Sender<Event>> {
        self.queues.read().get(&shard).cloned()
    }
}

struct Running {
    epoch: CoordinatorEpoch,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// See the module.
pub(crate) struct Runtime {
    pub(crate) coordinator: CoordinatorId,
    pub(crate) incarnation: Incarnation,
    pub(crate) services: Arc<ShardServices>,
    pub(crate) shards: Arc<OwnedShards>,
    /// Requests in the queue of one shard.
    pub(crate) queue_max: usize,
    pub(crate) applied: watch::Sender<MetadataIndex>,
    pub(crate) draining: CancellationToken,
}

impl Runtime {
    /// Follows images until `draining`; then stops all shards and ends.
    pub(crate) async fn run(self, mut images: mpsc::Receiver<Published>) {
        let mut running = BTreeMap::new();
        loop {
            tokio::select! {
                () = self.draining.cancelled() => break,
                published = images.recv() => match published {
                    Some(published) => self.apply(&mut running, published).await,
                    None => break,
                }
            }
        }
        self.match_shards(&mut running, &BTreeMap::new()).await;
        self.services.lease.lost();
    }

    async fn apply(&self, running: &mut BTreeMap<Shard, Running>, published: Published) {
        let Published { image, deleted } = published;
        let index = image.index();
        let wanted = image.owned_by(self.coordinator, self.incarnation);
        self.services.image.store(Arc::<Image>::clone(&image));
        self.match_shards(running, &wanted).await;
        self.tell_deleted(&deleted);
        self.services.lease.applied(index);
        self.applied.send_replace(index);
    }

    async fn match_shards(
        &self,
        running: &mut BTreeMap<Shard, Running>,
        wanted: &BTreeMap<Shard, CoordinatorEpoch>,
    ) {
        let lost: Vec<Shard> = running
            .iter()
            .filter(|(shard, running)| wanted.get(shard) != Some(&running.epoch))
            .map(|(shard, _)| *shard)
            .collect();
        let mut stopping = Vec::new();
        for shard in lost {
            self.shards.queues.write().remove(&shard);
            if let Some(lost) = running.remove(&shard) {
                lost.stop.cancel();
                stopping.push((shard, lost.task));
            }
        }
        for (shard, task) in stopping {
            if let Err(error) = task.await {
                tracing::error!(%shard, %error, "the task of a shard did not end well");
            }
        }
        for (shard, epoch) in wanted {
            if !running.contains_key(shard) {
                running.insert(*shard, self.start(*shard, *epoch));
            }
        }
        let count = i64::try_from(running.len()).unwrap_or(i64::MAX);
        self.services.metrics.shards.set(count);
    }

    fn start(&self, shard: Shard, epoch: CoordinatorEpoch) -> Running {
        let (queue, events) = mpsc::channel(self.queue_max);
        let stop = CancellationToken::new();
        let task = tokio::spawn(own(shard, epoch, Arc::clone(&self.services), events, stop.clone()));
        self.shards.queues.write().insert(shard, queue);
        Running { epoch, stop, task }
    }

    fn tell_deleted(&self, deleted: &[Topic]) {
        let queues = self.shards.queues.read();
        for topic in deleted {
            for (shard, queue) in queues.iter() {
                // Its offsets stay until they expire.
                if queue.try_send(Event::TopicDeleted(topic.clone())).is_err() {
                    tracing::warn!(%shard, topic = &*topic.name, "a busy shard keeps offsets of a deleted topic");
                }
            }
        }
    }
}
