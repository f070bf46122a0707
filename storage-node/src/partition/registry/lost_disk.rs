//! What was on a disk that is lost: it is missed in the directory that has taken the lost one's place, as a copy is whose
//! folder has gone. So it is not made anew, empty, while somebody counts on it: like other damaged copies it resigns, begins anew
//! from a leader once the controllers have agreed that it counts for nothing, and stays offline where nobody else can lead.

use std::sync::atomic::Ordering;

use log_engine::LogName;
use storage_node_core::CopyChange;
use tokio::sync::watch;

use super::Partitions;
use crate::disk::log_thread::log_name;

impl Partitions {
    /// Whether everything that was on a lost disk is missed, durably.
    pub(crate) fn watch_lost_missed(&self) -> watch::Receiver<bool> {
        self.lost_missed.subscribe()
    }

    /// Notes the copies that were on a lost disk: those that were placed here before the node started, and are in no directory. The
    /// first image shows all of them, as it shows the node's registration. Called before any of them is opened.
    pub(super) async fn miss_lost_copies(&self, changes: &[CopyChange]) {
        let is_first_image = !self.has_applied.load(Ordering::Relaxed);
        if !self.config.replaces_lost_disk || !is_first_image {
            return;
        }
        if !self.config.offline.is_empty() {
            tracing::warn!(
                "as long as another data directory is offline, nobody knows which copies were on the disk that was \
                 replaced: they are all offline"
            );
            return;
        }
        let mut missed: Vec<Vec<LogName>> = vec![Vec::new(); self.directories.len()];
        for change in changes {
            match change {
                CopyChange::Open(local) if !self.placed.lock().contains_key(&local.id) => {
                    missed[self.place(local.id)].push(log_name(local.id));
                }
                CopyChange::Open(_) | CopyChange::GoOn(_) | CopyChange::Drop(_) => {}
            }
        }
        let count = missed.iter().map(Vec::len).sum::<usize>();
        tracing::warn!(count, "copies were on a disk that is lost: they begin anew where another node leads");
        let directories: Vec<_> =
            self.directories.iter().map(|directory| directory.data.clone()).zip(missed).collect();
        let noted = tokio::task::spawn_blocking(move || {
            // First in memory, all of them: that keeps them from being made anew, whatever becomes of the files.
            directories.iter().for_each(|(data, missed)| data.note_lost(missed));
            // One that cannot be written keeps nothing from the others.
            let written: Vec<_> = directories.iter().map(|(data, _)| data.checkpoint()).collect();
            written.into_iter().collect::<Result<(), _>>()
        });
        match noted.await {
            Ok(Ok(())) => _ = self.lost_missed.send_replace(true),
            // The next start notes them again.
            Ok(Err(error)) => tracing::error!(%error, "what was on a lost disk could not be noted"),
            Err(error) => tracing::error!(%error, "what was on a lost disk could not be noted"),
        }
    }
}
