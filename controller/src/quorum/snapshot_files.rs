//! Snapshots on disk: one checksummed file each, written beside and renamed when it is whole.
//!
//! Only the newest one is kept. A snapshot is needed as soon as the log before it is purged, so a damaged one, or one that
//! ends before what was purged, keeps the controller from starting.

use super::disk::{Open, SharedDisk};
use super::store_error::{AtPath, StoreError, crc32c, sync_directory};
use super::stored::{DISK_VERSION, DiskKind, StoredLogId, StoredSnapshotMeta, seal, unseal};
use bytes::Bytes;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"WEIRSNAP";
/// magic, kind, version, length of the meta, length of the data, checksum of all that and of both parts.
const HEADER: usize = 32;

/// The directory of snapshots.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotFiles {
    disk: SharedDisk,
    directory: PathBuf,
}

impl SnapshotFiles {
    /// Opens the directory, making it if needed, and removes what a crash left half-written.
    pub(crate) fn open(disk: &SharedDisk, root: &Path) -> Result<Self, StoreError> {
        let directory = root.join("snapshot");
        disk.create_directory(&directory).at("create", &directory)?;
        let files = Self { disk: Arc::clone(disk), directory };
        for (name, path) in files.list()? {
            if name.ends_with(".tmp") {
                disk.remove(&path).at("remove", &path)?;
            } else if id_of_name(&name).is_none() {
                return Err(StoreError::damaged(&path, "it does not belong among snapshots"));
            }
        }
        Ok(files)
    }

    /// Which snapshot is the newest.
    pub(crate) fn newest(&self) -> Result<Option<(StoredLogId, PathBuf)>, StoreError> {
        let named =
            self.list()?.into_iter().filter_map(|(name, path)| id_of_name(&name).map(|id| (id, path)));
        Ok(named.max_by_key(|(id, _)| (id.index, *id)))
    }

