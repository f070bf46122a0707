//! All partition copies of this node: opened, changed and dropped as the metadata says, found by id.
//!
//! [`Partitions::apply`] is called by the metadata feed alone, one call after the other, and returns when everything is
//! done: only then may the node say that the partitions it leads are open. A copy that cannot be opened stays listed as
//! failed, so that clients get a storage error and not a wrong answer; [`Partitions::reopen_failed`] tries it again. So it
//! does with one that has met a full disk. One that takes long to open is listed so until it is open (`open`).

mod drop;
mod left;
mod limits;
mod lost_disk;
mod moves;
mod open;
mod reopen;
mod repair;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use log_engine::DataDir;
use parking_lot::{Mutex, RwLock};
use proto_types::ids::{Millis, NodeId, TopicPartition};
use proto_types::metadata::{ConfigResource, PartitionState};
use storage_node_core::effective_config::ConfigView;
use storage_node_core::image::{ClusterImage, ConfigMap, ImageDelta, LocalPartition};
use storage_node_core::{CopyChange, NewEpoch, Standing, copy_changes};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::handle::{PartitionHandle, describe_followers};
use super::metrics::PartitionMetrics;
use super::placed::{Placed, where_copies_are};
use super::settings::TopicSettings;
use crate::clock::Clock;
use crate::directories::OfflineDirectory;
use crate::disk::cleaner::{Cleaner, CleanerMetrics, CleanerSettings};
use crate::disk::event::{Event, FollowersOf, LedPartition};
use crate::disk::event_queue::EventQueue;
use crate::disk::health::{DiskHealth, StallWatch};
use crate::disk::log_thread::LogThread;
use crate::disk::read_pool::ReadPool;
use crate::disk::scrub::ScrubRequests;
use crate::replication::Replication;

pub(crate) use limits::PartitionLimits;
pub(crate) use moves::{AskedMove, Closing, MoveRefusal, Moves};

/// How often the disks are looked at.
const HEALTH_INTERVAL: Duration = Duration::from_millis(250);

/// Unknown logs that are named one by one.
const STRAYS_NAMED_MAX: usize = 20;

/// What the partition runtime is made of.
#[derive(Debug)]
pub(crate) struct PartitionsConfig {
    pub(crate) node: NodeId,
    /// Node configs that stand in the node's own configuration; they are defaults of topic configs.
    pub(crate) file_configs: ConfigMap,
    pub(crate) limits: PartitionLimits,
    pub(crate) clock: Clock,
    pub(crate) metrics: PartitionMetrics,
    pub(crate) cleaner_metrics: CleanerMetrics,
    pub(crate) replication: Arc<Replication>,
    /// Data directories that could not be opened.
    pub(crate) offline: Vec<OfflineDirectory>,
    /// Ids of data directories that are given up for lost.
    pub(crate) given_up: Vec<Uuid>,
    /// A data directory has taken the place of a lost one.
    pub(crate) replaces_lost_disk: bool,
}

/// What is known of a partition on this node.
#[derive(Debug, Clone)]
pub(crate) enum Lookup {
    /// The copy is open.
    Open(PartitionHandle),
    /// The copy is here but cannot be opened.
    Failed,
    /// There is no copy here, or it is not open yet.
    Absent,
}

/// All partition copies of this node.
#[derive(Debug)]
pub(crate) struct Partitions {
    config: PartitionsConfig,
    directories: Vec<Directory>,
    read_pool: ReadPool,
    copies: RwLock<HashMap<TopicPartition, Copy>>,
    /// In which directory each copy lies, those included that are not open.
    placed: Mutex<HashMap<TopicPartition, usize>>,
    /// Copies that lie in several directories, each with those.
    in_doubt: Mutex<BTreeMap<TopicPartition, Vec<usize>>>,
    /// Copies that must be in a directory that is not open, or may be.
    offline: Mutex<BTreeSet<TopicPartition>>,
    /// Copies whose records are known to be damaged.
    damaged: Mutex<BTreeSet<TopicPartition>>,
    /// Whether all copies that were on a lost disk are noted as such; also where no disk is lost.
    lost_missed: watch::Sender<bool>,
    /// Copies that could not be opened for the moment.
    retries: reopen::Retries,
    /// Copies that take long to open.
    late: open::Late,
    /// Copies that began anew while their damaged logs lie aside.
    aside: Mutex<BTreeSet<TopicPartition>>,
    moves: Arc<Moves>,
    left: left::Left,
    healthy: watch::Sender<bool>,
    /// The first image was applied: every copy was come to.
    has_applied: AtomicBool,
    cleaner: Cleaner,
}

