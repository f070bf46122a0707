//! Opens a node's data directories. One that cannot be read is offline, as if its disk had failed later: the others serve
//! what they have, and nothing of what it holds is made anew elsewhere. What is wrong with the configuration, and not
//! with a disk, ends the start.
//!
//! Where the node had a directory and finds none the disk may just not be mounted, so that one is offline as well, until an
//! operator says by a file in an empty directory there ([`REPLACES_LOST_DISK`](log_engine::REPLACES_LOST_DISK)) that it
//! takes the place of a lost one. The node goes on naming the lost one's id, by which the controllers know it; tells them that
//! its copies may lack anything; and misses what it does not find in the others.

use crate::boot;
use log_engine::{DataDir, DataDirError, DataDirOptions, Disk, is_unused, lost_disk_note};
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
    /// Ids and paths of all that the node is known to have, those included that are offline, and those that are lost, which
    /// have no path.
    pub(crate) known: Vec<(Uuid, PathBuf)>,
    /// By the operator's word one of those that are open takes the place of a lost one, and not everybody knows yet.
    pub(crate) replaces_lost_disk: bool,
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
        let mut opening = Opening::default();
        // What those remember that were used before tells what is missing.
        let (unused, used): (Vec<_>, Vec<_>) = paths.iter().partition(|path| is_unused(&**disk, path));
        for path in used {
            opening.add(path, DataDir::open(Arc::clone(disk), path, &options()))?;
        }
        opening.leave_out_given_up();
        for path in unused {
            let is_new = opening.check_not_missing(&**disk, path);
            opening.add(path, is_new.and_then(|()| DataDir::open(Arc::clone(disk), path, &options())))?;
        }
        let Opening { mut open, mut remembered, notes, mut offline } = opening;
        open.sort_by_key(|directory| paths.iter().position(|path| path == directory.path()));
        if open.is_empty() && !offline.is_empty() {
            return Err(offline.swap_remove(0).1);
        }
        let offline: Vec<OfflineDirectory> = offline
            .into_iter()
            .map(|(path, error)| OfflineDirectory { path, reason: error.to_string() })
            .collect();
        for OfflineDirectory { path, reason } in &offline {
            tracing::error!(
                path = %path.display(), reason,
                "the data directory is offline, and with it the partitions in it; when its disk is repaired or replaced \
                 (docs/damage.md), start the node again"
            );
        }
        let lost = lost(&open, &remembered, &notes);
        remembered.retain(|(id, _)| !lost.contains(id));
        let mut known = known(&open, &offline, remembered);
        known.extend(lost.iter().map(|id| (*id, PathBuf::new())));
        let replaces_lost_disk = !notes.is_empty();
        let may_lack = may_lack(&open, replaces_lost_disk);
        Ok(Self { open, offline, known, replaces_lost_disk, may_lack })
    }

    /// The ids under which the node registers: the controllers take no node that has lost one.
    pub(crate) fn ids(&self) -> Vec<DirectoryId> {
        self.known.iter().map(|(id, _)| DirectoryId(*id)).collect()
    }

    /// The ids of those that are given up for lost.
    pub(crate) fn given_up(&self) -> Vec<Uuid> {
        self.known.iter().filter(|(_, path)| is_none(path)).map(|(id, _)| *id).collect()
    }

    /// Where to write down, and which data directories there are.
    pub(crate) fn to_remember(&self) -> (Vec<DataDir>, Vec<(Uuid, PathBuf)>) {
        (self.open.clone(), self.known.clone())
    }
}

/// Directories that are being opened.
#[derive(Default)]
struct Opening {
    open: Vec<DataDir>,
    /// All that any of them remembers. One that is lost, by the word of any, has no path.
    remembered: Vec<(Uuid, PathBuf)>,
    /// Which of them have taken the place of a lost one, and what else their notes give up.
    notes: Vec<(PathBuf, Vec<Uuid>)>,
    offline: Vec<(PathBuf, DataDirError)>,
}

