//! The data directory of `weir dev`: the cluster's id, its authority and certificates, and a folder for each daemon.
//!
//! ```text
//! weir-data/
//!   lock            held while a process uses the directory
//!   cluster-id      written last when the directory is made: without it the directory is not ours
//!   pki/            authority/ controller/ storage-node/ coordinator/
//!   controller/     the metadata log
//!   storage-node/   the partitions
//!   coordinator/    the keys of its endpoint; groups and offsets are in the partitions
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use quic_transport::pki::{CertificateAuthority, CredentialFiles, Credentials};
use quic_transport::{Identity, Role};

use crate::certificates::{MakeError, issue, make_authority, new_cluster_id, private_directories};
use crate::failure::Failure;

/// The only controller.
pub(super) const CONTROLLER_ID: u64 = 1;
/// The only storage node.
pub(super) const NODE_ID: i32 = 1;
/// The only coordinator.
pub(super) const COORDINATOR_ID: i32 = 1;
const LOCK: &str = "lock";
const CLUSTER_ID: &str = "cluster-id";
const PKI: &str = "pki";
const AUTHORITY: &str = "authority";
const CONTROLLER: &str = "controller";
const STORAGE_NODE: &str = "storage-node";
const COORDINATOR: &str = "coordinator";

/// A directory that this process alone uses.
#[derive(Debug)]
pub(super) struct DataDirectory {
    path: PathBuf,
    pub(super) cluster_id: String,
    /// Held until the process ends, or this is dropped.
    _lock: File,
}

impl DataDirectory {
    /// Opens the directory, or makes it; with `reset` what it held is deleted first.
    pub(super) fn open(path: &Path, reset: bool) -> Result<Self, Failure> {
        let failed = |what: &str, error: &io::Error| {
            Failure::failed(format!("cannot {what} in the data directory {}: {error}", path.display()))
        };
        private_directories().create(path).map_err(|error| failed("begin", &error))?;
        refuse_foreign(path)?;
        let lock = lock(path)?;
        let known = path.join(CLUSTER_ID);
        if reset {
            // The id first: what is half deleted is then half made, and made anew.
            remove(&known).map_err(|error| failed("delete", &error))?;
        }
        let cluster_id = match fs::read_to_string(&known) {
            Ok(text) => checked_id(path, text.trim())?,
            Err(error) if error.kind() == ErrorKind::NotFound => make(path)?,
            Err(error) => return Err(failed("read the cluster id", &error)),
        };
        // A directory of an earlier version knows fewer daemons.
        make_certificates(&path.join(PKI), &cluster_id)
            .map_err(|error| unusable(path, &format!("{PKI}: {error}")))?;
        Ok(Self { path: path.to_owned(), cluster_id, _lock: lock })
    }

    pub(super) fn controller(&self) -> PathBuf {
        self.path.join(CONTROLLER)
    }

    pub(super) fn storage_node(&self) -> PathBuf {
        self.path.join(STORAGE_NODE)
    }

    pub(super) fn controller_credentials(&self) -> Result<Credentials, Failure> {
        Credentials::load(&CredentialFiles::in_directory(&self.path.join(PKI).join(CONTROLLER)))
            .map_err(|error| unusable(&self.path, &error.to_string()))
    }

    /// The folder of the coordinator; made when it is asked for.
    pub(super) fn coordinator(&self) -> Result<PathBuf, Failure> {
        let path = self.path.join(COORDINATOR);
        private_directories()
            .create(&path)
            .map_err(|error| Failure::failed(format!("cannot make {}: {error}", path.display())))?;
        Ok(path)
    }

    pub(super) fn coordinator_credentials(&self) -> Result<Credentials, Failure> {
        Credentials::load(&CredentialFiles::in_directory(&self.path.join(PKI).join(COORDINATOR)))
            .map_err(|error| unusable(&self.path, &error.to_string()))
    }

    pub(super) fn storage_node_files(&self) -> CredentialFiles {
        CredentialFiles::in_directory(&self.path.join(PKI).join(STORAGE_NODE))
    }
}

fn unusable(path: &Path, why: &str) -> Failure {
    Failure::failed(format!("the data directory {} is damaged: {why}", path.display()))
        .hint("--reset deletes what it holds and begins anew; --data takes another directory")
}

/// Refuses a directory that holds something else: `--reset` must never delete what is not ours.
fn refuse_foreign(path: &Path) -> Result<(), Failure> {
    if path.join(CLUSTER_ID).exists() {
        return Ok(());
    }
    let unreadable = |error: io::Error| {
        Failure::failed(format!("cannot read the data directory {}: {error}", path.display()))
    };
    let ours = [LOCK, CLUSTER_ID, PKI, CONTROLLER, STORAGE_NODE, COORDINATOR, "lost+found", "cluster-id.new"];
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if !ours.iter().any(|known| name == *known) {
            return Err(Failure::failed(format!(
                "{} is not a data directory of `weir dev`: it holds {name:?} and no {CLUSTER_ID:?}",
                path.display()
            ))
            .hint("give an empty or new directory by --data"));
        }
    }
    Ok(())
}

