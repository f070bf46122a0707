//! Opens a node's data directories. One that cannot be read is offline, as if its disk had failed later: the others serve
//! what they have, and nothing of what it holds is made anew elsewhere. What is wrong with the configuration, and not
//! with a disk, ends the start.

use crate::boot;
use log_engine::{DataDir, DataDirError, DataDirOptions, Disk};
use proto_types::controller_api::MayLack;
use proto_types::ids::DirectoryId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// A data directory that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfflineDirectory {
    pub(crate) path: PathBuf,
    /// A sentence.
    pub(crate) reason: String,
}

/// A node's data directories.
pub(crate) struct Directories {
    /// In the order of the configuration; at least one.
    pub(crate) open: Vec<DataDir>,
    pub(crate) offline: Vec<OfflineDirectory>,
    /// Ids and paths of all that the node is known to have, those included that are offline.
    pub(crate) known: Vec<(Uuid, PathBuf)>,
    /// What the controllers must hear.
    pub(crate) may_lack: MayLack,
}

impl Directories {
    /// Opens and locks them. Reads files.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        paths: &[PathBuf],
        options: impl Fn() -> DataDirOptions,
    ) -> Result<Self, DataDirError> {
        let (mut open, mut offline, mut first_error) = (Vec::new(), Vec::new(), None);
        for path in paths {
            match DataDir::open(Arc::clone(disk), path, &options()) {
                Ok(directory) => open.push(directory),
                Err(error) if is_of_the_disk(&error) => {
                    offline.push(OfflineDirectory { path: path.clone(), reason: error.to_string() });
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(error)) = (open.is_empty(), first_error) {
            return Err(error);
        }
        for directory in &offline {
            let (path, reason) = (directory.path.display(), &directory.reason);
            tracing::error!(
                %path, reason,
                "the data directory is offline, and with it the partitions in it; replace the disk or repair it, and \
                 start the node again"
            );
        }
        let may_lack = may_lack(&open);
        let known = known(&open, &offline);
        Ok(Self { open, offline, known, may_lack })
    }

    /// The ids under which the node registers: the controllers take no node that has lost one.
    pub(crate) fn ids(&self) -> Vec<DirectoryId> {
        self.known.iter().map(|(id, _)| DirectoryId(*id)).collect()
    }

    /// Where to write down, and which data directories there are.
    pub(crate) fn to_remember(&self) -> (Vec<DataDir>, Vec<(Uuid, PathBuf)>) {
        (self.open.clone(), self.known.clone())
    }
}

/// What may be gone from the directories. Reads files.
fn may_lack(open: &[DataDir]) -> MayLack {
    let mut may_lack = MayLack::Nothing;
    if boot::may_lack_unflushed(open) {
        tracing::warn!(
            "the machine restarted without a clean stop of this node: copies of topics that have or had \
             weir.flush=os may lack records, and leave the in-sync sets"
        );
        may_lack = MayLack::Unflushed;
    }
    for directory in open.iter().filter(|directory| directory.has_lost_ends()) {
        tracing::error!(
            path = %directory.path().display(),
            "the record of how far the logs here were flushed is lost or damaged: all copies on this node may lack \
             records, and leave the in-sync sets"
        );
        may_lack = MayLack::Anything;
    }
    may_lack
}

/// Whether the directory may be as it should be but for its disk or its files. Another owner's directory, or one in use, is
/// a mistake of whoever has configured it.
fn is_of_the_disk(error: &DataDirError) -> bool {
    match error {
        DataDirError::Io(_) | DataDirError::Damaged { .. } | DataDirError::Foreign { .. } => true,
        DataDirError::InUse { .. } | DataDirError::OtherCluster { .. } | DataDirError::OtherNode { .. } => {
            false
        }
    }
}

/// What is open, and for each that is not what the others remember of it: by its path, or, if it was moved, what is left.
fn known(open: &[DataDir], offline: &[OfflineDirectory]) -> Vec<(Uuid, PathBuf)> {
    let mut known: Vec<(Uuid, PathBuf)> =
        open.iter().map(|directory| (directory.directory_id(), directory.path().to_owned())).collect();
    let mut remembered: Vec<(Uuid, PathBuf)> = Vec::new();
    for sibling in open.iter().flat_map(DataDir::siblings) {
        if !known.iter().chain(&remembered).any(|(id, _)| *id == sibling.0) {
            remembered.push(sibling);
        }
    }
    for directory in offline {
        let at = remembered.iter().position(|(_, path)| *path == directory.path);
        let moved = || {
            let configured = |path: &Path| offline.iter().any(|other| other.path == path);
            remembered.iter().position(|(_, path)| !configured(path))
        };
        if let Some(at) = at.or_else(moved) {
            let (id, _) = remembered.swap_remove(at);
            known.push((id, directory.path.clone()));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use log_engine::{OpenMode, SimDisk};
    use std::cell::Cell;

    fn paths() -> Vec<PathBuf> {
        ["a", "b", "c"].map(PathBuf::from).into()
    }

    fn open(disk: &Arc<SimDisk>, node_id: i32) -> Result<Directories, DataDirError> {
        let next = Cell::new(0);
        let options = || {
            next.set(next.get() + 1);
            DataDirOptions {
                cluster_id: "c".into(),
                node_id,
                new_directory_id: Uuid::from_u128(next.get()),
                descriptors_max: 10,
            }
        };
        Directories::open(&(Arc::clone(disk) as Arc<dyn Disk>), &paths(), options)
    }

    fn spoil(disk: &SimDisk, path: &str) {
        let file = disk.open(Path::new(path), OpenMode::CreateOrEmpty).unwrap();
        file.write_at(b"what is this", 0).unwrap();
    }

    #[test]
    fn one_that_is_damaged_is_offline_and_its_id_is_remembered() {
        let disk = SimDisk::new(1);
        let all = open(&disk, 1).unwrap();
        let ids = all.ids();
        assert_eq!((ids.len(), all.offline.len()), (3, 0));
        all.open.iter().try_for_each(|directory| directory.remember_siblings(&all.known)).unwrap();
        drop(all);
        spoil(&disk, "b/meta.properties");
        let two = open(&disk, 1).unwrap();
        assert_eq!(two.open.iter().map(DataDir::path).collect::<Vec<_>>(), [Path::new("a"), Path::new("c")]);
        assert_eq!(two.offline.iter().map(|d| d.path.as_path()).collect::<Vec<_>>(), [Path::new("b")]);
        assert!(two.offline[0].reason.contains("meta.properties"), "{}", two.offline[0].reason);
        assert!(ids.iter().all(|id| two.ids().contains(id)), "the controllers would refuse it");
        two.open.iter().try_for_each(|directory| directory.remember_siblings(&two.known)).unwrap();
        drop(two);
        // What is remembered may be damaged in one of them.
        spoil(&disk, "a/directories");
        assert_eq!(open(&disk, 1).unwrap().ids().len(), 3);
        spoil(&disk, "a/meta.properties");
        spoil(&disk, "c/meta.properties");
        assert!(matches!(open(&disk, 1), Err(DataDirError::Damaged { .. })), "nothing is left to serve");
    }

    #[test]
    fn one_that_has_lost_the_ends_of_its_logs_is_told_until_the_node_is_registered() {
        let disk = SimDisk::new(1);
        let all = open(&disk, 1).unwrap();
        assert_eq!(all.may_lack, MayLack::Nothing, "they are new");
        let boot = boot::boot_id().unwrap_or_default();
        let close = |all: Directories| {
            all.open.iter().for_each(|directory| directory.remember_boot(&boot).unwrap());
            all.open.iter().for_each(|directory| assert!(directory.close_clean().unwrap()));
        };
        close(all);
        disk.remove_file(Path::new("b/flushed-ends")).unwrap();
        for _ in 0..2 {
            let all = open(&disk, 1).unwrap();
            assert_eq!(all.may_lack, MayLack::Anything, "as long as nobody was told");
            close(all);
        }
        let all = open(&disk, 1).unwrap();
        boot::remember_all(&all.open, &all.known).unwrap();
        close(all);
        assert_eq!(open(&disk, 1).unwrap().may_lack, MayLack::Nothing);
    }

    #[test]
    fn a_mistake_in_the_configuration_ends_the_start() {
        let disk = SimDisk::new(1);
        let held = open(&disk, 1).unwrap();
        assert!(matches!(open(&disk, 1), Err(DataDirError::InUse { .. })));
        drop(held);
        assert!(matches!(open(&disk, 2), Err(DataDirError::OtherNode { .. })));
    }
}