    /// Reads and checks the newest snapshot.
    pub(crate) fn load(&self) -> Result<Option<(StoredSnapshotMeta, Bytes)>, StoreError> {
        let mut newest = self.newest()?;
        while let Some((id, path)) = newest {
            let (meta, data) = match read(&self.disk, &path) {
                // A newer one was saved meanwhile, and this one removed.
                Err(StoreError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound
                        && self.newest()?.is_some_and(|(newer, _)| newer.index > id.index) =>
                {
                    newest = self.newest()?;
                    continue;
                }
                read => read?,
            };
            if meta.last_log_id != Some(id) {
                return Err(StoreError::damaged(&path, "it holds another snapshot than its name says"));
            }
            return Ok(Some((meta, data)));
        }
        Ok(None)
    }

    /// Writes a snapshot durably and removes older ones. A snapshot without any log entry holds nothing and is not kept.
    pub(crate) fn save(&self, meta: &StoredSnapshotMeta, data: &[u8]) -> Result<(), StoreError> {
        let Some(id) = meta.last_log_id else { return Ok(()) };
        let path = self.directory.join(name(id));
        if self.disk.exists(&path) {
            return Ok(());
        }
        let meta = seal(DiskKind::SnapshotMeta, meta);
        let tmp = path.with_extension("tmp");
        let file = self.disk.open(&tmp, Open::Empty).at("create", &tmp)?;
        let mut end = 0;
        for part in [&header(&meta, data)[..], &meta, data] {
            file.write_all_at(part, end).at("write", &tmp)?;
            end += part.len() as u64;
        }
        file.sync().at("sync", &tmp)?;
        self.disk.rename(&tmp, &path).at("rename", &tmp)?;
        sync_directory(&self.disk, &self.directory)?;
        for (name, older) in self.list()? {
            if id_of_name(&name).is_some_and(|other| other.index < id.index) {
                self.disk.remove(&older).at("remove", &older)?;
            }
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<(String, PathBuf)>, StoreError> {
        let paths = self.disk.list(&self.directory).at("list", &self.directory)?;
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(paths.into_iter().map(|path| (name(&path), path)).collect())
    }
}

fn name(id: StoredLogId) -> String {
    format!("{:020}-{}-{}.snap", id.index, id.term, id.node)
}

fn id_of_name(name: &str) -> Option<StoredLogId> {
    let mut parts = name.strip_suffix(".snap")?.split('-').map(|part| part.parse::<u64>().ok());
    let id = StoredLogId { index: parts.next()??, term: parts.next()??, node: parts.next()?? };
    parts.next().is_none().then_some(id)
}

fn header(meta: &[u8], data: &[u8]) -> [u8; HEADER] {
    let mut header = [0_u8; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..10].copy_from_slice(&(DiskKind::SnapshotData as u16).to_le_bytes());
    header[10..12].copy_from_slice(&DISK_VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(meta.len() as u32).to_le_bytes());
    header[16..24].copy_from_slice(&(data.len() as u64).to_le_bytes());
    let checksum = crc32c(&[&header[..24], meta, data]);
    header[24..28].copy_from_slice(&checksum.to_le_bytes());
    header
}

fn read(disk: &SharedDisk, path: &Path) -> Result<(StoredSnapshotMeta, Bytes), StoreError> {
    let bytes = Bytes::from(disk.read(path).at("read", path)?);
    let broken = |what: &str| StoreError::damaged(path, what);
    if bytes.len() < HEADER {
        return Err(broken("it is shorter than its header"));
    }
    let meta_len = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    let body = bytes.slice(HEADER..);
    if meta_len > body.len() {
        return Err(broken("its header has the wrong checksum"));
    }
    let (meta, data) = (body.slice(..meta_len), body.slice(meta_len..));
    if bytes[..HEADER] != header(&meta, &data) {
        return Err(broken("it has the wrong checksum"));
    }
    let meta = unseal(DiskKind::SnapshotMeta, &meta).map_err(|what| broken(&what))?;
    Ok((meta, data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::disk::system_disk;
    use crate::quorum::stored::StoredMembers;

    fn meta(index: u64) -> StoredSnapshotMeta {
        StoredSnapshotMeta {
            last_log_id: Some(StoredLogId { term: 2, node: 1, index }),
            membership_log_id: None,
            membership: StoredMembers { configs: vec![vec![1]], members: vec![(1, "a:1".into())] },
        }
    }

    #[test]
    fn the_newest_snapshot_is_kept_and_half_written_ones_are_removed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let files = SnapshotFiles::open(&system_disk(), dir.path()).expect("opened");
        assert_eq!(files.load().expect("fine"), None);
        files.save(&meta(5), b"five").expect("saved");
        files.save(&meta(12), b"twelve").expect("saved");
        std::fs::write(dir.path().join("snapshot").join("00000000000000000020-2-1.tmp"), b"half")
            .expect("write");
        let files = SnapshotFiles::open(&system_disk(), dir.path()).expect("opened");
        assert_eq!(files.list().expect("listed").len(), 1);
        assert_eq!(files.load().expect("fine"), Some((meta(12), Bytes::from_static(b"twelve"))));
    }

    /// Saves a newer snapshot after the directory was listed for the first time.
    #[derive(Debug)]
    struct SavesMeanwhile {
        disk: SharedDisk,
        root: PathBuf,
        saved: std::sync::Once,
    }

    impl super::super::disk::Disk for SavesMeanwhile {
        fn open(&self, path: &Path, open: Open) -> io::Result<Box<dyn super::super::disk::DiskFile>> {
            self.disk.open(path, open)
        }

        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            self.saved.call_once(|| {
                let files = SnapshotFiles::open(&self.disk, &self.root).expect("opened");
                files.save(&meta(12), b"twelve").expect("saved");
            });
            self.disk.read(path)
        }

        fn exists(&self, path: &Path) -> bool {
            self.disk.exists(path)
        }

        fn create_directory(&self, path: &Path) -> io::Result<()> {
            self.disk.create_directory(path)
        }

        fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
            self.disk.list(directory)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.disk.rename(from, to)
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            self.disk.remove(path)
        }

        fn sync_directory(&self, path: &Path) -> io::Result<()> {
            self.disk.sync_directory(path)
        }
    }

    #[test]
    fn a_snapshot_that_a_newer_one_replaces_while_it_is_loaded_is_not_missed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let root = dir.path().to_owned();
        SnapshotFiles::open(&system_disk(), &root).expect("opened").save(&meta(5), b"five").expect("saved");
        let disk = SavesMeanwhile { disk: system_disk(), root: root.clone(), saved: std::sync::Once::new() };
        let files = SnapshotFiles::open(&(Arc::new(disk) as SharedDisk), &root).expect("opened");
        assert_eq!(files.load().expect("fine"), Some((meta(12), Bytes::from_static(b"twelve"))));
    }

    #[test]
    fn every_bit_flip_and_every_cut_is_noticed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let files = SnapshotFiles::open(&system_disk(), dir.path()).expect("opened");
        files.save(&meta(5), b"some data").expect("saved");
        let (_, path) = files.newest().expect("listed").expect("there");
        let whole = std::fs::read(&path).expect("read");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            std::fs::write(&path, &bytes).expect("write");
            assert!(matches!(files.load(), Err(StoreError::Damaged { .. })), "byte {at}");
            std::fs::write(&path, &whole[..at]).expect("write");
            assert!(matches!(files.load(), Err(StoreError::Damaged { .. })), "cut at {at}");
        }
    }
}