/// One data directory with the thread that owns it.
struct Directory {
    data: DataDir,
    queue: Arc<EventQueue<Event>>,
    health: Arc<DiskHealth>,
    thread: Mutex<Option<JoinHandle<()>>>,
    scrub: Arc<ScrubRequests>,
    scrubber: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Directory({})", self.data.path().display())
    }
}

#[derive(Debug, Clone)]
enum Copy {
    Open { handle: PartitionHandle, settings: Arc<TopicSettings> },
    Failed,
}

/// Where a copy lies and how large it is.
#[derive(Debug, Clone)]
pub(crate) struct CopySize {
    pub(crate) id: TopicPartition,
    pub(crate) bytes: u64,
}

impl Partitions {
    /// Starts the threads over open data directories. No copy is open before the first [`Partitions::apply`].
    pub(crate) fn start(config: PartitionsConfig, data: Vec<DataDir>) -> std::io::Result<Arc<Self>> {
        let limits = &config.limits;
        let read_pool = ReadPool::start(limits.read_threads, limits.read_queue_max)?;
        let mut directories = Vec::new();
        let Placed { directories: placed, in_doubt, elsewhere, left } =
            where_copies_are(&data, &config.given_up).map_err(std::io::Error::other)?;
        for (place, data) in data.into_iter().enumerate() {
            let queue = Arc::new(EventQueue::new(limits.queue));
            let health = Arc::new(DiskHealth::new());
            let scrub = Arc::<ScrubRequests>::default();
            let thread = LogThread {
                me: config.node,
                data: data.clone(),
                directory: place,
                queue: Arc::clone(&queue),
                health: Arc::clone(&health),
                clock: config.clock,
                metrics: config.metrics.clone(),
                replication: Arc::clone(&config.replication),
                scrub: Arc::clone(&scrub),
                housekeeping: limits.housekeeping,
            };
            let thread = Mutex::new(Some(thread.start(limits.flusher.clone())?));
            let scrubber = Mutex::default();
            directories.push(Directory { data, queue, health, thread, scrub, scrubber });
        }
        let aside = repair::logs_aside(directories.iter().map(|directory: &Directory| &directory.data))
            .map_err(std::io::Error::other)?;
        let copies = RwLock::default();
        let lost_missed = watch::Sender::new(!config.replaces_lost_disk);
        let healthy = watch::Sender::new(true);
        let cleaner = Cleaner::new(config.clock, config.cleaner_metrics.clone());
        let partitions = Arc::new(Self {
            config,
            directories,
            read_pool,
            copies,
            placed: Mutex::new(placed),
            in_doubt: Mutex::new(in_doubt),
            offline: Mutex::new(elsewhere),
            damaged: Mutex::default(),
            lost_missed,
            retries: reopen::Retries::default(),
            late: open::Late::default(),
            aside: Mutex::new(aside),
            moves: Arc::default(),
            left: left::Left::of(left),
            healthy,
            has_applied: AtomicBool::new(false),
            cleaner,
        });
        partitions.cleaner.attach(Arc::downgrade(&partitions));
        for directory in &partitions.config.offline {
            partitions.config.metrics.disks().of(&directory.path).set_offline(&directory.reason);
        }
        watch_disks(Arc::downgrade(&partitions))?;
        partitions.start_scrubs()?;
        Ok(partitions)
    }

    /// Finds a copy.
    pub(crate) fn get(&self, id: TopicPartition) -> Lookup {
        match self.copies.read().get(&id) {
            Some(Copy::Open { handle, .. }) => Lookup::Open(handle.clone()),
            Some(Copy::Failed) => Lookup::Failed,
            None => Lookup::Absent,
        }
    }

    /// The copies that are of no use: their logs could not be opened, or have failed since.
    pub(crate) fn failed(&self) -> Vec<TopicPartition> {
        let failed = |copy: &Copy| match copy {
            Copy::Open { handle, .. } => handle.view().standing == Standing::Failed,
            Copy::Failed => true,
        };
        self.copies.read().iter().filter(|(_, copy)| failed(copy)).map(|(id, _)| *id).collect()
    }

