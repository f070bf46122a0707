//! Copies that have gone bad: how they are found, and how one begins anew.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use log_engine::{DataDir, FileError, LogName};
use proto_types::ids::TopicPartition;
use storage_node_core::Standing;
use storage_node_core::image::ClusterImage;
use tokio::sync::oneshot;

use super::{Copy, Lookup, Partitions};
use crate::directories::OfflineDirectory;
use crate::disk::event::{DropCopy, Event, OpenFailure};
use crate::disk::log_thread::{log_name, partition_of};
use crate::disk::scrub::{Copies, Scrubber};
use crate::partition::PartitionHandle;

/// The copies of one data directory, as its scrub sees them.
struct CopiesOf {
    partitions: Weak<Partitions>,
    directory: usize,
}

impl Copies for CopiesOf {
    fn on_damaged(&self, id: TopicPartition, reason: String) {
        if let Some(partitions) = self.partitions.upgrade() {
            partitions.on_damaged(id, reason);
        }
    }

    fn alive(&self) -> bool {
        self.partitions.strong_count() > 0
    }

    fn open_copies(&self) -> Option<Vec<PartitionHandle>> {
        let partitions = self.partitions.upgrade()?;
        let copies = partitions.copies.read();
        let mut open: Vec<PartitionHandle> = copies
            .values()
            .filter_map(|copy| match copy {
                Copy::Open { handle, .. } => Some(handle),
                Copy::Failed => None,
            })
            .filter(|handle| handle.directory() == self.directory)
            .cloned()
            .collect();
        open.sort_by_key(PartitionHandle::id);
        Some(open)
    }
}

impl Partitions {
    /// Starts the scrub of each directory.
    pub(super) fn start_scrubs(self: &Arc<Self>) -> std::io::Result<()> {
        for (place, directory) in self.directories.iter().enumerate() {
            let scrubber = Scrubber {
                data: directory.data.clone(),
                directory: place,
                copies: CopiesOf { partitions: Arc::downgrade(self), directory: place },
                limits: self.config.limits.scrub,
                requests: Arc::clone(&directory.scrub),
                clock: self.config.clock,
                metrics: self.config.metrics.clone(),
            };
            *directory.scrubber.lock() = Some(scrubber.start()?);
        }
        Ok(())
    }

    /// The data directories that could not be opened.
    pub(crate) fn offline_directories(&self) -> &[OfflineDirectory] {
        &self.config.offline
    }

    /// Whether the copy is in a directory that is not open: it was placed here before the node started and no other directory has
    /// it, or it was moved there. To make it anew elsewhere would lose what it holds. That stays so until a restart, as there
    /// would be two copies when the directory comes back.
    pub(super) fn is_offline(&self, id: TopicPartition) -> bool {
        let may_be_new = self.config.offline.is_empty() || self.has_applied.load(Ordering::Relaxed);
        let mut offline = self.offline.lock();
        if !may_be_new && !self.placed.lock().contains_key(&id) {
            offline.insert(id);
        }
        offline.contains(&id)
    }

    /// The records of an open copy are damaged: it goes offline.
    pub(crate) fn on_damaged(&self, id: TopicPartition, reason: String) {
        let Lookup::Open(handle) = self.get(id) else { return };
        self.damaged.lock().insert(id);
        if handle.view().standing != Standing::Failed {
            handle.tell(Event::Damaged { id, reason });
        }
    }

    pub(super) fn on_open_failed(&self, id: TopicPartition, failure: &OpenFailure) -> Copy {
        if failure.damaged {
            self.damaged.lock().insert(id);
            self.retries.forget(id);
        } else {
            self.retries.put_off(id, self.config.clock.monotonic());
        }
        Copy::Failed
    }

    /// The copies that are offline because their records are damaged.
    pub(crate) fn damaged(&self) -> Vec<TopicPartition> {
        let damaged = self.damaged.lock().clone();
        self.failed().into_iter().filter(|id| damaged.contains(id)).collect()
    }

    /// Puts a copy that is of no use aside and opens it anew, empty: it follows the leader from where that one's log starts.
    /// The caller has made sure that the cluster counts on nothing that the copy held. Called as [`apply`](Self::apply) is,
    /// never beside it.
    pub(crate) async fn restart_copy(&self, image: &ClusterImage, id: TopicPartition) -> Result<(), String> {
        let Some(local) = image.partition_on(self.config.node, id) else { return Ok(()) };
        if self.is_late(id) {
            return Ok(());
        }
        // Without somebody else to follow, what it has may be all that there is.
        if local.state.leader.is_none_or(|leader| leader == self.config.node) {
            return Ok(());
        }
        match self.get(id) {
            Lookup::Open(handle) if handle.view().standing == Standing::Failed => {
                let (done, dropped) = oneshot::channel();
                self.send(handle.directory(), Event::Drop(DropCopy { id, delete: false, done })).await;
                self.copies.write().insert(id, Copy::Failed);
                dropped.await.map_err(|_| "the node is stopping".to_owned())?;
            }
            Lookup::Open(_) | Lookup::Absent => return Ok(()),
            Lookup::Failed => {}
        }
        let data = self.directories[self.place(id)].data.clone();
        let aside = tokio::task::spawn_blocking(move || set_aside(&data, log_name(id))).await;
        aside.map_err(|error| error.to_string())??;
        self.aside.lock().insert(id);
        self.copies.write().remove(&id);
        self.damaged.lock().remove(&id);
        self.retries.forget(id);
        let opening = self.begin_new(image, &local).await;
        self.take_opened(std::iter::once(opening).collect()).await;
        if matches!(self.get(id), Lookup::Open(_)) || self.is_late(id) {
            self.config.metrics.on_copy_restarted();
            return Ok(());
        }
        Err("its new log cannot be opened".to_owned())
    }

    /// The copies of which a damaged log lies aside.
    pub(crate) fn aside(&self) -> Vec<TopicPartition> {
        self.aside.lock().iter().copied().collect()
    }

    /// Removes the damaged log of a copy that a new one has replaced, or that is not wanted any more.
    pub(crate) async fn remove_aside(&self, id: TopicPartition) {
        let all: Vec<DataDir> = self.directories.iter().map(|directory| directory.data.clone()).collect();
        let name = log_name(id);
        let removed =
            tokio::task::spawn_blocking(move || all.iter().try_for_each(|data| data.remove_aside(name)))
                .await;
        match removed {
            Ok(Ok(())) => tracing::info!(partition = %id, "the damaged log is removed"),
            Ok(Err(error)) => tracing::warn!(partition = %id, %error, "a damaged log stays aside"),
            Err(error) => tracing::warn!(partition = %id, %error, "a damaged log stays aside"),
        }
        self.aside.lock().remove(&id);
    }
}

/// The copies of which a damaged log was put aside by an earlier run.
pub(super) fn logs_aside<'a>(
    directories: impl Iterator<Item = &'a DataDir>,
) -> Result<BTreeSet<TopicPartition>, FileError> {
    let mut aside = BTreeSet::new();
    for data in directories {
        aside.extend(data.logs_aside()?.into_iter().map(partition_of));
    }
    Ok(aside)
}

fn set_aside(data: &DataDir, name: LogName) -> Result<(), String> {
    let second = data.set_aside(name).map_err(|error| error.to_string())?;
    second.map_or(Ok(()), |log| log.remove_files().map_err(|error| error.to_string()))
}
