//! Which data directory each controller of the quorum has.
//!
//! A controller that has lost its directory must not come back under its id: it has forgotten votes and entries that it
//! had promised to keep, and a quorum could decide the opposite of what was decided. So every call and every answer
//! between controllers names the sender's directory, each controller remembers durably which one it has seen first, and
//! nobody counts the votes and acknowledgements of another one.

use super::disk::SharedDisk;
use super::slot_file::SlotFile;
use super::state_machine::StateView;
use super::store_error::{StoreError, sync_directory};
use super::stored::{DiskKind, seal, unseal};
use super::type_config::Environment;
use parking_lot::Mutex;
use proto_types::ids::{ControllerId, DirectoryId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;
use uuid::Uuid;

const FILE: &str = "peers";

/// What this controller knows of the others' directories. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Peers {
    shared: Arc<Shared>,
}

struct Shared {
    me: u64,
    directory: Uuid,
    known: Mutex<Known>,
    /// What the quorum has written down about its voters, also those that we have not met.
    written: OnceLock<StateView>,
    /// Set when another controller has told us that we are not who we were.
    rejected: OnceLock<String>,
    rejection: watch::Sender<bool>,
}

struct Known {
    file: SlotFile,
    directories: BTreeMap<u64, Uuid>,
}

/// A controller's directory is not the one that was seen before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error(
        "controller {id} has come with data directory {found}, but it was here with {known}. A controller that has lost \
         its directory must not come back under its old id: give the new one a new id, or bring the directory back"
    )]
    OtherDirectory { id: u64, known: Uuid, found: Uuid },
    #[error("the process is stopping")]
    Stopping,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Peers {
    /// Reads what is known, or begins with nothing.
    pub(crate) fn open(disk: &SharedDisk, root: &Path, me: u64, directory: Uuid) -> Result<Self, StoreError> {
        let path = root.join(FILE);
        let (file, directories) = if disk.exists(&path) {
            let (file, bytes) = SlotFile::open(disk, &path)?;
            let list: Vec<(u64, Uuid)> =
                unseal(DiskKind::Peers, &bytes).map_err(|what| StoreError::damaged(&path, what))?;
            (file, list.into_iter().collect())
        } else {
            let file = SlotFile::create(disk, &path, &seal(DiskKind::Peers, &Vec::<(u64, Uuid)>::new()))?;
            sync_directory(disk, root)?;
            (file, BTreeMap::new())
        };
        let known = Mutex::new(Known { file, directories });
        let (written, rejected) = (OnceLock::new(), OnceLock::new());
        let rejection = watch::Sender::new(false);
        let shared = Shared { me, directory, known, written, rejected, rejection };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Our own directory.
    pub(crate) fn ours(&self) -> Uuid {
        self.shared.directory
    }

    /// From now on the directories in the metadata count as well.
    pub(crate) fn believe(&self, view: StateView) {
        // Set once, at the start.
        let _set = self.shared.written.set(view);
    }

    /// The directory of a controller, if we have met it.
    pub(crate) fn directory(&self, id: u64) -> Option<Uuid> {
        if id == self.shared.me {
            return Some(self.shared.directory);
        }
        self.shared.known.lock().directories.get(&id).copied()
    }

    /// Checks a controller's directory; the first one seen is remembered before anything is built on it.
    pub(crate) async fn check<C: Environment>(&self, id: u64, directory: Uuid) -> Result<(), PeerError> {
        if let Some(known) = self.shared.known.lock().directories.get(&id).copied() {
            return same(id, known, directory);
        }
        let written = self.shared.written.get().map(StateView::state);
        if let Some(DirectoryId(written)) =
            written.and_then(|state| state.controllers().directory(ControllerId(id)))
        {
            same(id, written, directory)?;
        }
        let shared = Arc::clone(&self.shared);
        let remembered = C::blocking(move || shared.known.lock().remember(id, directory)).await;
        remembered.unwrap_or(Err(PeerError::Stopping))
    }

    /// Another controller does not take us for who we were.
    pub(crate) fn on_rejected(&self, reason: &str) {
        if self.shared.rejected.set(reason.to_owned()).is_ok() {
            tracing::error!(id = self.shared.me, reason, "the other controllers do not accept this one");
            self.shared.rejection.send_replace(true);
        }
    }

    /// Why the others do not accept us, if they do not.
    pub(crate) fn rejected(&self) -> Option<&str> {
        self.shared.rejected.get().map(String::as_str)
    }

    /// Completes when the others do not accept us.
    pub(crate) async fn until_rejected(&self) -> String {
        let mut rejection = self.shared.rejection.subscribe();
        // The sender lives as long as we do.
        let _seen = rejection.wait_for(|rejected| *rejected).await;
        self.rejected().unwrap_or_default().to_owned()
    }
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl Known {
    fn remember(&mut self, id: u64, directory: Uuid) -> Result<(), PeerError> {
        if let Some(known) = self.directories.get(&id).copied() {
            return same(id, known, directory);
        }
        let mut directories = self.directories.clone();
        directories.insert(id, directory);
        let list: Vec<(u64, Uuid)> = directories.iter().map(|(id, directory)| (*id, *directory)).collect();
        self.file.write_durable(&seal(DiskKind::Peers, &list))?;
        self.directories = directories;
        Ok(())
    }
}

fn same(id: u64, known: Uuid, found: Uuid) -> Result<(), PeerError> {
    if known == found { Ok(()) } else { Err(PeerError::OtherDirectory { id, known, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::disk::system_disk;
    use crate::quorum::type_config::TypeConfig;

    #[tokio::test]
    async fn the_first_directory_is_remembered_across_restarts() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (ours, first, other) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let peers = Peers::open(&system_disk(), dir.path(), 1, ours).expect("opened");
        peers.check::<TypeConfig>(2, first).await.expect("the first one");
        peers.check::<TypeConfig>(2, first).await.expect("the same one");
        drop(peers);
        let peers = Peers::open(&system_disk(), dir.path(), 1, ours).expect("opened");
        let refused = peers.check::<TypeConfig>(2, other).await.expect_err("another one").to_string();
        assert!(refused.contains("give the new one a new id"), "{refused}");
        peers.check::<TypeConfig>(3, other).await.expect("another controller");
    }
}