pub(super) fn lock(path: &Path) -> Result<File, Failure> {
    let failed = |error: io::Error| {
        Failure::failed(format!("cannot lock the data directory {}: {error}", path.display()))
    };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path.join(LOCK))
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::failed(format!(
            "the data directory {} is in use by another process",
            path.display()
        ))
        .hint("stop the other `weir dev`, or give another directory by --data and another --kafka-port")),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn checked_id(path: &Path, id: &str) -> Result<String, Failure> {
    match Identity::new(id, Role::Controller, CONTROLLER_ID) {
        Ok(_) => Ok(id.to_owned()),
        Err(error) => Err(unusable(path, &format!("{CLUSTER_ID}: {error}"))),
    }
}

/// Makes a new cluster: whatever an interrupted attempt left is thrown away, and the id is written last.
fn make(path: &Path) -> Result<String, Failure> {
    let id = new_cluster_id();
    let made = (|| -> Result<(), MakeError> {
        for name in [PKI, CONTROLLER, STORAGE_NODE, COORDINATOR] {
            remove(&path.join(name))?;
        }
        make_authority(&path.join(PKI).join(AUTHORITY), &id)?;
        let new = path.join("cluster-id.new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        writeln!(file, "{id}")?;
        file.sync_all()?;
        fs::rename(&new, path.join(CLUSTER_ID))?;
        File::open(path)?.sync_all()?;
        Ok(())
    })();
    made.map(|()| id).map_err(|error| {
        Failure::failed(format!("cannot make a cluster in the data directory {}: {error}", path.display()))
    })
}

/// Makes the certificates of the daemons that have none yet.
fn make_certificates(pki: &Path, cluster_id: &str) -> Result<(), MakeError> {
    let number = |id: i32| u64::from(id.unsigned_abs());
    let daemons = [
        (CONTROLLER, Role::Controller, CONTROLLER_ID),
        (STORAGE_NODE, Role::StorageNode, number(NODE_ID)),
        (COORDINATOR, Role::Coordinator, number(COORDINATOR_ID)),
    ];
    for (name, role, id) in daemons {
        let directory = pki.join(name);
        let files = CredentialFiles::in_directory(&directory);
        if files.key.exists() {
            continue;
        }
        let authority = CertificateAuthority::load(&pki.join(AUTHORITY))?;
        issue(&authority, &directory, &Identity::new(cluster_id, role, id)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_cluster_until_it_is_reset() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("new/weir-data");
        let first = DataDirectory::open(&path, false).unwrap();
        let id = first.cluster_id.clone();
        assert_eq!(first.controller_credentials().unwrap().identity().cluster_id(), id);
        let busy = DataDirectory::open(&path, true).unwrap_err();
        assert!(busy.to_string().contains("in use by another process"), "{busy}");
        drop(first);
        assert_eq!(DataDirectory::open(&path, false).unwrap().cluster_id, id);
        fs::create_dir(path.join(CONTROLLER)).unwrap();
        let reset = DataDirectory::open(&path, true).unwrap();
        assert_ne!(reset.cluster_id, id);
        assert!(!path.join(CONTROLLER).exists());
    }

    #[test]
    fn a_directory_of_an_earlier_version_gets_what_it_lacks() {
        let temporary = tempfile::tempdir().unwrap();
        drop(DataDirectory::open(temporary.path(), false).unwrap());
        fs::remove_dir_all(temporary.path().join(PKI).join(COORDINATOR)).unwrap();
        let data = DataDirectory::open(temporary.path(), false).unwrap();
        let credentials = data.coordinator_credentials().unwrap();
        assert_eq!(credentials.identity().role(), Role::Coordinator);
    }

    #[test]
    fn an_interrupted_making_is_made_anew() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path();
        drop(DataDirectory::open(path, false).unwrap());
        fs::remove_file(path.join(CLUSTER_ID)).unwrap();
        let again = DataDirectory::open(path, false).unwrap();
        assert_eq!(again.controller_credentials().unwrap().identity().cluster_id(), again.cluster_id);
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("thesis.txt"), "precious").unwrap();
        let refused = DataDirectory::open(temporary.path(), true).unwrap_err();
        assert!(
            refused.to_string().contains("is not a data directory of `weir dev`: it holds \"thesis.txt\"")
        );
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_id_is_named() {
        let temporary = tempfile::tempdir().unwrap();
        drop(DataDirectory::open(temporary.path(), false).unwrap());
        fs::write(temporary.path().join(CLUSTER_ID), "not an id\n").unwrap();
        let damaged = DataDirectory::open(temporary.path(), false).unwrap_err();
        assert!(damaged.to_string().contains("is damaged: cluster-id:"), "{damaged}");
        DataDirectory::open(temporary.path(), true).unwrap();
    }
}
