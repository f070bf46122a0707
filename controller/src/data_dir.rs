//! The controller's data directory: whose it is, and that only one process uses it.

use crate::quorum::disk::{SharedDisk, system_disk};
use crate::quorum::log_files::LogFiles;
use crate::quorum::peers::Peers;
use crate::quorum::slot_file::SlotFile;
use crate::quorum::snapshot_files::SnapshotFiles;
use crate::quorum::store_error::{AtPath, StoreError, sync_directory};
use crate::quorum::stored::{DiskKind, seal, unseal};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use uuid::Uuid;

const IDENTITY_FILE: &str = "identity";
const LOCK_FILE: &str = "lock";

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process has it.
    #[error(
        "the data directory {} is in use by another process; stop that one, or give this controller a directory of \
         its own",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It belongs to somebody else.
    #[error(
        "the data directory {} belongs to controller {found_id} of cluster {found_cluster:?}, but this is controller \
         {id} of cluster {cluster:?}; correct the config, or give this controller an empty directory",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Cluster in the directory.
        found_cluster: String,
        /// Controller in the directory.
        found_id: u64,
        /// Cluster of the config.
        cluster: String,
        /// Controller of the config.
        id: u64,
    },
    /// A file is damaged or cannot be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredIdentity {
    cluster_id: String,
    controller_id: u64,
    /// Made with the directory: tells it from an empty one that takes its place.
    directory: Uuid,
}

/// The open directory. The lock is held as long as this lives.
#[derive(Debug)]
pub(crate) struct DataDir {
    pub(crate) files: DataFiles,
    pub(crate) lock: DirectoryLock,
}

/// What is in it.
#[derive(Debug)]
pub(crate) struct DataFiles {
    pub(crate) log: LogFiles,
    pub(crate) snapshots: SnapshotFiles,
    pub(crate) peers: Peers,
}

/// Keeps other processes out.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DataDir {
    /// Opens the directory of this controller, or makes it if it does not exist or is empty. Blocks on disk.
    pub(crate) fn open(
        path: &Path,
        cluster_id: &str,
        controller_id: u64,
        segment_bytes_max: u64,
    ) -> Result<Self, DataDirError> {
        std::fs::create_dir_all(path).at("create", path)?;
        let lock = lock(path)?;
        let directory = Uuid::new_v4();
        let files =
            DataFiles::open(&system_disk(), path, cluster_id, controller_id, segment_bytes_max, directory)?;
        Ok(Self { files, lock })
    }
}

impl DataFiles {
    /// Opens them, or makes them, and then this is the data directory `new`. Nobody else may use them.
    pub(crate) fn open(
        disk: &SharedDisk,
        path: &Path,
        cluster_id: &str,
        controller_id: u64,
        segment_bytes_max: u64,
        new: Uuid,
    ) -> Result<Self, DataDirError> {
        disk.create_directory(path).at("create", path)?;
        let identity_path = path.join(IDENTITY_FILE);
        if disk.exists(&identity_path) {
            let (_, bytes) = SlotFile::open(disk, &identity_path)?;
            let found: StoredIdentity = unseal(DiskKind::Identity, &bytes)
                .map_err(|what| StoreError::damaged(&identity_path, what))?;
            if found.cluster_id != cluster_id || found.controller_id != controller_id {
                return Err(DataDirError::Foreign {
                    path: path.to_owned(),
                    found_cluster: found.cluster_id,
                    found_id: found.controller_id,
                    cluster: cluster_id.to_owned(),
                    id: controller_id,
                });
            }
            let log = LogFiles::open(disk, path, segment_bytes_max)?;
            let snapshots = SnapshotFiles::open(disk, path)?;
            check_snapshot(path, &log, &snapshots)?;
            let peers = Peers::open(disk, path, controller_id, found.directory)?;
            return Ok(Self { log, snapshots, peers });
        }
        let log = LogFiles::create(disk, path, segment_bytes_max)?;
        let snapshots = SnapshotFiles::open(disk, path)?;
        let peers = Peers::open(disk, path, controller_id, new)?;
        // Last: a directory with an identity is a whole one.
        let ours = StoredIdentity { cluster_id: cluster_id.to_owned(), controller_id, directory: new };
        SlotFile::create(disk, &identity_path, &seal(DiskKind::Identity, &ours))?;
        sync_directory(disk, path)?;
        // The name of the directory itself: with it everything that we are about to promise would be gone.
        let above =
            path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
        if let Some(above) = above {
            sync_directory(disk, above)?;
        }
        Ok(Self { log, snapshots, peers })
    }
}

/// What was purged from the log must be in the snapshot, and the snapshot must be readable.
fn check_snapshot(path: &Path, log: &LogFiles, snapshots: &SnapshotFiles) -> Result<(), StoreError> {
    let held = snapshots.load()?.and_then(|(meta, _)| meta.last_log_id);
    match log.progress().purged {
        Some(purged) if held.is_none_or(|held| held.index < purged.index) => {
            let what = format!("the log was purged up to index {}, and no snapshot holds that", purged.index);
            Err(StoreError::damaged(&path.join("snapshot"), what))
        }
        _ => Ok(()),
    }
}

fn lock(path: &Path) -> Result<DirectoryLock, DataDirError> {
    let lock_path = path.join(LOCK_FILE);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&lock_path)
        .at("open", &lock_path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(DirectoryLock { _file: file }),
        Err(Errno::WOULDBLOCK) => Err(DataDirError::InUse { path: path.to_owned() }),
        Err(error) => Err(StoreError::Io { verb: "lock", path: lock_path, source: error.into() }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, cluster: &str, id: u64) -> Result<DataDir, DataDirError> {
        DataDir::open(path, cluster, id, 1 << 20)
    }

    /// T-57, of controllers.
    #[test]
    fn a_directory_is_for_one_process_of_one_controller() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("data");
        let first = open(&path, "c", 1).expect("made");
        let message = open(&path, "c", 1).expect_err("in use").to_string();
        assert!(message.contains("in use by another process"), "{message}");
        drop(first);
        drop(open(&path, "c", 1).expect("opened again"));
        for (cluster, id) in [("other", 1), ("c", 2)] {
            let message = open(&path, cluster, id).expect_err("foreign").to_string();
            assert!(message.contains("belongs to controller 1 of cluster \"c\""), "{message}");
        }
    }

    #[test]
    fn a_creation_that_crashed_is_made_anew_but_lost_files_are_damage() {
        let dir = tempfile::tempdir().expect("temp dir");
        drop(open(dir.path(), "c", 1).expect("made"));
        std::fs::remove_file(dir.path().join(IDENTITY_FILE)).expect("removed");
        drop(open(dir.path(), "c", 1).expect("nothing was in it"));
        std::fs::remove_file(dir.path().join("vote")).expect("removed");
        let message = open(dir.path(), "c", 1).expect_err("vote is gone").to_string();
        assert!(message.contains("vote"), "{message}");
    }
}