    /// Threads for work that may take long.
    pub(crate) fn read_pool(&self) -> &ReadPool {
        &self.read_pool
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> &PartitionMetrics {
        &self.config.metrics
    }

    /// Whether all disks do their work; follows the stall threshold.
    pub(crate) fn watch_healthy(&self) -> watch::Receiver<bool> {
        self.healthy.subscribe()
    }

    /// The data directories, in the order of the configuration.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &DataDir> {
        self.directories.iter().map(|directory| &directory.data)
    }

    /// Why a data directory, given by its place, is offline, if it is.
    pub(crate) fn failure_of(&self, directory: usize) -> Option<String> {
        self.directories.get(directory).and_then(|directory| directory.health.failure())
    }

    /// The copies in a data directory, given by its place, with their sizes.
    pub(crate) fn copies_in(&self, directory: usize) -> Vec<CopySize> {
        let copies = self.copies.read();
        let open = copies.values().filter_map(|copy| match copy {
            Copy::Open { handle, .. } if handle.directory() == directory => Some(handle.clone()),
            Copy::Open { .. } | Copy::Failed => None,
        });
        let handles: Vec<_> = open.collect();
        drop(copies);
        handles
            .into_iter()
            .map(|handle| CopySize { id: handle.id(), bytes: handle.reader().size_bytes() })
            .collect()
    }

    /// The open copies of compacted topics, each with its data directory.
    pub(crate) fn compacted(&self) -> Vec<(PartitionHandle, DataDir)> {
        let copies = self.copies.read();
        let compacted = copies.values().filter_map(|copy| match copy {
            Copy::Open { handle, settings } if settings.compacted => {
                Some((handle.clone(), self.directories[handle.directory()].data.clone()))
            }
            Copy::Open { .. } | Copy::Failed => None,
        });
        compacted.collect()
    }

    /// Partitions that this node leads, at most so many, with those of their followers that have lacked something for at
    /// least so long. Whether there are more.
    pub(crate) async fn lagging_followers(
        &self,
        lag_ms_min: i64,
        partitions_max: usize,
    ) -> (Vec<LedPartition>, bool) {
        let of = FollowersOf::Lagging { lag_ms_min, partitions_max: partitions_max.saturating_add(1) };
        let mut all = Vec::new();
        for directory in &self.directories {
            all.extend(describe_followers(&directory.queue, of).await);
        }
        let more = all.len() > partitions_max;
        all.truncate(partitions_max);
        (all, more)
    }

    /// Makes the copies match `image`, given what `delta` says has changed. When it returns, every copy that this node
    /// leads is open (or failed, or late), and every dropped one is gone.
    pub(crate) async fn apply(&self, image: &ClusterImage, delta: &ImageDelta) {
        self.follow_node_configs(image);
        let (changes, settings_changed) = {
            let copies = self.copies.read();
            let all = delta.configs.iter().any(|of| !matches!(of, ConfigResource::Topic(_)));
            let changed =
                |id: &&TopicPartition| all || delta.configs.contains(&ConfigResource::Topic(id.topic));
            let settings_changed: BTreeSet<TopicPartition> = copies.keys().filter(changed).copied().collect();
            (copy_changes(image, delta, self.config.node, &copies), settings_changed)
        };
        let opening = FuturesUnordered::new();
        let (mut done, mut dropping) = (Vec::new(), Vec::new());
        // Which of its changes came first the image does not tell. What was decided under one minimum of in-sync replicas must
        // not be carried out under a smaller one.
        for &id in &settings_changed {
            done.extend(self.change_settings(image, id, Configs::Stricter));
        }
        self.miss_lost_copies(&changes).await;
        for change in changes {
            match change {
                CopyChange::Open(local) if self.is_offline(local.id) || self.is_late(local.id) => {
                    self.copies.write().insert(local.id, Copy::Failed);
                }
                CopyChange::Open(local) if self.is_in_doubt(local.id) => {
                    self.config.metrics.on_log_failed();
                    self.copies.write().insert(local.id, Copy::Failed);
                }
                CopyChange::Open(local) => opening.push(self.begin_open(image, &local).await),
                CopyChange::GoOn(local) => match self.get(local.id) {
                    Lookup::Open(handle) => done.push(self.change_epoch(&handle, &local).await),
                    Lookup::Failed | Lookup::Absent => {}
                },
                CopyChange::Drop(id) => dropping.extend(self.begin_drop(id, image).await),
            }
        }
        for id in settings_changed {
            done.extend(self.change_settings(image, id, Configs::New));
        }
        self.take_opened(opening).await;
        for done in done {
            // A thread that ended does nothing any more, which is what is waited for.
            drop(done.await);
        }
        for dropping in dropping {
            self.finish_drop(dropping).await;
        }
        if !self.has_applied.swap(true, Ordering::Relaxed) {
            self.name_strays(image);
        }
    }

