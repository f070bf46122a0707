//! What moves between data directories leave behind: the files in the old place of a copy, which stay until it is open in the new
//! one, and copies of which nobody knows where they are before the next start.

use std::collections::BTreeMap;

use log_engine::DetachedLog;
use parking_lot::Mutex;
use proto_types::ids::TopicPartition;

use super::Partitions;

/// Never of more than there are copies on the disks.
#[derive(Default)]
pub(super) struct Left {
    files: Mutex<BTreeMap<TopicPartition, Vec<DetachedLog>>>,
    /// The data directory, by its place, that has or has not got the copy.
    in_doubt: Mutex<BTreeMap<TopicPartition, usize>>,
}

impl std::fmt::Debug for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.files.lock().keys()).finish()
    }
}

impl Left {
    /// What a start has found.
    pub(super) fn of(found: Vec<(TopicPartition, DetachedLog)>) -> Self {
        let left = Self::default();
        found.into_iter().for_each(|(id, files)| left.keep(id, files));
        left
    }

    /// Keeps the old files of a copy until it is open, or is dropped.
    pub(super) fn keep(&self, id: TopicPartition, files: DetachedLog) {
        self.files.lock().entry(id).or_default().push(files);
    }

    /// Whether a copy is in its new place only the next start finds out.
    pub(super) fn doubt(&self, id: TopicPartition, target: usize) {
        self.in_doubt.lock().insert(id, target);
    }
}

impl Partitions {
    /// The copy is open, or is not wanted any more: what it left elsewhere goes, in the background.
    pub(super) fn remove_left(&self, id: TopicPartition) {
        let Some(left) = self.left.files.lock().remove(&id) else { return };
        drop(tokio::task::spawn_blocking(move || {
            for files in left {
                if let Err(error) = files.remove_files() {
                    tracing::error!(partition = %id, %error, "old files of a moved copy stay until the next start");
                }
            }
        }));
    }

    /// The copy is dropped: what moves have left of it goes too. Answers which directory else may have it, by its place.
    pub(super) fn drop_left(&self, id: TopicPartition) -> Option<usize> {
        self.remove_left(id);
        self.left.in_doubt.lock().remove(&id)
    }
}