impl Opening {
    fn add(&mut self, path: &Path, opened: Result<DataDir, DataDirError>) -> Result<(), DataDirError> {
        let noted = opened.and_then(|directory| Ok((lost_disk_note(&**directory.disk(), path)?, directory)));
        let (note, directory) = match noted {
            Ok(noted) => noted,
            Err(error) if is_of_the_disk(&error) => {
                self.offline.push((path.to_owned(), error));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for (id, path) in directory.siblings() {
            match self.remembered.iter_mut().find(|(known, _)| *known == id) {
                Some((_, known)) if path.as_os_str().is_empty() => known.clear(),
                Some(_) => {}
                None => self.remembered.push((id, path)),
            }
        }
        self.notes.extend(note.map(|ids| (path.to_owned(), ids)));
        self.open.push(directory);
        Ok(())
    }

    /// The disk of a directory that the node has given up for lost is back.
    fn leave_out_given_up(&mut self) {
        let is_lost = |id: Uuid| self.remembered.iter().any(|(known, path)| *known == id && is_none(path));
        let (given_up, open) = self.open.drain(..).partition(|directory| is_lost(directory.directory_id()));
        self.open = open;
        for directory in given_up {
            let (path, directory) = (directory.path().to_owned(), directory.directory_id());
            self.notes.retain(|(at, _)| *at != path);
            self.offline.push((path.clone(), DataDirError::GivenUp { path, directory }));
        }
    }

    /// Where there is no directory there was none, or somebody has said that it is lost.
    fn check_not_missing(&self, disk: &dyn Disk, path: &Path) -> Result<(), DataDirError> {
        let was = self.remembered.iter().find(|(id, was)| was == path && !is_open(&self.open, *id));
        match was {
            Some((id, _)) if lost_disk_note(disk, path)?.is_none() => {
                Err(DataDirError::Missing { path: path.to_owned(), directory: *id })
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn is_none(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

fn is_open(open: &[DataDir], id: Uuid) -> bool {
    open.iter().any(|directory| directory.directory_id() == id)
}

/// The directories that are given up: they were before, or a note says so of the one whose place it is in, or by name.
fn lost(open: &[DataDir], remembered: &[(Uuid, PathBuf)], notes: &[(PathBuf, Vec<Uuid>)]) -> Vec<Uuid> {
    let replaced = |path: &PathBuf| notes.iter().any(|(at, _)| at == path);
    let by_place = remembered.iter().filter(|(_, path)| is_none(path) || replaced(path)).map(|(id, _)| *id);
    let by_name = notes.iter().flat_map(|(_, ids)| ids.iter().copied());
    let mut lost: Vec<Uuid> = by_place.chain(by_name).filter(|id| !is_open(open, *id)).collect();
    lost.sort_unstable();
    lost.dedup();
    lost
}

/// What may be gone from the directories. Reads files.
fn may_lack(open: &[DataDir], replaces_lost_disk: bool) -> MayLack {
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
    if replaces_lost_disk {
        tracing::warn!("a lost disk was replaced: the copies on this node leave the in-sync sets");
        may_lack = MayLack::Anything;
    }
    may_lack
}

/// Whether the directory may be as it should be but for its disk or its files. Another owner's directory, or one in use, is
/// a mistake of whoever has configured it.
fn is_of_the_disk(error: &DataDirError) -> bool {
    match error {
        DataDirError::Io(_)
        | DataDirError::Damaged { .. }
        | DataDirError::Foreign { .. }
        | DataDirError::Missing { .. }
        | DataDirError::GivenUp { .. } => true,
        DataDirError::InUse { .. }
        | DataDirError::OtherCluster { .. }
        | DataDirError::OtherNode { .. }
        | DataDirError::BadNote { .. } => false,
    }
}

/// What is open, and for each that is not what the others remember of it: by its path, or, if it was moved, what is left.
fn known(
    open: &[DataDir],
    offline: &[OfflineDirectory],
    mut remembered: Vec<(Uuid, PathBuf)>,
) -> Vec<(Uuid, PathBuf)> {
    let mut known: Vec<(Uuid, PathBuf)> =
        open.iter().map(|directory| (directory.directory_id(), directory.path().to_owned())).collect();
    remembered.retain(|(id, _)| !is_open(open, *id));
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
    use log_engine::{OpenMode, REPLACES_LOST_DISK, SimDisk};
    use std::cell::Cell;

    fn paths() -> Vec<PathBuf> {
        ["a", "b", "c"].map(PathBuf::from).into()
    }

    fn open(disk: &Arc<SimDisk>, node_id: i32) -> Result<Directories, DataDirError> {
        open_at(disk, &paths(), node_id, 0)
    }

    /// New directories get ids above `last_id`.
    fn open_at(
        disk: &Arc<SimDisk>,
        paths: &[PathBuf],
        node_id: i32,
        last_id: u128,
    ) -> Result<Directories, DataDirError> {
        let next = Cell::new(last_id);
        let options = || {
            next.set(next.get() + 1);
            DataDirOptions {
                cluster_id: "c".into(),
                node_id,
                new_directory_id: Uuid::from_u128(next.get()),
                descriptors_max: 10,
            }
        };
        Directories::open(&(Arc::clone(disk) as Arc<dyn Disk>), paths, options)
    }

    fn spoil(disk: &SimDisk, path: &str) {
        write(disk, path, b"what is this");
    }

    fn write(disk: &SimDisk, path: &str, bytes: &[u8]) {
        let file = disk.open(Path::new(path), OpenMode::CreateOrEmpty).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    fn read(disk: &SimDisk, path: &str) -> Vec<u8> {
        let file = disk.open(Path::new(path), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn wipe(disk: &SimDisk, path: &str) {
        for entry in disk.list(Path::new(path)).unwrap() {
            disk.remove_file(&Path::new(path).join(entry.name)).unwrap();
        }
    }

    /// What the node does once it is registered and misses what was lost.
    fn settle(all: &Directories) {
        assert!(boot::remember_siblings(&all.open, &all.known));
        boot::remember_all(&all.open).unwrap();
        boot::remove_notes(&all.open).unwrap();
    }

    /// Three directories that know of each other.
    fn settled(disk: &Arc<SimDisk>) -> Vec<DirectoryId> {
        let all = open(disk, 1).unwrap();
        settle(&all);
        all.ids()
    }

    fn is_known(all: &Directories, ids: &[DirectoryId]) -> bool {
        ids.iter().all(|id| all.ids().contains(id))
    }

    #[test]
    fn one_that_is_damaged_is_offline_and_its_id_is_remembered() {
        let disk = SimDisk::new(1);
        let all = open(&disk, 1).unwrap();
        let ids = all.ids();
        assert_eq!((ids.len(), all.offline.len()), (3, 0));
        settle(&all);
        drop(all);
        spoil(&disk, "b/meta.properties");
        let two = open(&disk, 1).unwrap();
        assert_eq!(two.open.iter().map(DataDir::path).collect::<Vec<_>>(), [Path::new("a"), Path::new("c")]);
        assert_eq!(two.offline.iter().map(|d| d.path.as_path()).collect::<Vec<_>>(), [Path::new("b")]);
        assert!(two.offline[0].reason.contains("meta.properties"), "{}", two.offline[0].reason);
        assert!(ids.iter().all(|id| two.ids().contains(id)), "the controllers would refuse it");
        settle(&two);
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
        boot::remember_all(&all.open).unwrap();
        close(all);
        assert_eq!(open(&disk, 1).unwrap().may_lack, MayLack::Nothing);
    }

    #[test]
    fn one_that_is_gone_is_offline_until_an_operator_gives_it_up() {
        let disk = SimDisk::new(1);
        let ids = settled(&disk);
        let old = read(&disk, "b/meta.properties");
        wipe(&disk, "b");
        // Its disk may not be mounted.
        let two = open_at(&disk, &paths(), 1, 10).unwrap();
        assert_eq!((two.open.len(), two.offline.len(), two.replaces_lost_disk), (2, 1, false));
        let reason = &two.offline[0].reason;
        assert!(reason.contains("mounted") && reason.contains(REPLACES_LOST_DISK), "{reason}");
        assert_eq!((two.ids().len(), two.may_lack), (3, MayLack::Nothing));
        assert!(is_known(&two, &ids));
        assert_eq!(disk.list(Path::new("b")).unwrap(), [], "nobody has made it his");
        settle(&two);
        drop(two);

        write(&disk, "b/replaces-lost-disk", b"");
        // Again and again, if the process ends before everybody knows.
        for step in 0..4 {
            let three = open_at(&disk, &paths(), 1, 20 + 10 * step).unwrap();
            assert_eq!((three.open.len(), three.offline.len(), three.replaces_lost_disk), (3, 0, true));
            assert_eq!((three.ids().len(), three.may_lack), (4, MayLack::Anything), "step {step}");
            assert!(is_known(&three, &ids), "the controllers would refuse it");
            assert_eq!(three.given_up(), [ids[1].0]);
            assert_eq!(three.open[1].path(), Path::new("b"), "in the order of the configuration");
            match step {
                0 => {}
                1 => three.open[0].remember_siblings(&three.known).unwrap(),
                2 => assert!(boot::remember_siblings(&three.open, &three.known)),
                _ => settle(&three),
            }
        }
        let three = open_at(&disk, &paths(), 1, 60).unwrap();
        let boot = boot::boot_id().unwrap_or_default();
        three.open.iter().for_each(|directory| directory.remember_boot(&boot).unwrap());
        assert_eq!((three.ids().len(), three.replaces_lost_disk), (4, false), "it is said once");
        let after = three.ids();
        drop(three);
        assert_eq!(open_at(&disk, &paths(), 1, 70).unwrap().may_lack, MayLack::Nothing);

        // The old disk is not what the node has gone on with.
        write(&disk, "b/meta.properties", &old);
        let two = open_at(&disk, &paths(), 1, 80).unwrap();
        assert_eq!((two.open.len(), two.offline.len()), (2, 1));
        assert!(two.offline[0].reason.contains("given up"), "{}", two.offline[0].reason);
        assert!(is_known(&two, &after) && two.ids().len() == 4);
    }

    #[test]
    fn two_are_replaced_at_once_or_while_another_is_offline() {
        let disk = SimDisk::new(1);
        let ids = settled(&disk);
        for path in ["b", "c"] {
            wipe(&disk, path);
        }
        write(&disk, "c/replaces-lost-disk", b"");
        let two = open_at(&disk, &paths(), 1, 10).unwrap();
        assert_eq!((two.open.len(), two.offline.len(), two.replaces_lost_disk), (2, 1, true));
        assert!(is_known(&two, &ids) && two.ids().len() == 4);
        drop(two);
        write(&disk, "b/replaces-lost-disk", b"");
        let all = open_at(&disk, &paths(), 1, 20).unwrap();
        assert_eq!((all.open.len(), all.replaces_lost_disk), (3, true));
        assert!(is_known(&all, &ids) && all.ids().len() == 5);
        settle(&all);
        let ids = all.ids();
        drop(all);
        let all = open_at(&disk, &paths(), 1, 30).unwrap();
        assert!(is_known(&all, &ids) && all.ids().len() == 5 && !all.replaces_lost_disk);
    }

    /// The controllers name it when they refuse the node.
    #[test]
    fn one_that_no_other_remembers_is_given_up_by_name() {
        let disk = SimDisk::new(1);
        let ids = settled(&disk);
        for path in ["a", "c"] {
            spoil(&disk, &format!("{path}/directories"));
        }
        wipe(&disk, "b");
        write(&disk, "b/replaces-lost-disk", b"");
        let all = open_at(&disk, &paths(), 1, 10).unwrap();
        assert!(!is_known(&all, &ids), "it is refused");
        drop(all);
        write(&disk, "b/replaces-lost-disk", format!("{}\n", ids[1].0).as_bytes());
        let all = open_at(&disk, &paths(), 1, 20).unwrap();
        assert!(is_known(&all, &ids) && all.ids().len() == 4 && all.replaces_lost_disk);
        settle(&all);
        drop(all);
        assert!(is_known(&open_at(&disk, &paths(), 1, 30).unwrap(), &ids));

        // The only one.
        let (disk, only) = (SimDisk::new(1), [PathBuf::from("a")]);
        let all = open_at(&disk, &only, 1, 0).unwrap();
        settle(&all);
        let id = all.ids()[0];
        drop(all);
        wipe(&disk, "a");
        let new = open_at(&disk, &only, 1, 10).unwrap();
        assert!(!is_known(&new, &[id]), "it is refused");
        drop(new);
        write(&disk, "a/replaces-lost-disk", id.0.to_string().as_bytes());
        let new = open_at(&disk, &only, 1, 20).unwrap();
        assert!(is_known(&new, &[id]) && new.replaces_lost_disk);
        assert_eq!(new.may_lack, MayLack::Anything);
    }

    #[test]
    fn one_that_was_moved_leaves_its_place_free() {
        let disk = SimDisk::new(1);
        let first = open_at(&disk, &["a".into()], 1, 0).unwrap();
        // By its word it once was elsewhere.
        first.open[0].remember_siblings(&[(first.known[0].0, PathBuf::from("b"))]).unwrap();
        drop(first);
        let both = open_at(&disk, &["a".into(), "b".into()], 1, 10).unwrap();
        assert_eq!((both.open.len(), both.offline.len(), both.replaces_lost_disk), (2, 0, false));
    }

    #[test]
    fn a_mistake_in_the_configuration_ends_the_start() {
        let disk = SimDisk::new(1);
        let held = open(&disk, 1).unwrap();
        assert!(matches!(open(&disk, 1), Err(DataDirError::InUse { .. })));
        drop(held);
        assert!(matches!(open(&disk, 2), Err(DataDirError::OtherNode { .. })));
        write(&disk, "a/replaces-lost-disk", b"b");
        assert!(matches!(open(&disk, 1), Err(DataDirError::BadNote { .. })));
    }
}