    fn follow_node_configs(&self, image: &ClusterImage) {
        let view = ConfigView::new(image, self.config.node, &self.config.file_configs);
        let rate =
            |name| view.node_value(name).and_then(|value| value.trim().parse().ok()).unwrap_or(u64::MAX);
        let throttles = &self.config.replication.throttles;
        throttles.leader.set(rate("leader.replication.throttled.rate"));
        throttles.follower.set(rate("follower.replication.throttled.rate"));
        throttles.moves.set(rate("replica.alter.log.dirs.io.max.bytes.per.second"));
        self.cleaner.configure(CleanerSettings::resolve(&view));
    }

    /// Names the logs on this node's disks that the metadata does not place here: left behind by topics that were deleted
    /// while the node was down, or whose log could not be opened. They are left alone: deleting on the word of metadata
    /// that may have been lost would be worse than keeping them.
    fn name_strays(&self, image: &ClusterImage) {
        let placed = self.placed.lock();
        let strays: Vec<_> =
            placed.iter().filter(|(id, _)| image.partition_on(self.config.node, **id).is_none()).collect();
        for &(id, &place) in strays.iter().take(STRAYS_NAMED_MAX) {
            let path = self.directories[place].data.path().join(id.to_string());
            tracing::warn!(path = %path.display(), "the cluster does not know this log; remove it if it is not needed");
        }
        if strays.len() > STRAYS_NAMED_MAX {
            tracing::warn!(count = strays.len(), "more logs are unknown to the cluster");
        }
    }

    /// Not all logs were come to: those that were not may have writes of an earlier process that no sync has confirmed.
    fn leave_unopened(&self) {
        for &place in self.placed.lock().values() {
            let data = &self.directories[place].data;
            if !data.was_clean() {
                data.set_unclean();
            }
        }
    }

    /// Flushes and closes everything. The door must have stopped before.
    pub(crate) async fn close(self: &Arc<Self>) {
        self.moves.stop();
        self.cleaner.request_stop();
        let this = Arc::clone(self);
        if tokio::task::spawn_blocking(move || this.cleaner.join()).await.is_err() {
            tracing::error!("waiting for the threads that compact failed");
        }
        if !self.has_applied.load(Ordering::Relaxed) {
            self.leave_unopened();
        }
        for directory in &self.directories {
            directory.scrub.stop();
            directory.data.stop_sealing();
            // A queue that is closed already belongs to a thread that has ended.
            drop(directory.queue.push(Event::Stop));
        }
        let threads: Vec<_> =
            self.directories.iter().filter_map(|directory| directory.thread.lock().take()).collect();
        let scrubbers: Vec<_> =
            self.directories.iter().filter_map(|directory| directory.scrubber.lock().take()).collect();
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads.into_iter().chain(scrubbers) {
                if thread.join().is_err() {
                    tracing::error!("a log thread or scrub had panicked");
                }
            }
        });
        if joined.await.is_err() {
            tracing::error!("waiting for the log threads failed");
        }
        self.copies.write().clear();
    }

    async fn change_epoch(&self, handle: &PartitionHandle, local: &LocalPartition) -> oneshot::Receiver<()> {
        let (done, receiver) = oneshot::channel();
        let event = Event::NewEpoch { id: local.id, epoch: new_epoch(&local.state), done };
        self.send(handle.directory(), event).await;
        receiver
    }

    fn change_settings(
        &self,
        image: &ClusterImage,
        id: TopicPartition,
        which: Configs,
    ) -> Option<oneshot::Receiver<()>> {
        let local = image.partition_on(self.config.node, id)?;
        let mut new = self.settings(image, &local);
        let mut copies = self.copies.write();
        let Some(Copy::Open { handle, settings }) = copies.get_mut(&id) else { return None };
        if which == Configs::Stricter {
            new.replica = settings.replica.stricter(&new.replica);
        }
        let new = Arc::new(new);
        if *settings == new {
            return None;
        }
        *settings = Arc::clone(&new);
        let directory = &self.directories[handle.directory()];
        let (done, receiver) = oneshot::channel();
        // Bounded by the number of copies: one event for each per change of the metadata.
        drop(directory.queue.push(Event::Settings { id, settings: new, done }));
        Some(receiver)
    }

    fn settings(&self, image: &ClusterImage, local: &LocalPartition) -> TopicSettings {
        let view = ConfigView::new(image, self.config.node, &self.config.file_configs);
        TopicSettings::resolve(&view, local.id.topic, &local.topic_name, &self.config.limits.topic)
    }

    /// The directory that has the copy, also where it has failed, else the one with the fewest copies of those that work.
    fn place(&self, id: TopicPartition) -> usize {
        let mut placed = self.placed.lock();
        if let Some(&place) = placed.get(&id) {
            return place;
        }
        let mut counts = vec![0usize; self.directories.len()];
        for &place in placed.values() {
            counts[place] += 1;
        }
        let works = |place: &usize| self.directories[*place].health.failure().is_none();
        let place = (0..counts.len()).filter(works).min_by_key(|&place| counts[place]).unwrap_or(0);
        placed.insert(id, place);
        place
    }

    /// Queues a change of the metadata behind the clients' work.
    async fn send(&self, directory: usize, event: Event) {
        let queue = &self.directories[directory].queue;
        // The permit only paces the feed; a closed queue answers by dropping the event.
        if let Ok(permit) = queue.permit(0).await {
            drop(queue.push(event));
            drop(permit);
        }
    }

    /// The longest that any disk has kept somebody waiting.
    fn stalled_ms(&self, now: Millis) -> i64 {
        self.directories.iter().map(|directory| directory.health.stalled_ms(now)).max().unwrap_or(0)
    }
}

impl Drop for Partitions {
    /// Whoever did not wait for [`Partitions::close`] still gets everything flushed and closed, in time.
    fn drop(&mut self) {
        self.cleaner.request_stop();
        if !self.has_applied.load(Ordering::Relaxed) {
            self.leave_unopened();
        }
        for directory in &self.directories {
            directory.scrub.stop();
            directory.data.stop_sealing();
            drop(directory.queue.push(Event::Stop));
        }
    }
}

/// Which configs a copy gets when an image with other ones comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Configs {
    /// Those of the image, but for what counts as committed the stricter of old and new.
    Stricter,
    /// Those of the image.
    New,
}

/// A state of the metadata as replicas take it.
pub(crate) fn new_epoch(state: &PartitionState) -> NewEpoch {
    NewEpoch {
        leader: state.leader,
        leader_epoch: state.leader_epoch,
        partition_epoch: state.partition_epoch,
        replicas: state.replicas.clone(),
        isr: state.isr.clone(),
    }
}

/// Looks at the disks now and then, on a thread of its own: what it watches for is that everything else hangs.
fn watch_disks(partitions: Weak<Partitions>) -> std::io::Result<()> {
    std::thread::Builder::new().name("weir-disk-health".to_owned()).spawn(move || {
        let interval_ms = i64::try_from(HEALTH_INTERVAL.as_millis()).unwrap_or(i64::MAX);
        let mut watch: Option<StallWatch> = None;
        while let Some(partitions) = partitions.upgrade() {
            let now = partitions.config.clock.monotonic();
            let watch = watch.get_or_insert_with(|| StallWatch::new(now, interval_ms));
            let stalled_ms = watch.look(now, partitions.stalled_ms(now));
            let healthy = stalled_ms < partitions.config.limits.disk_stall_ms;
            let changed =
                partitions.healthy.send_if_modified(|was| std::mem::replace(was, healthy) != healthy);
            match (changed, healthy) {
                (true, true) => tracing::info!("the disks work again"),
                (true, false) => tracing::error!(stalled_ms, "a disk does not answer: the node is unhealthy"),
                (false, _) => {}
            }
            drop(partitions);
            std::thread::sleep(HEALTH_INTERVAL);
        }
    })?;
    Ok(())
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
